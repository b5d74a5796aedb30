"""Accuracy of a modelled figure, from the model's errors on unseen programs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelet.device.machine.description import Machine

TIE = "too close to tell"
TOO_CLOSE = 0.8
"""Below this likelihood no claim is made about which of two programs is faster."""


def interval(machine: Machine, bound: str, us: float) -> tuple[float, float] | None:
    """Return the interval that would contain nine of ten published totals, or None if unknown."""
    spread = machine.errors.get(bound)
    if spread is None:
        return None
    factor = math.exp(spread.within)
    return us / factor, us * factor


def likelihood(pair: Mapping[str, float], a_us: float, b_us: float) -> float | None:
    """Return how likely the faster of two modelled programs is also faster on a board.

    pair  `floor` and `slope` of `PairSpread`
    """
    if not pair or a_us <= 0 or b_us <= 0:
        return None
    change = abs(math.log(b_us / a_us))
    deviation = math.hypot(pair["floor"], pair["slope"] * change)
    return 0.5 * (1 + math.erf(change / deviation / math.sqrt(2)))


def in_words(pair: Mapping[str, float], a_us: float, b_us: float) -> str:
    """Format as `faster, 93 % likely` or `too close to tell`; empty if nothing is known."""
    likely = likelihood(pair, a_us, b_us)
    if likely is None:
        return ""
    if likely < TOO_CLOSE:
        return TIE
    return f"{'faster' if b_us < a_us else 'slower'}, {math.floor(100 * likely):d} % likely"
