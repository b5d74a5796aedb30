"""Adapters from functions on NumPy arrays (`numerics/`) to references of ops.

A reference takes every bound argument of its op by name; these adapters select the operands,
convert them to one element type, and ignore the rest (scratch tiles, accuracy hints).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tilelet import dtypes, numerics
from tilelet.dtypes import Array, DType

Reference = Callable[..., Any]
Operand = Array | float
Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def to_element(value: float, element: DType) -> Array:
    """Convert a number to an element: floats through FP32, integers modulo the width."""
    if element.is_float:
        with np.errstate(all="ignore"):
            return numerics.cast(np.asarray(value, np.float64).astype(np.float32), element, "rint")
    if element is dtypes.BOOL:
        return np.asarray(bool(value))
    return np.asarray(wrap_integer(int(value), element), element.numpy)


def wrap_integer(value: int, element: DType) -> int:
    """Wrap an integer to the width of an integer type."""
    bits = value & ((1 << element.bits) - 1)
    return bits - (1 << element.bits) if element.is_signed and bits >> (element.bits - 1) else bits


def convert_tile(x: Array, element: DType) -> Array:
    """Convert a tile to the common element type of a binary op."""
    return x if x.dtype == element.numpy else numerics.cast(x, element, "rint")


def match_dtypes(lhs: Operand, rhs: Operand) -> tuple[Array, Array]:
    """Convert two operands, at most one of them a number, to one element type."""
    if isinstance(lhs, np.ndarray) and isinstance(rhs, np.ndarray):
        common = dtypes.promote(numerics.dtype_of(lhs), numerics.dtype_of(rhs))
        return convert_tile(lhs, common), convert_tile(rhs, common)
    if isinstance(lhs, np.ndarray):
        return lhs, to_element(cast("float", rhs), numerics.dtype_of(lhs))
    tile = cast("Array", rhs)
    return to_element(lhs, numerics.dtype_of(tile)), tile


def of_two(function: Binary, first: str = "lhs", second: str = "rhs") -> Reference:
    """Return the reference of an op of two operands, converted to one element type."""

    def reference(**args: Any) -> Array:
        return function(*match_dtypes(args[first], args[second]))

    return reference


def of_one(function: Unary) -> Reference:
    """Return the reference of an op of one tile."""

    def reference(**args: Any) -> Array:
        return function(args["x"])

    return reference
