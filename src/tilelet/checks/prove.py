"""Proofs over all trip counts and sizes: accesses that nothing orders are disjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilelet.checks.polyhedra import (
    Access,
    Accesses,
    Loop,
    Points,
    isl,
    loops_in_common,
    pairs,
    parameters,
)
from tilelet.device.schedule.arrays import LOOKS_UP, REGISTERS, Stream
from tilelet.diag.source import display_path
from tilelet.ir.core import Op, Program
from tilelet.ir.views import CallView

MOST_QUESTIONS = 3000
"""Pairs that isl is asked about: a millisecond each."""

INSTALL = "not proved for all sizes: `pip install 'tilelet[prove]'` adds islpy, which can"


@dataclass(frozen=True)
class Proof:
    """Whether something was shown for all sizes; else why not, in a line."""

    holds: bool
    why: str = ""


def prove_order(program: Program, stream: Stream) -> Proof:
    """That no two accesses, one a write, that the rules leave in any order touch the same bytes."""
    library = isl()
    if library is None:
        return Proof(False, INSTALL)
    found = Accesses.of(program)
    if found.gaps:
        loc, why = found.gaps[0]
        return Proof(False, f"not proved for all sizes: {why} ({_place(loc)})")
    return _Order(program, stream, library, found).proof()


class _Order:
    def __init__(self, program: Program, stream: Stream, library: Any, found: Accesses) -> None:
        self.program = program
        self.library = library
        self.found = found
        self.params = parameters(program)
        self.asked = 0
        self.flags: dict[tuple[str, int], list[int]] = {}
        for g in stream.groups:
            if g.tensors and len(g.indices):
                first = int(stream.arg_ptr[g.indices[0]])
                span = stream.arg_flags[first : first + len(g.tensors)].tolist()
                by_position = dict(zip(g.tensors, span))
                self.flags[g.kernel, id(g.tasks.loc)] = [
                    by_position.get(i, 0) for i in range(max(g.tensors) + 1)
                ]

    def proof(self) -> Proof:
        for a, b in pairs(_distinct(self.found.found)):
            for question in self._questions(a, b):
                self.asked += 1
                if self.asked > MOST_QUESTIONS:
                    return Proof(False, "not proved for all sizes: too many pairs of accesses")
                point = self._shown(a, b, question)
                if point is not None:
                    return Proof(False, self._why(a, b, point))
        return Proof(True)

    def _questions(self, a: Access, b: Access) -> list[Question]:
        """Constraints under which the two must not meet."""
        common = loops_in_common(a, b)
        asked: list[Question] = []
        if a.site is b.site and len(a.loops) > a.outer and a.loops[a.outer].op is a.site:
            asked.append(_differ(a.loops[: a.outer], a.loops[a.outer]))
        both = self._waits(a, b) and self._waits(b, a)
        for i, loop in enumerate(common):
            if not both or loop.parallel:
                asked.append(_differ(common[:i], loop))
        first, second = (a, b) if self._before(a.site, b.site) else (b, a)
        if a.site is not b.site and not self._waits(first, second):
            asked.append(_differ(common, None))
        return asked

    def _before(self, a: Op, b: Op) -> bool:
        return self.found.order[a] < self.found.order[b]

    def _waits(self, first: Access, second: Access) -> bool:
        """Whether the rules make the second wait for the first, if they touch the same bytes."""
        return bool(self._flag(first) & REGISTERS and self._flag(second) & LOOKS_UP)

    def _flag(self, access: Access) -> int:
        flags = self.flags.get((CallView(access.site).callee, id(access.site.loc)), [])
        return flags[access.position] if access.position < len(flags) else 0

    def _shown(self, a: Access, b: Access, question: Question) -> dict[str, str] | None:
        """None if the two never meet; else where they may."""
        point: dict[str, str] = {}
        for bounded in (False, True):
            points = Points(self.params)
            names = [points.iterate(x, side, bounded=bounded) for x, side in ((a, "a"), (b, "b"))]
            for loop in a.made_in:
                i = a.loops.index(loop)
                points.constraints.append(f"{names[0][i]} = {names[1][i]}")
            question(points, names)
            element = [points.variable("e", axis) for axis in range(len(a.offset))]
            points.cover(a, "a", element)
            points.cover(b, "b", element)
            empty, values = points.is_empty(self.library)
            if empty:
                return None
            point = {
                name: f"{points.shown[name]} = {value}"
                for name, value in values.items()
                if points.shown[name]
            }
            point["element"] = ", ".join(str(values[e]) for e in element)
        return point

    def _why(self, a: Access, b: Access, point: dict[str, str]) -> str:
        if None in a.offset or None in b.offset:
            vague = a if None in a.offset else b
            return (
                f"not proved for all sizes: where `{vague.root.name}` is touched is no affine "
                f"form of loops and parameters ({_place(vague.loc)})"
            )
        sides = [
            ", ".join(text for name, text in point.items() if name.startswith(side))
            for side in ("a", "b")
        ]
        return (
            f"not proved for all sizes: {_place(a.loc)} ({sides[0] or 'once'}) and "
            f"{_place(b.loc)} ({sides[1] or 'once'}) may both touch "
            f"`{a.root.name}[{point['element']}]`"
        )


Question = Callable[[Points, list[list[str]]], None]


def _differ(equal: Any, loop: Loop | None) -> Question:
    """The same iteration of some loops, and different ones of another."""

    def constrain(points: Points, names: list[list[str]]) -> None:
        for i in range(len(equal)):
            points.constraints.append(f"{names[0][i]} = {names[1][i]}")
        if loop is not None:
            i = len(equal)
            points.constraints.append(f"{names[0][i]} != {names[1][i]}")

    return constrain


def _distinct(found: list[Access]) -> list[Access]:
    kept: dict[Any, Access] = {}
    for access in found:
        key = (
            *(access.site, access.position, access.root, access.loops),
            *(access.offset, access.extent, access.writes, access.atomic),
        )
        kept.setdefault(key, access)
    return list(kept.values())


def prove_bounds(program: Program) -> tuple[int, int, str]:
    """Windows that are inside their tensors for all sizes; how many there are; why not all."""
    library = isl()
    found = _distinct(Accesses.of(program).found)
    if library is None:
        return 0, len(found), INSTALL
    shown, why = 0, ""
    for access in found:
        if all(_inside(access, axis, program, library) for axis in range(len(access.offset))):
            shown += 1
        elif not why:
            why = f"not proved: `{access.root.name}` at {_place(access.loc)}"
    return shown, len(found), why


def _inside(access: Access, axis: int, program: Program, library: Any) -> bool:
    offset, extent = access.offset[axis], access.extent[axis]
    size = access.root.type.shape[axis]  # type: ignore[union-attr]
    if offset is None or not isinstance(size, int):
        return False
    for wrong in ("{0} < 0", f"{{0}} + {extent} > {size}"):
        points = Points(parameters(program))
        points.iterate(access, "a", bounded=True)
        points.constraints.append(wrong.format(points.text(offset, "a")))
        if not points.is_empty(library)[0]:
            return False
    return True


def _place(loc: Any) -> str:
    return f"{display_path(loc.file)}:{loc.line}"
