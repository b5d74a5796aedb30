"""Costs of tasks: each distinct signature of a kernel is simulated once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilelet.device.kernel.control_path import Signature, control_path_of
from tilelet.device.kernel.footprint import Control, control
from tilelet.device.kernel.lowering import Ring, lower_kernel
from tilelet.device.kernel.pipes import KernelCost, follow_reference, kernel_cost
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.machine.description import Machine, Runtime
from tilelet.device.memory.plan import with_stages_that_fit
from tilelet.device.schedule.native_walk import follower
from tilelet.device.schedule.region_arrays import Ints, RegionArrays
from tilelet.dtypes import Array
from tilelet.ir.core import Program
from tilelet.tasks.control_points import ControlTrace
from tilelet.tasks.stream import TaskGroup

NOTHING = KernelCost(0, 0, 0, {}, {}, {}, 0, 0)
"""The cost of a join."""


class CostCache:
    """Costs of kernels on one machine, by signature; reuse it to model a program several times."""

    def __init__(
        self, machine: Machine, runtime: Runtime, *, reference: bool = False, ideal: bool = False
    ) -> None:
        """`reference`: simulate kernels in Python, which defines their costs.

        `ideal`: give stages their buffers even if they do not fit, and rings between cores as many
        slots as they can use.
        """
        self.machine = machine
        self.ideal = ideal
        self.ring = None if ideal else Ring(runtime.ring_slots, runtime.ring_slots_both)
        self.follow = follow_reference if reference else follower()
        self.kernels: dict[str, tuple[object, DeviceKernel]] = {}
        self.costs: dict[tuple[object, ...], KernelCost] = {}

    def kernel(self, program: Program, name: str) -> DeviceKernel:
        function = program.functions[name]
        known = self.kernels.get(name)
        if known is None or known[0] is not function:
            self.costs = {k: v for k, v in self.costs.items() if k[0] != name}
            kernel = lower_kernel(function, self.machine, self.ring)
            if not self.ideal:
                kernel = with_stages_that_fit(kernel, self.machine)
            known = self.kernels[name] = (function, kernel)
        return known[1]

    def cost(
        self, kernel: DeviceKernel, key: tuple[object, ...], signature: Signature
    ) -> KernelCost:
        full = (kernel.name, *key)
        if full not in self.costs:
            self.costs[full] = kernel_cost(kernel, self.machine, signature, follow=self.follow)
        return self.costs[full]


class Pricing:
    """Numbers the costs of the tasks of one run.

    costs  by number; `cost_kernel` has the kernel of each, `signatures` its signature
    """

    def __init__(self, cache: CostCache, regions: RegionArrays) -> None:
        self.costs: list[KernelCost] = []
        self.cost_kernel: list[int] = []
        self.signatures: list[Signature] = []
        self._cache = cache
        self._regions = regions
        self._numbers: dict[tuple[object, ...], int] = {}

    def price(
        self, tasks: TaskGroup, windows: Ints, kernel: DeviceKernel | None, number: int
    ) -> Ints:
        """Return the costs of a group's tasks, one row each: one for all blocks, or one per block.

        windows  region numbers, a row for each tensor argument
        number   of the kernel
        """
        if kernel is None:
            nothing = self._number(("",), NOTHING, number, Signature())
            return np.full((len(tasks), 1), nothing)
        deciding = control(kernel)
        scalars = [p for p in tasks.others if p in deciding.params]
        columns: list[Array] = [_codes(tasks.scalar_column(p)) for p in scalars]
        layout = self._regions.layout
        plain = np.array([w.valid is None and not w.strided for w in self._regions.layouts])
        # Only properties that affect costs: gaps between rows, and parts that loads skip.
        columns += [np.where(plain[layout[c]], 0, 1 + layout[c]) for c in windows]
        if tasks.outcomes:
            columns.append(_codes([tasks.outcomes.get(row, ()) for row in range(len(tasks))]))
        firsts, kinds = _distinct(columns, len(tasks))
        priced = [
            self._task(tasks, windows[:, row].tolist(), kernel, number, scalars, row, deciding)
            for row in firsts
        ]
        width = max(map(len, priced))
        table = [found * width if len(found) == 1 else found for found in priced]
        return np.array(table, np.int64)[kinds]

    def _task(
        self,
        tasks: TaskGroup,
        windows: Sequence[int],
        kernel: DeviceKernel,
        number: int,
        scalars: Sequence[int],
        row: int,
        deciding: Control,
    ) -> list[int]:
        """Return the cost of one task: one for all its blocks, or one per block."""
        layouts = [self._regions.layouts[int(self._regions.layout[r])] for r in windows]
        strided = frozenset(p for p, w in zip(tasks.tensors, layouts) if w.strided)
        valid = {p: w.valid for p, w in zip(tasks.tensors, layouts) if w.valid is not None}
        values = {p: tasks.scalar_column(p)[row] for p in scalars}
        blocks = tasks.blocks or 1
        outcomes: tuple[ControlTrace, ...] = tasks.outcomes.get(row, ((),))
        common = (strided, tuple(valid.items()), blocks)
        varied = blocks > 1 and (deciding.by_block or len(set(outcomes)) > 1)
        found: list[int] = []
        for block in range(blocks if varied else 1):
            outcome = outcomes[min(block, len(outcomes) - 1)]
            signature = Signature(values, strided, valid, blocks, block, outcome)
            key = (*common, control_path_of(kernel, signature))
            cost = self._cache.cost(kernel, key, signature)
            found.append(self._number((kernel.name, *key), cost, number, signature))
        return found if len(set(found)) > 1 else found[:1]

    def _number(
        self, key: tuple[object, ...], cost: KernelCost, kernel: int, signature: Signature
    ) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.costs)
            self.costs.append(cost)
            self.cost_kernel.append(kernel)
            self.signatures.append(signature)
        return self._numbers[key]


def _codes(column: Sequence[object]) -> Ints:
    """Map the values of a column to small integers."""
    numbers = np.array(column) if column and isinstance(column[0], int | float) else None
    if numbers is not None and numbers.dtype.kind in "bif":
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    known: dict[object, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in column], np.int64)


def _distinct(columns: Sequence[Array], count: int) -> tuple[list[int], Ints]:
    """Return the first position of each distinct row, in order, and the index for each row."""
    kinds = np.zeros(count, np.int64)
    for column in columns:
        if column.size and column.min() != column.max():
            both = kinds * (int(column.max()) + 1) + column
            kinds = np.unique(both, return_inverse=True)[1].reshape(-1)
    _, firsts, kinds = np.unique(kinds, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return firsts[order].tolist(), rank[kinds.reshape(-1)]
