"""What the harness says on the console, apart from the verdict."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilelet.diag.catalogue.command import CannotWrite, NoBoard
from tilelet.diag.core import UserError
from tilelet.diag.render import render_line
from tilelet.diag.text import plural
from tilelet.runtime import session
from tilelet.runtime.config import DEFAULT_PLATFORM, RunConfig
from tilelet.runtime.progress import progress
from tilelet.runtime.session import TaskTable

if TYPE_CHECKING:
    from tilelet.checks.comparison import Comparison
    from tilelet.device.run import DeviceRun
    from tilelet.ir.core import Program
    from tilelet.runtime.output.run_directory import RunDirectory
    from tilelet.tasks.stream import TaskStream


def platform_of(config: RunConfig) -> str:
    """The platform in force: the configuration's, else the one on the script's command line."""
    return config.platform or session.current().platform or DEFAULT_PLATFORM


def announce(config: RunConfig) -> None:
    """Say, once, what a run on a CPU does not do although the script asks for it."""
    now = session.current()
    platform = platform_of(config)
    if not platform.endswith("sim"):
        now.report([NoBoard(platform).diagnostic])
    if config.board_records:
        now.say_once(f"note: only a board makes the records of {', '.join(config.board_records)}")


def show_recorded(
    name: str,
    program: Program,
    tasks: Any,
    arguments: Mapping[str, Any],
    comparison: Comparison | None = None,
) -> None:
    """A run whose tasks are all that is wanted: hand it on, or print how many each kernel has."""
    now = session.current()
    table = _task_table(name, tasks, program if now.as_runtime else None)
    now.task_tables.append(table)
    if now.recorder is not None:
        recorded = recorded_tasks(program, tasks, arguments)
        now.recorder(name, program, recorded, arguments, comparison)
    elif not now.quiet_diagnostics:
        now.say_once(task_lines(table), sys.stdout)


def show_profile(
    name: str,
    program: Program,
    tasks: Any,
    arguments: Mapping[str, Any],
    config: RunConfig,
    directory: RunDirectory,
) -> dict[str, Any]:
    """Model a run that asked for a profile, print the report, and write its files.

    What the model cannot do must not stop a run that passed: it is said, and that is all.
    """
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import DeviceRun, Recorded
    from tilelet.diag.tables import show
    from tilelet.report.run_directory import write_data

    now = session.current()
    table = _task_table(name, tasks)
    now.task_tables.append(table)
    result: dict[str, Any] = {"tasks": tasks.counts()}
    platform = platform_of(config)
    try:
        recorded = Recorded(name, program, recorded_tasks(program, tasks, arguments))
        device_run = DeviceRun(recorded, load_machine(platform))
        with progress(f"modelling {name} on {platform}"):
            profile = device_run.profile
    except UserError as error:
        now.report([error.diagnostic])
        return result
    now.profiles.append(profile)
    if not now.quiet_diagnostics:
        show(device_run.parts())
        if not platform.endswith("sim"):
            say_findings(device_run)
    try:
        device_run.write(directory.path)
        write_data([device_run], directory.path)
        now.say_once(f"note: modelled profile in {directory.root}")
    except OSError as error:
        problem = CannotWrite.of(error)
        now.say_once(f"note: no profile files: {problem.diagnostic.message}")
    return {**result, "modelled": True, "machine": profile.machine, "total_us": profile.total_us}


def say_findings(device_run: DeviceRun) -> None:
    """One line for each thing that the machine would refuse."""
    now = session.current()
    for found in device_run.findings:
        now.say_once(f"on {device_run.machine.name}: {render_line(found.diagnostic)}")


def recorded_tasks(program: Program, tasks: Any, arguments: Mapping[str, Any]) -> TaskStream:
    """The tasks with their arguments; recorded again if the engine only counted them."""
    from tilelet.interp.interpreter import Interpreter
    from tilelet.interp.replay import find_control_traces
    from tilelet.tasks.stream import TaskStream

    if not isinstance(tasks, TaskStream):
        tasks = Interpreter().run(program, arguments, execute=False).tasks
    find_control_traces(program, tasks, arguments)
    return tasks


def _task_table(name: str, tasks: Any, program: Program | None = None) -> TaskTable:
    """Tasks of each kernel; of `program`, as the device's runtime counts them."""
    from tilelet.tasks.runtime_counts import runtime_counts
    from tilelet.tasks.stream import TaskStream

    if program is not None and isinstance(tasks, TaskStream):
        return TaskTable(name, runtime_counts(program, tasks), {})
    blocks = tasks.blocks() if isinstance(tasks, TaskStream) else {}
    return TaskTable(name, tasks.counts(), blocks)


def task_lines(table: TaskTable) -> str:
    """Kernels and tasks, one line each, and the total; blocks too, if there are launches.

    A task that is no launch is a block of its own, so that their total is what cores execute.
    """
    kernels = list(table.tasks)
    columns = [
        ["kernel", *kernels, "total"],
        ["tasks", *(f"{n:,}" for n in (*table.tasks.values(), table.total))],
    ]
    if table.blocks:
        counts = [table.blocks.get(kernel, tasks) for kernel, tasks in table.tasks.items()]
        columns.append(["blocks", *(f"{n:,}" for n in (*counts, sum(counts)))])
    widths = [max(map(len, column)) for column in columns]
    lines = [f"{table.program}: {plural(len(kernels), 'kernel')}"]
    for row in zip(*columns, strict=True):
        first, *numbers = (
            f"{text:<{width}}" if i == 0 else f"{text:>{width}}"
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(["", first, *numbers]).rstrip())
    return "\n".join(lines)
