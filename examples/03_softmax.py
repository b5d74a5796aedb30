"""Softmax of every row: a program class, and tasks that take several tiles each.

The outer loop makes the tasks, the inner one walks over the tiles of a task: 8 tiles of rows make
4 tasks. (In the style of April 2026: `pl.auto_incore` and `pl.parallel(0, 8, chunk=2)`.)
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

ROWS, COLS, TILE, TILES_PER_TASK = 128, 256, 16, 2


@pl.program
class Softmax:
    @pl.function(type=pl.FunctionType.Opaque)
    def softmax(
        self,
        x: pl.Tensor[[ROWS, COLS], pl.FP32],
        out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    ) -> pl.Tensor[[ROWS, COLS], pl.FP32]:
        for first in pl.parallel(0, ROWS, TILES_PER_TASK * TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax_rows"):
                for r in pl.range(first, first + TILES_PER_TASK * TILE, TILE):
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
