"""Running a script, or a program that ships with Tilelet, only to record its tasks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tilelet.diag.core import Diagnostic
from tilelet.runtime import session
from tilelet.runtime.config import PLATFORMS
from tilelet.runtime.session import OnRanks, Session
from tilelet.scripts import exit_codes
from tilelet.scripts.script import ScriptExit
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.checks.comparison import Comparison
    from tilelet.device.run import Recorded

Look: TypeAlias = "Callable[[Recorded, Mapping[str, Any], Comparison | None], None]"
"""Sees a recorded run, its arguments, and how the script compares its outputs."""


@dataclass(frozen=True)
class RecordingOptions:
    """How a script runs when only its tasks are wanted.

    platform  what the script is told to run on
    execute   run the kernels, too
    quiet     diagnostics are kept, not printed
    pypto     what `import pypto` means: "tilelet" or "installed"
    golden    what `import golden` means: "tilelet" or "script"
    most_tasks  of one run that are recorded, unless they are executed; None: all
    """

    platform: str | None = None
    execute: bool = False
    seed: int = 0
    build_dir: Path | None = None
    quiet: bool = False
    pypto: str = "tilelet"
    golden: str = "tilelet"
    most_tasks: int | None = None


@dataclass
class Recording:
    """What a target gave: its runs, or why there are none.

    outcome      how the script ended
    session      what it did on the way
    """

    outcome: ScriptExit
    session: Session
    runs: list[Recorded] = field(default_factory=list["Recorded"])
    code: int = 0

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What was said on the way, for machine formats."""
        return self.session.diagnostics


def record(
    target: Target,
    options: RecordingOptions,
    look: Look | None = None,
    on_ranks: OnRanks | None = None,
) -> Recording:
    """Run `target`, without executing kernels unless asked to; all it runs is recorded.

    `look` sees each run at once, with its arguments: the script may change them afterwards.
    `on_ranks` gets programs of several ranks instead.
    """
    from tilelet.device.run import Recorded
    from tilelet.interp.replay import find_control_traces

    runs: list[Recorded] = []

    def keep(
        name: str, program: Any, stream: Any, given: Mapping[str, Any], comparison: Any
    ) -> None:
        find_control_traces(program, stream, given)
        run = Recorded(target.name if target.is_model else name, program, stream)
        runs.append(run)
        if look is not None:
            look(run, given, comparison)

    now = Session(
        count_only=not options.execute,
        build_dir=options.build_dir,
        seed=options.seed,
        platform=options.platform if options.platform in PLATFORMS else None,
        quiet_diagnostics=options.quiet,
        recorder=keep,
        most_tasks=options.most_tasks,
        on_ranks=on_ranks,
    )
    # Stdout is for the report alone.
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options.pypto, options.golden, now):
        outcome = target.run(now)
    now.diagnostics += outcome.errors
    return Recording(outcome, now, runs, exit_codes.of_script(outcome, now))
