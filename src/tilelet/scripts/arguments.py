"""Hand a script its arguments, and observe which of them it reads."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, cast

from tilelet.dataclasses import dataclass


@dataclass(frozen=True)
class SharedOption:
    """An option of Tilelet after the script: the script gets it too if it declares the same option.

    names  all spellings of the option
    words  the option as typed, with its value
    at     position among the arguments of the script
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    at: int


class ArgumentLog:
    """Arguments that were not read so far."""

    def __init__(self, shared: Sequence[SharedOption]) -> None:
        self.shared = shared
        self.was_read = False  # the script has looked at `sys.argv`
        self.left_over: list[str] | None = None  # by every argparse parser; None: none has run

    def unread(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments, or those that no parser of the script knows."""
        if self.left_over is not None:
            return [word for word in arguments if word in self.left_over]
        return [] if self.was_read else list(arguments)

    def parsed(self, left_over: Sequence[str]) -> None:
        before = self.left_over
        self.left_over = [word for word in left_over if before is None or word in before]


class _Argv(list[str]):
    """`sys.argv` of a script; notes reads beyond the name of the script."""

    def __init__(self, words: Iterable[str], log: ArgumentLog) -> None:
        super().__init__(words)
        self._log = log

    def __getitem__(self, index: Any) -> Any:
        self._log.was_read |= index != 0
        return cast("Any", super().__getitem__(index))

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self[:],)


def _noting_method(name: str) -> Callable[..., object]:
    plain = getattr(list, name)

    def read(self: _Argv, *args: object) -> Any:
        self._log.was_read = True  # pyright: ignore[reportPrivateUsage]
        return plain(self, *args)

    return read


for _name in ("__iter__", "__repr__", "__contains__", "__add__", "pop", "index", "copy", "remove"):
    setattr(_Argv, _name, _noting_method(_name))


@contextlib.contextmanager
def given(
    program: str, arguments: Sequence[str], shared: Sequence[SharedOption] = ()
) -> Generator[ArgumentLog]:
    """Set `sys.argv`; argparse parsers that read it also get the shared options they declare."""
    log = ArgumentLog(shared)
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(
        self: argparse.ArgumentParser, args: Any = None, namespace: Any = None
    ) -> Any:
        words = _peek(sys.argv)
        if args is not None and list(args) != words:
            return parse(self, args, namespace)
        log.was_read = True
        found, left_over = parse(self, _with_shared(self, words, shared), namespace)
        log.parsed(left_over)
        return found, left_over

    saved = sys.argv
    sys.argv = _Argv([program, *arguments], log)
    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]
    try:
        yield log
    finally:
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
        sys.argv = saved


def _peek(argv: list[str]) -> list[str]:
    """The arguments, without noting a read."""
    return list[str].__getitem__(argv, slice(1, None))


def _with_shared(
    parser: argparse.ArgumentParser, words: list[str], shared: Sequence[SharedOption]
) -> list[str]:
    declared = set(_declared_spellings(parser))
    for option in reversed(shared):
        name = next((name for name in option.names if name in declared), None)
        if name is not None:
            words[option.at : option.at] = _spelling_of(option, declared, name)
    return words


def _spelling_of(option: SharedOption, declared: set[str], name: str) -> Sequence[str]:
    """The option as typed, or by the spelling that the script has for it."""
    typed, *value = option.words
    spelling, equals, joined = typed.partition("=")
    if spelling in declared:
        return option.words
    return (f"{name}={joined}",) if equals else (name, *value)


def _declared_spellings(parser: argparse.ArgumentParser) -> Iterable[str]:
    """Spellings of the options of a parser and of its subcommands."""
    yield from parser._option_string_actions  # pyright: ignore[reportPrivateUsage]
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        for inner in getattr(action.choices, "values", list[Any])():  # of subcommands
            yield from _declared_spellings(inner)
