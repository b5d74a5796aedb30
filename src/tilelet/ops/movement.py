"""Moving and re-shaping data: windows, stores, views, single elements.

In the control program a window of a tensor is a view of the same memory; inside a scope taking it
loads a tile, and assembling into a tensor stores to it. docs/design.md has the table.
"""

# The dots say that a body is empty on purpose: an op is its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadAxis,
    BadChoice,
    DTypeMismatch,
    DuplicateArgument,
    RankMismatch,
    ReshapeCount,
    ShapeMismatch,
    WrongMemorySpace,
)
from tilelet.diag.catalogue.scopes import OnlyInScope
from tilelet.diag.catalogue.windows import IndexOutOfRange, WindowOutOfRange, WrongIndexCount
from tilelet.dtypes import BF16, FP16, FP32, DType
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    Plane,
    SeedRegion,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import INDEX, Dim, Mem, ShapedType, TensorType, TileType, with_shape
from tilelet.numerics.casts import Array
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Int, Ints, Number, Shaped
from tilelet.ops.padding import check_pad, check_valid_extent, padded
from tilelet.ops.valid import Args, Operands
from tilelet.syntax.enums import AtomicType, PadValue

if TYPE_CHECKING:
    from tilelet.syntax.types import Scalar, Tensor, Tile

__all__ = [
    "assemble",
    "concat",
    "dim",
    "extract",
    "gather_row",
    "load",
    "move",
    "read",
    "reinterpret_view",
    "reshape",
    "slice",
    "store",
    "transpose",
    "transpose_view",
    "write",
]

_span = builtins.slice  # `slice` is an op here


# --- windows -------------------------------------------------------------------------------------


def _name(call: Call, param: str) -> str:
    arg = call[param]
    return arg.name if isinstance(arg, Value) else ""


def check_window(
    call: Call,
    param: str,
    name: str,
    starts: Sequence[Arg],
    sizes: Sequence[object],
    extents: Sequence[Dim],
    clamps: bool = False,
) -> None:
    """A window that is certainly outside its tensor is an error at compile time."""
    for axis, (start, size, extent) in enumerate(zip(starts, sizes, extents)):
        first = infer.int_of(start)
        length = size if isinstance(size, int) else 0
        negative = first is not None and first < 0
        if negative or (isinstance(extent, int) and (first or 0) + length > extent):
            shown = start.name if isinstance(start, Value) else first
            raise WindowOutOfRange(
                call.at(param), axis, shown, length or 1, extent, name, clamps=clamps
            )


def _rank_of_list(call: Call, param: str, entries: Sequence[object], rank: int) -> None:
    if len(entries) != rank:
        raise RankMismatch(call.at(param), call.shown, f"`{param}`", len(entries), rank)


def _window(
    call: Call, x: str, t: ShapedType, offset: str, shape: str, valid_shape: str
) -> tuple[Dim, ...]:
    """Check a window given by offset, shape and valid shape; its shape."""
    sizes = infer.result_shape(call, shape)
    _rank_of_list(call, shape, sizes, len(t.shape))
    starts = infer.items(call, offset)
    _rank_of_list(call, offset, starts, len(t.shape))
    taken: Sequence[object] = sizes
    if call[valid_shape] is not None:
        limits = infer.items(call, valid_shape)
        _rank_of_list(call, valid_shape, limits, len(t.shape))
        for axis, (limit, size) in enumerate(zip(limits, sizes)):
            check_valid_extent(call, valid_shape, axis, limit, size)
        # Only the valid part is read; the rest of the window may lie outside the tensor.
        taken = [infer.int_of(limit) for limit in limits]
    if not infer.flag(call, "clamp"):
        check_window(call, offset, _name(call, x), starts, taken, t.shape, clamps=True)
    elif any((infer.int_of(start) or 0) < 0 for start in starts):
        check_window(call, offset, _name(call, x), starts, [1] * len(starts), t.shape)
    return sizes


