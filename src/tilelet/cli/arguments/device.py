"""The options of the commands that ask about a modelled machine: profile, check, compare."""

from __future__ import annotations

from tilelet.checks.registry import CHECKS
from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import (
    Namespace,
    add_as_runtime,
    add_device_options,
    add_page,
    add_script,
)
from tilelet.cli.options import (
    FORMATS,
    JSON,
    TEXT,
    CheckOptions,
    CompareOptions,
    DeviceOptions,
    taken,
)
from tilelet.cli.usage import Parser, name_list, seconds
from tilelet.runtime.gc_pause import no_garbage
from tilelet.scripts import interrupt


def _add_execute(parser: Parser) -> None:
    parser.add_argument(
        "--execute",
        action="store_true",
        help="run the kernels too: for programs whose results decide their tasks",
    )


def _add_profile(parser: Parser) -> None:
    add_as_runtime(parser)
    add_device_options(parser, FORMATS)
    add_page(parser)
    _add_execute(parser)
    parser.add_argument(
        "--no-files", dest="files", action="store_false", help="print the report, write nothing"
    )
    add_script(parser)


def _profile(_: Parser, found: Namespace) -> int:
    with no_garbage(), interrupt.deferred():
        # What it needs after the script has run, too.
        import tilelet.device.run
        import tilelet.report.document  # noqa: F401
        from tilelet.cli.profile import profile_command

    return profile_command(taken(DeviceOptions, found, command="profile"))


def _add_check(parser: Parser) -> None:
    add_device_options(parser, FORMATS)
    add_page(parser)
    parser.add_argument(
        "--only",
        type=name_list,
        default=(),
        metavar="A,B",
        help=f"make these checks only: {', '.join(CHECKS)}",
    )
    parser.add_argument(
        "--memory", action="store_true", help="print the memory plan and the TILELET budget"
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="for `--only golden`: 60s (the default) or 2m",
    )
    parser.add_argument(
        "--portable",
        metavar="DIALECT",
        help="instead, what a release of PyPTO does not take of it: 2026-04 or 2026-08",
    )
    _add_execute(parser)
    add_script(parser)


def _check(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.check import check_command

    options = taken(CheckOptions, found, command="check")
    if options.portable is not None:
        from tilelet.cli.portable import portable_command

        return portable_command(options)
    return check_command(options)


def _add_compare(parser: Parser) -> None:
    add_device_options(parser, (TEXT, JSON))
    add_page(parser)
    parser.add_argument("a", metavar="A", help="a script, a program's name, or a profile.json")
    parser.add_argument("b", metavar="B", nargs="?", help="another, or the same with @machine")


def _compare(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.profile import compare_command

    if len(found.platforms) > 2:
        parser.refuse(f"`--platforms`: two machines can be compared, not {len(found.platforms)}")
    return compare_command(taken(CompareOptions, found, command="compare"))


PROFILE = Command(
    "profile",
    "model a script's time on an NPU, and say where it goes",
    manual.PROFILE,
    _add_profile,
    _profile,
)
CHECK = Command(
    "check", "find races, undefined memory, tiles that do not fit", manual.CHECK, _add_check, _check
)
COMPARE = Command("compare", "compare two modelled runs", manual.COMPARE, _add_compare, _compare)
