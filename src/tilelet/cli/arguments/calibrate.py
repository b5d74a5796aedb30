"""The options of `tilelet calibrate`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_format
from tilelet.cli.options import DEFAULT_MACHINE, JSON, TEXT
from tilelet.cli.usage import Parser, folder, new_file
from tilelet.scripts import interrupt


def _add_calibrate(parser: Parser) -> None:
    parser.add_argument("action", metavar="ACTION", help="kit, fit or report")
    parser.add_argument(
        "path", type=folder, nargs="?", metavar="DIR", help="of the kit, or of its results"
    )
    parser.add_argument(
        "--like", metavar="NAME", default=DEFAULT_MACHINE, help="fit: the machine to start from"
    )
    parser.add_argument("--period", metavar="MONTH", help="fit: the runtime that the board has")
    parser.add_argument(
        "-o", dest="output", type=new_file, metavar="FILE", help="fit: the machine file to write"
    )
    parser.add_argument(
        "--programs", type=folder, metavar="DIR", help="report: public programs, by revision"
    )
    parser.add_argument(
        "--write", action="store_true", help="report: write docs/calibration.md and what it is of"
    )
    add_format(parser, (TEXT, JSON), "of the answer")


def _calibrate(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli import calibrate

    if found.action not in ("kit", "fit", "report"):
        parser.refuse(f"`calibrate {found.action}`: an action is kit, fit or report")
    if found.action != "report" and found.path is None:
        parser.refuse(f"`calibrate {found.action}` needs a folder")
    if found.action == "kit":
        return calibrate.kit_command(found.path)
    if found.action == "fit":
        return calibrate.fit_command(
            found.path, found.like, found.period, found.output, found.format
        )
    return calibrate.report_command(found.programs, write=found.write, formatted=found.format)


CALIBRATE = Command(
    "calibrate",
    "compare the model with published figures, or fit it to a board of yours",
    manual.CALIBRATE,
    _add_calibrate,
    _calibrate,
)
