"""Ops for tasks and small arrays in the control program, and for block indices."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet import dtypes
from tilelet.diag.catalogue.ops import BadChoice
from tilelet.diag.catalogue.scopes import BadDependency
from tilelet.diag.catalogue.windows import IndexOutOfRange
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import Call, Engine, OpFields, Plane, Trait, composition, op
from tilelet.ir.types import INDEX, TASK_ID, ArrayType, ScalarType
from tilelet.ops import infer
from tilelet.ops.annotations import Int, Ints, Number
from tilelet.ops.infer import INTEGERS
from tilelet.syntax.enums import CachePolicy, KernelType, PipeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelet.syntax.types import Array, Scalar, Tensor

__all__ = [
    "available_aiv_count",
    "available_cluster_count",
    "bar_all",
    "bar_m",
    "bar_v",
    "breakpoint",
    "create",
    "dump",
    "get",
    "get_block_idx",
    "get_block_num",
    "get_element",
    "get_subblock_idx",
    "set",
    "sync_dst",
    "sync_src",
    "task_dummy",
    "task_invalid",
    "update_element",
]

_COUNT: OpFields = {"engine": Engine.SCALAR, "plane": Plane.BOTH, "on_chip": ()}
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
    result: an array of zeros (or invalid task ids). Read `a[i]`, write `a[i] = value`

    Example: `tids = pl.array.create(8, pl.TASK_ID)`
    """
    ...


@op(
    infer=_infer_get,
    name="array.get",
    engine=Engine.SCALAR,
    plane=Plane.BOTH,
    traits=Trait.NUMBER | Trait.CHECKED,
)
def get(array: Array, index: Int) -> Scalar:
    """One entry of an array; `array[index]` is the same.

    array: from `pl.array.create`; index: constant or not
    result: a scalar of the array's dtype

    Example: `tid = pl.array.get(tids, i)`
    """
    ...


@op(
    infer=_infer_set,
    name="array.set",
    engine=Engine.SCALAR,
    plane=Plane.BOTH,
    traits=Trait.CHECKED,
)
def set(array: Array, index: Int, value: Number) -> Array:
    """The array with one entry replaced; `array[index] = value` is the same.

    array: from `pl.array.create`; index: constant or not; value: of the array's dtype
    result: the updated array; rebind the name to it

    Example: `tids = pl.array.set(tids, i, tid)`
    """
    ...


@composition(name="array.get_element", engine=Engine.SCALAR, plane=Plane.BOTH, on_chip=())
def get_element(array: Array, index: Int) -> Scalar:
    """Another name of `pl.array.get`.

    array: from `pl.array.create`; index: constant or not
    result: a scalar of the array's dtype

    Example: `count = pl.array.get_element(counts, i)`
    """
    return get(array, index)


@composition(name="array.update_element", engine=Engine.SCALAR, plane=Plane.BOTH, on_chip=())
def update_element(array: Array, index: Int, value: Number) -> Array:
    """Another name of `pl.array.set`.

    array: from `pl.array.create`; index: constant or not; value: of the array's dtype
    result: the updated array; rebind the name to it

    Example: `counts = pl.array.update_element(counts, i, n)`
    """
    return set(array, index, value)


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
def task_dummy(deps: Sequence[object] = ()) -> Scalar:
    """A task that only waits for others: one id for many.

    deps: task ids, arrays of them, or None
    result: the id of a task that completes when all of them have

    Example: `ready = pl.system.task_dummy(deps=[tids])`
    """
    ...


def _infer_task_invalid(call: Call) -> infer.Types:
    return (TASK_ID,)


@op(infer=_infer_task_invalid, name="system.task_invalid", engine=Engine.NONE, plane=Plane.CONTROL)
def task_invalid() -> Scalar:
    """The id of no task; waiting for it returns immediately.

    result: a task id

    Example: `last = pl.system.task_invalid()`
    """
    ...


# --- block indices -------------------------------------------------------------------------------


def _infer_index(call: Call) -> infer.Types:
    return (INDEX,)


_POSITION = Trait.OF_BLOCK | Trait.BY_BLOCK


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=_POSITION)
def get_block_idx() -> Scalar:
    """Index of the running block of a `pl.spmd` launch, from 0; 0 in other scopes.

    result: INDEX

    Example: `row = pl.tile.get_block_idx() * 16`
    """
    ...


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=Trait.OF_BLOCK)
def get_block_num() -> Scalar:
    """Number of blocks of the running `pl.spmd` launch; 1 in other scopes.

    result: INDEX

    Example: `step = pl.tile.get_block_num() * 16`
    """
    ...


