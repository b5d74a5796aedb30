"""`tilelet check`, `profile`, `advise`, `tune`: record the tasks of programs, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.device.run import Recorded
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.dtypes import Argument, Arguments, Array
from tilelet.runtime.handlers.base import Explore, explore_ranks
from tilelet.runtime.handlers.count import (
    NO_INPUTS,
    Data,
    note_counted,
    note_inputs,
    record_tasks,
    say_compiled,
    zero_arguments,
)
from tilelet.runtime.handlers.execute import Execute, Executed
from tilelet.runtime.output.task_table import TaskTable
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.checks.comparison import GoldenComparison
    from tilelet.ir.core import Program
    from tilelet.runtime.config import RunConfig
    from tilelet.runtime.harness.case_run import CaseRun
    from tilelet.runtime.harness.result import RunResult
    from tilelet.runtime.programs.compiler import CompiledProgram, ProgramCall
    from tilelet.runtime.programs.engines import TaskCounter
    from tilelet.runtime.session import Session
    from tilelet.tasks.stream import TaskStream


@dataclass(frozen=True)
class RecordedRun(Recorded):
    """A recorded run with the context that checks need.

    arguments   the arguments before the run, by parameter name
    comparison  how the script compares the outputs; None for a call
    result      the harness's result of a case, complete when the script has ended
    """

    arguments: Arguments = field(default_factory=dict[str, Argument], compare=False)
    comparison: GoldenComparison | None = field(default=None, compare=False)
    result: RunResult | None = field(default=None, compare=False)


@dataclass
class Record:
    """Keeps every run; executes it only if later tasks depend on results of earlier ones.

    most_tasks      limit of recorded tasks of one run; None: no limit
    keep_arguments  copy the arguments of calls, so that they can be read after the script has ended
    explore         takes programs of several ranks, which are refused without it
    """

    most_tasks: int | None = None
    keep_arguments: bool = True
    explore: Explore | None = None
    runs: list[RecordedRun] = field(default_factory=list[RecordedRun])
    executes = False
    silent = True
    only_results = False

    def case(self, run: CaseRun) -> None:
        with run.compiling():
            compiled = run.compiled
        if compiled.has_ranks:
            explore_ranks(compiled, run.lent_inputs, run.case.config, self.explore)
            run.result.passed, run.result.was_executed = True, False
            return
        needed, shapes = run.control_arguments()

        def data() -> Arguments:
            needed.update(run.inputs())
            return copies(needed)

        with progress(f"counting the tasks of {compiled.name}"):
            tasks = record_tasks(compiled, {**needed, **shapes}, data, run.session, self.most_tasks)
        note_counted(run, tasks)
        self._keep(compiled, tasks, run.inputs_on_demand(needed), run.session, run)

    def call(self, call: ProgramCall) -> None:
        given = pristine = call.arguments
        if call.program.has_ranks:
            if explore_ranks(call.program, lambda: given, call.config, self.explore):
                call.program.run_tasks(given, call.config, now=call.session)
            return

        def data() -> Arguments:
            nonlocal pristine
            pristine = copies(given)
            return given

        with progress(f"running {call.program.name}"):
            tasks = record_tasks(call.program, given, data, call.session, self.most_tasks)
        self._keep(call.program, tasks, pristine, call.session)

    def uncalled(self, program: CompiledProgram, path: str, now: Session) -> None:
        del path
        arguments = zero_arguments(program)
        if program.has_ranks:
            explore_ranks(program, lambda: arguments, program.config, self.explore)
            return
        try:
            tasks = record_tasks(program, arguments, None, now, self.most_tasks)
        except DependsOnTaskData:
            say_compiled(program, NO_INPUTS)
            return
        self._keep(program, tasks, arguments, now)

    def without_arguments(self, program: CompiledProgram, now: Session) -> None:
        """Record a program that needs no arguments, because all its shapes are known."""
        tasks = record_tasks(program, {}, None, now, self.most_tasks)
        self._keep(program, tasks, {}, now)

    def _keep(
        self,
        program: CompiledProgram,
        tasks: TaskCounter,
        arguments: Arguments,
        now: Session,
        run: CaseRun | None = None,
    ) -> None:
        now.task_tables.append(TaskTable.of(program.name, tasks))
        stream = with_control_traces(program.program, tasks, arguments)
        kept = arguments if run else copies(arguments) if self.keep_arguments else {}
        comparison, result = (run.comparison(), run.result) if run else (None, None)
        self.runs.append(
            RecordedRun(program.name, program.program, stream, kept, comparison, result)
        )


@dataclass
class ExecuteAndRecord(Execute):
    """Executes programs as `Execute` does, and keeps every run."""

    keep_arguments: bool = True
    explore: Explore | None = None
    runs: list[RecordedRun] = field(default_factory=list[RecordedRun])
    only_results = False
    records = True

    def explore_ranks(
        self, program: CompiledProgram, arguments: Data, config: RunConfig
    ) -> bool | None:
        return explore_ranks(program, arguments, config, self.explore)

    def before_call(self, arguments: Arguments) -> Arguments:
        return copies(arguments) if self.keep_arguments else arguments

    def after(self, executed: Executed) -> None:
        program, run = executed.program, executed.case
        executed.session.task_tables.append(TaskTable.of(program.name, executed.tasks))
        stream = with_control_traces(program.program, executed.tasks, executed.pristine)
        if stream.read_result:
            note_inputs(program, stream.read_result, executed.pristine, executed.session)
        kept = executed.pristine if run or self.keep_arguments else dict[str, Argument]()
        comparison, result = (run.comparison(), run.result) if run else (None, None)
        self.runs.append(
            RecordedRun(program.name, program.program, stream, kept, comparison, result)
        )


def copies(arguments: Arguments) -> dict[str, Argument]:
    """Copy the arguments, because a script may reuse its arrays.

    An array that is passed twice is copied once.
    """
    made: dict[object, Array] = {}

    def own(value: Argument) -> Argument:
        if not isinstance(value, np.ndarray):
            return value
        place = value.ctypes.data, value.shape, value.strides, value.dtype
        return made.setdefault(place, value.copy())

    return {name: own(value) for name, value in arguments.items()}


def with_control_traces(program: Program, tasks: object, arguments: Arguments) -> TaskStream:
    """Return the tasks with control traces, recording them if the engine only counted."""
    from tilelet.interp.interpreter import Interpreter
    from tilelet.interp.replay import find_control_traces
    from tilelet.tasks.stream import TaskStream

    if not isinstance(tasks, TaskStream):
        tasks = Interpreter().run(program, arguments, execute=False).tasks
    elif None in tasks.rewritten.values():
        tasks = _with_control_writes(program, tasks, arguments)
    find_control_traces(program, tasks, arguments)
    return tasks


def _with_control_writes(program: Program, tasks: TaskStream, arguments: Arguments) -> TaskStream:
    """Record a natively executed run again, with what its control program wrote.

    If that depends on results of tasks, the interpreter executes them, unless there are too many.
    """
    from tilelet.checks.trace import is_small
    from tilelet.interp.interpreter import Interpreter

    try:
        return Interpreter().run(program, copies(arguments), execute=False).tasks
    except DependsOnTaskData:
        if not is_small(tasks):
            return tasks
    return Interpreter().run(program, copies(arguments), execute=True).tasks
