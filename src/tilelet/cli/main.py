"""`tilelet`: the command line."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tilelet import __version__
from tilelet.cli.commands import COMMANDS, listed_commands
from tilelet.cli.declaration import Command, Parser
from tilelet.diag.catalogue.command import FileMissing
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.text import did_you_mean, near
from tilelet.scripts import exit_codes, interrupt, output


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `tilelet` command; return the exit code."""
    output.open_closed_streams()
    code = exit_codes.COULD_NOT_RUN
    with output.watch_output(), interrupt.record():
        try:
            code = _run_guarded(argv)
        finally:
            for ended in exit_codes.ON_EXIT:
                ended(code)
    return code


def _run_guarded(argv: Sequence[str] | None) -> int:
    try:
        if argv is None and os.environ.get("TILELET_SANITIZE"):
            from tilelet.cpu.run import sanitize

            sanitize.restart()
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except (KeyboardInterrupt, ImportError, SyntaxError, SystemError) as error:
        if not interrupt.explains(error):
            raise
        print("interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe: nothing to report or flush.
        output.discard()
        return exit_codes.BROKEN_PIPE
    except OSError as error:
        if not output.failed_by(error):
            raise
        output.say_failed(error)
        return exit_codes.COULD_NOT_RUN
    return code


def _run(argv: Sequence[str]) -> int:
    """Find the command, parse its options, and run it."""
    name = argv[0] if argv else ""
    found: Command | None = None
    try:
        name = _command_name(argv)
        _check_working_directory()
        found = COMMANDS[name].parse(argv[1:])
        return found.run()
    except (UserError, UserErrors) as error:
        from tilelet.cli.messages import show_problems

        problems = error.diagnostics if isinstance(error, UserErrors) else [error.diagnostic]
        target = getattr(found, "target", None)
        style = _requested_format(argv) if found is None else getattr(found, "format", "text")
        show_problems(problems, style, target.name if target else "")
        if isinstance(error, UserErrors):
            return exit_codes.COULD_NOT_RUN
        return exit_codes.of_error(error)
    except MemoryError:
        print("out of memory", file=sys.stderr)
        return exit_codes.COULD_NOT_RUN
    except Exception as error:
        if output.failed_by(error) or interrupt.explains(error):
            raise
        from tilelet.runtime.output.bug_report import bug_text
        from tilelet.runtime.output.run_directory import RunDirectory

        directory = RunDirectory(f"tilelet_{name}", root=getattr(found, "build_dir", None))
        print(bug_text(error, None, directory), file=sys.stderr)
        return exit_codes.COULD_NOT_RUN


def _check_working_directory() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        missing = FileMissing(os.environ.get("PWD", "."), what="working directory")
        raise missing from None


def _requested_format(argv: Sequence[str]) -> str:
    """Return the format that a command line with a usage error asks for."""
    command = COMMANDS.get(argv[0]) if argv else None
    if command is not None and not hasattr(command, "format"):
        return "text"
    words = " ".join(argv).replace("--format=", "--format ").split()
    if "--json" in words:
        return "json"
    chosen = next((b for a, b in itertools.pairwise(words) if a == "--format"), "text")
    return chosen if chosen in ("json", "sarif") else "text"


def _command_name(argv: Sequence[str]) -> str:
    parser = Parser(
        prog="tilelet",
        usage="tilelet COMMAND ...",
        description="Run, check and profile tile kernels written in the pl language, on any CPU.",
        epilog=_overview() if not argv or argv[0] in ("-h", "--help") else "",
    )
    parser.add_argument("--version", action="version", version=f"tilelet {__version__}")
    if not argv:
        parser.print_help(sys.stderr)
        return parser.exit(exit_codes.WRONG_USAGE)
    if argv[0].startswith("-"):
        parser.parse(argv[:1])
        parser.refuse("no command is named")
    if argv[0] not in COMMANDS:
        close = near(argv[0], [command.name for command in listed_commands()])
        parser.refuse(f"no command `{argv[0]}`", did_you_mean(close))
    return argv[0]


def _overview() -> str:
    """Return the commands by group, and how to begin."""
    lines: list[str] = []
    group = None
    for command in listed_commands():
        if command.group != group:
            group = command.group
            lines += ["", f"{group}:"]
        lines.append(f"  {command.name:<10}  {command.about()}")
    return "\n".join([*lines[1:], "", _BEGIN])


_BEGIN = """\
Examples:
  tilelet examples --copy .            small kernels to start from
  tilelet run 01_hello.py              run a script and compare its outputs with its golden
  tilelet verdict kernel.py            is it right, does it fit, what does it cost
  tilelet profile kernel.py -p a2a3    time on a modelled NPU
  tilelet view kernel.py --open        timeline, source and memory in the browser
  tilelet explain E0203                what an error code means

`tilelet COMMAND --help` has the options. Exit codes: 0 passed, 1 mismatch or finding, 2 wrong
usage, 3 could not run.
"""
