"""The verdict on a candidate: right, honest, safe, portable, and how fast against the floor."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tilelet.advice.core import Costs, costs_of
from tilelet.advice.verdict import FirstWrong
from tilelet.checks.registry import CHECKS, chosen_checks
from tilelet.checks.verdict import Subject, Verdict, verdict_on
from tilelet.dataclasses import dataclass, replace
from tilelet.device.machine.description import Machine, load_machine
from tilelet.diag.catalogue.oracle import WithoutTheWork, WrongOnOtherInputs
from tilelet.diag.core import Consequence, Diagnostic, UserError, UserErrors
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number
from tilelet.diag.text import plural
from tilelet.dialects import check as check_dialect
from tilelet.dialects import dialect_named
from tilelet.oracle import cheats
from tilelet.oracle.candidate import check_signature, check_writes, read_candidate
from tilelet.oracle.cheats import Evidence, Outcome
from tilelet.oracle.floor import Floor, floor_of
from tilelet.oracle.reference import Expected, Reference, load_reference, record_within_limits
from tilelet.oracle.work import run_counted
from tilelet.runtime import session
from tilelet.runtime.harness.case_run import CaseRun
from tilelet.scripts.answers import document
from tilelet.static.module import MAX_STEPS, TextProgram, limit_work

RIGHT, WRONG, WITHOUT_THE_WORK, REFUSED = "right", "wrong", "without the work", "refused"

_NEWEST_RELEASE = "2026-08"
_DIVERGE_BUDGET = 2.0
"""Work for repairs that show which statement is wrong, in nominal seconds."""
_TRIAL_FACTOR = 4.0
"""Factor on the reference's own error that is allowed on further inputs: sums have other orders."""


@dataclass(frozen=True)
class OnMachine:
    """A candidate on one machine: its modelled costs, its floor and the answers of the checks."""

    machine: str
    costs: Costs
    floor: Floor
    bound: str
    checks: Verdict

    @property
    def share(self) -> float:
        """Share of the floor that is reached: 1 is as fast as physics allows."""
        return min(1.0, self.floor.us / self.costs.us) if self.costs.us else 0.0

    def to_data(self) -> JsonObject:
        return {
            "machine": self.machine,
            "costs": self.costs.to_data(),
            "bound": self.bound,
            "floor": self.floor.to_data(),
            "share": round(self.share, 4),
            "checks": [part.to_data() for part in self.checks.parts],
        }


