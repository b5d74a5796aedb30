from __future__ import annotations

import math
from functools import cmp_to_key

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.numerics.exact import Array, same_bits

from tilelet.dtypes import BF16, FP16, FP32, INT32, UINT32, DType
from tilelet.numerics import (
    gather_mask,
    mrgsort,
    mrgsort_lists,
    record_slots,
    scatter_mask,
    sort32,
)

Record = tuple[float, int]


def unpack(records: Array) -> list[Record]:
    """Records of a single row, read byte by byte as the layout says."""
    data = records.tobytes()
    kind = np.dtype("<f4") if records.dtype == np.float32 else np.dtype("<f2")
    return [
        (
            float(np.frombuffer(data, kind, 1, at)[0]),
            int.from_bytes(data[at + 4 : at + 8], "little"),
        )
        for at in range(0, len(data), 8)
    ]


def before(p: Record, q: Record) -> int:
    (v, i), (w, j) = p, q
    if math.isnan(v) != math.isnan(w):
        return -1 if math.isnan(v) else 1
    if v != w and not math.isnan(v):
        return -1 if v > w else 1
    return (i > j) - (i < j)


def by_hand(records: list[Record]) -> list[Record]:
    return sorted(records, key=cmp_to_key(before))


def assert_same(actual: list[Record], expected: list[Record]) -> None:
    assert [i for _, i in actual] == [i for _, i in expected]
    np.testing.assert_array_equal([v for v, _ in actual], [v for v, _ in expected])


VALUES = st.one_of(
    st.floats(width=16), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])
)


@pytest.mark.parametrize("dtype", [FP32, FP16], ids=str)
@given(data=st.data())
def test_sort32_sorts_each_run(dtype: DType, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES, min_size=1, max_size=80))
    indices = data.draw(
        st.lists(st.integers(0, 2**32 - 1), min_size=len(values), max_size=len(values))
    )
    x = np.array([values]).astype(dtype.numpy)
    result = sort32(x, np.array([indices], np.uint32))
    assert result.dtype == dtype.numpy
    assert result.shape == (1, len(values) * record_slots(dtype))
    for start in range(0, len(values), 32):
        run = list(zip(values[start : start + 32], indices[start : start + 32]))
        slots = record_slots(dtype)
        actual = unpack(result[0, start * slots : (start + 32) * slots])
        assert_same(actual, by_hand(run))


def test_order_of_ties_zeros_and_nan() -> None:
    x = np.float32([[1, np.nan, -0.0, 0.0, np.inf, 1, np.nan, -np.inf]])
    index = np.int32([[7, 6, 5, 4, 3, 2, 1, 0]])
    assert gather_mask(sort32(x, index), "P1010", INT32).tolist() == [[1, 6, 3, 2, 7, 4, 5, 0]]


def test_records_equal_in_value_and_index_keep_their_order() -> None:
    rng = np.random.default_rng(2)
    zeros = rng.choice(np.float32([0.0, -0.0]), 128)
    index = rng.integers(0, 2, 128).astype(np.uint32)
    merged = mrgsort(sort32(zeros[None], index[None]), 64)
    expected = np.concatenate([zeros[index == 0], zeros[index == 1]])[None]
    same_bits(gather_mask(merged, "P0101"), expected)


@pytest.mark.parametrize("dtype", [FP32, FP16], ids=str)
def test_a_full_sort_keeps_values_and_indices_bit_for_bit(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    count, slots = 512, record_slots(dtype)
    x = rng.standard_normal((3, count)).astype(dtype.numpy)
    index = np.arange(70_000, 70_000 + count, dtype=np.uint32)[None].repeat(3, axis=0)
    records = sort32(x, index)
    for run in (32, 128):
        records = mrgsort(records, run * slots)
    for row in range(3):
        expected = by_hand(list(zip(x[row].tolist(), index[row].tolist())))
        assert_same(unpack(records[row]), expected)
    picked_values = gather_mask(records, "P0101" if dtype is FP32 else "P0001")
    picked_indices = gather_mask(records, "P1010", UINT32)
    same_bits(picked_values, np.take_along_axis(x, picked_indices.astype(int) - 70_000, axis=1))


def test_mrgsort_leaves_groups_apart() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 256)).astype(np.float32)
    records = mrgsort(sort32(x, np.arange(256, dtype=np.uint32)[None]), 64)
    for start in (0, 128):
        group = x[0, start : start + 128].tolist()
        assert_same(
            unpack(records[0, 2 * start : 2 * start + 256]),
            by_hand(list(zip(group, range(start, start + 128)))),
        )


