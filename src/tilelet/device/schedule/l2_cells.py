"""The cells of L2 that each task accesses.

Every buffer is divided into a grid of cells, no finer than a cache line across. An access is a
rectangle of cells with a number of bytes per cell; accesses smaller than a cell fill it one after
the other. Data-dependent accesses are assumed to scan the buffer. This module is the reference
implementation; `c/cells.c` computes the same numbers faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.footprint import Footprint
from tilelet.device.schedule.region_arrays import Ints, RegionArrays

Floats = NDArray[np.float64]

MAX_CELLS = 1 << 16
MAX_COLUMNS = 256


@dataclass(frozen=True, eq=False)
class ParameterAccesses:
    """The accesses of one parameter of one group of tasks.

    regions  the window that each task gets
    shifts   per axis: shift of each task's box, None if no box moves
    amount   bytes that each task moves
    """

    tasks: Ints
    regions: Ints
    touched: Footprint
    shifts: tuple[Floats | None, ...]
    amount: Ints


@dataclass(frozen=True, eq=False)
class Grid:
    """For each buffer: row pitch in bytes, rows and bytes of a cell, cells per row, and the number
    of its first cell. `total` is the number of all cells.
    """

    pitch: Floats
    height: Floats
    width: Floats
    per_row: Floats
    start: Floats
    total: int


@dataclass(frozen=True, eq=False)
class Cells:
    """Accesses of all tasks, flattened: `ptr[task] .. ptr[task + 1]`.

    base    number of the rectangle's first cell; it has `rows` x `columns` cells
    share   bytes of the access in each of its cells
    buffer  its `pitch` is the number of cells from row to row, `size` the bytes of a cell
    part    its `writes` is the direction, `asked` the part of each line that a request needs; the
            rest of the line is loaded with it
    total   number of cells of all buffers
    """

    ptr: Ints
    base: Ints
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    share: Floats
    buffer: NDArray[np.int32]
    part: NDArray[np.int32]
    pitch: Ints
    size: Floats
    writes: Ints
    asked: Floats
    total: int


def empty_cells(parts: Sequence[ParameterAccesses], grid: Grid, line: int, tasks: int) -> Cells:
    """Preallocate the access arrays."""
    count = np.zeros(tasks + 1, np.int64)
    for part in parts:
        count[part.tasks + 1] += 1
    ptr = np.cumsum(count)
    total = int(ptr[-1])
    return Cells(
        ptr=ptr,
        base=np.empty(total, np.int64),
        rows=np.empty(total, np.int32),
        columns=np.empty(total, np.int32),
        share=np.empty(total),
        buffer=np.empty(total, np.int32),
        part=np.empty(total, np.int32),
        pitch=grid.per_row.astype(np.int64),
        size=grid.height * grid.width,
        writes=np.array([part.touched.writes for part in parts], np.int64),
        asked=np.array([min(1.0, part.touched.run / line) for part in parts]),
        total=grid.total,
    )


def build_cells(
    parts: Sequence[ParameterAccesses], regions: RegionArrays, line: int, tasks: int
) -> Cells:
    """Choose the grids and assign every access its rectangle."""
    pitch = pitches(parts, regions)
    spans = [_spans(part, regions) for part in parts]
    least = np.full(len(pitch), np.inf)
    for part, (first, last, _) in zip(parts, spans):
        buffer = regions.buffer[part.regions]
        tall = np.floor((last - 1) / pitch[buffer]) - np.floor(first / pitch[buffer]) + 1.0
        np.minimum.at(least, buffer, tall)
    grid = grid_of(pitch, least, regions, line)
    cells = empty_cells(parts, grid, line, tasks)
    taken = cells.ptr[:-1].copy()
    for number, (part, span) in enumerate(zip(parts, spans)):
        at = taken[part.tasks]
        taken[part.tasks] += 1
        cells.part[at] = number
        _place(cells, at, regions.buffer[part.regions], span, grid, float(line))
    return cells


def _spans(part: ParameterAccesses, regions: RegionArrays) -> tuple[Floats, Floats, Floats]:
    """Return first byte, one past the last, and bytes requested, of each access."""
    layouts = regions.layouts
    rank, item = rank_and_item(part, regions)
    # One parameter has one rank; windows of another rank are treated as a single element.
    point = ((1,) * rank,) * 2
    dims = np.array(
        [(w.shape, w.strides) if len(w.shape) == rank else point for w in layouts], np.int64
    ).reshape(len(layouts), 2, rank)[regions.layout[part.regions]]
    shape, strides = dims[:, 0], dims[:, 1]
    low, high = np.zeros_like(shape), shape.copy()
    extents = part.touched.extents
    if extents is not None and len(extents) == rank:
        for axis, (extent, shifts) in enumerate(zip(extents, part.shifts)):
            shift = np.zeros(len(part.tasks)) if shifts is None else shifts
            # A box outside the tensor is clamped to its edge.
            low[:, axis] = np.clip(shift + extent.low, 0, shape[:, axis] - 1)
            high[:, axis] = np.clip(shift + extent.high, low[:, axis] + 1, shape[:, axis])
    offset, forward = regions.offset[part.regions], strides > 0
    first = (offset + (np.where(forward, low, high - 1) * strides).sum(1)) * item
    last = (offset + (np.where(forward, high - 1, low) * strides).sum(1) + 1) * item
    if extents is None:
        first, last = _scan_window(first, last, part.amount)
    # A box with gaps that no transfer accesses counts only for what is moved.
    wanted = np.minimum(np.prod(high - low, axis=1) * item, np.maximum(part.amount, item))
    return first.astype(np.float64), last.astype(np.float64), wanted.astype(np.float64)


def _scan_window(first: Ints, last: Ints, amount: Ints) -> tuple[Ints, Ints]:
    """Scan the window cyclically."""
    size = np.maximum(last - first, 1)
    length = np.clip(amount, 1, size)
    start = first + (np.cumsum(length) - length) % size
    return start, np.minimum(start + length, last)


def rank_and_item(part: ParameterAccesses, regions: RegionArrays) -> tuple[int, int]:
    """Return rank and element size of a parameter, from its first window."""
    layout = regions.layouts[regions.layout[part.regions[0]]]
    return len(layout.shape), layout.item


def _place(
    cells: Cells,
    at: Ints,
    buffer: Ints,
    span: tuple[Floats, Floats, Floats],
    grid: Grid,
    line: float,
) -> None:
    """Place the rectangles of the accesses of one part."""
    first, last, wanted = span
    pitch, height, width = grid.pitch[buffer], grid.height[buffer], grid.width[buffer]
    # Exact, since quotients of integers below 2**53 are.
    row0, row1 = np.floor(first / pitch), np.floor((last - 1) / pitch)
    col0, col1 = first - row0 * pitch, last - 1 - row1 * pitch
    ragged = col1 < col0
    col0, col1 = np.where(ragged, 0.0, col0), np.where(ragged, pitch - 1.0, col1)
    cell_row, cell_col = np.floor(row0 / height), np.floor(col0 / width)
    rows = np.floor(row1 / height) - cell_row + 1.0
    columns = np.floor(col1 / width) - cell_col + 1.0
    # Rows that are not whole lines load the rest of them, too; a box with gaps between its rows is
    # accessed only where data is moved.
    lines = np.floor(col1 / line) - np.floor(col0 / line) + 1.0
    across = np.minimum(lines * line, pitch)
    brought = np.maximum(wanted, line) * (across / (col1 - col0 + 1.0))
    touched = np.minimum((row1 - row0 + 1.0) * across, brought)
    cells.base[at] = grid.start[buffer] + cell_row * grid.per_row[buffer] + cell_col
    cells.rows[at], cells.columns[at] = rows, columns
    cells.buffer[at] = buffer
    cells.share[at] = touched / (rows * columns)


def pitches(parts: Sequence[ParameterAccesses], regions: RegionArrays) -> Floats:
    """Return the row pitch of each buffer, from its first window that has rows."""
    across, owner, sizes = regions.by_layout("across"), regions.buffer, regions.sizes
    touched = np.zeros(len(across), np.bool_)
    for part in parts:
        touched[part.regions] = True
    used = np.flatnonzero(touched & (across > 0) & (across < sizes[owner]))[::-1]
    pitch = np.maximum(sizes, 1)
    # The last assignment wins, which is that of the first window.
    pitch[owner[used]] = across[used]
    return pitch.astype(np.float64)


def grid_of(pitch: Floats, least: Floats, regions: RegionArrays, line: int) -> Grid:
    """Return the cells of each buffer; `least` is the smallest row count of an access."""
    sizes, step = regions.sizes.astype(np.float64), float(line)
    rows = np.ceil(sizes / pitch)
    width = np.ceil(np.ceil(pitch / MAX_COLUMNS) / step) * step
    width = np.minimum(np.maximum(step, width), pitch)
    per_row = np.ceil(pitch / width)
    most_rows = np.maximum(1.0, np.floor(MAX_CELLS / per_row))
    height = np.maximum(np.minimum(least, rows), np.ceil(rows / most_rows))
    count = per_row * (np.ceil(rows / height) + 1.0)
    start = np.concatenate([[0.0], np.cumsum(count)])
    return Grid(pitch, height, width, per_row, start[:-1], int(start[-1]))
