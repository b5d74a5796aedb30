"""Evaluation of one candidate, by the model or on the CPU.

These functions run in worker processes, perhaps on other machines: arguments and results are plain
data.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.core import Diagnostic
from tilelet.equivalence.claims import Claim
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import Recording, RecordingOptions, record
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.device.run import DeviceRun
    from tilelet.runtime.handlers.record import RecordedRun

MODELLED, REFUSED, TOO_LARGE, LOST = "modelled", "refused", "too large", "lost"
"""What became of a candidate: it has figures; the script or the compiler refuses it; a tile does
not fit on chip; the process that worked on it died."""

MEASUREMENTS = 3
"""Number of CPU runs; the fastest is the candidate's time."""


@dataclass(frozen=True)
class Question:
    """The target and the modelled machines."""

    target: Target
    machines: tuple[str, ...]
    period: str | None = None
    seed: int = 0
    pypto: str = "tilelet"
    golden: str = "tilelet"

    @property
    def recording(self) -> RecordingOptions:
        return RecordingOptions(
            platform=self.machines[0],
            seed=self.seed,
            quiet=True,
            pypto=self.pypto,
            golden=self.golden,
        )


@dataclass(frozen=True)
class Score:
    """The score of a candidate.

    why        the reason if there are no figures
    figures    machine -> {"us", "gm_bytes", "tasks"}: sums over all programs that the script runs
    signature  parameters of those programs with their types, and a digest of the arguments that
               decide their control: tuning must not change them
    sizes      extents of those parameters
    digest     of the programs, which identifies equal candidates
    """

    status: str
    why: str = ""
    figures: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    signature: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    digest: str = ""

    @property
    def is_modelled(self) -> bool:
        return self.status == MODELLED


@dataclass(frozen=True)
class Verdict:
    """The result of a candidate on this CPU, compared with the script's golden.

    claim  evidence that it computes the same as the start
    """

    passed: bool
    validated: bool
    seconds: float = 0.0
    why: str = ""
    claim: Claim = Claim.NOT_TRIED


def model(question: Question) -> Score:
    """Model a candidate. One that does not fit is rejected before anything is compiled."""
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import DeviceRun

    machines = [load_machine(name) for name in question.machines]
    with _silence():
        recorded = record(question.target, replace(question.recording, keep_arguments=True))
        refusal = _refusal(recorded)
        if refusal:
            return Score(REFUSED, refusal)
        known = _identity(recorded.runs)
        runs = {
            m.name: [DeviceRun(run, m, question.period) for run in recorded.runs] for m in machines
        }
        for name, on_machine in runs.items():
            found = [finding for run in on_machine for finding in run.findings]
            if found:
                why = f"{name}: {_line(found[0].diagnostic)}"
                return replace(known, status=TOO_LARGE, why=why)
        figures = {name: _figures(on_machine) for name, on_machine in runs.items()}
    return replace(known, figures=figures)


def measure(question: Question) -> Score:
    """Model a candidate, and measure its time on this CPU."""
    score = model(question)
    if not score.is_modelled:
        return score
    verdict = execute(question, MEASUREMENTS)
    if not verdict.passed:
        return replace(score, status=REFUSED, why=verdict.why, figures={})
    ms = {"cpu_ms": verdict.seconds * 1e3}
    return replace(score, figures={name: {**f, **ms} for name, f in score.figures.items()})


def profile(question: Question) -> list[str]:
    """Return the profile of each program on the first machine, as JSON."""
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import DeviceRun

    machine = load_machine(question.machines[0])
    with _silence():
        recorded = record(question.target, question.recording)
        runs = [DeviceRun(run, machine, question.period) for run in recorded.runs]
        return [run.profile.to_json() for run in runs]


def execute(question: Question, times: int = 1) -> Verdict:
    """Run a candidate on the CPU; return the fastest of `times` runs."""
    fastest: Verdict | None = None
    for _ in range(times):
        verdict = _execute_once(question)
        if not verdict.passed:
            return verdict
        if fastest is None or verdict.seconds < fastest.seconds:
            fastest = verdict
    assert fastest is not None
    return fastest


def verify(candidate: Question, start: Question) -> Verdict:
    """Run a candidate on the script's inputs, then compare it with the start on other lengths."""
    verdict = execute(candidate)
    if not verdict.passed or candidate == start:
        return replace(verdict, claim=Claim.PROVED if verdict.passed else Claim.NOT_TRIED)
    with _silence():
        why, claim = _agreement(_programs(start), _programs(candidate), candidate)
    return replace(verdict, passed=not why, why=why, claim=claim)


