"""From a bound op call to IR: plane checks, implicit loads, inference, scalar folding."""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sized
from typing import Any, TypeGuard

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.cautions import ClearedByArithmetic, ImplicitScope
from tilelet.diag.catalogue.names import DynamicDimMisuse, UnsupportedCapture
from tilelet.diag.catalogue.ranks import WrongPlace
from tilelet.diag.catalogue.scopes import ComputeOutsideScope, OnlyAtOrchestration, OnlyInScope
from tilelet.diag.catalogue.unsupported import UnsupportedConstruct
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.frontend.bindings import (
    Binding,
    Poison,
    Swapped,
    ValueFacts,
    as_items,
    items_of,
    shaped_type,
    tensor_type,
    tile_type,
    unpack_results,
)
from tilelet.frontend.context import Context, finish_block
from tilelet.ir import structure
from tilelet.ir.core import Arg, Const, FunctionKind, Op, Value, scalar_dtype
from tilelet.ir.spec import REGISTRY, Call, Engine, OpSpec, Plane, Trait, expand, shown_name
from tilelet.ir.types import (
    ArrayType,
    ComputedDim,
    Dim,
    DistributedType,
    Mem,
    ScalarType,
    SymDim,
    TensorType,
    TileType,
    Type,
)
from tilelet.ops import infer
from tilelet.ops.clearing import cleared_operand
from tilelet.ops.scalar import OPERATIONS, as_number
from tilelet.ops.views import has_no_tile

_HOST, _CONTROL, _KERNEL = "the host function", "a control program", "a kernel"
_COLLECTIVES = (
    "allreduce", "barrier", "broadcast", "allgather", "reduce_scatter", "all_to_all",
    "all_to_all_v",
)  # fmt: skip
_PLACES: dict[str, tuple[str, ...]] = {
    "pld.world_size": (_HOST,),
    "pld.alloc_window_buffer": (_HOST,),
    "pld.window": (_HOST,),
    "pld.rank": (_CONTROL, _KERNEL),
    "pld.nranks": (_CONTROL, _KERNEL),
    **{f"pld.tensor.{name}": (_HOST, _KERNEL) for name in _COLLECTIVES},
}
"""Where names of `pld` belong that do not say so by their plane."""


def is_arg(x: Binding) -> TypeGuard[Arg]:
    """Return whether a binding other than a tuple can be an op argument unchanged."""
    return x is None or isinstance(x, (Value, Const, bool, int, float, str, DType, enum.Enum))


def to_arg(ctx: Context, x: Binding, loc: Loc, name: str = "") -> Arg:
    """Return a binding as an op argument; raise if ops do not take such a Python object."""
    if isinstance(x, Poison):
        x.raise_at(loc)
    if isinstance(x, int):
        check_width(x, loc)
    if is_arg(x):
        return x
    items = items_of(x)
    if items is not None:
        return tuple(to_arg(ctx, item, loc, name) for item in items)
    if isinstance(x, np.generic):
        return to_arg(ctx, x.item(), loc, name)
    if isinstance(x, SymDim):
        return resolve_dim(ctx, x, loc)
    raise UnsupportedCapture(loc, name or "this value", type(x).__name__)


def check_width(x: int, loc: Loc) -> None:
    """Reject integers of more than 64 bits, whatever type they would take."""
    infer.check_constant(x, dtypes.INT64 if x < 0 else dtypes.UINT64, loc)


def resolve_dim(ctx: Context, dim: SymDim, loc: Loc) -> Arg:
    """Return the extent of a `pl.dynamic` symbol here, as a constant or a scalar."""
    found = ctx.dims.get(dim)
    if found is None and isinstance(dim, ComputedDim):
        sides = (to_arg(ctx, dim.left, loc), to_arg(ctx, dim.right, loc))
        return to_arg(ctx, emit_scalar(ctx, dim.operation, sides, loc), loc)
    if found is None:
        raise DynamicDimMisuse(
            loc, dim.name, "no parameter has this dimension", "read a dimension with `x.shape`"
        )
    place = items_of(found)
    if place is not None:
        tensor, axis = place
        return emit_value(ctx, "tensor.dim", loc, dim.name, tensor=tensor, axis=axis)
    return found


