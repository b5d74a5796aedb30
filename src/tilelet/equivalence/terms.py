"""Symbolic values: elements and scalars as hashes of the operations that computed them.

Equal hashes mean equal terms. Elements are 64-bit hashes in arrays. Integer scalars are evaluated
at a random point of a 127-bit prime field, so that equal polynomials are equal and constant
differences are visible; other scalars are hashes, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.dtypes import DType
from tilelet.ir.core import Const

Terms: TypeAlias = NDArray[np.uint64]

ZERO = np.uint64(0)
"""The term of a zero of any type, with which ops that move elements may pad."""

_FIELD = (1 << 127) - 1
_MAX_DIFFERENCE = 1 << 40
"""Maximum distance of two evaluations that means a constant difference (by chance: 2**-86)."""

_MULTIPLY = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT = (np.uint64(30), np.uint64(27), np.uint64(31))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Symbol:
    """An unknown scalar: an element of the field."""

    point: int

    def __add__(self, other: Symbol | int) -> Symbol | int:
        return _number_or_symbol((self.point + _point(other)) % _FIELD)

    def __sub__(self, other: Symbol | int) -> Symbol | int:
        return _number_or_symbol((self.point - _point(other)) % _FIELD)

    def __mul__(self, other: Symbol | int) -> Symbol | int:
        return _number_or_symbol(self.point * _point(other) % _FIELD)


Scalar: TypeAlias = Symbol | int | float | bool


def _point(value: Symbol | int) -> int:
    return value.point if isinstance(value, Symbol) else int(value) % _FIELD


def _number_or_symbol(point: int) -> Symbol | int:
    """Return a number if all symbols cancel."""
    if point < _MAX_DIFFERENCE:
        return point
    return point - _FIELD if _FIELD - point < _MAX_DIFFERENCE else Symbol(point)


def difference(a: Symbol | int, b: Symbol | int) -> int | None:
    """Return `a - b` if it is constant, else None."""
    found = _number_or_symbol((_point(a) - _point(b)) % _FIELD)
    return found if isinstance(found, int) else None


def symbol(*parts: object) -> Symbol:
    """Return the scalar that these parts identify."""
    text = "\0".join(map(_text, parts)).encode()
    return Symbol(int.from_bytes(hashlib.blake2b(text, digest_size=15).digest(), "little"))


@cache
def _tag(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def tag(*parts: object) -> np.uint64:
    """Hash values that are known during symbolic execution."""
    return np.uint64(_tag("\0".join(map(_text, parts))))


def _text(part: object) -> str:
    if isinstance(part, Symbol):
        return f"?{part.point}"
    if isinstance(part, Const):
        return f"{part.dtype}:{part.value!r}"
    if isinstance(part, (tuple, list)):
        items = cast("Sequence[object]", part)
        return f"({','.join(map(_text, items))})"
    if isinstance(part, np.integer):
        return f"#{int(cast('int', part))}"
    if isinstance(part, DType):
        return part.name
    return f"{type(part).__name__} {part!r}"


def has_symbol(part: object) -> bool:
    """Whether a scalar, or one in a tuple, is unknown."""
    if isinstance(part, (tuple, list)):
        return any(map(has_symbol, cast("Sequence[object]", part)))
    return isinstance(part, Symbol)


def constant(value: Scalar, dtype: DType) -> np.uint64:
    """Return the element term of a scalar."""
    if isinstance(value, Symbol):
        return tag("scalar", value, dtype)
    if value == 0 and not np.signbit(value):
        return ZERO
    return tag("constant", float(value) if dtype.is_float else int(value), dtype)


def mix(x: Terms) -> Terms:
    """Scramble every element (the finalizer of SplitMix64)."""
    x = (x ^ (x >> _SHIFT[0])) * _MULTIPLY[0]
    x = (x ^ (x >> _SHIFT[1])) * _MULTIPLY[1]
    return x ^ (x >> _SHIFT[2])


def combine(head: np.uint64, *parts: Terms | np.uint64) -> Terms:
    """Return the terms of the elementwise operation `head`."""
    with np.errstate(over="ignore"):
        made = np.asarray(mix(np.asarray(head + _GOLDEN)))
        for part in parts:
            made = mix(made * _GOLDEN + np.asarray(part, np.uint64))
    return made


def grid(shape: Sequence[int]) -> Terms:
    """Return the position of each element of an array."""
    return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(tuple(shape))


def digest(terms: Terms, axes: tuple[int, ...] | None = None) -> Terms:
    """Hash an array, or its elements along some axes (kept with extent 1), in their order."""
    chosen = tuple(range(terms.ndim)) if axes is None else axes
    along = [n if axis in chosen else 1 for axis, n in enumerate(terms.shape)]
    with np.errstate(over="ignore"):
        salted = combine(tag("digest", tuple(along)), terms, grid(along))
        summed = salted.sum(axis=chosen, keepdims=axes is not None, dtype=np.uint64)
        return np.asarray(mix(np.asarray(summed)))
