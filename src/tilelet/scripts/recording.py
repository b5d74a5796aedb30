"""Run a script or shipped program to record its tasks."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.core import Diagnostic
from tilelet.runtime import session
from tilelet.runtime.config import PLATFORMS
from tilelet.runtime.handlers.base import Explore
from tilelet.runtime.handlers.record import ExecuteAndRecord, Record, RecordedRun
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.script import ScriptExit
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target


@dataclass(frozen=True)
class RecordingOptions:
    """Options of recording a script.

    platform  the platform passed to the script
    execute   run the kernels, too
    quiet     diagnostics are kept, not printed
    pypto     what `import pypto` means: "tilelet" or "installed"
    golden    what `import golden` means: "tilelet" or "script"
    most_tasks  maximum number of recorded tasks per run, unless executed; None: all
    keep_arguments  copy the arguments of calls, for checks
    """

    platform: str | None = None
    execute: bool = False
    seed: int = 0
    build_dir: Path | None = None
    quiet: bool = False
    pypto: str = "tilelet"
    golden: str = "tilelet"
    most_tasks: int | None = None
    keep_arguments: bool = False


@dataclass
class Recording:
    """The runs of a target, or why there are none.

    outcome      how the script ended
    session      the session it ran in
    """

    outcome: ScriptExit
    session: Session
    runs: list[RecordedRun] = field(default_factory=list[RecordedRun])
    code: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether the script chose its exit code, and no result or message explains it."""
        return not self.outcome.says_why and all(r.passed for r in self.session.results)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Collected diagnostics, for machine formats."""
        return self.session.diagnostics


def record(target: Target, options: RecordingOptions, explore: Explore | None = None) -> Recording:
    """Run `target` and return its runs; kernels are executed only on request.

    `explore` takes programs of several ranks, which are refused without it.
    """
    keep = options.keep_arguments
    handler = (
        ExecuteAndRecord(keep_arguments=keep, explore=explore)
        if options.execute
        else Record(options.most_tasks, keep, explore)
    )
    now = Session(
        handler,
        build_dir=options.build_dir,
        seed=options.seed,
        platform=options.platform if options.platform in PLATFORMS else None,
        quiet_diagnostics=options.quiet,
    )
    # stdout is reserved for the report
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options.pypto, options.golden, now):
        outcome = target.run(now)
    now.diagnostics += outcome.errors
    runs = handler.runs
    if target.is_model:
        runs = [replace(run, name=target.name) for run in runs]
    return Recording(outcome, now, runs, exit_codes.of_script(outcome, now))
