"""`cast`: every pair of element types, every rounding mode, exact to the last bit.

The contract, in the order the rules apply (a compiled engine must reproduce it bit for bit):

1. to BOOL: `x != 0` (NaN gives True). From BOOL: as the integers 0 and 1.
2. float -> float: the value is rounded once to the target by the mode. A value the target holds
   exactly is unchanged in every mode; so widening casts, and casts to the same type, are exact.
   Subnormal targets are rounded at their own last place, never flushed. -0 stays -0.
   * Overflow (the rounded value exceeds the largest finite one): `rint` and `round` give infinity;
     `trunc` and `odd` give the largest finite value; `floor` gives -infinity for negative x and the
     largest finite value for positive x, `ceil` the mirror image.
   * FP8E4M3FN has no infinity: wherever one is due (overflow as above, or x is infinite) it gives
     the largest finite value, +-448, so every mode saturates. torch 2.13 does the same;
     ml_dtypes' own conversion, which gives NaN, is not used for that.
   * HF8 (`hifloat8.py`) has no -0: zeros, and what is rounded to zero, become +0.
   * NaN stays NaN. Sign and payload of a NaN are not part of the contract, here or elsewhere.
3. float -> int: x is rounded to an integer by the mode, then saturated to the target's range; NaN
   gives 0.
4. int -> float: rounded once to the target by the mode, from the exact integer (no double rounding,
   also for 64-bit sources); overflow as in 2.
5. int -> int: saturates to the target's range; the mode has no effect.

Modes: `rint` nearest, ties to even; `round` nearest, ties away from zero (the language's
default); `floor` towards -infinity; `ceil` towards +infinity; `trunc` towards zero; `odd` to the
neighbor whose last bit is 1 when inexact; `none` is `trunc` for float -> int and `rint` for
every other pair.
"""

from __future__ import annotations

from typing import Any
from typing import cast as typed

import ml_dtypes
import numpy as np

from tilelet import dtypes
from tilelet.dataclasses import dataclass
from tilelet.dtypes import BF16, BOOL, FP8E4M3FN, FP8E5M2, FP16, FP32, HF8, Array, DType
from tilelet.numerics import hifloat8

MODES: tuple[str, ...] = ("none", "rint", "round", "floor", "ceil", "trunc", "odd")

_BY_NUMPY: dict[np.dtype[Any], DType] = {
    d.numpy: d for d in (*dtypes.ALL, *dtypes.MOVED) if d.kind not in ("index", "task")
}


@dataclass(frozen=True)
class _Format:
    """Encoding of a float type narrower than FP32; codes are without the sign bit."""

    mantissa_bits: int
    bias: int
    max_code: int  # the largest finite value
    inf_code: int  # the largest finite value again where the type has no infinity
    nan_code: int
    storage: type[np.unsignedinteger[Any]]


_FORMATS: dict[DType, _Format] = {
    FP16: _Format(10, 15, 0x7BFF, 0x7C00, 0x7E00, np.uint16),
    BF16: _Format(7, 127, 0x7F7F, 0x7F80, 0x7FC0, np.uint16),
    FP8E4M3FN: _Format(3, 7, 0x7E, 0x7E, 0x7F, np.uint8),
    FP8E5M2: _Format(2, 15, 0x7B, 0x7C, 0x7E, np.uint8),
}

_FP32_INF_BITS = 0x7F800000
_FP32_MANTISSA_BITS = 23
_FP32_BIAS = 127
_FP32_PRECISION = 24  # significant bits, the hidden one included


def dtype_of(x: Array) -> DType:
    """Return the element type of an array (int64 gives INT64); TypeError if there is none."""
    found = _BY_NUMPY.get(x.dtype)
    if found is None:
        raise TypeError(f"no element type is stored as NumPy {x.dtype}")
    return found


def as_computable(x: Array) -> Array:
    """Return an array that NumPy computes with: HF8 as FP32, any other as it is."""
    return hifloat8.decode(x) if x.dtype == HF8.numpy else x


