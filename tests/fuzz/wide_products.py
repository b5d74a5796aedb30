"""Matrix products as large as those of models, or nearly: blocks, remainders, layouts and sums."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.drawing import SCOPE, Draw

_ROWS = (1, 1, 2, 3, 6, 7, 8, 12, 13, 16, 17, 24, 33)
_DEPTHS = (8, 31, 64, 100, 255, 256, 257, 300, 520)
_COLUMNS = (1, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100, 129, 260)


@dataclass(frozen=True)
class _Matrix:
    """A window of a tensor; `margin` rows and columns around it belong to the tensor only."""

    name: str
    rows: int
    columns: int
    margin: tuple[int, int]
    is_turned: bool

    def window(self, rows: str, columns: str, shape: tuple[int, int]) -> str:
        """Return the text of a part at a row and a column of the matrix."""
        at, size = [rows, columns], list(shape)
        margin = self.margin
        if self.is_turned:
            at.reverse()
            size.reverse()
            margin = margin[::-1]
        starts = [f"{m} + {a}" if m else a for m, a in zip(margin, at)]
        parts = ", ".join(f"{s} : {s} + {e}" for s, e in zip(starts, size))
        return f"{self.name}[{parts}]"


def _matrix(d: Draw, name: str, rows: int, columns: int, dtype: str, turned: bool) -> _Matrix:
    margin = d.one((0, 0), (0, 0), (1, 0), (0, 3), (2, 16))
    shape = (rows + 2 * margin[0], columns + 2 * margin[1])
    d.given(name, shape[::-1] if turned else shape, dtype)
    return _Matrix(name, rows, columns, margin, turned)


def wide_products(d: Draw) -> str:
    m, k, n = d.one(*_ROWS), d.one(*_DEPTHS), d.one(*_COLUMNS)
    dtype = d.one("BF16", "BF16", "FP32", "FP16", "INT8")
    total = "INT32" if dtype == "INT8" else "FP32"
    turned = [d.one(False, False, True), d.one(False, True)]
    left = _matrix(d, "x", m, k, dtype, turned[0])
    count = d.one(1, 1, 2, 3)
    rights = [_matrix(d, f"w{i}", k, n, dtype, turned[1]) for i in range(count)]
    flags = ", a_trans=True" * turned[0] + ", b_trans=True" * turned[1]
    d.direction = "InOut"
    for i in range(count):
        d.made(f"out{i}", (m, n), total)
    depth = d.one(k, k, *(s for s in (1, 5, 16, 64, 128) if k % s == 0))
    width = d.one(n, n, *(s for s in (8, 16, 32, 65) if n % s == 0))
    height = d.one(m, m, *(s for s in (1, 4, 8) if m % s == 0))
    a = left.window("r", "k", (height, depth))
    starts: list[str] = []
    steps: list[tuple[str, str]] = []
    stores: list[str] = []
    first = d.one("full", "memory", "product", "branch", "cond")
    for i, right in enumerate(rights):
        b = right.window("k", "c", (depth, width))
        out = f"out{i}[r : r + {height}, c : c + {width}]"
        product = f"pl.matmul({a}, {b}, out_dtype=pl.{total}{flags})"
        step = f"pl.matmul_acc(acc{i}, {a}, {b}{flags})"
        if d.one(0, 0, 1):
            step = f"pl.add({d.one(f'acc{i}, {product}', f'{product}, acc{i}')})"
        start, begun = f"pl.full([{height}, {width}], dtype=pl.{total}, value=0)", ""
        if first == "memory":
            start = out
        elif first == "product":
            start = product.replace("k : k", "0 : 0").replace("+ k", "+ 0")
        elif first == "branch":
            begun = product
        elif first == "cond":
            step = f"pl.matmul_acc(acc{i}, {a}, {b}{flags}, init_cond=k == 0)"
        starts.append(f"acc{i} = {start}")
        steps.append((f"acc{i} = {begun or step}", f"acc{i} = {step}"))
        stores.append(f"{out} = {_epilogue(d, f'acc{i}', total)}")
    begin = depth if first == "product" else 0
    text = [*starts, f"for k in pl.{d.one('range', 'pipeline')}({begin}, {k}, {depth}):"]
    if first == "branch":
        text += ["    if k == 0:", *(f"        {begun}" for begun, _ in steps)]
        text += ["    else:", *(f"        {step}" for _, step in steps)]
    else:
        text += [f"    {step}" for _, step in steps]
    body = textwrap.indent("\n".join([*text, *stores]), " " * 16).lstrip()
    return f"""
    for r in pl.{d.loop()}(0, {m}, {height}):
        for c in pl.{d.loop()}(0, {n}, {width}):
            {SCOPE}
                {body}
    """


def _epilogue(d: Draw, acc: str, total: str) -> str:
    if total == "INT32":
        return d.one(acc, acc, f"pl.maximum({acc}, -7)")
    return d.one(acc, acc, d.elementwise(acc, 2), f"pl.cast(pl.cast({acc}, pl.BF16), pl.FP32)")


def expanded_weights(d: Draw) -> str:
    """Products of operands that the task computes: weights of few bits, scaled and masked tiles."""
    m, k, n = d.one(*_ROWS), d.one(16, 64, 96, 256), d.one(8, 16, 33, 64, 130)
    source = d.one("INT8", "BF16", "FP32")
    used = d.one("BF16", "FP32", "FP16")
    turned = d.one(False, True)
    d.given("x", (m, k), d.one(used, "FP32"))
    d.given("w", (n, k) if turned else (k, n), source)
    d.given("scales", (n, 1) if turned else (1, n))
    d.direction = "InOut"
    d.made("out", (m, n))
    given = d.params[0][2]
    depth = d.one(k, *(s for s in (16, 32) if k % s == 0))
    a = f"x[:, k : k + {depth}]"
    a = d.one(a, f"pl.maximum({a}, 0.0)" if given == "FP32" else a)
    a = a if given == used else f"pl.cast({a}, pl.{used}, mode='rint')"
    b = f"w[:, k : k + {depth}]" if turned else f"w[k : k + {depth}, :]"
    scaled = f"pl.cast({b}, pl.FP32)" if source != "FP32" else b
    if source == "INT8":
        scaled = f"pl.cast(pl.cast({b}, pl.FP16), pl.FP32)"
    expand = "row" if turned else "col"
    scaled = d.one(scaled, f"pl.{expand}_expand_mul({scaled}, scales[:, :])")
    b = scaled if used == "FP32" else f"pl.cast({scaled}, pl.{used}, mode='rint')"
    bound, b = d.one(("pass", b), (f"tile = {b}", "tile"))
    flag = ", b_trans=True" if turned else ""
    start = d.one(f"pl.full([{m}, {n}], dtype=pl.FP32, value=0.0)", "out[:, :]")
    other = d.one("acc = pl.add(acc, 1.0)", "pass", "pass", "pass")
    return f"""
    {SCOPE}
        acc = {start}
        for k in pl.range(0, {k}, {depth}):
            {bound}
            acc = pl.matmul_acc(acc, {a}, {b}{flag})
            {other}
        out[:, :] = {_epilogue(d, "acc", "FP32")}
    """


FAMILIES: dict[str, Callable[[Draw], str]] = {
    "wide products": wide_products,
    "expanded weights": expanded_weights,
}
