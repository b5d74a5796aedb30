"""Ops of the control program that handle tasks, small arrays, and where a block stands."""

# The dots say that a body is empty on purpose: an op is its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilelet import dtypes
from tilelet.diag.catalogue.scopes import BadDependency
from tilelet.diag.catalogue.windows import IndexOutOfRange
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import Call, Engine, Plane, Trait, op
from tilelet.ir.types import INDEX, TASK_ID, ArrayType, ScalarType
from tilelet.ops import infer
from tilelet.ops.annotations import Int, Number
from tilelet.ops.infer import INTEGERS
from tilelet.syntax.enums import PipeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelet.syntax.types import Array, Scalar

__all__ = [
    "bar_all",
    "bar_m",
    "bar_v",
    "breakpoint",
    "create",
    "dump",
    "get",
    "get_block_idx",
    "get_block_num",
    "get_subblock_idx",
    "set",
    "sync_dst",
    "sync_src",
    "task_dummy",
    "task_invalid",
]

_ARRAY_DTYPES = (dtypes.TASK_ID, dtypes.INDEX, dtypes.BOOL, *INTEGERS)


# --- arrays --------------------------------------------------------------------------------------


def _array(call: Call) -> ArrayType:
    arg = call["array"]
    if isinstance(arg, Value) and isinstance(arg.type, ArrayType):
        return arg.type
    raise infer.bad(call, "array", "an array made by `pl.array.create`")


def _check_position(call: Call, array: ArrayType) -> None:
    infer.integer(call, "index")
    position = infer.int_of(call["index"])
    if position is not None and not 0 <= position < array.length:
        name = call["array"].name
        raise IndexOutOfRange(call.at("index"), 0, position, array.length, name)


def _infer_create(call: Call) -> infer.Types:
    length = infer.constant_int(call, "length", at_least=1)
    return (ArrayType(length, infer.dtype(call, "dtype", _ARRAY_DTYPES)),)


def _infer_get(call: Call) -> infer.Types:
    array = _array(call)
    _check_position(call, array)
    return (ScalarType(array.dtype),)


def _infer_set(call: Call) -> infer.Types:
    array = _array(call)
    _check_position(call, array)
    value = call["value"]
    if array.dtype is dtypes.TASK_ID:
        if not _is_task(value):
            raise infer.bad(call, "value", "a task id")
    else:
        infer.scalar(call, "value")
        infer.check_range(call, "value", array.dtype)
    return (array,)


def _is_task(arg: Arg) -> bool:
    return arg is None or (isinstance(arg, Value) and arg.type == TASK_ID)


@op(infer=_infer_create, name="array.create", engine=Engine.SCALAR, plane=Plane.BOTH)
def create(length: int, dtype: DType) -> Array:
    """A small array of scalars or task ids, kept by the control program.

    length: a constant; dtype: an integer type, BOOL, or `pl.TASK_ID`
    result: an array of zeros (of no tasks). Read `a[i]`, write `a[i] = value`

    Example: `tids = pl.array.create(8, pl.TASK_ID)`
    """
    ...


@op(infer=_infer_get, name="array.get", engine=Engine.SCALAR, plane=Plane.BOTH, traits=Trait.NUMBER)
def get(array: Array, index: Int) -> Scalar:
    """One entry of an array; `array[index]` is the same.

    array: made by `pl.array.create`; index: constant or not
    result: a scalar of the array's dtype

    Example: `tid = pl.array.get(tids, i)`
    """
    ...


@op(infer=_infer_set, name="array.set", engine=Engine.SCALAR, plane=Plane.BOTH)
def set(array: Array, index: Int, value: Number) -> Array:
    """The array with one entry replaced; `array[index] = value` is the same.

    array: made by `pl.array.create`; index: constant or not; value: of the array's dtype
    result: a new array, under which the old name goes on

    Example: `tids = pl.array.set(tids, i, tid)`
    """
    ...


# --- tasks ---------------------------------------------------------------------------------------


def _infer_task_dummy(call: Call) -> infer.Types:
    for entry in infer.as_tuple(call["deps"]):
        is_array = isinstance(entry, Value) and (
            isinstance(entry.type, ArrayType) and entry.type.dtype is dtypes.TASK_ID
        )
        if not (_is_task(entry) or is_array):
            raise BadDependency(call.at("deps"), infer.describe(entry))
    return (TASK_ID,)


