"""Recorded tasks as plain arrays, for the event loop and the dependency rules.

Tasks of one call site form a group: same kernel, same directions. Everything is computed once per
group, column by column; a task costs about a microsecond here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilelet.analysis.intervals import Interval
from tilelet.dataclasses import dataclass
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.footprint import footprints
from tilelet.device.kernel.pipes import KernelCost
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.machine.description import Runtime
from tilelet.device.schedule.callsites import CallSites
from tilelet.device.schedule.l2_cells import ParameterAccesses
from tilelet.device.schedule.pricing import CostCache, Pricing
from tilelet.device.schedule.region_arrays import Ints, RegionArrays, regions_of
from tilelet.dtypes import Array
from tilelet.ir.core import Direction, Program
from tilelet.tasks.stream import TaskGroup, TaskStream

LOOKS_UP = 1
REGISTERS = 2
SHAPES = ("MIX", "AIC", "AIV")
NO_WORK = 3
"""Shape of an entry that retires without running: a join, or a task whose predicate was false."""


class Group:
    """Tasks of one call, which differ only in their arguments, as arrays.

    costs  numbers of each task's costs: one for all blocks, or one per block
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self.tasks = tasks
        self.kernel = tasks.kernel
        self.tensors = tasks.tensors
        self.blocks = tasks.blocks or 1
        self.costs = np.zeros((len(tasks), 1), np.int64)
        self._numbers: dict[int, NDArray[np.float64]] = {}

    @cached_property
    def indices(self) -> Ints:
        return np.array(self.tasks.indices, np.int64)

    @cached_property
    def regions(self) -> Ints:
        """Return the window numbers, one row per tensor argument."""
        return self.tasks.region_columns()

    def numbers(self, position: int) -> NDArray[np.float64]:
        """Return the values of a scalar argument."""
        if position not in self._numbers:
            column = self.tasks.scalar_column(position)
            self._numbers[position] = np.array(column, np.float64)
        return self._numbers[position]

    def total(self, by_cost: Sequence[int]) -> Ints:
        """Return for each task the sum of `by_cost` over its blocks."""
        sums = np.array(by_cost, np.int64)[self.costs].sum(1)
        return sums * self.blocks if self.costs.shape[1] == 1 else sums

    def moved(self, costs: Sequence[KernelCost], param: int, writes: bool) -> Ints:
        """Return the bytes that each task moves from or to a parameter."""
        return self.total([(c.written if writes else c.read).get(param, 0) for c in costs])

    def shift(self, extent: Interval) -> NDArray[np.float64] | None:
        """Return how far each task's scalars shift an interval, or None if they do not."""
        terms = [self.numbers(position) * factor for position, factor in extent.factors]
        return sum(terms[1:], terms[0]) if terms else None


@dataclass
class Stream:
    """All tasks as arrays; one entry per task unless noted.

    kernel_names   by kernel number; `kernels` are their device views (None for joins)
    cost_ptr, cost numbers of the task's costs in `costs`, flattened: one, or one per block
    arg_ptr, arg_region, arg_flags   tensor arguments, flattened
    dep_ptr, deps  explicit dependencies, flattened
    await_ptr, awaits  tasks for which the control program waits before it submits, flattened
    held_until     last task of the runtime scope that keeps this task's slot (itself if none)
    in_graph       1 if it is in the `pl.graph()` of the previous task, which represents both
    heap           bytes of new tensors; `freed`: bytes unused after this task
    parts          the tasks' accesses in L2
    """

    tasks: TaskStream
    groups: list[Group]
    kernel_names: list[str]
    kernels: list[DeviceKernel | None]
    kernel: Ints
    cost_ptr: Ints
    cost: Ints
    costs: list[KernelCost]
    cost_kernel: list[int]
    signatures: list[Signature]
    shape: Ints
    lanes: Ints
    blocks: Ints
    arg_ptr: Ints
    arg_region: Ints
    arg_flags: Ints
    dep_ptr: Ints
    deps: Ints
    await_ptr: Ints
    awaits: Ints
    held_until: Ints
    in_graph: Ints
    heap: Ints
    freed: Ints
    regions: RegionArrays
    parts: list[ParameterAccesses]

    @property
    def count(self) -> int:
        return len(self.kernel)

    @property
    def first_cost(self) -> Ints:
        """The cost of each task's first block."""
        return self.cost[self.cost_ptr[:-1]]

    def total(self, by_cost: Array) -> Array:
        """Return for each task the sum of `by_cost` over its blocks."""
        if len(self.cost) == self.count:
            return by_cost[self.cost] * self.blocks
        sums = np.add.reduceat(by_cost[self.cost], self.cost_ptr[:-1])
        return np.where(np.diff(self.cost_ptr) == 1, sums * self.blocks, sums)


