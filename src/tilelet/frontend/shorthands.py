"""Calls that stand for several ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tilelet.diag.catalogue.cautions import RetiredSpelling
from tilelet.diag.catalogue.ops import BadArgument, BadChoice, MissingArgument, RankMismatch
from tilelet.diag.core import Loc
from tilelet.dtypes import BF16, FP16, FP32, DType
from tilelet.frontend.bindings import Binding, describe, is_shaped
from tilelet.frontend.context import Context
from tilelet.frontend.emitting import default_args, emit_value, swapped_tensor, to_arg
from tilelet.frontend.windows import WINDOWS
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import Dim, Mem, TensorType, TileType
from tilelet.ops.block_scaled import LAYOUTS
from tilelet.syntax.enums import TensorLayout

Locs = Mapping[str, Loc]
_VIEW_LAYOUTS = tuple(one for one in TensorLayout if one is not TensorLayout.NZ)
Shorthand = Callable[[Context, Mapping[str, Arg], Loc, Locs], Binding]


def shorthand(ctx: Context, name: str, args: Mapping[str, Arg]) -> Shorthand | None:
    """Return the function that lowers a call with these arguments, if it is several ops."""
    if name == "create_tensor" and args["valid_shape"] is not None:
        return _create_with_region
    if name == "expand_clone" and ctx.facts.storage_of(args["target"]) in ctx.facts.outputs:
        return _clone_into
    if name == "load" and args["tensor"] in ctx.facts.layouts:
        return _load_scales
    if name == "load" and _is_on_chip(ctx, args["tensor"]) and args["transpose"] is not True:
        return _load_of_tile
    if name == "load" and args["transpose"] is True and _is_swapped(ctx, args):
        return _load_swapped
    if name in _DRAINS and _converts(args, *_DRAINS[name]):
        return partial(_drain, name)
    if name == "assemble" and _product_for(ctx, args["source"], args["target"]) is not None:
        return _assemble_product
    if name == "store" and args["shapes"] is not None:
        return _store_as
    if name == "store" and _is_tile(args["tensor"]):
        return _store_into_tile
    if name == "move" and args["transpose"] is True:
        return _move_transposed
    if ctx.in_scope and name.startswith(_ROW_FAMILY) and _has_blocks(args):
        return partial(_expand_blocks, name)
    if name in ("sels", "tile.sels") and _is_negative_of_unsigned(args["x"], args["scalar"]):
        return partial(_select_modulo, name)
    if name in WINDOWS and _lacks_axes(args, *WINDOWS[name]):
        return _narrow_slice if name == "slice" else _narrow_load
    return None


def _create_with_region(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    """Lower `create_tensor(shape, dtype, valid_shape=...)`: a window of new memory."""
    made = emit_value(ctx, "create_tensor", loc, "", locs, **{**args, "valid_shape": None})
    offset = (0,) * len(made.type.shape)  # type: ignore[union-attr]
    region = args["valid_shape"]
    return emit_value(
        ctx, "slice", loc, "", locs, x=made, shape=args["shape"], offset=offset, valid_shape=region
    )


def _load_scales(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    """Lower a load of scales, which the host has packed."""
    tensor = args["tensor"]
    assert isinstance(tensor, Value)
    layout = ctx.facts.layouts[tensor]
    window = {name: args[name] for name in ("offsets", "shapes", "target_memory")}
    return emit_value(ctx, "load_scale", loc, "", locs, tensor=tensor, layout=layout, **window)


def tensor_view(
    ctx: Context, tensor: Arg, shape: Arg, valid_shape: Arg, layout: Arg, loc: Loc, locs: Locs
) -> Binding:
    """Lower `pl.tensor.view`: the same memory in another shape or layout.

    In layout DN the last two axes are swapped; without a shape, those of the tensor itself.
    """
    if not isinstance(tensor, Value) or not isinstance(tensor.type, TensorType | TileType):
        at = locs.get("tensor", loc)
        raise BadArgument(at, "tensor.view", "tensor", describe(tensor), "a tensor")
    if layout not in (None, *_VIEW_LAYOUTS):
        raise BadChoice(locs["layout"], "tensor.view", "layout", layout, _VIEW_LAYOUTS)
    own = tensor.type.shape
    swaps = layout is TensorLayout.DN
    if shape is None and not (swaps and valid_shape is None):
        known = tuple(n for n in own if isinstance(n, int))
        if layout is None or valid_shape is not None or len(known) < len(own):
            raise MissingArgument(loc, "tensor.view", "shape", "pl.tensor.view(tensor, shape)")
        shape = known
    view, rank = tensor, len(shape if isinstance(shape, tuple) else own)
    if swaps and rank < 2:
        raise RankMismatch(locs["layout"], "tensor.view", "the view", rank, "2 or more")
    if shape is not None:
        lying = (*shape[:-2], shape[-1], shape[-2]) if swaps and isinstance(shape, tuple) else shape
        view = emit_value(ctx, "reshape", loc, "", locs, x=view, shape=lying)
    if swaps:
        view = emit_value(ctx, "transpose", loc, "", locs, x=view, axis1=rank - 2, axis2=rank - 1)
    if valid_shape is not None:
        offset = (0,) * rank
        region: dict[str, Arg] = {"shape": shape, "offset": offset, "valid_shape": valid_shape}
        view = emit_value(ctx, "slice", loc, "", locs, x=view, **region)
    if isinstance(layout, TensorLayout) and layout.name in LAYOUTS:
        ctx.facts.layouts[view] = layout.name
    return view


def _is_tile(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def _is_on_chip(ctx: Context, arg: Arg) -> bool:
    """Return whether `arg` is a tile, such as a tensor created inside the scope."""
    return _is_tile(arg) and swapped_tensor(ctx, arg) is None


def _load_of_tile(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    region = args["valid_shapes"] if args["valid_shape"] is None else args["valid_shape"]
    window: dict[str, Arg] = {"x": args["tensor"], "shape": args["shapes"], "valid_shape": region}
    made = default_args(REGISTRY["slice"], **window, offset=args["offsets"], clamp=args["clamp"])
    names = {"x": "tensor", "shape": "shapes", "offset": "offsets"}
    at = {ours: locs.get(theirs, loc) for ours, theirs in names.items()}
    special = shorthand(ctx, "slice", made)
    return special(ctx, made, loc, at) if special else emit_value(ctx, "slice", loc, "", at, **made)


def _is_swapped(ctx: Context, args: Mapping[str, Arg]) -> bool:
    """Return whether a transposing load states the window of the transposed tensor.

    That was the meaning until March 2026. It is certain if the window does not fit the tensor
    itself; if both fit, the reading decides.
    """
    x, sizes, starts = args["tensor"], args["shapes"], args["offsets"]
    if not isinstance(x, Value) or not isinstance(x.type, TensorType):
        return False
    if not isinstance(sizes, tuple) or not isinstance(starts, tuple):
        return False
    if not len(sizes) == len(starts) == len(x.type.shape) >= 2:
        return False
    extents = x.type.shape[-2:]
    fits = _have_room(extents, starts[-2:], sizes[-2:])
    swapped = any(_have_room(extents, at[-2:], sizes[:-3:-1]) for at in (starts, starts[::-1]))
    if swapped and fits:
        ctx.module.ambiguous.add("swap_windows")
    return swapped and (not fits or ctx.module.reading.swap_windows)


def _have_room(extents: tuple[Dim, ...], starts: tuple[Arg, ...], sizes: tuple[Arg, ...]) -> bool:
    return all(map(_has_room, extents, starts, sizes))


def _has_room(extent: Dim, start: Arg, size: Arg) -> bool:
    """Return whether a window fits an axis; one at a run-time offset must be smaller."""
    if not isinstance(extent, int) or not isinstance(size, int):
        return True
    return start + size <= extent if isinstance(start, int) else size < extent


def _load_swapped(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    made, x, sizes, starts = dict(args), args["tensor"], args["shapes"], args["offsets"]
    assert isinstance(sizes, tuple)
    assert isinstance(starts, tuple)
    assert isinstance(x, Value)
    assert isinstance(x.type, TensorType)
    # One of the two compilers of that time took the offset in the tensor itself.
    is_own = _have_room(x.type.shape[-2:], starts[-2:], sizes[:-3:-1])
    for name in ("shapes", "valid_shapes", "valid_shape", *(() if is_own else ("offsets",))):
        given = args[name]
        if isinstance(given, tuple) and len(given) >= 2:
            made[name] = (*given[:-2], given[-1], given[-2])
    old, new = "offsets and shapes of the transposed tensor", "those of the tensor itself"
    ctx.module.note_retired(RetiredSpelling(loc, old, new))
    return emit_value(ctx, "load", loc, "", locs, **made)


def _store_into_tile(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    at = {"target": locs.get("tensor", loc), "source": locs.get("tile", loc)}
    window = {"target": args["tensor"], "source": args["tile"], "offset": args["offsets"]}
    return emit_value(ctx, "assemble", loc, "", at, **window, atomic=args["atomic"])


def _is_negative_of_unsigned(x: Arg, number: Arg) -> bool:
    if not isinstance(x, Value) or not isinstance(x.type, (TileType, TensorType)):
        return False
    dtype = x.type.dtype
    if not dtype.is_integer or dtype.is_signed:
        return False
    if not isinstance(number, (int, float)) or number != number // 1:
        return False
    return -(dtype.limits[1] // 2) - 1 <= number < 0


def _select_modulo(
    name: str, ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs
) -> Binding:
    """Lower `sels` with a negative number by its bits: -3 in a UINT32 tile is 2**32 - 3."""
    x, number = args["x"], args["scalar"]
    assert isinstance(x, Value)
    assert isinstance(x.type, (TileType, TensorType))
    assert isinstance(number, (int, float))
    _, highest = x.type.dtype.limits
    return emit_value(
        ctx, name, loc, "", locs, **{**args, "scalar": int(number) + int(highest) + 1}
    )


_DRAINS = {"store": ("tile", "tensor"), "assemble": ("source", "target")}
"""Parameter names of the written value and of its target."""


def _converts(args: Mapping[str, Arg], source: str, target: str) -> bool:
    """Return whether a write converts elements as the cube unit does when it drains."""
    x, into = args[source], args[target]
    if not _is_tile(x) or not isinstance(into, Value):
        return False
    if args["pre_quant"] is not None or args["pre_relu"] is True:
        return True
    assert isinstance(x, Value)
    spaces = [v.type.space for v in (x, into) if isinstance(v.type, TileType)]
    placed = spaces[0] is Mem.Acc or Mem.Mat in spaces[1:]
    return placed and _is_tile(into) and _dtype(x) is FP32 and _dtype(into) in (FP16, BF16)


def _drain(name: str, ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    """Apply ReLU, then the scale, then the limits of the type, as the device does."""
    source, target = _DRAINS[name]
    x, wanted, scale = args[source], _dtype(args[target]), args["pre_quant"]
    if scale is not None and _dtype(x) is not FP32:
        x = emit_value(ctx, "cast", loc, "", {"x": locs.get(source, loc)}, x=x, target_type=FP32)
    if args["pre_relu"] is True:
        x = emit_value(ctx, "maximums", loc, "", locs, lhs=x, rhs=0)
    if scale is not None:
        x = emit_value(ctx, "muls", loc, "", {"rhs": locs.get("pre_quant", loc)}, lhs=x, rhs=scale)
        if wanted in (FP16, BF16):
            x = emit_value(ctx, "maximums", loc, "", locs, lhs=x, rhs=-wanted.largest)
            x = emit_value(ctx, "minimums", loc, "", locs, lhs=x, rhs=wanted.largest)
    if _dtype(x) is FP32 and wanted is not FP32:
        x = emit_value(ctx, "cast", loc, "", locs, x=x, target_type=wanted, mode="rint")
    made = {**args, source: x, "pre_quant": None, "pre_relu": False}
    special = shorthand(ctx, name, made)
    return (
        special(ctx, made, loc, locs) if special else emit_value(ctx, name, loc, "", locs, **made)
    )


def _product_for(ctx: Context, source: Arg, target: Arg) -> Op | None:
    """Return the product that is written into FP32 but lacks `out_dtype=pl.FP32`.

    The device writes the accumulator: no version looks at the type of the assembled value.
    """
    if not _is_tile(source) or not is_shaped(target):
        return None
    if _dtype(source) not in (FP16, BF16) or _dtype(target) is not FP32:
        return None
    made = next((op for op in reversed(ctx.ops) if source in op.results), None)
    if made is None or made.name != "matmul" or made.args["out_dtype"] is not None:
        return None
    return made


def as_accumulated(ctx: Context, source: Value, target: Value) -> Value:
    """Return `source`, or for some products the FP32 accumulator instead."""
    product = _product_for(ctx, source, target)
    if product is None:
        return source
    args: dict[str, Arg] = {**product.args, "out_dtype": FP32}
    return emit_value(ctx, "matmul", product.loc, "", None, **args)


def _assemble_product(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    source, target = args["source"], args["target"]
    assert isinstance(source, Value)
    assert isinstance(target, Value)
    made = {**args, "source": as_accumulated(ctx, source, target)}
    return emit_value(ctx, "assemble", loc, "", locs, **made)


def _dtype(arg: Arg) -> DType:
    assert isinstance(arg, Value)
    assert isinstance(arg.type, (TileType, TensorType))
    return arg.type.dtype


def _store_as(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    """Lower `store(tile, offsets, out, shapes=...)`: the tile reshaped, or its first part."""
    tile, shape = args["tile"], args["shapes"]
    if isinstance(tile, Value) and isinstance(tile.type, TileType) and shape != tile.type.shape:
        at = {"shape": locs.get("shapes", loc)}
        offset = (0,) * len(tile.type.shape)
        if _is_part(shape, tile.type.shape):
            tile = emit_value(ctx, "slice", loc, "", at, x=tile, shape=shape, offset=offset)
        elif _is_computed(shape, len(offset)):
            at = {"valid_shape": at["shape"]}
            whole: Arg = tile.type.shape
            tile = emit_value(
                ctx, "slice", loc, "", at, x=tile, shape=whole, offset=offset, valid_shape=shape
            )
        else:
            tile = emit_value(ctx, "reshape", loc, "", at, x=tile, shape=shape)
    made = {**args, "tile": tile, "shapes": None}
    if _is_tile(args["tensor"]):
        return _store_into_tile(ctx, made, loc, locs)
    return emit_value(ctx, "store", loc, "", locs, **made)


def _move_transposed(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    tile = emit_value(ctx, "transpose", loc, "", locs, x=args["tile"], axis1=0, axis2=1)
    return emit_value(ctx, "move", loc, "", locs, tile=tile, target_memory=args["target_memory"])


def _is_part(shape: Arg, whole: tuple[object, ...]) -> bool:
    if not isinstance(shape, tuple) or len(shape) != len(whole):
        return False
    return all(
        isinstance(size, int) and isinstance(extent, int) and size <= extent
        for size, extent in zip(shape, whole, strict=True)
    )


def _is_computed(shape: Arg, rank: int) -> bool:
    if not isinstance(shape, tuple) or len(shape) != rank:
        return False
    return any(isinstance(size, Value) for size in shape)


def _clone_into(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    """Lower `expand_clone(x, y)` with an output `y`, which it writes."""
    target = args["target"]
    assert isinstance(target, Value)
    assert isinstance(target.type, TensorType)
    shape: Arg = tuple(to_arg(ctx, d, loc) for d in target.type.shape)
    like = emit_value(ctx, "create_tensor", loc, "", locs, shape=shape, dtype=target.type.dtype)
    tile = emit_value(ctx, "expand_clone", loc, "", locs, src=args["src"], target=like)
    return emit_value(
        ctx,
        "assemble",
        loc,
        "",
        locs,
        target=target,
        source=tile,
        offset=(0,) * len(target.type.shape),
    )


# --- windows of lower rank ------------------------------------------------------------------------


def _lacks_axes(args: Mapping[str, Arg], x: str, shape: str, offset: str) -> bool:
    """Return whether the shape of a window omits leading axes of extent 1."""
    tensor, sizes, starts = args[x], args[shape], args[offset]
    if not isinstance(tensor, Value) or not isinstance(tensor.type, (TensorType, TileType)):
        return False
    if not isinstance(sizes, tuple) or not isinstance(starts, tuple):
        return False
    return len(sizes) < len(starts) == len(tensor.type.shape)


def _with_leading_axes(
    args: Mapping[str, Arg], shape: str, *regions: str
) -> tuple[dict[str, Arg], int]:
    """Return the arguments with the omitted axes, and the number of these axes."""
    sizes, made = args[shape], dict(args)
    assert isinstance(sizes, tuple)
    missing = len(args["offset" if shape == "shape" else "offsets"]) - len(sizes)  # type: ignore[arg-type]
    for name in (shape, *regions):
        given = args[name]
        if isinstance(given, tuple) and len(given) == len(sizes):
            made[name] = (1,) * missing + given
    return made, missing


def _narrow_slice(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    made, missing = _with_leading_axes(args, "shape", "valid_shape")
    made["drop_dims"] = tuple(range(missing))
    return emit_value(ctx, "slice", loc, "", locs, **made)


def _narrow_load(ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs) -> Binding:
    made, missing = _with_leading_axes(args, "shapes", "valid_shape", "valid_shapes")
    tile = emit_value(ctx, "load", loc, "", locs, **made)
    return emit_value(ctx, "reshape", loc, x=tile, shape=tile.type.shape[missing:])  # type: ignore[union-attr]


# --- row vectors of one block per row -------------------------------------------------------------

_ROW_FAMILY = "row_expand_"
_BLOCK_BYTES = 32
_SAME_SHAPE = {"max": "maximum", "min": "minimum"}


def _has_blocks(args: Mapping[str, Arg]) -> bool:
    """Return whether the vector holds 32 bytes per row, as the device reads it."""
    x, vector = args["x"], args["row_vec"]
    if not isinstance(x, Value) or not isinstance(vector, Value):
        return False
    if not isinstance(x.type, (TensorType, TileType)):
        return False
    if not isinstance(vector.type, (TensorType, TileType)) or len(vector.type.shape) != 2:
        return False
    block = _BLOCK_BYTES // vector.type.dtype.itemsize
    return vector.type.shape == (x.type.shape[0], block) and x.type.shape[-1] != 1


def _expand_blocks(
    name: str, ctx: Context, args: Mapping[str, Arg], loc: Loc, locs: Locs
) -> Binding:
    """Lower `row_expand_*` with a block of values per row, which repeats along the row."""
    x, vector = args["x"], args["row_vec"]
    assert isinstance(x, Value)
    assert isinstance(vector, Value)
    shape: tuple[int, int] = x.type.shape  # type: ignore[union-attr]
    wide = vector
    while wide.type.shape[1] < shape[1]:  # type: ignore[union-attr]
        wide = emit_value(ctx, "concat", loc, src0=wide, src1=wide)
    wide = emit_value(ctx, "slice", loc, x=wide, shape=shape, offset=(0, 0))
    function = name.removeprefix(_ROW_FAMILY)
    if function == "expdif":
        return emit_value(ctx, "exp", loc, x=emit_value(ctx, "sub", loc, "", locs, lhs=x, rhs=wide))
    return emit_value(ctx, _SAME_SHAPE.get(function, function), loc, "", locs, lhs=x, rhs=wide)