@op(infer=_infer_index, engine=Engine.SCALAR, plane=Plane.SCOPE, traits=_POSITION)
def get_subblock_idx() -> Scalar:
    """Index of the vector lane within a block: the lane in `pl.split_aiv`, elsewhere 0.

    result: INDEX. Tilelet runs both lanes of a split scope at once, as lane 0

    Example: `lane = pl.tile.get_subblock_idx()`
    """
    ...


CLUSTERS, LANES = 24, 48


@composition(name="system.available_cluster_count", era="HEAD", family=_COUNT)
def available_cluster_count() -> int:
    """Number of clusters (a cube core and its vector cores) available to a launch: 24, as on A2/A3.

    result: a number for `pl.spmd`; a program must not depend on its value

    Example: `for core in pl.spmd(pl.system.available_cluster_count()): ...`
    """
    return CLUSTERS


@composition(name="system.available_aiv_count", era="HEAD", family=_COUNT)
def available_aiv_count() -> int:
    """Number of vector cores available to a launch: 48, as on A2/A3.

    result: as for `pl.system.available_cluster_count`

    Example: `for core in pl.spmd(pl.system.available_aiv_count()): ...`
    """
    return LANES


# --- pipelines -----------------------------------------------------------------------------------


def _infer_nothing(call: Call) -> infer.Types:
    return ()


def _infer_sync(call: Call) -> infer.Types:
    for param in ("set_pipe", "wait_pipe"):
        if not isinstance(call[param], PipeType):
            raise infer.bad(call, param, "a `pl.PipeType`")
    infer.constant_int(call, "event_id", at_least=0)
    return ()


_SYNC: OpFields = {"engine": Engine.NONE, "plane": Plane.SCOPE}


@op(infer=_infer_nothing, name="system.bar_v", family=_SYNC)
def bar_v() -> None:
    """Wait for the vector pipeline. No effect in Tilelet, which runs ops in order.

    Example: `pl.system.bar_v()`
    """


@op(infer=_infer_nothing, name="system.bar_m", family=_SYNC)
def bar_m() -> None:
    """Wait for the matrix pipeline. No effect in Tilelet, which runs ops in order.

    Example: `pl.system.bar_m()`
    """


@op(infer=_infer_nothing, name="system.bar_all", family=_SYNC)
def bar_all() -> None:
    """Wait for all pipelines of the core. No effect in Tilelet, which runs ops in order.

    Example: `pl.system.bar_all()`
    """


@op(infer=_infer_sync, name="system.sync_src", family=_SYNC)
def sync_src(set_pipe: PipeType, wait_pipe: PipeType, event_id: int) -> None:
    """Signal from one pipeline to another. No effect in Tilelet, which runs ops in order.

    set_pipe, wait_pipe: `pl.PipeType`; event_id: a constant

    Example: `pl.system.sync_src(set_pipe=pl.PipeType.MTE2, wait_pipe=pl.PipeType.V, event_id=0)`
    """


@op(infer=_infer_sync, name="system.sync_dst", family=_SYNC)
def sync_dst(set_pipe: PipeType, wait_pipe: PipeType, event_id: int) -> None:
    """Wait for a signal of `pl.system.sync_src`. No effect in Tilelet, which runs ops in order.

    set_pipe, wait_pipe: `pl.PipeType`; event_id: a constant

    Example: `pl.system.sync_dst(set_pipe=pl.PipeType.MTE2, wait_pipe=pl.PipeType.V, event_id=0)`
    """


_LANES = (None, "aic", "aiv", KernelType.AIC, KernelType.AIV)


def _check_flag(call: Call) -> None:
    """Check the arguments of an event between the cores of a block."""
    infer.integer(call, "event_id")
    if not isinstance(call["pipe"], PipeType):
        raise infer.bad(call, "pipe", "a `pl.PipeType`")
    if call["core_type"] not in _LANES:
        choices = [name for name in _LANES if isinstance(name, str)]
        raise BadChoice(call.at("core_type"), call.shown, "core_type", call["core_type"], choices)


def _infer_set_flag(call: Call) -> infer.Types:
    _check_flag(call)
    if call["ffts_mode"] is not None:
        infer.constant_int(call, "ffts_mode", at_least=0)
    return ()


def _infer_wait_flag(call: Call) -> infer.Types:
    _check_flag(call)
    return ()


def _infer_set_ffts(call: Call) -> infer.Types:
    infer.tensor(call, "workspace")
    return ()


