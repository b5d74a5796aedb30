"""`tilelet diverge`: keep cases, which the command executes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field
from tilelet.runtime.data.inputs import check_memory
from tilelet.runtime.handlers.base import explore_ranks
from tilelet.runtime.handlers.execute import Execute

if TYPE_CHECKING:
    from tilelet.divergence.case import GoldenCase
    from tilelet.runtime.config import RunConfig
    from tilelet.runtime.handlers.count import Data
    from tilelet.runtime.harness.case_run import CaseRun
    from tilelet.runtime.programs.compiler import CompiledProgram


@dataclass
class Examine(Execute):
    """Keeps every case, by the name of its program; calls are executed."""

    cases: list[tuple[str, GoldenCase]] = field(default_factory=list["tuple[str, GoldenCase]"])
    silent = True

    def case(self, run: CaseRun) -> None:
        config = run.case.config
        with run.compiling():
            compiled = run.compiled
        if compiled.has_ranks:
            self.explore_ranks(compiled, run.lent_inputs, config)
        run.session.announce(config)
        if config.stops_after_compile:
            run.skip_validation("the program was only compiled")
            return
        check_memory(run.case.specs)
        pristine = run.inputs()
        run.result.passed, run.result.was_executed = True, False
        self.cases.append((compiled.name, run.examined(pristine)))

    def explore_ranks(
        self, program: CompiledProgram, arguments: Data, config: RunConfig
    ) -> bool | None:
        return explore_ranks(program, arguments, config)
