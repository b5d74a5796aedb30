"""The reference interpreter: runs a program at any stage of the pipeline and records its tasks."""

from __future__ import annotations

import contextlib
import gc
from bdb import BdbQuit
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError

# Imported to register their lowerings in `LOWERINGS`.
from tilelet.interp import (  # noqa: F401
    compute,
    control,
    debug,
    movement,
    scalars,
    submit,
    system,
)
from tilelet.interp.lowering import Observer
from tilelet.interp.state import State
from tilelet.ir.core import Program
from tilelet.tasks.arguments import Argument, bind_arguments
from tilelet.tasks.stream import EnoughTasksError, TaskStream


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of a run, besides the arrays it wrote.

    returned  the values of the entry's `return`: windows and numbers
    """

    tasks: TaskStream
    returned: tuple[Any, ...]


@contextlib.contextmanager
def _without_collector(active: bool) -> Generator[None, None, None]:
    """Disable the garbage collector: recording allocates much and frees nothing."""
    pause = active and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs programs op by op, as the language defines them.

    seed_valid  track valid regions as the compilers of spring 2026 did: unary ops, casts, expands,
                reductions, reshape, transpose, concat and matmul give fully valid results, binary
                ops take the left operand's region
    observer    sees every op that is executed, and may replace it
    most_tasks  limit on the number of recorded tasks, if none is executed
    most_bytes  limit on the bytes that a run allocates in all, and on the bytes of one tile
    """

    seed_valid: bool = False
    observer: Observer | None = None
    most_tasks: int | None = None
    most_bytes: int | None = None

    def prepare(self, program: Program) -> None:
        """Do nothing; other engines compile here."""

    def begin(
        self,
        program: Program,
        arguments: Mapping[str, Argument],
        *,
        execute: bool = True,
        initial_poison: bool = True,
    ) -> tuple[State, list[Any]]:
        """Return the initial state of a run and the arguments of the entry function."""
        state = State(
            program.functions,
            execute=execute,
            poison=initial_poison,
            seed_valid=self.seed_valid,
            observer=self.observer,
            most_bytes=self.most_bytes,
        )
        if not execute:
            state.tasks.most = self.most_tasks
        return state, bind_arguments(program, arguments, execute=execute)

    def run(
        self,
        program: Program,
        arguments: Mapping[str, Argument],
        *,
        execute: bool = True,
        initial_poison: bool = True,
    ) -> Execution:
        """Run the entry function on `arguments`, given by parameter name.

        Arrays are used in place: results appear in the caller's arrays. With `execute=False` the
        control program runs and records its tasks, but no task is executed; arrays of known shape
        may then be omitted. `initial_poison=False` zeroes undefined memory.
        """
        return self.go_on(
            program,
            *self.begin(program, arguments, execute=execute, initial_poison=initial_poison),
        )

    def go_on(self, program: Program, state: State, bound: list[object]) -> Execution:
        """Complete a run that was begun with this state and these arguments."""
        try:
            with np.errstate(all="ignore"), _without_collector(not state.execute):
                returned = state.code(program.entry).run(bound)
        except EnoughTasksError:
            returned = ()
        except (UserError, InternalError, MemoryError, BdbQuit):
            raise
        except Exception as error:
            problem = f"{type(error).__name__} in the interpreter: {error}"
            raise InternalError(problem, function=program.entry) from error
        return Execution(state.tasks, returned)