def extent(ctx: Context, value: Value, axis: int, loc: Loc) -> Arg:
    """Return the extent of an axis of a tensor or tile, as a constant or a scalar."""
    t = shaped_type(value)
    assert t is not None
    dim = t.shape[axis]
    if isinstance(dim, int):
        return dim
    if isinstance(ctx.dims.get(dim), int):
        return to_arg(ctx, ctx.dims[dim], loc)
    return emit_value(ctx, "tensor.dim", loc, dim.name, tensor=value, axis=axis)


def emit_op(
    ctx: Context,
    spec: OpSpec,
    args: Mapping[str, Arg],
    loc: Loc,
    name: str = "",
    arg_locs: Mapping[str, Loc] | None = None,
) -> Binding:
    """Emit one op; return its result (None, a Value, or a tuple of Values)."""
    _check_use(ctx, spec, args, loc, arg_locs or {})
    if spec.plane is Plane.SCOPE and not ctx.in_scope:
        return _emit_outside_scope(ctx, spec, args, loc, name, arg_locs)
    if spec.plane is Plane.CONTROL and ctx.in_scope:
        raise OnlyAtOrchestration(loc, shown_name(spec.name), ctx.scope_loc)
    given = args
    if "in_lane" in args:
        args = {**args, "in_lane": ctx.lane is not None}
    if ctx.in_scope:
        if spec.name in WINDOWS and swapped_tensor(ctx, args[WINDOWS[spec.name][0]]):
            window = _window_of_swapped(ctx, spec, args, loc, name, arg_locs or {})
            if window is not None:
                return window
        if spec.name in WINDOWS and not ctx.style.drops_axis:
            args = with_region(ctx.facts, spec.name, args)
        if spec.name != "transpose" or not has_no_tile(args["x"]):
            args = {
                p: _load_operand(ctx, a, loc) if spec.wants_tile(p) and not _is_view(spec, a) else a
                for p, a in args.items()
            }
        args = _with_fitting_vector(ctx, args, loc)
        if Trait.ELEMENTWISE in spec.traits:
            args = _pad_ranks(ctx, args, loc)
    types = spec.infer(Call(spec.name, args, ctx.in_scope, loc, arg_locs or {}))
    if spec.expands is not None:
        return expand(spec, args, lambda inner, given: emit_op(ctx, inner, given, loc))
    results = ctx.emit(spec, args, types, loc, (name,) if name else ())
    _note_effects(ctx, spec, args, results, loc)
    if ctx.in_scope and spec.name == "transpose":
        _note_swapped(ctx, results[0], given)
    return unpack_results(results)


def emit_value(
    ctx: Context,
    op: str,
    loc: Loc,
    name: str = "",
    arg_locs: Mapping[str, Loc] | None = None,
    /,
    **args: Arg,
) -> Value:
    """Emit the op called `op`, which has one result, with defaults for missing arguments."""
    spec = REGISTRY[op]
    result = emit_op(ctx, spec, default_args(spec, **args), loc, name, arg_locs)
    assert isinstance(result, Value)
    return result


def _note_swapped(ctx: Context, result: Value, args: Mapping[str, Arg]) -> None:
    x, axes, t = args["x"], (args["axis1"], args["axis2"]), tensor_type(args["x"])
    if isinstance(x, Value) and t is not None:
        a, b = (axis % len(t.shape) for axis in axes if isinstance(axis, int))
        ctx.facts.swapped[result] = Swapped(x, (a, b), ctx.facts.writes_to(x))


def swapped_tensor(ctx: Context, x: Arg) -> Swapped | None:
    """Return the tensor that `x` is with two axes swapped, if it was not written since."""
    found = ctx.facts.swapped.get(x) if isinstance(x, Value) else None
    return None if found is None or ctx.facts.is_written_since(found) else found


