"""Parts of tiles that only move, and so need no storage of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from tilelet.ir.core import Op, Value
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType


def is_tile(arg: object) -> TypeGuard[Value]:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def is_gm(arg: object) -> TypeGuard[Value]:
    return isinstance(arg, Value) and isinstance(arg.type, TensorType)


def is_load(op: Op) -> bool:
    """Return whether an op loads a window of GM; transposing one is part of its load."""
    if op.name == "transpose":
        return is_gm(op.args["x"])
    return Trait.LOAD in op.spec.traits and any(is_gm(a) for a in op.args.values())


class Parts:
    """Candidates of one kernel; which of them need no storage depends on the memories.

    filled  (`assemble`, loaded values): windows that are loaded only to fill a part of a tile,
            as `pl.gather_row` does
    stored  slices of tiles that are only stored, users before their sources
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self._made_by = {result: op for op in ops for result in op.results}
        self._users: dict[Value, list[Op]] = {}
        for op in ops:
            for operand in op.operands:
                self._users.setdefault(operand, []).append(op)
        self.filled = {op: values for op in ops if (values := self._loaded_for(op))}
        self.stored: list[Op] = []
        for op in reversed(ops):
            if self._is_only_stored(op):
                self.stored.append(op)

    def makers(self, values: Iterable[Value]) -> set[Op]:
        """Return the ops that make some values."""
        return {self._made_by[value] for value in values}

    def _loaded_for(self, op: Op) -> list[Value]:
        """Return the values from a load to the `assemble` that is their only use."""
        if op.name != "assemble" or not is_tile(op.args["target"]):
            return []
        values: list[Value] = []
        value = op.args["source"]
        while is_tile(value) and value in self._made_by and len(self._users[value]) == 1:
            values.append(value)
            maker = self._made_by[value]
            if is_load(maker):
                return values
            if maker.name != "transpose":
                break
            value = maker.args["x"]
        return []

    def _is_only_stored(self, op: Op) -> bool:
        if op.name != "slice" or not is_tile(op.args["x"]) or op.args["pad_value"] is not None:
            return False
        result = op.results[0]
        return all(
            user in self.stored
            or (user.args.get("source") is result and is_gm(user.args.get("target")))
            for user in self._users.get(result, ())
        )
