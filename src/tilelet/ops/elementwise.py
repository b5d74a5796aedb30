"""Elementwise ops: arithmetic, functions, bits, comparison and selection.

All work on the valid region. Two tiles are of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`, in
either order; leading axes of extent 1 may be missing from one of them. The result has the promoted
dtype; a number takes the dtype of the tile.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import Any

import numpy as np

from tilelet import numerics
from tilelet.dtypes import Array
from tilelet.ir.spec import (
    Call,
    Cost,
    OpFields,
    SeedRegion,
    Trait,
    composition,
    op,
)
from tilelet.ir.types import TileType
from tilelet.numerics.elementwise import widen
from tilelet.ops import infer, limits, valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.families import VECTOR, one, two, with_number
from tilelet.ops.infer import FLOATS, ORDERED
from tilelet.ops.reference import of_two, to_element

__all__ = [
    "abs",
    "add",
    "addc",
    "adds",
    "addsc",
    "cos",
    "div",
    "divs",
    "exp",
    "fmod",
    "fmods",
    "log",
    "lrelu",
    "maximum",
    "maximums",
    "maxs",
    "minimum",
    "minimums",
    "mins",
    "mul",
    "muls",
    "neg",
    "part_add",
    "part_max",
    "part_min",
    "part_mul",
    "prelu",
    "recip",
    "relu",
    "rem",
    "rems",
    "rsqrt",
    "sin",
    "sqrt",
    "sub",
    "subc",
    "subs",
    "subsc",
]

_BINARY: OpFields = {
    **VECTOR,
    "traits": Trait.POINTWISE | Trait.ARITHMETIC,
    "valid": valid.meet("lhs", "rhs"),
    "seed_region": SeedRegion.LEFT,
    "limits": (limits.NUMBER_FIRST, *limits.ROW_OPERANDS),
}
_REMAINDER: OpFields = {**_BINARY, "traits": _BINARY["traits"] | Trait.JUMPS}
_PRODUCT: OpFields = {**_BINARY, "limits": (*_BINARY["limits"], limits.FILLED_COLUMN)}
_UNARY: OpFields = {
    **VECTOR,
    "traits": Trait.POINTWISE | Trait.ARITHMETIC,
    "valid": valid.kept("x"),
}
# Computed in several steps; the last one still reads the operand.
_STEPWISE = Trait.ELEMENTWISE | Trait.KEEPS_VALID | Trait.ARITHMETIC
_STEPWISE_UNARY: OpFields = {**_UNARY, "traits": _STEPWISE}


# --- arithmetic ----------------------------------------------------------------------------------


def _infer_div(call: Call) -> infer.Types:
    infer.flag(call, "high_precision")
    return (infer.binary(call),)


@two(_BINARY, numerics.add, Cost.ADD)
def add(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Elementwise sum `lhs + rhs`.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    dtypes: floats and integers, promoted; integers wrap
    result: the larger shape

    Example: `y = pl.add(x, 1.0)`
    """
    ...


@two(_BINARY, numerics.sub, Cost.ADD)
def sub(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Elementwise difference `lhs - rhs`.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]` in either order; one may be
        a number
    dtypes: floats and integers, promoted; integers wrap
    result: the larger shape

    Example: `centered = pl.sub(x, mean)`
    """
    ...


@two(_PRODUCT, numerics.mul, Cost.MUL)
def mul(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Elementwise product `lhs * rhs`.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    dtypes: floats and integers, promoted; integers wrap
    result: the larger shape

    Example: `scaled = pl.mul(scores, 0.125)`
    """
    ...


@op(infer=_infer_div, reference=of_two(numerics.div), era="APR", cost=Cost.DIV, family=_BINARY)
def div(lhs: Shaped, rhs: Shaped | Number, *, high_precision: bool = False) -> Shaped:
    """Elementwise quotient `lhs / rhs`.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]` in either order; one may be
        a number
    high_precision: accepted; the quotient is correctly rounded in any case
    dtypes: floats and integers, promoted; integers truncate towards zero, and x / 0 is 0
    result: the larger shape; for floats x / 0 is an infinity and 0 / 0 is NaN

    Example: `mean = pl.div(total, count)`
    """
    ...


@with_number(_BINARY, numerics.add, Cost.ADDS)
def adds(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs + rhs` for a number `rhs`: the tile-level name of `pl.add`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `y = pl.adds(x, 1.0)`
    """
    ...


