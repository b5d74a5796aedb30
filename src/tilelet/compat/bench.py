"""`pypto.runtime.benchmark`: launch a program repeatedly and time it.

The device time is modelled, and the same for every launch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from tilelet.dataclasses import dataclass, field
from tilelet.runtime import RunConfig
from tilelet.runtime.inspection.profile import profile
from tilelet.runtime.session import current


def _of(samples: str, figure: Callable[[list[float]], float]) -> object:
    """Return a property that is a statistic of the field `samples`, 0 if it is empty."""

    def value(stats: BenchmarkStats) -> float:
        found: list[float] = getattr(stats, samples)
        return figure(found) if found else 0.0

    return property(value)


@dataclass
class BenchmarkStats:
    """Times of the launches after the warm-up, in microseconds.

    device_wall_us  modelled; empty if no kernel was executed (`tilelet tasks`)
    host_wall_us    measured on this CPU
    """

    device_wall_us: list[float] = field(default_factory=list[float])
    host_wall_us: list[float] = field(default_factory=list[float])
    rounds: int = 0
    warmup: int = 0

    device_us_min = device_wall_us_min = _of("device_wall_us", min)
    device_us_median = device_wall_us_median = _of("device_wall_us", statistics.median)
    device_us_mean = device_wall_us_mean = _of("device_wall_us", statistics.fmean)
    device_us_max = device_wall_us_max = _of("device_wall_us", max)
    device_us_stdev = device_wall_us_stdev = _of("device_wall_us", statistics.pstdev)

    @property
    def samples(self) -> list[float]:
        return self.device_wall_us

    @property
    def all_zero_device(self) -> bool:
        return not any(self.device_wall_us)

    def __str__(self) -> str:
        host = statistics.median(self.host_wall_us) if self.host_wall_us else 0.0
        times = f"{self.device_us_median:.1f} us modelled, {host:.1f} us on this machine"
        return f"{self.rounds} launches (and {self.warmup} before them): {times}"


def benchmark(
    compiled: Callable[..., object],
    args: Sequence[object],
    *,
    rounds: int = 100,
    warmup: int = 3,
    platform: str | None = None,
    config: RunConfig | None = None,
    **_: object,
) -> BenchmarkStats:
    """Launch `compiled` on `args`, `warmup` and then `rounds` times; results are in `args`."""
    stats = BenchmarkStats(rounds=rounds, warmup=warmup)
    if not current().handler.executes:
        compiled(*args)
        return stats
    chosen = platform or (config.platform if config else None)
    modelled = profile(compiled, *args, platform=chosen or getattr(compiled, "platform", "a2a3"))
    stats.device_wall_us = [modelled.total_us] * rounds
    for _launch in range(warmup + rounds - 1):
        start = time.perf_counter()
        compiled(*args)
        stats.host_wall_us.append((time.perf_counter() - start) * 1e6)
    stats.host_wall_us = stats.host_wall_us[-rounds:] if rounds else []
    return stats
