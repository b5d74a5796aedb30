"""A 3 x 3 convolution with a border of zeros, a bias and ReLU, then means over 2 x 2 pixels."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEIGHT, WIDTH, CIN, COUT, SIZE = 8, 16, 16, 32, 3
EDGE = SIZE // 2
LINE = WIDTH + 2 * EDGE
POOLED = WIDTH // 2


@pl.jit
def kernel(
    image: pl.Tensor[[HEIGHT * WIDTH, CIN], pl.FP32],
    weights: pl.Tensor[[SIZE * SIZE * CIN, COUT], pl.FP32],
    bias: pl.Tensor[[1, COUT], pl.FP32],
    out: pl.Out[pl.Tensor[[HEIGHT // 2 * POOLED, COUT], pl.FP32]],
):
    padded = pl.create_tensor([(HEIGHT + 2 * EDGE) * LINE, CIN], dtype=pl.FP32)
    active = pl.create_tensor([HEIGHT * WIDTH, COUT], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        for y in pl.range(HEIGHT + 2 * EDGE):
            padded[y * LINE : y * LINE + LINE, :] = pl.full([LINE, CIN], dtype=pl.FP32, value=0.0)
        for y in pl.range(HEIGHT):
            line = image[y * WIDTH : y * WIDTH + WIDTH, :]
            place = (y + EDGE) * LINE + EDGE
            padded[place : place + WIDTH, :] = line
    for y in pl.parallel(HEIGHT):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="convolve"):
            acc = pl.full([WIDTH, COUT], dtype=pl.FP32, value=0.0)
            for dy in pl.range(SIZE):
                for dx in pl.range(SIZE):
                    source = (y + dy) * LINE + dx
                    tap = (dy * SIZE + dx) * CIN
                    w = pl.slice(weights, [CIN, COUT], [tap, 0])
                    shifted = pl.slice(padded, [WIDTH, CIN], [source, 0])
                    acc = pl.add(acc, pl.matmul(shifted, w, out_dtype=pl.FP32))
            made = pl.maximum(pl.col_expand_add(acc, bias[:, :]), 0.0)
            active[y * WIDTH : y * WIDTH + WIDTH, :] = made
    for y in pl.parallel(HEIGHT // 2):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="pool"):
            for x in pl.range(POOLED):
                upper = y * 2 * WIDTH + x * 2
                lower = upper + WIDTH
                four = pl.add(
                    pl.col_sum(active[upper : upper + 2, :]),
                    pl.col_sum(active[lower : lower + 2, :]),
                )
                place = y * POOLED + x
                out[place : place + 1, :] = pl.mul(four, 0.25)
    return out


def golden(tensors: dict[str, Any]) -> None:
    image = tensors["image"].astype(np.float64).reshape(HEIGHT, WIDTH, CIN)
    weights = tensors["weights"].astype(np.float64).reshape(SIZE, SIZE, CIN, COUT)
    result = np.zeros((HEIGHT, WIDTH, COUT))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            for i in range(SIZE):
                for j in range(SIZE):
                    yy, xx = y + i - 1, x + j - 1
                    if 0 <= yy < HEIGHT and 0 <= xx < WIDTH:
                        result[y, x] += image[yy, xx] @ weights[i, j]
    result = np.maximum(result + tensors["bias"][0], 0)
    pooled = result.reshape(HEIGHT // 2, 2, POOLED, 2, COUT).mean(axis=(1, 3))
    tensors["out"][:] = pooled.reshape(-1, COUT)


def normal(seed: int, scale: float, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("image", [HEIGHT * WIDTH, CIN], pl.FP32, normal(1, 1.0, HEIGHT * WIDTH, CIN)),
    TensorSpec("weights", [SIZE * SIZE * CIN, COUT], pl.FP32, normal(2, 0.2, 144, COUT)),
    TensorSpec("bias", [1, COUT], pl.FP32, normal(3, 0.5, 1, COUT)),
    TensorSpec("out", [HEIGHT // 2 * POOLED, COUT], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "taps transposed": ("tap = (dy * SIZE + dx) * CIN", "tap = (dx * SIZE + dy) * CIN"),
    "line without its border": (
        "source = (y + dy) * LINE + dx",
        "source = (y + dy) * WIDTH + dx",
    ),
    "image at the corner": (
        "place = (y + EDGE) * LINE + EDGE",
        "place = (y + EDGE) * LINE",
    ),
    "two taps per line": (
        "                for dx in pl.range(SIZE):",
        "                for dx in pl.range(SIZE - 1):",
    ),
    "border above left undefined": (
        "for y in pl.range(HEIGHT + 2 * EDGE):",
        "for y in pl.range(1, HEIGHT + 2 * EDGE):",
    ),
    "ReLU before the bias": (
        "made = pl.maximum(pl.col_expand_add(acc, bias[:, :]), 0.0)",
        "made = pl.col_expand_add(pl.maximum(acc, 0.0), bias[:, :])",
    ),
    "two pixels of one line": ("lower = upper + WIDTH", "lower = upper + 1"),
    "mean of two": ("pl.mul(four, 0.25)", "pl.mul(four, 0.5)"),
}