@with_number(_BINARY, numerics.sub, Cost.ADDS)
def subs(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs - rhs` for a number `rhs`: the tile-level name of `pl.sub`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `y = pl.subs(x, 1.0)`
    """
    ...


@with_number(_BINARY, numerics.mul, Cost.MULS)
def muls(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs * rhs` for a number `rhs`: the tile-level name of `pl.mul`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `y = pl.muls(x, 0.5)`
    """
    ...


@with_number(_BINARY, numerics.div, Cost.DIV)
def divs(lhs: Shaped, rhs: Number) -> Shaped:
    """`lhs / rhs` for a number `rhs`: the tile-level name of `pl.div`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype; integers truncate towards zero

    Example: `y = pl.divs(x, 3.0)`
    """
    ...


@two(_REMAINDER, numerics.rem, Cost.DIV)
def rem(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Elementwise remainder with the sign of `rhs`, as Python's `%`.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    dtypes: floats and integers, promoted
    result: the larger shape; x rem 0 is NaN, for integers 0

    Example: `phase = pl.rem(angle, period)`
    """
    ...


@with_number(_REMAINDER, numerics.rem, Cost.DIV)
def rems(lhs: Shaped, rhs: Number) -> Shaped:
    """`pl.rem` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `slot = pl.rems(index, 16)`
    """
    ...


@two(_REMAINDER, numerics.fmod, Cost.DIV)
def fmod(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """Elementwise remainder with the sign of `lhs`, as C's `fmod`; it is exact.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    dtypes: floats and integers, promoted
    result: the larger shape; x fmod 0 is NaN, for integers 0

    Example: `fraction = pl.fmod(x, 1.0)`
    """
    ...


@with_number(_REMAINDER, numerics.fmod, Cost.DIV)
def fmods(lhs: Shaped, rhs: Number) -> Shaped:
    """`pl.fmod` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `fraction = pl.fmods(x, 1.0)`
    """
    ...


# --- maximum and minimum -------------------------------------------------------------------------


@two(_BINARY, numerics.maximum, Cost.ADD, ORDERED)
def maximum(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """The greater of two elements.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    result: the larger shape, promoted dtype; NaN if either is NaN; +0 is greater than -0

    Example: `m_new = pl.maximum(m_old, m_block)`
    """
    ...


@two(_BINARY, numerics.minimum, Cost.ADD, ORDERED, era="HEAD")
def minimum(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
    """The smaller of two elements.

    lhs, rhs: tiles of one shape, or `[M, N]` with `[M, 1]` or `[1, N]`; one may be a number
    result: the larger shape, promoted dtype; NaN if either is NaN; -0 is smaller than +0

    Example: `clipped = pl.minimum(x, 127.0)`
    """
    ...


@with_number(_BINARY, numerics.maximum, Cost.ADDS, ORDERED)
def maximums(lhs: Shaped, rhs: Number) -> Shaped:
    """`pl.maximum` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `floor = pl.maximums(amax, 1e-4)`
    """
    ...


@with_number(_BINARY, numerics.minimum, Cost.ADDS, ORDERED)
def minimums(lhs: Shaped, rhs: Number) -> Shaped:
    """`pl.minimum` with a number.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `clipped = pl.minimums(x, 127.0)`
    """
    ...


@composition(infer=infer.infer_with_number(ORDERED))
def maxs(lhs: Shaped, rhs: Number) -> Shaped:
    """The older name of `pl.maximums`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `floor = pl.maxs(amax, 1e-4)`
    """
    return maximums(lhs, rhs)


@composition(infer=infer.infer_with_number(ORDERED))
def mins(lhs: Shaped, rhs: Number) -> Shaped:
    """The older name of `pl.minimums`.

    lhs: a tile; rhs: a number, which takes the tile's dtype
    result: the tile's shape and dtype

    Example: `clipped = pl.mins(x, 127.0)`
    """
    return minimums(lhs, rhs)


# --- functions of one operand --------------------------------------------------------------------


@one(_UNARY, numerics.neg, Cost.MULS)
def neg(x: Shaped) -> Shaped:
    """`-x`.

    x: floats or integers (integers wrap)
    result: x's shape and dtype

    Example: `sigmoid = pl.recip(pl.add(pl.exp(pl.neg(x)), 1.0))`
    """
    ...


@one(_UNARY, numerics.abs_, Cost.ABS)
def abs(x: Shaped) -> Shaped:
    """`|x|`.

    x: floats or integers (the absolute value of the lowest integer wraps to itself)
    result: x's shape and dtype

    Example: `amax = pl.row_max(pl.abs(x))`
    """
    ...


@one(_UNARY, numerics.exp, Cost.EXP, to_float=True)
def exp(x: Shaped) -> Shaped:
    """The exponential function, e to the power x.

    x: floats, or integers, which give FP32
    result: x's shape; computed in double precision and rounded

    Example: `p = pl.exp(pl.sub(s, m))`
    """
    ...


@one(_UNARY, numerics.log, Cost.LOG, to_float=True)
def log(x: Shaped) -> Shaped:
    """Natural logarithm.

    x: floats, or integers, which give FP32
    result: x's shape; minus infinity for 0, NaN for negative numbers

    Example: `lse = pl.add(m, pl.log(l))`
    """
    ...


@one(_UNARY, numerics.sqrt, Cost.SQRT, to_float=True)
def sqrt(x: Shaped) -> Shaped:
    """Square root, correctly rounded.

    x: floats, or integers, which give FP32
    result: x's shape; NaN for negative numbers

    Example: `inv_rms = pl.recip(pl.sqrt(pl.add(mean, eps)))`
    """
    ...


@one(_UNARY, numerics.rsqrt, Cost.RSQRT, to_float=True)
def rsqrt(x: Shaped, high_precision: bool = False) -> Shaped:
    """`1 / sqrt(x)`.

    x: floats, or integers, which give FP32
    high_precision: accepted; the result is correctly rounded in any case (the device's default is
        a fast estimate)
    result: x's shape; rsqrt of 0 is infinity

    Example: `inv_rms = pl.rsqrt(pl.add(mean, eps), high_precision=True)`
    """
    ...


@one(_STEPWISE_UNARY, numerics.recip, Cost.DIV, to_float=True)
def recip(x: Shaped, high_precision: bool = False) -> Shaped:
    """`1 / x`.

    x: floats, or integers, which give FP32
    high_precision: accepted; the result is correctly rounded in any case
    result: x's shape; recip of 0 is infinity

    Example: `inv = pl.recip(row_sum)`
    """
    ...


@one(_STEPWISE_UNARY, numerics.sin, Cost.TRIGONOMETRIC, to_float=True, era="HEAD")
def sin(x: Shaped) -> Shaped:
    """Sine of an angle in radians.

    x: floats, or integers, which give FP32
    result: x's shape; computed in double precision and rounded

    Example: `s = pl.sin(angle)`
    """
    ...


@one(_STEPWISE_UNARY, numerics.cos, Cost.TRIGONOMETRIC, to_float=True, era="HEAD")
def cos(x: Shaped) -> Shaped:
    """Cosine of an angle in radians.

    x: floats, or integers, which give FP32
    result: x's shape; computed in double precision and rounded

    Example: `c = pl.cos(angle)`
    """
    ...


@one(_UNARY, numerics.relu, Cost.RELU)
def relu(x: Shaped) -> Shaped:
    """`x` where it is greater than 0, else 0.

    x: floats or integers; NaN stays NaN
    result: x's shape and dtype

    Example: `y = pl.relu(x)`
    """
    ...


def _infer_lrelu(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    infer.check_dtype(call, "x", x.dtype, FLOATS)
    infer.fitting_scalar(call, "slope", "x", x.dtype)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "x")),)


def _leaky(x: Array, slope: Array) -> Array:
    return np.where(np.asarray(widen(x)) > 0, x, numerics.mul(x, slope))


def _lrelu(x: Array, slope: float) -> Array:
    return _leaky(x, to_element(slope, numerics.dtype_of(x)))


@op(infer=_infer_lrelu, reference=_lrelu, cost=Cost.RELU, family=_UNARY)
def lrelu(x: Shaped, slope: Number) -> Shaped:
    """Leaky ReLU: `x` where it is greater than 0, else `slope * x`.

    x: floats; slope: a number
    result: x's shape and dtype

    Example: `y = pl.lrelu(x, 0.01)`
    """
    ...


def _infer_prelu(call: Call) -> infer.Types:
    infer.scratch(call, "tmp")
    x, slope = infer.tile(call, "x"), infer.tile(call, "slope")
    infer.check_dtype(call, "x", x.dtype, FLOATS)
    infer.same_dtype(call, "x", x.dtype, "slope", slope.dtype)
    infer.same_shape(call, "x", x, "slope", slope)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "x", "slope")),)


