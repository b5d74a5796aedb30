"""Beam search: each beam takes over the rows of the cache, and the score, of its parent."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, BEAMS, LENGTH, DIM, VOCAB = 2, 4, 12, 32, 24
ROWS = BATCH * BEAMS


@pl.jit
def kernel(
    cache: pl.Tensor[[ROWS * LENGTH, DIM], pl.FP32],
    parents: pl.Tensor[[BATCH, BEAMS], pl.INT32],
    tokens: pl.Tensor[[BATCH, BEAMS], pl.INT32],
    embedding: pl.Tensor[[VOCAB, DIM], pl.FP32],
    scores: pl.Tensor[[ROWS, 1], pl.FP32],
    logits: pl.Tensor[[ROWS, VOCAB], pl.FP32],
    new_cache: pl.Out[pl.Tensor[[ROWS * (LENGTH + 1), DIM], pl.FP32]],
    new_scores: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    for b in pl.parallel(BATCH):
        for i in pl.parallel(BEAMS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="reorder"):
                parent = b * BEAMS + pl.read(parents, [b, i])
                token = pl.read(tokens, [b, i])
                here = b * BEAMS + i
                old = pl.slice(cache, [LENGTH, DIM], [parent * LENGTH, 0])
                start = here * (LENGTH + 1)
                new_cache = pl.assemble(new_cache, old, [start, 0])
                added = pl.slice(embedding, [1, DIM], [token, 0])
                new_cache = pl.assemble(new_cache, added, [start + LENGTH, 0])
                row = pl.slice(logits, [1, VOCAB], [parent, 0])
                top = pl.row_max(row)
                mass = pl.row_sum(pl.exp(pl.row_expand_sub(row, top)))
                norm = pl.add(pl.log(mass), top)
                chosen = pl.slice(logits, [1, 1], [parent, token])
                before = pl.slice(scores, [1, 1], [parent, 0])
                after = pl.add(before, pl.sub(chosen, norm))
                new_scores = pl.assemble(new_scores, after, [here, 0])
    return new_cache, new_scores


def golden(tensors: dict[str, Any]) -> None:
    cache = tensors["cache"].reshape(BATCH, BEAMS, LENGTH, DIM)
    logits = tensors["logits"].astype(np.float64).reshape(BATCH, BEAMS, VOCAB)
    logp = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    scores = tensors["scores"].astype(np.float64).reshape(BATCH, BEAMS)
    new_cache = tensors["new_cache"].reshape(BATCH, BEAMS, LENGTH + 1, DIM)
    new_scores = tensors["new_scores"].reshape(BATCH, BEAMS)
    for b in range(BATCH):
        parents, tokens = tensors["parents"][b], tensors["tokens"][b]
        new_cache[b, :, :LENGTH] = cache[b][parents]
        new_cache[b, :, LENGTH] = tensors["embedding"][tokens]
        new_scores[b] = scores[b][parents] + logp[b][parents, tokens]


RNG = np.random.default_rng
SHAPE = (ROWS * LENGTH, DIM)
SPECS = [
    TensorSpec("cache", [ROWS * LENGTH, DIM], pl.FP32, lambda: RNG(1).normal(size=SHAPE)),
    TensorSpec("parents", [BATCH, BEAMS], pl.INT32, np.array([[2, 0, 2, 1], [3, 3, 0, 2]])),
    TensorSpec("tokens", [BATCH, BEAMS], pl.INT32, np.array([[5, 17, 2, 9], [20, 1, 8, 13]])),
    TensorSpec("embedding", [VOCAB, DIM], pl.FP32, lambda: RNG(2).normal(size=(VOCAB, DIM))),
    TensorSpec("scores", [ROWS, 1], pl.FP32, lambda: RNG(3).normal(size=(ROWS, 1))),
    TensorSpec("logits", [ROWS, VOCAB], pl.FP32, lambda: RNG(4).normal(size=(ROWS, VOCAB))),
    TensorSpec("new_cache", [ROWS * (LENGTH + 1), DIM], pl.FP32, is_output=True),
    TensorSpec("new_scores", [ROWS, 1], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "parent of another batch": (
        "parent = b * BEAMS + pl.read(parents, [b, i])",
        "parent = pl.read(parents, [b, i])",
    ),
    "score of its own": (
        "pl.slice(scores, [1, 1], [parent, 0])",
        "pl.slice(scores, [1, 1], [here, 0])",
    ),
    "logits of its own": (
        "row = pl.slice(logits, [1, VOCAB], [parent, 0])",
        "row = pl.slice(logits, [1, VOCAB], [here, 0])",
    ),
    "appended too early": ("[start + LENGTH, 0]", "[start + LENGTH - 1, 0]"),
    "maximum not added": ("norm = pl.add(pl.log(mass), top)", "norm = pl.log(mass)"),
}
