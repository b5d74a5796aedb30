"""numbers.h and reduce.h against numerics: bit for bit, exp, log, sin and cos within 1 ulp."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from tests.cpu.clib import BUILDS, Array, address, build, same_bits, special_fp32

from tilelet import numerics

UNARY = ("exp", "log", "sin", "cos", "sqrt", "rsqrt", "abs", "relu")
BINARY = {"max": numerics.maximum, "min": numerics.minimum, "fmod": numerics.fmod,
          "rem": numerics.rem}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min")
EACH = "for (int64_t i = 0; i < n; i++)"


def source() -> str:
    parts = ['#include "reduce.h"']
    parts += [
        f"void {name}_all(float *y, const float *x, int64_t n)"
        f" {{ {EACH} y[i] = ts_{name}_f32(x[i]); }}"
        for name in UNARY
    ]
    parts += [
        f"void {name}_all(float *y, const float *a, const float *b, int64_t n)"
        f" {{ {EACH} y[i] = ts_{name}_f32(a[i], b[i]); }}"
        for name in BINARY
    ]
    parts += [
        f"float row_{name}(const float *x, int64_t n) {{ return ts_row_{name}_f32(x, n); }}"
        for name in REDUCTIONS
    ]
    return "\n".join(parts)


SOURCE = source()


def run(name: str, *inputs: Array, flags: str = "native") -> Array:
    out = np.empty_like(inputs[0])
    function = getattr(build(SOURCE, BUILDS[flags]), f"{name}_all")
    function(address(out), *(address(x) for x in inputs), ctypes.c_int64(len(out)))
    return out


def ulps_apart(x: Array, y: Array) -> int:
    """Largest distance in FP32 values; NaN and infinities must be in the same places."""
    assert np.array_equal(np.isnan(x), np.isnan(y))
    keys = []
    for v in (x[~np.isnan(x)], y[~np.isnan(y)]):
        magnitude = v.view(np.uint32).astype(np.int64) & 0x7FFFFFFF
        keys.append(np.where(np.signbit(v), -magnitude, magnitude))
    return int(np.abs(keys[0] - keys[1]).max())


def dense(low: float, high: float, count: int = 400_000) -> Array:
    return np.linspace(low, high, count, dtype=np.float64).astype(np.float32)


def every_pattern_between(low: float, high: float) -> Array:
    """All FP32 numbers of one sign in a range, truncated to a multiple of eight."""
    first, last = np.array([low, high], np.float32).view(np.uint32)
    patterns = np.arange(first, last, dtype=np.uint32)
    return patterns[: len(patterns) // 8 * 8].view(np.float32)


SAMPLES: dict[str, list[Array]] = {
    "exp": [dense(-104, 89), dense(-1, 1), dense(-104, -87), dense(88.7, 88.73, 80_000)],
    "log": [every_pattern_between(0.97, 1.04), dense(0, 100), dense(1e-40, 1.3e-38)],
    "sin": [dense(-10, 10), dense(-1e6, 1e6), dense(-3e9, 3e9)],
    "cos": [dense(-10, 10), dense(-1e6, 1e6), dense(-3e9, 3e9)],
}


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("name", SAMPLES)
def test_transcendental_functions_are_within_one_ulp(name: str, flags: str) -> None:
    for x in [*SAMPLES[name], special_fp32(400_000)]:
        assert ulps_apart(run(name, x, flags=flags), getattr(numerics, name)(x)) <= 1


@pytest.mark.parametrize("name", ["log", "sin", "cos"])
def test_functions_in_double_hardly_ever_differ(name: str) -> None:
    x = np.concatenate(SAMPLES[name])
    assert np.count_nonzero(run(name, x) != getattr(numerics, name)(x)) <= len(x) // 20_000


@pytest.mark.parametrize("name", SAMPLES)
def test_builds_agree_bit_for_bit(name: str) -> None:
    x = np.concatenate([SAMPLES[name][0], special_fp32(80_000)])
    results = [run(name, x, flags=flags) for flags in BUILDS]
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize("name", SAMPLES)
def test_zeros_keep_their_sign(name: str) -> None:
    x = np.array([0.0, -0.0] * 4, np.float32)
    assert same_bits(run(name, x), getattr(numerics, name)(x))


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "abs", "relu"])
def test_exact_functions(name: str, flags: str) -> None:
    x = np.concatenate([special_fp32(200_000), every_pattern_between(1.0, 1.05)])
    reference = getattr(numerics, {"abs": "abs_"}.get(name, name))
    assert same_bits(run(name, x, flags=flags), reference(x))


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str) -> None:
    few = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-45], np.float32)
    a = np.concatenate([np.repeat(few, 8), special_fp32(80_000, 1)])
    b = np.concatenate([np.tile(few, 8), special_fp32(80_000, 2)])
    assert same_bits(run(name, a, b), BINARY[name](a, b))


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_of_every_length(name: str, flags: str) -> None:
    function = getattr(build(SOURCE, BUILDS[flags]), f"row_{name}")
    function.restype = ctypes.c_float
    reference = getattr(numerics, f"row_{name}")
    rng = np.random.default_rng(3)
    for length in [*range(1, 41), 255, 1000]:
        rows = [rng.standard_normal(length).astype(np.float32), np.full(length, -0.0, np.float32)]
        if length > 2:
            odd = rows[0].copy()
            odd[rng.integers(length)] = np.nan
            rows += [odd, rng.choice(np.array([0.0, -0.0], np.float32), length)]
        for x in rows:
            got = np.array([[function(address(x), ctypes.c_int64(length))]], np.float32)
            assert same_bits(got, reference(x[None]))


_INT32 = """
#include "numbers.h"
void by_branches(float *y, const int32_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = ts_i64_to_f32(x[i], TL_ROUND);
}
void without(float *y, const int32_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = ts_i32_to_f32(x[i], TL_ROUND);
}
"""


@pytest.mark.parametrize("flags", BUILDS)
def test_int32_rounds_half_away_without_branches(flags: str) -> None:
    """Neighborhoods of powers of two, ties of every width, both ends, and random numbers."""
    rng = np.random.default_rng(0)
    powers = (1 << np.arange(31))[:, None] + np.arange(-300, 300)
    ties = (rng.integers(1 << 23, 1 << 24, (7, 500)) * 2 + 1) << np.arange(7)[:, None]
    drawn = rng.integers(-(1 << 31), 1 << 31, 10_000)
    wide = np.concatenate([powers.ravel(), -powers.ravel(), ties.ravel(), -ties.ravel(), drawn])
    x = np.append(wide[abs(wide) < 1 << 31], -(1 << 31)).astype(np.int32)
    library = build(_INT32, BUILDS[flags])
    results = [np.empty(x.size, np.float32) for _ in range(2)]
    for name, y in zip(("by_branches", "without"), results):
        getattr(library, name)(address(y), address(x), ctypes.c_int64(x.size))
    assert same_bits(*results)
    assert results[0][np.flatnonzero(x == (1 << 24) + 1)[0]] == (1 << 24) + 2
