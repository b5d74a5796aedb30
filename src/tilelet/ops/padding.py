"""Ops on the valid region: setting it, and filling the padding outside."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import BadChoice, ShapeMismatch
from tilelet.diag.catalogue.windows import ValidShapeTooLarge
from tilelet.dtypes import BOOL, Array, DType
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    Plane,
    SeedRegion,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import Dim, TileType, box
from tilelet.ops import infer, limits, valid
from tilelet.ops.annotations import Int, Ints, Shaped
from tilelet.ops.families import VECTOR
from tilelet.ops.reference import to_element
from tilelet.ops.valid import Args, Operands
from tilelet.syntax.enums import PadValue

__all__ = ["fillpad", "fillpad_expand", "fillpad_inplace", "set_validshape"]


def pad_kind(pad_value: Arg) -> PadValue | None:
    """Return the kind of a pad value: an enum member, or the number 0, inf or -inf."""
    if isinstance(pad_value, PadValue):
        return pad_value if pad_value is not PadValue.null else None
    number = infer.constant_of(pad_value)
    if number is None or isinstance(number, bool):
        return None
    if number == 0:
        return PadValue.zero
    if math.isinf(number):
        return PadValue.max if number > 0 else PadValue.min
    return None


def check_pad(call: Call) -> None:
    """Check that `pad_value` is a pad value."""
    arg, param = call["pad_value"], "pad_value"
    if pad_kind(arg) is None:
        if isinstance(arg, Value):
            raise infer.bad(call, param, "a `pl.PadValue`")
        choices = ["pl.PadValue.zero", "pl.PadValue.min", "pl.PadValue.max"]
        shown = arg.name if isinstance(arg, PadValue) else arg
        raise BadChoice(call.at(param), call.shown, param, shown, choices)


def pad_element(pad_value: Arg, dtype: DType) -> Any:
    """Return the padding element: infinities for floats, the type's limits for integers."""
    kind = pad_kind(pad_value)
    if kind is PadValue.zero or dtype is BOOL:
        return to_element(int(kind is PadValue.max), dtype)
    if dtype.is_float:
        # Without infinity: the largest finite value.
        return to_element(math.inf if kind is PadValue.max else -math.inf, dtype)
    return dtype.numpy.type(dtype.limits[kind is PadValue.max])


def pad_region(x: Array, region: Valid, pad_value: Arg, shape: Shape | None = None) -> Array:
    """Copy `x`'s valid region into a new array of `shape` filled with the pad value."""
    result = np.full(shape or x.shape, pad_element(pad_value, numerics.dtype_of(x)), x.dtype)
    inside = box(region)
    result[inside] = x[inside]
    return result


# --- filling -------------------------------------------------------------------------------------


def _infer_fillpad(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    check_pad(call)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "x")),)


def _fillpad(x: Array, pad_value: Arg, valid: dict[str, Valid]) -> Array:
    return pad_region(x, valid["x"], pad_value)


@op(
    infer=_infer_fillpad,
    reference=_fillpad,
    takes_valid=True,
    family=VECTOR,
    traits=Trait.ELEMENTWISE,
    cost=Cost.PAD,
    valid=valid.full,
    seed_region=SeedRegion.TRACKED,
)
def fillpad(x: Shaped, pad_value: PadValue | float = PadValue.zero) -> Shaped:
    """Fill the padding outside the valid region; the result is valid everywhere.

    x: a tile, or a view that is loaded first
    pad_value: `pl.PadValue.zero`, `.min` or `.max`, or 0, -inf, inf. Use the neutral element of the
        next reduction: min for a maximum, zero for a sum. Floats get infinities, integers the
        limits of their type
    result: x's shape and dtype

    Example: `scores = pl.fillpad(scores, pad_value=pl.PadValue.min)`
    """
    ...


@composition(infer=_infer_fillpad)
def fillpad_inplace(x: Shaped, pad_value: PadValue | float = PadValue.zero) -> Shaped:
    """The tile-level `pl.fillpad` that reuses x's buffer; in Tilelet it also returns a new value.

    x: a tile; pad_value: as in `pl.fillpad`
    result: x's shape and dtype, valid everywhere

    Example: `scores = pl.tile.fillpad_inplace(scores, pl.PadValue.min)`
    """
    return fillpad(x, pad_value)


def _infer_fillpad_expand(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    shape = infer.constant_shape(call, "shape")
    check_pad(call)
    infer.check_rank(call, "shape", len(shape), len(x.shape))
    if any(new < old for new, old in zip(shape, x.shape)):
        why = "the new shape must hold the old one"
        raise ShapeMismatch(call.shown, call.at("x"), x.shape, call.at("shape"), shape, why)
    return (TileType(shape, x.dtype, infer.vector_space(call, "x")),)


def _fillpad_expand(
    x: Array, shape: tuple[int, ...], pad_value: Arg, valid: dict[str, Valid]
) -> Array:
    return pad_region(x, valid["x"], pad_value, tuple(shape))


@op(
    infer=_infer_fillpad_expand,
    reference=_fillpad_expand,
    takes_valid=True,
    family=VECTOR,
    valid=valid.full,
    era="HEAD",
    traits=Trait.ELEMENTWISE,
    seed_region=SeedRegion.TRACKED,
    cost=Cost.PAD,
)
def fillpad_expand(x: Shaped, shape: Ints, pad_value: PadValue | float = PadValue.zero) -> Shaped:
    """Copy into a larger tile and fill the padding.

    x: a tile; shape: constants, each at least x's own; pad_value: as in `pl.fillpad`
    result: a tile of `shape`, valid everywhere; to repeat elements, see `pl.row_expand`

    Example: `q = pl.fillpad_expand(q_heads, [16, 128])`
    """
    ...


# --- setting the region --------------------------------------------------------------------------


def check_valid_extent(call: Call, param: str, axis: int, entry: Arg, extent: Dim) -> None:
    """Check that a constant valid extent fits its axis."""
    wanted = infer.int_of(entry)
    if wanted is not None and (wanted < 0 or (isinstance(extent, int) and wanted > extent)):
        raise ValidShapeTooLarge(call.at(param), axis, wanted, extent)


def _infer_set_validshape(call: Call) -> infer.Types:
    x = infer.shaped_type(call, "x")
    infer.check_rank(call, "x", len(x.shape), 2)
    for axis, param in enumerate(("rows", "cols")):
        infer.integer(call, param)
        check_valid_extent(call, param, axis, call[param], x.shape[axis])
    return (x,)


def _set_validshape(x: Array, rows: int, cols: int) -> Array:
    return np.array(x)


def _valid_marked(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    return valid.check_region((args["rows"], args["cols"]), result_shape)


@op(
    infer=_infer_set_validshape,
    reference=_set_validshape,
    engine=Engine.NONE,
    plane=Plane.BOTH,
    on_chip=("x",),
    view="x",
    valid=_valid_marked,
    era="APR",
    traits=Trait.TILE_VIEW | Trait.ELEMENTWISE | Trait.CHECKED,
    seed_region=SeedRegion.TRACKED,
    limits=(limits.REGION_EXTENT,),
)
def set_validshape(x: Shaped, rows: Int, cols: Int) -> Shaped:
    """Set the valid region of a value; no data is moved.

    x: a 2-D tile, or a view in the control program
    rows, cols: the valid region, constant or not, at most x's shape
    result: the same elements with that region; inside a scope, elements outside read as zero

    Example: `tail = pl.set_validshape(tile, rows_left, 128)`
    """
    ...
