"""The distinct windows of global memory in a recorded run, numbered."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from tilelet.dtypes import DType
from tilelet.tasks.window import Buffer, Shape, Window

_MAX_SHORTCUTS = 4096
"""Shapes that are remembered by identity; programs with more make them as they go."""


class Layout(NamedTuple):
    """Everything about a window except its buffer and first element; see `Window`."""

    shape: Shape
    strides: Shape
    dtype: DType
    valid: Shape | None
    extent: Shape | None


class RegionTable:
    """Numbers windows in the order in which they are first looked up.

    Region `n` is the window of `buffers[buffer[n]]` at element `offset[n]` with the layout
    `layouts[layout[n]]`. Windows cache their number, and buffers that of their first window, so
    that most lookups need no dictionary; buffers and windows belong to one run, hence to one table.
    """

    __slots__ = (
        "_layout_numbers",
        "_others",
        "_shortcuts",
        "buffer",
        "buffers",
        "layout",
        "layouts",
        "offset",
    )

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.layouts: list[Layout] = []
        self.buffer = array("q")
        self.offset = array("q")
        self.layout = array("q")
        self._others: dict[tuple[int, int, int], int] = {}
        self._layout_numbers: dict[Layout, int] = {}
        self._shortcuts: dict[int, tuple[Shape, int]] = {}

    def __len__(self) -> int:
        return len(self.offset)

    def number(self, window: Window) -> int:
        """Return the number of the window, assigning a new one if no equal window was seen."""
        if window.region >= 0:
            return window.region
        buffer, offset, layout = window.buffer, window.offset, self._layout_number(window)
        first = buffer.region
        if first < 0:
            # A record must not keep the data alive.
            self.buffers.append(buffer if buffer.data is None else buffer.without_data)
            found = buffer.region = self._add(len(self.buffers) - 1, offset, layout)
        elif self.offset[first] == offset and self.layout[first] == layout:
            found = first
        else:
            key = (self.buffer[first], offset, layout)
            found = self._others.get(key, -1)
            if found < 0:
                found = self._others[key] = self._add(*key)
        window.region = found
        return found

    def window(self, number: int) -> Window:
        """Return the window with this number, without its data."""
        shape, strides, dtype, valid, extent = self.layouts[self.layout[number]]
        buffer = self.buffers[self.buffer[number]]
        return Window(buffer, dtype, self.offset[number], shape, strides, valid, extent)

    def _add(self, buffer: int, offset: int, layout: int) -> int:
        self.buffer.append(buffer)
        self.offset.append(offset)
        self.layout.append(layout)
        return len(self.offset) - 1

    def _layout_number(self, window: Window) -> int:
        """Return the number of a window's layout.

        Windows created by one op share their shape tuple, so its identity finds the layout last
        seen with it. The tuple is kept alive so that its identity is not reused.
        """
        shape = window.shape
        seen = self._shortcuts.get(id(shape))
        if seen is not None:
            layout = self.layouts[seen[1]]
            if (
                layout.strides == window.strides
                and layout.dtype is window.dtype
                and layout.valid == window.valid
                and layout.extent == window.extent
            ):
                return seen[1]
        key = Layout(shape, window.strides, window.dtype, window.valid, window.extent)
        found = self._layout_numbers.setdefault(key, len(self.layouts))
        if found == len(self.layouts):
            self.layouts.append(key)
        if seen is not None or len(self._shortcuts) < _MAX_SHORTCUTS:
            self._shortcuts[id(shape)] = (shape, found)
        return found
