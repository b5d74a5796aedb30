"""Ops that are defined by their NumPy reference: all arithmetic on tiles and scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.interp.lowering import COMPUTE, Frame, Getter, Lowering, Step, lowers
from tilelet.ir.core import Op, Value
from tilelet.ir.faults import Fault
from tilelet.ir.spec import SeedRegion
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.numerics.undefined import zero_where_undefined
from tilelet.ops.clearing import cleared_operand
from tilelet.tasks.window import Array, Shape, TileValue, Window, box


@lowers(COMPUTE)
def lower_compute(low: Lowering, op: Op) -> Step:
    """The lowering of every op that has none of its own."""
    if op.spec.reference is None:
        raise InternalError("no lowering for this op", low.function.name, op.name, op.loc)
    if op.results and isinstance(op.results[0].type, TensorType):
        return _memory_op(low, op)
    if all(isinstance(r.type, ScalarType) for r in op.results):
        return lower_scalar(low, op)
    return _tile_op(low, op)


def lower_scalar(low: Lowering, op: Op) -> Step:
    """An op on scalars, by its reference."""
    reference, loc = op.spec.reference, op.loc
    assert reference is not None
    named = [(name, low.get(arg)) for name, arg in op.args.items()]
    fixed = {"result_type": op.result.type} if op.spec.takes_result_type else {}
    result = low.result(op)

    def step(frame: Frame) -> None:
        try:
            frame[result] = reference(**{n: get(frame) for n, get in named}, **fixed)
        except Fault as fault:
            raise fault.error(loc) from None

    return step


Regions = dict[str, tuple[Shape, Shape]]
"""Shape and valid region of each array operand, by parameter name."""


class Operands:
    """Reads the arguments of an op: arrays for tiles and tensors, and their valid regions."""

    __slots__ = ("_cut", "_plain", "_shaped")

    def __init__(self, low: Lowering, op: Op) -> None:
        self._cut = op.spec.cut_to_valid
        self._shaped: list[tuple[str, Getter]] = []
        self._plain: list[tuple[str, Getter]] = []
        for name, arg in op.args.items():
            shaped = isinstance(arg, Value) and isinstance(arg.type, (TensorType, TileType))
            (self._shaped if shaped else self._plain).append((name, low.get(arg)))

    def read(self, frame: Frame) -> tuple[dict[str, Any], Regions]:
        """All arguments by name, and shape and valid region of each array among them."""
        args: dict[str, Any] = {name: get(frame) for name, get in self._plain}
        regions: Regions = {}
        for name, get in self._shaped:
            value = get(frame)
            if type(value) is TileValue:
                data, valid = value.data, value.valid
            else:
                data, valid = value.array, value.valid or value.reach
            regions[name] = (data.shape, valid)
            args[name] = data[box(valid)] if self._cut and valid != data.shape else data
        return args, regions


class Compute:
    """Applies the reference of an op, and its rule for the valid regions of the results."""

    __slots__ = (
        "_cleared",
        "_cut",
        "_fixed",
        "_memoise",
        "_memory",
        "_op",
        "_reference",
        "_rule",
        "_seed",
        "_shapes",
        "_takes_valid",
        "_where",
    )

    def __init__(self, low: Lowering, op: Op) -> None:
        spec = op.spec
        self._op = op
        self._where = low.function.name
        self._reference = spec.reference
        self._cleared = cleared_operand(op)
        self._rule = spec.valid
        self._cut = spec.cut_to_valid
        self._takes_valid = spec.takes_valid
        self._fixed = {"result_type": op.result.type} if spec.takes_result_type else {}
        self._seed = low.state.seed_valid and spec.seed_region is not SeedRegion.TRACKED
        self._shapes = [r.type.shape for r in op.results if isinstance(r.type, TileType)]
        self._memory: dict[tuple[Shape, ...], list[Shape]] = {}
        self._memoise = not any(isinstance(v.type, ScalarType) for v in op.operands)

    def arrays(self, args: dict[str, Any], regions: Regions) -> tuple[Any, ...]:
        """What the reference gives, always as a tuple."""
        if self._takes_valid:
            args = {**args, "valid": {name: valid for name, (_, valid) in regions.items()}}
        assert self._reference is not None
        made = self._reference(**args, **self._fixed)
        if self._cleared:
            made = zero_where_undefined(made, args[self._cleared])
        return made if isinstance(made, tuple) else (made,)

    def tiles(self, args: dict[str, Any], regions: Regions) -> list[TileValue]:
        try:
            valids = self._valids(args, regions)
            if self._cut and any(0 in valid for valid in valids):
                arrays = self._zeros()
            else:
                arrays = self.arrays(args, regions)
            return [
                self._tile(array, shape, valid, regions)
                for array, shape, valid in zip(arrays, self._shapes, valids)
            ]
        except Fault as fault:
            raise fault.error(self._op.loc) from None
        except (UserError, MemoryError):
            raise
        except Exception as error:
            problem = f"{type(error).__name__} in the reference: {error}"
            raise InternalError(problem, self._where, self._op.name, self._op.loc) from error

    def _valids(self, args: dict[str, Any], regions: Regions) -> list[Shape]:
        """The valid region of each result."""
        assert self._rule is not None
        # Shapes are constant: without run-time numbers only the regions can differ.
        key = tuple([valid for _, valid in regions.values()])
        valids = self._memory.get(key) if self._memoise else None
        if valids is None:
            valids = [self._rule(regions, shape, args) for shape in self._shapes]
            if self._memoise:
                self._memory[key] = valids
        return valids

    def _zeros(self) -> tuple[Array, ...]:
        """Results that have no valid element at all."""
        types = [r.type for r in self._op.results if isinstance(r.type, TileType)]
        return tuple([np.zeros((0,) * len(t.shape), t.dtype.numpy) for t in types])

    def _tile(self, array: Array, shape: Shape, valid: Shape, regions: Regions) -> TileValue:
        """The result with zeros outside its valid region."""
        if self._seed:
            return self._seed_tile(array, shape, valid, regions)
        if valid == shape:
            return TileValue(array, valid)
        return TileValue(padded(array, shape, valid), valid)

    def _seed_tile(self, array: Array, shape: Shape, valid: Shape, regions: Regions) -> TileValue:
        """The result when its region is forgotten, or is that of the left operand."""
        data = padded(array, shape, valid) if self._cut and valid != shape else array
        if self._op.spec.seed_region is SeedRegion.LEFT:
            left_shape, left_valid = next(iter(regions.values()))
            if left_shape == shape and left_valid != shape:
                return TileValue(padded(data, shape, left_valid), left_valid)
        return TileValue(data, shape)


def padded(array: Array, shape: Shape, valid: Shape) -> Array:
    """The valid part of `array` (which may be that part alone) with zeros around it."""
    data = np.zeros(shape, array.dtype)
    if 0 not in valid:
        inside = box(valid)
        data[inside] = array[inside]
    return data


def _tile_op(low: Lowering, op: Op) -> Step:
    operands = Operands(low, op)
    compute = Compute(low, op)
    results = low.define(op.results)

    def step(frame: Frame) -> None:
        frame[results] = compute.tiles(*operands.read(frame))

    return step


def _memory_op(low: Lowering, op: Op) -> Step:
    """An op whose reference gives the new contents of a tensor, which it updates in place."""
    state, operands, compute = low.state, Operands(low, op), Compute(low, op)
    (target,) = op.spec.writes
    window = low.slot(op.args[target])
    result = low.result(op)
    loc = op.loc

    def step(frame: Frame) -> None:
        memory: Window = frame[window]
        frame[result] = memory
        if not state.execute:
            state.changed_by_control(memory)
            return
        try:
            (contents,) = compute.arrays(*operands.read(frame))
        except Fault as fault:
            raise fault.error(loc) from None
        memory.array[...] = contents

    return step
