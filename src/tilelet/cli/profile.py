"""`tilelet profile`, `tilelet check` and `tilelet compare`: programs on modelled machines."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet.cli import interrupt, output
from tilelet.cli.recording import OptionsAfter, Recording, record
from tilelet.diag.catalogue.device import BadProfile, NothingToCompare
from tilelet.diag.core import Diagnostic, UserError
from tilelet.diag.formats import to_json, to_sarif
from tilelet.diag.render import render_all, render_text, text_width, use_color
from tilelet.diag.text import plural, printable
from tilelet.runtime import session
from tilelet.runtime.bugs import bug_text
from tilelet.runtime.progress import progress
from tilelet.runtime.rundir import RunDirectory, file_name

if TYPE_CHECKING:
    from tilelet.device.machine.description import Machine
    from tilelet.device.report.profile import Profile
    from tilelet.device.run import Modelled

DEFAULT_MACHINE = "a2a3"
FINDINGS, WRONG_USAGE, COULD_NOT_RUN = 1, 2, 3


def profile_command(options: argparse.Namespace) -> int:
    """Model every program that the target runs; 1 if a machine would refuse one of them."""
    return _guarded(options, _profile)


def check_command(options: argparse.Namespace) -> int:
    """Memory and shape checks only; 1 if there is a finding."""
    return _guarded(options, _check)


def compare_command(options: argparse.Namespace) -> int:
    """Two programs, machines or saved profiles."""
    return _guarded(options, _compare)


def _guarded(options: argparse.Namespace, command: Any) -> int:
    """Mistakes in machine files, names and saved profiles, in the chosen format."""
    try:
        return command(options)
    except UserError as error:
        _show_problems([error.diagnostic], options)
        asked = error.code.startswith(_USAGE) and error.code not in _PROGRAM_PROBLEMS
        return WRONG_USAGE if asked else COULD_NOT_RUN
    except MemoryError:
        print("out of memory", file=sys.stderr)
        return COULD_NOT_RUN
    except Exception as error:
        if output.failed_by(error) or interrupt.explains(error):
            raise
        directory = RunDirectory(f"tilelet_{options.command}", root=options.build_dir)
        print(bug_text(error, None, directory), file=sys.stderr)
        return COULD_NOT_RUN


# Commands, machines and saved profiles. The device would hang, or there is nothing to model: what
# was asked for is all right. So it is if a task fails that had to be executed.
_USAGE = ("E07", "E09")
_PROGRAM_PROBLEMS = ("E0908", "E0909", "E0910")


def _show_problems(found: Sequence[Diagnostic], options: argparse.Namespace) -> None:
    """The whole answer of a command that could not do its work."""
    if options.format == "json":
        print(to_json(found))
    elif options.format == "sarif":
        print(to_sarif(found))
    else:
        _print_findings(found)


def _print_findings(found: Sequence[Diagnostic]) -> None:
    color, width = use_color(sys.stderr), text_width(sys.stderr)
    if len(found) == 1:
        print(render_text(found[0], color, width=width), file=sys.stderr)
    elif found:
        print(render_all(found, color, width=width), file=sys.stderr)


def _machines(names: str) -> list[Machine]:
    from tilelet.device.machine.description import load_machine

    return [load_machine(name.strip()) for name in names.split(",") if name.strip()]


def _recording(
    options: argparse.Namespace, *, tasks: bool = True
) -> tuple[list[Machine], Recording]:
    """The machines asked for, before or after the target, and what the target ran."""
    after = OptionsAfter(options.script, options.arguments)
    platform = after.take("-p", "--platform") or options.platform
    several = after.take("--platforms") or options.platforms
    options.period = after.take("--period") or options.period
    options.format = after.take("--format") or options.format
    if after.take_flag("--no-files"):
        options.files = False
    if after.take_flag("--execute"):
        options.execute = True
    if after.take_flag("--memory"):
        options.memory = True
    machines = _machines(several or platform or DEFAULT_MACHINE)
    for machine in machines:
        machine.period(_period(machine, options.period, machines))
    return machines, record(options.script, after.rest, options, platform, tasks=tasks)


def _period(machine: Machine, asked: str | None, side_by_side: Sequence[Machine]) -> str | None:
    """The runtime to model. A machine beside one that has it may take the nearest of its own."""
    others = any(asked in other.runtime for other in side_by_side)
    if asked is None or asked in machine.runtime or not others:
        return asked
    later = [period for period in sorted(machine.runtime) if period > asked]
    nearest = later[0] if later else max(machine.runtime)
    session.current().say_once(
        f"note: {machine.name} has no runtime of {asked}: that of {nearest} is modelled"
    )
    return nearest


# profile


def _profile(options: argparse.Namespace) -> int:
    from tilelet.device.run import Modelled

    machines, recording = _recording(options)
    if recording.code and not recording.runs:
        return _failed(recording, options)
    runs = [
        [Modelled(run, m, _period(m, options.period, machines)) for m in machines]
        for run in recording.runs
    ]
    shown: set[str] = set()
    for same_run in runs:
        for modelled in same_run:
            with progress(f"modelling {modelled.run.name} on {modelled.machine.name}"):
                text = modelled.profile.to_json()
            if text not in shown and options.format == "text":
                _show_profile(modelled)
            shown.add(text)
        if len(machines) > 1 and options.format == "text":
            _show_side_by_side(same_run)
        if options.files:
            _write(same_run, options)
    every = [m for same_run in runs for m in same_run]
    found = _findings(every)
    if options.format == "text":
        _print_findings(found)
    else:
        document = json.loads(to_json([*recording.diagnostics, *found]))
        document["profiles"] = [json.loads(m.profile.to_json()) for m in every]
        print(json.dumps(document, indent=1, ensure_ascii=False))
    return FINDINGS if found else recording.code


def _failed(recording: Recording, options: argparse.Namespace) -> int:
    if options.format != "text":
        _show_problems(recording.diagnostics, options)
    return recording.code


def _show_profile(modelled: Modelled) -> None:
    from tilelet.diag.tables import show

    show(modelled.parts())
    print(flush=True)


def _show_side_by_side(same_run: Sequence[Modelled]) -> None:
    from tilelet.device.report.text import side_by_side
    from tilelet.diag.tables import show

    show([side_by_side([m.profile for m in same_run])])


def _write(same_run: Sequence[Modelled], options: argparse.Namespace) -> None:
    """All files of a run into one directory, with a folder per machine if there are several."""
    directory = RunDirectory(same_run[0].run.program.name, root=options.build_dir)

    try:
        for modelled in same_run:
            folder = (file_name(modelled.machine.name),) if len(same_run) > 1 else ()
            modelled.write(lambda *parts, folder=folder: directory.path(*folder, *parts))
    except OSError as error:
        print(printable(f"note: no files: cannot write {error.filename}"), file=sys.stderr)
        return
    text = f"note: profile.json, report/ and dfx_outputs/ in {directory.root}"
    print(printable(text), file=sys.stderr)


def _findings(modelled: Iterable[Modelled]) -> list[Diagnostic]:
    found = [f.diagnostic for m in modelled for f in m.findings]
    return list(dict.fromkeys(found))


# check


def _check(options: argparse.Namespace) -> int:
    from tilelet.device.memory.report import budget_table, memory_map, memory_table
    from tilelet.device.run import Modelled
    from tilelet.diag.tables import show

    machines, recording = _recording(options, tasks=False)
    if recording.code and not recording.runs:
        return _failed(recording, options)
    programs = {id(run.program): run for run in recording.runs}
    every = [Modelled(run, machine) for run in programs.values() for machine in machines]
    with progress("checking"):
        found = _findings(every)
    if options.format == "json":
        print(to_json([*recording.diagnostics, *found]))
    elif options.format == "sarif":
        print(to_sarif([*recording.diagnostics, *found]))
    else:
        _print_findings(found)
        for m in every:
            if options.memory:
                show([memory_map(m.plans).rstrip(), memory_table(m.plans), budget_table(m.kernels)])
            kernels = plural(len(m.kernels), "kernel")
            problems = plural(len(m.findings), "problem") if m.findings else "no problems"
            text = f"{m.run.name} on {m.machine.name}: {kernels} checked, {problems}"
            print(printable(text))
    return FINDINGS if found else recording.code


# compare


def _compare(options: argparse.Namespace) -> int:
    from tilelet.device.report.compare import Comparison
    from tilelet.diag.tables import show

    machines = _machines(options.platforms or options.platform or DEFAULT_MACHINE)
    sides = [options.a, *([options.b] if options.b else [])]
    if len(sides) == 1 and len(machines) < 2:
        raise NothingToCompare(options.a)
    profiles: list[Profile] = []
    for i in range(2):
        side = sides[min(i, len(sides) - 1)]
        machine = machines[min(i, len(machines) - 1)]
        got = _side(side, machine, machines, options)
        if isinstance(got, Recording):
            return _failed(got, options)
        profiles.append(got)
    comparison = Comparison(*profiles)
    if options.format == "json":
        print(json.dumps(comparison.to_data(), indent=1, ensure_ascii=False))
    else:
        show(comparison.parts())
    return 0


def _side(
    text: str, machine: Machine, machines: Sequence[Machine], options: argparse.Namespace
) -> Profile | Recording:
    """`profile.json`, `k.py`, `k.py@a5`, `"k.py --variant tuned"`, `qwen3/scope3:tuned`."""
    from tilelet.device.report.profile import Profile
    from tilelet.device.run import Modelled

    try:
        target, *arguments = shlex.split(text) or [text]
    except ValueError:
        target, arguments = text, []
    if target.endswith(".json"):
        return Profile.from_json(_read(target), target)
    target, at, name = target.rpartition("@") if "@" in target else (target, "", "")
    if at:
        machine = _machines(name)[0]
    recording = record(target, arguments, options, machine.name)
    if not recording.runs:
        recording.code = recording.code or COULD_NOT_RUN
        return recording
    with progress(f"modelling {target} on {machine.name}"):
        period = _period(machine, options.period, machines)
        return Modelled(recording.runs[0], machine, period).profile


def _read(path: str) -> str:
    from tilelet.diag.catalogue.command import FileMissing

    try:
        if Path(path).is_fifo():
            raise BadProfile(path, "it is a pipe")
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(path, []) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadProfile(path, str(error)) from None
