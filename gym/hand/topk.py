"""The K largest elements of every row and where they are, by sorting on chip.

`sort32` sorts runs of 32 and interleaves value and index; `mrgsort` merges four runs at a time, so
512 elements (1024 interleaved) need the run lengths 64 and 256. `gather` takes the two apart.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, N, K = 8, 512, 32


@pl.jit
def topk(
    x: pl.Tensor[[ROWS, N], pl.FP32],
    values: pl.Out[pl.Tensor[[ROWS, K], pl.FP32]],
    indices: pl.Out[pl.Tensor[[ROWS, K], pl.INT32]],
):
    for r in pl.parallel(ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="topk_row"):
            ramp = pl.arange(0, [1, N], dtype=pl.UINT32)
            pairs = pl.sort32(x[r : r + 1, :], ramp)
            pairs = pl.mrgsort(pairs, block_len=64)
            pairs = pl.mrgsort(pairs, block_len=256)
            top = pl.slice(pairs, [1, 2 * K], [0, 0])
            values[r : r + 1, :] = pl.gather(top, mask_pattern=pl.tile.MaskPattern.P0101)
            indices[r : r + 1, :] = pl.gather(
                top, mask_pattern=pl.tile.MaskPattern.P1010, output_dtype=pl.INT32
            )
    return values, indices


def golden(tensors: dict[str, Any]):
    order = np.argsort(-tensors["x"].astype(np.float64), axis=1, kind="stable")[:, :K]
    tensors["values"][:] = np.take_along_axis(tensors["x"], order, axis=1)
    tensors["indices"][:] = order


SPECS = [
    TensorSpec("x", [ROWS, N], pl.FP32, lambda: np.random.default_rng(1).normal(size=(ROWS, N))),
    TensorSpec("values", [ROWS, K], pl.FP32, is_output=True),
    TensorSpec("indices", [ROWS, K], pl.INT32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(topk, SPECS, golden_fn=golden, runtime_cfg=config, rtol=0.0, atol=0.0)
    print(result)
    raise SystemExit(not result.passed)
