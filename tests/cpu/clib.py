"""The engine's C sources, compiled on their own and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tilelet
from tilelet.cpu.run.build import _key
from tilelet.diag.catalogue.command import NoCompiler
from tilelet.dtypes import BF16, BOOL, FP8E4M3FN, FP8E5M2, FP16, FP32, INT8, UINT8, DType
from tilelet.native import cache
from tilelet.native.toolchain import find_compiler

Array = NDArray[Any]

SOURCES = Path(tilelet.__file__).parent / "cpu" / "c"
FLAGS = (
    "-std=gnu11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi",
    "-Wall", "-Wextra", "-Werror", "-Wno-type-limits",
)  # fmt: skip

# Name: flags. The plain build has neither FMA nor wide registers, so it tests the fallbacks.
BUILDS: dict[str, tuple[str, ...]] = {"native": ("-march=native",)}
if platform.machine() == "x86_64":
    BUILDS["plain"] = ("-march=x86-64",)

# tl_dtype
CODES: dict[DType, int] = {
    FP32: 0, FP16: 1, BF16: 2, FP8E4M3FN: 3, FP8E5M2: 4, INT8: 5, UINT8: 9, BOOL: 13,
}  # fmt: skip


@functools.cache
def build(text: str, flags: tuple[str, ...] = BUILDS["native"]) -> ctypes.CDLL:
    """A library compiled from `text`, which may include the engine's files by name.

    Kept in the user's cache: other test processes and later runs find it there.
    """
    try:
        compiler = find_compiler()
    except NoCompiler:
        pytest.skip("no C compiler on this machine")
    command = [*compiler.command, *FLAGS, *flags, "-fPIC", "-shared", f"-I{SOURCES}"]

    def make(folder: Path) -> None:
        source = folder / "it.c"
        source.write_text(text)
        done = subprocess.run(
            [*command, str(source), "-o", str(folder / "it.so"), "-lm"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return cache.use(
        f"test-{_key(compiler, *command, text)}", make, lambda entry: entry.load("it.so")
    )


def address(x: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def same_bits(x: Array, y: Array) -> bool:
    """Whether two arrays have equal bits; any NaN equals any other."""
    if x.dtype.kind in "iub":
        return x.dtype == y.dtype and np.array_equal(x, y)
    width = np.dtype(f"u{x.dtype.itemsize}")
    x_nan, y_nan = np.isnan(x.astype(np.float32)), np.isnan(y.astype(np.float32))
    bits_equal = np.ascontiguousarray(x).view(width) == np.ascontiguousarray(y).view(width)
    return x.dtype == y.dtype and bool(np.all((x_nan & y_nan) | (bits_equal & ~x_nan & ~y_nan)))


def special_fp32(count: int, seed: int = 0) -> Array:
    """FP32 values of every kind: all exponents, near powers of two, subnormals, zeros, NaN."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    near = (rng.integers(0, 1 << 9, count // 4).astype(np.uint32) << 23) + rng.integers(
        -3, 4, count // 4
    ).astype(np.uint32)
    bits[: count // 4] = near
    fixed = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38, 1.1754944e-38],
        np.float32,
    ).view(np.uint32)
    bits[-len(fixed) :] = fixed
    return bits.view(np.float32)