@dataclass(frozen=True)
class CandidateVerdict:
    """The verdict on a candidate.

    why       first line of the failure
    inputs    further inputs that were tried, each with its outcome
    evidence  cheats found
    portable  locations that the newest public release does not accept; None if nothing was lowered
    """

    name: str
    reference: str
    machines: tuple[str, ...]
    status: str
    why: str = ""
    inputs: Sequence[tuple[str, bool]] = ()
    evidence: Sequence[Evidence] = ()
    first_wrong: FirstWrong | None = None
    on: Sequence[OnMachine] = ()
    portable: int | None = None
    steps: int = 0
    messages: Sequence[Diagnostic] = ()

    @property
    def findings(self) -> list[Diagnostic]:
        """Findings of the checks that are not only about time, each once."""
        every = [f for one in self.on for part in one.checks.parts for f in part.findings]
        serious = [f for f in every if f.consequence is not Consequence.SLOW]
        return list(dict.fromkeys(f.diagnostic for f in serious))

    @property
    def ok(self) -> bool:
        return self.status == RIGHT and not self.findings

    @property
    def share(self) -> float:
        """Smallest share of the floor over the machines; 0 unless everything is right."""
        return min((one.share for one in self.on), default=0.0) if self.ok else 0.0

    @property
    def fits(self) -> bool | None:
        parts = [p for one in self.on for p in one.checks.parts if p.check == "capacity"]
        return not any(p.findings for p in parts) if parts else None

    @property
    def diagnostics(self) -> list[Diagnostic]:
        first = [self.first_wrong.problem.diagnostic] if self.first_wrong else []
        return list(dict.fromkeys([*self.messages, *first, *self.findings]))

    def to_data(self) -> JsonObject:
        """`judgement` of the schema."""
        return {
            "reference": self.reference,
            "status": self.status,
            "why": self.why,
            "ok": self.ok,
            "inputs": [{"about": about, "right": right} for about, right in self.inputs],
            "evidence": [{"kind": e.kind, "text": e.text} for e in self.evidence],
            "first_wrong": self.first_wrong.to_data() if self.first_wrong else None,
            "fits": self.fits,
            "portable": None if self.portable is None else self.portable == 0,
            "share": round(self.share, 4),
            "on": [one.to_data() for one in self.on],
            "steps": self.steps,
        }

    def to_json(self) -> str:
        """The document that `tilelet verdict --against --format json` prints."""
        answered = self.to_data()
        return document("verdict", self.name, self.machines, self.diagnostics, judgement=answered)

    def parts(self) -> list[str | Table]:
        """Return the verdict as text and tables."""
        text = f"{self.name}: {self.status}" + (f": {self.why}" if self.why else "")
        right = sum(ok for _, ok in self.inputs)
        if self.inputs:
            text += f"\nright on {right} of {len(self.inputs)} inputs"
        text += "".join(f"\n{e.kind}: {e.text}" for e in self.evidence)
        text += f"\n{self.first_wrong}" if self.first_wrong else ""
        if self.on:
            found = plural(len(self.findings), "finding") if self.findings else "no findings"
            fits = "tiles fit" if self.fits else "tiles do not fit"
            text += f"\n{found}; {fits} on chip"
        heads = ("machine", "us", "nine of ten boards", "floor us", "reached", "compulsory bytes")
        table = Table("", heads, left=1)
        for one in self.on:
            interval = one.costs.interval
            between = " to ".join(map(number, interval)) if interval else "not known"
            table.rows.append(
                (
                    one.machine,
                    number(one.costs.us),
                    between,
                    number(one.floor.us),
                    f"{one.share:.0%}",
                    byte_text(one.floor.nbytes),
                )
            )
        return [text, table] if table.rows else [text]


def judge(
    candidate: str | Path, reference: str | Path, *, platform: str | Sequence[str] = "a2a3"
) -> CandidateVerdict:
    """Judge a candidate by the specs, inputs and golden of a reference script.

    The candidate is read, never executed. platform: a modelled machine, or several.
    """
    names = (platform,) if isinstance(platform, str) else tuple(platform)
    return judge_candidate(
        candidate, load_reference(reference), [load_machine(name) for name in names]
    )


def judge_candidate(
    path: str | Path, reference: Reference, machines: Sequence[Machine]
) -> CandidateVerdict:
    """Judge one candidate file."""
    named = tuple(m.name for m in machines)
    silence = io.StringIO()
    try:
        with contextlib.redirect_stdout(silence), session.active(reference.session):
            text = read_candidate(Path(path), reference.run.case.name)
            return _judge(str(path), text, reference, machines)
    except UserErrors as errors:
        found, why = errors.diagnostics, errors.diagnostics[0].message
    except UserError as error:
        found, why = (error.diagnostic,), error.diagnostic.message
    except RecursionError:
        found, why = (), "it is nested too deeply"
    return CandidateVerdict(str(path), reference.name, named, REFUSED, why, messages=found)


