"""`tilelet.check`: check the programs that a function runs.

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

from tilelet.runtime import session

if TYPE_CHECKING:
    from tilelet.checks.verdict import Verdict
    from tilelet.runtime.handlers.record import RecordedRun


def check(
    program: object,
    /,
    *args: object,
    platform: str | Path = "a2a3",
    period: str | None = None,
    only: Iterable[str] = (),
    **named: object,
) -> Verdict:
    """Check a program: a `@pl.jit` function, a program, a compiled one, or a function that runs
    some. `args` are its arguments; programs with known shapes need none.

    Kernels are executed only if a check needs it, on copies of the arguments.

    platform  a machine's name or file; `period` is the month of its runtime
    only      names of the checks to make; by default all that are not opt-in
    """
    from tilelet.checks.registry import chosen_checks
    from tilelet.checks.verdict import MAX_TASKS, Subject, Verdict, verdict_on
    from tilelet.device.machine.description import load_machine

    checks, machine = chosen_checks(only), load_machine(platform)
    machine.period(period)
    verdicts = [
        verdict_on(Subject(run, run.arguments, machine, period, run.comparison), checks)
        for run in recorded_runs(program, args, named, MAX_TASKS)
    ]
    parts = tuple(part for verdict in verdicts for part in verdict.parts)
    name = verdicts[0].name if verdicts else getattr(program, "__name__", "program")
    return Verdict(name, machine.name, parts)


def recorded_runs(
    program: Any,
    args: tuple[object, ...],
    named: Mapping[str, object],
    most_tasks: int | None = None,
) -> list[RecordedRun]:
    """Call a program under `Record`; return its runs, with at most `most_tasks` tasks each."""
    from tilelet.frontend.jit import JitFunction
    from tilelet.ir.core import Program
    from tilelet.runtime.handlers.record import Record
    from tilelet.runtime.programs.compiler import compile_program

    handler = Record(most_tasks)
    now = replace(session.current(), handler=handler, task_tables=[])
    with session.active(now):
        whole = isinstance(program, Program)
        if whole or (isinstance(program, JitFunction) and not args and not named):
            compiled = compile_program(program, now=now)
            if args:
                compiled(*args)
            else:
                handler.without_arguments(compiled, now)
        else:
            function: Callable[..., object] = program
            function(*args, **named)
    return handler.runs
