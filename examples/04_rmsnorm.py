"""RMSNorm of rows that are too long for one tile: two passes over the columns, in chunks.

April style: `pl.incore()` is one task; names assigned in a loop are carried to its next iteration.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

ROWS, HIDDEN, CHUNK, EPS = 16, 1024, 128, 1e-6


@pl.program
class RmsNorm:
    @pl.function(type=pl.FunctionType.Opaque)
    def rmsnorm(
        self,
        x: pl.Tensor[[ROWS, HIDDEN], pl.BF16],
        weight: pl.Tensor[[1, HIDDEN], pl.FP32],
        out: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
    ) -> pl.Tensor[[ROWS, HIDDEN], pl.FP32]:
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rmsnorm_rows"):
            square_sum = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
            for kb in pl.range(HIDDEN // CHUNK):
                chunk = pl.cast(pl.slice(x, [ROWS, CHUNK], [0, kb * CHUNK]), target_type=pl.FP32)
                partial = pl.row_sum(pl.mul(chunk, chunk))
                square_sum = pl.add(square_sum, pl.reshape(partial, [1, ROWS]))
            mean = pl.add(pl.mul(square_sum, 1.0 / HIDDEN), EPS)
            inverse = pl.reshape(pl.recip(pl.sqrt(mean)), [ROWS, 1])
            for kb in pl.range(HIDDEN // CHUNK):
                chunk = pl.cast(pl.slice(x, [ROWS, CHUNK], [0, kb * CHUNK]), target_type=pl.FP32)
                gamma = pl.slice(weight, [1, CHUNK], [0, kb * CHUNK])
                normed = pl.col_expand_mul(pl.row_expand_mul(chunk, inverse), gamma)
                out = pl.assemble(out, normed, [0, kb * CHUNK])
        return out


def golden(tensors: dict[str, Any]):
    x = tensors["x"].astype(np.float64)
    root = np.sqrt(np.mean(x * x, axis=1, keepdims=True) + EPS)
    tensors["out"][:] = x / root * tensors["weight"]


SPECS = [
    TensorSpec(
        "x", [ROWS, HIDDEN], pl.BF16, lambda: np.random.default_rng(1).normal(size=(ROWS, HIDDEN))
    ),
    TensorSpec(
        "weight",
        [1, HIDDEN],
        pl.FP32,
        lambda: np.random.default_rng(2).uniform(0.5, 1.5, (1, HIDDEN)),
    ),
    TensorSpec("out", [ROWS, HIDDEN], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run(RmsNorm, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-5, atol=1e-5)
    print(result)
    raise SystemExit(not result.passed)
