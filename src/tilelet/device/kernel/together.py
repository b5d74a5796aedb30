"""One execution of a kernel on several machines at once, which differ in costs only.

Which way it goes is found out once for all of them; what is left of a step are a few operations on
short arrays. For a few dozen machines that takes as long as two walks one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.pipes import NOT_CLOCKS, SCALAR_UNITS, Walk
from tilelet.device.kernel.view import DeviceKernel, Work
from tilelet.device.machine.description import Machine


@dataclass(frozen=True)
class Case:
    """A machine, and whether what is read and what is overwritten is missing in L2."""

    machine: Machine
    cold: bool = False
    cold_stores: bool = False


def times_together(
    kernel: DeviceKernel, signature: Signature, cases: Sequence[Case]
) -> list[float]:
    """How long one execution takes in each case, in microseconds."""
    ends: NDArray[np.float64] = Together(kernel, signature, cases).end
    return [case.machine.us(float(end)) for case, end in zip(cases, ends)]


class Together(Walk):
    """A walk whose times are arrays: one number for each case."""

    def __init__(self, kernel: DeviceKernel, signature: Signature, cases: Sequence[Case]) -> None:
        self.cases = cases
        super().__init__(kernel, cases[0].machine, signature, cold=False, later=np.maximum)

    def constants(self) -> tuple[Any, Any, Any, Any]:
        bodies = [case.machine.body for case in self.cases]
        each = [(b.issue_cycles, b.sync_cycles, b.exchange_cycles, b.start_cycles) for b in bodies]
        issue, sync, across, start = np.array(each, np.float64).T.copy()
        return issue, sync, across, start

    def cycles(self, work: Work) -> tuple[Any, Any]:
        each = [self.cycles_on(work, c.machine, c.cold, c.cold_stores) for c in self.cases]
        busy, latency = np.array(each, np.float64).T.copy()
        return busy, latency

    def settled(self, moved: list[Any]) -> bool:
        """In every case: times that advance do so alike, but for scalar units that run ahead."""
        every = np.round(np.stack(moved[: len(self.times)]), 6)
        scalar_units = every[SCALAR_UNITS]
        clocks = np.delete(every, NOT_CLOCKS, axis=0)
        pace = clocks.max(axis=0)
        alike = (clocks == 0.0) | (clocks == pace)
        for unit in scalar_units:
            alike |= (clocks == unit) & (unit < pace)
        return bool(alike.all())
