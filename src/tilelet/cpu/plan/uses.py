"""Definitions and uses of the values of a function."""

from __future__ import annotations

from collections import Counter

from tilelet.ir.core import Block, Function, Op, Value, values_in, walk
from tilelet.ir.types import TensorType


class Uses:
    """Uses of every value of a function.

    count   number of uses
    home    block in which a value is defined
    user    block of its last use
    writes  ops that write a tensor, directly or in a nested block
    """

    def __init__(self, function: Function) -> None:
        self.count = Counter(v for op in walk(function.body) for v in op.operands)
        self.home: dict[Value, Block] = {}
        self.user: dict[Value, Block] = {}
        self.writes: set[Op] = set()
        self._survey(function.body)

    def _survey(self, block: Block) -> None:
        for v in block.params:
            self.home[v] = block
        for op in block.ops:
            for v in op.operands:
                self.user[v] = block
            for v in op.results:
                self.home[v] = block
            for inner in op.blocks:
                self._survey(inner)
            if _writes_tensor(op) or any(o in self.writes for b in op.blocks for o in b.ops):
                self.writes.add(op)

    def is_single(self, value: Value) -> bool:
        """Whether the value is used once, in the block that defines it."""
        return self.count[value] == 1 and self.user[value] is self.home[value]


def first_use(block: Block, value: Value) -> Op | None:
    """Return the first op of the block that uses a value, directly or in a nested block."""
    for op in block.ops:
        if value in op.operands or any(value in o.operands for b in op.blocks for o in walk(b)):
            return op
    return None


def _writes_tensor(op: Op) -> bool:
    written = values_in(op.args[p] for p in op.spec.writes)
    return any(isinstance(v.type, TensorType) for v in written)
