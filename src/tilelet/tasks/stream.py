"""The record of a run: every task that the control program submitted, in program order.

Counting, scheduling, profiling and checking all read this record; nothing else counts tasks. It is
stored by columns, because the tasks of one call differ only in a few numbers and there may be
hundreds of thousands of them. A `Task` object is built on demand.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.dtypes import Array
from tilelet.ir.core import Direction
from tilelet.tasks.control_points import ControlTrace
from tilelet.tasks.regions import RegionTable
from tilelet.tasks.window import Buffer, Window

NO_TASK = -1
"""The task id that stands for no task: waiting for it waits for nothing."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    """The common properties of the tasks of one call.

    kernel      name of the kernel; "" for a join (`task_dummy`), which runs nothing
    directions  one per argument; scalars are In
    no_dep      positions of arguments excluded from dependency tracking
    ran         False if its predicate was false, so that it retired without running; None if that
                is unknown, because the run only recorded tasks and the predicate reads their data
    blocks      number of blocks of an spmd task, else None
    manual      it is in `pl.manual_scope()`: explicit dependencies only
    loc         the scope or call
    """

    kernel: str
    directions: tuple[Direction, ...] = ()
    no_dep: tuple[int, ...] = ()
    ran: bool | None = True
    blocks: int | None = None
    manual: bool = False
    loc: Loc = UNKNOWN


class _OfKind:
    """Exposes the fields of a `TaskKind`."""

    __slots__ = ("kind",)

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind

    @property
    def kernel(self) -> str:
        return self.kind.kernel

    @property
    def directions(self) -> tuple[Direction, ...]:
        return self.kind.directions

    @property
    def no_dep(self) -> tuple[int, ...]:
        return self.kind.no_dep

    @property
    def ran(self) -> bool | None:
        return self.kind.ran

    @property
    def blocks(self) -> int | None:
        return self.kind.blocks

    @property
    def manual(self) -> bool:
        return self.kind.manual

    @property
    def loc(self) -> Loc:
        return self.kind.loc


class Task(_OfKind):
    """One execution of an in-core scope or kernel.

    kind    the properties it shares with other tasks
    index   position in the stream, which is also the value of the task's id
    values  the arguments in parameter order: windows (without their data) and scalars
    deps    indices of the tasks named in `deps=`
    """

    __slots__ = ("deps", "index", "values")

    def __init__(
        self, kind: TaskKind, index: int, values: tuple[Any, ...], deps: tuple[int, ...] = ()
    ) -> None:
        super().__init__(kind)
        self.index = index
        self.values = values
        self.deps = deps

    @property
    def args(self) -> tuple[tuple[Any, Direction], ...]:
        """Return every argument (window or scalar) with its direction."""
        return tuple(zip(self.values, self.directions))

    @property
    def windows(self) -> tuple[tuple[Window, Direction], ...]:
        """Return the tensor arguments with their directions."""
        return tuple(a for a in self.args if isinstance(a[0], Window))

    def __repr__(self) -> str:
        return f"<task {self.index}: {self.kernel or 'join'}>"


class TaskGroup(_OfKind):
    """Tasks of one call, which differ only in their arguments and explicit dependencies.

    kind      their common properties
    tensors   positions of the window arguments; `others` are those of the other arguments
    indices   positions of the tasks in the stream, ascending
    regions   numbers of the windows (see `RegionTable`), task by task
    scalars   the other arguments, task by task
    outcomes  by position in the group: the outcome at each control point, block by block; tasks
              whose outcome is unknown, or whose kernel has no control point, are left out
    """

    __slots__ = (
        "indices",
        "others",
        "outcomes",
        "pick_scalars",
        "pick_windows",
        "regions",
        "scalars",
        "tensors",
        "written",
    )

    def __init__(self, kind: TaskKind, values: Sequence[Any]) -> None:
        super().__init__(kind)
        self.tensors = tuple([i for i, v in enumerate(values) if type(v) is Window])
        self.others = tuple([i for i in range(len(values)) if i not in self.tensors])
        self.written = tuple([i for i in self.tensors if kind.directions[i] is not Direction.In])
        self.pick_windows = picker(self.tensors)
        self.pick_scalars = picker(self.others)
        self.indices = array("q")
        self.regions = array("q")
        self.scalars: list[object] = []
        self.outcomes: dict[int, tuple[ControlTrace, ...]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def region_columns(self) -> NDArray[np.int64]:
        """Return region numbers: one row per window argument, one column per task."""
        flat = np.array(self.regions, np.int64)
        return np.ascontiguousarray(flat.reshape(len(self), len(self.tensors)).T)

    def scalar_column(self, position: int) -> list[Any]:
        """Return the values of a non-window argument."""
        return self.scalars[self.others.index(position) :: len(self.others)]


_REGION = attrgetter("region")


def picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return an `itemgetter` that returns a tuple for any number of positions."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda _: ()
    only = positions[0]
    return lambda values: (values[only],)


class EnoughTasksError(Exception):
    """The stream holds the requested number of tasks, so recording can stop."""


@dataclass(frozen=True, slots=True)
class ControlWrite:
    """An element written by the control program, after `tasks` tasks were submitted.

    offset  its place in the buffer, in elements of the value's dtype
    """

    tasks: int
    offset: int
    value: Array


def write_until(writes: Sequence[ControlWrite], done: int, task: int, buffer: Buffer) -> int:
    """Write into `buffer` what the control program writes before `task`, from entry `done` on.

    Returns the number of entries written in total.
    """
    end = bisect_right(writes, task, lo=done, key=lambda write: write.tasks)
    for write in writes[done:end]:
        dtype = write.value.dtype
        element: Array = np.ndarray((), dtype, buffer.data, write.offset * dtype.itemsize)
        element[...] = write.value
    return end


class TaskStream:
    """Tasks in submission order.

    groups       the same tasks by call, in the order of their first task
    regions      the windows of all tasks
    deps         the tasks that name others in `deps=`, and those others
    awaited      tasks for which the control program waits to read what they wrote, by the number
                 of the task that it submits next
    read_result  the first tensor of which the control program read what a task wrote, or empty
    rewritten    what the control program wrote itself, by the id of the buffer; None if it is not
                 known
    allocations  runtime calls that allocate tensors; see `tasks.runtime_counts`
    most         limit on the number of tasks; None for no limit
    complete     whether these are all tasks of the run
    """

    __slots__ = (
        "_by_kind",
        "_count",
        "_places",
        "allocations",
        "awaited",
        "complete",
        "deps",
        "groups",
        "most",
        "read_result",
        "regions",
        "rewritten",
    )

    def __init__(self) -> None:
        self.groups: list[TaskGroup] = []
        self.regions = RegionTable()
        self.deps: dict[int, tuple[int, ...]] = {}
        self.awaited: dict[int, tuple[int, ...]] = {}
        self.read_result = ""
        self.rewritten: dict[int, list[ControlWrite] | None] = {}
        self.most: int | None = None
        self.complete = True
        self._count = 0
        self.allocations = 0
        self._by_kind: dict[tuple[object, ...], TaskGroup] = {}
        self._places: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def group(self, kind: TaskKind, values: Sequence[Any]) -> TaskGroup:
        """Return the group for tasks of this kind; `values` are the arguments of one of them."""
        # The group keeps its `loc` alive, so that the identity is not reused.
        key = (kind.kernel, id(kind.loc), kind.no_dep, kind.ran, kind.blocks, kind.manual)
        if key not in self._by_kind:
            group = TaskGroup(kind, values)
            self._by_kind[key] = group
            self.groups.append(group)
        return self._by_kind[key]

    def add(self, group: TaskGroup, values: Sequence[object], deps: tuple[int, ...] = ()) -> int:
        """Record a task and return its index."""
        index = self.count()
        group.indices.append(index)
        if group.tensors:
            windows = group.pick_windows(values)
            numbers = list(map(_REGION, windows))
            if -1 in numbers:
                numbers = list(map(self.regions.number, windows))
            group.regions.extend(numbers)
        if group.others:
            group.scalars.extend(group.pick_scalars(values))
        if deps:
            self.deps[index] = deps
        return index

    def count(self) -> int:
        """Return the index of a new task."""
        index = self._count
        if index == self.most:
            self.complete = False
            raise EnoughTasksError
        self._count = index + 1
        return index

    def counts(self) -> dict[str, int]:
        """Return the number of tasks of each kernel, in the order of their first task.

        A task skipped by its predicate counts; a join does not.
        """
        counts: dict[str, int] = {}
        for group in self.groups:
            if group.kernel:
                counts[group.kernel] = counts.get(group.kernel, 0) + self.number(group)
        return counts

    def blocks(self) -> dict[str, int]:
        """Return the number of blocks in all tasks of each kernel launched by `pl.spmd`."""
        found: dict[str, int] = {}
        for group in self.groups:
            if group.kernel and group.kind.blocks is not None:
                blocks = self.number(group) * group.kind.blocks
                found[group.kernel] = found.get(group.kernel, 0) + blocks
        return found

    def number(self, group: TaskGroup) -> int:
        """Return the number of tasks in a group."""
        return len(group)

    @property
    def total(self) -> int:
        """The number of tasks that is published and compared: the sum of `counts()`."""
        return sum(self.counts().values())

    def __len__(self) -> int:
        """Return the number of entries including joins; the next task gets this index."""
        return self._count

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(self._count))

    def __getitem__(self, index: int) -> Task:
        at = range(self._count)[index]
        owners, rows = self.places()
        group = self.groups[int(owners[at])]
        return self._task(at, group, int(rows[at]))

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each task the number of its group, and its position there."""
        if self._places is None or len(self._places[0]) != self._count:
            owners, rows = np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
            for number, group in enumerate(self.groups):
                indices = np.array(group.indices, np.int64)
                owners[indices] = number
                rows[indices] = np.arange(len(indices))
            self._places = owners, rows
        return self._places

    def _task(self, index: int, group: TaskGroup, row: int) -> Task:
        values: list[object] = [None] * (len(group.tensors) + len(group.others))
        for j, position in enumerate(group.tensors, row * len(group.tensors)):
            values[position] = self.regions.window(group.regions[j])
        for j, position in enumerate(group.others, row * len(group.others)):
            values[position] = group.scalars[j]
        return Task(group.kind, index, tuple(values), self.deps.get(index, ()))
