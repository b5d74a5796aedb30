"""Tolerances, compared with the rounding that dtypes and lengths cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.checks.programs import subject_of

import tilelet.language as pl
from tilelet.checks import tolerance
from tilelet.checks.comparison import GoldenComparison
from tilelet.checks.findings import Status


def product(dtype):
    @pl.jit
    def times(
        x: pl.Tensor[[16, 256], pl.BF16],
        w: pl.Tensor[[256, 64], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 64], dtype]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.cast(pl.matmul(x[:, :], w[:, :], out_dtype=pl.FP32), dtype)
        return out

    return times


def checked(dtype, rtol: float, atol: float, **fields):
    fields = {"golden": print, "outputs": ("out",), **fields}
    comparison = GoldenComparison(rtol, atol, **fields)
    return tolerance.check(subject_of(product(dtype), comparison=comparison))


def test_a_tolerance_below_the_output_type() -> None:
    (found,) = checked(pl.BF16, 1e-5, 1e-5).findings
    assert found.code == "W1120"
    assert checked(pl.BF16, 1e-2, 1e-3).findings == ()
    assert checked(pl.FP32, 1e-5, 1e-5).findings == ()
    assert checked(pl.BF16, 0.0, 0.0).findings == ()


def test_a_tolerance_that_accepts_anything() -> None:
    (found,) = checked(pl.FP32, 1.0, 0.0).findings
    assert found.code == "W1121"


def test_the_bound_grows_with_the_length() -> None:
    program = subject_of(product(pl.FP32)).program
    errors, counts_once = tolerance.rounding_errors(program)
    assert list(errors.values()) == pytest.approx([16 * 2.0**-24])
    assert not counts_once


def summed(count: Any):
    @pl.jit
    def total(
        x: pl.Tensor[[64, 64], pl.FP32],
        n: pl.Tensor[[1], pl.INT32],
        out: pl.Out[pl.Tensor[[1, 64], pl.FP32]],
    ):
        limit = pl.read(n, [0])
        with pl.at(level=pl.Level.CORE_GROUP):
            acc = pl.full([1, 64], dtype=pl.FP32, value=0.0)
            for r in pl.range(limit if count is None else count):
                acc = pl.add(acc, x[r : r + 1, :])
            out[:, :] = acc
        return out

    return total


def test_the_bound_grows_with_the_iterations() -> None:
    for count in (1, 64):
        errors, counts_once = tolerance.rounding_errors(subject_of(summed(count)).program)
        assert list(errors.values()) == pytest.approx([count**0.5 * 2.0**-24])
        assert not counts_once


def test_a_sum_of_unknown_length_is_not_proved() -> None:
    comparison = GoldenComparison(1e-5, 1e-5, golden=print, outputs=("out",))
    given = {"n": np.full(1, 64, np.int32)}
    part = tolerance.check(subject_of(summed(None), given, comparison=comparison))
    assert part.status is Status.THIS_RUN
    assert "count as one step" in part.summary
    part = tolerance.check(subject_of(summed(64), given, comparison=comparison))
    assert part.status is Status.PROVED


def test_what_is_not_compared_is_said() -> None:
    for part in (
        checked(pl.FP32, 1e-5, 1e-5, golden=None),
        checked(pl.FP32, 1e-5, 1e-5, own=("out",)),
        tolerance.check(subject_of(product(pl.FP32))),
    ):
        assert part.status is Status.NOT_CHECKED
