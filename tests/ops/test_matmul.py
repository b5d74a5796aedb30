"""Matrix products: types, values, transposes, accumulators, valid regions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.ops.calls import Part, infer1, lines, number, region, run, tile

from tilelet.diag.catalogue.ops import (
    AccumulatorMismatch,
    BadArgument,
    BadChoice,
    DTypeMismatch,
    DTypeNotAllowed,
    InnerDimMismatch,
    RankMismatch,
    ShapeMismatch,
    WrongMemorySpace,
)
from tilelet.diag.catalogue.unsupported import UnsupportedKeyword
from tilelet.dtypes import BF16, BOOL, FP8E4M3FN, FP16, FP32, INT8, INT32
from tilelet.ir.faults import RegionFault
from tilelet.ir.types import Mem, TileType

RNG = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bf16(*shape: int) -> np.ndarray:
    return f32(*shape).astype(ml_dtypes.bfloat16)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


# --- types ---------------------------------------------------------------------------------------


def test_result_types():
    a, b = tile(16, 128, dtype=BF16), tile(128, 64, dtype=BF16)
    assert infer1("matmul", a, b) == TileType((16, 64), BF16)
    assert infer1("matmul", a, b, out_dtype=FP32) == TileType((16, 64), FP32)
    assert infer1("matmul", tile(128, 16), tile(64, 128), None, True, True).shape == (16, 64)
    assert infer1("matmul", tile(16, 32, dtype=INT8), tile(32, 8, dtype=INT8)).dtype is INT32


def test_placed_operands_give_an_accumulator():
    left, right = tile(16, 32, dtype=BF16, space=Mem.Left), tile(32, 8, dtype=BF16, space=Mem.Right)
    assert infer1("matmul", left, right) == TileType((16, 8), FP32, Mem.Acc)
    acc = tile(16, 8, space=Mem.Acc)
    assert infer1("matmul_acc", acc, left, right) == TileType((16, 8), FP32, Mem.Acc)
    with pytest.raises(WrongMemorySpace):
        infer1("matmul", right, left)
    with pytest.raises(WrongMemorySpace):
        infer1("matmul", tile(16, 16, space=Mem.Acc), tile(16, 16, space=Mem.Right))


def test_inner_dimensions():
    with pytest.raises(InnerDimMismatch) as caught:
        infer1("matmul", tile(16, 128), tile(64, 128))
    assert lines(caught.value) == [10, 11]
    assert "b_trans=True" in caught.value.diagnostic.helps[0]
    with pytest.raises(InnerDimMismatch):
        infer1("matmul", tile(16, 128), tile(128, 64), b_trans=True)


def test_operand_types():
    with pytest.raises(DTypeMismatch) as caught:
        infer1("matmul", tile(16, 16), tile(16, 16, dtype=BF16))
    assert lines(caught.value) == [10, 11]
    for dtype in (INT32, FP8E4M3FN, BOOL):
        with pytest.raises(DTypeNotAllowed):
            infer1("matmul", tile(16, 16, dtype=dtype), tile(16, 16, dtype=dtype))
    with pytest.raises(RankMismatch):
        infer1("matmul", tile(16), tile(16, 16))
    with pytest.raises(BadChoice):
        infer1("matmul", tile(16, 16), tile(16, 16), out_dtype=INT32)
    with pytest.raises(BadChoice):
        infer1("matmul", tile(16, 16, dtype=INT8), tile(16, 16, dtype=INT8), out_dtype=FP32)
    with pytest.raises(UnsupportedKeyword):
        infer1("matmul", tile(16, 16), tile(16, 16), c_matrix_nz=True)


@pytest.mark.parametrize(
    "acc", [tile(16, 64, dtype=BF16), tile(16, 32), tile(16, 64, dtype=INT32), tile(1, 16, 64)]
)
def test_accumulator_must_fit(acc):
    a, b = tile(16, 128, dtype=BF16), tile(128, 64, dtype=BF16)
    with pytest.raises(AccumulatorMismatch):
        infer1("matmul_acc", acc, a, b)


def test_init_cond_is_a_bool():
    a, b, acc = tile(16, 128), tile(128, 64), tile(16, 64)
    for good in (True, number(BOOL), None):
        assert infer1("matmul_acc", acc, a, b, init_cond=good) == TileType((16, 64), FP32)
    for wrong in (number(), 1, tile(16, 64)):
        with pytest.raises(BadArgument):
            infer1("matmul_acc", acc, a, b, init_cond=wrong)


def test_batches():
    assert infer1("matmul", tile(4, 1, 16, 32), tile(3, 32, 8)).shape == (4, 3, 16, 8)
    assert infer1("batch_matmul", tile(4, 16, 32), tile(4, 32, 8)).shape == (4, 16, 8)
    with pytest.raises(ShapeMismatch):
        infer1("batch_matmul", tile(4, 16, 32), tile(3, 32, 8))


def test_bias_and_gemv_types():
    assert infer1("matmul_bias", tile(16, 32, dtype=BF16), tile(32, 8, dtype=BF16), tile(1, 8)) == (
        TileType((16, 8), FP32)
    )
    with pytest.raises(ShapeMismatch):
        infer1("matmul_bias", tile(16, 32), tile(32, 8), tile(8, 1))
    with pytest.raises(DTypeMismatch):
        infer1("matmul_bias", tile(16, 32), tile(32, 8), tile(1, 8, dtype=BF16))
    assert infer1("gemv", tile(1, 32), tile(32, 8)).shape == (1, 8)
    with pytest.raises(ShapeMismatch):
        infer1("gemv", tile(2, 32), tile(32, 8))


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("a_trans", [False, True])
@pytest.mark.parametrize("b_trans", [False, True])
def test_values_and_transposes(a_trans, b_trans):
    a, b = bf16(16, 32), bf16(32, 8)
    lhs, rhs = (a.T.copy() if a_trans else a), (b.T.copy() if b_trans else b)
    result = run("matmul", lhs, rhs, FP32, a_trans, b_trans)
    np.testing.assert_allclose(result, exact(a, b), rtol=1e-5, atol=1e-5)


def test_declared_dtype_is_rounded_to_nearest_even():
    a, b = bf16(16, 32), bf16(32, 8)
    full = run("matmul", a, b, FP32)
    np.testing.assert_array_equal(run("matmul", a, b), full.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(run("matmul", a, b, FP16), full.astype(np.float16))


def test_integers_are_exact():
    a = RNG.integers(-128, 128, (16, 512)).astype(np.int8)
    b = RNG.integers(-128, 128, (512, 8)).astype(np.int8)
    np.testing.assert_array_equal(run("matmul", a, b), a.astype(np.int64) @ b.astype(np.int64))


def test_splitting_k_changes_no_bit():
    a, b = f32(16, 64), f32(64, 8)
    acc = run("matmul", a[:, :24].copy(), b[:24].copy())
    acc = run("matmul_acc", acc, a[:, 24:].copy(), b[24:].copy())
    assert acc.tobytes() == run("matmul", a, b).tobytes()


def test_init_cond_ignores_the_accumulator():
    a, b = f32(16, 32), f32(32, 8)
    garbage = np.full((16, 8), np.nan, np.float32)
    np.testing.assert_array_equal(
        run("matmul_acc", garbage, a, b, init_cond=True), run("matmul", a, b)
    )
    assert np.isnan(run("matmul_acc", garbage, a, b, init_cond=False)).all()
    assert np.isnan(run("matmul_acc", garbage, a, b)).all()


def test_bias_gemv_batch():
    a, b, bias = f32(16, 32), f32(32, 8), f32(1, 8)
    start = np.repeat(bias, 16, 0)
    np.testing.assert_array_equal(run("matmul_bias", a, b, bias), run("matmul_acc", start, a, b))
    row = a[:1].copy()
    np.testing.assert_array_equal(run("gemv", row, b), run("matmul", row, b))
    np.testing.assert_array_equal(run("gemv_acc", bias, row, b), run("gemv_bias", row, b, bias))
    batch_a, batch_b = f32(3, 4, 8), f32(3, 8, 5)
    np.testing.assert_allclose(
        run("batch_matmul", batch_a, batch_b), exact(batch_a, batch_b), rtol=1e-5, atol=1e-5
    )


# --- valid regions -------------------------------------------------------------------------------


def test_region_is_rows_by_columns():
    a, b = f32(16, 32), f32(32, 8)
    assert region("matmul", Part(a, 5, 32), Part(b, 32, 6)) == (5, 6)
    lhs, rhs = a.T.copy(), b.T.copy()
    assert region("matmul", Part(lhs, 32, 5), Part(rhs, 6, 32), None, True, True) == (5, 6)
    assert region("matmul", f32(2, 1, 4, 8), Part(f32(3, 8, 5), 3, 8, 4)) == (2, 3, 4, 4)
    with pytest.raises(RegionFault):
        region("matmul", f32(2, 1, 4, 8), Part(f32(3, 8, 5), 2, 8, 4))


def test_k_runs_over_what_both_have():
    a, b = f32(16, 32), f32(32, 8)
    for part_a, part_b, k in ((20, 32, 20), (32, 12, 12), (20, 12, 12)):
        result = run("matmul", Part(a, 16, part_a), Part(b, part_b, 8))
        np.testing.assert_array_equal(result, run("matmul", a[:, :k].copy(), b[:k].copy()))


def test_accumulator_region():
    a, b, acc = f32(16, 32), f32(32, 8), f32(16, 8)
    expected = run("matmul_acc", acc, a, b)
    part = run("matmul_acc", Part(acc, 16, 4), Part(a, 5, 32), b)
    np.testing.assert_array_equal(part[:5, :4], expected[:5, :4])
    assert region("matmul_acc", Part(acc, 16, 4), Part(a, 5, 32), b) == (5, 4)
    assert region("matmul_acc", Part(acc, 2, 2), Part(a, 5, 32), b, init_cond=True) == (5, 8)
