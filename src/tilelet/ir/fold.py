"""Constant folding: constants, neutral operands, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet import dtypes
from tilelet.diag.core import UNKNOWN, Loc, UserError
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Const, Op, Value, scalar_dtype
from tilelet.ir.faults import Fault
from tilelet.ir.spec import Call, OpSpec, Trait
from tilelet.ir.types import ScalarType, TensorType, TileType

# The neutral operand of each op, by its position.
_NEUTRAL: Mapping[str, Mapping[int, int]] = {
    "scalar.add": {0: 0, 1: 0},
    "scalar.sub": {1: 0},
    "scalar.mul": {0: 1, 1: 1},
    "scalar.floordiv": {1: 1},
}

Number = int | float | bool

_DEFAULTS: Mapping[type, DType] = {int: dtypes.INDEX, bool: dtypes.BOOL, float: dtypes.FP32}


def evaluate(
    spec: OpSpec, values: Sequence[Number], result: DType, loc: Loc = UNKNOWN
) -> int | float | bool:
    """Return the value of a scalar op on these operands, as a number of type `result`.

    Raises the catalogue's error at `loc` if there is none (integer division by zero).
    """
    assert spec.reference is not None
    names = spec.signature.parameters
    try:
        return spec.reference(**dict(zip(names, values)), result_type=ScalarType(result))
    except Fault as fault:
        raise fault.error(loc) from None


def fold_scalar(spec: OpSpec, args: Sequence[Arg]) -> Arg | None:
    """Fold a scalar op to a constant or to one of its operands, if possible."""
    if Trait.SCALAR not in spec.traits:
        return None
    if not any(isinstance(a, Value) for a in args):
        return _evaluate_constants(spec, args)
    for position, neutral in _NEUTRAL.get(spec.name, {}).items():
        number, other = number_of(args[position]), args[1 - position]
        if number != neutral or _result_dtype(spec, args) is not scalar_dtype(other):
            continue
        if neutral == 0 and _result_dtype(spec, args).is_float:
            continue  # -0.0 + 0.0 is 0.0
        return other
    return None


def fold_dim(op: Op) -> int | None:
    """Return the extent that `tensor.dim` reads, if the type contains it."""
    if op.name != "tensor.dim":
        return None
    tensor, axis = op.args["tensor"], op.args["axis"]
    assert isinstance(tensor, Value)
    assert isinstance(tensor.type, TensorType | TileType)
    assert isinstance(axis, int)
    extent = tensor.type.shape[axis]
    return extent if isinstance(extent, int) else None


def pin_constant(value: float | bool, dtype: DType) -> Arg:
    """Return a constant of that dtype, as a plain Python number where that is equivalent."""
    return value if _DEFAULTS[type(value)] is dtype else Const(value, dtype)


def number_of(arg: Arg) -> int | float | None:
    value = arg.value if isinstance(arg, Const) else arg
    return value if isinstance(value, int | float) else None


def _evaluate_constants(spec: OpSpec, args: Sequence[Arg]) -> Arg | None:
    values = [a.value if isinstance(a, Const) else a for a in args]
    dtype = _result_dtype(spec, args)
    try:
        return pin_constant(evaluate(spec, values, dtype), dtype)  # type: ignore[arg-type]
    except UserError:
        return None  # division by zero: reported at run time if reached


def _result_dtype(spec: OpSpec, args: Sequence[Arg]) -> DType:
    (type_,) = spec.infer(Call(spec.name, dict(zip(spec.signature.parameters, args)), False))
    assert isinstance(type_, ScalarType)
    return type_.dtype
