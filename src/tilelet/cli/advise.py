"""`tilelet advise`: suggest changes to a script, each verified by the model."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.advice import report as reports
from tilelet.advice.advisor import Advisor, Report
from tilelet.advice.programs import ExportedPrograms, Setting
from tilelet.cli.commands.speed import AdviseCommand
from tilelet.cli.messages import print_findings
from tilelet.cli.options import DeviceOptions
from tilelet.cli.page import wants_page, write_page
from tilelet.cli.profile import machines_for, period_of, show_failure
from tilelet.cli.recording import record
from tilelet.diag.core import UserError
from tilelet.diag.files import read_script, rewrite_script
from tilelet.diag.json_types import JsonObject
from tilelet.diag.sarif import to_sarif
from tilelet.diag.tables import show
from tilelet.diag.text import escape_controls, plural
from tilelet.report.advice import with_advice
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes
from tilelet.scripts.answers import document
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.device.machine.description import Machine


def advise_command(options: AdviseCommand) -> int:
    """Print the advice; return 1 if there is any, else 0."""
    machines = machines_for(options)
    first = record(options.target, options, options.platform)
    if first.code:
        return show_failure(first, options)
    target = options.target
    advisor = _advisor(target, advice_setting(machines, options), unproved=options.unproved)
    report = advisor.fix() if options.fix else advisor.advise()
    _print(report, options)
    if wants_page(options):
        from tilelet.device.run import DeviceRun
        from tilelet.report.document import profile_document

        period = period_of(machines[0], options.period, machines)
        runs = [DeviceRun(run, machines[0], period) for run in first.runs]
        write_page(
            options,
            target.name,
            lambda: with_advice(profile_document(runs), reports.to_data(report), target.name),
        )
    if options.fix and options.in_place and report.text != report.original:
        rewrite_script(Path(target.name), report.text)
    return exit_codes.of_findings(bool(report.findings))


def page_advice(options: DeviceOptions, machines: Sequence[Machine]) -> JsonObject | None:
    """Return the advice that a page shows; None if there can be none for the script."""
    try:
        report = _advisor(
            options.target, advice_setting(machines, options), unproved=False
        ).advise()
    except UserError as error:
        message = error.diagnostic.message
        print(escape_controls(f"note: the page has no advice: {message}"), file=sys.stderr)
        return None
    return reports.to_data(report)


def advice_setting(machines: Sequence[Machine], options: DeviceOptions) -> Setting:
    machine = machines[0]
    return Setting(
        machine,
        period_of(machine, options.period, machines),
        RecordingOptions(
            platform=machine.name,
            seed=options.seed,
            build_dir=options.build_dir,
            quiet=True,
            pypto=options.pypto,
            golden=options.golden,
        ),
    )


def _advisor(target: Target, setting: Setting, *, unproved: bool) -> Advisor:
    if target.is_model:
        with progress(f"writing {target.name} as one file"):
            programs = ExportedPrograms.of(target, setting)
            return Advisor(target, setting, programs=programs, unproved=unproved)
    text = read_script(Path(target.name))
    return Advisor(dataclasses.replace(target, text=text), setting, unproved=unproved)


def _print(report: Report, options: AdviseCommand) -> None:
    found = reports.diagnostics(report)
    if options.format == "json":
        name, machines = report.target.name, options.machines[:1]
        print(document("advise", name, machines, found, advice=reports.to_data(report)))
    elif options.format == "sarif":
        print(to_sarif(found, script=report.target.name))
    else:
        print_findings(found)
        if options.fix:
            show([reports.ladder(report)])
            print(reports.diff(report.original, report.text, report.target.name), end="")
            print("\n".join(_closing_lines(report, options)))
        else:
            print(reports.closing_lines(report))


def _closing_lines(report: Report, options: AdviseCommand) -> list[str]:
    """Return what `--fix` left out, and the options that include it."""
    lines: list[str] = []
    if report.held_back:
        count = plural(report.held_back, "rewriting")
        lines.append(f"{count} not applied: not proved for all inputs; `--unproved` applies it")
    if report.text == report.original:
        lines.append("nothing to write")
    elif options.in_place:
        lines.append(f"written to {report.target.name}")
    else:
        lines.append(f"{report.target.name} is unchanged: `--in-place` writes to it")
    return lines
