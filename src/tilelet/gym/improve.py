"""Run the optimizer on the naive kernels of the gym, for an entry of the leaderboard."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from tilelet.advice.programs import Setting
from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import load_machine
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, number
from tilelet.gym.tasks import Task
from tilelet.optimise.search import optimise
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target
from tilelet.tuning.workers import Lost, workers

T = TypeVar("T")


class _Inline(Executor):
    """Run calls at once in this process, which is itself one of several workers."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class Improvement:
    """The outcome for one task: modelled us before and after, the floor, and the script."""

    task: str
    before_us: float
    after_us: float
    floor_us: float
    steps: Sequence[str]
    text: str

    @property
    def ratio(self) -> float:
        return self.before_us / self.after_us

    def to_data(self) -> JsonObject:
        return {
            "task": self.task,
            "before_us": round(self.before_us, 4),
            "after_us": round(self.after_us, 4),
            "floor_us": round(self.floor_us, 4),
            "ratio": round(self.ratio, 4),
            "steps": list(self.steps),
        }


def improve(task: Task, platform: str = "a2a3") -> Improvement:
    """Optimise the naive kernel of a task; only proved steps are taken."""
    setting = Setting(load_machine(platform), None, RecordingOptions(platform=platform, quiet=True))
    with tempfile.TemporaryDirectory(prefix="tilelet-gym-") as folder:
        path = Path(folder) / f"{task.name}.py"
        path.write_text(task.script, encoding="utf-8")
        found = optimise(Target(str(path)), setting, executor=_Inline())
    steps = [rung.change for rung in found.rungs]
    return Improvement(task.name, found.start.us, found.costs.us, found.floor.us, steps, found.text)


def improve_all(
    chosen: Iterable[Task], *, jobs: int | None = None, executor: Executor | str | None = None
) -> list[Improvement]:
    """Optimise several tasks in parallel; a task whose process died is left out."""
    calls = [(task,) for task in chosen]
    with workers(min(jobs, len(calls)) if jobs else jobs, executor) as pool:
        found = dict(pool.map(improve, calls))
    every = (found[place] for place in range(len(calls)))
    return [one for one in every if not isinstance(one, Lost)]


def median_ratio(found: Sequence[Improvement]) -> float:
    return statistics.median(one.ratio for one in found) if found else 1.0


def improvement_table(found: Sequence[Improvement]) -> Table:
    heads = ("task", "us before", "us after", "faster", "floor us", "steps")
    table = Table("", heads, left=1, notes=[f"median {median_ratio(found):.2f}x faster"])
    for one in found:
        us = map(number, (one.before_us, one.after_us))
        steps = ", ".join(one.steps) or "none"
        table.rows.append((one.task, *us, f"{one.ratio:.2f}x", number(one.floor_us), steps))
    return table
