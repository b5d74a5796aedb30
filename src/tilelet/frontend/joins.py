"""Joining the values of a name on two paths: at the end of a loop body and after an `if`."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet import dtypes
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.names import BranchTypesDiffer, MaybeUndefined, UndefinedName
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, Poison, describe
from tilelet.frontend.context import Context
from tilelet.frontend.emitting import check_literal, emit_value, load
from tilelet.ir.core import Arg, Const, Op, Value, scalar_dtype
from tilelet.ir.types import TASK_ID, Dim, JoinedDim, ScalarType, SymDim, TensorType, TileType, Type
from tilelet.ops.scalar import as_number


def type_of(x: Binding) -> Type | None:
    """Return the IR type of a binding that can be carried; None for other Python objects."""
    if isinstance(x, Value):
        return x.type
    dtype = scalar_dtype(x)
    return ScalarType(dtype) if dtype is not None else None


def same_type(a: Type, b: Type) -> bool:
    """Return whether two types agree but for memory space and run-time extents."""
    if isinstance(a, TileType) and isinstance(b, TileType):
        return a.shape == b.shape and a.dtype is b.dtype
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        pairs = list(zip(a.shape, b.shape))
        both = all(x == y or (isinstance(x, SymDim) and isinstance(y, SymDim)) for x, y in pairs)
        return both and len(a.shape) == len(b.shape) and replace(a, shape=b.shape) == b
    return a == b


def common_type(a: Type, b: Type) -> Type:
    """Join two types that agree: differing spaces are left to placement, extents to run time."""
    if isinstance(a, TileType) and isinstance(b, TileType) and a.space and b.space:
        return a if a.space is b.space else replace(a, space=None)
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape != b.shape:
        pairs = zip(a.shape, b.shape, strict=True)
        return replace(a, shape=tuple(_joined_dim(x, y) for x, y in pairs))
    return a


def _joined_dim(a: Dim, b: Dim) -> Dim:
    return a if a == b or isinstance(a, JoinedDim) else JoinedDim(str(a))


def same_binding(a: Binding, b: Binding) -> bool:
    """Return whether two paths left the same binding."""
    if a is b:
        return True
    if isinstance(a, (Value, Poison)) or isinstance(b, (Value, Poison)):
        return False
    if isinstance(a, (float, Const)):
        return type(a) is type(b) and repr(a) == repr(b)  # 0.0 == -0.0, but they differ
    return type(a) is type(b) and a == b


@dataclass(frozen=True)
class Joined:
    """The values of both paths, which have one type."""

    then: Arg
    other: Arg
    type: Type


@dataclass(frozen=True)
class Side:
    """One path: its binding, the ops of its block, and the location of the value."""

    binding: Binding
    ops: list[Op]
    loc: Loc


def side_of(name: str, env: Mapping[str, Binding], ops: list[Op], fallback: Loc) -> Side:
    """Return what a path left for `name`."""
    if name not in env:
        return Side(Poison(lambda use: UndefinedName(use, name)), ops, fallback)
    binding = env[name]
    return Side(binding, ops, binding.loc if isinstance(binding, Value) else fallback)


def join(
    ctx: Context, name: str, then: Side, other: Side, paths: tuple[str, str]
) -> Joined | Binding:
    """Join two paths; return a binding (a constant or poison) if no value has to be merged.

    `paths` describes the two paths, for a message about a name that only one of them defines.
    """
    then, other = _in_memory(ctx, then, other), _in_memory(ctx, other, then)
    a, b = then.binding, other.binding
    if same_binding(a, b):
        return a
    for missing, defined, path in ((a, then, paths[0]), (b, other, paths[1])):
        if isinstance(missing, Poison):
            if missing.error is None:
                return missing
            where = other.loc if defined is then else then.loc
            return Poison(lambda use, p=path, w=where: MaybeUndefined(use, name, w, p))
    left, right = type_of(a), type_of(b)
    if left is not None and right is not None:
        if same_type(left, right):
            types = common_type(left, right)
            return Joined(
                round_literal(a, left, then.loc), round_literal(b, left, other.loc), types
            )
        adapted = adapt(ctx, then, left, other, right)
        if adapted is not None:
            return adapted
    return Poison(
        lambda use: BranchTypesDiffer(use, name, describe(a), then.loc, describe(b), other.loc)
    )


def memory_of(ctx: Context, x: Binding) -> Value | None:
    """Return the parameter that `x` is under a new name: its value if nothing is written."""
    root = ctx.facts.root_of(x)
    same = root is not None and isinstance(x, Value) and root.type == x.type
    return root if same else None


def _in_memory(ctx: Context, missing: Side, defined: Side) -> Side:
    """Let a name for a parameter's memory on one path stand for it on the other path too."""
    undefined = isinstance(missing.binding, Poison) and missing.binding.error is not None
    memory = memory_of(ctx, defined.binding) if undefined else None
    return missing if memory is None else replace(missing, binding=memory)


