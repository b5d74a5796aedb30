"""`@pl.jit.extern`: kernels whose code is outside the language, as ops by reference."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

from tilelet.diag.catalogue.unsupported import ExternalKernel
from tilelet.diag.core import Loc
from tilelet.frontend import annotations
from tilelet.frontend.bindings import Binding
from tilelet.frontend.context import Context
from tilelet.frontend.emitting import emit_op
from tilelet.frontend.functions import KernelFunction
from tilelet.ir.core import Arg, Direction, Value
from tilelet.ir.spec import BLOCKS, Call, Engine, External, OpSpec, Plane, Trait
from tilelet.ir.types import Type

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
    results: list[Binding] = [*made] if isinstance(made, tuple) else [made]
    return tuple(results[: _declared_results(function.node.returns, len(results))])


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
        several: list[Any] = [*made] if isinstance(made, tuple) else [made]
        results = tuple(several)
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
