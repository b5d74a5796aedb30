"""Gradients of RMSNorm with a residual branch; those of the gain are summed over blocks of rows."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, DIM, TILE, EPS = 48, 64, 16, 1e-5
TASKS = ROWS // TILE


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, DIM], pl.BF16],
    gain: pl.Tensor[[1, DIM], pl.FP32],
    grad: pl.Tensor[[ROWS, DIM], pl.BF16],
    residual: pl.Tensor[[ROWS, DIM], pl.FP32],
    dx: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
    dgain: pl.Out[pl.Tensor[[1, DIM], pl.FP32]],
):
    partial = pl.create_tensor([TASKS, DIM], dtype=pl.FP32)
    for n in pl.parallel(TASKS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            r = n * TILE
            xs = pl.cast(x[r : r + TILE, :], pl.FP32)
            g = pl.cast(grad[r : r + TILE, :], pl.FP32)
            square = pl.mul(pl.row_sum(pl.mul(xs, xs)), 1.0 / DIM)
            inv = pl.rsqrt(pl.add(square, EPS))
            normed = pl.row_expand_mul(xs, inv)
            weighted = pl.col_expand_mul(g, gain[:, :])
            dot = pl.mul(pl.row_sum(pl.mul(weighted, normed)), 1.0 / DIM)
            inner = pl.sub(weighted, pl.row_expand_mul(normed, dot))
            change = pl.row_expand_mul(inner, inv)
            dx[r : r + TILE, :] = pl.add(change, residual[r : r + TILE, :])
            partial[n : n + 1, :] = pl.col_sum(pl.mul(g, normed))
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gain"):
        total = pl.full([1, DIM], dtype=pl.FP32, value=0.0)
        for n in pl.range(TASKS):
            total = pl.add(total, partial[n : n + 1, :])
        dgain[:, :] = total
    return dx, dgain


def golden(tensors: dict[str, Any]) -> None:
    x, grad, gain = (tensors[n].astype(np.float64) for n in ("x", "grad", "gain"))
    rms = np.sqrt((x**2).mean(axis=1, keepdims=True) + EPS)
    dy = grad * gain
    correction = x * (dy * x).sum(axis=1, keepdims=True) / (DIM * rms**3)
    tensors["dx"][:] = dy / rms - correction + tensors["residual"]
    tensors["dgain"][:] = (grad * x / rms).sum(axis=0)


def normal(seed: int, scale: float, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("x", [ROWS, DIM], pl.BF16, normal(1, 1.3, ROWS, DIM)),
    TensorSpec("gain", [1, DIM], pl.FP32, lambda: np.random.default_rng(2).uniform(0.5, 2, DIM)),
    TensorSpec("grad", [ROWS, DIM], pl.BF16, normal(3, 0.7, ROWS, DIM)),
    TensorSpec("residual", [ROWS, DIM], pl.FP32, normal(4, 0.5, ROWS, DIM)),
    TensorSpec("dx", [ROWS, DIM], pl.FP32, is_output=True),
    TensorSpec("dgain", [1, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "gain in the sum of the gain": (
        "pl.col_sum(pl.mul(g, normed))",
        "pl.col_sum(pl.mul(weighted, normed))",
    ),
    "dot without the gain": (
        "dot = pl.mul(pl.row_sum(pl.mul(weighted, normed)), 1.0 / DIM)",
        "dot = pl.mul(pl.row_sum(pl.mul(g, normed)), 1.0 / DIM)",
    ),
    "raw x projected": ("pl.row_expand_mul(normed, dot)", "pl.row_expand_mul(xs, dot)"),
    "dot not divided": (
        "dot = pl.mul(pl.row_sum(pl.mul(weighted, normed)), 1.0 / DIM)",
        "dot = pl.row_sum(pl.mul(weighted, normed))",
    ),
    "mean over rows of a tile": (
        "square = pl.mul(pl.row_sum(pl.mul(xs, xs)), 1.0 / DIM)",
        "square = pl.mul(pl.row_sum(pl.mul(xs, xs)), 1.0 / TILE)",
    ),
    "residual of the first rows": (
        "dx[r : r + TILE, :] = pl.add(change, residual[r : r + TILE, :])",
        "dx[r : r + TILE, :] = pl.add(change, residual[0:TILE, :])",
    ),
    "first rows left out": (
        "        for n in pl.range(TASKS):\n            total",
        "        for n in pl.range(1, TASKS):\n            total",
    ),
    "inverse only once": (
        "change = pl.row_expand_mul(inner, inv)",
        "change = pl.row_expand_mul(weighted, inv)",
    ),
}
