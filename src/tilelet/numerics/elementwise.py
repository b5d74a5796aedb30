"""Elementwise arithmetic of the `pl` language, as one NumPy call sequence per tile.

Contract (bit for bit unless said):

* Both operands of a binary op have the same element type, which is also the result's; shapes
  broadcast as NumPy's. BOOL takes part only in the bitwise ops, `maximum` and `minimum`.
* FP32 is IEEE single: one rounding, to nearest even, subnormals kept.
* BF16, FP16 and the FP8 types: operands are widened to FP32 (exact), the FP32 op is done, its
  result is rounded to the type by `rint`. For add, sub, mul, div, sqrt, recip and rsqrt this
  equals rounding the exact result once: FP32 has more than twice their precision, so the first
  rounding never makes or hides a tie of the second. (BF16 results below FP32's normal range
  included: a quotient or product of two 8-bit significands never comes close enough to a tie
  there.)
* `exp`, `log`, `sin`, `cos`: evaluated in double, rounded to FP32, then as above. Another engine
  may differ here, by at most 2 ulp of FP32.
* Integers wrap (two's complement). Division truncates towards zero; any division or remainder by
  zero gives 0; INT_MIN / -1 wraps to INT_MIN.
* NaN results carry no defined sign or payload. Nothing raises or warns for any operand values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilelet.dtypes import BOOL, FP32, Array, DType
from tilelet.numerics.casts import cast, dtype_of, narrow, widen

_Binary = Callable[[Array, Array], Array]
_Unary = Callable[[Array], Array]


def _common_dtype(a: Array, b: Array) -> DType:
    if a.dtype != b.dtype:
        raise TypeError(f"operands differ in element type: {dtype_of(a)} and {dtype_of(b)}")
    return dtype_of(a)


def _arithmetic(a: Array, b: Array, on_fp32: _Binary, on_integers: _Binary) -> Array:
    dtype = _common_dtype(a, b)
    if dtype is BOOL:
        raise TypeError("BOOL has no arithmetic; cast it first")
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return narrow(on_fp32(widen(a), widen(b)), dtype)
        return np.asarray(on_integers(a, b))


def add(a: Array, b: Array) -> Array:
    """`a + b`"""
    return _arithmetic(a, b, np.add, np.add)


def sub(a: Array, b: Array) -> Array:
    """`a - b`"""
    return _arithmetic(a, b, np.subtract, np.subtract)


def mul(a: Array, b: Array) -> Array:
    """`a * b`"""
    return _arithmetic(a, b, np.multiply, np.multiply)


def div(a: Array, b: Array) -> Array:
    """`a / b`: floats correctly rounded (1/0 is infinity, 0/0 NaN), integers truncated."""
    return _arithmetic(a, b, np.divide, _int_div)


def fmod(a: Array, b: Array) -> Array:
    """Remainder with the sign of a, like C's `fmod` (exact); x fmod 0 is NaN, for integers 0."""
    return _arithmetic(a, b, np.fmod, _int_fmod)


def rem(a: Array, b: Array) -> Array:
    """Remainder with the sign of b, as Python's `%`.

    r = fmod(a, b); if r != 0 and its sign differs from b's, r + b (one rounding); if r == 0, a zero
    with the sign of b. x rem 0 is NaN, for integers 0.
    """
    return _arithmetic(a, b, _float_rem, _int_rem)


def _non_zero(b: Array) -> Array:
    return np.where(b == 0, np.ones_like(b), b)


def _int_div(a: Array, b: Array) -> Array:
    divisor = _non_zero(b)
    # Subtracting the remainder first makes NumPy's floor division exact, hence truncating.
    quotient = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, np.zeros_like(quotient), quotient)


def _int_fmod(a: Array, b: Array) -> Array:
    remainder = np.fmod(a, _non_zero(b))
    return np.where(b == 0, np.zeros_like(remainder), remainder)


def _int_rem(a: Array, b: Array) -> Array:
    remainder = _int_fmod(a, b)
    return np.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)


def _float_rem(a: Array, b: Array) -> Array:
    remainder = np.fmod(a, b)
    shifted = np.where((remainder < 0) != (b < 0), remainder + b, remainder)
    return np.where(remainder == 0, np.copysign(np.float32(0), b), shifted)


def maximum(a: Array, b: Array) -> Array:
    """The greater operand; NaN if either is NaN; +0 counts as greater than -0."""
    return _extremum(a, b, np.maximum, _sum_of_zeros)


def minimum(a: Array, b: Array) -> Array:
    """The smaller operand; NaN if either is NaN; -0 counts as smaller than +0."""
    return _extremum(a, b, np.minimum, lambda p, q: -_sum_of_zeros(-p, -q))


def _sum_of_zeros(a: Array, b: Array) -> Array:
    """Return the sum of two zeros: -0 only if both are."""
    return a + b


