"""Embeddings of bags of rows, pooled with weights, and their products in pairs (DLRM)."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, TABLES, ROWS, DIM, LONGEST = 6, 3, 24, 32, 5
FEATURES = TABLES + 1
BAGS = TABLES * BATCH


@pl.jit
def kernel(
    dense: pl.Tensor[[BATCH, DIM], pl.FP32],
    rows: pl.Tensor[[TABLES * ROWS, DIM], pl.BF16],
    indices: pl.Tensor[[BAGS * LONGEST], pl.INT32],
    starts: pl.Tensor[[BAGS + 1], pl.INT32],
    shares: pl.Tensor[[BAGS * LONGEST, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[BATCH * FEATURES, FEATURES], pl.FP32]],
    pooled: pl.Out[pl.Tensor[[BATCH, DIM], pl.FP32]],
):
    features = pl.create_tensor([BATCH * FEATURES, DIM], dtype=pl.FP32)
    for b in pl.parallel(BATCH):
        for t in pl.parallel(TABLES):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="bag"):
                bag = t * BATCH + b
                first = pl.read(starts, [bag])
                last = pl.read(starts, [bag + 1])
                total = pl.full([1, DIM], dtype=pl.FP32, value=0.0)
                weight = pl.full([1, 8], dtype=pl.FP32, value=1e-6)
                for i in pl.range(first, last):
                    index = pl.read(indices, [i])
                    share = pl.read(shares, [i, 0])
                    place = t * ROWS + index
                    row = pl.cast(rows[place : place + 1, :], pl.FP32)
                    total = pl.add(total, pl.mul(row, share))
                    weight = pl.add(weight, share)
                bottom = pl.read(weight, [0, 0])
                mean = pl.div(total, bottom)
                there = b * FEATURES + t + 1
                features[there : there + 1, :] = mean
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="dense"):
            at = b * FEATURES
            features[at : at + 1, :] = dense[b : b + 1, :]
    for b in pl.parallel(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="interact"):
            base = b * FEATURES
            f = features[base : base + FEATURES, :]
            size = pl.rsqrt(pl.add(pl.row_sum(pl.mul(f, f)), 1e-6))
            unit = pl.row_expand_mul(f, size)
            out[base : base + FEATURES, :] = pl.matmul(unit, unit, b_trans=True, out_dtype=pl.FP32)
            all_sum = pl.col_sum(f)
            square_sum = pl.col_sum(pl.mul(f, f))
            cross = pl.mul(pl.sub(pl.mul(all_sum, all_sum), square_sum), 0.5)
            pooled[b : b + 1, :] = cross
    return out, pooled


def golden(tensors: dict[str, Any]) -> None:
    table = tensors["rows"].astype(np.float64).reshape(TABLES, ROWS, DIM)
    starts = tensors["starts"].astype(int)
    for b in range(BATCH):
        features = [tensors["dense"][b].astype(np.float64)]
        for t in range(TABLES):
            bag = t * BATCH + b
            mine = slice(starts[bag], starts[bag + 1])
            weights = tensors["shares"][mine].astype(np.float64)
            found = table[t][tensors["indices"][mine].astype(int)]
            features.append((found * weights).sum(axis=0) / (weights.sum() + 1e-6))
        f = np.stack(features)
        unit = f / np.sqrt((f**2).sum(axis=1, keepdims=True) + 1e-6)
        tensors["out"][b * FEATURES : (b + 1) * FEATURES] = unit @ unit.T
        pairs = [f[i] * f[j] for i in range(FEATURES) for j in range(i)]
        tensors["pooled"][b] = np.sum(pairs, axis=0)


RNG = np.random.default_rng
STARTS = np.concatenate([[0], np.cumsum(RNG(7).integers(1, LONGEST + 1, BAGS))])
SPECS = [
    TensorSpec("dense", [BATCH, DIM], pl.FP32, lambda: RNG(1).normal(0, 1, (BATCH, DIM))),
    TensorSpec("rows", [TABLES * ROWS, DIM], pl.BF16, lambda: RNG(2).normal(0, 1, (72, DIM))),
    TensorSpec("indices", [BAGS * LONGEST], pl.INT32, RNG(3).integers(0, ROWS, BAGS * LONGEST)),
    TensorSpec("starts", [BAGS + 1], pl.INT32, STARTS),
    TensorSpec(
        "shares", [BAGS * LONGEST, 1], pl.FP32, lambda: RNG(4).uniform(0.2, 1, (BAGS * LONGEST, 1))
    ),
    TensorSpec("out", [BATCH * FEATURES, FEATURES], pl.FP32, is_output=True),
    TensorSpec("pooled", [BATCH, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "bag by batch": (
        """bag = t * BATCH + b
                first""",
        """bag = b * TABLES + t
                first""",
    ),
    "row of the first table": ("place = t * ROWS + index", "place = index"),
    "one row too many": ("for i in pl.range(first, last):", "for i in pl.range(first, last + 1):"),
    "share by position in the bag": (
        "share = pl.read(shares, [i, 0])",
        "share = pl.read(shares, [i - first, 0])",
    ),
    "dense features overwritten": ("there = b * FEATURES + t + 1", "there = b * FEATURES + t"),
    "mean of a constant length": (
        "mean = pl.div(total, bottom)",
        "mean = pl.mul(total, 1.0 / LONGEST)",
    ),
    "squares not subtracted": (
        "pl.mul(pl.sub(pl.mul(all_sum, all_sum), square_sum), 0.5)",
        "pl.mul(pl.mul(all_sum, all_sum), 0.5)",
    ),
    "cosine of one side": (
        "pl.matmul(unit, unit, b_trans=True, out_dtype=pl.FP32)",
        "pl.matmul(unit, f, b_trans=True, out_dtype=pl.FP32)",
    ),
    "total kept from the last": (
        "total = pl.add(total, pl.mul(row, share))",
        "total = pl.mul(row, share)",
    ),
    "sum not halved": (
        "pl.mul(pl.sub(pl.mul(all_sum, all_sum), square_sum), 0.5)",
        "pl.sub(pl.mul(all_sum, all_sum), square_sum)",
    ),
}
