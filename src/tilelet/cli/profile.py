"""`tilelet profile` and `tilelet compare`: programs on modelled machines."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.cli.commands.speed import CompareCommand, ProfileCommand
from tilelet.cli.messages import print_findings, show_problems
from tilelet.cli.options import DeviceOptions
from tilelet.cli.page import wants_page, write_page
from tilelet.cli.ranks_profile import (
    page_data,
    ranks_data,
    ranks_modeller,
    ranks_tables,
    write_trace,
)
from tilelet.cli.recording import record
from tilelet.cli.view import command_of
from tilelet.diag.catalogue.command import CannotWrite, FileMissing
from tilelet.diag.catalogue.device import BadProfile, NothingToCompare
from tilelet.diag.formats import to_data
from tilelet.diag.json_types import JsonObject
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import escape_controls
from tilelet.runtime import session
from tilelet.runtime.output.run_directory import RunDirectory, file_name
from tilelet.runtime.output.task_table import TaskTable
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import Recording
from tilelet.scripts.target import Target
from tilelet.tasks.runtime_counts import runtime_counts

if TYPE_CHECKING:
    from tilelet.device.machine.description import Machine
    from tilelet.device.report.profile import Profile
    from tilelet.device.run import DeviceRun
    from tilelet.ranks.timing import RanksTimeline


def machines_of(names: Iterable[str]) -> list[Machine]:
    from tilelet.device.machine.description import load_machine

    return [load_machine(name) for name in names]


def machines_for(options: DeviceOptions) -> list[Machine]:
    """Return the requested machines, each with a runtime to model."""
    machines = machines_of(options.machines)
    for machine in machines:
        machine.period(period_of(machine, options.period, machines))
    return machines


def period_of(machine: Machine, asked: str | None, side_by_side: Sequence[Machine]) -> str | None:
    """Return the runtime to model; beside a machine that has it, the nearest of this machine."""
    if asked is None or asked >= min(machine.runtime):
        return asked
    if not any(asked >= min(other.runtime) for other in side_by_side):
        return asked
    nearest = min(machine.runtime)
    session.current().say_once(
        f"note: {machine.name} has no runtime of {asked}: that of {nearest} is modelled"
    )
    return nearest


# profile


def profile_command(options: ProfileCommand) -> int:
    """Model every program that the target runs; return 1 if a machine would reject one of them."""
    from tilelet.cli.advise import page_advice
    from tilelet.device.run import DeviceRun

    machines = machines_for(options)
    ranks: list[RanksTimeline] = []
    modeller = ranks_modeller(machines, ranks)
    recording = record(options.target, options, options.platform, explore=modeller)
    if recording.code and not recording.runs:
        return show_failure(recording, options)
    for timeline in ranks:
        _show_ranks(timeline, options)
    ideal = options.plan == "ideal"
    runs = [
        [DeviceRun(run, m, period_of(m, options.period, machines), ideal=ideal) for m in machines]
        for run in recording.runs
    ]
    shown: set[str] = set()
    for same_run in runs:
        for device_run in same_run:
            with progress(f"modelling {device_run.run.name} on {device_run.machine.name}"):
                text = device_run.profile.to_json()
            if text not in shown and options.format == "text":
                _show_profile(device_run)
                if options.as_runtime:
                    run = device_run.run
                    counts = runtime_counts(run.program, run.tasks)
                    print(escape_controls(TaskTable(run.name, counts, {}).text()), flush=True)
            shown.add(text)
        if len(machines) > 1 and options.format == "text":
            _show_side_by_side(same_run)
        if options.files:
            _write(same_run, options)
    every = [m for same_run in runs for m in same_run]
    if wants_page(options):
        advice = page_advice(options, machines) if options.advice and not ranks else None
        make = (lambda: _ranks_page(ranks)) if ranks else lambda: _page(every, advice, options)
        write_page(options, options.target.name, make)
    refused = list(dict.fromkeys(f.diagnostic for m in every for f in m.findings))
    found = [*refused, *dict.fromkeys(c.diagnostic for m in every for c in m.cautions)]
    if options.format == "text":
        print_findings(found)
    elif options.format == "sarif":
        print(to_sarif([*recording.diagnostics, *found], script=options.target.name))
    else:
        document = to_data([*recording.diagnostics, *found])
        document["profiles"] = [m.profile.to_data() for m in every]
        if ranks:
            document["ranks"] = [ranks_data(timeline) for timeline in ranks]
        if options.as_runtime:
            document["runtime_tasks"] = [
                runtime_counts(run.program, run.tasks) for run in recording.runs
            ]
        print(json.dumps(document, indent=1, ensure_ascii=False))
    return exit_codes.of_findings(bool(refused), recording.code)


def _show_ranks(timeline: RanksTimeline, options: ProfileCommand) -> None:
    from tilelet.diag.tables import show

    if options.format == "text":
        show(ranks_tables(timeline))
    if options.files:
        directory = RunDirectory(timeline.name, root=options.build_dir)
        file = directory.path(f"ranks_{timeline.machine}.trace.json")
        write_trace(timeline, file)
        if options.format == "text":
            print(escape_controls(f"lanes by rank, with messages: {file}"), flush=True)


def _ranks_page(timelines: Sequence[RanksTimeline]) -> bytes:
    from tilelet.report.document import ranks_document

    return ranks_document([(t.name, f"{t.world} x {t.machine}", page_data(t)) for t in timelines])


def _page(runs: Sequence[DeviceRun], advice: JsonObject | None, options: ProfileCommand) -> bytes:
    from tilelet.report.advice import with_advice
    from tilelet.report.document import profile_document

    data = profile_document(runs)
    return data if advice is None else with_advice(data, advice, options.target.name)


def show_failure(recording: Recording, options: DeviceOptions) -> int:
    if options.format != "text":
        show_problems(recording.diagnostics, options.format, options.target.name)
    return recording.code


def _show_profile(device_run: DeviceRun) -> None:
    from tilelet.diag.tables import show

    show(device_run.parts())
    print(flush=True)


def _show_side_by_side(same_run: Sequence[DeviceRun]) -> None:
    from tilelet.device.report.text import side_by_side
    from tilelet.diag.tables import show

    show([side_by_side([m.profile for m in same_run])])


def _write(same_run: Sequence[DeviceRun], options: ProfileCommand) -> None:
    """Write all files of a run into one directory, with folders for several machines."""
    from tilelet.report.run_directory import COMMAND, write_data

    directory = RunDirectory(same_run[0].run.program.name, root=options.build_dir)
    try:
        for device_run in same_run:
            folder = (file_name(device_run.machine.name),) if len(same_run) > 1 else ()
            device_run.write(functools.partial(directory.path, *folder))
        write_data(same_run, directory.path)
        directory.path(COMMAND).write_text(command_of(options), encoding="utf-8")
    except OSError as error:
        problem = CannotWrite.of(error)
        if options.build_dir is not None:  # the files were requested
            raise problem from error
        text = f"note: no files: {problem.diagnostic.message}"
        print(escape_controls(text), file=sys.stderr)
        return
    text = f"note: profile.json, report/ and dfx_outputs/ in {directory.root}"
    print(escape_controls(text), file=sys.stderr)


# compare


def compare_command(options: CompareCommand) -> int:
    """Compare two programs, machines or saved profiles."""
    from tilelet.device.report.compare import ProfileComparison
    from tilelet.device.report.profile import Profile
    from tilelet.diag.tables import show
    from tilelet.report.document import compare_document

    machines = machines_of(options.machines)
    sides = [options.a, *([options.b] if options.b else [])]
    if len(sides) == 1 and len(machines) < 2:
        raise NothingToCompare(options.a)
    compared: list[DeviceRun | Profile] = []
    for i in range(2):
        side = sides[min(i, len(sides) - 1)]
        machine = machines[min(i, len(machines) - 1)]
        got = _side(side, machine, machines, options)
        if isinstance(got, Recording):
            return show_failure(got, options)
        compared.append(got)
    a, b = (side if isinstance(side, Profile) else side.profile for side in compared)
    comparison = ProfileComparison(a, b)
    if wants_page(options):
        title = f"{options.a} and {options.b or options.a}"
        write_page(options, title, lambda: compare_document(compared))
    if options.format == "json":
        print(json.dumps(comparison.to_data(), indent=1, ensure_ascii=False))
    else:
        show(comparison.parts())
    return 0


def _side(
    text: str, machine: Machine, machines: Sequence[Machine], options: DeviceOptions
) -> DeviceRun | Profile | Recording:
    """Parse one side: `profile.json`, `k.py`, `k.py@a5`, `"k.py --variant tuned"` or
    `qwen3/scope3:tuned`.
    """
    from tilelet.device.report.profile import Profile
    from tilelet.device.run import DeviceRun

    try:
        target, *arguments = shlex.split(text) or [text]
    except ValueError:
        target, arguments = text, []
    if target.endswith(".json"):
        return Profile.from_json(_read(target), target)
    target, at, name = target.rpartition("@") if "@" in target else (target, "", "")
    if at:
        (machine,) = machines_of([name])
    given = Target(
        target, tuple(arguments), claimed=len(arguments), command=("tilelet compare", ())
    )
    recording = record(given, options, machine.name)
    if recording.code or not recording.runs:
        recording.code = recording.code or exit_codes.COULD_NOT_RUN
        return recording
    with progress(f"modelling {target} on {machine.name}"):
        period = period_of(machine, options.period, machines)
        device_run = DeviceRun(recording.runs[0], machine, period)
        _ = device_run.profile
    return device_run


def _read(path: str) -> str:
    try:
        if Path(path).is_fifo():
            raise BadProfile(path, "it is a pipe")
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(path, []) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadProfile(path, str(error)) from None
