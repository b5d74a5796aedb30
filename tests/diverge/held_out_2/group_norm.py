"""Normalization over groups of channels; mean and deviation are read from a tile."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

IMAGES, CHANNELS, PIXELS, GROUPS, TILE = 2, 16, 96, 4, 32
SIZE = CHANNELS // GROUPS
ROWS, EPS = IMAGES * CHANNELS, 1e-5


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, PIXELS], pl.FP32],
    gamma: pl.Tensor[[CHANNELS, 1], pl.FP32],
    beta: pl.Tensor[[CHANNELS, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, PIXELS], pl.FP32]],
):
    for n in pl.parallel(IMAGES):
        for g in pl.parallel(GROUPS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="normalize"):
                r0 = n * CHANNELS + g * SIZE
                sums = pl.full([1, TILE], dtype=pl.FP32, value=0.0)
                squares = pl.full([1, TILE], dtype=pl.FP32, value=0.0)
                for p in pl.range(0, PIXELS, TILE):
                    tile = pl.slice(x, [SIZE, TILE], [r0, p])
                    sums = pl.add(sums, pl.col_sum(tile))
                    squares = pl.add(squares, pl.col_sum(pl.mul(tile, tile)))
                mean_tile = pl.mul(pl.row_sum(sums), 1.0 / (SIZE * PIXELS))
                square_tile = pl.mul(pl.row_sum(squares), 1.0 / (SIZE * PIXELS))
                variance = pl.sub(square_tile, pl.mul(mean_tile, mean_tile))
                scale_tile = pl.rsqrt(pl.add(variance, EPS))
                mean = pl.read(mean_tile, [0, 0])
                scale = pl.read(scale_tile, [0, 0])
                weight = pl.slice(gamma, [SIZE, 1], [g * SIZE, 0])
                bias = pl.slice(beta, [SIZE, 1], [g * SIZE, 0])
                for c in pl.range(0, PIXELS, TILE):
                    tile = pl.slice(x, [SIZE, TILE], [r0, c])
                    normed = pl.mul(pl.sub(tile, mean), scale)
                    scaled = pl.row_expand_mul(normed, weight)
                    out = pl.assemble(out, pl.row_expand_add(scaled, bias), [r0, c])
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64).reshape(IMAGES, GROUPS, SIZE, PIXELS)
    mean = x.mean(axis=(2, 3), keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=(2, 3), keepdims=True)
    normed = ((x - mean) / np.sqrt(variance + EPS)).reshape(IMAGES, CHANNELS, PIXELS)
    gamma, beta = (tensors[n].astype(np.float64) for n in ("gamma", "beta"))
    tensors["out"][:] = (normed * gamma + beta).reshape(ROWS, PIXELS)


RNG = np.random.default_rng
SPECS = [
    TensorSpec("x", [ROWS, PIXELS], pl.FP32, lambda: RNG(1).normal(0.4, 1.3, (ROWS, PIXELS))),
    TensorSpec("gamma", [CHANNELS, 1], pl.FP32, lambda: RNG(2).normal(1.0, 0.4, (CHANNELS, 1))),
    TensorSpec("beta", [CHANNELS, 1], pl.FP32, lambda: RNG(3).normal(size=(CHANNELS, 1))),
    TensorSpec("out", [ROWS, PIXELS], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "mean of the squares": (
        "mean = pl.read(mean_tile, [0, 0])",
        "mean = pl.read(square_tile, [0, 0])",
    ),
    "scale before its time": (
        "scale = pl.read(scale_tile, [0, 0])",
        "scale = pl.read(variance, [0, 0])",
    ),
    "weights of the first group": (
        "weight = pl.slice(gamma, [SIZE, 1], [g * SIZE, 0])",
        "weight = pl.slice(gamma, [SIZE, 1], [0, 0])",
    ),
    "lost tail": (
        "for p in pl.range(0, PIXELS, TILE)",
        "for p in pl.range(0, PIXELS - TILE, TILE)",
    ),
    "mean of the pixels": (
        "mean_tile = pl.mul(pl.row_sum(sums), 1.0 / (SIZE * PIXELS))",
        "mean_tile = pl.mul(pl.row_sum(sums), 1.0 / PIXELS)",
    ),
}
