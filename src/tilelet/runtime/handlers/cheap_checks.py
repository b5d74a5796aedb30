"""The checks that every `tilelet run` runs after a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilelet.analysis.patience import within
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.core import UserError
from tilelet.dtypes import Arguments
from tilelet.runtime.handlers import clean_verdicts
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.checks.comparison import GoldenComparison
    from tilelet.checks.verdict import Verdict
    from tilelet.ir.core import Program
    from tilelet.tasks.stream import TaskStream

MAX_TASKS = 2000
"""Limit of recorded tasks for checks that were not requested."""

MAX_STEPS = 2_000_000
"""Limit of scalar ops for such checks."""

DATA_DECIDES = "its tasks decide which tasks follow"
NOT_CHEAP = "left to `tilelet check`"
TOO_MANY = f"more than {MAX_TASKS:,} tasks"


def cheap_verdict(
    name: str,
    program: Program,
    arguments: Arguments,
    platform: str,
    counts: Mapping[str, int],
    comparison: GoldenComparison | None = None,
    remembers: bool = True,
) -> tuple[Verdict | None, dict[str, str]]:
    """Run the cheap checks on a program that has run.

    Also return the checks that were not run or not finished, with the reason. The verdict is None
    if no check was run, or with `remembers`, if the same program had no findings in an earlier run.
    """
    from tilelet.checks.registry import CHECKS

    usual = [c for c in CHECKS.values() if not c.opt_in]
    cheap = [c for c in usual if c.cheap]
    left = {c.name: NOT_CHEAP for c in usual if not c.cheap}
    key = clean_verdicts.key_of(program, arguments, platform) if remembers else None
    known = clean_verdicts.find(key) if key is not None else None
    if known is not None:
        return None, known | left

    from tilelet.checks.findings import Status
    from tilelet.checks.verdict import Subject, not_made, verdict_on
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import Recorded
    from tilelet.tasks.stream import TaskStream

    quick = sum(counts.values()) <= MAX_TASKS
    why, tasks = TOO_MANY, TaskStream()
    try:
        machine = load_machine(platform)
        if quick:
            why, tasks = _recorded_tasks(program, arguments)
    except (UserError, MemoryError) as error:
        why = error.diagnostic.message if isinstance(error, UserError) else "out of memory"
        return None, {c.name: why for c in cheap} | left
    subject = Subject(
        Recorded(name, program, tasks), arguments, machine, None, comparison, brief=True
    )
    wanted = [c for c in cheap if not why or not c.of_tasks]
    # Kernels with data-dependent loops are interpreted iteration by iteration.
    with progress(f"checking {name}"), within(MAX_STEPS):
        verdict = verdict_on(subject, wanted)
    finished = all(part.status is not Status.NOT_CHECKED for part in verdict.parts)
    if key is not None and verdict.ok and not why and finished:
        clean_verdicts.remember(key, verdict.unchecked)
    unmade = {c.name: why for c in cheap if c not in wanted} | left
    verdict = replace(verdict, parts=(*verdict.parts, *not_made(unmade)))
    return verdict, verdict.unchecked


def _recorded_tasks(program: Program, arguments: Arguments) -> tuple[str, TaskStream]:
    """Return why there are no recorded tasks, or "", and the tasks."""
    from tilelet.interp.interpreter import Interpreter
    from tilelet.tasks.stream import TaskStream

    try:
        return "", Interpreter().run(program, dict(arguments), execute=False).tasks
    except DependsOnTaskData:
        return DATA_DECIDES, TaskStream()
