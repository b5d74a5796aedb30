"""LayerNorm as one task with several blocks: `pl.spmd` gives each block its own index."""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, HIDDEN, TILE, EPS = 64, 512, 16, 1e-5


@pl.jit
def layernorm(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    beta: pl.Tensor[[1, HIDDEN], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
):
    for block in pl.spmd(ROWS // TILE, name_hint="layernorm"):
        r = block * TILE
        tile = x[r : r + TILE, :]
        mean = pl.mul(pl.row_sum(tile), 1.0 / HIDDEN)
        centred = pl.row_expand_sub(tile, mean)
        variance = pl.mul(pl.row_sum(pl.mul(centred, centred)), 1.0 / HIDDEN)
        inverse = pl.recip(pl.sqrt(pl.add(variance, EPS)))
        normed = pl.row_expand_mul(centred, inverse)
        scaled = pl.col_expand_mul(normed, gamma)
        out[r : r + TILE, :] = pl.add(scaled, pl.col_expand(scaled, beta))
    return out


def golden(tensors: dict[str, Any]):
    x = tensors["x"].astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    root = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + EPS)
    tensors["out"][:] = centred / root * tensors["gamma"] + tensors["beta"]


def normal(seed: int, rows: int):
    return lambda: np.random.default_rng(seed).normal(1.0, 0.5, size=(rows, HIDDEN))


SPECS = [
    TensorSpec("x", [ROWS, HIDDEN], pl.FP32, normal(1, ROWS)),
    TensorSpec("gamma", [1, HIDDEN], pl.FP32, normal(2, 1)),
    TensorSpec("beta", [1, HIDDEN], pl.FP32, normal(3, 1)),
    TensorSpec("out", [ROWS, HIDDEN], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(layernorm, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-5, atol=1e-5)
    print(result)
    raise SystemExit(not result.passed)
