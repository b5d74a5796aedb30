"""Comparison and selection."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet import dtypes, numerics
from tilelet.diag.catalogue.ops import BadChoice, ShapeMismatch
from tilelet.dtypes import Array
from tilelet.ir.core import Value
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
from tilelet.numerics.elementwise import widen
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.creation import full
from tilelet.ops.families import VECTOR
from tilelet.ops.infer import ORDERED
from tilelet.ops.reference import match_dtypes
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
_COMPARISON: OpFields = {
    **VECTOR,
    "traits": _CHOICE | Trait.JUMPS,
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
    """Return the comparison for a code, a name or an enum member; KeyError or ValueError."""
    return CmpType[kind.upper()] if isinstance(kind, str) else CmpType(kind)


def check_comparison(call: Call, param: str) -> None:
    """Check that an argument names a comparison."""
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
    """Return where the comparison holds, as booleans."""
    a, b = match_dtypes(lhs, rhs)
    if numerics.dtype_of(a).is_float:
        a, b = widen(a), widen(b)
    with np.errstate(invalid="ignore"):
        return np.asarray(_COMPARE[comparison(kind)](a, b))


def _cmp(lhs: Array, rhs: Array | float, cmp_type: int | str | CmpType) -> Array:
    return cmp_mask(lhs, rhs, cmp_type).astype(lhs.dtype)


@op(infer=_infer_cmp, reference=_cmp, era="APR", cost=Cost.COMPARE, family=_COMPARISON)
def cmp(lhs: Shaped, rhs: Shaped | Number, cmp_type: CmpType | int | str = 0) -> Shaped:
    """Elementwise comparison: 1 where it holds, else 0, in the dtype of `lhs`.

    lhs: a tile; rhs: a tile of the same shape, or broadcast as in `pl.add`, or a number
    cmp_type: 0 to 5 for ==, !=, <, <=, >, >=, or "eq", "ne", "lt", "le", "gt", "ge"
    result: the larger shape. Comparisons with NaN are false, except !=. Use it with `pl.sel`;
        `pl.tile.cmp` returns one bit per element instead, for `pl.tile.sel`

    Example: `mask = pl.cmp(x, limit, cmp_type=4)`
    """
    ...


@op(infer=_infer_cmps, reference=_cmp, era="APR", cost=Cost.COMPARE, family=_COMPARISON)
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
    a, b = match_dtypes(lhs, rhs)
    return np.where(np.asarray(mask) != 0, a, b)


@op(
    infer=_infer_sel,
    reference=_sel,
    family=VECTOR,
    valid=valid.meet("mask", "lhs", "rhs"),
    traits=_CHOICE,
    cost=Cost.SELECT,
    moves=("lhs", "rhs"),
)
def sel(mask: Shaped, lhs: Shaped, rhs: Shaped | Number, tmp: Shaped | None = None) -> Shaped:
    """`lhs` where `mask` is not 0, else `rhs`.

    mask: a tile, as returned by `pl.cmp`; lhs: a tile of its shape; rhs: such a tile, or a number
    tmp: scratch tile, accepted for compatibility and ignored
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
    family=VECTOR,
    valid=valid.meet("mask", "x"),
    era="HEAD",
    traits=_CHOICE,
    cost=Cost.SELECT,
    moves=("x",),
)
def sels(mask: Shaped, x: Shaped, tmp: Shaped | Tile | None, scalar: Number) -> Shaped:
    """`x` where `mask` is not 0, else a number.

    mask: a tile, as returned by `pl.cmp`; x: a tile of its shape
    tmp: scratch tile, may be None; scalar: a number, which takes x's dtype; for an unsigned dtype,
        a negative constant stands for the number with the same bits
    result: x's shape and dtype

    Example: `masked = pl.sels(mask, scores, None, -3e38)`
    """
    ...


# --- masks of one bit per element ----------------------------------------------------------------

_PER_BYTE = 8
_ROW_BYTES = 32  # block size of on-chip memory
_CARRIERS = (
    dtypes.UINT8, dtypes.INT8, dtypes.UINT16, dtypes.INT16, dtypes.UINT32, dtypes.INT32,
)  # fmt: skip


