"""Subscripts: `x[i, j]` reads, `x[a:b, c:d]` windows, `dst[...] = src` writes."""

from __future__ import annotations

import ast

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.cautions import PromotedToTile
from tilelet.diag.catalogue.ops import BadArgument, NotConstant, ShapeMismatch
from tilelet.diag.catalogue.python import BadAssignTarget, CompileTimeFailed, UnsupportedExpression
from tilelet.diag.catalogue.windows import (
    BadSubscript,
    ChainedWrite,
    NonConstantExtent,
    ScalarIntoWindow,
    WrongIndexCount,
)
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, describe, is_scalar, is_shaped, tile_type
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import evaluate, evaluate_arg, expression
from tilelet.frontend.emitting import (
    default_args,
    emit_scalar,
    emit_value,
    extent,
    to_arg,
    with_region,
)
from tilelet.frontend.shorthands import as_accumulated
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import ArrayType, TensorType, TileType
from tilelet.syntax.views import MemRef


@dataclass(frozen=True)
class SubscriptWindow:
    """A subscript of a tensor: offset and size on each axis."""

    starts: tuple[Arg, ...]
    sizes: tuple[Arg, ...]
    scalar_axes: tuple[int, ...]  # axes given by a single index

    @property
    def is_element(self) -> bool:
        return len(self.scalar_axes) == len(self.starts)

    @property
    def kept_sizes(self) -> list[Arg]:
        """Sizes of the axes that are given by a slice."""
        return [s for axis, s in enumerate(self.sizes) if axis not in self.scalar_axes]


@expression(ast.Subscript)
def read(ctx: Context, node: ast.Subscript) -> Binding:
    base = evaluate(ctx, node.value)
    loc = ctx.loc(node)
    if not isinstance(base, Value):
        return _python_item(ctx, base, node)
    if isinstance(base.type, ArrayType):
        index = evaluate_arg(ctx, node.slice)
        return emit_value(ctx, "array.get", loc, array=base, index=index)
    if not isinstance(base.type, (TensorType, TileType)):
        raise UnsupportedExpression(loc, f"a subscript of {base.type}")
    window = parse_window(ctx, base, node)
    if window.is_element:
        return emit_value(ctx, "read", loc, base.name, x=base, indices=window.starts)
    return _window_value(ctx, base, window, loc)


def _window_value(ctx: Context, base: Value, window: SubscriptWindow, loc: Loc) -> Binding:
    place: dict[str, Arg] = {"shape": window.sizes, "offset": window.starts}
    value = emit_value(ctx, "slice", loc, base.name, x=base, **place)
    if not window.scalar_axes or not ctx.style.drops_axis:
        return value
    kept = window.kept_sizes
    if ctx.in_scope and len(kept) < 2:
        # A tile has at least two axes: x[i, a:b] stays [1, n].
        promoted = [1] * (2 - len(kept)) + kept
        ctx.sink.add(PromotedToTile(loc, kept, promoted))
        kept = promoted
    if len(kept) == len(window.sizes):
        return value
    return emit_value(ctx, "reshape", loc, base.name, x=value, shape=tuple(kept))


def _python_item(ctx: Context, base: Binding, node: ast.Subscript) -> Binding:
    """Return an item of a compile-time container, or a type such as `pl.Tensor[...]`."""
    loc = ctx.loc(node)
    at = node.slice
    if isinstance(at, ast.Slice):
        index = slice(*(evaluate(ctx, p) if p else None for p in (at.lower, at.upper, at.step)))
    else:
        index = evaluate(ctx, at)
    if isinstance(index, Value) and not isinstance(base, MemRef):
        instead = "loop with `pl.unroll` to index a Python list"
        raise NotConstant(ctx.loc(at), "subscript", "index", instead)
    try:
        return base[index]  # type: ignore[index]
    except Exception as problem:
        raise CompileTimeFailed(loc, problem) from None


def parse_window(
    ctx: Context, base: Value, node: ast.Subscript, source: Value | None = None
) -> SubscriptWindow:
    """Return offsets and sizes of a subscript; missing trailing indices mean whole axes.

    If a `source` is to be written there, its extents are constants, so the window may have run-time
    sizes.
    """
    assert isinstance(base.type, (TensorType, TileType))
    rank = len(base.type.shape)
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(parts) > rank:
        raise WrongIndexCount(ctx.loc(node.slice), base.name, len(parts), rank)
    starts: list[Arg] = []
    sizes: list[Arg] = []
    scalar_axes: list[int] = []
    for axis in range(rank):
        part = parts[axis] if axis < len(parts) else None
        start: Arg = 0
        size = extent(ctx, base, axis, ctx.loc(node))
        if isinstance(part, ast.Slice):
            start, size = _slice_bounds(ctx, part, size)
        elif isinstance(part, ast.Constant) and part.value is Ellipsis:
            raise BadSubscript(ctx.loc(part), "`...` in a subscript", "write `:`")
        elif part is not None:
            start, size = _index(ctx, part), 1
            scalar_axes.append(axis)
        starts.append(start)
        sizes.append(size)
    window = SubscriptWindow(tuple(starts), tuple(sizes), tuple(scalar_axes))
    unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    if ctx.in_scope and unknown and source is None and not _has_largest(ctx, base, window):
        at = parts[unknown[0]] if unknown[0] < len(parts) else node
        raise NonConstantExtent(ctx.loc(at), unknown[0])
    return window


