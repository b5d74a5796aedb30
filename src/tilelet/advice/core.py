"""Advice, rules, and the subject that rules inspect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath

from tilelet.advice.source import Source
from tilelet.dataclasses import dataclass, field
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.device.run import DeviceRun
from tilelet.diag.core import Diagnostic, Loc, UserError
from tilelet.diag.editing import Edit, OverlapError
from tilelet.diag.json_types import JsonObject
from tilelet.scripts.answers import costs_data


@dataclass(frozen=True)
class Costs:
    """Modelled costs of a program."""

    us: float
    tasks: int
    gm_bytes: int
    interval: tuple[float, float] | None = None  # 90 % of boards; None if unknown
    pair: Mapping[str, float] = field(default_factory=dict[str, float])  # see `Profile.pair`

    def to_data(self) -> JsonObject:
        return costs_data(self.us, self.interval, self.tasks, self.gm_bytes)


def costs_of(profiles: Sequence[Profile]) -> Costs:
    """Sum the costs of all programs of a script."""
    bounds = [p.interval for p in profiles]
    interval = None
    if profiles and all(len(b) == 2 for b in bounds):
        interval = sum(b[0] for b in bounds), sum(b[1] for b in bounds)
    return Costs(
        sum(p.total_us for p in profiles),
        sum(p.tasks for p in profiles),
        sum(k.moved for p in profiles for k in p.kernels),
        interval,
        profiles[0].pair if profiles else {},
    )


@dataclass(frozen=True)
class Advice:
    """One suggested change.

    problem   the message
    us, tasks, gm_bytes  present costs of the kernels concerned
    share     their share of the program's time, tasks or bytes, whichever is largest
    text      the whole script after the change; None if no rewriting is known
    rounding  whether results may differ by rounding, because sums are reordered
    """

    problem: UserError
    us: float = 0.0
    tasks: int = 0
    gm_bytes: int = 0
    share: float = 0.0
    text: str | None = None
    rounding: bool = False

    @property
    def diagnostic(self) -> Diagnostic:
        return self.problem.diagnostic

    @property
    def loc(self) -> Loc | None:
        return self.diagnostic.loc


@dataclass(frozen=True)
class Subject:
    """A script and its runs on a machine.

    parts  source files of a script that was exported
    """

    source: Source
    runs: Sequence[DeviceRun]
    parts: Sequence[Source] = ()

    @cached_property
    def profiles(self) -> list[Profile]:
        return [run.summary for run in self.runs]

    @cached_property
    def costs(self) -> Costs:
        return costs_of(self.profiles)

    @cached_property
    def core_us(self) -> float:
        """Total kernel time over all cores."""
        return sum(kernel.exec_us for profile in self.profiles for kernel in profile.kernels)

    @property
    def orders_writers(self) -> bool:
        """Whether the runtime orders tasks that write different windows of one tensor."""
        return any(r.machine.period(r.period).rule != "kernel" for r in self.runs)

    @cached_property
    def newest_us(self) -> float:
        """Modelled time under the newest runtime of the machine."""
        newest = [DeviceRun(r.run, r.machine, max(r.machine.runtime)) for r in self.runs]
        return sum(run.summary.total_us for run in newest)

    def kernels_in(self, first: int, last: int) -> list[KernelRow]:
        """Return kernels whose scopes begin in these lines of the script."""
        name = PurePath(self.source.path).name
        found: list[KernelRow] = []
        for profile in self.profiles:
            for kernel in profile.kernels:
                file, _, line = kernel.where.rpartition(":")
                if PurePath(file).name == name and line.isdecimal() and first <= int(line) <= last:
                    found.append(kernel)
        return found

    def _edited(self, edits: Sequence[Edit]) -> str | None:
        try:
            return self.source.edited(edits)
        except OverlapError:
            return None

    def advice(
        self,
        problem: UserError,
        kernels: Iterable[KernelRow],
        edits: Sequence[Edit] | None = None,
        *,
        rounding: bool = False,
    ) -> Advice:
        """Make advice about some kernels, with its rewriting, if any."""
        about = list(kernels)
        us, tasks = sum(k.path_us for k in about), sum(k.tasks for k in about)
        moved, costs = sum(k.moved for k in about), self.costs
        shares = us / (costs.us or 1.0), tasks / (costs.tasks or 1), moved / (costs.gm_bytes or 1)
        return Advice(
            problem,
            us,
            tasks,
            moved,
            max(shares),
            self._edited(edits) if edits is not None else None,
            rounding,
        )


@dataclass(frozen=True)
class Rule:
    """A search for one fault; evidence, legality and examples are in the Markdown file beside it.

    problem        the message
    rewrites       it can change the text, under the condition `Legal if`
    needs_proof    it is a fault only if the rewriting is correct; otherwise it is not reported
    is_about_text  it is about comments and names: fixing it saves no time
    is_fault       results may be wrong: it is reported without a rewriting, too
    ends_chain     its rewriting enables no other
    needs_newer    it costs nothing under early runtimes: savings are those under the newest
    """

    name: str
    problem: type[UserError]
    find: Callable[[Subject], Iterable[Advice]]
    rewrites: bool = False
    needs_proof: bool = False
    is_about_text: bool = False
    is_fault: bool = False
    ends_chain: bool = False
    needs_newer: bool = False
