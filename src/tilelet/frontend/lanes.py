"""`for lane in pl.split_aiv(2, mode=...)`: vector lanes of a core group, programmed by hand.

Lanes run one after the other. With `SplitMode.NONE` that is a loop. With a mode that halves tiles
the body is lowered once per lane, because the halves are windows at constant offsets.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

from tilelet.diag.catalogue.cautions import LanesAtOnce
from tilelet.diag.catalogue.ops import BadArgument, WrongArity
from tilelet.diag.catalogue.scopes import OutsideLanes
from tilelet.frontend.bindings import Binding, describe, is_shaped, shaped_type
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call, evaluate
from tilelet.frontend.emitting import emit_op, emit_value
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import REGISTRY
from tilelet.syntax import pipes as markers

LANES = 2
_AXES = {"UP_DOWN": 0, "LEFT_RIGHT": 1}


def is_halving(mode: str) -> bool:
    return mode in _AXES


def lane_index(ctx: Context, node: ast.Call) -> Binding:
    """Return `pl.tile.get_subblock_idx()`: the running lane, if the text distinguishes lanes."""
    if ctx.lane is not None:
        return ctx.lane.index
    if ctx.split not in (None, "NONE"):
        ctx.sink.add(LanesAtOnce(ctx.loc(node)))
    spec = REGISTRY["get_subblock_idx"]
    return emit_op(ctx, spec, {}, ctx.loc(node))


def _operand(ctx: Context, node: ast.Call, function: Callable[..., object]) -> Value:
    name = function.__name__
    if ctx.lane is None:
        raise OutsideLanes(ctx.loc(node), f"pl.{name}")
    given = [evaluate(ctx, a) for a in node.args]
    named = {k.arg or "**": evaluate(ctx, k.value) for k in node.keywords}
    try:
        x = inspect.signature(function).bind(*given, **named).arguments["x"]
    except TypeError:
        raise WrongArity(ctx.loc(node), name, len(given) + len(named), 1) from None
    if not isinstance(x, Value) or not is_shaped(x):
        raise BadArgument(ctx.loc(node), name, "x", describe(x), "a 2-D tile")
    return x


@call(markers.aiv_shard)
def _shard(ctx: Context, node: ast.Call) -> Binding:
    x = _operand(ctx, node, markers.aiv_shard)
    assert ctx.lane is not None
    if not is_halving(ctx.lane.mode):
        return x
    shape = _extents(ctx, node, x)
    axis = _AXES[ctx.lane.mode]
    if shape[axis] % LANES:
        what = f"{shape[axis]} {'columns' if axis else 'rows'}"
        raise BadArgument(ctx.loc(node), "aiv_shard", "x", what, "an even number of them")
    shape[axis] //= LANES
    offset = _place(ctx, shape)
    return emit_value(ctx, "slice", ctx.loc(node), x=x, shape=tuple(shape), offset=offset)


@call(markers.aic_gather)
def _gather(ctx: Context, node: ast.Call) -> Binding:
    x = _operand(ctx, node, markers.aic_gather)
    lane = ctx.lane
    assert lane is not None
    if not is_halving(lane.mode):
        return x
    shape = _extents(ctx, node, x)
    place = _place(ctx, shape)
    whole = lane.gathered.get(node)
    if whole is None:
        shape[_AXES[lane.mode]] *= LANES
        args: dict[str, Arg] = {"shape": tuple(shape), "dtype": x.type.dtype, "value": 0}
        whole = emit_value(ctx, "full", ctx.loc(node), **args)
    joined = emit_value(ctx, "assemble", ctx.loc(node), target=whole, source=x, offset=place)
    lane.gathered[node] = joined
    return joined


def _extents(ctx: Context, node: ast.Call, x: Value) -> list[int]:
    t = shaped_type(x)
    shape = [d for d in t.shape if isinstance(d, int)] if t is not None else []
    if t is None or len(shape) != 2 or len(t.shape) != 2:
        raise BadArgument(ctx.loc(node), "lane", "x", str(x.type), "a 2-D tile")
    return shape


def _place(ctx: Context, half: list[int]) -> tuple[int, int]:
    """Return the offset of the running lane's half."""
    assert ctx.lane is not None
    assert isinstance(ctx.lane.index, int)
    start = [0, 0]
    axis = _AXES[ctx.lane.mode]
    start[axis] = ctx.lane.index * half[axis]
    return start[0], start[1]
