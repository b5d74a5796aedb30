"""A trace of a run of several ranks: tasks, accesses to windows and waits, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilelet.interp.lowering import Lowering, Step
from tilelet.ir.core import Op
from tilelet.ranks.memory import SymmetricBuffer
from tilelet.ranks.rank import RankTask, Strand
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.rank import RankState

AWAITED = -1
"""Key of a task's clock: the last time that its control program waited for tasks."""


class RunTrace:
    """A watcher that records the events of all ranks."""

    sees_loads = False

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._awaited = 0

    def access(self, strand: Strand, how: str, window: Window, op: Op, value: int) -> None:
        if isinstance(window.buffer, SymmetricBuffer):
            self.events.append(("access", strand, how, window, op, value))

    def watched(self, state: RankState, low: Lowering, op: Op, step: Step) -> Step:
        del state, low, op
        return step

    def begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        if strand.clock is None:
            strand.clock = {}  # submissions copy it
        self.events.append(("begin", strand, tuple(earlier)))

    def end(self, task: RankTask, parent: RankTask | None) -> None:
        self.events.append(("end", task, parent))

    def awaited(self, strand: Strand) -> None:
        self._awaited += 1
        strand.clock = {AWAITED: self._awaited}
        self.events.append(("awaited", strand, self._awaited))

    def complete(self, task: RankTask, cell: Window) -> None:
        self.events.append(("complete", task, cell))
