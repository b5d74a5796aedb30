"""Programs whose extents, strides and loop bounds differ from call to call, or have many axes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.fuzz.drawing import SCOPE, Draw, clamped


def tails(d: Draw) -> str:
    """Tiles of a matrix of any size, with a remainder in each direction."""
    m = d.extent("M", 1, 3, 8, 15, 16, 17, 33, 64)
    n = d.one(d.extent("N", 1, 8, 24, 40, 64, 65), "N", 48)
    height, width = d.one(4, 8, 16), d.one(8, 16, 32)
    dtype = d.one("FP32", "FP32", "BF16", "INT32")
    d.given("x", (m, n), dtype)
    d.given("v", (1, n))
    d.given("factor", (), "FP32")
    d.given("count", (), "INT32")
    d.direction = "InOut"
    d.made("out", (m, n))
    bound = d.one("m", "m", clamped("count", 40), "pl.min(m, pl.max(count, 1))")
    rows = d.one("pl.tensor.dim(x, 0)", "M", "x.shape[0]")
    columns = str(n) if isinstance(n, int) else d.one("pl.tensor.dim(x, 1)", "N", "out.shape[1]")
    size = f"[{height}, {width}]"
    load = d.one(
        f"pl.slice(SOURCE, {size}, [r, c], valid_shape=[h, w])",
        f"pl.slice(SOURCE, {size}, [r, c], clamp=True)",
        f"pl.load(SOURCE, [r, c], {size}, valid_shape=[h, w])",
    )
    first = load.replace("SOURCE", "x")
    tile = f"pl.cast({first}, pl.FP32)" if dtype != "FP32" else first
    lines = [f"tile = {tile}"]
    row = f"pl.slice(v, [1, {width}], [0, c], valid_shape=[1, w])"
    lines.append(
        d.one(
            f"tile = pl.col_expand_mul(tile, {row})",
            "tile = pl.mul(tile, factor)",
            "tile = pl.row_expand_sub(tile, pl.row_max(tile))",
            f"tile = pl.add(tile, {load.replace('SOURCE', 'out')})",
            "tile = pl.fillpad(tile, pad_value=pl.PadValue.max)",
            "",
        )
    )
    lines.append(f"tile = {d.elementwise('tile', 2)}")
    if "fillpad" in lines[1]:
        lines.append("tile = pl.set_validshape(tile, h, w)")
    source, after = "out", ""
    if d.one(0, 0, 1):  # through memory of the same size, and back in other tiles
        source = "scratch"
        after = f"""
    for r in pl.{d.loop()}(m):
        {SCOPE}
            for c in pl.range(0, n, 16):
                row = pl.slice(scratch, [1, 16], [r, c], valid_shape=[1, pl.min(n - c, 16)])
                out = pl.assemble(out, {d.elementwise("row", 1)}, [r, c])
    """
    lines.append(f"{source} = pl.assemble({source}, tile, [r, c])")
    made = "scratch = pl.create_tensor([m, n], dtype=pl.FP32)\n    " if after else ""
    bound = "m" if after else bound
    inner = textwrap.indent("\n".join(line for line in lines if line), " " * 16).lstrip()
    return f"""
    m = {rows}
    n = {columns}
    {made}for r in pl.{d.loop()}(0, pl.min({bound}, m), {height}):
        h = pl.min(m - r, {height})
        for c in pl.{d.loop()}(0, n, {width}):
            w = pl.min(n - c, {width})
            {SCOPE}
                {inner}
    {after}"""


def products_of_any_size(d: Draw) -> str:
    m, n = d.extent("M", 1, 5, 16, 17, 32), d.extent("N", 3, 16, 24, 33, 64)
    k = d.extent("K", 1, 7, 16, 32, 50, 64)
    height, width, depth = d.one(8, 16), d.one(16, 32), d.one(8, 16, 32)
    dtype = d.one("FP32", "BF16", "FP16", "INT8")
    total = "INT32" if dtype == "INT8" else "FP32"
    turned = d.one(False, True)
    d.given("x", (m, k), dtype)
    d.given("w", (n, k) if turned else (k, n), dtype)
    d.direction = "InOut"
    d.made("out", (m, n), total)
    left = f"pl.slice(x, [{height}, {depth}], [r, k], valid_shape=[h, pl.min(K - k, {depth})])"
    right = f"pl.slice(w, [{depth}, {width}], [k, c], valid_shape=[pl.min(K - k, {depth}), q])"
    if turned:
        right = f"pl.slice(w, [{width}, {depth}], [c, k], valid_shape=[q, pl.min(K - k, {depth})])"
    flag = ", b_trans=True" if turned else ""
    start = d.one(
        f"pl.full([{height}, {width}], dtype=pl.{total}, value=0)",
        f"pl.slice(out, [{height}, {width}], [r, c], valid_shape=[h, q])",
    )
    step = d.one(
        f"pl.matmul_acc(acc, {left}, {right}{flag})",
        f"pl.add(acc, pl.matmul({left}, {right}, out_dtype=pl.{total}{flag}))",
        f"pl.matmul_acc(acc, {left}, {right}{flag}, init_cond=k == 0)",
    )
    return f"""
    for r in pl.{d.loop()}(0, M, {height}):
        h = pl.min(M - r, {height})
        for c in pl.{d.loop()}(0, N, {width}):
            q = pl.min(N - c, {width})
            {SCOPE}
                acc = {start}
                for k in pl.range(0, K, {depth}):
                    acc = {step}
                out = pl.assemble(out, pl.set_validshape(acc, h, q), [r, c])
    """


def many_axes(d: Draw) -> str:
    """Tensors of three and four axes, their layers, and views that merge or swap axes."""
    batch = d.one(d.extent("B", 1, 2, 3), "B", 2)
    heads = d.one(d.extent("H", 1, 2, 4), "H", 3)
    rows, columns = d.one(8, 16), d.one(8, 16, 24)
    dtype = d.one("FP32", "BF16", "INT32", "INT16", "FP16", "UINT8", "UINT16", "UINT32", "INT64")
    d.given("x", (batch, heads, rows, columns), dtype)
    d.given("y", (batch, rows, columns), dtype)
    d.given("at", (), "INT32")
    d.direction = "InOut"
    d.made("out", (batch, heads, rows, columns), dtype)
    d.made("flat", (batch, heads, rows * columns), dtype)
    count = d.one(2, 4, rows)
    place = d.one(f"r : r + {count}", f"r : r + {count}", f"({rows} - {count} - r) : {rows} - r")
    op = d.one("add", "sub", "maximum", "minimum") if dtype != "INT64" else "maximum"
    layer = d.one(
        f"x[b, h, {place}, :]",
        f"pl.reshape(x[b : b + 1, h : h + 1, {place}, :], [{count}, {columns}])",
        f"pl.slice(x, [1, 1, {count}, {columns}], [b, h, r, 0], drop_dims=[0, 1])",
        f"merged[(b * {heads} + h) * {rows} + r : (b * {heads} + h) * {rows} + r + {count}, :]",
        f"swapped[h, b, {place}, :]",
    )
    other = d.one(f"y[b, {place}, :]", f"y[b, 0:{count}, :]", f"x[b, chosen, 0:{count}, :]")
    value = d.one(f"pl.{op}({layer}, {other})", f"pl.maximum({layer}, 1)", layer)
    store = d.one(
        f"out[b, h, {place}, :] = tile",
        "out = pl.assemble(out, tile, [b, h, r, 0])",
        f"flat[b, h : h + 1, r * {columns} : (r + {count}) * {columns}] = "
        f"pl.reshape(tile, [1, {count * columns}])",
    )
    inner = f"tile = {value}\n                {store}"
    return f"""
    chosen = {clamped("at", 0) if isinstance(heads, str) else clamped("at", heads - 1)}
    merged = pl.reshape(x, [{batch} * {heads} * {rows}, {columns}])
    swapped = pl.transpose(x, 0, 1)
    for b in pl.{d.loop()}({batch}):
        for h in pl.{d.loop()}({heads}):
            for r in pl.{d.loop()}(0, {rows}, {count}):
                {SCOPE}
                    {inner.replace(" " * 16, " " * 20)}
    """


FAMILIES: dict[str, Callable[[Draw], str]] = {
    "tails": tails,
    "products of any size": products_of_any_size,
    "many axes": many_axes,
}
