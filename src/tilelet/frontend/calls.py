"""Calls in kernel text: ops, markers, kernels, inlined helpers, compile-time Python."""

from __future__ import annotations

import ast
import builtins
import functools
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tilelet.diag.catalogue.cautions import DirectionIgnored
from tilelet.diag.catalogue.names import InlineRecursion, InlineReturnsNothing
from tilelet.diag.catalogue.ops import (
    BadArgument,
    DuplicateArgument,
    MissingArgument,
    UnknownKeyword,
    WrongArity,
)
from tilelet.diag.catalogue.python import (
    CompileTimeFailed,
    KeywordToUserFunction,
    NotCallable,
    PythonRange,
    UnsupportedExpression,
)
from tilelet.diag.core import Loc, UserError
from tilelet.frontend import annotations, expressions, kernels, lanes, marker_calls, statements
from tilelet.frontend.arguments import argument_of, grouped
from tilelet.frontend.bindings import (
    Binding,
    ReportedError,
    describe,
    is_kernel_value,
    is_shaped,
    items_of,
)
from tilelet.frontend.context import Context, Style
from tilelet.frontend.emitting import check_literals, default_args, emit_op, to_arg
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.nameflow import NameFlow
from tilelet.frontend.shorthands import shorthand
from tilelet.frontend.source import nodes_in, spelling, statements_in
from tilelet.ir.core import Arg, Const, FunctionKind, Value, scalar_dtype
from tilelet.ir.fold import evaluate
from tilelet.ir.spec import REGISTRY, Call, OpSpec, spec_of
from tilelet.ir.types import ScalarType, SymDim, TensorType, TileType
from tilelet.ops import spellings
from tilelet.ops.equivalents import equivalent
from tilelet.ops.manual import signature_text
from tilelet.syntax import views


class SelfReference:
    """What `self` stands for in a method of a program."""


@dataclass(frozen=True)
class MethodReference:
    name: str


@dataclass(frozen=True)
class ValueMethod:
    value: Value
    name: str


def is_language(module: types.ModuleType) -> bool:
    return module.__name__.startswith("tilelet.")


def lower_call(ctx: Context, node: ast.Call, is_statement: bool = False) -> Binding:
    """A call; as a statement of its own it need not have a result."""
    callee = expressions.evaluate(ctx, node.func)
    loc = ctx.loc(node)
    spec = spec_of(callee)
    if spec is not None:
        return call_op(ctx, spec, node)
    marker = marker_calls.handler(callee)
    if marker is not None:
        return marker(ctx, node)
    if isinstance(callee, MethodReference):
        function = ctx.module.method(callee.name, loc)
        return kernels.call_function(ctx, function, node, is_statement)
    function = as_kernel_function(callee)
    if function is not None:
        return kernels.call_function(ctx, function, node, is_statement)
    if isinstance(callee, ValueMethod):
        return _call_value_method(ctx, callee, node)
    if callee is builtins.breakpoint:
        return _breakpoint(ctx, loc)
    return _call_python(ctx, callee, node)


def as_kernel_function(x: object) -> KernelFunction | None:
    """The kernel function behind a decorated object, if it is one."""
    found = x if isinstance(x, KernelFunction) else getattr(x, "kernel_function", None)
    return found if isinstance(found, KernelFunction) else None


# --- ops -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameters:
    """The signature of an op, as a call needs it. `variadic` is the position of `*name`."""

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
    """Arguments of an op call by parameter name, with their places."""
    params = _parameters(spec)
    public = _public_name(node)
    node = grouped(ctx, spec, node)
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
        name = spellings.spelled(spec, keyword.arg) if keyword.arg else "**"
        if name not in params.named and name not in unused:
            raise UnknownKeyword(ctx.loc(keyword), public, name, list(params.named))
        if name in given:
            raise DuplicateArgument(ctx.loc(keyword), public, name)
        if name == "deps" and isinstance(keyword.value, ast.ListComp):
            given[name] = kernels.dependencies(ctx, keyword.value)
        else:
            given[name] = expressions.evaluate_arg(ctx, keyword.value)
        locs[name] = ctx.loc(keyword.value)
    given = {n: spellings.meant(n, value) for n, value in given.items() if n not in unused}
    for name in params.required:
        if name not in given:
            text = signature_text(public, spec.signature)
            raise MissingArgument(ctx.loc(node), public, name, text)
    return default_args(spec, **given), locs


