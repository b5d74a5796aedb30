"""`cast`, and the arithmetic of scalars."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.ops.calls import CALL, infer1, number, region, run, tile
from tests.ops.calls import Part as PartOf

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadChoice,
    CastUnsupported,
    OperandKind,
)
from tilelet.diag.catalogue.windows import DivisionByZero
from tilelet.dtypes import BF16, BOOL, FP16, FP32, INDEX, INT8, INT32, INT64, TASK_ID, UINT8
from tilelet.ir.core import Const
from tilelet.ir.fold import evaluate as fold
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import ScalarType, TileType
from tilelet.syntax.enums import RoundMode

# --- cast ----------------------------------------------------------------------------------------


def test_cast_types():
    assert infer1("cast", tile(8, 8), BF16) == TileType((8, 8), BF16)
    assert infer1("cast", tile(8, 8), target_type=FP32, mode=0) == TileType((8, 8), FP32)
    with pytest.raises(BadArgument):
        infer1("cast", tile(8, 8), 16)
    with pytest.raises(CastUnsupported):
        infer1("cast", tile(8, 8), TASK_ID)


@pytest.mark.parametrize("mode", ["nearest", 7, -1, None, 1.0])
def test_unknown_modes(mode):
    with pytest.raises(BadChoice):
        infer1("cast", tile(8, 8), BF16, mode)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("rint", [2, -2, 0, 3]),
        ("round", [3, -3, 1, 3]),
        ("floor", [2, -3, 0, 2]),
        ("ceil", [3, -2, 1, 3]),
        ("trunc", [2, -2, 0, 2]),
        ("odd", [3, -3, 1, 3]),
        ("none", [2, -2, 0, 2]),
    ],
)
def test_modes_by_name_code_and_enum(mode, expected):
    x = np.array([[2.5, -2.5, 0.5, 2.75]], np.float32)
    code = ["none", "rint", "round", "floor", "ceil", "trunc", "odd"].index(mode)
    for spelling in (mode, mode.upper(), code, RoundMode(code)):
        np.testing.assert_array_equal(run("cast", x, INT32, spelling), [expected])


def test_default_rounds_ties_away():
    tie = np.array([[1 + 2**-8, -(1 + 2**-8)]], np.float32)
    expected = np.array([[1 + 2**-7, -(1 + 2**-7)]], np.float32)
    np.testing.assert_array_equal(run("cast", tie, BF16).astype(np.float32), expected)
    np.testing.assert_array_equal(run("cast", tie, BF16, "rint"), tie.astype(ml_dtypes.bfloat16))


def test_cast_keeps_the_region():
    assert region("cast", PartOf(np.ones((8, 8), np.float32), 3, 4), FP16) == (3, 4)


# --- types of scalar ops -------------------------------------------------------------------------


def result(name: str, *operands) -> dtypes.DType:
    found = infer1(f"scalar.{name}", *operands)
    assert isinstance(found, ScalarType)
    return found.dtype


@pytest.mark.parametrize(
    ("lhs", "rhs", "expected"),
    [
        (number(INDEX), 1, INDEX),
        (number(INT32), 1, INT32),
        (2, number(INT32), INT32),
        (number(INT32), number(INDEX), INDEX),
        (number(FP32), 1, FP32),
        (number(INT32), 0.5, FP32),
        (number(BF16), 0.5, BF16),
        (number(INT32), Const(1, INT64), INT64),
        (number(BOOL), 1, INDEX),
    ],
)
def test_a_python_number_takes_the_scalars_dtype(lhs, rhs, expected):
    assert result("add", lhs, rhs) is expected
    assert result("min", lhs, rhs) is expected


def test_other_results():
    assert result("truediv", number(INT32), 2) is FP32
    assert result("truediv", number(BF16), 2) is BF16
    assert result("floordiv", number(INT32), 2) is INT32
    assert result("lt", number(INT32), 2.5) is BOOL
    assert result("and", number(BOOL), True) is BOOL
    assert result("not", number(BOOL)) is BOOL
    assert result("invert", number(INT32)) is INT32
    assert result("cast", number(FP32), INT32) is INT32


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("add", (number(TASK_ID), 1)),
        ("add", (tile(8, 8), 1)),
        ("add", (number(BOOL), number(BOOL))),
        ("floordiv", (number(FP32), 2)),
        ("mod", (number(INT32), 2.0)),
        ("shl", (number(BOOL), 1)),
        ("and", (number(INT32), number(BOOL))),
        ("not", (number(INT32),)),
        ("neg", (number(BOOL),)),
        ("invert", (number(FP32),)),
        ("eq", (number(TASK_ID), 0)),
    ],
)
def test_operands_without_that_operator(name, operands):
    with pytest.raises(OperandKind):
        infer1(f"scalar.{name}", *operands)


def test_scalars_are_cast_with_the_default_mode():
    with pytest.raises(CastUnsupported):
        infer1("scalar.cast", number(FP32), INT32, "floor")
    with pytest.raises(CastUnsupported):
        infer1("scalar.cast", number(FP32), TASK_ID)


# --- values of scalar ops ------------------------------------------------------------------------


def value(name: str, dtype: dtypes.DType, *values):
    return fold(REGISTRY[f"scalar.{name}"], values, dtype, CALL)


@pytest.mark.parametrize("a", [7, -7])
@pytest.mark.parametrize("b", [2, -2])
def test_division_truncates(a, b):
    quotient, remainder = value("floordiv", INT32, a, b), value("mod", INT32, a, b)
    assert quotient == int(a / b)
    assert remainder == int(np.fmod(a, b))
    assert quotient * b + remainder == a


@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_division_by_zero_is_a_fault_at_the_line(name):
    with pytest.raises(DivisionByZero) as caught:
        value(name, INDEX, 5, 0)
    assert caught.value.diagnostic.labels[0].loc == CALL


def test_integers_wrap_in_their_type():
    assert value("add", INT32, 2**31 - 1, 1) == -(2**31)
    assert value("mul", INT8, 100, 2) == -56
    assert value("sub", UINT8, 1, 2) == 255
    assert value("add", INDEX, 2**63 - 1, 1) == -(2**63)
    assert value("neg", INT8, -128) == -128
    assert value("invert", UINT8, 1) == 254


def test_floats_round_to_their_type():
    assert value("add", FP32, 1.0, 2**-25) == 1.0
    assert value("mul", BF16, 1.0078125, 1.0078125) == 1.015625
    assert value("truediv", FP32, 1, 3) == float(np.float32(1) / np.float32(3))
    assert value("truediv", FP32, 1.0, 0.0) == float("inf")
    assert np.isnan(value("min", FP32, float("nan"), 1.0))


def test_shifts_by_any_amount():
    assert value("shl", INT32, 3, 4) == 48
    assert value("shl", INT32, 1, 32) == 0
    assert value("shl", INT32, 1, 10**9) == 0
    assert value("shr", INT32, -8, 1) == -4
    assert value("shr", INT32, -8, 100) == -1


def test_the_rest():
    assert value("max", INT32, 3, 5) == 5
    assert value("min", INT32, 3, 5) == 3
    assert value("le", BOOL, 3, 3) is True
    assert value("ne", BOOL, 3, 3) is False
    assert value("and", BOOL, True, False) is False
    assert value("or", BOOL, True, False) is True
    assert value("not", BOOL, True) is False
    assert value("pos", INT32, 3) == 3


def cast_value(x, dtype: dtypes.DType):
    spec = REGISTRY["scalar.cast"]
    assert spec.reference is not None
    return spec.reference(x=x, target_type=dtype, mode="round", result_type=ScalarType(dtype))


def test_scalar_cast():
    assert cast_value(2.5, INT32) == 3
    assert cast_value(1e20, INT32) == 2**31 - 1
    assert cast_value(300, INT8) == 127
    assert cast_value(7, FP32) == 7.0
    assert isinstance(cast_value(7, FP32), float)
    assert cast_value(True, INT32) == 1
    assert cast_value(0.25, BOOL) is True
    assert cast_value(2**64 - 1, INT64) == 2**63 - 1
    assert cast_value(1.01, BF16) == 1.0078125
