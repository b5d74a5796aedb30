"""The list of checks. It is read by the command line, so it imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelet.diag.catalogue.checks import UnknownCheck

if TYPE_CHECKING:
    from tilelet.checks.verdict import Part, Subject


@dataclass(frozen=True)
class Check:
    """One check: a module of this package with a function `check(subject) -> Part`.

    cheap   `tilelet run` makes it, too: it reads the record and executes nothing
    opt_in  it is made only when it is asked for by name
    """

    name: str
    about: str
    cheap: bool = False
    opt_in: bool = False
    module: str = ""

    def run(self, subject: Subject) -> Part:
        module = importlib.import_module(f"tilelet.checks.{self.module or self.name}")
        return module.check(subject)


CHECKS = {
    check.name: check
    for check in (
        Check("capacity", "tiles fit into on-chip memory", cheap=True),
        Check("alignment", "rows, fractals, extents and types that the cores take", cheap=True),
        Check("limits", "the runtime's task window and heap suffice", cheap=True),
        Check("golden", "the comparison notices when an op is wrong", opt_in=True),
    )
}


def chosen(names: Iterable[str]) -> list[Check]:
    """The checks of these names; without names, all that are not opt-in."""
    wanted = list(names)
    for name in wanted:
        if name not in CHECKS:
            raise UnknownCheck(name, list(CHECKS))
    return [c for c in CHECKS.values() if (c.name in wanted if wanted else not c.opt_in)]
