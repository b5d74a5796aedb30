"""One recorded run on one machine: profile, findings, memory, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.machine.description import Machine, Runtime
from tilelet.device.memory.limits import (
    overflow_findings,
    serialized_stages,
    shape_findings,
    without_repeats,
)
from tilelet.device.memory.plan import MemoryPlan, plan_memory
from tilelet.device.memory.report import (
    budget_table,
    memory_json,
    memory_map,
    memory_report,
    memory_table,
)
from tilelet.device.report.hints import row_hints
from tilelet.device.report.profile import Profile, profile_of
from tilelet.device.report.sensitivity import MAX_SHOWN, sensitivities
from tilelet.device.report.text import report_parts, report_text
from tilelet.device.report.trace import TimelineTrace
from tilelet.device.report.traffic import Traffic, traffic
from tilelet.device.schedule.pricing import CostCache
from tilelet.device.schedule.simulate import Timeline, simulate
from tilelet.diag.core import UserError
from tilelet.diag.tables import Table
from tilelet.diag.text import plural
from tilelet.ir.core import Program
from tilelet.tasks.stream import TaskStream

MIN_LOSS = 0.005
"""Share of the total below which shared buffers are not mentioned."""


@dataclass(frozen=True)
class Recorded:
    """A run to be modelled: the program after all passes, and its tasks."""

    name: str
    program: Program
    tasks: TaskStream


class DeviceRun:
    """A recorded run on a machine; everything is computed on demand."""

    def __init__(
        self, run: Recorded, machine: Machine, period: str | None = None, *, ideal: bool = False
    ) -> None:
        """`ideal`: stages of pipelined loops overlap even where their buffers do not fit."""
        self.run = run
        self.machine = machine
        self.period = period
        self.ideal = ideal

    @property
    def _runtime(self) -> Runtime:
        return self.machine.period(self.period)

    @cached_property
    def cost_cache(self) -> CostCache:
        return CostCache(self.machine, self._runtime)

    @cached_property
    def timeline(self) -> Timeline:
        run, cache = self.run, self.cost_cache
        if self.ideal:
            cache = CostCache(self.machine, self._runtime, ideal=True)
        return simulate(run.tasks, run.program, self.machine, period=self.period, cache=cache)

    @cached_property
    def traffic(self) -> Traffic:
        return traffic(self.timeline.stream)

    @cached_property
    def kernels(self) -> list[DeviceKernel]:
        """Device views of all kernels, including those that no task ran."""
        return [self.cost_cache.kernel(self.run.program, f.name) for f in self.run.program.kernels]

    @cached_property
    def plans(self) -> list[MemoryPlan]:
        return [plan_memory(kernel, self.machine) for kernel in self.kernels]

    @cached_property
    def findings(self) -> list[UserError]:
        """Errors: what the machine would reject."""
        found: list[UserError] = []
        for kernel, plan in zip(self.kernels, self.plans):
            found += shape_findings(kernel.function, self.machine)
            found += overflow_findings(kernel, self.machine, plan)
        return without_repeats(found)

    @cached_property
    def cautions(self) -> list[UserError]:
        """Cautions: what the machine runs, but slower than the program asks for."""
        every = [c for kernel in self.kernels for c in serialized_stages(kernel, self.machine)]
        return without_repeats(every)

    @cached_property
    def summary(self) -> Profile:
        """The profile without its most expensive parts: sensitivities and compulsory bytes."""
        return self._profile(traffic(self.timeline.stream, compulsory=False))

    @cached_property
    def figures(self) -> Profile:
        """The profile without sensitivities."""
        return self._profile(self.traffic)

    @cached_property
    def profile(self) -> Profile:
        most = list(sensitivities(self.timeline).items())[:MAX_SHOWN]
        return dataclasses.replace(self.figures, depends_on=dict(most))

    def _profile(self, moved: Traffic) -> Profile:
        lines = [f"{f.code}: {f.diagnostic.message}" for f in self.findings]
        return profile_of(self.timeline, self.run.name, lines, moved)

    @cached_property
    def hints(self) -> list[str]:
        return row_hints(self.kernels, self.machine)

    def parts(self) -> list[str | Table]:
        """Return the report as text and tables."""
        parts = report_parts(self.profile)
        lost = sum(k.serialized_us for k in self.profile.kernels)
        if self.ideal:
            parts.append("ideal memory plan: every stage of a pipelined loop has its own buffers")
        elif lost >= MIN_LOSS * self.profile.total_us:
            parts.append(
                f"stages of pipelined loops that share buffers cost {lost:.2f} us of it: compare "
                "with --as ideal"
            )
        parts.append(memory_table(self.plans))
        if self.findings:
            errors = plural(len(self.findings), "error")
            parts.append(
                f"{self.machine.name} would refuse this program ({errors}); the figures are those "
                "of a machine that takes it"
            )
        if self.hints:
            parts.append(
                f"{plural(len(self.hints), 'kind')} of transfer with rows shorter than "
                f"{self.machine.gm.granule} bytes: see report/perf_hints.log"
            )
        return parts

    def write(self, path: Callable[..., Path]) -> None:
        """Write all files; `path(*parts)` returns a path in the run directory."""
        texts = {
            ("profile.json",): self.profile.to_json(),
            ("report", "profile.txt"): report_text(self.profile),
            ("report", "memory_after_AllocateMemoryAddr.txt"): memory_report(
                self.plans, self.machine.name
            ),
            ("report", "memory_map.txt"): memory_map(self.plans),
            ("report", "memory_map.json"): memory_json(self.plans, self.machine.name),
            ("report", "budget.txt"): budget_table(self.kernels).text() + "\n",
            ("report", "perf_hints.log"): "".join(f"{hint}\n" for hint in self.hints),
        }
        bounds = {k.name: k.bound for k in self.profile.kernels}
        for name, text in TimelineTrace(self.timeline, bounds).files().items():
            texts["dfx_outputs", name] = text
        for parts, text in texts.items():
            path(*parts).write_text(text, encoding="utf-8")
