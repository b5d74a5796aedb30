"""`tilelet.check`, and the checks that every `tilelet run` makes.

v = tilelet.check(softmax, x, out, platform="a2a3")
assert v.ok, v                     # the findings in full
for finding in v.findings:
    print(finding.code, finding.places, finding.region, finding.witness)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet.analysis.patience import within
from tilelet.diag.core import UserError
from tilelet.diag.text import plural
from tilelet.runtime import session
from tilelet.runtime.inspection import clean_verdicts
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.checks.comparison import Comparison
    from tilelet.checks.verdict import Verdict
    from tilelet.device.run import Recorded
    from tilelet.ir.core import Program

MAX_TASKS = 2000
"""Checks that nobody asked for record at most this many tasks, which takes about 0.2 s."""

MAX_STEPS = 2_000_000
"""Scalar ops that such checks follow, which takes a few seconds."""


def check(
    program: Any,
    /,
    *args: Any,
    platform: str | Path = "a2a3",
    period: str | None = None,
    only: Iterable[str] = (),
    **named: Any,
) -> Verdict:
    """Check a program: a `@pl.jit` function, a program, a compiled one, or a function that runs
    some. `args` are what it is called with; programs whose shapes are all known need none.

    Kernels are executed only where a check needs it, and on copies: the arguments stay as they are.

    platform  a machine's name, or a file of your own; `period` the month of its runtime
    only      names of the checks to make; all that are not opt-in, if none are named
    """
    from tilelet.checks.registry import chosen
    from tilelet.checks.verdict import MOST_TASKS, Subject, Verdict, verdict_on
    from tilelet.device.machine.description import load_machine

    checks, machine = chosen(only), load_machine(platform)
    machine.period(period)
    verdicts = [
        verdict_on(Subject(run, given, machine, period, comparison), checks)
        for run, given, comparison in recorded_runs(program, args, named, MOST_TASKS)
    ]
    parts = tuple(part for verdict in verdicts for part in verdict.parts)
    name = verdicts[0].name if verdicts else getattr(program, "__name__", "program")
    return Verdict(name, machine.name, parts)


def recorded_runs(
    program: Any,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    most_tasks: int | None = None,
) -> list[tuple[Recorded, Mapping[str, Any], Comparison | None]]:
    """Call a program without executing its kernels: its runs, `most_tasks` of each, their
    arguments, and how the outputs of each are compared.
    """
    from tilelet.device.run import Recorded
    from tilelet.runtime.output.reporting import recorded_tasks

    runs: list[tuple[Recorded, Mapping[str, Any], Comparison | None]] = []

    def look(
        name: str, compiled: Program, tasks: Any, given: Mapping[str, Any], comparison: Any
    ) -> None:
        run = Recorded(name, compiled, recorded_tasks(compiled, tasks, given))
        runs.append((run, given, comparison))

    now = replace(
        session.current(),
        recorder=look,
        task_tables=[],
        count_only=True,
        checks=False,
        most_tasks=most_tasks,
    )
    with session.active(now):
        _called(program, args, named)
    return runs


def _called(program: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    from tilelet.frontend.jit import JitFunction
    from tilelet.ir.core import Program
    from tilelet.runtime.output import reporting
    from tilelet.runtime.programs.compiler import compile_program

    whole = isinstance(program, Program)
    if whole or (isinstance(program, JitFunction) and not args and not named):
        compiled = compile_program(program)
        if args:
            compiled(*args)
        else:
            tasks = compiled.run_tasks({}, execute=False)
            reporting.show_recorded(compiled.name, compiled.program, tasks, {})
    else:
        function: Callable[..., Any] = program
        function(*args, **named)


def check_after_run(
    name: str,
    program: Program,
    arguments: Mapping[str, Any],
    platform: str,
    counts: Mapping[str, int],
    comparison: Comparison | None = None,
) -> str:
    """Make the cheap checks on a program that has run; what the verdict is to say of them.

    They must not stop a run that went well: what cannot be checked is left.
    """
    now = session.current()
    if not now.checks or id(program) in now.checked:
        return ""
    now.checked[id(program)] = program
    # A document for machines has the verdict in full.
    key = None if now.quiet_diagnostics else clean_verdicts.key_of(program, arguments, platform)
    if key is not None and clean_verdicts.has(key):
        return ""

    from tilelet.checks.registry import CHECKS
    from tilelet.checks.verdict import TOO_LONG, Subject, verdict_on
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import Recorded
    from tilelet.interp.interpreter import Interpreter
    from tilelet.tasks.stream import TaskStream

    quick = sum(counts.values()) <= MAX_TASKS
    try:
        machine = load_machine(platform)
        tasks = TaskStream()
        if quick:
            tasks = Interpreter().run(program, dict(arguments), execute=False).tasks
        subject = Subject(
            Recorded(name, program, tasks), arguments, machine, None, comparison, brief=True
        )
        wanted = [c for c in CHECKS.values() if c.cheap and (quick or not c.of_tasks)]
        # Kernels whose loops depend on their numbers are followed round by round.
        with progress(f"checking {name}"), within(MAX_STEPS):
            verdict = verdict_on(subject, wanted)
    except (UserError, MemoryError):
        return ""
    now.verdicts.append(verdict)
    if verdict.ok:
        in_time = all(part.summary != TOO_LONG for part in verdict.parts)
        if key is not None and quick and in_time:
            clean_verdicts.remember(key)
        return ""
    now.report(verdict.diagnostics)
    return f" on this CPU; {plural(len(verdict.findings), 'finding')} for {machine.name}"
