"""One step of AdamW with gradients clipped by their norm over all blocks."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLUMNS, TILE = 64, 32, 16
TASKS, STEP = ROWS // TILE, 7
RATE, FIRST, SECOND, EPS, DECAY, LIMIT = 3e-2, 0.9, 0.98, 1e-6, 0.1, 5.0
UNBIAS_FIRST, UNBIAS_SECOND = 1 / (1 - FIRST**STEP), 1 / (1 - SECOND**STEP)


@pl.jit
def kernel(
    grad: pl.Tensor[[ROWS, COLUMNS], pl.BF16],
    rates: pl.Tensor[[TASKS, 1], pl.FP32],
    weights: pl.InOut[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    mean: pl.InOut[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    square: pl.InOut[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
):
    sums = pl.create_tensor([TASKS, 8], dtype=pl.FP32)
    clip = pl.create_tensor([1, 8], dtype=pl.FP32)
    for n in pl.parallel(TASKS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm"):
            g = pl.cast(grad[n * TILE : n * TILE + TILE, :], pl.FP32)
            by_row = pl.row_sum(pl.mul(g, g))
            whole = pl.col_sum(by_row)
            sums[n : n + 1, :] = pl.row_expand(pl.full([1, 8], dtype=pl.FP32, value=0.0), whole)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="clip"):
        total = pl.full([1, 8], dtype=pl.FP32, value=0.0)
        for n in pl.range(TASKS):
            total = pl.add(total, sums[n : n + 1, :])
        norm = pl.sqrt(total)
        ratio = pl.mul(pl.recip(pl.add(norm, EPS)), LIMIT)
        clip[:, :] = pl.minimum(ratio, 1.0)
    for n in pl.parallel(TASKS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="update"):
            r = n * TILE
            factor = pl.read(clip, [0, 0])
            rate = pl.read(rates, [n, 0])
            raw = pl.cast(grad[r : r + TILE, :], pl.FP32)
            scaled = pl.mul(raw, factor)
            m = pl.add(pl.mul(mean[r : r + TILE, :], FIRST), pl.mul(scaled, 1 - FIRST))
            squared = pl.mul(scaled, scaled)
            v = pl.add(pl.mul(square[r : r + TILE, :], SECOND), pl.mul(squared, 1 - SECOND))
            mean[r : r + TILE, :] = m
            square[r : r + TILE, :] = v
            top = pl.mul(m, UNBIAS_FIRST)
            bottom = pl.add(pl.sqrt(pl.mul(v, UNBIAS_SECOND)), EPS)
            w = weights[r : r + TILE, :]
            change = pl.add(pl.div(top, bottom), pl.mul(w, DECAY))
            weights[r : r + TILE, :] = pl.sub(w, pl.mul(change, rate))
    return weights, mean, square


def golden(tensors: dict[str, Any]) -> None:
    grad = tensors["grad"].astype(np.float64)
    w = tensors["weights"].astype(np.float64)
    rate = np.repeat(tensors["rates"].astype(np.float64), TILE, axis=0)
    norm = np.sqrt((grad**2).sum())
    grad = grad * min(1.0, LIMIT / (norm + EPS))
    m = FIRST * tensors["mean"].astype(np.float64) + (1 - FIRST) * grad
    v = SECOND * tensors["square"].astype(np.float64) + (1 - SECOND) * grad**2
    m_hat, v_hat = m / (1 - FIRST**STEP), v / (1 - SECOND**STEP)
    w = w - rate * DECAY * w - rate * m_hat / (np.sqrt(v_hat) + EPS)
    tensors["weights"][:], tensors["mean"][:], tensors["square"][:] = w, m, v


RNG = np.random.default_rng
SHAPE = (ROWS, COLUMNS)
SPECS = [
    TensorSpec("grad", [ROWS, COLUMNS], pl.BF16, lambda: RNG(1).normal(0, 0.4, SHAPE)),
    TensorSpec("rates", [TASKS, 1], pl.FP32, lambda: RNG(2).uniform(0.01, 0.05, (TASKS, 1))),
    TensorSpec(
        "weights", [ROWS, COLUMNS], pl.FP32, lambda: RNG(3).normal(0, 1, SHAPE), is_output=True
    ),
    TensorSpec(
        "mean", [ROWS, COLUMNS], pl.FP32, lambda: RNG(4).normal(0, 0.1, SHAPE), is_output=True
    ),
    TensorSpec(
        "square", [ROWS, COLUMNS], pl.FP32, lambda: RNG(5).uniform(0, 0.1, SHAPE), is_output=True
    ),
]
TOLERANCE = 1e-4
FAULTS = {
    "square of the raw gradient": (
        "squared = pl.mul(scaled, scaled)",
        "squared = pl.mul(raw, raw)",
    ),
    "first correction for both": (
        "bottom = pl.add(pl.sqrt(pl.mul(v, UNBIAS_SECOND)), EPS)",
        "bottom = pl.add(pl.sqrt(pl.mul(v, UNBIAS_FIRST)), EPS)",
    ),
    "no correction of the mean": (
        "change = pl.add(pl.div(top, bottom), pl.mul(w, DECAY))",
        "change = pl.add(pl.div(m, bottom), pl.mul(w, DECAY))",
    ),
    "square not rooted": ("norm = pl.sqrt(total)", "norm = pl.mul(total, 1.0)"),
    "norm of the last block": (
        "total = pl.add(total, sums[n : n + 1, :])",
        "total = pl.add(sums[n : n + 1, :], 0.0)",
    ),
    "rate of the first group": ("rate = pl.read(rates, [n, 0])", "rate = pl.read(rates, [0, 0])"),
    "decay of the gradient's weight": (
        "pl.mul(mean[r : r + TILE, :], FIRST), pl.mul(scaled, 1 - FIRST)",
        "pl.mul(mean[r : r + TILE, :], FIRST), pl.mul(scaled, FIRST)",
    ),
    "decay added": (
        "change = pl.add(pl.div(top, bottom), pl.mul(w, DECAY))",
        "change = pl.sub(pl.div(top, bottom), pl.mul(w, DECAY))",
    ),
}
