"""Calls of the program's functions: a kernel call is a task, other bodies are spliced in."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from tilelet import dtypes
from tilelet.analysis import patience
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.cautions import DirectionIgnored, NoEffect, RetiredSpelling
from tilelet.diag.catalogue.names import (
    ArgumentTypeMismatch,
    InlineRecursion,
    InlineReturnsNothing,
)
from tilelet.diag.catalogue.ops import (
    BadArgument,
    DuplicateArgument,
    MissingArgument,
    UnknownKeyword,
    WrongArity,
)
from tilelet.diag.catalogue.python import KeywordToUserFunction
from tilelet.diag.catalogue.ranks import BadDevice, BadDispatch
from tilelet.diag.catalogue.scopes import OnlyAtOrchestration
from tilelet.diag.catalogue.unsupported import ExternalKernel
from tilelet.diag.core import Loc
from tilelet.frontend import annotations, pipes
from tilelet.frontend.bindings import (
    Binding,
    ReportedError,
    as_items,
    describe,
    tensor_type,
    unpack_results,
)
from tilelet.frontend.context import Context, CorePart
from tilelet.frontend.dispatch import call, evaluate, evaluate_arg, function_call, lower_body
from tilelet.frontend.emitting import emit_op, emit_value, spilled_type, to_arg
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.nameflow import NameFlow, argument_of
from tilelet.frontend.resolve import (
    MethodReference,
    SelfReference,
    as_kernel_function,
    check_whole,
    named_object,
    rebound_by,
    static_callee,
)
from tilelet.frontend.source import spelling
from tilelet.frontend.task_options import block_count, comparison, convert_scalar, dependencies
from tilelet.ir import structure
from tilelet.ir.core import Arg, Direction, Function, FunctionKind, Value, scalar_dtype
from tilelet.ir.spec import BLOCKS, Call, Engine, External, OpSpec, Plane, Trait, spec_of
from tilelet.ir.types import DistributedType, ScalarType, TensorType, TileType, Type
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
    args = [evaluate(ctx, n) for n in nodes]
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
    woven = tuple([ended.get(v, v) if isinstance(v, Value) else v for v in as_items(result)])
    return woven if isinstance(result, tuple) else woven[0]


def call_kernel(
    ctx: Context, function: KernelFunction, nodes: list[ast.expr], loc: Loc, launch: Launch
) -> Binding:
    """Submit a kernel as a task."""
    operands: list[Arg] = []
    no_dep: list[int] = []
    if ctx.kind is FunctionKind.Host:
        check_whole(ctx, nodes)
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
    return unpack_results(results)


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
    t = tensor_type(operand)
    if not isinstance(operand, Value) or operand not in ctx.facts.undefined:
        return operand
    if t is None or not isinstance(wanted, TensorType):
        return operand
    made = t.dtype
    if made is wanted.dtype or made.itemsize != wanted.dtype.itemsize or function.generic:
        return operand
    why = f"`{function.name}` writes it as {wanted.dtype}"
    ctx.sink.add(NoEffect(loc, f"the type {made} of `{operand.name}`", why))
    return emit_value(ctx, "reinterpret_view", loc, operand.name, x=operand, dtype=wanted.dtype)


def _check_operand(loc: Loc, function: str, operand: Arg, param: Value) -> None:
    wanted = param.type
    if isinstance(wanted, ScalarType):
        given = scalar_dtype(operand)
        fits = given is not None and (wanted.dtype.is_float or not given.is_float)
    else:
        fits = isinstance(operand, Value) and annotations.agree(operand.type, wanted)
    if not fits:
        what = describe(operand)
        raise ArgumentTypeMismatch(loc, function, param.name, what, str(wanted), param.loc)


def _no_dep_argument(ctx: Context, node: ast.expr) -> ast.expr | None:
    """Return the `x` of `pl.no_dep(x)`."""
    if isinstance(node, ast.Call) and static_callee(ctx, node) is markers.no_dep:
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "tensor")]
        return given[0] if given else None
    return None


# --- pl.submit -----------------------------------------------------------------------------------

_SUBMIT_OPTIONS = ("allow_early_resolve", "name_hint", "sync_start")


@call(markers.submit, markers.spmd_submit)
def submit(ctx: Context, node: ast.Call) -> Binding:
    """`res, tid = pl.submit(self.k, a, b, deps=[...], predicate=(t[i] > 0))`.

    `pl.spmd_submit` has `core_num=` as well: one task of several blocks.
    """
    loc = ctx.loc(node)
    marker = evaluate(ctx, node.func).__name__
    spmd = marker == "spmd_submit"
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
        elif keyword.arg == "device" and ctx.kind is FunctionKind.Host:
            options.append(("device", _device(ctx, keyword.value, loc)))
        elif keyword.arg in _SUBMIT_OPTIONS:
            options.append((keyword.arg, evaluate_arg(ctx, keyword.value)))
        else:
            allowed = ["deps", "dumps", "predicate", *_SUBMIT_OPTIONS, *["core_num"] * spmd]
            allowed += ["device"] * (ctx.kind is FunctionKind.Host)
            raise UnknownKeyword(ctx.loc(keyword), marker, keyword.arg or "**", allowed)
    if spmd and count is None:
        raise MissingArgument(loc, marker, "core_num")
    if ctx.kind is FunctionKind.Host:
        _check_dispatched(function, loc)
    launch = Launch(deps, predicate, count, task_id=True, options=tuple(options))
    positional = ast.copy_location(ast.Call(node.func, node.args[1:], []), node)
    nodes = positional_arguments(ctx, function, positional)
    return call_kernel(ctx, function, nodes, loc, launch)


# --- helpers, whose bodies are spliced into their callers -----------------------------------------

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
            if name == "device" and function.kind is FunctionKind.Inline:
                problem = f"`{function.name}` is inlined into the host function"
                raise BadDispatch(ctx.loc(node), problem, "dispatch a `@pl.jit` function")
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
        ctx.facts.layouts.update(annotations.layouts_of(function, env))
    inner = ctx.fork(
        source=function.source,
        captured=function.captured_names(),
        host=function.host,
        style=replace(function.style, implied=ctx.style.implied, guards_outputs=False),
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


def _caution_directions(ctx: Context, function: KernelFunction) -> None:
    for p in function.parameters:
        if isinstance(p.annotation, ast.Subscript):
            head = p.annotation.value
            name = head.attr if isinstance(head, ast.Attribute) else spelling(head)
            if function.kind is FunctionKind.Inline and name in ("Out", "InOut"):
                at = function.source.loc(p.annotation)
                ctx.sink.add(DirectionIgnored(at, p.arg))


def arg_of(ctx: Context, x: Binding, node: ast.expr) -> Arg:
    return to_arg(ctx, x, ctx.loc(node), node.id if isinstance(node, ast.Name) else "")


# --- host functions: a call of a control program is dispatched to a rank --------------------------

_LANGUAGE = "tilelet.language.distributed"


def names_ranks(function: types.FunctionType) -> bool:
    """Whether a host function names ranks: by `device=`, `Level.CHIP` or a name of `pld`."""
    code = function.__code__
    if "CHIP" in code.co_names:
        return True
    keywords = [cast("tuple[object, ...]", c) for c in code.co_consts if isinstance(c, tuple)]
    if any("device" in names for names in keywords):
        return True
    found = [function.__globals__.get(name) for name in code.co_names]
    return any(
        (x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", ""))
        == _LANGUAGE
        for x in found
    )


@function_call(FunctionKind.Host)
def call_on_rank(ctx: Context, function: KernelFunction, node: ast.Call, _: bool) -> Binding:
    """`per_rank(x[r], y[r], device=r)`: run a control program on a rank."""
    loc = ctx.loc(node)
    device = next((k for k in node.keywords if k.arg == "device"), None)
    others = [k for k in node.keywords if k is not device]
    plain = ast.copy_location(ast.Call(node.func, node.args, others), node)
    if function.is_callback:
        from tilelet.ops.ranks import RANK_OPS

        operands = tuple([evaluate_arg(ctx, a) for a in plain.args])
        args: dict[str, Arg] = {"name": function.name, "operands": operands}
        emit_op(ctx, RANK_OPS["pld.callback"], args, loc)
        pairs = zip(operands, annotations.parameters(function))
        written = tuple([arg for arg, p in pairs if p.direction is not None])
        for tensor in written:
            ctx.facts.note_written(tensor)
        return unpack_results(written)
    _check_dispatched(function, loc)
    nodes = positional_arguments(ctx, function, plain)
    rank = None if device is None else _device(ctx, device.value, loc)
    launch = Launch(options=(("device", rank),))
    return call_kernel(ctx, function, nodes, loc, launch)


def _check_dispatched(function: KernelFunction, loc: Loc) -> None:
    """Raise an error if the host function calls a kernel, which only control programs do."""
    if function.kind is not FunctionKind.InCore:
        return
    problem = f"the host function calls the kernel `{function.name}`"
    names = ", ".join(p.arg for p in function.parameters)
    example = f"`per_rank({names}, device=r)`"
    advice = f"call it from a `@pl.jit` function, and dispatch that one: {example}"
    raise BadDispatch(loc, problem, advice)


def _device(ctx: Context, node: ast.expr, loc: Loc) -> Arg:
    """Return the rank that `device=` names."""
    rank = evaluate_arg(ctx, node)
    is_number = not isinstance(rank, (bool, float, str, tuple)) and (
        not isinstance(rank, Value) or isinstance(rank.type, ScalarType)
    )
    if not is_number:
        raise BadDevice(loc, ast.unparse(node))
    return rank


# --- `@pl.jit.extern`: code outside the language, as an op by reference ---------------------------

_DECLARE = "declare every output as `pl.Out` or `pl.InOut`"


def lower_external(
    ctx: Context, function: KernelFunction, external: External, args: Sequence[Arg], loc: Loc
) -> tuple[Binding, ...]:
    """Emit an external kernel: one op, which writes the outputs."""
    params = annotations.parameters(function)
    writes = (Direction.Out, Direction.InOut)
    outputs = tuple(p.name for p in params if p.direction in writes)
    if not outputs:
        raise ExternalKernel(function.loc(), function.name, "declares no output", _DECLARE)
    names = [p.name for p in params]
    spec = _spec(function, external, names, outputs)
    given = {**dict(zip(names, args, strict=True)), BLOCKS: ctx.blocks}
    made = emit_op(ctx, spec, given, loc)
    for value in args:
        if isinstance(value, Value):
            ctx.consumed.pop(value, None)  # the caller's name means the same memory
    results = as_items(made)
    return results[: _declared_results(function.node.returns, len(results))]


def _declared_results(annotation: ast.expr | None, outputs: int) -> int:
    """Return how many outputs a call returns, the first ones: all if the stub does not say."""
    if annotation is None:
        return outputs
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        is_tuple = ast.unparse(annotation.value).lower().endswith("tuple")
        return len(annotation.slice.elts) if is_tuple else 1
    return 0 if isinstance(annotation, ast.Constant) and annotation.value is None else 1


def _spec(
    function: KernelFunction, external: External, names: list[str], outputs: tuple[str, ...]
) -> OpSpec:
    def types(call: Call) -> tuple[Type, ...]:
        return tuple(call[name].type for name in outputs)

    def reference(**args: Any) -> tuple[Any, ...]:
        if external.reference is None:
            instead = f"assign a function of NumPy arrays: `{function.name}.reference = function`"
            raise ExternalKernel(function.loc(), function.name, "has no reference to run", instead)
        made: Any = external.reference(*(args[n] for n in names))
        if made is None:
            return ()  # written in place, possibly while other blocks write their parts
        results: tuple[Any, ...] = made if isinstance(made, tuple) else (made,)  # type: ignore[assignment]
        wanted = [args[n].shape for n in outputs]
        if [getattr(r, "shape", None) for r in results] != wanted:
            why = f"returns other shapes than {', '.join(str(list(s)) for s in wanted)}"
            raise ExternalKernel(function.loc(), function.name, why, "return what it declares")
        return results

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return OpSpec(
        name=f"extern.{function.name}",
        infer=types,
        engine=Engine.MTE,
        plane=Plane.SCOPE,
        traits=Trait.BY_INDEX,
        reference=reference,
        on_chip=(),
        writes=outputs,
        signature=inspect.Signature([inspect.Parameter(n, kind) for n in (*names, BLOCKS)]),
        external=external,
    )
