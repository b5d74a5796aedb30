"""Distinct windows of global memory, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
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


_KIND = attrgetter("shape", "strides", "dtype", "extent")
_BUFFER = attrgetter("buffer.id")
_OFFSET = attrgetter("offset")


class RegionTable:
    """Gives windows their numbers. The caller keeps all windows alive."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Any, ...], int] = {}
        self._buffers: dict[int, Buffer] = {}
        self._layouts: dict[tuple[Any, ...], int] = {}
        self._layout_list: list[Layout] = []
        self._windows: list[Window] = []

    def number(self, column: Sequence[Window]) -> Ints:
        """The numbers of a column of windows."""
        ids = np.fromiter(map(id, column), np.int64, len(column))
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        windows = [column[i] for i in first.tolist()]
        by_key, layouts = self._by_key, self._layouts
        kinds = list(map(_KIND, windows))
        for kind, window in zip(kinds, windows):
            if kind not in layouts:
                layouts[kind] = len(self._layout_list)
                self._layout_list.append(layout_of(window))
        how = map(layouts.__getitem__, kinds)
        keys = list(zip(map(_BUFFER, windows), map(_OFFSET, windows), how))
        known = len(by_key)
        found = [by_key.setdefault(key, len(by_key)) for key in keys]
        if len(by_key) > known:
            # The first window of each new key stands for it.
            named = dict(zip(reversed(keys), reversed(windows)))
            for key in list(by_key)[known:]:
                self._windows.append(named[key])
                self._buffers.setdefault(key[0], named[key].buffer)
        return np.array(found, np.int64)[inverse]

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
