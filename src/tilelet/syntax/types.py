"""Types in kernel signatures: `pl.Tensor[[16, 128], pl.BF16]` and its like.

The classes are names for editors and type checkers; kernels are parsed, so no value of them ever
exists. Subscripting one gives an annotation object, which is plain data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from tilelet.dataclasses import dataclass
from tilelet.dtypes import DType
from tilelet.ir.core import Direction, Value
from tilelet.ir.types import Dim, Mem, SymDim
from tilelet.syntax.enums import TensorLayout
from tilelet.syntax.views import MemRef, TensorView, TileView

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


@dataclass(frozen=True)
class TensorAnnotation:
    """`pl.Tensor[shape, dtype]`; a layout or a `pl.TensorView` may follow."""

    shape: tuple[Dim, ...]
    dtype: DType
    layout: TensorLayout = TensorLayout.ND


@dataclass(frozen=True)
class DistributedAnnotation(TensorAnnotation):
    """`pld.DistributedTensor[shape, dtype]`."""


@dataclass(frozen=True)
class TileAnnotation:
    """`pl.Tile[shape, dtype]`; a memory space, a `pl.TileView` and a `pl.MemRef` may follow."""

    shape: tuple[Dim, ...]
    dtype: DType
    space: Mem | None = None
    view: TileView | None = None


@dataclass(frozen=True)
class ScalarAnnotation:
    """`pl.Scalar[dtype]`."""

    dtype: DType


@dataclass(frozen=True)
class ArrayAnnotation:
    """`pl.Array[length, dtype]`."""

    length: int
    dtype: DType


@dataclass(frozen=True)
class DirectionAnnotation:
    """`pl.Out[...]` or `pl.InOut[...]` around another annotation (or around plain `pl.Tensor`)."""

    inner: Any
    direction: Direction


def _parts(item: object, name: str, least: int, most: int) -> list[Any]:
    parts: list[object] = [*item] if isinstance(item, tuple) else [item]
    if not least <= len(parts) <= most:
        raise TypeError(f"pl.{name}[...] takes {least} to {most} parts, got {len(parts)}")
    return parts


def _shape(shape: object, name: str) -> tuple[Dim, ...]:
    if not isinstance(shape, (list, tuple)):
        raise TypeError(f"the shape in pl.{name}[shape, dtype] is a list, not {shape!r}")
    entries = cast("Sequence[Any]", shape)
    for extent in entries:
        if isinstance(extent, (SymDim, Value)):
            continue
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"an extent in pl.{name}[...] is an int or pl.dynamic, not {extent!r}")
    return tuple(_extent(d) for d in entries)


def _extent(d: Any) -> Dim:
    """Return an extent; one computed in a body is symbolic, like a `pl.dynamic`."""
    if isinstance(d, Value):
        return SymDim(d.name)
    return d if isinstance(d, SymDim) else d.__index__()


def _dtype(dtype: object, name: str) -> DType:
    if not isinstance(dtype, DType):
        raise TypeError(f"pl.{name}[...] needs an element type such as pl.FP32, not {dtype!r}")
    return dtype


class _Operators:
    """Python operators between kernel values; elementwise on tensors and tiles."""

    if TYPE_CHECKING:

        def __add__(self, other: object) -> Self: ...
        def __radd__(self, other: object) -> Self: ...
        def __sub__(self, other: object) -> Self: ...
        def __rsub__(self, other: object) -> Self: ...
        def __mul__(self, other: object) -> Self: ...
        def __rmul__(self, other: object) -> Self: ...
        def __truediv__(self, other: object) -> Self: ...
        def __rtruediv__(self, other: object) -> Self: ...
        def __neg__(self) -> Self: ...


class _Shaped(_Operators):
    """The common interface of tensors and tiles."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[Any, ...]:
            """The extents: Python ints, or scalars where they are known only at run time."""
            ...

        @property
        def dtype(self) -> DType:
            """The element type."""
            ...

        def __getitem__(self, window: object) -> Self: ...
        def __setitem__(self, window: object, source: object) -> None: ...
        def reshape(self, shape: object) -> Self:
            """`pl.reshape(self, shape)`."""
            ...

        def transpose(self, axis1: int, axis2: int) -> Self:
            """`pl.transpose(self, axis1, axis2)`."""
            ...


def _tensor_parts(item: object, name: str) -> tuple[tuple[Dim, ...], DType, TensorLayout]:
    """Return shape, element type and layout of a tensor annotation."""
    parts = _parts(item, name, 2, 4)
    layout = TensorLayout.ND
    for part in parts[2:]:
        if isinstance(part, TensorLayout):
            layout = part
        elif isinstance(part, TensorView):
            layout = part.layout
        elif not isinstance(part, MemRef):
            raise TypeError(f"the third part of pl.{name}[...] is a layout, not {part!r}")
    return _shape(parts[0], name), _dtype(parts[1], name), layout


