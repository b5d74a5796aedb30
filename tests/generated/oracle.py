"""An independent definition of what kernels compute: NumPy, exact tables, and C's `fmaf`.

Nothing here comes from `tilelet`: the rules are those of the language (docs, numerics contract),
worked out in another way than the package does. Narrow floats are rounded by searching the table of
all their values; products are accumulated by `fmaf`; integers are Python's.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS: dict[str, Any] = {
    "FP32": np.float32,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FP8E5M2": ml_dtypes.float8_e5m2,
}
INTEGERS: dict[str, Any] = {
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
}
_OTHERS = {"UINT32": np.uint32, "INT64": np.int64, "UINT64": np.uint64, "BOOL": np.bool_}
NUMPY: dict[str, Any] = {**FLOATS, **INTEGERS, **_OTHERS}
SIGNIFICANT_BITS = {"FP32": 24, "FP16": 11, "BF16": 8}


def limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(INTEGERS[dtype])
    return int(info.min), int(info.max)


# --- rounding ------------------------------------------------------------------------------------


@functools.cache
def _magnitudes(dtype: str) -> tuple[Array, bool]:
    """Return all finite non-negative values of a narrow float, then the one after the largest.

    The position is the value's code. The flag says whether the type has an infinity.
    """
    bits = np.dtype(FLOATS[dtype]).itemsize * 8
    codes = np.arange(1 << (bits - 1), dtype=f"u{bits // 8}")
    values = codes.view(FLOATS[dtype]).astype(np.float64)
    finite = values[np.isfinite(values)]
    assert np.all(np.diff(finite) > 0)
    after = finite[-1] + (finite[-1] - finite[-2])
    return np.append(finite, after), bool(np.any(np.isinf(values)))


def _step_up(mode: str, below: Array, above: Array, m: Array, odd: Array, negative: Array) -> Array:
    """Whether a magnitude between two neighbors rounds up; `odd`: the lower one's code is odd."""
    middle = (below + above) / 2
    inexact = m > below
    if mode in ("rint", "none"):
        return (m > middle) | ((m == middle) & odd)
    if mode == "round":
        return m >= middle
    if mode == "odd":
        return inexact & ~odd
    if mode == "trunc":
        return np.zeros_like(inexact)
    return inexact & (negative if mode == "floor" else ~negative)


def round_float(x: Array, dtype: str, mode: str) -> Array:
    """Doubles rounded once to a float type."""
    x = np.asarray(x, np.float64)
    negative, m = np.signbit(x), np.abs(x)
    if dtype == "FP32":
        return _round_fp32(m, negative, mode, np.isnan(x))
    table, has_infinity = _magnitudes(dtype)
    safe = np.where(np.isnan(m), 0.0, np.minimum(m, table[-1]))
    low = np.clip(np.searchsorted(table, safe, side="right") - 1, 0, len(table) - 2)
    up = _step_up(mode, table[low], table[low + 1], safe, low % 2 == 1, negative)
    magnitude = table[low + up]
    over = magnitude == table[-1]
    if has_infinity:
        magnitude = np.where(over | np.isinf(m), np.inf, magnitude)
    else:
        magnitude = np.minimum(magnitude, table[-2])
    result = np.where(np.isnan(m), np.nan, np.copysign(magnitude, np.where(negative, -1.0, 1.0)))
    return result.astype(FLOATS[dtype])


def _round_fp32(m: Array, negative: Array, mode: str, nan: Array) -> Array:
    with np.errstate(all="ignore"):
        near = m.astype(np.float32)
        below = np.where(near <= m, near, np.nextafter(near, np.float32(0)))
        above = np.where(near >= m, near, np.nextafter(near, np.float32(np.inf)))
    odd = (below.astype(np.float32).view(np.uint32) & 1) == 1
    exact = below == above
    up = ~exact & _step_up(mode, below.astype(float), above.astype(float), m, odd, negative)
    magnitude = np.where(up, above, below).astype(np.float32)
    return np.where(nan, np.float32(np.nan), np.where(negative, -magnitude, magnitude))


