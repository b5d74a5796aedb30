"""Ops defined by their NumPy reference: all arithmetic on tiles and scalars."""

from __future__ import annotations

from tilelet.diag.internal import InternalError
from tilelet.dtypes import Array
from tilelet.interp.lowering import COMPUTE, Frame, Getter, Lowering, Step, lowers
from tilelet.ir.core import FunctionKind, Op, Value
from tilelet.ir.faults import Fault
from tilelet.ir.spec import SeedRegion
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ops.apply import Application, Args, with_zeros
from tilelet.tasks.window import Shape, TileValue, Window


@lowers(COMPUTE)
def lower_compute(low: Lowering, op: Op) -> Step:
    """Lower an op that has no special lowering."""
    if op.spec.reference is None:
        raise InternalError("no lowering for this op", low.function.name, op.name, op.loc)
    if op.results and isinstance(op.results[0].type, TensorType):
        return _memory_op(low, op)
    if all(isinstance(r.type, ScalarType) for r in op.results):
        return lower_scalar(low, op)
    return _tile_op(low, op)


def lower_scalar(low: Lowering, op: Op) -> Step:
    """Lower a scalar op to its reference."""
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


class Operands:
    """Reads the arguments of an op: arrays for tiles and tensors, with their valid regions."""

    __slots__ = ("_application", "_plain", "_shaped")

    def __init__(self, low: Lowering, op: Op, application: Application) -> None:
        self._application = application
        self._shaped: list[tuple[str, Getter]] = []
        self._plain: list[tuple[str, Getter]] = []
        for name, arg in op.args.items():
            shaped = isinstance(arg, Value) and isinstance(arg.type, (TensorType, TileType))
            (self._shaped if shaped else self._plain).append((name, low.get(arg)))

    def read(self, frame: Frame) -> tuple[Args, dict[str, tuple[Shape, Shape]]]:
        """Return all arguments by name, with shape and valid region of each array among them."""
        args: dict[str, object] = {name: get(frame) for name, get in self._plain}
        regions: dict[str, tuple[Shape, Shape]] = {}
        for name, get in self._shaped:
            value = get(frame)
            if type(value) is TileValue:
                data, valid = value.data, value.valid
            else:
                data, valid = value.array, value.held
            regions[name] = (data.shape, valid)
            args[name] = self._application.operand(data, valid)
        return args, regions


def _tile_op(low: Lowering, op: Op) -> Step:
    application = Application(op, low.function.name)
    operands = Operands(low, op, application)
    results = low.define(op.results)
    forgetful = low.state.seed_valid and op.spec.seed_region is not SeedRegion.TRACKED

    def step(frame: Frame) -> None:
        made = application.results(*operands.read(frame))
        frame[results] = [TileValue(with_zeros(*result), result[2]) for result in made]

    def forgetful_step(frame: Frame) -> None:
        args, regions = operands.read(frame)
        left = next(iter(regions.values()), None)
        made = application.results(args, regions)
        frame[results] = [_seed_tile(op, *result, left) for result in made]

    return forgetful_step if forgetful else step


def _seed_tile(
    op: Op, array: Array, shape: Shape, valid: Shape, left: tuple[Shape, Shape] | None
) -> TileValue:
    """Return the result with a full valid region, or that of the left operand."""
    data = with_zeros(array, shape, valid) if op.spec.cut_to_valid else array
    if op.spec.seed_region is SeedRegion.LEFT and left is not None:
        left_shape, left_valid = left
        if left_shape == shape and left_valid != shape:
            return TileValue(with_zeros(data, shape, left_valid), left_valid)
    return TileValue(data, shape)


def _memory_op(low: Lowering, op: Op) -> Step:
    """Lower an op whose reference returns the new contents of tensors that it updates in place."""
    state, application = low.state, Application(op, low.function.name)
    operands = Operands(low, op, application)
    windows = [low.slot(op.args[target]) for target in op.spec.writes]
    is_control = low.function.kind is not FunctionKind.InCore
    results = low.define(op.results)

    def step(frame: Frame) -> None:
        memories: list[Window] = [frame[window] for window in windows]
        frame[results] = memories
        if is_control or not state.execute:
            for memory in memories:
                state.changed_by_control(memory)
        if not state.execute:
            return
        for memory, made in zip(memories, application.contents(*operands.read(frame))):
            memory.array[...] = made

    return step
