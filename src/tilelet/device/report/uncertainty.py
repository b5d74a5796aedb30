"""Accuracy of a modelled figure, from the model's errors on unseen programs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelet.dataclasses import asdict
from tilelet.device.machine.description import Machine
from tilelet.device.report.critical import Path
from tilelet.device.schedule.simulate import Timeline

TIE = "too close to tell"
MIN_LIKELIHOOD = 0.8
"""Below this likelihood no claim is made about which of two programs is faster."""


CAUSES: tuple[str, ...] = ("dispatch", "GM", "cube", "vector", "waiting")
"""What the time of a run is spent on; each has errors of its own (`Machine.errors`)."""

_CAUSE_OF_BOUND = {"GM": "GM", "MTE": "GM", "cube": "cube", "vector": "vector"}


def time_shares(line: Timeline, path: Path) -> dict[str, float]:
    """Return the share of each of `CAUSES` in the critical path.

    A kernel's time counts as that of what bounds it; latencies and scalar accesses are waiting.
    """
    found = dict.fromkeys(CAUSES, 0.0)
    found["dispatch"] = sum(us for part, us in path.parts.items() if part != "exec")
    for name, us in path.kernel_us.items():
        bound = line.bound_of(line.kernel_names.index(name))
        found[_CAUSE_OF_BOUND.get(bound, "waiting")] += us
    total = sum(found.values())
    return {cause: us / total if total else 0.0 for cause, us in found.items()}


def main_cause(
    before: Mapping[str, float], a_us: float, after: Mapping[str, float], b_us: float
) -> str:
    """Return the cause whose time differs most between two runs, given their shares and totals."""
    change = {c: abs(after.get(c, 0.0) * b_us - before.get(c, 0.0) * a_us) for c in CAUSES}
    return max(CAUSES, key=change.__getitem__)


def interval(
    machine: Machine, period: str, shares: Mapping[str, float], us: float
) -> tuple[float, float] | None:
    """Return the interval that would contain nine of ten published totals, or None if unknown."""
    if not machine.errors or not shares:
        return None
    known = machine.errors
    within = sum(s * known[c].within for c, s in shares.items() if c in known)
    if period in machine.period_errors:
        within *= machine.period_errors[period].factor
    return us / math.exp(within), us * math.exp(within)


def ratio_interval(
    pair: Mapping[str, float], a_us: float, b_us: float
) -> tuple[float, float] | None:
    """Return the interval that would contain nine of ten published ratios `b / a`."""
    if not pair or a_us <= 0 or b_us <= 0:
        return None
    ratio = b_us / a_us
    factor = math.exp(pair["within"] * change_deviation(pair, math.log(ratio)))
    return ratio / factor, ratio * factor


def pair_errors(machine: Machine, period: str) -> dict[str, float]:
    """Return the fields of `PairSpread` for changes measured in a period; empty if unknown."""
    if machine.pairs is None:
        return {}
    found: dict[str, float] = asdict(machine.pairs)
    if period in machine.period_errors:
        for field in ("floor", "slope", "ceiling"):
            found[field] *= machine.period_errors[period].factor
    return found


def change_deviation(pair: Mapping[str, float], change: float) -> float:
    """Return the scale of the error of a modelled change, which is a logarithm as `change` is."""
    return math.hypot(pair["floor"], min(pair["slope"] * abs(change), pair["ceiling"]))


def likelihood(pair: Mapping[str, float], a_us: float, b_us: float) -> float | None:
    """Return how likely the faster of two modelled programs is also faster on a board.

    Errors of changes follow Student's distribution with two degrees of freedom: single programs are
    far off.

    pair  fields of `PairSpread`
    """
    if not pair or a_us <= 0 or b_us <= 0:
        return None
    change = abs(math.log(b_us / a_us))
    distance = change / change_deviation(pair, change)
    return 0.5 * (1 + distance / math.sqrt(2 + distance**2))


def in_words(pair: Mapping[str, float], a_us: float, b_us: float) -> str:
    """Format as `faster, 93 % likely` or `too close to tell`; empty if nothing is known."""
    likely = likelihood(pair, a_us, b_us)
    if likely is None:
        return ""
    if likely < MIN_LIKELIHOOD:
        return TIE
    return f"{'faster' if b_us < a_us else 'slower'}, {math.floor(100 * likely):d} % likely"
