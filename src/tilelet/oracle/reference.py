"""The reference script: its case, its own run, and the further inputs on which it is right."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.device.machine.description import Machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun
from tilelet.diag.catalogue.oracle import NotAReference
from tilelet.diag.core import UserError, UserErrors
from tilelet.dtypes import Arguments, Array
from tilelet.ir.core import Program
from tilelet.oracle.trials import Trial, noise, trials
from tilelet.oracle.work import LOOSE, CountedRun, Limits, run_counted
from tilelet.runtime import session
from tilelet.runtime.handlers.execute import Execute
from tilelet.runtime.handlers.record import RecordedRun, copies, with_control_traces
from tilelet.runtime.harness.case_run import CaseRun, as_spec
from tilelet.runtime.programs.binding import scalars_of
from tilelet.runtime.session import Session
from tilelet.scripts.script import ScriptExit
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target

MAX_TRIALS = 8
MAX_OWN_ERROR = 0.5
"""Share of the tolerance that the reference may use on further inputs: others round differently."""


@dataclass
class _Keep(Execute):
    """Keeps every case of a script; nothing is executed for it here."""

    cases: list[CaseRun] = field(default_factory=list[CaseRun])
    silent = True

    def case(self, run: CaseRun) -> None:
        self.cases.append(run)
        run.result.passed, run.result.was_executed = True, False


@dataclass(frozen=True)
class Expected:
    """Inputs and the outputs that the golden gives for them, by spec name.

    error  largest share of the tolerance that the reference itself uses
    """

    trial: Trial
    outputs: Mapping[str, Any]
    error: float


class Reference:
    """A script that gives specs, inputs and golden. It is trusted and executed."""

    def __init__(self, target: Target, *, seed: int = 0) -> None:
        self.name = target.name
        self._profiles: dict[Machine, Profile] = {}
        handler = _Keep()
        self.session = Session(handler, seed=seed, quiet_diagnostics=True)
        silence = io.StringIO()
        with (
            session.active(self.session),
            contextlib.redirect_stdout(silence),
            contextlib.redirect_stderr(silence),
            stand_ins("tilelet", "tilelet", self.session),
        ):
            outcome = target.run(self.session)
        if len(handler.cases) != 1:
            raise NotAReference(self.name, _why_not(handler, outcome))
        self.run = handler.cases[0]
        if self.run.case.golden is None:
            raise NotAReference(self.name, "there is no golden")

    @cached_property
    def program(self) -> Program:
        with session.active(self.session):
            return self.run.compiled.program

    @cached_property
    def first(self) -> Expected:
        """The reference's own inputs; raise if its program is wrong on them."""
        with session.active(self.session):
            given = self.run.inputs()
        found = self.expected(Trial("the reference's inputs", given))
        if found is None:
            raise NotAReference(self.name, "its program does not pass its own comparison")
        return found

    @cached_property
    def own_run(self) -> CountedRun:
        return run_counted(self.program, self.first.trial.arguments, LOOSE)

    @cached_property
    def limits(self) -> Limits:
        nbytes = sum(getattr(a, "nbytes", 8) for a in self.first.trial.arguments.values())
        return Limits.above(self.own_run.steps, nbytes)

    @cached_property
    def fresh(self) -> list[str]:
        """Outputs that may hold anything before a run: the reference overwrites all of them."""
        with session.active(self.session):
            names = self.run.fresh_outputs()
        noisy = noise(self.first.trial.arguments, names)
        return names if self.expected(Trial("noise", noisy)) is not None else []

    @cached_property
    def others(self) -> list[Expected]:
        """Further inputs on which the reference passes its own comparison."""
        given = self.first.trial.arguments
        found: list[Expected] = []
        outputs = self.run.fresh_outputs()
        for trial in trials(self.program, given, outputs):
            if len(found) == MAX_TRIALS:
                break
            expected = self.expected(
                dataclasses.replace(trial, arguments=noise(trial.arguments, self.fresh))
            )
            if (
                expected is not None
                and expected.error <= MAX_OWN_ERROR
                and not _is_repeated(expected, found)
            ):
                found.append(expected)
        return found

    def expected(self, trial: Trial) -> Expected | None:
        """Return what the golden expects for a trial; None if the trial is not legal."""
        try:
            with session.active(self.session), np.errstate(all="ignore"):
                arrays = self.by_spec(self.run, trial.arguments)
                scalars = self._scalars(trial.arguments)
                golden = self.run.case.golden
                assert golden is not None
                outputs = self.run.golden_on(arrays, scalars, golden)
                if not all(np.isfinite(_doubles(a)).all() for a in outputs.values()):
                    return None
                made = run_counted(self.program, trial.arguments, LOOSE).arguments
                actual = self.by_spec(self.run, made)
                if not self.passes(actual, outputs, trial.arguments):
                    return None
        except (UserError, UserErrors, ValueError, IndexError, TypeError, KeyError):
            return None  # the golden does not take these inputs
        return Expected(trial, outputs, self.error(actual, outputs))

    def passes(
        self, actual: Mapping[str, Array], expected: Mapping[str, Array], given: Arguments
    ) -> bool:
        """Compare outputs as the reference script does."""
        inputs = {**self.by_spec(self.run, given), **scalars_of(self.run.case.specs)}
        wanted = {name: actual[name] for name in expected}
        return all(j.ok for j in self.run.judge.judge_all(wanted, expected, inputs))

    def error(self, actual: Mapping[str, object], expected: Mapping[str, object]) -> float:
        """Return the largest share of the tolerance that outputs use; 1 is all of it.

        The golden is finite: of an output that is not a number, the share is infinite.
        """
        rtol, atol = self.run.case.rtol, self.run.case.atol
        worst = 0.0
        with np.errstate(all="ignore"):
            for name, wanted in expected.items():
                a, e = _doubles(actual[name]), _doubles(wanted)
                allowed = atol + rtol * np.abs(e)
                share = np.where(a == e, 0.0, np.abs(a - e) / np.maximum(allowed, 1e-300))
                share = np.where(np.isnan(share), np.inf, share)
                worst = max(worst, float(share.max(initial=0.0)))
        return worst

    def by_spec(self, run: CaseRun, arguments: Arguments) -> dict[str, Array]:
        """Return arrays by the names of their specs, in the specs' element types."""
        return {
            spec.name: as_spec(spec, array)
            for name, spec in run.specs.items()
            if isinstance(array := arguments.get(name), np.ndarray)
        }

    def _scalars(self, arguments: Arguments) -> dict[str, np.generic]:
        known = scalars_of(self.run.case.specs)
        by_param = {spec.name: name for name, spec in self.run.specs.items()}
        return {
            n: type(v)(arguments[by_param[n]]) if by_param.get(n) in arguments else v
            for n, v in known.items()
        }

    def profile(self, machine: Machine) -> Profile:
        """Return the modelled run of the reference's own program."""
        if machine not in self._profiles:
            run = record_within_limits(self.run, self.program, self.first.trial.arguments)
            self._profiles[machine] = DeviceRun(run, machine).figures
        return self._profiles[machine]


