"""Calls of helpers, whose bodies are spliced into their callers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilelet.analysis import patience
from tilelet.diag.catalogue.cautions import DirectionIgnored
from tilelet.diag.catalogue.names import InlineRecursion, InlineReturnsNothing
from tilelet.diag.catalogue.ops import DuplicateArgument, UnknownKeyword, WrongArity
from tilelet.diag.catalogue.python import KeywordToUserFunction
from tilelet.diag.core import Loc
from tilelet.frontend.annotations import layouts_of
from tilelet.frontend.arguments import argument_of
from tilelet.frontend.bindings import Binding, ReportedError
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import evaluate, lower_body
from tilelet.frontend.emitting import to_arg
from tilelet.frontend.functions import KernelFunction, Style
from tilelet.frontend.nameflow import NameFlow
from tilelet.frontend.resolve import SelfReference, named_object, rebound_by
from tilelet.frontend.source import spelling
from tilelet.ir.core import Arg, FunctionKind, Value
from tilelet.ir.spec import spec_of
from tilelet.ir.types import TensorType, TileType

_STEPS_OF_INLINING = 20  # the names of its module are collected again


def positional_arguments(
    ctx: Context, function: KernelFunction, node: ast.Call, may_omit: bool = False
) -> list[ast.expr]:
    """Return the argument expressions of a call in the order of the function's parameters.

    As in the public compiler, only jit functions take arguments by name. `may_omit`: trailing
    arguments may be missing.
    """
    given = list(node.args)
    names = [p.arg for p in function.parameters]
    if len(given) > function.by_position:
        raise wrong_arity(ctx.loc(node), function, len(given))
    # In printed programs `attrs` holds the directions, which follow from the kernel anyway.
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
    """Splice the body of `function` in here; its parameters are aliases of the arguments."""
    stack = ctx.module.inline_stack
    if function in stack:
        chain = [f.name for f in stack[stack.index(function) :]] + [function.name]
        raise InlineRecursion(loc, chain)
    patience.step(_STEPS_OF_INLINING)
    _caution_directions(ctx, function)
    names = [p.arg for p in function.parameters]
    env: dict[str, Binding] = dict(zip(names, args, strict=True))
    if function.is_method:
        env["self"] = SelfReference()
    if function.kind is FunctionKind.InCore:
        ctx.facts.layouts.update(layouts_of(function, env))
    inner = ctx.fork(
        source=function.source,
        captured=function.captured_names(),
        host=function.host,
        style=_inline_style(ctx, function),
        env=env,
        caller=loc,
        dims=dict(ctx.dims),
        outputs={},
        loop_yield=None,
        returned=None,
    )
    inner.flow = NameFlow(lambda call: rebound_by(inner, call))
    kept = dict(ctx.consumed)
    written = _tiles_written(function, env) if is_statement else []
    stack.append(function)
    try:
        lower_body(inner, function.body, frozenset(written))
    finally:
        stack.pop()
    for value in args:
        # The caller's names are aliases of the parameters: a tensor that the helper assembled
        # into is still usable in the caller, unless the caller had consumed it before.
        if isinstance(value, Value) and value not in kept and isinstance(value.type, TensorType):
            ctx.consumed.pop(value, None)
    given = dict(zip(names, args, strict=True))
    _write_through(ctx, [(given[name], inner.env.get(name)) for name in written], loc)
    if inner.returned is None:
        if isinstance(function.body[-1], ast.Return) and function.body[-1].value is not None:
            raise ReportedError  # a mistake in the return value
        if function.kind is FunctionKind.Inline and not is_statement:
            raise InlineReturnsNothing(loc, function.name, function.loc())
        return None
    return inner.returned[0] if len(inner.returned) == 1 else inner.returned


def _tiles_written(function: KernelFunction, env: Mapping[str, Binding]) -> list[str]:
    """Return the tile parameters that the function only changes by writing into them."""
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
    """Return whether an expression is `pl.assemble(name, ...)` or another write into `name`."""
    if not isinstance(call, ast.Call):
        return False
    spec = spec_of(named_object(call.func, function.captured_names(), ()))
    if spec is None or not spec.writes:
        return False
    first = argument_of(spec, call)
    return isinstance(first, ast.Name) and first.id == name


def _write_through(ctx: Context, pairs: Iterable[tuple[Binding, Binding]], loc: Loc) -> None:
    """Rebind the caller's names of tiles that a helper has written into.

    This is done for tiles made in the same block, because names are carried through loops and
    branches by the text of one function. Other tiles are consumed, so reading them is an error.
    """
    changed = [
        (old, new)
        for old, new in pairs
        if old is not new and isinstance(old, Value) and isinstance(new, Value)
    ]
    made = {value for op in ctx.ops for value in op.results} if changed else set[Value]()
    for old, new in changed:
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
    return [evaluate(ctx, n) for n in nodes]


def arg_of(ctx: Context, x: Binding, node: ast.expr) -> Arg:
    return to_arg(ctx, x, ctx.loc(node), node.id if isinstance(node, ast.Name) else "")