def sorted_list(values: list[float], first_index: int) -> Array:
    x = np.float32([values])
    index = np.arange(first_index, first_index + len(values), dtype=np.uint32)[None]
    return sort32(x, index)


def test_merging_lists() -> None:
    lists = [
        sorted_list([9, 5, 1], 0),
        sorted_list([8, 5], 10),
        sorted_list([7, 6, 5, 0], 20),
        sorted_list([5], 30),
    ]
    every = [record for each in lists for record in unpack(each)]
    assert_same(unpack(mrgsort_lists(lists)), by_hand(every))
    assert_same(unpack(mrgsort_lists(lists[:2])), by_hand(every[:5]))
    # 9 8 7 6 5(0) 5(10): the second list is used up by its 5, before the other fives.
    stopped = unpack(mrgsort_lists(lists, exhausted=True))
    assert stopped == [*by_hand(every)[:6], *[(0.0, 0)] * 4]


def test_exhaustion_is_decided_row_by_row() -> None:
    a = np.concatenate([sorted_list([4, 3], 0), sorted_list([9, 1], 0)])
    b = np.concatenate([sorted_list([2, 1], 10), sorted_list([8, 7], 10)])
    merged = mrgsort_lists([a, b], exhausted=True)
    assert gather_mask(merged, "P0101").tolist() == [[4, 3, 0, 0], [9, 8, 7, 0]]


def test_mask_patterns_pick_columns() -> None:
    x = np.arange(16, dtype=np.int32).reshape(2, 8)
    assert gather_mask(x, "P0101").tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert gather_mask(x, "P1010").tolist() == [[1, 3, 5, 7], [9, 11, 13, 15]]
    for phase, pattern in enumerate(["P0001", "P0010", "P0100", "P1000"]):
        assert gather_mask(x, pattern).tolist() == [[phase, phase + 4], [phase + 8, phase + 12]]
    same_bits(gather_mask(x, "P1111"), x)
    bits = gather_mask(np.float32([[1.0, 2.0]]), "P1010", INT32)
    assert bits.tolist() == [[0x40000000]]
    assert not np.shares_memory(gather_mask(x, "P1111"), x)


def test_scatter_is_the_inverse_of_gather() -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    for pattern in ("P0101", "P1010", "P0001", "P0010", "P0100", "P1000", "P1111"):
        same_bits(scatter_mask(x, gather_mask(x, pattern), pattern), x)
    ones = np.ones((2, 2), np.float32)
    assert scatter_mask(np.zeros_like(x), ones, "P0100")[0].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]
    assert x[0, 2] == 2


def test_wrong_requests_are_refused() -> None:
    x, index = np.zeros((1, 32), np.float32), np.zeros((1, 32), np.uint32)
    with pytest.raises(TypeError, match="BF16"):
        sort32(x.astype(BF16.numpy), index)
    with pytest.raises(TypeError, match="indices"):
        sort32(x, index.astype(np.int64))
    with pytest.raises(ValueError, match="one index per value"):
        sort32(x, index[:, :31])
    with pytest.raises(ValueError, match="groups of 4"):
        mrgsort(x, 16)
    with pytest.raises(ValueError, match="two to four"):
        mrgsort_lists([x])
    with pytest.raises(ValueError, match="one element type"):
        mrgsort_lists([x, x.astype(np.float16)])
    with pytest.raises(ValueError, match="P0011"):
        gather_mask(x, "P0011")
    with pytest.raises(ValueError, match="whole"):
        gather_mask(np.zeros((1, 3), np.float16), "P1111", INT32)
    with pytest.raises(ValueError, match="P0101 selects"):
        scatter_mask(x, x, "P0101")