HEAP_GRANULE = 1024
"""Allocation granularity of new tensors in bytes."""


def build_stream(
    tasks: TaskStream,
    program: Program,
    runtime: Runtime,
    cache: CostCache,
) -> Stream:
    """Build the arrays of a recorded run."""
    return _Builder(tasks, program, runtime, cache).build()


class _Builder:
    def __init__(
        self,
        tasks: TaskStream,
        program: Program,
        runtime: Runtime,
        cache: CostCache,
    ) -> None:
        self.tasks = tasks
        self.program = program
        self.cache = cache
        self.sites = CallSites(program, runtime.rule)
        self.regions = regions_of(tasks.regions)
        self.pricing = Pricing(cache, self.regions)

    def build(self) -> Stream:
        groups = [Group(group) for group in self.tasks.groups]
        names = list(dict.fromkeys(g.kernel for g in groups))
        number = {name: i for i, name in enumerate(names)}
        n = len(self.tasks)
        kernels = [self.cache.kernel(self.program, k) if k else None for k in names]
        kernel, shape = np.zeros(n, np.int64), np.zeros(n, np.int64)
        lanes, blocks = np.ones(n, np.int64), np.ones(n, np.int64)
        arg_count, cost_count = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        for g in groups:
            view = kernels[number[g.kernel]]
            kernel[g.indices] = number[g.kernel]
            blocks[g.indices] = g.blocks
            arg_count[g.indices + 1] = len(g.tensors)
            idle = view is None or g.tasks.ran is False
            shape[g.indices] = NO_WORK if idle else SHAPES.index(view.shape)  # type: ignore[union-attr]
            # A mixed block occupies all vector cores of its cluster, even if one does all the work.
            lanes[g.indices] = self.cache.machine.cores.vectors_per_cluster
            g.costs = self.pricing.price(g.tasks, g.regions, view, number[g.kernel])
            cost_count[g.indices + 1] = g.costs.shape[1]
        cost_ptr = np.cumsum(cost_count)
        cost = np.zeros(cost_ptr[-1], np.int64)
        arg_ptr = np.cumsum(arg_count)
        arg_region = np.zeros(arg_ptr[-1], np.int64)
        arg_flags = np.zeros(arg_ptr[-1], np.int64)
        for g in groups:
            for j, column in enumerate(g.costs.T):
                cost[cost_ptr[g.indices] + j] = column
            flags = self.flags(g)
            for j, (column, flag) in enumerate(zip(g.regions, flags)):
                at = arg_ptr[g.indices] + j
                arg_region[at] = column
                arg_flags[at] = flag
        self.drop_manual(arg_region, arg_flags)
        dep_ptr, deps = _flatten(self.tasks.deps, len(self.tasks))
        await_ptr, awaits = _flatten(self.tasks.awaited, len(self.tasks))
        heap, freed = self.heap(arg_ptr, arg_region)
        return Stream(
            tasks=self.tasks,
            groups=groups,
            kernel_names=names,
            kernels=kernels,
            kernel=kernel,
            cost_ptr=cost_ptr,
            cost=cost,
            costs=self.pricing.costs,
            cost_kernel=self.pricing.cost_kernel,
            signatures=self.pricing.signatures,
            shape=shape,
            lanes=lanes,
            blocks=blocks,
            arg_ptr=arg_ptr,
            arg_region=arg_region,
            arg_flags=arg_flags,
            dep_ptr=dep_ptr,
            deps=deps,
            await_ptr=await_ptr,
            awaits=awaits,
            held_until=self.sites.held_until(self.tasks),
            in_graph=self.sites.in_graph(self.tasks),
            heap=heap,
            freed=freed,
            regions=self.regions,
            parts=self.parts(groups, kernels, number),
        )

    # Dependencies and memory

    def flags(self, g: Group) -> list[int]:
        tasks = g.tasks
        if tasks.manual:
            return [0] * len(g.tensors)
        flags: list[int] = []
        for position, region in zip(g.tensors, g.regions[:, 0]):
            flag = 0
            if position not in tasks.no_dep:
                buffer = self.regions.buffers[self.regions.buffer[region]]
                direction = tasks.directions[position]
                flag = _FLAGS[self.sites.direction(tasks, position, direction, buffer)]
            flags.append(flag)
        return flags

    def drop_manual(self, arg_region: Ints, arg_flags: Ints) -> None:
        """Exclude tensors created with `manual_dep=True` from dependency tracking."""
        manual = np.array([b.manual_dep for b in self.regions.buffers], np.bool_)
        if manual.any():
            arg_flags[manual[self.regions.buffer[arg_region]]] = 0

    def heap(self, arg_ptr: Ints, arg_region: Ints) -> tuple[Ints, Ints]:
        """Return the new memory that each task takes, and the memory that it is the last to use."""
        n = len(arg_ptr) - 1
        heap, freed = np.zeros(n, np.int64), np.zeros(n, np.int64)
        buffers = self.regions.buffers
        if not buffers:
            return heap, freed
        owner = np.repeat(np.arange(n, dtype=np.int64), np.diff(arg_ptr))
        used = self.regions.buffer[arg_region]
        first = np.full(len(buffers), n, np.int64)
        last = np.full(len(buffers), -1, np.int64)
        # The last assignment wins.
        first[used[::-1]], last[used] = owner[::-1], owner
        fresh = self.regions.fresh
        sizes = -(-self.regions.sizes // HEAP_GRANULE) * HEAP_GRANULE
        np.add.at(heap, first[fresh], sizes[fresh])
        np.add.at(freed, last[fresh], sizes[fresh])
        return heap, freed

    def parts(
        self,
        groups: list[Group],
        kernels: list[DeviceKernel | None],
        number: Mapping[str, int],
    ) -> list[ParameterAccesses]:
        found: list[ParameterAccesses] = []
        for g in groups:
            kernel = kernels[number[g.kernel]]
            if kernel is None:
                continue
            for touched in footprints(kernel, g.blocks):
                if touched.param not in g.tensors:
                    continue
                amount = g.moved(self.pricing.costs, touched.param, touched.writes)
                column = g.regions[g.tensors.index(touched.param)]
                shifts = tuple(g.shift(extent) for extent in touched.extents or ())
                found.append(ParameterAccesses(g.indices, column, touched, shifts, amount))
        return found


_FLAGS = {
    Direction.In: LOOKS_UP,
    Direction.InOut: LOOKS_UP | REGISTERS,
    Direction.Out: REGISTERS,
}


def _flatten(lists: Mapping[int, Sequence[int]], tasks: int) -> tuple[Ints, Ints]:
    """Return where the list of each task begins, and all lists one after the other."""
    counts = np.zeros(tasks + 1, np.int64)
    flat: list[int] = []
    # In task order, which is the order of recording.
    for task, found in lists.items():
        if task < tasks:
            counts[task + 1] = len(found)
            flat += found
    return np.cumsum(counts), np.array(flat, np.int64)
