"""Arithmetic that is known at compile time: constants, neutral operands, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet import dtypes
from tilelet.diag.core import UserError
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Const, Op, Value, scalar_dtype
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ops import scalar
from tilelet.ops.registry import Call, OpSpec

# What leaves the other operand unchanged, by its position.
_NEUTRAL: Mapping[str, Mapping[int, int]] = {
    "scalar.add": {0: 0, 1: 0},
    "scalar.sub": {1: 0},
    "scalar.mul": {0: 1, 1: 1},
    "scalar.floordiv": {1: 1},
}

_DEFAULTS: Mapping[type, DType] = {int: dtypes.INDEX, bool: dtypes.BOOL, float: dtypes.FP32}


def fold_scalar(spec: OpSpec, args: Sequence[Arg]) -> Arg | None:
    """What a scalar op gives, if that is known: a constant, or one of its operands."""
    if spec.group != "scalar":
        return None
    if not any(isinstance(a, Value) for a in args):
        return _evaluated(spec, args)
    for position, neutral in _NEUTRAL.get(spec.name, {}).items():
        number, other = _number(args[position]), args[1 - position]
        if number != neutral or _result_dtype(spec, args) is not scalar_dtype(other):
            continue
        if neutral == 0 and _result_dtype(spec, args).is_float:
            continue  # -0.0 + 0.0 is 0.0
        return other
    return None


def fold_dim(op: Op) -> int | None:
    """The extent that `tensor.dim` asks for, if it is in the type."""
    if op.name != "tensor.dim":
        return None
    tensor, axis = op.args["tensor"], op.args["axis"]
    assert isinstance(tensor, Value)
    assert isinstance(tensor.type, TensorType | TileType)
    assert isinstance(axis, int)
    extent = tensor.type.shape[axis]
    return extent if isinstance(extent, int) else None


def pinned(value: float | bool, dtype: DType) -> Arg:
    """A constant of that dtype: a plain Python number where that means the same."""
    return value if _DEFAULTS[type(value)] is dtype else Const(value, dtype)


def _number(arg: Arg) -> int | float | None:
    value = arg.value if isinstance(arg, Const) else arg
    return value if isinstance(value, int | float) else None


def _evaluated(spec: OpSpec, args: Sequence[Arg]) -> Arg | None:
    values = [a.value if isinstance(a, Const) else a for a in args]
    dtype = _result_dtype(spec, args)
    try:
        return pinned(scalar.fold(spec, values, dtype), dtype)  # type: ignore[arg-type]
    except UserError:
        return None  # a division by zero: the run reports it, if it gets there


def _result_dtype(spec: OpSpec, args: Sequence[Arg]) -> DType:
    (type_,) = spec.infer(Call(spec.name, dict(zip(spec.signature.parameters, args)), False))
    assert isinstance(type_, ScalarType)
    return type_.dtype


def constant_difference(x: Arg, y: Arg, definition: Mapping[Value, Op]) -> int | None:
    """X - y if it does not depend on run-time values."""
    (x_terms, x_const), (y_terms, y_const) = _linear(x, definition), _linear(y, definition)
    return x_const - y_const if x_terms == y_terms else None


def _linear(arg: Arg, definition: Mapping[Value, Op]) -> tuple[dict[Value, int], int]:
    """`arg` as a sum of multiples of values, and a constant."""
    if not isinstance(arg, Value):
        number = _number(arg)
        assert isinstance(number, int)
        return {}, number
    op = definition.get(arg)
    if op is not None and op.name in ("scalar.add", "scalar.sub", "scalar.mul"):
        (a, a_const), (b, b_const) = (_linear(x, definition) for x in op.args.values())
        if op.name == "scalar.mul":
            if a and b:
                return {arg: 1}, 0
            terms, factor = (a, b_const) if a else (b, a_const)
            return _terms((terms, factor)), a_const * b_const
        sign = 1 if op.name == "scalar.add" else -1
        return _terms((a, 1), (b, sign)), a_const + sign * b_const
    return {arg: 1}, 0


def _terms(*scaled: tuple[dict[Value, int], int]) -> dict[Value, int]:
    total: dict[Value, int] = {}
    for terms, factor in scaled:
        for v, n in terms.items():
            total[v] = total.get(v, 0) + factor * n
    return {v: n for v, n in total.items() if n}
