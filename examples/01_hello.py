"""Add two tensors. The loop submits one task per tile of rows; the scope is what a task does.

tilelet run examples/01_hello.py -p a2a3sim
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, COLS, TILE = 64, 128, 16


@pl.jit
def add(
    a: pl.Tensor[[ROWS, COLS], pl.FP32],
    b: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + TILE, :] = pl.add(a[r : r + TILE, :], b[r : r + TILE, :])
    return out


def golden(tensors: dict[str, Any]):
    tensors["out"][:] = tensors["a"].astype(np.float64) + tensors["b"]


SPECS = [
    TensorSpec(
        "a", [ROWS, COLS], pl.FP32, lambda: np.random.default_rng(1).normal(size=(ROWS, COLS))
    ),
    TensorSpec(
        "b", [ROWS, COLS], pl.FP32, lambda: np.random.default_rng(2).normal(size=(ROWS, COLS))
    ),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(add, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-6, atol=1e-6)
    print(result)
    raise SystemExit(not result.passed)