def adapt(ctx: Context, then: Side, left: Type, other: Side, right: Type) -> Joined | None:
    """Load a GM tensor that meets a tile; give a plain number the dtype of the other side."""
    a, b = then.binding, other.binding
    if ctx.in_scope and _is_loadable_as(left, right):
        return Joined(_load_at_end(ctx, then), b, right)
    if ctx.in_scope and _is_loadable_as(right, left):
        return Joined(a, _load_at_end(ctx, other), left)
    if isinstance(left, ScalarType) and isinstance(right, ScalarType):
        if _fits_literal(a, right):
            return Joined(_as_typed_constant(a, right, then.loc), b, right)
        if _fits_literal(b, left):
            return Joined(a, _as_typed_constant(b, left, other.loc), left)
        if left.dtype.is_integer and right.dtype.is_integer and TASK_ID not in (left, right):
            both = ScalarType(dtypes.promote(left.dtype, right.dtype))
            return Joined(_cast_at_end(ctx, then, both), _cast_at_end(ctx, other, both), both)
    return None


def _is_loadable_as(tensor: Type, tile: Type) -> bool:
    """Return whether `tensor`, when loaded, has the type `tile`."""
    if not isinstance(tensor, TensorType) or not isinstance(tile, TileType):
        return False
    return tensor.shape == tile.shape and tensor.dtype is tile.dtype


def _fits_literal(x: Binding, t: ScalarType) -> bool:
    """Return whether `x` is a plain number that can be a constant of type `t`."""
    if not isinstance(x, (int, float)):
        return False
    if isinstance(x, bool):
        return t.dtype is dtypes.BOOL
    return t.dtype.is_float or (isinstance(x, int) and t.dtype.is_integer)


def _as_typed_constant(x: Binding, t: ScalarType, loc: Loc) -> Const:
    assert isinstance(x, (bool, int, float))
    if isinstance(x, int):
        check_literal(x, t.dtype, loc)
    return Const(as_number(x, t.dtype) if t.dtype.is_float else x, t.dtype)


def round_literal(x: Arg, t: Type | None, loc: Loc) -> Arg:
    """Round a plain number that becomes a run-time scalar to the type of the scalar."""
    if isinstance(x, float) and isinstance(t, ScalarType):
        return as_number(x, t.dtype)
    if isinstance(x, int) and isinstance(t, ScalarType):
        check_literal(x, t.dtype, loc)
    return x


def _cast_at_end(ctx: Context, side: Side, t: ScalarType) -> Arg:
    """Cast the side's scalar at the end of its block."""
    if scalar_dtype(side.binding) is t.dtype:
        return side.binding
    end = ctx.fork(ops=side.ops)
    return emit_value(end, "scalar.cast", side.loc, x=side.binding, target_type=t.dtype)


def _load_at_end(ctx: Context, side: Side) -> Value:
    """Load the side's GM tensor at the end of its block."""
    assert isinstance(side.binding, Value)
    return load(ctx.fork(ops=side.ops), side.binding, side.loc)
