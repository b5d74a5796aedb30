"""Recorded tasks as plain arrays: what the event loop and the dependency rules work on.

Tasks of one call site form a group: same kernel, same directions. Everything is computed once per
group, column by column; a task costs about a microsecond here.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.device.callsites import CallSites
from tilelet.device.cells import Cells
from tilelet.device.footprint import control_params, footprints
from tilelet.device.kernel import DeviceKernel
from tilelet.device.lowering import lower_kernel
from tilelet.device.machine import Machine, Runtime
from tilelet.device.pipes import KernelCost, Signature, kernel_cost
from tilelet.device.regions import Ints, Regions, RegionTable
from tilelet.interp.memory import Window
from tilelet.interp.tasks import Task, TaskStream
from tilelet.ir.core import Direction, Program

LOOKS_UP = 1
REGISTERS = 2
SHAPES = ("MIX", "AIC", "AIV")
NO_WORK = 3
"""Shape of an entry that retires without running: a join, or a task whose predicate was false."""


@dataclass
class Group:
    """Tasks of one call site that differ only in their arguments."""

    kernel: str
    first: Task
    indices: Ints
    columns: list[tuple[Any, ...]]
    tensors: tuple[int, ...]
    regions: list[Ints]
    blocks: int


@dataclass
class Stream:
    """All tasks as arrays; one entry per task unless it says otherwise.

    kernel_names   by kernel number; `kernels` their device views (None for joins)
    cost           number of the task's cost in `costs`
    arg_ptr, arg_region, arg_flags   tensor arguments, flattened
    dep_ptr, deps  explicit dependencies, flattened
    held_until     last task of the runtime scope that keeps this task's slot (itself: none does)
    heap           bytes of fresh tensors; `freed`: bytes that nobody needs after this task
    cells          what each task touches in L2
    """

    tasks: TaskStream
    kernel_names: list[str]
    kernels: list[DeviceKernel | None]
    kernel: Ints
    cost: Ints
    costs: list[KernelCost]
    cost_kernel: list[int]
    shape: Ints
    lanes: Ints
    blocks: Ints
    arg_ptr: Ints
    arg_region: Ints
    arg_flags: Ints
    dep_ptr: Ints
    deps: Ints
    held_until: Ints
    heap: Ints
    freed: Ints
    regions: Regions
    cells: Cells

    @property
    def count(self) -> int:
        return len(self.kernel)


ReadElement = Callable[[Window, tuple[int, ...]], "int | float | None"]


class CostCache:
    """Costs of kernels on one machine, by signature. Keep it to model a program several times."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kernels: dict[str, tuple[Any, DeviceKernel]] = {}
        self.costs: dict[tuple[Any, ...], KernelCost] = {}

    def kernel(self, program: Program, name: str) -> DeviceKernel:
        function = program.functions[name]
        known = self.kernels.get(name)
        if known is None or known[0] is not function:
            self.costs = {k: v for k, v in self.costs.items() if k[0] != name}
            known = self.kernels[name] = (function, lower_kernel(function, self.machine))
        return known[1]

    def cost(self, kernel: DeviceKernel, key: tuple[Any, ...], signature: Signature) -> KernelCost:
        full = (kernel.name, *key)
        if full not in self.costs:
            self.costs[full] = kernel_cost(kernel, self.machine, signature)
        return self.costs[full]


def build_stream(
    tasks: TaskStream,
    program: Program,
    runtime: Runtime,
    cache: CostCache,
    read: ReadElement | None = None,
) -> Stream:
    """The arrays of a recorded run."""
    # Hundreds of thousands of small tuples live for a moment, none of them in a cycle: looking for
    # cycles meanwhile would take longer than all the rest.
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _Builder(tasks, program, runtime, cache, read).build()
    finally:
        if enabled:
            gc.enable()


