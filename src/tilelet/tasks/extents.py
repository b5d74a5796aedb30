"""Dynamic dimensions: a symbol has the same extent in all arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.catalogue.harness import DynamicDimConflict
from tilelet.ir.types import Dim, SymDim


class Extents:
    """Extents of the dynamic dimensions, taken from the arguments.

    others   arguments whose extent differs from that of the first argument with the same symbol; an
             error, unless `keeps_others` leaves it to the caller
    """

    def __init__(self, *, keeps_others: bool = False) -> None:
        self._known: dict[SymDim, tuple[str, int]] = {}
        self._keeps_others = keeps_others
        self.others: dict[str, DynamicDimConflict] = {}

    def fits(self, name: str, got: Sequence[int], wanted: Sequence[Dim]) -> bool:
        """Return whether the shape of argument `name` fits; symbols take the first extent."""
        if len(got) != len(wanted):
            return False
        for extent, dim in zip(got, wanted):
            if isinstance(dim, SymDim):
                first, value = self._known.setdefault(dim, (name, extent))
                if value != extent:
                    conflict = DynamicDimConflict(dim.name, first, value, name, extent)
                    if not self._keeps_others:
                        raise conflict
                    self.others.setdefault(name, conflict)
            elif dim != extent:
                return False
        return True

    def resolve(self, shape: Sequence[Dim]) -> tuple[int, ...] | None:
        """Return the shape in numbers, or None if a symbol has no extent yet."""
        known = [self._known.get(d, ("", -1))[1] if isinstance(d, SymDim) else d for d in shape]
        return None if -1 in known else tuple(known)
