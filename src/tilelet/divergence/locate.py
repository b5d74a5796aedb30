"""Find the first wrong statement of a program whose outputs do not match a golden.

1. Memory that was never written, or read before it was written, is found in the record.
2. From a wrong region of an output, statements are followed backwards until their tiles agree with
   an array of the golden. The statements in between are suspects.
3. Each suspect is edited in the ways in which programs are usually wrong, and what depends on it is
   executed again: an edit that makes the output correct identifies the statement and the mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilelet.analysis.aliases import is_tensor
from tilelet.diag.core import Loc, UserError
from tilelet.diag.internal import InternalError
from tilelet.divergence import edits, unstored
from tilelet.divergence.agreement import Agreement
from tilelet.divergence.edits import Edit, Visible
from tilelet.divergence.error_map import Array, Bools
from tilelet.divergence.golden_trace import Intermediate
from tilelet.divergence.matching import CLOSE, Match, Matcher
from tilelet.divergence.record import NOBODY, Event, Trace, is_tensor_load
from tilelet.divergence.replay import STEPS_PER_SECOND, Replay
from tilelet.divergence.rounding_bounds import double_function
from tilelet.divergence.scales import MissingScales
from tilelet.ir.core import Function, FunctionKind, Op, Program, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TileType

Masks = Mapping[str, Bools]
Progress = Callable[[str], None]

_MAX_WRITERS = 12
_MAX_PREDICTED = 120
_MAX_TAKEN = 3
_LAST_COST = 3
_CONTROL_COST = 2
"""Cost at which windows of the control program are tried, since each needs a complete run."""
_MAX_LEFT_WRONG = 0.02
"""Share of the wrong elements that a repair may leave wrong, because rounding moves a few."""
_MAX_AGREEING_ERROR = 1 / 3
"""Largest error of an agreeing tile, as a share of the error of the wrong region."""
_LEAST_CLOSE = 2e-5
_LIKELY_NUMBERS = 3
"""How many of the golden's numbers are tried as factors everywhere."""
_PARTLY_ERROR = 0.1
_MAX_PARTIALLY_WRONG = 0.5
"""Share of wrong elements that a partial repair may leave, if there is no better one."""


@dataclass(frozen=True)
class GoldenCase:
    """A program with its inputs and expected outputs.

    arguments      by parameter, as before the run
    expected       by parameter, for the outputs that are compared
    passes         whether the script's own comparison would pass
    differ         which elements of outputs are not close, by parameter
    intermediates  the arrays that the golden computed
    numbers        the fractional numbers that it used
    """

    program: Program
    arguments: Mapping[str, Any]
    expected: Mapping[str, Array]
    passes: Callable[[Mapping[str, Array]], bool]
    differ: Callable[[Mapping[str, Array], Mapping[str, Array]], Masks]
    intermediates: Sequence[Intermediate] = ()
    note: str = ""
    rtol: float = 1e-5
    atol: float = 1e-5
    numbers: Sequence[float] = ()

    def mismatches(self, made: Mapping[str, Array]) -> Masks:
        """Return which elements of the outputs are wrong, by parameter."""
        return self.differ(made, self.expected)


@dataclass(frozen=True)
class Statement:
    """An executed statement: its location, task, iteration and tile."""

    loc: Loc
    op: str
    kernel: str
    task: int
    iteration: tuple[tuple[str, int], ...]
    tile: str

    def to_data(self) -> dict[str, Any]:
        return {
            "file": self.loc.file,
            "line": self.loc.line,
            "op": self.op,
            "kernel": self.kernel,
            "task": self.task,
            "iteration": dict(self.iteration),
            "tile": self.tile,
        }


@dataclass(frozen=True)
class Worst:
    """The worst element of a wrong output."""

    output: str
    index: tuple[int, ...]
    actual: float
    expected: float


