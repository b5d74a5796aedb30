"""Pass the values around a scope to its kernel, so that edits can use what the source can name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilelet.analysis.aliases import is_tensor
from tilelet.divergence.scoped_edits import Visible, is_index
from tilelet.ir.core import Direction, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import Rewriter
from tilelet.ir.views import CallView

_MAX_ADDED = 24


def with_outer_values(program: Program) -> Program:
    """Return the program with unused parameters added to every kernel that is called once."""
    functions = dict(program.functions)
    control = [f for f in functions.values() if f.kind is not FunctionKind.InCore]
    calls = [op for f in control for op in walk(f.body) if op.name == "call"]
    once = Counter(CallView(op).callee for op in calls)
    for function in control:
        visible = Visible(function.body, function.params)
        added: dict[Op, tuple[Value, ...]] = {}
        for op in walk(function.body):
            if op.name == "call" and once[CallView(op).callee] == 1:
                kernel = functions[CallView(op).callee]
                if kernel.kind is FunctionKind.InCore and kernel.split is None:
                    added[op] = new = _outer(visible.before[op], op, kernel)
                    functions[kernel.name] = _with_params(kernel, new)
        functions[function.name] = _Adding(added).function(function)
    return program.with_functions(functions)


def _outer(visible: Sequence[Value], op: Op, kernel: Function) -> tuple[Value, ...]:
    """Return the latest value of each variable that the kernel does not get yet."""
    known = {p.name for p in kernel.params}
    known |= {v.name for v in CallView(op).operands if isinstance(v, Value)}
    found: dict[str, Value] = {}
    for value in visible:
        if value.name not in known and (is_tensor(value) or is_index(value)):
            found.setdefault(value.name, value)
    return tuple(found.values())[:_MAX_ADDED]


def _with_params(kernel: Function, values: Sequence[Value]) -> Function:
    params = tuple([Value(v.name, v.type, v.loc) for v in values])
    return replace(
        kernel,
        params=(*kernel.params, *params),
        directions=(*kernel.directions, *[Direction.In] * len(params)),
        declared=(*kernel.declared, *[None] * len(params)) if kernel.declared else (),
    )


class _Adding(Rewriter):
    def __init__(self, added: Mapping[Op, tuple[Value, ...]]) -> None:
        super().__init__()
        self._added = added

    def rewrite(self, op: Op) -> Sequence[Op]:
        new = self._added.get(op)
        if not new:
            return (self.descend(op) if op.blocks else op,)
        return (replace(op, args={**op.args, "operands": (*CallView(op).operands, *new)}),)
