"""Reading a command line: a parser whose complaints look like all of Tilelet's, and its values."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from tilelet.diag.catalogue.command import BadFlag
from tilelet.diag.render import render_text, text_width, use_color
from tilelet.diag.text import did_you_mean, near, ticked, wrapped
from tilelet.scripts.arguments import SharedOption
from tilelet.scripts.exit_codes import WRONG_USAGE
from tilelet.scripts.target import Target

BEFORE_SCRIPT = ("help", "module")
"""Options that mean the script's own if they stand after it."""


class Parser(argparse.ArgumentParser):
    """The parser of one command (or of `tilelet` itself, which knows only the commands)."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(
            prog=prog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **settings,
        )
        self.takes_script = False

    @property
    def own_options(self) -> dict[str, argparse.Action]:
        """The options of this command, by each of their spellings."""
        return dict(self._option_string_actions)

    @property
    def own_actions(self) -> list[argparse.Action]:
        return list(self._actions)

    def format_help(self) -> str:
        text = super().format_help()
        return f"{wrapped(text, text_width(sys.stdout))}\n" if sys.stdout.isatty() else text

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of `argv`; what is left over is an error of this command, not of another."""
        if not self.takes_script:
            return self._parse(argv)
        before, after = self._divide(argv)
        ours, target = self._divide_arguments(after)
        found = self._parse([*before, *ours])
        named = Target.of_module(found.script) if found.module else Target(found.script)
        found.target = replace(target, name=named.name, module=named.module)
        return found

    def _parse(self, argv: Sequence[str]) -> argparse.Namespace:
        found, rest = self.parse_known_args(argv, argparse.Namespace())
        if rest:
            self._unknown(rest)
        return found

    def _divide(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Everything up to the script, and what follows it."""
        waiting = list(argv)
        before: list[str] = []
        while waiting:
            words = self._next_words(waiting)
            before += words
            if not words[0].startswith("-") or words[0] == "-":
                break
        return before, waiting

    def _next_words(self, waiting: list[str]) -> list[str]:
        """Take an argument, and its value if it is an option of ours that has one."""
        word = waiting.pop(0)
        action = self._action_of(word)
        if action is None or action.nargs == 0 or word not in action.option_strings or not waiting:
            return [word]
        return [word, waiting.pop(0)]

    def _action_of(self, word: str) -> argparse.Action | None:
        """The option of ours that a word is, alone or with its value in the same word."""
        known = self.own_options
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        return known.get(name)

    def _divide_arguments(self, waiting: list[str]) -> tuple[list[str], Target]:
        """Options of this command after the script, and what is left for the script.

        Ours are ours wherever they stand, and what follows `--` is the script's.
        """
        from tilelet.runtime.config import PLATFORMS

        ours: list[str] = []
        rest: list[str] = []
        shared: list[SharedOption] = []
        own = self.own_options
        while waiting and waiting[0] != "--":
            words = self._next_words(waiting)
            action = self._action_of(words[0])
            if action is None or action.dest in BEFORE_SCRIPT:
                rest += words
                continue
            ours += words
            if action.dest != "platform" or words[-1].rpartition("=")[2] in PLATFORMS:
                names = tuple(action.option_strings)
                shared.append(SharedOption(names, tuple(words), len(rest)))
        target = Target(
            "",
            (*rest, *waiting[1:]),
            shared=tuple(shared),
            claimed=len(rest),
            command=(self.prog, tuple(own)),
        )
        return ours, target

    def error(self, message: str) -> NoReturn:
        """Called by argparse with its own words, which differ between Python versions."""
        named = re.fullmatch(r"argument (\S+?): (.*)", message, re.DOTALL)
        if named:
            option, why = named.groups()
            mine = ["write `--` before it if it is an option of the script"]
            self.refuse(f"`{option}`: {why}", mine if self.takes_script else ())
        self.refuse(message)

    def refuse(self, message: str, helps: Sequence[str] = ()) -> NoReturn:
        """End the process: what was typed cannot be meant."""
        more = f"`{self.prog} --help` says what there is"
        problem = BadFlag(message, [*helps, more]).diagnostic
        shown = render_text(problem, use_color(sys.stderr), width=text_width(sys.stderr))
        self.exit(WRONG_USAGE, f"{shown}\n")

    def _unknown(self, rest: Sequence[str]) -> NoReturn:
        option = next((a.partition("=")[0] for a in rest if a.startswith("-")), None)
        if option is None:
            self.refuse(f"`{self.prog}` has no use for `{rest[0]}`")
        known = [name for name in self.own_options if name.startswith("--")]
        self.refuse(f"`{self.prog}` has no option `{option}`", did_you_mean(near(option, known)))


class OneOf:
    """Values of an option: one of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def metavar(self) -> str:
        return f"{{{','.join(self.words)}}}"

    def __call__(self, text: str) -> str:
        if text in self.words:
            return text
        close = near(text, self.words)
        meant = f": did you mean `{close[0]}`?" if close else ""
        raise argparse.ArgumentTypeError(f"`{text}` is none of {ticked(self.words, 'and')}{meant}")


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number") from None


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number") from None


def token_list(text: str) -> list[int]:
    """`1 2 3` or `1,2,3`."""
    return [whole_number(word) for word in text.replace(",", " ").split()]


def seconds(text: str) -> float:
    """`60`, `60s` or `2m`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m") else (text, "s")
    try:
        found = float(number) * (60.0 if unit == "m" else 1.0)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f"`{text}` is no time: write 60s or 2m")
    return found


def positive(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not at least 1")
    return number


def folder(text: str) -> Path:
    """A folder to write to, which need not exist yet."""
    path = Path(text)
    try:
        found = next((place for place in (path, *path.parents) if place.exists()), None)
    except OSError as error:  # a name that is too long for any folder
        raise argparse.ArgumentTypeError(f"`{text}`: {error.strerror}") from None
    if found is not None and not found.is_dir():
        raise argparse.ArgumentTypeError(f"`{found}` is not a folder")
    return path


def new_file(text: str) -> Path:
    """A file to write to."""
    path = Path(text)
    folder(str(path.parent))
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"`{text}`: {error.strerror}") from None
    if is_folder:
        raise argparse.ArgumentTypeError(f"`{path}` is a folder")
    return path


def name_list(text: str) -> tuple[str, ...]:
    """`a2a3,a5`"""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("nothing is named")
    return names


def local_address(text: str) -> str:
    """An address on this machine: nothing is sent to another."""
    try:
        parts = urlsplit(text)
        on_this_machine = parts.hostname in ("localhost", "127.0.0.1")
    except ValueError:
        on_this_machine = False
    if not text.startswith("http://") or not on_this_machine:
        raise argparse.ArgumentTypeError(
            f"`{text}` is no address on this machine, such as http://localhost:10000"
        )
    return text


def variation(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`K_CHUNK=128,256`, or only `K_CHUNK`: then the tuner chooses the values."""
    name, equals, values = text.partition("=")
    if not name or (equals and not values.strip(", ")):
        raise argparse.ArgumentTypeError(f"`{text}`: write NAME=VALUE,VALUE or only NAME")
    found: list[int | str] = []
    for value in filter(None, (v.strip() for v in values.split(","))):
        if re.fullmatch(r"\d{1,9}", value):
            found.append(int(value))
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", value):
            found.append(value)
        else:
            raise argparse.ArgumentTypeError(f"`{value}` is neither a number nor a name")
    return name, tuple(dict.fromkeys(found))


def budget(text: str) -> tuple[int, float]:
    """Candidates and seconds: `200`, `60s`, `5m`."""
    found = re.fullmatch(r"(\d{1,9})(s|m)?", text.strip())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"`{text}`: write 200 (candidates), 60s or 5m")
    amount, unit = int(found[1]), found[2]
    if unit is None:
        return amount, math.inf
    return 10**9, float(amount * (60 if unit == "m" else 1))


def from_environment(variable: str, value: Callable[[str], Any], otherwise: Any) -> Any:
    """The default of an option that a variable can set. A value it cannot have is an error, too."""
    text = os.environ.get(variable)
    if not text:
        return otherwise
    try:
        return value(text)
    except argparse.ArgumentTypeError as error:
        raise BadFlag(f"`{variable}`: {error}") from None
