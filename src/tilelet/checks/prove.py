"""Prove for all trip counts and sizes that unordered accesses are disjoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilelet.analysis.aliases import is_tensor
from tilelet.checks.forms import Term, extent_form
from tilelet.checks.parallel_loops import parallel_loops
from tilelet.checks.polyhedra import (
    Access,
    Accesses,
    Bounded,
    Loop,
    Points,
    isl,
    loops_in_common,
    pairs,
    parameters,
)
from tilelet.dataclasses import dataclass
from tilelet.device.schedule.arrays import LOOKS_UP, REGISTERS, Stream
from tilelet.diag.source import display_path
from tilelet.ir.core import Op, Program, Value
from tilelet.ir.views import CallView

MAX_QUESTIONS = 3000
"""Limit on isl queries, at about a millisecond each."""

INSTALL = "not proved for all sizes: needs islpy, `pip install 'tilelet[prove]'`"


@dataclass(frozen=True)
class Proof:
    """Whether a property was proved for all sizes; if not, the reason in one line."""

    holds: bool
    why: str = ""


def prove_order(program: Program, stream: Stream) -> Proof:
    """Prove that no two unordered accesses, at least one a write, touch the same bytes.

    Iterations of `pl.parallel` in a kernel count as unordered: a compiler may rely on that.
    """
    library = isl()
    if library is None:
        return Proof(False, INSTALL)
    for loop in parallel_loops(program):
        if any(not is_tensor(v) for v in loop.carried):
            why = "iterations of `pl.parallel` share a tile or scalar"
            return Proof(False, f"not proved for all sizes: {why} ({_place(loop.op.loc)})")
    found = Accesses.of(program)
    if found.gaps:
        loc, why = found.gaps[0]
        return Proof(False, f"not proved for all sizes: {why} ({_place(loc)})")
    return _Order(program, stream, library, found).proof()


class _Order:
    def __init__(self, program: Program, stream: Stream, library: object, found: Accesses) -> None:
        self.program = program
        self.library = library
        self.found = found
        self.params = parameters(program)
        self.asked = 0
        self.deps: dict[Op, set[Op]] = _named_dependencies(found.order)
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
                if self.asked > MAX_QUESTIONS:
                    return Proof(False, "not proved for all sizes: too many pairs of accesses")
                point = self._shown(a, b, question)
                if point is not None:
                    return Proof(False, self._why(a, b, point))
        return Proof(True)

    def _questions(self, a: Access, b: Access) -> list[Question]:
        """Return constraints under which the two accesses must not overlap."""
        common = loops_in_common(a, b)
        asked: list[Question] = []
        if a.site is b.site and len(a.loops) > a.outer and a.loops[a.outer].op is a.site:
            asked.append(Question(a.loops[: a.outer], a.loops[a.outer]))
        both = self._waits(a, b) and self._waits(b, a)
        for i, loop in enumerate(common):
            if not both or loop.parallel:
                asked.append(Question(common[:i], loop))
        first, second = (a, b) if self._before(a.site, b.site) else (b, a)
        named = first.site in self.deps[second.site]
        if a.site is not b.site and not named and not self._waits(first, second):
            asked.append(Question(common))
        if a.site is b.site:
            asked += _parallel_questions(a, b)
        return asked

    def _before(self, a: Op, b: Op) -> bool:
        return self.found.order[a] < self.found.order[b]

    def _waits(self, first: Access, second: Access) -> bool:
        """Return whether the rules make the second wait for the first if they overlap."""
        return bool(self._flag(first) & REGISTERS and self._flag(second) & LOOKS_UP)

    def _flag(self, access: Access) -> int:
        flags = self.flags.get((CallView(access.site).callee, id(access.site.loc)), [])
        return flags[access.position] if access.position < len(flags) else 0

    def _shown(self, a: Access, b: Access, question: Question) -> dict[str, str] | None:
        """Return None if the two never overlap, else where they may."""
        point: dict[str, str] = {}
        for bounded in (False, True):
            points = Points(self.params, self.found.meanings)
            names = [points.iterate(x, side, bounded=bounded) for x, side in ((a, "a"), (b, "b"))]
            for loop in a.made_in:
                i = a.loops.index(loop)
                points.constraints.append(f"{names[0][i]} = {names[1][i]}")
            question.constrain(points, names)
            element = [points.variable("e", axis) for axis in range(len(a.offset))]
            points.cover(a, "a", element)
            points.cover(b, "b", element)
            points.share(self.found.within, question.same)
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
                f"not proved for all sizes: the offset into `{vague.root.name}` is not affine in "
                f"loops and parameters ({_place(vague.loc)})"
            )
        sides = [
            ", ".join(text for name, text in point.items() if name.startswith(side))
            for side in ("a", "b")
        ]
        given = ", ".join(text for name, text in point.items() if name.startswith("p"))
        return (
            f"not proved for all sizes: {_place(a.loc)} ({sides[0] or 'once'}) and "
            f"{_place(b.loc)} ({sides[1] or 'once'}) may both access "
            f"`{a.root.name}[{point['element']}]`{f' if {given}' if given else ''}"
        )


def _parallel_questions(a: Access, b: Access) -> Iterator[Question]:
    """Yield a question for each loop of `pl.parallel` in a kernel that is around both accesses."""
    for i, (loop, other) in enumerate(zip(a.loops, b.loops)):
        if loop.op is not other.op:
            return
        if i >= a.outer and loop.parallel:
            yield Question(a.loops[:i], loop)


def _named_dependencies(order: Mapping[Op, int]) -> dict[Op, set[Op]]:
    """Return the calls that each call waits for because of `deps=`, transitively.

    The task id visible to a call is that of a call in the same iteration of all its enclosing
    loops.
    """
    made_by: dict[Value, Op] = {}
    found: dict[Op, set[Op]] = {}
    for site in order:
        found[site] = set()
        for task in CallView(site).deps:
            if isinstance(task, Value) and task in made_by:
                found[site] |= {made_by[task], *found[made_by[task]]}
        if site.args["task_id"]:
            made_by[site.results[-1]] = site
    return found


@dataclass(frozen=True)
class Question:
    """Two accesses in the same iteration of some loops, and in different ones of another."""

    same: Sequence[Loop]
    other: Loop | None = None

    def constrain(self, points: Points, names: list[list[str]]) -> None:
        for i in range(len(self.same)):
            points.constraints.append(f"{names[0][i]} = {names[1][i]}")
        if self.other is not None:
            i = len(self.same)
            points.constraints.append(f"{names[0][i]} != {names[1][i]}")


def _distinct(found: list[Access]) -> list[Access]:
    kept: dict[object, Access] = {}
    for access in found:
        key = (
            *(access.site, access.position, access.root, access.loops),
            *(access.offset, access.extent, access.limit, access.guards),
            *(access.writes, access.atomic),
        )
        kept.setdefault(key, access)
    return list(kept.values())


def prove_bounds(program: Program) -> tuple[int, int, str]:
    """Return the number of windows inside their tensors for all sizes, of all windows, and why not
    all.
    """
    library = isl()
    found = Accesses.of(program)
    count = len(found.bounded) + len(found.gaps)
    if library is None:
        return 0, count, INSTALL
    shown, why = 0, ""
    params = parameters(program)
    for window in found.bounded:
        if all(
            _is_inside(window, axis, found, params, library) for axis in range(len(window.offset))
        ):
            shown += 1
        elif not why:
            why = f"not proved: `{window.tensor.name}` at {_place(window.loc)}"
    if found.gaps and not why:
        loc, reason = found.gaps[0]
        why = f"not proved: {reason} ({_place(loc)})"
    return shown, count, why


def _is_inside(
    window: Bounded, axis: int, found: Accesses, params: Sequence[Term], library: object
) -> bool:
    offset = window.offset[axis]
    if offset is None:
        return False
    points = Points(params, found.meanings)
    points.iterate(window, "a", bounded=True)
    start = points.text(offset, "a")
    wrong = [f"{start} < 0"]
    needed = window.needed[axis]
    if needed is not None:
        size = points.text(extent_form(window.extents[axis]), "a")
        # A window without valid elements must still start inside.
        wrong += [f"{start} + {points.text(needed, 'a')} > {size}", f"{start} > {size}"]
    points.constraints.append(f"({' or '.join(wrong)})")
    return points.is_empty(library)[0]


def _place(loc: Any) -> str:
    return f"{display_path(loc.file)}:{loc.line}"
