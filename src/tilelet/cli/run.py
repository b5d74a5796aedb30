"""`tilelet run` and `tilelet tasks`: a script under Tilelet's session, and its exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilelet.cli.models import is_model, run_model
from tilelet.cli.script import Outcome, Script
from tilelet.compat import aliases
from tilelet.diag.catalogue.command import AnotherPypto, UnknownEngine
from tilelet.diag.formats import to_json, to_sarif
from tilelet.diag.render import render_all, render_line, render_text, text_width, use_color
from tilelet.runtime import engines, session
from tilelet.runtime.config import PLATFORMS
from tilelet.runtime.session import Session

# Options that people put after the script by mistake.
_OWN_OPTIONS = (
    "--engine",
    "--format",
    "--build-dir",
    "--keep-c",
    "--keep-c-in",
    "--no-golden-cache",
    "--seed-valid",
    "--pypto",
    "--golden",
)


def run_command(options: argparse.Namespace) -> int:
    """Run the script; 0 pass, 1 mismatch, 2 usage, 3 could not run, else the script's own code."""
    now = Session(
        count_only=options.command == "tasks",
        dump_passes=options.dump_passes,
        build_dir=options.build_dir,
        seed=options.seed,
        platform=_platform(options.arguments),
        quiet_diagnostics=options.format != "text",
    )
    if options.command == "run":
        now.engine = options.engine
        if now.chosen_engine not in (None, *engines.known()):
            print(UnknownEngine(now.chosen_engine or "", engines.known()), file=sys.stderr)
            return 2
        now.keep_c = options.keep_c or options.keep_c_in is not None
        now.keep_c_in = options.keep_c_in
        now.seed_valid = options.seed_valid
        now.save_data = options.save_data
        now.golden_cache = now.golden_cache and not options.no_golden_cache
    stdout = sys.stdout
    with session.active(now), _output_apart(options.format), stand_ins(options, now):
        outcome = (
            run_model(options.script, options.arguments)
            if is_model(options.script)
            else Script(options.script, options.arguments).run(now)
        )
        now.diagnostics += outcome.errors
        if options.format == "text":
            print_problems(outcome, now, options)
    if options.format == "json":
        print(_json(now), file=stdout)
    elif options.format == "sarif":
        print(to_sarif(now.diagnostics), file=stdout)
    return _exit_code(outcome, now)


def _exit_code(outcome: Outcome, now: Session) -> int:
    """A script that notices a failure exits with 1; the session knows whether it was a mismatch."""
    return outcome.code if outcome.code not in (0, 1) else now.exit_code or outcome.code


def _platform(arguments: list[str]) -> str | None:
    """The platform among the script's own options, for scripts that do not pass it on."""
    for option, value in zip(arguments, [*arguments[1:], ""]):
        name, equals, joined = option.partition("=")
        if name in ("-p", "--platform"):
            chosen = joined if equals else value
            return chosen if chosen in PLATFORMS else None
    return None


@contextlib.contextmanager
def _output_apart(style: str) -> Iterator[None]:
    """With a machine format, stdout is for the document alone."""
    if style == "text":
        yield
    else:
        with contextlib.redirect_stdout(sys.stderr):
            yield


@contextlib.contextmanager
def stand_ins(options: argparse.Namespace, now: Session) -> Iterator[None]:
    """`pypto` and `golden` mean Tilelet's, unless the user chose the other ones."""
    switches = {"pypto": ("--pypto", "installed"), "golden": ("--golden", "script")}
    chosen = [root for root, (_, other) in switches.items() if getattr(options, root) != other]

    def announce(root: str) -> None:
        other = aliases.find_other(root)
        if other:
            switch = " ".join(switches[root])
            note = AnotherPypto(root, other, "Tilelet's stand-in", switch)
            now.say_once(f"{render_line(note.diagnostic)}; {other} is used with `{switch}`")

    aliases.install(chosen, announce)
    try:
        yield
    finally:
        aliases.uninstall()


def print_problems(outcome: Outcome, now: Session, options: argparse.Namespace) -> None:
    """Everything that the script has not shown itself."""
    for result in now.results:
        if not result.passed and not result.error_was_read:
            print(result.error, file=sys.stderr)
    if outcome.traceback:
        print(outcome.traceback, file=sys.stderr)
    if outcome.bug:
        print(outcome.bug, file=sys.stderr)
    if outcome.errors and outcome.traceback:
        print(render_line(outcome.errors[0]), file=sys.stderr)
    elif outcome.errors:
        color, width = use_color(sys.stderr), text_width(sys.stderr)
        if len(outcome.errors) == 1:
            shown = render_text(outcome.errors[0], color, width=width)
        else:
            shown = render_all(outcome.errors, color, width=width, truncated=outcome.truncated)
        print(shown, file=sys.stderr)
    misplaced = [a for a in options.arguments if a.partition("=")[0] in _OWN_OPTIONS]
    if misplaced and (outcome.code == 2 or not _mentions(options.script, misplaced[0])):
        print(
            f"note: `{misplaced[0]}` is an option of `tilelet {options.command}`: "
            "put it before the script",
            file=sys.stderr,
        )


def _mentions(script: str, option: str) -> bool:
    """Whether the script's text knows the option, so that giving it to the script was meant."""
    try:
        return option.partition("=")[0] in Path(script).read_text(errors="replace")
    except OSError:
        return False


def _json(now: Session) -> str:
    """The document of diagnostics, with results and task counts added to it."""
    document: dict[str, Any] = json.loads(to_json(now.diagnostics))
    document["results"] = [
        {
            "name": result.test_name,
            "passed": result.passed,
            "validated": result.validated,
            "seconds": result.execution_time,
        }
        for result in now.results
    ]
    document["tasks"] = [
        {"program": name, "total": sum(counts.values()), "kernels": counts}
        for name, counts in now.task_tables
    ]
    if now.profiles:
        document["profiles"] = [json.loads(profile.to_json()) for profile in now.profiles]
    return json.dumps(document, indent=2, ensure_ascii=False)
