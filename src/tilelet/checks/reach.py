"""Which sizes and inputs an answer of a check covers, by name."""

from __future__ import annotations

from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.analysis.control_reads import looked_at, parameters_read
from tilelet.ir.core import Direction, Function, Program, Value, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, SymDim, TensorType
from tilelet.ir.views import CallView


def free_sizes(program: Program) -> list[str]:
    """Return the scalars and run-time extents that the entry takes."""
    params = program.main.params
    extents = [
        extent.name
        for p in params
        if isinstance(p.type, TensorType)
        for extent in p.type.shape
        if isinstance(extent, SymDim)
    ]
    scalars = [p.name for p in params if isinstance(p.type, ScalarType)]
    return list(dict.fromkeys([*scalars, *extents]))


def deciding_inputs(program: Program) -> list[str]:
    """Return the tensor parameters whose contents decide control flow or places.

    Those from which tasks compute what decides count too.
    """
    main = program.main
    aliases = Aliases(main.body, program.functions)
    kernels = {f.name: _deciding_parameters(f) for f in program.kernels}
    roots: set[Value] = set()
    copies: list[tuple[set[Value], set[Value]]] = []
    for op in walk(main.body):
        values = looked_at(op)
        if op.name == "call":
            call = CallView(op)
            decides = kernels.get(call.callee, set[int]())
            values += [v for i, v in enumerate(call.operands) if i in decides and is_tensor(v)]
        roots.update(r for v in values for r in aliases.roots(v))
        read, written = set[Value](), set[Value]()
        for value, direction in accesses(op, program.functions):
            if direction is not Direction.Out:
                read |= aliases.roots(value)
            if direction is not Direction.In:
                written |= aliases.roots(value)
        copies.append((read, written))
    found = -1
    while found != len(roots):
        found = len(roots)
        for read, written in copies:
            if not roots.isdisjoint(written):
                roots |= read
    named = parameters_read(program)
    return [p.name for p in main.params if p in roots or p.name in named]


def _deciding_parameters(kernel: Function) -> set[int]:
    """Return the positions of the parameters that a kernel reads by element or as an index."""
    aliases = Aliases(kernel.body, {})
    found: set[Value] = set()
    for op in walk(kernel.body):
        values = looked_at(op)
        if Trait.BY_INDEX in op.spec.traits:
            values += [v for v in op.operands if isinstance(v.type, TensorType)]
        found.update(root for value in values for root in aliases.roots(value))
    return {i for i, p in enumerate(kernel.params) if p in found}