def _window_of_swapped(
    ctx: Context,
    spec: OpSpec,
    args: Mapping[str, Arg],
    loc: Loc,
    name: str,
    arg_locs: Mapping[str, Loc],
) -> Binding:
    """Load a window of a tensor with two axes swapped as it lies in memory, then swap its axes.

    Return None if the window has another rank than the tensor.
    """
    param, size, offset = WINDOWS[spec.name]
    found = swapped_tensor(ctx, args[param])
    assert found is not None
    base, (a, b) = found.tensor, found.axes
    rank = len(base.type.shape)  # type: ignore[union-attr]
    lying = {**args, param: base}
    for p in (size, offset, "valid_shape", "valid_shapes"):
        given = args.get(p)
        if given is None:
            continue
        if not isinstance(given, tuple) or len(given) != rank or args.get("drop_dims"):
            return None
        axes = list(given)
        axes[a], axes[b] = axes[b], axes[a]
        lying[p] = tuple(axes)
    ctx.facts.windowed.append(found)
    on_the_way = spec.name == "load" and (args["transpose"] or args["target_memory"] is Mem.Mat)
    if on_the_way and {a, b} == {rank - 2, rank - 1}:
        lying["transpose"] = not args["transpose"]
        return emit_op(ctx, spec, lying, loc, name, arg_locs)
    tile = to_arg(ctx, emit_op(ctx, spec, lying, loc, name, arg_locs), loc)
    swap = {"x": tile, "axis1": a, "axis2": b}
    return emit_op(ctx, REGISTRY["transpose"], swap, loc, name)


def _check_use(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], loc: Loc, arg_locs: Mapping[str, Loc]
) -> None:
    """Raise an error if an op stands, or has operands, where it has no meaning."""
    if spec.name in _PLACES:
        _check_place(ctx, spec, loc)
    if ctx.facts.layouts and spec.name != "load_scale":
        _check_layouts(ctx, args, loc)
    if ctx.facts.packed:
        _check_packed(ctx, args, arg_locs, loc)


def _check_layouts(ctx: Context, args: Mapping[str, Arg], loc: Loc) -> None:
    """Reject uses of packed scales other than loading them and passing them on."""
    for arg in args.values():
        if isinstance(arg, Value) and arg in ctx.facts.layouts:
            what = f"`{arg.name}`, which holds scales in layout {ctx.facts.layouts[arg]},"
            raise UnsupportedConstruct(loc, what, "hand it on whole, and `pl.load` a part of it")


def _check_packed(
    ctx: Context, args: Mapping[str, Arg], arg_locs: Mapping[str, Loc], loc: Loc
) -> None:
    """Reject packed scales as operands of a product; a load of their layout unpacks them."""
    for param in ("lhs_scale", "rhs_scale"):
        if args.get(param) in ctx.facts.packed:
            what = "scales in the order in which `pl.quant_mx` makes them"
            instead = "store them, and `pl.load` a `pl.tensor.view` of their layout"
            raise UnsupportedConstruct(arg_locs.get(param, loc), what, instead)


def _with_fitting_vector(ctx: Context, args: Mapping[str, Arg], loc: Loc) -> Mapping[str, Arg]:
    """Reshape the vector of `row_expand_*` or `col_expand_*` to the rank of its tile.

    The number of rows of a tile is the product of its leading extents: `[2, 8, 64]` has 16.
    """
    name = "row_vec" if "row_vec" in args else "col_vec"
    vector = args.get(name)
    if not isinstance(vector, Value):
        return args  # most ops have no vector
    x, t = tile_type(args.get("x")), tile_type(vector)
    if x is None or t is None:
        return args
    rows, columns = x.shape[:-1], x.shape[-1]
    wanted = (*rows, 1) if name == "row_vec" else (*(1 for _ in rows), columns)
    given = t.shape
    at = -1 if name == "row_vec" else -2
    # A vector of rank 1 can be a row or a column.
    fits = math.prod(given) == math.prod(wanted) and (len(given) == 1 or given[at] == 1)
    if given == wanted or len(given) == len(wanted) or not fits:
        return args
    reshaped = emit_value(ctx, "reshape", loc, vector.name, x=vector, shape=wanted)
    return {**args, name: reshaped}


