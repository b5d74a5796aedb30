"""Data movement: windows, loads and stores.

In the control program a window of a tensor is a view of the same memory; inside a scope taking it
loads a tile, and assembling into a tensor stores to it. docs/design.md has the table.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
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
    ShapeMismatch,
    WrongMemorySpace,
)
from tilelet.diag.catalogue.scopes import OnlyInScope
from tilelet.diag.catalogue.windows import WindowOutOfRange
from tilelet.dtypes import BF16, FP16, FP32, Array
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
from tilelet.ir.types import Dim, Mem, ShapedType, TensorType, TileType, with_shape
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Int, Ints, Number, Shaped
from tilelet.ops.padding import check_pad, check_valid_extent, pad_region
from tilelet.ops.valid import Args, Operands
from tilelet.ops.views import transpose as swapped_axes
from tilelet.syntax.enums import AtomicType, PadValue

if TYPE_CHECKING:
    from tilelet.syntax.types import Tensor, Tile

__all__ = [
    "assemble",
    "extract",
    "gather_row",
    "load",
    "move",
    "slice",
    "store",
]

_span = builtins.slice  # `slice` is an op here


# --- windows -------------------------------------------------------------------------------------


def check_window(
    call: Call,
    param: str,
    name: str,
    starts: Sequence[Arg],
    sizes: Sequence[object],
    extents: Sequence[Dim],
    clamps: bool = False,
) -> None:
    """Raise at compile time if a window is certainly outside its tensor."""
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
    """Check a window given by offset, shape and valid shape; return its shape."""
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
        if not call.in_scope and call[valid_shape] is None:
            # A view may extend past the end, unless that is known at compile time.
            fixed = [infer.int_of(start) is not None for start in starts]
            taken = [size if known else 0 for size, known in zip(sizes, fixed)]
        check_window(call, offset, infer.name_of(call, x), starts, taken, t.shape, clamps=True)
    elif any((infer.int_of(start) or 0) < 0 for start in starts):
        check_window(call, offset, infer.name_of(call, x), starts, [1] * len(starts), t.shape)
    return sizes


def _drop_axes(call: Call, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape without the axes of `drop_dims`, which must have extent 1."""
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
    x = infer.shaped_type(call, "x")
    shape = _drop_axes(call, _window(call, "x", x, "offset", "shape", "valid_shape"))
    if call["pad_value"] is not None:
        check_pad(call)
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
    """Return the valid region of `slice`'s window, before dropping axes or filling padding."""
    shape, offset = tuple(args["shape"]), tuple(args["offset"])
    seen = valid.window(x_valid, offset, shape)
    if args["valid_shape"] is None:
        return seen
    return tuple(map(min, seen, valid.check_region(args["valid_shape"], shape)))


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
        result = pad_region(result, region, args["pad_value"])
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
    moves=("x",),
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
    sized: bool = False,
) -> Shaped:
    """A window of a tensor or tile. Note the argument order: shape first, then offset.

    x: a tensor or tile
    shape: extents of the window, one per axis; constants inside a scope
    offset: where it starts, one per axis, constant or not
    valid_shape: the part of the window that holds data, from its own start; only that is read
    drop_dims: axes of extent 1 to drop from the result
    pad_value: fill the rest of the window, like `pl.fillpad` (inside a scope)
    clamp: the window may extend past the edge; the part outside is not valid
    sized: `valid_shape` is the size of the window as written: a negative one is an error
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
        seen = tuple(map(min, seen, valid.check_region(limit, taken)))
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
    sized: bool = False,
) -> Tile:
    """Load a window of a tensor into a tile. Note the argument order: offsets first, then shapes.

    tensor: in global memory; offsets: where the window starts; shapes: its extents, constants
    target_memory: `pl.Mem.Vec`, or `pl.Mem.Mat` for operands of the cube unit
    valid_shapes, valid_shape: (two spellings) the part of the window that holds data
    transpose: swap the last two axes while loading (only to Mat)
    clamp: the window may extend past the edge; the part outside is not valid
    sized: `valid_shape` is the size of the window as written: a negative one is an error
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
    moves=("tile",),
)
def move(tile: Tile, target_memory: Mem, transpose: bool = False) -> Tile:
    """Copy a tile to another on-chip memory.

    tile: a tile; target_memory: `pl.Mem.Vec`, `.Mat`, `.Left`, `.Right` or `.Bias`
    transpose: swap rows and columns
    result: the same elements in that memory

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
    """Check a store into a window: element types, ranks, range."""
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
    sizes = fit_rank(stored.shape, len(into.shape))
    if sizes is None:
        why = "axes may differ only by leading extents of 1"
        raise ShapeMismatch(
            call.shown, call.at(target), into.shape, call.at(source), stored.shape, why
        )
    # Only the valid part of a tile is written, so a partially valid one is checked at run time.
    certain = sizes if isinstance(stored, TensorType) else [1] * len(sizes)
    check_window(call, offset, infer.name_of(call, target), starts, certain, into.shape)


def fit_rank(shape: Sequence[object], rank: int) -> tuple[Any, ...] | None:
    """Add or remove leading extents of 1 to reach `rank`; None if impossible."""
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
    on_chip=("tile",),
)
def store(
    tile: Tile,
    offsets: Ints,
    tensor: Tensor,
    atomic: AtomicType | None = None,
    *,
    shapes: Ints | None = None,
    pre_quant: Number | None = None,
    pre_relu: bool = False,
) -> Tensor:
    """Store the valid region of a tile into a tensor, in place.

    tile: in Vec or Acc; offsets: where it goes, one per axis of the tensor
    tensor: of the tile's dtype; an FP32 tile in Acc may go to FP16 or BF16, rounded to nearest even
    pre_quant: scale a product (FP32 or INT32) by this number, saturating to the tensor's dtype;
        pre_relu: apply ReLU before scaling
    shapes: reshape the tile to this first, one extent per axis of the tensor
    atomic: `pl.AtomicType.Add` adds to the existing contents; any FP32 tile may be added to FP16
        or BF16, rounded first
    result: the tensor, written; use it instead of the old name

    Example: `out = pl.store(tile, [0, n0], out)`
    """
    ...


def _infer_assemble(call: Call) -> infer.Types:
    target, source = infer.shaped_type(call, "target"), infer.shaped_type(call, "source")
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
    source = fit_rank(operands["source"][1], len(shape))
    assert source is not None
    return valid.insert_region(shape, target, source, tuple(args["offset"]))


def _assemble(
    target: Array,
    source: Array,
    offset: tuple[int, ...],
    atomic: AtomicType | None,
    pre_quant: None,
    pre_relu: bool,
    valid: dict[str, Valid],
) -> Array:
    region = fit_rank(valid["source"], target.ndim)
    shape = fit_rank(source.shape, target.ndim)
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
    moves=("target", "source"),
)
def assemble(
    target: Shaped,
    source: Shaped,
    offset: Ints,
    atomic: AtomicType | None = None,
    *,
    pre_quant: Number | None = None,
    pre_relu: bool = False,
) -> Shaped:
    """Write `source` into a window of `target` and return the updated `target`.

    target: a tensor, written in place, or a tile, of which the result is an updated copy
    source: of the same dtype; an FP32 tile in Acc may go to a tile of FP16 or BF16, rounded to
        nearest even. Only its valid region is written. Leading axes of extent 1 may be missing
    offset: where it goes, one per axis of `target`; pre_quant, pre_relu: as in `pl.store`
    atomic: `pl.AtomicType.Add` adds to the existing contents (a tensor, inside a scope); FP32 may
        be added to FP16 or BF16, rounded first
    result: the updated target; the old name must not be read any more

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
    """Load a window of a tensor into a part of a tile.

    acc: a 2-D tile, as returned by `pl.create_l1`; src: a 2-D tensor of its dtype
    dst_offset: offset in `acc`; src_offset: offset in `src`
    shapes: the size of the window, constants; usually one row
    transpose: store rows of `src` as columns; valid_shape: the part of the window to load
    result: `acc` with that part replaced; use it instead of the old name

    Example: `keys = pl.gather_row(keys, pool, [r, 0], [row, 0], [1, 128])`
    """
    window: Any = slice(src, shapes, src_offset, valid_shape)
    made: Any = assemble(acc, swapped_axes(window, 0, 1) if transpose else window, dst_offset)
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

    src: a 2-D tile; index_row, index_col: offset of the part; shape: its size, constants
    target_memory: as in `pl.move`
    result: the part, in that memory

    Example: `left = pl.tile.extract(a, 0, k0, [64, 32], target_memory=pl.Mem.Left)`
    """
    return move(slice(src, shape, (index_row, index_col)), target_memory)
