"""Diagnose a program whose outputs do not match a golden, as far as that can be shown.

*repaired*: one statement can be changed so that all outputs are correct. *bounded*: the statements
between tiles that agree with the golden and a wrong output, or several statements each of which can
be changed. *not found*: nothing before the wrong output agrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from tilelet.dataclasses import dataclass, replace
from tilelet.divergence import edits, unstored
from tilelet.divergence.case import GoldenCase, Statement, Worst
from tilelet.divergence.edits import Edit, replaced_scalars
from tilelet.divergence.error_map import Bools, regions_of
from tilelet.divergence.evidence import Agreement
from tilelet.divergence.golden_trace import Intermediate
from tilelet.divergence.matching import CLOSE, Matcher
from tilelet.divergence.misplaced import WindowSearch
from tilelet.divergence.outer_values import with_outer_values
from tilelet.divergence.record import NOBODY, STEPS_PER_SECOND, is_tensor_load
from tilelet.divergence.repair import Repair, RepairSearch, WrongElements, relative_error
from tilelet.divergence.replay import Replay
from tilelet.divergence.slices import Slice, Slicer
from tilelet.divergence.source_text import assignments_without_op
from tilelet.ir.core import Op
from tilelet.ir.spec import Trait
from tilelet.numerics.casts import as_computable
from tilelet.tasks.window import Shape, Window

REPAIRED, BOUNDED, NOT_FOUND = "repaired", "bounded", "not found"

_MAX_WRITERS = 12
_MAX_PREDICTED = 120
_MAX_AGREEING_ERROR = 1 / 3
"""Largest error of an agreeing tile, as a share of the error of the wrong region."""
_MIN_TOLERANCE = 2e-5

KINDS = {
    "swapped operands": "wrong operand",
    "wrong operand": "wrong operand",
    "transposed operand": "wrong operand",
    "carried value": "wrong carried value",
    "missing assignment": "missing assignment",
    "cast mode": "rounding mode",
    "pad value": "padding read",
    "valid region": "wrong valid region",
    "offset": "wrong offset",
    "index": "wrong index",
    "swapped indices": "wrong index",
    "loop bounds": "wrong loop bounds",
    "accumulation": "lost accumulation",
    "other op": "wrong op",
    "missing op": "missing op",
    "dropped": "superfluous op",
    "order": "wrong order",
    "scale": "missing scale",
    "constant": "wrong constant",
}


@dataclass(frozen=True)
class Agreeing:
    """A tile that agrees with an array of the golden; `is_load`: it was loaded, not computed."""

    statement: Statement
    array: Intermediate
    is_load: bool


@dataclass(frozen=True)
class Divergence:
    """The diagnosis of a wrong output.

    grade      REPAIRED, BOUNDED or NOT_FOUND
    kind       the class of the mistake: of the repair, "missing write", "undefined read", or
               "difference"
    listed     REPAIRED: the statement to change; BOUNDED: the statements of which one is wrong
    repairs    changes that make all outputs correct, one per statement
    agreeing   tiles that agree with the golden and that `listed` statements use, and with what. The
               value is shown, not that it is the one meant: a bound holds if it is.
    first      the first tile that does not agree
    before     relative L2 error of the output; `after` is the error with the repair
    windows    loads with the first index of the window that they take, and of the one with which
               the next value would agree
    region     for unwritten memory: which
    unused     for unwritten memory: statements whose results are never used
    unstored   for unwritten memory: the statement whose result fits there and is never stored
    over       for unwritten memory: a store that writes, and one that it overwrites
    tried      number of edits tried; `is_complete`: all of them, within the budget
    """

    grade: str
    kind: str
    worst: Worst
    listed: tuple[Statement, ...] = ()
    repairs: tuple[Repair, ...] = ()
    agreeing: tuple[Agreeing, ...] = ()
    first: Statement | None = None
    before: float = math.nan
    after: float = math.nan
    windows: tuple[tuple[Statement, Shape, Shape], ...] = ()
    region: str = ""
    unused: tuple[Statement, ...] = ()
    unstored: Statement | None = None
    writers: tuple[Statement, ...] = ()
    over: Statement | None = None
    tried: int = 0
    is_complete: bool = True
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> Agreeing | None:
        """The last tile that agrees; loads only if no computed tile does."""
        made = [one for one in self.agreeing if not one.is_load]
        return next(iter(made or self.agreeing), None)

    @property
    def repair(self) -> Edit | None:
        """The change, if there is one statement to change."""
        return self.repairs[0].edit if self.grade == REPAIRED else None

    @property
    def statement(self) -> Statement | None:
        """The statement to change, if there is one."""
        return self.listed[0] if self.grade == REPAIRED else None


class Diagnosis:
    """Examines one case whose outputs are wrong."""

    def __init__(
        self,
        case: GoldenCase,
        budget: float,
        say: Callable[[str], None] = lambda _: None,
        suspicious: Sequence[Op] = (),
        errors: Mapping[int, float] | None = None,
    ) -> None:
        """`budget` is in seconds of `STEPS_PER_SECOND`; `suspicious` ops are tried first.

        `errors` are the known errors of events against double.
        """
        self._case = case
        self._errors = errors or {}
        self._suspicious = list(dict.fromkeys(suspicious))
        self._replay = Replay(with_outer_values(case.program), case.arguments)
        self._trace = self._replay.trace
        self._actual = {name: array.copy() for name, array in self._replay.run.arrays.items()}
        self._wrong = {n: m for n, m in case.mismatches(self._actual).items() if m.any()}
        self._slicer = Slicer(self._trace)
        self._search = RepairSearch(case, self._replay, budget * STEPS_PER_SECOND, say)

    def divergence(self) -> Divergence:
        """Return the diagnosis of the difference, as far as it goes."""
        found = self._unwritten_output()
        if found is None:
            found = self._wrong_values()
        return replace(found, tried=self._search.tried, is_complete=self._search.is_complete)

    # Wrong values

    def _wrong_values(self) -> Divergence:
        writer, output = self._focus()
        tiles = [e.tile.data.shape for e in self._trace.events if e.tile is not None]
        parts = self._case.partial({n for shape in tiles for n in shape})
        matcher = Matcher([*self._case.intermediates, *parts])
        agreement = Agreement(self._trace, matcher, self._errors, self._closest(writer))
        near = self._slicer.slice(writer, agreement)
        undefined = self._undefined_read(near)
        ranked = [op for op in self._ranked(near) if op in self._common]
        behind = set(near.everything)
        if self._overwriting(writer):
            also = self._slicer.before(*self._overwriting(writer))
            behind |= also
            ops = self._slicer.with_indices(self._slicer.ops(sorted(also, reverse=True)))
            ranked = list(dict.fromkeys([*ranked, *(op for op in ops if op in self._common)]))
        if undefined is not None:
            writers = self._writers_of(undefined)
            behind.update(writers)  # one of them may be meant for this place
            reads = self._slicer.ops([undefined, *writers])
            ranked = list(dict.fromkeys([*self._slicer.with_indices(reads), *ranked]))
        region = WrongElements(
            output,
            self._written_by(writer, output) & self._wrong[output],
            {self._trace.events[n].task for n in behind},
            self._window_written_once(writer),
        )
        repairs = self._search.run(ranked, list(self._predicted(near, matcher)), region)
        base = self._graded(repairs, near, output)
        if repairs:
            return base
        base = self._with_windows(base, near, matcher, agreement, region)
        if undefined is not None and not base.repairs:
            return self._about_undefined_read(base, undefined)
        weak = list(self._search.for_these_inputs.values())
        if weak and not base.repairs:
            return replace(self._graded(weak, near, output), grade=BOUNDED)
        return base

    def _with_windows(
        self,
        base: Divergence,
        near: Slice,
        matcher: Matcher,
        agreement: Agreement,
        region: WrongElements,
    ) -> Divergence:
        """Search for the windows that loads should have read, and for repairs that select them.

        Any of the statements that compute an index may be the wrong one.
        """
        search = WindowSearch(
            self._trace, matcher, agreement, self._search.edits, self._replay.add_steps
        )
        self._replay.outputs(None)  # the memory of the recorded run
        loads = search.misplaced(near)
        repairs = self._search.run_inferred(list(search.edits(loads)), region)
        repaired = dict.fromkeys(r.edit.op for r in repairs)
        first = [next(x for x in loads[op] if x.is_misplaced) for op in repaired or loads]
        windows = tuple((self._slicer.statement(x.event), x.taken, x.right[0]) for x in first)
        if not repairs:
            return replace(base, windows=windows)
        ops = self._slicer.with_scalars(repaired)
        behind = self._with_silent(self._slicer.statements(ops, near.everything))
        found = self._graded(repairs, near, region.output)
        listed = _by_line([*found.listed, *behind])
        grade = found.grade if len(listed) == 1 else BOUNDED
        return replace(found, grade=grade, listed=listed, windows=windows)

    def _graded(self, repairs: Sequence[Repair], near: Slice, output: str) -> Divergence:
        """Grade the divergence by its repairs, else by the slice."""
        first = self._first_difference(near)
        found = Divergence(
            NOT_FOUND,
            "difference",
            self._worst(output),
            agreeing=self._agreeing(near),
            first=None if first is None else self._slicer.statement(first),
            before=relative_error(self._actual[output], self._case.expected[output]),
        )
        if repairs:
            listed = tuple(self._changed(repairs, near))
            is_sure = len(listed) == 1 and self._search.is_complete
            listed = _by_line([*listed, *self._between(near, self._search.left)])
            return replace(
                found,
                grade=REPAIRED if is_sure else BOUNDED,
                kind=KINDS[repairs[0].edit.kind],
                listed=listed,
                repairs=tuple(repairs),
                after=repairs[0].after,
            )
        listed = self._between(near, self._common)
        grade = BOUNDED if near.agreeing else NOT_FOUND
        return replace(found, grade=grade, listed=listed)

    def _changed(self, repairs: Sequence[Repair], near: Slice) -> Iterator[Statement]:
        """Yield the repaired statements, and adjacent assignments that have no op."""
        seen: set[tuple[str, int]] = set()
        for repair in repairs:
            op = repair.edit.op
            if repair.edit.lowered is not None:
                yield Statement(repair.edit.loc, "", "", NOBODY, (), "")
                continue
            places = [part.loc for part in repair.edit.parts]
            # The repair may as well be in a statement that computes one of the replaced indices.
            places += [op.loc for op in self._slicer.computing(replaced_scalars(repair.edit))]
            if repair.edit.effect is not None:
                places += self._slicer.around_value(repair.edit.effect[0])
            beside = assignments_without_op(
                repair.edit.loc, self._slicer.lines, self._search.edits.carrying_lines
            )
            for loc in (*places, *beside):
                if (loc.file, loc.line) not in seen:
                    seen.add((loc.file, loc.line))
                    yield replace(self._slicer.statement_of(op, near.everything), loc=loc)

    def _between(self, near: Slice, among: Collection[Op | None]) -> tuple[Statement, ...]:
        """Return the statements between agreement and the wrong output, of some ops."""
        others = self._overwriting(near.suspects[-1]) if near.suspects else []
        ops = self._slicer.ops([*near.suspects, *self._uncertain_loads(near), *others])
        ops = [op for op in self._slicer.with_scalars(ops) if op in among]
        return self._with_silent(self._slicer.statements(ops, near.everything))

    @cached_property
    def _common(self) -> set[Op]:
        """The ops that every wrong region depends on, and those that may have missed one.

        One mistake is behind all wrong regions. A store may be meant for another place, and what
        was read from memory may decide where, or whether it is executed.
        """
        events = self._trace.events
        reads = [n for n, event in enumerate(events) if event.op.name == "read"]
        writes = [n for n, event in enumerate(events) if event.writes]
        stores = self._slicer.ops([*self._slicer.before(*reads), *writes])
        found: set[Op] | None = None
        for writer, _ in self._wrong_writers():
            ops = set(self._slicer.with_indices(self._slicer.ops(self._slicer.before(writer))))
            found = ops if found is None else found & ops
        return {*(found or ()), *self._slicer.with_indices(stores)}

    def _with_silent(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Add the adjacent assignments that have no op to the statements."""
        silent = [
            replace(statement, loc=loc)
            for statement in statements
            for loc in assignments_without_op(statement.loc, self._slicer.lines)
        ]
        return _by_line([*statements, *silent])

    def _uncertain_loads(self, near: Slice) -> Iterator[int]:
        """Yield agreeing loads: correct values from the wrong place agree, too."""
        for n in near.agreeing:
            if is_tensor_load(self._trace.events[n].op):
                yield n

    def _first_difference(self, near: Slice) -> int | None:
        """Return the suspect with the fewest suspects before it, ignoring constants."""
        constant: set[int] = set()
        for n in near.suspects:
            event = self._trace.events[n]
            made = event.writes or not event.windows
            flat = event.tile is not None and event.tile.cut.size and np.ptp(event.tile.cut) == 0
            if (made and constant.issuperset(event.inputs)) or flat:
                constant.add(n)
        return min(
            (n for n in near.suspects if n not in constant),
            default=max(near.suspects, default=None),
            key=lambda n: (self._depth(n, near), n),
        )

    def _depth(self, number: int, near: Slice) -> int:
        """Return how many suspects precede a suspect: 0 if all its inputs agree."""
        return sum(1 for n in self._trace.events[number].inputs if n in near.inside)

    def _agreeing(self, near: Slice) -> tuple[Agreeing, ...]:
        """Return the last agreeing tile of each op at which the slice ends, the latest first."""
        found: dict[Op, Agreeing] = {}
        for n in sorted(near.agreeing, reverse=True):
            op, array = self._trace.events[n].op, near.agreeing[n].array
            found.setdefault(op, Agreeing(self._slicer.statement(n), array, is_tensor_load(op)))
        return tuple(found.values())

    def _focus(self) -> tuple[int, str]:
        """Return the wrong write with the fewest statements before it, and its output."""
        candidates = self._wrong_writers()
        return min(candidates, key=lambda c: (len(self._slicer.before(c[0])), c[0]))

    def _overwriting(self, writer: int) -> list[int]:
        """Return the writes of other statements to the memory of a write.

        They may be meant to overwrite it.
        """
        events = self._trace.events
        window = events[writer].window
        return [
            n
            for n, e in enumerate(events)
            if e.writes
            and e.op is not events[writer].op
            and e.window is not None
            and window is not None
            and e.window.buffer is window.buffer
        ]

    def _wrong_writers(self) -> list[tuple[int, str]]:
        """Return the writes with most wrong elements, and their outputs."""
        candidates: list[tuple[int, str]] = []
        for output, bad in self._wrong.items():
            origins = self._trace.origins.view(self._replay.run.parameters[output])
            writers, counts = np.unique(origins[bad], return_counts=True)
            pairs = sorted(zip((-counts).tolist(), writers.tolist()))
            candidates += [(int(n), output) for _, n in pairs[:_MAX_WRITERS] if n != NOBODY]
        return candidates

    def _written_by(self, writer: int, output: str) -> Bools:
        return self._trace.origins.view(self._replay.run.parameters[output]) == writer

    def _window_written_once(self, writer: int) -> Window | None:
        window = self._trace.events[writer].window
        others = [e.window for e in self._trace.events if e.writes and e.window is not None]
        once = window is not None and sum(w.overlaps(window) for w in others) == 1
        return window if once else None

    def _closest(self, writer: int) -> float:
        """Return the limit on a tile's distance from the golden, given that its region is wrong.

        A small wrong term in a large sum changes it only a little, so the limit depends on the
        region.
        """
        for output in self._wrong:
            mask = self._written_by(writer, output)
            if mask.any():
                error = relative_error(
                    self._actual[output][mask], self._case.expected[output][mask]
                )
                return max(_MAX_AGREEING_ERROR * error, _MIN_TOLERANCE)
        return CLOSE

    # Statements to edit

    def _ranked(self, near: Slice) -> list[Op]:
        """Return the ops to edit: suspects first, those with agreeing inputs before others."""
        depth: dict[Op, int] = {}
        for n in near.suspects:
            op = self._trace.events[n].op
            depth[op] = min(depth.get(op, 1 << 30), self._depth(n, near))
        suspects = sorted(depth, key=lambda op: depth[op])
        agreeing = self._slicer.ops(sorted(near.agreeing, reverse=True))
        rest = self._slicer.ops(sorted(near.everything, reverse=True))
        nearest = self._slicer.with_indices([*self._suspicious, *suspects, *agreeing])
        return list(dict.fromkeys([*nearest, *self._slicer.with_indices(rest)]))

    def _predicted(self, near: Slice, matcher: Matcher) -> Iterator[Edit]:
        """Yield factors that would make a tile equal to an array of the golden."""
        events: dict[Op, list[int]] = {}
        for n in (*near.suspects, *near.agreeing):
            events.setdefault(self._trace.events[n].op, []).append(n)
        for op, numbers in list(events.items())[:_MAX_PREDICTED]:
            known = self._search.edits.factors(op)
            for number in dict.fromkeys((numbers[0], max(numbers))):
                tile = self._trace.events[number].tile
                if tile is None or Trait.TILE_VIEW in op.spec.traits:
                    continue
                for _, factor in matcher.multiples(as_computable(tile.cut).astype(np.float64)):
                    if all(abs(k - factor) > CLOSE * abs(factor) for k in known):
                        yield from edits.scale_result(op, [factor])

    # Unwritten memory

    def _unwritten_output(self) -> Divergence | None:
        """Find wrong elements of an output that no statement wrote."""
        for output, bad in self._wrong.items():
            window = self._replay.run.parameters[output]
            missing = bad & (self._trace.origins.view(window) == NOBODY)
            if not missing.any() or missing.sum() < 0.5 * bad.sum():
                continue
            writes = [
                n
                for n, e in enumerate(self._trace.events)
                if e.writes and e.window is not None and e.window.buffer is window.buffer
            ]
            near = Slice(self._slicer.before(*writes), writes)
            stores = self._slicer.with_indices(self._slicer.ops(writes))
            ranked = dict.fromkeys([*stores, *self._ranked(near)])
            repairs = self._search.run(list(ranked), [], WrongElements(output, missing, None))
            base = self._graded(repairs, near, output)
            if repairs:
                return base
            fits = unstored.for_output(self._trace, output, self._case.expected[output], missing)
            found = None if fits is None else self._slicer.statement(fits)
            unused = self._unused_results()
            places = [found] if found else self._slicer.statements(stores, writes)
            return replace(
                base,
                grade=BOUNDED,
                kind="missing write",
                listed=_by_line([*places, *unused]),
                first=None,
                agreeing=(),
                writers=self._slicer.statements(self._slicer.ops(writes), writes),
                region=", ".join(f"{output}{r.text}" for r in regions_of(missing)[:3]),
                unused=unused,
                unstored=found,
            )
        return None

    def _unused_results(self) -> tuple[Statement, ...]:
        """Return the statements whose tile is never used: candidates for a missing store."""
        first: dict[Op, int] = {}
        for number, event in enumerate(self._trace.events):
            if event.op not in first and event.op.results:
                visible = self._search.edits.visible_in(self._trace.function[event.op])
                if visible.unused_in_the_end.intersection(event.op.results):
                    first[event.op] = number
        return tuple(self._slicer.statement(number) for number in first.values())

    def _undefined_read(self, near: Slice) -> int | None:
        """Return the first load of unwritten memory that led to a wrong region."""
        events = self._trace.events
        found = [n for n in near.everything if events[n].undefined is not None]
        return min(found, default=None)

    def _writers_of(self, read: int) -> list[int]:
        """Return the stores into the memory that an event loads."""
        window = self._trace.events[read].window
        assert window is not None
        return [
            n
            for n, e in enumerate(self._trace.events)
            if e.writes and e.window is not None and e.window.buffer is window.buffer
        ]

    def _about_undefined_read(self, base: Divergence, read: int) -> Divergence:
        event = self._trace.events[read]
        assert event.window is not None
        assert event.undefined is not None
        buffer = event.window.buffer
        region = ", ".join(f"{a}:{b}" for a, b in zip(*event.undefined))
        writes = self._writers_of(read)
        over = unstored.find_misplaced(self._trace, writes)
        fits = unstored.for_memory(self._trace, read, buffer, event.undefined)
        found = None if fits is None else self._slicer.statement(fits)
        unused = self._unused_results()
        ops = self._slicer.with_scalars(self._slicer.ops([read, *(over or writes)]))
        places = [*self._slicer.statements(ops, [read, *writes]), *unused]
        places += [found] if found else []
        return replace(
            base,
            grade=BOUNDED,
            kind="undefined read",
            first=self._slicer.statement(read),
            agreeing=(),
            listed=_by_line(places),
            region=f"{buffer.name}[{region}]",
            writers=tuple(self._slicer.statement(n) for n in (over or writes)[:1]),
            over=self._slicer.statement(over[1]) if over else None,
            unused=unused,
            unstored=found,
        )

    def _worst(self, output: str) -> Worst:
        a = as_computable(self._actual[output]).astype(np.float64)
        e = as_computable(self._case.expected[output]).astype(np.float64)
        difference = np.where(self._wrong[output], np.nan_to_num(np.abs(a - e), nan=np.inf), -1.0)
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), a.shape))
        return Worst(output, index, float(a[index]), float(e[index]))


def _by_line(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """Return one statement per line, in source order."""
    found: dict[tuple[str, int], Statement] = {}
    for statement in statements:
        found.setdefault((statement.loc.file, statement.loc.line), statement)
    return tuple(found[key] for key in sorted(found))
