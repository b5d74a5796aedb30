"""The arguments whose contents the control program reads, which decide what tasks there are."""

from __future__ import annotations

from tilelet.analysis.aliases import Aliases, is_tensor
from tilelet.ir.core import FunctionKind, Op, Program, Value, values_in, walk
from tilelet.ir.spec import Trait


def parameters_read(program: Program) -> set[str]:
    """Return the names of the entry's tensor parameters whose elements control programs read.

    Bounds and conditions use elements that are read individually or named by a predicate; all other
    reads happen in kernels.
    """
    main = program.main
    found: set[str] = set()
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore:
            continue
        aliases = Aliases(function.body, program.functions)
        values = [v for op in walk(function.body) for v in looked_at(op)]
        roots = {root for value in values for root in aliases.roots(value)}
        if function is main:
            found |= {p.name for p in main.params if p in roots}
        elif roots & set(function.params):
            # In a function called by the entry: the tensor may be any of the entry's.
            found |= {p.name for p in main.params if is_tensor(p)}
    return found


def looked_at(op: Op) -> list[Value]:
    """Return the tensors of which an op reads single elements, or that its predicate names."""
    predicate = op.args.get("predicate")
    if isinstance(predicate, tuple):
        return [v for v in values_in(predicate[:1]) if is_tensor(v)]
    traits = op.spec.traits
    is_read = Trait.NUMBER in traits and Trait.SHAPE_ONLY not in traits
    return [v for v in values_in(op.args.values()) if is_tensor(v)] if is_read else []
