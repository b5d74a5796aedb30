"""`tilelet tasks`: count the tasks of programs, and execute none."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilelet.analysis.control_reads import parameters_read
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.cautions import HoldsForInputs
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.text import escape_controls, plural
from tilelet.dtypes import Argument, Arguments
from tilelet.ir.types import TensorType
from tilelet.runtime.handlers.base import ranks_refused
from tilelet.runtime.output.task_table import TaskTable
from tilelet.runtime.progress import progress
from tilelet.tasks.stream import TaskStream

if TYPE_CHECKING:
    from tilelet.runtime.config import RunConfig
    from tilelet.runtime.harness.case_run import CaseRun
    from tilelet.runtime.programs.compiler import CompiledProgram, ProgramCall
    from tilelet.runtime.programs.engines import TaskCounter
    from tilelet.runtime.session import Session

Data = Callable[[], Arguments]
"""Allocates all arguments with their data."""


@dataclass
class Count:
    """Counts tasks and prints them, kernel by kernel.

    as_runtime  count as the device's runtime does
    """

    as_runtime: bool = False
    executes = False
    silent = True
    only_results = False

    def case(self, run: CaseRun) -> None:
        with run.compiling():
            compiled = run.compiled
        needed, shapes = run.control_arguments()
        with progress(f"counting the tasks of {compiled.name}"):
            tasks = self._count(
                compiled, {**needed, **shapes}, run.lent_inputs, run.session, run.case.config
            )
        note_counted(run, tasks)
        self._show(compiled, tasks, run.session)

    def call(self, call: ProgramCall) -> None:
        given = call.arguments
        with progress(f"running {call.program.name}"):
            tasks = self._count(call.program, given, lambda: given, call.session, call.config)
        self._show(call.program, tasks, call.session)

    def uncalled(self, program: CompiledProgram, path: str, now: Session) -> None:
        del path
        arguments = zero_arguments(program)
        try:
            tasks = self._count(program, arguments, None, now, program.config)
        except DependsOnTaskData:
            say_compiled(program, NO_INPUTS)
            return
        self._show(program, tasks, now)

    def _count(
        self,
        program: CompiledProgram,
        arguments: Arguments,
        data: Data | None,
        now: Session,
        config: RunConfig,
    ) -> TaskCounter:
        if program.has_ranks:
            if self.as_runtime:
                raise ranks_refused(program.program)
            return record_tasks(program, arguments, data, now, config=config)
        if self.as_runtime or program.config.profiles:
            return record_tasks(program, arguments, data, now)
        from tilelet.interp.counting import count_tasks

        try:
            return count_tasks(program.program, arguments)
        except DependsOnTaskData as problem:
            return execute_to_count(program, data, now, problem)

    def _show(self, program: CompiledProgram, tasks: TaskCounter, now: Session) -> None:
        as_runtime = program.program if self.as_runtime else None
        table = TaskTable.of(program.name, tasks, as_runtime)
        now.task_tables.append(table)
        if not now.quiet_diagnostics:
            now.say_once(table.text(), sys.stdout)


def record_tasks(
    program: CompiledProgram,
    arguments: Arguments,
    data: Data | None,
    now: Session,
    most_tasks: int | None = None,
    config: RunConfig | None = None,
) -> TaskCounter:
    """Record at most `most_tasks` tasks; execute them if later tasks depend on their results."""
    try:
        return program.run_tasks(arguments, config, False, most_tasks=most_tasks, now=now)
    except DependsOnTaskData as problem:
        return execute_to_count(program, data, now, problem, records=True, config=config)


def execute_to_count(
    program: CompiledProgram,
    data: Data | None,
    now: Session,
    problem: DependsOnTaskData,
    *,
    records: bool = False,
    config: RunConfig | None = None,
) -> TaskCounter:
    """Execute a program whose tasks depend on results; raise `problem` if there is no data."""
    if data is None:
        raise problem
    arguments = data()
    note_inputs(program, problem.name, arguments, now)
    return program.run_tasks(arguments, config, records=records, now=now)


def note_inputs(program: CompiledProgram, name: str, arguments: Arguments, now: Session) -> None:
    """Report that the tasks follow from the inputs, because the control program reads `name`."""
    inputs = [p.name for p in program.parameters if not p.is_pure_output]
    digest = 0
    for given in inputs:
        digest = zlib.crc32(np.ascontiguousarray(arguments[given]).view(np.uint8).data, digest)
    now.report([HoldsForInputs(program.name, name, inputs, f"{digest:08x}").diagnostic])


def note_counted(run: CaseRun, tasks: TaskCounter) -> None:
    """Report in the result of a case that its tasks were counted."""
    result = run.result
    result.tasks = tasks.counts()
    result.all_counted = not isinstance(tasks, TaskStream) or tasks.complete
    result.passed, result.was_executed = True, False


NO_INPUTS = "what its tasks compute decides how many follow, and there are no inputs"


def say_compiled(program: CompiledProgram, why: str) -> None:
    """Print that a program was compiled, and why it was not run."""
    kernels = plural(len(program.program.kernels), "kernel")
    print(escape_controls(f"{program.name}: compiled, {kernels}; {why}"))


def zero_arguments(program: CompiledProgram) -> dict[str, Argument]:
    """Return zeros for scalars, integers, and tensors that the control program reads."""
    arguments: dict[str, Argument] = {}
    read = parameters_read(program.program)
    for parameter in program.parameters:
        if not isinstance(parameter.type, TensorType):
            arguments[parameter.name] = 0
            continue
        extents, dtype = parameter.type.shape, parameter.type.dtype
        is_known = all(isinstance(d, int) for d in extents)
        if not dtype.is_float or not is_known or parameter.name in read:
            shape = [d if isinstance(d, int) else 1 for d in extents]
            arguments[parameter.name] = np.zeros(shape, dtype.numpy)
    return arguments
