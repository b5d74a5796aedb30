"""The codes of HF8 (HiFloat8), whose precision falls with the distance of the exponent from 0.

After the sign, a prefix code gives the width D of the exponent field; the rest is the mantissa:

prefix  D  exponents       mantissa
0000    -  -22 to -16      none: the code itself counts the powers of two, 0 is zero
0001    0  0               3 bits
001     1  -1, 1           3 bits
01      2  -3, -2, 2, 3    3 bits
10      3  -7 to 7         2 bits
11      4  -15 to 15       1 bit

An exponent is a sign and a magnitude without its leading 1. 0x80 is NaN, 0x6F and 0xEF are the
infinities; there is no -0.
"""

from __future__ import annotations

import numpy as np

from tilelet.dtypes import HF8, Array

NAN = 0x80
INFINITY = 0x6F
LARGEST = 2.0**15
SMALLEST_EXPONENT = -22
_WIDTHS = ((0b11, 5, 4), (0b10, 5, 3), (0b01, 5, 2), (0b001, 4, 1), (0b0001, 3, 0))
"""Prefix, number of bits after it, and D."""


def _magnitude(code: int) -> float:
    for prefix, rest, width in _WIDTHS:
        if code >> rest != prefix:
            continue
        mantissa_bits = rest - width
        exponent = 0
        if width:
            field = code >> mantissa_bits & ((1 << width) - 1)
            leading = 1 << (width - 1)
            exponent = leading | (field & (leading - 1))
            exponent = -exponent if field & leading else exponent
        mantissa = code & ((1 << mantissa_bits) - 1)
        return (1 + mantissa / (1 << mantissa_bits)) * 2.0**exponent
    return 2.0 ** (code + SMALLEST_EXPONENT - 1) if code else 0.0


_MAGNITUDES = np.array([_magnitude(code) for code in range(128)], np.float32)
_MAGNITUDES[INFINITY] = np.inf
_VALUES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])
_VALUES[NAN] = np.nan
_BY_MAGNITUDE = np.argsort(_MAGNITUDES).astype(np.uint8)
_SORTED = _MAGNITUDES[_BY_MAGNITUDE]


def decode(x: Array) -> Array:
    """Return an HF8 array as FP32."""
    return _VALUES[np.ascontiguousarray(x).view(np.uint8)].reshape(x.shape)


def encode(x: Array) -> Array:
    """Return an FP32 array of numbers that HF8 represents as HF8."""
    place = np.minimum(np.searchsorted(_SORTED, np.abs(x)), len(_SORTED) - 1)
    code = _BY_MAGNITUDE[place] | (x < 0).astype(np.uint8) << np.uint8(7)
    code = np.where(np.isnan(x), np.uint8(NAN), code).astype(np.uint8)
    return code.view(HF8.numpy)


def mantissa_bits(exponent: Array) -> Array:
    """Return the number of mantissa bits of numbers with some binary exponents."""
    apart = np.abs(exponent)
    bits = np.select([apart <= 3, apart <= 7, exponent >= -15], [3, 2, 1], 0)
    return bits.astype(np.uint32)
