"""Comparison and selection."""

# The dots say that a body is empty on purpose: an op is its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import BadChoice
from tilelet.ir.spec import Call, Cost, Engine, Plane, Trait, op
from tilelet.ir.types import TileType
from tilelet.numerics.casts import Array
from tilelet.numerics.elementwise import widen
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.infer import ORDERED
from tilelet.ops.reference import matched
from tilelet.syntax.enums import CmpType

if TYPE_CHECKING:
    from tilelet.syntax.types import Tile

__all__ = [
    "cmp",
    "cmps",
    "sel",
    "sels",
]

_CHOICE = Trait.ELEMENTWISE | Trait.ARITHMETIC
_BINARY: dict[str, Any] = {
    "engine": Engine.VEC,
    "plane": Plane.SCOPE,
    "traits": _CHOICE,
    "valid": valid.meet("lhs", "rhs"),
}
_COMPARE = {
    CmpType.EQ: np.equal,
    CmpType.NE: np.not_equal,
    CmpType.LT: np.less,
    CmpType.LE: np.less_equal,
    CmpType.GT: np.greater,
    CmpType.GE: np.greater_equal,
}


def comparison(kind: int | str | CmpType) -> CmpType:
    """The comparison that a code, a name or an enum member stands for; KeyError or ValueError."""
    return CmpType[kind.upper()] if isinstance(kind, str) else CmpType(kind)


def check_comparison(call: Call, param: str) -> None:
    """An argument must name a comparison."""
    kind = call[param]
    try:
        comparison(kind)
    except (KeyError, ValueError):
        choices = [f"{c.name} ({c.value})" for c in CmpType]
        raise BadChoice(call.at(param), call.shown, param, kind, choices) from None


def _infer_cmp(call: Call) -> infer.Types:
    check_comparison(call, "cmp_type")
    lhs = infer.tile(call, "lhs")
    result = infer.binary(call, allowed=ORDERED)
    return (TileType(result.shape, lhs.dtype, result.space),)


def _infer_cmps(call: Call) -> infer.Types:
    infer.scalar(call, "rhs")
    return _infer_cmp(call)


def cmp_mask(lhs: Array, rhs: Array | float, kind: int | str | CmpType) -> Array:
    """Where the comparison holds, as Booleans."""
    a, b = matched(lhs, rhs)
    if numerics.dtype_of(a).is_float:
        a, b = widen(a), widen(b)
    with np.errstate(invalid="ignore"):
        return np.asarray(_COMPARE[comparison(kind)](a, b))


def _cmp(lhs: Array, rhs: Array | float, cmp_type: int | str | CmpType) -> Array:
    return cmp_mask(lhs, rhs, cmp_type).astype(lhs.dtype)


@op(infer=_infer_cmp, reference=_cmp, era="APR", cost=Cost.COMPARE, **_BINARY)
def cmp(lhs: Shaped, rhs: Shaped | Number, cmp_type: CmpType | int | str = 0) -> Shaped:
    """Elementwise comparison: 1 where it holds, else 0, in the dtype of `lhs`.

    lhs: a tile; rhs: a tile of the same shape, or broadcast as in `pl.add`, or a number
    cmp_type: 0 to 5 for ==, !=, <, <=, >, >=, or "eq", "ne", "lt", "le", "gt", "ge"
    result: the larger shape. Comparisons with NaN are false, except !=. The device packs the mask
        into bits; here it is one element each, and `pl.sel` takes it as it is

    Example: `mask = pl.cmp(x, limit, cmp_type=4)`
    """
    ...


@op(infer=_infer_cmps, reference=_cmp, era="APR", cost=Cost.COMPARE, **_BINARY)
def cmps(lhs: Shaped, rhs: Number, cmp_type: CmpType | int | str = 0) -> Shaped:
    """`pl.cmp` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype; cmp_type: as in `pl.cmp`
    result: 1 or 0 in the tile's shape and dtype

    Example: `positive = pl.cmps(x, 0.0, cmp_type="gt")`
    """
    ...


def _infer_sel(call: Call) -> infer.Types:
    infer.scratch(call, "tmp")
    mask = infer.tile(call, "mask")
    if infer.is_scalar(call["lhs"]):
        infer.tile(call, "lhs")
    chosen = infer.binary(call, allowed=ORDERED)
    infer.same_shape(call, "mask", mask, "lhs", chosen)
    return (TileType(chosen.shape, chosen.dtype, infer.vector_space(call, "mask", "lhs", "rhs")),)


def _sel(mask: Array, lhs: Array, rhs: Array | float, tmp: Array | None) -> Array:
    a, b = matched(lhs, rhs)
    return np.where(np.asarray(mask) != 0, a, b)


@op(
    infer=_infer_sel,
    reference=_sel,
    engine=Engine.VEC,
    plane=Plane.SCOPE,
    valid=valid.meet("mask", "lhs", "rhs"),
    traits=_CHOICE,
    cost=Cost.SELECT,
)
def sel(mask: Shaped, lhs: Shaped, rhs: Shaped | Number, tmp: Shaped | None = None) -> Shaped:
    """`lhs` where `mask` is not 0, else `rhs`.

    mask: a tile, as `pl.cmp` gives; lhs: a tile of its shape; rhs: such a tile, or a number
    tmp: scratch tile of older code, not needed
    result: the mask's shape, the promoted dtype of lhs and rhs

    Example: `y = pl.sel(pl.cmp(x, 0.0, cmp_type="gt"), x, other)`
    """
    ...


def _infer_sels(call: Call) -> infer.Types:
    infer.scratch(call, "tmp")
    mask, x = infer.tile(call, "mask"), infer.tile(call, "x")
    infer.same_shape(call, "mask", mask, "x", x)
    infer.check_dtype(call, "x", x.dtype, ORDERED)
    infer.fitting_scalar(call, "scalar", "x", x.dtype)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "mask", "x")),)


def _sels(mask: Array, x: Array, tmp: Array | None, scalar: float) -> Array:
    return _sel(mask, x, scalar, tmp)


@op(
    infer=_infer_sels,
    reference=_sels,
    engine=Engine.VEC,
    plane=Plane.SCOPE,
    valid=valid.meet("mask", "x"),
    era="HEAD",
    traits=_CHOICE,
    cost=Cost.SELECT,
)
def sels(mask: Shaped, x: Shaped, tmp: Shaped | Tile | None, scalar: Number) -> Shaped:
    """`x` where `mask` is not 0, else a number.

    mask: a tile, as `pl.cmp` gives; x: a tile of its shape
    tmp: scratch tile, may be None; scalar: a number, which takes x's dtype
    result: x's shape and dtype

    Example: `masked = pl.sels(mask, scores, None, -3e38)`
    """
    ...
