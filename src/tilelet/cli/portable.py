"""`tilelet check --portable` and `tilelet export`: programs for a public release of PyPTO."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilelet.cli.commands.write import CheckCommand, ExportCommand
from tilelet.cli.messages import print_findings, show_problems
from tilelet.cli.recording import record
from tilelet.cli.run import print_problems
from tilelet.diag.catalogue.portability import NothingToExport, SeveralToExport
from tilelet.diag.core import Diagnostic, Loc, UserError
from tilelet.diag.files import write_text
from tilelet.diag.formats import to_data, to_json
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import escape_controls, plural
from tilelet.dialects import DIALECTS, Dialect, check, dialect_named
from tilelet.runtime import session
from tilelet.runtime.handlers.export import Export
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import Recording
from tilelet.scripts.stand_ins import stand_ins

if TYPE_CHECKING:
    from tilelet.export.script import ExportCase, ExportedScript
    from tilelet.ir.core import Program

NEWEST = "2026-08"
_MACHINE = "a2a3"
"""The machine whose runtime must order the tasks of an exported program."""

_MAX_TASKS = 1024
"""Tasks recorded by `check --portable`, which looks at programs only."""

_PROOF_BUDGET = 40_000_000
"""Elements that a proof may take: about a second."""


def portable_command(options: CheckCommand) -> int:
    """Print what a dialect does not accept of the target's programs; return 1 if anything."""
    dialect = dialect_named(options.portable or NEWEST)
    recording = record(options.target, options, options.platform, most_tasks=_MAX_TASKS)
    if recording.code and not recording.runs:
        if options.format != "text":
            show_problems(recording.diagnostics, options.format, options.target.name)
        return recording.code
    places = portability(recording, dialect)
    found = [*places, *_compiler_hints(recording, options.platform)]
    if options.format == "json":
        print(to_json([*recording.diagnostics, *found]))
    elif options.format == "sarif":
        print(to_sarif([*recording.diagnostics, *found], script=options.target.name))
    else:
        print_findings(found)
        print_places(options.target.name, dialect, places)
    return exit_codes.of_findings(any(d.severity == "error" for d in found), recording.code)


def portability(recording: Recording, dialect: Dialect) -> list[Diagnostic]:
    """Return the findings of all recorded programs, each once."""
    programs = {id(run.program): run.program for run in recording.runs}
    compared: dict[int, frozenset[str]] = {}  # parameters that the script always compares
    for run in recording.runs:
        if run.comparison is not None and run.comparison.marked:
            known = compared.get(id(run.program), frozenset())
            compared[id(run.program)] = known | {*run.comparison.marked}
    found = (check(p, dialect, compared.get(key)) for key, p in programs.items())
    return list(dict.fromkeys(d for findings in found for d in findings))


def _compiler_hints(recording: Recording, machine: str | None) -> list[Diagnostic]:
    """Return what the public compiler of August does that costs time: see docs/errors.md, W092x."""
    from tilelet.device.kernel.lowering import lower_kernel
    from tilelet.device.machine.description import load_machine
    from tilelet.device.memory.limits import shared_stage_findings
    from tilelet.device.memory.rings import ring_findings
    from tilelet.device.report.hints import short_row_finding

    device = load_machine(machine or _MACHINE)
    found: list[UserError] = []
    for program in {id(run.program): run.program for run in recording.runs}.values():
        found += shared_stage_findings(program, device)
        found += ring_findings(program, device)
        kernels = [lower_kernel(function, device) for function in program.kernels]
        short = short_row_finding(kernels, device)
        found += [short] if short else []
    return list(dict.fromkeys(problem.diagnostic for problem in found))


def nearest_release(recording: Recording) -> tuple[Dialect, list[Diagnostic]]:
    """Return the release that accepts most of the programs, and what it does not accept.

    What another release accepts is a warning: releases between the known ones may accept both.
    """
    newest_first = sorted(DIALECTS.values(), key=lambda d: d.name, reverse=True)
    found = {d.name: portability(recording, d) for d in newest_first}
    refused = {name: {d.loc for d in of if d.severity == "error"} for name, of in found.items()}
    nearest = min(newest_first, key=lambda d: len(refused[d.name]))
    everywhere = set[Loc | None].intersection(*refused.values())
    return nearest, [
        d if d.loc in everywhere else replace(d, severity="warning") for d in found[nearest.name]
    ]


