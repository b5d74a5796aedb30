"""Bitwise ops and shifts on integers and, where meaningful, BOOL."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from tilelet import numerics
from tilelet.ir.spec import Cost, OpFields, SeedRegion, Trait
from tilelet.ops import valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.families import VECTOR, one, two, with_number
from tilelet.ops.infer import BITS, INTEGERS

__all__ = [
    "and_",
    "ands",
    "not_",
    "or_",
    "ors",
    "shl",
    "shls",
    "shr",
    "shrs",
    "xor",
    "xors",
]

_BINARY: OpFields = {
    **VECTOR,
    "traits": Trait.POINTWISE,
    "valid": valid.meet("lhs", "rhs"),
    "seed_region": SeedRegion.LEFT,
}
_UNARY: OpFields = {
    **VECTOR,
    "traits": Trait.POINTWISE,
    "valid": valid.kept("x"),
}


@two(_BINARY, numerics.and_, Cost.LOGIC, BITS)
def and_(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Bitwise and.

    lhs, rhs: integers or BOOL, of one shape or broadcast as in `pl.add`; one may be a number
    result: the larger shape, promoted dtype

    Example: `low = pl.and_(bits, mask)`
    """
    ...


@with_number(_BINARY, numerics.and_, Cost.LOGIC, BITS)
def ands(lhs: Shaped, rhs: Number) -> Shaped:
    """Bitwise and with a number.

    lhs: a tile of integers or BOOL; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `low = pl.ands(bits, 0xFF)`
    """
    ...


@two(_BINARY, numerics.or_, Cost.LOGIC, BITS)
def or_(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Bitwise or.

    lhs, rhs: integers or BOOL, of one shape or broadcast as in `pl.add`; one may be a number
    result: the larger shape, promoted dtype

    Example: `both = pl.or_(a, b)`
    """
    ...


@with_number(_BINARY, numerics.or_, Cost.LOGIC, BITS)
def ors(lhs: Shaped, rhs: Number) -> Shaped:
    """Bitwise or with a number.

    lhs: a tile of integers or BOOL; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `marked = pl.ors(bits, 1)`
    """
    ...


@two(_BINARY, numerics.xor, Cost.LOGIC, BITS, "tmp")
def xor(lhs: Shaped, rhs: Shaped | Number, tmp: Shaped | None = None) -> Shaped:
    """Bitwise exclusive or.

    lhs, rhs: integers or BOOL, of one shape or broadcast as in `pl.add`; one may be a number
    tmp: scratch tile, accepted for compatibility and ignored
    result: the larger shape, promoted dtype

    Example: `differ = pl.xor(a, b)`
    """
    ...


@with_number(_BINARY, numerics.xor, Cost.LOGIC, BITS, "tmp")
def xors(lhs: Shaped, rhs: Number, tmp: Shaped | None = None) -> Shaped:
    """Bitwise exclusive or with a number.

    lhs: a tile of integers or BOOL; rhs: a number, which takes the tile's dtype
    tmp: scratch tile, accepted for compatibility and ignored
    result: the tile's shape and dtype

    Example: `flipped = pl.xors(bits, 0x80)`
    """
    ...


@one(_UNARY, numerics.not_, Cost.LOGIC, BITS)
def not_(x: Shaped) -> Shaped:
    """Bitwise complement; logical for BOOL.

    x: integers or BOOL
    result: x's shape and dtype

    Example: `inverse = pl.not_(mask)`
    """
    ...


@two(_BINARY, numerics.shl, Cost.LOGIC, INTEGERS)
def shl(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """`lhs << rhs`; bits shifted out are lost.

    lhs, rhs: integers, of one shape or broadcast as in `pl.add`; one may be a number
    result: the larger shape, promoted dtype; 0 if the amount is negative or at least the width

    Example: `shifted = pl.shl(bits, 4)`
    """
    ...


@with_number(_BINARY, numerics.shl, Cost.ADDS, INTEGERS)
def shls(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs << rhs` for a number `rhs`.

    lhs: a tile of integers; rhs: a number
    result: the tile's shape and dtype

    Example: `exponent = pl.shls(bits, 23)`
    """
    ...


@two(_BINARY, numerics.shr, Cost.LOGIC, INTEGERS)
def shr(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """`lhs >> rhs`: arithmetic for signed types, logical for unsigned.

    lhs, rhs: integers, of one shape or broadcast as in `pl.add`; one may be a number
    result: the larger shape, promoted dtype; only the sign if the amount is at least the width

    Example: `high = pl.shr(bits, 16)`
    """
    ...


@with_number(_BINARY, numerics.shr, Cost.ADDS, INTEGERS)
def shrs(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs >> rhs` for a number `rhs`.

    lhs: a tile of integers; rhs: a number
    result: the tile's shape and dtype

    Example: `exponent = pl.shrs(bits, 23)`
    """
    ...
