"""The expand family, and reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.ops.calls import Part, infer1, lines, number, region, run, tile

from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadAxis,
    DTypeMismatch,
    DTypeNotAllowed,
    NotConstant,
    RankMismatch,
    ShapeMismatch,
)
from tilelet.dtypes import BF16, BOOL, FP32, INT32
from tilelet.ir.faults import RegionFault
from tilelet.ir.types import TileType

RNG = np.random.default_rng(11)
EXPAND = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- expand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXPAND)
def test_rows_and_columns(kind):
    x, row, col = f32(8, 16), f32(8, 1), f32(1, 16)
    np.testing.assert_array_equal(run(f"row_expand_{kind}", x, row), EXPAND[kind](x, row))
    np.testing.assert_array_equal(run(f"col_expand_{kind}", x, col), EXPAND[kind](x, col))


def test_expdif():
    x, row, col = f32(8, 16), f32(8, 1), f32(1, 16)
    for name, vector in (("row_expand_expdif", row), ("col_expand_expdif", col)):
        expected = np.exp((x - vector).astype(np.float64)).astype(np.float32)
        np.testing.assert_array_equal(run(name, x, vector), expected)


@pytest.mark.parametrize(
    ("name", "vector"),
    [
        ("row_expand_mul", (1, 16)),
        ("row_expand_mul", (8, 16)),
        ("row_expand_mul", (4, 1)),
        ("col_expand_mul", (8, 1)),
        ("col_expand_mul", (1, 8)),
        ("col_expand", (8, 1)),
        ("row_expand", (1, 16)),
    ],
)
def test_vectors_have_one_column_or_row(name, vector):
    with pytest.raises(ShapeMismatch) as caught:
        infer1(name, tile(8, 16), tile(*vector))
    assert lines(caught.value) == [10, 11]


def test_expand_promotes_and_needs_a_tile():
    assert infer1("row_expand_mul", tile(8, 16, dtype=BF16), tile(8, 1)).dtype is FP32
    with pytest.raises(BadArgument):
        infer1("row_expand_mul", tile(8, 16), 2.0)
    with pytest.raises(RankMismatch):
        infer1("row_expand_mul", tile(16), tile(1))


def test_filling():
    x, row, col = f32(8, 16), f32(8, 1), f32(1, 16)
    np.testing.assert_array_equal(run("row_expand", x, row), np.repeat(row, 16, 1))
    np.testing.assert_array_equal(run("row_expand", x), np.repeat(x[:, :1], 16, 1))
    np.testing.assert_array_equal(run("col_expand", x, col), np.repeat(col, 8, 0))
    np.testing.assert_array_equal(run("expands", x, 2.5), np.full_like(x, 2.5))
    y = f32(2, 1, 4)
    np.testing.assert_array_equal(run("expand_clone", y, f32(2, 3, 4)), np.repeat(y, 3, 1))
    with pytest.raises(DTypeMismatch):
        infer1("col_expand", tile(8, 16), tile(1, 16, dtype=BF16))
    with pytest.raises(ShapeMismatch):
        infer1("expand_clone", tile(2, 4), tile(4, 4))


def test_expand_regions():
    x, row, col = f32(8, 16), f32(8, 1), f32(1, 16)
    assert region("row_expand_sub", Part(x, 8, 10), Part(row, 6, 1)) == (6, 10)
    assert region("col_expand_mul", Part(x, 4, 16), Part(col, 1, 9)) == (4, 9)
    assert region("col_expand", x, Part(col, 1, 9)) == (8, 9)
    assert region("row_expand", Part(x, 4, 3)) == (4, 16)
    assert region("row_expand", Part(x, 4, 16), row) == (4, 16)
    assert region("expands", Part(x, 4, 3), 1.0) == (4, 3)
    assert region("expand_clone", Part(row, 3, 1), x) == (3, 16)


# --- reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function"),
    [("max", np.max), ("min", np.min), ("argmax", np.argmax), ("argmin", np.argmin)],
)
@pytest.mark.parametrize(("prefix", "axis", "shape"), [("row", 1, (8, 1)), ("col", 0, (1, 16))])
def test_exact_reductions(name, function, prefix, axis, shape):
    x = f32(8, 16)
    result = run(f"{prefix}_{name}", x)
    np.testing.assert_array_equal(result.ravel(), function(x, axis=axis))
    assert result.shape == shape
    assert infer1(f"{prefix}_{name}", tile(8, 16)) == TileType(
        shape, INT32 if name.startswith("arg") else FP32
    )


@pytest.mark.parametrize(("prefix", "axis"), [("row", 1), ("col", 0)])
def test_sums_and_products(prefix, axis):
    x = f32(8, 40)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(
        run(f"{prefix}_sum", x).ravel(), exact.sum(axis), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(run(f"{prefix}_prod", x).ravel(), exact.prod(axis), rtol=1e-5)
    whole = RNG.integers(-9, 9, (8, 40)).astype(np.int32)
    np.testing.assert_array_equal(run(f"{prefix}_sum", whole).ravel(), whole.sum(axis))


def test_bf16_sums_are_rounded_once():
    x = np.full((1, 256), 1.0, ml_dtypes.bfloat16)
    x[0, 0] = 0.25
    expected = np.float32(255.25).astype(ml_dtypes.bfloat16)
    assert run("row_sum", x)[0, 0] == expected


def test_reduction_errors():
    with pytest.raises(RankMismatch):
        infer1("row_sum", tile(16))
    with pytest.raises(DTypeNotAllowed):
        infer1("row_max", tile(8, 16, dtype=BOOL))
    with pytest.raises(BadArgument):
        infer1("row_max", tile(8, 16), 4)
    assert infer1("row_max", tile(8, 16), tmp_tile=tile(8, 16)).shape == (8, 1)


def test_reductions_see_only_the_valid_part():
    x = -np.abs(f32(8, 16)) - 1
    part = Part(x, 5, 7)
    np.testing.assert_array_equal(run("row_max", part)[:5, 0], x[:5, :7].max(1))
    np.testing.assert_array_equal(run("row_argmax", part)[:5, 0], x[:5, :7].argmax(1))
    np.testing.assert_array_equal(run("col_max", part)[0, :7], x[:5, :7].max(0))
    assert region("row_max", part) == (5, 1)
    assert region("col_max", part) == (1, 7)
    assert not run("row_max", part)[5:].any()


def test_an_empty_row_has_no_maximum():
    with pytest.raises(RegionFault):
        run("row_max", Part(f32(8, 16), 8, 0))
    assert region("row_sum", Part(f32(8, 16), 0, 16)) == (0, 1)
    assert region("col_argmin", Part(f32(8, 16), 8, 0)) == (1, 0)


def test_along_a_chosen_axis():
    x = f32(8, 16)
    np.testing.assert_array_equal(run("tile.max", x, 1, True), x.max(1, keepdims=True))
    np.testing.assert_array_equal(run("tile.min", x, axis=0), x.min(0))
    np.testing.assert_array_equal(run("tile.sum", x, -2, True), run("col_sum", x))
    assert region("tile.max", Part(x, 5, 7), 1) == (5,)
    assert region("tile.max", Part(x, 5, 7), 0, True) == (1, 7)
    with pytest.raises(BadAxis):
        infer1("tile.max", tile(8, 16), 2)
    with pytest.raises(NotConstant):
        infer1("tile.max", tile(8, 16), number())


@pytest.mark.parametrize(("name", "meant"), [("max", "maximum"), ("min", "minimum")])
@pytest.mark.parametrize("second", [0.0, tile(8, 16)], ids=["number", "tile"])
def test_of_two_values_is_pointed_out(name: str, meant: str, second: object):
    with pytest.raises(BadArgument) as caught:
        infer1(f"tile.{name}", tile(8, 16), second)
    assert any(f"pl.{meant}(x, y)" in h for h in caught.value.diagnostic.helps)