def _pad_ranks(ctx: Context, args: Mapping[str, Arg], loc: Loc) -> Mapping[str, Arg]:
    """Add the leading axes of extent 1 that a tile lacks and another operand has."""
    tiles = {name: tile_type(arg) for name, arg in args.items()}
    shapes = {name: t.shape for name, t in tiles.items() if t is not None}
    longest = max(shapes.values(), key=len, default=())
    padded = dict(args)
    for name, shape in shapes.items():
        lacking = longest[: len(longest) - len(shape)]
        if lacking and set(lacking) == {1}:
            shape = (*lacking, *shape)
            padded[name] = emit_value(ctx, "reshape", loc, x=args[name], shape=shape)
    return padded


def _check_place(ctx: Context, spec: OpSpec, loc: Loc) -> None:
    """Raise an error for a name of `pld` in a function where it has no meaning."""
    is_host = ctx.kind is FunctionKind.Host
    found = _KERNEL if ctx.in_scope else _HOST if is_host else _CONTROL
    if found not in _PLACES[spec.name]:
        raise WrongPlace(loc, spec.name, found, " or ".join(_PLACES[spec.name]))


def _is_view(spec: OpSpec, arg: Arg) -> bool:
    """Return whether an op between ranks is given a window, which it does not take as a tile."""
    is_window = isinstance(arg, Value) and isinstance(arg.type, DistributedType)
    return is_window and spec.name.startswith("pld.")


def _emit_outside_scope(
    ctx: Context,
    spec: OpSpec,
    args: Mapping[str, Arg],
    loc: Loc,
    name: str,
    arg_locs: Mapping[str, Loc] | None,
) -> Binding:
    """Emit a compute op of the control program in an implied scope, or raise."""
    if spec.engine in (Engine.MTE, Engine.SCALAR):
        raise OnlyInScope(loc, shown_name(spec.name))
    if not (ctx.style.implied or ctx.in_chunked):
        raise ComputeOutsideScope(loc, spec.name)
    if not ctx.in_chunked:
        ctx.sink.add(ImplicitScope(loc, spec.name))
    inside = ctx.nested_scope(loc)
    inner = emit_op(inside, spec, args, loc, name, arg_locs)
    values = as_items(inner) if inner is not None else ()
    return emit_scope(ctx, "implied", inside.ops, values, (), loc)


def emit_scope(
    ctx: Context,
    kind: str,
    ops: list[Op],
    values: tuple[Arg, ...],
    params: tuple[Value, ...],
    loc: Loc,
    names: Mapping[Arg, str] | None = None,
    **options: Arg,
) -> Binding:
    """Close a scope around `ops`; return its results, in which tiles have become GM tensors.

    `names` are the names of values outside, where they differ from those inside.
    """
    args: dict[str, Arg] = {
        "kind": kind, "hint": None, "split": None, "slots": None, "count": None, "deps": (),
        "no_dep": (), "options": (), "task_id": False,
    }  # fmt: skip
    args.update(options)
    types = tuple(spilled_type(v.type) for v in values if isinstance(v, Value))
    outside = tuple((names or {}).get(v, v.name) for v in values if isinstance(v, Value))
    if args["task_id"]:
        types, outside = (*types, ScalarType(dtypes.TASK_ID)), (*outside, "tid")
    block = finish_block(ops, params, values, loc)
    results = ctx.emit(structure.SCOPE, args, types, loc, outside, (block,))
    for result, inner in zip(results, values, strict=False):
        ctx.facts.note_same(result, inner)
    return unpack_results(results)


def emit_undefined(
    ctx: Context, t: TensorType | TileType | ScalarType | ArrayType, loc: Loc
) -> Value:
    """Emit a value that no path has defined yet."""
    return ctx.emit(structure.UNDEF, {}, (t,), loc, ("undefined",))[0]


