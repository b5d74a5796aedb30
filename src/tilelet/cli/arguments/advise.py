"""The options of `tilelet advise`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_device_options, add_script
from tilelet.cli.options import FORMATS, AdviseOptions, taken
from tilelet.cli.usage import Parser
from tilelet.scripts import interrupt


def _add_advise(parser: Parser) -> None:
    add_device_options(parser, FORMATS)
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply the rewritings one after the other, and show the ladder and the diff",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="with --fix: write the result to the script"
    )
    parser.add_argument(
        "--unproved",
        action="store_true",
        help="with --fix: also apply what holds for the inputs tried but is not proved",
    )
    add_script(parser)


def _advise(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.advise import advise_command

    options = taken(AdviseOptions, found, command="advise")
    if options.in_place and not options.fix:
        parser.refuse("`--in-place` writes what `--fix` makes: give both")
    if options.unproved and not options.fix:
        parser.refuse("`--unproved` says what `--fix` may apply: give both")
    if options.in_place and options.target.is_model:
        parser.refuse(f"`--in-place`: `{options.target.name}` is no file of yours; export it first")
    return advise_command(options)


ADVISE = Command(
    "advise", "say what to change, tried before it is said", manual.ADVISE, _add_advise, _advise
)
