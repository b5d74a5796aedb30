"""Kernels with one mistake each, and where it is: the text of the line that is wrong."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS, TILE = 64, 32, 16


def normal(seed: int, *shape: int, scale: float = 1.0, low: float | None = None):
    def make() -> Any:
        numbers = scale * np.random.default_rng(seed).normal(size=shape)
        return numbers if low is None else np.abs(numbers) + low

    return make


def x_and_out(dtype: Any = pl.FP32) -> list[TensorSpec]:
    return [
        TensorSpec("x", [ROWS, COLS], dtype, normal(1, ROWS, COLS)),
        TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
    ]


X = pl.Tensor[[ROWS, COLS], pl.FP32]
OUT = pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]]


@pl.jit
def wrong_offset(x: X, out: OUT):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
            last = pl.min(r + TILE, ROWS - TILE)
            block = pl.slice(x, [TILE, COLS], [last, 0])  # wrong
            out = pl.assemble(out, pl.mul(block, 2.0), [r, 0])
    return out


@pl.jit
def partly_unwritten(x: X, out: OUT):
    for r in pl.parallel(0, ROWS - TILE, TILE):  # wrong
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
            block = pl.slice(x, [TILE, COLS], [r, 0])
            out = pl.assemble(out, pl.mul(block, 2.0), [r, 0])
    return out


def twice(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = 2.0 * tensors["x"]


def line_of(function: Any, mark: str = "# wrong") -> int:
    """The number of the line of a kernel that has `mark`."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return first + next(i for i, line in enumerate(lines) if mark in line)
