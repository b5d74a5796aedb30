"""Run a program with its work counted, so that a limit stops it at the same op everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.oracle import WorkLimit
from tilelet.dtypes import Arguments
from tilelet.interp.control import for_step
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.ir.core import Op, Program, Value, values_in
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.runtime.handlers.record import copies
from tilelet.tasks.stream import TaskStream

_ELEMENTS_PER_STEP = 256
_MACS_PER_STEP = 1 << 16


@dataclass(frozen=True)
class Limits:
    """Work and memory that one run may take: steps of about a microsecond, and bytes."""

    steps: int
    nbytes: int

    @classmethod
    def above(cls, steps: int, nbytes: int) -> Limits:
        """Return limits for a candidate, given what the reference takes."""
        return cls(200_000 + 64 * steps, (64 << 20) + 16 * nbytes)


LOOSE = Limits(50_000_000, 8 << 30)
"""Limits of the reference itself, which is trusted."""


class Counter:
    """Counts the work of a run: an observer of the interpreter."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.steps = 0

    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name == "for":
            return for_step(low, op, lambda trips: self._each(trips, op))
        count = low.get(op.args["count"]) if op.args.get("count") is not None else None
        step = low.plain_op(op)
        cost = _cost(op)

        def counted(frame: Frame) -> None:
            self.add(cost if count is None else cost + int(count(frame)), op)
            step(frame)

        return counted

    def add(self, steps: int, op: Op) -> None:
        self.steps += steps
        if self.steps > self.most:
            raise WorkLimit("executing it", f"{self.most:,} steps", op.loc)

    def _each(self, trips: range, op: Op) -> Iterator[int]:
        for i in trips:
            self.add(1, op)
            yield i


def _elements(value: Value) -> int:
    """Return the size of a tile; windows of memory are counted where tiles are loaded."""
    return math.prod(value.type.shape) if isinstance(value.type, TileType) else 0


def _cost(op: Op) -> int:
    operands = list(values_in(tuple(op.args.values())))
    elements = sum(map(_elements, (*operands, *op.results)))
    cost = 1 + elements // _ELEMENTS_PER_STEP
    if Trait.GEMM in op.spec.traits and op.results:
        inner = max((_inner(v) for v in operands), default=1)
        cost += _elements(op.results[0]) * inner // _MACS_PER_STEP
    return cost


def _inner(value: Value) -> int:
    shape = value.type.shape if isinstance(value.type, TileType | TensorType) else ()
    return int(shape[-1]) if shape and isinstance(shape[-1], int) else 1


@dataclass(frozen=True)
class CountedRun:
    """A run that has ended: its arguments with the results, and the work it took."""

    arguments: Arguments
    tasks: TaskStream
    steps: int


def run_counted(program: Program, arguments: Arguments, limits: Limits) -> CountedRun:
    """Execute a program on copies of the arguments; `WorkLimit` if it takes more."""
    counter = Counter(limits.steps)
    given = copies(arguments)
    interpreter = Interpreter(observer=counter, most_bytes=limits.nbytes)
    execution = interpreter.run(program, given)
    return CountedRun(given, execution.tasks, counter.steps)
