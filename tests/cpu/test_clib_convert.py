"""convert.h and the casts of numbers.h against numerics: every pattern, every mode."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest
from tests.cpu.clib import BUILDS, Array, address, build, same_bits, special_fp32

from tilelet.dtypes import (
    BF16,
    FP8E4M3FN,
    FP8E5M2,
    FP16,
    FP32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    DType,
)  # fmt: skip
from tilelet.numerics import MODES, cast

# Type names in convert.h and numbers.h, and the unsigned type each is stored in.
NAMES = {BF16: "bf16", FP16: "f16", FP8E4M3FN: "f8e4m3fn", FP8E5M2: "f8e5m2"}
SHORT = {BF16: "bf16", FP16: "f16", FP8E4M3FN: "e4m3", FP8E5M2: "e5m2"}
STORAGE = {d: f"uint{d.bits}_t" for d in NAMES}
INTEGERS = {INT8: "i8", INT16: "i16", INT32: "i32", UINT8: "u8", UINT16: "u16"}


LOOP = "for (int64_t i = 0; i < n; i += 8)"
EACH = "for (int64_t i = 0; i < n; i++)"
CASTS = [m for m in MODES if m != "none"]


def source() -> str:
    """Loops over arrays whose length is a multiple of eight."""
    parts = ['#include "numbers.h"']
    for dtype, name in NAMES.items():
        elem, short = STORAGE[dtype], SHORT[dtype]
        parts.append(f"""
            void widen_{name}(float *y, const {elem} *x, int64_t n) {{
                {LOOP} tl_store_f32(y + i, tl_load_{name}(x + i));
            }}
            void few_{name}(float *y, const {elem} *x, int64_t n) {{
                tl_storen_f32(y, tl_loadn_{name}(x, (int)n), (int)n);
            }}""")
        parts += [
            f"""
            void {mode}_{name}({elem} *y, const float *x, int64_t n) {{
                {EACH} {{
                    ts_{short} code = ts_to_{short}(x[i], TL_{mode.upper()});
                    memcpy(y + i, &code, sizeof code);
                }}
            }}"""
            for mode in CASTS
        ]
    for name, mode in product(INTEGERS.values(), CASTS):
        parts.append(f"""
            void {mode}_{name}(int32_t *y, const float *x, int64_t n) {{
                {EACH} y[i] = (int32_t)ts_f32_to_{name}(x[i], TL_{mode.upper()});
            }}""")
    return "\n".join(parts)


SOURCE = source()


def run(name: str, out: Array, x: Array, flags: str = "native") -> Array:
    function = getattr(build(SOURCE, BUILDS[flags]), name)
    function(address(out), address(x), ctypes.c_int64(len(x)))
    return out


def every_pattern(dtype: DType) -> Array:
    return np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)


def fp32_values() -> Array:
    """All BF16 and FP16 values, their neighbors and midpoints, and random patterns."""
    exact = [every_pattern(d).astype(np.float32).view(np.uint32) for d in (BF16, FP16)]
    edges = np.concatenate(exact)
    halves = np.concatenate([edges + np.uint32(step) for step in (0x1000, 0x8000, 0x80000)])
    near = [bits + np.uint32(d % 2**32) for bits in (edges, halves) for d in (-1, 0, 1)]
    return np.concatenate([*(b.view(np.float32) for b in near), special_fp32(80_000)])


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_every_pattern_widens_exactly(dtype: DType, flags: str) -> None:
    x = every_pattern(dtype)
    got = run(f"widen_{NAMES[dtype]}", np.empty(len(x), np.float32), x, flags=flags)
    assert same_bits(got, cast(x, FP32))


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("mode", CASTS)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_fp32_narrows_in_every_mode(dtype: DType, mode: str, flags: str) -> None:
    x = fp32_values()
    got = run(f"{mode}_{NAMES[dtype]}", np.empty(len(x), f"u{dtype.itemsize}"), x, flags=flags)
    assert same_bits(got.view(dtype.numpy), cast(x, dtype, mode))


@pytest.mark.parametrize("mode", CASTS)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_what_a_type_holds_comes_back(dtype: DType, mode: str) -> None:
    x = every_pattern(dtype)
    wide = run(f"widen_{NAMES[dtype]}", np.empty(len(x), np.float32), x)
    got = run(f"{mode}_{NAMES[dtype]}", np.empty(len(x), f"u{dtype.itemsize}"), wide)
    assert same_bits(got.view(dtype.numpy), cast(wide, dtype, mode))
    finite = np.isfinite(wide)
    assert same_bits(got.view(dtype.numpy)[finite], x[finite])


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("mode", CASTS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_fp32_to_integers_in_every_mode(dtype: DType, mode: str, flags: str) -> None:
    ties = np.arange(-70_000, 70_000, dtype=np.float32) / 2
    limits = np.array([2.0**31, -(2.0**31), 2147483520.0, -2147483904.0, 8388607.5], np.float32)
    x = np.concatenate([ties, np.nextafter(ties, np.float32(9e9)), np.tile(limits, 8)])
    x = np.concatenate([x, special_fp32(80_000)])
    got = run(f"{mode}_{INTEGERS[dtype]}", np.empty(len(x), np.int32), x, flags=flags)
    assert same_bits(got, cast(x, dtype, mode).astype(np.int32))


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_few_elements_touch_no_others(dtype: DType, count: int) -> None:
    x = np.arange(40, 40 + count, dtype=f"u{dtype.itemsize}")
    y = np.full(count + 2, 99, np.float32)
    run(f"few_{NAMES[dtype]}", y[1:], x)
    assert y.tolist() == [99, *cast(x.view(dtype.numpy), FP32).tolist(), 99]
