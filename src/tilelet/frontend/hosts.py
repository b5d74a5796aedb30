"""Host functions: a call of a control program is dispatched to a rank."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any, cast

from tilelet.diag.catalogue.ranks import BadDevice, BadDispatch
from tilelet.frontend.annotations import parameters
from tilelet.frontend.bindings import Binding
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import evaluate_arg, function_call
from tilelet.frontend.emitting import emit_op
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.inlining import positional_arguments
from tilelet.frontend.kernels import Launch, call_kernel
from tilelet.ir.core import Arg, FunctionKind, Value
from tilelet.ir.types import ScalarType

_LANGUAGE = "tilelet.language.distributed"


def names_ranks(function: types.FunctionType) -> bool:
    """Whether a host function names ranks: by `device=`, `Level.CHIP` or a name of `pld`."""
    code = function.__code__
    if "CHIP" in code.co_names:
        return True
    keywords = [cast("tuple[Any, ...]", c) for c in code.co_consts if isinstance(c, tuple)]
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
        written = _outputs(function, operands)
        for tensor in written:
            ctx.facts.note_written(tensor)
        return written[0] if len(written) == 1 else written or None
    if function.kind is FunctionKind.InCore:
        problem = f"the host function calls the kernel `{function.name}`"
        advice = f"call it from a `@pl.jit` function, and dispatch that one: `{_example(function)}`"
        raise BadDispatch(loc, problem, advice)
    nodes = positional_arguments(ctx, function, plain)
    rank = None if device is None else evaluate_arg(ctx, device.value)
    if isinstance(rank, (bool, float, str, tuple)) or (
        isinstance(rank, Value) and not isinstance(rank.type, ScalarType)
    ):
        raise BadDevice(ctx.loc(node), ast.unparse(node))
    launch = Launch(options=(("device", rank),))
    return call_kernel(ctx, function, nodes, loc, launch)


def _outputs(function: KernelFunction, operands: Sequence[Arg]) -> tuple[Arg, ...]:
    """What a sub-worker writes: its value, under the names of its operands."""
    pairs = zip(operands, parameters(function))
    return tuple([arg for arg, p in pairs if p.direction is not None])


def _example(function: KernelFunction) -> str:
    names = ", ".join(p.arg for p in function.parameters)
    return f"per_rank({names}, device=r)"
