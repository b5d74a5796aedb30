"""Calls of native code from the scheduler, and when compiling it pays off.

Compiling takes as long as interpreting millions of elements, so code is interpreted until it has
done that much work. Work is counted, not timed: `exp` and its like may differ by a unit in the last
place between the engines, and a run has to give the same bits each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilelet.cpu.plan.verify import PlanError
from tilelet.cpu.run.engine import compile_native, no_progress
from tilelet.cpu.run.prepared import PreparedCalls
from tilelet.dtypes import INT32
from tilelet.ir.core import Block, Direction, Function, FunctionKind, Op, Program, Value
from tilelet.ir.rebuild import call_op, fresh_value, return_op
from tilelet.ir.spec import Engine
from tilelet.ir.types import ScalarType, TileType
from tilelet.ir.views import ForView
from tilelet.tasks.window import Window

MAX_INTERPRETED = 1 << 21
"""Elements that code computes in the interpreter before it is compiled."""

_ELEMENTS_PER_OP = 64
"""Elements whose computation takes the interpreter as long as one op of a scalar or a view."""

HOST_ONLY = ("breakpoint", "static_print")


class Meter:
    """Decides when interpreted code has done enough work to be compiled."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._elements = sum(map(_work_of, ops))
        self._done = 0

    def pays(self, runs: int = 1) -> bool:
        """Whether to compile before these runs."""
        self._done += self._elements * runs
        return self._done > MAX_INTERPRETED


class NativeCalls:
    """Calls of a compiled program; for each layout of its arrays there is a prepared call."""

    def __init__(self, program: Program) -> None:
        self._native = compile_native(program)
        self._names = [p.name for p in program.main.params]
        self._calls: dict[tuple[object, ...], PreparedCalls] = {}

    def run(
        self, layout: tuple[object, ...], arguments: Sequence[Any], values: Sequence[object]
    ) -> None:
        """Run on the arrays and numbers of values; errors name the windows among these."""
        calls = self._calls.get(layout)
        if calls is None:
            calls = self._calls[layout] = PreparedCalls(self._native)
        if not calls.run(arguments, no_progress, values):  # arrays overlap
            self._native.run(dict(zip(self._names, arguments)), 1, -1, given=values)


def native_calls(program: Program) -> NativeCalls | None:
    """Return a compiled program; None if its plan is wrong, so that it has to be interpreted."""
    try:
        return NativeCalls(program)
    except PlanError:
        return None


def calling_program(
    kernel: Function, kernels: Mapping[str, Function], *, has_blocks: bool = False
) -> Program:
    """Return a program that calls one kernel once; the block count is its last argument."""
    params = tuple([renamed_param(p, i) for i, p in enumerate(kernel.params)])
    count = Value("blocks", ScalarType(INT32), kernel.loc) if has_blocks else None
    written = [p for p, d in zip(params, kernel.directions, strict=True) if d is not Direction.In]
    results = [fresh_value(p) for p in written]
    call = call_op(kernel.name, params, results, kernel.loc, count=count)
    entry = Function(
        f"run_{kernel.name}",
        FunctionKind.Orchestration,
        params if count is None else (*params, count),
        (*kernel.directions, *([] if count is None else [Direction.In])),
        Block((), (call, return_op((), kernel.loc))),
        kernel.loc,
    )
    return Program(kernel.name, {entry.name: entry, **kernels}, entry.name)


def renamed_param(param: Value, position: int) -> Value:
    """Return a parameter with a unique name."""
    return Value(f"p{position}_{param.name}", param.type, param.loc)


def layout_of(values: Sequence[object]) -> tuple[object, ...]:
    return tuple([(v.shape, v.strides) for v in values if isinstance(v, Window)])


def is_plain(value: object) -> bool:
    """Whether native code accepts an argument: the whole window exists and is valid."""
    if not isinstance(value, Window):
        return True
    return value.valid is None and value.extent is None and value.array.flags.aligned


def _elements(block: Block) -> int:
    """Estimate the work of one run of a block; loops of unknown length count once."""
    return sum(map(_work_of, block.ops))


def _work_of(op: Op) -> int:
    inside = sum(map(_elements, op.blocks))
    if op.name == "for":
        start, stop, step = ForView(op).bounds
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            inside *= len(range(start, stop, step))
    made = sum(math.prod(r.type.shape) for r in op.results if isinstance(r.type, TileType))
    if op.spec.engine is Engine.CUBE:  # a product: each element is a sum
        made *= max(
            (v.type.shape[-1] for v in op.operands if isinstance(v.type, TileType)), default=1
        )
    return inside + made + _ELEMENTS_PER_OP
