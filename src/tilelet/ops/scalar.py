"""Arithmetic on scalars: the meaning of Python's operators on run-time numbers.

These ops have no `pl` function: they are written as operators, `pl.min`, `pl.max` and `pl.cast`.
A Python number takes the dtype of the other operand. Integers wrap in their type; `//` and `%`
truncate as on the device, unlike in Python.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelet import dtypes, numerics
from tilelet.diag.catalogue.ops import CastUnsupported, OperandKind
from tilelet.dtypes import BOOL, FP32, TASK_ID, DType
from tilelet.ir.core import Arg, Const, Value, scalar_dtype
from tilelet.ir.faults import DivisionFault
from tilelet.ir.spec import Call, Engine, Infer, OpSpec, Plane, Trait, register
from tilelet.ir.types import ScalarType, Type
from tilelet.ops import infer
from tilelet.ops.cast import check_mode, mode_name
from tilelet.ops.reference import to_element, wrap_integer

Number = int | float | bool
Operation = Callable[..., Any]


def as_number(value: Number, dtype: DType) -> Number:
    """Convert `value` to `dtype`: integers wrap, floats round to nearest even."""
    if dtype is BOOL:
        return bool(value)
    return float(to_element(value, dtype)) if dtype.is_float else wrap_integer(int(value), dtype)


# --- types ---------------------------------------------------------------------------------------


def _dtype_of(call: Call, param: str, symbol: str) -> DType:
    found = scalar_dtype(call[param])
    if found is None or found is TASK_ID:
        raise OperandKind(call.loc, symbol, [_kind(call[p]) for p in call.args])
    return found


def _kind(arg: Arg) -> str:
    if isinstance(arg, Value):
        return str(arg.type)
    return str(scalar_dtype(arg) or infer.describe(arg).strip("`"))


def _common(call: Call, symbol: str) -> DType:
    """Return the common dtype of two operands; a Python number takes that of the other."""
    a, b = _dtype_of(call, "lhs", symbol), _dtype_of(call, "rhs", symbol)
    a_adapts, b_adapts = _adapts(call["lhs"], b), _adapts(call["rhs"], a)
    if b_adapts and not a_adapts:
        return a
    if a_adapts and not b_adapts:
        return b
    return dtypes.promote(a, b)


def _adapts(arg: Arg, other: DType) -> bool:
    if isinstance(arg, (Value, Const, bool)):
        return False
    return other.is_float or (isinstance(arg, int) and other is not BOOL)


def _arithmetic(symbol: str) -> Infer:
    def infer_types(call: Call) -> tuple[Type, ...]:
        common = _common(call, symbol)
        if common is BOOL:
            raise OperandKind(call.loc, symbol, [_kind(a) for a in call.args.values()])
        return (ScalarType(common),)

    return infer_types


def _true_division(call: Call) -> tuple[Type, ...]:
    common = _common(call, "/")
    return (ScalarType(common if common.is_float else FP32),)


def _integers_only(symbol: str) -> Infer:
    def infer_types(call: Call) -> tuple[Type, ...]:
        for param in call.args:
            if not _dtype_of(call, param, symbol).is_integer:
                raise OperandKind(call.loc, symbol, [_kind(a) for a in call.args.values()])
        if "rhs" not in call.args:
            return (ScalarType(_dtype_of(call, "x", symbol)),)
        return (ScalarType(_common(call, symbol)),)

    return infer_types


def _bools_only(symbol: str) -> Infer:
    def infer_types(call: Call) -> tuple[Type, ...]:
        for param in call.args:
            if _dtype_of(call, param, symbol) is not BOOL:
                raise OperandKind(call.loc, symbol, [_kind(a) for a in call.args.values()])
        return (ScalarType(BOOL),)

    return infer_types


def _comparison(symbol: str) -> Infer:
    def infer_types(call: Call) -> tuple[Type, ...]:
        _common(call, symbol)
        return (ScalarType(BOOL),)

    return infer_types


def _infer_signed(symbol: str) -> Infer:
    def infer_types(call: Call) -> tuple[Type, ...]:
        found = _dtype_of(call, "x", symbol)
        if found is BOOL:
            raise OperandKind(call.loc, symbol, [_kind(call["x"])])
        return (ScalarType(found),)

    return infer_types


def _infer_cast(call: Call) -> tuple[Type, ...]:
    source = infer.scalar(call, "x")
    target = infer.dtype(call, "target_type")
    mode = check_mode(call)
    if target is TASK_ID or mode != "round":
        why = "scalars are cast with the default mode only"
        raise CastUnsupported(call.at("mode"), source, target, mode, why)
    return (ScalarType(target),)


# --- references ----------------------------------------------------------------------------------


def _quotient(lhs: int, rhs: int) -> int:
    if rhs == 0:
        raise DivisionFault("//")
    towards_zero = abs(lhs) // abs(rhs)
    return towards_zero if (lhs < 0) == (rhs < 0) else -towards_zero


def _remainder(lhs: int, rhs: int) -> int:
    if rhs == 0:
        raise DivisionFault("%")
    return lhs - rhs * _quotient(lhs, rhs)


def _divide(lhs: Number, rhs: Number) -> float:
    with np.errstate(all="ignore"):
        return float(np.divide(_in_fp32(lhs), _in_fp32(rhs)))


def _in_fp32(number: Number) -> np.float32:
    """Round once: `np.float32` of a Python integer rounds to a double first."""
    return np.float32(number if isinstance(number, float) else _integer_type(number)(number))


def _integer_type(number: int) -> type[np.integer[Any]]:
    return np.uint64 if number > np.iinfo(np.int64).max else np.int64


def _in_double(operation: Operation) -> Operation:
    """An operation on an integer and a float converts the integer, as arithmetic does."""

    def convert(lhs: Number, rhs: Number) -> object:
        if isinstance(lhs, float) or isinstance(rhs, float):
            return operation(float(lhs), float(rhs))
        return operation(lhs, rhs)

    return convert


_MAX_BITS = 64


def _shift_left(lhs: int, rhs: int) -> int:
    return lhs << rhs if 0 <= rhs < _MAX_BITS else 0


def _shift_right(lhs: int, rhs: int) -> int:
    return lhs >> rhs if 0 <= rhs < _MAX_BITS else (-1 if lhs < 0 else 0)


def _both(lhs: bool, rhs: bool) -> bool:
    return lhs and rhs


def _either(lhs: bool, rhs: bool) -> bool:
    return lhs or rhs


def _extreme(choose: Callable[[Number, Number], Number]) -> Operation:
    def operation(lhs: Number, rhs: Number) -> Number:
        for operand in (lhs, rhs):
            if math.isnan(operand):
                return operand
        return choose(lhs, rhs)

    return operation


def _of_two(operation: Operation) -> Callable[..., Number]:
    """Return a reference: the operation on Python numbers, converted to the result's type."""

    def reference(lhs: Number, rhs: Number, result_type: ScalarType) -> Number:
        return as_number(operation(lhs, rhs), result_type.dtype)

    return reference


