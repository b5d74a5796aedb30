"""Arithmetic, functions, bits, comparison, selection."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.ops.calls import Part, infer1, lines, number, region, run, tensor, tile

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadChoice,
    ConstantOutOfRange,
    DTypeMismatch,
    DTypeNotAllowed,
    NotConstant,
    ShapeMismatch,
    WrongMemorySpace,
)
from tilelet.ir.core import Const
from tilelet.ir.faults import RegionFault
from tilelet.ir.types import Mem, TileType
from tilelet.syntax.enums import CmpType

BF16, FP16, FP32 = dtypes.BF16, dtypes.FP16, dtypes.FP32
INT8, INT16, INT32, UINT8 = dtypes.INT8, dtypes.INT16, dtypes.INT32, dtypes.UINT8
RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*shape: int) -> np.ndarray:
    return RNG.integers(-50, 50, shape).astype(np.int32)


# --- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ((16, 128), (16, 128), (16, 128)),
        ((16, 128), (16, 1), (16, 128)),
        ((16, 128), (1, 128), (16, 128)),
        ((16, 1), (16, 128), (16, 128)),
        ((1, 128), (16, 128), (16, 128)),
        ((16, 1), (1, 1), (16, 1)),
        ((16, 128), (1, 1), (16, 128)),
        ((1, 1, 1), (2, 16, 128), (2, 16, 128)),
        ((2, 16, 128), (2, 16, 1), (2, 16, 128)),
        ((64,), (64,), (64,)),
    ],
)
def test_broadcast(lhs, rhs, result):
    assert infer1("sub", tile(*lhs), tile(*rhs)) == TileType(result, FP32)


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ((16, 128), (16, 64)),
        ((16, 1), (1, 128)),
        ((16, 128), (128,)),
        ((2, 16, 128), (1, 16, 128)),
    ],
)
def test_shapes_that_do_not_broadcast(lhs, rhs):
    with pytest.raises(ShapeMismatch) as caught:
        infer1("add", tile(*lhs), tile(*rhs))
    assert lines(caught.value) == [10, 11]
    assert "`pl.add`" in caught.value.diagnostic.message


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [(FP32, FP32, FP32), (BF16, FP32, FP32), (INT32, BF16, BF16), (INT8, INT32, INT32)],
)
def test_promotion(lhs, rhs, result):
    t = infer1("mul", tile(16, 16, dtype=lhs), tile(16, 16, dtype=rhs))
    assert t == TileType((16, 16), result)


@pytest.mark.parametrize("value", [2, 2.0, Const(2, INT32), number(INT32), True])
def test_a_number_keeps_the_tiles_dtype(value):
    assert infer1("mul", tile(8, 8, dtype=BF16), value).dtype is BF16
    assert infer1("mul", tile(8, 8, dtype=INT16), value).dtype is INT16


def test_number_on_the_left():
    assert infer1("sub", 1.0, tile(8, 8)) == TileType((8, 8), FP32)
    np.testing.assert_array_equal(run("sub", 1.0, np.full((2, 2), 3, np.float32)), -2)
    np.testing.assert_array_equal(run("div", 6, np.full((2, 2), 4, np.int32)), 1)


def test_fraction_does_not_fit_an_integer_tile():
    with pytest.raises(DTypeMismatch) as caught:
        infer1("mul", tile(8, 8, dtype=INT32), 0.5)
    assert lines(caught.value) == [10, 11]
    with pytest.raises(DTypeMismatch):
        infer1("mul", tile(8, 8, dtype=INT32), number(FP32))
    with pytest.raises(ConstantOutOfRange, match="300"):
        infer1("add", tile(8, 8, dtype=INT8), 300)


@pytest.mark.parametrize("operands", [(tensor(8, 8), tile(8, 8)), (tile(8, 8), "x"), (1.0, 2.0)])
def test_operands_are_tiles(operands):
    with pytest.raises(BadArgument):
        infer1("add", *operands)


@pytest.mark.parametrize("dtype", [dtypes.BOOL, dtypes.FP8E4M3FN, dtypes.FP8E5M2])
def test_types_without_arithmetic(dtype):
    with pytest.raises(DTypeNotAllowed):
        infer1("add", tile(8, 8, dtype=dtype), tile(8, 8, dtype=dtype))


def test_integers_become_fp32_in_functions():
    for name in ("exp", "log", "sqrt", "rsqrt", "recip", "sin", "cos"):
        assert infer1(name, tile(8, 8, dtype=INT32)).dtype is FP32
        assert infer1(name, tile(8, 8, dtype=BF16)).dtype is BF16
    assert infer1("neg", tile(8, 8, dtype=INT32)).dtype is INT32


def test_bits_are_integers():
    with pytest.raises(DTypeNotAllowed, match=r"`pl\.and_` does not support `pl\.FP32`"):
        infer1("and_", tile(8, 8), tile(8, 8))
    with pytest.raises(DTypeNotAllowed):
        infer1("shl", tile(8, 8, dtype=dtypes.BOOL), 1)
    assert infer1("and_", tile(8, 8, dtype=dtypes.BOOL), tile(8, 8, dtype=dtypes.BOOL)).dtype
    assert (
        infer1("xor", tile(8, 8, dtype=INT32), tile(8, 8, dtype=INT32), tile(8, 8)).dtype is INT32
    )


def test_number_forms_take_numbers_only():
    with pytest.raises(BadArgument):
        infer1("adds", tile(8, 8), tile(8, 8))
    with pytest.raises(BadArgument):
        infer1("maxs", 1.0, 2.0)


def test_vector_ops_reach_vec_only():
    with pytest.raises(WrongMemorySpace, match=r"cannot be in `pl\.Mem\.Mat`"):
        infer1("exp", tile(8, 8, space=Mem.Mat))
    with pytest.raises(WrongMemorySpace):
        infer1("add", tile(8, 8), tile(8, 8, space=Mem.Left))
    assert infer1("add", tile(8, 8), tile(8, 8, space=Mem.Vec)).space is Mem.Vec
    assert infer1("add", tile(8, 8), tile(8, 8)).space is None


def test_flags_are_constants():
    with pytest.raises(NotConstant):
        infer1("rsqrt", tile(8, 8), number(dtypes.BOOL))
    with pytest.raises(BadArgument):
        infer1("div", tile(8, 8), tile(8, 8), high_precision=1)


# --- meaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("div", np.divide),
        ("maximum", np.maximum),
        ("minimum", np.minimum),
        ("fmod", np.fmod),
    ],
)
@pytest.mark.parametrize(
    ("a", "b"), [((8, 16), (8, 16)), ((8, 16), (8, 1)), ((1, 16), (8, 16)), ((8, 1), (8, 16))]
)
def test_float_arithmetic(name, function, a, b):
    x, y = f32(*a), f32(*b)
    np.testing.assert_array_equal(run(name, x, y), function(x, y))


def test_mixed_dtypes_are_promoted_first():
    x, y = f32(4, 4).astype(ml_dtypes.bfloat16), f32(4, 4)
    np.testing.assert_array_equal(run("add", x, y), x.astype(np.float32) + y)
    z = i32(4, 4)
    np.testing.assert_array_equal(run("mul", z, y), z.astype(np.float32) * y)


def test_numbers_are_narrowed_to_the_tile():
    x = f32(4, 4).astype(ml_dtypes.bfloat16)
    third = np.float32(1 / 3).astype(ml_dtypes.bfloat16)
    expected = (x.astype(np.float32) * np.float32(third)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run("muls", x, 1 / 3), expected)
    np.testing.assert_array_equal(run("adds", np.full((2, 2), 120, np.int8), 10), np.int8(-126))


def test_integer_division_truncates():
    x = np.array([[7, -7, 7, -7, 5]], np.int32)
    y = np.array([[2, 2, -2, -2, 0]], np.int32)
    np.testing.assert_array_equal(run("div", x, y), [[3, -3, -3, 3, 0]])
    np.testing.assert_array_equal(run("rem", x, y), [[1, 1, -1, -1, 0]])
    np.testing.assert_array_equal(run("fmod", x, y), [[1, -1, 1, -1, 0]])
    np.testing.assert_array_equal(run("rems", x, 4), [[3, 1, 3, 1, 1]])
    np.testing.assert_array_equal(run("fmods", x, 4), [[3, -3, 3, -3, 1]])


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", np.exp),
        ("log", lambda v: np.log(np.abs(v))),
        ("sqrt", lambda v: np.sqrt(np.abs(v))),
        ("rsqrt", lambda v: 1 / np.sqrt(np.abs(v))),
        ("recip", lambda v: 1 / v),
        ("sin", np.sin),
        ("cos", np.cos),
        ("neg", np.negative),
        ("abs", np.abs),
        ("relu", lambda v: np.maximum(v, 0)),
    ],
)
def test_functions(name, function):
    x = f32(8, 16)
    x = np.abs(x) if name in ("log", "sqrt", "rsqrt") else x
    expected = function(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(run(name, x), expected, rtol=1e-7)


def test_high_precision_changes_nothing():
    x = np.abs(f32(4, 4))
    np.testing.assert_array_equal(run("rsqrt", x), run("rsqrt", x, True))
    np.testing.assert_array_equal(run("recip", x), run("recip", x, high_precision=True))
    np.testing.assert_array_equal(run("div", x, x), run("div", x, x, high_precision=True))


def test_leaky_relus():
    x = np.array([[-2, 3, 0, np.nan]], np.float32)
    np.testing.assert_array_equal(run("lrelu", x, 0.5), [[-1, 3, 0, np.nan]])
    slope = np.array([[0.25, 9, 9, 9]], np.float32)
    np.testing.assert_array_equal(run("prelu", x, slope), [[-0.5, 3, 0, np.nan]])
    with pytest.raises(ShapeMismatch):
        infer1("prelu", tile(8, 8), tile(8, 4))
    with pytest.raises(DTypeNotAllowed):
        infer1("lrelu", tile(8, 8, dtype=INT32), 2)


def test_bits():
    x, y = i32(4, 8), i32(4, 8)
    np.testing.assert_array_equal(run("and_", x, y), x & y)
    np.testing.assert_array_equal(run("or_", x, y), x | y)
    np.testing.assert_array_equal(run("xor", x, y), x ^ y)
    np.testing.assert_array_equal(run("not_", x), ~x)
    np.testing.assert_array_equal(run("ands", x, 15), x & 15)
    np.testing.assert_array_equal(run("ors", x, 1), x | 1)
    np.testing.assert_array_equal(run("xors", x, 3), x ^ 3)
    np.testing.assert_array_equal(run("shls", x, 3), x << 3)
    np.testing.assert_array_equal(run("shrs", x, 2), x >> 2)
    np.testing.assert_array_equal(run("shl", x, np.full_like(x, 1)), x << 1)
    np.testing.assert_array_equal(run("shr", x, np.full_like(x, 40)), np.where(x < 0, -1, 0))


@pytest.mark.parametrize("kind", list(CmpType))
def test_comparison(kind):
    operators = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]
    x, y = i32(8, 8), i32(8, 8)
    x[0] = y[0]
    expected = operators[kind](x, y).astype(np.int32)
    for spelling in (kind, kind.value, kind.name, kind.name.lower()):
        np.testing.assert_array_equal(run("cmp", x, y, spelling), expected)
    np.testing.assert_array_equal(run("cmps", x, 3, kind), operators[kind](x, 3))


def test_comparison_keeps_the_left_dtype_and_ieee_rules():
    x = np.array([[1, np.nan, 2]], ml_dtypes.bfloat16)
    assert run("cmp", x, 1.5, "gt").dtype == x.dtype
    np.testing.assert_array_equal(run("cmp", x, 1.5, "gt").astype(float), [[0, 0, 1]])
    np.testing.assert_array_equal(run("cmp", x, 1.5, "ne").astype(float), [[1, 1, 1]])


@pytest.mark.parametrize("kind", [6, -1, "equal", None, 1.5])
def test_no_such_comparison(kind):
    with pytest.raises(BadChoice):
        infer1("cmp", tile(8, 8), tile(8, 8), kind)


def test_selection():
    x, y = f32(4, 8), f32(4, 8)
    mask = run("cmp", x, y, "lt")
    np.testing.assert_array_equal(run("sel", mask, x, y), np.minimum(x, y))
    np.testing.assert_array_equal(run("sel", mask, x, 0.0), np.where(x < y, x, 0))
    np.testing.assert_array_equal(run("sels", mask, x, None, -1.0), np.where(x < y, x, -1))
    with pytest.raises(ShapeMismatch):
        infer1("sel", tile(4, 4), tile(4, 8), tile(4, 8))
    with pytest.raises(BadArgument):
        infer1("sel", tile(4, 8), 1.0, tile(4, 8))


def test_three_operands():
    a, b, c = f32(4, 8), f32(4, 8), f32(4, 8)
    np.testing.assert_array_equal(run("addc", a, b, c), (a + b) + c)
    np.testing.assert_array_equal(run("subc", a, b, c), (a - b) + c)
    np.testing.assert_array_equal(run("addsc", a, 2.0, c), (a + np.float32(2)) + c)
    np.testing.assert_array_equal(run("subsc", a, 2.0, c), (a - np.float32(2)) + c)
    with pytest.raises(DTypeMismatch):
        infer1("addc", tile(4, 8), tile(4, 8), tile(4, 8, dtype=BF16))


# --- valid regions -------------------------------------------------------------------------------


def test_binary_takes_the_intersection():
    x, y = f32(8, 16), f32(8, 16)
    assert region("add", Part(x, 8, 10), Part(y, 5, 16)) == (5, 10)
    np.testing.assert_array_equal(
        run("div", Part(x, 8, 10), Part(y, 5, 16))[:5, :10], x[:5, :10] / y[:5, :10]
    )
    assert region("mul", Part(x, 8, 10), 2.0) == (8, 10)


def test_stretched_operands_count_where_they_reach():
    x = f32(8, 16)
    assert region("mul", Part(x, 8, 10), Part(f32(8, 1), 6, 1)) == (6, 10)
    assert region("mul", Part(f32(1, 16), 1, 4), Part(x, 8, 10)) == (8, 4)
    assert region("mul", x, Part(f32(1, 16), 0, 16)) == (0, 16)


def test_unary_keeps_the_region():
    x = f32(8, 16)
    assert region("exp", Part(x, 3, 5)) == (3, 5)
    # exp(0) is 1, but outside the region a tile stays zero.
    assert not run("exp", Part(x, 3, 5))[3:].any()


def test_partial_ops_take_the_union():
    x, y = f32(8, 16), f32(8, 16)
    whole, part = Part(x, 8, 16), Part(y, 8, 4)
    expected = x.copy()
    expected[:, :4] += y[:, :4]
    np.testing.assert_array_equal(run("part_add", whole, part), expected)
    np.testing.assert_array_equal(run("part_add", part, whole), expected)
    expected[:, :4] = np.maximum(x[:, :4], y[:, :4])
    np.testing.assert_array_equal(run("part_max", part, whole), expected)
    assert region("part_min", Part(x, 4, 4), Part(y, 8, 4)) == (8, 4)
    assert region("part_mul", Part(x, 4, 4), Part(y, 4, 4)) == (4, 4)
    with pytest.raises(RegionFault):
        run("part_add", Part(x, 8, 4), Part(y, 4, 16))
