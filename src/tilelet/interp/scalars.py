"""Scalar arithmetic. On integers it is Python's own, as long as no result leaves its type."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tilelet.interp.compute import lower_scalar
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.ir.core import Op, scalar_dtype
from tilelet.ir.types import ScalarType
from tilelet.tasks.window import limits_of

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
# Equal to Python's for operands that are not negative; those may not be zero on the right.
_ON_NATURALS: Mapping[str, Callable[[int, int], int]] = {
    "scalar.floordiv": operator.floordiv,
    "scalar.mod": operator.mod,
}


@lowers(*_ON_INTEGERS, *_ON_NATURALS)
def lower_integer_op(low: Lowering, op: Op) -> Step:
    """A binary scalar op: the reference, with a short cut for integers."""
    defined = lower_scalar(low, op)
    operands = [scalar_dtype(op.args["lhs"]), scalar_dtype(op.args["rhs"])]
    if not all(d is not None and d.is_integer for d in operands):
        return defined
    assert isinstance(op.result.type, ScalarType)
    lowest, highest = limits_of(op.result.type.dtype)
    lhs, rhs = low.slot(op.args["lhs"]), low.slot(op.args["rhs"])
    result = low.slot(op.result)
    if op.name in _ON_NATURALS:
        naturals = _ON_NATURALS[op.name]

        def on_naturals(frame: Frame) -> None:
            a, b = frame[lhs], frame[rhs]
            if 0 <= a <= highest and b > 0:
                frame[result] = naturals(a, b)
            else:
                defined(frame)

        return on_naturals
    integers = _ON_INTEGERS[op.name]

    def on_integers(frame: Frame) -> None:
        value = integers(frame[lhs], frame[rhs])
        if lowest <= value <= highest:
            frame[result] = value
        else:
            defined(frame)

    return on_integers
