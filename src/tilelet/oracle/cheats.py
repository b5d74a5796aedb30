"""Ways to pass a comparison without doing the work, each recognized by its traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.report.profile import Profile, TensorRow
from tilelet.diag.tables import byte_text, number
from tilelet.oracle.floor import Floor
from tilelet.oracle.reference import Expected

CONSTANT = "constant output"
COPIED = "copied input"
SKIPPED = "skipped work"
TOLERANCE = "tolerance used up"
EARLIER_RUN = "output of an earlier run"
DEAD_STORES = "dead stores"
BELOW_FLOOR = "time below the floor"
OVERFITTED = "wrong on other inputs"

_USED_UP = 0.1
"""Share of the tolerance from which on an error is looked at."""
_TIMES_REFERENCE = 16.0
"""Factor above the reference's own error at which it is not the same arithmetic."""
_DEAD_SHARE = 0.25
"""Share of the compulsory bytes that dead stores may have."""


@dataclass(frozen=True)
class Outcome:
    """A candidate's result for some inputs: outputs by spec name, and whether they are right."""

    expected: Expected
    outputs: Mapping[str, Any]
    ok: bool
    error: float


@dataclass(frozen=True)
class Evidence:
    """A cheat, and the evidence for it."""

    kind: str
    text: str


def behind_outputs(outcomes: Sequence[Outcome], initial: Sequence[str]) -> Iterator[Evidence]:
    """Yield the cheats that wrong outputs reveal; `initial` are outputs filled with noise before
    the run.
    """
    wrong = [o for o in outcomes if not o.ok]
    if not wrong:
        return
    yield from _constant(outcomes)
    for outcome in wrong:
        yield from _unwritten_outputs(outcome, initial)
        yield from _copied_inputs(outcome)


def _constant(outcomes: Sequence[Outcome]) -> Iterator[Evidence]:
    for name in outcomes[0].outputs:
        made = [np.asarray(o.outputs[name]) for o in outcomes]
        wanted = [np.asarray(o.expected.outputs[name]) for o in outcomes if name in o.outputs]
        if len(made) > 1 and _all_equal(made) and not _all_equal(wanted):
            inputs = f"{len(made)} different inputs"
            yield Evidence(CONSTANT, f"`{name}` is the same for {inputs}")


def _all_equal(arrays: Sequence[Any]) -> bool:
    first = arrays[0]
    return all(a.shape == first.shape and a.tobytes() == first.tobytes() for a in arrays[1:])


def _unwritten_outputs(outcome: Outcome, initial: Sequence[str]) -> Iterator[Evidence]:
    """Return elements that still have their value from before the run."""
    given = outcome.expected.trial.arguments
    for name in initial:
        if name not in outcome.outputs or name not in given:
            continue
        made, before = np.asarray(outcome.outputs[name]), np.asarray(given[name])
        wanted = np.asarray(outcome.expected.outputs[name])
        if made.shape != before.shape:
            continue
        left = (made == before.astype(made.dtype)) & (wanted != made)
        count = int(left.sum())
        if count == made.size:
            yield Evidence(EARLIER_RUN, f"`{name}` keeps what an earlier run left in it")
        elif count:
            yield Evidence(
                SKIPPED, f"{count:,} of {made.size:,} elements of `{name}` are not written"
            )


def _copied_inputs(outcome: Outcome) -> Iterator[Evidence]:
    for name, made in outcome.outputs.items():
        result = np.asarray(made)
        for source, value in outcome.expected.trial.arguments.items():
            if source == name or not isinstance(value, np.ndarray) or value.size < result.size:
                continue
            with np.errstate(all="ignore"):
                copy = _flatten(value).astype(result.dtype)[: result.size]
            if np.array_equal(copy, result.reshape(-1)) or _is_corner(value, result):
                yield Evidence(COPIED, f"`{name}` is a copy of `{source}`")


def _flatten(value: object) -> Any:
    return np.asarray(value).reshape(-1)


def _is_corner(value: Any, result: Any) -> bool:
    """Return whether an output is the leading window of an input, or that of its transpose."""
    if value.ndim != result.ndim or any(n > m for n, m in zip(result.shape, value.shape)):
        return False
    with np.errstate(all="ignore"):
        window = value[tuple(slice(0, n) for n in result.shape)].astype(result.dtype)
    return np.array_equal(window, result)


def in_error(outcomes: Sequence[Outcome]) -> Iterator[Evidence]:
    """Yield a cheat if an output uses tolerance that the reference does not need."""
    for o in outcomes:
        floor = max(_TIMES_REFERENCE * o.expected.error, _USED_UP)
        if o.ok and o.error > floor:
            shares = f"{o.error:.0%} of the tolerance, the reference {o.expected.error:.2%}"
            yield Evidence(TOLERANCE, f"errors take {shares} ({o.expected.trial.about})")
            return


def in_traffic(mine: Profile, reference: Profile, wrong: bool) -> Iterator[Evidence]:
    """Yield inputs that are not read in full, and stores that nothing reads."""
    read = {t.name: t.least_read for t in mine.tensors if t.origin == "param"}
    for t in reference.tensors:
        if wrong and t.origin == "param" and read.get(t.name, 0) < t.least_read:
            shares = f"{byte_text(read.get(t.name, 0))} of {byte_text(t.least_read)}"
            yield Evidence(SKIPPED, f"{shares} of `{t.name}` are read")
    dead = sum(map(_dead_bytes, mine.tensors)) - sum(map(_dead_bytes, reference.tensors))
    compulsory = sum(t.least_read + t.least_written for t in reference.tensors)
    if dead > _DEAD_SHARE * compulsory:
        yield Evidence(DEAD_STORES, f"{byte_text(dead)} are stored and never read")


def _dead_bytes(tensor: TensorRow) -> int:
    if tensor.read:
        return 0
    return tensor.written if tensor.origin == "temp" else tensor.written - tensor.least_written


def in_time(mine: Profile, floor: Floor) -> Iterator[Evidence]:
    if mine.total_us < floor.us:
        times = f"{number(mine.total_us)} us modelled, {number(floor.us)} us at least"
        yield Evidence(BELOW_FLOOR, f"{times} for {byte_text(floor.nbytes)}")
