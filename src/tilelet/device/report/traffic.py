"""Bytes between global memory and the cores, by tensor and by kernel, against compulsory traffic.

Compulsory for a kernel: every byte that any of its tasks accesses, once. Compulsory for the
program: every byte of its inputs that is read, and of its outputs that is written, once; temporary
tensors could, in the best case, stay on chip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.schedule.arrays import Group, Stream
from tilelet.device.schedule.task_footprints import task_footprints

Ints = NDArray[np.int64]

LARGEST_GRID = 1 << 24
"""Limit on grid cells for computing the union of windows; above it, sizes are summed."""


@dataclass(frozen=True)
class Bytes:
    """Bytes read and written, and the least possible."""

    read: int = 0
    written: int = 0
    least_read: int = 0
    least_written: int = 0

    @property
    def total(self) -> int:
        return self.read + self.written

    @property
    def least(self) -> int:
        return self.least_read + self.least_written


@dataclass(frozen=True)
class Traffic:
    """Traffic of one run.

    tensors   by name and origin ("param", "temp"); tensors of one name count together
    sizes     bytes of all tensors of that name
    kernels   by name
    moves     bytes read and written, by kernel and tensor
    exchanged bytes that AIC and AIV exchange through global memory
    """

    tensors: dict[tuple[str, str], Bytes]
    sizes: dict[tuple[str, str], int]
    kernels: dict[str, Bytes]
    exchanged: int
    moves: dict[tuple[str, tuple[str, str]], tuple[int, int]]

    @property
    def total(self) -> Bytes:
        every = self.tensors.values()
        return Bytes(
            sum(b.read for b in every),
            sum(b.written for b in every),
            sum(b.least_read for b in every),
            sum(b.least_written for b in every),
        )


def traffic(stream: Stream, *, compulsory: bool = True) -> Traffic:
    """Count the bytes of every task; computing the `compulsory` part takes most of the time."""
    return _Count(stream, compulsory).result()


class _Count:
    def __init__(self, stream: Stream, compulsory: bool) -> None:
        self.stream = stream
        self.compulsory = compulsory
        self.buffer_of = np.array(stream.regions.buffer, np.int64)
        count = len(stream.regions.buffers)
        self.moved = {False: np.zeros(count, np.int64), True: np.zeros(count, np.int64)}
        self.boxes: dict[bool, list[Ints]] = {False: [], True: []}
        self.sizes = stream.regions.sizes
        self.pitch = _pitches(stream, self.sizes)
        self.kernels: dict[str, Bytes] = {}
        self.exchanged = 0
        self.moves: dict[tuple[str, tuple[str, str]], tuple[int, int]] = {}

    def result(self) -> Traffic:
        stream = self.stream
        for number, name in enumerate(stream.kernel_names):
            if stream.kernels[number] is not None:
                self.kernel(number, name)
        least = {
            w: np.minimum(self.distinct(boxes), self.moved[w]) for w, boxes in self.boxes.items()
        }
        given = ~stream.regions.fresh
        columns = [*self.moved.values(), *(least[w] * given for w in self.moved), self.sizes]
        keys: dict[tuple[str, str], int] = {}
        of_buffer = np.array(
            [keys.setdefault((b.name, b.origin), len(keys)) for b in stream.regions.buffers],
            np.int64,
        )
        sums = np.zeros((len(columns), len(keys)), np.int64)
        for into, column in zip(sums, columns):
            np.add.at(into, of_buffer, column)
        by_name = {key: Bytes(*sums[:4, i].tolist()) for key, i in keys.items()}
        sizes = {key: int(sums[4, i]) for key, i in keys.items()}
        return Traffic(by_name, sizes, self.kernels, self.exchanged, self.moves)

    def kernel(self, number: int, name: str) -> None:
        stream = self.stream
        view = stream.kernels[number]
        groups = [g for g in stream.groups if g.kernel == name and g.tasks.ran is not False]
        if not groups or view is None:
            return
        moved = {False: 0, True: 0}
        boxes: dict[bool, list[Ints]] = {False: [], True: []}
        for g in groups:
            self.exchanged += int(g.total([c.exchanged for c in stream.costs]).sum())
            for param, regions in zip(g.tensors, g.regions):
                for writes in (False, True):
                    nbytes = g.moved(stream.costs, param, writes)
                    np.add.at(self.moved[writes], self.buffer_of[regions], nbytes)
                    self.add_moves(name, regions, nbytes, writes)
                    moved[writes] += int(nbytes.sum())
            if self.compulsory:
                for writes, found in self.touched(g, view):
                    boxes[writes].append(found)
        for writes, found in boxes.items():
            self.boxes[writes] += found
        least = {w: int(self.distinct(found).sum()) for w, found in boxes.items()}
        # Unknown accesses count as a whole window, never above the actual traffic.
        self.kernels[name] = Bytes(
            moved[False],
            moved[True],
            min(least[False], moved[False]),
            min(least[True], moved[True]),
        )

    def add_moves(self, kernel: str, regions: Ints, nbytes: Ints, writes: bool) -> None:
        """Add the bytes that one argument of a kernel's tasks moves, by tensor."""
        buffers, which = np.unique(self.buffer_of[regions], return_inverse=True)
        sums = np.bincount(which, nbytes)
        of_argument: list[int] = buffers.tolist()
        for buffer, total in zip(of_argument, sums.tolist()):
            at = self.stream.regions.buffers[buffer]
            read, written = self.moves.get((kernel, (at.name, at.origin)), (0, 0))
            moved = (read, written + int(total)) if writes else (read + int(total), written)
            self.moves[kernel, (at.name, at.origin)] = moved

    def touched(self, g: Group, kernel: DeviceKernel) -> Iterator[tuple[bool, Ints]]:
        """Yield the rectangles that the tasks of a group read and write."""
        every: dict[tuple[int, bool], list[Ints]] = {}
        for piece in task_footprints(self.stream, g, kernel):
            into = every.setdefault((piece.param, piece.writes), [])
            if piece.starts is None:
                # Not known before the task runs: counts as a whole.
                rank = len(self.shape_of(piece.regions[0]))
                into.append(_boxes(np.unique(piece.regions), (0,) * rank, (_WHOLE,) * rank))
            else:
                into.append(_boxes(piece.regions, piece.starts, piece.extents))
        for (_, writes), parts in every.items():
            if parts:
                yield writes, self.rectangles(np.concatenate(parts))

    def shape_of(self, region: int) -> tuple[int, ...]:
        regions = self.stream.regions
        return regions.layouts[int(regions.layout[region])].shape

    def rectangles(self, boxes: Ints) -> Ints:
        """Return distinct (buffer, first row, past last row, first byte, past last byte) of boxes.

        A row of `boxes` is a region, the start of the box in it, and its extents.
        """
        every = self.stream.regions
        regions, rank = boxes[:, 0], boxes.shape[1] // 2
        used, which = np.unique(every.layout[regions], return_inverse=True)
        layouts = [every.layouts[int(i)] for i in used]
        table = np.array([w.shape + w.strides for w in layouts], np.int64)[which]
        shape, strides = table[:, :rank], table[:, rank:]
        start, extents = boxes[:, 1 : 1 + rank], boxes[:, 1 + rank :]
        low = np.clip(start, 0, shape)
        high = np.clip(start + extents, low, shape)
        inside = (high > low).all(axis=1)
        rows = np.column_stack([regions, low, high, strides])[inside]
        flat = _flatten_boxes(_unique_rows(rows), rank)
        return self.placed(flat, rank, layouts[0].item)

    def placed(self, rows: Ints, rank: int, item: int) -> Ints:
        """Return the positions of boxes in their buffers; two-axis boxes are rectangles there."""
        regions, low, high = rows[:, 0], rows[:, 1 : 1 + rank], rows[:, 1 + rank : 1 + 2 * rank]
        strides = rows[:, 1 + 2 * rank :]
        forward = strides > 0
        offset = self.stream.regions.offset[regions]
        first = (offset + (np.where(forward, low, high - 1) * strides).sum(1)) * item
        last = (offset + (np.where(forward, high - 1, low) * strides).sum(1)) * item + item - 1
        buffers = self.buffer_of[regions]
        pitch = self.pitch[buffers]
        row0, row1 = first // pitch, last // pitch + 1
        col0, col1 = first % pitch, last % pitch + 1
        ragged = col1 <= col0
        col0, col1 = np.where(ragged, 0, col0), np.where(ragged, pitch, col1)
        return _unique_rows(np.stack([buffers, row0, row1, col0, col1], axis=1))

    def distinct(self, boxes: list[Ints]) -> Ints:
        """Return the bytes of each buffer that lie in any of the rectangles."""
        covered = np.zeros(len(self.pitch), np.int64)
        if not boxes:
            return covered
        every = _unique_rows(np.concatenate(boxes))
        buffers, starts, counts = np.unique(every[:, 0], return_index=True, return_counts=True)
        alone = starts[counts == 1]
        covered[every[alone, 0]] = _area(every[alone])
        for buffer, start, count in zip(buffers, starts, counts):
            if count > 1:
                covered[buffer] = _union(every[start : start + count])
        return np.minimum(covered, self.sizes)


