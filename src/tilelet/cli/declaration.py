"""Commands declared as dataclasses: one declaration gives parsing, help, completion and docs.

A command is a subclass of `Command`. Its name is that of the class, the first line of its docstring
says what it does, the rest of the docstring is the end of its help, and its fields are its options
and arguments:

    @dataclass(frozen=True, kw_only=True)
    class TasksCommand(ScriptOptions, group=WRITE):
        '''Count the tasks of a script, kernel by kernel.

Examples:
          tilelet tasks kernel.py
        '''

        as_runtime: bool = option("count as the device's runtime does")

        def run(self) -> int: ...
"""

from __future__ import annotations

import abc
import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from tilelet import dataclasses
from tilelet.cli.values import OneOf, from_environment, programs
from tilelet.diag.catalogue.command import BadFlag
from tilelet.diag.render import text_width
from tilelet.diag.text import did_you_mean, near, wrap_lines
from tilelet.scripts.arguments import SharedOption
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from typing_extensions import Self

C = TypeVar("C", bound="Command")
Parse = Callable[[str], Any]
Words = Callable[[], Sequence[str]]

_BEFORE_SCRIPT = ("help", "module")
"""Options that are the script's own if they stand after it."""


@dataclasses.dataclass(frozen=True)
class _Declared:
    """Declaration of one field of a command.

    names    spellings; none: derived from the name of the field
    nargs    of an argument that is not an option: None (required), "?" or "*"
    parse    converts a text to a value
    many     may be repeated; values are collected
    variable an environment variable that sets the default
    section  heading in the help
    rivals   name of a set of mutually exclusive options
    words    completion words
    """

    about: str
    default: Any
    names: tuple[str, ...] = ()
    is_option: bool = True
    nargs: str | None = None
    parse: Parse | None = None
    metavar: str | None = None
    many: bool = False
    variable: str | None = None
    section: str | None = None
    rivals: str | None = None
    words: Words | None = None


def option(
    about: str,
    *names: str,
    default: object = False,
    parse: Parse | None = None,
    metavar: str | None = None,
    many: bool = False,
    variable: str | None = None,
    section: str | None = None,
    rivals: str | None = None,
    words: Words | None = None,
) -> Any:
    """Declare an option; a bool default makes it a flag, which inverts the default."""
    return _field(
        _Declared(
            about,
            default,
            names,
            parse=parse,
            metavar=parse.metavar if isinstance(parse, OneOf) else metavar,
            many=many,
            variable=variable,
            section=section,
            rivals=rivals,
            words=words,
        )
    )


def argument(
    about: str,
    metavar: str,
    *,
    nargs: str | None = None,
    parse: Parse | None = None,
    words: Words | None = None,
) -> Any:
    """Declare a positional argument: required, or `nargs` "?" or "*"."""
    default: list[str] | None = [] if nargs == "*" else None
    declared = _Declared(
        about, default, is_option=False, nargs=nargs, parse=parse, metavar=metavar, words=words
    )
    return _field(declared)


def script() -> Any:
    """Declare the script of a command, or a program by name, with the script's arguments."""
    return _field(_Declared("a Python file, or the name of a program", Target("")))


def _field(declared: _Declared) -> object:
    if isinstance(declared.default, list):
        return dataclasses.field(default_factory=list[Any], metadata={"declared": declared})
    return dataclasses.field(default=declared.default, metadata={"declared": declared})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(abc.ABC):
    """A command of `tilelet`.

    group  heading in `tilelet --help`; None: not listed there
    """

    name: ClassVar[str]
    group: ClassVar[str | None] = None

    def __init_subclass__(cls, group: str | None = None) -> None:
        cls.name = cls.__name__.removesuffix("Command").lower()
        cls.group = group

    @abc.abstractmethod
    def run(self) -> int:
        """Do the work; return the exit code."""

    @classmethod
    def about(cls) -> str:
        """Return what the command does, as an imperative without a period."""
        line = inspect.cleandoc(cls.__doc__ or "").partition("\n")[0].removesuffix(".")
        return line[0].lower() + line[1:]

    @classmethod
    def manual(cls) -> str:
        """Return the help text after the options."""
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].lstrip("\n")

    @classmethod
    def parser(cls) -> Parser:
        return Parser(cls)

    @classmethod
    def parse(cls, argv: Sequence[str]) -> Self:
        """Parse the arguments after the command's name."""
        return cls(**cls.parser().parse(argv))


