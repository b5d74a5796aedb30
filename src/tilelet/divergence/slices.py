"""The statements that a wrong region was computed from, back to those that agree with the golden.

Indices count: the scalar arithmetic behind the windows of a statement, the loops around it, and the
call that passes arguments to its kernel belong to its statement list, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc
from tilelet.divergence.case import Statement
from tilelet.divergence.evidence import Agreement
from tilelet.divergence.matching import Match
from tilelet.divergence.record import NOBODY, Trace
from tilelet.divergence.source_text import statement_line
from tilelet.ir.core import Block, Function, FunctionKind, Op, Value, values_in
from tilelet.ir.views import CallView


@dataclass
class Slice:
    """Events between a wrong write and the tiles that agree.

    everything  the backward slice without regard to agreement
    suspects    events on a path from an agreeing tile, or from an input, to the wrong write
    agreeing    events where the search stopped
    """

    everything: frozenset[int]
    suspects: list[int] = field(default_factory=list[int])
    agreeing: dict[int, Match] = field(default_factory=dict[int, Match])

    @cached_property
    def inside(self) -> frozenset[int]:
        return frozenset(self.suspects)


class Slicer:
    """Follows a trace backwards, through tiles, memory, indices and loops."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._made_by: dict[Value, Op] = {}
        self._around: dict[Op, tuple[Op, ...]] = {}
        self._calls: dict[str, list[Op]] = {}
        for function in trace.program.functions.values():
            self._enter(function.body, ())
        self._passed: dict[Value, list[Value]] = {}
        for name, calls in self._calls.items():
            params = trace.program.functions[name].params
            for param, *given in zip(params, *(CallView(call).operands for call in calls)):
                self._passed[param] = [v for v in given if isinstance(v, Value)]
        self.lines = {(op.loc.file, op.loc.line) for op in self._around if not op.spec.terminator}

    def _enter(self, block: Block, around: tuple[Op, ...]) -> None:
        for op in block.ops:
            self._around[op] = around
            self._made_by.update(dict.fromkeys(op.results, op))
            if op.name == "call":
                self._calls.setdefault(CallView(op).callee, []).append(op)
            for inner in op.blocks:
                self._enter(inner, (*around, op))

    def before(self, *numbers: int) -> frozenset[int]:
        """Return some events together with all events that they were computed from."""
        seen, waiting = set(numbers), list(numbers)
        while waiting:
            for n in self.trace.events[waiting.pop()].inputs:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return frozenset(seen)

    def slice(self, writer: int, agreement: Agreement) -> Slice:
        found = Slice(self.before(writer))
        waiting, seen = [writer], {writer}
        while waiting:
            number = max(waiting)
            waiting.remove(number)
            match = agreement.of(number) if number != writer else None
            if match is not None:
                found.agreeing[number] = match
                continue
            found.suspects.append(number)
            for n in self.trace.events[number].inputs:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        found.suspects.sort()
        return found

    # Ops

    def ops(self, numbers: Iterable[int]) -> list[Op]:
        return list(dict.fromkeys(self.trace.events[n].op for n in numbers))

    def with_indices(self, ops: Iterable[Op]) -> list[Op]:
        """Return ops with their scalar arithmetic, loops, branches and calls, nearest first."""
        found = dict.fromkeys(self.with_scalars(ops))
        outer: dict[Op, None] = {}
        for op in list(found):
            outer.update(dict.fromkeys(self._outside(op)))
        return [*found, *(op for op in outer if op not in found)]

    def with_scalars(self, ops: Iterable[Op]) -> list[Op]:
        """Return ops with the scalar arithmetic of their indices."""
        return list(dict.fromkeys(found for op in ops for found in (op, *self._scalars(op))))

    def computing(self, scalars: Iterable[Value]) -> list[Op]:
        """Return the scalar arithmetic that computes some values, without loops and branches.

        A kernel's parameter is computed by what is passed for it.
        """
        given = [v for scalar in scalars for v in self._passed.get(scalar, (scalar,))]
        return [op for op in self._sources(given) if not op.blocks and not op.spec.structural]

    def around_value(self, value: Value) -> list[Loc]:
        """Return where a value is computed, and where it is used if that is one statement.

        A function of the value can be applied at either place.
        """
        users = [op.loc for op in self._around if value in op.operands]
        if len({(loc.file, statement_line(loc)) for loc in users}) != 1:
            return []
        maker = self._made_by.get(value)
        return [*users[:1], *([maker.loc] if maker is not None and not maker.blocks else [])]

    def _scalars(self, op: Op) -> Iterator[Op]:
        """Yield the scalar ops, loops and branches that an op's arguments come from."""
        yield from self._sources(values_in(op.args.values()))

    def _sources(self, scalars: Iterable[Value]) -> Iterator[Op]:
        waiting = [v for v in scalars if v in self._made_by]
        seen = set(waiting)
        while waiting:
            made = self._made_by[waiting.pop()]
            if made.blocks:  # a loop or branch decides which value arrives
                yield made
                yield from (block.terminator for block in made.blocks)
            elif any(hasattr(r.type, "shape") for r in made.results):
                continue
            else:
                yield made
            sources = [v for v in made.operands if not hasattr(v.type, "shape")]
            for v in sources:
                if v in self._made_by and v not in seen:
                    seen.add(v)
                    waiting.append(v)

    def _outside(self, op: Op) -> Iterator[Op]:
        """Yield the loops and branches around an op, their terminators, and its kernel's call."""
        function = self.trace.function.get(op)
        for outer in reversed(self._around.get(op, ())):
            yield outer
            yield from (block.terminator for block in outer.blocks)
            yield from self._scalars(outer)
        if function is not None and function.kind is FunctionKind.InCore:
            for call in self._calls.get(function.name, ()):
                yield call
                yield from self._scalars(call)
                yield from self._tensors(call)
                yield from self._outside(call)

    def _tensors(self, call: Op) -> Iterator[Op]:
        """Yield the windows that a call passes."""
        for value in values_in(CallView(call).operands):
            made = self._made_by.get(value)
            if made is not None and made.spec.is_window_load:
                yield made
                yield from self._scalars(made)

    # Statements

    def statement(self, number: int) -> Statement:
        event = self.trace.events[number]
        kernel, iteration = self.trace.kernel(event), self.trace.iteration(event)
        return Statement(
            event.op.loc, event.op.name, kernel, event.task, iteration, name_of(event.op)
        )

    def statement_of(self, op: Op, among: Iterable[int] = ()) -> Statement:
        """Return the first of some events of an op, else the op without a task."""
        events = [n for n in among if self.trace.events[n].op is op]
        if events:
            return self.statement(min(events))
        function: Function | None = self.trace.function.get(op)
        kernel = function.name if function and function.kind is FunctionKind.InCore else ""
        return Statement(op.loc, op.name, kernel, NOBODY, (), name_of(op))

    def statements(self, ops: Iterable[Op], among: Iterable[int]) -> tuple[Statement, ...]:
        """Return one statement per source line, in source order."""
        events = sorted(among)
        by_line: dict[tuple[str, int], Op] = {}
        for op in ops:
            by_line.setdefault((op.loc.file, op.loc.line), op)
        return tuple(self.statement_of(by_line[key], events) for key in sorted(by_line))


def name_of(op: Op) -> str:
    """Return the variable that an op defines, else the op's name."""
    return op.results[0].name if op.results else op.name
