"""The options of `tilelet tune`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_device_options, add_script
from tilelet.cli.options import FORMATS, TuneOptions, taken
from tilelet.cli.usage import OneOf, Parser, budget, new_file, positive, variation, whole_number
from tilelet.scripts import interrupt


def _add_tune(parser: Parser) -> None:
    add_device_options(parser, FORMATS)
    parser.add_argument(
        "--vary",
        type=variation,
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="what to vary, and the values; may be repeated (default: whatever can be varied)",
    )
    objectives = OneOf("us", "gm_bytes", "tasks", "cpu_ms")
    parser.add_argument(
        "--objective",
        type=objectives,
        metavar=objectives.metavar,
        default="us",
        help="what should become less: modelled time (default), bytes, tasks, time on this CPU",
    )
    parser.add_argument(
        "--budget",
        type=budget,
        default=budget("200"),
        metavar="N|SECONDS",
        help="how many candidates (200), or how long: 60s, 5m",
    )
    methods = OneOf("exhaustive", "descent", "random")
    parser.add_argument(
        "--method",
        type=methods,
        metavar=methods.metavar,
        help="of the search (default: exhaustive if the budget allows it, else descent)",
    )
    parser.add_argument(
        "--search-seed", type=whole_number, default=0, metavar="N", help="search in another order"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=positive, metavar="N", help="processes (one per core)")
    where.add_argument(
        "--executor", metavar="dask://HOST:PORT", help="a dask scheduler whose workers do the work"
    )
    parser.add_argument(
        "--results", type=new_file, metavar="FILE", help="keep scores there, and go on from them"
    )
    parser.add_argument(
        "--verify",
        type=whole_number,
        default=5,
        metavar="N",
        help="how many of the best to run on this CPU until one is right (5); 0: none",
    )
    add_script(parser)


def _tune(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.tune import tune_command

    return tune_command(taken(TuneOptions, found, command="tune"))


TUNE = Command("tune", "find better tile sizes with the model", manual.TUNE, _add_tune, _tune)
