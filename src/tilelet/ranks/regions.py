"""Native code for the parts of a kernel between its communicating statements.

A region is a maximal sequence of ops in a block that neither suspend nor need the interpreter:
loads, products, stores, whole loops and branches. A strand runs from one request to the next
without interruption, so no other strand acts while a region runs, and native code may do in one
call what the interpreter does op by op. Tiles and numbers that leave a region are written to hidden
outputs; views and scalars that follow from others are computed again by the interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilelet.analysis.aliases import Aliases, infer_directions, is_tensor
from tilelet.cpu.plan.regions import find_regions
from tilelet.dataclasses import dataclass, replace
from tilelet.dtypes import INDEX, INT64, DType
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.ir.core import Block, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import Builder, clone_ops, free_values, fresh_value, return_op
from tilelet.ir.spec import Trait
from tilelet.ir.types import DistributedType, ScalarType, TensorType, TileType
from tilelet.ranks.native_calls import (
    HOST_ONLY,
    Meter,
    NativeCalls,
    calling_program,
    is_plain,
    layout_of,
    native_calls,
)
from tilelet.tasks.window import TileValue, Window

_PASSED = (TensorType, TileType, ScalarType)
"""Types of values that native code takes."""


def with_inner(op: Op) -> Iterator[Op]:
    """Yield an op and all ops in its blocks."""
    yield op
    for block in op.blocks:
        yield from walk(block)


def needs_interpreter(op: Op, *, watched: bool) -> bool:
    """Whether an op itself, not those in its blocks, has to be interpreted.

    watched  accesses to window buffers are observed one by one
    """
    if op.name == "while":  # may poll a window, which another process changes
        return any(isinstance(v.type, DistributedType) for i in with_inner(op) for v in i.operands)
    if op.name in HOST_ONLY or op.name in ("call", "undef") or op.name.startswith("pld."):
        return True
    if Trait.OF_BLOCK in op.spec.traits:
        return True
    if any(not isinstance(v.type, _PASSED) for v in (*op.operands, *op.results)):
        return True
    is_access = watched and not op.spec.structural
    return is_access and any(isinstance(v.type, DistributedType) for v in op.operands)


class Regions:
    """The regions of one kernel, shared by all ranks and runs of its program."""

    def __init__(self, kernel: Function, *, watched: bool) -> None:
        self._watched = watched
        self._uses = Counter(v for op in walk(kernel.body) for v in op.operands)
        self._native: dict[Op, NativeRegion] = {}  # by first op

    def excludes(self, op: Op) -> bool:
        """Whether an op itself, not those in its blocks, has to be interpreted."""
        return needs_interpreter(op, watched=self._watched)

    def compute(self, ops: Sequence[Op]) -> bool:
        """Whether ops compute anything besides scalars and views."""
        return any(op.blocks or any(isinstance(r.type, TileType) for r in op.results) for op in ops)

    def code(self, low: Lowering, ops: Sequence[Op]) -> Step:
        """Return the step of a region: interpreted until compiling it pays off."""
        steps = [low.op(op) for op in ops]
        region = self._native.setdefault(ops[0], NativeRegion(ops, self._uses))
        native: Callable[[Frame], bool] | None = None

        def run(frame: Frame) -> None:
            nonlocal native
            if region.pays():
                native = native or region.runner(low.slot, steps)
                if native(frame):
                    return
            for step in steps:
                step(frame)

        return run


class NativeRegion:
    """A region that is compiled once it has been interpreted for long enough."""

    def __init__(self, ops: Sequence[Op], uses: Counter[Value]) -> None:
        self._meter = Meter(ops)
        self._ops, self._uses = ops, uses
        self._code: tuple[Outlined, NativeCalls] | None = None
        self._is_interpreted = False

    def pays(self) -> bool:
        """Whether the next execution should be native."""
        if self._is_interpreted or not self._meter.pays():
            return False
        if self._code is None:
            outlined = outline(self._ops, self._uses)
            calls = None if outlined is None else native_calls(outlined.program)
            if outlined is None or calls is None:
                self._is_interpreted = True
                return False
            self._code = outlined, calls
        return True

    def runner(
        self, slot: Callable[[Value], int], steps: Sequence[Step]
    ) -> Callable[[Frame], bool]:
        """Return a function that runs the region natively; it returns False if it cannot."""
        assert self._code is not None
        return _runner(*self._code, slot, steps)


@dataclass(frozen=True)
class Outlined:
    """A region as a program.

    inputs   values from outside, in the order of the first parameters
    outputs  tiles and numbers that leave, each in an array of its own: the other parameters
    after    what the interpreter does for other values that leave, in order: run the op of a
             position again, or give the first value the contents of the second
    """

    program: Program
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    after: tuple[int | tuple[Value, Value], ...]


def outline(ops: Sequence[Op], uses: Counter[Value]) -> Outlined | None:
    """Return a region as a program of its own; None if a value that leaves has to be interpreted.

    uses  number of uses of each value in the whole function
    """
    body = Block((), (*ops, return_op((), ops[0].loc)))
    leaving = _Leaving(ops, body)
    inside = Counter(v for op in walk(body) for v in op.operands)
    for op in ops:
        for v in op.results:
            if uses[v] > inside[v] and not leaving.recover(v):
                return None
    inputs, outputs = free_values(body), tuple(leaving.outputs)
    kernel = _kernel(ops, inputs, outputs)
    if kernel is None:
        return None
    return Outlined(
        calling_program(kernel, {kernel.name: kernel}), inputs, outputs, leaving.in_order()
    )


class _Leaving:
    """Plans how values that leave a region are recomputed outside it."""

    def __init__(self, ops: Sequence[Op], body: Block) -> None:
        self._ops = ops
        self._at = {v: i for i, op in enumerate(ops) for v in op.results}
        self._aliases = Aliases(body, {})
        self._after: dict[int, list[int | tuple[Value, Value]]] = {}
        self._known: dict[Value, bool] = {}
        self.outputs: dict[Value, None] = {}

    def in_order(self) -> tuple[int | tuple[Value, Value], ...]:
        return tuple(step for at in sorted(self._after) for step in self._after[at])

    def recover(self, value: Value) -> bool:
        """Plan how a value is recomputed; return False if that takes the interpreter."""
        if value not in self._known:
            self._known[value] = self._recover(value)
        return self._known[value]

    def _recover(self, value: Value) -> bool:
        if value not in self._at:
            return value not in self._aliases.definition  # not in a nested block
        at = self._at[value]
        op = self._ops[at]
        if isinstance(value.type, TileType):
            self.outputs[value] = None
            return True
        if is_tensor(value) and (op.spec.structural or op.spec.writes):
            end = self._aliases.end(value)
            if end is None or end is value or not self.recover(end):
                return False
            self._after.setdefault(at, []).append((value, end))
            return True
        if self._is_repeatable(op) and all(map(self.recover, op.operands)):
            self._after[at] = [at]
            return True
        if isinstance(value.type, ScalarType):
            self.outputs[value] = None
            return True
        return False

    def _is_repeatable(self, op: Op) -> bool:
        """Whether an op makes a scalar or a view without looking at memory or tiles."""
        if op.spec.structural or any(isinstance(v.type, TileType) for v in op.operands):
            return False
        if is_tensor(op.results[0]):
            return bool(op.spec.view)
        return bool(op.spec.traits & (Trait.SCALAR | Trait.SHAPE_ONLY))


def _kernel(
    ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Function | None:
    """Return a kernel with the ops, which loads tiles from outside and stores those that leave.

    None if a tile that leaves may be partially valid.
    """
    loc = ops[0].loc
    b = Builder(loc, in_scope=True)
    inside: dict[Value, Any] = {}
    params: list[Value] = []
    for v in inputs:
        if isinstance(v.type, TileType):
            param = Value(v.name, TensorType(v.type.shape, v.type.dtype), v.loc)
            shape = v.type.shape
            inside[v] = b.emit("slice", param, shape, (0,) * len(shape), result=v.name)
        else:
            param = inside[v] = fresh_value(v)
        params.append(param)
    b.ops += clone_ops(ops, inside)
    tiles: list[Value] = []
    for v in outputs:
        shape, dtype = _array_type(v)
        out, made = Value(v.name, TensorType(shape, dtype), v.loc), inside[v]
        params.append(out)
        if isinstance(v.type, TileType):
            tiles.append(made)
            b.emit("assemble", out, made, (0,) * len(shape), result=v.name)
        else:
            if v.type == ScalarType(INDEX):
                made = b.emit("scalar.cast", made, INT64, result=v.name)
            b.emit("write", out, (0,), made, result=v.name)
    body = Block((), (*b.ops, return_op((), loc)))
    draft = Function("region", FunctionKind.InCore, tuple(params), (), body, loc)
    aliases = Aliases(body, {})
    regions = find_regions(draft, aliases, windows_are_full=True).of
    if any(regions[tile] != _shape(tile) for tile in tiles):
        return None
    directions = infer_directions(draft, {}, aliases)
    written = [p for p, d in zip(params, directions) if d.name != "In"]
    ended = Block((), (*b.ops, return_op(written, loc)))
    return replace(draft, directions=directions, body=ended)


def _shape(tile: Value) -> tuple[int, ...]:
    assert isinstance(tile.type, TileType)
    return tile.type.shape


def _array_type(value: Value) -> tuple[tuple[int, ...], DType]:
    """Return shape and type of the array that receives a tile or number."""
    if isinstance(value.type, TileType):
        return value.type.shape, value.type.dtype
    assert isinstance(value.type, ScalarType)
    return (1,), INT64 if value.type.dtype is INDEX else value.type.dtype


def _runner(
    outlined: Outlined, calls: NativeCalls, slot: Callable[[Value], int], steps: Sequence[Step]
) -> Callable[[Frame], bool]:
    inputs = [slot(v) for v in outlined.inputs]
    made = [(slot(v), *_array_type(v), isinstance(v.type, TileType)) for v in outlined.outputs]
    after = [
        steps[a] if isinstance(a, int) else _rename_step(slot(a[0]), slot(a[1]))
        for a in outlined.after
    ]

    def run(frame: Frame) -> bool:
        values = [frame[at] for at in inputs]
        arguments: list[object] = []
        for value in values:
            if type(value) is TileValue:
                if not value.full:
                    return False
                arguments.append(np.ascontiguousarray(value.data))
            elif type(value) is Window:
                if not is_plain(value):
                    return False
                arguments.append(value.array)
            else:
                arguments.append(value)
        arrays = [np.empty(shape, dtype.numpy) for _, shape, dtype, _ in made]
        calls.run(layout_of(values), [*arguments, *arrays], values)
        for (at, _, _, is_tile), array in zip(made, arrays):
            frame[at] = TileValue(array) if is_tile else array.item()
        for step in after:
            step(frame)
        return True

    return run


def _rename_step(to: int, source: int) -> Step:
    def rename(frame: Frame) -> None:
        frame[to] = frame[source]

    return rename