@dataclass(frozen=True)
class Divergence:
    """Where a program first goes wrong.

    kind       "wrong operand", "rounding mode", "missing write", "undefined read", "padding read",
               "accumulation", "offset", "real error", ...
    statement  the statement; None if only the outputs are known to be wrong
    repair     the edit that makes the outputs correct, if one was found
    last       the last tile that agrees with the golden, and with what
    first      the first that does not
    before     relative L2 error of the output; `after` is the error with the repair
    suspects   statements between agreement and the wrong output, if there is no repair
    unused     for unwritten memory: statements whose results are never used
    unstored   for unwritten memory: the statement whose result fits there and is never stored
    over       for unwritten memory: a store that the first suspect overwrites
    taken      without a repair: the last loads before the first suspect, and what they load
    """

    kind: str
    statement: Statement | None
    worst: Worst | None = None
    repair: Edit | None = None
    last: tuple[Statement, Match] | None = None
    first: Statement | None = None
    before: float = math.nan
    after: float = math.nan
    suspects: tuple[Statement, ...] = ()
    region: str = ""
    notes: tuple[str, ...] = ()
    unused: tuple[Statement, ...] = ()
    unstored: Statement | None = None
    over: Statement | None = None
    taken: tuple[tuple[Statement, str], ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether the repair makes most, but not all, of the output correct."""
        return self.after > _PARTLY_ERROR * self.before


@dataclass
class _Slice:
    """The statements that a wrong region was computed from, back to those that agree."""

    suspects: list[int] = field(default_factory=list[int])
    agreeing: dict[int, Match] = field(default_factory=dict[int, Match])
    tasks: set[int] = field(default_factory=set[int])

    @cached_property
    def inside(self) -> frozenset[int]:
        return frozenset(self.suspects)


KINDS = {
    "swapped operands": "wrong operand",
    "wrong operand": "wrong operand",
    "transposed operand": "wrong operand",
    "cast mode": "rounding mode",
    "pad value": "padding read",
    "valid region": "wrong valid region",
    "offset": "wrong offset",
    "loop bounds": "wrong loop bounds",
    "accumulation": "lost accumulation",
    "other op": "wrong op",
    "missing op": "missing op",
    "scale": "missing scale",
    "constant": "wrong constant",
    "unused value": "unused value",
}


class Locator:
    """Searches one case for its first wrong statement."""

    def __init__(
        self,
        case: GoldenCase,
        budget: float,
        say: Progress = lambda _: None,
        suspicious: Sequence[Op] = (),
        errors: Mapping[int, float] | None = None,
    ) -> None:
        """`budget` is in seconds of `STEPS_PER_SECOND`; `suspicious` ops are tried first.

        `errors` are the known errors of events against double.
        """
        self.case = case
        self._errors = errors or {}
        self.say = say
        self._suspicious = list(dict.fromkeys(suspicious))
        self.replay = Replay(case.program, case.arguments)
        self._limit = budget * STEPS_PER_SECOND
        self.trace: Trace = self.replay.trace
        self.actual = {name: array.copy() for name, array in self.replay.run.arrays.items()}
        self.wrong = {n: m for n, m in case.mismatches(self.actual).items() if m.any()}
        self.tried = 0
        self.notes: list[str] = [case.note] if case.note else []
        self._visible: dict[str, Visible] = {}
        self._predicted: dict[Edit, Match] = {}
        self._matcher = Matcher(())
        shapes = [w.shape for w in self.replay.run.parameters.values()]
        self._extents = {n for shape in shapes for n in shape if n > 1}

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up; matching is not counted, it is bounded."""
        return self.replay.steps > self._limit

    @property
    def agrees(self) -> bool:
        return not self.wrong or self.case.passes(self.actual)

    def locate(self) -> Divergence | None:
        """Return the divergence, or None if there is none."""
        if self.agrees:
            return None
        found = self._missing_write()
        if found is not None:
            return found
        writer, output = self._focus()
        undefined = self._undefined_read(writer)
        if undefined is not None:
            return undefined
        near = self._slice(writer)
        self.say(f"{len(near.suspects)} suspect statements")
        self._predicted = self._predictions(near, self._matcher)
        repair, after = self._repair(writer, output, near)
        first = self._first_suspect(near, writer)
        return Divergence(
            kind=KINDS[repair.kind] if repair else "real error",
            statement=self._statement_of(repair, near) if repair else self._best_guess(near, first),
            worst=self._worst(output),
            repair=repair,
            last=self._last_agreeing(near),
            first=self.statement(first),
            before=self._error(output, self.actual[output]),
            after=after,
            suspects=self._suspects(near),
            notes=tuple(self.notes),
            taken=() if repair else self._taken(first),
        )

    def _taken(self, number: int) -> tuple[tuple[Statement, str], ...]:
        """Return what a statement loads in its own task.

        Correct values loaded from the wrong place also agree with the golden.
        """
        found: dict[Op, int] = {}
        for n in sorted(self._everything_before(number), reverse=True):
            event = self.trace.events[n]
            if event.task == self.trace.events[number].task and is_tensor_load(event.op):
                found.setdefault(event.op, n)
        return tuple((self.statement(n), self._loaded(n)) for n in [*found.values()][:_MAX_TAKEN])

    def _loaded(self, number: int) -> str:
        window = self.trace.events[number].window
        assert window is not None
        box = zip(*self.trace.box_of(window))
        return f"{window.buffer.name}[{', '.join(f'{a}:{b}' for a, b in box)}]"

    def _first_suspect(self, near: _Slice, writer: int) -> int:
        """Return the suspect with the fewest suspects before it, ignoring constants."""
        constant: set[int] = set()
        for n in near.suspects:
            event = self.trace.events[n]
            made = event.writes or not event.windows
            if (made and constant.issuperset(event.inputs)) or _is_flat(event):
                constant.add(n)
        return min(
            (n for n in near.suspects if n not in constant),
            default=writer,
            key=lambda n: (self._depth(n, near, constant), n),
        )

    def _best_guess(self, near: _Slice, first: int) -> Statement:
        """Without a repair, return a suspicious op, an unused value, or the first suspect."""
        for number, event in enumerate(self.trace.events):
            if event.op in self._suspicious:
                return self.statement(number)
        forgotten = self._forgotten(near)
        unused = self._unused_results()
        tasks = {self.trace.events[number].task for number in near.suspects}
        near_by = [statement for statement in unused if statement.task in tasks]
        return (*forgotten, *near_by, *unused, self.statement(first))[0]

    def _forgotten(self, near: _Slice) -> list[Statement]:
        """Return suspects that overwrite a loop-carried value that was never used."""
        found: list[Statement] = []
        ops = {self.trace.events[n].op: n for n in reversed(near.suspects)}
        for function in dict.fromkeys(self.trace.function[op] for op in ops):
            visible = self._visible_in(function)
            for value, op in visible.renewed:
                if value in visible.unused and op in ops:
                    found.append(self.statement(ops[op]))
                    self.notes.append(
                        f"the loop carries `{value.name}`, but its value before line "
                        f"{op.loc.line} is never used"
                    )
        return found

    # Findings from the record alone

    def statement(self, number: int) -> Statement:
        event = self.trace.events[number]
        trace = self.trace
        name = _name(event.op)
        kernel, iteration = trace.kernel(event), trace.iteration(event)
        return Statement(event.op.loc, event.op.name, kernel, event.task, iteration, name)

    def _statement_of(self, repair: Edit, near: _Slice) -> Statement:
        op = repair.op
        if repair.place is not None:
            events = [n for n, e in enumerate(self.trace.events) if e.op.loc == repair.place]
            if events:
                return self.statement(events[-1])
        events = [n for n in (*near.suspects, *near.agreeing) if self.trace.events[n].op is op]
        if events:
            return self.statement(min(events))
        function = self.trace.function[op]
        kernel = function.name if function.kind is FunctionKind.InCore else ""
        return Statement(op.loc, op.name, kernel, NOBODY, (), _name(op))

    def _missing_write(self) -> Divergence | None:
        """Find wrong elements of an output that no statement wrote."""
        for output, bad in self.wrong.items():
            origins = self.trace.origins.view(self.replay.run.parameters[output])
            missing = bad & (origins == NOBODY)
            if not missing.any() or missing.sum() < 0.5 * bad.sum():
                continue
            others = self.trace.origins.writers(self.replay.run.parameters[output])
            statement = self.statement(_neighbor(origins, missing, others)) if others else None
            fits = unstored.for_output(self.trace, output, self.case.expected[output], missing)
            return Divergence(
                "missing write",
                statement,
                self._worst(output),
                region=_region_text(output, missing),
                before=self._error(output, self.actual[output]),
                notes=tuple(self.notes),
                unused=self._unused_results(),
                unstored=None if fits is None else self.statement(fits),
            )
        return None

    def _unused_results(self) -> tuple[Statement, ...]:
        """Return the statements whose tile is never used: candidates for a missing store."""
        first: dict[Op, int] = {}
        for number, event in enumerate(self.trace.events):
            if event.op not in first and event.op.results:
                unused = self._visible_in(self.trace.function[event.op]).unused_in_the_end
                if unused.intersection(event.op.results):
                    first[event.op] = number
        return tuple(self.statement(number) for number in first.values())

    def _undefined_read(self, writer: int) -> Divergence | None:
        """Find the first load of unwritten memory that led to a wrong region."""
        for number in sorted(self._everything_before(writer)):
            event = self.trace.events[number]
            if event.undefined is None or event.window is None:
                continue
            buffer = event.window.buffer
            start, stop = event.undefined
            region = ", ".join(f"{a}:{b}" for a, b in zip(start, stop))
            others = [
                n
                for n, e in enumerate(self.trace.events)
                if e.writes and e.window is not None and e.window.buffer is buffer
            ]
            over = unstored.find_misplaced(self.trace, others)
            fits = unstored.for_memory(self.trace, number, buffer, event.undefined)
            return Divergence(
                "undefined read",
                self.statement(number),
                region=f"{buffer.name}[{region}]",
                suspects=tuple(self.statement(n) for n in (over or others)[:1]),
                over=self.statement(over[1]) if over else None,
                notes=tuple(self.notes),
                unused=self._unused_results(),
                unstored=None if fits is None else self.statement(fits),
            )
        return None

    # Backwards from a wrong region

    def _everything_before(self, *numbers: int) -> set[int]:
        seen, waiting = set(numbers), list(numbers)
        while waiting:
            for n in self.trace.events[waiting.pop()].inputs:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return seen

    def _focus(self) -> tuple[int, str]:
        """Return the wrong write with the fewest statements before it, and its output."""
        candidates: list[tuple[int, str]] = []
        for output, bad in self.wrong.items():
            origins = self.trace.origins.view(self.replay.run.parameters[output])
            writers, counts = np.unique(origins[bad], return_counts=True)
            pairs = sorted(zip((-counts).tolist(), writers.tolist()))
            candidates += [(int(n), output) for _, n in pairs[:_MAX_WRITERS] if n != NOBODY]
        return min(candidates, key=lambda c: (len(self._everything_before(c[0])), c[0]))

    def _slice(self, writer: int) -> _Slice:
        near = _Slice(tasks={self.trace.events[n].task for n in self._everything_before(writer)})
        self._matcher = Matcher(self.case.intermediates)
        agreement = Agreement(self.trace, self._matcher, self._errors, self._closest(writer))
        waiting, seen = [writer], {writer}
        while waiting:
            number = max(waiting)
            waiting.remove(number)
            event = self.trace.events[number]
            match = agreement.of(number) if number != writer else None
            if match is not None:
                near.agreeing[number] = match
                continue
            near.suspects.append(number)
            for n in event.inputs:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        near.suspects.sort()
        return near

    def _closest(self, writer: int) -> float:
        """Return the limit on a tile's distance from the golden, given that its region is wrong.

        A small wrong term in a large sum changes it only a little, so the limit depends on the
        region.
        """
        for output in self.wrong:
            mask = self.trace.origins.view(self.replay.run.parameters[output]) == writer
            if mask.any():
                expected = self.case.expected[output][mask].astype(np.float64)
                error = _relative(self.actual[output][mask].astype(np.float64), expected)
                return max(_MAX_AGREEING_ERROR * error, _LEAST_CLOSE)
        return CLOSE

    def _depth(self, number: int, near: _Slice, known: Container[int] = ()) -> int:
        """Return how many suspects precede a suspect: 0 if all its inputs agree."""
        inputs = self.trace.events[number].inputs
        return sum(1 for n in inputs if n in near.inside and n not in known)

    def _last_agreeing(self, near: _Slice) -> tuple[Statement, Match] | None:
        made = [n for n in near.agreeing if not self.trace.events[n].op.spec.is_window_load]
        if not made and not near.agreeing:
            return None
        number = max(made or near.agreeing)
        return self.statement(number), near.agreeing[number]

    def _suspects(self, near: _Slice) -> tuple[Statement, ...]:
        first: dict[Loc, int] = {}
        for n in near.suspects:
            first.setdefault(self.trace.events[n].op.loc, n)
        return tuple(self.statement(n) for n in first.values())

    # Repairs

    def _repair(self, writer: int, output: str, near: _Slice) -> tuple[Edit | None, float]:
        """Return the cheapest edit that makes all, or at least most, outputs correct."""
        mask = self.trace.origins.view(self.replay.run.parameters[output]) == writer
        total = sum(int(m.sum()) for m in self.wrong.values())
        partly: tuple[int | float, Edit] | None = None
        whole = _Slice(sorted(self._everything_before(writer)), {}, near.tasks)
        done: set[Op] = set()
        # A tile may agree by chance or belong to another place, so all statements are tried next.
        for within in (near, whole):
            ranked = [op for op in self._ranked(within) if op not in done]
            done.update(ranked)
            for cost in range(1, _LAST_COST + 1):
                for edit in self._edits(ranked, cost, with_control=within is near):
                    if self.is_spent:
                        self.notes.append(
                            f"budget spent after {self.tried} repairs: try a larger --budget"
                        )
                        return self._with_error(partly[1] if partly else None, output)
                    if not self._mends(edit, output, mask, near.tasks):
                        continue
                    left = self._left_wrong(edit)
                    if left <= _MAX_LEFT_WRONG * total:
                        return self._with_error(self._latest(edit, ranked, output, mask), output)
                    if left <= _MAX_PARTIALLY_WRONG * total and (
                        partly is None or left < partly[0]
                    ):
                        partly = left, edit
        return self._with_error(partly[1] if partly else None, output)

    def _latest(self, edit: Edit, ranked: Sequence[Op], output: str, mask: Bools) -> Edit:
        """Move a factor to the best position in a linear chain of ops.

        If the golden has the scaled result, the factor belongs there, or where that result only
        moves; otherwise at the last op of the chain.
        """
        if edit.kind != "scale":
            return edit
        order = self._last_events()
        moved = self._scales.movable(edit.op)
        later = [op for op in sorted(ranked, key=lambda op: -order.get(op, 0)) if op is not edit.op]
        if edit in self._predicted:
            later = moved[::-1]
        for op in later:
            if order.get(op, 0) < order.get(edit.op, 0) or self.is_spent:
                break
            for other in edits.scale_result(op, [edit.value]):
                if self._mends(other, output, mask, None) and self._left_wrong(other) == 0:
                    return self._between(edit, other)
        return edit

    def _between(self, first: Edit, last: Edit) -> Edit:
        if first.loc.line != last.loc.line:
            self.notes.append(
                f"the factor {first.value:.6g} is missing somewhere from line {first.loc.line} "
                f"(`{_name(first.op)}`) to line {last.loc.line} (`{_name(last.op)}`)"
            )
        return last

    def _last_events(self) -> dict[Op, int]:
        return {event.op: number for number, event in enumerate(self.trace.events)}

    def _with_error(self, edit: Edit | None, output: str) -> tuple[Edit | None, float]:
        if edit is None:
            return None, math.nan
        return edit, self._error(output, self.replay.outputs(edit)[output])

    def _ranked(self, near: _Slice) -> list[Op]:
        """Return the ops to try: suspects first, those with agreeing inputs before others."""
        depth: dict[Op, int] = {}
        for n in near.suspects:
            op = self.trace.events[n].op
            depth[op] = min(depth.get(op, 1 << 30), self._depth(n, near))
        # A load or store may use the correct values at the wrong place.
        moving = dict.fromkeys(self.trace.events[n].op for n in near.agreeing)
        # Padding does not appear in any array of a golden.
        before = sorted(self._everything_before(*near.agreeing), reverse=True)
        padding = filter(_is_about_padding, (self.trace.events[n].op for n in before))
        ranked = [*self._suspicious, *sorted(depth, key=lambda op: depth[op]), *moving, *padding]
        return list(dict.fromkeys(ranked))

    def _edits(self, ranked: Sequence[Op], cost: int, with_control: bool) -> Iterator[Edit]:
        """Yield the edits of that cost."""
        if cost == 1:
            for op in dict.fromkeys(edit.op for edit in self._predicted):
                # One wrong op or number is more likely than a missing op.
                if not op.blocks:
                    yield from (e for e in self._edits_of(op) if e.cost == 1)
                    yield from self._constants(op)
                for user in self._users(op):
                    yield from edits.other_ops(user)
                yield from (edit for edit in self._predicted if edit.op is op)
            yield from self._uses_of_unused(ranked)
        likely = [f for n in self.case.numbers[:_LIKELY_NUMBERS] for f in (n, 1 / n)]
        for op in ranked:
            yield from (e for e in self._edits_of(op) if e.cost == cost)
            if cost == 1 and (Trait.ARITHMETIC in op.spec.traits or self._carries(op)):
                yield from edits.scale_result(op, likely)
        if cost == _CONTROL_COST:
            for op in self._loops_around(ranked):
                yield from edits.loop_bounds(op)
        if with_control and cost == _CONTROL_COST:
            for op in self._control_windows():
                yield from (e for e in edits.offsets(op) if e.cost == 1)

    def _carries(self, op: Op) -> bool:
        """Return whether an op loads what tasks pass on through memory."""
        return is_tensor_load(op) and any(
            event.inputs for event in self.trace.events if event.op is op
        )

    def _loops_around(self, ranked: Sequence[Op]) -> Iterator[Op]:
        """Yield the kernel loops that contain some of these ops."""
        inside = set(ranked)
        for function in dict.fromkeys(self.trace.function[op] for op in ranked):
            if function.kind is FunctionKind.InCore:
                for loop in walk(function.body):
                    if loop.name == "for" and inside.intersection(walk(loop.blocks[0])):
                        yield loop

    def _users(self, op: Op) -> Iterator[Op]:
        """Yield the ops that use an op's result."""
        results = set(op.results)
        for other in walk(self.trace.function[op].body):
            if not other.blocks and results.intersection(other.operands):
                yield other

    def _predictions(self, near: _Slice, matcher: Matcher) -> dict[Edit, Match]:
        """Return edits that would turn a tile into one of the golden's, by values alone."""
        numbers: dict[Op, list[int]] = {}
        for n in (*near.suspects, *(self._viewed(n) for n in near.agreeing)):
            numbers.setdefault(self.trace.events[n].op, []).append(n)
        missing: dict[Edit, Match] = {}
        scales: list[tuple[int, Edit, Match]] = []
        for op, events in list(numbers.items())[:_MAX_PREDICTED]:
            tile = self.trace.events[events[0]].tile
            if tile is None or self.is_spent:
                continue
            ends = events[0], max(events)
            moves = op.spec.is_window_load or Trait.TILE_VIEW in op.spec.traits
            if not moves or ends[0] in near.agreeing:
                scales += [(ends[0], e, match) for e, match in self._scales.of(op, ends)]
            if moves:
                continue
            missing.update(self._missing_ops(op, tile.cut.astype(np.float64), matcher))
        # Use the first op of a chain that a factor passes through.
        scales.sort(key=lambda s: s[0])
        return missing | {edit: match for _, edit, match in scales}

    def _missing_ops(self, op: Op, data: Array, matcher: Matcher) -> Iterator[tuple[Edit, Match]]:
        """Yield functions of a tile that the golden has."""
        for edit in edits.insert_op(op):
            function = double_function(edit.ops[-1].name) if edit.value == 0 else None
            if function is None or len(edit.ops[-1].operands) != 1:
                continue
            with np.errstate(all="ignore"):
                made = function(data)
                same = _relative(data, made) <= 2 * CLOSE  # for example `relu` of positive values
            match = None if same else matcher.find(made)
            if match is not None:
                yield edit, match

    @cached_property
    def _scales(self) -> MissingScales:
        arrays = self.case.intermediates
        return MissingScales(self.trace, arrays, self._matcher, self._factors)

    def _viewed(self, number: int) -> int:
        """Return the statement whose tile a view shows."""
        event = self.trace.events[number]
        while Trait.TILE_VIEW in event.op.spec.traits and len(event.inputs) == 1:
            (number,) = event.inputs
            event = self.trace.events[number]
        return number

    def _uses_of_unused(self, ranked: Sequence[Op]) -> Iterator[Edit]:
        """Yield edits that use a value that is computed but never used."""
        for function in dict.fromkeys(self.trace.function[op] for op in ranked):
            visible = self._visible_in(function)
            if function.kind is not FunctionKind.InCore or not visible.unused:
                continue
            for op in walk(function.body):
                if not op.blocks:
                    yield from edits.use_unused(op, visible.unused_before(op), visible.params)

    def _visible_in(self, function: Function) -> Visible:
        if function.name not in self._visible:
            self._visible[function.name] = Visible(function.body, function.params)
        return self._visible[function.name]

    def _control_windows(self) -> Iterator[Op]:
        """Yield the windows that the control program passes to tasks."""
        for function in self.case.program.functions.values():
            if function.kind is not FunctionKind.InCore:
                for op in walk(function.body):
                    if op.spec.is_window_load and is_tensor(op.results[0]):
                        yield op

    def _edits_of(self, op: Op) -> Iterator[Edit]:
        visible = self._visible_in(self.trace.function[op])
        factors = _factors(op, self._extents)
        yield from edits.swap_operands(op)
        yield from edits.cast_modes(op)
        yield from edits.pads(op)
        yield from edits.other_ops(op)
        yield from edits.flags(op)
        yield from edits.offsets(op)
        yield from edits.valid_regions(op)
        yield from edits.loop_offsets(op, visible.before.get(op, ()))
        yield from edits.add_accumulation(op, visible.carried.get(op, ()))
        yield from edits.remove_accumulation(op)
        yield from edits.rescale_carried(
            op, visible.carried.get(op, ()), visible.before.get(op, ())
        )
        yield from self._constants(op)
        if not op.spec.is_window_load and Trait.TILE_VIEW not in op.spec.traits:
            yield from edits.insert_op(op)
            yield from edits.scale_result(op, factors)
        yield from edits.other_operands(op, visible.before.get(op, ())[:24])

    def _constants(self, op: Op) -> Iterator[Edit]:
        numbers = [n for number in self.case.numbers for n in (number, 1 / number)]
        return edits.constants(op, _factors(op, self._extents), numbers)

    def _factors(self, op: Op) -> list[float]:
        """Return likely factors for a result, including the golden's numbers.

        They are only matched, because executing with each would take too long.
        """
        factors = _factors(op, self._extents)
        return list(dict.fromkeys([*factors, *(f for n in self.case.numbers for f in (n, 1 / n))]))

    def _mends(self, edit: Edit, output: str, mask: Bools, tasks: set[int] | None) -> bool:
        """Return whether the edit corrects the region under consideration."""
        self.tried += 1
        if self.tried % 20 == 0:
            self.say(f"{self.tried} repairs tried")
        try:
            made = self.replay.outputs(edit, tasks)
        except (UserError, InternalError, ValueError, FloatingPointError):
            return False
        bad = self.case.mismatches(made)[output][mask]
        before = int(self.wrong[output][mask].sum())
        return int(bad.sum()) <= _MAX_LEFT_WRONG * before

    def _left_wrong(self, edit: Edit) -> int | float:
        """Count the elements left wrong; infinite if the edit cannot be applied in all tasks."""
        try:
            made = self.replay.outputs(edit)
        except (UserError, InternalError, ValueError, FloatingPointError):
            return math.inf
        if self.case.passes(made):
            return 0
        return sum(int(m.sum()) for m in self.case.mismatches(made).values())

    def _error(self, output: str, actual: Array) -> float:
        return _relative(actual.astype(np.float64), self.case.expected[output].astype(np.float64))

    def _worst(self, output: str) -> Worst:
        a = self.actual[output].astype(np.float64)
        e = self.case.expected[output].astype(np.float64)
        difference = np.where(self.wrong[output], np.nan_to_num(np.abs(a - e), nan=np.inf), -1.0)
        flat = int(np.argmax(difference))
        index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
        return Worst(output, index, float(a[index]), float(e[index]))


def _factors(op: Op, extents_of_parameters: set[int]) -> list[float]:
    """Return likely factors for a result, from extents of tiles and parameters."""
    extents = {2, *extents_of_parameters}
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TileType):
            extents.update(n for n in value.type.shape if n > 1)
    found: list[float] = []
    for n in sorted(extents):
        found += [n**-0.5, 1.0 / n]
    return [-1.0, *dict.fromkeys(found)]