def round_integer(x: Array, mode: str) -> Array:
    """Doubles that hold FP32 values, rounded to integers."""
    down, up = np.floor(np.abs(x)), np.ceil(np.abs(x))
    rounded = np.where(
        _step_up("trunc" if mode == "none" else mode, down, up, np.abs(x), down % 2 == 1, x < 0)
        & (down != up),
        up,
        down,
    )
    return np.copysign(rounded, x)


def cast(x: Array, dtype: str, mode: str = "round") -> Array:
    with np.errstate(all="ignore"):
        return _cast(x, dtype, mode)


def _cast(x: Array, dtype: str, mode: str) -> Array:
    source = name_of(x)
    if source == "BOOL":
        x, source = x.astype(np.uint8), "UINT8"
    if dtype == "BOOL":
        return x.astype(np.float64) != 0
    if dtype in FLOATS:
        return round_float(x.astype(np.float64), dtype, mode)
    low, high = limits(dtype)
    if source in FLOATS:
        wide = x.astype(np.float64)
        rounded = round_integer(np.where(np.isfinite(wide), wide, 0.0), mode)
        rounded = np.where(np.isinf(wide), np.copysign(2.0**40, wide), rounded)
        return np.clip(rounded, low, high).astype(np.int64).astype(INTEGERS[dtype])
    return np.clip(x.astype(np.int64), low, high).astype(INTEGERS[dtype])


def name_of(x: Array) -> str:
    return next(name for name, numpy_type in NUMPY.items() if np.dtype(numpy_type) == x.dtype)


# --- elementwise ---------------------------------------------------------------------------------


def promote(a: str, b: str) -> str:
    """Common type of two operands whose conversion to it is exact."""
    if a == b:
        return a
    if (a in FLOATS) != (b in FLOATS):
        return a if a in FLOATS else b
    return a if np.dtype(NUMPY[a]).itemsize > np.dtype(NUMPY[b]).itemsize else b


def matched(a: Array, b: Array) -> tuple[Array, Array, str]:
    common = promote(name_of(a), name_of(b))
    return cast(a, common, "rint"), cast(b, common, "rint"), common


def _on_floats(a: Array, b: Array, operation: Callable[[Array, Array], Array], dtype: str) -> Array:
    exact = operation(a.astype(np.float32), b.astype(np.float32))
    assert exact.dtype == np.float32
    return round_float(exact, dtype, "rint")


def _on_integers(a: Array, b: Array, operation: Callable[[int, int], int], dtype: str) -> Array:
    a, b = np.broadcast_arrays(a, b)
    flat = [_wrap(operation(int(p), int(q)), dtype) for p, q in zip(a.ravel(), b.ravel())]
    return np.array(flat, INTEGERS[dtype]).reshape(a.shape)


def _wrap(value: int, dtype: str) -> int:
    low, high = limits(dtype)
    return (value - low) % (high - low + 1) + low


def _truncated_quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _truncated_remainder(a: int, b: int) -> int:
    return 0 if b == 0 else a - b * _truncated_quotient(a, b)


def _float_fmod(a: Array, b: Array) -> Array:
    def one(p: float, q: float) -> float:
        if math.isnan(p) or math.isnan(q) or math.isinf(p) or q == 0:
            return math.nan
        return math.fmod(p, q)

    return np.vectorize(one, otypes=[np.float64])(a, b).astype(np.float32)


def _float_rem(a: Array, b: Array) -> Array:
    r = _float_fmod(a, b)
    b = np.broadcast_to(b, r.shape)
    moved = np.where(np.signbit(r) != np.signbit(b), r + b, r).astype(np.float32)
    return np.where(r == 0, np.copysign(np.float32(0), b), moved)


def _greater(a: Array, b: Array) -> Array:
    """The greater operand; NaN wins; +0 beats -0."""
    a, b = np.broadcast_arrays(a, b)
    pick_a = (a > b) | ((a == b) & ~np.signbit(a))
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), np.where(pick_a, a, b))


def _smaller(a: Array, b: Array) -> Array:
    return -_greater(-a, -b)


