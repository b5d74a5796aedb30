"""Remove unused results, from the end of a function to its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilelet.ir import structure
from tilelet.ir.core import Block, Function, Op, Value
from tilelet.ir.rebuild import with_args
from tilelet.ir.views import ScopeView, yielded_values


class Sweep:
    """Removes unused results of branches and scopes; `read` are the values known to be read.

    The frontend decides which names a block passes on from the text, before it knows which branches
    are taken and how often a loop is unrolled, so blocks pass on more than is read.
    """

    def __init__(self) -> None:
        self.read: set[Value] = set()

    def function(self, fn: Function) -> Function:
        return replace(fn, body=self.block(fn.body, [True] * len(fn.returned)))

    def block(self, block: Block, wanted: Sequence[bool] | None = None) -> Block:
        """Return `block` yielding only the wanted values."""
        end = block.terminator
        if wanted is not None:
            end = with_args(end, values=pick(yielded_values(block), wanted))
        self.read.update(end.operands)
        kept = [end]
        for op in reversed(block.ops[:-1]):
            new = self.op(op)
            if new is not None:
                self.read.update(new.operands)
                kept.append(new)
        return Block(block.params, tuple(reversed(kept)))

    def op(self, op: Op) -> Op | None:
        """Return what remains of an op, or None."""
        if op.spec is structure.IF:
            return self.branch(op)
        if op.spec is structure.SCOPE:
            return self.scope(op)
        return replace(op, blocks=tuple(map(self.block, op.blocks))) if op.blocks else op

    def branch(self, op: Op) -> Op | None:
        wanted = [r in self.read for r in op.results]
        blocks = tuple(self.block(b, wanted) for b in op.blocks)
        return replace(op, results=pick(op.results, wanted), blocks=blocks)

    def scope(self, op: Op) -> Op | None:
        scope = ScopeView(op)
        wanted = [r in self.read for r in scope.data_results]
        task_id = op.results[len(wanted) :]
        results = (*pick(scope.data_results, wanted), *task_id)
        return replace(op, results=results, blocks=(self.block(scope.body, wanted),))


def pick(values: Iterable[object], wanted: Sequence[bool]) -> tuple[Any, ...]:
    return tuple([v for v, keep in zip(values, wanted) if keep])
