"""A command of `tilelet`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tilelet.cli.usage import Parser

Namespace = argparse.Namespace


@dataclass(frozen=True)
class Command:
    """One command.

    about       one line for `tilelet --help`
    manual      what its own help says after the options
    add         gives a parser its options
    run         does the work; the result is the exit code
    is_internal  for those who work on Tilelet itself: not in `--help`, nor in completions
    """

    name: str
    about: str
    manual: str
    add: Callable[[Parser], None]
    run: Callable[[Parser, Namespace], int]
    is_internal: bool = False

    def parser(self) -> Parser:
        parser = Parser(
            f"tilelet {self.name}",
            description=f"{self.about[0].upper()}{self.about[1:]}.",
            epilog=self.manual,
        )
        self.add(parser)
        return parser
