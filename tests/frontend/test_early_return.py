"""A `return` at the end of an `if` gives the value of one of two paths."""

from __future__ import annotations

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.diag.core import UserErrors

ROW = pl.Tensor[[1, 32], pl.FP32]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_rest_is_the_other_arm(n: int) -> None:
    @pl.jit.incore
    def step(x: ROW, y: pl.Out[ROW], n: pl.Scalar[pl.INT32]):
        if n == 0:
            return pl.store(pl.load(x, [0, 0], [1, 32]), [0, 0], y)
        tile = pl.load(x, [0, 0], [1, 32])
        if n == 1:
            y = pl.store(pl.mul(tile, 2.0), [0, 0], y)
            return y
        return pl.store(pl.mul(tile, 3.0), [0, 0], y)

    @pl.jit
    def main(x: ROW, y: pl.Out[ROW], n: pl.Scalar[pl.INT32]):
        return step(x, y, n)

    x = np.arange(32, dtype=np.float32).reshape(1, 32)
    y = np.zeros_like(x)
    main(x, y, n)
    assert np.array_equal(y, x * (n + 1))


def test_a_return_in_a_loop_stays_an_error() -> None:
    @pl.jit.incore
    def step(x: ROW, y: pl.Out[ROW]):
        for i in pl.range(3):
            if i == 1:
                return y
            y = pl.store(pl.load(x, [0, 0], [1, 32]), [0, 0], y)
        return y

    @pl.jit
    def main(x: ROW, y: pl.Out[ROW]):
        return step(x, y)

    with pytest.raises(UserErrors, match="E0119"):
        main.lower()