def _prelu(x: Array, slope: Array, tmp: Array | None) -> Array:
    return _leaky(x, slope)


@op(
    infer=_infer_prelu,
    reference=_prelu,
    family=VECTOR,
    valid=valid.meet("x", "slope"),
    traits=_STEPWISE,
    cost=Cost.SELECT,
)
def prelu(x: Shaped, slope: Shaped, tmp: Shaped | None = None) -> Shaped:
    """Parametric ReLU: `x` where it is greater than 0, else `slope * x`, with a slope per element.

    x, slope: floats of one shape and dtype
    tmp: scratch tile, accepted for compatibility and ignored
    result: x's shape and dtype

    Example: `y = pl.prelu(x, slopes)`
    """
    ...


# --- three operands ------------------------------------------------------------------------------


def _infer_three(call: Call) -> infer.Types:
    a, c = infer.tile(call, "lhs"), infer.tile(call, "rhs2")
    infer.same_shape(call, "lhs", a, "rhs2", c)
    infer.same_dtype(call, "lhs", a.dtype, "rhs2", c.dtype)
    if not infer.is_scalar(call["rhs"]):
        b = infer.tile(call, "rhs")
        infer.same_shape(call, "lhs", a, "rhs", b)
        infer.same_dtype(call, "lhs", a.dtype, "rhs", b.dtype)
    return (infer.binary(call),)


