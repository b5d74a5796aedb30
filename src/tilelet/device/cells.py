"""What each task touches in L2, in cells.

Every buffer is cut into a grid of cells, no finer than a cache line across. An access is a
rectangle of cells and a number of bytes for each; accesses smaller than a cell fill it up one after
the other. What is not known before the task runs is taken as the next stretch of the buffer, as a
scan would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.device.footprint import Footprint
from tilelet.device.regions import Ints, Regions

Floats = NDArray[np.float64]

MOST_CELLS = 1 << 16
MOST_COLUMNS = 256


class Cells:
    """Accesses of all tasks, flattened: `ptr[task] .. ptr[task + 1]`.

    base    number of the rectangle's first cell; `rows` x `columns` cells, `pitch` cells per row
    share   bytes that the access has in each of its cells, of the cell's `size`
    asked   the part of each line that a request asks for: the rest of a line comes along
    writes  whether it writes
    total   number of cells of all buffers
    """

    def __init__(self, regions: Regions, line: int, tasks: int) -> None:
        self._regions = regions
        self._line = line
        self._tasks = tasks
        self._parts: list[tuple[Any, ...]] = []
        self.total = 0

    def add(
        self,
        tasks: Ints,
        column: Ints,
        values: Sequence[tuple[Any, ...]],
        touched: Footprint,
        amount: Ints,
    ) -> None:
        """The accesses of one parameter of one group of tasks; `amount` bytes by each task."""
        regions = self._regions
        layouts = regions.layouts
        rank = len(layouts[regions.layout[column[0]]].shape)
        item = layouts[regions.layout[column[0]]].item
        # One parameter has one rank; windows of another are treated as a single element.
        point = ((1,) * rank,) * 2
        dims = np.array(
            [(w.shape, w.strides) if len(w.shape) == rank else point for w in layouts], np.int64
        ).reshape(len(layouts), 2, rank)[regions.layout[column]]
        offset, shape, strides = regions.offset[column], dims[:, 0], dims[:, 1]
        low = np.zeros_like(shape)
        high = shape.copy()
        if touched.extents is not None and len(touched.extents) == rank:
            for axis, extent in enumerate(touched.extents):
                shift = np.zeros(len(tasks))
                for position, factor in extent.coefficients:
                    shift = shift + np.array(values[position], np.float64) * factor
                low[:, axis] = np.clip(shift + extent.low, 0, shape[:, axis])
                high[:, axis] = np.clip(shift + extent.high, low[:, axis] + 1, shape[:, axis])
        first = (offset + (low * strides).sum(1)) * item
        last = (offset + ((high - 1) * strides).sum(1) + 1) * item
        if touched.extents is None:
            first, last = _scanned(first, last, amount)
        buffers = regions.buffer[column]
        wanted = np.prod(high - low, axis=1) * item
        self._parts.append((tasks, buffers, first, last, wanted, column, touched))

    def finish(self) -> None:
        """Choose the grids and give every access its rectangle."""
        if not self._parts:
            empty = np.zeros(0, np.int64)
            self.ptr = np.zeros(self._tasks + 1, np.int64)
            self.base = self.rows = self.columns = self.pitch = self.writes = empty
            self.share = self.asked = self.size = np.zeros(0)
            return
        task, buffer, first, last, wanted, region = (
            np.concatenate([p[i] for p in self._parts]) for i in range(6)
        )
        writes = np.concatenate([np.full(len(p[0]), p[6].writes) for p in self._parts])
        asked = np.concatenate(
            [np.full(len(p[0]), min(1.0, p[6].run / self._line)) for p in self._parts]
        )
        # Row to row of each buffer, then of each access; and so on.
        pitches = self._pitches(region, self._regions.sizes)
        pitch = pitches[buffer].astype(np.float64)
        row0, row1 = _quotient(first, pitch), _quotient(last - 1, pitch)
        col0, col1 = first - row0 * pitch, last - 1 - row1 * pitch
        ragged = col1 < col0
        col0, col1 = np.where(ragged, 0.0, col0), np.where(ragged, pitch - 1.0, col1)
        grid = self._grid(buffer, row1 - row0 + 1.0, pitches.astype(np.float64))
        height, width, per_row, base = (of_buffer[buffer] for of_buffer in grid)
        cell_row, cell_col = _quotient(row0, height), _quotient(col0, width)
        rows = _quotient(row1, height) - cell_row + 1.0
        columns = _quotient(col1, width) - cell_col + 1.0
        line = float(self._line)
        # Rows shorter than a line share it with their neighbours.
        lines = _quotient(col1, line) - _quotient(col0, line) + 1.0
        across = np.minimum(lines * line, pitch)
        touched = np.minimum((row1 - row0 + 1.0) * across, np.maximum(wanted, line) * 8.0)
        order = np.argsort(task, kind="stable")
        self.ptr = np.concatenate([[0], np.cumsum(np.bincount(task, minlength=self._tasks))])
        self.base = (base + cell_row * per_row + cell_col)[order].astype(np.int64)
        self.rows, self.columns = rows[order].astype(np.int64), columns[order].astype(np.int64)
        self.pitch, self.writes = per_row[order].astype(np.int64), writes[order].astype(np.int64)
        self.asked = asked[order]
        self.size = (height * width)[order]
        self.share = (touched / (rows * columns))[order]
        self._parts = []

    def _pitches(self, region: Ints, sizes: Ints) -> Ints:
        """Bytes from row to row of each buffer: those of the first window that has rows."""
        across, owner = self._regions.by_layout("across"), self._regions.buffer
        touched = np.zeros(len(across), np.bool_)
        touched[region] = True
        used = np.flatnonzero(touched & (across > 0) & (across < sizes[owner]))
        first = np.full(len(sizes), len(across), np.int64)
        np.minimum.at(first, owner[used], used)
        known = first < len(across)
        pitch = np.maximum(sizes, 1)
        pitch[known] = across[first[known]]
        return pitch

    def _grid(
        self, buffer: Ints, tall: Floats, pitch: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """For each buffer: a cell's rows and bytes across, cells per row, number of its first."""
        sizes = self._regions.sizes.astype(np.float64)
        line = float(self._line)
        least = np.full(len(sizes), np.inf)
        np.minimum.at(least, buffer, tall)
        rows = np.ceil(sizes / pitch)
        width = np.ceil(np.ceil(pitch / MOST_COLUMNS) / line) * line
        width = np.minimum(np.maximum(line, width), pitch)
        per_row = np.ceil(pitch / width)
        most_rows = np.maximum(1.0, _quotient(np.array(float(MOST_CELLS)), per_row))
        height = np.maximum(np.minimum(least, rows), np.ceil(rows / most_rows))
        count = per_row * (np.ceil(rows / height) + 1.0)
        start = np.concatenate([[0.0], np.cumsum(count)])
        self.total = int(start[-1])
        return height, width, per_row, start[:-1]


def _quotient(a: Any, b: Any) -> Any:
    """Whole quotients of whole numbers below 2**53: exact, and faster than integer division."""
    return np.floor(a / b)


def _scanned(first: Ints, last: Ints, amount: Ints) -> tuple[Ints, Ints]:
    """One stretch of the window after the other, from its start again at its end."""
    size = np.maximum(last - first, 1)
    length = np.clip(amount, 1, size)
    start = first + (np.cumsum(length) - length) % size
    return start, np.minimum(start + length, last)
