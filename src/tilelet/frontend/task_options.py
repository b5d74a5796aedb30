"""Options of a task: its dependencies, its predicate and its number of blocks."""

from __future__ import annotations

import ast

from tilelet import dtypes
from tilelet.diag.catalogue.scopes import BadDependency, BadPredicate, BadScopeArgument
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import Binding, as_items, describe
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import evaluate, evaluate_arg
from tilelet.frontend.emitting import check_literal, emit_value
from tilelet.frontend.joins import round_literal
from tilelet.ir.core import Arg, Value, scalar_dtype
from tilelet.ir.types import INDEX, ArrayType, ScalarType, TensorType, Type
from tilelet.ops.infer import check_constant, constant_of


def block_count(ctx: Context, node: ast.expr, marker: str) -> Arg:
    """Return the number of blocks of a launch as an index."""
    count, loc = evaluate_arg(ctx, node), ctx.loc(node)
    dtype, constant = scalar_dtype(count), constant_of(count)
    if dtype is None or not dtype.is_integer or (constant is not None and constant < 1):
        what = describe(count) if constant is None else str(constant)
        raise BadScopeArgument(loc, marker, "core_num", what, "a positive integer")
    if constant is not None:
        check_constant(constant, dtypes.INDEX, loc)
        return int(constant)
    wider = dtype.limits[1] > dtypes.INDEX.limits[1]
    return convert_scalar(ctx, count, INDEX, loc) if wider else count


def dependencies(ctx: Context, node: ast.expr) -> tuple[Arg, ...]:
    """Return the task ids of `deps=[...]`, the only place that accepts a comprehension."""
    is_listed = isinstance(node, ast.ListComp)
    values = _comprehension(ctx, node) if is_listed else as_items(evaluate(ctx, node))
    out: list[Arg] = []
    for value in values:
        if value is None:
            continue
        is_task = isinstance(value, Value) and (
            isinstance(value.type, (ScalarType, ArrayType)) and value.type.dtype is dtypes.TASK_ID
        )
        if not is_task:
            raise BadDependency(ctx.loc(node), describe(value))
        out.append(value)  # type: ignore[arg-type]
    return tuple(out)


def _comprehension(ctx: Context, node: ast.ListComp) -> tuple[Binding, ...]:
    generator = node.generators[0]
    loc = ctx.loc(node)
    simple = len(node.generators) == 1 and not generator.ifs
    if not simple or not isinstance(generator.target, ast.Name):
        raise BadDependency(loc, "a comprehension with conditions or several loops")
    iterable = generator.iter
    if isinstance(iterable, ast.Call) and ast.unparse(iterable.func).split(".")[-1] == "range":
        bounds = [evaluate(ctx, a) for a in iterable.args]
        if not all(isinstance(b, int) for b in bounds):
            raise BadDependency(loc, "a comprehension over run-time bounds")
        items: object = range(*bounds)  # type: ignore[arg-type]
    else:
        items = evaluate(ctx, iterable)
    inner = ctx.fork(env=dict(ctx.env))
    out: list[Binding] = []
    for item in items:  # type: ignore[attr-defined]
        inner.env[generator.target.id] = item
        out.append(evaluate(inner, node.elt))
    return tuple(out)


_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def comparison(ctx: Context, node: ast.expr) -> Arg:
    """Return a comparison of an element with an integer: (tensor, indices, symbol, number)."""
    loc = ctx.loc(node)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise BadPredicate(loc, "it must be one comparison")
    symbol = _SYMBOLS.get(type(node.ops[0]))
    number = evaluate(ctx, node.comparators[0])
    if symbol is None or not isinstance(number, int):
        raise BadPredicate(loc, "the right side must be an integer constant")
    element = node.left
    if isinstance(element, ast.Subscript):
        tensor = evaluate(ctx, element.value)
        parts = element.slice.elts if isinstance(element.slice, ast.Tuple) else [element.slice]
        indices = tuple(evaluate_arg(ctx, p) for p in parts)
    elif isinstance(element, ast.Call) and len(element.args) == 2:
        tensor = evaluate(ctx, element.args[0])
        found = evaluate_arg(ctx, element.args[1])
        indices = found if isinstance(found, tuple) else (found,)
    else:
        raise BadPredicate(loc, "the left side must be an element of a tensor")
    if not isinstance(tensor, Value) or not isinstance(tensor.type, TensorType):
        raise BadPredicate(loc, "the left side must be an element of a tensor")
    check_literal(number, tensor.type.dtype, ctx.loc(node.comparators[0]))
    return (tensor, indices, symbol, number)


def convert_scalar(ctx: Context, operand: Arg, wanted: Type, loc: Loc) -> Arg:
    """Cast a scalar to the type that the kernel declares."""
    if not isinstance(wanted, ScalarType) or not isinstance(operand, Value):
        return round_literal(operand, wanted, loc)
    if operand.type == wanted:
        return operand
    return emit_value(ctx, "scalar.cast", loc, operand.name, x=operand, target_type=wanted.dtype)
