"""Gated linear attention by chunks: a masked product inside a chunk, a decaying state between."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEADS, STEPS, DIM, CHUNK = 2, 96, 32, 32
ROWS = HEADS * STEPS
LOGS = np.log(np.random.default_rng(9).uniform(0.9, 1.0, (HEADS, STEPS // CHUNK, CHUNK)))
CUMULATED = LOGS.cumsum(axis=2)


@pl.jit
def kernel(
    q: pl.Tensor[[ROWS, DIM], pl.FP32],
    k: pl.Tensor[[ROWS, DIM], pl.FP32],
    v: pl.Tensor[[ROWS, DIM], pl.FP32],
    cum: pl.Tensor[[ROWS, 1], pl.FP32],
    rest: pl.Tensor[[ROWS, 1], pl.FP32],
    whole: pl.Tensor[[HEADS * STEPS // CHUNK, DIM], pl.FP32],
    mask: pl.Tensor[[ROWS, CHUNK], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scan"):
            state = pl.full([DIM, DIM], dtype=pl.FP32, value=0.0)
            for c in pl.range(STEPS // CHUNK):
                t = h * STEPS + c * CHUNK
                query, key = q[t : t + CHUNK, :], k[t : t + CHUNK, :]
                value = v[t : t + CHUNK, :]
                scores = pl.matmul(query, key, b_trans=True, out_dtype=pl.FP32)
                inside = pl.mul(scores, mask[t : t + CHUNK, :])
                near = pl.matmul(inside, value, out_dtype=pl.FP32)
                far = pl.matmul(query, state, out_dtype=pl.FP32)
                faded = pl.row_expand_mul(far, pl.exp(cum[t : t + CHUNK, :]))
                out[t : t + CHUNK, :] = pl.add(near, faded)
                late = pl.row_expand_mul(key, pl.exp(rest[t : t + CHUNK, :]))
                update = pl.matmul(late, value, a_trans=True, out_dtype=pl.FP32)
                n = h * (STEPS // CHUNK) + c
                kept = pl.col_expand_mul(state, whole[n : n + 1, :])
                state = pl.add(kept, update)
    return out


def golden(tensors: dict[str, Any]) -> None:
    q, k, v = (tensors[n].astype(np.float64).reshape(HEADS, STEPS, DIM) for n in ("q", "k", "v"))
    decays = np.exp(LOGS).reshape(HEADS, STEPS)
    for h in range(HEADS):
        state = np.zeros((DIM, DIM))
        for t in range(STEPS):
            state = decays[h, t] * state + np.outer(k[h, t], v[h, t])
            tensors["out"][h * STEPS + t] = q[h, t] @ state


def triangle():
    fade = np.exp(CUMULATED[:, :, :, None] - CUMULATED[:, :, None, :])
    return np.tril(fade).reshape(ROWS, CHUNK)


def normal(seed: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.6, (ROWS, DIM))


SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.FP32, normal(1)),
    TensorSpec("k", [ROWS, DIM], pl.FP32, normal(2)),
    TensorSpec("v", [ROWS, DIM], pl.FP32, normal(3)),
    TensorSpec("cum", [ROWS, 1], pl.FP32, CUMULATED.reshape(ROWS, 1)),
    TensorSpec("rest", [ROWS, 1], pl.FP32, (CUMULATED[:, :, -1:] - CUMULATED).reshape(ROWS, 1)),
    TensorSpec(
        "whole",
        [HEADS * STEPS // CHUNK, DIM],
        pl.FP32,
        lambda: np.repeat(np.exp(CUMULATED[:, :, -1]).reshape(-1, 1), DIM, axis=1),
    ),
    TensorSpec("mask", [ROWS, CHUNK], pl.FP32, triangle),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "missing decay": ("state = pl.add(kept, update)", "state = pl.add(state, update)"),
    "missing fade": ("pl.add(near, faded)", "pl.add(near, far)"),
    "missing mask": ("near = pl.matmul(inside, value", "near = pl.matmul(scores, value"),
    "undecayed keys": ("pl.matmul(late, value, a_trans", "pl.matmul(key, value, a_trans"),
    "cum for rest": ("pl.exp(rest[t : t + CHUNK, :])", "pl.exp(cum[t : t + CHUNK, :])"),
    "decay of the first chunk": ("n = h * (STEPS // CHUNK) + c", "n = h * (STEPS // CHUNK)"),
    "swapped indices": ("t = h * STEPS + c * CHUNK", "t = c * STEPS % ROWS + h * CHUNK"),
    "swapped operands": ("pl.matmul(late, value, a_trans", "pl.matmul(value, late, a_trans"),
    "fade not exponential": (
        "pl.row_expand_mul(far, pl.exp(cum[t : t + CHUNK, :]))",
        "pl.row_expand_mul(far, cum[t : t + CHUNK, :])",
    ),
}
