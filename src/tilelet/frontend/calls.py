"""Calls in kernel text: ops, markers, kernels, inlined helpers, compile-time Python."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable

from tilelet.diag.catalogue.ops import BadArgument, WrongArity
from tilelet.diag.catalogue.python import CompileTimeFailed, NotCallable, PythonRange
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, describe, is_kernel_value, items_of
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call_function, call_rule, evaluate, expression
from tilelet.frontend.emitting import emit_op
from tilelet.frontend.op_calls import call_op
from tilelet.frontend.resolve import MethodReference, ValueMethod, as_kernel_function
from tilelet.frontend.source import spelling
from tilelet.ir.core import Arg, Const, Value
from tilelet.ir.spec import REGISTRY, spec_of
from tilelet.ir.types import SymDim, TensorType
from tilelet.ops.equivalents import equivalent
from tilelet.syntax import views


@expression(ast.Call)
def lower_call(ctx: Context, node: ast.Call, is_statement: bool = False) -> Binding:
    """Lower a call; one that is a statement of its own need not return a value."""
    callee = evaluate(ctx, node.func)
    loc = ctx.loc(node)
    spec = spec_of(callee)
    if spec is not None:
        return call_op(ctx, spec, node)
    marker = call_rule(callee)
    if marker is not None:
        return marker(ctx, node)
    if isinstance(callee, MethodReference):
        callee = ctx.module.method(callee.name, loc)
    function = as_kernel_function(callee)
    if function is not None:
        return call_function(ctx, function, node, is_statement)
    if isinstance(callee, ValueMethod):
        return _call_value_method(ctx, callee, node)
    if callee is builtins.breakpoint:
        return _breakpoint(ctx, loc)
    return _call_python(ctx, callee, node)


# --- values, Python ------------------------------------------------------------------------------


def _call_value_method(ctx: Context, method: ValueMethod, node: ast.Call) -> Binding:
    if method.name == "bind_dynamic":
        return _bind_dynamic(ctx, method.value, node)
    spec = REGISTRY[method.name]
    receiver = node.func.value  # type: ignore[attr-defined]
    whole = ast.copy_location(ast.Call(node.func, [receiver, *node.args], node.keywords), node)
    return call_op(ctx, spec, whole)


def _bind_dynamic(ctx: Context, tensor: Value, node: ast.Call) -> None:
    """`x.bind_dynamic(axis, M)`: from here on M is the extent of that axis of x."""
    loc = ctx.loc(node)
    if len(node.args) != 2 or node.keywords:
        raise WrongArity(loc, "bind_dynamic", len(node.args), 2, "x.bind_dynamic(axis, M)")
    axis, symbol = (evaluate(ctx, a) for a in node.args)
    assert isinstance(tensor.type, TensorType)
    rank = len(tensor.type.shape)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise BadArgument(
            ctx.loc(node.args[0]), "bind_dynamic", "axis", describe(axis),
            f"an axis of {tensor.type}",
        )  # fmt: skip
    if not isinstance(symbol, SymDim):
        raise BadArgument(
            ctx.loc(node.args[1]), "bind_dynamic", "symbol", describe(symbol),
            'a dimension made by `pl.dynamic("M")`',
        )  # fmt: skip
    extent = tensor.type.shape[axis]
    ctx.dims[symbol] = extent if isinstance(extent, int) else (tensor, axis % rank)


def _breakpoint(ctx: Context, loc: Loc) -> None:
    visible: dict[str, Arg] = {}
    for name, value in ctx.env.items():
        if isinstance(value, Value) and value in ctx.consumed:
            continue
        if isinstance(value, (Value, Const, bool, int, float)):
            visible[name] = value
    args: dict[str, Arg] = {"values": tuple(visible.values()), "names": tuple(visible)}
    emit_op(ctx, REGISTRY["breakpoint"], args, loc)


def _call_python(ctx: Context, callee: object, node: ast.Call) -> Binding:
    """Call a plain Python function at compile time; all its arguments must be known."""
    loc = ctx.loc(node)
    if callee is range:
        raise PythonRange(loc)
    name = spelling(node.func)
    if not callable(callee):
        raise NotCallable(loc, name, type(callee).__name__)
    args: list[Binding] = [evaluate(ctx, a) for a in node.args]
    kwargs = {k.arg: evaluate(ctx, k.value) for k in node.keywords if k.arg}
    if callee in views.IN_ANNOTATIONS:
        return _call_at_compile_time(ctx, callee, args, kwargs, loc)
    if is_kernel_value(tuple(args)) or is_kernel_value(tuple(kwargs.values())):
        items = items_of(args[0]) if callee is len else None
        if items is not None:
            return len(items)
        raise NotCallable(loc, name, type(callee).__name__, _replacement_advice(callee, name))
    return _call_at_compile_time(ctx, callee, args, kwargs, loc)


def _call_at_compile_time(
    ctx: Context,
    callee: Callable[..., Binding],
    args: list[Binding],
    kwargs: dict[str, Binding],
    loc: Loc,
) -> Binding:
    try:
        return ctx.host.call(callee, args, kwargs)
    except Exception as problem:
        raise CompileTimeFailed(loc, problem) from None


def _replacement_advice(callee: object, name: str) -> str:
    """Return what to write instead of a library function; nothing for a user's own function."""
    module = (getattr(callee, "__module__", None) or "builtins").partition(".")[0]
    if isinstance(callee, types.FunctionType) and module not in ("torch", "numpy", "triton"):
        return ""
    return equivalent(name)
