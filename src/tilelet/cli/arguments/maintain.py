"""The options of the commands for those who work on Tilelet itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, use_one_blas_thread
from tilelet.cli.usage import Parser, folder
from tilelet.scripts import interrupt


def _add_write_or_check(parser: Parser) -> argparse._MutuallyExclusiveGroup:  # pyright: ignore[reportPrivateUsage]
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="make them, and write them")
    what.add_argument("--check", action="store_true", help="compare them with the code")
    parser.add_argument(
        "--dir", type=folder, default=Path("docs"), help="their folder (default: docs)"
    )
    return what


def _add_docs(parser: Parser) -> None:
    _add_write_or_check(parser)


def _docs(_: Parser, found: Namespace) -> int:
    from tilelet.cli.pages import docs_command

    return docs_command(found.dir, write=found.write)


def _add_walkthrough(parser: Parser) -> None:
    what = _add_write_or_check(parser)
    what.add_argument(
        "--ladders", action="store_true", help="write what `tilelet advise --fix` does alone"
    )
    parser.add_argument(
        "--keep-cpu", action="store_true", help="with --write: keep the CPU times of the page"
    )
    parser.add_argument(
        "--only", metavar="A,B", default="", help="with --check or --ladders: these programs only"
    )


def _walkthrough(parser: Parser, found: Namespace) -> int:
    use_one_blas_thread()
    with interrupt.deferred():
        from tilelet.cli import walkthrough

    names = [name for name in found.only.split(",") if name]
    unknown = [name for name in names if name not in walkthrough.PROGRAMS]
    if unknown:
        parser.refuse(f"`--only`: `{unknown[0]}` is none of {', '.join(walkthrough.PROGRAMS)}")
    if names and found.write:
        parser.refuse("`--only` goes with `--check` and `--ladders`")
    if found.ladders:
        return walkthrough.write_ladders(found.dir, names)
    if found.check:
        return walkthrough.check_page(found.dir, names)
    return walkthrough.write_page(found.dir, keep_cpu=found.keep_cpu)


DOCS = Command(
    "docs",
    "generate the reference pages",
    manual.DOCS,
    _add_docs,
    _docs,
    is_internal=True,
)
WALKTHROUGH = Command(
    "walkthrough",
    "generate the page about the Qwen3 programs, step by step",
    manual.WALKTHROUGH,
    _add_walkthrough,
    _walkthrough,
    is_internal=True,
)