class _Builder:
    def __init__(
        self,
        tasks: TaskStream,
        program: Program,
        runtime: Runtime,
        cache: CostCache,
        read: ReadElement | None,
    ) -> None:
        self.tasks = tasks
        self.program = program
        self.cache = cache
        self.read = read
        self.sites = CallSites(program, runtime.rule)
        self.table = RegionTable()
        self.costs: list[KernelCost] = []
        self.cost_kernel: list[int] = []
        self._cost_numbers: dict[tuple[Any, ...], int] = {}

    def build(self) -> Stream:
        groups = self.groups()
        self.regions = self.table.finish()
        names = list(dict.fromkeys(g.kernel for g in groups))
        number = {name: i for i, name in enumerate(names)}
        n = len(self.tasks)
        kernels = [self.cache.kernel(self.program, k) if k else None for k in names]
        kernel, cost, shape = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
        lanes, blocks = np.ones(n, np.int64), np.ones(n, np.int64)
        arg_count = np.zeros(n + 1, np.int64)
        for g in groups:
            view = kernels[number[g.kernel]]
            kernel[g.indices] = number[g.kernel]
            blocks[g.indices] = g.blocks
            arg_count[g.indices + 1] = len(g.tensors)
            idle = view is None or g.first.ran is False
            shape[g.indices] = NO_WORK if idle else SHAPES.index(view.shape)  # type: ignore[union-attr]
            lanes[g.indices] = 1 if view is None else view.lanes
            cost[g.indices] = self.group_costs(g, view, number[g.kernel])
        arg_ptr = np.cumsum(arg_count)
        arg_region = np.zeros(arg_ptr[-1], np.int64)
        arg_flags = np.zeros(arg_ptr[-1], np.int64)
        for g in groups:
            flags = self.flags(g)
            for j, (column, flag) in enumerate(zip(g.regions, flags)):
                at = arg_ptr[g.indices] + j
                arg_region[at] = column
                arg_flags[at] = flag
        self.drop_manual(arg_region, arg_flags)
        dep_ptr, deps = self.explicit()
        heap, freed = self.heap(arg_ptr, arg_region)
        return Stream(
            tasks=self.tasks,
            kernel_names=names,
            kernels=kernels,
            kernel=kernel,
            cost=cost,
            costs=self.costs,
            cost_kernel=self.cost_kernel,
            shape=shape,
            lanes=lanes,
            blocks=blocks,
            arg_ptr=arg_ptr,
            arg_region=arg_region,
            arg_flags=arg_flags,
            dep_ptr=dep_ptr,
            deps=deps,
            held_until=self.sites.held_until(self.tasks),
            heap=heap,
            freed=freed,
            regions=self.regions,
            cells=self.cells(groups, kernels, number, cost),
        )

    def groups(self) -> list[Group]:
        rows: dict[tuple[Any, ...], list[Task]] = defaultdict(list)
        kinds = map(attrgetter("kernel", "blocks", "manual", "ran", "no_dep"), self.tasks)
        places = map(id, map(attrgetter("loc"), self.tasks))
        for task, kind, place in zip(self.tasks, kinds, places):
            rows[place, kind].append(task)
        return [self.group(members) for members in rows.values()]

    def group(self, members: list[Task]) -> Group:
        first = members[0]
        columns = list(zip(*map(attrgetter("values"), members)))
        tensors = tuple(i for i, v in enumerate(first.values) if isinstance(v, Window))
        regions = [self.table.number(columns[i]) for i in tensors]
        indices = np.fromiter(map(attrgetter("index"), members), np.int64, len(members))
        return Group(first.kernel, first, indices, columns, tensors, regions, first.blocks or 1)

    # Costs

    def group_costs(self, g: Group, kernel: DeviceKernel | None, number: int) -> Ints | int:
        if kernel is None:
            return self.cost_number(("",), KernelCost(0, 0, {}, {}, {}, 0, 0), number)
        deciding, by_data = control_params(kernel)
        positions = sorted(p for p in deciding if p < len(g.columns))
        if by_data and self.read is not None:
            positions = list(range(len(g.columns)))
        scalars = [p for p in positions if p not in g.tensors]
        keys: list[tuple[Any, ...]] = list(zip(*[g.columns[p] for p in scalars]))
        if by_data and self.read is not None:
            keys = list(zip(*[g.columns[p] for p in scalars], *g.regions))
        strided = self.strided(g)
        if not keys and not strided.any():
            return self.price(g, kernel, number, (), scalars, 0, frozenset())
        result = np.zeros(len(g.indices), np.int64)
        known: dict[tuple[Any, ...], int] = {}
        bits = (strided @ (1 << np.arange(strided.shape[1], dtype=np.int64))).tolist()
        for i in range(len(g.indices)):
            key = (*(keys[i] if keys else ()), bits[i])
            if key not in known:
                gaps = frozenset(p for j, p in enumerate(g.tensors) if strided[i, j])
                known[key] = self.price(g, kernel, number, key, scalars, i, gaps)
            result[i] = known[key]
        return result

    def price(
        self,
        g: Group,
        kernel: DeviceKernel,
        number: int,
        key: tuple[Any, ...],
        scalars: Sequence[int],
        row: int,
        gaps: frozenset[int],
    ) -> int:
        read = self.read

        def element(position: int, at: tuple[int, ...]) -> int | float | None:
            assert read is not None
            return read(g.columns[position][row], at)

        signature = Signature(
            {p: g.columns[p][row] for p in scalars},
            gaps,
            g.blocks,
            element if read is not None else None,
        )
        full = (tuple(scalars), key, gaps, g.blocks)
        cost = self.cache.cost(kernel, full, signature)
        return self.cost_number((kernel.name, *full), cost, number)

    def cost_number(self, key: tuple[Any, ...], cost: KernelCost, kernel: int) -> int:
        if key not in self._cost_numbers:
            self._cost_numbers[key] = len(self.costs)
            self.costs.append(cost)
            self.cost_kernel.append(kernel)
        return self._cost_numbers[key]

    def strided(self, g: Group) -> NDArray[np.bool_]:
        """Which tensor arguments have gaps between their rows, by task and argument."""
        gaps = np.zeros((len(g.indices), len(g.tensors)), np.bool_)
        strided = self.regions.by_layout("strided")
        for j, column in enumerate(g.regions):
            gaps[:, j] = strided[column]
        return gaps

    # Dependencies and memory

    def flags(self, g: Group) -> list[int]:
        if g.first.manual:
            return [0] * len(g.tensors)
        flags: list[int] = []
        for position in g.tensors:
            flag = 0
            if position not in g.first.no_dep:
                direction = g.first.directions[position]
                window = g.columns[position][0]
                direction = self.sites.direction(g.first, position, direction, window.buffer)
                flag = _FLAGS[direction]
            flags.append(flag)
        return flags

    def drop_manual(self, arg_region: Ints, arg_flags: Ints) -> None:
        """Tensors made with `manual_dep=True` order nothing."""
        manual = np.array([b.manual_dep for b in self.regions.buffers], np.bool_)
        if manual.any():
            arg_flags[manual[self.regions.buffer[arg_region]]] = 0

    def explicit(self) -> tuple[Ints, Ints]:
        counts = np.array([0, *[len(t.deps) for t in self.tasks]], np.int64)
        flat = [d for t in self.tasks if t.deps for d in t.deps]
        return np.cumsum(counts), np.array(flat, np.int64)

    def heap(self, arg_ptr: Ints, arg_region: Ints) -> tuple[Ints, Ints]:
        """Fresh memory that each task takes, and memory that it is the last to use."""
        n = len(arg_ptr) - 1
        heap, freed = np.zeros(n, np.int64), np.zeros(n, np.int64)
        buffers = self.regions.buffers
        if not buffers:
            return heap, freed
        owner = np.repeat(np.arange(n, dtype=np.int64), np.diff(arg_ptr))
        used = self.regions.buffer[arg_region]
        first = np.full(len(buffers), n, np.int64)
        last = np.full(len(buffers), -1, np.int64)
        np.minimum.at(first, used, owner)
        np.maximum.at(last, used, owner)
        fresh = np.array([b.origin == "temp" for b in buffers], np.bool_)
        sizes = np.array([-(-b.nbytes // 1024) * 1024 for b in buffers], np.int64)
        np.add.at(heap, first[fresh], sizes[fresh])
        np.add.at(freed, last[fresh], sizes[fresh])
        return heap, freed

    def cells(
        self,
        groups: list[Group],
        kernels: list[DeviceKernel | None],
        number: Mapping[str, int],
        cost: Ints,
    ) -> Cells:
        cells = Cells(self.regions, self.cache.machine.gm.l2_line, len(self.tasks))
        for g in groups:
            kernel = kernels[number[g.kernel]]
            if kernel is None:
                continue
            for print_ in footprints(kernel, g.blocks):
                if print_.param not in g.tensors:
                    continue
                moved = [(c.written if print_.writes else c.read) for c in self.costs]
                by_cost = np.array([m.get(print_.param, 0) for m in moved], np.int64)
                amount = by_cost[cost[g.indices]] * g.blocks
                column = g.regions[g.tensors.index(print_.param)]
                cells.add(g.indices, column, g.columns, print_, amount)
        cells.finish()
        return cells


_FLAGS = {
    Direction.In: LOOKS_UP,
    Direction.InOut: LOOKS_UP | REGISTERS,
    Direction.Out: REGISTERS,
}
