"""Running a script, or a program that ships with Tilelet, only to record its tasks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet.diag.core import Diagnostic
from tilelet.runtime import session
from tilelet.runtime.config import PLATFORMS
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.script import ScriptExit
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.device.run import Recorded


@dataclass(frozen=True)
class RecordingOptions:
    """How a script runs when only its tasks are wanted.

    platform  what the script is told to run on
    execute   run the kernels, too
    tasks     without it, the control programs do not run either: their kernels are all there is
    quiet     diagnostics are kept, not printed
    pypto     what `import pypto` means: "tilelet" or "installed"
    golden    what `import golden` means: "tilelet" or "script"
    """

    platform: str | None = None
    execute: bool = False
    tasks: bool = True
    seed: int = 0
    build_dir: Path | None = None
    quiet: bool = False
    pypto: str = "tilelet"
    golden: str = "tilelet"


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


def record(target: Target, options: RecordingOptions) -> Recording:
    """Run `target`, without executing kernels unless asked to; all it runs is recorded."""
    from tilelet.device.run import Recorded
    from tilelet.interp.replay import find_control_traces

    runs: list[Recorded] = []

    def keep(name: str, program: Any, stream: Any, given: Mapping[str, Any]) -> None:
        if options.tasks:
            find_control_traces(program, stream, given)
        runs.append(Recorded(target.name if target.is_model else name, program, stream))

    now = Session(
        count_only=not options.execute,
        build_dir=options.build_dir,
        seed=options.seed,
        platform=options.platform if options.platform in PLATFORMS else None,
        quiet_diagnostics=options.quiet,
        recorder=keep,
        records_tasks=options.tasks,
    )
    # Stdout is for the report alone.
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options.pypto, options.golden, now):
        outcome = target.run(now)
    now.diagnostics += outcome.errors
    return Recording(outcome, now, runs, exit_codes.of_script(outcome, now))
