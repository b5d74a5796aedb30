"""The target of a command: a script or shipped program, and its arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import BadFlag, FileMissing
from tilelet.diag.text import did_you_mean, near
from tilelet.scripts.arguments import ArgumentLog, SharedOption, given
from tilelet.scripts.exit_codes import WRONG_USAGE

if TYPE_CHECKING:
    from tilelet.runtime.session import Session
    from tilelet.scripts.script import ScriptExit


def is_model(name: str) -> bool:
    """Whether a target is a name, such as `qwen3/scope3:tuned`, not a file."""
    program = name.partition(":")[0]
    if "/" not in program or program.endswith(".py"):
        return False
    try:
        return not Path(name).exists()
    except OSError:  # too long for a file; and for a name
        return False


@dataclass(frozen=True)
class Target:
    """A path or name, and the arguments that belong to it.

    module   the module of `-m`; `name` is its file
    text     replacement for the text of the file
    shared   options of the command that the script gets too if it declares them
    claimed  number of arguments that must be read; those after `--` need not be
    command  the command that was typed, and the spellings of its options
    """

    name: str
    arguments: tuple[str, ...] = ()
    module: str | None = None
    text: str | None = None
    shared: tuple[SharedOption, ...] = ()
    claimed: int = 0
    command: tuple[str, tuple[str, ...]] = ("", ())

    @classmethod
    def of_module(cls, module: str) -> Target:
        """Find `-m package.module` as Python does, in the working directory first."""
        place = Path(*module.split("."))
        for folder in (Path.cwd(), *map(Path, sys.path)):
            for file in (folder / place.with_suffix(".py"), folder / place / "__main__.py"):
                if file.is_file():
                    return cls(str(file), module=module)
        raise FileMissing(module, what="module")

    @property
    def is_model(self) -> bool:
        return is_model(self.name)

    def run(self, now: Session) -> ScriptExit:
        """Run it to its end. An unread argument is a usage error."""
        with given(self._program, self.arguments, self.shared) as log:
            outcome = self._run(now)
        unread = log.unread(self.arguments[: self.claimed])
        if unread and not outcome.says_why:
            self._say_unread(unread, log, outcome, now)
        return outcome

    def _run(self, now: Session) -> ScriptExit:
        if self.is_model:
            from tilelet.scripts.shipped import run_model

            return run_model(self.name, now)
        from tilelet.scripts.script import Script

        return Script(self.name, self.module, self.text).run(now)

    @property
    def _program(self) -> str:
        return str(Path(self.name).absolute()) if self.module else self.name

    def _say_unread(
        self, unread: Sequence[str], log: ArgumentLog, outcome: ScriptExit, now: Session
    ) -> None:
        command, known = self.command
        word = next((word for word in unread if word.startswith("-")), unread[0])
        option = word.partition("=")[0]
        parses = log.left_over is not None
        does = f"`{self.name}` " + ("does not know it" if parses else "reads no arguments")
        lacks = f"option `{option}`" if word.startswith("-") else f"use for `{word}`"
        message = f"`{command}` has no {lacks}, and {does}"
        close = near(option, [name for name in known if name.startswith("--")])
        if parses and outcome.code != WRONG_USAGE:
            # The script leaves arguments over on purpose, by `parse_known_args`.
            now.say_once(f"note: {'; '.join([message, *did_you_mean(close)])}")
            return
        hand_over = f"write `--` before it to give it to `{self.name}` all the same"
        raise BadFlag(message, [*did_you_mean(close), *([] if parses else [hand_over])])

    def argument_of(self, *names: str) -> str | None:
        """Return the value of an option among the arguments: the next one, or after `=`."""
        for option, value in zip(self.arguments, [*self.arguments[1:], ""]):
            name, equals, joined = option.partition("=")
            if name in names:
                return joined if equals else value
        return None

    @property
    def words(self) -> list[str]:
        """The target as typed after a command."""
        words = list(self.arguments)
        if self.claimed < len(words):
            words.insert(self.claimed, "--")
        for option in reversed(self.shared):
            words[option.at : option.at] = option.words
        return [*(["-m", self.module] if self.module else [self.name]), *words]
