"""`tilelet export`: keep cases as they were written; nothing is compiled or run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field
from tilelet.ir.core import FunctionKind
from tilelet.runtime.handlers.base import ranks_refused
from tilelet.runtime.handlers.count import Count

if TYPE_CHECKING:
    from tilelet.ir.core import Program
    from tilelet.runtime.data.specs import Spec
    from tilelet.runtime.harness.call_forms import RunCase
    from tilelet.runtime.harness.case_run import CaseRun
    from tilelet.runtime.programs.compiler import ProgramCall


@dataclass
class Export(Count):
    """Keeps each case: the program as written, its specs, and the case; calls are counted."""

    cases: list[tuple[Program, list[Spec], RunCase]] = field(
        default_factory=list["tuple[Program, list[Spec], RunCase]"]
    )

    def case(self, run: CaseRun) -> None:
        program, specs = run.written
        if program.main.kind is FunctionKind.Host:
            raise ranks_refused(program)
        run.session.programs_seen += 1
        self.cases.append((program, list(specs.values()), run.case))
        run.result.passed, run.result.was_executed = True, False

    def call(self, call: ProgramCall) -> None:
        if call.program.has_ranks:
            raise ranks_refused(call.program.program)
        super().call(call)
