"""Types of IR values.

A `TensorType` value lives in global memory (GM); a `TileType` value is on chip. Source text in
tensor style does not distinguish them: the frontend decides by the position of the op (see
docs/design.md, "GM or on chip"), so no later stage has to guess.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence

from tilelet import dtypes
from tilelet.dataclasses import dataclass
from tilelet.dtypes import DType


class Mem(enum.Enum):
    """On-chip memory spaces (`pl.Mem`, `pl.MemorySpace`)."""

    DDR = "DDR"
    Vec = "Vec"
    Mat = "Mat"
    Left = "Left"
    Right = "Right"
    Acc = "Acc"
    Bias = "Bias"
    # Scales of block-scaled operands are stored in the same buffer.
    LeftScale = "Left"  # noqa: PIE796
    RightScale = "Right"  # noqa: PIE796


@dataclass(frozen=True, eq=False)
class SymDim:
    """A dimension known only at run time; equal only to itself, whatever its name."""

    name: str

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __add__(self, other: int | SymDim) -> SymDim:
        return computed_dim("add", "+", self, other)

    def __sub__(self, other: int | SymDim) -> SymDim:
        return computed_dim("sub", "-", self, other)

    def __mul__(self, other: int | SymDim) -> SymDim:
        return computed_dim("mul", "*", self, other)

    def __floordiv__(self, other: int | SymDim) -> SymDim:
        return computed_dim("floordiv", "//", self, other)

    def __radd__(self, other: int) -> SymDim:
        return computed_dim("add", "+", self, other)

    def __rmul__(self, other: int) -> SymDim:
        return computed_dim("mul", "*", self, other)


@dataclass(frozen=True, eq=False)
class ComputedDim(SymDim):
    """A computed extent such as `M * 2`: a separate dimension that the body can also compute."""

    operation: str
    left: SymDim
    right: int | SymDim


class JoinedDim(SymDim):
    """The extent of a tensor that has different extents on two paths."""


@functools.cache
def computed_dim(operation: str, symbol: str, left: SymDim, right: int | SymDim) -> SymDim:
    """Intern a computed dimension, so that `M * 2` is the same dimension everywhere."""
    return ComputedDim(f"({left} {symbol} {right})", operation, left, right)


Dim = int | SymDim


def shape_text(shape: tuple[Dim, ...]) -> str:
    return "[" + ", ".join(str(d) for d in shape) + "]"


@dataclass(frozen=True, slots=True)
class TensorType:
    """An N-D array in GM, or a window of one."""

    shape: tuple[Dim, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"pl.Tensor[{shape_text(self.shape)}, {self.dtype}]"


@dataclass(frozen=True, slots=True)
class DistributedType(TensorType):
    """A view of a window buffer: memory that every rank of a domain has, and peers can address."""

    def __str__(self) -> str:
        return f"pld.DistributedTensor[{shape_text(self.shape)}, {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TileType:
    """An on-chip value; `space` is None until placement decides (tensor-style code)."""

    shape: tuple[int, ...]
    dtype: DType
    space: Mem | None = None

    def __str__(self) -> str:
        where = f", pl.Mem.{self.space.name}" if self.space else ""
        return f"pl.Tile[{shape_text(self.shape)}, {self.dtype}{where}]"


@dataclass(frozen=True, slots=True)
class ScalarType:
    dtype: DType

    def __str__(self) -> str:
        return f"pl.Scalar[{self.dtype}]"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A small array of scalars or task ids kept by the control program (`pl.array.create`)."""

    length: int
    dtype: DType

    def __str__(self) -> str:
        return f"pl.Array[{self.length}, {self.dtype}]"


Type = TensorType | TileType | ScalarType | ArrayType
ShapedType = TensorType | TileType

INDEX = ScalarType(dtypes.INDEX)
BOOL = ScalarType(dtypes.BOOL)
TASK_ID = ScalarType(dtypes.TASK_ID)


def with_shape(t: ShapedType, shape: tuple[Dim, ...], dtype: DType | None = None) -> ShapedType:
    """Return `t` with another shape (and dtype), staying in GM or on chip."""
    if isinstance(t, TensorType):
        return type(t)(shape, dtype or t.dtype)
    return TileType(shape, dtype or t.dtype, t.space)  # type: ignore[arg-type]


def dims_agree(a: Dim, b: Dim) -> bool:
    """Return whether two extents may be equal; symbols are compared at run time."""
    return a == b or isinstance(a, SymDim) or isinstance(b, SymDim)


def shapes_agree(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(map(dims_agree, a, b))


def types_agree(a: Type, b: Type) -> bool:
    """Return whether a value of one type can be used as the other.

    Run-time extents are compared when the program runs, and an unplaced tile may be in any space.
    """
    if isinstance(a, TileType) and isinstance(b, TileType):
        placed = a.space is b.space or a.space is None or b.space is None
        return placed and a.shape == b.shape and a.dtype is b.dtype
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype is b.dtype and shapes_agree(a.shape, b.shape)
    return a == b


def box(extent: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of the origin-anchored box of this extent: a valid region of an array."""
    return tuple([slice(0, n) for n in extent])
