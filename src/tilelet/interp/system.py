"""Task ids, arrays of task ids, block indices of spmd tasks, and pipeline barriers."""

from __future__ import annotations

from tilelet import dtypes
from tilelet.diag.catalogue.windows import IndexOutOfRange
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.interp.submit import flat_deps
from tilelet.ir.core import Op, Value
from tilelet.ir.types import ArrayType
from tilelet.ops.tasks import WITHOUT_EFFECT
from tilelet.tasks.stream import NO_TASK, TaskKind


@lowers("array.create")
def lower_array_create(low: Lowering, op: Op) -> Step:
    type_, result = op.result.type, low.result(op)
    assert isinstance(type_, ArrayType)
    entries = (NO_TASK if type_.dtype is dtypes.TASK_ID else 0,) * type_.length

    def step(frame: Frame) -> None:
        frame[result] = entries

    return step


@lowers("array.get", "array.set")
def lower_array_access(low: Lowering, op: Op) -> Step:
    arg, loc = op.args["array"], op.loc
    assert isinstance(arg, Value)
    array, index = low.slot(arg), low.slot(op.args["index"])
    value = low.slot(op.args["value"]) if "value" in op.args else 0
    result = low.result(op)

    def position(frame: Frame) -> int:
        at = frame[index]
        if not 0 <= at < len(frame[array]):
            raise IndexOutOfRange(loc, 0, at, len(frame[array]), arg.name, runtime=True)
        return at

    def get(frame: Frame) -> None:
        frame[result] = frame[array][position(frame)]

    def replace(frame: Frame) -> None:
        entries, at = frame[array], position(frame)
        entry = NO_TASK if frame[value] is None else frame[value]
        frame[result] = (*entries[:at], entry, *entries[at + 1 :])

    return replace if op.name == "array.set" else get


@lowers("system.task_dummy")
def lower_task_dummy(low: Lowering, op: Op) -> Step:
    given, state, loc = op.args["deps"], low.state, op.loc
    deps = low.get(given if isinstance(given, tuple) else (given,))
    result = low.result(op)

    def step(frame: Frame) -> None:
        manual = state.manual_depth > 0
        join = state.tasks.group(TaskKind("", manual=manual, loc=loc), ())
        frame[result] = state.submit(join, (), flat_deps(deps(frame)))

    return step


@lowers("system.task_invalid")
def lower_task_invalid(low: Lowering, op: Op) -> Step:
    result = low.result(op)

    def step(frame: Frame) -> None:
        frame[result] = NO_TASK

    return step


@lowers("get_block_idx", "get_block_num", "get_subblock_idx")
def lower_block(low: Lowering, op: Op) -> Step:
    state, result = low.state, low.result(op)

    def index(frame: Frame) -> None:
        frame[result] = state.block

    def number(frame: Frame) -> None:
        frame[result] = state.blocks

    def lane(frame: Frame) -> None:
        frame[result] = 0

    return {"get_block_idx": index, "get_block_num": number, "get_subblock_idx": lane}[op.name]


@lowers(*WITHOUT_EFFECT)
def lower_barrier(_: Lowering, __: Op) -> Step:
    def step(frame: Frame) -> None:
        """Ops run sequentially, so there is nothing to wait for."""

    return step
