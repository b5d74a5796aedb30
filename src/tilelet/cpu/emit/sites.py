"""Fault sites of generated code, and the catalogue's errors for them.

Generated code identifies a site by number; a fault returns its kind (see `rt.h`) and some numbers.
The errors are those that the interpreter raises.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.harness import TooBig
from tilelet.diag.catalogue.ops import ReshapeCount
from tilelet.diag.catalogue.scopes import ZeroStep
from tilelet.diag.catalogue.windows import (
    BlockCount,
    DivisionByZero,
    ExtentNotPositive,
    IndexOutOfRange,
    ReshapeNeedsCopy,
    ValidShapeTooLarge,
    WindowOutOfRange,
)
from tilelet.diag.core import Loc, UserError
from tilelet.diag.internal import InternalError
from tilelet.ir.faults import RegionFault

(
    OK, STOPPED, WINDOW, VALID, INDEX, REGION, DIVISION, BLOCKS, STEP, EXTENT, COUNT, COPY,
    RECAST, MEMORY, HOST,
) = range(15)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A fault site: source location, op, and the name of its operand."""

    loc: Loc
    op: str
    name: str = ""


class Sites:
    """The fault sites of one program, in order of creation."""

    def __init__(self) -> None:
        self._numbers: dict[Site, int] = {}

    def number(self, loc: Loc, op: str, name: str = "") -> int:
        return self._numbers.setdefault(Site(loc, op, name), len(self._numbers))

    def all(self) -> list[Site]:
        return list(self._numbers)


def error_of(
    kind: int, site: Site, n: Sequence[int], made: Loc | None = None
) -> UserError | InternalError:
    """Return the error for the user; `made`: where the program creates the tensor."""
    loc, name = site.loc, site.name
    if kind == WINDOW:
        clamps = site.op in ("slice", "load")
        axis, start, size, extent, whole = n[:5]
        return WindowOutOfRange(
            loc,
            axis,
            start,
            size,
            extent,
            name,
            runtime=True,
            clamps=clamps,
            made=made,
            whole=whole,
        )
    if kind == VALID:
        return ValidShapeTooLarge(loc, n[0], n[1], n[2], runtime=True)
    if kind == INDEX:
        return IndexOutOfRange(loc, n[0], n[1], n[2], name, runtime=True)
    if kind == REGION:
        rank = n[0]
        return RegionFault(name, n[1 : 1 + rank], n[1 + rank : 1 + 2 * rank]).error(loc)
    if kind == DIVISION:
        return DivisionByZero(loc, name)
    if kind == BLOCKS:
        return BlockCount(loc, n[0])
    if kind == STEP:
        return ZeroStep(loc)
    if kind == EXTENT:
        return ExtentNotPositive(loc, site.op, n[2 : 2 + n[0]], n[1])
    if kind in (COUNT, COPY, RECAST):
        old, new = tuple(n[2 : 2 + n[0]]), tuple(n[2 + n[0] : 2 + n[0] + n[1]])
        return _reshape_error(kind, site, old, new)
    if kind == MEMORY:
        return TooBig(name, n[0], max(n[1], 0), loc)
    return InternalError(f"unknown fault {kind} in compiled code", op=site.op, loc=loc)


def _reshape_error(kind: int, site: Site, old: tuple[int, ...], new: tuple[int, ...]) -> UserError:
    if kind != COUNT:
        return ReshapeNeedsCopy(site.loc, site.name, old, new, is_recast=kind == RECAST)
    before = after = 1
    for extent in old:
        before *= extent
    for extent in new:
        after *= extent
    return ReshapeCount(site.loc, old, before, new, after)
