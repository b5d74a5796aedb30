"""Values of options: each function parses one kind of text, or says what is wrong with it."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tilelet.diag.catalogue.command import BadFlag
from tilelet.diag.text import near, quoted_names


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
        raise argparse.ArgumentTypeError(
            f"`{text}` is none of {quoted_names(self.words, 'and')}{meant}"
        )


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


def positive_number(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not at least 1")
    return number


def rank_count(text: str) -> int:
    """A number of ranks in this process; 0 for `mpi`, one process each."""
    return 0 if text == "mpi" else positive_number(text)


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


def from_environment(variable: str, value: Callable[[str], object], otherwise: object) -> Any:
    """The default of an option that a variable can set. A value it cannot have is an error, too."""
    text = os.environ.get(variable)
    if not text:
        return otherwise
    try:
        return value(text)
    except argparse.ArgumentTypeError as error:
        raise BadFlag(f"`{variable}`: {error}") from None


# Completion words that are looked up


def machines() -> list[str]:
    from tilelet.device.machine.description import machine_names

    return list(machine_names())


def periods() -> list[str]:
    from tilelet.device.machine.description import load_machine

    return sorted({period for name in machines() for period in load_machine(name).runtime})


def engines() -> list[str]:
    from tilelet.runtime.programs import engines

    return list(engines.engine_names())


def programs() -> list[str]:
    from tilelet.models import registry

    return list(registry.models())


def sections() -> list[str]:
    from tilelet.bench.sections import SECTIONS

    return list(SECTIONS)


def codes() -> list[str]:
    from tilelet.diag.catalogue import classes

    return list(classes())


def examples() -> list[str]:
    from tilelet.cli.examples import example_names

    return example_names()
