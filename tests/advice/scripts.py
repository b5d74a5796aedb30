"""Scripts with one fault each: a body between a common head and tail."""

from __future__ import annotations

import textwrap

HEAD = """\
import ml_dtypes
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

ROWS = 16
HIDDEN = 512
WIDE = 1024
TILE = 128
CHUNK = 64


@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[ROWS, HIDDEN], pl.BF16],
        w: pl.Tensor[[HIDDEN, WIDE], pl.BF16],
        v: pl.Tensor[[WIDE, HIDDEN], pl.BF16],
        lengths: pl.Tensor[[ROWS], pl.INT32],
        out: pl.InOut[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
    ):
"""

TAIL = """

if __name__ == "__main__":
    draw = np.random.default_rng(7)

    def made(*shape):
        return (draw.standard_normal(shape) / 8).astype(ml_dtypes.bfloat16)

    specs = [
        TensorSpec("x", (ROWS, HIDDEN), pl.BF16, made(ROWS, HIDDEN)),
        TensorSpec("w", (HIDDEN, WIDE), pl.BF16, made(HIDDEN, WIDE)),
        TensorSpec("v", (WIDE, HIDDEN), pl.BF16, made(WIDE, HIDDEN)),
        TensorSpec("lengths", (ROWS,), pl.INT32, np.full(ROWS, 3, np.int32)),
        TensorSpec("out", (ROWS, HIDDEN), pl.FP32, is_output=True),
    ]
    run(Program, specs)
"""


def script(body: str) -> str:
    """Return a whole script whose program has this body."""
    return HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n" + TAIL


def line_of(text: str, part: str, which: int = 1) -> int:
    """Return the line number of the `which`-th occurrence of `part`."""
    lines = [n for n, line in enumerate(text.splitlines(), 1) if part in line]
    return lines[which - 1]


SUM = """
acc = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
for kb in pl.range(HIDDEN // TILE):
    with pl.at(level=pl.Level.CORE_GROUP):
        zero = pl.full([ROWS, TILE], dtype=pl.FP32, value=0.0)
        acc = pl.assemble(acc, zero, [0, kb * TILE])
for ob in pl.range(WIDE // CHUNK):
    m0 = ob * CHUNK
    with pl.at(level=pl.Level.CORE_GROUP):
        # one block of the activations
        part = pl.matmul(x[:, 0:TILE], w[0:TILE, m0 : m0 + CHUNK], out_dtype=pl.FP32)
        for kb in pl.range(1, HIDDEN // TILE):
            k0 = kb * TILE
            part = pl.matmul_acc(part, x[:, k0 : k0 + TILE], w[k0 : k0 + TILE, m0 : m0 + CHUNK])
        chunk = pl.cast(part, target_type=pl.BF16)
    for db in pl.range(HIDDEN // TILE):
        d0 = db * TILE
        with pl.at(level=pl.Level.CORE_GROUP):
            product = pl.matmul(chunk, v[m0 : m0 + CHUNK, d0 : d0 + TILE], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            so_far = pl.slice(acc, [ROWS, TILE], [0, d0])
            added = pl.add(so_far, product)
            acc = pl.assemble(acc, added, [0, d0])
for kb in pl.range(HIDDEN // TILE):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, kb * TILE : (kb + 1) * TILE] = acc[:, kb * TILE : (kb + 1) * TILE]
return out
"""

DEAD_FILL = """
for kb in pl.range(HIDDEN // CHUNK):
    with pl.at(level=pl.Level.CORE_GROUP):
        zero = pl.full([ROWS, CHUNK], dtype=pl.FP32, value=0.0)
        out = pl.assemble(out, zero, [0, kb * CHUNK])
for kb in pl.range(HIDDEN // CHUNK):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, kb * CHUNK : (kb + 1) * CHUNK], target_type=pl.FP32)
        out[:, kb * CHUNK : (kb + 1) * CHUNK] = pl.exp(t)
return out
"""

LIVE_FILL = DEAD_FILL.replace("pl.exp(t)", "pl.add(out[:, kb * CHUNK : (kb + 1) * CHUNK], t)")

ROUND_TRIP = """
middle = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
for kb in pl.range(HIDDEN // CHUNK):
    k0 = kb * CHUNK
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, k0 : k0 + CHUNK], target_type=pl.FP32)
        middle = pl.assemble(middle, pl.exp(t), [0, k0])
    # and back
    with pl.at(level=pl.Level.CORE_GROUP):
        back = pl.slice(middle, [ROWS, CHUNK], [0, k0])
        out[:, k0 : k0 + CHUNK] = pl.mul(back, 2.0)
return out
"""

READS = """
with pl.at(level=pl.Level.CORE_GROUP):
    for r in pl.range(4):
        for kb in pl.range(HIDDEN // CHUNK):
            n = pl.read(lengths, [r])
            t = pl.cast(x[:, kb * CHUNK : (kb + 1) * CHUNK], target_type=pl.FP32)
            if n > 2:
                out[:, kb * CHUNK : (kb + 1) * CHUNK] = pl.exp(t)
return out
"""

