"""Alternating measurements, and the memory that a run needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelet.bench import timing as timing_module
from tilelet.bench.host import Busy, busy
from tilelet.bench.peaks import Machine, Peaks
from tilelet.bench.timing import Effort, Form, Seconds, Timing, extra_memory, in_turn, run_once


class Steady:
    """A machine with known peaks, where each probe is better than the one before."""

    def __init__(self) -> None:
        self.probes = 0

    def probe(self) -> Peaks:
        self.probes += 1
        return Peaks(self.probes * 100.0, self.probes * 10.0, self.probes * 10.0, self.probes * 1.0)


def test_forms_run_in_turn_after_one_run_to_warm_up() -> None:
    ran: list[str] = []
    forms = [Form(name, lambda name=name: ran.append(name)) for name in "ab"]
    machine: Any = Steady()
    timings = in_turn(forms, machine, Effort(3, 60.0))
    assert ran == list("ab" * 4)
    assert [len(timings[name].times) for name in "ab"] == [3, 3]
    # The better of the peaks before and after a round counts.
    assert [p.flops for p in timings["a"].peaks] == [200.0, 300.0, 400.0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that the bench reads; tests advance it."""
    now = [0.0]
    monkeypatch.setattr(timing_module.time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("effort", "rounds"),
    [
        (Effort(9, 2.0, fewest=3), 1),  # one run exceeds the budget of all
        (Effort(9, 4.0, fewest=3), 3),
        (Effort(9, 13.0, fewest=3), 4),
        (Effort(2, 60.0, fewest=3), 2),
    ],
)
def test_slow_forms_run_less_often(clock: list[float], effort: Effort, rounds: int) -> None:
    def slow() -> None:
        clock[0] += 3.0

    machine: Any = Steady()
    timings = in_turn([Form("slow", slow)], machine, effort)
    assert [t.clock for t in timings["slow"].times] == [3.0] * rounds


def test_a_part_counts_as_the_whole(clock: list[float]) -> None:
    def tenth() -> None:
        clock[0] += 0.5

    assert run_once(Form("a tenth", tenth, part=0.1)).clock == 5.0


def test_share_is_the_median_of_ratios_of_the_same_round() -> None:
    times = [Seconds(1.0, 1.0), Seconds(2.0, 2.0), Seconds(10.0, 4.0)]
    peaks = [Peaks(100, 1, 1, 1), Peaks(50, 1, 1, 1), Peaks(100, 1, 1, 1)]
    timing = Timing(times, peaks)
    assert timing.seconds == 2.0
    assert timing.share(50.0, lambda p: p.flops) == pytest.approx(0.5)
    assert timing.processor_share(50.0, threads=2) == pytest.approx(1.0)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="nobody counts memory here")
def test_memory_that_a_run_needs_for_a_while_is_seen() -> None:
    size = 64 << 20
    found = extra_memory(lambda: np.ones(size, np.uint8).sum())
    assert found is not None
    assert 0.9 * size <= found < 2 * size  # the system counts in ticks
    again = extra_memory(lambda: None)
    assert again is not None
    assert again < size // 4


def test_other_work_is_what_is_neither_ours_nor_idle() -> None:
    assert Busy(10.0, 4.0).others_since(Busy(5.0, 1.0)) == 2.0
    before = busy()
    if before is None:
        pytest.skip("this system does not say")
    begin = time.process_time()
    while time.process_time() - begin < 0.2:
        pass  # work of our own
    after = busy()
    assert after is not None
    assert after.ours - before.ours > 0.1
    assert after.everything >= before.everything


def test_peaks_are_rates_of_this_machine() -> None:
    machine = Machine(threads=2, megabytes=8)
    peaks = machine.measure()
    # From the slowest supported machine to ten times the fastest.
    assert 1e8 < peaks.flops < 1e14
    assert 1e8 < peaks.read < 1e13
    assert 1e8 < peaks.copy < 1e13
