"""Dynamic dimensions: a symbol has one extent in all arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.catalogue.harness import DynamicDimConflict
from tilelet.ir.types import Dim, SymDim


class Extents:
    """Extents of the dynamic dimensions, as the arguments give them."""

    def __init__(self) -> None:
        self._known: dict[SymDim, tuple[str, int]] = {}

    def fits(self, name: str, got: Sequence[int], wanted: Sequence[Dim]) -> bool:
        """Whether the shape of argument `name` fits; a symbol takes the extent it meets first."""
        if len(got) != len(wanted):
            return False
        for extent, dim in zip(got, wanted):
            if isinstance(dim, SymDim):
                first, value = self._known.setdefault(dim, (name, extent))
                if value != extent:
                    raise DynamicDimConflict(dim.name, first, value, name, extent)
            elif dim != extent:
                return False
        return True

    def resolve(self, shape: Sequence[Dim]) -> tuple[int, ...] | None:
        """The shape in numbers; None if a symbol has no extent yet."""
        known = [self._known.get(d, ("", -1))[1] if isinstance(d, SymDim) else d for d in shape]
        return None if -1 in known else tuple(known)
