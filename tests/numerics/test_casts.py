from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.numerics.exact import (
    Array,
    doubles,
    round_by_search,
    round_to_float,
    round_to_integer,
    same,
    same_bits,
)

from tilelet import dtypes
from tilelet.dtypes import (
    BF16,
    BOOL,
    FP8E4M3FN,
    FP8E5M2,
    FP16,
    FP32,
    INDEX,
    INT8,
    INT16,
    INT32,
    INT64,
    TASK_ID,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)
from tilelet.numerics import MODES, cast

SMALL_FLOATS = (FP16, BF16, FP8E4M3FN, FP8E5M2)
INTEGERS = (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, INDEX)
ROUNDING_MODES = [m for m in MODES if m != "none"]


def all_patterns(dtype: DType) -> Array:
    return np.arange(1 << dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8).view(
        dtype.numpy
    )


def value_range(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def delicate_fp32(to: DType) -> Array:
    """FP32 values on, between and next to values of `to`, and around both ends of its range."""
    codes = all_patterns(to).astype(np.float32)
    codes = codes[np.isfinite(codes)]
    if to.bits == 16:
        rng = np.random.default_rng(7)
        largest = np.sort(np.abs(codes))[-40:]
        smallest = np.sort(np.abs(codes))[:2200]
        codes = np.concatenate([rng.choice(codes, 3000), largest, -largest, smallest, -smallest])
    codes = np.sort(codes)
    middles = (codes[:-1].astype(np.float64) + codes[1:]) / 2
    base = np.concatenate([codes, middles]).astype(np.float32)
    with np.errstate(over="ignore"):
        neighbors = [np.nextafter(base, np.float32(s)) for s in (np.inf, -np.inf)]
        ends = codes[[0, -1]] * np.float32([[1.0], [1.01], [1.04], [1.1], [2], [1e3], [1e30]])
    special = np.float32([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38])
    return np.concatenate([base, *neighbors, ends.ravel(), special])


@pytest.mark.parametrize("to", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("mode", ROUNDING_MODES)
def test_fp32_to_small_float_finds_the_right_neighbor(to: DType, mode: str) -> None:
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 1 << 32, 20_000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([delicate_fp32(to), patterns[~np.isnan(patterns)]])
    same(cast(x, to, mode), round_by_search(x.astype(np.float64), to, mode))


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    st.sampled_from(SMALL_FLOATS),
    st.sampled_from(ROUNDING_MODES),
)
def test_fp32_to_small_float_equals_exact_fractions(x: list[float], to: DType, mode: str) -> None:
    expected = [np.copysign(abs(round_to_float(Fraction(v), to, mode)), v) for v in x]
    same(cast(np.float32(x), to, mode), np.array(expected))


@pytest.mark.parametrize("to", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("mode", ROUNDING_MODES)
def test_delicate_values_equal_exact_fractions(to: DType, mode: str) -> None:
    x = np.random.default_rng(3).choice(delicate_fp32(to), 400)
    x = x[np.isfinite(x)]
    expected = [np.copysign(abs(round_to_float(Fraction(float(v)), to, mode)), v) for v in x]
    same(cast(x, to, mode), np.array(expected))


@pytest.mark.parametrize("source", [FP16, BF16], ids=str)
@pytest.mark.parametrize("to", SMALL_FLOATS, ids=str)
def test_every_16_bit_float_to_every_small_float(source: DType, to: DType) -> None:
    x = all_patterns(source)
    x = x[~np.isnan(doubles(x))]
    for mode in ROUNDING_MODES:
        same(cast(x, to, mode), round_by_search(x.astype(np.float64), to, mode))


@pytest.mark.parametrize("source", SMALL_FLOATS, ids=str)
def test_every_small_float_to_fp32_and_to_itself_is_exact(source: DType) -> None:
    x = all_patterns(source)
    for mode in MODES:
        same(cast(x, FP32, mode), doubles(x))
        same_bits(cast(x, source, mode), x)


@pytest.mark.parametrize("source", [FP16, BF16], ids=str)
def test_every_16_bit_float_to_every_integer(source: DType) -> None:
    x = all_patterns(source)
    numbers = np.nan_to_num(doubles(x), nan=0.0, posinf=2.0**200, neginf=-(2.0**200))
    whole = np.floor(np.abs(numbers))
    rest = np.abs(numbers) - whole
    negative = numbers < 0
    odd = np.fmod(whole, 2) == 1
    up = {
        "trunc": np.zeros_like(odd),
        "floor": negative & (rest > 0),
        "ceil": ~negative & (rest > 0),
        "odd": ~odd & (rest > 0),
        "round": rest >= 0.5,
        "rint": (rest > 0.5) | ((rest == 0.5) & odd),
    }
    for mode in ROUNDING_MODES:
        magnitudes = (whole + up[mode]).tolist()
        rounded = [int(-m if n else m) for m, n in zip(magnitudes, negative)]
        as_objects = np.array(rounded, dtype=object)
        for to in INTEGERS:
            expected = np.clip(as_objects, *value_range(to)).astype(to.numpy)
            same_bits(cast(x, to, mode), expected)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    st.sampled_from(ROUNDING_MODES),
)
def test_fp32_to_integers_equals_exact_fractions(x: list[float], mode: str) -> None:
    for to in INTEGERS:
        low, high = value_range(to)
        expected = [min(max(round_to_integer(Fraction(v), mode), low), high) for v in x]
        same_bits(cast(np.float32(x), to, mode), np.array(expected, dtype=to.numpy))


def test_fp32_to_integers_at_the_edges() -> None:
    edges = np.float32([2**31, -(2**31), 2**63, -(2**63), 2**64, 2**32, 127.5, 128, -128.5, 255.5])
    edges = np.concatenate([edges, np.nextafter(edges, np.float32(0))])
    edges = np.concatenate([edges, np.float32([0.49999997, -0.49999997, 0.5, -0.5, 8388607.5])])
    for mode in ROUNDING_MODES:
        for to in INTEGERS:
            low, high = value_range(to)
            expected = [
                min(max(round_to_integer(Fraction(float(v)), mode), low), high) for v in edges
            ]
            same_bits(cast(edges, to, mode), np.array(expected, dtype=to.numpy))


def test_nan_and_infinity_to_integers() -> None:
    x = np.float32([np.nan, np.inf, -np.inf])
    for to in INTEGERS:
        low, high = value_range(to)
        for mode in MODES:
            assert cast(x, to, mode).tolist() == [0, high, low]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("to", SMALL_FLOATS, ids=str)
def test_nan_and_infinity_to_small_floats(to: DType, mode: str) -> None:
    x = np.float32([np.nan, -np.nan, np.inf, -np.inf])
    x = np.append(x, np.uint32(0x7F800001).view(np.float32))  # NaN with a long payload
    infinity = 448 if to is FP8E4M3FN else np.inf
    same(cast(x, to, mode), np.array([np.nan, np.nan, infinity, -infinity, np.nan]))


INTERESTING_INTS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.builds(
        lambda sign, power, off: sign * 2**power + off,
        st.sampled_from([1, -1]),
        st.integers(20, 63),
        st.integers(-3, 3),
    ),
    # Close to ties of a p-bit significand, in the last bits of a long integer.
    st.builds(
        lambda head, precision, power, off: ((2**precision + head) * 2 + 1) * 2**power + off,
        st.integers(0, 3),
        st.sampled_from([2, 3, 7, 10, 23]),
        st.integers(2, 38),
        st.integers(-1, 1),
    ),
)


