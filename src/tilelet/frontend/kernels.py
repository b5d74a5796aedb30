"""Calls of the program's functions: a kernel call is a task, other bodies are spliced in."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tilelet import dtypes
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.cautions import NoEffect, RetiredSpelling
from tilelet.diag.catalogue.names import ArgumentTypeMismatch
from tilelet.diag.catalogue.ops import BadArgument, MissingArgument, UnknownKeyword
from tilelet.diag.catalogue.ranks import BadDispatch
from tilelet.diag.catalogue.scopes import OnlyAtOrchestration
from tilelet.diag.core import Loc
from tilelet.frontend import annotations, pipes
from tilelet.frontend.bindings import Binding, ReportedError, describe
from tilelet.frontend.context import Context, CorePart
from tilelet.frontend.dispatch import call, evaluate, evaluate_arg, function_call
from tilelet.frontend.emitting import emit_value, spilled_type
from tilelet.frontend.externs import lower_external
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.inlining import arg_of, arguments, inline, positional_arguments, wrong_arity
from tilelet.frontend.resolve import MethodReference, as_kernel_function, static_callee
from tilelet.frontend.task_options import block_count, comparison, convert_scalar, dependencies
from tilelet.ir import structure
from tilelet.ir.core import Arg, Direction, Function, FunctionKind, Value, scalar_dtype
from tilelet.ir.types import DistributedType, ScalarType, TensorType, Type
from tilelet.syntax import markers


@dataclass(frozen=True)
class Launch:
    """How a task is submitted, beyond its operands."""

    deps: tuple[Arg, ...] = ()
    predicate: Arg = None
    count: Arg = None
    task_id: bool = False
    options: tuple[Arg, ...] = ()


@function_call()
def call_function(
    ctx: Context, function: KernelFunction, node: ast.Call, is_statement: bool = False
) -> Binding:
    """Lower `self.kernel(a, b)` or `helper(a, b)`."""
    is_kernel = function.kind is FunctionKind.InCore and not ctx.in_scope
    may_omit = is_kernel and not function.generic
    nodes = positional_arguments(ctx, function, node, may_omit)
    if is_kernel:
        return call_kernel(ctx, function, nodes, ctx.loc(node), Launch())
    args = arguments(ctx, nodes)
    if function.external is not None:
        values = [arg_of(ctx, value, at) for value, at in zip(args, nodes)]
        results = lower_external(ctx, function, function.external, values, ctx.loc(node))
        return results[0] if len(results) == 1 else results
    if function.core is FunctionKind.Group:
        return _inline_group(ctx.fork(parts=[]), function, args, ctx.loc(node), is_statement)
    if ctx.parts is None or function.core is None:
        return inline(ctx, function, args, ctx.loc(node), is_statement)
    part = CorePart(function.name, [])
    ctx.parts.append(part)
    return inline(ctx.fork(ops=part.ops), function, args, ctx.loc(node), is_statement)


def _inline_group(
    ctx: Context, function: KernelFunction, args: list[Binding], loc: Loc, is_statement: bool
) -> Binding:
    """Splice the halves of a group into a scope, each transfer after what it waits for."""
    result = inline(ctx, function, args, loc, is_statement)
    ended = pipes.weave(ctx, ctx.parts or [])
    several: list[Binding] = [*result] if isinstance(result, tuple) else [result]
    woven = tuple([ended.get(v, v) if isinstance(v, Value) else v for v in several])
    return woven if isinstance(result, tuple) else woven[0]


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
        value = evaluate(ctx, inner or node)
        operands.append(arg_of(ctx, value, inner or node))
    if ctx.kind is FunctionKind.Host:
        operands = _declared_views(ctx, function, operands, loc)
    types = tuple(_operand_type(o) for o in operands)
    callee = ctx.module.kernel(function, types, loc)
    if ctx.sink.errors and not callee.returned:
        raise ReportedError  # its results are unknown, because of a mistake in it
    operands += _omitted_outputs(ctx, function, callee, len(nodes), loc)
    for i, (node, param) in enumerate(zip(nodes, callee.params)):
        if callee.declarations[i] is Direction.Out:
            operands[i] = _reinterpret_output(ctx, function, operands[i], param, ctx.loc(node))
        _check_operand(ctx.loc(node), function.name, operands[i], param)
        operands[i] = convert_scalar(ctx, operands[i], param.type, ctx.loc(node))
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


def _declared_views(
    ctx: Context, function: KernelFunction, operands: Sequence[Arg], loc: Loc
) -> list[Arg]:
    """Reshape windows to the shapes that the callee declares: `[64]` to `[1, 64]`.

    Tensors must come before numbers, as the runtime packs them.
    """
    found: list[Arg] = []
    scalar = ""
    for operand, p in zip(operands, annotations.parameters(function)):
        is_number = not isinstance(operand, Value) or isinstance(operand.type, ScalarType)
        if scalar and not is_number:
            problem = f"tensor `{p.name}` after the number `{scalar}`"
            raise BadDispatch(loc, problem, "move the numbers to the end of the parameter list")
        if is_number:
            scalar = p.name
        wanted = p.type
        if (
            isinstance(operand, Value)
            and isinstance(operand.type, DistributedType)
            and isinstance(wanted, DistributedType)
            and len(wanted.shape) != len(operand.type.shape)
            and all(isinstance(d, int) for d in wanted.shape)
        ):
            shape: Arg = tuple(d for d in wanted.shape if isinstance(d, int))
            operand = emit_value(ctx, "reshape", loc, operand.name, x=operand, shape=shape)
        found.append(operand)
    return found


def _omitted_outputs(
    ctx: Context, function: KernelFunction, callee: Function, given: int, loc: Loc
) -> list[Arg]:
    """Create tensors for the outputs that a call omits.

    Before signatures declared what is written, a call passed the inputs and returned the output.
    """
    made: list[Arg] = []
    for i, param in list(enumerate(callee.params))[given:]:
        t = param.type
        if i not in callee.returns or callee.declarations[i] is not None:
            raise wrong_arity(loc, function, given)
        if not isinstance(t, TensorType) or not all(isinstance(d, int) for d in t.shape):
            raise wrong_arity(loc, function, given)
        shape: Arg = tuple(d for d in t.shape if isinstance(d, int))
        made.append(emit_value(ctx, "create_tensor", loc, shape=shape, dtype=t.dtype))
    if made:
        modern = f"{function.name}(..., {callee.params[given].name})"
        ctx.module.note_retired(RetiredSpelling(loc, "a call without its output", modern))
    return made


def _results(callee: Function, operands: list[Arg]) -> tuple[list[Type], list[Arg]]:
    """Return the types of the results, and the operand that each one is (None: a new tensor)."""
    types: list[Type] = []
    roots: list[Arg] = []
    for value, index in zip(callee.returned, callee.returns, strict=True):
        operand = operands[index] if index is not None else None
        roots.append(operand)
        if isinstance(operand, Value):
            types.append(operand.type)
        else:
            assert isinstance(value, Value)
            types.append(spilled_type(value.type))
    return types, roots


def _operand_type(arg: Arg) -> Type:
    if isinstance(arg, Value):
        return arg.type
    dtype = scalar_dtype(arg)
    return ScalarType(dtype if dtype is not None else dtypes.INDEX)


def _reinterpret_output(
    ctx: Context, function: KernelFunction, operand: Arg, param: Value, loc: Loc
) -> Arg:
    """View new memory with the dtype in which a kernel writes it, if the sizes agree.

    Published programs create memory of one 16-bit type and use it as another.
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
    return emit_value(ctx, "reinterpret_view", loc, operand.name, x=operand, dtype=wanted.dtype)


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