def record_within_limits(run: CaseRun, program: Program, given: Arguments) -> RecordedRun:
    """Record the tasks of a program whose run is known to be within limits."""
    from tilelet.interp.interpreter import Interpreter

    tasks = Interpreter().run(program, copies(given)).tasks
    stream = with_control_traces(program, tasks, given)
    return RecordedRun(run.case.name, program, stream, given, run.comparison())


def _doubles(array: object) -> Any:
    return np.asarray(array).astype(np.float64)


def _is_repeated(one: Expected, others: list[Expected]) -> bool:
    """Return whether a trial adds nothing: its inputs were tried before."""
    return any(
        all(np.array_equal(v, other.trial.arguments[n]) for n, v in one.trial.arguments.items())
        for other in others
    )


def _why_not(handler: _Keep, outcome: ScriptExit) -> str:
    if len(handler.cases) > 1:
        return f"it calls `run` {len(handler.cases)} times"
    if outcome.traceback:
        return outcome.traceback.strip().splitlines()[-1]
    if outcome.errors:
        return outcome.errors[0].message
    return outcome.bug.partition("\n")[0] or "it calls `run` with no specs"


def load_reference(path: str | Path, *, seed: int = 0) -> Reference:
    """Run a reference script."""
    return Reference(Target(str(path)), seed=seed)