@given(st.lists(INTERESTING_INTS, min_size=1, max_size=20), st.sampled_from(ROUNDING_MODES))
def test_integers_to_floats_round_once(x: list[int], mode: str) -> None:
    for source in (INT32, INT64, UINT32, UINT64):
        low, high = value_range(source)
        held = [v for v in x if low <= v <= high]
        for to in (FP32, *SMALL_FLOATS):
            expected = [round_to_float(Fraction(v), to, mode) for v in held]
            same(cast(np.array(held, source.numpy), to, mode), np.array(expected))


def test_the_longest_integers_round_once() -> None:
    steps = (0, 1, 2, 3, 2**39 - 1, 2**39, 2**39 + 1, 2**40, 3 * 2**39 + 1)
    x = [2**63 + s for s in steps] + [2**64 - 1 - s for s in steps]
    for mode in ROUNDING_MODES:
        for to in (FP32, *SMALL_FLOATS):
            expected = [round_to_float(Fraction(v), to, mode) for v in x]
            same(cast(np.array(x, np.uint64), to, mode), np.array(expected))
    lowest = np.array([-(2**63), -(2**63) + 1])
    assert cast(lowest, FP32, "ceil").tolist() == [-(2.0**63), -(2.0**63) + 2.0**39]


@pytest.mark.parametrize("source", [INT8, UINT8, INT16, UINT16], ids=str)
def test_every_short_integer_to_every_float(source: DType) -> None:
    low, high = value_range(source)
    x = np.arange(low, high + 1).astype(source.numpy)
    for mode in ROUNDING_MODES:
        same(cast(x, FP32, mode), x)
        for to in SMALL_FLOATS:
            same(cast(x, to, mode), round_by_search(x.astype(np.float64), to, mode))