def spilled_type(t: Type) -> Type:
    """Return the type of a value after it has left its scope."""
    return TensorType(t.shape, t.dtype) if isinstance(t, TileType) else t


def _load_operand(ctx: Context, arg: Arg, loc: Loc) -> Arg:
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        return load(ctx, arg, loc)
    if isinstance(arg, tuple):
        return tuple(_load_operand(ctx, a, loc) for a in arg)
    return arg


def load(ctx: Context, tensor: Value, loc: Loc) -> Value:
    """Load a whole GM tensor into a tile."""
    assert isinstance(tensor.type, TensorType)
    shape: list[Arg] = []
    for axis, dim in enumerate(tensor.type.shape):
        is_symbol = isinstance(dim, int | ComputedDim) or dim in ctx.dims
        shape.append(to_arg(ctx, dim, loc) if is_symbol else extent(ctx, tensor, axis, loc))
    zero = (0,) * len(shape)
    return emit_value(ctx, "slice", loc, tensor.name, x=tensor, shape=tuple(shape), offset=zero)


def default_args(spec: OpSpec, **given: Arg) -> dict[str, Arg]:
    """Return the arguments of `spec` in signature order, with defaults filled in."""
    return {name: given.get(name, default) for name, default in _defaults(spec)}


@functools.cache
def _defaults(spec: OpSpec) -> tuple[tuple[str, Any], ...]:
    return tuple((p.name, p.default) for p in spec.signature.parameters.values())


def _note_effects(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], results: tuple[Value, ...], loc: Loc
) -> None:
    """Note what an op does: one that writes in place consumes the old value of its target."""
    facts = ctx.facts
    if spec.view is not None and results:
        facts.note_view(results[0], args[spec.view])
    if spec.traits & (Trait.SHAPE_ONLY | Trait.OF_BLOCK):
        facts.note_constant(results[0], (spec.name, *args.values()))
    if spec.name == "tensor.dim":
        facts.note_extent(results[0], args["tensor"], args["axis"])
    elif results and "shape" in args:
        facts.note_extents(results[0], args["shape"])
    if spec.name == "quant_mx":
        facts.packed.add(results[1])
    elif facts.packed and results and spec.name != "load_scale":
        facts.packed.update(results[:1] if not facts.packed.isdisjoint(args.values()) else ())
    _note_region(ctx, spec, args, results)
    _note_undefined(ctx, spec, args, results, loc)
    for i, param in enumerate(spec.writes):
        target = args[param]
        if isinstance(target, Value) and results:
            facts.note_written(target)
            # The others keep their names, and so do windows: peers write to them anyway.
            if i < len(results) and not isinstance(target.type, DistributedType):
                ctx.consumed[target] = (loc, results[i])
            if i < len(results):
                facts.note_same(results[i], target)


def _note_region(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], results: tuple[Value, ...]
) -> None:
    """Note the valid region of a tile if the text states it or an operand has it."""
    if not results or not isinstance(results[0].type, TileType) or spec.valid is None:
        return
    stated = args.get("valid_shape") or args.get("valid_shapes")
    if spec.name == "set_validshape":
        stated = (args["rows"], args["cols"])
    if isinstance(stated, tuple) and len(stated) == len(results[0].type.shape):
        ctx.facts.regions[results[0]] = stated
    elif Trait.KEEPS_VALID in spec.traits:
        for arg in args.values():
            region = ctx.facts.regions.get(arg) if isinstance(arg, Value) else None
            if region is not None and arg.type.shape == results[0].type.shape:  # type: ignore[union-attr]
                ctx.facts.regions[results[0]] = region


