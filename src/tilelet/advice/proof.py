"""Whether a rewriting is right and faster: the rewritten script is checked, run and modelled."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilelet.advice.core import Costs, Subject
from tilelet.advice.source import Source
from tilelet.checks.registry import chosen
from tilelet.checks.verdict import Subject as Checked
from tilelet.checks.verdict import verdict_on
from tilelet.device.machine.description import Machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.ir.core import Direction
from tilelet.runtime import engines
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import Look, RecordingOptions, record
from tilelet.scripts.target import Target

Inputs: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = list[dict[str, NDArray[Any]]]

_TRIALS = 2
"""The script's inputs, and others of the same kind."""

_ROUNDING = 64
"""Units in the last place by which sums in another order may differ, relative to the largest."""


@dataclass(frozen=True)
class Setting:
    """Where programs are modelled, and how scripts run."""

    machine: Machine
    period: str | None
    options: RecordingOptions


@dataclass(frozen=True)
class Attempt:
    """A text of the script that was tried.

    why       it could not be run; empty if it could
    subject   what it ran; None if it could not
    findings  what the checks say of it: code and message
    """

    why: str
    subject: Subject | None = None
    findings: tuple[tuple[str, str], ...] = ()

    @property
    def costs(self) -> Costs | None:
        return self.subject.costs if self.subject else None


def examine(target: Target, text: str, setting: Setting) -> Attempt:
    """Record a text of the script, as it stands or rewritten; look at its findings and its time."""
    runs: list[DeviceRun] = []
    findings: list[tuple[str, str]] = []

    def look(run: Recorded, given: Mapping[str, Any], comparison: Any) -> None:
        checked = Checked(run, given, setting.machine, setting.period, comparison)
        verdict = verdict_on(checked, chosen(()))
        findings.extend((d.code, d.message) for d in verdict.diagnostics)
        runs.append(checked.device_run)

    try:
        source = Source(target.name, text)
    except SyntaxError as error:
        return Attempt(f"it is no Python: {error.msg}")
    why = _recorded(dataclasses.replace(target, text=text), setting, look, execute=False)
    if why or not runs:
        return Attempt(f"it does not run: {why or 'it has no program'}")
    return Attempt("", Subject(source, runs), tuple(findings))


def inputs_of(target: Target, setting: Setting) -> list[Inputs]:
    """What the script gives to each of its programs. It runs for that, once."""
    found: list[Inputs] = []

    def look(_: Recorded, given: Mapping[str, Any], __: Any) -> None:
        found.append({name: _copied(value) for name, value in given.items()})

    _recorded(target, setting, look, execute=True)
    return found


def _copied(value: Any) -> Any:
    """Arrays of their own; all else cannot change."""
    return value.copy() if hasattr(value, "copy") else value


def _recorded(target: Target, setting: Setting, look: Look, *, execute: bool) -> str:
    """Run the script in silence; why it could not, or empty."""
    options = dataclasses.replace(setting.options, execute=execute, quiet=True)
    silence = io.StringIO()
    with contextlib.redirect_stderr(silence), contextlib.redirect_stdout(silence):
        recording = record(target, options, look)
    if recording.code == exit_codes.COULD_NOT_RUN:
        errors = [d for d in recording.diagnostics if d.severity == "error"]
        return f"{errors[0].code}: {errors[0].message}" if errors else "it stopped"
    return ""


def outputs_of(attempt: Attempt, inputs: list[Inputs]) -> Outputs | None:
    """What the programs make of these inputs; None if they take others."""
    runs = attempt.subject.runs if attempt.subject else ()
    if len(runs) != len(inputs):
        return None
    silence = io.StringIO()
    with contextlib.redirect_stderr(silence), contextlib.redirect_stdout(silence):
        return [_outputs(run.run, given) for run, given in zip(runs, inputs)]


def _outputs(run: Recorded, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """What a program makes of the script's inputs, and of others of the same kind.

    What it writes to holds something else in each trial: nobody may rely on zeros that happen to be
    there. Whole numbers stay, because they may be indices.
    """
    main = run.program.main
    found: dict[str, NDArray[Any]] = {}
    for trial in range(_TRIALS):
        draw = np.random.default_rng(trial)
        arguments: dict[str, Any] = {}
        for parameter, direction in zip(main.params, main.directions):
            value = given.get(parameter.name)
            if not isinstance(value, np.ndarray):
                arguments[parameter.name] = value
                continue
            array = cast("NDArray[Any]", value)
            is_changed = trial > 0 or direction is not Direction.In
            arguments[parameter.name] = _like(array, draw) if is_changed else array.copy()
        engines.get(None, engines.RunRequest(lambda: None, False)).run(
            run.program, arguments, execute=True
        )
        for parameter, direction in zip(main.params, main.directions):
            if direction is not Direction.In:
                found[f"{parameter.name}, trial {trial}"] = arguments[parameter.name]
    return found


def _like(array: NDArray[Any], draw: np.random.Generator) -> NDArray[Any]:
    """Other numbers of about the same size."""
    if array.dtype.kind in "iub":
        return array.copy()
    wide = array.astype(np.float64)
    size = float(np.abs(wide[np.isfinite(wide)]).mean()) if wide.size else 0.0
    return (draw.standard_normal(array.shape) * (size or 1.0)).astype(array.dtype)


def difference(before: Outputs, after: Outputs, *, rounding: bool) -> str:
    """What differs between the outputs of two texts; empty if nothing that matters."""
    if [list(b) for b in before] != [list(a) for a in after]:
        return "it has other outputs"
    for run_before, run_after in zip(before, after):
        for name, old in run_before.items():
            new = run_after[name]
            if old.shape != new.shape or old.dtype != new.dtype:
                return f"`{name}` has another shape or type"
            if old.tobytes() == new.tobytes():
                continue
            if not rounding:
                return f"`{name}` differs"
            if not _is_rounding(old, new):
                return f"`{name}` differs by more than rounding"
    return ""


def _is_rounding(old: NDArray[Any], new: NDArray[Any]) -> bool:
    if old.dtype.kind in "iub":
        return False
    a, b = old.astype(np.float64), new.astype(np.float64)
    if not (np.isfinite(a) == np.isfinite(b)).all():
        return False
    finite = np.isfinite(a)
    scale = float(np.abs(a[finite]).max(initial=0.0))
    bound = _ROUNDING * _eps(old.dtype) * scale
    return bool((np.abs(a[finite] - b[finite]) <= bound).all())


def _eps(dtype: np.dtype[Any]) -> float:
    """The step from 1 to the next number."""
    bits = np.ones((), dtype).view(f"u{dtype.itemsize}")
    following = np.array(bits + 1, bits.dtype).view(dtype)
    return float(following) - 1.0