NORM = """
with pl.at(level=pl.Level.CORE_GROUP):
    t = pl.cast(x[:, 0:HIDDEN], target_type=pl.FP32)
    mean = pl.mul(pl.row_sum(pl.mul(t, t)), 1.0 / HIDDEN)
    scale = pl.add(mean, 1e-6)
    out[:, :] = pl.row_expand_mul(t, scale)
return out
"""

ADDED_IN_LOOP = """
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.full([ROWS, TILE], dtype=pl.FP32, value=0.0)
        for kb in pl.range(WIDE // TILE):
            k0 = kb * TILE
            # the last rows of `w` are its first
            product = pl.matmul(x[:, 0:TILE], v[k0 : k0 + TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
            acc = pl.add(acc, product)
        out = pl.assemble(out, acc, [0, d0])
return out
"""

ZEROS_READ_BACK = """
acc = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
for kb in pl.range(HIDDEN // TILE):
    with pl.at(level=pl.Level.CORE_GROUP):
        zero = pl.full([ROWS, TILE], dtype=pl.FP32, value=0.0)
        acc = pl.assemble(acc, zero, [0, kb * TILE])
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    with pl.at(level=pl.Level.CORE_GROUP):
        so_far = pl.slice(acc, [ROWS, TILE], [0, d0])
        for kb in pl.range(WIDE // TILE):
            k0 = kb * TILE
            product = pl.matmul(x[:, 0:TILE], v[k0 : k0 + TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
            so_far = pl.add(so_far, product)
        acc = pl.assemble(acc, so_far, [0, d0])
for kb in pl.range(HIDDEN // TILE):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, kb * TILE : (kb + 1) * TILE] = acc[:, kb * TILE : (kb + 1) * TILE]
return out
"""

WRITTEN_SINCE = ZEROS_READ_BACK.replace(
    "for db in",
    """with pl.at(level=pl.Level.CORE_GROUP):
    acc = pl.assemble(acc, pl.cast(x[:, 0:TILE], target_type=pl.FP32), [0, 0])
for db in""",
)

ONE_SCOPE = """
for kb in pl.range(HIDDEN // CHUNK):
    k0 = kb * CHUNK
    both = pl.create_tensor([2 * ROWS, CHUNK], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, k0 : k0 + CHUNK], target_type=pl.FP32)
        both = pl.assemble(both, t, [0, 0])
        both = pl.assemble(both, pl.exp(t), [ROWS, 0])
        twice = pl.mul(both, 2.0)
        out = pl.assemble(out, pl.slice(twice, [ROWS, CHUNK], [ROWS, 0]), [0, k0])
return out
"""

LAUNCHES = """
with pl.at(level=pl.Level.CORE_GROUP):
    most = pl.full([ROWS, CHUNK], dtype=pl.FP32, value=-1.0)
for kb in pl.range(HIDDEN // CHUNK):
    k0 = kb * CHUNK
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, k0 : k0 + CHUNK], target_type=pl.FP32)
        most = pl.maximum(most, t)
with pl.at(level=pl.Level.CORE_GROUP):
    for kb in pl.range(HIDDEN // CHUNK):
        out = pl.assemble(out, most, [0, kb * CHUNK])
return out
"""

PADDED = """
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    padded = pl.create_tensor([ROWS, TILE], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        product = pl.matmul(x[:, 0:TILE], v[0:TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
        padded = pl.assemble(padded, product, [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP):
        used = pl.slice(padded, [8, TILE], [0, 0])
        out = pl.assemble(out, used, [0, d0])
        out = pl.assemble(out, used, [8, d0])
return out
"""

PADDED_COLUMNS = """
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    part = d0 % 64
    padded = pl.create_tensor([ROWS, 128], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        product = pl.matmul(x[:, 0:TILE], v[0:TILE, 0:128], out_dtype=pl.FP32)
        padded = pl.assemble(padded, product, [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP):
        used = pl.slice(padded, [ROWS, 96], [0, 0])
        out = pl.assemble(out, used, [0, d0])
return out
"""

CROSSING = """
middle = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
for kb in pl.range(HIDDEN // CHUNK):
    k0 = kb * CHUNK
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, k0 : k0 + CHUNK], target_type=pl.FP32)
        middle = pl.assemble(middle, pl.exp(t), [0, k0])
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.assemble(out, pl.neg(pl.slice(middle, [ROWS, TILE], [0, d0])), [0, d0])
return out
"""

SHARED = """
for db in pl.range(HIDDEN // TILE):
    d0 = db * TILE
    with pl.at(level=pl.Level.CORE_GROUP):
        a = pl.matmul(x[:, 0:TILE], v[0:TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        b = pl.matmul(x[:, 0:TILE], v[TILE : 2 * TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.assemble(out, pl.mul(a, b), [0, d0])
return out
"""

SHARED_APART = """
for db in pl.range(HIDDEN // TILE // 2):
    d0 = 2 * db * TILE
    with pl.at(level=pl.Level.CORE_GROUP):
        a = pl.matmul(x[:, 0:TILE], v[0:TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
    out = pl.assemble(out, a, [0, d0])
    with pl.at(level=pl.Level.CORE_GROUP):
        b = pl.matmul(x[:, 0:TILE], v[TILE : 2 * TILE, d0 : d0 + TILE], out_dtype=pl.FP32)
    out = pl.assemble(out, b, [0, d0 + TILE])
return out
"""