_BINARY: dict[str, tuple[Callable[[Array, Array], Array], Callable[[int, int], int]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / b, _truncated_quotient),
    "fmod": (_float_fmod, _truncated_remainder),
    "rem": (_float_rem, lambda a, b: 0 if b == 0 else a % b),
    "maximum": (_greater, max),
    "minimum": (_smaller, min),
}
_BITWISE: dict[str, Callable[[int, int], int]] = {
    "and_": lambda a, b: a & b,
    "or_": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def binary(name: str, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        if name in _BITWISE:
            a, b, dtype = matched(a, b)
            return _on_integers(a, b, _BITWISE[name], dtype)
        if name in ("shl", "shr"):
            return _shift(name, a, b)
        if name == "expdif":
            return unary("exp", binary("sub", a, b))
        on_floats, on_integers = _BINARY[name]
        a, b, dtype = matched(a, b)
        if dtype in FLOATS:
            return _on_floats(a, b, on_floats, dtype)
        return _on_integers(a, b, on_integers, dtype)


def _shift(name: str, a: Array, b: Array) -> Array:
    bits = a.itemsize * 8

    def one(value: int, by: int) -> int:
        if name == "shl":
            return value << by if 0 <= by < bits else 0
        return value >> by if 0 <= by < bits else (-1 if value < 0 else 0)

    return _on_integers(a, b, one, name_of(a))


_ROOT = {
    "sqrt": np.sqrt,
    "recip": lambda x: np.float32(1) / x,
    "rsqrt": lambda x: (np.longdouble(1) / np.sqrt(x.astype(np.longdouble))).astype(np.float32),
}
_TRANSCENDENTAL = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos}


def unary(name: str, x: Array) -> Array:
    dtype = name_of(x)
    with np.errstate(all="ignore"):
        if name in _ROOT or name in _TRANSCENDENTAL:
            wide = cast(x, "FP32", "rint")
            result = dtype if dtype in FLOATS else "FP32"
            if name in _ROOT:
                return round_float(_ROOT[name](wide), result, "rint")
            single = _TRANSCENDENTAL[name](wide.astype(np.float64)).astype(np.float32)
            return round_float(single, result, "rint")
        if dtype in FLOATS:
            wide = x.astype(np.float32)
            found = {
                "neg": lambda: -wide,
                "abs": lambda: np.abs(wide),
                "relu": lambda: np.where(np.isnan(wide) | (wide > 0), wide, np.float32(0)),
            }[name]()
            return round_float(found, dtype, "rint")
    one: Callable[[int], int] = {
        "neg": lambda v: -v,
        "abs": abs,
        "relu": lambda v: max(v, 0),
        "not_": lambda v: ~v,
    }[name]
    return np.array([_wrap(one(int(v)), dtype) for v in x.ravel()], x.dtype).reshape(x.shape)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def compare(kind: str, a: Array, b: Array) -> Array:
    return _COMPARE[kind](a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


# --- reductions and products ---------------------------------------------------------------------


def _fold_row(x: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """Eight lanes, then halves: the order fixed by the numerics contract."""
    lanes = [x[:, j] for j in range(min(8, x.shape[1]))]
    for j in range(8, x.shape[1]):
        lanes[j % 8] = combine(lanes[j % 8], x[:, j])
    for width in (4, 2, 1):
        for j in range(width):
            if j + width < len(lanes):
                lanes[j] = combine(lanes[j], lanes[j + width])
        lanes = lanes[:width]
    return lanes[0][:, None]


def _fold_column(x: Array, combine: Callable[[Array, Array], Array]) -> Array:
    total = x[0]
    for row in x[1:]:
        total = combine(total, row)
    return total[None, :]


def reduce(name: str, x: Array) -> Array:
    """`row_sum`, `col_max`, `row_argmin`, ..."""
    along, _, kind = name.partition("_")
    dtype = name_of(x)
    if kind.startswith("arg"):
        return _position(x, kind, 1 if along == "row" else 0)
    fold = _fold_row if along == "row" else _fold_column
    combine, of_integers = _BINARY[
        {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[kind]
    ]
    with np.errstate(all="ignore"):
        if dtype in FLOATS:
            return round_float(fold(x.astype(np.float32), combine), dtype, "rint")
        return fold(x, lambda a, b: _on_integers(a, b, of_integers, dtype))


def _position(x: Array, kind: str, axis: int) -> Array:
    lines = (x if axis == 1 else x.T).astype(np.float64)
    found: list[int] = []
    for line in lines:
        keys = [math.inf if math.isnan(v) else (v if kind == "argmax" else -v) for v in line]
        nans = [j for j, v in enumerate(line) if math.isnan(v)]
        found.append(nans[0] if nans else keys.index(max(keys)))
    result = np.array(found, np.int32)
    return result[:, None] if axis == 1 else result[None, :]


@functools.cache
def _fmaf() -> Callable[[float, float, float], float]:
    function = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
    function.restype = ctypes.c_float
    function.argtypes = [ctypes.c_float] * 3
    return function


def matmul(a: Array, b: Array, start: Array | None = None) -> Array:
    """FP32 by fused multiply-add over ascending k, or exact INT32."""
    shape = (a.shape[0], b.shape[1])
    if name_of(a) == "INT8":
        total = a.astype(np.int64) @ b.astype(np.int64)
        total += 0 if start is None else start
        return total.astype(np.int32)
    fma = _fmaf()
    result = np.zeros(shape, np.float32) if start is None else start.astype(np.float32)
    rows, columns = a.astype(np.float64).tolist(), b.astype(np.float64).T.tolist()
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            total_here = float(result[i, j])
            for p, q in zip(row, column):
                total_here = fma(p, q, total_here)
            result[i, j] = total_here
    return result


# --- tiles with a valid region -------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """An on-chip value: zero outside the box `valid` at the origin."""

    data: Array
    valid: tuple[int, ...]

    @property
    def inside(self) -> Array:
        return self.data[tuple(slice(0, v) for v in self.valid)]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


def whole(data: Array) -> Tile:
    return Tile(np.ascontiguousarray(data), data.shape)


def padded(inside: Array, shape: tuple[int, ...]) -> Tile:
    data = np.zeros(shape, inside.dtype)
    data[tuple(slice(0, v) for v in inside.shape)] = inside
    return Tile(data, inside.shape)


def _spread(t: Tile, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(v if d == s else s for v, d, s in zip(t.valid, t.shape, shape))


def zipped(function: Callable[..., Array], *tiles: Tile) -> Tile:
    """Apply an elementwise function to the common valid part; extents of 1 are broadcast."""
    shape = tuple(max(t.shape[axis] for t in tiles) for axis in range(2))
    common = (
        tuple(map(min, *(_spread(t, shape) for t in tiles))) if len(tiles) > 1 else tiles[0].valid
    )
    parts = [
        t.data[tuple(slice(0, v if d == s else 1) for v, d, s in zip(common, t.shape, shape))]
        for t in tiles
    ]
    found = function(*parts)
    return padded(np.ascontiguousarray(np.broadcast_to(found, common)), shape)


def accumulated(a: Array, b: Array, start: Tile | None, shape: tuple[int, ...]) -> Tile:
    """The product of the valid parts, added to the start, if given, where both have data."""
    inner = min(a.shape[1], b.shape[0])
    rows, columns = a.shape[0], b.shape[1]
    begin = None
    if start is not None:
        rows, columns = min(rows, start.valid[0]), min(columns, start.valid[1])
        begin = start.data[:rows, :columns].copy()
    return padded(matmul(a[:rows, :inner], b[:inner, :columns], begin), shape)


PAD = {"zero": 0.0, "min": -math.inf, "max": math.inf}


def filled(t: Tile, pad: str, shape: tuple[int, ...] | None = None) -> Tile:
    dtype = name_of(t.data)
    if dtype in FLOATS or pad == "zero":
        value = NUMPY[dtype](PAD[pad])
    else:
        value = INTEGERS[dtype](limits(dtype)[pad == "max"])
    data = np.full(shape or t.shape, value, t.data.dtype)
    data[tuple(slice(0, v) for v in t.valid)] = t.inside
    return whole(data)
