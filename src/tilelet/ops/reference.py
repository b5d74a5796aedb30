"""From functions on NumPy arrays (`numerics/`) to references of ops.

A reference takes every bound argument of its op by name; these adapters pick the operands, bring
them to one element type, and leave the rest (scratch tiles, accuracy hints) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tilelet import dtypes, numerics
from tilelet.dtypes import DType
from tilelet.numerics.casts import Array

Reference = Callable[..., Any]
Operand = Array | float
Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def narrowed(value: float, element: DType) -> Array:
    """A number as an element of a tile: floats by way of FP32, integers modulo the width."""
    if element.is_float:
        with np.errstate(all="ignore"):
            return numerics.cast(np.asarray(value, np.float64).astype(np.float32), element, "rint")
    if element is dtypes.BOOL:
        return np.asarray(bool(value))
    return np.asarray(wrapped(int(value), element), element.numpy)


def wrapped(value: int, element: DType) -> int:
    """An integer modulo the width of an integer type."""
    bits = value & ((1 << element.bits) - 1)
    return bits - (1 << element.bits) if element.is_signed and bits >> (element.bits - 1) else bits


def converted(x: Array, element: DType) -> Array:
    """A tile brought to the common element type of a binary op."""
    return x if x.dtype == element.numpy else numerics.cast(x, element, "rint")


def matched(lhs: Operand, rhs: Operand) -> tuple[Array, Array]:
    """Two operands, at most one of them a number, with one element type."""
    if isinstance(lhs, np.ndarray) and isinstance(rhs, np.ndarray):
        common = dtypes.promote(numerics.dtype_of(lhs), numerics.dtype_of(rhs))
        return converted(lhs, common), converted(rhs, common)
    if isinstance(lhs, np.ndarray):
        return lhs, narrowed(cast("float", rhs), numerics.dtype_of(lhs))
    tile = cast("Array", rhs)
    return narrowed(lhs, numerics.dtype_of(tile)), tile


def of_two(function: Binary, first: str = "lhs", second: str = "rhs") -> Reference:
    """Reference of an op of two operands, matched first."""

    def reference(**args: Any) -> Array:
        return function(*matched(args[first], args[second]))

    return reference


def of_one(function: Unary, param: str = "x") -> Reference:
    """Reference of an op of one tile."""

    def reference(**args: Any) -> Array:
        return function(args[param])

    return reference
