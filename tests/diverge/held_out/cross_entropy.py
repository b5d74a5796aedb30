"""Cross entropy of rows of logits over blocks of a vocabulary, the last of which is ragged."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, HIDDEN, VOCAB, TILE, STEP = 32, 48, 112, 16, 32


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    head: pl.Tensor[[VOCAB, HIDDEN], pl.FP32],
    target: pl.Tensor[[ROWS, VOCAB], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="loss"):
            rows = x[r : r + TILE, :]
            peak = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
            mass = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            picked = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            for c in pl.range(0, VOCAB, STEP):
                size = pl.min(STEP, VOCAB - c)
                w = pl.slice(head, [STEP, HIDDEN], [c, 0], valid_shape=[size, HIDDEN])
                hot = pl.slice(target, [TILE, STEP], [r, c], valid_shape=[TILE, size])
                product = pl.matmul(rows, w, b_trans=True, out_dtype=pl.FP32)
                inner = pl.tensor.set_validshape(product, TILE, size)
                picked = pl.add(picked, pl.row_sum(pl.mul(inner, hot)))
                logits = pl.fillpad(inner, pad_value=pl.PadValue.min)
                higher = pl.maximum(peak, pl.row_max(logits))
                shrink = pl.exp(pl.sub(peak, higher))
                terms = pl.exp(pl.row_expand_sub(logits, higher))
                mass = pl.add(pl.mul(mass, shrink), pl.row_sum(terms))
                peak = higher
            total = pl.add(pl.log(mass), peak)
            out[r : r + TILE, :] = pl.sub(total, picked)
    return out


def golden(tensors: dict[str, Any]) -> None:
    logits = tensors["x"].astype(np.float64) @ tensors["head"].astype(np.float64).T
    peak = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - peak).sum(axis=1, keepdims=True)) + peak
    tensors["out"][:] = total - (logits * tensors["target"]).sum(axis=1, keepdims=True)


def one_hot():
    return np.eye(VOCAB)[np.random.default_rng(5).integers(0, VOCAB, ROWS)]


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.7, shape)


SPECS = [
    TensorSpec("x", [ROWS, HIDDEN], pl.FP32, normal(1, ROWS, HIDDEN)),
    TensorSpec("head", [VOCAB, HIDDEN], pl.FP32, normal(2, VOCAB, HIDDEN)),
    TensorSpec("target", [ROWS, VOCAB], pl.FP32, one_hot),
    TensorSpec("out", [ROWS, 1], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "peak forgotten": ("pl.add(pl.log(mass), peak)", "pl.log(mass)"),
    "stale peak": ("pl.row_expand_sub(logits, higher)", "pl.row_expand_sub(logits, peak)"),
    "no shrinking": ("pl.mul(mass, shrink)", "mass"),
    "pad of zero": ("pad_value=pl.PadValue.min", "pad_value=pl.PadValue.zero"),
    "no tail": ("pl.range(0, VOCAB, STEP)", "pl.range(0, VOCAB // STEP * STEP, STEP)"),
    "targets of the first block": ("[TILE, STEP], [r, c]", "[TILE, STEP], [r, 0]"),
    "targets of the first rows": ("[TILE, STEP], [r, c]", "[TILE, STEP], [0, c]"),
    "picked exponentials": ("pl.mul(inner, hot)", "pl.mul(pl.exp(inner), hot)"),
    "picked of the last block": ("picked = pl.add(picked, ", "picked = pl.add(mass, "),
}