def _has_largest(ctx: Context, base: Value, window: SubscriptWindow) -> bool:
    """Return whether a window of run-time size can be a partially valid tile of constant size."""
    if ctx.style.drops_axis:
        return False
    args = default_args(REGISTRY["slice"], x=base, shape=window.sizes, offset=window.starts)
    return with_region(ctx.facts, "slice", args) is not args


def _index(ctx: Context, node: ast.expr) -> Arg:
    index = evaluate_arg(ctx, node)
    if not is_scalar(index):
        what, wanted = describe(index), "an integer or a slice"
        raise BadArgument(ctx.loc(node), "subscript", "index", what, wanted)
    if isinstance(index, int) and index < 0:
        raise BadSubscript(ctx.loc(node), "a negative index", "count from the start of the axis")
    return index


def _slice_bounds(ctx: Context, part: ast.Slice, extent: Arg) -> tuple[Arg, Arg]:
    if part.step is not None:
        raise BadSubscript(ctx.loc(part), "a step in a slice", "take a dense window")
    start: Arg = _index(ctx, part.lower) if part.lower else 0
    stop: Arg = _index(ctx, part.upper) if part.upper else extent
    size = ctx.facts.difference(stop, start)
    if size is not None:
        return start, size
    loc = ctx.loc(part)
    return start, to_arg(ctx, emit_scalar(ctx, "sub", (stop, start), loc), loc)


def write(ctx: Context, target: ast.Subscript, source: Binding, source_node: ast.expr) -> Binding:
    """Lower `base[window] = source`; return the new value of the base."""
    base = evaluate(ctx, target.value)
    loc = ctx.loc(target)
    if not isinstance(target.value, ast.Name):
        raise ChainedWrite(loc)
    if not isinstance(base, Value):
        raise BadAssignTarget(loc, f"an item of {describe(base)}")
    if isinstance(base.type, ArrayType):
        index = evaluate_arg(ctx, target.slice)
        value = to_arg(ctx, source, ctx.loc(source_node))
        return emit_value(ctx, "array.set", loc, base.name, array=base, index=index, value=value)
    if not isinstance(base.type, (TensorType, TileType)):
        raise BadAssignTarget(loc, f"an item of {base.type}")
    source_loc = ctx.loc(source_node)
    if not isinstance(source, Value) or not is_shaped(source):
        raise ScalarIntoWindow(source_loc, describe(source))
    window = parse_window(ctx, base, target, source)
    source = _fit(ctx, as_accumulated(ctx, source, base), source_loc, window, loc)
    locs = {"target": ctx.loc(target.value), "source": source_loc, "offset": loc}
    parts: dict[str, Arg] = {"target": base, "source": source, "offset": window.starts}
    return emit_value(ctx, "assemble", loc, target.value.id, locs, **parts)


def _fit(ctx: Context, source: Value, source_loc: Loc, window: SubscriptWindow, loc: Loc) -> Value:
    """Return the source with the window's rank; raise if the shapes disagree."""
    assert isinstance(source.type, (TensorType, TileType))
    shape = source.type.shape
    if _fills_window(ctx, source, window):
        return source
    kept = window.kept_sizes
    for wanted in (list(window.sizes), kept, [1] * max(0, 2 - len(kept)) + kept):
        if len(wanted) == len(shape) and all(map(_may_equal, wanted, shape)):
            if len(wanted) == len(window.sizes):
                return _limit_valid_region(ctx, source, window, source_loc)
            return _reshape(ctx, source, tuple(window.sizes), source_loc)
    surplus = len(shape) - len(window.sizes)
    inner_shape = tuple(d for d in shape[surplus:] if isinstance(d, int))
    if surplus > 0 and set(shape[:surplus]) == {1} and len(inner_shape) == len(window.sizes):
        # A product with a window of a batched matrix has a batch axis.
        inner = _reshape(ctx, source, inner_shape, source_loc)
        return _fit(ctx, inner, source_loc, window, loc)
    sizes = tuple(s.name if isinstance(s, Value) else s for s in window.sizes)
    what, why = "subscript assignment", "the source must fill the window"
    raise ShapeMismatch(what, loc, sizes, source_loc, shape, why)


def _reshape(ctx: Context, source: Value, shape: tuple[Arg, ...], loc: Loc) -> Value:
    return emit_value(ctx, "reshape", loc, source.name, x=source, shape=shape)


def _limit_valid_region(ctx: Context, source: Value, window: SubscriptWindow, loc: Loc) -> Value:
    """Limit the valid region of a tile to a window of run-time size."""
    tile = tile_type(source)
    if not ctx.in_scope or tile is None or all(isinstance(size, int) for size in window.sizes):
        return source
    valid: list[Arg] = []
    for size, most in zip(window.sizes, tile.shape, strict=True):
        is_known = isinstance(size, int)
        valid.append(size if is_known else emit_scalar(ctx, "min", (size, most), loc))
    part: dict[str, Arg] = {"shape": tile.shape, "offset": (0,) * len(tile.shape)}
    return emit_value(ctx, "slice", loc, source.name, x=source, valid_shape=tuple(valid), **part)


def _fills_window(ctx: Context, source: Value, window: SubscriptWindow) -> bool:
    """Return whether the valid region of the source has the size of the window.

    Axes that the source lacks must be leading axes of extent 1.
    """
    region = ctx.facts.regions.get(source)
    if region is None or len(region) > len(window.sizes):
        return False
    missing = len(window.sizes) - len(region)
    sizes = window.sizes[missing:]
    return ctx.facts.region_is(source, sizes) and window.sizes[:missing] == (1,) * missing


def _may_equal(size: object, extent: object) -> bool:
    return size == extent if isinstance(size, int) and isinstance(extent, int) else True
