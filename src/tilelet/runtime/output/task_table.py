"""The number of tasks of each kernel, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass
from tilelet.diag.text import plural

if TYPE_CHECKING:
    from tilelet.ir.core import Program
    from tilelet.runtime.programs.engines import TaskCounter


@dataclass(frozen=True)
class TaskTable:
    """The number of tasks of each kernel, and of blocks where `pl.spmd` launches them."""

    program: str
    tasks: Mapping[str, int]
    blocks: Mapping[str, int]

    @classmethod
    def of(cls, name: str, tasks: TaskCounter, as_runtime: Program | None = None) -> TaskTable:
        """Count the tasks of a run; with a program, as the device's runtime counts them."""
        from tilelet.tasks.runtime_counts import runtime_counts
        from tilelet.tasks.stream import TaskStream

        if as_runtime is not None and isinstance(tasks, TaskStream):
            return cls(name, runtime_counts(as_runtime, tasks), {})
        return cls(name, tasks.counts(), tasks.blocks() if isinstance(tasks, TaskStream) else {})

    @property
    def total(self) -> int:
        return sum(self.tasks.values())

    def text(self) -> str:
        """One line per kernel and the total, with a column of blocks if there are launches.

        A task without a launch counts as one block, so that the total is the number of executions.
        """
        kernels = list(self.tasks)
        columns = [
            ["kernel", *kernels, "total"],
            ["tasks", *(f"{n:,}" for n in (*self.tasks.values(), self.total))],
        ]
        if self.blocks:
            counts = [self.blocks.get(kernel, tasks) for kernel, tasks in self.tasks.items()]
            columns.append(["blocks", *(f"{n:,}" for n in (*counts, sum(counts)))])
        widths = [max(map(len, column)) for column in columns]
        lines = [f"{self.program}: {plural(len(kernels), 'kernel')}"]
        for row in zip(*columns, strict=True):
            first, *numbers = (
                f"{text:<{width}}" if i == 0 else f"{text:>{width}}"
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(["", first, *numbers]).rstrip())
        return "\n".join(lines)
