"""Bytes between global memory and the cores, by tensor and by kernel, against what is compulsory.

Compulsory for a kernel: every byte that any of its tasks reads or writes, once. Compulsory for the
program: every byte of its inputs that is read, and of its outputs that is written, once; tensors
that the program makes for itself could, in the best case, stay on chip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilelet.device.footprint import Footprint, footprints
from tilelet.device.stream import NO_WORK, Stream
from tilelet.interp.memory import Window

Ints = NDArray[np.int64]

LARGEST_GRID = 1 << 24
"""Cells of the grid on which windows are united; with more, the sum of their sizes is taken."""


@dataclass(frozen=True)
class Bytes:
    """Bytes read and written, and the least that could be."""

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
    """Of one run.

    tensors   by name and origin ("param", "temp"); tensors of one name count together
    sizes     bytes of all tensors of that name
    kernels   by name
    exchanged bytes that the two kinds of core pass each other through global memory
    """

    tensors: dict[tuple[str, str], Bytes]
    sizes: dict[tuple[str, str], int]
    kernels: dict[str, Bytes]
    exchanged: int

    @property
    def total(self) -> Bytes:
        every = self.tensors.values()
        return Bytes(
            sum(b.read for b in every),
            sum(b.written for b in every),
            sum(b.least_read for b in every),
            sum(b.least_written for b in every),
        )


def traffic(stream: Stream) -> Traffic:
    """Count the bytes of every task."""
    return _Count(stream).result()


class _Count:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.buffer_of = np.array(stream.regions.buffer, np.int64)
        count = len(stream.regions.buffers)
        self.moved = {False: np.zeros(count, np.int64), True: np.zeros(count, np.int64)}
        self.boxes: dict[bool, list[Ints]] = {False: [], True: []}
        self.sizes = np.array([b.nbytes for b in stream.regions.buffers], np.int64)
        self.pitch = _pitches(stream, self.sizes)
        self.kernels: dict[str, Bytes] = {}
        self.exchanged = 0

    def result(self) -> Traffic:
        stream = self.stream
        for number, name in enumerate(stream.kernel_names):
            if stream.kernels[number] is not None:
                self.kernel(number, name)
        least = {w: self.distinct(boxes) for w, boxes in self.boxes.items()}
        tensors: dict[tuple[str, str], list[int]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for i, buffer in enumerate(stream.regions.buffers):
            key = (buffer.name, buffer.origin)
            sums = tensors.setdefault(key, [0, 0, 0, 0])
            given = buffer.origin == "param"
            sums[0] += int(self.moved[False][i])
            sums[1] += int(self.moved[True][i])
            sums[2] += int(least[False][i]) if given else 0
            sums[3] += int(least[True][i]) if given else 0
            sizes[key] = sizes.get(key, 0) + buffer.nbytes
        by_name = {key: Bytes(*sums) for key, sums in tensors.items()}
        return Traffic(by_name, sizes, self.kernels, self.exchanged)

    def kernel(self, number: int, name: str) -> None:
        stream = self.stream
        tasks = np.flatnonzero((stream.kernel == number) & (stream.shape != NO_WORK))
        view = stream.kernels[number]
        if not len(tasks) or view is None:
            return
        cost, blocks = stream.cost[tasks], stream.blocks[tasks]
        used = sorted(set(cost.tolist()))
        self.exchanged += sum(
            stream.costs[c].exchanged * int(blocks[cost == c].sum()) for c in used
        )
        values = [stream.tasks[i].values for i in tasks.tolist()]
        tensors = [p for p, v in enumerate(values[0]) if isinstance(v, Window)]
        moved = {False: 0, True: 0}
        for j, param in enumerate(tensors):
            buffers = self.buffer_of[stream.arg_region[stream.arg_ptr[tasks] + j]]
            for writes in (False, True):
                each = np.zeros(len(stream.costs), np.int64)
                for c in used:
                    by_param = stream.costs[c].written if writes else stream.costs[c].read
                    each[c] = by_param.get(param, 0)
                nbytes = each[cost] * blocks
                np.add.at(self.moved[writes], buffers, nbytes)
                moved[writes] += int(nbytes.sum())
        boxes: dict[bool, list[Ints]] = {False: [], True: []}
        for count in np.unique(blocks).tolist():
            some = np.flatnonzero(blocks == count)
            for touched in footprints(view, int(count)):
                if touched.param in tensors:
                    j = tensors.index(touched.param)
                    regions = stream.arg_region[stream.arg_ptr[tasks[some]] + j]
                    chosen = [values[i] for i in some.tolist()]
                    boxes[touched.writes].append(self.rectangles(regions, chosen, touched))
        for writes, found in boxes.items():
            self.boxes[writes] += found
        least = {w: int(self.distinct(found).sum()) for w, found in boxes.items()}
        # A window that is not known before the task runs counts as a whole; never above the fact.
        self.kernels[name] = Bytes(
            moved[False],
            moved[True],
            min(least[False], moved[False]),
            min(least[True], moved[True]),
        )

    def rectangles(
        self, regions: Ints, values: list[tuple[object, ...]], touched: Footprint
    ) -> Ints:
        """Distinct (buffer, first row, past last row, first byte, past last byte) of the tasks."""
        windows = self.stream.regions.windows
        distinct, inverse = np.unique(regions, return_inverse=True)
        rank = max(len(windows[r].shape) for r in distinct)
        table = np.array([_columns(windows[r], rank) for r in distinct], np.int64)[inverse]
        item = windows[distinct[0]].dtype.itemsize
        offset, shape, strides = table[:, 0], table[:, 1 : 1 + rank], table[:, 1 + rank :]
        low, high = np.zeros_like(shape), shape.copy()
        if touched.extents is not None and len(touched.extents) == rank:
            for axis, extent in enumerate(touched.extents):
                shift = np.zeros(len(regions))
                for position, factor in extent.coefficients:
                    shift += factor * np.array([v[position] for v in values], np.float64)
                low[:, axis] = np.clip(shift + extent.low, 0, shape[:, axis])
                high[:, axis] = np.clip(shift + extent.high, low[:, axis], shape[:, axis])
        empty = (high <= low).any(axis=1)
        first = (offset + (low * strides).sum(1)) * item
        last = (offset + ((high - 1) * strides).sum(1)) * item + item - 1
        buffers = self.buffer_of[regions]
        pitch = self.pitch[buffers]
        row0, row1 = first // pitch, last // pitch + 1
        col0, col1 = first % pitch, last % pitch + 1
        ragged = col1 <= col0
        col0, col1 = np.where(ragged, 0, col0), np.where(ragged, pitch, col1)
        found = np.stack([buffers, row0, row1, col0, col1], axis=1)[~empty]
        return _unique_rows(found)

    def distinct(self, boxes: list[Ints]) -> Ints:
        """Bytes of each buffer that lie in any of the rectangles."""
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


def _columns(window: Window, rank: int) -> tuple[int, ...]:
    """Offset, shape and strides, with unit axes in front so that all windows have `rank` axes."""
    missing = rank - len(window.shape)
    shape, strides = (1,) * missing + window.shape, (0,) * missing + window.strides
    return (window.offset, *shape, *strides)


def _area(boxes: Ints) -> Ints:
    return (boxes[:, 2] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 3])


def _union(boxes: Ints) -> int:
    """Bytes covered: paint the boxes on the grid of all their edges."""
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
    """Sorted rows without repetitions."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    new = np.ones(len(ordered), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[new]


def _pitches(stream: Stream, sizes: Ints) -> Ints:
    """Bytes from row to row of each buffer, by the first of its windows that has rows."""
    found: dict[int, int] = {}
    for buffer, window in zip(stream.regions.buffer, stream.regions.windows):
        if buffer not in found and len(window.shape) > 1 and window.strides[-2] > 0:
            found[buffer] = window.strides[-2] * window.dtype.itemsize
    pitch = np.maximum(sizes, 1)
    if found:
        at = np.array(list(found), np.int64)
        pitch[at] = np.minimum(pitch[at], np.array(list(found.values()), np.int64))
    return pitch
