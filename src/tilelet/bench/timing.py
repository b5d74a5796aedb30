"""Time several forms of the same work in turn, so that noise affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field

if TYPE_CHECKING:
    from tilelet.bench.peaks import Machine, Peaks

# Seconds; threads of other libraries spin for a while after their work.
_PAUSE = 0.2


@dataclass(frozen=True)
class Seconds:
    """Wall-clock and processor time."""

    clock: float
    processor: float


@dataclass(frozen=True)
class Effort:
    """Measuring effort: number of rounds, and a limit in seconds."""

    rounds: int
    seconds: float
    fewest: int = 3


@dataclass(frozen=True)
class Form:
    """One way to do the work. A foreign one belongs to a library with threads of its own.

    part  share of the work in a run: less than 1 if the whole takes too long, more if it is too
          short
    note  remark for the table
    """

    name: str
    run: Callable[[], object]
    is_foreign: bool = False
    part: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Missing:
    """A form that cannot be measured, and why."""

    name: str
    note: str


@dataclass
class Timing:
    """All runs of one form, with the peaks measured around each."""

    times: list[Seconds] = field(default_factory=list["Seconds"])
    peaks: list[Peaks] = field(default_factory=list["Peaks"])

    @property
    def seconds(self) -> float:
        return statistics.median(t.clock for t in self.times)

    @property
    def processor_seconds(self) -> float:
        return statistics.median(t.processor for t in self.times)

    def share(self, amount: float, of: Callable[[Peaks], float]) -> float:
        """Return the median rate of `amount` per run as a share of the peak `of`."""
        pairs = zip(self.times, self.peaks)
        return statistics.median(amount / t.clock / of(peaks) for t, peaks in pairs)

    def processor_share(self, flops: float, threads: int) -> float:
        """Return the same for operations by processor time per thread: other load does not count,
        but waiting does.
        """
        pairs = zip(self.times, self.peaks)
        return statistics.median(flops * threads / t.processor / p.flops for t, p in pairs)


def quartiles(values: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile."""
    if len(values) == 1:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def run_once(form: Form) -> Seconds:
    """Run once; scale the time of a part to the whole work."""
    clock, processor = time.perf_counter(), time.process_time()
    form.run()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return Seconds(clock / form.part, processor / form.part)


def in_turn(forms: Sequence[Form], machine: Machine, effort: Effort) -> dict[str, Timing]:
    """Time all forms in rounds, after a warm-up; return timings by name."""
    timings = {form.name: Timing() for form in forms}
    begin = time.perf_counter()
    for form in forms:
        form.run()
    warm_up = time.perf_counter() - begin
    before = machine.probe()
    for i in range(effort.rounds):
        if i >= _round_count(effort, warm_up) and time.perf_counter() - begin > effort.seconds:
            break
        found: dict[str, Seconds] = {}
        for form in forms:
            found[form.name] = run_once(form)
            if form.is_foreign:
                time.sleep(_PAUSE)
        after = machine.probe()
        for name, seconds in found.items():
            timings[name].times.append(seconds)
            timings[name].peaks.append(before.better_of(after))
        before = after
    return timings


def _round_count(effort: Effort, warm_up: float) -> int:
    """Return the number of rounds; one if a round exceeds the time limit."""
    return 1 if warm_up > effort.seconds else min(effort.fewest, effort.rounds)


def extra_memory(run: Callable[[], object]) -> int | None:
    """Return the additional peak memory of `run`; None if the system does not report it."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5", encoding="ascii")  # resets the peak
        before = _kilobytes(status.read_text(encoding="ascii"), "VmRSS")
        run()
        after = _kilobytes(status.read_text(encoding="ascii"), "VmHWM")
    except OSError:
        return None
    if before is None or after is None:
        return None
    return max(0, after - before) * 1024


def _kilobytes(status: str, key: str) -> int | None:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    return None
