"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from tilelet.cli.options import FORMATS, TEXT
from tilelet.cli.usage import (
    OneOf,
    Parser,
    folder,
    from_environment,
    name_list,
    new_file,
    whole_number,
)

Namespace = argparse.Namespace


def add_format(parser: Parser, formats: Sequence[str], about: str) -> None:
    known = OneOf(*FORMATS)
    default = from_environment("TILELET_FORMAT", known, TEXT)
    values = OneOf(*formats)
    parser.add_argument(
        "--format",
        type=values,
        metavar=values.metavar,
        default=default if default in formats else TEXT,
        help=about,
    )


def add_dump(parser: Parser) -> None:
    parser.add_argument(
        "--dump-passes",
        action="store_true",
        default=os.environ.get("TILELET_DUMP_PASSES", "0") not in ("", "0"),
        help="write the program after every pass to the run directory",
    )


def add_run_options(parser: Parser) -> None:
    """What decides how a script runs, whatever is asked about it."""
    parser.add_argument(
        "--build-dir", type=folder, metavar="DIR", help="folder of run directories (build_output)"
    )
    parser.add_argument(
        "--seed",
        type=whole_number,
        default=from_environment("TILELET_SEED", whole_number, 0),
        help="draw other random inputs (default: 0)",
    )
    for name, other, about in (
        ("--pypto", "installed", "what `import pypto` means (default: tilelet)"),
        (
            "--golden",
            "script",
            "what `import golden` means: Tilelet's, or the script's own (default: tilelet)",
        ),
    ):
        values = OneOf("tilelet", other)
        parser.add_argument(
            name, type=values, metavar=values.metavar, default="tilelet", help=about
        )


def add_device_options(parser: Parser, formats: Sequence[str]) -> None:
    machine = parser.add_mutually_exclusive_group()
    machine.add_argument(
        "-p", "--platform", metavar="NAME", help="a2a3 (default), a5, or a machine file (.toml)"
    )
    machine.add_argument(
        "--platforms",
        type=name_list,
        default=(),
        metavar="A,B",
        help="several machines, side by side",
    )
    parser.add_argument(
        "--period", metavar="MONTH", help="runtime of that month or day, as 2026-05-14"
    )
    add_format(parser, formats, "of the answer")
    add_run_options(parser)


def add_script(parser: Parser) -> None:
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module: package.module"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or a program's name")
    parser.usage = f"{parser.prog} [options] SCRIPT [options] [-- arguments of the script]"
    parser.takes_script = True


def add_nothing(parser: Parser) -> None:
    """A command without options."""


def add_as_runtime(parser: Parser) -> None:
    parser.add_argument(
        "--as-runtime",
        action="store_true",
        help="count as the device's runtime does: allocations, both halves of mixed kernels",
    )


def add_page(parser: Parser) -> None:
    parser.add_argument(
        "--html",
        type=new_file,
        metavar="FILE",
        help="write a page to look at: one file that needs no network",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def use_one_blas_thread() -> None:
    """Goldens have threads of their own. Those of BLAS wait for each other in every small product,
    which takes ten times as long when the cores have other work, too. NumPy must not be loaded yet.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
