"""Abstract interpretation of scalar ops, in any domain.

`ops/scalar.py` defines the ops. Only this module maps them to sums, multiples, quotients and so on;
a `Domain` implements those for numbers, columns of numbers, affine forms, intervals or C
expressions.
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tilelet import dtypes
from tilelet.analysis import patience
from tilelet.diag.core import UserError
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Op, Value, scalar_dtype
from tilelet.ir.fold import Number, evaluate, number_of
from tilelet.ir.spec import OpSpec
from tilelet.ir.types import ScalarType

T = TypeVar("T")


WIDE = (dtypes.INDEX, dtypes.INT64)
"""Types of index arithmetic, which no index of a tensor that fits in memory leaves."""


class Domain(abc.ABC, Generic[T]):
    """Arithmetic on abstract integers; None means that nothing is known.

    constant, number  the abstraction of a number, and the number of an abstraction, if it is one
    the others        as named; `quotient` and `remainder` truncate, and `divisor` is not 0
    """

    @abc.abstractmethod
    def constant(self, number: int) -> T | None: ...

    @abc.abstractmethod
    def number(self, a: T) -> int | None: ...

    def add(self, a: T, b: T) -> T | None: ...

    def subtract(self, a: T, b: T) -> T | None: ...

    def scale(self, a: T, factor: int) -> T | None: ...

    def quotient(self, a: T, divisor: int) -> T | None: ...

    def remainder(self, a: T, divisor: int) -> T | None: ...

    def least(self, a: T, b: T) -> T | None: ...

    def greatest(self, a: T, b: T) -> T | None: ...

    def binary(self, operation: str, a: T, b: T) -> T | None:
        """Apply a binary scalar op, named without `scalar.`."""
        match operation:
            case "add":
                return self.add(a, b)
            case "sub":
                return self.subtract(a, b)
            case "mul":
                factor = self.number(b)
                if factor is not None:
                    return self.scale(a, factor)
                factor = self.number(a)
                return None if factor is None else self.scale(b, factor)
            case "floordiv" | "mod":
                divisor = self.number(b)
                if not divisor:
                    return None
                return (self.quotient if operation == "floordiv" else self.remainder)(a, divisor)
            case "min":
                return self.least(a, b)
            case "max":
                return self.greatest(a, b)
            case _:
                return None


def apply(domain: Domain[T], op: Op, get: Callable[[Arg], T | None]) -> T | None:
    """Return the result of a scalar op on integers, from the abstractions of its operands.

    Results are assumed not to overflow their type: domains that cannot check it are given wide
    types only, see `stays_in_type`.
    """
    name = op.name.removeprefix("scalar.")
    if name == "cast":
        return get(op.args["x"]) if _keeps_value(op) else None
    if name == op.name or "rhs" not in op.args:
        return None
    a, b = get(op.args["lhs"]), get(op.args["rhs"])
    return None if a is None or b is None else domain.binary(name, a, b)


def _keeps_value(op: Op) -> bool:
    """Return whether a cast preserves every value of its operand's type."""
    source, target = scalar_dtype(op.args["x"]), op.result.type
    assert isinstance(target, ScalarType)
    if source is None or not source.is_integer or not target.dtype.is_integer:
        return False
    (low, high), (lowest, highest) = source.limits, target.dtype.limits
    return lowest <= low and high <= highest


def stays_in_type(op: Op) -> bool:
    """Return whether a result can be assumed not to wrap: index types are wide enough."""
    if len(op.results) != 1:  # a loop or branch with several results
        return False
    type_ = op.result.type
    return isinstance(type_, ScalarType) and type_.dtype in WIDE


# --- values --------------------------------------------------------------------------------------

# Equal to the reference on integers, if the result does not overflow.
_ON_INTEGERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "scalar.add": operator.add,
    "scalar.sub": operator.sub,
    "scalar.mul": operator.mul,
    "scalar.min": min,
    "scalar.max": max,
    "scalar.eq": operator.eq,
    "scalar.ne": operator.ne,
    "scalar.lt": operator.lt,
    "scalar.le": operator.le,
    "scalar.gt": operator.gt,
    "scalar.ge": operator.ge,
}
# Equal to the reference for non-negative operands; the right one may not be zero.
_ON_NATURALS: Mapping[str, Callable[[int, int], int]] = {
    # Its stub has no types.
    "scalar.floordiv": cast("Any", operator.floordiv),  # pyright: ignore[reportUnknownMemberType]
    "scalar.mod": operator.mod,
}
FAST_BINARY = (*_ON_INTEGERS, *_ON_NATURALS)
"""Ops for which `fast_binary` may have a short cut."""
_FAST = frozenset(FAST_BINARY)


def fast_binary(op: Op) -> Callable[[Any, Any], Any] | None:
    """Return a binary op on integers in plain Python arithmetic, or None if there is no shortcut.

    It returns NotImplemented where Python differs from the reference.
    """
    operands = [scalar_dtype(op.args["lhs"]), scalar_dtype(op.args["rhs"])]
    if not all(d is not None and d.is_integer for d in operands):
        return None
    assert isinstance(op.result.type, ScalarType)
    return _fast_binary(op.name, op.result.type.dtype)


