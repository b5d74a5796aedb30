"""`tilelet export`: keep cases as they were written; nothing is compiled or run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field
from tilelet.runtime.handlers.count import Count

if TYPE_CHECKING:
    from tilelet.ir.core import Program
    from tilelet.runtime.data.specs import Spec
    from tilelet.runtime.harness.call_forms import RunCase
    from tilelet.runtime.harness.case_run import CaseRun


@dataclass
class Export(Count):
    """Keeps each case: the program as written, its specs, and the case; calls are counted."""

    cases: list[tuple[Program, list[Spec], RunCase]] = field(
        default_factory=list["tuple[Program, list[Spec], RunCase]"]
    )

    def case(self, run: CaseRun) -> None:
        program, specs = run.written
        run.session.programs_seen += 1
        self.cases.append((program, list(specs.values()), run.case))
        run.result.passed, run.result.was_executed = True, False