def _no_dep_argument(ctx: Context, node: ast.expr) -> ast.expr | None:
    """Return the `x` of `pl.no_dep(x)`."""
    if isinstance(node, ast.Call) and static_callee(ctx, node) is markers.no_dep:
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "tensor")]
        return given[0] if given else None
    return None


# --- pl.submit -----------------------------------------------------------------------------------

_SUBMIT_OPTIONS = frozenset({"allow_early_resolve", "name_hint", "sync_start"})


@call(markers.submit)
def submit(ctx: Context, node: ast.Call) -> Binding:
    """`res, tid = pl.submit(self.k, a, b, deps=[...], predicate=(t[i] > 0))`."""
    return _submit(ctx, node, spmd=False)


@call(markers.spmd_submit)
def spmd_submit(ctx: Context, node: ast.Call) -> Binding:
    """As `pl.submit`, with `core_num=`: one task of several blocks."""
    return _submit(ctx, node, spmd=True)


def _submit(ctx: Context, node: ast.Call, spmd: bool) -> Binding:
    loc = ctx.loc(node)
    marker = "spmd_submit" if spmd else "submit"
    if ctx.in_scope:
        raise OnlyAtOrchestration(loc, f"pl.{marker}", ctx.scope_loc)
    if not node.args:
        raise BadArgument(loc, marker, "kernel", "nothing", "the kernel to run")
    target = evaluate(ctx, node.args[0])
    if isinstance(target, MethodReference):
        function = ctx.module.method(target.name, loc)
    else:
        found = as_kernel_function(target)
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
            options.append((keyword.arg, evaluate_arg(ctx, keyword.value)))
        else:
            allowed = [
                "deps",
                "dumps",
                "predicate",
                *_SUBMIT_OPTIONS,
                *(["core_num"] if spmd else []),
            ]
            raise UnknownKeyword(ctx.loc(keyword), marker, keyword.arg or "**", allowed)
    if spmd and count is None:
        raise MissingArgument(loc, marker, "core_num")
    launch = Launch(deps, predicate, count, task_id=True, options=tuple(options))
    positional = ast.copy_location(ast.Call(node.func, node.args[1:], []), node)
    nodes = positional_arguments(ctx, function, positional)
    return call_kernel(ctx, function, nodes, loc, launch)