def _positional_value(ctx: Context, argument: ast.expr) -> Arg:
    if isinstance(argument, ast.Starred):
        raise UnsupportedExpression(ctx.loc(argument), "`*` unpacking", "list the arguments")
    return expressions.evaluate_arg(ctx, argument)


def _public_name(node: ast.Call) -> str:
    name = spelling(node.func)
    return name.partition(".")[2] or name


def call_op(ctx: Context, spec: OpSpec, node: ast.Call) -> Binding:
    """An op call, with the argument expressions of `node`."""
    args, locs = bind(ctx, spec, node)
    if spec.name == "get_subblock_idx":
        return lanes.lane_index(ctx, node)
    loc = ctx.loc(node)
    first = next(iter(args.values()), None)
    scalar_form = REGISTRY.get(f"scalar.{spec.name}")
    on_scalars = scalar_dtype(first) is not None and not any(map(is_shaped, args.values()))
    if scalar_form is not None and on_scalars:
        return _call_scalar_form(ctx, scalar_form, args, loc, locs)
    several = shorthand(ctx, spec.name, args)
    if several is not None:
        return several(ctx, args, loc, locs)
    return emit_op(ctx, spec, args, loc, arg_locs=locs)


def _call_scalar_form(
    ctx: Context, spec: OpSpec, args: Mapping[str, Arg], loc: Loc, locs: Mapping[str, Loc]
) -> Binding:
    """An op given a scalar where it usually takes a tensor: `pl.cast(n, pl.INT32)`."""
    names = list(spec.signature.parameters)
    values = list(args.values())[: len(names)]
    if spec.name == "scalar.cast" and isinstance(values[0], (bool, int, float, Const)):
        number = values[0].value if isinstance(values[0], Const) else values[0]
        (wanted,) = spec.infer(Call(spec.name, dict(zip(names, values)), ctx.in_scope, loc, locs))
        assert isinstance(wanted, ScalarType)
        return Const(evaluate(spec, (number, *values[1:]), wanted.dtype, loc), wanted.dtype)  # type: ignore[arg-type]
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
    axis, symbol = (expressions.evaluate(ctx, a) for a in node.args)
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
    """A plain Python function: called now, if everything it is given is known now."""
    loc = ctx.loc(node)
    if callee is range:
        raise PythonRange(loc)
    name = spelling(node.func)
    if not callable(callee):
        raise NotCallable(loc, name, type(callee).__name__)
    args: list[Binding] = [expressions.evaluate(ctx, a) for a in node.args]
    kwargs = {k.arg: expressions.evaluate(ctx, k.value) for k in node.keywords if k.arg}
    if callee in views.IN_ANNOTATIONS:
        return _called_now(callee, args, kwargs, loc)
    if is_kernel_value(tuple(args)) or is_kernel_value(tuple(kwargs.values())):
        items = items_of(args[0]) if callee is len else None
        if items is not None:
            return len(items)
        raise NotCallable(loc, name, type(callee).__name__, _instead(callee, name))
    return _called_now(callee, args, kwargs, loc)


def _called_now(
    callee: Callable[..., Binding], args: list[Binding], kwargs: dict[str, Binding], loc: Loc
) -> Binding:
    try:
        return callee(*args, **kwargs)
    except Exception as problem:
        raise CompileTimeFailed(loc, problem) from None


def _instead(callee: object, name: str) -> str:
    """What to write for a function of Python or another library; a user's own has no such thing."""
    module = (getattr(callee, "__module__", None) or "builtins").partition(".")[0]
    if isinstance(callee, types.FunctionType) and module not in ("torch", "numpy", "triton"):
        return ""
    return equivalent(name)


