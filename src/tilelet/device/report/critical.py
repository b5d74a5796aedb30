"""The critical path: what the end of the run waited for, back to its beginning.

From the record that finished last, go to whatever it waited for longest: the task that released it,
the record that occupied its core, or the orchestrator. Every moment of the run belongs to one part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.device.schedule.simulate import Timeline

PARTS = {
    "exec": "kernels running",
    "head": "hand-over to a core",
    "tail": "completion noticed",
    "scheduler": "a scheduler was busy",
    "orchestrator": "the orchestrator submits",
}
"""Parts of the path, as worded in the report."""

NOTHING = -1


@dataclass(frozen=True)
class Path:
    """The critical path.

    records  numbers of the records on it, first to last
    parts    microseconds by part; they add up to `total_us`
    kernel_us, kernel_tasks  time of executions on the path, by kernel
    """

    total_us: float
    records: tuple[int, ...]
    parts: Mapping[str, float]
    kernel_us: Mapping[str, float]
    kernel_tasks: Mapping[str, int]


def critical_path(timeline: Timeline) -> Path:
    """Trace the run back from its end."""
    parts = dict.fromkeys(PARTS, 0.0)
    if not len(timeline.task):
        return Path(0.0, (), parts, {}, {})
    begin = float(timeline.dispatch.min())
    names = timeline.kernel_names
    kernels: list[int] = timeline.kernel.tolist()
    causes = _Causes(timeline)
    kernel_us: dict[str, float] = {}
    kernel_tasks: dict[str, int] = {}
    record = int(np.argmax(timeline.finish))
    until = causes.finish[record]
    found: list[int] = []
    while record != NOTHING:
        found.append(record)
        name = names[kernels[record]]
        start, end, dispatch = causes.start[record], causes.end[record], causes.dispatch[record]
        kernel_us[name] = kernel_us.get(name, 0.0) + end - start
        kernel_tasks[name] = kernel_tasks.get(name, 0) + 1
        parts["exec"] += end - start
        parts["tail"] += until - end
        until, cause = causes.of(record)
        parts["head"] += start - max(dispatch, until)
        parts["scheduler"] += max(0.0, dispatch - max(until, begin))
        if cause == NOTHING:
            # Time starts at the first dispatch, or when the orchestrator has read a result.
            cause = causes.awaited[causes.task[record]]
            since = begin if cause == NOTHING else causes.finish[cause]
            parts["orchestrator"] += max(0.0, min(until, dispatch) - since)
            until = since
        record = cause
    return Path(timeline.total_us, tuple(reversed(found)), parts, kernel_us, kernel_tasks)


class _Causes:
    """What each record waited for last."""

    def __init__(self, t: Timeline) -> None:
        self.before = _previous_on_core(t.core, t.dispatch).tolist()
        self.last_of = _last_records(t.task, t.finish, len(t.finished)).tolist()
        self.task: list[int] = t.task.tolist()
        self.dispatch, self.start = t.dispatch.tolist(), t.start.tolist()
        self.end, self.finish = t.end.tolist(), t.finish.tolist()
        self.submitted, self.finished = t.submitted.tolist(), t.finished.tolist()
        self.released_by = t.released_by.tolist()
        self.awaited = self._awaited(t)

    def _awaited(self, t: Timeline) -> list[int]:
        """Return for each task the record that the orchestrator last waited for to submit it."""
        ptr, awaits = t.stream.await_ptr.tolist(), t.stream.awaits.tolist()
        if not awaits:
            return [NOTHING] * len(self.submitted)
        found, last = list[int](), NOTHING
        for task, submitted in enumerate(self.submitted):
            for other in awaits[ptr[task] : ptr[task + 1]]:
                before = self.submitted[task - 1]
                if before < self.finished[other] <= submitted and self.last_of[other] != NOTHING:
                    last = self.last_of[other]
            found.append(last)
        return found

    def of(self, record: int) -> tuple[float, int]:
        """Return since when only the runtime delayed a record, and what record did before."""
        task = self.task[record]
        since, cause = self.submitted[task], NOTHING
        releaser = self.released_by[task]
        if releaser >= 0 and self.last_of[releaser] != NOTHING and self.finished[releaser] > since:
            cause = self.last_of[releaser]
            since = self.finish[cause]
        previous = self.before[record]
        if previous != NOTHING:
            # A block queued at a busy core starts when the one before it ends; any other is
            # dispatched only after that end was noticed.
            waited = self.dispatch[record] < self.finish[previous]
            freed = (self.end if waited else self.finish)[previous]
            if freed > since:
                since, cause = freed, previous
        return since, cause


def _previous_on_core(core: NDArray[np.int64], dispatch: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each record the previous one on its core."""
    order = np.lexsort((dispatch, core))
    before = np.full(len(core), NOTHING, np.int64)
    same = core[order][1:] == core[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _last_records(
    task: NDArray[np.int64], finish: NDArray[np.float64], tasks: int
) -> NDArray[np.int64]:
    """Return for each task the record that finished last."""
    order = np.lexsort((np.arange(len(task)), finish))
    last = np.full(tasks, NOTHING, np.int64)
    last[task[order]] = order
    return last
