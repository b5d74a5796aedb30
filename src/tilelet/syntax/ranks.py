"""The enums of `pld`: what a notify does, what a wait compares, how a collective reduces."""

from __future__ import annotations

import enum

from tilelet.syntax.enums import AtomicType

__all__ = ["AtomicType", "NotifyOp", "ReduceOp", "WaitCmp"]


class NotifyOp(enum.Enum):
    """What `pld.system.notify` does to a cell of the peer."""

    AtomicAdd = 0
    Set = 1


class WaitCmp(enum.Enum):
    """What `pld.system.wait` waits for: the cell equals, or is at least, the expected value."""

    Eq = 0
    Ge = 1


class ReduceOp(enum.Enum):
    """How `pld.tensor.allreduce` combines the ranks' elements."""

    Sum = 0
    Max = 1
    Min = 2
    Prod = 3
