"""Matrix product in tiles: one task per output tile, the sum over K stays on chip.

The first product starts the accumulator, `matmul_acc` continues it; the finished tile is stored.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

M, K, N = 128, 512, 192
TILE_M, TILE_K, TILE_N = 64, 128, 64


@pl.jit
def matmul(
    a: pl.Tensor[[M, K], pl.BF16],
    b: pl.Tensor[[K, N], pl.BF16],
    c: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    for m in pl.parallel(0, M, TILE_M):
        for n in pl.parallel(0, N, TILE_N):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="matmul_tile"):
                acc = pl.matmul(
                    a[m : m + TILE_M, 0:TILE_K], b[0:TILE_K, n : n + TILE_N], out_dtype=pl.FP32
                )
                for k in pl.range(TILE_K, K, TILE_K):
                    a_tile = a[m : m + TILE_M, k : k + TILE_K]
                    b_tile = b[k : k + TILE_K, n : n + TILE_N]
                    acc = pl.matmul_acc(acc, a_tile, b_tile)
                c[m : m + TILE_M, n : n + TILE_N] = acc
    return c


def golden(tensors: dict[str, Any]):
    tensors["c"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)


SPECS = [
    TensorSpec("a", [M, K], pl.BF16, lambda: np.random.default_rng(1).normal(size=(M, K))),
    TensorSpec("b", [K, N], pl.BF16, lambda: np.random.default_rng(2).normal(size=(K, N))),
    TensorSpec("c", [M, N], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(matmul, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-4, atol=1e-4)
    print(result)
    raise SystemExit(not result.passed)
