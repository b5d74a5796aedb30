"""Speed of the tuner, and its search compared with random search."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping

from tilelet.bench.report import Goal
from tilelet.bench.runner import Bench
from tilelet.scripts.target import Target
from tilelet.tuning.evaluate import Question
from tilelet.tuning.knobs import Setting
from tilelet.tuning.tune_result import TuneResult
from tilelet.tuning.tuner import Request, tune

RATE = Goal("candidates_per_minute", 200)
TWO_WORKERS = Goal("scaling", 1.8)
GAIN = Goal("gain", 1.5)
AHEAD_OF_RANDOM = Goal("ours_is_faster", 1.0)

_BUDGET = 120
_SMALL = ("--hidden", "512", "--intermediate", "1024")
_FEW: Mapping[str, tuple[Setting, ...]] = {"k_chunk": (128, 256), "mlp_out_chunk": (64, 128)}
_SEEDS = 3
"""Number of random searches, of which the median counts."""


def searches(bench: Bench) -> None:
    """Tune scope 3 by both methods with the same budget."""
    goals = not bench.is_quick
    with bench.guard("search"):
        bench.say("tune: tile sizes of scope 3")
        found, seconds = _search(bench, "descent", bench.threads)
        alone, one_worker = _search(bench, "descent", 1)
        assert alone.winner.settings == found.winner.settings
        row = bench.add(f"descent, {len(found.scores)} candidates")
        row.figures["seconds"] = seconds
        row.figures["candidates_per_minute"] = 60 * len(found.scores) / seconds
        row.figures["gain"] = found.ratio
        if bench.threads > 1:
            row.figures["scaling"] = one_worker / seconds
        row.goals = [RATE, GAIN] if goals else []
        if goals and bench.threads == 2:
            row.goals.append(TWO_WORKERS)
        seeds = range(1 if bench.is_quick else _SEEDS)
        drawn = [_search(bench, "random", bench.threads, seed) for seed in seeds]
        gain = statistics.median(outcome.ratio for outcome, _ in drawn)
        count = max(len(outcome.scores) for outcome, _ in drawn)
        row = bench.add(f"random, {count} candidates", f"the median of {len(seeds)} seeds")
        row.figures["seconds"] = statistics.median(each for _, each in drawn)
        row.figures["gain"] = gain
        row.figures["ours_is_faster"] = found.ratio / gain
        row.goals = [AHEAD_OF_RANDOM] if goals else []


def _search(bench: Bench, method: str, jobs: int, seed: int = 0) -> tuple[TuneResult, float]:
    """Run a search; return its result and duration."""
    sizes = _SMALL if bench.is_quick else ()
    question = Question(Target("qwen3/scope3", ("--variant", "refactored", *sizes)), ("a2a3",))
    request = Request(question, candidates=_BUDGET, method=method, seed=seed, jobs=jobs, verify=0)
    if bench.is_quick:
        request = dataclasses.replace(request, candidates=8, vary=_FEW)
    begin = time.perf_counter()
    outcome = tune(request)
    return outcome, time.perf_counter() - begin
