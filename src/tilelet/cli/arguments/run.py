"""The options of `tilelet run` and `tilelet tasks`."""

from __future__ import annotations

from collections.abc import Callable

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import (
    Namespace,
    add_as_runtime,
    add_dump,
    add_format,
    add_run_options,
    add_script,
)
from tilelet.cli.options import FORMATS, RunOptions, taken
from tilelet.cli.usage import OneOf, Parser, folder
from tilelet.runtime.gc_pause import no_garbage
from tilelet.scripts import interrupt


def _add_platform(parser: Parser) -> None:
    from tilelet.runtime.config import PLATFORMS

    values = OneOf(*PLATFORMS)
    parser.add_argument(
        "-p",
        "--platform",
        type=values,
        metavar=values.metavar,
        help="platform that the script is told to run on; it runs on this CPU all the same",
    )


def _add_run(parser: Parser) -> None:
    _add_platform(parser)
    add_format(parser, FORMATS, "of messages; json and sarif go to stdout, all else to stderr")
    add_dump(parser)
    add_run_options(parser)
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="what executes programs: cpu (native code, the default) or interp (the interpreter)",
    )
    parser.add_argument(
        "--keep-c", action="store_true", help="keep the C text of programs in the run directory"
    )
    parser.add_argument("--keep-c-in", type=folder, metavar="DIR", help="keep it in this folder")
    parser.add_argument(
        "--seed-valid",
        action="store_true",
        help="lose `valid_shape` at the ops where the compilers of April 2026 lost it",
    )
    parser.add_argument("--save-data", action="store_true", help="keep inputs and goldens as .npz")
    parser.add_argument(
        "--no-golden-cache", action="store_true", help="compute goldens even if nothing changed"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 if a check has findings, too"
    )
    parser.add_argument(
        "--no-checks", dest="checks", action="store_false", help="run only, check nothing"
    )
    add_script(parser)


def _add_tasks(parser: Parser) -> None:
    _add_platform(parser)
    add_as_runtime(parser)
    add_format(parser, FORMATS, "of messages; json and sarif go to stdout, all else to stderr")
    add_dump(parser)
    add_run_options(parser)
    add_script(parser)


def _run(command: str) -> Callable[[Parser, Namespace], int]:
    def run(_: Parser, found: Namespace) -> int:
        with no_garbage(), interrupt.deferred():
            # What nearly every script needs, too.
            import tilelet.language
            import tilelet.runtime.harness.runner  # noqa: F401
            from tilelet.cli.run import run_command

        return run_command(taken(RunOptions, found, command=command))

    return run


RUN = Command("run", "run a script and report its verdict", manual.RUN, _add_run, _run("run"))
TASKS = Command(
    "tasks", "count a script's tasks, kernel by kernel", manual.TASKS, _add_tasks, _run("tasks")
)
