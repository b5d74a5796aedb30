"""One modelled run as page data: header entry and columns.

Time stamps come from the timeline, dependencies from its graph, bytes from `traffic`, on-chip
addresses from the memory plan, the critical path and figures from the profile.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilelet.device.machine.description import Machine
from tilelet.device.memory.plan import plan_json
from tilelet.device.report.critical import critical_path
from tilelet.device.report.edge_kinds import KINDS, edge_kinds
from tilelet.device.run import DeviceRun
from tilelet.device.schedule.arrays import Group
from tilelet.device.schedule.simulate import Timeline
from tilelet.diag.core import UserError
from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array
from tilelet.report.columns import Columns
from tilelet.report.findings import checked_data, finding_data
from tilelet.report.source import SourceCosts, SourceFiles

Ints = NDArray[np.int64]

MAX_TASKS = 500_000
"""Runs with more tasks than this are thinned."""

KEPT_TASKS = 250_000
"""Approximate number of tasks after thinning."""

MAX_EDGES = 4_000_000
JOIN = len(KINDS)
"""Kind of an edge to or from a join of many writers."""

MAX_NAME = 400
"""Maximum length of a name on the page."""


def run_data(
    device_run: DeviceRun, columns: Columns, verdict: Mapping[str, object] | None = None
) -> JsonObject:
    """Return the header entry of a run, and add its columns to `columns`.

    verdict  the JSON verdict of the checks
    """
    try:
        return _RunData(device_run, columns).data(verdict)
    except UserError as error:
        if verdict is None:
            raise
        return _refused_run(device_run, verdict, error)


def _refused_run(
    device_run: DeviceRun, verdict: Mapping[str, object], error: UserError
) -> JsonObject:
    """Return the entry of a run that could not be modelled: findings and the reason."""
    files = SourceFiles()
    checked = checked_data(verdict, files)
    checked["findings"].append(finding_data(error.diagnostic, files, "limits"))
    run, machine = device_run.run, device_run.machine
    nothing = {**NO_FIGURES, "program": run.name, "machine": machine.name, "title": machine.title}
    parts = {"name": run.name, "machine": machine.name, "profile": nothing, **checked}
    parts["memory"] = memory_data(device_run, files)
    parts["parameters"] = parameters(machine, machine.period(device_run.period))
    return _short_names(parts) | {"files": files.data()}


NO_FIGURES: JsonObject = {
    **dict.fromkeys(("program", "machine", "title", "period"), ""),
    **dict.fromkeys(("tasks", "total_us", "orchestrator_us", "hbm_read", "hbm_written"), 0),
    **dict.fromkeys(("window_stall_us", "heap_stall_us", "hbm_gbs", "peak_gflops"), 0),
    **{key: [] for key in ("kernels", "tensors", "scheduler_busy", "guesses")},
    **{key: {} for key in ("path", "busy", "cores", "limits")},
}
"""The profile of a run that was not modelled."""


def profile_data(profile_json: str, name: str, machine: str) -> JsonObject:
    """Return the entry of a saved `profile.json`, which has only the summary."""
    found = {"name": name, "machine": machine, "profile": json.loads(profile_json)}
    return cast("JsonObject", _short_names(found))


def short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}… ({len(name):,} characters)"


class _RunData:
    def __init__(self, device_run: DeviceRun, columns: Columns) -> None:
        self.device_run = device_run
        self.timeline: Timeline = device_run.timeline
        self.stream = self.timeline.stream
        self.path = critical_path(self.timeline)
        self.columns = columns
        self.entries: JsonObject = {}
        self.files = SourceFiles()
        self.tasks = self.kept_tasks()
        kept = np.zeros(self.stream.count, np.bool_)
        kept[self.tasks] = True
        self.new_number = np.cumsum(kept) - 1
        self.kept = kept
        self.records = np.flatnonzero(kept[self.timeline.task])

    def kept_tasks(self) -> Ints:
        count = self.stream.count
        if count <= MAX_TASKS:
            return np.arange(count)
        on_path = self.timeline.task[np.array(self.path.records[-KEPT_TASKS // 2 :], np.int64)]
        step = -(-2 * count // KEPT_TASKS)
        return np.unique(np.concatenate([on_path, np.arange(0, count, step)]))

    @property
    def thinned(self) -> str:
        count, shown = self.stream.count, len(self.tasks)
        if shown == count:
            return ""
        return (
            f"{shown:,} of {count:,} tasks are shown: the end of the critical path and an even "
            "sample of the rest. Tables and totals count all of them."
        )

    def data(self, verdict: Mapping[str, object] | None) -> JsonObject:
        run, machine = self.device_run, self.device_run.machine
        self.add_records()
        self.add_tasks()
        self.add_arguments()
        self.add_edges()
        profile = run.profile.to_data()
        costs = SourceCosts(self.timeline, self.path, self.files)
        data = {
            "name": run.run.name,
            "machine": machine.name,
            "profile": profile,
            "tick_us": self.tick,
            "runtime": self.runtime(),
            "kernels": [self.kernel(i, costs) for i in range(len(self.stream.kernel_names))],
            "sites": [self.site(g) for g in self.stream.groups],
            "costs": [self.cost(i) for i in range(len(self.stream.costs))],
            "lines": costs.lines(),
            "memory": memory_data(run, self.files),
            "moves": self.moves(),
            "parameters": parameters(machine, self.timeline.runtime),
            **self.checked(verdict),
            "hints": list(run.hints[:200]),
            "thinned": self.thinned,
            "columns": self.entries,
        }
        return _short_names(data) | {"files": self.files.data()}

    def checked(self, verdict: Mapping[str, object] | None) -> JsonObject:
        if verdict is not None:
            return checked_data(verdict, self.files)
        found = self.device_run.findings
        return {"findings": [finding_data(f.diagnostic, self.files) for f in found]}

    def add(self, name: str, values: Array, kind: str = "", *, delta: bool = False) -> None:
        self.entries[name] = self.columns.add(values, kind, delta=delta)

    # Time

    @cached_property
    def tick(self) -> float:
        """The time unit in microseconds: a nanosecond, or more if 32 bits require it."""
        end = max(float(self.timeline.finish.max(initial=0.0)), self.timeline.orchestrator_end)
        tick = 0.001
        while end / tick >= 1 << 31:
            tick *= 10
        return tick

    def ticks(self, us: NDArray[np.float64]) -> Ints:
        return np.rint(us / self.tick).astype(np.int64)

    def add_records(self) -> None:
        t, records = self.timeline, self.records
        dispatch, start, end, finish = (
            self.ticks(column[records]) for column in (t.dispatch, t.start, t.end, t.finish)
        )
        self.add("record.task", self.new_number[t.task[records]], delta=True)
        self.add("record.core", t.core[records])
        self.add("record.dispatch", dispatch, delta=True)
        self.add("record.head", start - dispatch)
        self.add("record.exec", end - start)
        self.add("record.tail", finish - end)
        place = np.cumsum(self.kept[t.task]) - 1
        path = np.array(self.path.records, np.int64)
        self.add("path", place[path[self.kept[t.task[path]]]], delta=True)

    def add_tasks(self) -> None:
        t, tasks = self.timeline, self.tasks
        owners, _ = self.stream.tasks.places()
        submitted = self.ticks(t.submitted[tasks])
        released = t.released_by[tasks]
        known = (released >= 0) & self.kept[released]
        self.add("task.site", owners[tasks])
        self.add("task.cost", self.stream.first_cost[tasks])
        self.add("task.submitted", submitted, delta=True)
        self.add("task.wait", (self.ticks(t.ready[tasks]) - submitted).clip(min=0))
        # Distance to the task that released it; 0: none.
        back = np.arange(len(tasks)) - self.new_number[released]
        self.add("task.released", np.where(known, back, 0))
        self.add("task.hbm", np.rint(t.hbm_read[tasks] + t.hbm_written[tasks]).astype(np.int64))
        if self.thinned:
            self.add("task.number", tasks, delta=True)

    def add_edges(self) -> None:
        graph, count = self.timeline.graph, self.stream.count
        if self.thinned or len(graph.pred) > MAX_EDGES:
            return
        consumer = np.repeat(np.arange(graph.nodes), np.diff(graph.ptr))
        between = (graph.pred < count) & (consumer < count)
        kinds = np.full(len(graph.pred), JOIN, np.int64)
        kinds[between] = edge_kinds(self.stream, graph.pred[between], consumer[between])
        self.add("edge.count", np.diff(graph.ptr))
        self.add("edge.back", consumer - graph.pred, "i4")
        self.add("edge.kind", kinds)

    # Arguments

    def add_arguments(self) -> None:
        """Add regions and scalars of all tasks, by argument position."""
        regions = self.stream.regions
        names: dict[str, int] = {}
        tensor = [names.setdefault(b.name, len(names)) for b in regions.buffers]
        of_buffer = np.array(tensor, np.int64)
        used: list[Ints] = [np.zeros(0, np.int64)]
        numbers: list[NDArray[np.float64]] = [np.zeros(0)]
        for group in self.stream.groups:
            mine = self.kept[group.indices]
            used += [column[mine] for column in group.regions]
            numbers += [_numbers(group.tasks.scalar_column(p))[mine] for p in _scalars_shown(group)]
        chosen, which = np.unique(np.concatenate(used), return_inverse=True)
        self.add("argument.region", which)
        values = np.concatenate(numbers)
        whole = bool((values == np.rint(values)).all()) and bool((abs(values) < 2**31).all())
        self.add("argument.scalar", values, "i4" if whole else "f8")
        self.add("region.tensor", of_buffer[regions.buffer[chosen]] if len(chosen) else chosen)
        self.add("region.offset", regions.offset[chosen])
        self.add("region.layout", regions.layout[chosen])
        self.tensor_names = list(names)

    def site(self, group: Group) -> JsonObject:
        view = self.stream.kernels[self.stream.kernel_names.index(group.kernel)]
        params = [p.name for p in view.function.params] if view is not None else []

        def named(positions: Iterable[int]) -> list[str]:
            return [params[p] if p < len(params) else f"argument {p}" for p in positions]

        tasks = group.tasks
        return {
            "kernel": self.stream.kernel_names.index(group.kernel),
            "place": self.files.place(tasks.loc),
            "tasks": len(tasks),
            "shown": int(self.kept[group.indices].sum()),
            "blocks": tasks.blocks,
            "manual": tasks.manual,
            "ran": tasks.ran,
            "tensors": named(tasks.tensors),
            "directions": [tasks.directions[p].value for p in tasks.tensors],
            "scalars": named(_scalars_shown(group)),
        }

    # Kernels, memory, machine

    def kernel(self, number: int, costs: SourceCosts) -> JsonObject:
        view = self.stream.kernels[number]
        name = self.stream.kernel_names[number]
        if view is None:
            return {"name": name, "cores": "", "place": None, "steps": [], "events": []}
        return {
            "name": name,
            "cores": view.shape,
            "place": self.files.place(view.function.loc),
            **costs.typical_execution(number),
        }

    def cost(self, number: int) -> JsonObject:
        cost = self.stream.costs[number]
        pipes = {
            pipe: [_short(busy), *map(_short, cost.span_us.get(pipe, (0.0, 0.0)))]
            for pipe, busy in cost.busy_us.items()
        }
        return {
            "kernel": self.stream.cost_kernel[number],
            "exec_us": _short(cost.exec_us),
            "cold_us": _short(cost.cold_us),
            "pipes": pipes,
            "read": cost.read_bytes,
            "written": cost.written_bytes,
            "macs": cost.macs,
            "bound": cost.bound,
        }

    def moves(self) -> list[list[object]]:
        moved = self.device_run.traffic.moves
        return [
            [kernel, tensor, origin, read, written]
            for (kernel, (tensor, origin)), (read, written) in moved.items()
        ]

    def runtime(self) -> JsonObject:
        t = self.timeline
        layouts = self.stream.tasks.regions.layouts
        return {
            "clusters": t.machine.cores.clusters,
            "vectors_per_cluster": t.machine.cores.vectors_per_cluster,
            "threads": t.runtime.threads,
            "submit_us": t.runtime.submit_us,
            "submit_arg_us": t.runtime.submit_arg_us,
            "dispatch_us": t.runtime.dispatch_us,
            "complete_us": t.runtime.complete_us,
            "window": t.runtime.task_window,
            "begin_us": float(t.dispatch.min(initial=0.0)) if len(t.task) else 0.0,
            "orchestrator_end_us": _short(t.orchestrator_end),
            "window_stall_us": _short(t.window_stall_us),
            "heap_stall_us": _short(t.heap_stall_us),
            "layouts": [
                {"shape": list(w.shape), "strides": list(w.strides), "dtype": w.dtype.name}
                for w in layouts
            ],
            "tensors": self.tensor_names,
        }


def memory_data(device_run: DeviceRun, files: SourceFiles) -> list[JsonObject]:
    """Return tile addresses by kernel, and the statement of each step."""
    kernels = {k.name: k for k in device_run.kernels}
    found: list[JsonObject] = []
    for plan in device_run.plans:
        steps = kernels[plan.kernel].walk()
        lines = {s.position: (s.what, files.place(s.loc)) for s in steps}
        shown = [[p, what, place] for p, (what, place) in sorted(lines.items())]
        data = plan_json(plan)
        for space, use in zip(data["spaces"], plan.spaces):
            space["peak_at"] = use.peak_at
            space["peak_place"] = files.place(use.peak_loc)
            space["resident"] = [p.tile.name for p in use.resident]
        found.append({**data, "steps": shown})
    return found


def parameters(machine: Machine, runtime: object) -> list[list[Any]]:
    """Return the machine's figures with their evidence: name, value, tag, source."""
    period = next((name for name, r in machine.runtime.items() if r is runtime), "")
    groups: JsonObject = {
        "cores": machine.cores,
        "gm": machine.gm,
        "cube": machine.cube,
        "body": machine.body,
        f"runtime.{period}": runtime,
        **{f"paths.{name}": path for name, path in machine.paths.items()},
        **{f"buffers.{space.name}": memory for space, memory in machine.buffers.items()},
        **{f"vector.costs.{name}": cost for name, cost in machine.vector.items()},
    }
    rows: list[list[object]] = []
    for group, record in groups.items():
        for field in dataclasses.fields(record):
            name = f"{group}.{field.name}"
            evidence = machine.evidence.get(name)
            tag, source = (evidence.tag, evidence.source) if evidence else ("", "")
            rows.append([name, getattr(record, field.name), tag, source])
    return rows


def _scalars_shown(group: Group) -> list[int]:
    """Return at most four numeric scalar arguments; most are loop variables."""
    if not len(group.tasks):
        return []
    first = [group.tasks.scalars[i] for i in range(len(group.tasks.others))]
    plain = [
        p
        for p, value in zip(group.tasks.others, first)
        if isinstance(value, (int, float, np.integer, np.floating))
    ]
    return plain[:4]


def _numbers(column: Sequence[object]) -> NDArray[np.float64]:
    values = np.array(column, np.float64)
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _short(us: float) -> float:
    return round(float(us), 4)


def _short_names(value: object) -> Any:
    """Truncate long user texts; return other values unchanged."""
    if isinstance(value, str):
        return short(value)
    if isinstance(value, Mapping):
        table = cast("JsonObject", value)
        return {short(str(k)): _short_names(v) for k, v in table.items()}
    if isinstance(value, (list, tuple)):
        return [_short_names(v) for v in cast("Sequence[object]", value)]
    return value
