"""Narrow arguments to the accessed window, where the compiler of a period does that.

A kernel that is given a whole tensor orders tasks by all of it. For some weeks the compiler passed
kernels only the window that they write, if it is known before they run (`Runtime.windows`):

none    whole tensors
all     windows that a task writes, for all its results or for none
unread  the same, unless a later call reads one of those tensors as a whole
both    windows that a task reads, too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilelet.device.schedule.arrays import REGISTERS, Group, Stream
from tilelet.device.schedule.region_arrays import Ints, Layout, RegionArrays, row_and_pitch
from tilelet.device.schedule.task_footprints import Piece, task_footprints
from tilelet.ir.core import Direction


def with_windows(stream: Stream, which: str) -> Stream:
    """Return the tasks with narrowed arguments; their costs do not change."""
    if which == "none":
        return stream
    found = _Narrowed(stream)
    whole = _last_whole_reads(stream)
    for g in stream.groups:
        narrowed = _windows(stream, g)
        written = _written_positions(stream, g)
        read = {p: w for p, w in narrowed.items() if g.tasks.directions[p] is Direction.In}
        if which == "both":
            found.add(g, read)
        if any(p not in narrowed for p in written) or _share_buffers(stream, g, written):
            continue
        if which == "unread" and any(_is_read_later(stream, g, p, whole) for p in written):
            continue
        found.add(g, {p: narrowed[p] for p in written})
    return replace(stream, arg_region=found.arg_region, regions=found.regions())


def _windows(stream: Stream, g: Group) -> dict[int, Piece]:
    """Return, by position, the one box that each task of a group accesses of an argument."""
    kernel = stream.kernels[stream.kernel_names.index(g.kernel)]
    if kernel is None or g.tasks.ran is False or g.tasks.manual or g.blocks > 1:
        return {}
    found: dict[int, Piece] = {}
    unclear: set[int] = set()
    for piece in task_footprints(stream, g, kernel):
        every = len(piece.rows) == len(g.indices)
        if piece.starts is None or piece.param in found or not every:
            unclear.add(piece.param)
        found[piece.param] = piece
    return {p: piece for p, piece in found.items() if p not in unclear}


def _written_positions(stream: Stream, g: Group) -> list[int]:
    """Return the positions of arguments that a group only writes and that order tasks."""
    first = stream.arg_ptr[g.indices[0]]
    return [
        p
        for j, p in enumerate(g.tensors)
        if g.tasks.directions[p] is Direction.Out and stream.arg_flags[first + j] & REGISTERS
    ]


def _share_buffers(stream: Stream, g: Group, positions: list[int]) -> bool:
    columns = [g.regions[g.tensors.index(p)][0] for p in positions]
    return len({int(stream.regions.buffer[r]) for r in columns}) < len(columns)


def _last_whole_reads(stream: Stream) -> Mapping[int, int]:
    """Return, by buffer, the first task of the last call that reads all of it."""
    regions = stream.regions
    span = regions.by_layout("high") - regions.by_layout("low")
    whole = span >= regions.sizes[regions.buffer]
    found: dict[int, int] = {}
    for g in stream.groups:
        for p, column in zip(g.tensors, g.regions):
            if g.tasks.directions[p] is not Direction.Out:
                seen: list[int] = np.unique(regions.buffer[column[whole[column]]]).tolist()
                for buffer in seen:
                    found[buffer] = max(found.get(buffer, -1), int(g.indices[0]))
    return found


def _is_read_later(stream: Stream, g: Group, position: int, whole: Mapping[int, int]) -> bool:
    column = g.regions[g.tensors.index(position)]
    buffers: list[int] = np.unique(stream.regions.buffer[column]).tolist()
    return any(whole.get(buffer, -1) > int(g.indices[0]) for buffer in buffers)


class _Narrowed:
    """The windows of all tasks, including the narrowed ones."""

    def __init__(self, stream: Stream) -> None:
        self.arg_region = stream.arg_region.copy()
        self._stream = stream
        self._old = stream.regions
        self._layouts = list(stream.regions.layouts)
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._added: list[tuple[Ints, Ints, Ints]] = []
        self._count = len(stream.regions.buffer)

    def add(self, g: Group, windows: Mapping[int, Piece]) -> None:
        for position, piece in windows.items():
            assert piece.starts is not None
            old, parents = self._old, piece.regions
            layout, offset = old.layout[parents], old.offset[parents].copy()
            narrow = layout.copy()
            numbers: list[int] = np.unique(layout).tolist()
            for number in numbers:
                mine, parent = layout == number, old.layouts[number]
                if len(parent.shape) != len(piece.extents):
                    narrow[mine] = number
                    continue
                narrow[mine] = self._layout(number, parent, piece.extents)
                for start, stride in zip(piece.starts, parent.strides):
                    offset[mine] += start[mine].astype(np.int64) * stride
            self._added.append((old.buffer[parents], offset, narrow))
            at = self._stream.arg_ptr[g.indices[piece.rows]] + g.tensors.index(position)
            self.arg_region[at] = self._count + np.arange(len(parents), dtype=np.int64)
            self._count += len(parents)

    def _layout(self, number: int, parent: Layout, extents: tuple[int, ...]) -> int:
        key = (number, extents)
        if key not in self._known:
            item, strides = parent.item, parent.strides
            low = sum((n - 1) * s for n, s in zip(extents, strides) if s <= 0) * item
            high = (1 + sum((n - 1) * s for n, s in zip(extents, strides) if s > 0)) * item
            row, pitch = row_and_pitch(extents, strides, item, high - low)
            made = parent._replace(
                low=low, high=high, row=row, pitch=pitch, shape=extents, reach=extents
            )
            self._known[key] = len(self._layouts)
            self._layouts.append(made)
        return self._known[key]

    def regions(self) -> RegionArrays:
        old, added = self._old, self._added
        return RegionArrays(
            buffers=old.buffers,
            layouts=self._layouts,
            buffer=np.concatenate([old.buffer, *(a[0] for a in added)]),
            offset=np.concatenate([old.offset, *(a[1] for a in added)]),
            layout=np.concatenate([old.layout, *(a[2] for a in added)]),
        )
