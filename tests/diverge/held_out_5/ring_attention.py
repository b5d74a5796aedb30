"""One decoding step of attention over a ring of recent keys, with distance biases and a sink."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, HEADS, DIM, RING, TILE = 3, 4, 32, 48, 16
SCALE = DIM**-0.5


@pl.jit
def kernel(
    q: pl.Tensor[[BATCH * HEADS, DIM], pl.FP32],
    new_keys: pl.Tensor[[BATCH, DIM], pl.FP32],
    new_values: pl.Tensor[[BATCH, DIM], pl.FP32],
    slopes: pl.Tensor[[HEADS, 1], pl.FP32],
    sinks: pl.Tensor[[HEADS, 1], pl.FP32],
    steps: pl.Tensor[[BATCH], pl.INT32],
    ages: pl.Tensor[[BATCH, RING], pl.FP32],
    keys: pl.InOut[pl.Tensor[[BATCH * RING, DIM], pl.FP32]],
    values: pl.InOut[pl.Tensor[[BATCH * RING, DIM], pl.FP32]],
    out: pl.Out[pl.Tensor[[BATCH * HEADS, DIM], pl.FP32]],
):
    for b in pl.range(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="append"):
            step = pl.read(steps, [b])
            slot = b * RING + step % RING
            keys[slot : slot + 1, :] = new_keys[b : b + 1, :]
            values[slot : slot + 1, :] = new_values[b : b + 1, :]
    for b in pl.parallel(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="attend"):
            query = q[b * HEADS : b * HEADS + HEADS, :]
            seen = pl.min(RING, pl.read(steps, [b]) + 1)
            slope = slopes[:, :]
            top = sinks[:, :]
            mass = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=1.0), [HEADS, 1])
            acc = pl.full([HEADS, DIM], dtype=pl.FP32, value=0.0)
            for j in pl.range(0, seen, TILE):
                count = pl.min(TILE, seen - j)
                row = b * RING + j
                k = keys[row : row + TILE, :]
                v = pl.slice(values, [TILE, DIM], [row, 0], valid_shape=[count, DIM])
                s = pl.mul(pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32), SCALE)
                age = pl.col_expand(
                    pl.full([HEADS, TILE], dtype=pl.FP32, value=0.0), ages[b : b + 1, j : j + TILE]
                )
                s = pl.sub(s, pl.row_expand_mul(age, slope))
                s = pl.fillpad(pl.set_validshape(s, HEADS, count), pad_value=pl.PadValue.min)
                best = pl.maximum(top, pl.row_max(s))
                fade = pl.exp(pl.sub(top, best))
                p = pl.exp(pl.row_expand_sub(s, best))
                mass = pl.add(pl.mul(mass, fade), pl.row_sum(p))
                acc = pl.add(pl.row_expand_mul(acc, fade), pl.matmul(p, v, out_dtype=pl.FP32))
                top = best
            out[b * HEADS : b * HEADS + HEADS, :] = pl.row_expand_div(acc, mass)
    return keys, values, out


def golden(tensors: dict[str, Any]) -> None:
    q = tensors["q"].astype(np.float64).reshape(BATCH, HEADS, DIM)
    for name in ("keys", "values"):
        ring = tensors[name].reshape(BATCH, RING, DIM)
        for b in range(BATCH):
            ring[b, tensors["steps"][b] % RING] = tensors["new_" + name][b]
    keys = tensors["keys"].astype(np.float64).reshape(BATCH, RING, DIM)
    values = tensors["values"].astype(np.float64).reshape(BATCH, RING, DIM)
    out = tensors["out"].reshape(BATCH, HEADS, DIM)
    for b in range(BATCH):
        n = min(RING, int(tensors["steps"][b]) + 1)
        for h in range(HEADS):
            scores = keys[b, :n] @ q[b, h] / np.sqrt(DIM)
            scores = scores - tensors["slopes"][h, 0] * tensors["ages"][b, :n]
            e = np.exp(scores)
            out[b, h] = e @ values[b, :n] / (e.sum() + np.exp(tensors["sinks"][h, 0]))


RNG = np.random.default_rng
STEPS = np.array([20, 60, 37])
AGES = (STEPS[:, None] - np.arange(RING)) % RING


def normal(seed: int, scale: float, *shape: int):
    return lambda: RNG(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("q", [BATCH * HEADS, DIM], pl.FP32, normal(1, 1.2, BATCH * HEADS, DIM)),
    TensorSpec("new_keys", [BATCH, DIM], pl.FP32, normal(2, 1.0, BATCH, DIM)),
    TensorSpec("new_values", [BATCH, DIM], pl.FP32, normal(3, 1.0, BATCH, DIM)),
    TensorSpec("slopes", [HEADS, 1], pl.FP32, 0.25 ** np.arange(1.0, HEADS + 1)[:, None]),
    TensorSpec("sinks", [HEADS, 1], pl.FP32, normal(4, 1.0, HEADS, 1)),
    TensorSpec("steps", [BATCH], pl.INT32, STEPS),
    TensorSpec("ages", [BATCH, RING], pl.FP32, AGES.astype(np.float32)),
    TensorSpec(
        "keys", [BATCH * RING, DIM], pl.FP32, normal(5, 1.0, BATCH * RING, DIM), is_output=True
    ),
    TensorSpec(
        "values", [BATCH * RING, DIM], pl.FP32, normal(6, 1.0, BATCH * RING, DIM), is_output=True
    ),
    TensorSpec("out", [BATCH * HEADS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "slot without its batch": ("slot = b * RING + step % RING", "slot = step % RING"),
    "ring never wraps": (
        "slot = b * RING + step % RING",
        "slot = b * RING + pl.min(step, RING - 1)",
    ),
    "new row not seen": (
        "seen = pl.min(RING, pl.read(steps, [b]) + 1)",
        "seen = pl.min(RING, pl.read(steps, [b]))",
    ),
    "sink not counted": (
        "mass = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=1.0), [HEADS, 1])",
        "mass = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=0.0), [HEADS, 1])",
    ),
    "bias added": (
        "s = pl.sub(s, pl.row_expand_mul(age, slope))",
        "s = pl.add(s, pl.row_expand_mul(age, slope))",
    ),
    "bias scaled, too": (
        """s = pl.mul(pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32), SCALE)
                age""",
        """s = pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32)
                slope = pl.mul(slope, SCALE)
                age""",
    ),
    "ages of the first tile": ("ages[b : b + 1, j : j + TILE]", "ages[b : b + 1, 0:TILE]"),
    "count of a whole ring": ("count = pl.min(TILE, seen - j)", "count = pl.min(TILE, RING - j)"),
    "output faded after the sum": (
        "acc = pl.add(pl.row_expand_mul(acc, fade), pl.matmul(p, v, out_dtype=pl.FP32))",
        "acc = pl.row_expand_mul(pl.add(acc, pl.matmul(p, v, out_dtype=pl.FP32)), fade)",
    ),
    "new values from the keys": (
        "values[slot : slot + 1, :] = new_values[b : b + 1, :]",
        "values[slot : slot + 1, :] = new_keys[b : b + 1, :]",
    ),
}