def mentions_ops(ctx: Context, node: ast.AST) -> bool:
    """Whether the text calls something that exists only in kernels."""
    for n in nodes_in(node):
        if isinstance(n, ast.Call):
            callee = static_callee(ctx, n)
            if spec_of(callee) or marker_calls.handler(callee) or as_kernel_function(callee):
                return True
    return False


def static_callee(ctx: Context, node: ast.Call) -> object:
    """The object a call's function names, without evaluating anything; None if unclear."""
    return _named_object(node.func, ctx.captured, ctx.env)


def _named_object(
    target: ast.expr, captured: Mapping[str, object], kernel_names: Collection[str]
) -> object:
    parts: list[str] = []
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name) or target.id in kernel_names:
        return None
    found = captured.get(target.id)
    try:
        for part in reversed(parts):
            found = getattr(found, part, None)
    except UserError:  # a name Tilelet knows and does not support: reported where it is lowered
        return None
    return found


def computes(function: KernelFunction) -> bool:
    """Whether a helper computes on tiles outside any scope of its own: its caller needs one."""
    if function.kind is not FunctionKind.Inline:
        return False
    if any(isinstance(s, ast.With) for s in statements_in(function.body)):
        return False
    captured = function.captured()
    for n in (n for s in function.body for n in nodes_in(s)):
        if isinstance(n, ast.Call):
            callee = _named_object(n.func, captured, ())
            spec, inner = spec_of(callee), as_kernel_function(callee)
            if (spec is not None and spec.is_compute) or (
                inner is not None and inner is not function and computes(inner)
            ):
                return True
    return False


# --- inlining ------------------------------------------------------------------------------------


def positional_arguments(
    ctx: Context, function: KernelFunction, node: ast.Call, may_omit: bool = False
) -> list[ast.expr]:
    """The argument expressions of a call to a kernel function, in the order of its parameters.

    Arguments by name are for jit functions only, as in the public compiler.
    may_omit: the last ones may be left out
    """
    given = list(node.args)
    names = [p.arg for p in function.parameters]
    if len(given) > function.by_position:
        raise wrong_arity(ctx.loc(node), function, len(given))
    # Of printed programs, `attrs` has the directions, which follow from the kernel.
    named = {k.arg: k for k in node.keywords if k.arg != "attrs" or "attrs" in names}
    for name, keyword in named.items():
        if not function.generic or name is None:
            raise KeywordToUserFunction(ctx.loc(keyword), function.name, name or "**")
        if name not in names:
            raise UnknownKeyword(ctx.loc(keyword), function.name, name, names)
        if name in names[: len(given)]:
            raise DuplicateArgument(ctx.loc(keyword), function.name, name)
    rest: dict[str | None, ast.expr] = {
        name: ast.copy_location(ast.Constant(x), node) for name, x in function.defaults.items()
    }
    rest.update({name: keyword.value for name, keyword in named.items()})
    given += [rest[name] for name in names[len(given) :] if name in rest]
    if len(given) < len(names) and not may_omit:
        raise wrong_arity(ctx.loc(node), function, len(given))
    return given


def wrong_arity(loc: Loc, function: KernelFunction, given: int) -> WrongArity:
    names = [p.arg for p in function.parameters]
    listed = [*names[: function.by_position], *(f"{n}=" for n in names[function.by_position :])]
    return WrongArity(
        loc, function.name, given, len(names), f"{function.name}({', '.join(listed)})"
    )


