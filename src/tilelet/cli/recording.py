"""Running a script, or a program that ships with Tilelet, only to record its tasks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilelet.cli import exit_codes
from tilelet.cli.options import DeviceOptions
from tilelet.cli.run import print_problems, stand_ins
from tilelet.cli.target import Target
from tilelet.compat.aliases import is_alias
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
    imports_pypto  whether it is a script for PyPTO
    """

    runs: list[Recorded] = field(default_factory=list["Recorded"])
    code: int = 0
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    imports_pypto: bool = False


def record(
    target: Target,
    options: DeviceOptions,
    platform: str | None = None,
    *,
    tasks: bool = True,
) -> Recording:
    """Run `target`, without executing kernels unless asked to; all it runs is recorded.

    Without `tasks`, the control programs do not run either: their kernels are all that is wanted.
    """
    from tilelet.device.run import Recorded
    from tilelet.interp.replay import find_control_traces

    found = Recording()

    def keep(name: str, program: Any, stream: Any, given: Mapping[str, Any]) -> None:
        if tasks:
            find_control_traces(program, stream, given)
        found.runs.append(Recorded(target.name if target.is_model else name, program, stream))

    now = Session(
        count_only=not options.execute,
        build_dir=options.build_dir,
        seed=options.seed,
        platform=platform if platform in PLATFORMS else None,
        quiet_diagnostics=options.format != "text",
        recorder=keep,
        records_tasks=tasks,
    )
    # Stdout is for the report alone.
    apart = contextlib.redirect_stdout(sys.stderr)
    with session.active(now), apart, stand_ins(options, now):
        outcome = target.run(now)
        now.diagnostics += outcome.errors
        found.imports_pypto = is_alias("pypto")
        if options.format == "text":
            print_problems(outcome, now, options, target)
    found.code = exit_codes.of_script(outcome, now)
    found.diagnostics = now.diagnostics
    return found
