"""Distinct windows of global memory, as arrays."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.tasks import regions
from tilelet.tasks.regions import RegionTable
from tilelet.tasks.window import Buffer, Shape, row_major

Ints = NDArray[np.int64]


class Layout(NamedTuple):
    """The memory layout of a window, in bytes from its first element.

    Row `i` starts at `i * pitch` and has `row` bytes. `across` is the pitch even if there are no
    gaps (0 for a single row); `strided` says whether there are any. `valid` is the part that loads
    take, None for all of it; `reach` the part for which memory exists.
    """

    low: int
    high: int
    row: int
    pitch: int
    across: int
    strided: bool
    shape: Shape
    strides: Shape
    item: int
    valid: Shape | None
    reach: Shape


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """Distinct windows by number: their buffer (an index into `buffers`), first byte and one past
    the last, first element, and layout (an index into `layouts`).
    """

    buffers: list[Buffer]
    layouts: list[Layout]
    buffer: Ints
    offset: Ints
    layout: Ints

    def by_layout(self, name: str) -> Ints:
        """Return a field of each window's layout."""
        return np.array([getattr(w, name) for w in self.layouts], np.int64)[self.layout]

    @property
    def start(self) -> Ints:
        return self.offset * self.by_layout("item")

    def arrays(self) -> dict[str, Ints]:
        """Return the arrays that decide whether two windows overlap."""
        start = self.start
        return {
            "buffer": self.buffer,
            "low": start + self.by_layout("low"),
            "high": start + self.by_layout("high"),
            "row": self.by_layout("row"),
            "pitch": self.by_layout("pitch"),
        }

    @cached_property
    def sizes(self) -> Ints:
        """Return the bytes of each buffer."""
        return np.array([b.nbytes for b in self.buffers], np.int64)

    @cached_property
    def fresh(self) -> NDArray[np.bool_]:
        """Return which buffers the program creates."""
        return np.array([b.origin == "temp" for b in self.buffers], np.bool_)


def regions_of(table: RegionTable) -> RegionArrays:
    """Return the windows of a recorded run."""
    return RegionArrays(
        buffers=table.buffers,
        layouts=[layout_of(layout) for layout in table.layouts],
        buffer=np.array(table.buffer, np.int64),
        offset=np.array(table.offset, np.int64),
        layout=np.array(table.layout, np.int64),
    )


def layout_of(window: regions.Layout) -> Layout:
    item, shape, strides = window.dtype.itemsize, window.shape, window.strides
    reach = shape if window.extent is None else window.extent
    low = sum((n - 1) * s for n, s in zip(reach, strides) if s <= 0) * item
    high = (1 + sum((n - 1) * s for n, s in zip(reach, strides) if s > 0)) * item
    row, pitch = row_and_pitch(reach, strides, item, high - low)
    across = abs(strides[-2]) * item if len(strides) > 1 else 0
    strided = strides != row_major(shape)
    return Layout(low, high, row, pitch, across, strided, shape, strides, item, window.valid, reach)


def row_and_pitch(reach: Shape, strides: Shape, item: int, span: int) -> tuple[int, int]:
    """Return row size and pitch in bytes; a window that is not a rectangle counts as one row."""
    outer = [(n, s) for n, s in zip(reach, strides) if n > 1]
    if not outer or outer[-1][1] != 1:
        return (span, span) if outer else (item, item)
    row = outer[-1][0]
    rest = outer[:-1]
    # Contiguous axes are merged.
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