class Parser(argparse.ArgumentParser):
    """The parser of one command, which reports errors in Tilelet's format."""

    def __init__(self, command: type[Command] | None = None, **settings: Any) -> None:
        if command is not None:
            about = command.about()
            settings = {
                "prog": f"tilelet {command.name}",
                "description": f"{about[0].upper()}{about[1:]}.",
                "epilog": command.manual(),
            }
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings
        )
        self.takes_script = False
        self.words: dict[str, Words] = {}
        self._places: dict[str, object] = {}
        if command is not None:
            for field in dataclasses.fields(command):
                if "declared" in field.metadata:
                    self._add(field.name, field.metadata["declared"])

    def _add(self, name: str, declared: _Declared) -> None:
        if declared.words is not None:
            self.words[name] = declared.words
        if isinstance(declared.default, Target):
            self._add_script(declared.about)
            return
        about: dict[str, Any] = {"help": declared.about}
        value: dict[str, Any] = {"type": declared.parse, "metavar": declared.metavar}
        if not declared.is_option:
            more: dict[str, list[str]] = {"default": []} if declared.nargs == "*" else {}
            self.add_argument(name, nargs=declared.nargs, **more, **value, **about)
            return
        place = self._place(declared)
        names = declared.names or (f"--{name.replace('_', '-')}",)
        if isinstance(declared.default, bool):
            default = declared.default or _is_set(declared.variable)
            action = "store_false" if declared.default else "store_true"
            place.add_argument(*names, dest=name, action=action, default=default, **about)
            return
        default = declared.default
        if declared.variable is not None:
            default = from_environment(declared.variable, declared.parse or str, default)
        if declared.many:
            value["action"] = "append"
        place.add_argument(*names, dest=name, default=default, **value, **about)
        if name == "format":
            short = "the same as --format json"
            place.add_argument("--json", dest=name, action="store_const", const="json", help=short)

    def _place(self, declared: _Declared) -> Any:
        """Return the help section of an option, or its set of mutually exclusive options."""
        key = declared.rivals or declared.section
        if key is None:
            return self
        if key not in self._places:
            required = key.endswith("!")
            self._places[key] = (
                self.add_mutually_exclusive_group(required=required)
                if declared.rivals
                else self.add_argument_group(key)
            )
        return self._places[key]

    def _add_script(self, about: str) -> None:
        self.takes_script = True
        self.usage = f"{self.prog} [options] SCRIPT [options] [-- arguments of the script]"
        self.add_argument(
            "-m", dest="module", action="store_true", help="SCRIPT is a module: package.module"
        )
        self.add_argument("script", metavar="SCRIPT", help=about)
        self.words["script"] = programs

    @property
    def own_options(self) -> dict[str, argparse.Action]:
        """Return the options of this command, by each of their spellings."""
        return dict(self._option_string_actions)

    @property
    def own_actions(self) -> list[argparse.Action]:
        return list(self._actions)

    def format_help(self) -> str:
        text = super().format_help()
        return f"{wrap_lines(text, text_width(sys.stdout))}\n" if sys.stdout.isatty() else text

    def parse(self, argv: Sequence[str]) -> dict[str, Any]:
        """Parse all of `argv`; report anything left over as an error of this command."""
        if not self.takes_script:
            return self._parse(argv)
        before, after = self._divide(argv)
        ours, target = self._divide_arguments(after)
        found = self._parse([*before, *ours])
        name, is_module = found.pop("script"), found.pop("module")
        named = Target.of_module(name) if is_module else Target(name)
        target = dataclasses.replace(target, name=named.name, module=named.module)
        return {**found, "target": target}

    def _parse(self, argv: Sequence[str]) -> dict[str, Any]:
        found, rest = self.parse_known_args(argv, argparse.Namespace())
        if rest:
            self._unknown(rest)
        return vars(found)

    def _divide(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the arguments up to the script, and those after it."""
        waiting = list(argv)
        before: list[str] = []
        while waiting:
            words = self._next_words(waiting)
            before += words
            if not words[0].startswith("-") or words[0] == "-":
                break
        return before, waiting

    def _next_words(self, waiting: list[str]) -> list[str]:
        """Take an argument, and its value if it is an option of this command that has one."""
        word = waiting.pop(0)
        action = self._action_of(word)
        if action is None or action.nargs == 0 or word not in action.option_strings or not waiting:
            return [word]
        return [word, waiting.pop(0)]

    def _action_of(self, word: str) -> argparse.Action | None:
        """Return the option of this command that a word is, alone or with its value."""
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        return self._option_string_actions.get(name)

    def _divide_arguments(self, waiting: list[str]) -> tuple[list[str], Target]:
        """Divide the arguments after the script into options of this command and those of the
        script.

        Options of this command are recognized anywhere before `--`; what follows is the script's.
        """
        from tilelet.runtime.config import PLATFORMS

        ours: list[str] = []
        rest: list[str] = []
        shared: list[SharedOption] = []
        while waiting and waiting[0] != "--":
            words = self._next_words(waiting)
            action = self._action_of(words[0])
            if action is None or action.dest in _BEFORE_SCRIPT:
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
            command=(self.prog, tuple(self._option_string_actions)),
        )
        return ours, target

    def error(self, message: str) -> NoReturn:
        """Replace argparse's message, whose wording differs between Python versions."""
        named = re.fullmatch(r"argument (\S+?): (.*)", message, re.DOTALL)
        if named:
            option, why = named.groups()
            mine = ["write `--` before it if it is an option of the script"]
            self.refuse(f"`{option}`: {why}", mine if self.takes_script else ())
        self.refuse(message)

    def refuse(self, message: str, helps: Sequence[str] = ()) -> NoReturn:
        """Raise a usage error."""
        raise BadFlag(message, [*helps, f"`{self.prog} --help` lists the options"])

    def _unknown(self, rest: Sequence[str]) -> NoReturn:
        option = next((a.partition("=")[0] for a in rest if a.startswith("-")), None)
        if option is None:
            self.refuse(f"`{self.prog}` has no use for `{rest[0]}`")
        known = [name for name in self.own_options if name.startswith("--")]
        self.refuse(f"`{self.prog}` has no option `{option}`", did_you_mean(near(option, known)))


def _is_set(variable: str | None) -> bool:
    return variable is not None and os.environ.get(variable, "0") not in ("", "0")
