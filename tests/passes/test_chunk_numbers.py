"""A scalar that chunk loops bind first, used after them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels import run

import tilelet.language as pl
from tilelet.diag.core import UserError, UserErrors

X = np.full((16, 16), 3, np.int32)


@pl.jit
def beside_a_task(
    x: pl.Tensor[[16, 16], pl.INT32],
    out: pl.Out[pl.Tensor[[16, 16], pl.INT32]],
):
    n = pl.min(pl.max(pl.cast(pl.read(x, [0, 0]), pl.INDEX), 1), 2)
    with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
        for i in pl.parallel(0, n, 1, chunk=4):
            for j in pl.parallel(0, 2, 1, chunk=5):
                row = i * 8
                column = j * 8
                out[row : row + 8, column : column + 8] = x[0:8, 0:8]
        for _ in pl.parallel(0, 1, 1, chunk=2):
            for j in pl.parallel(0, 2, 1, chunk=3):
                out[row : row + 8, j * 8 : j * 8 + 8] = pl.neg(x[0:8, 0:8])
    return out


def test_a_number_of_a_task_does_not_leave_it() -> None:
    with pytest.raises((UserError, UserErrors), match="E0404"):
        run(beside_a_task, x=X, out=np.zeros_like(X))
