"""How often scalar accesses to GM miss the scalar unit's cache.

An access whose address moves by less than a line per iteration hits most of the time; one with a
data-dependent address always misses. Accesses of one block less than a line apart share the line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilelet.analysis.affine import Affine, affine_of
from tilelet.dataclasses import dataclass, field
from tilelet.ir.core import Arg, Block, Op, Value, walk
from tilelet.ir.fold import number_of
from tilelet.ir.types import TensorType

Address = Affine[Value]


@dataclass
class _Around:
    """A loop around an access: its index, its trip count if known, and the values it defines."""

    index: Value
    trips: int | None
    inside: frozenset[Value]
    seen: list[tuple[Value, Address]] = field(default_factory=list[tuple[Value, Address]])


class LineCache:
    """The scalar accesses of one kernel, in program order."""

    def __init__(self, definition: Mapping[Value, Op], line: int, capacity: int) -> None:
        self.line = line
        self.capacity = capacity
        self._definition = definition
        self._loops: list[_Around] = []
        self._seen: list[tuple[Value, Address]] = []

    def enter(self, index: Value, bounds: Sequence[Arg], body: Block) -> None:
        inside = {r for op in walk(body) for r in op.results}
        inside.update(p for op in walk(body) for b in op.blocks for p in b.params)
        inside.update(body.params)
        trips = None
        match [number_of(b) for b in bounds]:
            case [int(start), int(stop), int(step)] if step:
                trips = max(1, -(-(stop - start) // step))
            case _:
                pass
        self._loops.append(_Around(index, trips, frozenset(inside)))

    def leave(self) -> None:
        self._loops.pop()

    def misses(self, tensor: Value, index: Sequence[Arg]) -> float:
        """Return the fraction of an access's executions that miss."""
        address = self._address(tensor, index)
        if address is None:
            return 1.0
        assert isinstance(tensor.type, TensorType)
        item = tensor.type.dtype.itemsize
        seen = self._loops[-1].seen if self._loops else self._seen
        near = any(
            other is tensor
            and place.same_terms(address)
            and abs(place.constant - address.constant) * item < self.line
            for other, place in seen
        )
        seen.append((tensor, address))
        return 0.0 if near else self._rate(address, item)

    def _address(self, tensor: Value, index: Sequence[Arg]) -> Address | None:
        assert isinstance(tensor.type, TensorType)
        shape = tensor.type.shape
        if len(index) != len(shape):
            return None
        address: Address = Affine(0)
        stride = 1
        for at, extent in zip(reversed(index), reversed(shape)):
            part = affine_of(at, self._definition)
            if part is None:
                return None
            address = address.plus(part.times(stride))
            stride *= extent if isinstance(extent, int) else 1 << 20
        return address

    def _rate(self, address: Address, item: int) -> float:
        """Return lines per execution, from the innermost loop that moves the address."""
        rate, covered = 1.0, 0.0
        for loop in reversed(self._loops):
            moved = abs(self._moved(address, loop)) * item
            if moved and covered:
                break
            if moved:
                rate *= min(1.0, moved / self.line)
                covered = moved * (loop.trips or math.inf)
            elif covered <= self.capacity:
                # Lines that the first of these iterations loads stay in the cache.
                rate /= loop.trips or 1
        return rate

    def _moved(self, address: Address, loop: _Around) -> float:
        """Return by how many elements an address moves per iteration; infinite if unknown."""
        moved = 0.0
        for term, factor in address.terms:
            pace = self._pace(term, loop)
            moved = math.inf if pace is None else moved + pace * factor
        return moved

    def _pace(self, value: Arg, loop: _Around) -> float | None:
        """Return by how much a value changes per iteration, or None if unknown."""
        if value is loop.index:
            return 1.0
        if not isinstance(value, Value) or value not in loop.inside:
            return 0.0
        op = self._definition.get(value)
        if op is None:
            return 0.0 if any(value is inner.index for inner in self._loops) else None
        name = op.name.removeprefix("scalar.")
        if name == "cast":
            return self._pace(op.args["x"], loop)
        if name in ("floordiv", "mod", "add", "sub", "mul"):
            left, right = self._pace(op.args["lhs"], loop), self._pace(op.args["rhs"], loop)
            if left is None or right is None:
                return None
            return self._combined(op, name, left, right)
        return None

    @staticmethod
    def _combined(op: Op, name: str, left: float, right: float) -> float | None:
        if name in ("add", "sub"):
            return left + right if name == "add" else left - right
        number = number_of(op.args["rhs"])
        if right or not isinstance(number, int) or not number:
            return None if left or right else 0.0
        return {"floordiv": left / number, "mod": left, "mul": left * number}[name]
