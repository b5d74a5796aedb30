"""Producers and consumers of the values of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelet.ir.core import Block, Op, Value


class Dataflow:
    """The dataflow between the ops of a kernel, including loops."""

    def __init__(self, body: Block) -> None:
        self.ops = list(_ops(body))
        self._makers: dict[Value, Op] = {}
        self._users: dict[Value, list[Op]] = {}
        for op in self.ops:
            self._makers.update(dict.fromkeys(op.results, op))
            for value in values_of(op):
                self._users.setdefault(value, []).append(op)

    def maker(self, value: Value) -> Op | None:
        return self._makers.get(value)

    def reached(self, value: Value, passing: Sequence[str]) -> list[Op]:
        """Return ops that use a value, directly or through other ops."""
        found: list[Op] = []
        waiting = [value]
        while waiting:
            for op in self._users.get(waiting.pop(), []):
                if op not in found:
                    found.append(op)
                    waiting += op.results if kind(op) in passing else ()
        return found

    def origins(self, value: Value, passing: Sequence[str]) -> list[Op]:
        """Return ops that a value depends on; for a loop, all ops of its body."""
        found: list[Op] = []
        waiting = [value]
        while waiting:
            op = self._makers.get(waiting.pop())
            if op is None or op in found:
                continue
            found.append(op)
            if op.blocks:
                found += [inner for block in op.blocks for inner in _ops(block)]
            elif kind(op) in passing:
                waiting += values_of(op)
        return found


def kind(op: Op) -> str:
    """Return the last part of an op's name: `add` for `tile.add`."""
    return op.name.rpartition(".")[2]


def values_of(op: Op) -> list[Value]:
    """Return the operands of an op that are values."""
    arguments: Mapping[str, object] = op.args
    found: list[Value] = []
    for argument in arguments.values():
        parts = argument if isinstance(argument, tuple) else (argument,)
        found += [value for value in parts if isinstance(value, Value)]
    return found


def _ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from _ops(inner)
