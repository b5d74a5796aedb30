"""Lower and upper bounds of scalars, each tracked separately: `min(n, 64)` is at most 64."""

from __future__ import annotations

import math

from tilelet.analysis.scalars import Domain
from tilelet.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range with both ends included; infinite where nothing is known."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def most(self) -> int | None:
        """The upper bound, if finite."""
        return None if math.isinf(self.high) else int(self.high)

    def fits(self, low: float, high: float) -> bool:
        """Return whether the known ends lie in a range."""
        return all(math.isinf(end) or low <= end <= high for end in (self.low, self.high))


UNKNOWN = Bounds()


class BoundsArithmetic(Domain[Bounds]):
    """Arithmetic on bounds, assuming that results do not overflow their type."""

    def constant(self, number: int) -> Bounds:
        return Bounds(number, number)

    def number(self, a: Bounds) -> int | None:
        return a.most if a.low == a.high else None

    def add(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(a.low + b.low, a.high + b.high)

    def subtract(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(a.low - b.high, a.high - b.low)

    def scale(self, a: Bounds, factor: int) -> Bounds:
        if not factor:
            return Bounds(0, 0)
        return Bounds(*sorted((a.low * factor, a.high * factor)))

    def quotient(self, a: Bounds, divisor: int) -> Bounds:
        return Bounds(
            *sorted((_truncated_quotient(a.low, divisor), _truncated_quotient(a.high, divisor)))
        )

    def remainder(self, a: Bounds, divisor: int) -> Bounds:
        most = abs(divisor) - 1
        return Bounds(-min(most, max(0, -a.low)), min(most, max(0, a.high)))

    def least(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(min(a.low, b.low), min(a.high, b.high))

    def greatest(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(max(a.low, b.low), max(a.high, b.high))


def _truncated_quotient(a: float, divisor: int) -> float:
    if math.isinf(a):
        return a if divisor > 0 else -a
    quotient = abs(int(a)) // abs(divisor)
    return quotient if (a < 0) == (divisor < 0) else -quotient


def of_index(start: Bounds, stop: Bounds, step: int) -> Bounds:
    """Return the bounds of a loop index over the iterations that run."""
    if step > 0:
        return Bounds(start.low, stop.high - 1)
    return Bounds(stop.low + 1, start.high)
