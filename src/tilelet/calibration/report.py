"""Summaries of all rows: errors by family and period, pairs, rank correlations, intervals."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilelet.calibration.fit import fit, pair_indices
from tilelet.calibration.rows import Line
from tilelet.dataclasses import asdict, dataclass, replace
from tilelet.device.machine.description import Machine
from tilelet.device.report.uncertainty import CAUSES, change_deviation, main_cause
from tilelet.diag.json_types import JsonObject

RESULTS = Path(__file__).with_name("modelled.json")
"""Modelled figures of every row, from the last run with all programs available."""

MIN_CHANGE = 0.05
"""Smaller published changes may be noise."""

COVERED = 0.9
"""Share of published figures inside their interval."""

CONFIDENCE = 0.8
"""Confidence that intervals which hold for the rows at hand hold for `COVERED` of further rows."""

PRIOR_ROWS = 8.0
"""Weight, in rows, of the common error in that of a cause or of a period.

The errors of causes and of periods with few rows follow single families. docs/measurements.md
compares weights.
"""


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
    shares: Mapping[str, float]
    weight: float = 1.0

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1

    @property
    def left_out_error(self) -> float:
        return self.left_out / self.published - 1


@dataclass(frozen=True)
class Pair:
    """A published change, and the modelled one: after / before.

    left_out  modelled by a fit without its family
    cause     the cause of time that the modelled change is mostly in, one of `CAUSES`
    """

    name: str
    published: float
    modelled: float
    left_out: float
    cause: str = CAUSES[0]
    family: str = ""
    period: str = ""

    @property
    def noticed(self) -> bool:
        return abs(self.published - 1) >= MIN_CHANGE

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1

    @property
    def right(self) -> bool:
        return (self.published < 1) == (self.modelled < 1)


def _family(row: RowFit) -> str:
    return row.family


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
            shares={c: round(s, 4) for c, s in line.shares(machine, line.period).items()},
            weight=line.weight,
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
    rows = list(outcomes)
    pairs = pair_indices([o.name for o in rows])
    return [_pair(rows[before], rows[after]) for before, after in pairs]


def _pair(before: RowFit, after: RowFit) -> Pair:
    return Pair(
        after.name.removesuffix("after").rstrip(".-"),
        after.published / before.published,
        after.modelled / before.modelled,
        after.left_out / before.left_out,
        main_cause(before.shares, before.modelled, after.shares, after.modelled),
        after.family,
        after.period,
    )


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


def errors_text(errors: Sequence[float]) -> str:
    """Summarize relative errors: median, mean, and the shares within 10 and 30 %."""
    off = np.abs(errors)
    near = ", ".join(f"{(off <= limit).mean():.0%} within {limit:.0%}" for limit in (0.1, 0.3))
    return f"median error {np.median(off):.1%}, mean {off.mean():.1%}, {near}"


def spreads(outcomes: Sequence[RowFit]) -> dict[str, tuple[float, int]]:
    """Return, by cause, the log of the factor within which its time lies in nine of ten rows.

    The interval of a run is the sum of these, weighted by its shares, times the factor of its
    period (`period_factors`); it holds also for families that were not used: see `coverage`.
    """
    scales, wider = Scales.of_rows(outcomes), _widening_factor(outcomes)
    weights = {cause: sum(o.shares.get(cause, 0.0) for o in outcomes) for cause in CAUSES}
    return {
        cause: (round(own * wider, 3), max(1, round(weights[cause])))
        for cause, own in scales.causes.items()
    }


def period_factors(outcomes: Sequence[RowFit]) -> dict[str, tuple[float, int]]:
    """Return, by period of the runtime, the factor of its errors, and its rows."""
    rows = Counter(o.period for o in outcomes)
    factors = Scales.of_rows(outcomes).periods
    return {period: (round(factors[period], 3), rows[period]) for period in sorted(rows)}


@dataclass(frozen=True)
class Scales:
    """Expected sizes of left-out errors, as logarithms.

    causes   by cause of time, in a period of common accuracy
    periods  factor by period of the runtime
    """

    causes: Mapping[str, float]
    periods: Mapping[str, float]

    @classmethod
    def of_rows(cls, outcomes: Sequence[RowFit]) -> Scales:
        """Return weighted means, pulled towards the common one by `PRIOR_ROWS`."""
        off = np.array([_off(o) for o in outcomes])
        weights = np.array([o.weight for o in outcomes])
        periods = _shrunk_means(
            off / max(float(weights @ off / weights.sum()), 1e-9),
            {p: weights * [o.period == p for o in outcomes] for p in {o.period for o in outcomes}},
            1.0,
        )
        off = off / [periods[o.period] for o in outcomes]
        causes = _shrunk_means(
            off,
            {c: weights * [o.shares.get(c, 0.0) for o in outcomes] for c in CAUSES},
            float(weights @ off / weights.sum()),
        )
        return cls(causes, periods)

    def of(self, row: RowFit) -> float:
        own = sum(share * self.causes[cause] for cause, share in row.shares.items())
        return max(own * self.periods.get(row.period, 1.0), 1e-9)


def _off(row: RowFit) -> float:
    return abs(math.log(row.left_out / row.published))


def _shrunk_means(
    values: NDArray[np.float64], weights: Mapping[str, NDArray[np.float64]], common: float
) -> dict[str, float]:
    return {
        name: float((own @ values + PRIOR_ROWS * common) / (own.sum() + PRIOR_ROWS))
        for name, own in weights.items()
    }


def _against_others(outcomes: Sequence[RowFit]) -> list[float]:
    """Return each row's error, in units of the scale that follows from the other families."""
    found: list[float] = []
    for family in dict.fromkeys(o.family for o in outcomes):
        others = [o for o in outcomes if o.family != family]
        if others:
            scales = Scales.of_rows(others)
            found += [_off(o) / scales.of(o) for o in outcomes if o.family == family]
    return found


