"""Reductions along rows (last axis) or columns (second-last axis). Only the valid region counts."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tilelet import dtypes, numerics
from tilelet.dtypes import Array, DType
from tilelet.ir.spec import (
    Call,
    Cost,
    OpFields,
    Trait,
    composition,
    op,
    shape_of,
)
from tilelet.ir.types import TileType
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Shaped
from tilelet.ops.families import VECTOR
from tilelet.ops.infer import NUMBERS
from tilelet.ops.views import reshape

__all__ = [
    "col_argmax",
    "col_argmin",
    "col_max",
    "col_min",
    "col_prod",
    "col_sum",
    "row_argmax",
    "row_argmin",
    "row_max",
    "row_min",
    "row_prod",
    "row_sum",
]

_ROW, _COL = -1, -2


def _reduction(
    name: str, axis: int, function: Callable[[Array], Array], result: DType | None = None
) -> OpFields:
    """Return the spec fields of a reduction of `x` along `axis`, which keeps extent 1."""

    def infer_types(call: Call) -> infer.Types:
        x = infer.tile(call, "x")
        infer.at_least_2d(call, "x", x)
        infer.check_dtype(call, "x", x.dtype, NUMBERS)
        infer.scratch(call, "tmp_tile")
        shape = [*x.shape]
        shape[axis] = 1
        return (TileType(tuple(shape), result or x.dtype, infer.vector_space(call, "x")),)

    def reference(x: Array, tmp_tile: Array | None) -> Array:
        return _of_region(x, axis, function, result)

    return {
        "infer": infer_types,
        "reference": reference,
        **VECTOR,
        "traits": Trait.ARITHMETIC | (Trait.NONE if result else Trait.FOLD),
        "cost": Cost.ROW_REDUCE if axis == _ROW else Cost.COL_REDUCE,
        "reduces": axis,
        "valid": valid.reduced(name, axis),
        "cut_to_valid": True,
    }


def _of_region(
    x: Array, axis: int, function: Callable[[Array], Array], result: DType | None = None
) -> Array:
    if x.size:
        return function(x)
    # No rows, nothing to compute. (The valid rule rejects an empty reduction axis.)
    shape = [*x.shape]
    shape[axis] = 1
    return np.zeros(shape, result.numpy if result else x.dtype)


@op(family=_reduction("row_sum", _ROW, numerics.row_sum))
def row_sum(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Sum of each row.

    x: `[M, N]` of floats or integers (integers wrap)
    tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]`, same dtype. Summed in eight lanes that are then added pairwise; BF16 and FP16
        are summed in FP32 and rounded once

    Example: `l = pl.row_sum(p)`
    """
    ...


@op(family=_reduction("row_max", _ROW, numerics.row_max))
def row_max(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Maximum of each row.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]`, same dtype; NaN if the row contains one

    Example: `m = pl.row_max(scores)`
    """
    ...


@op(family=_reduction("row_min", _ROW, numerics.row_min))
def row_min(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Minimum of each row.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]`, same dtype; NaN if the row contains one

    Example: `lowest = pl.row_min(x)`
    """
    ...


@op(era="HEAD", family=_reduction("row_prod", _ROW, numerics.row_prod))
def row_prod(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Product of each row, in the order of `pl.row_sum`.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]`, same dtype

    Example: `p = pl.row_prod(x)`
    """
    ...


