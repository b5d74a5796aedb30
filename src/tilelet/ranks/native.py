"""Run rank kernels natively between communication points.

A kernel that does not communicate becomes its own program: an entry with the kernel's parameters
that calls it once. So does a matrix product of a kernel that communicates; its other statements are
interpreted. Compiling takes as long as interpreting millions of elements, so each is interpreted
until it has done that much work.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.cpu.run.engine import compiled, no_progress
from tilelet.cpu.run.prepared import PreparedCalls
from tilelet.dtypes import INT32
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.ir.core import Block, Direction, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import Builder, call_op, fresh, return_op
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import ForView
from tilelet.tasks.window import TileValue, Window

MAX_INTERPRETED = 1 << 21
"""Elements that a kernel computes in the interpreter before it is compiled."""

_HOST_ONLY = ("breakpoint", "static_print")


class NativeKernels:
    """Run kernels of a program natively once compiling them pays off."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._work: dict[str, int] = {}
        self._done: Counter[str] = Counter()
        self._calls: dict[tuple[object, ...], PreparedCalls] = {}
        self._programs: dict[tuple[str, bool], Program] = {}

    def run(self, name: str, values: Sequence[Any], blocks: int | None) -> bool:
        """Run a kernel; return False without running it if it should be interpreted."""
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

    def product_step(self, low: Lowering, op: Op, interpreted: Step) -> Step:
        """Return the native step of a product of fully valid tiles; otherwise `interpreted`."""
        operands = {n: a for n, a in op.args.items() if isinstance(a, Value)}
        if not all(isinstance(v.type, TileType) for v in (*operands.values(), *op.results)):
            return interpreted
        slots = [low.slot(v) for v in operands.values()]
        shape, dtype = _shape(op.result), _tile_type(op.result).dtype.numpy
        work = math.prod(shape) * max(_shape(v)[-1] for v in operands.values())
        result, done = low.slot(op.result), 0  # as defined by `interpreted`
        calls: PreparedCalls | None = None

        def step(frame: Frame) -> None:
            nonlocal calls, done
            tiles = [frame[slot] for slot in slots]
            done += work
            if done <= MAX_INTERPRETED or any(t.valid != t.data.shape for t in tiles):
                interpreted(frame)
                return
            if calls is None:
                calls = PreparedCalls(compiled(_product_program(op, operands)))
            out = np.empty(shape, dtype)
            taken = [np.ascontiguousarray(t.data) for t in tiles]
            if not calls.run([*taken, out], no_progress):  # operands overlap
                calls.run([*[a.copy() for a in taken], out], no_progress)
            frame[result] = TileValue(out)

        return step

    def _single(self, name: str, has_blocks: bool) -> Program:
        """Return a program that calls one kernel once; the block count is its last argument."""
        key = name, has_blocks
        if key not in self._programs:
            kernel = self._program.functions[name]
            kernels = {k.name: k for k in self._program.kernels}
            self._programs[key] = _calling_program(kernel, has_blocks, kernels)
        return self._programs[key]


def _calling_program(
    kernel: Function, has_blocks: bool, kernels: Mapping[str, Function]
) -> Program:
    params = tuple([renamed_param(p, i) for i, p in enumerate(kernel.params)])
    count = Value("blocks", ScalarType(INT32), kernel.loc) if has_blocks else None
    written = [p for p, d in zip(params, kernel.directions, strict=True) if d is not Direction.In]
    results = [fresh(p) for p in written]
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


def _product_program(op: Op, operands: Mapping[str, Value]) -> Program:
    """Return a program that loads the tiles of a product, multiplies, and stores the result."""
    b = Builder(op.loc, in_scope=True)
    params = [_in_memory(tile) for tile in operands.values()]
    args = dict(op.args)
    for param, (name, tile) in zip(params, operands.items()):
        shape = _shape(tile)
        args[name] = b.emit("slice", param, shape, (0,) * len(shape), result=name)
    product = b.add(Op(op.spec, args, (fresh(op.result),), (), op.loc)).result
    out = _in_memory(op.result)
    stored = b.emit("assemble", out, product, (0,) * len(_shape(op.result)), result="stored")
    directions = (*[Direction.In for _ in params], Direction.Out)
    body = Block((), (*b.ops, return_op((stored,), op.loc)))
    kernel = Function("product", FunctionKind.InCore, (*params, out), directions, body, op.loc)
    return _calling_program(kernel, False, {kernel.name: kernel})


def _tile_type(tile: Value) -> TileType:
    assert isinstance(tile.type, TileType)
    return tile.type


def _shape(tile: Value) -> tuple[int, ...]:
    return _tile_type(tile).shape


def _in_memory(tile: Value) -> Value:
    return Value(tile.name, TensorType(_shape(tile), _tile_type(tile).dtype), tile.loc)


def renamed_param(param: Value, position: int) -> Value:
    """Return a parameter with a unique name."""
    return Value(f"p{position}_{param.name}", param.type, param.loc)


def _is_plain(value: object) -> bool:
    """Whether native code accepts an argument: the whole window exists and is valid."""
    if not isinstance(value, Window):
        return True
    return value.valid is None and value.extent is None and value.array.flags.aligned


def _elements(block: Block) -> int:
    """Estimate the elements computed by one run of a block; loops of unknown length count once."""
    return sum(_work_of(op) for op in block.ops)


def _work_of(op: Op) -> int:
    inside = sum(map(_elements, op.blocks))
    if op.name == "for":
        start, stop, step = ForView(op).bounds
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            inside *= len(range(start, stop, step))
    made = sum(math.prod(r.type.shape) for r in op.results if isinstance(r.type, TileType))
    return inside + made
