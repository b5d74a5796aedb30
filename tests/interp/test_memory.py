from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelet import dtypes
from tilelet.dtypes import BF16, BOOL, FP32, INT8, INT32
from tilelet.numerics.undefined import poison
from tilelet.tasks.regions import RegionTable
from tilelet.tasks.window import (
    Buffer,
    TileValue,
    Window,
    row_major,
    window_of_array,
)


def dense(shape, dtype=FP32, name="x") -> Window:
    nbytes = int(np.prod(shape)) * dtype.itemsize
    return Window(
        Buffer(name, nbytes, np.zeros(nbytes, np.uint8)), dtype, 0, shape, row_major(shape)
    )


def touched(window: Window) -> set[int]:
    """The bytes of the buffer that a window covers, by brute force."""
    cells = [window.offset]
    for n, s in zip(window.reach, window.strides):
        cells = [c + i * s for c in cells for i in range(n)]
    item = window.dtype.itemsize
    return {c * item + k for c in cells for k in range(item)}


def test_slice_is_a_view_that_writes_through() -> None:
    whole = dense((4, 6))
    part = whole.slice((1, 2), (2, 3))
    part.array[...] = 7
    expected = np.zeros((4, 6), np.float32)
    expected[1:3, 2:5] = 7
    np.testing.assert_array_equal(whole.array, expected)
    nested = part.slice((1, 1), (1, 2))
    assert nested.offset == 2 * 6 + 3
    assert nested.strides == (6, 1)


def test_array_is_made_once() -> None:
    window = dense((4, 6))
    assert window.array is window.array


@pytest.mark.parametrize(
    ("take", "shape", "possible"),
    [
        (((0, 0), (4, 6)), (24,), True),
        (((0, 0), (4, 6)), (2, 2, 3, 2), True),
        (((1, 0), (2, 6)), (12, 1), True),
        (((0, 2), (4, 3)), (12,), False),
        (((0, 2), (4, 3)), (2, 2, 3), True),
        (((0, 2), (4, 4)), (4, 2, 2), True),
        (((0, 2), (4, 4)), (8, 2), False),
        (((2, 3), (1, 3)), (3, 1), True),
    ],
)
def test_reshape_is_a_view_or_nothing(take, shape, possible) -> None:
    whole = dense((4, 6))
    whole.array[...] = np.arange(24).reshape(4, 6)
    part = whole.slice(*take)
    view = part.reshape(shape)
    assert (view is not None) == possible
    if view is not None:
        np.testing.assert_array_equal(view.array, part.array.reshape(shape))
        assert np.shares_memory(view.array, whole.array)


def test_reshape_refuses_another_number_of_elements() -> None:
    assert dense((4, 6)).reshape((5, 5)) is None


def test_reshape_of_a_transposed_window() -> None:
    turned = dense((4, 6)).transpose(0, 1)
    assert turned.reshape((24,)) is None
    again = turned.reshape((2, 3, 4))
    assert again is not None
    np.testing.assert_array_equal(again.array, turned.array.reshape(2, 3, 4))


def test_transpose() -> None:
    window = dense((2, 3, 4))
    window.array[...] = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(window.transpose(0, 2).array, window.array.swapaxes(0, 2))


def test_overhanging_window_shows_the_memory_there_is() -> None:
    whole = dense((4, 6))
    window = whole.slice((3, 4), (2, 4))
    window.extent = (1, 2)
    assert window.reach == window.array.shape == (1, 2)


def test_recorded_window_keeps_no_data() -> None:
    window = dense((4, 6)).slice((1, 0), (2, 6))
    table = RegionTable()
    record = table.window(table.number(window))
    assert record.buffer.data is None
    assert record.buffer.id == window.buffer.id
    assert (record.offset, record.shape) == (window.offset, window.shape)
    assert record.overlaps(window)
    assert table.window(table.number(window)).buffer is record.buffer


def test_equal_windows_have_one_number() -> None:
    whole, other = dense((4, 6)), dense((4, 6))
    table = RegionTable()
    assert [table.number(w) for w in (whole, other, whole)] == [0, 1, 0]
    rows = [whole.slice((r, 0), (1, 6)) for r in (0, 1, 1)]
    assert [table.number(w) for w in rows] == [2, 3, 3]
    # All of the buffer again, through another window and another tuple.
    assert table.number(whole.slice((0, 0), (2 + 2, len("123456")))) == 0


