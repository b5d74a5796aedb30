"""`tilelet`: the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tilelet import __version__
from tilelet.cli import manual
from tilelet.cli.commands import COMMANDS
from tilelet.cli.usage import Parser
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.text import did_you_mean, near
from tilelet.scripts import exit_codes, interrupt, output


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `tilelet` command; the result is the exit code."""
    output.open_closed_streams()
    with output.watched(), interrupt.noticed():
        return _guarded(argv)


def _guarded(argv: Sequence[str] | None) -> int:
    try:
        if argv is None and os.environ.get("TILELET_SANITIZE"):
            from tilelet.cpu import sanitize

            sanitize.restart()
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except (KeyboardInterrupt, ImportError, SyntaxError, SystemError) as error:
        if not interrupt.explains(error):
            raise
        print("interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone: nothing to say, and nothing left to flush.
        output.discard()
        return exit_codes.BROKEN_PIPE
    except OSError as error:
        if not output.failed_by(error):
            raise
        output.say_failed(error)
        return exit_codes.COULD_NOT_RUN
    return code


def _run(argv: Sequence[str]) -> int:
    """Find the command, read its options, and do it."""
    name = _command_name(argv)
    command = COMMANDS[name]
    found = argparse.Namespace()
    try:
        parser = command.parser()
        found = parser.parse(argv[1:])
        return command.run(parser, found)
    except (UserError, UserErrors) as error:
        from tilelet.cli.messages import show_problems

        problems = error.diagnostics if isinstance(error, UserErrors) else [error.diagnostic]
        show_problems(problems, getattr(found, "format", "text"), getattr(found, "script", ""))
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


def _command_name(argv: Sequence[str]) -> str:
    shown = [c for c in COMMANDS.values() if not c.is_internal]
    parser = Parser(
        "tilelet",
        usage="tilelet COMMAND ...",
        description="Run, check and profile tile kernels written in the pl language, on any CPU.",
        epilog=_command_list() + manual.TILELET,
    )
    parser.add_argument("--version", action="version", version=f"tilelet {__version__}")
    if not argv:
        parser.refuse("no command is named")
    if argv[0].startswith("-"):
        parser.parse(argv[:1])
        parser.refuse("no command is named")
    if argv[0] not in COMMANDS:
        close = near(argv[0], [c.name for c in shown])
        parser.refuse(f"no command `{argv[0]}`", did_you_mean(close))
    return argv[0]


def _command_list() -> str:
    shown = [c for c in COMMANDS.values() if not c.is_internal]
    width = max(len(c.name) for c in shown)
    return "\n".join(["commands:", *(f"  {c.name:<{width}}  {c.about}" for c in shown), "\n"])
