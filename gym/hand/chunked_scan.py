"""A linear recurrence h[t] = a[t] * h[t - 1] + x[t], chunk by chunk, as state-space models have it.

Inside a chunk it is a product with a lower triangular matrix of decays; from chunk to chunk only
the state goes on, on chip, in one task per block of channels.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

STEPS, CHANNELS, CHUNK, BLOCK = 256, 256, 32, 256


@pl.jit
def scan(
    x: pl.Tensor[[STEPS, CHANNELS], pl.FP32],
    decay: pl.Tensor[[STEPS, CHUNK], pl.FP32],
    carry: pl.Tensor[[STEPS, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[STEPS, CHANNELS], pl.FP32]],
):
    for c in pl.parallel(0, CHANNELS, BLOCK):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scan"):
            state = pl.full([1, BLOCK], dtype=pl.FP32, value=0.0)
            for t in pl.pipeline(0, STEPS, CHUNK, stage=2):
                tile = pl.slice(x, [CHUNK, BLOCK], [t, c])
                inside = pl.matmul(decay[t : t + CHUNK, :], tile, out_dtype=pl.FP32)
                kept = pl.row_expand_mul(pl.col_expand(inside, state), carry[t : t + CHUNK, :])
                h = pl.add(inside, kept)
                out[t : t + CHUNK, c : c + BLOCK] = h
                state = pl.slice(h, [1, BLOCK], [CHUNK - 1, 0])
    return out


def golden(tensors: dict[str, Any]):
    h = np.zeros(CHANNELS)
    for t, factor in enumerate(decay_factors()):
        h = factor * h + tensors["x"][t].astype(np.float64)
        tensors["out"][t] = h


def decay_factors():
    return np.random.default_rng(1).uniform(0.5, 1.0, STEPS)


def chunk_decays():
    """How much of step s of a chunk is left at its step t."""
    logs = np.log(decay_factors()).cumsum().reshape(-1, CHUNK)
    return np.tril(np.exp(logs[:, :, None] - logs[:, None, :])).reshape(STEPS, CHUNK)


def carried_decays():
    """How much of the state before a chunk is left at each of its steps."""
    return decay_factors().reshape(-1, CHUNK).cumprod(axis=1).reshape(STEPS, 1)


SPECS = [
    TensorSpec(
        "x", [STEPS, CHANNELS], pl.FP32, lambda: np.random.default_rng(2).random((STEPS, CHANNELS))
    ),
    TensorSpec("decay", [STEPS, CHUNK], pl.FP32, chunk_decays),
    TensorSpec("carry", [STEPS, 1], pl.FP32, carried_decays),
    TensorSpec("out", [STEPS, CHANNELS], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(scan, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-4, atol=1e-4)
    print(result)
    raise SystemExit(not result.passed)
