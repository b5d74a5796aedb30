"""Overlap of windows, compared with sets of bytes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelet.analysis.overlap import Bytes, meet
from tilelet.device.schedule import native
from tilelet.device.schedule.arrays import LOOKS_UP, REGISTERS
from tilelet.device.schedule.graph import build_graph
from tilelet.device.schedule.library import library


def touched(x: Bytes) -> set[int]:
    places = itertools.product(*[[i * step for i in range(n)] for n, step in x.axes])
    return {x.start + sum(p) + i for p in places for i in range(x.run)}


@st.composite
def boxes(draw, item: int, widths: tuple[int, ...]) -> Bytes:
    """Return a box of a dense array with these extents, innermost axis first."""
    start, step, axes = 0, item, []
    for width in widths:
        first = draw(st.integers(0, width - 1))
        n = draw(st.integers(1, width - first))
        start += first * step
        axes += [(n, step)] * (n > 1)
        step *= width
    return Bytes(start, item, tuple(reversed(axes)))


@given(st.data())
@settings(max_examples=300)
def test_exact_for_boxes_of_one_array(data) -> None:
    widths = data.draw(st.sampled_from([(8,), (8, 6), (4, 4, 4), (3, 5, 2)]))
    a, b = data.draw(boxes(4, widths)), data.draw(boxes(4, widths))
    assert meet(a, b) == meet(b, a) == bool(touched(a) & touched(b))


@given(st.data())
@settings(max_examples=300)
def test_never_says_no_wrongly(data) -> None:
    """Includes boxes of differently shaped arrays and negative steps."""
    shapes = st.sampled_from([(8,), (7, 3), (4, 4, 4), (16, 2), (2, 2)])
    items = st.sampled_from([1, 2, 4])
    a = data.draw(boxes(data.draw(items), data.draw(shapes)))
    b = data.draw(boxes(data.draw(items), data.draw(shapes)))
    low, high = b.limits
    if data.draw(st.booleans()) and b.axes:
        b = Bytes(high - b.run, b.run, tuple((n, -step) for n, step in b.axes))
        assert b.limits == (low, high)
    assert meet(a, b) or not touched(a) & touched(b)


def test_bytes_of_neighbors_do_not_meet() -> None:
    assert not meet(Bytes(0, 4), Bytes(4, 4))
    assert meet(Bytes(0, 5), Bytes(4, 4))
    left, right = Bytes(0, 4, ((8, 8),)), Bytes(4, 4, ((8, 8),))
    assert not meet(left, right)
    assert meet(left, Bytes(0, 8, ((4, 8),)))


@st.composite
def rectangles(draw) -> tuple[int, int, int, int]:
    """Draw a window of a tensor: first byte, end, bytes per row, row pitch."""
    pitch, rows = draw(st.sampled_from([8, 12, 16, 24, 32])), draw(st.integers(1, 4))
    row = draw(st.integers(1, pitch))
    if row == pitch or rows == 1:
        row, pitch, rows = row * rows, row * rows, 1
    low = draw(st.integers(0, 100))
    return low, low + (rows - 1) * pitch + row, row, pitch


@given(st.lists(st.tuples(rectangles(), rectangles()), min_size=1, max_size=20))
@settings(max_examples=200)
def test_the_graph_in_c_uses_the_same_rule(pairs) -> None:
    """Each pair has a buffer of its own: one task writes the first window, another reads the
    second.
    """
    lib = library()
    if lib is None:
        pytest.skip("no C compiler")
    stream = stream_of(pairs, REGISTERS, LOOKS_UP)
    slow, fast = build_graph(stream), native.build_graph_native(lib, stream)
    np.testing.assert_array_equal(slow.ptr, fast.ptr)
    np.testing.assert_array_equal(slow.pred, fast.pred)
    for i, (a, b) in enumerate(pairs):
        share = touched(_rows(*a)) & touched(_rows(*b))
        assert not share or slow.producers(2 * i + 1) == [2 * i]


def stream_of(pairs, first: int, second: int):
    """Return tasks 2i and 2i + 1 with the windows of pair i in buffer i, and these flags."""
    n = 2 * len(pairs)
    sides = np.array([r for pair in pairs for r in pair], np.int64).T
    arrays = dict(zip(("low", "high", "row", "pitch"), sides))
    arrays["buffer"] = np.repeat(np.arange(len(pairs)), 2)
    sizes = np.full(len(pairs), 1000)
    return SimpleNamespace(
        count=n,
        arg_ptr=np.arange(n + 1),
        arg_region=np.arange(n),
        arg_flags=np.array([first, second] * len(pairs)),
        dep_ptr=np.zeros(n + 1, np.int64),
        deps=np.zeros(0, np.int64),
        regions=SimpleNamespace(arrays=lambda: arrays, sizes=sizes),
    )


def _rows(low: int, high: int, row: int, pitch: int) -> Bytes:
    return Bytes(low, row, (((high - low - row) // pitch + 1, pitch),))
