"""The free parameters, their fit, and leave-one-out errors.

Predictions are smooth in the parameters, so the fit works on logarithms: the change of every
prediction with every parameter is measured once (finite differences), and a step is the solution of
a linear least-squares problem that also pulls every parameter towards what public evidence alone
says of it (`EVIDENCE`), not towards its present value, which has seen all rows. Leave-one-out takes
that step without one program's lines and predicts those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.calibration.rows import Line
from tilelet.device import Machine
from tilelet.device.machine.description import varied

Floats = NDArray[np.float64]

FREE: dict[str, tuple[str, ...]] = {
    "latency of L2": ("paths.gm_to_l1.latency_cycles", "paths.gm_to_ub.latency_cycles"),
    "latency of memory": (
        "paths.gm_to_l1.cold_latency_cycles",
        "paths.gm_to_ub.cold_latency_cycles",
    ),
    "cost of a row": ("paths.gm_to_l1.row_cycles", "paths.gm_to_ub.row_cycles"),
    "start of a kernel": ("body.start_cycles",),
    "issue of an instruction": ("body.issue_cycles",),
    "sustained memory rate": ("gm.efficiency",),
    "scheduler time per block": (
        "runtime.2026-04.dispatch_us",
        "runtime.2026-04.complete_us",
    ),
    "submission, April": ("runtime.2026-04.submit_us",),
    "submission, July": ("runtime.2026-07.submit_us",),
}
"""What is fitted here, and the machine fields that each scales."""

EVIDENCE = (250.0, 530.0, 1.0, 550.0, 30.0, 0.7, 0.55, 0.56, 0.56)
"""Each parameter by public evidence alone, in the order of `FREE` (see the ADR): latencies between
the tables' extremes, a cycle per row, 0.3 us of set-up, a guess, 1.0 TB/s, 1.1 us per block, and
0.56 us per submission, measured on a program that is no row here.
"""

STIFFNESS = 0.1
"""How much a parameter's relative distance from that counts against a prediction's error."""


@dataclass(frozen=True)
class Fit:
    """predictions now, their slopes (lines x parameters), and the step to the optimum."""

    predictions: Floats
    slopes: Floats
    step: Floats
    left_out: Floats


def field_value(machine: Machine, name: str) -> float:
    node: Any = machine
    for part in name.split("."):
        node = node[part] if hasattr(node, "keys") else getattr(node, part)
    return float(node)


def scaled(machine: Machine, factors: Sequence[float]) -> Machine:
    changes = {
        name: field_value(machine, name) * factor
        for names, factor in zip(FREE.values(), factors)
        for name in names
    }
    return varied(machine, changes)


def predict(machine: Machine, lines: Sequence[Line]) -> Floats:
    return np.array([line.predict(machine, line.period) for line in lines])


def fit(machine: Machine, lines: Sequence[Line], nudge: float = 0.1) -> Fit:
    """Measure slopes, solve, and leave out each program in turn."""
    now = predict(machine, lines)
    slopes = np.zeros((len(lines), len(FREE)))
    for j in range(len(FREE)):
        factors = [1.0] * len(FREE)
        factors[j] = 1.0 + nudge
        slopes[:, j] = np.log(predict(scaled(machine, factors), lines) / now) / math.log(1 + nudge)
    errors = np.log(np.array([line.published for line in lines]) / now)
    values = [field_value(machine, names[0]) for names in FREE.values()]
    pull = np.log(np.array(EVIDENCE) / values)
    step = _solve(slopes, errors, pull)
    left_out = np.zeros(len(lines))
    for program in dict.fromkeys(line.program for line in lines):
        out = np.array([line.program == program for line in lines])
        without = _solve(slopes[~out], errors[~out], pull)
        left_out[out] = now[out] * np.exp(slopes[out] @ without)
    return Fit(now, slopes, step, left_out)


def _solve(slopes: Floats, errors: Floats, pull: Floats) -> Floats:
    a = np.vstack([slopes, STIFFNESS * np.eye(slopes.shape[1])])
    b = np.concatenate([errors, STIFFNESS * pull])
    return np.asarray(np.linalg.lstsq(a, b, rcond=None)[0], np.float64)
