"""Calls of `pl` names that are not ops: constants, scalar min/max, yields, static checks.

Loop and scope markers have no meaning as expressions; `loops.py` and `scopes.py` read them.
"""

from __future__ import annotations

import ast

from tilelet.diag.catalogue.cautions import NoEffect, RetiredSpelling
from tilelet.diag.catalogue.ops import (
    BadArgument,
    DuplicateArgument,
    NotConstant,
    UnknownKeyword,
    WrongArity,
)
from tilelet.diag.catalogue.python import (
    CompileTimeFailed,
    CondNotFirst,
    StaticAssertFailed,
    UnsupportedExpression,
    YieldMismatch,
)
from tilelet.diag.core import UserError
from tilelet.dtypes import DType
from tilelet.frontend import annotations, shorthands
from tilelet.frontend.bindings import (
    Binding,
    ReportedError,
    describe,
    is_kernel_value,
    is_scalar,
    is_shaped,
    items_of,
)
from tilelet.frontend.calls import call_op
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call, evaluate, evaluate_arg
from tilelet.frontend.emitting import check_width, emit_op, emit_scalar, emit_undefined, to_arg
from tilelet.ir.core import Arg, Const, Value
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import TensorType, TileType
from tilelet.ops import spellings
from tilelet.ops.infer import check_constant
from tilelet.syntax import markers


def _positional(ctx: Context, node: ast.Call, name: str, count: int) -> list[Binding]:
    if len(node.args) != count or node.keywords:
        raise WrongArity(ctx.loc(node), name, len(node.args) + len(node.keywords), count)
    return [evaluate(ctx, a) for a in node.args]


@call(markers.const)
def _const(ctx: Context, node: ast.Call) -> Binding:
    value, dtype = _positional(ctx, node, "const", 2)
    loc = ctx.loc(node)
    if isinstance(value, Const):
        value = value.value
    if is_kernel_value(value) or not isinstance(value, (bool, int, float)):
        raise NotConstant(loc, "const", "value", "use `pl.cast` to convert a run-time scalar")
    if not isinstance(dtype, DType):
        raise BadArgument(loc, "const", "dtype", describe(dtype), "a dtype")
    if not dtype.is_float:
        check_constant(value, dtype, loc)
    elif isinstance(value, int):
        check_width(value, loc)
    return Const(float(value) if dtype.is_float else int(value), dtype)


@call(markers.min, markers.max)
def _min_or_max(ctx: Context, node: ast.Call) -> Binding:
    """Lower `pl.max(a, b)` of scalars; `pl.max(tile, axis, keepdim)` is an early `pl.row_max`."""
    name = evaluate(ctx, node.func).__name__
    loc = ctx.loc(node)
    nodes = list(node.args)
    named = {k.arg: k.value for k in node.keywords}
    nodes += [named.pop(k) for k in ("lhs", "rhs")[len(nodes) :] if k in named]
    values = [evaluate(ctx, a) for a in nodes]
    if values and is_shaped(values[0]):
        return call_op(ctx, REGISTRY[f"tile.{name}"], node)
    if len(values) < 2 or named:
        raise WrongArity(loc, name, len(values), 2, f"pl.{name}(a, b)")
    result = values[0]
    for value in values[1:]:
        pair = (to_arg(ctx, result, loc), to_arg(ctx, value, loc))
        for x in pair:
            if not is_scalar(x):
                wanted = "scalars; see `pl.minimum`"
                raise BadArgument(loc, name, "argument", describe(x), wanted)
        result = emit_scalar(ctx, name, pair, loc)
    return result


@call(markers.sum)
def _sum(ctx: Context, node: ast.Call) -> Binding:
    return call_op(ctx, REGISTRY["tile.sum"], node)


@call(markers.yield_)
def _yield(ctx: Context, node: ast.Call) -> Binding:
    """Pass values to the next iteration of a loop with `init_values`, or out of an `if`."""
    if node.keywords:
        raise UnsupportedExpression(ctx.loc(node), "a keyword of `pl.yield_`", "pass by position")
    values = tuple(evaluate(ctx, a) for a in node.args)
    if ctx.loop_yield is not None:
        if ctx.loop_yield:
            raise YieldMismatch(ctx.loc(node), len(values), 0)
        ctx.loop_yield.append(values)
    return values[0] if len(values) == 1 else values


@call(markers.cond)
def _cond(ctx: Context, node: ast.Call) -> Binding:
    raise CondNotFirst(ctx.loc(node))


@call(markers.static_print)
def _static_print(ctx: Context, node: ast.Call) -> None:
    ctx.module.printed.append(" ".join([_static_text(ctx, a) for a in node.args]))


def _static_text(ctx: Context, node: ast.expr) -> str:
    """Return what `pl.static_print` prints; `__str__` or `__format__` of a value may fail."""
    try:
        return _text(ctx, node)
    except (UserError, ReportedError, RecursionError):
        raise
    except Exception as problem:
        raise CompileTimeFailed(ctx.loc(node), problem) from None


@call(markers.dump)
def _dump(ctx: Context, node: ast.Call) -> None:
    loc = ctx.loc(node)
    if node.keywords:
        raise UnsupportedExpression(loc, "a keyword of `pl.dump`", "pass values by position")
    values: list[Arg] = []
    for argument in node.args:
        value = evaluate(ctx, argument)
        if not (isinstance(value, str) or is_shaped(value) or is_scalar(value)):
            wanted = "a tensor, a tile, a number or a text"
            raise BadArgument(ctx.loc(argument), "dump", "value", describe(value), wanted)
        values.append(value)
    names = tuple(ast.unparse(a) for a in node.args)
    emit_op(ctx, REGISTRY["dump"], {"values": tuple(values), "names": names}, loc)


