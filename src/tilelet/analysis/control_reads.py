"""The arguments whose contents the control program reads, which decide what tasks there are."""

from __future__ import annotations

from tilelet.analysis.aliases import Aliases, is_tensor
from tilelet.ir.core import Function, FunctionKind, Op, Program, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.views import CallView


def parameters_read(program: Program) -> set[str]:
    """Return the names of the entry's tensor parameters whose elements control programs read.

    Bounds and conditions use elements that are read individually or named by a predicate; all other
    reads happen in kernels.
    """
    return {p.name for p in _params_read(program, program.main, {})}


def _params_read(program: Program, function: Function, known: dict[str, set[Value]]) -> set[Value]:
    """Return the parameters of a control program that it or a control program it calls reads."""
    if function.name not in known:
        known[function.name] = set()  # a recursive call adds nothing
        values: list[Value] = []
        for op in walk(function.body):
            values += looked_at(op)
            callee = program.functions[CallView(op).callee] if op.name == "call" else None
            if callee is not None and callee.kind is not FunctionKind.InCore:
                read = _params_read(program, callee, known)
                pairs = zip(callee.params, CallView(op).operands)
                values += [v for p, v in pairs if p in read and isinstance(v, Value)]
        aliases = Aliases(function.body, program.functions)
        roots = {root for value in values for root in aliases.roots(value)}
        known[function.name] = {p for p in function.params if p in roots}
    return known[function.name]


def looked_at(op: Op) -> list[Value]:
    """Return the tensors of which an op reads single elements, or that its predicate names."""
    predicate = op.args.get("predicate")
    if isinstance(predicate, tuple):
        return [v for v in values_in(predicate[:1]) if is_tensor(v)]
    traits = op.spec.traits
    is_read = Trait.NUMBER in traits and Trait.SHAPE_ONLY not in traits
    return [v for v in values_in(op.args.values()) if is_tensor(v)] if is_read else []
