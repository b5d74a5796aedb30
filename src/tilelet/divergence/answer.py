"""The answer of `tilelet diverge` about one program: its findings, for people and for machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tilelet.analysis.aliases import infer_directions
from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.diverge import (
    BeyondRounding,
    DivergenceBounded,
    DivergenceNotFound,
    FirstWrongStatement,
    NeverWritten,
    ReadBeforeWritten,
    RoundingOnly,
)
from tilelet.diag.core import Diagnostic, Loc, UserError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.source import display_path
from tilelet.diag.text import plural, shape_text
from tilelet.divergence.case import GoldenCase, Masks, Statement
from tilelet.divergence.diagnose import BOUNDED, KINDS, REPAIRED, Diagnosis, Divergence
from tilelet.divergence.golden_trace import Intermediate
from tilelet.divergence.record import (
    STEPS_PER_SECOND,
    Followed,
    Trace,
    TraceTooBigError,
    follow,
)
from tilelet.divergence.repair import Repair
from tilelet.divergence.rounding_bounds import Violation, WideTrace
from tilelet.divergence.source_text import source_diff
from tilelet.dtypes import Array
from tilelet.ir.core import Direction
from tilelet.ir.spec import Cost, Trait
from tilelet.numerics.casts import as_computable

_GROWTH_SHARE = 0.05
"""Share of output elements that may differ from the golden in double precision, too, if the program
only differs by rounding.
"""

_MAX_AGREEING_SHOWN = 6


@dataclass(frozen=True)
class Options:
    """Search options.

    budget    work for repairs, in seconds of `STEPS_PER_SECOND`
    all_fp32  carry FP32 instead of double alongside every value
    limit     work for one run of the program, in steps; a longer one is not followed
    """

    budget: float = 40.0
    all_fp32: bool = False
    limit: float = math.inf


SHORT = Options(budget=0.5, limit=STEPS_PER_SECOND / 8)
"""The search after a failed comparison of `run`."""


@dataclass
class Answer:
    """Everything found about one program.

    agrees      whether the outputs match; None if there was nothing to compare with
    statements  number of statements traced; `tried` is the number of repairs tried
    outputs     the program's values of all compared outputs
    """

    name: str
    agrees: bool | None
    found: list[UserError] = field(default_factory=list[UserError])
    divergence: Divergence | None = None
    violations: list[tuple[Statement, Violation]] = field(
        default_factory=list[tuple[Statement, Violation]]
    )
    notes: list[str] = field(default_factory=list[str])
    statements: int = 0
    tried: int = 0
    outputs: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    def ok(self) -> bool:
        return not self.found

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [error.diagnostic for error in self.found]

    def lines(self) -> list[str]:
        against = {
            True: "outputs match the golden",
            False: "outputs do not match the golden",
            None: "nothing to compare with",
        }[self.agrees]
        wide = "no statement exceeds its rounding bound"
        if self.violations:
            wide = f"{len(self.violations)} results exceed their rounding bound"
        lines = [f"{self.name}: {self.statements:,} statements traced; {against}; {wide}"]
        return [*lines, *(f"  note: {note}" for note in dict.fromkeys(self.notes))]

    def brief(self) -> str:
        """Return the grade and the place in one line, or nothing if there is no divergence."""
        found = self.divergence
        if found is None:
            loc = next((d.loc for d in self.diagnostics if d.loc), None)
            where = f" at {display_path(loc.file)}:{loc.line}" if loc else ""
            return f"{self.diagnostics[0].message}{where}" if self.found else ""
        files: dict[str, list[int]] = {}
        for statement in found.listed:
            files.setdefault(display_path(statement.loc.file), []).append(statement.loc.line)
        places = [f"{f}:{', '.join(map(str, sorted(lines)))}" for f, lines in files.items()]
        if found.grade == REPAIRED:
            return f"repaired at {places[0]}: {found.repairs[0].edit.text}"
        if found.grade == BOUNDED:
            bound = f"bounded to {plural(len(found.listed), 'statement')}, {'; '.join(places)}"
            changes = [f"{r.edit.text} (line {r.edit.loc.line})" for r in found.repairs[:1]]
            return "; corrected by ".join([bound, *changes])
        return f"{found.grade} by {found.tried:,} changes of single statements"

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.found), "\n".join(self.lines())])

    def to_data(self) -> JsonObject:
        found = self.divergence
        return {
            "name": self.name,
            "agrees": self.agrees,
            "statements": self.statements,
            "repairs_tried": self.tried,
            "divergence": None if found is None else divergence_data(found),
            "violations": [
                {**s.to_data(), "kind": v.kind, "before": v.before, "after": v.after}
                for s, v in self.violations
            ],
            "notes": list(dict.fromkeys(self.notes)),
        }


def divergence_data(found: Divergence) -> JsonObject:
    """Convert to JSON data."""
    worst = found.worst
    return {
        "grade": found.grade,
        "kind": found.kind,
        "statement": found.statement.to_data() if found.statement else None,
        "listed": [s.to_data() for s in found.listed],
        "repairs": [
            {
                "file": r.edit.loc.file,
                "line": r.edit.loc.line,
                "kind": KINDS[r.edit.kind],
                "text": r.edit.text,
                "diff": list(source_diff(r.edit)),
                "inputs": 1 + r.trials,
            }
            for r in found.repairs
        ],
        "first": found.first.to_data() if found.first else None,
        "agreeing": [
            {
                **one.statement.to_data(),
                "golden": {
                    "name": one.array.name,
                    "line": one.array.line,
                    "part": one.array.part and [one.array.part.start, one.array.part.stop],
                },
            }
            for one in found.agreeing
        ],
        "windows": [
            {**statement.to_data(), "taken": list(taken), "right": list(right)}
            for statement, taken, right in found.windows
        ],
        "worst": {
            "output": worst.output,
            "index": list(worst.index),
            "actual": _number(worst.actual),
            "expected": _number(worst.expected),
        },
        "before": _number(found.before),
        "after": _number(found.after),
        "tried": found.tried,
        "complete": found.is_complete,
        "region": found.region,
        "unused": [s.to_data() for s in found.unused],
        "unstored": found.unstored.to_data() if found.unstored else None,
        "writers": [s.to_data() for s in found.writers],
        "over": found.over.to_data() if found.over else None,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


@np.errstate(all="ignore")
def answer(
    name: str, case: GoldenCase, options: Options, say: Callable[[str], None] = lambda _: None
) -> Answer:
    """Compare a case with double precision and with its golden."""
    result = Answer(name, None, notes=[case.note] if case.note else [])
    try:
        _examine(result, case, options, say)
    except TraceTooBigError:
        result.notes.append("the program is too long to be followed: use smaller sizes")
    return result


def _examine(
    result: Answer, case: GoldenCase, options: Options, say: Callable[[str], None]
) -> None:
    element = np.float32 if options.all_fp32 else np.float64
    trace = WideTrace(case.program, element, options.limit)
    say("in double precision")
    run = follow(trace, case.arguments)
    result.statements = len(trace.events)
    result.outputs = {name: run.arrays[name] for name in case.expected}
    result.violations = [(_statement(trace, v.event), v) for v in trace.violations]
    beyond = [_beyond(*one) for one in _first_each(result.violations)]
    wrong = {name: mask for name, mask in case.mismatches(run.arrays).items() if mask.any()}
    if case.expected:
        result.agrees = not wrong or case.passes(run.arrays)
    rounding = _only_rounding(case, trace, run, wrong) if result.agrees is False else None
    if result.agrees is not False or rounding is not None:
        result.found += beyond if rounding is None else [*beyond, rounding]
        return
    if case.written is not None:
        case = replace(case, program=case.written())
        trace = WideTrace(case.program, element)
        follow(trace, case.arguments)
    suspicious = [trace.events[v.event].op for v in trace.violations]
    found = Diagnosis(case, options.budget, say, suspicious, trace.errors).divergence()
    result.divergence, result.tried = found, found.tried
    result.found.append(_error_of(found))
    # A statement that exceeds its bound need not be the cause: no caret of its own.
    result.notes += [
        f"line {e.diagnostic.loc.line}: {e.diagnostic.message}" for e in beyond if e.diagnostic.loc
    ]


def _first_each(
    violations: list[tuple[Statement, Violation]],
) -> list[tuple[Statement, Violation]]:
    first: dict[Loc, tuple[Statement, Violation]] = {}
    for statement, violation in violations:
        first.setdefault(statement.loc, (statement, violation))
    return list(first.values())


def _statement(trace: Trace, number: int) -> Statement:
    event = trace.events[number]
    name = event.op.results[0].name if event.op.results else event.op.name
    return Statement(
        event.op.loc, event.op.name, trace.kernel(event), event.task, trace.iteration(event), name
    )


def _only_rounding(
    case: GoldenCase, trace: WideTrace, run: Followed, wrong: Masks
) -> UserError | None:
    """Return a finding if the outputs match in double precision but not in the program's."""
    wide: dict[str, Array] = {}
    for output, expected in case.expected.items():
        found = trace.output(run.parameters[output])
        wide[output] = run.arrays[output] if found is None else found.astype(expected.dtype)
    in_double = case.mismatches(wide)
    for name, mask in wrong.items():
        if in_double[name].sum() > _GROWTH_SHARE * mask.sum():
            return None
    grown = _largest_growth(trace)
    statement = _statement(trace, grown[0]) if grown else None
    notes = [_where_text(statement)] if statement else []
    if grown:
        notes.append(f"relative L2 error {grown[1]:.3g} before, {grown[2]:.3g} after")
    kind = _rounding_kind(trace, grown[0]) if grown else "rounding"
    return RoundingOnly(next(iter(wrong)), statement.loc if statement else None, notes, kind)


