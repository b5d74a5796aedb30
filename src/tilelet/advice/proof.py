"""Whether a rewriting is right and faster: the rewritten script is checked, run and modelled."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

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
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target

Outputs = list[dict[str, NDArray[Any]]]

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

    why      it is no improvement; empty if it is one
    subject  what it ran; None if it could not
    """

    why: str
    subject: Subject | None = None
    outputs: Outputs = dataclasses.field(default_factory=list[dict[str, NDArray[Any]]])

    @property
    def costs(self) -> Costs | None:
        return self.subject.costs if self.subject else None


def examine(target: Target, text: str, setting: Setting, *, execute: bool) -> Attempt:
    """Run a text of the script, as it stands or rewritten; look at findings, outputs and time."""
    runs: list[DeviceRun] = []
    outputs: Outputs = []
    findings: list[str] = []

    def look(run: Recorded, given: Mapping[str, Any], comparison: Any) -> None:
        checked = Checked(run, given, setting.machine, setting.period, comparison)
        verdict = verdict_on(checked, chosen(()))
        findings.extend(f"{d.code}: {d.message}" for d in verdict.diagnostics)
        runs.append(checked.device_run)
        outputs.append(_outputs(run, given) if execute else {})

    options = dataclasses.replace(setting.options, execute=execute, quiet=True)
    try:
        source = Source(target.name, text)
    except SyntaxError as error:
        return Attempt(f"it is no Python: {error.msg}")
    silence = io.StringIO()
    with contextlib.redirect_stderr(silence), contextlib.redirect_stdout(silence):
        recording = record(dataclasses.replace(target, text=text), options, look)
    if recording.code or not runs:
        errors = [d for d in recording.diagnostics if d.severity == "error"]
        why = f"{errors[0].code}: {errors[0].message}" if errors else f"exit code {recording.code}"
        return Attempt(f"it does not run: {why}")
    subject = Subject(source, runs)
    return Attempt(findings[0] if findings else "", subject, outputs)


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
