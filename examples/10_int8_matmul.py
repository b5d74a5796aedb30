"""INT8 matrix product: quantize the rows of `x`, multiply exactly, scale back.

Each row gets the scale 127 / max|x|; the weight is quantized beforehand, one scale per column. The
chain of casts is what A2/A3 vector units can do in one step each.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

M, K, N, TILE_N = 16, 256, 128, 64


@pl.jit
def int8_matmul(
    x: pl.Tensor[[M, K], pl.FP32],
    w: pl.Tensor[[K, N], pl.INT8],
    w_scale: pl.Tensor[[1, N], pl.FP32],
    out: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    quantised = pl.create_tensor([M, K], dtype=pl.INT8)
    row_scale = pl.create_tensor([M, 1], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantise"):
        tile = x[:, :]
        amax = pl.row_max(pl.maximum(tile, pl.neg(tile)))
        scale = pl.mul(pl.recip(pl.maximum(amax, 1e-4)), 127.0)
        rounded = pl.cast(pl.row_expand_mul(tile, scale), pl.INT32, mode="rint")
        half = pl.cast(rounded, pl.FP16, mode="round")
        quantised[:, :] = pl.cast(half, pl.INT8, mode="trunc")
        row_scale[:, :] = pl.recip(scale)
    for n in pl.parallel(0, N, TILE_N):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="multiply"):
            acc = pl.matmul(quantised, w[:, n : n + TILE_N], out_dtype=pl.INT32)
            scaled = pl.row_expand_mul(pl.cast(acc, pl.FP32), row_scale)
            out[:, n : n + TILE_N] = pl.col_expand_mul(scaled, w_scale[:, n : n + TILE_N])
    return out


def golden(tensors: dict[str, Any]):
    x = tensors["x"].astype(np.float64)
    scale = 127.0 / np.abs(x).max(axis=1, keepdims=True)
    product = np.rint(x * scale) @ tensors["w"].astype(np.float64)
    tensors["out"][:] = product / scale * tensors["w_scale"]


def rng(seed: int):
    return np.random.default_rng(seed)


SPECS = [
    TensorSpec("x", [M, K], pl.FP32, lambda: rng(1).normal(size=(M, K))),
    TensorSpec("w", [K, N], pl.INT8, lambda: rng(2).integers(-127, 128, (K, N))),
    TensorSpec("w_scale", [1, N], pl.FP32, lambda: rng(3).uniform(0.001, 0.01, (1, N))),
    TensorSpec("out", [M, N], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(int8_matmul, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-4, atol=1e-4)
    print(result)
    raise SystemExit(not result.passed)