def widen(x: Array) -> Array:
    """Return a float array as FP32, which represents all narrower types; x itself if FP32."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.asarray(as_computable(x), dtype=np.float32)


def narrow(x: Array, to: DType) -> Array:
    """Round an FP32 array to `to` by `rint`; return x itself if `to` is FP32.

    NumPy's and ml_dtypes' conversions round that way, except for overflow of FP8E4M3FN.
    """
    if to is HF8:
        return _fp32_to_hf8(x, "rint")
    if to is FP8E4M3FN:
        x = np.clip(x, np.float32(-448), np.float32(448))
    return np.asarray(x).astype(to.numpy, copy=False)


def cast(x: Array, to: DType, mode: str = "round") -> Array:
    """Convert `x` to `to` by the rules of this module; always returns a new array."""
    if mode not in MODES:
        raise ValueError(f"unknown cast mode {mode!r}; expected one of {', '.join(MODES)}")
    if to.kind == "task":
        raise TypeError("TASK_ID is not a data type: nothing can be cast to it")
    with np.errstate(all="ignore"):
        return _convert(np.atleast_1d(x), to, mode).reshape(x.shape)


def _convert(x: Array, to: DType, mode: str) -> Array:
    source = dtype_of(x)
    if source is BOOL:
        x, source = x.astype(np.uint8), dtypes.UINT8
    if source in (dtypes.INT4, dtypes.UINT4):
        x, source = x.astype(np.int8), dtypes.INT8
    if to is BOOL:
        return (widen(x) if source.is_float else x) != 0
    if source.is_float:
        fp32 = widen(x)
        if to.is_float:
            return _fp32_to_float(fp32, to, _or_else(mode, "rint"))
        return _fp32_to_int(fp32, to, _or_else(mode, "trunc"))
    if to.is_float:
        return _int_to_float(x, to, _or_else(mode, "rint"))
    return _int_to_int(x, source, to)


def _or_else(mode: str, meaning_of_none: str) -> str:
    return meaning_of_none if mode == "none" else mode


def _shift_rounded(fixed: Array, shift: object, negative: Array, mode: str) -> Array:
    """Return `fixed >> shift`, rounded by the mode as the magnitude of a signed number."""
    one = fixed.dtype.type(1)
    below_one = (one << shift) - one  # the largest discarded part
    if mode == "trunc":
        return fixed >> shift
    if mode == "odd":
        return (fixed >> shift) | ((fixed & below_one) != 0)
    if mode == "round":
        return (fixed + ((one << shift) >> one)) >> shift
    if mode == "rint":
        is_odd = (fixed >> shift) & one
        return (fixed + (below_one >> one) + (is_odd & below_one)) >> shift
    away_from_zero = negative if mode == "floor" else ~negative
    return (fixed + away_from_zero * below_one) >> shift


def _fp32_to_float(x: Array, to: DType, mode: str) -> Array:
    if to is FP32:
        return x.copy()
    if mode == "rint":
        return narrow(x, to)
    if to is HF8:
        return _fp32_to_hf8(x, mode)
    fmt = _FORMATS[to]
    bits = x.view(np.uint32)
    negative = bits >= 0x80000000
    magnitude = bits & 0x7FFFFFFF
    code = _narrow_magnitude(magnitude, negative, fmt, mode)
    over = code > fmt.max_code
    if np.any(over):
        code[over] = fmt.max_code
        code[over & _overflows_to_infinity(negative, mode)] = fmt.inf_code
        code[magnitude == _FP32_INF_BITS] = fmt.inf_code
        code[magnitude > _FP32_INF_BITS] = fmt.nan_code
    code |= (bits >> 31) << (to.bits - 1)
    return code.astype(fmt.storage).view(to.numpy)


def _narrow_magnitude(magnitude: Array, negative: Array, fmt: _Format, mode: str) -> Array:
    """FP32 magnitude bits -> the target's code, rounded; the exponent may run past its range.

    A float's code (exponent and mantissa fields read as one integer) counts its values in order,
    so "the next value up" is code + 1, also across binades and from subnormal to normal. For a
    normal target the code is the FP32 code with the exponent re-based, shifted right. For a
    subnormal one it is the significand shifted right by as much more as the exponent lies below
    the normal range.
    """
    drop = _FP32_MANTISSA_BITS - fmt.mantissa_bits
    first_normal = _FP32_BIAS - fmt.bias + 1  # FP32 exponent field of the smallest normal target
    if first_normal == 1:  # BF16: FP32's own exponent range, subnormals included
        return _shift_rounded(magnitude, np.uint32(drop), negative, mode)
    fixed = magnitude - np.uint32((first_normal - 1) << _FP32_MANTISSA_BITS)
    subnormal = magnitude < (first_normal << _FP32_MANTISSA_BITS)
    if not np.any(subnormal):
        return _shift_rounded(fixed, np.uint32(drop), negative, mode)
    exponent = magnitude >> _FP32_MANTISSA_BITS
    hidden = np.minimum(exponent, np.uint32(1)) << _FP32_MANTISSA_BITS
    significand = (magnitude & 0x7FFFFF) | hidden
    below_normal = subnormal * (np.uint32(first_normal) - np.maximum(exponent, np.uint32(1)))
    # A shift by 25 already leaves less than half of the last place; more changes nothing.
    shift = np.minimum(np.uint32(drop) + below_normal, np.uint32(25))
    return _shift_rounded(np.where(subnormal, significand, fixed), shift, negative, mode)


def _fp32_to_hf8(x: Array, mode: str) -> Array:
    """Round at the last place that HF8 has at each exponent; codes of FP32 count in its binades."""
    bits = x.view(np.uint32)
    negative, magnitude = bits >= 0x80000000, bits & 0x7FFFFFFF
    exponent = (magnitude >> _FP32_MANTISSA_BITS).astype(np.int32) - _FP32_BIAS
    drop = np.uint32(_FP32_MANTISSA_BITS) - hifloat8.mantissa_bits(exponent)
    code = _shift_rounded(magnitude, drop, negative, mode) << drop
    # Below the smallest number: to a multiple of it, which is 0 or 1.
    below = exponent < hifloat8.SMALLEST_EXPONENT
    significand = (magnitude & 0x7FFFFF) | (exponent > -_FP32_BIAS).astype(np.uint32) << 23
    shift = np.clip(_FP32_MANTISSA_BITS + hifloat8.SMALLEST_EXPONENT - exponent, 0, 25)
    multiple = _shift_rounded(significand, shift.astype(np.uint32), negative, mode)
    smallest = np.uint32((_FP32_BIAS + hifloat8.SMALLEST_EXPONENT) << _FP32_MANTISSA_BITS)
    result = np.where(below, multiple * smallest, code).astype(np.uint32).view(np.float32)
    overflow = np.where(
        _overflows_to_infinity(negative, mode) | (mode == "rint"), np.inf, hifloat8.LARGEST
    )
    result = np.where(result > hifloat8.LARGEST, overflow.astype(np.float32), result)
    result = np.where(np.isfinite(x), np.copysign(result, x), x)
    return hifloat8.encode(result)


def _overflows_to_infinity(negative: Array, mode: str) -> Array | bool:
    if mode in ("floor", "ceil"):
        return negative if mode == "floor" else ~negative
    return mode == "round"


def _fp32_to_int(x: Array, to: DType, mode: str) -> Array:
    integral = _round_to_integral(x, mode)
    integral = np.where(np.isnan(integral), np.float32(0), integral)
    lowest, highest = to.limits
    highest_fp32 = np.float32(highest)
    if int(highest_fp32) > highest:  # 2^31 - 1 and longer: not an FP32 value, take the one below
        highest_fp32 = np.nextafter(highest_fp32, np.float32(0))
    result = np.clip(integral, np.float32(lowest), highest_fp32).astype(to.numpy)
    result[integral > highest_fp32] = highest
    return result


def _round_to_integral(x: Array, mode: str) -> Array:
    if mode == "rint":
        return np.rint(x)
    if mode == "floor":
        return np.floor(x)
    if mode == "ceil":
        return np.ceil(x)
    towards_zero = np.trunc(x)
    if mode == "trunc":
        return towards_zero
    # Exact: x and its integral part share their leading bits. (inf - inf is NaN: no step is taken.)
    fraction = np.abs(x - towards_zero)
    if mode == "round":
        step = fraction >= 0.5
    else:
        step = (fraction > 0) & (np.fmod(towards_zero, np.float32(2)) == 0)
    return np.where(step, towards_zero + np.copysign(np.float32(1), x), towards_zero)


def _int_to_float(x: Array, to: DType, mode: str) -> Array:
    if to is FP32:
        return _int_to_fp32(x, mode)
    # Rounding to odd at 24 bits keeps all that a second rounding, to at most 11 bits, needs to know
    # about the discarded bits (side of a tie, exact or not), so the two together round only once.
    return _fp32_to_float(_int_to_fp32(x, "odd"), to, mode)


def _int_to_fp32(x: Array, mode: str) -> Array:
    limit = 1 << _FP32_PRECISION
    if x.itemsize <= 2 or mode == "rint" or (x.size and x.max() <= limit and x.min() >= -limit):
        return x.astype(np.float32)
    one = np.uint64(1)
    negative = x < 0
    magnitude = x.astype(np.uint64)
    magnitude = np.where(negative, ~magnitude + one, magnitude)
    # Make room for a carry: the longest lose one bit, which becomes sticky in the next.
    halved = magnitude >> np.uint64(63)
    magnitude = (magnitude >> halved) | (magnitude & halved)
    drop = np.maximum(_bit_length(magnitude), np.uint64(_FP32_PRECISION)) - _FP32_PRECISION
    kept = _shift_rounded(magnitude, drop, negative, mode)
    result = np.ldexp(kept.astype(np.float32), (drop + halved).astype(np.int32))
    return np.where(negative, -result, result)


def _bit_length(magnitude: Array) -> Array:
    exponent = np.maximum(np.frexp(magnitude.astype(np.float64))[1], 1).astype(np.uint64)
    # The conversion to double may have rounded up to the next power of two.
    return exponent - ((magnitude >> (exponent - np.uint64(1))) == 0)


def _int_to_int(x: Array, source: DType, to: DType) -> Array:
    lowest, highest = source.limits
    low, high = max(lowest, to.limits[0]), min(highest, to.limits[1])
    if (low, high) == (lowest, highest):
        return x.astype(to.numpy)
    return np.clip(x, low, high).astype(to.numpy)


def unit_roundoff(dtype: DType) -> float:
    """Return the largest relative error of rounding to a float type."""
    if dtype is HF8:
        return 0.25  # of its largest and smallest normal numbers
    limits = typed("Any", ml_dtypes).finfo(dtype.numpy)
    return float(limits.eps) / 2
