"""The expand family: a tile `[M, N]` with a row vector `[M, 1]` or a column vector `[1, N]`.

A row vector holds one value per row, a column vector one per column.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import ShapeMismatch
from tilelet.dtypes import Array
from tilelet.ir.spec import (
    Call,
    Cost,
    OpFields,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import TileType
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.elementwise import exp
from tilelet.ops.families import VECTOR
from tilelet.ops.reference import of_two, to_element
from tilelet.ops.valid import Args, Operands

__all__ = [
    "col_expand",
    "col_expand_add",
    "col_expand_div",
    "col_expand_expdif",
    "col_expand_max",
    "col_expand_min",
    "col_expand_mul",
    "col_expand_sub",
    "expand_clone",
    "expands",
    "row_expand",
    "row_expand_add",
    "row_expand_div",
    "row_expand_expdif",
    "row_expand_max",
    "row_expand_min",
    "row_expand_mul",
    "row_expand_sub",
]

_ROW_AXIS, _COL_AXIS = -1, -2


def _check_vector(
    call: Call, x: str, tile: TileType, vec: str, vector: TileType, axis: int
) -> None:
    """Check that `vector` is `tile` with `axis` of extent 1; a column vector may have rank 1."""
    infer.at_least_2d(call, x, tile)
    wanted = tuple(1 if i - len(tile.shape) == axis else d for i, d in enumerate(tile.shape))
    fits = infer.stretches(vector.shape, tile.shape) and vector.shape[axis] == 1
    if vector.shape != wanted and not (axis == _COL_AXIS and fits):
        why = f"`{vec}` must have shape `[{', '.join(map(str, wanted))}]`"
        raise ShapeMismatch(call.shown, call.at(x), tile.shape, call.at(vec), vector.shape, why)


def _infer_with(vec: str, axis: int) -> Callable[[Call], infer.Types]:
    def infer_types(call: Call) -> infer.Types:
        x, vector = infer.tile(call, "x"), infer.tile(call, vec)
        _check_vector(call, "x", x, vec, vector, axis)
        return (infer.binary(call, "x", vec),)

    return infer_types


def _with_row(
    function: Callable[[Array, Array], Array], cost: Cost = Cost.ROW_BROADCAST
) -> OpFields:
    return _family(function, "row_vec", _ROW_AXIS, cost)


def _with_col(function: Callable[[Array, Array], Array]) -> OpFields:
    return _family(function, "col_vec", _COL_AXIS, Cost.BROADCAST)


def _family(function: Callable[[Array, Array], Array], vec: str, axis: int, cost: Cost) -> OpFields:
    return {
        "infer": _infer_with(vec, axis),
        "reference": of_two(function, "x", vec),
        **VECTOR,
        "traits": Trait.POINTWISE | Trait.ARITHMETIC,
        "cost": cost,
        "valid": valid.meet("x", vec),
    }


@op(family=_with_row(numerics.add))
def row_expand_add(x: Shaped, row_vec: Shaped) -> Shaped:
    """`x[i, j] + row_vec[i]`.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.row_expand_add(x, bias_per_row)`
    """
    ...


@op(family=_with_row(numerics.sub))
def row_expand_sub(x: Shaped, row_vec: Shaped) -> Shaped:
    """`x[i, j] - row_vec[i]`.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `p = pl.exp(pl.row_expand_sub(s, row_max))`
    """
    ...


@op(family=_with_row(numerics.mul))
def row_expand_mul(x: Shaped, row_vec: Shaped) -> Shaped:
    """`x[i, j] * row_vec[i]`.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `normed = pl.row_expand_mul(x, inv_rms)`
    """
    ...


@op(family=_with_row(numerics.div, Cost.ROW_DIVIDE))
def row_expand_div(x: Shaped, row_vec: Shaped) -> Shaped:
    """`x[i, j] / row_vec[i]`, correctly rounded.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `out = pl.row_expand_div(acc, row_sum)`
    """
    ...


@op(era="HEAD", family=_with_row(numerics.maximum))
def row_expand_max(x: Shaped, row_vec: Shaped) -> Shaped:
    """The greater of `x[i, j]` and `row_vec[i]`.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.row_expand_max(x, floor_per_row)`
    """
    ...


@op(era="HEAD", family=_with_row(numerics.minimum))
def row_expand_min(x: Shaped, row_vec: Shaped) -> Shaped:
    """The smaller of `x[i, j]` and `row_vec[i]`.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.row_expand_min(x, limit_per_row)`
    """
    ...


@composition(infer=_infer_with("row_vec", _ROW_AXIS), era="HEAD")
def row_expand_expdif(x: Shaped, row_vec: Shaped) -> Shaped:
    """`exp(x[i, j] - row_vec[i])`, the difference rounded first.

    x: `[M, N]`; row_vec: `[M, 1]`
    result: `[M, N]`, promoted dtype

    Example: `p = pl.row_expand_expdif(s, row_max)`
    """
    return exp(row_expand_sub(x, row_vec))


@op(era="HEAD", family=_with_col(numerics.add))
def col_expand_add(x: Shaped, col_vec: Shaped) -> Shaped:
    """`x[i, j] + col_vec[j]`.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_add(x, bias)`
    """
    ...


@op(family=_with_col(numerics.sub))
def col_expand_sub(x: Shaped, col_vec: Shaped) -> Shaped:
    """`x[i, j] - col_vec[j]`.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_sub(x, column_mean)`
    """
    ...


@op(family=_with_col(numerics.mul))
def col_expand_mul(x: Shaped, col_vec: Shaped) -> Shaped:
    """`x[i, j] * col_vec[j]`.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_mul(normed, gamma)`
    """
    ...


@op(family=_with_col(numerics.div))
def col_expand_div(x: Shaped, col_vec: Shaped) -> Shaped:
    """`x[i, j] / col_vec[j]`, correctly rounded.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_div(x, scale)`
    """
    ...


@op(era="HEAD", family=_with_col(numerics.maximum))
def col_expand_max(x: Shaped, col_vec: Shaped) -> Shaped:
    """The greater of `x[i, j]` and `col_vec[j]`.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_max(x, lower)`
    """
    ...


@op(era="HEAD", family=_with_col(numerics.minimum))
def col_expand_min(x: Shaped, col_vec: Shaped) -> Shaped:
    """The smaller of `x[i, j]` and `col_vec[j]`.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `y = pl.col_expand_min(x, upper)`
    """
    ...


@composition(infer=_infer_with("col_vec", _COL_AXIS), era="HEAD")
def col_expand_expdif(x: Shaped, col_vec: Shaped) -> Shaped:
    """`exp(x[i, j] - col_vec[j])`, the difference rounded first.

    x: `[M, N]`; col_vec: `[1, N]`
    result: `[M, N]`, promoted dtype

    Example: `p = pl.col_expand_expdif(s, column_max)`
    """
    return exp(col_expand_sub(x, col_vec))


# --- expansion to a shape -------------------------------------------------------------------------


def _infer_col_expand(call: Call) -> infer.Types:
    target, vector = infer.tile(call, "target"), infer.tile(call, "col_vec")
    _check_vector(call, "target", target, "col_vec", vector, _COL_AXIS)
    infer.same_dtype(call, "target", target.dtype, "col_vec", vector.dtype)
    return (TileType(target.shape, vector.dtype, infer.vector_space(call, "target", "col_vec")),)


def _to_shape(source: Array, shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(np.broadcast_to(source, shape))


def _col_expand(target: Array, col_vec: Array) -> Array:
    return _to_shape(col_vec, target.shape)


@op(
    infer=_infer_col_expand,
    reference=_col_expand,
    family=VECTOR,
    valid=valid.meet("target", "col_vec"),
    traits=Trait.ELEMENTWISE | Trait.KEEPS_VALID,
    cost=Cost.REPEATED_ROWS,
)
def col_expand(target: Shaped, col_vec: Shaped) -> Shaped:
    """Repeat a column vector in every row: `result[i, j] = col_vec[j]`.

    target: `[M, N]`, only its shape is used; col_vec: `[1, N]` of the same dtype
    result: `[M, N]`; `target` is not changed

    Example: `gamma_tile = pl.col_expand(x, gamma)`
    """
    ...


def _infer_row_expand(call: Call) -> infer.Types:
    target = infer.tile(call, "target")
    if call["row_vec"] is None:
        infer.at_least_2d(call, "target", target)
        return (TileType(target.shape, target.dtype, infer.vector_space(call, "target")),)
    vector = infer.tile(call, "row_vec")
    _check_vector(call, "target", target, "row_vec", vector, _ROW_AXIS)
    infer.same_dtype(call, "target", target.dtype, "row_vec", vector.dtype)
    return (TileType(target.shape, vector.dtype, infer.vector_space(call, "target", "row_vec")),)


def _row_expand(target: Array, row_vec: Array | None) -> Array:
    return _to_shape(target[..., :1] if row_vec is None else row_vec, target.shape)


def _valid_row_expand(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    if "row_vec" in operands:
        return valid.meet("target", "row_vec")(operands, result_shape, args)
    rows = operands["target"][1]
    return (*rows[:-1], result_shape[-1] if rows[-1] else 0)


@op(
    infer=_infer_row_expand,
    reference=_row_expand,
    family=VECTOR,
    valid=_valid_row_expand,
    traits=Trait.ELEMENTWISE | Trait.KEEPS_VALID,
    cost=Cost.FILLED_ROWS,
)
def row_expand(target: Shaped, row_vec: Shaped | None = None) -> Shaped:
    """Repeat a row vector in every column: `result[i, j] = row_vec[i]`.

    target: `[M, N]`, only its shape is used; row_vec: `[M, 1]` of the same dtype. The older form
        `row_expand(src)` repeats the first column of `src`
    result: `[M, N]`; `target` is not changed

    Example: `scale_tile = pl.row_expand(x, scale)`
    """
    ...


def _infer_expands(call: Call) -> infer.Types:
    target = infer.tile(call, "target")
    infer.fitting_scalar(call, "scalar", "target", target.dtype)
    return (TileType(target.shape, target.dtype, infer.vector_space(call, "target")),)


def _expands(target: Array, scalar: float) -> Array:
    return _to_shape(to_element(scalar, numerics.dtype_of(target)), target.shape)


@op(
    infer=_infer_expands,
    reference=_expands,
    family=VECTOR,
    valid=valid.kept("target"),
    traits=Trait.POINTWISE,
    cost=Cost.COPY,
)
def expands(target: Shaped, scalar: Number) -> Shaped:
    """A tile of `target`'s shape and dtype filled with a number, constant or not.

    target: only its shape and dtype are used; scalar: a number
    result: the same shape and dtype; `target` is not changed

    Example: `bias_tile = pl.expands(x, bias)`
    """
    ...


def _infer_expand_clone(call: Call) -> infer.Types:
    src, target = infer.tile(call, "src"), infer.tile(call, "target")
    infer.same_dtype(call, "src", src.dtype, "target", target.dtype)
    fits = len(src.shape) == len(target.shape) and all(
        s in (1, t) for s, t in zip(src.shape, target.shape)
    )
    if not fits:
        why = "each extent of `src` must be 1 or that of `target`"
        raise ShapeMismatch(
            call.shown, call.at("src"), src.shape, call.at("target"), target.shape, why
        )
    return (TileType(target.shape, src.dtype, infer.vector_space(call, "src", "target")),)


def _expand_clone(src: Array, target: Array) -> Array:
    return _to_shape(src, target.shape)


@op(
    infer=_infer_expand_clone,
    reference=_expand_clone,
    family=VECTOR,
    valid=valid.meet("src"),
    era="APR",
    traits=Trait.POINTWISE,
    cost=Cost.COPY,
)
def expand_clone(src: Shaped, target: Shaped) -> Shaped:
    """`src` repeated along its axes of extent 1 until it has the shape of `target`.

    src: extents of 1 or those of `target`, same rank and dtype
    target: its shape is used; a parameter declared as an output is written
    result: a tile of `target`'s shape, or that output under its new name

    Example: `heads = pl.expand_clone(one_head, all_heads)`
    """
    ...