def _of_one(operation: Operation) -> Callable[..., Number]:
    def reference(x: Number, result_type: ScalarType) -> Number:
        return as_number(operation(x), result_type.dtype)

    return reference


def _cast(x: Number, target_type: DType, mode: str | int, result_type: ScalarType) -> Number:
    if isinstance(x, float):
        source = np.asarray(x, np.float32)
    elif isinstance(x, bool):
        source = np.asarray(x)
    else:
        source = np.asarray(x, _integer_type(x))
    found = numerics.cast(source, target_type, mode_name(mode))
    if target_type.is_float:
        return float(found)
    return bool(found) if target_type is BOOL else int(found)


# --- the ops -------------------------------------------------------------------------------------


def _two(lhs: object, rhs: object) -> Any: ...


def _one(x: object) -> Any: ...


def _cast_signature(x: object, target_type: DType, mode: str | int = "round") -> Any: ...


def _define(name: str, doc: str, rule: Infer, operation: Operation, shape: Any = _two) -> OpSpec:
    return register(
        OpSpec(
            f"scalar.{name}",
            rule,
            engine=Engine.SCALAR,
            plane=Plane.BOTH,
            traits=Trait.SCALAR,
            reference=operation,
            takes_result_type=True,
            on_chip=(),
            signature=inspect.signature(shape),
            doc=doc,
            section="scalar",
        )
    )


_BINARY: tuple[tuple[str, str, str, Callable[[str], Infer], Operation], ...] = (
    ("add", "+", "Sum", _arithmetic, operator.add),
    ("sub", "-", "Difference", _arithmetic, operator.sub),
    ("mul", "*", "Product", _arithmetic, operator.mul),
    ("floordiv", "//", "Quotient of integers, truncated", _integers_only, _quotient),
    ("mod", "%", "Remainder of integers, with the sign of lhs", _integers_only, _remainder),
    ("shl", "<<", "Left shift of integers", _integers_only, _shift_left),
    ("shr", ">>", "Right shift of integers", _integers_only, _shift_right),
    ("and", "and", "Both hold; both are evaluated", _bools_only, _both),
    ("or", "or", "Either holds; both are evaluated", _bools_only, _either),
    ("eq", "==", "Whether they are equal", _comparison, _in_double(operator.eq)),
    ("ne", "!=", "Whether they differ", _comparison, _in_double(operator.ne)),
    ("lt", "<", "Whether lhs is less", _comparison, _in_double(operator.lt)),
    ("le", "<=", "Whether lhs is less or equal", _comparison, _in_double(operator.le)),
    ("gt", ">", "Whether lhs is greater", _comparison, _in_double(operator.gt)),
    ("ge", ">=", "Whether lhs is greater or equal", _comparison, _in_double(operator.ge)),
    ("min", "min", "The smaller; NaN if one is", _arithmetic, _in_double(_extreme(min))),
    ("max", "max", "The greater; NaN if one is", _arithmetic, _in_double(_extreme(max))),
)

OPERATIONS: Mapping[str, Operation] = {name: operation for name, *_, operation in _BINARY}
"""The binary ops on Python numbers, before conversion to the result's type."""

for _name, _symbol, _doc, _rule, _operation in _BINARY:
    _define(_name, f"{_doc}: `lhs {_symbol} rhs`.", _rule(_symbol), _of_two(_operation))

_define("truediv", "Quotient: `lhs / rhs`, FP32 for integers.", _true_division, _of_two(_divide))
_define("neg", "Negation: `-x`.", _infer_signed("-"), _of_one(operator.neg), _one)
_define("pos", "The number itself: `+x`.", _infer_signed("+"), _of_one(operator.pos), _one)
_define(
    "invert", "Complement of an integer: `~x`.", _integers_only("~"), _of_one(operator.invert), _one
)
_define("not", "The opposite: `not x`.", _bools_only("not"), _of_one(operator.not_), _one)
_define("cast", "Conversion: `pl.cast(x, dtype)`.", _infer_cast, _cast, _cast_signature)