@functools.cache
def _fast_binary(name: str, result: DType) -> Callable[[Any, Any], Any] | None:
    lowest, highest = result.limits
    if name in _ON_NATURALS:
        naturals = _ON_NATURALS[name]

        def on_naturals(a: int, b: int) -> Any:
            return naturals(a, b) if 0 <= a <= highest and b > 0 else NotImplemented

        return on_naturals
    integers = _ON_INTEGERS.get(name)
    if integers is None:
        return None

    def on_integers(a: int, b: int) -> Any:
        value = integers(a, b)
        return value if lowest <= value <= highest else NotImplemented

    return on_integers


class ScalarValues:
    """Concrete scalar values during one execution of a kernel, block `block` of `blocks`.

    None for values that depend on data, or on the block if that is None.
    """

    def __init__(
        self, values: Mapping[Value, object], block: int | None = 0, blocks: int | None = 1
    ) -> None:
        self.values: dict[Value, object] = dict(values)
        self._of_block = {"get_block_idx": block, "get_subblock_idx": 0, "get_block_num": blocks}

    def get(self, arg: Arg) -> Any:
        return self.values.get(arg) if isinstance(arg, Value) else number_of(arg)

    def bind(self, op: Op) -> None:
        """Evaluate one scalar op."""
        patience.step()
        if op.results:
            self.values[op.results[0]] = self._value(op)

    def _value(self, op: Op) -> object:
        type_ = op.results[0].type
        if op.name in self._of_block:
            return self._of_block[op.name]
        if not op.name.startswith("scalar.") or not isinstance(type_, ScalarType):
            return None
        if op.name in _FAST:
            a, b = self.get(op.args["lhs"]), self.get(op.args["rhs"])
            fast = _fast_binary(op.name, type_.dtype)
            if fast is not None and type(a) is int and type(b) is int:
                value = fast(a, b)
                if value is not NotImplemented:
                    return value
        elif op.name == "scalar.cast" and type(x := self.get(op.args["x"])) is int:
            lowest, highest = type_.dtype.limits if type_.dtype.is_integer else (0, -1)
            if lowest <= x <= highest:
                return x
        operands = [self.get(op.args[p]) if p in ("lhs", "rhs", "x") else op.args[p]
                    for p in op.spec.signature.parameters]  # fmt: skip
        if None in operands:
            return None
        return evaluate_op(op.spec, operands, type_.dtype)


def evaluate_op(spec: OpSpec, operands: list[Any], result: DType) -> Number | None:
    """Return the reference's result, or None if it has none (a division by zero)."""
    try:
        return evaluate(spec, operands, result)
    except UserError:
        return None


# --- columns of values ---------------------------------------------------------------------------

Column = NDArray[np.int64]


def binary_column(name: str, a: Column, b: Column, result: DType) -> Column | None:
    """Apply a binary op elementwise to integers of at most 64 bits.

    None if an element has no result, or if results are not integers.
    """
    if result.is_float or result is dtypes.UINT64:
        return None
    if name in ("scalar.floordiv", "scalar.mod"):
        if (b == 0).any():
            return None
        found = _truncated_division(name, a, b)
    else:
        function = _COLUMNS.get(name)
        if function is None:
            return None
        found = function(a, b)
    return wrapped_column(np.asarray(found).astype(np.int64), result)


def _truncated_division(name: str, a: Column, b: Column) -> Column:
    """Return the quotient or remainder, truncated towards zero."""
    with np.errstate(all="ignore"):
        remainder = np.fmod(a, b)
        # -2**63 // -1 overflows: it wraps as in the reference, and its remainder is 0.
        return remainder if name == "scalar.mod" else (a - remainder) // b


def _shifted_left(a: Column, b: Column) -> Column:
    return np.where((b >= 0) & (b < 64), a << (b & 63), 0)


def _shifted_right(a: Column, b: Column) -> Column:
    return np.where((b >= 0) & (b < 64), a >> (b & 63), np.where(a < 0, -1, 0))


_COLUMNS: Mapping[str, Callable[[Column, Column], Any]] = {
    "scalar.add": np.add,
    "scalar.sub": np.subtract,
    "scalar.mul": np.multiply,
    "scalar.min": np.minimum,
    "scalar.max": np.maximum,
    "scalar.eq": np.equal,
    "scalar.ne": np.not_equal,
    "scalar.lt": np.less,
    "scalar.le": np.less_equal,
    "scalar.gt": np.greater,
    "scalar.ge": np.greater_equal,
    "scalar.and": np.logical_and,
    "scalar.or": np.logical_or,
    "scalar.shl": _shifted_left,
    "scalar.shr": _shifted_right,
}


def wrapped_column(column: Column, dtype: DType) -> Column:
    """Wrap integers to the width of their type."""
    if dtype is dtypes.BOOL:
        return (column != 0).astype(np.int64)
    if dtype.bits >= 64:
        return column
    low, _ = dtype.limits
    return ((column - low) & ((1 << dtype.bits) - 1)) + low