def _rounding_kind(trace: WideTrace, number: int) -> str:
    """Name the kind of rounding: the error of a sum depends on the order of its terms."""
    spec = trace.events[number].op.spec
    adds_up = Trait.GEMM in spec.traits or spec.reduces is not None or spec.cost is Cost.ADD
    return "accumulation order" if adds_up else "rounding"


def _largest_growth(trace: WideTrace) -> tuple[int, float, float] | None:
    best: tuple[int, float, float] | None = None
    for number, after in trace.errors.items():
        inputs = trace.events[number].inputs
        before = max((trace.errors.get(n, 0.0) for n in inputs), default=0.0)
        if best is None or after - before > best[2] - best[1]:
            best = number, before, after
    return best


def _where_text(statement: Statement) -> str:
    """Format as `task 3 of `rope` (h = 1), tile `lo``."""
    task = f"task {statement.task} of `{statement.kernel}`" if statement.task >= 0 else ""
    if not task:
        task = f"kernel `{statement.kernel}`" if statement.kernel else "the control program"
    loops = ", ".join(f"{name} = {value}" for name, value in statement.iteration)
    return f"{task}{f' ({loops})' if loops else ''}, tile `{statement.tile}`"


def _beyond(statement: Statement, violation: Violation) -> UserError:
    what = {
        "rounding mode": f"`pl.{statement.op}` does not round to nearest",
        "overflow": f"`pl.{statement.op}` overflows",
        "undefined read": f"`pl.{statement.op}` gives NaN where double precision gives a number",
    }.get(violation.kind, f"`pl.{statement.op}` exceeds its rounding bound")
    helps = ['`mode="rint"` rounds to nearest'] if violation.kind == "rounding mode" else []
    element = (
        f"element {list(violation.index)}: {violation.actual:.9g}, in double precision "
        f"{violation.wide:.9g}; rounding explains {violation.bound:.3g}"
    )
    error = f"relative L2 error {violation.before:.3g} before, {violation.after:.3g} after"
    notes = [_where_text(statement), element, error]
    return BeyondRounding(what, statement.loc, violation.kind, notes, helps)