def _widening_factor(outcomes: Sequence[RowFit]) -> float:
    """Return the smallest multiple of the scales that holds for families left out of them.

    It is a tolerance limit, because these few rows are a sample of all programs.
    """
    needed = _against_others(outcomes)
    return _tolerance_limit(needed) if needed else 1.0


def _tolerance_limit(values: Iterable[float]) -> float:
    """Return the order statistic above the quantile `COVERED` of a population with `CONFIDENCE`."""
    ordered = sorted(values)
    below = 0.0  # probability that at most i - 1 values lie below the true quantile
    for i, value in enumerate(ordered):
        below += math.comb(len(ordered), i) * COVERED**i * (1 - COVERED) ** (len(ordered) - i)
        if below >= CONFIDENCE:
            return value
    return ordered[-1]


def typical_width(outcomes: Sequence[RowFit]) -> float:
    """Return the median factor between a modelled figure and the ends of its interval."""
    scales, wider = Scales.of_rows(outcomes), _widening_factor(outcomes)
    return math.exp(wider * median(scales.of(o) for o in outcomes))


def pair_spread(pairs: Sequence[Pair], factors: Mapping[str, float]) -> dict[str, float]:
    """Return the fields of `PairSpread`: its scale by maximum likelihood.

    factors  of the errors by period, see `Scales`
    """
    changes = np.array([math.log(p.left_out) for p in pairs])
    off = np.array([math.log(p.published) for p in pairs]) - changes
    off /= [factors.get(p.period, 1.0) for p in pairs]
    best = (math.inf, {"floor": 0.03, "slope": 0.0, "ceiling": 0.1})
    for floor in np.arange(0.02, 0.2, 0.01).tolist():
        for slope in np.arange(0.0, 1.0, 0.05).tolist():
            grown = slope * np.abs(changes)
            for ceiling in np.arange(0.1, 1.3, 0.1).tolist():
                scale = np.hypot(floor, np.minimum(grown, ceiling))
                # A heavy-tailed distribution, because single programs are far off.
                loss = float(np.sum(np.log(scale) + 1.5 * np.log1p((off / scale) ** 2 / 2)))
                if loss < best[0]:
                    best = (loss, {"floor": floor, "slope": slope, "ceiling": ceiling})
    fields = {name: round(value, 3) for name, value in best[1].items()}
    needed = [abs(o) / change_deviation(fields, c) for o, c in zip(off.tolist(), changes.tolist())]
    within = math.ceil(1000 * _tolerance_limit(needed)) / 1000
    counts = {cause: float(sum(p.cause == cause for p in pairs)) for cause in CAUSES}
    return {**fields, "within": within, "rows": len(pairs), **counts}


