"""The options of `tilelet export`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_run_options, add_script
from tilelet.cli.options import ExportOptions, taken
from tilelet.cli.usage import Parser, new_file
from tilelet.scripts import interrupt


def _add_export(parser: Parser) -> None:
    parser.add_argument(
        "--dialect",
        metavar="MONTH",
        default="2026-08",
        help="the release of PyPTO it is for: 2026-08 (default) or 2026-04",
    )
    parser.add_argument(
        "-o", "--output", type=new_file, metavar="FILE", help="where it goes (default: stdout)"
    )
    parser.add_argument("--program", metavar="NAME", help="which, if the script runs several")
    add_run_options(parser)
    add_script(parser)


def _export(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.portable import export_command

    return export_command(taken(ExportOptions, found, command="export"))


EXPORT = Command(
    "export",
    "write a program as one script for a public release of PyPTO",
    manual.EXPORT,
    _add_export,
    _export,
)