def _note_undefined(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], results: tuple[Value, ...], loc: Loc
) -> None:
    """Note memory that is not written yet; caution if it is cleared by arithmetic."""
    undefined = ctx.facts.undefined
    if spec.name in ("create_tensor", "create_tile") and args.get("init_value") is None:
        undefined.update(results)
    if results and (spec.name == "load" or spec.view is not None):
        ctx.facts.note_undefined(results[0], args[spec.view or "tensor"])
    cleared = cleared_operand(ctx.ops[-1])
    if cleared is not None and args[cleared] in undefined:
        ctx.module.note_retired(ClearedByArithmetic(loc, spec.name))


# --- windows -------------------------------------------------------------------------------------

WINDOWS = {"slice": ("x", "shape", "offset"), "load": ("tensor", "shapes", "offsets")}
"""Parameter names of the base, the size and the offset."""


def with_region(facts: ValueFacts, name: str, args: Mapping[str, Arg]) -> Mapping[str, Arg]:
    """Return the arguments of a load of run-time size, such as `x[0:n]`, with a constant size.

    A tile has constant extents: it gets the largest size the window can have, and the window's size
    as its valid region. Early versions of the language took such sizes; later ones require
    `valid_shape=`. The arguments are unchanged if the size is constant, if the text states a
    region, or if neither the computation of a size nor the extent of the base bounds it.
    """
    param, size, offset = WINDOWS[name]
    x, sizes, starts = shaped_type(args[param]), args[size], args[offset]
    if not isinstance(sizes, tuple) or not any(isinstance(s, Value) for s in sizes):
        return args
    if args.get("valid_shape") is not None or args.get("valid_shapes") is not None:
        return args
    if x is None or not isinstance(starts, tuple) or not len(sizes) == len(starts) == len(x.shape):
        return args
    largest = [
        _largest(facts, *axis) if isinstance(axis[1], Value) else axis[1]
        for axis in zip(x.shape, sizes, starts, strict=True)
    ]
    if None in largest:
        return args
    return {**args, size: tuple(largest), "valid_shape": sizes, "sized": True}


def _largest(facts: ValueFacts, extent: Dim, size: Arg, start: Arg) -> int | None:
    whole = facts.bounds_of(extent).most
    if whole is not None and isinstance(start, int):
        whole -= start
    known = [bound for bound in (facts.bounds_of(size).most, whole) if bound is not None]
    most = min(known, default=0)
    return most if most > 0 else None


# --- scalars -------------------------------------------------------------------------------------

_py: Any = operator  # untyped: the generic stubs of `operator` do not help here
_FOLD: dict[str, Callable[..., Binding]] = {
    "add": _py.add, "sub": _py.sub, "mul": _py.mul, "truediv": _py.truediv,
    "floordiv": _py.floordiv, "mod": _py.mod, "pow": _py.pow,
    "shl": _py.lshift, "shr": _py.rshift,
    "bitand": _py.and_, "bitor": _py.or_, "bitxor": _py.xor,
    "lt": _py.lt, "le": _py.le, "gt": _py.gt, "ge": _py.ge,
    "eq": _py.eq, "ne": _py.ne, "min": min, "max": max,
    "neg": _py.neg, "not": _py.not_, "invert": _py.invert, "pos": _py.pos,
}  # fmt: skip


# Limits of compile-time numbers, strings and lists: `9 ** 9 ** 9` would never finish.
_MAX_BITS, _MAX_ITEMS = 1 << 16, 1 << 20


def fold(operation: str, *values: Binding) -> Binding:
    """Apply the operation to compile-time objects as Python does; `OverflowError` if huge."""
    if len(values) == 2 and _is_huge(operation, *values):
        raise OverflowError("the result is too large to be of use in a kernel")
    if operation == "mod" and isinstance(values[0], (str, bytes)):
        raise TypeError("`%` is arithmetic in a kernel, and does not format text")
    return _FOLD[operation](*values)