def _bytes_for(columns: int) -> int:
    return -(-columns // _PER_BYTE)


def _packed_type(compared: TileType) -> TileType:
    *rows, columns = compared.shape
    width = -(-_bytes_for(columns) // _ROW_BYTES) * _ROW_BYTES
    return TileType((*rows, width), dtypes.UINT8, compared.space)


def _infer_packed_cmp(call: Call) -> infer.Types:
    (compared,) = _infer_cmp(call)
    assert isinstance(compared, TileType)
    return (_packed_type(compared),)


def _infer_packed_cmps(call: Call) -> infer.Types:
    infer.scalar(call, "rhs")
    return _infer_packed_cmp(call)


def _packed_cmp(
    lhs: Array, rhs: Array | float, cmp_type: int | str | CmpType, result_type: TileType
) -> Array:
    bits = np.packbits(cmp_mask(lhs, rhs, cmp_type), axis=-1, bitorder="little")
    result = np.zeros(result_type.shape, np.uint8)
    result[..., : bits.shape[-1]] = bits
    return result


def _valid_packed(operands: valid.Operands, result_shape: Shape, args: valid.Args) -> Valid:
    compared = np.broadcast_shapes(*(shape for shape, _ in operands.values()))
    *rows, columns = valid.meet("lhs", "rhs")(operands, compared, args)
    return (*rows, _bytes_for(columns))


_PACKED: OpFields = {
    "reference": _packed_cmp,
    "takes_result_type": True,
    **VECTOR,
    "traits": Trait.ARITHMETIC,
    "valid": _valid_packed,
    "era": "APR",
    "cost": Cost.COMPARE,
}


@op(name="tile.cmp", infer=_infer_packed_cmp, family=_PACKED)
def tile_cmp(lhs: Shaped, rhs: Shaped | Number, cmp_type: CmpType | int | str = 0) -> Shaped:
    """`pl.cmp` with a mask of one bit per element, as on the device.

    lhs, rhs, cmp_type: as in `pl.cmp`
    result: UINT8 bytes: bit `j % 8` of byte `j // 8` of a row is the result for column j. N columns
        take N / 8 bytes, rounded up to a multiple of 32

    Example: `mask = pl.tile.cmp(x, limit, cmp_type=4)`
    """
    ...


@op(name="tile.cmps", infer=_infer_packed_cmps, family=_PACKED)
def tile_cmps(lhs: Shaped, rhs: Number, cmp_type: CmpType | int | str = 0) -> Shaped:
    """`pl.tile.cmp` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype; cmp_type: as in `pl.cmp`
    result: one bit per element, as in `pl.tile.cmp`

    Example: `positive = pl.tile.cmps(x, 0.0, cmp_type="gt")`
    """
    ...


def _check_bits(call: Call, chosen: TileType) -> None:
    """Check a mask of bits: one row per row, one bit per column."""
    mask = infer.tile(call, "mask")
    infer.check_dtype(call, "mask", mask.dtype, _CARRIERS)
    width = mask.shape[-1] * mask.dtype.itemsize
    if mask.shape[:-1] != chosen.shape[:-1] or width < _bytes_for(chosen.shape[-1]):
        why = "a mask has one bit for each element, in as many rows"
        at, x = call.at("mask"), "lhs" if "lhs" in call.args else "x"
        raise ShapeMismatch(call.shown, at, mask.shape, call.at(x), chosen.shape, why)


def _is_packed(mask: TileType) -> bool:
    return not mask.dtype.is_float and mask.dtype is not dtypes.BOOL


def _infer_packed_sel(call: Call) -> infer.Types:
    if not _is_packed(infer.tile(call, "mask")):
        return _infer_sel(call)
    infer.scratch(call, "tmp")
    infer.tile(call, "lhs")
    chosen = infer.binary(call, allowed=ORDERED)
    _check_bits(call, chosen)
    return (TileType(chosen.shape, chosen.dtype, infer.vector_space(call, "mask", "lhs", "rhs")),)


def _unpack_mask(mask: Array, columns: int) -> Array:
    """Unpack a mask of bits to one element each."""
    if numerics.dtype_of(mask).is_float or mask.dtype == np.bool_:
        return mask
    carriers: object = np.array(mask, order="C")
    return np.unpackbits(carriers.view(np.uint8), axis=-1, count=columns, bitorder="little")


def _packed_sel(mask: Array, lhs: Array, rhs: Array | float, tmp: Array | None) -> Array:
    shape = np.broadcast_shapes(lhs.shape, rhs.shape if isinstance(rhs, np.ndarray) else ())
    return _sel(_unpack_mask(mask, shape[-1]), lhs, rhs, tmp)


_PACKED_SELECT: OpFields = {
    **VECTOR,
    "traits": Trait.ARITHMETIC,
    "cost": Cost.SELECT,
}


@op(
    name="tile.sel",
    infer=_infer_packed_sel,
    reference=_packed_sel,
    valid=valid.meet("lhs", "rhs"),
    family=_PACKED_SELECT,
    moves=("lhs", "rhs"),
)
def tile_sel(mask: Shaped, lhs: Shaped, rhs: Shaped | Number, tmp: Shaped | None = None) -> Shaped:
    """`pl.sel` by a mask of one bit per element.

    mask: as returned by `pl.tile.cmp`, or integers of 8, 16 or 32 bits, read from the lowest bit;
        floats and BOOL are one element each, as in `pl.sel`
    lhs, rhs, tmp: as in `pl.sel`
    result: the shape of lhs, the promoted dtype of lhs and rhs

    Example: `y = pl.tile.sel(pl.tile.cmps(x, 0.0, cmp_type="gt"), x, other)`
    """
    ...


def _infer_packed_sels(call: Call) -> infer.Types:
    if not _is_packed(infer.tile(call, "mask")):
        return _infer_sels(call)
    infer.scratch(call, "tmp")
    x = infer.tile(call, "x")
    infer.check_dtype(call, "x", x.dtype, ORDERED)
    infer.fitting_scalar(call, "scalar", "x", x.dtype)
    _check_bits(call, x)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "mask", "x")),)


