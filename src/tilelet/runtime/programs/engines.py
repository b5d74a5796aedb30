"""Engines that execute compiled programs: native code or the interpreter."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.command import NoCompiler, UnknownEngine
from tilelet.diag.internal import InternalError
from tilelet.dtypes import Arguments
from tilelet.ir.core import Program
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import session
from tilelet.runtime.progress import progress
from tilelet.runtime.session import Session

if TYPE_CHECKING:
    from tilelet.ranks.windows import KeptWindows
    from tilelet.runtime.output.run_directory import RunDirectory


class TaskCounter(Protocol):
    """The record of a run, as far as the harness reads it."""

    def counts(self) -> dict[str, int]: ...

    @property
    def total(self) -> int: ...


class EngineResult(Protocol):
    """The result of an engine run; outputs are in the arguments' arrays."""

    @property
    def tasks(self) -> TaskCounter: ...


class ProgramEngine(Protocol):
    """Runs the passed program on arrays, in place. `execute=False` only records the tasks."""

    def prepare(self, program: Program) -> None: ...

    def run(
        self, program: Program, arguments: Arguments, *, execute: bool = True
    ) -> EngineResult: ...


@dataclass(frozen=True)
class RunRequest:
    """Requests of a run besides its results.

    c_folder    returns the directory for the C text if it is to be kept
    records     record the tasks with their arguments, not only their number
    most_tasks  limit of recorded tasks if none is executed; None: no limit
    directory   receives a reproducer if a plan is wrong
    session     whose settings apply; default: the current session
    """

    c_folder: Callable[[], Path | None] = lambda: None
    records: bool = False
    most_tasks: int | None = None
    directory: RunDirectory | None = None
    session: Session = field(default_factory=session.current)


Factory = Callable[[RunRequest], ProgramEngine]
_FACTORIES: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Add an engine; `factory` is called, and may import, only when the engine is chosen."""
    _FACTORIES[name] = factory


def engine_names() -> list[str]:
    return sorted(_FACTORIES)


def get(name: str | None = None, request: RunRequest | None = None) -> ProgramEngine:
    """Return a fresh engine; raise `UnknownEngine` for an unknown name.

    Without a name it is the session's, else the default, or the interpreter if there is no C
    compiler. An explicit `cpu` without a compiler raises `NoCompiler`.
    """
    request = request or RunRequest()
    now = request.session
    chosen = name or now.chosen_engine
    if chosen is None:
        chosen = "interp" if now.seed_valid or not _has_compiler() else session.DEFAULT_ENGINE
    if chosen not in _FACTORIES:
        raise UnknownEngine(chosen, engine_names())
    return _FACTORIES[chosen](request)


_no_compiler_said = threading.Event()


def _has_compiler() -> bool:
    """Whether there is a C compiler; print once if there is none."""
    from tilelet.native.toolchain import find_compiler

    try:
        find_compiler()
    except NoCompiler as error:
        if not _no_compiler_said.is_set():
            _no_compiler_said.set()
            why, how = error.diagnostic.message, error.diagnostic.helps[0]
            print(f"note: {why}: programs are interpreted; {how}", file=sys.stderr, flush=True)
        return False
    return True


def runs_natively(program: Program) -> bool:
    """Whether this program runs natively by default."""
    if not _has_compiler():
        return False
    from tilelet.cpu.run.engine import stops_for_a_debugger

    return not stops_for_a_debugger(program)


def of_ranks(
    config: DistributedConfig | None,
    callbacks: Mapping[str, Callable[..., object]] | None = None,
    kept: KeptWindows | None = None,
    chosen: str | None = None,
    over_mpi: bool = False,
    resident: Mapping[str, Sequence[int]] | None = None,
) -> ProgramEngine:
    """Return the engine for a program of several ranks.

    kept      its persistent windows
    resident  ranks of the shards of each parameter whose shards stay on their ranks
    """
    if over_mpi:
        from tilelet.ranks.mpi import MpiEngine as RanksEngine
    else:
        from tilelet.ranks.engine import RanksEngine

    is_native = chosen != "interp" and _has_compiler()
    return RanksEngine(config or DistributedConfig(), callbacks, kept, is_native, resident or {})


def _interpreter(request: RunRequest) -> ProgramEngine:
    from tilelet.interp.interpreter import Interpreter

    now = request.session
    if now.keep_c:
        now.say_once("note: there is no C text to keep: programs are interpreted")
    return Interpreter(seed_valid=now.seed_valid, most_tasks=request.most_tasks)


def _native_engine(request: RunRequest) -> ProgramEngine:
    if request.session.seed_valid:
        return _interpreter(request)  # native code supports one way of tracking valid regions
    from tilelet.cpu.run.engine import CpuEngine
    from tilelet.native.toolchain import unused_level

    level = unused_level()
    if level is not None:
        request.session.say_once(f"note: {level} is not used: programs are compiled with -O3")

    return CpuEngine(
        request.c_folder(),
        progress,
        request.records,
        request.session.keep_plan,
        functools.partial(_report_plan, request),
    )


def _report_plan(request: RunRequest, error: InternalError, program: Program) -> None:
    """Say that a program is interpreted because its plan is wrong; write a reproducer."""
    where = ""
    if request.directory is not None:
        from tilelet.runtime.output.bug_report import write_reproducer

        with contextlib.suppress(OSError):
            where = f"; please report {write_reproducer(error, program, request.directory)}"
    what = f"internal error: {error.problem}: {program.name} is interpreted, which is slow"
    request.session.say_once(f"note: {what}{where}")


register("interp", _interpreter)
register("cpu", _native_engine)
