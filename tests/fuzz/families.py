"""Programs of the kinds that models consist of, with random sizes, orders and details.

Both engines must agree on each, for any threads and order of tasks. Values that decide a place are
clamped in the program, so that any input is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.fuzz import graphs, runtime_sizes, scalars, wide_products
from tests.fuzz.drawing import SCOPE, Draw, Params, Sizes, clamped


def views_of_views(d: Draw) -> str:
    rows, r0, c0 = d.one(8, 16, 24, 32), d.one(0, 4, 8, 20), d.one(0, 3, 8, 16)
    d.given("x", (64, 64))
    d.made("out", (64, 64))
    return f"""
    outer = x[{r0} : {r0 + rows}, {c0} : {c0 + 48}]
    inner = outer[0:{rows // 2}, {d.one(0, 5, 8, 16)} : 48]
    flat = pl.reshape(out, [{d.one("32, 128", "128, 32", "16, 256")}])
    back = pl.reshape(flat, [64, 64])
    for r in pl.{d.loop()}(0, 64, 8):
        {SCOPE}
            back[r : r + 8, :] = {d.elementwise("x[r : r + 8, :]")}
    for r in pl.{d.loop()}(0, {rows // 2}, 4):
        {SCOPE}
            part = back[{r0} : {r0 + rows}, 0:32]
            part[r : r + 4, 0:32] = {d.elementwise("inner[r : r + 4, 0:32]")}
    """


def reinterpreted_views(d: Draw) -> str:
    m, n = d.one((16, 64), (32, 32), (8, 128), (64, 16), (16, 16), (24, 32))
    d.given("x", (m, n))
    d.made("out", (m * n // 16, 16))
    d.made("turned", (n, m))
    steps = d.one(4, 8)
    return f"""
    tall = pl.reshape(x, [{m * n // 16}, 16])
    sideways = pl.transpose(x, 0, 1)
    for r in pl.{d.loop()}(0, {m * n // 16}, {steps}):
        {SCOPE}
            out[r : r + {steps}, :] = {d.elementwise(f"tall[r : r + {steps}, :]")}
    for r in pl.{d.loop()}(0, {n}, 8):
        {SCOPE}
            turned[r : r + 8, :] = {d.elementwise("sideways[r : r + 8, :]")}
    """


def paged_attention(d: Draw) -> str:
    heads, dim, page = d.one(16, 32), d.one(16, 32, 48), d.one(16, 32)
    pages, batch, slots = d.one(1, 3, 6), d.one(1, 2, 3), d.one(1, 2, 4)
    d.given("q", (batch * heads, dim), "BF16")
    d.given("keys", (pages * page, dim), "BF16")
    d.given("values", (pages * page, dim), "BF16")
    d.given("table", (batch * slots,), "INT32")
    d.given("lengths", (batch,), "INT32")
    d.made("out", (batch * heads, dim))
    mode = d.one("min", "max")
    return f"""
    for b in pl.{d.loop()}({batch}):
        length = pl.max({clamped("pl.read(lengths, [b])", slots * page)}, 1)
        {SCOPE}
            rows = q[b * {heads} : b * {heads} + {heads}, :]
            factor = {d.number()}
            top = pl.full([{heads}, 1], dtype=pl.FP32, value=-3.0e38)
            total = pl.full([{heads}, 1], dtype=pl.FP32, value=0.0)
            acc = pl.full([{heads}, {dim}], dtype=pl.FP32, value=0.0)
            for p in pl.range((length + {page - 1}) // {page}):
                at = {clamped(f"pl.read(table, [b * {slots} + p])", pages - 1)} * {page}
                valid = pl.min(length - p * {page}, {page})
                scores = pl.matmul(
                    rows, keys[at : at + {page}, :], b_trans=True, out_dtype=pl.FP32
                )
                scores = pl.mul(scores, factor)
                scores = pl.fillpad(
                    pl.set_validshape(scores, {heads}, valid), pad_value=pl.PadValue.{mode}
                )
                peak = pl.maximum(top, pl.row_max(scores))
                weights = pl.exp(pl.row_expand_sub(scores, peak))
                scale = pl.exp(pl.sub(top, peak))
                total = pl.add(pl.mul(total, scale), pl.row_sum(weights))
                part = pl.matmul(
                    pl.cast(weights, pl.BF16, mode="rint"),
                    values[at : at + {page}, :],
                    out_dtype=pl.FP32,
                )
                acc = pl.add(pl.row_expand_mul(acc, scale), part)
                top = peak
            mean = pl.row_expand_div(acc, total)
            out[b * {heads} : b * {heads} + {heads}, :] = {d.elementwise("mean", 2)}
    """


def experts(d: Draw) -> str:
    count, tokens, dim, top = d.one(2, 3, 4), d.one(2, 4, 5), d.one(16, 32), d.one(1, 2, 3)
    d.given("x", (tokens * 16, dim), "BF16")
    d.given("w", (count * dim, dim), "BF16")
    d.given("chosen", (tokens * top,), "INT32")
    d.given("gates", (tokens * top,))
    d.made("out", (tokens * 16, dim))
    return f"""
    for t in pl.{d.loop()}({tokens}):
        {SCOPE}
            acc = pl.full([16, {dim}], dtype=pl.FP32, value=0.0)
            for k in pl.range({top}):
                e = {clamped(f"pl.read(chosen, [t * {top} + k])", count - 1)}
                gate = pl.read(gates, [t * {top} + k])
                y = pl.matmul(
                    x[t * 16 : t * 16 + 16, :], w[e * {dim} : e * {dim} + {dim}, :],
                    out_dtype=pl.FP32,
                )
                acc = pl.add(acc, pl.mul({d.elementwise("y", 2)}, gate))
            out[t * 16 : t * 16 + 16, :] = acc
    """


def scan(d: Draw) -> str:
    steps, width = d.one(1, 3, 4, 8), d.one(8, 16, 40, 64)
    op = d.one("add", "maximum", "mul", "sub", "minimum")
    d.given("x", (steps * 8, width))
    d.given("decay", (steps,))
    d.made("out", (steps * 8, width))
    return f"""
    state = pl.create_tensor([8, {width}], dtype=pl.FP32)
    {SCOPE}
        state[:, :] = pl.full([8, {width}], dtype=pl.FP32, value={d.number()})
    for s in pl.range({steps}):
        {SCOPE}
            kept = pl.mul(state[:, :], pl.read(decay, [s]))
            now = pl.{op}(kept, {d.elementwise("x[s * 8 : s * 8 + 8, :]", 2)})
            state[:, :] = now
            out[s * 8 : s * 8 + 8, :] = now
    """


def nested_inlines(d: Draw) -> str:
    ops = [d.elementwise(tile, 2) for tile in ("tile", "tile", "tile")]
    d.given("x", (32, 32))
    d.made("out", (32, 32))
    d.helpers = f"""\
@pl.jit.inline
def first(tile):
    return {ops[0]}


@pl.jit.inline
def second(tile, other):
    changed = first(tile)
    return pl.{d.one("add", "sub", "maximum")}(changed, first(other))


@pl.jit.inline
def third(src, dst, row):
    {SCOPE}
        tile = src[row : row + 8, :]
        dst[row : row + 8, :] = second({ops[1]}, second(tile, {ops[2]}))
    return dst


"""
    return f"""
    for r in pl.{d.loop()}(0, 32, 8):
        out = third(x, out, r)
    """


def quantised_layer(d: Draw) -> str:
    rows, inner, columns = d.one(16, 32), d.one(32, 64, 96), d.one(16, 32, 64)
    d.given("x", (rows, inner))
    d.given("w", (inner, columns), "INT8")
    d.given("scales", (1, columns))
    d.made("out", (rows, columns))
    d.made("codes", (rows, inner), "INT8")
    return f"""
    {SCOPE}
        tile = pl.minimum(pl.maximum({d.elementwise("x[:, :]", 2)}, -1000.0), 1000.0)
        most = pl.maximum(pl.row_max(pl.abs(tile)), {d.one("1e-4", "0.5", "1.0")})
        factor = pl.mul(pl.recip(most), 127.0)
        scaled = pl.row_expand_mul(tile, factor)
        whole = pl.cast(scaled, pl.INT32, mode="rint")
        small = pl.cast(pl.cast(whole, pl.FP16, mode="round"), pl.INT8, mode="trunc")
        codes[:, :] = small
    {SCOPE}
        product = pl.matmul(codes[:, :], w[:, :], out_dtype=pl.INT32)
        real = pl.cast(product, pl.FP32)
        again = pl.mul(pl.maximum(pl.row_max(pl.abs(x[:, :])), 1e-4), {1 / 127})
        out[:, :] = pl.col_expand_mul(pl.row_expand_mul(real, again), scales[:, :])
    """


def index_chain(d: Draw) -> str:
    rows = d.one(3, 8, 13, 16)
    d.given("x", (rows * 4, 16))
    d.given("first", (rows,), "INT32")
    d.given("second", (rows,), "INT32")
    d.made("out", (rows, 16))
    read = "pl.read(chain, [i])"
    return f"""
    chain = pl.create_tensor([{rows}], dtype=pl.INT32)
    {SCOPE}
        for i in pl.range({rows}):
            a = {clamped("pl.read(first, [i])", rows - 1)}
            pl.write(chain, [i], pl.read(second, [a]))
    for i in pl.{d.loop()}({rows}):
        {SCOPE}
            row = {clamped(read, rows * 4 - 1)}
            out[i : i + 1, :] = {d.elementwise("x[row : row + 1, :]")}
    """


def long_rows(d: Draw) -> str:
    """Rows of tiles that fill the L1 cache: their ops run row by row."""
    rows, columns = d.one((8, 1024), (8, 1100), (16, 520), (33, 256), (64, 130))
    dtype = d.one("FP32", "FP32", "BF16")
    d.given("x", (2 * rows, columns), dtype)
    d.given("v", (1, columns))
    d.made("out", (2 * rows, columns))
    d.made("also", (2 * rows, columns))
    window = f"r : r + {rows}, :"
    lines = [f"t0 = pl.cast(x[{window}], pl.FP32)" if dtype == "BF16" else f"t0 = x[{window}]"]
    lines.append("t1 = pl.exp(pl.row_expand_sub(t0, pl.row_max(t0)))")
    names = [f"out[{window}]", "t0", "t1"]
    for i in range(2, d.one(5, 7, 10)):
        a, b = d.one(*names), d.one(*names[-2:])
        reduced = f"pl.row_{d.one('sum', 'max', 'min')}({b})"
        new = d.one(
            f"pl.row_expand_{d.one('sub', 'mul', 'div', 'add')}({a}, {reduced})",
            f"pl.row_expand_sub({a}, pl.reshape(pl.reshape({reduced}, [1, {rows}]), [{rows}, 1]))",
            f"pl.exp(pl.minimum({a}, 3.0))",
            f"pl.{d.one('add', 'maximum')}({a}, {b})",
            f"pl.col_expand_mul({a}, v[:, :])",
            d.elementwise(a, 2),
            f"pl.cast(pl.cast({a}, pl.BF16), pl.FP32)",
        )
        names.append(f"t{i}")
        lines.append(f"t{i} = {new}")
        if d.one(0, 0, 0, 0, 1):
            lines.append(f"{d.one('out', 'also')}[{window}] = {d.one(*names)}")
    lines.append(f"{d.one('out', 'also')}[{window}] = {names[-1]}")
    body = "\n".join(" " * 12 + line for line in lines).lstrip()
    return f"""
    for r in pl.{d.loop()}(0, {2 * rows}, {rows}):
        {SCOPE}
            {body}
    """


FAMILIES: dict[str, Callable[[Draw], str]] = {
    "views of views": views_of_views,
    "reinterpreted views": reinterpreted_views,
    "paged attention": paged_attention,
    "experts": experts,
    "scans": scan,
    "nested inlines": nested_inlines,
    "quantised layers": quantised_layer,
    "index chains": index_chain,
    "long rows": long_rows,
    **graphs.FAMILIES,
    **runtime_sizes.FAMILIES,
    **scalars.FAMILIES,
    **wide_products.FAMILIES,
}


def program(rng: np.random.Generator, family: str) -> tuple[str, Params, Sizes]:
    """Return the text of a `@pl.jit` function of a family, its parameters, and the extents that
    differ from call to call.
    """
    d = Draw(rng)
    text = d.text(FAMILIES[family](d))
    return text, [*d.params, *d.outputs], d.sizes
