"""Requests of strands to the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc
from tilelet.syntax.ranks import WaitCmp
from tilelet.tasks.window import Window


@dataclass(frozen=True, slots=True)
class Condition:
    """A cell of the rank's own slice, and the value that a wait expects.

    signal  the view that the wait names; None: in a collective
    """

    cell: Window
    expected: int
    cmp: WaitCmp
    signal: Window | None = None

    @property
    def value(self) -> int:
        return int(self.cell.array.item())

    @property
    def holds(self) -> bool:
        if self.cmp is WaitCmp.Eq:
            return self.value == self.expected
        return self.value >= self.expected


_HOLDS = attrgetter("holds")


@dataclass(frozen=True, slots=True)
class Request:
    """A point at which another strand may run first.

    op          the statement, as the program writes it
    conditions  of a wait: all must hold
    ready       of a control program that needs results of tasks: whether they are available
    polled      the cell that a `while` loop reads until it changes
    """

    op: str
    loc: Loc
    conditions: Sequence[Condition] = ()
    ready: Callable[[], bool] | None = None
    polled: Window | None = None

    @property
    def holds(self) -> bool:
        if self.ready is not None:
            return self.ready()
        return all(map(_HOLDS, self.conditions))