def print_places(name: str, dialect: Dialect, found: Sequence[Diagnostic]) -> None:
    places = plural(len(found), "place") + " to change" if found else "nothing to change"
    print(escape_controls(f"{name} in the language of {dialect.name}: {places}"))


def export_command(options: ExportCommand) -> int:
    """Write the target's program as a script; return 1 if the dialect does not accept all of it."""
    from tilelet.export.script import script_text

    dialect = dialect_named(options.dialect)
    cases, code = _cases(options)
    if code:
        return code
    if not cases:
        raise NothingToExport(options.target.name)
    if len(cases) > 1:
        names = [case.program.name for case in cases]
        chosen = [case for case in cases if case.program.name == options.program]
        if len(chosen) != 1:
            raise SeveralToExport(names)
        cases = chosen
    script = script_text(cases[0], dialect)
    if options.output is not None:
        write_text(options.output, script.text, make_folder=False)
    _show_export(cases[0], script, dialect, options)
    return exit_codes.of_findings(any(d.severity == "error" for d in script.findings), 0)


def _show_export(
    case: ExportCase, script: ExportedScript, dialect: Dialect, options: ExportCommand
) -> None:
    """Print the findings, and the script itself unless it was written to a file."""
    if options.format == "json":
        exported = {
            "program": case.program.name,
            "dialect": dialect.name,
            "file": None if options.output is None else str(options.output),
            "text": script.text,
            "claim": _claim(case, script),
        }
        document = {**to_data(script.findings), "export": exported}
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return
    if options.format == "sarif":
        print(to_sarif(script.findings, script=options.target.name))
        return
    if options.output is None:
        print(script.text, end="")
    print_findings(script.findings)
    if options.output is not None:
        lines = plural(script.text.count("\n"), "line")
        print(escape_controls(f"{options.output}: {lines}, in the language of {dialect.name}"))
        print(f"results equal, bit for bit, for all inputs: {_claim(case, script)}")


def _claim(case: ExportCase, script: ExportedScript) -> str:
    """Return the evidence that the exported program computes the same as the original."""
    from tilelet.equivalence.claims import Claim
    from tilelet.equivalence.proof import prove_equal
    from tilelet.passes.pipeline import run_passes

    pair = run_passes(case.program), run_passes(script.program)
    proof = prove_equal(*pair, budget=_PROOF_BUDGET)
    why = proof.why if not proof.holds else _why_unordered(pair[1])
    return f"{Claim.NOT_TRIED.value} ({why})" if why or not proof.holds else Claim.PROVED.value


def _why_unordered(program: Program) -> str:
    """Return why the results may differ from program order on a board; empty if they do not."""
    from tilelet.checks.verdict import Subject
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import Recorded
    from tilelet.equivalence.order import is_ordered
    from tilelet.interp.interpreter import Interpreter

    try:
        tasks = Interpreter().run(program, {}, execute=False).tasks
    except UserError as error:
        return f"its tasks are not known without inputs: {error.diagnostic.message}"
    subject = Subject(Recorded(program.name, program, tasks), {}, load_machine(_MACHINE))
    return "" if is_ordered(subject) else "its tasks are not shown to be ordered for all inputs"


def _cases(options: ExportCommand) -> tuple[list[ExportCase], int]:
    """Return the cases that the target would run, without running them."""
    from tilelet.export.script import ExportCase

    handler = Export()
    now = Session(handler, seed=options.seed)
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options.pypto, options.golden, now):
        outcome = options.target.run(now)
        if options.format == "text":
            print_problems(outcome, now)
    about = f"{options.target.name}: program `{{}}`."
    found = list(
        {
            id(program): ExportCase(
                program, specs, case.golden, case.rtol, case.atol, about.format(program.name)
            )
            for program, specs, case in reversed(handler.cases)
        }.values()
    )[::-1]
    if found:
        return found, 0
    code = exit_codes.of_script(outcome, now)
    if code and options.format != "text":
        problems = [*now.diagnostics, *outcome.errors]
        show_problems(problems, options.format, options.target.name)
    return found, code