@op(
    infer=_infer_task_dummy,
    name="system.task_dummy",
    engine=Engine.NONE,
    plane=Plane.CONTROL,
    traits=Trait.SUBMITS,
)
def task_dummy(deps: Sequence[Any] = ()) -> Scalar:
    """A task that does nothing but wait: one id for many.

    deps: task ids, arrays of them, or None
    result: the id of a task that is done when all of them are

    Example: `ready = pl.system.task_dummy(deps=[tids])`
    """
    ...


def _infer_task_invalid(call: Call) -> infer.Types:
    return (TASK_ID,)


@op(infer=_infer_task_invalid, name="system.task_invalid", engine=Engine.NONE, plane=Plane.CONTROL)
def task_invalid() -> Scalar:
    """The id of no task; waiting for it takes no time.

    result: a task id

    Example: `last = pl.system.task_invalid()`
    """
    ...


# --- where a block stands ------------------------------------------------------------------------


def _infer_index(call: Call) -> infer.Types:
    return (INDEX,)


_POSITION = Trait.OF_BLOCK | Trait.BY_BLOCK


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=_POSITION)
def get_block_idx() -> Scalar:
    """Number of the running block of a `pl.spmd` launch, from 0; 0 in other scopes.

    result: INDEX

    Example: `row = pl.tile.get_block_idx() * 16`
    """
    ...


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=Trait.OF_BLOCK)
def get_block_num() -> Scalar:
    """How many blocks the running `pl.spmd` launch has; 1 in other scopes.

    result: INDEX

    Example: `step = pl.tile.get_block_num() * 16`
    """
    ...


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=_POSITION)
def get_subblock_idx() -> Scalar:
    """Number of the vector lane within a block: always 0, as a scope runs on one lane here.

    result: INDEX

    Example: `lane = pl.tile.get_subblock_idx()`
    """
    ...


# --- pipelines -----------------------------------------------------------------------------------


def _infer_nothing(call: Call) -> infer.Types:
    return ()


def _infer_sync(call: Call) -> infer.Types:
    for param in ("set_pipe", "wait_pipe"):
        if not isinstance(call[param], PipeType):
            raise infer.bad(call, param, "a `pl.PipeType`")
    infer.constant_int(call, "event_id", at_least=0)
    return ()


_SYNC: dict[str, Any] = {"engine": Engine.NONE, "plane": Plane.SCOPE}


@op(infer=_infer_nothing, name="system.bar_v", **_SYNC)
def bar_v() -> None:
    """Wait for the vector pipeline. Ops are in order here: it changes no result.

    Example: `pl.system.bar_v()`
    """


@op(infer=_infer_nothing, name="system.bar_m", **_SYNC)
def bar_m() -> None:
    """Wait for the matrix pipeline. Ops are in order here: it changes no result.

    Example: `pl.system.bar_m()`
    """


@op(infer=_infer_nothing, name="system.bar_all", **_SYNC)
def bar_all() -> None:
    """Wait for all pipelines of the core. Ops are in order here: it changes no result.

    Example: `pl.system.bar_all()`
    """


@op(infer=_infer_sync, name="system.sync_src", **_SYNC)
def sync_src(set_pipe: PipeType, wait_pipe: PipeType, event_id: int) -> None:
    """Signal from one pipeline to another. Ops are in order here: it changes no result.

    set_pipe, wait_pipe: `pl.PipeType`; event_id: a constant

    Example: `pl.system.sync_src(set_pipe=pl.PipeType.MTE2, wait_pipe=pl.PipeType.V, event_id=0)`
    """


@op(infer=_infer_sync, name="system.sync_dst", **_SYNC)
def sync_dst(set_pipe: PipeType, wait_pipe: PipeType, event_id: int) -> None:
    """Wait for a signal of `pl.system.sync_src`. Ops are in order here: it changes no result.

    set_pipe, wait_pipe: `pl.PipeType`; event_id: a constant

    Example: `pl.system.sync_dst(set_pipe=pl.PipeType.MTE2, wait_pipe=pl.PipeType.V, event_id=0)`
    """


# --- debugging -----------------------------------------------------------------------------------


@op(infer=_infer_nothing, engine=Engine.NONE, plane=Plane.BOTH)
def breakpoint(values: Sequence[Any], names: Sequence[str]) -> None:
    """What Python's `breakpoint()` in a kernel becomes: a debugger with the kernel's variables.

    values, names: the variables in sight, filled in by the compiler

    Example: `breakpoint()`
    """


@op(infer=_infer_nothing, engine=Engine.NONE, plane=Plane.BOTH, on_chip=())
def dump(values: Sequence[Any], names: Sequence[str]) -> None:
    """What `pl.dump(x, y)` becomes: prints values whenever it is executed.

    values, names: what to print, and how it is called in the text

    Example: `pl.dump(x, y)`
    """