@op(era="HEAD", family=_reduction("row_argmax", _ROW, numerics.row_argmax, dtypes.INT32))
def row_argmax(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Column of each row's maximum.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]` INT32; the first among equals; the first NaN, if any

    Example: `token = pl.row_argmax(logits)`
    """
    ...


@op(era="HEAD", family=_reduction("row_argmin", _ROW, numerics.row_argmin, dtypes.INT32))
def row_argmin(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Column of each row's minimum.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[M, 1]` INT32; the first among equals; the first NaN, if any

    Example: `nearest = pl.row_argmin(distances)`
    """
    ...


def _col_sum(x: Array, tmp_tile: Array | None) -> Array:
    return _of_region(x, _COL, partial(numerics.col_sum, in_pairs=tmp_tile is not None))


_COL_SUM: OpFields = {**_reduction("col_sum", _COL, numerics.col_sum), "reference": _col_sum}


@op(era="APR", family=_COL_SUM)
def col_sum(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Sum of each column, rows in ascending order.

    x: `[M, N]` of floats or integers (integers wrap)
    tmp_tile: scratch tile; if given, FP16 rows are added pairwise, these sums pairwise again, and
        so on (an odd row joins the first pair), as the device then adds all floats
    result: `[1, N]`, same dtype. FP16 sums are rounded at every step, BF16 sums once, from FP32

    Example: `total = pl.col_sum(x)`
    """
    ...


@op(era="APR", family=_reduction("col_max", _COL, numerics.col_max))
def col_max(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Maximum of each column.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[1, N]`, same dtype; NaN if the column contains one

    Example: `m = pl.col_max(x)`
    """
    ...


@op(era="APR", family=_reduction("col_min", _COL, numerics.col_min))
def col_min(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Minimum of each column.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[1, N]`, same dtype; NaN if the column contains one

    Example: `lowest = pl.col_min(x)`
    """
    ...


@op(era="HEAD", family=_reduction("col_prod", _COL, numerics.col_prod))
def col_prod(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Product of each column, rows in ascending order.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[1, N]`, same dtype

    Example: `p = pl.col_prod(x)`
    """
    ...


@op(era="HEAD", family=_reduction("col_argmax", _COL, numerics.col_argmax, dtypes.INT32))
def col_argmax(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Row of each column's maximum.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[1, N]` INT32; the first among equals; the first NaN, if any

    Example: `best = pl.col_argmax(x)`
    """
    ...


@op(era="HEAD", family=_reduction("col_argmin", _COL, numerics.col_argmin, dtypes.INT32))
def col_argmin(x: Shaped, tmp_tile: Shaped | None = None) -> Shaped:
    """Row of each column's minimum.

    x: `[M, N]` of floats or integers; tmp_tile: scratch tile of tile-level code, ignored
    result: `[1, N]` INT32; the first among equals; the first NaN, if any

    Example: `best = pl.col_argmin(x)`
    """
    ...


# --- the early tile-level form, along a chosen axis ----------------------------------------------


_OF_TWO = {"max": "maximum", "min": "minimum"}


def _infer_along(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    infer.check_rank(call, "x", len(x.shape), 2)
    infer.check_dtype(call, "x", x.dtype, NUMBERS)
    of_two = _OF_TWO.get(call.shown.rpartition(".")[2])
    if of_two is not None and not infer.is_integer(call["axis"]):
        # A second value in place of the axis: the user means NumPy's `maximum`.
        helps = [f"element by element, of two values: `pl.{of_two}(x, y)`"]
        raise infer.bad(call, "axis", "a constant integer", helps)
    axis = infer.axis(call, "axis", 2)
    shape = [*x.shape]
    shape[axis] = 1
    if not infer.flag(call, "keepdim"):
        del shape[axis]
    return (TileType(tuple(shape), x.dtype, infer.vector_space(call, "x")),)


def _along(
    row: Callable[[Shaped], Shaped],
    col: Callable[[Shaped], Shaped],
    x: Shaped,
    axis: int,
    keepdim: bool,
) -> Shaped:
    reduced = row(x) if axis % 2 else col(x)
    if keepdim:
        return reduced
    rows, columns = shape_of(x)
    return reshape(reduced, (rows if axis % 2 else columns,))


@composition(name="tile.sum", infer=_infer_along)
def tile_sum(x: Shaped, axis: int, keepdim: bool = False) -> Shaped:
    """Sum along an axis: the early form of `pl.row_sum` (axis 1) and `pl.col_sum` (axis 0).

    x: `[M, N]`; axis: 0, 1, -1 or -2; keepdim: whether to keep the axis with extent 1
    result: same dtype

    Example: `l = pl.tile.sum(p, axis=1, keepdim=True)`
    """
    return _along(row_sum, col_sum, x, axis, keepdim)


@composition(name="tile.max", infer=_infer_along)
def tile_max(x: Shaped, axis: int, keepdim: bool = False) -> Shaped:
    """Maximum along an axis: the early form of `pl.row_max` (axis 1) and `pl.col_max` (axis 0).

    x: `[M, N]`; axis: 0, 1, -1 or -2; keepdim: whether to keep the axis with extent 1
    result: same dtype

    Example: `m = pl.tile.max(s, axis=1, keepdim=True)`
    """
    return _along(row_max, col_max, x, axis, keepdim)


@composition(name="tile.min", infer=_infer_along)
def tile_min(x: Shaped, axis: int, keepdim: bool = False) -> Shaped:
    """Minimum along an axis: the early form of `pl.row_min` (axis 1) and `pl.col_min` (axis 0).

    x: `[M, N]`; axis: 0, 1, -1 or -2; keepdim: whether to keep the axis with extent 1
    result: same dtype

    Example: `m = pl.tile.min(s, axis=1, keepdim=True)`
    """
    return _along(row_min, col_min, x, axis, keepdim)
