"""Simulate one execution of a kernel on several machines at once that differ only in costs.

Control decisions are made once for all of them; each step is then a few operations on short arrays.
For a few dozen machines this takes as long as two separate simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.course import Course, course_of
from tilelet.device.kernel.pipes import ALIKE, HOT, NOT_CLOCKS, SCALAR_UNITS, Levels, Walk
from tilelet.device.kernel.step_costs import StepCosts
from tilelet.device.kernel.view import DeviceKernel, Work
from tilelet.device.machine.description import Machine


@dataclass(frozen=True)
class PricingCase:
    """A machine, and what misses L2."""

    machine: Machine
    levels: Levels = HOT


def times_together(
    kernel: DeviceKernel, signature: Signature, cases: Sequence[PricingCase]
) -> list[float]:
    """Return the time of one execution in each case, in microseconds."""
    ends: NDArray[np.float64] = Together(course_of(kernel, signature), cases).end
    return [case.machine.us(float(end)) for case, end in zip(cases, ends)]


class Together(Walk):
    """A walk whose times are arrays with one entry per case."""

    def __init__(self, course: Course, cases: Sequence[PricingCase]) -> None:
        self.cases = [
            (StepCosts(course.kernel, case.machine, course.signature), case.levels)
            for case in cases
        ]
        super().__init__(course, cases[0].machine, later=np.maximum)

    def constants(self) -> tuple[Any, Any, Any, Any]:
        bodies = [costs.machine.body for costs, _ in self.cases]
        each = [(b.issue_cycles, b.sync_cycles, b.exchange_cycles, b.start_cycles) for b in bodies]
        issue, sync, across, start = np.array(each, np.float64).T.copy()
        return issue, sync, across, start

    def cycles(self, work: Work) -> tuple[Any, Any]:
        each = [costs.cycles(work, *levels) for costs, levels in self.cases]
        busy, latency = np.array(each, np.float64).T.copy()
        return busy, latency

    def settled(self, moved: list[Any]) -> bool:
        """Return whether times have settled in every case."""
        every = np.stack(moved[: len(self.times)])
        clocks = np.delete(every, NOT_CLOCKS, axis=0)
        alike = (clocks == 0.0) | (clocks.max(axis=0) - clocks <= ALIKE)
        for unit in every[SCALAR_UNITS]:
            alike |= abs(clocks - unit) <= ALIKE
        return bool(alike.all())
