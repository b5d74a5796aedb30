"""Which tiles of a run match arrays of the golden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilelet.divergence.matching import CLOSE, Match, Matcher
from tilelet.divergence.record import Event, Trace, writes_tensor
from tilelet.ir.core import Op, Program, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.views import carried_values

_MAX_MATCHES = 1500
_ROUNDINGS = 3
_ROUNDED_ELSEWHERE = 2.5e-3
"""Tolerance for agreement with the golden, on top of a multiple of a tile's error against double:
one rounding to BF16 that the program does not do.
"""


class Agreement:
    """Finds the golden's arrays that the tiles of a run match."""

    def __init__(
        self, trace: Trace, matcher: Matcher, errors: Mapping[int, float], closest: float
    ) -> None:
        """`errors`: of events against double; `closest`: limit on the distance to the golden."""
        self._trace = trace
        self._matcher = matcher
        self._errors = errors
        self._closest = closest
        self._running = set(_carried_arguments(trace.program))
        self._found: dict[int, Match | None] = {}
        self._agreeing: dict[int, Match | None] = {}

    def of(self, number: int) -> Match | None:
        """Return the array that a tile agrees with, or None if an input agrees with the same array:
        an op that changed nothing has not done its work.
        """
        if number not in self._agreeing:
            match = self._match(number)
            self._agreeing[number] = None if match and self._idle(number, match) else match
        return self._agreeing[number]

    def _idle(self, number: int, match: Match) -> bool:
        """Return whether a tile agrees only because one of its inputs does."""
        event = self._trace.events[number]
        if only_moves(event.op):
            return any(self.of(n) is None for n in self._moved(event, match))
        alike = (self._match(n) for n in event.inputs if self._size(n) == self._size(number))
        return any(b and (b.array, b.position) == (match.array, match.position) for b in alike)

    def _size(self, number: int) -> int:
        tile = self._trace.events[number].tile
        return 0 if tile is None else tile.cut.size

    def _moved(self, event: Event, match: Match) -> Iterator[int]:
        """Yield the tiles that an op moves; for a load, those stored there.

        A larger tile may be wrong outside the moved part, so it must have a match of its own.
        """
        assert event.tile is not None
        for n in event.inputs:
            before = self._trace.events[n]
            for number in before.inputs if before.tile is None else (n,):
                known = self._match(number)
                is_all = self._size(number) == event.tile.cut.size
                if is_all or (known is not None and known.array is match.array):
                    yield number

    def _match(self, number: int) -> Match | None:
        if number not in self._found:
            tile = self._trace.events[number].tile
            found = None
            if tile is not None and len(self._found) < _MAX_MATCHES:
                rounding = self._errors.get(number, CLOSE)
                allowed = min(CLOSE, _ROUNDINGS * rounding + _ROUNDED_ELSEWHERE, self._closest)
                found = self._matcher.find(tile.cut, allowed)
                if found is not None and not self._has_role(number, found):
                    found = None
            self._found[number] = found
        return self._found[number]

    def _has_role(self, number: int, match: Match) -> bool:
        """Return whether agreement is evidence: a carried value must match a prefix of blocks."""
        part = match.array.part
        carried = self._running.intersection(self._trace.events[number].op.results)
        return part is None or part.start == 0 or not carried


def _carried_arguments(program: Program) -> Iterator[Value]:
    for function in program.functions.values():
        for op in walk(function.body):
            if op.name in ("for", "while"):
                for _, following, _ in carried_values(op):
                    yield from values_in((following,))


def only_moves(op: Op) -> bool:
    """Return whether an op returns its operand's values moved, padded, or cast."""
    moves = op.spec.is_window_load or writes_tensor(op) or Trait.TILE_VIEW in op.spec.traits
    return moves or "pad_value" in op.args or "target_type" in op.args
