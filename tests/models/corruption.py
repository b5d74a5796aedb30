"""Programs with one corrupted operation, to test whether a golden notices.

A corruption takes one op of a lowered program and either makes its result zero or drops it, which
means that its first operand stands for its result. Scalars count: positions and lengths are
computed as well. A store that is dropped stores nothing, one that is zeroed stores zeros; a task
that is dropped is not run.
"""

from __future__ import annotations

import enum
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilelet.ir.core import Direction, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import Rewriter
from tilelet.ir.spec import bind
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import CallView
from tilelet.ops.creation import full

FULL = full.spec


class How(enum.Enum):
    ZEROED = "zeroed"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Corruption:
    """One op of one function of a program, and how it is corrupted."""

    function: str
    op: Op
    how: How

    @property
    def label(self) -> str:
        """The op and its corruption, the same wherever the op is inlined."""
        name = f"{self.op.args['callee']}()" if self.op.name == "call" else self.op.name
        return f"{name} -> {self.op.results[0].name}: {self.how.value}"

    @property
    def source_line(self) -> str:
        return linecache.getline(self.op.loc.file, self.op.loc.line).strip()

    def __str__(self) -> str:
        return f"{self.label} ({self.op.loc})"


def corruptions(program: Program) -> Iterator[Corruption]:
    """Every corruption of every operation of the program, in program order."""
    for function in program.functions.values():
        for op in walk(function.body):
            for how in _ways(op, in_kernel=function.kind is FunctionKind.InCore):
                yield Corruption(function.name, op, how)


def _ways(op: Op, in_kernel: bool) -> Iterator[How]:
    if op.name == "call" and op.results:
        yield How.DROPPED
    if len(op.results) == 1 and isinstance(op.results[0].type, ScalarType):
        yield How.ZEROED
        if op.operands and op.operands[0].type == op.result.type:
            yield How.DROPPED
        return
    if not in_kernel or op.spec.structural or not op.results:
        return
    if _is_store(op):
        yield How.ZEROED
        yield How.DROPPED
    elif isinstance(op.result.type, TileType) and op.name != "create_tensor":
        yield How.ZEROED
        if _first_like_result(op) is not None:
            yield How.DROPPED


def _is_store(op: Op) -> bool:
    return op.name == "assemble" and isinstance(op.result.type, TensorType)


def _first_like_result(op: Op) -> Value | None:
    """The first operand, if it has the type of the result."""
    first = next((v for v in op.operands if isinstance(v.type, TileType)), None)
    return first if first is not None and first.type == op.result.type else None


def corrupted(program: Program, corruption: Corruption) -> Program:
    """Return the program with that op corrupted."""
    functions = dict(program.functions)
    name = corruption.function
    functions[name] = _Corrupter(program, corruption).function(functions[name])
    return program.with_functions(functions)


class _Corrupter(Rewriter):
    def __init__(self, program: Program, corruption: Corruption) -> None:
        super().__init__()
        self.program = program
        self.wanted = corruption.op.results
        self.how = corruption.how

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.results is not self.wanted:
            return super().rewrite(op)
        if op.name == "call":
            self.mapping.update(zip(op.results, self._written_by(CallView(op))))
            return ()
        if _is_store(op):
            return self._corrupt_store(op)
        if isinstance(op.result.type, ScalarType):
            self.mapping[op.result] = 0 if self.how is How.ZEROED else op.operands[0]
            return ()
        if self.how is How.ZEROED:
            return (_zeros(op.result),)
        first = _first_like_result(op)
        assert first is not None
        self.mapping[op.result] = first
        return ()

    def _written_by(self, call: CallView) -> list[Value]:
        callee: Function = self.program.functions[call.callee]
        pairs = zip(call.operands, callee.directions)
        return [v for v, d in pairs if d is not Direction.In and isinstance(v, Value)]

    def _corrupt_store(self, op: Op) -> Sequence[Op]:
        target, source = op.args["target"], op.args["source"]
        assert isinstance(source, Value)
        if self.how is How.DROPPED:
            self.mapping[op.result] = target
            return ()
        nothing = Value("nothing", source.type, op.loc)
        return (_zeros(nothing), replace(op, args={**op.args, "source": nothing}))


def _zeros(result: Value) -> Op:
    assert isinstance(result.type, TileType)
    args = bind(FULL, shape=result.type.shape, dtype=result.type.dtype, value=0.0)
    return Op(FULL, args, (result,), (), result.loc)
