"""Sampling probabilities: penalties for tokens seen, temperature, a threshold, renormalized."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, VOCAB, BLOCK, TILE = 32, 192, 64, 16


@pl.jit
def kernel(
    logits: pl.Tensor[[ROWS, VOCAB], pl.BF16],
    counts: pl.Tensor[[ROWS, VOCAB], pl.FP32],
    bias: pl.Tensor[[1, VOCAB], pl.FP32],
    heat: pl.Tensor[[ROWS, 1], pl.FP32],
    floor: pl.Tensor[[ROWS, 1], pl.FP32],
    probs: pl.Out[pl.Tensor[[ROWS, VOCAB], pl.FP32]],
    entropy: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    adjusted = pl.create_tensor([ROWS, VOCAB], dtype=pl.FP32)
    tops = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="adjust"):
            high = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
            for c in pl.range(0, VOCAB, BLOCK):
                raw = pl.cast(logits[r : r + TILE, c : c + BLOCK], pl.FP32)
                seen = pl.minimum(counts[r : r + TILE, c : c + BLOCK], 1.0)
                lowered = pl.sub(raw, pl.mul(counts[r : r + TILE, c : c + BLOCK], 0.3))
                lowered = pl.sub(lowered, pl.mul(seen, 0.5))
                lowered = pl.col_expand_add(lowered, bias[:, c : c + BLOCK])
                warm = pl.row_expand_div(lowered, heat[r : r + TILE, :])
                adjusted[r : r + TILE, c : c + BLOCK] = warm
                high = pl.maximum(high, pl.row_max(warm))
            tops[r : r + TILE, :] = high
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="select"):
            limit = pl.add(tops[r : r + TILE, :], pl.log(floor[r : r + TILE, :]))
            total = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            spread = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            for c in pl.range(0, VOCAB, BLOCK):
                z = adjusted[r : r + TILE, c : c + BLOCK]
                above = pl.row_expand_sub(z, limit)
                kept = pl.cmp(above, 0.0, cmp_type="ge")
                centered = pl.row_expand_sub(z, tops[r : r + TILE, :])
                e = pl.exp(centered)
                e = pl.sel(kept, e, pl.full([TILE, BLOCK], dtype=pl.FP32, value=0.0))
                probs[r : r + TILE, c : c + BLOCK] = e
                total = pl.add(total, pl.row_sum(e))
                spread = pl.add(spread, pl.row_sum(pl.mul(e, centered)))
            for c in pl.range(0, VOCAB, BLOCK):
                share = pl.row_expand_div(probs[r : r + TILE, c : c + BLOCK], total)
                probs[r : r + TILE, c : c + BLOCK] = share
            mean = pl.div(spread, total)
            entropy[r : r + TILE, :] = pl.sub(pl.log(total), mean)
    return probs, entropy


def golden(tensors: dict[str, Any]) -> None:
    counts = tensors["counts"].astype(np.float64)
    z = tensors["logits"].astype(np.float64) - 0.3 * counts - 0.5 * (counts > 0)
    z = (z + tensors["bias"]) / tensors["heat"].astype(np.float64)
    p = np.exp(z)
    p = np.where(p >= tensors["floor"] * p.max(axis=1, keepdims=True), p, 0.0)
    p = p / p.sum(axis=1, keepdims=True)
    tensors["probs"][:] = p
    logs = np.log(np.where(p > 0, p, 1.0))
    tensors["entropy"][:] = -(p * logs).sum(axis=1, keepdims=True)


RNG = np.random.default_rng
SHAPE = (ROWS, VOCAB)
SPECS = [
    TensorSpec("logits", [ROWS, VOCAB], pl.BF16, lambda: RNG(1).normal(0, 1.5, SHAPE)),
    TensorSpec("counts", [ROWS, VOCAB], pl.FP32, lambda: RNG(2).poisson(0.5, SHAPE)),
    TensorSpec("bias", [1, VOCAB], pl.FP32, lambda: RNG(3).normal(0, 0.5, (1, VOCAB))),
    TensorSpec("heat", [ROWS, 1], pl.FP32, lambda: RNG(4).uniform(0.7, 1.6, (ROWS, 1))),
    TensorSpec("floor", [ROWS, 1], pl.FP32, lambda: RNG(5).uniform(0.02, 0.1, (ROWS, 1))),
    TensorSpec("probs", [ROWS, VOCAB], pl.FP32, is_output=True),
    TensorSpec("entropy", [ROWS, 1], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "penalties exchanged": (
        "lowered = pl.sub(lowered, pl.mul(seen, 0.5))",
        "lowered = pl.sub(lowered, pl.mul(seen, 0.3))",
    ),
    "seen without a limit": (
        "seen = pl.minimum(counts[r : r + TILE, c : c + BLOCK], 1.0)",
        "seen = pl.maximum(counts[r : r + TILE, c : c + BLOCK], 1.0)",
    ),
    "bias of the first block": ("bias[:, c : c + BLOCK]", "bias[:, 0:BLOCK]"),
    "maximum of the last block": (
        "high = pl.maximum(high, pl.row_max(warm))",
        "high = pl.row_max(warm)",
    ),
    "multiplied by the temperature": (
        "warm = pl.row_expand_div(lowered, heat[r : r + TILE, :])",
        "warm = pl.row_expand_mul(lowered, heat[r : r + TILE, :])",
    ),
    "threshold inverted": ('cmp_type="ge"', 'cmp_type="le"'),
    "threshold not in logs": (
        "pl.add(tops[r : r + TILE, :], pl.log(floor[r : r + TILE, :]))",
        "pl.add(tops[r : r + TILE, :], floor[r : r + TILE, :])",
    ),
    "spread of raw logits": (
        "spread = pl.add(spread, pl.row_sum(pl.mul(e, centered)))",
        "spread = pl.add(spread, pl.row_sum(pl.mul(e, z)))",
    ),
}
