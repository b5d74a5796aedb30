"""Find what a missing store should have stored, and stores that overwrite others.

The candidate for a missing store is a tile that fits, has other uses, and is never stored (a tile
without any use is found elsewhere). A store that overwrites another was meant for another place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilelet.divergence.error_map import Bools
from tilelet.divergence.golden_trace import Intermediate
from tilelet.divergence.matching import Matcher
from tilelet.divergence.record import Trace, writes_tensor
from tilelet.dtypes import Array
from tilelet.ir.core import Function, FunctionKind, Op, Value, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TileType
from tilelet.numerics.casts import as_computable
from tilelet.tasks.window import Buffer, Shape

_MAX_LOOKED_UP = 1000
_MAX_COMPARED = 256


def for_output(trace: Trace, name: str, expected: Array, missing: Bools) -> int | None:
    """Return the event whose tile equals the golden where an output was not written."""
    if expected.dtype.kind in "iub" or not expected.ndim:
        return None
    golden = Intermediate(name, "", 0, as_computable(expected).astype(np.float64))
    matcher = Matcher([golden])
    best: tuple[bool, int] | None = None
    first: dict[Op, int] = {}
    for number in _candidates(trace):
        first.setdefault(trace.events[number].op, number)
    for number in list(first.values())[:_MAX_LOOKED_UP]:
        tile = trace.events[number].tile
        match = None if tile is None else matcher.find(tile.cut)
        if tile is None or match is None or not missing[match.position]:
            continue
        # A tile before a cast is also similar.
        found = tile.data.dtype == expected.dtype, number
        best = max(best, found) if best else found
    return best[1] if best else None


def find_misplaced(trace: Trace, writes: list[int]) -> tuple[int, int] | None:
    """Return the first of some writes that overwrites another, and the overwritten one.

    A write whose task also reads the memory is skipped, because it may accumulate.
    """
    events = [(n, trace.events[n]) for n in writes[:_MAX_COMPARED]]
    readers = {
        (e.window.buffer.id, e.task) for e in trace.events if e.window is not None and not e.writes
    }
    for i, (number, event) in enumerate(events):
        window = event.window
        if window is None or (window.buffer.id, event.task) in readers:
            continue
        for other, before in events[:i]:
            elsewhere = (before.op, before.task) != (event.op, event.task)
            if elsewhere and before.window is not None and before.window.overlaps(window):
                return number, other
    return None


def for_memory(trace: Trace, read: int, buffer: Buffer, box: tuple[Shape, Shape]) -> int | None:
    """Return the last event before a read whose tile has the shape and type of the unwritten part.

    Prefer a task that gets the memory and does not read it.
    """
    window = trace.events[read].window
    assert window is not None
    shape = _without_ones([stop - start for start, stop in zip(*box)])
    fits = [
        number
        for number in _candidates(trace)
        if number < read and _fits(trace.events[number].op, shape, window.dtype.numpy)
    ]
    takers = {
        index
        for index, task in trace.submitted.items()
        if any(getattr(a, "buffer", None) is buffer for a in task.arguments)
    }
    for event in trace.events:
        if event.window is not None and event.window.buffer is buffer and not event.writes:
            takers.discard(event.task)
    return max(fits, default=None, key=lambda n: (trace.events[n].task in takers, n))


def _fits(op: Op, shape: list[int], dtype: object) -> bool:
    type_ = op.results[0].type
    assert isinstance(type_, TileType)
    return _without_ones(type_.shape) == shape and type_.dtype.numpy == dtype


def _without_ones(shape: Shape | list[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _candidates(trace: Trace) -> Iterator[int]:
    """Yield the events that computed a tile that is never stored."""
    unstored = set(_unstored_ops(trace))
    for number, event in enumerate(trace.events):
        if event.op in unstored and event.tile is not None:
            yield number


def _unstored_ops(trace: Trace) -> Iterator[Op]:
    for function in trace.program.functions.values():
        if function.kind is FunctionKind.InCore:
            stored = _stored_tiles(function)
            for op in walk(function.body):
                moves = op.spec.is_window_load or Trait.TILE_VIEW in op.spec.traits
                if not moves and not stored.intersection(op.results):
                    yield op


def _stored_tiles(function: Function) -> set[Value]:
    """Return the tiles that are stored, also as views or as results of loops and branches."""
    ops = list(walk(function.body))
    found = {v for op in ops if writes_tensor(op) for v in op.operands}
    before = -1
    while len(found) > before:
        before = len(found)
        for op in ops:
            if Trait.TILE_VIEW in op.spec.traits and found.intersection(op.results):
                found.update(op.operands)
            for block in op.blocks:
                handed = block.terminator.args.get("values")
                pairs = zip(op.results, handed if isinstance(handed, tuple) else ())
                found.update(v for r, v in pairs if r in found and isinstance(v, Value))
    return found
