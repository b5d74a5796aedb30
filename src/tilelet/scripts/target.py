"""What a command is to run: a script, or a program that ships with Tilelet, and its arguments."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.diag.catalogue.command import FileMissing

if TYPE_CHECKING:
    from tilelet.runtime.session import Session
    from tilelet.scripts.script import ScriptExit


def is_model(name: str) -> bool:
    """`qwen3/scope3:tuned`: a name, not a file."""
    program = name.partition(":")[0]
    if "/" not in program or program.endswith(".py"):
        return False
    try:
        return not Path(name).exists()
    except OSError:  # too long for a file; and for a name
        return False


@dataclass(frozen=True)
class Target:
    """A path or name, and the arguments that belong to it."""

    name: str
    arguments: tuple[str, ...] = ()
    module: str | None = None  # what `-m` named; `name` is its file
    text: str | None = None  # what to run in place of the text of the file

    @classmethod
    def of_module(cls, module: str, arguments: tuple[str, ...]) -> Target:
        """`-m package.module`: looked for where Python would, the working directory first."""
        place = Path(*module.split("."))
        for folder in (Path.cwd(), *map(Path, sys.path)):
            for file in (folder / place.with_suffix(".py"), folder / place / "__main__.py"):
                if file.is_file():
                    return cls(str(file), arguments, module)
        raise FileMissing(module, [])

    @property
    def is_model(self) -> bool:
        return is_model(self.name)

    def run(self, now: Session) -> ScriptExit:
        """Run it to its end."""
        if self.is_model:
            from tilelet.scripts.shipped import run_model

            return run_model(self.name, self.arguments)
        from tilelet.scripts.script import Script

        return Script(self.name, self.arguments, self.module, self.text).run(now)

    def knows(self, option: str) -> bool:
        """Whether the text of the script mentions the option: then it is one of its own."""
        return option in self._text

    def argument_of(self, *names: str) -> str | None:
        """The value of an option among the arguments: after it, or joined by `=`."""
        for option, value in zip(self.arguments, [*self.arguments[1:], ""]):
            name, equals, joined = option.partition("=")
            if name in names:
                return joined if equals else value
        return None

    @property
    def _text(self) -> str:
        if self.text is not None:
            return self.text
        if self.is_model:
            return "--platform"  # the only one that a command of Tilelet has, too
        try:
            return Path(self.name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def options_after(
    target: Target, own: Sequence[str], with_value: Sequence[str], shared: Sequence[str]
) -> tuple[list[str], Target]:
    """Options of a command that stand after the target, and the target with the rest.

    own         options that may stand there; those that the script knows itself stay with it
    with_value  those of them that have a value
    shared      values of `-p` that the script also gets, if it knows that option: it may choose
                shapes by it
    """
    ours: list[str] = []
    rest: list[str] = []
    waiting = list(target.arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        platform = name in ("-p", "--platform")
        if name not in own or (target.knows(name) and not platform):
            rest.append(argument)
            continue
        taken = [argument]
        if name in with_value and not equals and waiting:
            value = waiting.pop(0)
            taken.append(value)
        ours += taken
        if platform and target.knows("--platform") and value in shared:
            rest += taken
    return ours, dataclasses.replace(target, arguments=tuple(rest))
