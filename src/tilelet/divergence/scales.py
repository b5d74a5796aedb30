"""Find missing factors by values: which statements lack one, and how far it can be moved.

Nothing is executed here. If the golden has a multiple of a tile, possibly in addition to the tile
itself, the tile may lack the factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tilelet.divergence import edits
from tilelet.divergence.edits import Edit
from tilelet.divergence.error_map import Array
from tilelet.divergence.golden_trace import Intermediate
from tilelet.divergence.matching import CLOSE, Match, Matcher
from tilelet.divergence.record import Recorder, writes_tensor
from tilelet.ir.core import Op, Program, Value, walk
from tilelet.ir.spec import Trait
from tilelet.tasks.window import TileValue

_NEAR = 0.005
"""Relative distance up to which a factor equals a known one."""
_MAX_TOGETHER = 8
_LEAST_TOGETHER = 4
_FEW = 8
"""Number of elements below which a tile matches everywhere, so that the tiles of all tasks must
match.
"""
_MAX_STEPS = 16

Factors = Callable[[Op], Sequence[float]]


class MissingScales:
    """Searches a run for tiles that lack a factor."""

    def __init__(
        self, trace: Recorder, arrays: Sequence[Intermediate], matcher: Matcher, factors: Factors
    ) -> None:
        """`factors` returns the likely factors for an op."""
        self._trace = trace
        self._matcher = matcher
        self._factors = factors
        vectors = [a for a in arrays if a.array.size == max(a.array.shape, default=0)]
        self._vectors = Matcher(vectors, least=2)
        self._handed = _handed_on(trace.program)
        self._events: dict[Op, list[int]] = {}
        for number, event in enumerate(trace.events):
            self._events.setdefault(event.op, []).append(number)
        self._consumers: dict[int, list[int]] | None = None

    def of(self, op: Op, numbers: Iterable[int]) -> Iterator[tuple[Edit, Match]]:
        """Yield edits that scale an op's result in these events to arrays of the golden."""
        last = max(numbers)
        for number in dict.fromkeys(numbers):
            tile = self._trace.events[number].tile
            if tile is None:
                continue
            for match, factor in self._of_tile(op, tile):
                yield from ((e, match) for e in edits.scale_result(op, [factor]))
                if number == last:
                    for loop, index in self._handed.get(op, ()):
                        made = edits.scale_carried_result(loop, index, factor, op.loc)
                        yield from ((e, match) for e in made)

    def _of_tile(self, op: Op, tile: TileValue) -> Iterator[tuple[Match, float]]:
        data = tile.cut.astype(np.float64)
        if data.size < _FEW:
            yield from self._together(op)
            return
        found = self._matcher.multiples(data)
        if not found and data.ndim > 1 and data.shape[0] % 2 == 0:
            # Two heads in one tile are two arrays of a golden.
            found = self._matcher.multiples(data[: data.shape[0] // 2])
        known = self._factors(op)
        for match, factor in found:
            near = [k for k in known if abs(k - factor) <= _NEAR * abs(factor)]
            yield match, min(near, key=lambda k: abs(k - factor)) if near else factor

    def _together(self, op: Op) -> Iterator[tuple[Match, float]]:
        """For small tiles, yield the factors for which those of all tasks are parts of vectors."""
        last: dict[tuple[int, int], Array] = {}
        for number in self._events[op]:
            event = self._trace.events[number]
            if event.tile is not None:
                last[event.task, event.block] = event.tile.cut.astype(np.float64)
        tiles = [tile for tile in last.values() if tile.size > 1][:_MAX_TOGETHER]
        if sum(t.size for t in tiles) < _LEAST_TOGETHER:
            return
        for factor in self._factors(op):
            matches = (self._vectors.find(t * factor, CLOSE / 4) for t in tiles)
            first = next(matches)
            if first is not None and all(m is not None for m in matches):
                yield first, factor

    # Positions of the factor

    def movable(self, op: Op) -> list[Op]:
        """Return the ops after `op` through which its result only moves, in order.

        These are views, padding, casts, and stores and loads.
        """
        found: list[Op] = []
        for _ in range(_MAX_STEPS):
            users = {
                self._trace.events[n].op
                for number in self._events.get(op, ())
                for n in self._used_by(number)
            }
            if len(users) != 1:
                break
            (op,) = users
            if op in found or not only_moves(op):
                break
            found.append(op)
        return [op for op in found if not writes_tensor(op)]

    def _used_by(self, number: int) -> list[int]:
        if self._consumers is None:
            self._consumers = {}
            for user, event in enumerate(self._trace.events):
                for n in event.inputs:
                    self._consumers.setdefault(n, []).append(user)
        return self._consumers.get(number, [])


def only_moves(op: Op) -> bool:
    """Return whether an op returns its operand's values moved, padded, or cast."""
    moves = op.spec.is_window_load or writes_tensor(op) or Trait.TILE_VIEW in op.spec.traits
    return moves or "pad_value" in op.args or "target_type" in op.args


def _handed_on(program: Program) -> Mapping[Op, list[tuple[Op, int]]]:
    """Map ops whose result a loop or branch passes on to that op and the result's position."""
    made_by = {r: op for f in program.functions.values() for op in walk(f.body) for r in op.results}
    found: dict[Op, list[tuple[Op, int]]] = {}
    for function in program.functions.values():
        for outer in walk(function.body):
            for block in outer.blocks:
                values = block.terminator.args.get("values")
                for i, value in enumerate(values if isinstance(values, tuple) else ()):
                    op = made_by.get(value) if isinstance(value, Value) else None
                    if op is not None and i < len(outer.results):
                        found.setdefault(op, []).append((outer, i))
    # An outer loop passes on the results of an inner one.
    for op, outers in found.items():
        if not op.blocks:
            for outer, _ in list(outers):
                outers += [pair for pair in found.get(outer, ()) if pair not in outers]
    return found
