"""Hand-written kernels: what they call their outputs, how cores share work, run on every engine."""

from __future__ import annotations

import numpy as np
from tests.everywhere import run

import tilelet.language as pl

X = np.arange(64 * 16, dtype=np.float32).reshape(64, 16) / 8 - 10


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- a name for the memory of an output -----------------------------------------------------------


@pl.program
class NamedInALoop:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        for r in pl.range(0, 64, 16):
            tile = pl.load(x, [r, 0], [16, 16])
            done = pl.store(pl.mul(tile, 2.0), [r, 0], y)
        return done

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        y = self.kernel(x, y)
        return y


@pl.program
class NamedOnOnePath:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.InOut[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        for i in pl.range(4):
            if i % 2 == 1:
                continue
            tile = pl.load(x, [i * 16, 0], [16, 16])
            done = pl.store(pl.mul(tile, 2.0), [i * 16, 0], y)
        return done

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.InOut[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        y = self.kernel(x, y)
        return y


def test_a_name_first_bound_in_a_loop_may_be_the_memory_of_an_output() -> None:
    np.testing.assert_array_equal(run(NamedInALoop, x=X, y=zeros(64, 16))["y"], 2 * X)


def test_a_name_bound_on_one_path_is_the_output_on_the_other() -> None:
    expected = 2 * X
    expected[16:32] = expected[48:] = 7
    got = run(NamedOnOnePath, x=X, y=np.full((64, 16), 7, np.float32))
    np.testing.assert_array_equal(got["y"], expected)
