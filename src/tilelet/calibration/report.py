"""Summaries of all rows: errors by family and period, pairs, rank correlations, intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.calibration.fit import fit
from tilelet.calibration.rows import Line
from tilelet.device.machine.description import Machine

RESULTS = Path(__file__).with_name("modelled.json")
"""Modelled figures of every row, from the last run with all programs available."""

NOTICED = 0.08
"""Smaller published changes may be noise."""

SHRINK = 8
"""Pseudo-count: a kind of program with few rows borrows this many from all of them."""


@dataclass(frozen=True)
class RowFit:
    """One row in its unit: published, modelled, and modelled by a fit without its family."""

    name: str
    family: str
    period: str
    bound: str
    unit: str
    published: float
    modelled: float
    left_out: float

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1

    @property
    def left_out_error(self) -> float:
        return self.left_out / self.published - 1


@dataclass(frozen=True)
class Pair:
    """A published change, and the modelled one: after / before."""

    name: str
    published: float
    modelled: float

    @property
    def noticed(self) -> bool:
        return abs(self.published - 1) >= NOTICED

    @property
    def right(self) -> bool:
        return (self.published < 1) == (self.modelled < 1)


def outcomes_of(
    machine: Machine, lines: Sequence[Line], progress: Callable[[str], None] = lambda _: None
) -> list[RowFit]:
    """Model every line, with and without its family in the fit."""
    result = fit(machine, lines, progress=progress)
    return [
        RowFit(
            name=line.name,
            family=line.family,
            period=machine.period_name(line.period),
            bound=line.bound(machine, line.period),
            unit=line.unit,
            published=line.published,
            modelled=round(float(now), 4),
            left_out=round(float(left), 4),
        )
        for line, now, left in zip(lines, result.predictions, result.left_out)
    ]


def save(outcomes: Sequence[RowFit], file: Path = RESULTS) -> None:
    file.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n", encoding="utf-8")


def load_outcomes(file: Path = RESULTS) -> list[RowFit]:
    """Return what `save` wrote."""
    return [RowFit(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


# Summaries


def pairs_of(outcomes: Iterable[RowFit]) -> list[Pair]:
    """Return the rows of programs before and after a change."""
    by_name = {o.name: o for o in outcomes}
    found: list[Pair] = []
    for name, before in by_name.items():
        for end in ("before", "base"):
            after = by_name.get(name.removesuffix(end) + "after") if name.endswith(end) else None
            if after is not None:
                change = after.published / before.published, after.modelled / before.modelled
                found.append(Pair(name.removesuffix(end).rstrip(".-"), *change))
    return found


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation."""
    if len(a) < 3:
        return math.nan
    ranks = [np.argsort(np.argsort(np.array(x))) for x in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def ranks_of(pairs: Sequence[Pair]) -> float:
    """Return the rank correlation of published and modelled changes."""
    return rank_correlation([p.published for p in pairs], [p.modelled for p in pairs])


def median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else math.nan


def within(outcomes: Sequence[RowFit], limit: float) -> float:
    return sum(abs(o.error) <= limit for o in outcomes) / max(1, len(outcomes))


def spreads(outcomes: Sequence[RowFit]) -> dict[str, tuple[float, int]]:
    """Return, by bound, the log of the factor within which nine of ten left-out rows lie.

    Wide enough to hold also for families that were not used: see `coverage`.
    """
    raw, wider = _raw_spreads(outcomes), _widening_factor(outcomes)
    counts = {bound: sum(o.bound == bound for o in outcomes) for bound in raw}
    return {bound: (round(own * wider, 3), max(1, counts[bound])) for bound, own in raw.items()}


def _raw_spreads(outcomes: Sequence[RowFit]) -> dict[str, float]:
    every = _nine_of_ten(outcomes)
    found: dict[str, float] = {}
    for bound in ("memory", "cores", "waiting"):
        mine = [o for o in outcomes if o.bound == bound]
        own = _nine_of_ten(mine) if mine else every
        square = (len(mine) * own**2 + SHRINK * every**2) / (len(mine) + SHRINK)
        found[bound] = math.sqrt(square)
    return found


def _widening_factor(outcomes: Sequence[RowFit]) -> float:
    """Return the smallest factor with which intervals computed without a family hold for it."""
    needed = sorted(_against_others(outcomes))
    return max(1.0, needed[math.ceil(0.9 * len(needed)) - 1]) if needed else 1.0


def _against_others(outcomes: Sequence[RowFit]) -> list[float]:
    """Return each left-out row's error, in widths of an interval computed without its family."""
    found: list[float] = []
    for family in dict.fromkeys(o.family for o in outcomes):
        others = [o for o in outcomes if o.family != family]
        if not others:
            continue
        raw = _raw_spreads(others)
        mine = [o for o in outcomes if o.family == family]
        found += [abs(math.log(o.left_out / o.published)) / max(raw[o.bound], 1e-9) for o in mine]
    return found


def _nine_of_ten(outcomes: Sequence[RowFit]) -> float:
    off = [abs(math.log(o.left_out / o.published)) for o in outcomes]
    return float(np.quantile(off, 0.9, method="higher"))


def pair_spread(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return floor and slope of the standard deviation of changes, by maximum likelihood."""
    changes = np.array([math.log(p.modelled) for p in pairs])
    off = np.array([math.log(p.published) for p in pairs]) - changes
    best = (math.inf, 0.0, 0.0)
    for floor in np.arange(0.03, 0.4, 0.01):
        for slope in np.arange(0.0, 1.5, 0.05):
            deviation = np.hypot(floor, slope * changes)
            # A heavy-tailed distribution, because single programs are far off.
            loss = float(np.sum(np.log(deviation) + 1.5 * np.log1p((off / deviation) ** 2 / 2)))
            best = min(best, (loss, float(floor), float(slope)))
    return round(best[1], 3), round(best[2], 3)


def coverage(outcomes: Sequence[RowFit]) -> float:
    """Return the share of published figures inside the interval of the left-out prediction.

    Intervals are computed from the other families, and widened like `spreads`.
    """
    off, wider = _against_others(outcomes), _widening_factor(outcomes)
    return sum(o <= wider + 1e-9 for o in off) / len(off) if off else math.nan


# Text


def table_text(outcomes: Sequence[RowFit]) -> str:
    lines = [
        (
            f"{'row':28}{'published':>12}{'modelled':>12}{'error':>9}{'left out':>12}{'error':>9}"
            f"  {'bound':9}{'period':12}family"
        )
    ]
    lines += [
        f"{o.name:28}{o.published:12.2f}{o.modelled:12.2f}{o.error:+9.1%}{o.left_out:12.2f}"
        f"{o.left_out_error:+9.1%}  {o.bound:9}{o.period:12}{o.family}"
        for o in outcomes
    ]
    return "\n".join(lines)


def summary_text(outcomes: Sequence[RowFit], missing: Sequence[str]) -> str:
    typical = median(abs(o.error) for o in outcomes)
    left_out = median(abs(o.left_out_error) for o in outcomes)
    near = [f"{within(outcomes, limit):.0%} within {100 * limit:.0f} %" for limit in (0.15, 0.3)]
    inside = f"{coverage(outcomes):.0%} inside their 90 % interval"
    lines = [
        f"{len(outcomes)} comparisons: median error {typical:.1%}, {', '.join(near)}",
        f"leave-one-family-out: median error {left_out:.1%}; {inside}",
    ]
    for what in ("family", "period", "bound"):
        lines += ["", f"{what:28}{'rows':>6}{'median error':>14}{'left out':>10}"]
        for name in sorted({str(getattr(o, what)) for o in outcomes}):
            mine = [o for o in outcomes if getattr(o, what) == name]
            now, left = (
                median(abs(e) for e in errors)
                for errors in ([o.error for o in mine], [o.left_out_error for o in mine])
            )
            lines.append(f"{name:28}{len(mine):6}{now:14.1%}{left:10.1%}")
    lines += ["", *_pair_lines(pairs_of(outcomes))]
    times = [o for o in outcomes if o.unit == "us"]
    ranks = rank_correlation([o.published for o in times], [o.modelled for o in times])
    lines.append(f"rank correlation of times: {ranks:.2f}")
    if missing:
        lines += ["", f"not run, program missing or rejected: {', '.join(missing)}"]
    return "\n".join(lines)


def _pair_lines(pairs: Sequence[Pair]) -> list[str]:
    if not pairs:
        return []
    noticed = [p for p in pairs if p.noticed]
    right = sum(p.right for p in noticed)
    lines = [f"{'change (after / before)':28}{'published':>12}{'modelled':>12}"]
    for p in pairs:
        mark = "" if not p.noticed else "right" if p.right else "wrong"
        lines.append(f"{p.name:28}{p.published:12.2f}{p.modelled:12.2f}  {mark}")
    lines.append(
        f"direction of changes of {NOTICED:.0%} or more: {right} of {len(noticed)} right; "
        f"rank correlation of these: {ranks_of(noticed):.2f}, of all {len(pairs)}: "
        f"{ranks_of(pairs):.2f}"
    )
    return lines


def to_data(outcomes: Sequence[RowFit], missing: Sequence[str]) -> dict[str, Any]:
    return {
        "rows": [asdict(o) for o in outcomes],
        "pairs": [asdict(p) for p in pairs_of(outcomes)],
        "median_error": median(abs(o.error) for o in outcomes),
        "median_left_out_error": median(abs(o.left_out_error) for o in outcomes),
        "errors": spreads(outcomes),
        "not_run": list(missing),
    }
