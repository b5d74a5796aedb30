"""The options of `tilelet verdict`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_device_options, add_script
from tilelet.cli.options import FORMATS, JSON, VerdictOptions, taken
from tilelet.cli.usage import Parser, seconds
from tilelet.scripts import interrupt


def _add_verdict(parser: Parser) -> None:
    add_device_options(parser, FORMATS)
    parser.add_argument(
        "--json", dest="format", action="store_const", const=JSON, help="the same as --format json"
    )
    parser.add_argument(
        "--strength",
        type=seconds,
        metavar="TIME",
        help="also try for so long, as 20s, whether the golden notices wrong ops",
    )
    add_script(parser)


def _verdict(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.verdict import verdict_command

    return verdict_command(taken(VerdictOptions, found, command="verdict"))


VERDICT = Command(
    "verdict",
    "say in one answer whether a script is right, fits, and what it takes",
    manual.VERDICT,
    _add_verdict,
    _verdict,
)