def _error_of(found: Divergence) -> UserError:
    if found.grade == REPAIRED:
        return _repaired_error(found)
    if found.repairs:
        return _candidates(found)
    if found.kind in ("missing write", "undefined read"):
        return _unwritten_error(found)
    return _bounded_error(found) if found.grade == BOUNDED else _not_found(found)


def _repaired_error(found: Divergence) -> UserError:
    statement, repair = found.listed[0], found.repairs[0]
    agrees = [label for label in _agrees(found) if label[0] != statement.loc]
    change = "an assignment after" if repair.edit.kind == "missing assignment" else "a change of"
    what = f"{found.kind}: {change} this statement corrects the outputs"
    helps = [*source_diff(repair.edit), f"{repair.edit.text}: {_outcome(repair)}"]
    notes = [*([_where_text(statement)] if statement.tile else []), *_worst_text(found)]
    return FirstWrongStatement(what, statement.loc, found.kind, agrees, notes, helps)


def _outcome(repair: Repair) -> str:
    match = "then the outputs match the golden"
    if repair.trials + repair.failed == 0:
        return match
    others = f" and {plural(repair.trials, 'other')}" if repair.trials else ""
    but = f", but not for {plural(repair.failed, 'other')}" if repair.failed else ""
    return f"{match}, for these inputs{others}{but}"