def _extremum(a: Array, b: Array, choose: _Binary, of_zeros: _Binary) -> Array:
    dtype = _common_dtype(a, b)
    if not dtype.is_float:
        return np.asarray(choose(a, b))
    a, b = widen(a), widen(b)
    with np.errstate(all="ignore"):
        result = choose(a, b)
        # The sign of zero that NumPy returns depends on the machine, so zeros are handled here.
        zero = result == 0
        if np.any(zero):
            result = np.where(zero & (a == b), of_zeros(a, b), result)
    return narrow(result, dtype)


def _float_result(x: Array) -> tuple[Array, DType]:
    """Return x in FP32, and the type of f(x): x's own if float, FP32 for integers (by `rint`)."""
    dtype = dtype_of(x)
    if dtype.is_float:
        return widen(x), dtype
    return cast(x, FP32, "rint"), FP32


def _in_fp32(x: Array, function: _Unary) -> Array:
    fp32, dtype = _float_result(x)
    with np.errstate(all="ignore"):
        return narrow(function(fp32), dtype)


def _in_double(x: Array, function: _Unary) -> Array:
    return _in_fp32(x, lambda fp32: function(fp32.astype(np.float64)).astype(np.float32))


def exp(x: Array) -> Array:
    """Natural exponential (double, narrowed)."""
    return _in_double(x, np.exp)


def log(x: Array) -> Array:
    """Natural logarithm (double, narrowed); log 0 is -infinity, of a negative number NaN."""
    return _in_double(x, np.log)


def sin(x: Array) -> Array:
    """Sine of radians (double, narrowed)."""
    return _in_double(x, np.sin)


def cos(x: Array) -> Array:
    """Cosine of radians (double, narrowed)."""
    return _in_double(x, np.cos)


def sqrt(x: Array) -> Array:
    """Square root, correctly rounded; of -0 it is -0, of a negative number NaN."""
    return _in_fp32(x, np.sqrt)


def recip(x: Array) -> Array:
    """Reciprocal, correctly rounded; recip of a zero is the infinity of its sign."""
    return _in_fp32(x, np.reciprocal)


def rsqrt(x: Array) -> Array:
    """Reciprocal square root, correctly rounded; rsqrt of a zero is the infinity of its sign.

    Evaluated as double(1) / sqrt(double(x)), narrowed to FP32. That the two double roundings never
    push the result across an FP32 tie is checked for every significand in both exponent parities
    (the test runs all of them); scaling x by 4 scales every intermediate exactly.
    """
    return _in_double(x, lambda double: 1.0 / np.sqrt(double))


def neg(x: Array) -> Array:
    """-x: flips the sign bit of floats (zeros and NaN too); integers wrap."""
    return _sign_op(x, np.negative)


def abs_(x: Array) -> Array:
    """|x|: clears the sign bit of floats; |INT_MIN| wraps to INT_MIN."""
    return _sign_op(x, np.abs)


def relu(x: Array) -> Array:
    """`x` where x > 0, else +0 (-0 too); NaN stays NaN."""
    return _sign_op(x, lambda v: np.where(v <= 0, np.zeros_like(v), v))


def _sign_op(x: Array, function: _Unary) -> Array:
    dtype = dtype_of(x)
    if dtype is BOOL:
        raise TypeError("BOOL has no sign; cast it first")
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return narrow(function(widen(x)), dtype)
        return np.asarray(function(x))


def _bitwise(function: Callable[..., Array], *operands: Array) -> Array:
    for operand in operands:
        if dtype_of(operand).is_float or operand.dtype != operands[0].dtype:
            raise TypeError("bitwise ops take integers, or BOOL, of one element type")
    return np.asarray(function(*operands))


def and_(a: Array, b: Array) -> Array:
    """Bitwise and; logical for BOOL."""
    return _bitwise(np.bitwise_and, a, b)


def or_(a: Array, b: Array) -> Array:
    """Bitwise or; logical for BOOL."""
    return _bitwise(np.bitwise_or, a, b)


def xor(a: Array, b: Array) -> Array:
    """Bitwise exclusive or; logical for BOOL."""
    return _bitwise(np.bitwise_xor, a, b)


def not_(x: Array) -> Array:
    """Bitwise complement; logical for BOOL."""
    return _bitwise(np.bitwise_not, x)


def shl(a: Array, b: Array) -> Array:
    """`a << b`, bits shifted out are lost; 0 if b is negative or not less than the width."""
    amount, in_range = _shift_amount(a, b)
    return np.asarray(np.where(in_range, np.left_shift(a, amount), np.zeros_like(a)))


def shr(a: Array, b: Array) -> Array:
    """`a >> b`: arithmetic for signed types, logical for unsigned.

    If b is negative or not less than the width, only the sign is left: -1 for negative a, else 0.
    """
    amount, in_range = _shift_amount(a, b)
    only_sign = np.where(a < 0, ~np.zeros_like(a), np.zeros_like(a))
    return np.asarray(np.where(in_range, np.right_shift(a, amount), only_sign))


def _shift_amount(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the valid shift amounts (0 elsewhere), and where b was valid."""
    if not _common_dtype(a, b).is_integer:
        raise TypeError("shifts take integers")
    in_range = (b >= 0) & (b < a.itemsize * 8)
    return np.where(in_range, b, np.zeros_like(b)), in_range
