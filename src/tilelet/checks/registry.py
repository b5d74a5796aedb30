"""The list of checks; it imports none of them, because the command line reads it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.checks import UnknownCheck

if TYPE_CHECKING:
    from tilelet.checks.verdict import CheckResult, Subject


@dataclass(frozen=True)
class Check:
    """One check: a module of this package with a function `check(subject) -> CheckResult`.

    cheap     `tilelet run` runs it, too: it executes nothing
    of_tasks  it needs the recorded tasks, so its time grows with their number
    opt_in    it runs only if requested by name
    """

    name: str
    about: str
    cheap: bool = False
    of_tasks: bool = True
    opt_in: bool = False
    module: str = ""

    def run(self, subject: Subject) -> CheckResult:
        module = importlib.import_module(f"tilelet.checks.{self.module or self.name}")
        return module.check(subject)


CHECKS = {
    check.name: check
    for check in (
        Check("memory", "every window lies inside its tensor"),
        Check("init", "every element that reaches an output, a branch or an index was written"),
        Check("race", "accesses to the same bytes, one a write, are ordered", cheap=True),
        Check("capacity", "tiles fit into on-chip memory", cheap=True, of_tasks=False),
        Check(
            "alignment",
            "the cores support all rows, fractals, extents and types",
            cheap=True,
            of_tasks=False,
        ),
        Check("limits", "the runtime's task window and heap suffice", cheap=True),
        Check("tolerance", "the comparison allows rounding, but not everything"),
        Check("golden", "the comparison notices wrong ops", opt_in=True),
    )
}


def chosen_checks(names: Iterable[str]) -> list[Check]:
    """Return the checks of these names, or all that are not opt-in."""
    wanted = list(names)
    for name in wanted:
        if name not in CHECKS:
            raise UnknownCheck(name, list(CHECKS))
    return [c for c in CHECKS.values() if (c.name in wanted if wanted else not c.opt_in)]


def unchecked_line(unchecked: Iterable[Mapping[str, str]]) -> str:
    """Name, in one line, each check that was not run or not finished, grouped by reason.

    `unchecked` maps checks to reasons, program by program. The line is empty if there are none.
    """
    reasons: dict[str, dict[str, None]] = {}
    for of_program in unchecked:
        for check, why in of_program.items():
            reasons.setdefault(why, {})[check] = None
    parts = [f"{', '.join(checks)} ({why})" for why, checks in reasons.items()]
    return f"not checked: {'; '.join(parts)}" if parts else ""
