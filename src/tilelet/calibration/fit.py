"""Leave-one-family-out validation of the model.

Predictions are smooth in the parameters, so the fit works on logarithms: the slope of every
prediction with respect to every free parameter is measured once (finite differences), and a step is
the solution of a linear least-squares problem with a prior on every parameter. The prior is
centered on public evidence alone, not on the present value if that was fitted to all rows. Rows
count by their weight, and a published change counts as one more row: what its two programs share,
noise included, cancels in it.
Leave-one-family-out takes that step without one family's lines, and the model predicts those lines
with the resulting parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.calibration.rows import Line
from tilelet.dataclasses import dataclass
from tilelet.device import Machine
from tilelet.device.report.sensitivity import field_value, fields_of, scale_parameters

Floats = NDArray[np.float64]

EVIDENCE = {
    "latency of L2": 250.0,
    "latency of memory": 530.0,
    "cost of a row": 1.0,
    "start of a kernel": 550.0,
    "sustained memory rate": 0.74,
    "rate of a core from memory": 32.0,
    "access of a single element": 20.0,
}
"""Values by public evidence alone of the parameters fitted here (see ADR 3): latencies between the
tables' extremes, a cycle per row, 0.3 us of set-up, 1.05 TB/s, a platform table, a guess. All
others are public constants, fits or measurements, whose prior is the machine file.
"""

FREE = (
    *EVIDENCE,
    "issue of an instruction",
    "issue of a load",
    "mask of a vector op",
    "store",
    "hand-over between cube and vector",
    "scheduler time per block",
    "rate of a slice of L2",
)
"""Parameters that a fit without a family may change: those fitted here, and those chosen with rows
in view. The others are public measurements that do not depend on the rows.
"""

STIFFNESS = 0.5
"""Weight of the prior: identical builds differ by 15 %, parameters from public evidence by 30 %."""

MAX_ROW_ERROR = 0.3
"""Larger errors get less weight: they are errors of form, which no parameter fixes."""

MAX_CHANGE_ERROR = 0.15
"""The same limit for the ratio of a change."""


@dataclass(frozen=True)
class Fit:
    """Current predictions, and each line's prediction by a fit without its family."""

    predictions: Floats
    left_out: Floats


def fit(
    machine: Machine,
    lines: Sequence[Line],
    nudge: float = 0.1,
    progress: Callable[[str], None] = lambda _: None,
) -> Fit:
    """Measure slopes, solve, and leave out each family in turn."""
    now = _predictions(machine, lines)
    slopes = np.zeros((len(lines), len(FREE)))
    for j, group in enumerate(FREE):
        progress(f"how all rows depend on the {group}")
        changed = _predictions(scale_parameters(machine, {group: 1 + nudge}), lines)
        slopes[:, j] = np.log(changed / now) / math.log1p(nudge)
    errors = np.log(np.array([line.published for line in lines]) / now)
    pull = np.array([_pull(machine, group) for group in FREE])
    left_out = np.zeros(len(lines))
    for family in dict.fromkeys(line.family for line in lines):
        kept = [i for i, line in enumerate(lines) if line.family != family]
        out = np.array([line.family == family for line in lines])
        data = _Data.of_lines([lines[i] for i in kept], slopes[kept], errors[kept])
        without = _solve(data, pull)
        factors = {g: math.exp(by) for g, by in zip(FREE, without.tolist())}
        left_out[out] = _predictions(
            scale_parameters(machine, factors), [line for line in lines if line.family == family]
        )
    return Fit(now, left_out)


def _predictions(machine: Machine, lines: Sequence[Line]) -> Floats:
    return np.array([line.predict(machine, line.period) for line in lines])


def _pull(machine: Machine, group: str) -> float:
    if group not in EVIDENCE:
        return 0.0
    return math.log(EVIDENCE[group] / field_value(machine, fields_of(machine, group)[0]))


@dataclass(frozen=True)
class _Data:
    """Equations of a fit: log errors of rows and changes, their slopes, weights and limits."""

    slopes: Floats
    errors: Floats
    weights: Floats
    wild: Floats

    @classmethod
    def of_lines(cls, lines: Sequence[Line], slopes: Floats, errors: Floats) -> _Data:
        weights = np.array([line.weight for line in lines])
        pairs = pair_indices([line.name for line in lines])
        before, after = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
        return cls(
            np.vstack([slopes, slopes[after] - slopes[before]]),
            np.concatenate([errors, errors[after] - errors[before]]),
            np.concatenate([weights, np.minimum(weights[before], weights[after])]),
            np.repeat([MAX_ROW_ERROR, MAX_CHANGE_ERROR], [len(lines), len(pairs)]),
        )


def pair_indices(names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the rows before and after each published change."""
    places = {name: i for i, name in enumerate(names)}
    found: list[tuple[int, int]] = []
    for name, before in places.items():
        for end in ("before", "base"):
            after = places.get(name.removesuffix(end) + "after") if name.endswith(end) else None
            if after is not None:
                found.append((before, after))
    return found


def _solve(data: _Data, pull: Floats) -> Floats:
    fixed = np.sqrt(data.weights)
    weight = fixed
    step = np.zeros(len(pull))
    for _ in range(8):
        a = np.vstack([data.slopes * weight[:, None], STIFFNESS * np.eye(len(pull))])
        b = np.concatenate([data.errors * weight, STIFFNESS * pull])
        step = np.linalg.lstsq(a, b, rcond=None)[0]
        rest = np.abs(data.errors - data.slopes @ step)
        weight = fixed * np.sqrt(np.minimum(1.0, data.wild / np.maximum(rest, 1e-9)))
    return np.asarray(step, np.float64)
