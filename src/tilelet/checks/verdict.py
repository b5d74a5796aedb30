"""The verdict on a recorded run: which checks ran, and the answer of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tilelet.analysis.patience import OutOfSteps
from tilelet.checks.comparison import GoldenComparison
from tilelet.checks.findings import Finding, Status, merge_causes
from tilelet.checks.reach import deciding_inputs, free_sizes
from tilelet.checks.registry import Check
from tilelet.dataclasses import dataclass, field, replace
from tilelet.device.machine.description import Machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.core import Consequence, Diagnostic, UserError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import Table
from tilelet.diag.text import plural, quoted_names
from tilelet.dtypes import Argument, Arguments
from tilelet.ir.core import Program, Value
from tilelet.ir.types import TensorType
from tilelet.tasks.stream import TaskStream

if TYPE_CHECKING:
    from tilelet.checks.init import Stopped, Watched
    from tilelet.checks.trace import Tracer
    from tilelet.device.schedule.conflicts import Accesses

MAX_TABLE_BYTES = 1 << 20
"""Size in bytes up to which an input may hold lengths or tables; larger ones are data."""


MAX_TASKS = 1 << 19
"""Limit on tasks per run: recording more takes minutes."""


def nbytes_of(param: Value) -> int | None:
    """Return the size of a parameter in bytes, or None if its shape is unknown."""
    if not isinstance(param.type, TensorType):
        return 0
    shape = [n for n in param.type.shape if isinstance(n, int)]
    if len(shape) < len(param.type.shape):
        return None
    return math.prod(shape) * param.type.dtype.itemsize


@dataclass
class Shared:
    """Results that checks of one run use in common, on all machines; None: not made yet.

    tracked  the run whose every element was followed
    tracer   the accesses of single tasks
    accesses  those of all tasks
    """

    tracked: Watched | Stopped | None = None
    tracer: Tracer | None = None
    accesses: Accesses | None = None


@dataclass(frozen=True)
class Subject:
    """A recorded run to be checked.

    arguments   arguments by parameter name, as before the run
    machine     the modelled device, with its runtime period (None for the machine's own)
    brief       report only findings, without remarks and witnesses, which need runs
    shared      results that do not depend on the machine
    budget      work for open-ended checks, in nominal seconds; `seed` selects what they try
    """

    run: Recorded
    arguments: Arguments
    machine: Machine
    period: str | None = None
    comparison: GoldenComparison | None = None
    budget: float = 60.0
    seed: int = 0
    brief: bool = False
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)

    @property
    def program(self) -> Program:
        return self.run.program

    @property
    def tasks(self) -> TaskStream:
        return self.run.tasks

    @property
    def tasks_text(self) -> str:
        """Say how many tasks were checked: all, or the first ones."""
        count = plural(len(self.tasks), "task")
        return count if self.tasks.complete else f"the first {count} of more"

    @property
    def too_many(self) -> str:
        """Say why checks that need the whole run were skipped."""
        return f"more than {len(self.tasks)} tasks: choose smaller sizes"

    @cached_property
    def small_arguments(self) -> dict[str, Argument]:
        """Return the arguments that may affect the control program: scalars and small tensors."""
        return {
            p.name: self.arguments[p.name]
            for p in self.program.main.params
            if p.name in self.arguments and (nbytes_of(p) or 0) <= MAX_TABLE_BYTES
        }

    @cached_property
    def free_sizes(self) -> list[str]:
        return free_sizes(self.program)

    @cached_property
    def deciding_inputs(self) -> list[str]:
        return deciding_inputs(self.program)

    @cached_property
    def device_run(self) -> DeviceRun:
        return DeviceRun(self.run, self.machine, self.period)


@dataclass(frozen=True)
class CheckResult:
    """The answer of one check.

    summary  one line: what was checked, or why it was not
    remarks  observations that are not findings
    for_all  the sizes for which it was proved, by name
    not_looked_at  inputs of which it covers only the values of this run; empty if there are none
    """

    check: str
    status: Status
    summary: str
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    for_all: tuple[str, ...] = ()
    not_looked_at: str = ""

    @property
    def text(self) -> str:
        """The summary, and the sizes and inputs that it covers."""
        if self.for_all:
            return f"{self.summary}; for all {quoted_names(self.for_all, 'and')}"
        return f"{self.summary}; not {self.not_looked_at}" if self.not_looked_at else self.summary

    def to_data(self) -> JsonObject:
        return {
            "check": self.check,
            "status": self.status.value,
            "summary": self.text,
            "remarks": list(self.remarks),
            "findings": [finding.to_data() for finding in self.findings],
        }


def part(
    check: str,
    findings: Sequence[Finding],
    otherwise: Status,
    summary: str,
    remarks: Sequence[str] = (),
) -> CheckResult:
    """Build the answer of a check that ran: one finding per cause; `otherwise` if there is none."""
    status = Status.FOUND if findings else otherwise
    return CheckResult(check, status, summary, tuple(merge_causes(findings)), tuple(remarks))


@dataclass(frozen=True)
class Verdict:
    """The answers of all checks for one run on one machine."""

    name: str
    machine: str
    parts: tuple[CheckResult, ...] = field(default=())

    @property
    def findings(self) -> list[Finding]:
        return [finding for part in self.parts for finding in part.findings]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [finding.diagnostic for finding in self.findings]

    @property
    def ok(self) -> bool:
        """Whether the program runs on the machine with the results of this run."""
        return all(f.consequence is Consequence.SLOW for f in self.findings)

    @property
    def count_text(self) -> str:
        """`3 findings (would not run: 1, costs time: 2)`."""
        if not self.findings:
            return "no findings"
        counts = Counter(f.consequence.value for f in self.findings if f.consequence)
        kinds = [f"{c.value}: {counts[c.value]}" for c in Consequence if counts[c.value]]
        return plural(len(self.findings), "finding") + (f" ({', '.join(kinds)})" if kinds else "")

    @property
    def unchecked(self) -> dict[str, str]:
        """Checks that were not run, not finished or hold for this run only, with the reason."""
        unmade = {p.check: p.summary for p in self.parts if p.status is Status.NOT_CHECKED}
        return unmade | {p.check: p.not_looked_at for p in self.parts if p.not_looked_at}

    def lines(self) -> list[str]:
        """Format for people: a line for the whole, then one per check."""
        found = self.count_text
        width = max((len(p.check) for p in self.parts), default=0)
        reach = max((len(p.status.value) for p in self.parts), default=0)
        lines = [f"{self.name} on {self.machine}: {found}"]
        for p in self.parts:
            lines.append(f"  {p.check:<{width}}  {p.status.value:<{reach}}  {p.text}")
            lines += [f"  {'':<{width}}  {'':<{reach}}  {remark}" for remark in p.remarks]
        return lines

    def to_data(self) -> JsonObject:
        return {
            "name": self.name,
            "machine": self.machine,
            "parts": [part.to_data() for part in self.parts],
        }

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.findings), "\n".join(self.lines())])

    def _repr_html_(self) -> str:
        """Render for a notebook: each check's answer, then the findings in full."""
        table = Table(self.lines()[0], ("check", "answer", "what was checked"), left=3)
        table.rows += [(p.check, p.status.value, p.text) for p in self.parts]
        return parts_html([table, *map(str, self.findings)])


MAX_NAMED = 6
"""Inputs that an answer names; it counts the others."""

TOO_LONG = "takes long: run it with `tilelet check`"


def verdict_on(subject: Subject, checks: Iterable[Check]) -> Verdict:
    """Run the checks in order; one that fails does not stop the others."""
    parts = tuple(_run_check(check, subject) for check in checks)
    return Verdict(subject.run.name, subject.machine.name, parts)


def not_made(reasons: Mapping[str, str]) -> list[CheckResult]:
    """Return a result for each check that was not run, given the reasons."""
    return [CheckResult(check, Status.NOT_CHECKED, why) for check, why in reasons.items()]


def _with_reach(result: CheckResult, subject: Subject) -> CheckResult:
    """Name the sizes for which an answer is proved, or the inputs that it does not cover."""
    if result.status is Status.PROVED:
        return replace(result, for_all=tuple(subject.free_sizes))
    if result.status is not Status.THIS_RUN:
        return result
    names = [*subject.free_sizes, *subject.deciding_inputs]
    if not names:
        return result
    more = len(names) - MAX_NAMED
    shown = (
        quoted_names(names)
        if more < 2
        else f"{', '.join(f'`{n}`' for n in names[:MAX_NAMED])} or {more} more"
    )
    return replace(result, not_looked_at=f"for other values of {shown}")


def _run_check(check: Check, subject: Subject) -> CheckResult:
    try:
        return _with_reach(check.run(subject), subject)
    except UserError as error:
        return CheckResult(check.name, Status.NOT_CHECKED, error.diagnostic.message)
    except MemoryError:
        return CheckResult(
            check.name, Status.NOT_CHECKED, ("this machine does not have enough memory for it")
        )
    except OutOfSteps:
        return CheckResult(check.name, Status.NOT_CHECKED, TOO_LONG)
