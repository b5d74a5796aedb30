"""Causal depthwise convolution over time with a gate, by chunks of steps."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

STEPS, CHANNELS, WIDTH, TILE = 96, 32, 4, 32
HISTORY = WIDTH - 1


@pl.jit
def kernel(
    x: pl.Tensor[[STEPS + HISTORY, CHANNELS], pl.FP32],
    taps: pl.Tensor[[WIDTH, CHANNELS], pl.FP32],
    bias: pl.Tensor[[1, CHANNELS], pl.FP32],
    gate: pl.Tensor[[STEPS, CHANNELS], pl.FP32],
    out: pl.Out[pl.Tensor[[STEPS, CHANNELS], pl.FP32]],
    state: pl.Out[pl.Tensor[[HISTORY, CHANNELS], pl.FP32]],
):
    for t in pl.parallel(0, STEPS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="convolve"):
            acc = pl.full([TILE, CHANNELS], dtype=pl.FP32, value=0.0)
            for j in pl.range(WIDTH):
                tap = pl.slice(taps, [1, CHANNELS], [j, 0])
                shifted = pl.slice(x, [TILE, CHANNELS], [t + j, 0])
                acc = pl.add(acc, pl.col_expand_mul(shifted, tap))
            y = pl.col_expand_add(acc, bias[:, :])
            active = pl.mul(y, pl.recip(pl.add(pl.exp(pl.neg(y)), 1.0)))
            gated = pl.mul(active, gate[t : t + TILE, :])
            out[t : t + TILE, :] = gated
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="keep"):
        last = pl.slice(x, [HISTORY, CHANNELS], [STEPS, 0])
        state = pl.assemble(state, last, [0, 0])
    return out, state


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    taps = tensors["taps"].astype(np.float64)
    y = sum(x[j : j + STEPS] * taps[j] for j in range(WIDTH)) + tensors["bias"].astype(np.float64)
    active = y / (1 + np.exp(-y))
    tensors["out"][:] = active * tensors["gate"].astype(np.float64)
    tensors["state"][:] = x[-HISTORY:]


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(size=shape)


SPECS = [
    TensorSpec("x", [STEPS + HISTORY, CHANNELS], pl.FP32, normal(1, STEPS + HISTORY, CHANNELS)),
    TensorSpec("taps", [WIDTH, CHANNELS], pl.FP32, normal(2, WIDTH, CHANNELS)),
    TensorSpec("bias", [1, CHANNELS], pl.FP32, normal(3, 1, CHANNELS)),
    TensorSpec("gate", [STEPS, CHANNELS], pl.FP32, normal(4, STEPS, CHANNELS)),
    TensorSpec("out", [STEPS, CHANNELS], pl.FP32, is_output=True),
    TensorSpec("state", [HISTORY, CHANNELS], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "taps in reverse": (
        "pl.slice(taps, [1, CHANNELS], [j, 0])",
        "pl.slice(taps, [1, CHANNELS], [HISTORY - j, 0])",
    ),
    "one tap less": ("for j in pl.range(WIDTH)", "for j in pl.range(HISTORY)"),
    "bias inside the gate": (
        "y = pl.col_expand_add(acc, bias[:, :])",
        "y = pl.col_expand_mul(acc, bias[:, :])",
    ),
    "not gated": ("out[t : t + TILE, :] = gated", "out[t : t + TILE, :] = active"),
    "state too early": (
        "last = pl.slice(x, [HISTORY, CHANNELS], [STEPS, 0])",
        "last = pl.slice(x, [HISTORY, CHANNELS], [STEPS - HISTORY, 0])",
    ),
}
