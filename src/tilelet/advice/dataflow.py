"""Who makes and who uses a value of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelet.ir.core import Block, Op, Value


class Dataflow:
    """The ops of a kernel, and how values go from one to the other, through loops too."""

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
        """Ops that use a value, directly or after being passed on."""
        found: list[Op] = []
        waiting = [value]
        while waiting:
            for op in self._users.get(waiting.pop(), []):
                if op not in found:
                    found.append(op)
                    waiting += op.results if kind(op) in passing else ()
        return found

    def origins(self, value: Value, passing: Sequence[str]) -> list[Op]:
        """Ops that a value comes from, directly or passed on; of a loop, all that is in it."""
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
    """`add` of `tile.add`."""
    return op.name.rpartition(".")[2]


def values_of(op: Op) -> list[Value]:
    """What an op takes, as far as it is no constant."""
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
