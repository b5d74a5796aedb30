"""Calls in kernel text: ops, markers, kernels, inlined helpers, compile-time Python."""

from __future__ import annotations

import ast
import builtins
import functools
import types
from collections.abc import Callable, Mapping

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ops import (
    BadArgument,
    DuplicateArgument,
    MissingArgument,
    UnknownKeyword,
    WrongArity,
)
from tilelet.diag.catalogue.python import (
    CompileTimeFailed,
    NotCallable,
    PythonRange,
    UnsupportedExpression,
)
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, describe, is_kernel_value, is_shaped, items_of
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call_function, call_rule, evaluate, evaluate_arg, expression
from tilelet.frontend.emitting import check_literals, default_args, emit_op
from tilelet.frontend.lanes import lane_index
from tilelet.frontend.resolve import (
    MethodReference,
    ValueMethod,
    as_kernel_function,
    check_whole,
    group_window,
)
from tilelet.frontend.shorthands import OpCall, lower_op
from tilelet.frontend.source import spelling
from tilelet.frontend.task_options import dependencies
from tilelet.ir.core import Arg, Const, Value, scalar_dtype
from tilelet.ir.fold import evaluate as fold_constant
from tilelet.ir.spec import REGISTRY, Call, OpSpec, spec_of
from tilelet.ir.types import ScalarType, SymDim, TensorType
from tilelet.ops import spellings
from tilelet.ops.equivalents import equivalent
from tilelet.ops.manual import signature_text
from tilelet.syntax import views


@expression(ast.Call)
def lower_call(ctx: Context, node: ast.Call, is_statement: bool = False) -> Binding:
    """Lower a call; an expression statement need not return a value."""
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


# --- ops -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameters:
    """The signature of an op, prepared for calls. `variadic` is the position of `*name`."""

    positional: tuple[str, ...]
    variadic: int | None
    named: tuple[str, ...]
    required: tuple[str, ...]
    arity: int | str


@functools.cache
def _parameters(spec: OpSpec) -> _Parameters:
    params = list(spec.signature.parameters.values())
    positional = [p for p in params if p.kind is not p.KEYWORD_ONLY]
    variadic = [i for i, p in enumerate(positional) if p.kind is p.VAR_POSITIONAL]
    named = [p for p in params if p.kind is not p.VAR_POSITIONAL]
    needed = sum(1 for p in params if p.default is p.empty)
    return _Parameters(
        positional=tuple(p.name for p in positional),
        variadic=variadic[0] if variadic else None,
        named=tuple(p.name for p in named),
        required=tuple(p.name for p in named if p.default is p.empty),
        arity=needed if needed == len(params) else f"{needed} to {len(params)} arguments",
    )


def bind(ctx: Context, spec: OpSpec, node: ast.Call) -> tuple[dict[str, Arg], dict[str, Loc]]:
    """Return the arguments of an op call by parameter name, and their locations."""
    params = _parameters(spec)
    public = _public_name(node)
    node = group_window(ctx, spec, node)
    if spec.name.startswith("pld."):
        check_whole(ctx, node.args)
    given: dict[str, Arg] = {}
    locs: dict[str, Loc] = {}
    values = [_positional_value(ctx, argument) for argument in node.args]
    positional = spellings.order(spec, public, values) or params.positional
    if len(values) > len(positional) and params.variadic is None:
        text = signature_text(public, spec.signature)
        raise WrongArity(ctx.loc(node), public, len(values), params.arity, text)
    for i, (argument, value) in enumerate(zip(node.args, values, strict=True)):
        if params.variadic is not None and i >= params.variadic:
            name = params.positional[params.variadic]
            rest = given.setdefault(name, ())
            assert isinstance(rest, tuple)
            given[name] = (*rest, value)
            continue
        given[positional[i]] = value
        locs[positional[i]] = ctx.loc(argument)
    unused = spellings.without_effect(spec)
    for keyword in node.keywords:
        name = spellings.parameter_of_keyword(spec, keyword.arg) if keyword.arg else "**"
        if name not in params.named and name not in unused:
            raise UnknownKeyword(ctx.loc(keyword), public, name, list(params.named))
        if name in given:
            raise DuplicateArgument(ctx.loc(keyword), public, name)
        if name == "deps" and isinstance(keyword.value, ast.ListComp):
            given[name] = dependencies(ctx, keyword.value)
        else:
            given[name] = evaluate_arg(ctx, keyword.value)
        locs[name] = ctx.loc(keyword.value)
    given = {n: spellings.meaning_of(n, value) for n, value in given.items() if n not in unused}
    for name in params.required:
        if name not in given:
            text = signature_text(public, spec.signature)
            raise MissingArgument(ctx.loc(node), public, name, text)
    return default_args(spec, **given), locs


def _positional_value(ctx: Context, argument: ast.expr) -> Arg:
    if isinstance(argument, ast.Starred):
        raise UnsupportedExpression(ctx.loc(argument), "`*` unpacking", "list the arguments")
    return evaluate_arg(ctx, argument)


def _public_name(node: ast.Call) -> str:
    name = spelling(node.func)
    return name.partition(".")[2] or name


def call_op(ctx: Context, spec: OpSpec, node: ast.Call) -> Binding:
    """Lower an op call with the argument expressions of `node`."""
    if spec.name == "load" and any(k.arg == "mx_layout" for k in node.keywords):
        spec = REGISTRY["load_scale"]  # the spelling of July 2026
    args, locs = bind(ctx, spec, node)
    if spec.name == "get_subblock_idx":
        return lane_index(ctx, node)
    loc = ctx.loc(node)
    first = next(iter(args.values()), None)
    scalar_form = REGISTRY.get(f"scalar.{spec.name}")
    on_scalars = scalar_dtype(first) is not None and not any(map(is_shaped, args.values()))
    if scalar_form is not None and on_scalars:
        return _call_scalar_form(ctx, scalar_form, args, loc, locs)
    return lower_op(OpCall(ctx, spec, args, loc, locs))


def _call_scalar_form(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], loc: Loc, locs: Mapping[str, Loc]
) -> Binding:
    """Lower an op on scalars that usually takes tensors, such as `pl.cast(n, pl.INT32)`."""
    names = list(spec.signature.parameters)
    values = list(args.values())[: len(names)]
    if spec.name == "scalar.cast" and isinstance(values[0], (bool, int, float, Const)):
        number = values[0].value if isinstance(values[0], Const) else values[0]
        (wanted,) = spec.infer(Call(spec.name, dict(zip(names, values)), ctx.in_scope, loc, locs))
        assert isinstance(wanted, ScalarType)
        return Const(fold_constant(spec, (number, *values[1:]), wanted.dtype, loc), wanted.dtype)  # type: ignore[arg-type]
    check_literals(spec.name.removeprefix("scalar."), tuple(values), loc)
    result = emit_op(ctx, spec, dict(zip(names, values, strict=False)), loc, arg_locs=locs)
    if isinstance(result, Value):
        operation = spec.name.removeprefix("scalar.")
        ctx.facts.note_scalar(result, operation, values[:1] if operation == "cast" else values)
    return result


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
        at, wanted = ctx.loc(node.args[0]), f"an axis of {tensor.type}"
        raise BadArgument(at, "bind_dynamic", "axis", describe(axis), wanted)
    if not isinstance(symbol, SymDim):
        at, wanted = ctx.loc(node.args[1]), 'a dimension made by `pl.dynamic("M")`'
        raise BadArgument(at, "bind_dynamic", "symbol", describe(symbol), wanted)
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
