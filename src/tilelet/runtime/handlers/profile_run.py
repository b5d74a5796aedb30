"""Profiles that a script requests in its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.core import UserError
from tilelet.diag.render import render_line
from tilelet.diag.tables import show
from tilelet.report.run_directory import write_data
from tilelet.runtime.handlers.record import with_control_traces
from tilelet.runtime.output.task_table import TaskTable
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.runtime.handlers.execute import Executed


def show_profile(executed: Executed) -> dict[str, object]:
    """Model an execution, print the report, and write its files; return the figures.

    Limits of the model are reported and do not fail the run.
    """
    now, tasks, directory = executed.session, executed.tasks, executed.directory
    name, program = executed.program.name, executed.program.program
    now.task_tables.append(TaskTable.of(name, tasks))
    result: dict[str, object] = {"tasks": tasks.counts()}
    platform = now.platform_of(executed.config)
    try:
        stream = with_control_traces(program, tasks, executed.arguments)
        device_run = DeviceRun(Recorded(name, program, stream), load_machine(platform))
        with progress(f"modelling {name} on {platform}"):
            profile = device_run.profile
    except UserError as error:
        now.report([error.diagnostic])
        return result
    now.profiles.append(profile)
    if not now.quiet_diagnostics:
        show(device_run.parts())
        if not platform.endswith("sim"):
            for found in device_run.findings:
                now.say_once(f"on {device_run.machine.name}: {render_line(found.diagnostic)}")
    try:
        device_run.write(directory.path)
        write_data([device_run], directory.path)
        now.say_once(f"note: modelled profile in {directory.root}")
    except OSError as error:
        problem = CannotWrite.of(error)
        now.say_once(f"note: no profile files: {problem.diagnostic.message}")
    return {**result, "modelled": True, "machine": profile.machine, "total_us": profile.total_us}
