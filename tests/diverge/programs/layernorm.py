"""Layer normalization in two passes over column blocks, the last of which is ragged."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, HIDDEN, TILE, STEP, EPS = 48, 200, 16, 64, 1e-5


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    beta: pl.Tensor[[1, HIDDEN], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm"):
            total = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            squares = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            for c in pl.range(0, HIDDEN, STEP):  # sums
                used = pl.min(STEP, HIDDEN - c)
                part = pl.slice(x, [TILE, STEP], [r, c], valid_shape=[TILE, used])
                part = pl.fillpad(part, pad_value=pl.PadValue.zero)
                total = pl.add(total, pl.row_sum(part))
                squares = pl.add(squares, pl.row_sum(pl.mul(part, part)))
            mean = pl.mul(total, 1.0 / HIDDEN)
            second = pl.mul(squares, 1.0 / HIDDEN)
            variance = pl.sub(second, pl.mul(mean, mean))
            inverse = pl.rsqrt(pl.add(variance, EPS))
            for c in pl.range(0, HIDDEN, STEP):
                used = pl.min(STEP, HIDDEN - c)
                part = pl.slice(x, [TILE, STEP], [r, c], valid_shape=[TILE, used])
                scale = pl.slice(gamma, [1, STEP], [0, c], valid_shape=[1, used])
                shift = pl.slice(beta, [1, STEP], [0, c], valid_shape=[1, used])
                centered = pl.row_expand_sub(part, mean)
                normed = pl.row_expand_mul(centered, inverse)
                scaled = pl.col_expand_mul(normed, scale)
                out = pl.assemble(out, pl.col_expand_add(scaled, shift), [r, c])
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    mean = x.mean(axis=1, keepdims=True)
    var = x.var(axis=1, keepdims=True)
    tensors["out"][:] = (x - mean) / np.sqrt(var + EPS) * tensors["gamma"] + tensors["beta"]


def normal(seed: int, rows: int):
    return lambda: np.random.default_rng(seed).normal(0.7, 0.8, size=(rows, HIDDEN))


SPECS = [
    TensorSpec("x", [ROWS, HIDDEN], pl.FP32, normal(1, ROWS)),
    TensorSpec("gamma", [1, HIDDEN], pl.FP32, normal(2, 1)),
    TensorSpec("beta", [1, HIDDEN], pl.FP32, normal(3, 1)),
    TensorSpec("out", [ROWS, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "wrong operand": ("pl.row_sum(pl.mul(part, part))", "pl.row_sum(part)"),
    "variance of the mean": ("pl.mul(mean, mean)", "mean"),
    "pad value": ("pad_value=pl.PadValue.zero", "pad_value=pl.PadValue.max"),
    "wrong count": (
        "second = pl.mul(squares, 1.0 / HIDDEN)",
        "second = pl.mul(squares, 1.0 / STEP)",
    ),
    "lost tail iteration": (
        "for c in pl.range(0, HIDDEN, STEP):  # sums",
        "for c in pl.range(0, HIDDEN - STEP, STEP):  # sums",
    ),
    "gamma for beta": ("shift = pl.slice(beta, [1, STEP]", "shift = pl.slice(gamma, [1, STEP]"),
    "first block": ("pl.slice(gamma, [1, STEP], [0, c]", "pl.slice(gamma, [1, STEP], [0, 0]"),
    "no root": ("pl.rsqrt(pl.add(variance, EPS))", "pl.recip(pl.add(variance, EPS))"),
    "not centered": ("pl.row_expand_mul(centered, inverse)", "pl.row_expand_mul(part, inverse)"),
}