def change_errors(outcomes: Sequence[RowFit]) -> dict[str, float]:
    """Return the fields of `PairSpread` that follow from all rows."""
    return pair_spread(pairs_of(outcomes), Scales.of_rows(outcomes).periods)


def pair_coverage(outcomes: Sequence[RowFit]) -> tuple[float, float]:
    """Return the share of published changes inside the interval of their left-out ratio, and the
    median factor between a ratio and the ends of its interval.

    All that makes an interval follows from the other families.
    """
    pairs = pairs_of(outcomes)
    inside: list[bool] = []
    widths: list[float] = []
    for family in dict.fromkeys(p.family for p in pairs):
        factors = Scales.of_rows([o for o in outcomes if o.family != family]).periods
        spread = pair_spread([p for p in pairs if p.family != family], factors)
        for p in (p for p in pairs if p.family == family):
            change = math.log(p.left_out)
            limit = spread["within"] * factors.get(p.period, 1.0) * change_deviation(spread, change)
            inside.append(abs(math.log(p.published) - change) <= limit)
            widths.append(math.exp(limit))
    return float(np.mean(inside)), median(widths)


def coverage(outcomes: Sequence[RowFit], group: Callable[[RowFit], str] = _family) -> float:
    """Return the share of published figures inside the interval of the left-out prediction.

    All that makes the interval follows from the other groups.
    """
    inside: list[bool] = []
    for name in dict.fromkeys(map(group, outcomes)):
        others = [o for o in outcomes if group(o) != name]
        if others:
            scales, wider = Scales.of_rows(others), _widening_factor(others)
            mine = (o for o in outcomes if group(o) == name)
            inside += [_off(o) <= wider * scales.of(o) + 1e-9 for o in mine]
    return float(np.mean(inside)) if inside else math.nan


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
    inside = f"{coverage(outcomes):.0%} inside their 90 % interval"
    left_out = errors_text([o.left_out_error for o in outcomes])
    width = f"of median width x {typical_width(outcomes):.2f}"
    lines = [
        f"{len(outcomes)} comparisons: {errors_text([o.error for o in outcomes])}",
        f"leave-one-family-out: {left_out}; {inside}, {width}",
    ]
    for what in ("family", "period", "bound"):
        lines += ["", f"{what:28}{'rows':>6}{'median':>10}{'mean':>8}{'left out':>10}"]
        for name in sorted({str(getattr(o, what)) for o in outcomes}):
            mine = [o for o in outcomes if getattr(o, what) == name]
            now, left = ([abs(o.error) for o in mine], [abs(o.left_out_error) for o in mine])
            figures = f"{median(now):10.1%}{np.mean(now):8.1%}{median(left):10.1%}"
            lines.append(f"{name:28}{len(mine):6}{figures}")
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
    lines = [f"{'change (after / before)':28}{'published':>12}{'modelled':>12}"]
    for p in pairs:
        mark = "" if not p.noticed else "right" if p.right else "wrong"
        lines.append(f"{p.name:28}{p.published:12.2f}{p.modelled:12.2f}  {mark}")
    lines.append(f"ratios of {len(pairs)} changes: {errors_text([p.error for p in pairs])}")
    lines += [changes_text(pairs), f"with each family left out: {changes_text(left_out(pairs))}"]
    return lines


def left_out(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the changes as modelled by fits without their families."""
    return [replace(p, modelled=p.left_out) for p in pairs]


def changes_text(pairs: Sequence[Pair]) -> str:
    """Summarize directions and ranks of changes."""
    noticed = [p for p in pairs if p.noticed]
    return (
        f"{sum(p.right for p in noticed)} of {len(noticed)} changes of {MIN_CHANGE:.0%} or more "
        f"have the right direction; rank correlation of these: {ranks_of(noticed):.2f}, of all: "
        f"{ranks_of(pairs):.2f}"
    )


def to_data(outcomes: Sequence[RowFit], missing: Sequence[str]) -> JsonObject:
    return {
        "rows": [asdict(o) for o in outcomes],
        "pairs": [asdict(p) for p in pairs_of(outcomes)],
        "median_error": median(abs(o.error) for o in outcomes),
        "mean_error": float(np.mean([abs(o.error) for o in outcomes])),
        "median_left_out_error": median(abs(o.left_out_error) for o in outcomes),
        "errors": spreads(outcomes),
        "period_errors": period_factors(outcomes),
        "not_run": list(missing),
    }