def inline(
    ctx: Context,
    function: KernelFunction,
    args: list[Binding],
    loc: Loc,
    is_statement: bool = False,
) -> Binding:
    """Splice the function's body in here; its parameters are aliases of the arguments."""
    stack = ctx.module.inline_stack
    if function in stack:
        chain = [f.name for f in stack[stack.index(function) :]] + [function.name]
        raise InlineRecursion(loc, chain)
    _caution_directions(ctx, function)
    names = [p.arg for p in function.parameters]
    env: dict[str, Binding] = dict(zip(names, args, strict=True))
    if function.is_method:
        env["self"] = SelfReference()
    if function.kind is FunctionKind.InCore:
        ctx.facts.layouts.update(annotations.layouts_of(function, env))
    inner = ctx.fork(
        source=function.source,
        captured=function.captured(),
        style=_inline_style(ctx, function),
        env=env,
        caller=loc,
        dims=dict(ctx.dims),
        outputs={},
        loop_yield=None,
        returned=None,
    )
    inner.flow = NameFlow(lambda call: statements.rebound_by(inner, call))
    kept = dict(ctx.consumed)
    written = _tiles_written(function, env) if is_statement else []
    stack.append(function)
    try:
        statements.lower_body(inner, function.body, frozenset(written))
    finally:
        stack.pop()
    for value in args:
        # The caller's names are aliases of the parameters: what the helper assembled into is
        # still the caller's tensor, unless the caller had used it up itself.
        if isinstance(value, Value) and value not in kept and isinstance(value.type, TensorType):
            ctx.consumed.pop(value, None)
    given = dict(zip(names, args, strict=True))
    _write_through(ctx, [(given[name], inner.env.get(name)) for name in written], loc)
    if inner.returned is None:
        if isinstance(function.body[-1], ast.Return) and function.body[-1].value is not None:
            raise ReportedError  # a mistake in what it returns
        if function.kind is FunctionKind.Inline and not is_statement:
            raise InlineReturnsNothing(loc, function.name, function.loc())
        return None
    return inner.returned[0] if len(inner.returned) == 1 else inner.returned


def _tiles_written(function: KernelFunction, env: Mapping[str, Binding]) -> list[str]:
    """Parameters that are tiles, and that the function gives no value but by writing into them."""
    tiles = {n for n, v in env.items() if isinstance(v, Value) and isinstance(v.type, TileType)}
    written: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(function.node):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, call = node.targets[0].id, node.value
            (written if _writes_into(function, name, call) else others).add(name)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written.update(n.id for n in (node.value,) if isinstance(n, ast.Name))
    return sorted(tiles & written - others)


def _writes_into(function: KernelFunction, name: str, call: ast.expr) -> bool:
    """Whether an expression is `pl.assemble(name, ...)` or its like."""
    if not isinstance(call, ast.Call):
        return False
    spec = spec_of(_named_object(call.func, function.captured(), ()))
    if spec is None or not spec.writes:
        return False
    first = argument_of(spec, call)
    return isinstance(first, ast.Name) and first.id == name


def _write_through(ctx: Context, pairs: Iterable[tuple[Binding, Binding]], loc: Loc) -> None:
    """Tiles that a helper wrote into are the caller's tiles under their new names.

    Of tiles made in the same block: whoever carries names through loops and branches looks at the
    text of one function. The others are used up, which is an error where they are read.
    """
    made = {value for op in ctx.ops for value in op.results}
    for old, new in pairs:
        if old is new or not isinstance(old, Value) or not isinstance(new, Value):
            continue
        if {old, new} <= made:
            ctx.env.update({name: new for name, value in ctx.env.items() if value is old})
        else:
            ctx.consumed[old] = (loc, new)


def _inline_style(ctx: Context, function: KernelFunction) -> Style:
    return replace(function.style, implied=ctx.style.implied, guards_outputs=False)


def _caution_directions(ctx: Context, function: KernelFunction) -> None:
    for p in function.parameters:
        if isinstance(p.annotation, ast.Subscript):
            head = p.annotation.value
            name = head.attr if isinstance(head, ast.Attribute) else spelling(head)
            if function.kind is FunctionKind.Inline and name in ("Out", "InOut"):
                at = function.source.loc(p.annotation)
                ctx.sink.add(DirectionIgnored(at, p.arg))


def arguments(ctx: Context, nodes: list[ast.expr]) -> list[Binding]:
    return [expressions.evaluate(ctx, n) for n in nodes]


def arg_of(ctx: Context, x: Binding, node: ast.expr) -> Arg:
    return to_arg(ctx, x, ctx.loc(node), node.id if isinstance(node, ast.Name) else "")