def _programs(question: Question) -> Sequence[RecordedRun]:
    options = replace(question.recording, execute=True, keep_arguments=True)
    return record(question.target, options).runs


def _agreement(
    before: Sequence[RecordedRun], after: Sequence[RecordedRun], question: Question
) -> tuple[str, Claim]:
    """Return the first difference from the original's results, or "", and the claim of equality."""
    from tilelet.equivalence.data_control import (
        integer_trials,
        open_parameters,
        overlapping_arguments,
    )
    from tilelet.equivalence.proof import prove_equal
    from tilelet.equivalence.trials import differs_from, run_outputs

    if len(before) != len(after):
        return "it runs other programs", Claim.NOT_TRIED
    claim = Claim.PROVED
    for old, new in zip(before, after):
        apart = overlapping_arguments(old.program, old.arguments) is None
        is_one_size = apart and not open_parameters(old.program)
        proved = is_one_size and prove_equal(old.program, new.program, rounding=True).holds
        if proved and _is_ordered(new, question):
            continue
        claim = Claim.TRIED
        judge = old.comparison.judge if old.comparison else None
        for given in integer_trials(old.program, old.arguments):
            expected = run_outputs(old.program, given)
            if expected is None:
                continue  # the original program rejects these inputs
            found = run_outputs(new.program, given)
            if found is None or differs_from(expected, found, judge):
                return "it differs from the start for other integers of its inputs", Claim.NOT_TRIED
    return "", claim


def _is_ordered(run: RecordedRun, question: Question) -> bool:
    """Whether the tasks of a run are ordered for all inputs, on every machine."""
    from tilelet.checks.verdict import Subject
    from tilelet.device.machine.description import load_machine
    from tilelet.equivalence.order import is_ordered

    machines = map(load_machine, question.machines)
    subjects = (Subject(run, run.arguments, m, question.period) for m in machines)
    return all(is_ordered(subject, rounding=True) for subject in subjects)


def _execute_once(question: Question) -> Verdict:
    now = Session(seed=question.seed, quiet_diagnostics=True)
    names = stand_ins(question.pypto, question.golden, now)
    with _silence(), session.active(now), names:
        outcome = question.target.run(now)
    code = exit_codes.of_script(outcome, now)
    failed = [result for result in now.results if not result.passed]
    why = _first_line(str(failed[0].error)) if failed else ""
    if not why and code:
        why = _line(outcome.errors[0]) if outcome.errors else f"exit code {code}"
    seconds = sum(result.execution_time or 0.0 for result in now.results)
    validated = bool(now.results) and all(result.validated for result in now.results)
    return Verdict(code == 0, validated, seconds, why)


def _figures(runs: list[DeviceRun]) -> dict[str, float]:
    profiles = [run.summary for run in runs]
    return {
        "us": sum(p.total_us for p in profiles),
        "gm_bytes": sum(k.moved for p in profiles for k in p.kernels),
        "tasks": sum(p.tasks for p in profiles),
    }


def _refusal(recording: Recording) -> str:
    """Return why nothing can be modelled, or ""."""
    if not recording.code and recording.runs:
        return ""
    errors = [d for d in recording.diagnostics if d.severity == "error"]
    if errors:
        return _line(errors[0])
    if recording.outcome.bug:
        return _first_line(recording.outcome.bug)
    return f"exit code {recording.code}" if recording.code else "it runs no program"


def _line(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.code}: {_first_line(diagnostic.message)}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _identity(runs: Sequence[RecordedRun]) -> Score:
    """Return digest and signature of the programs."""
    from tilelet.equivalence.data_control import control_digest
    from tilelet.ir.printer import print_program
    from tilelet.ir.types import TensorType

    programs = [run.program for run in runs]
    parameters = [p for program in programs for p in program.main.params]
    shapes = [p.type.shape for p in parameters if isinstance(p.type, TensorType)]
    digest = hashlib.sha256()
    for program in programs:
        digest.update(print_program(program).encode())
    return Score(
        MODELLED,
        signature=(
            *(f"{p.name}: {p.type}" for p in parameters),
            *(control_digest(run.program, run.arguments) for run in runs),
        ),
        sizes=tuple(sorted({d for shape in shapes for d in shape if isinstance(d, int)})),
        digest=digest.hexdigest()[:16],
    )


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """Discard the output of candidates: the start printed it already."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
