"""`x * 0` and `x - x`, which return zeros even if `x` is unwritten memory.

Programs zero memory that way. Any other use of unwritten memory shows up in the results.
"""

from __future__ import annotations

from tilelet.ir.core import Arg, Const, Op, Value
from tilelet.ir.types import TileType


def cleared_operand(op: Op) -> str | None:
    """Return the operand that an op zeroes, if it is `x * 0` or `x - x`."""
    if op.name in ("mul", "muls"):
        for x, other in (("lhs", "rhs"), ("rhs", "lhs")):
            if _is_tile(op.args[x]) and _is_zero(op.args[other]):
                return x
    if op.name == "sub" and _is_tile(op.args["lhs"]) and op.args["lhs"] is op.args["rhs"]:
        return "lhs"
    return None


def _is_tile(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def _is_zero(arg: Arg) -> bool:
    number = arg.value if isinstance(arg, Const) else arg
    return isinstance(number, (int, float)) and number == 0
