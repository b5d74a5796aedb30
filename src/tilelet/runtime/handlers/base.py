"""The interface between the harness and the command that a script runs under."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ranks import RanksOnly
from tilelet.dtypes import Arguments

if TYPE_CHECKING:
    from tilelet.ir.core import Program
    from tilelet.ranks.config import DistributedConfig
    from tilelet.ranks.windows import KeptWindows
    from tilelet.runtime.config import RunConfig
    from tilelet.runtime.harness.case_run import CaseRun
    from tilelet.runtime.programs.compiler import CompiledProgram, ProgramCall
    from tilelet.runtime.session import Session


class ProgramHandler(Protocol):
    """Decides what becomes of each program that a script runs.

    executes      kernels compute results; if not, a script's large torch tensors are deferred, and
                  its own checks of results may fail
    silent        cases print no stages on the console
    only_results  repeated calls may go straight to native code
    """

    executes: bool
    silent: bool
    only_results: bool

    def case(self, run: CaseRun) -> None:
        """Handle `run(program, specs, golden)`; the outcome goes to `run.result`."""
        ...

    def call(self, call: ProgramCall) -> None:
        """Handle `program(*arrays)`."""
        ...

    def uncalled(self, program: CompiledProgram, path: str, now: Session) -> None:
        """Handle a program that the script at `path` defines and does not run."""
        ...


@dataclass(frozen=True)
class RanksRun:
    """A program of several ranks that a script runs."""

    name: str
    program: Program
    arguments: Arguments
    config: DistributedConfig | None
    kept: KeptWindows | None = None


Explore: TypeAlias = "Callable[[RanksRun], bool]"
"""Explores the schedules of a program of several ranks; returns whether it can be run."""


def ranks_refused(program: Program) -> RanksOnly:
    """Return the error of a command that takes programs of one chip."""
    from tilelet.ir.core import walk
    from tilelet.ir.types import DistributedType
    from tilelet.ir.views import CallView

    called = dict.fromkeys(
        CallView(op).callee for op in walk(program.main.body) if op.name == "call"
    )
    alone = [
        name
        for name in called
        if not any(isinstance(p.type, DistributedType) for p in program.functions[name].params)
    ]
    return RanksOnly(program.main.loc, alone)


def explore_ranks(
    program: CompiledProgram,
    arguments: Callable[[], Arguments],
    config: RunConfig,
    explore: Explore | None = None,
) -> bool:
    """Explore a program of several ranks; return whether to run it. By default it is refused."""
    if explore is None:
        raise ranks_refused(program.program)
    ranks = program.ranks_config(config)
    return explore(
        RanksRun(program.name, program.program, arguments(), ranks, program.kept_windows)
    )
