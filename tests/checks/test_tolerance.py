"""Tolerances against the rounding that dtypes and lengths bring."""

from __future__ import annotations

import pytest
from tests.checks.programs import subject_of

import tilelet.language as pl
from tilelet.checks import tolerance
from tilelet.checks.comparison import Comparison
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
    comparison = Comparison(rtol, atol, **fields)
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
    (error,) = tolerance.rounding_errors(program).values()
    assert error == pytest.approx(16 * 2.0**-24)


def test_what_is_not_compared_is_said() -> None:
    for part in (
        checked(pl.FP32, 1e-5, 1e-5, golden=None),
        checked(pl.FP32, 1e-5, 1e-5, own=("out",)),
        tolerance.check(subject_of(product(pl.FP32))),
    ):
        assert part.status is Status.NOT_CHECKED
