"""Each comparator passes and fails as its definition says."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tilelet.runtime import (
    bf16_allclose_or_ulp,
    error_distribution,
    input_prefix_ratio_allclose,
    mapped_pool_ratio_allclose,
    mapped_pool_ratio_reldiff,
    ratio_allclose,
    ratio_reldiff,
    topk_pair_compare,
    topk_set_compare,
)
from tilelet.runtime.validation.comparators import Comparator, allclose_where_defined

values = hnp.arrays(np.float64, 40, elements=st.floats(-10, 10))


@given(values, values, st.sampled_from([0.0, 0.005, 0.1, 0.5]))
def test_ratio_allclose_is_its_formula(a: np.ndarray, e: np.ndarray, ratio: float) -> None:
    bad = (np.abs(a - e) > 0.5 + 0.1 * np.abs(e)).sum()
    ok, message = ratio_allclose(atol=0.5, rtol=0.1, max_error_ratio=ratio)(a, e)
    assert ok == (bad <= round(ratio * a.size))
    assert f"{bad}/40 elements not close" in message


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_ratio_allclose_fails_on_anything_not_finite(special: float, side: int) -> None:
    pair = [np.ones(100), np.ones(100)]
    pair[side][3] = special
    ok, message = ratio_allclose(atol=1.0, rtol=1.0, max_error_ratio=1.0)(*pair)
    assert not ok
    assert "not finite" in message


def test_ratio_allclose_uses_the_runs_tolerance_unless_it_has_its_own() -> None:
    a, e = np.array([1.0]), np.array([1.1])
    assert ratio_allclose()(a, e, rtol=1.0, atol=0.0)[0]
    assert not ratio_allclose(rtol=1e-3, atol=0.0)(a, e, rtol=1.0, atol=0.0)[0]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_ratio_allclose_where_the_golden_is_defined(dtype: np.dtype) -> None:
    expected = np.zeros((10, 20), dtype)
    expected[4:] = np.nan
    actual = np.full_like(expected, np.nan)
    actual[:4] = 0
    assert not ratio_allclose()(actual, expected)[0]
    ok, message = ratio_allclose(ignore_nan=True)(actual, expected)
    assert ok
    assert "0/80 elements not close" in message
    # Ignored elements do not count among those that may be wrong.
    actual[0, :4] = 1
    assert not ratio_allclose(max_error_ratio=0.04, ignore_nan=True)(actual, expected)[0]
    assert ratio_allclose(max_error_ratio=0.05, ignore_nan=True)(actual, expected)[0]
    actual[0, :4] = np.nan
    assert not ratio_allclose(max_error_ratio=0.05, ignore_nan=True)(actual, expected)[0]
    ok, message = ratio_allclose(ignore_nan=True)(actual[4:], expected[4:])
    assert not ok
    assert "NaN everywhere" in message


def test_ratio_allclose_valid_rows_and_zero_tail() -> None:
    expected = np.ones((4, 3))
    actual = expected.copy()
    actual[2:] = 7
    assert ratio_allclose(1e-3, 1e-3, 0.0, valid_rows=2)(actual, expected)[0]
    assert not ratio_allclose(1e-3, 1e-3, 0.0, valid_rows=2, zero_tail=True)(actual, expected)[0]
    actual[2:] = 0
    assert ratio_allclose(1e-3, 1e-3, 0.0, valid_rows=2, zero_tail=True)(actual, expected)[0]
    assert not ratio_allclose(1e-3, 1e-3, 0.0)(actual, expected)[0]


@given(values, values)
def test_ratio_reldiff_is_its_formula(a: np.ndarray, e: np.ndarray) -> None:
    threshold, share, cap = 0.01, 0.3, 0.9
    bad, largest = 0, 0.0
    for x, y in zip(a.tolist(), e.tolist()):
        d = abs(x - y)
        r = d if d < threshold else d / (max(abs(x), abs(y), 2**-14 / threshold) + 1e-9)
        bad += r > threshold
        largest = max(largest, r)
    ok, _ = ratio_reldiff(threshold, share, cap)(a, e)
    assert ok == (bad <= round(share * a.size) and largest < cap)


def test_ratio_reldiff_never_passes_nan() -> None:
    a = np.array([1.0, np.nan])
    assert not ratio_reldiff(pct_thd=1.0)(a, a)[0]


def topk(indices: list[list[int]], values: list[list[float]]) -> dict[str, np.ndarray]:
    return {"idx": np.array(indices, np.int32), "val": np.array(values, np.float32)}


def judge_topk(actual: dict[str, np.ndarray], golden: dict[str, np.ndarray]) -> tuple[bool, str]:
    return topk_pair_compare("val")(
        actual["idx"], golden["idx"], actual_outputs=actual, expected_outputs=golden, inputs={}
    )


def test_topk_lets_equal_values_swap() -> None:
    golden = topk([[4, 1, 7]], [[9.0, 5.0, 5.0]])
    assert judge_topk(topk([[4, 7, 1]], [[9.0, 5.0, 5.0]]), golden)[0]


def test_topk_wants_the_values_in_order_and_close() -> None:
    golden = topk([[4, 1, 7]], [[9.0, 5.0, 5.0]])
    assert not judge_topk(topk([[4, 7, 1]], [[5.0, 9.0, 5.0]]), golden)[0]
    ordered = topk([[4, 1, 7]], [[9.0, 5.0, 4.0]])
    ok, message = judge_topk(ordered, golden)
    assert not ok
    assert "values of 'val' not close" in message


def test_topk_takes_values_that_only_the_script_has() -> None:
    golden = topk([[4, 1, 7]], [[9.0, 5.0, 5.0]])
    del golden["val"]
    assert judge_topk(topk([[4, 7, 1]], [[9.0, 5.0, 5.0]]), golden)[0]
    assert not judge_topk(topk([[7, 4, 1]], [[5.0, 9.0, 5.0]]), golden)[0]
    ok, message = judge_topk(golden, golden)
    assert not ok
    assert "no output 'val'" in message


def test_topk_never_passes_an_index_twice() -> None:
    golden = topk([[4, 1, 7]], [[9.0, 5.0, 5.0]])
    ok, message = judge_topk(topk([[4, 7, 7]], [[9.0, 5.0, 5.0]]), golden)
    assert not ok
    assert "occurs twice" in message


def judge_pool(actual: np.ndarray, golden: np.ndarray, slots: list[int]) -> tuple[bool, str]:
    compare = mapped_pool_ratio_allclose(
        "slots", mapping_shape=(len(slots),), block_size=4, atol=1e-3, rtol=1e-3
    )
    return compare(actual, golden, inputs={"slots": np.array(slots)}, rtol=1e-5, atol=1e-5)


def test_mapped_pool_judges_named_rows_and_protects_the_rest() -> None:
    golden = np.zeros((2, 4, 3), np.float32)
    actual = golden.copy()
    actual[1, 2] = 1e-4  # slot 6
    assert judge_pool(actual, golden, [6, -1])[0]
    assert not judge_pool(actual, golden, [5, -1])[0]
    actual[1, 2] = 1.0
    assert not judge_pool(actual, golden, [6, -1])[0]
    ok, message = judge_pool(actual, golden, [99, -1])
    assert not ok
    assert "names row 99 of 8" in message


def test_mapped_pools_by_relative_difference_and_of_several_ranks() -> None:
    golden = np.ones((2, 2, 4, 3), np.float32)
    actual = golden.copy()
    actual[1, 1, 2] = 1.005  # slot 6 of rank 1
    slots = np.array([[0, -1], [6, -1]])
    for shape in ((2, 2), (2,)):  # with the ranks, or of one
        compare = mapped_pool_ratio_reldiff(
            "slots", mapping_shape=shape, block_size=4, leading_rank_axis=True, diff_thd=0.01
        )
        assert compare(actual, golden, inputs={"slots": slots})[0]
        assert not compare(actual, golden, inputs={"slots": slots[::-1]})[0]
    strict = mapped_pool_ratio_reldiff(
        "slots", mapping_shape=(2, 2), block_size=4, leading_rank_axis=True, diff_thd=0.001
    )
    ok, message = strict(actual, golden, inputs={"slots": slots})
    assert not ok
    assert "rows of pool named by 'slots'" in message


def test_error_distribution_reports_and_judges_only_when_told() -> None:
    a, e = np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.5, 3.0])
    ok, message = error_distribution()(a, e, rtol=0.0, atol=0.0)
    assert ok
    assert "max 0.5" in message
    assert "1 not finite" in message
    assert not error_distribution(always_pass=False)(a, e, rtol=0.0, atol=0.0)[0]
    assert error_distribution(always_pass=False)(a[:2], e[:2], rtol=0.0, atol=0.0)[0]
    assert error_distribution(always_pass=False)(a[:2], a[1:], rtol=0.0, atol=0.0)[0]
    _, message = error_distribution((0.1, 0.7), (0.25, 1.0))(a, e)
    assert "25% 0.125, max 0.5, 2 above 0.1, 1 above 0.7" in message


def test_comparators_accept_tensors() -> None:
    a = torch.ones(4, dtype=torch.bfloat16)
    assert ratio_allclose(1e-3, 1e-3)(a, a.clone())[0]
    assert ratio_reldiff()(a, a.clone())[0]


def test_steps_of_bf16_are_counted_across_zero() -> None:
    tiny = np.array([1, -1], np.int16).view(ml_dtypes.bfloat16)  # the smallest numbers, bits 1
    golden = np.array([0.0, -0.0], ml_dtypes.bfloat16)
    judge = {"rtol": 0.0, "atol": 0.0}
    signed = np.array([0x0001, -0x7FFF], np.int16).view(ml_dtypes.bfloat16)
    assert bf16_allclose_or_ulp()(signed, golden, **judge)[0]
    assert not bf16_allclose_or_ulp(0)(signed, golden, **judge)[0]
    assert not bf16_allclose_or_ulp(5)(tiny, golden, **judge)[0]  # -1 as bits is a NaN
    one = np.array([1.0], ml_dtypes.bfloat16)
    two_steps = (one.view(np.int16) + 2).astype(np.int16).view(ml_dtypes.bfloat16)
    assert bf16_allclose_or_ulp(2)(two_steps, one, **judge)[0]
    assert not bf16_allclose_or_ulp(1)(two_steps, one, **judge)[0]
    assert bf16_allclose_or_ulp(1)(two_steps, one, rtol=0.1, atol=0.0)[0]
    assert "BF16" in bf16_allclose_or_ulp()(np.ones(2), np.ones(2))[1]


def test_topk_sets_come_in_any_order() -> None:
    golden = np.array([[3, 1, 2], [7, 8, 9]])
    assert topk_set_compare()(golden[:, ::-1], golden)[0]
    ok, message = topk_set_compare()(np.array([[3, 1, 2], [7, 8, 8]]), golden)
    assert not ok
    assert "1 of 2 rows" in message


def test_a_prefix_as_long_as_an_input_says() -> None:
    golden = np.zeros((4, 8))
    actual = golden.copy()
    actual[0] = 1e-4
    context = {"inputs": {"count": torch.tensor(2)}, "rtol": 0.0, "atol": 1e-3}
    judge = input_prefix_ratio_allclose("count", max_error_ratio=0.0)
    assert judge(actual, golden, **context)[0]
    actual[3, 5] = 1e-9
    assert not judge(actual, golden, **context)[0]
    loose = input_prefix_ratio_allclose("count", max_error_ratio=0.0, exact_tail=False)
    assert loose(actual, golden, **context)[0]
    actual[1, 0] = 1.0
    assert not loose(actual, golden, **context)[0]


def test_where_the_golden_is_nan_anything_may_stand() -> None:
    actual = np.array([1.0, np.nan, 7.0, np.inf])
    assert allclose_where_defined()(actual, np.array([1.0, np.nan, np.nan, np.inf]))[0]
    assert not allclose_where_defined()(actual, np.array([1.0, 2.0, np.nan, np.inf]))[0]
    assert not allclose_where_defined()(actual, np.array([1.5, np.nan, np.nan, np.inf]))[0]
    assert allclose_where_defined()(actual, actual * 1.001, rtol=0.01, atol=0.0)[0]
    whole = np.array([1, 2])
    assert not allclose_where_defined()(whole, np.array([1, 3]))[0]


@pytest.mark.parametrize(
    ("compare", "multiple"), [(ratio_reldiff(), 3), (error_distribution(), 4)], ids=["ratio", "all"]
)
def test_wide_outputs_are_compared_in_little_memory(compare: Comparator, multiple: int) -> None:
    expected = np.ones((4, 1 << 21), np.float32)
    actual = expected.copy()
    actual[0, 5] = actual[3, -1] = 2
    tracemalloc.start()
    try:
        ok, message = compare(actual, expected, rtol=1e-3, atol=1e-3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ok
    assert "2/8388608" in message or "max 1" in message
    assert peak < multiple * expected.nbytes


@pytest.mark.parametrize("place", [0, (1 << 20) + 3])
def test_ratio_reldiff_fails_on_nan_in_any_block(place: int) -> None:
    expected = np.ones(1 << 21, np.float32)
    actual = expected.copy()
    actual[place] = np.nan
    assert not ratio_reldiff(pct_thd=0.5)(actual, expected)[0]