def _relative(actual: Array, expected: Array) -> float:
    """Return the relative L2 error of the finite elements."""
    keep = np.isfinite(actual) & np.isfinite(expected)
    norm = float(np.linalg.norm(expected[keep]))
    return float(np.linalg.norm((actual - expected)[keep])) / norm if norm else math.inf


def _is_flat(event: Event) -> bool:
    """Return whether all elements of a tile are equal; such a tile cannot be matched."""
    if event.tile is None or not event.tile.cut.size:
        return False
    return bool((event.tile.cut == event.tile.cut.reshape(-1)[0]).all())


def _is_about_padding(op: Op) -> bool:
    return any(op.args.get(n) is not None for n in ("pad_value", "valid_shape", "valid_shapes"))


def _name(op: Op) -> str:
    return op.results[0].name if op.results else op.name


def _neighbor(origins: Array, missing: Bools, others: Sequence[int]) -> int:
    """Return the write that is nearest to the missing elements."""
    flat, gone = origins.reshape(-1), np.flatnonzero(missing.reshape(-1))
    written = np.flatnonzero(flat != NOBODY)
    if not written.size:
        return others[0]
    nearest = int(np.argmin(np.abs(written - gone[0])))
    return int(flat[written[nearest]])


def _region_text(name: str, mask: Bools) -> str:
    from tilelet.divergence.error_map import regions_of

    return ", ".join(f"{name}{region.text}" for region in regions_of(mask)[:3])
