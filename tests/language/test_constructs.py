"""One small program for each construct of the language, run on every engine."""

from __future__ import annotations

import numpy as np
from tests.everywhere import run

import tilelet.language as pl

X = np.arange(256, dtype=np.float32).reshape(16, 16) / 8 - 10


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- what a control program returns ---------------------------------------------------------------


@pl.jit.inline
def submits(x: pl.Tensor, out: pl.Tensor):
    with pl.at(level=pl.Level.CORE_GROUP) as tid:
        out[:, :] = pl.add(x, 1.0)
    return tid


@pl.jit
def returns_a_task_id(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    return submits(x, out)


@pl.jit
def returns_tasks_and_tensors(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    tids = pl.array.create(2, pl.TASK_ID)
    tids[0] = submits(x, out)
    return out, (tids, tids[0])


def test_a_control_program_may_return_what_is_no_tensor() -> None:
    for program in (returns_a_task_id, returns_tasks_and_tensors):
        np.testing.assert_array_equal(run(program, x=X, out=zeros(16, 16))["out"], X + 1)


# --- arrays in kernels ----------------------------------------------------------------------------


@pl.jit
def counts_in_arrays(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        counts = pl.array.create(4, pl.INT32)
        last = pl.array.create(4, pl.INT32)
        for i in pl.range(4):
            if i > 1:
                counts[i] = i * 4
            last[i] = counts[0]
            counts[0] = i
        for i in pl.range(4):
            out[i * 4 : i * 4 + 4, :] = pl.mul(
                x[i * 4 : i * 4 + 4, :], pl.cast(counts[i] + last[i], pl.FP32)
            )
    return out


def test_arrays_in_kernels() -> None:
    factors = np.repeat([3 + 0, 0 + 0, 8 + 1, 12 + 2], 4)[:, None].astype(np.float32)
    np.testing.assert_array_equal(run(counts_in_arrays, x=X, out=zeros(16, 16))["out"], X * factors)


# --- long names -----------------------------------------------------------------------------------


@pl.jit
def two_kernels_with_long_names(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(
        level=pl.Level.CORE_GROUP, name_hint="a_name_that_is_longer_than_forty_characters_1"
    ):
        out[0:8, :] = pl.add(x[0:8, :], 1.0)
    with pl.at(
        level=pl.Level.CORE_GROUP, name_hint="a_name_that_is_longer_than_forty_characters_2"
    ):
        out[8:16, :] = pl.add(x[8:16, :], 2.0)
    return out


def test_names_that_differ_late_are_different() -> None:
    result = run(two_kernels_with_long_names, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, X + np.repeat([1, 2], 8)[:, None].astype(np.float32))
