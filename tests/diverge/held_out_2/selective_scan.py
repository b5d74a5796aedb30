"""A selective state space: a decay per channel and step, an input and an output vector per step."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

STEPS, CHANNELS, STATE, BLOCK = 10, 32, 16, 16


@pl.jit
def kernel(
    x: pl.Tensor[[CHANNELS, STEPS], pl.FP32],
    delta: pl.Tensor[[CHANNELS, STEPS], pl.FP32],
    rate: pl.Tensor[[CHANNELS, STATE], pl.FP32],
    into: pl.Tensor[[STEPS, STATE], pl.FP32],
    onto: pl.Tensor[[STEPS, STATE], pl.FP32],
    skip: pl.Tensor[[CHANNELS, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[CHANNELS, STEPS], pl.FP32]],
):
    for c in pl.parallel(0, CHANNELS, BLOCK):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scan"):
            h = pl.full([BLOCK, STATE], dtype=pl.FP32, value=0.0)
            a = pl.slice(rate, [BLOCK, STATE], [c, 0])
            d = pl.slice(skip, [BLOCK, 1], [c, 0])
            for t in pl.range(STEPS):
                dt = pl.slice(delta, [BLOCK, 1], [c, t])
                xt = pl.slice(x, [BLOCK, 1], [c, t])
                decay = pl.exp(pl.row_expand_mul(a, dt))
                weight = pl.mul(dt, xt)
                b = pl.col_expand(
                    pl.full([BLOCK, STATE], dtype=pl.FP32, value=0.0), into[t : t + 1, :]
                )
                update = pl.row_expand_mul(b, weight)
                h = pl.add(pl.mul(h, decay), update)
                read = pl.row_sum(pl.col_expand_mul(h, onto[t : t + 1, :]))
                y = pl.add(read, pl.mul(xt, d))
                out = pl.assemble(out, y, [c, t])
    return out


def golden(tensors: dict[str, Any]) -> None:
    names = ("x", "delta", "rate", "into", "onto", "skip")
    x, delta, rate, into, onto, skip = (tensors[n].astype(np.float64) for n in names)
    state = np.zeros((CHANNELS, STATE))
    for t in range(STEPS):
        decay = np.exp(delta[:, t : t + 1] * rate)
        state = state * decay + (delta[:, t] * x[:, t])[:, None] * into[t]
        tensors["out"][:, t] = state @ onto[t] + skip[:, 0] * x[:, t]


RNG = np.random.default_rng
SPECS = [
    TensorSpec("x", [CHANNELS, STEPS], pl.FP32, lambda: RNG(1).normal(size=(CHANNELS, STEPS))),
    TensorSpec(
        "delta", [CHANNELS, STEPS], pl.FP32, lambda: RNG(2).uniform(0.1, 0.9, (CHANNELS, STEPS))
    ),
    TensorSpec(
        "rate", [CHANNELS, STATE], pl.FP32, lambda: -RNG(3).uniform(0.2, 1.5, (CHANNELS, STATE))
    ),
    TensorSpec("into", [STEPS, STATE], pl.FP32, lambda: RNG(4).normal(size=(STEPS, STATE))),
    TensorSpec("onto", [STEPS, STATE], pl.FP32, lambda: RNG(5).normal(size=(STEPS, STATE))),
    TensorSpec("skip", [CHANNELS, 1], pl.FP32, lambda: RNG(6).normal(size=(CHANNELS, 1))),
    TensorSpec("out", [CHANNELS, STEPS], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "decay by the input": (
        "decay = pl.exp(pl.row_expand_mul(a, dt))",
        "decay = pl.exp(pl.row_expand_mul(a, xt))",
    ),
    "input not weighted": (
        "update = pl.row_expand_mul(b, weight)",
        "update = pl.row_expand_mul(b, xt)",
    ),
    "state of the last step": (
        "h = pl.add(pl.mul(h, decay), update)",
        "h = pl.mul(pl.add(h, update), decay)",
    ),
    "vector into for onto": ("onto[t : t + 1, :]))", "into[t : t + 1, :]))"),
    "rate of the first block": (
        "pl.slice(rate, [BLOCK, STATE], [c, 0])",
        "pl.slice(rate, [BLOCK, STATE], [0, 0])",
    ),
}