_WHOLE = 1 << 40
"""An extent larger than any window's."""


def _boxes(regions: Ints, starts: Sequence[Ints | int], extents: Sequence[int]) -> Ints:
    """Build boxes of one size, one row each; see `_Count.rectangles`."""
    rows = np.empty((len(regions), 1 + 2 * len(extents)), np.int64)
    rows[:, 0] = regions
    for axis, (start, extent) in enumerate(zip(starts, extents)):
        rows[:, 1 + axis] = start
        rows[:, 1 + len(extents) + axis] = extent
    return rows


def _flatten_boxes(rows: Ints, rank: int) -> Ints:
    """Split boxes of more than two axes along the outer ones where there are gaps.

    A row is a region, then the low ends, high ends and strides of all axes.
    """
    for axis in range(rank - 2):
        low, high = rows[:, 1 + axis], rows[:, 1 + rank + axis]
        inner = slice(2 + rank + axis, 1 + 2 * rank)
        below = rows[:, inner] - rows[:, 2 + axis : 1 + rank]
        stride = rows[:, 1 + 2 * rank + axis]
        dense = below.prod(1) == stride
        times = np.where(dense, 1, high - low)
        if times.sum() > LARGEST_GRID:
            continue
        which = np.repeat(np.arange(len(rows)), times)
        step = np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
        rows = rows[which]
        cut = ~dense[which]
        rows[cut, 1 + axis] += step[cut]
        rows[cut, 1 + rank + axis] = rows[cut, 1 + axis] + 1
    return rows


