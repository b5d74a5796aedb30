from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.numerics.exact import Array, doubles, round_to_float, same, same_bits

from tilelet import numerics as nm
from tilelet.dtypes import (
    BF16,
    FP8E4M3FN,
    FP8E5M2,
    FP16,
    FP32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)

FLOATS = (FP32, FP16, BF16, FP8E4M3FN, FP8E5M2)
INTEGERS = (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
BINARY = (nm.add, nm.sub, nm.mul, nm.div, nm.fmod, nm.rem, nm.maximum, nm.minimum)
FLOAT_UNARY = (nm.exp, nm.log, nm.sin, nm.cos, nm.sqrt, nm.rsqrt, nm.recip)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


EXACT = {
    nm.add: lambda a, b: a + b,
    nm.sub: lambda a, b: a - b,
    nm.mul: lambda a, b: a * b,
    nm.div: lambda a, b: a / b,
}


@given(
    st.sampled_from(FLOATS),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(EXACT, key=lambda f: f.__name__)),
)
def test_float_arithmetic_rounds_the_exact_result_once(
    dtype: DType, a_bits: int, b_bits: int, op: object
) -> None:
    a, b = (np.uint32(v).astype(f"u{dtype.itemsize}").view(dtype.numpy) for v in (a_bits, b_bits))
    if not (np.isfinite(a) and np.isfinite(b)) or (op is nm.div and b == 0):
        return
    exact = EXACT[op](Fraction(float(a)), Fraction(float(b)))
    result = float(op(np.asarray(a), np.asarray(b)))
    assert result == round_to_float(exact, dtype, "rint")


def test_small_bf16_products_and_quotients_round_once() -> None:
    """Below FP32's normal range, where FP32 itself rounds first."""
    rng = np.random.default_rng(2)
    for op, exponents in ((nm.mul, (40, 75)), (nm.div, (1, 30))):
        a = rng.integers(exponents[0] << 7, exponents[1] << 7, 1500).astype(np.uint16)
        low, high = (5, 25) if op is nm.mul else (125, 160)
        b = rng.integers(low << 7, high << 7, 1500).astype(np.uint16)
        a, b = a.view(BF16.numpy), b.view(BF16.numpy)
        exact = [EXACT[op](Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b)]
        tiny = [0 < v < Fraction(2) ** -126 for v in exact]
        assert sum(tiny) > 500
        same(op(a, b), np.array([round_to_float(v, BF16, "rint") for v in exact]))


@given(
    st.sampled_from(INTEGERS),
    st.lists(st.tuples(st.integers(), st.integers()), min_size=1, max_size=20),
)
def test_integer_arithmetic_wraps_and_truncates(dtype: DType, pairs: list[tuple[int, int]]) -> None:
    info = np.iinfo(dtype.numpy)
    span = int(info.max) - int(info.min) + 1

    def wrap(v: int) -> int:
        return (v - int(info.min)) % span + int(info.min)

    edges = [(int(info.min), -1), (int(info.min), 1), (int(info.max), 0), (7, 2), (7, -2), (-7, 2)]
    pairs = [(wrap(a), wrap(b)) for a, b in [*pairs, *edges]]
    a, b = (np.array(column, dtype=dtype.numpy) for column in zip(*pairs))

    def truncated(x: int, y: int) -> int:
        return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    for op, reference in {
        nm.add: lambda x, y: x + y,
        nm.sub: lambda x, y: x - y,
        nm.mul: lambda x, y: x * y,
        nm.div: truncated,
        nm.fmod: lambda x, y: 0 if y == 0 else x - truncated(x, y) * y,
        nm.rem: lambda x, y: 0 if y == 0 else x % y,
        nm.maximum: max,
        nm.minimum: min,
    }.items():
        expected = np.array([wrap(reference(x, y)) for x, y in pairs], dtype=dtype.numpy)
        same_bits(op(a, b), expected)
    same_bits(nm.neg(a), np.array([wrap(-x) for x, _ in pairs], dtype=dtype.numpy))
    same_bits(nm.abs_(a), np.array([wrap(abs(x)) for x, _ in pairs], dtype=dtype.numpy))
    same_bits(nm.relu(a), np.array([max(x, 0) for x, _ in pairs], dtype=dtype.numpy))
    same_bits(nm.not_(a), np.array([wrap(~x) for x, _ in pairs], dtype=dtype.numpy))


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.5, -2.5, 1e-45, -1e-45, 3e38]


