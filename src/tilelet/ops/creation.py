"""Ops that create a tensor or tile."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.ops import BadArgument, BadChoice, NotConstant
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Value
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    OpFields,
    Plane,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import Mem, TensorType, TileType, Type
from tilelet.numerics.philox import philox
from tilelet.ops import infer, limits, valid
from tilelet.ops.annotations import Int, Ints
from tilelet.ops.families import VECTOR
from tilelet.ops.padding import check_valid_extent
from tilelet.ops.reference import to_element
from tilelet.syntax.enums import TensorLayout

if TYPE_CHECKING:
    from tilelet.syntax.types import Tensor, Tile

__all__ = ["arange", "ci", "create_l1", "create_tensor", "create_tile", "full", "random", "tri"]

_COMPUTED = tuple(d for d in dtypes.ALL if d is not dtypes.TASK_ID)
_STORED = (*_COMPUTED, *dtypes.MOVED)
_RAMP_DTYPES = (dtypes.INT16, dtypes.INT32, dtypes.UINT16, dtypes.UINT32)


def _tile_or_tensor(call: Call, dtype: DType) -> Type:
    shape = infer.result_shape(call, "shape")
    if not call.in_scope:
        return TensorType(shape, dtype)
    return TileType(tuple(d for d in shape if isinstance(d, int)), dtype)


def _infer_create_tensor(call: Call) -> infer.Types:
    dtype = infer.dtype(call, "dtype", _STORED)
    if not isinstance(call["layout"], TensorLayout):
        raise infer.bad(call, "layout", "a `pl.TensorLayout`")
    infer.flag(call, "manual_dep")
    _check_initial(call, dtype)
    return (_tile_or_tensor(call, dtype),)


def _check_initial(call: Call, dtype: DType) -> None:
    """Check that the control processor can write `init_value`: an integer, a 32-bit float, or 0."""
    value = infer.constant_of(call["init_value"])
    if call["init_value"] is None:
        return
    if call.in_scope:
        raise BadArgument(
            call.at("init_value"),
            call.shown,
            "init_value",
            infer.describe(call["init_value"]),
            "left out inside a scope: use `pl.full`",
        )
    if value is None:
        if isinstance(call["init_value"], Value):
            raise NotConstant(call.at("init_value"), call.shown, "init_value")
        raise infer.bad(call, "init_value", "a number")
    infer.check_range(call, "init_value", dtype)
    if value != 0 and dtype.is_float and dtype is not dtypes.FP32:
        raise infer.bad(call, "init_value", f"0 for {dtype}")


@op(infer=_infer_create_tensor, engine=Engine.NONE, plane=Plane.BOTH, traits=Trait.CREATION)
def create_tensor(
    shape: Ints,
    dtype: DType,
    layout: TensorLayout = TensorLayout.ND,
    *,
    init_value: float | None = None,
    manual_dep: bool = False,
    valid_shape: Ints | None = None,
) -> Tensor:
    """A new tensor whose contents are undefined until written.

    shape: extents; constants inside a scope, constants or scalars in the control program
    dtype: its element type
    layout: storage layout on the device; results do not depend on it
    init_value: a constant to fill it with (control program only; for floats other than FP32 only 0)
    manual_dep: if True, accesses to this tensor do not order tasks
    valid_shape: the part that will hold data
    result: global memory in the control program, an on-chip tile inside a scope

    Example: `acc = pl.create_tensor([16, 128], dtype=pl.FP32)`
    """
    ...


def _infer_create_tile(call: Call) -> infer.Types:
    space = call["target_memory"]
    if not isinstance(space, Mem) or space is Mem.DDR:
        raise infer.bad(call, "target_memory", "an on-chip memory such as `pl.Mem.Vec`")
    dtype = infer.dtype(call, "dtype", _STORED)
    return (TileType(infer.constant_shape(call, "shape"), dtype, space),)


@op(
    infer=_infer_create_tile,
    engine=Engine.NONE,
    plane=Plane.SCOPE,
    on_chip=(),
    traits=Trait.CREATION,
)
def create_tile(shape: Ints, dtype: DType, target_memory: Mem = Mem.Vec) -> Tile:
    """A new on-chip tile whose contents are undefined until written.

    shape: constants; dtype: its element type; target_memory: where it is placed
    result: a tile in that memory

    Example: `tmp = pl.create_tile([16, 128], dtype=pl.FP32, target_memory=pl.Mem.Vec)`
    """
    ...


@composition(engine=Engine.NONE, era="HEAD")
def create_l1(shape: Ints, dtype: DType, transpose: bool = False) -> Tensor:
    """A new tile for a matrix product operand that `pl.gather_row` will fill.

    shape: constants; dtype: its element type
    transpose: layout on the device; results do not depend on it
    result: a tile whose contents are undefined until written; its memory is chosen by its use

    Example: `keys = pl.create_l1([128, 64], pl.BF16)`
    """
    return create_tensor(shape, dtype)


def _infer_full(call: Call) -> infer.Types:
    dtype = infer.dtype(call, "dtype", _COMPUTED)
    if infer.constant_of(call["value"]) is None:
        if isinstance(call["value"], Value):
            help_ = "for a run-time number use `pl.expands(tile, number)`"
            raise NotConstant(call.at("value"), call.shown, "value", help_)
        raise infer.bad(call, "value", "a number")
    infer.check_range(call, "value", dtype)
    return (TileType(infer.constant_shape(call, "shape"), dtype),)


def _full_array(shape: tuple[int, ...], dtype: DType, value: float) -> Array:
    return np.full(shape, to_element(value, dtype), dtype.numpy)


@op(
    infer=_infer_full,
    reference=_full_array,
    family=VECTOR,
    valid=valid.full,
    traits=Trait.CREATION,
    cost=Cost.COPY,
    limits=(limits.COLUMN,),
)
def full(shape: Ints, dtype: DType, value: float) -> Tensor:
    """A tile filled with a constant.

    shape: constants; dtype: its element type
    value: a compile-time number, rounded to the dtype (an integer dtype must hold it exactly)
    result: a tile of that shape

    Example: `zeros = pl.full([16, 128], dtype=pl.FP32, value=0.0)`
    """
    ...


def _infer_ramp(call: Call) -> infer.Types:
    shape = infer.constant_shape(call, "shape")
    dtype = infer.dtype(call, "dtype", _RAMP_DTYPES)
    infer.integer(call, "start")
    infer.check_range(call, "start", dtype)
    infer.flag(call, "descending")
    if math.prod(shape[:-1]) != 1 or shape[-1] == 1:
        raise infer.bad(call, "shape", "one row `[1, N]` of at least two columns")
    return (TileType(shape, dtype),)


def _ramp(start: int, shape: tuple[int, ...], dtype: DType, descending: bool) -> Array:
    steps = np.arange(shape[-1], dtype=np.int64)
    values = start - steps if descending else start + steps
    return np.reshape(values.astype(dtype.numpy), shape)


@op(
    infer=_infer_ramp,
    reference=_ramp,
    family=VECTOR,
    valid=valid.full,
    cost=Cost.COPY,
    limits=(limits.RAMP_START,),
    era="APR",
)
def arange(
    start: Int, shape: Ints, dtype: DType = dtypes.INT32, descending: bool = False
) -> Tensor:
    """Consecutive numbers: `start, start + 1, ...` along one row.

    start: the first number, constant or not; shape: `[1, N]` with N at least 2
    dtype: INT16, INT32, UINT16 or UINT32; descending: count down instead
    result: `[1, N]`; numbers wrap in the dtype

    Example: `idx = pl.arange(0, [1, 512], dtype=pl.UINT32)`
    """
    ...


@composition(infer=_infer_ramp, era="APR")
def ci(start: Int, shape: Ints, dtype: DType = dtypes.INT32, descending: bool = False) -> Tensor:
    """The tile-level name of `pl.arange`.

    start: the first number, constant or not; shape: `[1, N]` with N at least 2
    dtype: INT16, INT32, UINT16 or UINT32; descending: count down instead
    result: `[1, N]`; numbers wrap in the dtype

    Example: `idx = pl.ci(0, [1, 512], dtype=pl.INT32)`
    """
    return arange(start, shape, dtype, descending)


# --- patterns ------------------------------------------------------------------------------------

_MARKS = (*infer.FLOATS, *(d for d in infer.INTEGERS if d.itemsize < 8))
_ROUNDS = (7, 10)


def _pattern_type(call: Call, dtype: DType) -> infer.Types:
    """Return the type of a tile that is filled, wholly or partially, by position."""
    shape = infer.constant_shape(call, "shape")
    infer.check_rank(call, "shape", len(shape), 2)
    if call["valid_shape"] is not None:
        region = infer.items(call, "valid_shape")
        infer.check_rank(call, "valid_shape", len(region), 2)
        for axis, (limit, extent) in enumerate(zip(region, shape)):
            check_valid_extent(call, "valid_shape", axis, limit, extent)
    return (TileType(shape, dtype),)


def _valid_patterned(operands: valid.Operands, result_shape: Shape, args: valid.Args) -> Valid:
    region = args["valid_shape"]
    return result_shape if region is None else valid.check_region(region, result_shape)


_PATTERNED: OpFields = {
    **VECTOR,
    "valid": _valid_patterned,
    "era": "HEAD",
}


def _infer_tri(call: Call) -> infer.Types:
    infer.integer(call, "diagonal")
    infer.flag(call, "upper")
    return _pattern_type(call, infer.dtype(call, "dtype", _MARKS))


def _tri(
    diagonal: int, shape: tuple[int, int], valid_shape: object, dtype: DType, upper: bool
) -> Array:
    rows, columns = np.indices(shape)
    last = rows + diagonal
    return (columns >= last if upper else columns <= last).astype(dtype.numpy)


@op(name="tile.tri", infer=_infer_tri, reference=_tri, cost=Cost.COPY, family=_PATTERNED)
def tri(
    diagonal: Int,
    shape: Ints,
    valid_shape: Ints | None = None,
    dtype: DType = dtypes.INT32,
    upper: bool = False,
) -> Tile:
    """A triangular mask: 1 where column <= row + diagonal, else 0.

    diagonal: a constant or a scalar; shape: `[M, N]`, constants
    valid_shape: the part to fill; default all
    dtype: a float, or an integer of up to 32 bits; upper: 1 where column >= row + diagonal instead
    result: a tile of that shape

    Example: `causal = pl.tile.tri(0, [64, 64], dtype=pl.FP32)`
    """
    ...


def _infer_random(call: Call) -> infer.Types:
    for param in _SEEDS:
        infer.integer(call, param)
    if (rounds := infer.constant_int(call, "rounds")) not in _ROUNDS:
        raise BadChoice(call.at("rounds"), call.shown, "rounds", rounds, _ROUNDS)
    return _pattern_type(call, infer.dtype(call, "dtype", (dtypes.UINT32, dtypes.INT32)))


_SEEDS = ("key0", "key1", "counter0", "counter1", "counter2", "counter3")


def _random(
    shape: tuple[int, int], valid_shape: object, dtype: DType, rounds: int, **seeds: int
) -> Array:
    key0, key1, *counter = [seeds[name] for name in _SEEDS]
    words = philox((key0, key1), counter, math.prod(shape), rounds)
    return np.reshape(words.astype(dtype.numpy), shape)


@op(infer=_infer_random, reference=_random, cost=Cost.TRIGONOMETRIC, family=_PATTERNED)
def random(
    key0: Int,
    key1: Int,
    counter0: Int,
    counter1: Int,
    counter2: Int,
    counter3: Int,
    shape: Ints,
    valid_shape: Ints | None = None,
    dtype: DType = dtypes.UINT32,
    rounds: int = 10,
) -> Tile:
    """Counter-based pseudo-random words, determined by key, counter and position.

    key0, key1: the two words of the key
    counter0, counter1, counter2, counter3: the words of the counter, lowest first. Only the low
        32 bits of each integer are used
    shape: `[M, N]`, constants; valid_shape: the part to fill; default all
    dtype: UINT32 or INT32; rounds: 7 or 10
    result: Philox4x32: element k in row-major order is word `k % 4` of the block with the counter
        increased by `k // 4`. The same arguments always give the same tile; the device generates
            different words

    Example: `noise = pl.random(seed, 0, step, 0, 0, 0, [16, 128])`
    """
    ...
