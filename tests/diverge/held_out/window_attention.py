"""Attention over a sliding window of blocks, plain softmax in two passes through memory."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

SEQ, DIM, TILE, WINDOW = 128, 32, 32, 2
SCALE = DIM**-0.5


@pl.jit
def kernel(
    q: pl.Tensor[[SEQ, DIM], pl.FP32],
    k: pl.Tensor[[SEQ, DIM], pl.FP32],
    v: pl.Tensor[[SEQ, DIM], pl.FP32],
    out: pl.Out[pl.Tensor[[SEQ, DIM], pl.FP32]],
):
    probabilities = pl.create_tensor([SEQ, WINDOW * TILE], dtype=pl.FP32)
    sums = pl.create_tensor([SEQ, 1], dtype=pl.FP32)
    for i in pl.parallel(WINDOW - 1, SEQ // TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scores"):
            query = pl.mul(q[i * TILE : (i + 1) * TILE, :], SCALE)
            mass = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            for j in pl.range(WINDOW):
                k0 = (i - WINDOW + 1 + j) * TILE
                s = pl.matmul(query, k[k0 : k0 + TILE, :], b_trans=True, out_dtype=pl.FP32)
                e = pl.exp(s)
                mass = pl.add(mass, pl.row_sum(e))
                probabilities = pl.assemble(probabilities, e, [i * TILE, j * TILE])
            sums = pl.assemble(sums, mass, [i * TILE, 0])
    for i in pl.parallel(WINDOW - 1, SEQ // TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="values"):
            acc = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
            for j in pl.range(WINDOW):
                p = pl.slice(probabilities, [TILE, TILE], [i * TILE, j * TILE])
                k0 = (i - WINDOW + 1 + j) * TILE
                acc = pl.add(acc, pl.matmul(p, v[k0 : k0 + TILE, :], out_dtype=pl.FP32))
            mass = pl.slice(sums, [TILE, 1], [i * TILE, 0])
            out = pl.assemble(out, pl.row_expand_div(acc, mass), [i * TILE, 0])
    return out


def golden(tensors: dict[str, Any]) -> None:
    q, k, v = (tensors[n].astype(np.float64) for n in ("q", "k", "v"))
    for i in range(WINDOW - 1, SEQ // TILE):
        rows = slice(i * TILE, (i + 1) * TILE)
        seen = slice((i - WINDOW + 1) * TILE, (i + 1) * TILE)
        e = np.exp(q[rows] @ k[seen].T * SCALE)
        tensors["out"][rows] = e @ v[seen] / e.sum(axis=1, keepdims=True)


def normal(seed: int):
    return lambda: np.random.default_rng(seed).normal(size=(SEQ, DIM))


SPECS = [
    TensorSpec("q", [SEQ, DIM], pl.FP32, normal(1)),
    TensorSpec("k", [SEQ, DIM], pl.FP32, normal(2)),
    TensorSpec("v", [SEQ, DIM], pl.FP32, normal(3)),
    TensorSpec("out", [SEQ, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "window too late": (
        "k0 = (i - WINDOW + 1 + j) * TILE\n                s",
        "k0 = (i - WINDOW + 2 + j) * TILE % SEQ\n                s",
    ),
    "values from the start": (
        "k0 = (i - WINDOW + 1 + j) * TILE\n                acc",
        "k0 = j * TILE\n                acc",
    ),
    "sum of the last": ("mass = pl.add(mass, pl.row_sum(e))", "mass = pl.row_sum(e)"),
    "stored over": ("e, [i * TILE, j * TILE])", "e, [i * TILE, 0])"),
    "scale forgotten": (
        "pl.mul(q[i * TILE : (i + 1) * TILE, :], SCALE)",
        "q[i * TILE : (i + 1) * TILE, :]",
    ),
    "not divided": ("pl.row_expand_div(acc, mass)", "acc"),
    "transposed": ("pl.matmul(p, v[", "pl.matmul(pl.transpose(p, 0, 1), v["),
}
