"""Softmax of every row, in the style of April 2026: a program class and an auto scope.

`chunk=2` puts two iterations of the parallel loop into one task: 8 tiles of rows make 4 tasks.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

ROWS, COLS, TILE = 128, 256, 16


@pl.program
class Softmax:
    @pl.function(type=pl.FunctionType.Opaque)
    def softmax(
        self,
        x: pl.Tensor[[ROWS, COLS], pl.FP32],
        out: pl.Tensor[[ROWS, COLS], pl.FP32],
    ) -> pl.Tensor[[ROWS, COLS], pl.FP32]:
        with pl.auto_incore():
            for i in pl.parallel(0, ROWS // TILE, chunk=2):
                r = i * TILE
                tile = pl.slice(x, [TILE, COLS], [r, 0])
                # Subtracting the maximum keeps the exponentials below one.
                shifted = pl.row_expand_sub(tile, pl.row_max(tile))
                numerator = pl.exp(shifted)
                result = pl.row_expand_div(numerator, pl.row_sum(numerator))
                out = pl.assemble(out, result, [r, 0])
        return out


def golden(tensors: dict[str, Any]):
    x = tensors["x"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    tensors["out"][:] = e / e.sum(axis=1, keepdims=True)


SPECS = [
    TensorSpec(
        "x", [ROWS, COLS], pl.FP32, lambda: 4 * np.random.default_rng(1).normal(size=(ROWS, COLS))
    ),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run(Softmax, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-5, atol=1e-5)
    print(result)
    raise SystemExit(not result.passed)
