"""The options of `tilelet diverge`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import (
    Namespace,
    add_format,
    add_page,
    add_run_options,
    add_script,
)
from tilelet.cli.options import FORMATS, DivergeOptions, taken
from tilelet.cli.usage import Parser, seconds
from tilelet.scripts import interrupt


def _add_diverge(parser: Parser) -> None:
    add_format(parser, FORMATS, "of the answer")
    add_run_options(parser)
    parser.add_argument(
        "--budget",
        type=seconds,
        default=12.0,
        metavar="TIME",
        help="for repairs: 60s (default: 12s)",
    )
    parser.add_argument(
        "--all-fp32",
        action="store_true",
        help="compare with the same program in FP32 throughout: is it logic, or rounding?",
    )
    parser.add_argument(
        "-p",
        "--platform",
        metavar="NAME",
        help="whose rules of order count, and for --html: a2a3 (default), a5, or a machine file",
    )
    add_page(parser)
    add_script(parser)


def _diverge(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.diverge import diverge_command

    return diverge_command(taken(DivergeOptions, found, command="diverge"))


DIVERGE = Command(
    "diverge", "find the first statement that goes wrong", manual.DIVERGE, _add_diverge, _diverge
)
