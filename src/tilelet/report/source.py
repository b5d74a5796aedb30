"""The user's source files with the modelled cost of each line.

time     contribution of a line's steps to kernel time (`line_costs`), over all executions; times
         of all lines add up to the time of all kernels
path     the same for the executions on the critical path
bytes    global memory traffic of the line's transfers
tasks    tasks that the scope or call on the line submits, with their total times
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.line_costs import ModelledExecution, follow
from tilelet.device.kernel.view import Core
from tilelet.device.report.critical import Path
from tilelet.device.schedule.simulate import Timeline
from tilelet.diag.core import Loc
from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array

MAX_FOLLOWED = 150
"""Maximum number of signatures simulated step by step, longest first."""

MAX_TEXT = 2_000_000
"""Maximum number of source characters in a page."""


class SourceFiles:
    """Numbers the files of a page, without their folders."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, file: str) -> int:
        return self._numbers.setdefault(file, len(self._numbers))

    def place(self, loc: Loc | None) -> list[int] | None:
        """Return file number and line; None if the location is unknown."""
        return [self.number(loc.file), loc.line] if loc is not None and loc.line > 0 else None

    def data(self) -> list[JsonObject]:
        names = _short_paths(list(self._numbers))
        found: list[JsonObject] = []
        room = MAX_TEXT
        for file, name in zip(self._numbers, names):
            text = "".join(linecache.getlines(file))
            lines = text.splitlines() if 0 < len(text) <= room else None
            room -= len(text) if lines else 0
            found.append({"name": name, "lines": lines})
        return found


def _short_paths(files: list[str]) -> list[str]:
    """Return file names with as many folders as needed to make them unique."""
    parts = [PurePath(file).parts or (file,) for file in files]
    depth = [1] * len(files)
    for _ in range(8):
        shown = ["/".join(p[-d:]) for p, d in zip(parts, depth)]
        twice = {name for name in shown if shown.count(name) > 1}
        if not twice:
            break
        depth = [d + 1 if name in twice else d for d, name in zip(depth, shown)]
    return ["/".join(p[-d:]) for p, d in zip(parts, depth)]


@dataclass
class LineCost:
    """Costs of a line; `called_us` is the time of inlined callees."""

    time_us: float = 0.0
    path_us: float = 0.0
    called_us: float = 0.0
    called_path_us: float = 0.0
    read: float = 0.0
    written: float = 0.0
    tasks: int = 0
    scope_us: float = 0.0
    scope_path_us: float = 0.0


