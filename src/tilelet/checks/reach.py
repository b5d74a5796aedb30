"""Which sizes and inputs an answer of a check covers, by name."""

from __future__ import annotations

from tilelet.analysis.aliases import Aliases
from tilelet.analysis.control_reads import looked_at, parameters_read
from tilelet.ir.core import Function, Program, Value, walk
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
    """Return the tensor parameters whose contents decide control flow or places."""
    main = program.main
    aliases = Aliases(main.body, program.functions)
    kernels = {f.name: _deciding_parameters(f) for f in program.kernels}
    roots: set[Value] = set()
    for op in walk(main.body):
        if op.name == "call":
            call = CallView(op)
            decides = kernels.get(call.callee, set[int]())
            operands = [v for i, v in enumerate(call.operands) if i in decides]
            roots.update(r for v in operands if isinstance(v, Value) for r in aliases.roots(v))
    read = parameters_read(program)
    return [p.name for p in main.params if p in roots or p.name in read]


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