def _dropped(call: Call, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape without the axes of `drop_dims`, which must have extent 1."""
    if call["drop_dims"] is None:
        return shape
    rank, axes = len(shape), set[int]()
    for entry in infer.items(call, "drop_dims"):
        axis = infer.int_of(entry)
        if axis is None or not -rank <= axis < rank or axis % rank in axes:
            raise BadAxis(call.at("drop_dims"), call.shown, axis, rank)
        if shape[axis] != 1:
            raise infer.bad(call, "drop_dims", f"axes of extent 1; axis {axis} has {shape[axis]}")
        axes.add(axis % rank)
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _infer_slice(call: Call) -> infer.Types:
    x = infer.shaped(call, "x")
    shape = _dropped(call, _window(call, "x", x, "offset", "shape", "valid_shape"))
    if call["pad_value"] is not None:
        check_pad(call, "pad_value")
        if not call.in_scope:
            raise OnlyInScope(call.at("pad_value"), "pad_value of slice")
    if not shape:
        raise RankMismatch(call.at("drop_dims"), call.shown, "the result", 0, "1 or more")
    if isinstance(x, TensorType) and call.in_scope:
        return (TileType(tuple(d for d in shape if isinstance(d, int)), x.dtype),)
    return (with_shape(x, shape),)


def _kept_axes(args: Args, rank: int) -> list[int]:
    dropped = args["drop_dims"]
    axes: tuple[int, ...] = () if dropped is None else infer.as_tuple(dropped)
    return [i for i in range(rank) if i not in {axis % rank for axis in axes}]


def window_region(x_valid: Valid, args: Args) -> Valid:
    """The valid region of `slice`'s window, before axes are dropped or padding is filled."""
    shape, offset = tuple(args["shape"]), tuple(args["offset"])
    seen = valid.window(x_valid, offset, shape)
    if args["valid_shape"] is None:
        return seen
    return tuple(map(min, seen, valid.given(args["valid_shape"], shape)))


def _valid_slice(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    if args["pad_value"] is not None:
        return result_shape
    region = window_region(operands["x"][1], args)
    return tuple(region[i] for i in _kept_axes(args, len(region)))


def _slice(x: Array, valid: dict[str, Valid], **args: Any) -> Array:
    shape, offset = tuple(args["shape"]), tuple(args["offset"])
    region = window_region(valid["x"], args)
    result = np.zeros(shape, x.dtype)
    inside = tuple(_span(0, v) for v in region)
    result[inside] = x[tuple(_span(o, o + v) for o, v in zip(offset, region))]
    if args["pad_value"] is not None:
        result = padded(result, region, args["pad_value"])
    return np.reshape(result, [shape[i] for i in _kept_axes(args, len(shape))])


@op(
    infer=_infer_slice,
    reference=_slice,
    takes_valid=True,
    engine=Engine.MTE,
    plane=Plane.BOTH,
    on_chip=(),
    view="x",
    valid=_valid_slice,
    traits=Trait.LOAD | Trait.CHECKED,
    seed_region=SeedRegion.TRACKED,
    cost=Cost.COPY,
)
def slice(
    x: Shaped,
    shape: Ints,
    offset: Ints,
    valid_shape: Ints | None = None,
    *,
    drop_dims: Ints | None = None,
    pad_value: PadValue | float | None = None,
    clamp: bool = False,
) -> Shaped:
    """A window of a tensor or tile. Mind the order: shape first, then offset.

    x: a tensor or tile
    shape: extents of the window, one per axis; constants inside a scope
    offset: where it starts, one per axis, constant or not
    valid_shape: how much of the window holds data, counted from its own start; only that is read
    drop_dims: axes of extent 1 to leave out of the result
    pad_value: fill the rest of the window, as `pl.fillpad` does (inside a scope)
    clamp: the window may reach past the edge; what is outside is not valid
    result: the control program gets a view of the same memory; inside a scope a tensor's window is
        loaded into a tile, zero outside the valid part

    Example: `tile = pl.slice(x, [16, 128], [b0, k0], valid_shape=[rows, 128])`
    """
    ...


# --- tile-level loads and stores -----------------------------------------------------------------


def _infer_load(call: Call) -> infer.Types:
    tensor = infer.tensor(call, "tensor")
    if call["valid_shapes"] is not None and call["valid_shape"] is not None:
        raise DuplicateArgument(call.at("valid_shape"), call.shown, "valid_shape")
    limit = "valid_shapes" if call["valid_shapes"] is not None else "valid_shape"
    shape = _window(call, "tensor", tensor, "offsets", "shapes", limit)
    sizes = tuple(d for d in shape if isinstance(d, int))
    space = call["target_memory"]
    if space not in (Mem.Vec, Mem.Mat):
        if not isinstance(space, Mem):
            raise infer.bad(call, "target_memory", "`pl.Mem.Vec` or `pl.Mem.Mat`")
        raise WrongMemorySpace(
            call.at("target_memory"),
            call.shown,
            "target_memory",
            space.name,
            ["Vec", "Mat"],
            "load to Mat, then `pl.move`",
        )
    if infer.flag(call, "transpose"):
        infer.at_least_2d(call, "tensor", tensor)
        if space is not Mem.Mat:
            expected = "False unless the target memory is `pl.Mem.Mat`"
            raise BadArgument(call.at("transpose"), call.shown, "transpose", "True", expected)
        sizes = (*sizes[:-2], sizes[-1], sizes[-2])
    return (TileType(sizes, tensor.dtype, space),)


def _valid_load(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    region = operands["tensor"][1]
    taken = tuple(args["shapes"])
    seen = valid.window(region, tuple(args["offsets"]), taken)
    limit = args["valid_shapes"] if args["valid_shapes"] is not None else args["valid_shape"]
    if limit is not None:
        seen = tuple(map(min, seen, valid.given(limit, taken)))
    return (*seen[:-2], seen[-1], seen[-2]) if args["transpose"] else seen


@op(
    infer=_infer_load,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    valid=_valid_load,
    traits=Trait.LOAD | Trait.CHECKED,
    seed_region=SeedRegion.TRACKED,
)
def load(
    tensor: Tensor,
    offsets: Ints,
    shapes: Ints,
    target_memory: Mem = Mem.Vec,
    valid_shapes: Ints | None = None,
    transpose: bool = False,
    valid_shape: Ints | None = None,
    clamp: bool = False,
) -> Tile:
    """Load a window of a tensor into a tile. Mind the order: offsets first, then shapes.

    tensor: in global memory; offsets: where the window starts; shapes: its extents, constants
    target_memory: `pl.Mem.Vec`, or `pl.Mem.Mat` for operands of the cube unit
    valid_shapes, valid_shape: (two spellings) how much of the window holds data
    transpose: swap the last two axes on the way (only to Mat)
    clamp: the window may reach past the edge; what is outside is not valid
    result: a tile in that memory, zero outside the valid part

    Example: `a = pl.load(x, [0, k0], [16, 128], target_memory=pl.Mem.Mat)`
    """
    ...


def _infer_move(call: Call) -> infer.Types:
    tile, space = infer.tile(call, "tile"), call["target_memory"]
    reachable = (Mem.Vec, Mem.Mat, Mem.Left, Mem.Right, Mem.Bias)
    if not isinstance(space, Mem):
        raise infer.bad(call, "target_memory", "a memory such as `pl.Mem.Left`")
    if space not in reachable:
        raise WrongMemorySpace(
            call.at("target_memory"),
            call.shown,
            "target_memory",
            space.name,
            [m.name for m in reachable],
            "Acc is written by `pl.matmul` only, DDR by `pl.store`",
        )
    return (TileType(tile.shape, tile.dtype, space),)


def _move(tile: Array, target_memory: Mem, transpose: bool) -> Array:
    return np.array(tile)


@op(
    infer=_infer_move,
    reference=_move,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    valid=valid.kept("tile"),
    traits=Trait.ANY_MEMORY,
    seed_region=SeedRegion.TRACKED,
    cost=Cost.COPY,
)
def move(tile: Tile, target_memory: Mem, transpose: bool = False) -> Tile:
    """Copy a tile to another on-chip memory.

    tile: a tile; target_memory: `pl.Mem.Vec`, `.Mat`, `.Left`, `.Right` or `.Bias`
    transpose: with rows and columns swapped
    result: the same elements there

    Example: `left = pl.move(a, pl.Mem.Left)`
    """
    ...


def _check_atomic(call: Call) -> bool:
    kind = call["atomic"]
    if kind is None or kind is AtomicType.None_:
        return False
    if kind is not AtomicType.Add:
        if isinstance(kind, AtomicType):
            raise BadChoice(call.at("atomic"), call.shown, "atomic", kind.name, ["Add"])
        raise infer.bad(call, "atomic", "`pl.AtomicType.Add` or None")
    return True


def _check_store(
    call: Call, target: str, into: ShapedType, source: str, stored: ShapedType, offset: str
) -> None:
    """A value written into a window of another: element types, ranks, range."""
    atomic = _check_atomic(call)
    narrows = (
        isinstance(stored, TileType)
        and (stored.space is Mem.Acc or atomic)
        and stored.dtype is FP32
        and into.dtype in (FP16, BF16)
        and isinstance(into, TensorType)
    )
    if not narrows:
        hint = f"cast it first: `pl.cast(..., {into.dtype})`"
        infer.same_dtype(call, source, stored.dtype, target, into.dtype, hint)
    if atomic and into.dtype in (dtypes.BOOL, dtypes.FP8E4M3FN, dtypes.FP8E5M2):
        raise DTypeMismatch(
            call.shown, call.at(target), into.dtype, call.at("atomic"), "pl.AtomicType.Add"
        )
    starts = infer.items(call, offset)
    _rank_of_list(call, offset, starts, len(into.shape))
    sizes = fitted(stored.shape, len(into.shape))
    if sizes is None:
        why = "axes may differ only by leading extents of 1"
        raise ShapeMismatch(
            call.shown, call.at(target), into.shape, call.at(source), stored.shape, why
        )
    # A tile may be valid in less than its shape, and only that is written: then the run decides.
    certain = sizes if isinstance(stored, TensorType) else [1] * len(sizes)
    check_window(call, offset, _name(call, target), starts, certain, into.shape)


def fitted(shape: Sequence[Any], rank: int) -> tuple[Any, ...] | None:
    """A shape with leading extents of 1 added or removed to reach `rank`; None if impossible."""
    extra = len(shape) - rank
    if extra > 0 and any(d != 1 for d in shape[:extra]):
        return None
    return (1,) * -extra + tuple(shape) if extra <= 0 else tuple(shape[extra:])


def _infer_store(call: Call) -> infer.Types:
    tile, tensor = infer.tile(call, "tile"), infer.tensor(call, "tensor")
    if tile.space not in (None, Mem.Vec, Mem.Acc):
        raise WrongMemorySpace(
            call.at("tile"),
            call.shown,
            "tile",
            tile.space.name,
            ["Vec", "Acc"],
            "move it to Vec first",
        )
    _check_store(call, "tensor", tensor, "tile", tile, "offsets")
    return (tensor,)


@op(
    infer=_infer_store,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    writes=("tensor",),
    traits=Trait.ANY_MEMORY,
)
def store(
    tile: Tile,
    offsets: Ints,
    tensor: Tensor,
    atomic: AtomicType | None = None,
    *,
    shapes: Ints | None = None,
) -> Tensor:
    """Store the valid region of a tile into a tensor, in place.

    tile: in Vec or Acc; offsets: where it goes, one per axis of the tensor
    tensor: of the tile's dtype; an FP32 tile in Acc may go to FP16 or BF16, rounded to nearest even
    shapes: the tile is reshaped to this first, one extent per axis of the tensor
    atomic: `pl.AtomicType.Add` adds to what is there; any FP32 tile may be added to FP16 or BF16,
        rounded first
    result: the tensor, written; use it instead of the old name

    Example: `out = pl.store(tile, [0, n0], out)`
    """
    ...


def _infer_assemble(call: Call) -> infer.Types:
    target, source = infer.shaped(call, "target"), infer.shaped(call, "source")
    if call.in_scope and isinstance(source, TensorType):
        infer.tile(call, "source")
    _check_store(call, "target", target, "source", source, "offset")
    if _check_atomic(call) and not call.in_scope:
        raise OnlyInScope(call.at("atomic"), "atomic assemble")
    if _check_atomic(call) and isinstance(target, TileType):
        raise infer.bad(call, "target", "a tensor in global memory for an atomic assemble")
    return (target,)


def _valid_assemble(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, target = operands["target"]
    source = fitted(operands["source"][1], len(shape))
    assert source is not None
    return valid.inserted(shape, target, source, tuple(args["offset"]))


def _assemble(
    target: Array,
    source: Array,
    offset: tuple[int, ...],
    atomic: AtomicType | None,
    valid: dict[str, Valid],
) -> Array:
    region = fitted(valid["source"], target.ndim)
    shape = fitted(source.shape, target.ndim)
    assert region is not None
    assert shape is not None
    result: Array = np.array(target)
    window = tuple(_span(o, o + v) for o, v in zip(offset, region))
    result[window] = np.reshape(source, shape)[tuple(_span(0, v) for v in region)]
    return result


@op(
    infer=_infer_assemble,
    reference=_assemble,
    takes_valid=True,
    engine=Engine.MTE,
    plane=Plane.BOTH,
    on_chip=("source",),
    writes=("target",),
    valid=_valid_assemble,
    traits=Trait.ANY_MEMORY,
    replaces="target",
    seed_region=SeedRegion.TRACKED,
    cost=Cost.COPY,
)
def assemble(
    target: Shaped, source: Shaped, offset: Ints, atomic: AtomicType | None = None
) -> Shaped:
    """Write `source` into a window of `target`; the result is `target` under its new name.

    target: a tensor, written in place, or a tile, of which the result is a changed copy
    source: of the same dtype; only its valid region is written. Leading axes of extent 1 may be
        missing
    offset: where it goes, one per axis of `target`
    atomic: `pl.AtomicType.Add` adds to what is there (a tensor, inside a scope); FP32 may be added
        to FP16 or BF16, rounded first
    result: use it instead of the old name, which must not be read any more

    Example: `out = pl.assemble(out, tile, [b0, n0])`
    """
    ...


def _infer_gather_row(call: Call) -> infer.Types:
    acc, src = infer.tile(call, "acc"), infer.tensor(call, "src")
    infer.check_rank(call, "acc", len(acc.shape), 2)
    infer.same_dtype(call, "src", src.dtype, "acc", acc.dtype)
    if infer.flag(call, "transpose") and call["valid_shape"] is not None:
        raise infer.bad(call, "valid_shape", "left out together with `transpose`")
    return (acc,)


@composition(infer=_infer_gather_row, engine=Engine.MTE, on_chip=("acc",), era="HEAD")
def gather_row(
    acc: Shaped,
    src: Tensor,
    dst_offset: Ints,
    src_offset: Ints,
    shapes: Ints,
    transpose: bool = False,
    *,
    valid_shape: Ints | None = None,
) -> Shaped:
    """Load a window of a tensor into a place of a tile.

    acc: a 2-D tile, as `pl.create_l1` makes; src: a 2-D tensor of its dtype
    dst_offset: where in `acc` it goes; src_offset: where in `src` it begins
    shapes: the size of the window, constants; usually one row
    transpose: put rows of `src` as columns; valid_shape: how much of the window to load
    result: `acc` with that part replaced; use it instead of the old name

    Example: `keys = pl.gather_row(keys, pool, [r, 0], [row, 0], [1, 128])`
    """
    window: Any = slice(src, shapes, src_offset, valid_shape)
    made: Any = assemble(acc, _swapped_axes(window, 0, 1) if transpose else window, dst_offset)
    return made


def _infer_extract(call: Call) -> infer.Types:
    src, space = infer.tile(call, "src"), call["target_memory"]
    infer.check_rank(call, "src", len(src.shape), 2)
    if not isinstance(space, Mem):
        raise infer.bad(call, "target_memory", "a memory such as `pl.Mem.Left`")
    return (TileType(infer.constant_shape(call, "shape"), src.dtype, space),)


@composition(name="tile.extract", infer=_infer_extract, engine=Engine.MTE, era="HEAD")
def extract(src: Tile, index_row: Int, index_col: Int, shape: Ints, *, target_memory: Mem) -> Tile:
    """A part of a tile, copied to another on-chip memory.

    src: a 2-D tile; index_row, index_col: where the part begins; shape: its size, constants
    target_memory: as in `pl.move`
    result: the part, there

    Example: `left = pl.tile.extract(a, 0, k0, [64, 32], target_memory=pl.Mem.Left)`
    """
    return move(slice(src, shape, (index_row, index_col)), target_memory)


# --- other shapes --------------------------------------------------------------------------------


def _infer_reshape(call: Call) -> infer.Types:
    x = infer.shaped(call, "x")
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
)
def reshape(x: Shaped, shape: Ints) -> Shaped:
    """The same elements, in row-major order, under another shape.

    x: a tensor or tile; shape: the new extents, with the same product
    result: for a tensor a view of the same memory. A partly valid tile can be reshaped only if its
        valid region stays a box

    Example: `row = pl.reshape(col, [1, 16])`
    """
    ...


def _infer_transpose(call: Call) -> infer.Types:
    x = infer.shaped(call, "x")
    if call.in_scope and isinstance(x, TensorType):
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
)
def transpose(x: Shaped, axis1: int, axis2: int) -> Shaped:
    """Swap two axes.

    x: a tensor or tile; axis1, axis2: different axes, negative ones count from the end
    result: in the control program a view; inside a scope the data is moved. For operands of
        `pl.matmul`, `a_trans=` and `b_trans=` cost nothing

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
)
def transpose_view(x: Shaped) -> Shaped:
    """Swap the last two axes of a tile without moving anything: its bytes are read otherwise.

    x: a tile, as a rule in `pl.Mem.Mat`, so that one load serves a product and its transpose
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
    engine=Engine.VEC,
    plane=Plane.SCOPE,
    valid=valid.side_by_side,
    cost=Cost.COPY,
)
def concat(src0: Shaped, src1: Shaped) -> Shaped:
    """Two tiles side by side, joined along columns.

    src0, src1: `[M, N0]` and `[M, N1]` of one dtype
    result: `[M, N0 + N1]`

    Example: `both = pl.concat(lo, hi)`
    """
    ...


def _infer_reinterpret(call: Call) -> infer.Types:
    x = infer.shaped(call, "x")
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
)
def reinterpret_view(x: Shaped, dtype: DType, *, shape: Ints | None = None) -> Shaped:
    """The same bytes as elements of another type; nothing is converted.

    x: a tensor or tile; dtype: how its bytes are read
    shape: the new extents; default x's, the last one scaled by the ratio of the element sizes
    result: for a tensor a view of the same memory

    Example: `bits = pl.reinterpret_view(x, pl.INT32)`
    """
    ...


# --- single elements -----------------------------------------------------------------------------


def _check_index(call: Call, x: ShapedType) -> None:
    entries = infer.items(call, "indices")
    if len(entries) != len(x.shape):
        raise WrongIndexCount(
            call.at("indices"), _name(call, "x") or "x", len(entries), len(x.shape)
        )
    for axis, (entry, extent) in enumerate(zip(entries, x.shape)):
        index = infer.int_of(entry)
        if index is not None and (index < 0 or (isinstance(extent, int) and index >= extent)):
            raise IndexOutOfRange(call.at("indices"), axis, index, extent, _name(call, "x"))


def _infer_read(call: Call) -> infer.Types:
    x = infer.shaped(call, "x")
    _check_index(call, x)
    return (infer.scalar_type(x.dtype),)


_swapped_axes = transpose  # under the name that `gather_row` has for a flag of its own


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
    x = infer.shaped(call, "x")
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
    result: x with the element changed; a call that stands alone as a statement rebinds the name

    Example: `pl.write(out, [row, 0], total)`
    """
    ...


def _infer_dim(call: Call) -> infer.Types:
    t = infer.shaped(call, "tensor")
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