def grid(dtype: DType = FP32) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        values = np.float32(SPECIAL).astype(dtype.numpy)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def test_maximum_and_minimum_order_nan_and_zeros() -> None:
    a, b = grid()

    def key(v: float) -> tuple[float, float]:
        return v, math.copysign(1, v)

    for op, choose in ((nm.maximum, max), (nm.minimum, min)):
        expected = [
            math.nan if math.isnan(x) or math.isnan(y) else choose(x, y, key=key)
            for x, y in zip(a.tolist(), b.tolist())
        ]
        same_bits(op(a, b), np.float32(expected))
        for dtype in (BF16, FP16):
            small_a, small_b = grid(dtype)
            same_bits(
                op(small_a, small_b),
                op(small_a.astype(np.float32), small_b.astype(np.float32)).astype(dtype.numpy),
            )
    assert not np.signbit(nm.maximum(np.float32(-0.0), np.float32(0.0)))
    assert np.signbit(nm.minimum(np.float32(0.0), np.float32(-0.0)))


def test_division_by_zero_and_invalid_operations_follow_ieee() -> None:
    one, zero, inf = np.float32([1, -1]), np.float32([0, 0]), np.float32([np.inf, np.inf])
    same(nm.div(one, zero), np.array([np.inf, -np.inf]))
    same(nm.div(one, -zero), np.array([-np.inf, np.inf]))
    assert np.isnan(nm.div(zero, zero)).all()
    assert np.isnan(nm.sub(inf, inf)).all()
    same(nm.recip(np.float32([0.0, -0.0, np.inf, 4])), np.array([np.inf, -np.inf, 0, 0.25]))
    same(
        nm.rsqrt(np.float32([0.0, -0.0, np.inf, 4, -1])),
        np.array([np.inf, -np.inf, 0, 0.5, np.nan]),
    )
    same(nm.sqrt(np.float32([-0.0, -1, np.inf])), np.array([-0.0, np.nan, np.inf]))
    same(nm.log(np.float32([0, -1, np.inf, 1])), np.array([-np.inf, np.nan, np.inf, 0]))
    same(nm.exp(np.float32([-np.inf, np.inf, 1000, -1000, 0])), np.array([0, np.inf, np.inf, 0, 1]))
    assert np.isnan(nm.sin(np.float32([np.inf]))).all()
    same(nm.relu(np.float32([-0.0, -3, 2, np.nan, np.inf])), np.array([0.0, 0, 2, np.nan, np.inf]))
    same(nm.neg(np.float32([0.0, -0.0, 2])), np.array([-0.0, 0.0, -2]))
    same(nm.abs_(np.float32([-0.0, -np.inf, 2])), np.array([0.0, np.inf, 2]))


