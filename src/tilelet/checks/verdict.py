"""The verdict on a recorded run: which checks were made, and what each says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilelet.checks.comparison import Comparison
from tilelet.checks.findings import Finding, Status
from tilelet.checks.registry import Check
from tilelet.device.machine.description import Machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.core import Diagnostic
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import Table
from tilelet.diag.text import plural
from tilelet.ir.core import Program
from tilelet.tasks.stream import TaskStream


@dataclass(frozen=True)
class Subject:
    """A recorded run to be checked.

    arguments   what the program was given, by parameter name, as it was before the run
    machine     the modelled device, and the period of its runtime (None: the machine's own)
    budget      seconds for checks that run until time is up; `seed` chooses what they try
    """

    run: Recorded
    arguments: Mapping[str, Any]
    machine: Machine
    period: str | None = None
    comparison: Comparison | None = None
    budget: float = 60.0
    seed: int = 0

    @property
    def program(self) -> Program:
        return self.run.program

    @property
    def tasks(self) -> TaskStream:
        return self.run.tasks

    @cached_property
    def device_run(self) -> DeviceRun:
        return DeviceRun(self.run, self.machine, self.period)


@dataclass(frozen=True)
class Part:
    """The answer of one check; `summary` says in a line what was looked at, or why it was not."""

    check: str
    status: Status
    summary: str
    findings: tuple[Finding, ...] = ()

    def to_data(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "status": self.status.value,
            "summary": self.summary,
            "findings": [finding.to_data() for finding in self.findings],
        }


def part(check: str, findings: Sequence[Finding], otherwise: Status, summary: str) -> Part:
    """The part of a check that ran: what it found, else how far its silence reaches."""
    return Part(check, Status.FOUND if findings else otherwise, summary, tuple(findings))


@dataclass(frozen=True)
class Verdict:
    """All parts of the answer for one run on one machine."""

    name: str
    machine: str
    parts: tuple[Part, ...] = field(default=())

    @property
    def findings(self) -> list[Finding]:
        return [finding for part in self.parts for finding in part.findings]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [finding.diagnostic for finding in self.findings]

    @property
    def ok(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        """For people: a line on the whole, then one for each part."""
        found = plural(len(self.findings), "finding") if self.findings else "no findings"
        width = max((len(p.check) for p in self.parts), default=0)
        reach = max((len(p.status.value) for p in self.parts), default=0)
        return [
            f"{self.name} on {self.machine}: {found}",
            *(f"  {p.check:<{width}}  {p.status.value:<{reach}}  {p.summary}" for p in self.parts),
        ]

    def to_data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "machine": self.machine,
            "parts": [part.to_data() for part in self.parts],
        }

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.findings), "\n".join(self.lines())])

    def _repr_html_(self) -> str:
        """What a notebook shows: each check's answer, then the findings in full."""
        table = Table(self.lines()[0], ("check", "answer", "what was looked at"), left=3)
        table.rows += [(p.check, p.status.value, p.summary) for p in self.parts]
        return parts_html([table, *map(str, self.findings)])


def verdict_on(subject: Subject, checks: Iterable[Check]) -> Verdict:
    """Make the checks, one after the other."""
    parts = tuple(check.run(subject) for check in checks)
    return Verdict(subject.run.name, subject.machine.name, parts)
