"""Fit a machine file to one board, from the measured times of the kit's scripts.

Parameters are fitted on logarithms by Gauss-Newton steps, with a weak prior on their present value.
Parameters that the measurements do not determine keep their value and are listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.calibration.kit import CASES
from tilelet.calibration.results import Measured
from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Machine, with_fields
from tilelet.device.report.sensitivity import GROUPS, field_value
from tilelet.device.run import Recorded
from tilelet.device.schedule.simulate import Timeline, replay, simulate
from tilelet.diag.catalogue.device import BadResults
from tilelet.diag.text import plural, quoted_names

Floats = NDArray[np.float64]

ROUNDS = 6
NUDGE = 0.05
PRIOR = 1.5
"""Standard deviation of the prior on each parameter, as a logarithm: weak."""

NOISE = 0.02
"""Minimum relative error of a measurement: repeated runs of one program differ by more."""

MAX_STANDARD_ERROR = 0.3
"""A parameter with a larger relative standard error is not determined."""

MIN_EFFECT = 0.02
"""A parameter is invisible if it changes every observation by less than this share of its change.
"""


@dataclass(frozen=True)
class Observation:
    """One measured time: of a kernel, or (`kernel` is None) of the whole script."""

    case: str
    kernel: str | None
    us: float


@dataclass(frozen=True)
class Parameter:
    """A group of machine fields: the fitted factor, and the relative standard error.

    `error` is None if the measurements do not determine it; `factor` is 1 then.
    """

    group: str
    factor: float
    error: float | None


@dataclass(frozen=True)
class BoardFit:
    """The fitted machine; `before` and `after` are modelled times of `observations`.

    next_script  the script whose repetition would narrow the modelled times most
    """

    machine: Machine
    period: str
    parameters: tuple[Parameter, ...]
    observations: tuple[Observation, ...]
    before: Floats
    after: Floats
    next_script: str

    def typical_error(self, modelled: Floats) -> float:
        measured = np.array([o.us for o in self.observations])
        return float(np.median(np.abs(modelled / measured - 1)))


def fields_of(machine: Machine, group: str, period: str) -> list[str]:
    """Return the machine fields of a group, for one period of the runtime."""
    found: list[str] = []
    for name in GROUPS[group]:
        if name == "vector.*":
            found += [f"vector.{kind}.{part}" for kind in machine.vector for part in _VECTOR]
        else:
            found.append(name.replace("*", period))
    return found


_VECTOR = ("slope", "constant")


def observations_of(measured: Mapping[str, Measured]) -> list[Observation]:
    """Return the observations that are compared."""
    found: list[Observation] = []
    for case in CASES:
        if case.name not in measured:
            continue
        result = measured[case.name]
        if case.timed == "program":
            if result.total_us is not None:
                found.append(Observation(case.name, None, result.total_us))
        else:
            found += [Observation(case.name, k, us) for k, us in sorted(result.kernels.items())]
    return found


def fit_board(
    machine: Machine,
    period: str,
    runs: Mapping[str, Recorded],
    measured: Mapping[str, Measured],
    progress: Callable[[str], None] = lambda _: None,
) -> BoardFit:
    """Fit `machine` to the measurements of the scripts in `runs`."""
    lines = {
        name: simulate(runs[name].tasks, runs[name].program, machine, period=period)
        for name in runs
    }
    seen = [o for o in observations_of(measured) if o.case in lines and _has(lines, o)]
    if not seen:
        case, line = next(iter(lines.items()))
        names = quoted_names(measured[case].kernels) or "no kernel"
        expected = quoted_names(line.kernel_names)
        problem = f"it has times of {names}; the kernels of `{case}.py` are {expected}"
        raise BadResults(case, problem)
    model = _Model(machine, period, lines, seen)
    free = list(GROUPS)
    before = model.predict({})
    while True:
        factors, errors, slopes = _fit_factors(model, free, progress)
        unsure = [g for g in free if errors[g] is None or (errors[g] or 0) > MAX_STANDARD_ERROR]
        if not unsure or len(unsure) == len(free):
            break
        # Undetermined parameters only add noise to the others.
        free = [g for g in free if g not in unsure]
    kept = {g: factors[g] for g in free if g not in unsure}
    parameters = tuple(
        Parameter(g, kept.get(g, 1.0), errors[g] if g in kept else None) for g in GROUPS
    )
    return BoardFit(
        model.machine_with(kept),
        period,
        parameters,
        tuple(seen),
        before,
        model.predict(kept),
        _most_useful(seen, np.array([errors[g] or 0.0 for g in free]), slopes),
    )


def _most_useful(seen: Sequence[Observation], errors: Floats, slopes: Floats) -> str:
    """Return the script that depends most on the parameter that leaves times least certain."""
    least_certain = int(np.argmax(errors * np.abs(slopes).mean(axis=0)))
    return seen[int(np.argmax(np.abs(slopes[:, least_certain])))].case


def _has(lines: Mapping[str, Timeline], o: Observation) -> bool:
    return o.kernel is None or o.kernel in lines[o.case].kernel_names


class _Model:
    """Modelled times of the observations as a function of factors of parameter groups."""

    def __init__(
        self,
        machine: Machine,
        period: str,
        lines: Mapping[str, Timeline],
        seen: Sequence[Observation],
    ) -> None:
        self.machine, self.period, self.lines, self.seen = machine, period, lines, seen
        self.measured = np.array([o.us for o in seen])

    def machine_with(self, factors: Mapping[str, float]) -> Machine:
        changes: dict[str, float] = {}
        for group, factor in factors.items():
            for name in fields_of(self.machine, group, self.period):
                value = field_value(self.machine, name) * factor
                changes[name] = min(value, 1.0) if name == "gm.efficiency" else value
        return with_fields(self.machine, changes)

    def predict(self, factors: Mapping[str, float]) -> Floats:
        machine = self.machine_with(factors)
        played = {name: replay(line, machine) for name, line in self.lines.items()}
        return np.array([_modelled_time(played[o.case], o.kernel) for o in self.seen])


def _modelled_time(line: Timeline, kernel: str | None) -> float:
    if kernel is None:
        return line.total_us
    mine = line.kernel == line.kernel_names.index(kernel)
    return float((line.end[mine] - line.start[mine]).mean())


def _fit_factors(
    model: _Model, groups: Sequence[str], progress: Callable[[str], None]
) -> tuple[dict[str, float], dict[str, float | None], Floats]:
    """Return factors of the groups, their relative standard errors (None if invisible), and slopes.

    A slope is the relative change of an observation per relative change of a parameter.
    """
    logs = np.zeros(len(groups))
    slopes = np.zeros((len(model.seen), len(groups)))
    rest = np.zeros(len(model.seen))
    for number in range(ROUNDS):
        progress(f"fitting {len(groups)} parameters, round {number + 1} of {ROUNDS}")
        now = model.predict(_factors(groups, logs))
        rest = np.log(model.measured / now)
        for j in range(len(groups)):
            moved = logs.copy()
            moved[j] += math.log1p(NUDGE)
            nudged = model.predict(_factors(groups, moved))
            slopes[:, j] = np.log(nudged / now) / math.log1p(NUDGE)
        step = _step(slopes, rest, logs)
        logs += np.clip(step, -0.7, 0.7)
        if np.abs(step).max() < 0.003:
            break
    spare = max(1, len(model.seen) - len(groups))
    noise = max(NOISE, math.sqrt(float(rest @ rest) / spare))
    normal = slopes.T @ slopes / noise**2 + np.eye(len(groups)) / PRIOR**2
    deviations = np.sqrt(np.diag(np.linalg.inv(normal)))
    visible = np.abs(slopes).max(axis=0) >= MIN_EFFECT
    errors = {g: float(d) if v else None for g, d, v in zip(groups, deviations, visible)}
    return _factors(groups, logs), errors, slopes


def _factors(groups: Sequence[str], logs: Floats) -> dict[str, float]:
    return {g: float(np.exp(x)) for g, x in zip(groups, logs)}


def _step(slopes: Floats, rest: Floats, logs: Floats) -> Floats:
    """Solve by least squares with Huber weights against outliers."""
    weight = np.ones(len(rest))
    pull = NOISE / PRIOR
    step = np.zeros(slopes.shape[1])
    for _ in range(3):
        a = np.vstack([slopes * weight[:, None], pull * np.eye(len(logs))])
        b = np.concatenate([rest * weight, -pull * logs])
        step = np.linalg.lstsq(a, b, rcond=None)[0]
        left = np.abs(rest - slopes @ step)
        limit = 3 * max(NOISE, float(np.median(left)))
        weight = np.sqrt(np.minimum(1.0, limit / np.maximum(left, 1e-12)))
    return np.asarray(step, np.float64)


# Output


def machine_text(fit: BoardFit, base: str, name: str) -> str:
    """Return the machine file: the fitted values over the machine that it extends."""
    lines = [
        "# Fitted to one board by `tilelet calibrate fit`; other fields are inherited.",
        f'name = "{name}"',
        f'title = "{fit.machine.title}, fitted to a board"',
        f'extends = "{base}"',
        f'default_period = "{fit.period}"',
    ]
    tables: dict[str, list[str]] = {}
    vector: dict[str, dict[str, float]] = {}
    for parameter in fit.parameters:
        if parameter.error is None:
            continue
        source = f"fitted to this board, +- {100 * parameter.error:.0f} %"
        for full in fields_of(fit.machine, parameter.group, fit.period):
            value = field_value(fit.machine, full)
            table, _, leaf = full.rpartition(".")
            if table.startswith("vector."):
                vector.setdefault(table.removeprefix("vector."), {})[leaf] = value
                continue
            cell = f'{{ value = {value:.6g}, evidence = "M", source = "{source}" }}'
            tables.setdefault(_quote_table(table), []).append(f"{leaf} = {cell}")
    for table, cells in tables.items():
        lines += ["", f"[{table}]", *cells]
    if vector:
        lines += ["", "[vector.costs]"]
        for kind, parts in vector.items():
            inside = ", ".join(f"{leaf} = {value:.6g}" for leaf, value in parts.items())
            lines.append(f"{kind} = {{ {inside} }}")
    return "\n".join(lines) + "\n"


def _quote_table(table: str) -> str:
    """Quote a table name for TOML: `runtime.2026-06`."""
    return ".".join(p if p.replace("_", "").isalnum() else f'"{p}"' for p in table.split("."))


def report(fit: BoardFit) -> str:
    """Report the fitted parameters with their errors, and the undetermined ones."""
    found = [p for p in fit.parameters if p.error is not None]
    scripts = len({o.case for o in fit.observations})
    off = [f"{fit.typical_error(modelled):.1%}" for modelled in (fit.before, fit.after)]
    times = f"{len(fit.observations)} times of {plural(scripts, 'script')}"
    lines = [
        f"{times}: typical error {off[0]} before, {off[1]} after",
        "",
        f"{'parameter':36}{'factor':>8}{'+-':>8}",
        *(f"{p.group:36}{p.factor:8.3f}{p.error or 0.0:8.1%}" for p in found),
    ]
    missing = [p.group for p in fit.parameters if p.error is None]
    if missing:
        lines += ["", "not determined by these measurements, left unchanged:"]
        lines += [f"  {group}: {_script_hint(group)}" for group in missing]
    lines += ["", f"to narrow modelled times most, repeat `{fit.next_script}.py`"]
    worst = np.argsort(-np.abs(np.log(fit.after / [o.us for o in fit.observations])))[:3]
    lines += ["", "farthest off:"]
    for i in worst:
        o = fit.observations[int(i)]
        what = o.kernel or "total"
        lines.append(f"  {o.case} {what}: {fit.after[i]:.2f} us modelled, {o.us:.2f} measured")
    return "\n".join(lines)


_SHOWN_BY = {
    "latency of L2": "rows_again",
    "latency of memory": "rows",
    "rate of a core from L2": "rows_again",
    "rate of a core from memory": "rows_pipelined",
    "cost of a row": "cube_loads",
    "issue of a load": "sizes",
    "store": "stores",
    "rate of FIXPIPE": "fixpipe",
    "FIXPIPE per row": "fixpipe",
    "start of a kernel": "start",
    "issue of an instruction": "small_ops",
    "mask of a vector op": "small_ops",
    "wait of one pipe for another": "small_ops",
    "hand-over between cube and vector": "handover",
    "access of a single element": "element_chase",
    "vector instructions": "vector_ops",
    "sustained memory rate": "stream",
    "rate of a slice of L2": "shared_24",
    "scheduler time per block": "blocks",
    "submission of a task": "dispatch",
    "task of a graph": "graph",
    "hand-over of a block": "chain",
}


def _script_hint(group: str) -> str:
    return f"`{_SHOWN_BY[group]}.py` shows it, unless something else hides it"