class SourceCosts:
    """Costs of lines, and one execution of each kernel step by step."""

    def __init__(self, timeline: Timeline, path: Path, files: SourceFiles) -> None:
        self.timeline = timeline
        self.stream = timeline.stream
        self.files = files
        self.exec_us, self.path_us, self.blocks = self._weights(path)
        self._followed: dict[int, ModelledExecution] = {}

    def _weights(self, path: Path) -> tuple[Array, Array, Array]:
        """Return, by cost: total time, time on the critical path, and number of executions.

        Vector lanes of a mixed block run in parallel with its cube: count one record per block.
        """
        t, stream = self.timeline, self.stream
        has_cube = np.array([k is not None and Core.AIC in k.cores for k in stream.kernels], bool)
        main = (t.core < t.machine.cores.clusters) == has_cube[t.kernel]
        cost = stream.first_cost[t.task]
        spent = np.where(main, t.end - t.start, 0.0)
        count = len(stream.costs)
        on_path = np.zeros(len(t.task), np.bool_)
        on_path[np.array(path.records, np.int64)] = True
        self._spent = spent
        self._on_path = np.where(on_path, t.end - t.start, 0.0)
        return (
            np.bincount(cost, spent, count),
            np.bincount(cost, self._on_path, count),
            np.bincount(cost, main, count),
        )

    def execution(self, cost: int) -> ModelledExecution | None:
        view = self.stream.kernels[self.stream.cost_kernel[cost]]
        if view is None:
            return None
        if cost not in self._followed:
            signature = self.stream.signatures[cost]
            self._followed[cost] = follow(view, self.timeline.machine, signature)
        return self._followed[cost]

    def chosen(self) -> Iterator[tuple[int, float]]:
        """Yield the costs to simulate, each with a weight for the others of its kernel."""
        order: list[int] = np.argsort(-self.exec_us, kind="stable")[:MAX_FOLLOWED].tolist()
        kernels = np.array(self.stream.cost_kernel, np.int64)
        total = np.bincount(kernels, self.exec_us, len(self.stream.kernels))
        followed = np.bincount(kernels[order], self.exec_us[order], len(self.stream.kernels))
        for cost in order:
            kernel = self.stream.cost_kernel[cost]
            if self.exec_us[cost] > 0:
                yield cost, float(total[kernel] / followed[kernel])

    def lines(self) -> list[list[Any]]:
        """Rows [file, line, time, path, called, called path, read, written, tasks, scope, path]."""
        found: dict[tuple[int, int], LineCost] = {}

        def at(loc: Loc) -> LineCost:
            place = self.files.place(loc) or [self.files.number(loc.file), 0]
            return found.setdefault((place[0], place[1]), LineCost())

        for cost, factor in self.chosen():
            self._add_steps(cost, factor, at)
        self._add_scopes(at)
        return [
            [
                *place,
                *(round(v, 3) for v in (c.time_us, c.path_us, c.called_us, c.called_path_us)),
                round(c.read),
                round(c.written),
                c.tasks,
                round(c.scope_us, 3),
                round(c.scope_path_us, 3),
            ]
            for place, c in sorted(found.items())
            if place[1] > 0
        ]

    def _add_steps(self, cost: int, factor: float, at: Callable[[Loc], LineCost]) -> None:
        execution = self.execution(cost)
        view = self.stream.kernels[self.stream.cost_kernel[cost]]
        if execution is None or view is None:
            return
        followed = sum(s.added for s in execution.steps.values()) + execution.start_us
        # Waiting for global memory and other cores is distributed over all steps.
        stretch = factor * float(self.exec_us[cost]) / followed if followed else 0.0
        on_path = factor * float(self.path_us[cost]) / followed if followed else 0.0
        blocks = factor * float(self.blocks[cost])
        at(view.function.loc).time_us += execution.start_us * stretch
        at(view.function.loc).path_us += execution.start_us * on_path
        for step in view.walk():
            spent = execution.steps.get(step.position)
            if spent is None:
                continue
            line = at(step.loc)
            line.time_us += spent.added * stretch
            line.path_us += spent.added * on_path
            line.read += spent.read * blocks
            line.written += spent.written * blocks
            for caller in step.loc.callers:
                at(caller).called_us += spent.added * stretch
                at(caller).called_path_us += spent.added * on_path

    def _add_scopes(self, at: Callable[[Loc], LineCost]) -> None:
        owners, _ = self.stream.tasks.places()
        owner, count = owners[self.timeline.task], len(self.stream.groups)
        spent = np.bincount(owner, self._spent, count).tolist()
        on_path = np.bincount(owner, self._on_path, count).tolist()
        for group, us, path_us in zip(self.stream.groups, spent, on_path):
            if group.kernel:
                line = at(group.tasks.loc)
                line.tasks += len(group.tasks)
                line.scope_us += us
                line.scope_path_us += path_us

    def typical_execution(self, kernel: int) -> JsonObject:
        """Return the steps of a kernel and their pipe activity, for its most expensive cost."""
        view = self.stream.kernels[kernel]
        mine = np.flatnonzero(np.array(self.stream.cost_kernel) == kernel)
        if view is None or not len(mine):
            return {"steps": [], "events": []}
        cost = int(mine[np.argmax(self.exec_us[mine])])
        execution = self.execution(cost)
        assert execution is not None
        steps: list[list[object]] = []
        for step in view.walk():
            spent = execution.steps.get(step.position)
            if spent is not None:
                pipe = f"{step.core.value}.{step.pipe.value}"
                figures = [round(spent.busy, 4), round(spent.added, 4), round(spent.times)]
                steps.append([step.position, pipe, step.what, self.files.place(step.loc), *figures])
        events = [
            [e.position, round(e.begin_us, 4), round(e.end_us, 4), e.repeats]
            for e in execution.events
        ]
        return {
            "steps": steps,
            "events": events,
            "start_us": round(execution.start_us, 4),
            "all_events": execution.complete,
            "typical_cost": cost,
        }
