"""Verification of rewritings: the rewritten script is checked, run and modelled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tilelet.advice.core import Costs, Subject
from tilelet.advice.programs import Programs, Setting
from tilelet.advice.source import Source
from tilelet.checks.registry import CHECKS
from tilelet.checks.verdict import Subject as Checked
from tilelet.checks.verdict import Verdict, verdict_on
from tilelet.dataclasses import dataclass
from tilelet.equivalence.order import is_ordered

_CHECKS = ("memory", "init", "race", "capacity", "alignment", "limits")
"""All checks except those of the script's own comparison."""


@dataclass(frozen=True)
class Attempt:
    """An examined version of the script.

    why       why it could not be run, or ""
    subject   its runs; None if it could not be run
    checked   the same runs, as subjects of the checks
    """

    why: str
    subject: Subject | None = None
    checked: Sequence[Checked] = ()

    @cached_property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        """Code and message of each refusal by the machine."""
        runs = self.subject.runs if self.subject else ()
        return tuple((f.code, f.diagnostic.message) for run in runs for f in run.findings)

    @cached_property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """Code and message of each check finding."""
        return tuple((d.code, d.message) for v in self._verdicts for d in v.diagnostics)

    @cached_property
    def _verdicts(self) -> list[Verdict]:
        return [verdict_on(c, [CHECKS[name] for name in _CHECKS]) for c in self.checked]

    def is_ordered(self, *, rounding: bool) -> bool:
        """Whether no two tasks race, for all inputs."""
        found = [next(p for p in v.parts if p.check == "race") for v in self._verdicts]
        pairs = zip(self.checked, found)
        return all(is_ordered(subject, race, rounding=rounding) for subject, race in pairs)

    @property
    def costs(self) -> Costs | None:
        return self.subject.costs if self.subject else None


def examine(programs: Programs, text: str, setting: Setting) -> Attempt:
    """Record an original or rewritten text; its time is modelled on demand."""
    try:
        source = Source(programs.path, text)
    except SyntaxError as error:
        return Attempt(f"it is no Python: {error.msg}")
    ran = programs.runs(text)
    if ran.why or not ran.runs:
        return Attempt(f"it does not run: {ran.why or 'it has no program'}")
    checked = [
        Checked(run, run.arguments, setting.machine, setting.period, run.comparison)
        for run in ran.runs
    ]
    return Attempt("", Subject(source, [c.device_run for c in checked], programs.parts()), checked)
