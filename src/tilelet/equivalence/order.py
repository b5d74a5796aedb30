"""Whether the tasks of a program are ordered for all inputs, so that its results are those of
program order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.checks import race
from tilelet.checks.findings import Status
from tilelet.checks.parallel_loops import parallel_loops
from tilelet.equivalence.data_control import data_control

if TYPE_CHECKING:
    from tilelet.checks.verdict import CheckResult, Subject


def is_ordered(subject: Subject, result: CheckResult | None = None) -> bool:
    """Return whether no two tasks race for any input; `result` is that of the race check.

    One run is enough if neither the submitted tasks nor their accesses depend on data, and no task
    has a loop of `pl.parallel`, whose iterations a run does not compare.
    """
    found = result or race.check(subject)
    if found.status is Status.PROVED:
        return True
    is_fixed = subject.tasks.complete and not data_control(subject.program)
    has_loops = next(parallel_loops(subject.program), None) is not None
    return is_fixed and not has_loops and found.status is Status.THIS_RUN