_sum_of_three = composition(infer=_infer_three)


@_sum_of_three
def addc(lhs: Shaped, rhs: Shaped, rhs2: Shaped) -> Shaped:
    """`(lhs + rhs) + rhs2`, rounded after each step.

    lhs, rhs, rhs2: tiles of one shape and dtype
    result: the same

    Example: `y = pl.addc(a, b, c)`
    """
    return add(add(lhs, rhs), rhs2)


@_sum_of_three
def subc(lhs: Shaped, rhs: Shaped, rhs2: Shaped) -> Shaped:
    """`(lhs - rhs) + rhs2`, rounded after each step.

    lhs, rhs, rhs2: tiles of one shape and dtype
    result: the same

    Example: `y = pl.subc(a, b, c)`
    """
    return add(sub(lhs, rhs), rhs2)


@_sum_of_three
def addsc(lhs: Shaped, rhs: Number, rhs2: Shaped) -> Shaped:
    """`(lhs + rhs) + rhs2` for a number `rhs`, rounded after each step.

    lhs, rhs2: tiles of one shape and dtype; rhs: a number
    result: the same

    Example: `y = pl.addsc(a, 1.0, b)`
    """
    return add(add(lhs, rhs), rhs2)


@_sum_of_three
def subsc(lhs: Shaped, rhs: Number, rhs2: Shaped) -> Shaped:
    """`(lhs - rhs) + rhs2` for a number `rhs`, rounded after each step.

    lhs, rhs2: tiles of one shape and dtype; rhs: a number
    result: the same

    Example: `y = pl.subsc(a, 1.0, b)`
    """
    return add(sub(lhs, rhs), rhs2)


# --- partially valid operands ---------------------------------------------------------------------


def _infer_part(call: Call) -> infer.Types:
    a, b = infer.tile(call, "lhs"), infer.tile(call, "rhs")
    infer.same_shape(call, "lhs", a, "rhs", b)
    infer.same_dtype(call, "lhs", a.dtype, "rhs", b.dtype)
    return (infer.binary(call),)


def _where_both(function: Any) -> Any:
    """Apply `function` where both are valid; elsewhere return the valid one (the other is zero)."""

    def reference(lhs: Array, rhs: Array, valid: dict[str, tuple[int, ...]]) -> Array:
        in_both = tuple(slice(0, min(a, b)) for a, b in zip(valid["lhs"], valid["rhs"]))
        larger = lhs if valid["lhs"] >= valid["rhs"] else rhs
        result: Array = np.array(larger)
        result[in_both] = function(lhs[in_both], rhs[in_both])
        return result

    return reference


def _part(name: str) -> OpFields:
    return {
        "infer": _infer_part,
        **VECTOR,
        "traits": Trait.POINTWISE | Trait.ARITHMETIC,
        "valid": valid.join(name, "lhs", "rhs"),
        "seed_region": SeedRegion.LEFT,
        "takes_valid": True,
    }


@op(reference=_where_both(numerics.add), cost=Cost.ADD, family=_part("part_add"))
def part_add(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Sum of two tiles, one of which may have a smaller valid region.

    lhs, rhs: tiles of one shape and dtype; one valid region contains the other
    result: the sum where both are valid, elsewhere the valid one; valid where either is

    Example: `y = pl.part_add(block, tail)`
    """
    ...


@op(reference=_where_both(numerics.mul), cost=Cost.MUL, family=_part("part_mul"))
def part_mul(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Product of two tiles, one of which may have a smaller valid region.

    lhs, rhs: tiles of one shape and dtype; one valid region contains the other
    result: the product where both are valid, elsewhere the valid one; valid where either is

    Example: `y = pl.part_mul(block, tail)`
    """
    ...


@op(reference=_where_both(numerics.maximum), cost=Cost.ADD, family=_part("part_max"))
def part_max(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Maximum of two tiles, one of which may have a smaller valid region.

    lhs, rhs: tiles of one shape and dtype; one valid region contains the other
    result: the maximum where both are valid, elsewhere the valid one; valid where either is

    Example: `y = pl.part_max(block, tail)`
    """
    ...


@op(reference=_where_both(numerics.minimum), cost=Cost.ADD, family=_part("part_min"))
def part_min(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Minimum of two tiles, one of which may have a smaller valid region.

    lhs, rhs: tiles of one shape and dtype; one valid region contains the other
    result: the minimum where both are valid, elsewhere the valid one; valid where either is

    Example: `y = pl.part_min(block, tail)`
    """
    ...
