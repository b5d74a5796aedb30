"""Calls of ops: arguments by name, scalar forms, and calls that stand for several ops."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ops import (
    DuplicateArgument,
    MissingArgument,
    UnknownKeyword,
    WrongArity,
)
from tilelet.diag.catalogue.python import UnsupportedExpression
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, is_shaped
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import evaluate_arg
from tilelet.frontend.emitting import check_literals, default_args, emit_op
from tilelet.frontend.lanes import lane_index
from tilelet.frontend.resolve import group_window
from tilelet.frontend.shorthands import shorthand
from tilelet.frontend.source import spelling
from tilelet.frontend.task_options import dependencies
from tilelet.ir.core import Arg, Const, Value, scalar_dtype
from tilelet.ir.fold import evaluate as fold_constant
from tilelet.ir.spec import REGISTRY, Call, OpSpec
from tilelet.ir.types import ScalarType
from tilelet.ops import spellings
from tilelet.ops.manual import signature_text


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
            given[name] = dependencies(ctx, keyword.value)
        else:
            given[name] = evaluate_arg(ctx, keyword.value)
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
    several = shorthand(ctx, spec.name, args)
    if several is not None:
        return several(ctx, args, loc, locs)
    return emit_op(ctx, spec, args, loc, arg_locs=locs)


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
