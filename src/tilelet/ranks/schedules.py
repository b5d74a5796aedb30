"""The verdict on the schedules of a program with several ranks."""

from __future__ import annotations

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.ranks import RanksDeadlock
from tilelet.diag.core import Diagnostic
from tilelet.diag.json_types import JsonObject
from tilelet.diag.text import plural


@dataclass
class Schedules:
    """Result of exploring a program.

    findings  each with the seed of the first schedule that shows it; "": found in the text
    tried     number of schedules that ran
    complete  whether they represent all schedules
    """

    name: str
    world: int
    findings: list[tuple[Diagnostic, str]] = field(default_factory=list[tuple[Diagnostic, str]])
    tried: int = 0
    complete: bool = False

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def can_run(self) -> bool:
        """Whether the program runs to its end in program order."""
        return not any(d.code == RanksDeadlock.code for d, _ in self.findings)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return the findings, each with the command that reproduces it."""
        return [
            replace(d, helps=(*d.helps, f"again: `tilelet check ... --replay {seed}`"))
            if seed
            else d
            for d, seed in self.findings
        ]

    @property
    def verdict(self) -> str:
        if self.findings:
            return f"{len(self.findings)} found"
        return "all schedules covered" if self.complete else f"{self.tried} schedules tried"

    def line(self) -> str:
        """Return the verdict as one line."""
        whole = "all schedules covered, " if self.complete and self.findings else ""
        ran = f"{whole}{self.tried} ran"
        return f"{self.name}: {plural(self.world, 'rank')}: {self.verdict} ({ran})"

    def to_data(self) -> JsonObject:
        """Return the data for `--format json`."""
        return {
            "program": self.name,
            "ranks": self.world,
            "verdict": self.verdict,
            "tried": self.tried,
            "complete": self.complete,
            "seeds": [seed for _, seed in self.findings],
        }
