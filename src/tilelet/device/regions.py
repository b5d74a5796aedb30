"""Distinct windows of global memory, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelet.interp.memory import Buffer, Window, row_major

Ints = NDArray[np.int64]


class Layout(NamedTuple):
    """How a window lies in memory, in bytes from its first element on.

    Row `i` starts at `i * pitch` and has `row` bytes. `across` is from row to row even if there are
    no gaps (0: there is one row); `strided` says whether there are any.
    """

    low: int
    high: int
    row: int
    pitch: int
    across: int
    strided: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int


@dataclass(frozen=True, eq=False)
class Regions:
    """Distinct windows by number: their buffer (an index into `buffers`), first byte and one past
    the last, first element, and layout (an index into `layouts`). `windows` has one of each.
    """

    buffers: list[Buffer]
    layouts: list[Layout]
    windows: list[Window]
    buffer: Ints
    offset: Ints
    layout: Ints

    def by_layout(self, name: str) -> Ints:
        """A field of each window's layout."""
        return np.array([getattr(w, name) for w in self.layouts], np.int64)[self.layout]

    @property
    def start(self) -> Ints:
        return self.offset * self.by_layout("item")

    def arrays(self) -> dict[str, Ints]:
        """What tells whether two windows overlap."""
        start = self.start
        return {
            "buffer": self.buffer,
            "low": start + self.by_layout("low"),
            "high": start + self.by_layout("high"),
            "row": self.by_layout("row"),
            "pitch": self.by_layout("pitch"),
        }

    @property
    def sizes(self) -> Ints:
        return np.array([b.nbytes for b in self.buffers], np.int64)


class RegionTable:
    """Gives windows their numbers. The caller keeps all windows alive."""

    def __init__(self) -> None:
        self._by_object: dict[int, int] = {}
        self._by_key: dict[tuple[Any, ...], int] = {}
        self._buffers: dict[int, Buffer] = {}
        self._layouts: dict[tuple[Any, ...], int] = {}
        self._layout_list: list[Layout] = []
        self._windows: list[Window] = []

    def number(self, column: Sequence[Window]) -> Ints:
        """The numbers of a column of windows."""
        ids = np.fromiter(map(id, column), np.int64, len(column))
        distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        by_object, by_key, layouts = self._by_object, self._by_key, self._layouts
        found = np.empty(len(distinct), np.int64)
        # A column mostly repeats one layout: look it up only when it changes.
        shape = strides = dtype = extent = how = None
        for i, (key, at) in enumerate(zip(distinct.tolist(), first.tolist())):
            number = by_object.get(key)
            if number is None:
                w = column[at]
                if not (
                    w.shape == shape
                    and w.strides == strides
                    and w.dtype is dtype
                    and w.extent == extent
                ):
                    shape, strides, dtype, extent = w.shape, w.strides, w.dtype, w.extent
                    how = layouts.get((shape, strides, dtype, extent))
                    if how is None:
                        how = self._add_layout(w)
                full = (w.buffer.id, w.offset, how)
                number = by_key.get(full)
                if number is None:
                    number = by_key[full] = len(by_key)
                    self._windows.append(w)
                    if full[0] not in self._buffers:
                        self._buffers[full[0]] = w.buffer
                by_object[key] = number
            found[i] = number
        return found[inverse]

    def finish(self) -> Regions:
        keys = np.array(list(self._by_key), np.int64).reshape(len(self._by_key), 3)
        index = {b: i for i, b in enumerate(self._buffers)}
        buffer = np.array([index[b] for b in keys[:, 0].tolist()], np.int64)
        return Regions(
            buffers=list(self._buffers.values()),
            layouts=self._layout_list,
            windows=self._windows,
            buffer=buffer,
            offset=keys[:, 1],
            layout=keys[:, 2],
        )

    def _add_layout(self, window: Window) -> int:
        key = (window.shape, window.strides, window.dtype, window.extent)
        self._layouts[key] = len(self._layout_list)
        self._layout_list.append(layout_of(window))
        return self._layouts[key]


def layout_of(window: Window) -> Layout:
    item = window.dtype.itemsize
    low, high = (b - window.offset * item for b in window.byte_range())
    row, pitch = _row_and_pitch(window, high - low)
    across = abs(window.strides[-2]) * item if len(window.strides) > 1 else 0
    strided = window.strides != row_major(window.shape)
    shape, strides = window.shape, window.strides
    return Layout(low, high, row, pitch, across, strided, shape, strides, item)


def _row_and_pitch(window: Window, span: int) -> tuple[int, int]:
    """Bytes of a row and from row to row; a window that is no rectangle counts as one long row."""
    item = window.dtype.itemsize
    outer = [(n, s) for n, s in zip(window.reach, window.strides) if n > 1]
    if not outer or outer[-1][1] != 1:
        return (span, span) if outer else (item, item)
    row = outer[-1][0]
    rest = outer[:-1]
    # Axes that continue each other without a gap are one.
    while rest and rest[-1][1] == row:
        row *= rest[-1][0]
        rest.pop()
    if not rest:
        return row * item, row * item
    rows, pitch = rest[-1]
    for n, s in reversed(rest[:-1]):
        if s != pitch * rows:
            return span, span
        rows *= n
    return row * item, pitch * item
