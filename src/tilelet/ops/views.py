"""Views of data in another shape or type, and access to single elements."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadAxis,
    ReshapeCount,
    ShapeMismatch,
)
from tilelet.diag.catalogue.windows import IndexOutOfRange, WrongIndexCount
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Value
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    Plane,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import INDEX, Dim, ShapedType, TensorType, TileType, with_shape
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Int, Ints, Number, Shaped
from tilelet.ops.families import VECTOR
from tilelet.ops.valid import Args, Operands

if TYPE_CHECKING:
    from tilelet.syntax.types import Scalar, Tensor, Tile

__all__ = [
    "bitcast",
    "concat",
    "dim",
    "read",
    "reinterpret_view",
    "reshape",
    "transpose",
    "transpose_view",
    "write",
]


# --- other shapes --------------------------------------------------------------------------------


def _infer_reshape(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    in_scope = isinstance(x, TileType)
    shape = infer.constant_shape(call, "shape") if in_scope else infer.dims(call, "shape")
    before, after = infer.count_of(x.shape), infer.count_of(shape)
    if before is not None and after is not None and before != after:
        raise ReshapeCount(call.at("shape"), x.shape, before, shape, after)
    return (with_shape(x, shape),)


def _reshape(x: Array, shape: tuple[int, ...]) -> Array:
    return np.array(np.reshape(x, shape))


@op(
    infer=_infer_reshape,
    reference=_reshape,
    engine=Engine.NONE,
    plane=Plane.BOTH,
    on_chip=(),
    view="x",
    valid=valid.reshaped,
    traits=Trait.TILE_VIEW,
    moves=("x",),
)
def reshape(x: Shaped, shape: Ints) -> Shaped:
    """The same elements, in row-major order, in another shape.

    x: a tensor or tile; shape: the new extents, with the same product
    result: for a tensor a view of the same memory. A partially valid tile can be reshaped only if
        its valid region stays a box

    Example: `row = pl.reshape(col, [1, 16])`
    """
    ...


def has_no_tile(x: object) -> bool:
    """Return whether a value is a tensor that cannot be a tile, because an extent is dynamic."""
    if not isinstance(x, Value) or not isinstance(x.type, TensorType):
        return False
    return not all(isinstance(n, int) for n in x.type.shape)


def _infer_transpose(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    if call.in_scope and isinstance(x, TensorType) and not has_no_tile(call["x"]):
        infer.tile(call, "x")
    rank = len(x.shape)
    a, b = infer.axis(call, "axis1", rank), infer.axis(call, "axis2", rank)
    if a == b:
        raise BadAxis(call.at("axis2"), call.shown, call["axis2"], rank)
    shape = list(x.shape)
    shape[a], shape[b] = shape[b], shape[a]
    return (with_shape(x, tuple(shape)),)


def _transpose(x: Array, axis1: int, axis2: int) -> Array:
    return np.ascontiguousarray(np.swapaxes(x, axis1, axis2))


@op(
    infer=_infer_transpose,
    reference=_transpose,
    engine=Engine.VEC,
    plane=Plane.BOTH,
    on_chip=("x",),
    view="x",
    valid=valid.transposed,
    cost=Cost.TRANSPOSE,
    moves=("x",),
)
def transpose(x: Shaped, axis1: int, axis2: int) -> Shaped:
    """Swap two axes.

    x: a tensor or tile; axis1, axis2: different axes, negative ones count from the end
    result: in the control program a view; inside a scope the data is moved, for a tensor only in
        the windows taken of the result. For operands of `pl.matmul`, `a_trans=` and `b_trans=` are
        free

    Example: `xt = pl.transpose(x, 0, 1)`
    """
    ...


def _infer_transpose_view(call: Call) -> infer.Types:
    tile = infer.tile(call, "x")
    infer.at_least_2d(call, "x", tile)
    return (with_shape(tile, (*tile.shape[:-2], tile.shape[-1], tile.shape[-2])),)


def _valid_transpose_view(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    region = operands["x"][1]
    return (*region[:-2], region[-1], region[-2])


def _transpose_view(x: Array) -> Array:
    return _transpose(x, -2, -1)


@op(
    infer=_infer_transpose_view,
    reference=_transpose_view,
    engine=Engine.NONE,
    plane=Plane.SCOPE,
    valid=_valid_transpose_view,
    era="HEAD",
    traits=Trait.TILE_VIEW | Trait.ANY_MEMORY,
    moves=("x",),
)
def transpose_view(x: Shaped) -> Shaped:
    """Swap the last two axes of a tile without moving data, by reinterpreting its layout.

    x: a tile, usually in `pl.Mem.Mat`, so that one load serves a product and its transpose
    result: the transposed tile in the same memory

    Example: `scores = pl.matmul(q, pl.tile.transpose_view(k))`
    """
    ...


def _infer_concat(call: Call) -> infer.Types:
    a, b = infer.tile(call, "src0"), infer.tile(call, "src1")
    infer.check_rank(call, "src0", len(a.shape), 2)
    infer.check_rank(call, "src1", len(b.shape), 2)
    infer.same_dtype(call, "src0", a.dtype, "src1", b.dtype)
    if a.shape[0] != b.shape[0]:
        why = "tiles are joined along columns: their rows must be equal"
        raise ShapeMismatch(call.shown, call.at("src0"), a.shape, call.at("src1"), b.shape, why)
    space = infer.vector_space(call, "src0", "src1")
    return (TileType((a.shape[0], a.shape[1] + b.shape[1]), a.dtype, space),)


def _concat(src0: Array, src1: Array) -> Array:
    return np.concatenate([src0, src1], axis=1)


@op(
    infer=_infer_concat,
    reference=_concat,
    family=VECTOR,
    valid=valid.side_by_side,
    cost=Cost.COPY,
    moves=("src0", "src1"),
)
def concat(src0: Shaped, src1: Shaped) -> Shaped:
    """Two tiles side by side, joined along columns.

    src0, src1: `[M, N0]` and `[M, N1]` of one dtype
    result: `[M, N0 + N1]`

    Example: `both = pl.concat(lo, hi)`
    """
    ...


def _infer_reinterpret(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    dtype = infer.dtype(call, "dtype")
    if dtype is dtypes.TASK_ID:
        raise infer.bad(call, "dtype", "an element type of data")
    row = x.shape[-1]
    natural: tuple[Dim, ...] = x.shape
    if dtype.itemsize != x.dtype.itemsize:
        if not isinstance(row, int) or row * x.dtype.itemsize % dtype.itemsize:
            raise infer.bad(
                call, "dtype", f"one of which rows of {row} {x.dtype} hold a whole number"
            )
        natural = (*x.shape[:-1], row * x.dtype.itemsize // dtype.itemsize)
    if call["shape"] is None:
        return (with_shape(x, natural, dtype),)
    in_scope = isinstance(x, TileType)
    shape = infer.constant_shape(call, "shape") if in_scope else infer.dims(call, "shape")
    before, after = infer.count_of(natural), infer.count_of(shape)
    if before is not None and after is not None and before != after:
        raise ReshapeCount(call.at("shape"), natural, before, shape, after)
    return (with_shape(x, shape, dtype),)


def _reinterpret(x: Array, dtype: DType, shape: tuple[int, ...] | None) -> Array:
    same_bytes = np.frombuffer(x.tobytes(), dtype.numpy)
    natural = (*x.shape[:-1], x.shape[-1] * x.itemsize // dtype.itemsize)
    return np.array(np.reshape(same_bytes, natural if shape is None else shape))


def _valid_reinterpreted(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, region = operands["x"]
    if region == shape:
        return result_shape
    old_size, new_size = shape[-1], result_shape[-1]
    if args["shape"] is None and region[-1] * new_size % old_size == 0:
        return (*region[:-1], region[-1] * new_size // old_size)
    raise valid.RegionFault("reinterpret_view", region, shape)


@op(
    infer=_infer_reinterpret,
    reference=_reinterpret,
    engine=Engine.NONE,
    plane=Plane.BOTH,
    on_chip=(),
    view="x",
    valid=_valid_reinterpreted,
    era="HEAD",
    traits=Trait.TILE_VIEW,
    moves=("x",),
)
def reinterpret_view(x: Shaped, dtype: DType, *, shape: Ints | None = None) -> Shaped:
    """The same bytes as elements of another type; nothing is converted.

    x: a tensor or tile; dtype: the new element type
    shape: the new extents; default x's, the last one scaled by the ratio of the element sizes
    result: for a tensor a view of the same memory

    Example: `bits = pl.reinterpret_view(x, pl.INT32)`
    """
    ...


@composition(engine=Engine.NONE, plane=Plane.BOTH, on_chip=(), era="HEAD")
def bitcast(x: Shaped, dtype: DType) -> Shaped:
    """Another name of `pl.reinterpret_view`: the same bits as elements of another type.

    x: a tensor or tile; dtype: the new element type
    result: x's shape, its last extent scaled by the ratio of the element sizes

    Example: `bits = pl.tile.bitcast(x, pl.INT32)`
    """
    return reinterpret_view(x, dtype)


# --- single elements -----------------------------------------------------------------------------


def _check_index(call: Call, x: ShapedType) -> None:
    entries = infer.items(call, "indices")
    if len(entries) != len(x.shape):
        raise WrongIndexCount(
            call.at("indices"), infer.name_of(call, "x") or "x", len(entries), len(x.shape)
        )
    for axis, (entry, extent) in enumerate(zip(entries, x.shape)):
        index = infer.int_of(entry)
        if index is not None and (index < 0 or (isinstance(extent, int) and index >= extent)):
            raise IndexOutOfRange(call.at("indices"), axis, index, extent, infer.name_of(call, "x"))


def _infer_read(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    _check_index(call, x)
    return (infer.scalar_type(x.dtype),)


@op(
    infer=_infer_read,
    engine=Engine.SCALAR,
    plane=Plane.BOTH,
    traits=Trait.NUMBER | Trait.CHECKED,
)
def read(x: Tensor | Tile, indices: Ints | Int) -> Scalar:
    """One element as a scalar.

    x: a tensor or tile; indices: one per axis (a bare number for a 1-D tensor)
    result: a scalar of x's dtype. In the control program this waits for the task that writes it

    Example: `n = pl.read(seq_lens, [b])`
    """
    ...


def _infer_write(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    _check_index(call, x)
    given = infer.scalar(call, "value")
    if infer.constant_of(call["value"]) is not None and not isinstance(call["value"], Value):
        infer.fitting_scalar(call, "value", "x", x.dtype)
    else:
        hint = f"cast it first: `pl.cast(..., {x.dtype})`"
        infer.same_dtype(call, "value", given, "x", x.dtype, hint)
    return (x,)


@op(infer=_infer_write, engine=Engine.SCALAR, plane=Plane.BOTH, writes=("x",))
def write(x: Shaped, indices: Ints | Int, value: Number) -> Shaped:
    """Write one element.

    x: a tensor, written in place, or a tile; indices: one per axis (a bare number for a 1-D tensor)
    value: a number; a run-time one must have x's dtype
    result: x with the element changed; a call used as a statement rebinds the name

    Example: `pl.write(out, [row, 0], total)`
    """
    ...


def _infer_dim(call: Call) -> infer.Types:
    t = infer.shaped_type(call, "tensor")
    infer.axis(call, "axis", len(t.shape))
    return (INDEX,)


@op(
    infer=_infer_dim,
    name="tensor.dim",
    engine=Engine.SCALAR,
    plane=Plane.BOTH,
    traits=Trait.SHAPE_ONLY | Trait.NUMBER,
)
def dim(tensor: Tensor | Tile, axis: int) -> Scalar:
    """The extent of an axis, as a scalar.

    tensor: a tensor; axis: constant, negative ones count from the end
    result: INDEX

    Example: `tokens = pl.tensor.dim(x, 0)`
    """
    ...
