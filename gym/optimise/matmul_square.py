"""matmul_square: out = a @ b."""

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, COLS, INNER, TILE = 256, 256, 256, 128


@pl.jit
def matmul_square(
    a: pl.Tensor[[ROWS, INNER], pl.FP32],
    b: pl.Tensor[[INNER, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for r in pl.parallel(0, ROWS, TILE):
        for c in pl.parallel(0, COLS, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(a[r : r + TILE, 0:64], b[0:64, c : c + 64])
                for k in pl.range(64, INNER, 64):
                    left = a[r : r + TILE, k : k + 64]
                    acc = pl.matmul_acc(acc, left, b[k : k + 64, c : c + 64])
                out[r : r + TILE, c : c + 64] = acc
    return out


def golden(tensors):
    a = tensors["a"].astype(np.float64)
    b = tensors["b"].astype(np.float64)
    tensors["out"][:] = a @ b


def draw(seed, shape, low, high):
    return lambda: np.random.default_rng(seed).uniform(low, high, shape)


SPECS = [
    TensorSpec("a", [ROWS, INNER], pl.FP32, draw(1, [ROWS, INNER], -1, 1)),
    TensorSpec("b", [INNER, COLS], pl.FP32, draw(2, [INNER, COLS], -1, 1)),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    result = run_jit(matmul_square, SPECS, golden_fn=golden, rtol=1e-3, atol=1e-3)
    print(result)
    raise SystemExit(not result.passed)