def _candidates(found: Divergence) -> UserError:
    labels = [(r.edit.loc, r.edit.text) for r in found.repairs]
    places = sorted({s.loc.line for s in found.listed})
    lines = ("lines " if len(places) > 1 else "line ") + ", ".join(map(str, places))
    changed = len({r.place for r in found.repairs})
    which = "each" if changed == len(found.listed) else f"{changed} of them"
    what = (
        f"one of {len(found.listed)} statements is wrong: a change of {which} corrects the outputs"
    )
    notes = [f"{lines}: one change is enough", *_windows_text(found), *_worst_text(found)]
    if len(found.listed) == 1:
        what = "a change of this statement corrects the outputs; not all others were tried"
        notes = _worst_text(found)
    if all(repair.failed for repair in found.repairs):
        what = "changes correct the outputs for these inputs, but not for others"
        meant = f"if the others are not meant for the program, one change is enough: {lines}"
        notes = [meant, *_worst_text(found)]
    if not found.is_complete:
        notes.append("the budget is spent before all changes were tried: try a larger --budget")
    helps = [f"line {r.edit.loc.line}: {r.edit.text}: {_outcome(r)}" for r in found.repairs]
    return DivergenceBounded(what, labels, notes, helps)


def _bounded_error(found: Divergence) -> UserError:
    labels = _agrees(found)
    assert found.first is not None
    if all(loc != found.first.loc for loc, _ in labels):
        labels.append((found.first.loc, "first value without a counterpart in the golden"))
    lines = ", ".join(f"{s.loc.line} (`{s.tile}`)" for s in found.listed)
    among = f"one of {plural(len(found.listed), 'statement')}: lines {lines}"
    notes = [
        f"if the values that agree are the ones meant, the mistake is in {among}",
        *_agreeing_text(found),
        *_windows_text(found),
        *_worst_text(found),
        _effort(found),
    ]
    what = "the outputs go wrong between two statements"
    return DivergenceBounded(what, labels, notes)


def _agreeing_text(found: Divergence) -> list[str]:
    """List the computed tiles that agree, so that the reader can tell whether they are the intended
    ones.
    """
    made = {
        one.statement.loc.line: f"line {one.statement.loc.line}, `{one.statement.tile}`: "
        f"{one.array.where}"
        for one in found.agreeing
        if not one.is_load
    }
    shown = list(made.values())[:_MAX_AGREEING_SHOWN]
    return [f"agrees: {'; '.join(shown)}"] if shown else []


def _windows_text(found: Divergence) -> list[str]:
    return [
        f"line {s.loc.line}, {_where_text(s)}: loaded from {list(taken)}; from {list(right)} the "
        "next value would agree with the golden"
        for s, taken, right in found.windows
    ]


def _not_found(found: Divergence) -> UserError:
    notes = [*_worst_text(found), "no tile before this output agrees with an array of the golden"]
    return DivergenceNotFound(found.worst.output, [*notes, _effort(found)])


