"""Calls to functions of the program: a kernel call is a task; anything else is spliced in."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tilelet import dtypes
from tilelet.diag.catalogue.cautions import NoEffect, RetiredSpelling
from tilelet.diag.catalogue.names import ArgumentTypeMismatch
from tilelet.diag.catalogue.ops import BadArgument
from tilelet.diag.catalogue.scopes import (
    BadDependency,
    BadPredicate,
    BadScopeArgument,
    OnlyAtOrchestration,
)
from tilelet.diag.core import Loc
from tilelet.frontend import annotations, calls, expressions, hosts, joins
from tilelet.frontend.bindings import (
    Binding,
    ReportedError,
    as_items,
    describe,
)
from tilelet.frontend.context import Context, Part
from tilelet.frontend.emitting import check_literal, default_args, emit_op, spilled
from tilelet.frontend.functions import KernelFunction
from tilelet.ir import structure
from tilelet.ir.core import (
    Arg,
    Direction,
    Function,
    FunctionKind,
    Value,
    scalar_dtype,
)
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import INDEX, ArrayType, ScalarType, TensorType, Type
from tilelet.ops.infer import check_constant, constant_of
from tilelet.syntax import markers


@dataclass(frozen=True)
class Launch:
    """How a task is submitted, beyond its operands."""

    deps: tuple[Arg, ...] = ()
    predicate: Arg = None
    count: Arg = None
    task_id: bool = False
    options: tuple[Arg, ...] = ()


def call_function(
    ctx: Context, function: KernelFunction, node: ast.Call, is_statement: bool = False
) -> Binding:
    """`self.kernel(a, b)` or `helper(a, b)`."""
    if ctx.host and function.kind is not FunctionKind.Inline:
        return hosts.dispatch(ctx, function, node)
    is_kernel = function.kind is FunctionKind.InCore and not ctx.in_scope
    may_omit = is_kernel and not function.generic
    nodes = calls.positional_arguments(ctx, function, node, may_omit)
    if is_kernel:
        return call_kernel(ctx, function, nodes, ctx.loc(node), Launch())
    args = calls.arguments(ctx, nodes)
    if ctx.parts is None or function.core is None:
        return calls.inline(ctx, function, args, ctx.loc(node), is_statement)
    part = Part(function.name, [])
    ctx.parts.append(part)
    return calls.inline(ctx.fork(ops=part.ops), function, args, ctx.loc(node), is_statement)


def call_kernel(
    ctx: Context, function: KernelFunction, nodes: list[ast.expr], loc: Loc, launch: Launch
) -> Binding:
    """Submit a kernel as a task."""
    operands: list[Arg] = []
    no_dep: list[int] = []
    for i, node in enumerate(nodes):
        inner = _no_dep_argument(ctx, node)
        if inner is not None:
            no_dep.append(i)
        value = expressions.evaluate(ctx, inner or node)
        operands.append(calls.arg_of(ctx, value, inner or node))
    if ctx.host:
        operands = hosts.declared_views(ctx, function, operands, loc)
    types = tuple(_operand_type(o) for o in operands)
    callee = ctx.module.kernel(function, types, loc)
    if ctx.sink.errors and not callee.returned:
        raise ReportedError  # what it returns is not known, because of a mistake in it
    operands += _omitted_outputs(ctx, function, callee, len(nodes), loc)
    for i, (node, param) in enumerate(zip(nodes, callee.params)):
        if callee.declarations[i] is Direction.Out:
            operands[i] = _as_written(ctx, function, operands[i], param, ctx.loc(node))
        _check_operand(ctx.loc(node), function.name, operands[i], param)
        operands[i] = _converted(ctx, operands[i], param.type, ctx.loc(node))
    args: dict[str, Arg] = {
        "callee": callee.name, "operands": tuple(operands), "deps": launch.deps,
        "no_dep": tuple(no_dep), "predicate": launch.predicate, "count": launch.count,
        "task_id": launch.task_id, "options": launch.options,
    }  # fmt: skip
    result_types, roots = _results(callee, operands)
    if launch.task_id:
        result_types.append(ScalarType(dtypes.TASK_ID))
    names = tuple(v.name if isinstance(v, Value) else "result" for v in callee.returned)
    names += ("tid",) * launch.task_id
    results = ctx.emit(structure.CALL, args, tuple(result_types), loc, names)
    for operand, direction in zip(operands, callee.directions, strict=True):
        if direction is not Direction.In or operand in roots:
            ctx.facts.note_written(operand)
    for result, operand in zip(results, roots, strict=False):
        ctx.facts.note_same(result, operand)
    if not results:
        return None
    return results[0] if len(results) == 1 else results


def _omitted_outputs(
    ctx: Context, function: KernelFunction, callee: Function, given: int, loc: Loc
) -> list[Arg]:
    """New tensors for outputs that a call leaves out.

    When signatures did not say what is written, a call was the inputs, and its value the output.
    """
    made: list[Arg] = []
    for i, param in list(enumerate(callee.params))[given:]:
        t = param.type
        if i not in callee.returns or callee.declarations[i] is not None:
            raise calls.wrong_arity(loc, function, given)
        if not isinstance(t, TensorType) or not all(isinstance(d, int) for d in t.shape):
            raise calls.wrong_arity(loc, function, given)
        spec = REGISTRY["create_tensor"]
        shape: Arg = tuple(d for d in t.shape if isinstance(d, int))
        created = emit_op(ctx, spec, default_args(spec, shape=shape, dtype=t.dtype), loc)
        assert isinstance(created, Value)
        made.append(created)
    if made:
        modern = f"{function.name}(..., {callee.params[given].name})"
        ctx.module.note_retired(RetiredSpelling(loc, "a call without its output", modern))
    return made


def _results(callee: Function, operands: list[Arg]) -> tuple[list[Type], list[Arg]]:
    """Types of what the callee returns, and the operand each one is (None: a new tensor)."""
    types: list[Type] = []
    roots: list[Arg] = []
    for value, index in zip(callee.returned, callee.returns, strict=True):
        operand = operands[index] if index is not None else None
        roots.append(operand)
        if isinstance(operand, Value):
            types.append(operand.type)
        else:
            assert isinstance(value, Value)
            types.append(spilled(value.type))
    return types, roots


def _operand_type(arg: Arg) -> Type:
    if isinstance(arg, Value):
        return arg.type
    dtype = scalar_dtype(arg)
    return ScalarType(dtype if dtype is not None else dtypes.INDEX)


def _as_written(
    ctx: Context, function: KernelFunction, operand: Arg, param: Value, loc: Loc
) -> Arg:
    """New memory as a kernel writes it: elements of that size, of whatever type it was made for.

    Programs were published that create one type of 16 bits and write and read another.
    """
    wanted = param.type
    if not isinstance(operand, Value) or operand not in ctx.facts.undefined:
        return operand
    if not isinstance(operand.type, TensorType) or not isinstance(wanted, TensorType):
        return operand
    made = operand.type.dtype
    if made is wanted.dtype or made.itemsize != wanted.dtype.itemsize or function.generic:
        return operand
    why = f"`{function.name}` writes it as {wanted.dtype}"
    ctx.sink.add(NoEffect(loc, f"the type {made} of `{operand.name}`", why))
    spec = REGISTRY["reinterpret_view"]
    args = default_args(spec, x=operand, dtype=wanted.dtype)
    return emit_op(ctx, spec, args, loc, operand.name)  # type: ignore[return-value]


def _check_operand(loc: Loc, function: str, operand: Arg, param: Value) -> None:
    wanted = param.type
    if isinstance(wanted, ScalarType):
        given = scalar_dtype(operand)
        if given is not None and (wanted.dtype.is_float or not given.is_float):
            return
        raise ArgumentTypeMismatch(
            loc, function, param.name, describe(operand), str(wanted), param.loc
        )
    if not isinstance(operand, Value):
        what = describe(operand)
        raise ArgumentTypeMismatch(loc, function, param.name, what, str(wanted), param.loc)
    if not annotations.agree(operand.type, wanted):
        raise ArgumentTypeMismatch(
            loc, function, param.name, str(operand.type), str(wanted), param.loc
        )


def _converted(ctx: Context, operand: Arg, wanted: Type, loc: Loc) -> Arg:
    """A number as the scalar type that the kernel declares."""
    if not isinstance(wanted, ScalarType) or not isinstance(operand, Value):
        return joins.rounded(operand, wanted, loc)
    if operand.type == wanted:
        return operand
    spec = REGISTRY["scalar.cast"]
    args = default_args(spec, x=operand, target_type=wanted.dtype)
    return emit_op(ctx, spec, args, loc, operand.name)  # type: ignore[return-value]


def _no_dep_argument(ctx: Context, node: ast.expr) -> ast.expr | None:
    """The `x` of `pl.no_dep(x)`."""
    if isinstance(node, ast.Call) and calls.static_callee(ctx, node) is markers.no_dep:
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "tensor")]
        return given[0] if given else None
    return None


# --- pl.submit -----------------------------------------------------------------------------------

_SUBMIT_OPTIONS = frozenset({"allow_early_resolve", "name_hint", "sync_start"})


def submit(ctx: Context, node: ast.Call, spmd: bool = False) -> Binding:
    """`res, tid = pl.submit(self.k, a, b, deps=[...], predicate=(t[i] > 0))`."""
    loc = ctx.loc(node)
    marker = "spmd_submit" if spmd else "submit"
    if ctx.in_scope:
        raise OnlyAtOrchestration(loc, f"pl.{marker}", ctx.scope_loc)
    if not node.args:
        raise BadArgument(loc, marker, "kernel", "nothing", "the kernel to run")
    target = expressions.evaluate(ctx, node.args[0])
    if isinstance(target, calls.MethodReference):
        function = ctx.module.method(target.name, loc)
    else:
        found = calls.as_kernel_function(target)
        if found is None:
            what = describe(target)
            raise BadArgument(ctx.loc(node.args[0]), marker, "kernel", what, "a kernel function")
        function = found
    deps: tuple[Arg, ...] = ()
    predicate: Arg = None
    count: Arg = None
    options: list[Arg] = []
    for keyword in node.keywords:
        if keyword.arg == "deps":
            deps = dependencies(ctx, keyword.value)
        elif keyword.arg == "predicate":
            predicate = comparison(ctx, keyword.value)
        elif keyword.arg == "core_num" and spmd:
            count = block_count(ctx, keyword.value, marker)
        elif keyword.arg == "dumps":
            ctx.sink.add(NoEffect(ctx.loc(keyword.value), "`dumps=`", "use `pl.dump`"))
        elif keyword.arg in _SUBMIT_OPTIONS:
            options.append((keyword.arg, expressions.evaluate_arg(ctx, keyword.value)))
        else:
            allowed = [
                "deps",
                "dumps",
                "predicate",
                *_SUBMIT_OPTIONS,
                *(["core_num"] if spmd else []),
            ]
            raise calls.UnknownKeyword(ctx.loc(keyword), marker, keyword.arg or "**", allowed)
    if spmd and count is None:
        raise calls.MissingArgument(loc, marker, "core_num")
    launch = Launch(deps, predicate, count, task_id=True, options=tuple(options))
    positional = ast.copy_location(ast.Call(node.func, node.args[1:], []), node)
    nodes = calls.positional_arguments(ctx, function, positional)
    return call_kernel(ctx, function, nodes, loc, launch)


def block_count(ctx: Context, node: ast.expr, marker: str) -> Arg:
    """The number of blocks of a launch: an index, so that every engine sees the same number."""
    count, loc = expressions.evaluate_arg(ctx, node), ctx.loc(node)
    dtype, constant = scalar_dtype(count), constant_of(count)
    if dtype is None or not dtype.is_integer or (constant is not None and constant < 1):
        what = describe(count) if constant is None else str(constant)
        raise BadScopeArgument(loc, marker, "core_num", what, "a positive integer")
    if constant is not None:
        check_constant(constant, dtypes.INDEX, loc)
        return int(constant)
    wider = dtype.limits[1] > dtypes.INDEX.limits[1]
    return _converted(ctx, count, INDEX, loc) if wider else count


def dependencies(ctx: Context, node: ast.expr) -> tuple[Arg, ...]:
    """The task ids of `deps=[...]`; the one place where a comprehension is part of the language."""
    if isinstance(node, ast.ListComp):
        values = _comprehension(ctx, node)
    else:
        found = expressions.evaluate(ctx, node)
        values = as_items(found)
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
        bounds = [expressions.evaluate(ctx, a) for a in iterable.args]
        if not all(isinstance(b, int) for b in bounds):
            raise BadDependency(loc, "a comprehension over run-time bounds")
        items: object = range(*bounds)  # type: ignore[arg-type]
    else:
        items = expressions.evaluate(ctx, iterable)
    out: list[Binding] = []
    missing = object()
    saved = ctx.env.get(generator.target.id, missing)
    for item in items:  # type: ignore[attr-defined]
        ctx.env[generator.target.id] = item
        out.append(expressions.evaluate(ctx, node.elt))
    if saved is missing:
        ctx.env.pop(generator.target.id, None)
    else:
        ctx.env[generator.target.id] = saved
    return tuple(out)


_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def comparison(ctx: Context, node: ast.expr) -> Arg:
    """One comparison of a tensor element with an integer: (tensor, indices, comparison, number)."""
    loc = ctx.loc(node)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise BadPredicate(loc, "it must be one comparison")
    symbol = _SYMBOLS.get(type(node.ops[0]))
    number = expressions.evaluate(ctx, node.comparators[0])
    if symbol is None or not isinstance(number, int):
        raise BadPredicate(loc, "the right side must be an integer constant")
    element = node.left
    if isinstance(element, ast.Subscript):
        tensor = expressions.evaluate(ctx, element.value)
        parts = element.slice.elts if isinstance(element.slice, ast.Tuple) else [element.slice]
        indices = tuple(expressions.evaluate_arg(ctx, p) for p in parts)
    elif isinstance(element, ast.Call) and len(element.args) == 2:
        tensor = expressions.evaluate(ctx, element.args[0])
        found = expressions.evaluate_arg(ctx, element.args[1])
        indices = found if isinstance(found, tuple) else (found,)
    else:
        raise BadPredicate(loc, "the left side must be an element of a tensor")
    if not isinstance(tensor, Value) or not isinstance(tensor.type, TensorType):
        raise BadPredicate(loc, "the left side must be an element of a tensor")
    check_literal(number, tensor.type.dtype, ctx.loc(node.comparators[0]))
    return (tensor, indices, symbol, number)
