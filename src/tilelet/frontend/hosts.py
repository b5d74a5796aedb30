"""Host functions: a call of a control program is dispatched to a rank."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tilelet.diag.catalogue.ranks import BadDevice, BadDispatch
from tilelet.diag.core import Loc
from tilelet.frontend import annotations, calls, expressions, kernels
from tilelet.frontend.bindings import Binding
from tilelet.frontend.emitting import default_args, emit_op
from tilelet.ir.core import Arg, FunctionKind, Value
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import DistributedType, ScalarType

if TYPE_CHECKING:
    from tilelet.frontend.context import Context
    from tilelet.frontend.functions import KernelFunction

_LANGUAGE = "tilelet.language.distributed"


def names_ranks(function: types.FunctionType) -> bool:
    """Whether a host function names ranks: by `device=`, or by a name of `pld`."""
    code = function.__code__
    keywords = [cast("tuple[Any, ...]", c) for c in code.co_consts if isinstance(c, tuple)]
    if any("device" in names for names in keywords):
        return True
    found = [function.__globals__.get(name) for name in code.co_names]
    return any(
        (x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", ""))
        == _LANGUAGE
        for x in found
    )


def dispatch(ctx: Context, function: KernelFunction, node: ast.Call) -> Binding:
    """`per_rank(x[r], y[r], device=r)`: run a control program on a rank."""
    loc = ctx.loc(node)
    device = next((k for k in node.keywords if k.arg == "device"), None)
    others = [k for k in node.keywords if k is not device]
    plain = ast.copy_location(ast.Call(node.func, node.args, others), node)
    if function.is_callback:
        from tilelet.ops.ranks import RANK_OPS

        operands = tuple([expressions.evaluate_arg(ctx, a) for a in plain.args])
        args: dict[str, Arg] = {"name": function.name, "operands": operands}
        return emit_op(ctx, RANK_OPS["pld.callback"], args, loc)
    if function.kind is FunctionKind.InCore:
        problem = f"the host function calls the kernel `{function.name}`"
        advice = f"call it from a `@pl.jit` function, and dispatch that one: `{_example(function)}`"
        raise BadDispatch(loc, problem, advice)
    nodes = calls.positional_arguments(ctx, function, plain)
    rank = None if device is None else expressions.evaluate_arg(ctx, device.value)
    if isinstance(rank, (bool, float, str, tuple)) or (
        isinstance(rank, Value) and not isinstance(rank.type, ScalarType)
    ):
        raise BadDevice(ctx.loc(node), ast.unparse(node))
    launch = kernels.Launch(options=(("device", rank),))
    return kernels.call_kernel(ctx, function, nodes, loc, launch)


def _example(function: KernelFunction) -> str:
    names = ", ".join(p.arg for p in function.parameters)
    return f"per_rank({names}, device=r)"


def declared_views(
    ctx: Context, function: KernelFunction, operands: Sequence[Arg], loc: Loc
) -> list[Arg]:
    """Windows in the shapes that the callee declares: `[1, 64]` takes a view of `[64]`.

    Tensors come before numbers, as the runtime packs them.
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
            args = default_args(REGISTRY["reshape"], x=operand, shape=shape)
            operand = cast("Arg", emit_op(ctx, REGISTRY["reshape"], args, loc, operand.name))
        found.append(operand)
    return found
