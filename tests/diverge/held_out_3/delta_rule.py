"""The gated delta rule, step by step: what the state predicts for a key is replaced in part."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEADS, STEPS, DK, DV = 2, 12, 16, 32
ROWS = HEADS * STEPS


@pl.jit
def kernel(
    q: pl.Tensor[[ROWS, DK], pl.FP32],
    k: pl.Tensor[[ROWS, DK], pl.FP32],
    v: pl.Tensor[[ROWS, DV], pl.FP32],
    log_decay: pl.Tensor[[ROWS, 1], pl.FP32],
    beta: pl.Tensor[[ROWS, 1], pl.FP32],
    initial: pl.Tensor[[HEADS * DK, DV], pl.FP32],
    gain: pl.Tensor[[1, DV], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, DV], pl.FP32]],
    final: pl.Out[pl.Tensor[[HEADS * DK, DV], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="delta"):
            place = h * DK
            state = initial[place : place + DK, :]
            for t in pl.range(STEPS):
                r = h * STEPS + t
                key = k[r : r + 1, :]
                size = pl.rsqrt(pl.add(pl.row_sum(pl.mul(key, key)), 1e-6))
                key = pl.row_expand_mul(key, size)
                keep = pl.read(pl.exp(log_decay[r : r + 1, :]), [0, 0])
                state = pl.mul(state, keep)
                predicted = pl.matmul(key, state, out_dtype=pl.FP32)
                missing = pl.sub(v[r : r + 1, :], predicted)
                write = pl.row_expand_mul(missing, beta[r : r + 1, :])
                update = pl.matmul(key, write, a_trans=True, out_dtype=pl.FP32)
                state = pl.add(state, update)
                query = pl.mul(q[r : r + 1, :], DK**-0.5)
                y = pl.matmul(query, state, out_dtype=pl.FP32)
                square = pl.mul(pl.row_sum(pl.mul(y, y)), 1.0 / DV)
                y = pl.row_expand_mul(y, pl.rsqrt(pl.add(square, 1e-5)))
                out[r : r + 1, :] = pl.mul(y, gain[:, :])
            final[place : place + DK, :] = state
    return out, final


def golden(tensors: dict[str, Any]) -> None:
    shape = (HEADS, STEPS, -1)
    q, k, v = (tensors[n].astype(np.float64).reshape(shape) for n in ("q", "k", "v"))
    decay = np.exp(tensors["log_decay"].astype(np.float64)).reshape(HEADS, STEPS)
    beta = tensors["beta"].astype(np.float64).reshape(HEADS, STEPS)
    k = k / np.sqrt((k * k).sum(axis=-1, keepdims=True) + 1e-6)
    q = q / np.sqrt(DK)
    out = tensors["out"].reshape(shape)
    for h in range(HEADS):
        state = tensors["initial"].astype(np.float64)[h * DK : (h + 1) * DK]
        for t in range(STEPS):
            state = decay[h, t] * state
            error = v[h, t] - k[h, t] @ state
            state = state + np.outer(k[h, t], beta[h, t] * error)
            y = q[h, t] @ state
            out[h, t] = y / np.sqrt((y * y).mean() + 1e-5) * tensors["gain"][0]
        tensors["final"][h * DK : (h + 1) * DK] = state


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.8, shape)


def uniform(seed: int, low: float, high: float, *shape: int):
    return lambda: np.random.default_rng(seed).uniform(low, high, shape)


SPECS = [
    TensorSpec("q", [ROWS, DK], pl.FP32, normal(1, ROWS, DK)),
    TensorSpec("k", [ROWS, DK], pl.FP32, normal(2, ROWS, DK)),
    TensorSpec("v", [ROWS, DV], pl.FP32, normal(3, ROWS, DV)),
    TensorSpec("log_decay", [ROWS, 1], pl.FP32, uniform(4, -0.6, -0.05, ROWS, 1)),
    TensorSpec("beta", [ROWS, 1], pl.FP32, uniform(5, 0.2, 0.9, ROWS, 1)),
    TensorSpec("initial", [HEADS * DK, DV], pl.FP32, normal(6, HEADS * DK, DV)),
    TensorSpec("gain", [1, DV], pl.FP32, uniform(7, 0.5, 1.5, 1, DV)),
    TensorSpec("out", [ROWS, DV], pl.FP32, is_output=True),
    TensorSpec("final", [HEADS * DK, DV], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "state not decayed": ("state = pl.mul(state, keep)", "state = pl.mul(state, 1.0)"),
    "value written as it is": (
        "missing = pl.sub(v[r : r + 1, :], predicted)",
        "missing = pl.mul(v[r : r + 1, :], 1.0)",
    ),
    "beta of the first head": ("beta[r : r + 1, :]", "beta[t : t + 1, :]"),
    "key not normalized": ("key = pl.row_expand_mul(key, size)", "key = pl.mul(key, 1.0)"),
    "query not scaled": (
        "query = pl.mul(q[r : r + 1, :], DK**-0.5)",
        "query = pl.mul(q[r : r + 1, :], DK**-1.0)",
    ),
    "state overwritten": ("state = pl.add(state, update)", "state = pl.mul(update, 1.0)"),
    "state of the first head": ("initial[place : place + DK, :]", "initial[0:DK, :]"),
    "sum for mean": (
        "square = pl.mul(pl.row_sum(pl.mul(y, y)), 1.0 / DV)",
        "square = pl.mul(pl.row_sum(pl.mul(y, y)), 1.0 / DK)",
    ),
}
