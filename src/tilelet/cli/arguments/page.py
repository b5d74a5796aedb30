"""The options of `tilelet report` and `tilelet view`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_page
from tilelet.cli.options import taken
from tilelet.cli.usage import Parser, from_environment, local_address
from tilelet.scripts import interrupt


def _add_report(parser: Parser) -> None:
    add_page(parser)
    parser.add_argument("directory", metavar="RUN_DIR", help="what `tilelet profile` wrote")


def _report(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.page import PageOptions, report_command

    return report_command(taken(PageOptions, found))


def _add_view(parser: Parser) -> None:
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("-p", "--platform", metavar="NAME", help="of a script: a2a3 (default), a5")
    parser.add_argument(
        "--perfetto",
        type=local_address,
        metavar="ADDRESS",
        default=from_environment("TILELET_PERFETTO", local_address, None),
        help="a Perfetto on this machine, such as http://localhost:10000",
    )
    parser.add_argument(
        "directory", metavar="RUN_DIR", help="a run directory, a script, or a program's name"
    )


def _view(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.page import PageOptions, view_command

    return view_command(taken(PageOptions, found))


REPORT = Command("report", "make the page of a run directory", manual.REPORT, _add_report, _report)
VIEW = Command(
    "view",
    "show a run in the browser, again whenever its script is saved",
    manual.VIEW,
    _add_view,
    _view,
)
