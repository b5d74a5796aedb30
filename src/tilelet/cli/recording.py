"""Running a script, or a program that ships with Tilelet, only to record its tasks."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet.cli.models import is_model, run_model
from tilelet.cli.run import print_problems, stand_ins
from tilelet.cli.script import Script
from tilelet.diag.core import Diagnostic
from tilelet.runtime import session
from tilelet.runtime.config import PLATFORMS
from tilelet.runtime.session import Session

if TYPE_CHECKING:
    from tilelet.device.run import Recorded


@dataclass
class Recording:
    """What a target gave: its runs, or why there are none.

    code         0, or the exit code of a target that could not be run
    diagnostics  what was said on the way, for machine formats
    """

    runs: list[Recorded] = field(default_factory=list)
    code: int = 0
    diagnostics: list[Diagnostic] = field(default_factory=list)


def record(
    target: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
    platform: str | None = None,
    *,
    tasks: bool = True,
) -> Recording:
    """Run `target`, without executing kernels unless asked to; all it runs is recorded.

    Without `tasks`, the control programs do not run either: their kernels are all that is wanted.
    """
    from tilelet.device.run import Recorded
    from tilelet.interp.replay import find_outcomes

    found = Recording()
    model = is_model(target)

    def keep(name: str, program: Any, stream: Any, given: Mapping[str, Any]) -> None:
        if tasks:
            find_outcomes(program, stream, given)
        found.runs.append(Recorded(target if model else name, program, stream))

    now = Session(
        count_only=not getattr(options, "execute", False),
        build_dir=options.build_dir,
        seed=options.seed,
        platform=platform if platform in PLATFORMS else None,
        quiet_diagnostics=options.format != "text",
        recorder=keep,
        records_tasks=tasks,
    )
    options.script, options.arguments = target, list(arguments)
    # Stdout is for the report alone.
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options, now):
        outcome = run_model(target, arguments) if model else Script(target, arguments).run(now)
        now.diagnostics += outcome.errors
        if options.format == "text":
            print_problems(outcome, now, options)
    found.code = outcome.code if outcome.code not in (0, 1) else now.exit_code or outcome.code
    found.diagnostics = now.diagnostics
    return found


def _text_of(target: str) -> str:
    if is_model(target):
        return "--platform"
    try:
        return Path(target).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class OptionsAfter:
    """Options of a Tilelet command that stand after the script, as in `profile k.py -p a2a3`.

    They are taken out of the script's own arguments. `-p` also stays there if the script knows it:
    the script may choose shapes by it.
    """

    def __init__(self, target: str, arguments: Iterable[str]) -> None:
        self.rest = list(arguments)
        self._text = _text_of(target)

    def take(self, *names: str) -> str | None:
        """The value of an option, removed together with it; None if it is not there."""
        for i, argument in enumerate(self.rest):
            name, equals, joined = argument.partition("=")
            if name not in names or (not equals and i + 1 == len(self.rest)):
                continue
            value = joined if equals else self.rest[i + 1]
            if not self._belongs_to_script(names, value):
                del self.rest[i : i + (1 if equals else 2)]
            return value
        return None

    def take_flag(self, name: str) -> bool:
        """Whether an option without a value is there; it is removed."""
        if name not in self.rest or name in self._text:
            return False
        self.rest.remove(name)
        return True

    def _belongs_to_script(self, names: Sequence[str], value: str) -> bool:
        known = any(name in self._text for name in names if name.startswith("--"))
        return known and ("--platform" not in names or value in PLATFORMS)