def test_windows_of_one_place_differ_by_what_loads_take() -> None:
    whole = dense((4, 6))
    table = RegionTable()
    cut = whole.slice((0, 0), (4, 6))
    cut.valid = (2, 6)
    assert table.number(whole) != table.number(cut)
    assert table.window(table.number(cut)).valid == (2, 6)


boxes = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 5), st.integers(1, 7))


def _box(whole: Window, spec: tuple[int, int, int, int]) -> Window:
    r, c, rows, cols = spec
    return whole.slice((r, c), (min(rows, 5 - r), min(cols, 7 - c)))


@given(boxes, boxes)
def test_overlap_of_boxes_is_exact(first, second) -> None:
    whole = dense((5, 7))
    a, b = _box(whole, first), _box(whole, second)
    assert a.overlaps(b) == b.overlaps(a) == bool(touched(a) & touched(b))


@given(boxes, st.integers(0, 3), st.integers(1, 4))
def test_overlap_with_reshaped_rows_is_exact(spec, row, rows) -> None:
    whole = dense((5, 7))
    a = _box(whole, spec)
    band = whole.slice((row, 0), (min(rows, 5 - row), 7))
    line = band.reshape((band.shape[0] * 7,))
    assert line is not None
    assert a.overlaps(line) == bool(touched(a) & touched(line))


@given(boxes, st.integers(0, 11), st.integers(1, 3))
def test_overlap_never_misses(spec, start, stride) -> None:
    whole = dense((5, 7))
    a = _box(whole, spec)
    comb = Window(whole.buffer, FP32, start, (4, 2), (stride, 7))
    if touched(a) & touched(comb):
        assert a.overlaps(comb)


def test_overlap_of_another_element_type() -> None:
    words = dense((4, 8), FP32)
    bytes_ = Window(words.buffer, INT8, 0, (4, 32), (32, 1))
    left = bytes_.slice((0, 0), (4, 4))
    assert left.overlaps(words.slice((0, 0), (4, 1)))
    assert not left.overlaps(words.slice((0, 1), (4, 7)))


def test_no_overlap_between_buffers() -> None:
    assert not dense((2, 2)).overlaps(dense((2, 2)))


@pytest.mark.parametrize("view", ["plain", "columns", "reversed", "transposed", "broadcast_free"])
def test_any_strided_array_is_used_in_place(view: str) -> None:
    base = np.arange(48, dtype=np.float32).reshape(6, 8)
    array = {
        "plain": base,
        "columns": base[1:5:2, 1:7:3],
        "reversed": base[::-1, ::-2],
        "transposed": base.T,
        "broadcast_free": base[2:3],
    }[view]
    window = window_of_array("x", array, FP32)
    np.testing.assert_array_equal(window.array, array)
    window.array[0, 0] = -1
    assert array[0, 0] == -1
    sub = window.slice((0, 1), (1, 1))
    assert sub.array[0, 0] == array[0, 1]


def test_read_only_array_stays_read_only() -> None:
    array = np.zeros((2, 4), np.float32)
    array.flags.writeable = False
    assert not window_of_array("x", array, FP32).buffer.data.flags.writeable  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "task"], ids=str)
def test_poison(dtype) -> None:
    array = np.zeros((3,), dtype.numpy)
    array.fill(poison(dtype)[()])
    if dtype.is_float:
        assert np.isnan(array.astype(np.float32)).all()
    elif dtype is BOOL:
        assert array.all()
    else:
        assert set(array.tobytes()) == {0xCD}


def test_poison_of_int32_is_the_documented_number() -> None:
    array = np.zeros(1, np.int32)
    array.fill(poison(INT32)[()])
    assert array[0] == -842150451


def test_tile_value_cut() -> None:
    data = np.arange(12).reshape(3, 4)
    tile = TileValue(data, (2, 3))
    assert not tile.full
    np.testing.assert_array_equal(tile.cut, data[:2, :3])
    assert TileValue(data).full


def test_bf16_window() -> None:
    window = dense((2, 4), BF16)
    window.array[...] = 1.5
    assert window.array.dtype == BF16.numpy
    assert window.buffer.nbytes == 16
