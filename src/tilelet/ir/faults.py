"""Run-time faults of ops, raised where no source location is known.

References and valid rules raise these; whoever runs the op knows its `loc` and raises
`fault.error(loc)` instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tilelet.diag.catalogue.ops import SortGeometry
from tilelet.diag.catalogue.windows import (
    DivisionByZero,
    IndexOutOfRange,
    ValidRegionLost,
    ValidShapeTooLarge,
)
from tilelet.diag.core import Loc, UserError


class Fault(Exception, ABC):  # noqa: N818 - the catalogue has the errors
    """An op got operands for which it is not defined."""

    @abstractmethod
    def error(self, loc: Loc) -> UserError:
        """Return the catalogue's message for this fault, at `loc`."""


class IndexFault(Fault):
    """An index read from a tile points outside its axis."""

    def __init__(self, op: str, axis: int, index: int, extent: int) -> None:
        super().__init__(f"`{op}`: index {index} outside axis {axis} of extent {extent}")
        self.op, self.axis, self.index, self.extent = op, axis, index, extent

    def error(self, loc: Loc) -> UserError:
        return IndexOutOfRange(loc, self.axis, self.index, self.extent, runtime=True)


class RegionFault(Fault):
    """The valid region of a result would be empty where a value is needed, or not a box."""

    def __init__(self, op: str, valid: Sequence[int], shape: Sequence[int]) -> None:
        super().__init__(f"`{op}` of an operand valid in {list(valid)} of {list(shape)}")
        self.op, self.valid, self.shape = op, tuple(valid), tuple(shape)

    def error(self, loc: Loc) -> UserError:
        return ValidRegionLost(loc, f"pl.{self.op}", self.valid, self.shape)


class ValidTooLargeFault(Fault):
    """A valid extent computed at run time is larger than its value."""

    def __init__(self, axis: int, valid: int, size: int) -> None:
        super().__init__(f"valid extent {valid} of axis {axis}, which has extent {size}")
        self.axis, self.valid, self.size = axis, valid, size

    def error(self, loc: Loc) -> UserError:
        return ValidShapeTooLarge(loc, self.axis, self.valid, self.size, runtime=True)


class DivisionFault(Fault):
    """An integer scalar is divided by zero."""

    def __init__(self, operator: str) -> None:
        super().__init__(f"integer `{operator}` by zero")
        self.operator = operator

    def error(self, loc: Loc) -> UserError:
        return DivisionByZero(loc, self.operator)


class SortFault(Fault):
    """A run length computed at run time does not fit the row."""

    def __init__(self, op: str, shape: Sequence[int], needs: str) -> None:
        super().__init__(f"`{op}` of {list(shape)}: it needs {needs}")
        self.op, self.shape, self.needs = op, tuple(shape), needs

    def error(self, loc: Loc) -> UserError:
        return SortGeometry(loc, f"pl.{self.op}", self.shape, self.needs)
