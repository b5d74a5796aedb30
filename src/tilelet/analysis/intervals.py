"""Intervals of index expressions, with bounds that are affine in a kernel's scalar parameters."""

from __future__ import annotations

from tilelet.analysis.scalars import Domain, apply, stays_in_type
from tilelet.dataclasses import dataclass
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.fold import number_of


@dataclass(frozen=True, slots=True)
class Interval:
    """`low + sum(factor * parameter)` .. `high + sum(factor * parameter)`, both ends included.

    factors  pairs (position of the parameter, factor), sorted by position
    """

    low: int
    high: int
    factors: tuple[tuple[int, int], ...] = ()

    def plus(self, other: Interval, sign: int = 1) -> Interval:
        merged = dict(self.factors)
        for position, factor in other.factors:
            merged[position] = merged.get(position, 0) + sign * factor
        kept = tuple(sorted((p, f) for p, f in merged.items() if f))
        low, high = (other.low, other.high) if sign > 0 else (-other.high, -other.low)
        return Interval(self.low + low, self.high + high, kept)

    def times(self, factor: int) -> Interval:
        ends = sorted((self.low * factor, self.high * factor))
        factors = tuple((p, f * factor) for p, f in self.factors) if factor else ()
        return Interval(ends[0], ends[1], factors)

    @property
    def constant(self) -> int | None:
        return self.low if self.low == self.high and not self.factors else None

    def union(self, other: Interval) -> Interval | None:
        """Return the hull of both, or None if their parameter factors differ."""
        if self.factors != other.factors:
            return None
        return Interval(min(self.low, other.low), max(self.high, other.high), self.factors)


class _Arithmetic(Domain[Interval]):
    def constant(self, number: int) -> Interval:
        return Interval(number, number)

    def number(self, a: Interval) -> int | None:
        return a.constant

    def add(self, a: Interval, b: Interval) -> Interval:
        return a.plus(b)

    def subtract(self, a: Interval, b: Interval) -> Interval:
        return a.plus(b, -1)

    def scale(self, a: Interval, factor: int) -> Interval:
        return a.times(factor)

    def quotient(self, a: Interval, divisor: int) -> Interval | None:
        if divisor < 0 or any(f % divisor for _, f in a.factors):
            return None
        if not a.factors:
            return Interval(
                _truncated_quotient(a.low, divisor), _truncated_quotient(a.high, divisor)
            )
        # The rounding direction would depend on the sign, and so on the parameters.
        factors = tuple((p, f // divisor) for p, f in a.factors)
        return Interval(a.low // divisor, -(-a.high // divisor), factors)

    def remainder(self, a: Interval, divisor: int) -> Interval:
        most = abs(divisor) - 1
        if a.factors:
            return Interval(-most, most)
        return Interval(0 if a.low >= 0 else -most, 0 if a.high <= 0 else most)

    def least(self, a: Interval, b: Interval) -> Interval | None:
        if a.factors or b.factors:
            return None
        return Interval(min(a.low, b.low), min(a.high, b.high))

    def greatest(self, a: Interval, b: Interval) -> Interval | None:
        if a.factors or b.factors:
            return None
        return Interval(max(a.low, b.low), max(a.high, b.high))


def _truncated_quotient(a: int, divisor: int) -> int:
    return a // divisor if a >= 0 else -(-a // divisor)


class Intervals:
    """Intervals of the scalars of a kernel over all iterations of its loops.

    None for values that depend on data.
    """

    _ARITHMETIC = _Arithmetic()

    def __init__(self, params: tuple[Value, ...]) -> None:
        self.values: dict[Value, Interval | None] = {
            p: Interval(0, 0, ((i, 1),)) for i, p in enumerate(params)
        }

    def get(self, arg: Arg) -> Interval | None:
        if isinstance(arg, Value):
            return self.values.get(arg)
        number = number_of(arg)
        return Interval(number, number) if isinstance(number, int) else None

    def bind(self, op: Op) -> None:
        """Record the interval of the result of one scalar op."""
        if op.results:
            found = apply(self._ARITHMETIC, op, self.get) if stays_in_type(op) else None
            self.values[op.results[0]] = found

    def iterate(self, index: Value | None, start: Arg, stop: Arg, step: Arg) -> None:
        """Record the interval of a loop index: from `start` up to but excluding `stop`."""
        if index is None:
            return
        first, end, by = self.get(start), self.get(stop), self.get(step)
        self.values[index] = None
        if first is None or end is None or by is None or not by.constant:
            return
        # Bounds with different parameter factors form no single interval.
        if first.factors != end.factors:
            return
        low, high = _of_index(first, end, by.constant)
        self.values[index] = Interval(low, high, first.factors)


def _of_index(first: Interval, end: Interval, stride: int) -> tuple[int, int]:
    """Return the minimum and maximum index of a loop that runs at least once."""
    if first.low == first.high and end.low == end.high:
        trips = max(1, -((first.low - end.low) // stride))
        last = first.low + (trips - 1) * stride
        return min(first.low, last), max(first.low, last)
    if stride > 0:
        return first.low, max(first.high, end.high - 1)
    return min(first.low, end.low + 1), first.high