def test_float_remainders() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(500).astype(np.float32) * 10.0**k for k in (3, 0))
    a, b = np.float32(a), np.float32(b)
    same(nm.fmod(a, b), np.array([math.fmod(x, y) for x, y in zip(a.tolist(), b.tolist())]))
    floored = [
        float(np.float32(Fraction(x) - (Fraction(x) // Fraction(y)) * Fraction(y)))
        for x, y in zip(a.tolist(), b.tolist())
    ]
    same(nm.rem(a, b), np.array(floored))
    same(nm.rem(np.float32([4, -4]), np.float32([-2, 2])), np.array([-0.0, 0.0]))
    assert np.isnan(nm.rem(np.float32([1]), np.float32([0]))).all()
    assert np.isnan(nm.fmod(np.float32([np.inf]), np.float32([2]))).all()


def test_nothing_warns_and_types_and_shapes_are_kept() -> None:
    for dtype in FLOATS:
        a, b = grid(dtype)
        for op in BINARY:
            assert op(a, b).dtype == dtype.numpy
            assert op(a.reshape(-1, 1), b[:3]).shape == (a.size, 3)
            scalar = op(np.asarray(a[0]), np.asarray(b[0]))
            assert isinstance(scalar, np.ndarray)
            assert scalar.dtype == dtype.numpy
        for op in (*FLOAT_UNARY, nm.neg, nm.abs_, nm.relu):
            assert op(a).dtype == dtype.numpy
    for op in FLOAT_UNARY:
        assert op(np.int32([[1, 2]])).dtype == np.float32
    same(nm.sqrt(np.int32([16, 2**24 + 1])), np.array([4.0, 4096.0]))


@pytest.mark.parametrize("op", [nm.exp, nm.log, nm.sin, nm.cos])
def test_transcendentals_round_a_good_double(op: Any) -> None:
    x = np.random.default_rng(11).uniform(0.01, 40, 2000).astype(np.float32)
    function = getattr(math, op.__name__)
    same(op(x), np.float32([function(v) for v in x.tolist()]))
    small = x.astype(BF16.numpy)
    same_bits(op(small), op(small.astype(np.float32)).astype(BF16.numpy))


def is_nearest_rsqrt(x: float, result: float) -> bool:
    """Whether the midpoints around FP32 `result` enclose 1/sqrt(x)."""
    r = np.float32(result)
    below, above = (float(np.nextafter(r, np.float32(s))) for s in (0, np.inf))
    low, high = (Fraction(result) + Fraction(below)) / 2, (Fraction(result) + Fraction(above)) / 2
    return Fraction(x) * low**2 < 1 < Fraction(x) * high**2


def test_rsqrt_is_correctly_rounded_for_every_significand() -> None:
    """Inputs are [1, 4): both parities of the exponent, all 2^23 mantissas. The rest scales by 4^n.

    A double within 3 ulp of an FP32 tie could have been rounded to the wrong side: those are
    decided exactly; all others are right because the double is wrong by less than 2 ulp.
    """
    start = int(np.float32(1).view(np.uint32))
    step = 1 << 21
    suspicious: list[float] = []
    for first in range(start, start + (1 << 24), step):
        x = np.arange(first, first + step, dtype=np.uint32).view(np.float32)
        doubles = 1 / np.sqrt(x.astype(np.float64))
        distance = (doubles.view(np.int64) & ((1 << 29) - 1)) - (1 << 28)
        suspicious += x[np.abs(distance) <= 3].tolist()
    assert suspicious, "2^24 values should come this close to a tie now and then"
    results = nm.rsqrt(np.float32(suspicious)).tolist()
    assert all(is_nearest_rsqrt(x, r) for x, r in zip(suspicious, results))
    scaled = np.array(suspicious, np.float32) * np.float32(2.0**-140)
    exact = scaled.astype(np.float64) * 2.0**140 == np.float32(suspicious)
    assert nm.rsqrt(scaled[exact]).tolist() == [r * 2.0**70 for r, e in zip(results, exact) if e]


@pytest.mark.parametrize("dtype", [BF16, FP16, FP8E4M3FN, FP8E5M2], ids=str)
def test_roots_and_reciprocals_of_every_small_float_round_once(dtype: DType) -> None:
    codes = np.arange(1 << (dtype.bits - 1), dtype=f"u{dtype.itemsize}")
    x = codes.view(dtype.numpy)
    x = x[np.isfinite(doubles(x))][1:]
    x = x[:: max(1, len(x) // 4000)]
    exact = [Fraction(v) for v in x.astype(np.float64).tolist()]
    same(nm.recip(x), np.array([round_to_float(1 / v, dtype, "rint") for v in exact]))
    # This many bits of a root decide a tie; exact roots come out exact.
    roots = [Fraction(math.isqrt(int(v * 2**600)), 2**300) for v in exact]
    same(nm.sqrt(x), np.array([round_to_float(r, dtype, "rint") for r in roots]))
    inverse = [Fraction(math.isqrt(int(2**900 / v)), 2**450) for v in exact]
    same(nm.rsqrt(x), np.array([round_to_float(r, dtype, "rint") for r in inverse]))


def test_bitwise_and_shifts() -> None:
    a = np.int8([-128, -1, 0, 1, 127])
    b = np.int8([1, 7, 8, -1, 100])
    assert nm.and_(a, b).tolist() == [0, 7, 0, 1, 100]
    assert nm.or_(a, b).tolist() == [-127, -1, 8, -1, 127]
    assert nm.xor(a, b).tolist() == [-127, -8, 8, -2, 27]
    assert nm.shl(a, b).tolist() == [0, -128, 0, 0, 0]
    assert nm.shr(a, b).tolist() == [-64, -1, 0, 0, 0]
    assert nm.shr(np.int8([-5, -5, -5, 5]), np.int8([8, -1, 127, -128])).tolist() == [-1, -1, -1, 0]
    flags = np.array([True, False])
    assert nm.not_(flags).tolist() == [False, True]
    assert nm.xor(flags, ~flags).tolist() == [True, True]


@given(st.sampled_from(INTEGERS), st.integers(0, 2**64 - 1), st.integers(-200, 300))
def test_shifts_by_any_amount(dtype: DType, bits: int, amount: int) -> None:
    info = np.iinfo(dtype.numpy)
    amount = min(max(amount, int(info.min)), int(info.max))
    a = np.uint64(bits).astype(dtype.numpy)
    defined = 0 <= amount < dtype.bits
    left = (int(a) << amount) % (1 << dtype.bits) if defined else 0
    right = int(a) >> amount if defined else (-1 if a < 0 else 0)
    shift = np.asarray(amount, dtype=dtype.numpy)
    assert int(nm.shl(np.asarray(a), shift)) % (1 << dtype.bits) == left
    assert int(nm.shr(np.asarray(a), shift)) == right


def test_wrong_types_are_refused() -> None:
    f, i, flag = np.float32([1]), np.int32([1]), np.array([True])
    with pytest.raises(TypeError, match=r"pl\.FP32 and pl\.INT32"):
        nm.add(f, i)
    with pytest.raises(TypeError, match="BOOL"):
        nm.add(flag, flag)
    with pytest.raises(TypeError, match="BOOL"):
        nm.neg(flag)
    with pytest.raises(TypeError, match="bitwise"):
        nm.and_(f, f)
    with pytest.raises(TypeError, match="shifts"):
        nm.shl(flag, flag)