def _judge(
    path: str, text: TextProgram, reference: Reference, machines: Sequence[Machine]
) -> CandidateVerdict:
    check_signature(text, reference.run.written[0])
    run = reference.run.with_program(text.jit or text.build())
    with limit_work("lowering the program", MAX_STEPS):
        program = run.compiled.program
    check_writes(text, program, reference.program)
    first = _outcome(run, reference, reference.first)
    outcomes = [first, *(_outcome(run, reference, e) for e in reference.others)]
    wrong = [o for o in outcomes if not o.ok]
    evidence = list(cheats.behind_outputs(outcomes, reference.fresh))
    evidence += _earlier_run(run, reference, wrong)
    evidence += cheats.in_error(outcomes)
    record = record_within_limits(run, program, reference.first.trial.arguments)
    on: list[OnMachine] = []
    for machine in machines:
        subject = Subject(record, record.arguments, machine, comparison=record.comparison)
        theirs, mine = reference.profile(machine), subject.device_run.figures
        floor = floor_of(theirs, machine, min(theirs.flops, mine.flops or theirs.flops))
        evidence += cheats.in_traffic(mine, theirs, bool(wrong))
        evidence += cheats.in_time(mine, floor)
        checks = [c for c in chosen_checks(()) if c is not CHECKS["tolerance"]]
        on.append(
            OnMachine(
                machine.name, costs_of([mine]), floor, mine.bound, verdict_on(subject, checks)
            )
        )
    named = bool(evidence)  # the program does something else: no statement of it is at fault
    if wrong and first.ok and not named:
        evidence.append(Evidence(cheats.OVERFITTED, wrong[0].expected.trial.about))
    evidence = list(dict.fromkeys(evidence))
    status = WRONG if not first.ok else WITHOUT_THE_WORK if evidence or wrong else RIGHT
    loc = text.loc
    messages = [WithoutTheWork(loc, e.kind, e.text).diagnostic for e in evidence]
    if wrong and first.ok:
        about = wrong[0].expected.trial.about
        error = f"errors take {wrong[0].error:.3g} times the tolerance"
        messages.append(WrongOnOtherInputs(loc, about, error).diagnostic)
    found = [d for d in check_dialect(run.written[0], dialect_named(_NEWEST_RELEASE))
             if d.severity == "error"]  # fmt: skip
    return CandidateVerdict(
        path,
        reference.name,
        tuple(m.name for m in machines),
        status,
        messages[0].message if messages else "the outputs do not match" if wrong else "",
        [(o.expected.trial.about, o.ok) for o in outcomes],
        evidence,
        _first_wrong(run, wrong[0]) if wrong and not named else None,
        on,
        len(found),
        run_counted(program, reference.first.trial.arguments, reference.limits).steps,
        messages,
    )


def _outcome(run: CaseRun, reference: Reference, expected: Expected) -> Outcome:
    given = expected.trial.arguments
    made = run_counted(run.compiled.program, given, reference.limits)
    outputs = {n: a for n, a in reference.by_spec(run, made.arguments).items()
               if n in expected.outputs}  # fmt: skip
    with np.errstate(all="ignore"):
        error = reference.error(outputs, expected.outputs)
        ok = reference.passes(outputs, expected.outputs, given)
    if expected is not reference.first:
        ok = ok or error <= max(1.0, _TRIAL_FACTOR * expected.error)
    return Outcome(expected, outputs, ok, error)


def _earlier_run(
    run: CaseRun, reference: Reference, wrong: Sequence[Outcome]
) -> Iterator[Evidence]:
    """Yield evidence if the outputs depend on what they held before the run."""
    params = {spec.name: name for name, spec in run.specs.items()}
    for outcome in wrong[:1]:
        expected = outcome.expected
        there = {params[n]: np.array(a) for n, a in expected.outputs.items()}
        zeros = {name: np.zeros_like(expected.trial.arguments[name]) for name in reference.fresh}
        for before, text in (
            (there, "the outputs are right only if they were before the run"),
            (zeros, "the outputs are right only if they were zero before the run"),
        ):
            trial = replace(expected.trial, arguments={**expected.trial.arguments, **before})
            if _outcome(run, reference, replace(expected, trial=trial)).ok:
                yield Evidence(cheats.EARLIER_RUN, text)
                return


def _first_wrong(run: CaseRun, outcome: Outcome) -> FirstWrong | None:
    """The first wrong statement, as `tilelet diverge` finds it."""
    try:
        case = run.examined(dict(outcome.expected.trial.arguments))
    except (UserError, UserErrors):
        return None  # it cannot be traced; the outputs are wrong all the same
    return FirstWrong.of(run.case.name, case, _DIVERGE_BUDGET)
