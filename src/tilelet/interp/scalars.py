"""Scalar arithmetic, in plain Python for integers as long as results do not overflow."""

from __future__ import annotations

from tilelet.analysis.scalars import FAST_BINARY, fast_binary
from tilelet.interp.compute import lower_scalar
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.ir.core import Op


@lowers(*FAST_BINARY)
def lower_integer_op(low: Lowering, op: Op) -> Step:
    """Lower a binary scalar op to the reference, with a shortcut for integers."""
    defined = lower_scalar(low, op)
    fast = fast_binary(op)
    if fast is None:
        return defined
    lhs, rhs = low.slot(op.args["lhs"]), low.slot(op.args["rhs"])
    result = low.slot(op.result)

    def step(frame: Frame) -> None:
        value = fast(frame[lhs], frame[rhs])
        if value is NotImplemented:
            defined(frame)
        else:
            frame[result] = value

    return step
