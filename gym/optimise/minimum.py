"""minimum: out = np.minimum(x, y), for x, y."""

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, COLS, TILE = 512, 1024, 16


@pl.jit
def minimum(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    y_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
        for r in pl.parallel(0, ROWS, TILE, chunk=2):
            x = x_in[r : r + TILE, :]
            y = y_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.minimum(x, y)
    return out


def golden(tensors):
    x = tensors["x_in"].astype(np.float64)
    y = tensors["y_in"].astype(np.float64)
    tensors["out"][:] = np.minimum(x, y)


def draw(seed, shape, low, high):
    return lambda: np.random.default_rng(seed).uniform(low, high, shape)


SPECS = [
    TensorSpec("x_in", [ROWS, COLS], pl.FP32, draw(1, [ROWS, COLS], -1, 1)),
    TensorSpec("y_in", [ROWS, COLS], pl.FP32, draw(2, [ROWS, COLS], -1, 1)),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    result = run_jit(minimum, SPECS, golden_fn=golden, rtol=1e-4, atol=1e-4)
    print(result)
    raise SystemExit(not result.passed)
