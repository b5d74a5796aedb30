"""Index expressions as sums of multiples of values."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.fold import number_of


def constant_difference(x: Arg, y: Arg, definition: Mapping[Value, Op]) -> int | None:
    """X - y if it does not depend on run-time values."""
    (x_terms, x_const), (y_terms, y_const) = _linear(x, definition), _linear(y, definition)
    return x_const - y_const if x_terms == y_terms else None


def _linear(arg: Arg, definition: Mapping[Value, Op]) -> tuple[dict[Value, int], int]:
    """`arg` as a sum of multiples of values, and a constant."""
    if not isinstance(arg, Value):
        number = number_of(arg)
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
