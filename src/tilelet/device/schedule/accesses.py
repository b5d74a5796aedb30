"""The bytes that each task reads and writes, as rectangles of buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilelet.analysis.aliases import Aliases, accesses
from tilelet.device.schedule.arrays import Group, Stream
from tilelet.device.schedule.conflicts import ATOMIC, READ, WRITE, Accesses
from tilelet.device.schedule.region_arrays import Ints, Layout, row_and_pitch
from tilelet.device.schedule.task_footprints import Piece, task_footprints
from tilelet.ir.core import Direction, Function, walk
from tilelet.ir.spec import Trait

COLUMNS = ("buffer", "low", "high", "row", "pitch")
MAX_PIECES = 1 << 12
"""Limit on rectangles for a box of more than two strided axes; above it counts as one run."""


def accesses_of(stream: Stream, functions: Mapping[str, Function]) -> Accesses:
    """Return the accesses of every task, except to arguments that nothing writes.

    The key of an access is `group * width + position`, see `key_width`.
    """
    parts: list[Ints] = []
    width = key_width(stream)
    for number, g in enumerate(stream.groups):
        kernel = stream.kernels[stream.kernel_names.index(g.kernel)]
        if kernel is None or g.tasks.ran is False:
            continue
        special = _special_parameters(functions[g.kernel])
        pieces = [p for p in task_footprints(stream, g, kernel) if p.param not in special]
        pieces += [_whole_piece(g, param, writes) for param in special for writes in special[param]]
        for piece in pieces:
            kind = READ if not piece.writes else _kind(functions[g.kernel], piece.param)
            rows = _rectangles(stream, piece)
            who = rows[:, 0]
            head = [
                g.indices[piece.rows][who],
                piece.blocks[who],
                np.full(len(rows), number * width + piece.param),
                np.full(len(rows), kind),
                np.full(len(rows), piece.starts is not None),
            ]
            parts.append(np.column_stack([*head, rows[:, 1:]]))
    table = np.concatenate(parts) if parts else np.zeros((0, 10), np.int64)
    return _accesses(stream, table)


def key_width(stream: Stream) -> int:
    """Return a number larger than every argument position."""
    return 1 + max((p for g in stream.groups for p in g.tensors), default=0)


def _accesses(stream: Stream, table: Ints) -> Accesses:
    """Sort rows of (task, block, key, kind, known, rectangle)."""
    written = np.zeros(len(stream.regions.buffers), np.bool_)
    written[table[table[:, 3] != READ, 5]] = True
    table = table[written[table[:, 5]]]
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    distinct, region = _distinct(table[:, 5:])
    task, block, key, kind, known = (np.ascontiguousarray(table[:, i]) for i in range(5))
    return Accesses(
        task=task,
        block=block,
        key=key,
        kind=kind,
        known=known,
        region=region,
        rectangles={n: np.ascontiguousarray(distinct[:, i]) for i, n in enumerate(COLUMNS)},
        sizes=stream.regions.sizes,
    )


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Return distinct rows, in order, and the index for each row.

    Sorting numbers is much faster than sorting rows, and most rows are duplicates: rows are
    compared by a hash, if it is free of collisions.
    """
    mixed = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        mixed = (mixed ^ column.astype(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    found, which = np.unique(mixed, return_inverse=True)
    one = np.empty(len(found), np.int64)
    one[which] = np.arange(len(rows))
    distinct, place = np.unique(rows[one], axis=0, return_inverse=True)
    region = place.reshape(-1)[which]
    if not np.array_equal(distinct[region], rows):
        distinct, region = np.unique(rows, axis=0, return_inverse=True)
    return distinct, region.reshape(-1).astype(np.int64)


_MIX = np.uint64(0x9E3779B97F4A7C15)


def _special_parameters(function: Function) -> dict[int, list[bool]]:
    """Return the parameters accessed other than by whole windows: element by element, by index.

    The positions are unknown here: the whole argument stands for them, read, written or both.
    """
    aliases = Aliases(function.body, {})
    position = {p: i for i, p in enumerate(function.params)}
    found: dict[int, set[bool]] = {}
    every: dict[int, set[bool]] = {}
    for op in walk(function.body):
        plain = op.spec.is_window_load or (op.spec.writes and Trait.ANY_MEMORY in op.spec.traits)
        for value, how in accesses(op, {}):
            for root in aliases.roots(value):
                if root in position:
                    writes = {False, True} if how is Direction.InOut else {how is Direction.Out}
                    every.setdefault(position[root], set()).update(writes)
                    if not plain:
                        found.setdefault(position[root], set()).update(writes)
    return {param: sorted(every[param]) for param in found}


def _whole_piece(g: Group, param: int, writes: bool) -> Piece:
    rows, blocks = (x.reshape(-1) for x in np.indices((len(g.indices), g.blocks)))
    regions = g.regions[g.tensors.index(param)][rows]
    return Piece(param, writes, rows, blocks, regions, None)


def _kind(function: Function, param: int) -> int:
    """Return how a kernel writes a parameter: only atomic adds, or also plain stores."""
    aliases = Aliases(function.body, {})
    hows = {
        how
        for op in walk(function.body)
        for value, how in accesses(op, {})
        if how is not Direction.In and function.params[param] in aliases.roots(value)
    }
    return ATOMIC if hows == {Direction.InOut} else WRITE


def _rectangles(stream: Stream, piece: Piece) -> Ints:
    """Return rows of (execution, buffer, low, high, row, pitch)."""
    regions = stream.regions
    layouts = regions.layout[piece.regions]
    found: list[Ints] = []
    for layout in np.unique(layouts):
        which = np.flatnonzero(layouts == layout)
        shown = regions.layouts[int(layout)]
        if piece.starts is None or len(piece.extents) != len(shown.shape):
            nowhere = np.zeros(len(which), np.int64)
            found.append(_place_boxes(stream, piece, which, shown, nowhere, shown.reach))
            continue
        starts = np.stack([column[which] for column in piece.starts], axis=1)
        reach = np.array(shown.reach, np.int64)
        low = np.clip(starts, 0, reach)
        high = np.clip(starts + np.array(piece.extents), low, reach)
        sizes, kinds = np.unique(high - low, axis=0, return_inverse=True)
        for number, size in enumerate(sizes):
            extents = [int(n) for n in size]
            mine = kinds.reshape(-1) == number
            first = (low[mine] * np.array(shown.strides, np.int64)).sum(1)
            found.append(_place_boxes(stream, piece, which[mine], shown, first, extents))
    return np.concatenate(found) if found else np.zeros((0, 6), np.int64)


def _place_boxes(
    stream: Stream,
    piece: Piece,
    which: Ints,
    layout: Layout,
    first: Ints,
    extents: Sequence[int],
) -> Ints:
    """Place boxes of one size whose first elements are `first` elements into their windows."""
    if 0 in extents:
        return np.zeros((0, 6), np.int64)
    item = layout.item
    shifts, low, high, row, pitch = split_box(extents, layout.strides, item)
    start = (stream.regions.offset[piece.regions[which]] + first)[:, None] + shifts[None, :]
    count = len(shifts)
    rows = np.empty((len(which) * count, 6), np.int64)
    rows[:, 0] = np.repeat(which, count)
    rows[:, 1] = np.repeat(stream.regions.buffer[piece.regions[which]], count)
    rows[:, 2] = start.reshape(-1) * item + low
    rows[:, 3] = start.reshape(-1) * item + high
    rows[:, 4], rows[:, 5] = row, pitch
    return rows


def split_box(
    extents: Sequence[int], strides: Sequence[int], item: int
) -> tuple[Ints, int, int, int, int]:
    """Split a box into rectangles of one size.

    Returns where each starts (in elements), then low and high end, row and pitch (in bytes from
    there).
    """
    shape = tuple(extents)
    # Axes that a rectangle cannot represent are split into single steps, from the outermost on.
    shifts = np.zeros(1, np.int64)
    while len(shifts) <= MAX_PIECES and not _is_rectangle(shape, strides, item):
        axis = next(i for i, n in enumerate(shape) if n > 1)
        steps = np.arange(shape[axis], dtype=np.int64) * strides[axis]
        shifts = (shifts[:, None] + steps[None, :]).reshape(-1)
        shape = (*shape[:axis], 1, *shape[axis + 1 :])
    low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0) * item
    high = (1 + sum((n - 1) * s for n, s in zip(shape, strides) if s > 0)) * item
    row, pitch = row_and_pitch(shape, tuple(strides), item, high - low)
    return shifts, low, high, row, abs(pitch)


def with_exact(stream: Stream, found: Accesses, tasks: Ints, rows: Ints) -> Accesses:
    """Replace the unknown accesses of some tasks in `found` by `rows`.

    A row is (task, block, key, kind, rectangle).
    """
    table = np.column_stack(
        [found.task, found.block, found.key, found.kind, found.known]
        + [found.rectangles[name][found.region] for name in COLUMNS]
    )
    gone = (found.known == 0) & np.isin(found.task, tasks)
    exact = np.insert(rows, 4, 1, axis=1)
    return _accesses(stream, np.concatenate([table[~gone], exact]))


def _is_rectangle(shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    span = (1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides))) * item
    row, _ = row_and_pitch(tuple(shape), tuple(strides), item, span)
    elements = int(np.prod(shape, dtype=np.int64))
    return row != span or elements * item == span