def _packed_sels(mask: Array, x: Array, tmp: Array | None, scalar: float) -> Array:
    return _packed_sel(mask, x, scalar, tmp)


@op(
    name="tile.sels",
    infer=_infer_packed_sels,
    reference=_packed_sels,
    valid=valid.kept("x"),
    era="HEAD",
    family=_PACKED_SELECT,
    moves=("x",),
)
def tile_sels(mask: Shaped, x: Shaped, tmp: Shaped | None, scalar: Number) -> Shaped:
    """`pl.sels` by a mask of one bit per element.

    mask: as in `pl.tile.sel`; x, tmp, scalar: as in `pl.sels`
    result: x's shape and dtype

    Example: `masked = pl.tile.sels(mask, scores, None, -3e38)`
    """
    ...


def _infer_select(call: Call) -> infer.Types:
    mask = infer.tile(call, "cond")
    tiles = [name for name in ("on_true", "on_false") if isinstance(call[name], Value)]
    if not tiles:
        raise infer.bad(call, "on_true", "a tile, if `on_false` is a number")
    chosen = infer.tile(call, tiles[0])
    if len(tiles) == 2:
        other = infer.tile(call, "on_false")
        infer.same_dtype(call, "on_true", chosen.dtype, "on_false", other.dtype)
        if other.shape != chosen.shape:
            at, to = call.at("on_true"), call.at("on_false")
            raise ShapeMismatch(call.shown, at, chosen.shape, to, other.shape, "must be equal")
    return (TileType(chosen.shape, chosen.dtype, mask.space or chosen.space),)


@composition(name="tile.select", infer=_infer_select, era="HEAD")
def tile_select(cond: Shaped, on_true: Shaped | Number, on_false: Shaped | Number) -> Shaped:
    """Select between two values per element by a mask; needs no scratch tile.

    cond: as returned by `pl.cmp` or `pl.cmps`, of elements or of bits
    on_true, on_false: tiles of one shape and dtype; one of them may be a number
    result: their shape and dtype

    Example: `positive = pl.tile.select(pl.cmps(x, 0.0, cmp_type="gt"), x, 0.0)`
    """
    values: Any = (cond, on_true, on_false)
    tile = values[1] if isinstance(on_true, Value) else values[2]
    first = values[1]
    if tile is not first:
        first = full(tile.type.shape, tile.type.dtype, values[1])
    by_bits = values[0].type.dtype is dtypes.UINT8 or values[0].type.shape != tile.type.shape
    choose: Any = tile_sel if by_bits else sel
    return choose(values[0], first, values[2])