def _area(boxes: Ints) -> Ints:
    return (boxes[:, 2] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 3])


def _union(boxes: Ints) -> int:
    """Return the bytes covered, by painting the boxes on the grid of all their edges."""
    rows, columns = np.unique(boxes[:, 1:3]), np.unique(boxes[:, 3:5])
    if len(rows) * len(columns) > LARGEST_GRID:
        return int(_area(boxes).sum())
    paint = np.zeros((len(rows), len(columns)), np.int64)
    r0, r1 = np.searchsorted(rows, boxes[:, 1]), np.searchsorted(rows, boxes[:, 2])
    c0, c1 = np.searchsorted(columns, boxes[:, 3]), np.searchsorted(columns, boxes[:, 4])
    for r, c, sign in ((r0, c0, 1), (r0, c1, -1), (r1, c0, -1), (r1, c1, 1)):
        np.add.at(paint, (r, c), sign)
    covered = paint.cumsum(0).cumsum(1)[:-1, :-1] > 0
    return int((np.diff(rows)[:, None] * np.diff(columns)[None, :])[covered].sum())


def _unique_rows(rows: Ints) -> Ints:
    """Return sorted rows without duplicates."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    new = np.ones(len(ordered), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[new]


def _pitches(stream: Stream, sizes: Ints) -> Ints:
    """Return the row pitch of each buffer, from the first of its windows that has rows."""
    regions = stream.regions
    across = np.array(
        [w.strides[-2] * w.item if len(w.shape) > 1 else 0 for w in regions.layouts], np.int64
    )[regions.layout]
    pitch = np.maximum(sizes, 1)
    rows = np.flatnonzero(across > 0)[::-1]
    # The last assignment wins, which is that of the first window.
    pitch[regions.buffer[rows]] = np.minimum(pitch[regions.buffer[rows]], across[rows])
    return pitch