def _text(ctx: Context, node: ast.expr) -> str:
    """Return compile-time values, and the types of others."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(ctx, part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        value = evaluate(ctx, node.value)
        if is_kernel_value(value):
            return _type_text(value)
        spec = _text(ctx, node.format_spec) if node.format_spec else ""
        return format(value, spec)
    value = evaluate(ctx, node)
    return _type_text(value) if is_kernel_value(value) else str(value)


def _type_text(x: Binding) -> str:
    items = items_of(x)
    if items is not None:
        return "(" + ", ".join(_type_text(i) for i in items) + ")"
    return f"{x.name}: {x.type}" if isinstance(x, Value) else str(getattr(x, "value", x))


@call(markers.static_assert)
def _static_assert(ctx: Context, node: ast.Call) -> None:
    loc = ctx.loc(node)
    if not 1 <= len(node.args) <= 2:
        raise WrongArity(loc, "static_assert", len(node.args), "1 to 2 arguments")
    condition = evaluate(ctx, node.args[0])
    if is_kernel_value(condition):
        raise NotConstant(ctx.loc(node.args[0]), "static_assert", "condition")
    if not condition:
        raise StaticAssertFailed(loc, "".join([_static_text(ctx, a) for a in node.args[1:]]))


@call(markers.undef)
def _undef(ctx: Context, node: ast.Call) -> Binding:
    (annotation,) = _positional(ctx, node, "undef", 1)
    t = annotations.value_type(annotation)
    if t is None:
        what = describe(annotation)
        raise BadArgument(ctx.loc(node), "undef", "type", what, "a type such as `pl.Tensor[...]`")
    if isinstance(t, TensorType) and ctx.in_scope:
        t = TileType(t.shape, t.dtype)  # type: ignore[arg-type]
    return emit_undefined(ctx, t, ctx.loc(node))


@call(markers.dump_tag)
def _dump_tag(ctx: Context, node: ast.Call) -> Binding:
    """Return `x` for `pl.dump_tag(x)`, which only affects recordings on a board."""
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "tensor")]
    if len(given) != 1 or len(node.args) + len(node.keywords) != 1:
        raise WrongArity(ctx.loc(node), "dump_tag", len(node.args) + len(node.keywords), 1)
    value = evaluate(ctx, given[0])
    if not is_shaped(value):
        raise BadArgument(ctx.loc(node), "dump_tag", "tensor", describe(value), "a tensor")
    ctx.module.note_retired(NoEffect(ctx.loc(node), "`pl.dump_tag`", "use `pl.dump`"))
    return value


@call(markers.func_attr)
def _func_attr(ctx: Context, node: ast.Call) -> None:
    if len(node.args) + len(node.keywords) != 1:
        raise WrongArity(ctx.loc(node), "func_attr", len(node.args) + len(node.keywords), 1)


@call(markers.view)
def _view(ctx: Context, node: ast.Call) -> Binding:
    given = {k.arg for k in node.keywords}
    modern = "slice" if len(node.args) > 2 or "offset" in given else "reshape"
    ctx.module.note_retired(RetiredSpelling(ctx.loc(node), "pl.view", f"pl.{modern}"))
    kept = [k for k in node.keywords if k.arg != "layout"]
    call = ast.copy_location(ast.Call(node.func, node.args, kept), node)
    return call_op(ctx, REGISTRY[modern], call)


_VIEW = ("tensor", "shape", "valid_shape", "layout")


@call(markers.tensor_view)
def _tensor_view(ctx: Context, node: ast.Call) -> Binding:
    if len(node.args) > 2 or any(k.arg == "offset" for k in node.keywords):
        ctx.module.note_retired(RetiredSpelling(ctx.loc(node), "pl.tensor.view", "pl.slice"))
        return call_op(ctx, REGISTRY["slice"], node)
    given = dict(zip(_VIEW, node.args, strict=False))
    for keyword in node.keywords:
        name = keyword.arg or "**"
        if spellings.parameter_of_keyword(REGISTRY["reshape"], name) == "x":
            name = "tensor"
        if name not in _VIEW:
            raise UnknownKeyword(ctx.loc(keyword), "tensor.view", name, list(_VIEW))
        if name in given:
            raise DuplicateArgument(ctx.loc(keyword), "tensor.view", name)
        given[name] = keyword.value
    found = {n: evaluate_arg(ctx, given[n]) if n in given else None for n in _VIEW}
    locs = {n: ctx.loc(e) for n, e in given.items()}
    return shorthands.tensor_view(ctx, **found, loc=ctx.loc(node), locs=locs)


@call(markers.l0c_store)
def _l0c_store(ctx: Context, node: ast.Call) -> Binding:
    ctx.module.note_retired(RetiredSpelling(ctx.loc(node), "pl.l0c_store", "pl.store"))
    return call_op(ctx, REGISTRY["store"], node)


_FOR = ("range", "parallel", "unroll", "pipeline", "split_aiv", "while_")
_WITH = ("incore", "auto_incore", "at", "cluster", "graph", "manual_scope", "scope", "spmd")
_MISPLACED = {
    **{n: (f"`pl.{n}` outside a `for` statement", f"write `for i in pl.{n}(...):`") for n in _FOR},
    **{n: (f"`pl.{n}` outside a `with` statement", f"write `with pl.{n}(...):`") for n in _WITH},
    "no_dep": ("`pl.no_dep` here", "it marks an argument of a kernel call or `pl.submit`"),
}


@call(*(getattr(markers, name) for name in _MISPLACED))
def _refuse_misplaced(ctx: Context, node: ast.Call) -> Binding:
    what, instead = _MISPLACED[evaluate(ctx, node.func).__name__]
    raise UnsupportedExpression(ctx.loc(node), what, instead)