class Tensor(_Shaped):
    """An N-D array in global memory: `pl.Tensor[[16, 128], pl.BF16]`.

    Extents are ints, captured ints, or `pl.dynamic("M")`; a third part is the layout. A `@pl.jit`
    function may write plain `pl.Tensor` and takes shape and dtype from its argument.
    """

    def __class_getitem__(cls, item: object) -> TensorAnnotation:
        return TensorAnnotation(*_tensor_parts(item, "Tensor"))

    if TYPE_CHECKING:

        def bind_dynamic(self, axis: int, symbol: SymDim) -> None:
            """In a `@pl.jit` body: from here on `symbol` is the extent of that axis."""
            ...


class DistributedTensor(Tensor):
    """A view of a window buffer: `pld.DistributedTensor[[4, 128], pl.FP32]`.

    Loads and stores touch the own rank's slice; remote ops name a peer.
    """

    def __class_getitem__(cls, item: object) -> DistributedAnnotation:
        return DistributedAnnotation(*_tensor_parts(item, "DistributedTensor"))


class Tile(_Shaped):
    """An on-chip value: `pl.Tile[[16, 128], pl.FP32]`, or with its memory as a third part.

    A `pl.TileView` and a `pl.MemRef` may follow, in any order.
    """

    def __class_getitem__(cls, item: object) -> TileAnnotation:
        parts = _parts(item, "Tile", 2, 5)
        space: Mem | None = None
        view: TileView | None = None
        for part in parts[2:]:
            if isinstance(part, Mem):
                space = part
            elif isinstance(part, TileView):
                view = part
            elif not isinstance(part, MemRef):
                raise TypeError(f"the third part of pl.Tile[...] is a pl.Mem, not {part!r}")
        return TileAnnotation(_shape(parts[0], "Tile"), _dtype(parts[1], "Tile"), space, view)


class Scalar(_Operators):
    """A number passed by value: `pl.Scalar[pl.INT32]`."""

    def __class_getitem__(cls, item: object) -> ScalarAnnotation:
        return ScalarAnnotation(_dtype(item, "Scalar"))

    if TYPE_CHECKING:

        def __floordiv__(self, other: object) -> Scalar: ...
        def __rfloordiv__(self, other: object) -> Scalar: ...
        def __mod__(self, other: object) -> Scalar: ...
        def __rmod__(self, other: object) -> Scalar: ...
        def __lshift__(self, other: object) -> Scalar: ...
        def __rshift__(self, other: object) -> Scalar: ...
        def __invert__(self) -> Scalar: ...
        def __lt__(self, other: object) -> bool: ...
        def __le__(self, other: object) -> bool: ...
        def __gt__(self, other: object) -> bool: ...
        def __ge__(self, other: object) -> bool: ...
        def __index__(self) -> int: ...


class Array:
    """A small array kept by the control program: `pl.Array[8, pl.TASK_ID]`."""

    def __class_getitem__(cls, item: object) -> ArrayAnnotation:
        length, dtype = _parts(item, "Array", 2, 2)
        return ArrayAnnotation(int(length), _dtype(dtype, "Array"))

    if TYPE_CHECKING:

        def __getitem__(self, index: object) -> Any: ...
        def __setitem__(self, index: object, value: object) -> None: ...


class CommCtx:
    """The result of `pld.get_comm_ctx`: the communication domain of a window."""


class PrefetchAsyncContext:
    """The result of `pl.prefetch.make_context`."""


class AsyncEvent:
    """The result of `pl.prefetch.async_prefetch`."""


class AsyncSession:
    """The result of `pl.prefetch.session`."""


class _Runtime:
    """`pl.RUNTIME`: a number that is passed when the program runs, not when it is compiled."""

    def __repr__(self) -> str:
        return "pl.RUNTIME"


RUNTIME = _Runtime()
IntLike = int | Scalar
"""An extent or an offset: a Python int, or a scalar of the kernel."""

if TYPE_CHECKING:
    # For type checkers, `Out[X]` is `X`, and a plain `Out` is a tensor.
    Out = Annotated[T, Direction.Out]
    """A parameter that the kernel only writes: `pl.Out[pl.Tensor[[16, 128], pl.FP32]]`."""

    InOut = Annotated[T, Direction.InOut]
    """A parameter that the kernel reads and writes: `pl.InOut[pl.Tensor[...]]`."""

    Tuple = tuple

else:

    class Out:
        """A parameter that the kernel only writes: `pl.Out[pl.Tensor[[16, 128], pl.FP32]]`."""

        def __class_getitem__(cls, item: object) -> DirectionAnnotation:
            return DirectionAnnotation(item, Direction.Out)

    class InOut:
        """A parameter that the kernel reads and writes: `pl.InOut[pl.Tensor[...]]`."""

        def __class_getitem__(cls, item: object) -> DirectionAnnotation:
            return DirectionAnnotation(item, Direction.InOut)

    Tuple = tuple
