"""Rounding written twice more, independently of the package: exact fractions, and search in the
sorted list of all values of a small format.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, DType

Array = NDArray[Any]

# dtype: (significant bits, exponent of the smallest normal, largest finite value)
PARAMETERS: dict[DType, tuple[int, int, Fraction]] = {
    FP32: (24, -126, Fraction(2) ** 128 - Fraction(2) ** 104),
    FP16: (11, -14, Fraction(65504)),
    BF16: (8, -126, Fraction(2) ** 128 - Fraction(2) ** 120),
    FP8E4M3FN: (4, -6, Fraction(448)),
    FP8E5M2: (3, -14, Fraction(57344)),
}


def steps_up(whole: int, rest: Fraction, negative: bool, mode: str) -> bool:
    """Whether a magnitude whole + rest rounds to whole + 1."""
    if rest == 0:
        return False
    return {
        "trunc": False,
        "floor": negative,
        "ceil": not negative,
        "odd": whole % 2 == 0,
        "round": rest >= Fraction(1, 2),
        "rint": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
    }[mode]


def round_to_integer(value: Fraction, mode: str) -> int:
    magnitude = abs(value)
    whole = magnitude.numerator // magnitude.denominator
    whole += steps_up(whole, magnitude - whole, value < 0, mode)
    return -whole if value < 0 else whole


def round_to_float(value: Fraction, to: DType, mode: str) -> float:
    """`value` rounded to `to`, as a Python float; FP8E4M3FN saturates."""
    precision, smallest_exponent, largest = PARAMETERS[to]
    negative = value < 0
    magnitude = abs(value)
    if magnitude == 0:
        return 0.0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    ulp = Fraction(2) ** (max(exponent, smallest_exponent) - precision + 1)
    units = magnitude / ulp
    whole = units.numerator // units.denominator
    rounded = (whole + steps_up(whole, units - whole, negative, mode)) * ulp
    if rounded <= largest:
        result = float(rounded)
    elif {"rint": True, "round": True, "floor": negative, "ceil": not negative}.get(mode, False):
        result = float(largest) if to is FP8E4M3FN else float("inf")
    else:
        result = float(largest)
    return -result if negative else result


def doubles(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.asarray(x).astype(np.float64)


@cache
def _magnitudes(to: DType) -> Array:
    """Return all finite magnitudes of `to` as doubles, ascending, and the next one after them."""
    codes = np.arange(1 << (to.bits - 1), dtype=np.uint16 if to.bits == 16 else np.uint8)
    values = doubles(codes.view(to.numpy))
    finite = values[np.isfinite(values)]
    return np.append(finite, 2 * finite[-1] - finite[-2])


def round_by_search(x: Array, to: DType, mode: str) -> Array:
    """Doubles (not NaN) rounded to `to`, returned as doubles, -0 kept."""
    table = _magnitudes(to)
    negative = np.signbit(x)
    magnitude = np.abs(x)
    low = np.searchsorted(table, magnitude, side="right") - 1
    low = np.minimum(low, len(table) - 2)
    middle = (table[low] + table[low + 1]) / 2
    exact = table[low] == magnitude
    up = {
        "trunc": np.zeros_like(exact),
        "floor": negative,
        "ceil": ~negative,
        "odd": low % 2 == 0,
        "round": magnitude >= middle,
        "rint": (magnitude > middle) | ((magnitude == middle) & (low % 2 == 1)),
    }[mode] & ~exact
    code = low + up
    overflow = (code == len(table) - 1) | (magnitude >= table[-1])
    to_infinity = {"floor": negative, "ceil": ~negative, "trunc": False, "odd": False}.get(
        mode, np.ones_like(exact)
    )
    infinity = table[-2] if to is FP8E4M3FN else np.inf
    over_result = np.where(to_infinity | np.isinf(x), infinity, table[-2])
    result = np.where(overflow, over_result, table[np.minimum(code, len(table) - 2)])
    return np.where(negative, -result, result)


def same(actual: Array, expected: Array) -> None:
    """Assert equal values, equal signs of zeros, and NaN where NaN is expected."""
    actual, expected = doubles(actual), doubles(expected)
    np.testing.assert_array_equal(actual, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[number]), np.signbit(expected[number]))


def same_bits(actual: Array, expected: Array) -> None:
    """Assert equal bits, except that any NaN equals any other."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
    else:
        same(actual, expected)