def _infer_cacheinvalid(call: Call) -> infer.Types:
    given = [call[param] is not None for param in ("tensor", "shapes", "offsets")]
    if not any(given):
        return ()
    rank = len(infer.tensor(call, "tensor").shape)
    for param in ("shapes", "offsets"):
        infer.check_rank(call, param, len(infer.items(call, param)), rank)
    return ()


@op(infer=_infer_set_flag, name="system.sync_set", era="HEAD", family=_SYNC)
def sync_set(
    event_id: Int,
    *,
    pipe: PipeType,
    ffts_mode: int | None = None,
    core_type: str | KernelType | None = None,
) -> None:
    """Signal from the cube core of a block to its vector cores, or back.

    event_id: the flag; pipe: the pipeline that signals; ffts_mode: a constant that selects the
        receivers
    core_type: "aic" or "aiv" (or a `pl.KernelType`), the side that signals. No effect in Tilelet,
        which runs ops in order

    Example: `pl.system.sync_set(0, pipe=pl.PipeType.MTE3, core_type="aiv")`
    """


@op(infer=_infer_wait_flag, name="system.sync_wait", era="HEAD", family=_SYNC)
def sync_wait(event_id: Int, *, pipe: PipeType, core_type: str | KernelType | None = None) -> None:
    """Wait for a signal of `pl.system.sync_set`. No effect in Tilelet.

    event_id: the flag; pipe: the pipeline that waits; core_type: "aic" or "aiv" (or a
        `pl.KernelType`), the side

    Example: `pl.system.sync_wait(0, pipe=pl.PipeType.MTE3, core_type="aic")`
    """


def _infer_cache_policy(call: Call) -> infer.Types:
    infer.tensor(call, "tensor")
    if not isinstance(call["policy"], CachePolicy):
        raise infer.bad(call, "policy", "a `pl.CachePolicy`")
    return ()


@op(infer=_infer_cache_policy, name="system.set_cache_policy", era="HEAD", on_chip=(), family=_SYNC)
def set_cache_policy(tensor: Tensor, policy: CachePolicy) -> None:
    """Set whether the device reads a tensor through its cache. No effect in Tilelet.

    tensor: in global memory; policy: `pl.CachePolicy.DEFAULT` or `.BYPASS`

    Example: `pl.set_cache_policy(weights, pl.CachePolicy.BYPASS)`
    """


@op(infer=_infer_set_ffts, name="system.set_ffts", era="HEAD", on_chip=(), family=_SYNC)
def set_ffts(workspace: Tensor) -> None:
    """Set where the device keeps the flags of `pl.system.sync_set`. No effect in Tilelet.

    workspace: a tensor, which is neither read nor written

    Example: `pl.system.set_ffts(flags)`
    """


@op(infer=_infer_nothing, name="system.fence", era="HEAD", family=_SYNC)
def fence() -> None:
    """Wait until stores have reached memory. No effect in Tilelet, which runs ops in order.

    Example: `pl.system.fence()`
    """


@op(infer=_infer_cacheinvalid, name="system.cacheinvalid", era="HEAD", on_chip=(), family=_SYNC)
def cacheinvalid(
    tensor: Tensor | None = None, shapes: Ints | None = None, offsets: Ints | None = None
) -> None:
    """Invalidate the core's cache. No effect in Tilelet, which has no cache.

    tensor, shapes, offsets: a window of a tensor; default all memory

    Example: `pl.system.cacheinvalid()`
    """


WITHOUT_EFFECT = tuple(
    f"system.{name}"
    for name in (
        "bar_all", "bar_m", "bar_v", "cacheinvalid", "fence", "set_cache_policy", "set_ffts",
        "sync_dst", "sync_set", "sync_src", "sync_wait",
    )
)  # fmt: skip
"""Ops that synchronize the pipelines and cores of a device; in Tilelet ops run in order."""


# --- debugging -----------------------------------------------------------------------------------


@op(infer=_infer_nothing, engine=Engine.NONE, plane=Plane.BOTH)
def breakpoint(values: Sequence[object], names: Sequence[str]) -> None:
    """Python's `breakpoint()` in a kernel: opens a debugger with the kernel's variables.

    values, names: the visible variables, filled in by the compiler

    Example: `breakpoint()`
    """


@op(infer=_infer_nothing, engine=Engine.NONE, plane=Plane.BOTH, on_chip=())
def dump(values: Sequence[object], names: Sequence[str]) -> None:
    """`pl.dump(x, y)`: prints values whenever it is executed.

    values, names: what to print, and its names in the source

    Example: `pl.dump(x, y)`
    """
