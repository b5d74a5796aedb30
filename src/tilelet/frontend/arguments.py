"""Arguments of a call as its text has them, for what is decided before anything is evaluated."""

from __future__ import annotations

import ast

from tilelet.frontend.bindings import items_of
from tilelet.frontend.context import Context
from tilelet.ir.spec import OpSpec
from tilelet.ops import spellings


def argument_of(spec: OpSpec, call: ast.Call, position: int = 0) -> ast.expr | None:
    """What a call gives for the parameter at `position` of an op: in its place or by its name."""
    if position < len(call.args):
        return call.args[position]
    param = list(spec.signature.parameters)[position]
    named = (k for k in call.keywords if k.arg and spellings.spelled(spec, k.arg) == param)
    return next((k.value for k in named), None)


def grouped(ctx: Context, spec: OpSpec, call: ast.Call) -> ast.Call:
    """A load or store with its window as two lists: until February 2026 it was four numbers."""
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
