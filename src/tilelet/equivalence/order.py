"""Whether the tasks of a program are ordered for all inputs, so that its results are those of
program order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.checks import race
from tilelet.checks.findings import Status
from tilelet.checks.parallel_loops import parallel_loops
from tilelet.equivalence.data_control import data_control
from tilelet.equivalence.proof import has_floats
from tilelet.ir.core import Program, walk
from tilelet.syntax.enums import AtomicType

if TYPE_CHECKING:
    from tilelet.checks.verdict import CheckResult, Subject


def is_ordered(
    subject: Subject, result: CheckResult | None = None, *, rounding: bool = False
) -> bool:
    """Return whether no two tasks race for any input; `result` is that of the race check.

    One run is enough if neither the submitted tasks nor their accesses depend on data, and no task
    has a loop of `pl.parallel`, whose iterations a run does not compare. Atomic additions are no
    race, but their order decides how sums of floating-point numbers round.
    """
    if not rounding and _adds_floats_atomically(subject.program):
        return False
    found = result or race.check(subject, proves=True)
    if found.status is Status.PROVED:
        return True
    is_fixed = subject.tasks.complete and not data_control(subject.program)
    has_loops = next(parallel_loops(subject.program), None) is not None
    return is_fixed and not has_loops and found.status is Status.THIS_RUN


def _adds_floats_atomically(program: Program) -> bool:
    return any(
        op.args.get("atomic") is AtomicType.Add and any(map(has_floats, op.operands))
        for function in program.functions.values()
        for op in walk(function.body)
    )
