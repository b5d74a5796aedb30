"""Resolving names in kernel text without evaluating anything."""

from __future__ import annotations

import ast
import types
from collections.abc import Collection, Iterable, Mapping, Sequence

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ranks import BadCollective, BadWindowBuffer
from tilelet.diag.core import UserError
from tilelet.frontend.bindings import items_of
from tilelet.frontend.context import Context
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.source import nodes_in, statements_in
from tilelet.ir.core import FunctionKind, Value
from tilelet.ir.spec import REGISTRY, OpSpec, spec_of
from tilelet.ops import spellings
from tilelet.syntax import markers


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


def as_kernel_function(x: object) -> KernelFunction | None:
    """Return the kernel function behind a decorated object, if it is one."""
    found = x if isinstance(x, KernelFunction) else getattr(x, "kernel_function", None)
    return found if isinstance(found, KernelFunction) else None


def static_callee(ctx: Context, node: ast.Call) -> object:
    """Return the object that a call's function names; None if that is unclear."""
    return named_object(node.func, ctx.captured, ctx.env)


def named_object(
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
    except UserError:  # known and not supported: reported when the name is lowered
        return None
    return found


def is_compute_helper(function: KernelFunction) -> bool:
    """Return whether a helper computes on tiles outside scopes: its caller then needs a scope."""
    if function.kind is not FunctionKind.Inline:
        return False
    if any(isinstance(s, ast.With) for s in statements_in(function.body)):
        return False
    captured = function.captured_names()
    for n in (n for s in function.body for n in nodes_in(s)):
        if isinstance(n, ast.Call):
            callee = named_object(n.func, captured, ())
            spec, inner = spec_of(callee), as_kernel_function(callee)
            if (spec is not None and spec.is_compute) or (
                inner is not None and inner is not function and is_compute_helper(inner)
            ):
                return True
    return False


def rebound_by(ctx: Context, call: ast.Call) -> Iterable[str]:
    """Yield the name a bare call updates: `pl.write(a, ...)`, `pl.store(tile, offsets, a)`."""
    callee = static_callee(ctx, call)
    spec = REGISTRY["store"] if callee is markers.l0c_store else spec_of(callee)
    if spec is None or not spec.writes:
        return
    call = group_window(ctx, spec, call)
    texts = [() if isinstance(a, (ast.List, ast.Tuple)) else None for a in call.args]
    names = spellings.order(spec, spec.name, texts) or tuple(spec.signature.parameters)
    position = names.index(spec.writes[0])
    given = {spellings.parameter_of_keyword(spec, k.arg): k.value for k in call.keywords if k.arg}
    node = call.args[position] if position < len(call.args) else given.get(spec.writes[0])
    if isinstance(node, ast.Name):
        yield node.id


def check_whole(ctx: Context, nodes: Sequence[ast.expr]) -> None:
    """Raise an error if an argument is a call that must be a statement of its own."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        spec = spec_of(static_callee(ctx, node))
        if spec is not None and spec.name == "pld.alloc_window_buffer":
            problem = "a window buffer without a name"
            raise BadWindowBuffer(ctx.loc(node), problem, f"write `name = {ast.unparse(node)}`")
        if spec is not None and spec.name == "pld.tensor.allreduce" and not ctx.in_scope:
            problem = "inside an expression of the host function"
            raise BadCollective(ctx.loc(node), spec.name, problem, "make it a statement")


def group_window(ctx: Context, spec: OpSpec, call: ast.Call) -> ast.Call:
    """Return a load or store with its window as two lists; until February 2026: four numbers."""
    window = call.args[1:5]
    if spec.name not in ("load", "store") or len(window) < 4:
        return call
    if any(_is_list(ctx, number) for number in window):
        return call
    lists = [ast.copy_location(ast.Tuple(window[at:][:2], ast.Load()), window[at]) for at in (0, 2)]
    args = [call.args[0], *lists, *call.args[5:]]
    return ast.copy_location(ast.Call(call.func, args, call.keywords), call)


def _is_list(ctx: Context, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return items_of(ctx.env.get(node.id, ctx.captured.get(node.id))) is not None
    return isinstance(node, (ast.List, ast.Tuple))
