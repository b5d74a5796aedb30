"""The record of a run: every task that the control program submitted, in program order.

Counting, scheduling, profiling and checking all read this record; nothing else counts tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilelet.diag.core import UNKNOWN, Loc
from tilelet.interp.memory import Window
from tilelet.ir.core import Direction

NO_TASK = -1
"""The task id that stands for no task: waiting for it waits for nothing."""


class Task:
    """One execution of an in-core scope or kernel.

    index       position in the stream; this is the value of the task's id
    kernel      name of the kernel; "" for a join (`task_dummy`), which runs nothing
    values      the arguments in parameter order: windows (without their data) and scalars
    directions  one per argument; scalars are In
    deps        indices of the tasks named in `deps=`
    no_dep      positions of arguments left out of dependency tracking
    ran         False if its predicate was false: it retired without running. None if that is
                unknown, because the run only recorded tasks and the predicate reads their data
    blocks      number of blocks of an spmd task, else None
    manual      it stands in `pl.manual_scope()`: explicit dependencies only
    loc         the scope or call
    """

    __slots__ = (
        "blocks",
        "deps",
        "directions",
        "index",
        "kernel",
        "loc",
        "manual",
        "no_dep",
        "ran",
        "values",
    )

    def __init__(
        self,
        index: int,
        kernel: str,
        values: tuple[Any, ...] = (),
        directions: tuple[Direction, ...] = (),
        deps: tuple[int, ...] = (),
        no_dep: tuple[int, ...] = (),
        ran: bool | None = True,
        blocks: int | None = None,
        manual: bool = False,
        loc: Loc = UNKNOWN,
    ) -> None:
        self.index = index
        self.kernel = kernel
        self.values = values
        self.directions = directions
        self.deps = deps
        self.no_dep = no_dep
        self.ran = ran
        self.blocks = blocks
        self.manual = manual
        self.loc = loc

    @property
    def args(self) -> tuple[tuple[Any, Direction], ...]:
        """Every argument (window or scalar) with its direction."""
        return tuple(zip(self.values, self.directions))

    @property
    def windows(self) -> tuple[tuple[Window, Direction], ...]:
        """The tensor arguments with their directions."""
        return tuple(a for a in self.args if isinstance(a[0], Window))

    def __repr__(self) -> str:
        return f"<task {self.index}: {self.kernel or 'join'}>"


class TaskStream:
    """Tasks in the order in which they were submitted."""

    __slots__ = ("_counts", "_tasks")

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._counts: dict[str, int] = {}

    def append(self, task: Task) -> None:
        self._tasks.append(task)
        if task.kernel:
            self._counts[task.kernel] = self._counts.get(task.kernel, 0) + 1

    def counts(self) -> dict[str, int]:
        """Number of tasks of each kernel, kernels in the order of their first task.

        A task that its predicate kept from running counts; a join does not.
        """
        return dict(self._counts)

    @property
    def total(self) -> int:
        """The number of tasks that is published and compared: the sum of `counts()`."""
        return sum(self._counts.values())

    def __len__(self) -> int:
        """Number of entries, joins included; the next task gets this index."""
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]
