"""A matrix product with its epilogue in the same task: bias, then SiLU, before anything is stored.

The scope mixes cube and vector work; `pl.split` halves its rows over the two vector cores.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

M, K, N = 64, 256, 128
TILE_K, TILE_N = 128, 128


@pl.program
class GemmSilu:
    @pl.function(type=pl.FunctionType.Opaque)
    def gemm_silu(
        self,
        x: pl.Tensor[[M, K], pl.BF16],
        w: pl.Tensor[[K, N], pl.BF16],
        bias: pl.Tensor[[1, N], pl.FP32],
        out: pl.Out[pl.Tensor[[M, N], pl.BF16]],
    ) -> pl.Tensor[[M, N], pl.BF16]:
        for n in pl.parallel(0, N, TILE_N):
            with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
                acc = pl.matmul(x[:, 0:TILE_K], w[0:TILE_K, n : n + TILE_N], out_dtype=pl.FP32)
                for k in pl.range(TILE_K, K, TILE_K):
                    acc = pl.matmul_acc(
                        acc, x[:, k : k + TILE_K], w[k : k + TILE_K, n : n + TILE_N]
                    )
                biased = pl.col_expand_add(acc, bias[:, n : n + TILE_N])
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(biased)), 1.0))
                out[:, n : n + TILE_N] = pl.cast(pl.mul(biased, sigmoid), pl.BF16, mode="rint")
        return out


def golden(tensors: dict[str, Any]):
    y = tensors["x"].astype(np.float64) @ tensors["w"].astype(np.float64) + tensors["bias"]
    tensors["out"][:] = y / (1.0 + np.exp(-y))


def normal(seed: int, rows: int, cols: int, scale: float):
    return lambda: scale * np.random.default_rng(seed).normal(size=(rows, cols))


SPECS = [
    TensorSpec("x", [M, K], pl.BF16, normal(1, M, K, 1.0)),
    TensorSpec("w", [K, N], pl.BF16, normal(2, K, N, K**-0.5)),
    TensorSpec("bias", [1, N], pl.FP32, normal(3, 1, N, 0.5)),
    TensorSpec("out", [M, N], pl.BF16, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run(GemmSilu, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-2, atol=1e-2)
    print(result)
    raise SystemExit(not result.passed)
