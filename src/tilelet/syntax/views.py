"""Parts of annotations beyond shape and dtype: layouts, valid regions, places in memory.

`pl.TileView` and `pl.TensorView` describe what the program text does anyway, and `pl.MemRef` says
where a device keeps a tile. Results do not depend on them, with one exception: the annotation of a
tile popped from another core states its valid region.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tilelet.dataclasses import dataclass
from tilelet.syntax.enums import PadValue, TensorLayout

AUTO = -1  # an address chosen by the compiler


class TileLayout(enum.Enum):
    """The layout of a tile in on-chip memory."""

    none_box = "none_box"
    row_major = "row_major"
    col_major = "col_major"


class CompactMode(enum.Enum):
    """Whether a partial tile is stored without gaps in on-chip memory."""

    null = "null"
    normal = "normal"


@dataclass(frozen=True)
class TensorView:
    """The third part of `pl.Tensor[shape, dtype, pl.TensorView(...)]`."""

    stride: Sequence[Any] = ()
    layout: TensorLayout = TensorLayout.ND
    valid_shape: Sequence[Any] = ()
    pad: PadValue = PadValue.null


@dataclass(frozen=True)
class TileView:
    """A part of `pl.Tile[shape, dtype, pl.Mem.Vec, pl.TileView(...)]`."""

    valid_shape: Sequence[Any] | None = None
    stride: Sequence[Any] | None = None
    start_offset: Any = None
    blayout: TileLayout = TileLayout.row_major
    slayout: TileLayout = TileLayout.none_box
    fractal: int = 512
    pad: PadValue = PadValue.null
    compact: CompactMode = CompactMode.null


class MemRef:
    """Where a tile is kept: `pl.Tile[shape, dtype, pl.MemRef("name", slots=2)[i % 2], pl.Mem.Vec]`.

    Accepted in annotations; `tilelet check` places tiles by its own plan.
    """

    def __init__(
        self,
        base: Any = None,
        byte_offset: Any = 0,
        size: int = 0,
        *,
        slots: int = 1,
        **_: object,
    ) -> None:
        self.base, self.byte_offset, self.size, self.slots = base, byte_offset, size, slots

    def __getitem__(self, slot: object) -> MemRef:
        return self


class Ptr:
    """The type of an address in printed programs: `base: pl.Ptr`. No value of it exists here."""


class MemRefType:
    """The type of a `pl.MemRef` in printed programs."""


# They accept run-time values, but return compile-time objects.
IN_ANNOTATIONS: tuple[object, ...] = (TensorView, TileView, MemRef)
