"""Calls that stand for several ops.

Each function entered with `@shorthand` looks at a bound call of one of its ops. It emits what the
call stands for, or returns None if the call is of another form. The first that emits something is
used; a call of no special form is the op itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.cautions import RetiredSpelling
from tilelet.diag.catalogue.ops import BadArgument, BadChoice, MissingArgument, RankMismatch
from tilelet.diag.core import Loc
from tilelet.dtypes import BF16, FP16, FP32, DType
from tilelet.frontend.bindings import Binding, describe, shaped_type, tensor_type, tile_type
from tilelet.frontend.context import Context
from tilelet.frontend.emitting import (
    WINDOWS,
    default_args,
    emit_op,
    emit_value,
    swapped_tensor,
    to_arg,
)
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import REGISTRY, OpSpec
from tilelet.ir.types import Dim, Mem, TensorType, TileType
from tilelet.ops.block_scaled import LAYOUTS
from tilelet.syntax.enums import TensorLayout


@dataclass(frozen=True)
class OpCall:
    """A call of an op whose arguments are bound, before anything is emitted for it."""

    ctx: Context
    spec: OpSpec
    args: Mapping[str, Arg]
    loc: Loc
    locs: Mapping[str, Loc]

    def __getitem__(self, param: str) -> Arg:
        return self.args[param]

    def at(self, **params: str) -> dict[str, Loc]:
        """Return spans for the parameters of another op, each that of a parameter of this call."""
        return {new: self.locs.get(own, self.loc) for new, own in params.items()}

    def emit(self, op: str, at: Mapping[str, Loc] | None = None, /, **args: Arg) -> Value:
        """Emit one of the ops the call stands for; messages point at the arguments of the call."""
        locs = self.locs if at is None else at
        return emit_value(self.ctx, op, self.loc, "", locs, **args)

    def emit_changed(self, **changes: Arg) -> Value:
        """Emit the op itself with other arguments."""
        return self.emit(self.spec.name, **{**self.args, **changes})


Shorthand = Callable[[OpCall], Binding]
_SHORTHANDS: dict[str, list[Shorthand]] = {}


def shorthand(*ops: str) -> Callable[[Shorthand], Shorthand]:
    """Enter a form of calls of these ops."""

    def enter(rule: Shorthand) -> Shorthand:
        for op in ops:
            _SHORTHANDS.setdefault(op, []).append(rule)
        return rule

    return enter


def lower_op(call: OpCall) -> Binding:
    """Emit the ops that a call stands for, which is usually the op itself."""
    for rule in _SHORTHANDS.get(call.spec.name, ()):
        found = rule(call)
        if found is not None:
            return found
    return emit_op(call.ctx, call.spec, call.args, call.loc, arg_locs=call.locs)


# --- creation -------------------------------------------------------------------------------------


@shorthand("create_tensor")
def _create_with_region(call: OpCall) -> Binding:
    """Lower `create_tensor(shape, dtype, valid_shape=...)`: a window of new memory."""
    region = call["valid_shape"]
    if region is None:
        return None
    made = call.emit_changed(valid_shape=None)
    offset = (0,) * len(_shape(made))
    return call.emit("slice", x=made, shape=call["shape"], offset=offset, valid_shape=region)


@shorthand("expand_clone")
def _clone_into(call: OpCall) -> Binding:
    """Lower `expand_clone(x, y)` with an output `y`, which it writes."""
    target = call["target"]
    if call.ctx.facts.storage_of(target) not in call.ctx.facts.outputs:
        return None
    shape: Arg = tuple(to_arg(call.ctx, d, call.loc) for d in _shape(target))
    like = call.emit("create_tensor", shape=shape, dtype=_dtype(target))
    tile = call.emit("expand_clone", src=call["src"], target=like)
    return call.emit("assemble", target=target, source=tile, offset=(0,) * len(shape))


_VIEW_LAYOUTS = tuple(one for one in TensorLayout if one is not TensorLayout.NZ)


def tensor_view(
    ctx: Context, tensor: Arg, shape: Arg, valid_shape: Arg, layout: Arg, loc: Loc,
    locs: Mapping[str, Loc],
) -> Binding:  # fmt: skip
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
        lying = _swap_last(shape) if swaps and isinstance(shape, tuple) else shape
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


# --- loads ----------------------------------------------------------------------------------------


@shorthand("load")
def _load_scales(call: OpCall) -> Binding:
    """Lower a load of scales, which the host has packed."""
    layouts, tensor = call.ctx.facts.layouts, call["tensor"]
    if tensor not in layouts:
        return None
    window = {name: call[name] for name in ("offsets", "shapes", "target_memory")}
    return call.emit("load_scale", tensor=tensor, layout=layouts[tensor], **window)


@shorthand("load")
def _load_of_tile(call: OpCall) -> Binding:
    """Lower a load of a tile, such as a tensor created inside the scope."""
    x, spec = call["tensor"], REGISTRY["slice"]
    on_chip = tile_type(x) is not None and swapped_tensor(call.ctx, x) is None
    if not on_chip or call["transpose"] is True:
        return None
    region = call["valid_shapes"] if call["valid_shape"] is None else call["valid_shape"]
    window: dict[str, Arg] = {"x": x, "shape": call["shapes"], "valid_shape": region}
    args = default_args(spec, **window, offset=call["offsets"], clamp=call["clamp"])
    locs = call.at(x="tensor", shape="shapes", offset="offsets")
    return lower_op(OpCall(call.ctx, spec, args, call.loc, locs))


@shorthand("load")
def _load_swapped(call: OpCall) -> Binding:
    """Lower a transposing load that states the window of the transposed tensor.

    That was the meaning until March 2026. It is certain if the window does not fit the tensor
    itself; if both fit, the reading decides.
    """
    x, sizes, starts = tensor_type(call["tensor"]), call["shapes"], call["offsets"]
    if call["transpose"] is not True or x is None:
        return None
    if not isinstance(sizes, tuple) or not isinstance(starts, tuple):
        return None
    if not len(sizes) == len(starts) == len(x.shape) >= 2:
        return None
    # One of the two compilers of that time took the offset in the tensor itself.
    is_own = _have_room(x, starts, _swap_last(sizes))
    if not is_own and not _have_room(x, starts[::-1], _swap_last(sizes)):
        return None
    if _have_room(x, starts, sizes):
        call.ctx.module.ambiguous.add("swap_windows")
        if not call.ctx.module.reading.swap_windows:
            return None
    swapped: dict[str, Arg] = {}
    for name in ("shapes", "valid_shapes", "valid_shape", *(() if is_own else ("offsets",))):
        given = call[name]
        if isinstance(given, tuple) and len(given) >= 2:
            swapped[name] = _swap_last(given)
    old, new = "offsets and shapes of the transposed tensor", "those of the tensor itself"
    call.ctx.module.note_retired(RetiredSpelling(call.loc, old, new))
    return call.emit_changed(**swapped)


def _have_room(x: TensorType, starts: tuple[Arg, ...], sizes: tuple[Arg, ...]) -> bool:
    """Return whether a window fits the last two axes."""
    return all(map(_has_room, x.shape[-2:], starts[-2:], sizes[-2:]))


def _has_room(extent: Dim, start: Arg, size: Arg) -> bool:
    """Return whether a window fits an axis; one at a run-time offset must be smaller."""
    if not isinstance(extent, int) or not isinstance(size, int):
        return True
    return start + size <= extent if isinstance(start, int) else size < extent


@shorthand("move")
def _move_transposed(call: OpCall) -> Binding:
    if call["transpose"] is not True:
        return None
    tile = call.emit("transpose", x=call["tile"], axis1=0, axis2=1)
    return call.emit("move", tile=tile, target_memory=call["target_memory"])


# --- writes ---------------------------------------------------------------------------------------

_DRAINS = {"store": ("tile", "tensor"), "assemble": ("source", "target")}
"""Parameter names of the written value and of its target."""


@shorthand(*_DRAINS)
def _drain(call: OpCall) -> Binding:
    """Convert elements as the cube unit does when it drains: ReLU, scale, limits of the type."""
    source, target = _DRAINS[call.spec.name]
    x, scale, relu = call[source], call["pre_quant"], call["pre_relu"] is True
    if tile_type(x) is None or not isinstance(call[target], Value):
        return None
    if scale is None and not relu and not _narrows(tile_type(x), tile_type(call[target])):
        return None
    wanted = _dtype(call[target])
    if scale is not None and _dtype(x) is not FP32:
        x = call.emit("cast", call.at(x=source), x=x, target_type=FP32)
    if relu:
        x = call.emit("maximums", lhs=x, rhs=0)
    if scale is not None:
        x = call.emit("muls", call.at(rhs="pre_quant"), lhs=x, rhs=scale)
        if wanted in (FP16, BF16):
            x = call.emit("maximums", lhs=x, rhs=-wanted.largest)
            x = call.emit("minimums", lhs=x, rhs=wanted.largest)
    if _dtype(x) is FP32 and wanted is not FP32:
        x = call.emit("cast", x=x, target_type=wanted, mode="rint")
    drained: dict[str, Arg] = {source: x, "pre_quant": None, "pre_relu": False}
    return lower_op(replace(call, args={**call.args, **drained}))


def _narrows(x: TileType | None, into: TileType | None) -> bool:
    """Return whether a write from the accumulator, or to a matrix buffer, narrows FP32."""
    if x is None or into is None or x.dtype is not FP32 or into.dtype not in (FP16, BF16):
        return False
    return x.space is Mem.Acc or into.space is Mem.Mat


def as_accumulated(ctx: Context, source: Value, target: Value) -> Value:
    """Return `source`, or the accumulator of a product that lacks `out_dtype=pl.FP32`.

    The device writes the accumulator into an FP32 target: no version looks at the type of the
    assembled value.
    """
    x, into = tile_type(source), shaped_type(target)
    if x is None or into is None or x.dtype not in (FP16, BF16) or into.dtype is not FP32:
        return source
    made = next((op for op in reversed(ctx.ops) if source in op.results), None)
    if made is None or made.name != "matmul" or made.args["out_dtype"] is not None:
        return source
    args: dict[str, Arg] = {**made.args, "out_dtype": FP32}
    return emit_value(ctx, "matmul", made.loc, "", None, **args)


@shorthand("assemble")
def _assemble_product(call: OpCall) -> Binding:
    source, target = call["source"], call["target"]
    if not isinstance(source, Value) or not isinstance(target, Value):
        return None
    product = as_accumulated(call.ctx, source, target)
    return None if product is source else call.emit_changed(source=product)


@shorthand("store")
def _store_as(call: OpCall) -> Binding:
    """Lower `store(tile, offsets, out, shapes=...)`: the tile reshaped, or its first part."""
    tile, shape, t = call["tile"], call["shapes"], tile_type(call["tile"])
    if shape is None:
        return None
    if t is not None and shape != t.shape:
        offset, at = (0,) * len(t.shape), call.at(shape="shapes")
        if _is_part(shape, t.shape):
            tile = call.emit("slice", at, x=tile, shape=shape, offset=offset)
        elif _is_computed(shape, len(offset)):
            at = call.at(valid_shape="shapes")
            tile = call.emit("slice", at, x=tile, shape=t.shape, offset=offset, valid_shape=shape)
        else:
            tile = call.emit("reshape", at, x=tile, shape=shape)
    shaped = replace(call, args={**call.args, "tile": tile, "shapes": None})
    return _store_into_tile(shaped) or shaped.emit_changed()


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


@shorthand("store")
def _store_into_tile(call: OpCall) -> Binding:
    if tile_type(call["tensor"]) is None:
        return None
    window = {"target": call["tensor"], "source": call["tile"], "offset": call["offsets"]}
    at = call.at(target="tensor", source="tile")
    return call.emit("assemble", at, **window, atomic=call["atomic"])


# --- windows of lower rank ------------------------------------------------------------------------


@shorthand(*WINDOWS)
def _narrow_window(call: OpCall) -> Binding:
    """Lower a window that omits leading axes: a slice drops them itself, a load is reshaped."""
    x, size, offset = WINDOWS[call.spec.name]
    t, sizes, starts = shaped_type(call[x]), call[size], call[offset]
    if t is None or not isinstance(sizes, tuple) or not isinstance(starts, tuple):
        return None
    missing = len(starts) - len(sizes)
    if missing <= 0 or len(starts) != len(t.shape):
        return None
    whole: dict[str, Arg] = {}
    for name in (size, "valid_shape", "valid_shapes"):
        given = call.args.get(name)
        if isinstance(given, tuple) and len(given) == len(sizes):
            whole[name] = (1,) * missing + given
    if call.spec.name == "slice":
        return call.emit_changed(**whole, drop_dims=tuple(range(missing)))
    tile = call.emit_changed(**whole)
    return call.emit("reshape", {}, x=tile, shape=_shape(tile)[missing:])  # type: ignore[arg-type]


# --- operands of unusual forms --------------------------------------------------------------------


@shorthand("sels", "tile.sels")
def _select_modulo(call: OpCall) -> Binding:
    """Lower `sels` with a negative number by its bits: -3 in a UINT32 tile is 2**32 - 3."""
    t, number = shaped_type(call["x"]), call["scalar"]
    if t is None or not t.dtype.is_integer or t.dtype.is_signed:
        return None
    if not isinstance(number, (int, float)) or number != number // 1:
        return None
    highest = int(t.dtype.limits[1])
    if not -(highest // 2) - 1 <= number < 0:
        return None
    return call.emit_changed(scalar=int(number) + highest + 1)


_ROW_FAMILY = "row_expand_"
_BLOCK_BYTES = 32
_SAME_SHAPE = {"max": "maximum", "min": "minimum"}


@shorthand(*(name for name in REGISTRY if name.startswith(_ROW_FAMILY)))
def _expand_blocks(call: OpCall) -> Binding:
    """Lower `row_expand_*` with 32 bytes of values per row, which repeat along the row."""
    x, t, vector = call["x"], shaped_type(call["x"]), shaped_type(call["row_vec"])
    if not call.ctx.in_scope or t is None or vector is None or len(vector.shape) != 2:
        return None
    block = _BLOCK_BYTES // vector.dtype.itemsize
    if vector.shape != (t.shape[0], block) or t.shape[-1] == 1:
        return None
    wide = call["row_vec"]
    while _shape(wide)[1] < t.shape[1]:  # type: ignore[operator]
        wide = call.emit("concat", {}, src0=wide, src1=wide)
    wide = call.emit("slice", {}, x=wide, shape=t.shape, offset=(0, 0))  # type: ignore[arg-type]
    function = call.spec.name.removeprefix(_ROW_FAMILY)
    if function == "expdif":
        return call.emit("exp", {}, x=call.emit("sub", lhs=x, rhs=wide))
    return call.emit(_SAME_SHAPE.get(function, function), lhs=x, rhs=wide)


def _swap_last(shape: tuple[Arg, ...]) -> tuple[Arg, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _shape(x: Arg) -> tuple[Dim, ...]:
    t = shaped_type(x)
    assert t is not None
    return t.shape


def _dtype(x: Arg) -> DType:
    t = shaped_type(x)
    assert t is not None
    return t.dtype
