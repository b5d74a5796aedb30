"""A product split along its inner axis; the parts are summed as a tree, then scaled, with GELU."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

M, K, N, PART, TILE = 16, 176, 64, 48, 32
PARTS = 4
A, B = 0.7978845608028654, 0.044715


@pl.jit
def kernel(
    x: pl.Tensor[[M, K], pl.BF16],
    w: pl.Tensor[[K, N], pl.BF16],
    bias: pl.Tensor[[1, N], pl.FP32],
    row_scale: pl.Tensor[[M, 1], pl.FP32],
    skip: pl.Tensor[[M, N], pl.FP32],
    out: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    partial = pl.create_tensor([PARTS * M, N], dtype=pl.FP32)
    for s in pl.parallel(PARTS):
        for n in pl.parallel(0, N, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
                k0 = s * PART
                count = pl.min(PART, K - k0)
                a = pl.slice(x, [M, PART], [0, k0], valid_shape=[M, count])
                b = pl.slice(w, [PART, TILE], [k0, n], valid_shape=[count, TILE])
                partial[s * M : s * M + M, n : n + TILE] = pl.matmul(a, b, out_dtype=pl.FP32)
    step = 1
    for _level in pl.range(2):
        for s in pl.range(0, PARTS, step * 2):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="tree"):
                mine = partial[s * M : s * M + M, :]
                there = (s + step) * M
                partial[s * M : s * M + M, :] = pl.add(mine, partial[there : there + M, :])
        step = step * 2
    for n in pl.parallel(0, N, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="epilogue"):
            total = pl.row_expand_mul(partial[0:M, n : n + TILE], row_scale[:, :])
            y = pl.col_expand_add(total, bias[:, n : n + TILE])
            cube = pl.mul(pl.mul(y, y), y)
            inner = pl.mul(pl.add(y, pl.mul(cube, B)), A)
            e = pl.exp(pl.mul(inner, 2.0))
            tanh = pl.sub(1.0, pl.mul(pl.recip(pl.add(e, 1.0)), 2.0))
            gelu = pl.mul(pl.mul(y, 0.5), pl.add(tanh, 1.0))
            out[:, n : n + TILE] = pl.add(gelu, skip[:, n : n + TILE])
    return out


def golden(tensors: dict[str, Any]) -> None:
    x, w, bias, scale, skip = (
        tensors[n].astype(np.float64) for n in ("x", "w", "bias", "row_scale", "skip")
    )
    y = (x @ w) * scale + bias
    tensors["out"][:] = 0.5 * y * (1 + np.tanh(A * (y + B * y**3))) + skip


def normal(seed: int, scale: float, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("x", [M, K], pl.BF16, normal(1, 1.0, M, K)),
    TensorSpec("w", [K, N], pl.BF16, normal(2, 0.15, K, N)),
    TensorSpec("bias", [1, N], pl.FP32, normal(3, 0.5, 1, N)),
    TensorSpec(
        "row_scale", [M, 1], pl.FP32, lambda: np.random.default_rng(4).uniform(0.3, 1.5, (M, 1))
    ),
    TensorSpec("skip", [M, N], pl.FP32, normal(5, 1.0, M, N)),
    TensorSpec("out", [M, N], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "parts overlap": ("k0 = s * PART", "k0 = s * TILE"),
    "tail of the last part cut": (
        "count = pl.min(PART, K - k0)",
        "count = pl.min(TILE, K - k0)",
    ),
    "neighbor at every level": ("there = (s + step) * M", "there = (s + 1) * M"),
    "distance not doubled": ("        step = step * 2\n", "        step = step + 0\n"),
    "tail beyond the end": (
        "valid_shape=[count, TILE])",
        "valid_shape=[count, TILE // 2])",
    ),
    "one level": ("for _level in pl.range(2):", "for _level in pl.range(1):"),
    "bias before the scale": (
        """total = pl.row_expand_mul(partial[0:M, n : n + TILE], row_scale[:, :])
            y = pl.col_expand_add(total, bias[:, n : n + TILE])""",
        """total = pl.col_expand_add(partial[0:M, n : n + TILE], bias[:, n : n + TILE])
            y = pl.row_expand_mul(total, row_scale[:, :])""",
    ),
    "square for the cube": (
        "cube = pl.mul(pl.mul(y, y), y)",
        "cube = pl.mul(y, y)",
    ),
    "exponent not doubled": ("e = pl.exp(pl.mul(inner, 2.0))", "e = pl.exp(inner)"),
}
