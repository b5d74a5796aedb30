"""`tilelet verdict`: correctness, capacity and cost of a script in one call.

For programs that generate programs. The script runs once; wrong outputs are then traced to a
statement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.advice.core import Costs, costs_of
from tilelet.checks.registry import CHECKS, chosen_checks, unchecked_line
from tilelet.checks.verdict import CheckResult, Subject, Verdict, verdict_on
from tilelet.dataclasses import dataclass, field
from tilelet.device.machine.description import Machine, load_machine
from tilelet.device.run import DeviceRun
from tilelet.diag.catalogue.device import OnChipOverflow
from tilelet.diag.core import Diagnostic, Loc, UserError, UserErrors
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number
from tilelet.diag.text import plural
from tilelet.runtime.handlers.record import RecordedRun
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes
from tilelet.scripts.answers import document
from tilelet.scripts.recording import Recording, RecordingOptions, record
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.divergence.case import GoldenCase
    from tilelet.runtime.harness.result import RunResult

RIGHT, WRONG, NOT_COMPARED, COULD_NOT_RUN = "right", "wrong", "not compared", "could not run"

DIVERGE_SECONDS = 5.0
"""Budget of the search for a repair."""


@dataclass(frozen=True)
class FirstWrong:
    """The first wrong statement, as far as it could be located.

    grade   `repaired`: a change of this statement corrects the outputs; `bounded`: one of several
            statements is wrong; `not found`; `rounding`: right in double precision
    lines   lines of the statements of which one is wrong
    repair  a change of one op that corrects the outputs
    """

    problem: UserError
    grade: str
    lines: tuple[int, ...] = ()
    repair: str | None = None

    @classmethod
    def of(cls, name: str, case: GoldenCase, budget: float) -> FirstWrong | None:
        """Locate the first wrong statement of a failing run; None if it cannot be traced."""
        from tilelet.divergence.answer import Options, answer

        try:
            found = answer(name, case, Options(budget))
        except (UserError, UserErrors):
            return None  # the outputs are wrong all the same
        if not found.found:
            return None
        where = found.divergence
        if where is None:
            return cls(found.found[0], "rounding")
        lines = tuple(sorted({s.loc.line for s in where.listed}))
        return cls(found.found[0], where.grade, lines, where.repair.text if where.repair else None)

    @property
    def loc(self) -> Loc | None:
        return self.problem.diagnostic.loc

    def to_data(self) -> JsonObject:
        loc = self.loc
        return {
            "file": loc.file if loc else "",
            "line": loc.line if loc else 0,
            "column": loc.col + 1 if loc and loc.line > 0 else 0,
            "code": self.problem.code,
            "message": self.problem.diagnostic.message,
            "grade": self.grade,
            "lines": list(self.lines),
            "repair": self.repair,
        }

    def __str__(self) -> str:
        if self.grade == "repaired" and self.loc is not None:
            return f"first wrong statement: line {self.loc.line}"
        if self.lines:
            return f"the first wrong statement is in {plural(len(self.lines), 'line')}: " + (
                ", ".join(map(str, self.lines))
            )
        return f"first wrong statement: {self.problem.diagnostic.message}"


@dataclass(frozen=True)
class ProgramVerdict:
    """One run of one program on one machine."""

    checks: Verdict
    device_run: DeviceRun

    @property
    def costs(self) -> Costs:
        return costs_of([self.device_run.summary])

    @property
    def fits(self) -> bool:
        return not any(isinstance(f, OnChipOverflow) for f in self.device_run.findings)

    def to_data(self) -> JsonObject:
        return {
            "name": self.checks.name,
            "machine": self.checks.machine,
            "costs": self.costs.to_data(),
            "bound": self.device_run.summary.bound,
            "checks": [part.to_data() for part in self.checks.parts],
        }


@dataclass(frozen=True)
class ScriptVerdict:
    """The verdict on a script.

    correct  whether all outputs match; None if the script compares nothing
    why      first line of the failure
    golden   strength of the comparison; None unless requested
    messages  diagnostics, including errors of the script
    """

    name: str
    machines: tuple[str, ...]
    status: str
    why: str = ""
    first_wrong: FirstWrong | None = None
    programs: Sequence[ProgramVerdict] = ()
    golden: CheckResult | None = None
    messages: Sequence[Diagnostic] = ()
    seconds: float = 0.0

    @property
    def correct(self) -> bool | None:
        return {RIGHT: True, NOT_COMPARED: None}.get(self.status, False)

    @property
    def fits(self) -> bool | None:
        return all(program.fits for program in self.programs) if self.programs else None

    @property
    def ok(self) -> bool:
        """Whether nothing was found to be wrong."""
        return self.correct is not False and not self.findings

    @property
    def findings(self) -> list[Diagnostic]:
        """Findings of all checks, without duplicates."""
        parts = [part for program in self.programs for part in program.checks.parts]
        parts += [self.golden] if self.golden else []
        return list(dict.fromkeys(f.diagnostic for part in parts for f in part.findings))

    @property
    def costs(self) -> dict[str, Costs]:
        """Costs by machine, summed over all programs."""
        return {
            machine: costs_of(
                [p.device_run.summary for p in self.programs if p.checks.machine == machine]
            )
            for machine in self.machines
            if self.programs
        }

    @property
    def diagnostics(self) -> list[Diagnostic]:
        first = [self.first_wrong.problem.diagnostic] if self.first_wrong else []
        return list(dict.fromkeys([*self.messages, *first, *self.findings]))

    def to_data(self) -> JsonObject:
        """Return the `verdict` object of the JSON schema."""
        golden = self.golden
        return {
            "status": self.status,
            "correct": self.correct,
            "why": self.why,
            "first_wrong": self.first_wrong.to_data() if self.first_wrong else None,
            "fits": self.fits,
            "costs": {machine: costs.to_data() for machine, costs in self.costs.items()},
            "programs": [program.to_data() for program in self.programs],
            "golden": {"status": golden.status.value, "summary": golden.summary}
            if golden
            else None,
            "seconds": round(self.seconds, 3),
        }

    def to_json(self) -> str:
        """The document that `tilelet verdict --format json` prints."""
        answer = self.to_data()
        return document("verdict", self.name, self.machines, self.diagnostics, verdict=answer)

    def parts(self) -> list[str | Table]:
        """Return the verdict as text."""
        text = f"{self.name}: {self.status}" + (f": {self.why}" if self.why else "")
        text += f"\n{self.first_wrong}" if self.first_wrong else ""
        found = plural(len(self.findings), "finding") if self.findings else "no findings"
        if self.programs:
            text += f"\n{found}; tiles {'fit' if self.fits else 'do not fit'} on chip"
        unchecked = unchecked_line(program.checks.unchecked for program in self.programs)
        text += f"\n{unchecked}" if unchecked else ""
        if self.golden is not None:
            text += f"\ngolden: {self.golden.summary}"
        table = Table("", ("machine", "us", "nine of ten boards", "tasks", "GM bytes"), left=1)
        for machine, costs in self.costs.items():
            between = " to ".join(map(number, costs.interval)) if costs.interval else "not known"
            table.rows.append(
                (
                    machine,
                    number(costs.us),
                    between,
                    f"{costs.tasks:,}",
                    byte_text(costs.gm_bytes),
                )
            )
        return [text, table] if table.rows else [text]

    def __str__(self) -> str:
        from tilelet.diag.tables import as_text

        return "\n\n".join(as_text(self.parts()))


@dataclass(frozen=True)
class Wanted:
    """Options of a verdict.

    strength  seconds for testing whether the golden detects wrong ops; None: skip
    """

    machines: Sequence[Machine]
    period: str | None = None
    options: RecordingOptions = field(default_factory=RecordingOptions)
    strength: float | None = None


def verdict(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    platform: str | Sequence[str] = "a2a3",
    strength: float | None = None,
    seed: int = 0,
) -> ScriptVerdict:
    """Run a script or shipped program and return the verdict on it.

    arguments  of the script
    platform   a modelled machine, or several
    strength   seconds for testing whether the script's golden detects wrong ops
    """
    names = (platform,) if isinstance(platform, str) else tuple(platform)
    machines = [load_machine(name) for name in names]
    options = RecordingOptions(platform=names[0], seed=seed, quiet=True)
    target = Target(str(script), tuple(arguments))
    return verdict_of(target, Wanted(machines, options=options, strength=strength))


def verdict_of(target: Target, wanted: Wanted) -> ScriptVerdict:
    """Return the verdict on a target."""
    start = time.perf_counter()
    options = dataclasses.replace(wanted.options, execute=True, quiet=True, keep_arguments=True)
    silence = io.StringIO()
    with contextlib.redirect_stderr(silence), contextlib.redirect_stdout(silence):
        recording = record(target, options)
    status, why = _status(recording)
    seen = recording.runs
    bad = [run for run in seen if run.result is not None and not run.result.passed]
    found = ScriptVerdict(
        target.name,
        tuple(machine.name for machine in wanted.machines),
        status,
        why,
        _first_wrong(bad[0]) if status == WRONG and bad else None,
        [_judge(run, machine, wanted) for run in seen for machine in wanted.machines],
        _strength(seen, wanted) if wanted.strength is not None else None,
        tuple(recording.diagnostics),
    )
    return dataclasses.replace(found, seconds=time.perf_counter() - start)


def _status(recording: Recording) -> tuple[str, str]:
    results = recording.session.results
    failed = [result for result in results if not result.passed]
    errors = [d for d in recording.diagnostics if d.severity == "error"]
    if recording.code == exit_codes.COULD_NOT_RUN or not recording.runs:
        lines = [f"{d.code}: {d.message}" for d in errors]
        lines += [recording.outcome.bug or "it runs no program"]
        return COULD_NOT_RUN, lines[0].strip().partition("\n")[0]
    if failed:
        return WRONG, _line(failed[0])
    if recording.code:
        return WRONG, f"the script ended with exit code {recording.code}"
    return (RIGHT if any(r.validated for r in results) else NOT_COMPARED), ""


def _line(result: RunResult) -> str:
    """Return the first non-empty line of a report."""
    lines = [line.strip() for line in (result.error or "").splitlines()]
    return next((line for line in lines if line.strip("-= ")), "the outputs do not match")


def _judge(run: RecordedRun, machine: Machine, wanted: Wanted) -> ProgramVerdict:
    subject = Subject(run, run.arguments, machine, wanted.period, run.comparison)
    with progress(f"checking {run.name} on {machine.name}"):
        return ProgramVerdict(verdict_on(subject, chosen_checks(())), subject.device_run)


def _first_wrong(run: RecordedRun) -> FirstWrong | None:
    if run.comparison is None or run.comparison.case is None:
        return None
    with progress(f"following {run.name}"):
        return FirstWrong.of(run.name, run.comparison.case(), DIVERGE_SECONDS)


def _strength(seen: Sequence[RecordedRun], wanted: Wanted) -> CheckResult | None:
    """Return the strength of the first comparison."""
    for one in seen:
        if one.comparison is not None:
            subject = Subject(
                one,
                one.arguments,
                wanted.machines[0],
                wanted.period,
                one.comparison,
                wanted.strength or 0.0,
            )
            with progress(f"corrupting ops of {one.name}"):
                return verdict_on(subject, [CHECKS["golden"]]).parts[0]
    return None
