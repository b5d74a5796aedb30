"""`tilelet diverge`: the first wrong statement of every program that a script runs."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from tilelet.cli.commands.debug import DivergeCommand
from tilelet.cli.messages import print_findings, show_problems
from tilelet.cli.options import DEFAULT_MACHINE
from tilelet.cli.page import save_page
from tilelet.cli.run import print_problems
from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.command import BadFlag
from tilelet.diag.formats import to_data
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import escape_controls
from tilelet.divergence.answer import Answer, Options, against
from tilelet.divergence.case import GoldenCase
from tilelet.runtime import session
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.inspection.diverge import examine, page_data
from tilelet.runtime.output.run_directory import build_root
from tilelet.runtime.progress import progress
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target, is_model


def diverge_command(options: DivergeCommand) -> int:
    """Examine all programs of a target, or compare them with those of another."""
    first, second = _targets(options.target)
    cases, code = _cases(first, options)
    if not cases:
        return code or _refuse_nothing(first)
    if second is not None:
        others, code = _cases(second, options)
        if not others:
            return code or _refuse_nothing(second)
        pairs = zip(cases, others)
        cases = [(name, against(a, first.name, b)) for (_, a), (name, b) in pairs]
    platform = options.platform or DEFAULT_MACHINE
    load_machine(platform)  # report an unknown name before the search
    looking = Options(options.budget, options.all_fp32)
    answers: list[Answer] = []
    for name, case in cases:
        with progress(f"following {name}"):
            answers.append(examine(name, case, looking, platform))
    _show(answers, options)
    if options.html is not None or options.open:
        _write_page(cases, answers, options, platform)
    if not any(a.found for a in answers) and all(a.agrees is None for a in answers):
        return exit_codes.COULD_NOT_RUN
    return exit_codes.of_findings(any(a.found for a in answers))


def _write_page(
    cases: list[tuple[str, GoldenCase]],
    answers: list[Answer],
    options: DivergeCommand,
    platform: str,
) -> None:
    """Write the page of the first program with a finding, or else of the first."""
    from tilelet.report.html import page_html

    number = next((i for i, a in enumerate(answers) if a.found), 0)
    name, case = cases[number]
    with progress("making the page"):
        text = page_html(name, page_data(name, case, answers[number], platform))
    target = options.html or (options.build_dir or build_root()) / "page.html"
    save_page(text, target, show=options.open)


def _targets(target: Target) -> tuple[Target, Target | None]:
    """Return the targets of `A` or `A B`, each a script or a program's name."""
    if target.arguments:
        name, *rest = target.arguments
        if is_model(name) or (name.endswith(".py") and Path(name).is_file()):
            first = replace(target, arguments=tuple(rest), claimed=max(0, target.claimed - 1))
            return first, replace(first, name=name, module=None)
    return target, None


def _refuse_nothing(target: Target) -> int:
    raise BadFlag(f"`{target.name}` runs no program with inputs: there is nothing to look at")


def _cases(target: Target, options: DivergeCommand) -> tuple[list[tuple[str, GoldenCase]], int]:
    """Return everything that the target runs, without executing it."""
    handler = Examine()
    now = Session(
        handler,
        build_dir=options.build_dir,
        seed=options.seed,
        quiet_diagnostics=options.format != "text",
    )
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options.pypto, options.golden, now):
        outcome = target.run(now)
    now.diagnostics += outcome.errors
    if options.format == "text":
        print_problems(outcome, now)
    elif not handler.cases:
        show_problems(now.diagnostics, options.format, target.name)
    return handler.cases, exit_codes.of_script(outcome, now)


def _show(answers: list[Answer], options: DivergeCommand) -> None:
    found = [d for a in answers for d in a.diagnostics]
    if options.format == "json":
        document = to_data(found)
        document["programs"] = [a.to_data() for a in answers]
        print(json.dumps(document, indent=2, ensure_ascii=False))
    elif options.format == "sarif":
        print(to_sarif(found, script=options.target.name))
    else:
        print_findings(found)
        for a in answers:
            print(escape_controls("\n".join(a.lines())))