@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_integer_to_integer_saturates(source: DType) -> None:
    low, high = value_range(source)
    x = [
        v
        for t in INTEGERS
        for edge in value_range(t)
        for v in (edge - 1, edge, edge + 1, edge // 3)
    ]
    x = [v for v in x if low <= v <= high]
    for to in INTEGERS:
        to_low, to_high = value_range(to)
        expected = np.array([min(max(v, to_low), to_high) for v in x], dtype=to.numpy)
        for mode in MODES:
            same_bits(cast(np.array(x, source.numpy), to, mode), expected)


def test_bool_is_not_zero_and_zero_or_one() -> None:
    for source in (FP32, *SMALL_FLOATS):
        x = np.array([0.0, -0.0, 1.0, -2.0, np.nan, 2.0**-6]).astype(source.numpy)
        assert cast(x, BOOL).tolist() == [False, False, True, True, True, True]
    assert cast(np.float32([1e-45, np.inf]), BOOL).tolist() == [True, True]
    for to in (*INTEGERS, FP32, *SMALL_FLOATS):
        converted = cast(np.array([True, False]), to)
        assert converted.dtype == to.numpy
        assert converted.astype(float).tolist() == [1, 0]
        assert cast(np.array([3, 0]).astype(to.numpy), BOOL).tolist() == [True, False]
    assert cast(np.array([True, False]), BOOL).tolist() == [True, False]


def test_mode_none_is_exact_or_rint_or_trunc() -> None:
    x = np.float32([1.75, -1.75, 2.5, 3.5, 1 + 2**-8, 1 + 3 * 2**-8])
    assert cast(x, INT32, "none").tolist() == [1, -1, 2, 3, 1, 1]
    same_bits(cast(x, BF16, "none"), cast(x, BF16, "rint"))
    same_bits(cast(x, FP32, "none"), x)
    ties = np.array([2**24 + 1, 2**24 + 3])
    assert cast(ties, FP32, "none").tolist() == [2**24, 2**24 + 4]


def test_default_mode_rounds_ties_away_from_zero() -> None:
    x = np.float32([0.5, -0.5, 2.5, -2.5])
    assert cast(x, INT8).tolist() == [1, -1, 3, -3]
    tie = np.float32([1 + 2**-8, -(1 + 2**-8)])
    assert cast(tie, BF16).astype(float).tolist() == [1 + 2**-7, -(1 + 2**-7)]
    assert cast(tie, BF16, "rint").astype(float).tolist() == [1, -1]


def test_shapes_strides_and_freshness() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for to in (FP32, BF16, INT8, BOOL):
        transposed = cast(x.transpose(2, 0, 1), to, "floor")
        same_bits(transposed, cast(x, to, "floor").transpose(2, 0, 1))
        assert not np.shares_memory(cast(x, to, "none"), x)
        scalar = cast(np.array(2.5, np.float32), to, "floor")
        assert isinstance(scalar, np.ndarray)
        assert scalar.shape == ()
        assert cast(np.zeros((0, 3), np.int64), to).shape == (0, 3)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown cast mode 'nearest'"):
        cast(np.float32([1]), BF16, "nearest")
    with pytest.raises(TypeError, match="TASK_ID"):
        cast(np.int64([1]), TASK_ID)
    with pytest.raises(TypeError, match="float64"):
        cast(np.float64([1]), FP32)


def test_every_pair_of_types_gives_the_target_type() -> None:
    data = [d for d in dtypes.ALL if d is not TASK_ID]
    for source in data:
        x = np.array([0, 1]).astype(source.numpy)
        for to in data:
            for mode in MODES:
                result = cast(x, to, mode)
                assert result.dtype == to.numpy
                assert result.astype(float).tolist() == [0, 1]