def _is_huge(operation: str, a: Binding, b: Binding) -> bool:
    if operation == "add" and isinstance(a, Sized) and isinstance(b, Sized):
        return len(a) + len(b) > _MAX_ITEMS
    if operation == "mul" and not isinstance(b, int):
        a, b = b, a
    if not isinstance(b, int) or b <= 0:
        return False
    if isinstance(a, int):
        size = a.bit_length()
        grown = size * b if size > 1 else 1
        bits = {"pow": grown, "shl": size + b, "mul": size + b.bit_length()}
        return bits.get(operation, 0) > _MAX_BITS
    return operation == "mul" and isinstance(a, Sized) and len(a) * b > _MAX_ITEMS


def as_index(operation: str, operands: tuple[Binding, ...], result: Binding) -> Binding:
    """Return the result of integer arithmetic as at run time: division truncates, integers wrap.

    Operands other than INDEX, and other operations, keep Python's result.
    """
    if type(result) is not int or not all(_fits_index(x) for x in operands):
        return result
    if operation in OPERATIONS:
        return as_number(OPERATIONS[operation](*operands), dtypes.INDEX)
    return as_number(result, dtypes.INDEX) if len(operands) == 1 else result


def _fits_index(x: Binding) -> bool:
    low, high = dtypes.INDEX.limits
    return type(x) is int and low <= x <= high


def emit_scalar(ctx: Context, operation: str, operands: tuple[Arg, ...], loc: Loc) -> Binding:
    """Emit scalar arithmetic with at least one operand that is known only at run time."""
    if all(isinstance(o, (bool, int, float)) for o in operands):
        return fold(operation, *operands)
    simple = _identity(operation, operands)
    if simple is not None:
        return simple
    spec = REGISTRY[f"scalar.{operation}"]
    if len(operands) == 2:
        check_literals(operation, operands, loc)
        a, b = operands
        operands = (_rounded_literal(a, b), _rounded_literal(b, a))
    args = dict(zip(spec.signature.parameters, operands, strict=False))
    result = emit_op(ctx, spec, args, loc, _scalar_name(operation, operands))
    assert isinstance(result, Value)
    ctx.facts.note_scalar(result, operation, operands)
    return result


def check_literals(operation: str, operands: tuple[Arg, ...], loc: Loc) -> None:
    """Check that a plain integer fits the type of the run-time scalar it is combined with."""
    if len(operands) != 2:
        return
    a, b = operands
    count = dtypes.INDEX if operation in ("shl", "shr") else scalar_dtype(a)
    for x, dtype in ((a, scalar_dtype(b)), (b, count)):
        if isinstance(x, int) and not isinstance(x, bool) and dtype is not None:
            check_literal(x, dtype, loc)


def check_literal(x: int, dtype: DType, loc: Loc) -> None:
    """Check that a plain integer fits `dtype`."""
    infer.check_constant(x, dtype if dtype.is_integer else dtypes.INDEX, loc)


def _rounded_literal(x: Arg, other: Arg) -> Arg:
    """Round a plain number to the type of the float scalar beside it, so `s == 0.1` can hold."""
    dtype = scalar_dtype(other)
    if isinstance(x, Const) and x.dtype.is_float:
        return Const(as_number(x.value, x.dtype), x.dtype)
    if isinstance(x, bool) or not isinstance(x, (int, float)) or dtype is None:
        return x
    if not dtype.is_float:
        return as_number(x, dtypes.FP32) if isinstance(x, float) else x
    rounded = as_number(x, dtype)
    return x if rounded == x else rounded


def _identity(operation: str, operands: tuple[Arg, ...]) -> Arg:
    """Return `x` for `x + 0`, `x * 1` and the like (same dtype only)."""
    if len(operands) != 2:
        return None
    a, b = operands
    neutral = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}.get(operation)
    if neutral is None:
        return None
    pairs = [(a, b), (b, a)] if operation in ("add", "mul") else [(a, b)]
    for x, other in pairs:
        is_neutral = type(other) is int and other == neutral
        if is_neutral and isinstance(x, Value) and scalar_dtype(x) is dtypes.INDEX:
            return x
    return None


def _scalar_name(operation: str, operands: tuple[Arg, ...]) -> str:
    first = operands[0]
    return first.name if isinstance(first, Value) and operation in ("add", "sub") else operation
