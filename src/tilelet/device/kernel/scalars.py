"""Scalars of a kernel, evaluated without running it.

`Numbers` gives their values for one task: trip counts and branches. `Extents` gives windows as
functions of a task's scalars: an interval whose ends are linear in them, loop indices ranging over
all their values. Both answer None for what depends on data.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilelet.ir.core import Arg, Const, Op, Value
from tilelet.ir.types import ScalarType

Number = int | float | bool
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "scalar.add": operator.add,
    "scalar.sub": operator.sub,
    "scalar.mul": operator.mul,
    "scalar.floordiv": operator.floordiv,
    "scalar.mod": operator.mod,
    "scalar.truediv": operator.truediv,
    "scalar.shl": operator.lshift,
    "scalar.shr": operator.rshift,
    "scalar.and": operator.and_,
    "scalar.or": operator.or_,
    "scalar.min": min,
    "scalar.max": max,
    "scalar.eq": operator.eq,
    "scalar.ne": operator.ne,
    "scalar.lt": operator.lt,
    "scalar.le": operator.le,
    "scalar.gt": operator.gt,
    "scalar.ge": operator.ge,
}
UNARY: Mapping[str, Callable[[Any], Any]] = {
    "scalar.neg": operator.neg,
    "scalar.pos": operator.pos,
    "scalar.invert": operator.invert,
    "scalar.not": operator.not_,
}


OF_BLOCK = ("get_block_idx", "get_subblock_idx")
"""Ops that tell the blocks of a task from each other."""


class Numbers:
    """Values of scalars during one execution of a kernel, block `block` of `blocks`."""

    def __init__(self, values: Mapping[Value, Any], block: int = 0, blocks: int = 1) -> None:
        self.values: dict[Value, Any] = dict(values)
        self._of_block = {"get_block_idx": block, "get_subblock_idx": 0, "get_block_num": blocks}

    def get(self, arg: Arg) -> Any:
        if isinstance(arg, Value):
            return self.values.get(arg)
        return arg.value if isinstance(arg, Const) else arg

    def bind(self, op: Op) -> None:
        """Evaluate one scalar op."""
        if op.results:
            self.values[op.results[0]] = self._value(op)

    def _value(self, op: Op) -> Any:
        if op.name in BINARY:
            a, b = self.get(op.args["lhs"]), self.get(op.args["rhs"])
            if a is None or b is None:
                return None
            try:
                return BINARY[op.name](a, b)
            except (ZeroDivisionError, TypeError, ValueError):
                return None
        if op.name in UNARY:
            x = self.get(op.args["x"])
            return None if x is None else UNARY[op.name](x)
        if op.name == "scalar.cast":
            x, type_ = self.get(op.args["x"]), op.results[0].type
            to_integer = isinstance(type_, ScalarType) and type_.dtype.is_integer
            return int(x) if isinstance(x, float) and to_integer else x
        return self._of_block.get(op.name)


@dataclass(frozen=True, slots=True)
class Linear:
    """`low + sum(c * scalar)` .. `high + sum(c * scalar)`, both ends included."""

    low: float
    high: float
    coefficients: tuple[tuple[int, float], ...] = ()

    def shifted(self, other: Linear, sign: int = 1) -> Linear:
        merged = dict(self.coefficients)
        for position, c in other.coefficients:
            merged[position] = merged.get(position, 0) + sign * c
        kept = tuple(sorted((p, c) for p, c in merged.items() if c))
        low, high = (other.low, other.high) if sign > 0 else (-other.high, -other.low)
        return Linear(self.low + low, self.high + high, kept)

    def scaled(self, factor: float) -> Linear:
        ends = sorted((self.low * factor, self.high * factor))
        return Linear(ends[0], ends[1], tuple((p, c * factor) for p, c in self.coefficients))

    @property
    def constant(self) -> float | None:
        return self.low if self.low == self.high and not self.coefficients else None


class Extents:
    """Intervals of scalars as linear functions of the kernel's parameters (by position)."""

    def __init__(self, params: tuple[Value, ...]) -> None:
        self.values: dict[Value, Linear | None] = {
            p: Linear(0, 0, ((i, 1),)) for i, p in enumerate(params)
        }

    def get(self, arg: Arg) -> Linear | None:
        if isinstance(arg, Value):
            return self.values.get(arg)
        number = arg.value if isinstance(arg, Const) else arg
        if isinstance(number, (int, float)):
            return Linear(number, number)
        return None

    def bind(self, op: Op) -> None:
        if op.results:
            self.values[op.results[0]] = self._value(op)

    def iterate(self, index: Value | None, start: Arg, stop: Arg, step: Arg) -> None:
        """A loop index takes all values from `start` up to before `stop`."""
        if index is None:
            return
        first, end, by = self.get(start), self.get(stop), self.get(step)
        if first is None or end is None or by is None or by.constant is None:
            self.values[index] = None
            return
        stride = by.constant
        # Ends that move differently with the scalars give no single interval.
        if first.coefficients != end.coefficients or stride == 0:
            self.values[index] = None
            return
        last = end.high - (abs(stride) if stride > 0 else -abs(stride))
        low, high = min(first.low, last), max(first.low, last, first.high)
        self.values[index] = Linear(low, high, first.coefficients)

    def _value(self, op: Op) -> Linear | None:
        if op.name not in BINARY:
            return self.get(op.args["x"]) if op.name == "scalar.cast" else None
        a, b = self.get(op.args["lhs"]), self.get(op.args["rhs"])
        if a is None or b is None:
            return None
        if op.name == "scalar.add":
            return a.shifted(b)
        if op.name == "scalar.sub":
            return a.shifted(b, -1)
        if op.name == "scalar.mul":
            if b.constant is not None:
                return a.scaled(b.constant)
            return None if a.constant is None else b.scaled(a.constant)
        if op.name == "scalar.floordiv" and b.constant and b.constant > 0:
            return self._divided(a, b.constant)
        if op.name in ("scalar.mod", "scalar.min", "scalar.max"):
            return self._bounded(op.name, a, b)
        return None

    @staticmethod
    def _divided(a: Linear, divisor: float) -> Linear | None:
        if all(c % divisor == 0 for _, c in a.coefficients):
            scaled = tuple((p, c // divisor) for p, c in a.coefficients)
            return Linear(a.low // divisor, a.high // divisor, scaled)
        return None

    @staticmethod
    def _bounded(name: str, a: Linear, b: Linear) -> Linear | None:
        if name == "scalar.mod":
            return Linear(0, b.constant - 1) if b.constant else None
        if a.coefficients or b.coefficients:
            return None
        pick = min if name == "scalar.min" else max
        return Linear(pick(a.low, b.low), pick(a.high, b.high))