def _effort(found: Divergence) -> str:
    tried = f"{found.tried:,} changes of single statements were tried, none corrects the outputs"
    return tried if found.is_complete else f"{tried}; the budget is spent: try a larger --budget"


def _agrees(found: Divergence) -> list[tuple[Loc, str]]:
    if found.last is None:
        return []
    return [(found.last.statement.loc, f"agrees with {found.last.array.where}")]


def _unwritten_error(found: Divergence) -> UserError:
    unused = [(s.loc, f"`{s.tile}` is computed here but never used") for s in found.unused]
    if found.unstored and not any(s.loc == found.unstored.loc for s in found.unused):
        fits = "belongs there" if found.kind == "missing write" else "would fit there"
        unused.append((found.unstored.loc, f"`{found.unstored.tile}` {fits} but is never stored"))
    notes = [*_worst_text(found), _effort(found)]
    writer = found.writers[0] if found.writers else None
    if found.kind == "missing write":
        return NeverWritten(found.region, writer.loc if writer else None, notes, unused)
    assert found.first is not None
    notes.insert(0, _where_text(found.first))
    label = (writer.loc, _describe_writer(found, writer)) if writer else None
    return ReadBeforeWritten(
        found.region, found.first.loc, label, notes, unused, found.over is not None
    )


def _describe_writer(found: Divergence, mine: Statement) -> str:
    """Describe the store that writes to memory that was never fully written."""
    over = found.over
    if over is None:
        return "writes other parts of it"
    what = f"task {over.task} has written"
    if over.loc != mine.loc:
        what = f"line {over.loc.line} has written (task {over.task})"
    return f"task {mine.task} overwrites what {what}"


def _worst_text(found: Divergence) -> list[str]:
    worst = found.worst
    after = f", {found.after:.3g} with the change" if math.isfinite(found.after) else ""
    text = (
        f"worst element {worst.output}{list(worst.index)}: {worst.actual:.7g}, golden "
        f"{worst.expected:.7g}; relative L2 error {found.before:.3g}{after}"
    )
    return [text]


def against(reference: GoldenCase, name: str, case: GoldenCase) -> GoldenCase:
    """Return the case with another program as its golden: its outputs, tensors and tiles.

    Outputs that have another shape there are not compared.
    """
    trace = Trace(reference.program)
    run = follow(trace, reference.arguments)
    common = [
        output
        for output in case.expected or run.arrays
        if output in run.arrays and output in _outputs(case)
    ]
    shapes = {output: np.shape(case.arguments[output]) for output in common}
    expected = {o: run.arrays[o] for o in common if run.arrays[o].shape == shapes[o]}
    note = f"compared with {name}, not with a golden"
    for output in common:
        if output not in expected:
            here, there = shape_text(shapes[output]), shape_text(run.arrays[output].shape)
            note += f"; `{output}` is not compared: it is {here} here and {there} in {name}"
    return GoldenCase(
        case.program,
        case.arguments,
        expected,
        lambda made: not any(m.any() for m in case.differ(made, expected).values()),
        case.differ,
        _arrays_of(trace),
        note,
    )


def _outputs(case: GoldenCase) -> set[str]:
    """Return the parameters that the program writes."""
    main = case.program.main
    directions = infer_directions(main, case.program.functions)
    return {p.name for p, how in zip(main.params, directions) if how is not Direction.In}


def _arrays_of(trace: Trace) -> list[Intermediate]:
    found: list[Intermediate] = []
    elements = 0
    seen: set[bytes] = set()
    for event in trace.events:
        if event.tile is None or event.tile.data.dtype.kind in "iub" or event.tile.data.size < 8:
            continue
        array = as_computable(event.tile.cut).astype(np.float64)
        key = array.tobytes()
        if key in seen or elements > 16 << 20:
            continue
        seen.add(key)
        elements += array.size
        loc = event.op.loc
        found.append(Intermediate(event.op.results[0].name, loc.file, loc.line, array))
    return found
