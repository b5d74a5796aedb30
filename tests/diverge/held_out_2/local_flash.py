"""Attention to the last SPAN tokens with grouped queries, by blocks, with an online softmax."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEADS, GROUP, SEQ, DIM, TILE = 4, 2, 96, 16, 16
KV, SPAN, SCALE = HEADS // GROUP, 20, DIM**-0.5
BACK = 2
ROWS, PLACES = HEADS * SEQ, KV * SEQ


@pl.jit
def kernel(
    q: pl.Tensor[[ROWS, DIM], pl.FP32],
    k: pl.Tensor[[PLACES, DIM], pl.FP32],
    v: pl.Tensor[[PLACES, DIM], pl.FP32],
    masks: pl.Tensor[[(BACK + 1) * TILE, TILE], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        for i in pl.parallel(SEQ // TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="local"):
                q0 = h * SEQ + i * TILE
                base = (h // GROUP) * SEQ
                query = pl.mul(pl.slice(q, [TILE, DIM], [q0, 0]), SCALE)
                acc = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
                total = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
                high = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
                start = pl.max(i - BACK, 0)
                for j in pl.range(start, i + 1):
                    k0 = base + j * TILE
                    key = pl.slice(k, [TILE, DIM], [k0, 0])
                    s = pl.matmul(query, key, b_trans=True, out_dtype=pl.FP32)
                    mask = pl.slice(masks, [TILE, TILE], [(i - j) * TILE, 0])
                    s = pl.add(s, mask)
                    higher = pl.maximum(high, pl.row_max(s))
                    fade = pl.exp(pl.sub(high, higher))
                    p = pl.exp(pl.row_expand_sub(s, higher))
                    total = pl.add(pl.mul(total, fade), pl.row_sum(p))
                    value = pl.slice(v, [TILE, DIM], [k0, 0])
                    part = pl.matmul(p, value, out_dtype=pl.FP32)
                    acc = pl.add(pl.row_expand_mul(acc, fade), part)
                    high = higher
                out = pl.assemble(out, pl.row_expand_div(acc, total), [q0, 0])
    return out


def golden(tensors: dict[str, Any]) -> None:
    q = tensors["q"].astype(np.float64).reshape(HEADS, SEQ, DIM)
    k, v = (tensors[n].astype(np.float64).reshape(KV, SEQ, DIM) for n in ("k", "v"))
    apart = np.arange(SEQ)[:, None] - np.arange(SEQ)[None, :]
    seen = (apart >= 0) & (apart < SPAN)
    for h in range(HEADS):
        scores = q[h] @ k[h // GROUP].T / np.sqrt(DIM)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        tensors["out"][h * SEQ : (h + 1) * SEQ] = p @ v[h // GROUP] / p.sum(axis=1, keepdims=True)


def normal(seed: int, rows: int):
    return lambda: 1.5 * np.random.default_rng(seed).normal(size=(rows, DIM))


def distances():
    rows = np.arange(TILE)[:, None] - np.arange(TILE)[None, :]
    apart = np.concatenate([rows + n * TILE for n in range(BACK + 1)])
    return np.where((apart >= 0) & (apart < SPAN), 0.0, -1e9)


SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.FP32, normal(1, ROWS)),
    TensorSpec("k", [PLACES, DIM], pl.FP32, normal(2, PLACES)),
    TensorSpec("v", [PLACES, DIM], pl.FP32, normal(3, PLACES)),
    TensorSpec("masks", [(BACK + 1) * TILE, TILE], pl.FP32, distances),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "heads not grouped": ("base = (h // GROUP) * SEQ", "base = (h % KV) * SEQ"),
    "one block back only": ("start = pl.max(i - BACK, 0)", "start = pl.max(i - 1, 0)"),
    "mask of the diagonal": ("[(i - j) * TILE, 0]", "[(i - i) * TILE, 0]"),
    "output not rescaled": (
        "acc = pl.add(pl.row_expand_mul(acc, fade), part)",
        "acc = pl.add(acc, part)",
    ),
    "scale forgotten": (
        "query = pl.mul(pl.slice(q, [TILE, DIM], [q0, 0]), SCALE)",
        "query = pl.slice(q, [TILE, DIM], [q0, 0])",
    ),
}
