"""Product with 4-bit weights, two per word, with a scale and a zero point per group of rows."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

M, K, N, GROUP, TILE = 16, 128, 64, 32, 32
GROUPS, WORDS = K // GROUP, K // 2
HALF = GROUP // 2


@pl.jit
def kernel(
    even: pl.Tensor[[M, WORDS], pl.FP32],
    odd: pl.Tensor[[M, WORDS], pl.FP32],
    packed: pl.Tensor[[WORDS, N], pl.INT32],
    scales: pl.Tensor[[GROUPS, N], pl.FP32],
    zeros: pl.Tensor[[GROUPS, N], pl.FP32],
    out: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    for n in pl.parallel(0, N, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="dequantize"):
            acc = pl.full([M, TILE], dtype=pl.FP32, value=0.0)
            for g in pl.range(GROUPS):
                w0 = g * HALF
                words = pl.slice(packed, [HALF, TILE], [w0, n])
                low = pl.cast(pl.ands(words, 15), pl.FP32)
                high = pl.cast(pl.ands(pl.shrs(words, 4), 15), pl.FP32)
                zero = pl.slice(zeros, [1, TILE], [g, n])
                low = pl.col_expand_sub(low, zero)
                high = pl.col_expand_sub(high, zero)
                left = pl.slice(even, [M, HALF], [0, w0])
                right = pl.slice(odd, [M, HALF], [0, w0])
                part = pl.matmul(left, low, out_dtype=pl.FP32)
                part = pl.matmul_acc(part, right, high)
                scale = pl.slice(scales, [1, TILE], [g, n])
                acc = pl.add(acc, pl.col_expand_mul(part, scale))
            out = pl.assemble(out, acc, [0, n])
    return out


def golden(tensors: dict[str, Any]) -> None:
    even, odd = (tensors[name].astype(np.float64) for name in ("even", "odd"))
    x = np.stack([even, odd], axis=2).reshape(M, K)
    packed = tensors["packed"]
    levels = np.stack([packed & 15, packed >> 4 & 15], axis=1).reshape(K, N)
    scales = np.repeat(tensors["scales"].astype(np.float64), GROUP, axis=0)
    zeros = np.repeat(tensors["zeros"].astype(np.float64), GROUP, axis=0)
    tensors["out"][:] = x @ ((levels - zeros) * scales)


RNG = np.random.default_rng
SPECS = [
    TensorSpec("even", [M, WORDS], pl.FP32, lambda: RNG(1).normal(size=(M, WORDS))),
    TensorSpec("odd", [M, WORDS], pl.FP32, lambda: RNG(2).normal(size=(M, WORDS))),
    TensorSpec("packed", [WORDS, N], pl.INT32, lambda: RNG(3).integers(0, 256, (WORDS, N))),
    TensorSpec("scales", [GROUPS, N], pl.FP32, lambda: RNG(4).uniform(0.02, 0.1, (GROUPS, N))),
    TensorSpec("zeros", [GROUPS, N], pl.FP32, lambda: RNG(5).integers(5, 11, (GROUPS, N))),
    TensorSpec("out", [M, N], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "zero point added": (
        "high = pl.col_expand_sub(high, zero)",
        "high = pl.col_expand_add(high, zero)",
    ),
    "nibble of the sign": ("pl.ands(pl.shrs(words, 4), 15)", "pl.ands(pl.shrs(words, 3), 15)"),
    "scale of the first group": (
        "scale = pl.slice(scales, [1, TILE], [g, n])",
        "scale = pl.slice(scales, [1, TILE], [0, n])",
    ),
    "rows of a whole group": ("w0 = g * HALF", "w0 = g * GROUP % WORDS"),
    "halves exchanged": (
        "part = pl.matmul_acc(part, right, high)",
        "part = pl.matmul_acc(part, left, high)",
    ),
}
