"""Kernels of ranks as native code, between the points where ranks communicate.

A kernel that talks to no rank is a program of its own: an entry with the kernel's parameters that
calls it once. Compiling takes as long as interpreting millions of elements, so a kernel is
interpreted until it has done that much work.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tilelet.cpu.run.engine import compiled, no_progress
from tilelet.cpu.run.prepared import PreparedCalls
from tilelet.dtypes import INT32
from tilelet.ir.core import Block, Direction, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import call_op, fresh, return_op
from tilelet.ir.types import ScalarType, TileType
from tilelet.ir.views import ForView
from tilelet.tasks.window import Window

MAX_INTERPRETED = 1 << 21
"""Elements that a kernel computes in the interpreter before it is compiled."""

_HOST_ONLY = ("breakpoint", "static_print")


class NativeKernels:
    """Runs kernels of a program natively, once that pays."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._work: dict[str, int] = {}
        self._done: Counter[str] = Counter()
        self._calls: dict[tuple[Any, ...], PreparedCalls] = {}
        self._programs: dict[tuple[str, bool], Program] = {}

    def run(self, name: str, values: Sequence[Any], blocks: int | None) -> bool:
        """Run a kernel; False, and nothing is done, if it is to be interpreted."""
        if not self._pays(name, blocks or 1) or not all(map(_is_plain, values)):
            return False
        arguments = [v.array if isinstance(v, Window) else v for v in values]
        if blocks is not None:
            arguments.append(blocks)
        shapes = [(v.shape, v.strides) for v in values if isinstance(v, Window)]
        key = (name, blocks is None, *shapes)
        if key not in self._calls:
            self._calls[key] = PreparedCalls(compiled(self._single(name, blocks is not None)))
        calls = self._calls[key]
        if not calls.run(arguments, no_progress):
            params = calls.native.program.main.params
            calls.native.run(dict(zip([p.name for p in params], arguments)), 1, -1)
        return True

    def _pays(self, name: str, blocks: int) -> bool:
        if name not in self._work:
            kernel = self._program.functions[name]
            is_own = not any(op.name in _HOST_ONLY for op in walk(kernel.body))
            self._work[name] = _elements(kernel.body) if is_own else 0
        self._done[name] += self._work[name] * blocks
        return self._done[name] > MAX_INTERPRETED

    def _single(self, name: str, has_blocks: bool) -> Program:
        """The program that calls one kernel once; the number of blocks is its last argument."""
        key = name, has_blocks
        if key not in self._programs:
            kernel = self._program.functions[name]
            params = tuple([renamed_param(p, i) for i, p in enumerate(kernel.params)])
            count = Value("blocks", ScalarType(INT32), kernel.loc) if has_blocks else None
            written = [
                p for p, d in zip(params, kernel.directions, strict=True) if d is not Direction.In
            ]
            call = call_op(name, params, [fresh(p) for p in written], kernel.loc, count=count)
            entry = Function(
                f"run_{name}",
                FunctionKind.Orchestration,
                params if count is None else (*params, count),
                (*kernel.directions, *([] if count is None else [Direction.In])),
                Block((), (call, return_op((), kernel.loc))),
                kernel.loc,
            )
            kernels = {k.name: k for k in self._program.kernels}
            self._programs[key] = Program(name, {entry.name: entry, **kernels}, entry.name)
        return self._programs[key]


def renamed_param(param: Value, position: int) -> Value:
    """A parameter under a name that no other parameter has."""
    return Value(f"p{position}_{param.name}", param.type, param.loc)


def _is_plain(value: Any) -> bool:
    """Whether native code may take an argument: all of the window exists and is valid."""
    if not isinstance(value, Window):
        return True
    return value.valid is None and value.extent is None and value.array.flags.aligned


def _elements(block: Block) -> int:
    """Roughly how many elements one run of a block computes; loops of unknown length count once."""
    return sum(_work_of(op) for op in block.ops)


def _work_of(op: Op) -> int:
    inside = sum(map(_elements, op.blocks))
    if op.name == "for":
        start, stop, step = ForView(op).bounds
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            inside *= len(range(start, stop, step))
    made = sum(math.prod(r.type.shape) for r in op.results if isinstance(r.type, TileType))
    return inside + made
