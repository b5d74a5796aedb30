"""The modelled run as files for existing viewers.

merged_swimlane.json         Chrome trace events: a lane for each core, the orchestrator and the
                             schedulers, an arrow for each dependency, and for each core the
                             pipes active inside its tasks (open it in Perfetto)
chip_swimlane_records.json   the four stamps of every execution, as in the device's profiler
deps.json                    tasks and the edges between them
name_map.json                kernel names of the function ids in the above

Large runs are sampled: the critical path and an even sample of the rest are kept, and the files say
so. Lines are formatted by hand because these files have hundreds of thousands of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.view import Core
from tilelet.device.report.critical import critical_path
from tilelet.device.report.edge_kinds import KINDS, edge_kinds
from tilelet.device.report.profile import place
from tilelet.device.schedule.simulate import Timeline

MAX_TASKS = 20_000
"""Runs with more tasks are sampled ..."""

KEPT_TASKS = 8_000
"""... to about this many."""

MAX_EDGES = 100_000
MAX_ARROWS = 10_000
TICKS_PER_US = 1000
ORCHESTRATOR, SCHEDULERS, SCHEDULER_VIEW, WORKER_VIEW = 1, 2, 3, 4
"""Process ids of the trace, as chosen by the device's own tools."""

PIPES_VIEW = 5
"""An additional process: pipe activity inside tasks."""

MAX_PIPED = 4_000
"""Limit on records whose pipes are shown; of more, an even sample."""


@dataclass(frozen=True)
class Edge:
    """`consumer` waits for `producer`; kind is "explicit", "creator" or "tensormap"."""

    producer: int
    consumer: int
    kind: str


class TimelineTrace:
    """The part of a timeline that goes into the files."""

    def __init__(self, timeline: Timeline, bounds: Mapping[str, str] | None = None) -> None:
        """`bounds`: what limits each kernel, by name; otherwise what limits each task."""
        self.timeline = timeline
        self.bounds = bounds or {}
        self.tasks = self._kept_tasks()
        kept = np.zeros(timeline.stream.count, np.bool_)
        kept[self.tasks] = True
        self.records: list[int] = np.flatnonzero(kept[timeline.task]).tolist()

    @property
    def thinned(self) -> str:
        """Describe what was left out; empty if nothing was."""
        total = self.timeline.stream.count
        if len(self.tasks) == total:
            return ""
        return (
            f"sampled {len(self.tasks):,} of {total:,} tasks: the end of the critical path and an "
            "even sample"
        )

    def _kept_tasks(self) -> list[int]:
        total = self.timeline.stream.count
        if total <= MAX_TASKS:
            return list(range(total))
        path = [int(self.timeline.task[r]) for r in critical_path(self.timeline).records]
        step = -(-2 * total // KEPT_TASKS)
        return sorted({*path[-KEPT_TASKS // 2 :], *range(0, total, step)})

    @cached_property
    def edges(self) -> list[Edge]:
        """Return the dependencies between shown tasks, at most `MAX_EDGES`."""
        kept = set(self.tasks)
        found: list[tuple[int, int]] = []
        for task in self.tasks:
            producers = self.timeline.graph.producers(task)
            found += [(producer, task) for producer in producers if producer in kept]
            if len(found) >= MAX_EDGES:
                break
        pairs = np.array(found[:MAX_EDGES], np.int64).reshape(-1, 2)
        kinds = edge_kinds(self.timeline.stream, pairs[:, 0], pairs[:, 1])
        numbers: list[int] = kinds.tolist()
        return [Edge(*pair, KINDS[kind]) for pair, kind in zip(found, numbers)]

    # Chrome trace

    def chrome(self) -> str:
        """Return the Chrome trace; times in microseconds."""
        events = [*self._lanes(), *self._cores(), *self._pipes(), *self._runtime()]
        events += self._arrows()
        t = self.timeline
        other = {
            "modelled": True,
            "machine": t.machine.name,
            "tasks": t.stream.count,
            "shown": len(self.tasks),
            "dependencies": len(self.edges),
            "arrows": f"at most {MAX_ARROWS:,}, an even sample of more",
            "thinned": self.thinned,
        }
        body = ",\n".join(events)
        head = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(other)},"traceEvents":[\n'
        return f"{head}{body}\n]}}\n"

    def _lanes(self) -> Iterator[str]:
        t = self.timeline
        processes = {
            ORCHESTRATOR: "Orchestrator (modelled)",
            SCHEDULERS: "Schedulers (modelled)",
            SCHEDULER_VIEW: "Scheduler view: dispatch to finish (modelled)",
            WORKER_VIEW: "Worker view: start to end (modelled)",
            PIPES_VIEW: "Pipes inside tasks (modelled)",
        }
        for pid, name in processes.items():
            yield _meta(pid, 0, "process_name", name)
            order = f'"name":"process_sort_index","args":{{"sort_index":{pid}}}'
            yield f'{{"ph":"M","pid":{pid},"tid":0,{order}}}'
        yield _meta(ORCHESTRATOR, 0, "thread_name", "orchestrator")
        for thread in range(t.runtime.threads):
            yield _meta(SCHEDULERS, thread, "thread_name", f"scheduler {thread}")
        for core in range(t.machine.cores.clusters + t.machine.cores.vectors):
            for pid in (SCHEDULER_VIEW, WORKER_VIEW):
                yield _meta(pid, core, "thread_name", t.core_name(core))
        for lane, (core, pipe) in enumerate(self._pipe_lanes):
            yield _meta(PIPES_VIEW, lane, "thread_name", f"{t.core_name(core)} {pipe}")

    @cached_property
    def _task_facts(self) -> list[str]:
        """Return `args` members of slices by cost number, which many tasks share."""
        stream = self.timeline.stream
        found: list[str] = []
        for cost, number in zip(stream.costs, stream.cost_kernel):
            view = stream.kernels[number]
            facts = {
                "source": place(view.function.loc) if view is not None else "",
                "read": cost.read_bytes,
                "written": cost.written_bytes,
                "bound": self.bounds.get(stream.kernel_names[number], cost.bound),
                "pipes_us": {name: round(us, 3) for name, us in cost.busy_us.items()},
            }
            found.append(json.dumps(facts)[1:-1])
        return found

    @cached_property
    def _piped(self) -> list[int]:
        """Return the records whose pipes are shown."""
        step = -(-len(self.records) // MAX_PIPED) or 1
        return self.records[::step]

    @cached_property
    def _pipe_lanes(self) -> dict[tuple[int, str], int]:
        """Return the lane of each active pipe of each core."""
        t = self.timeline
        used = {
            (int(t.core[record]), name.partition(".")[2])
            for record in self._piped
            for name in self._spans(record)
        }
        return {key: lane for lane, key in enumerate(sorted(used))}

    def _spans(self, record: int) -> dict[str, tuple[float, float]]:
        """Return the pipes of the record's kind of core, with their active spans in its task."""
        t = self.timeline
        kind = "AIC." if t.is_cube(int(t.core[record])) else "AIV."
        spans = t.cost_of(int(t.task[record])).span_us
        return {name: span for name, span in spans.items() if name.startswith(kind)}

    def _pipes(self) -> Iterator[str]:
        """Yield a slice from each pipe's first step to its last, stretched while waiting for GM."""
        t = self.timeline
        for record in self._piped:
            task, core = int(t.task[record]), int(t.core[record])
            start, length = float(t.start[record]), float(t.end[record] - t.start[record])
            cost = t.cost_of(task)
            stretch = length / cost.exec_us if cost.exec_us else 0.0
            for name, (begin, end) in self._spans(record).items():
                lane = self._pipe_lanes[core, name.partition(".")[2]]
                dur = min(end * stretch, length) - begin * stretch
                yield (
                    f'{{"ph":"X","pid":{PIPES_VIEW},"tid":{lane},'
                    f'"name":{json.dumps(t.kernel_names[t.stream.kernel[task]])},'
                    f'"ts":{start + begin * stretch:.3f},"dur":{max(dur, 0.0):.3f},'
                    f'"args":{{"task":{task},"busy_us":{cost.busy_us[name]:.3f}}}}}'
                )

    def _cores(self) -> Iterator[str]:
        t = self.timeline
        names = [json.dumps(n or "join") for n in t.kernel_names]
        costs = t.stream.first_cost[t.task]
        columns = (t.task, t.core, t.dispatch, t.start, t.end, t.finish, t.kernel, costs)
        chosen = [c[self.records].tolist() for c in columns]
        for task, core, dispatch, start, end, finish, kernel, cost in zip(*chosen):
            name = names[int(kernel)]
            args = f'"args":{{"task":{task},{self._task_facts[cost]}}}'
            yield (
                f'{{"ph":"X","pid":{WORKER_VIEW},"tid":{core},"name":{name},'
                f'"ts":{start:.3f},"dur":{end - start:.3f},{args}}}'
            )
            yield (
                f'{{"ph":"X","pid":{SCHEDULER_VIEW},"tid":{core},"name":{name},'
                f'"ts":{dispatch:.3f},"dur":{finish - dispatch:.3f},{args}}}'
            )

    def _runtime(self) -> Iterator[str]:
        """Yield submissions, and the schedulers' dispatches and completions."""
        t, run = self.timeline, self.timeline.runtime
        for task, at in zip(self.tasks, t.submitted[self.tasks].tolist()):
            begin = max(0.0, at - run.submit_us)
            yield (
                f'{{"ph":"X","pid":{ORCHESTRATOR},"tid":0,"name":"submit",'
                f'"ts":{begin:.3f},"dur":{at - begin:.3f},"args":{{"task":{task}}}}}'
            )
        threads = [t.thread_of(core) for core in range(int(t.core.max(initial=0)) + 1)]
        columns = [c[self.records].tolist() for c in (t.task, t.core, t.dispatch, t.finish)]
        for task, core, dispatch, finish in zip(*columns):
            lane = f'"pid":{SCHEDULERS},"tid":{threads[core]}'
            args = f'"args":{{"task":{task}}}'
            yield (
                f'{{"ph":"X",{lane},"name":"dispatch","ts":{dispatch - run.dispatch_us:.3f},'
                f'"dur":{run.dispatch_us:.3f},{args}}}'
            )
            yield (
                f'{{"ph":"X",{lane},"name":"complete","ts":{finish:.3f},'
                f'"dur":{run.complete_us:.3f},{args}}}'
            )

    def _arrows(self) -> Iterator[str]:
        """Yield arrows from producers to consumers in the worker view.

        If there are too many, an even sample.
        """
        t = self.timeline
        first: dict[int, tuple[float, int]] = {}
        last: dict[int, tuple[float, int]] = {}
        columns = [c[self.records].tolist() for c in (t.task, t.core, t.start, t.end)]
        for task, core, start, end in zip(*columns):
            first[task] = min(first.get(task, (start, core)), (start, core))
            last[task] = max(last.get(task, (end, core)), (end, core))
        shown = [e for e in self.edges if e.producer in last and e.consumer in first]
        step = -(-len(shown) // MAX_ARROWS) or 1
        for number, edge in enumerate(shown[::step]):
            common = f'"id":{number},"pid":{WORKER_VIEW},"name":"{edge.kind}","cat":"dependency"'
            at, core = last[edge.producer]
            yield f'{{"ph":"s",{common},"tid":{core},"ts":{at:.3f}}}'
            at, core = first[edge.consumer]
            yield f'{{"ph":"f","bp":"e",{common},"tid":{core},"ts":{at:.3f}}}'

    # Profiler records

    def swimlane(self) -> str:
        """Return `chip_swimlane_records.json`, level 2 and the phases of the runtime."""
        t = self.timeline
        cores = t.machine.cores
        kinds = ["aic"] * cores.clusters + ["aiv"] * cores.vectors
        document = {
            "chip_swimlane_level": 4,
            "modelled": True,
            "thinned": self.thinned,
            "metadata": {
                "clock_freq_hz": TICKS_PER_US * 1_000_000,
                "num_cores": len(kinds),
                "core_types": kinds,
                "core_to_thread": [t.thread_of(c) for c in range(len(kinds))],
            },
        }
        parts = [json.dumps(document)[:-1]]
        groups = {
            "aicore_tasks": self._aicore(),
            "aicpu_tasks": self._aicpu(),
            "aicpu_orchestrator_phases": self._submissions(),
        }
        for name, rows in groups.items():
            parts.append(f',\n"{name}":[\n' + ",\n".join(rows) + "\n]")
        threads = ",\n".join(self._phases())
        parts.append(f',\n"aicpu_scheduler_phases":[\n{threads}\n]')
        return "".join(parts) + "}\n"

    @cached_property
    def _sequence(self) -> list[int]:
        """Return each record's number among those of its core."""
        seen: dict[int, int] = {}
        numbers: list[int] = []
        for core in self.timeline.core[self.records].tolist():
            numbers.append(seen.get(core, 0))
            seen[core] = numbers[-1] + 1
        return numbers

    def _aicore(self) -> Iterator[str]:
        t = self.timeline
        columns = [c[self.records].tolist() for c in (t.core, t.task, t.start, t.end)]
        for (core, task, start, end), sequence in zip(zip(*columns), self._sequence):
            yield (
                f'{{"core_id":{core},"task_token_raw":{task},"reg_task_id":{sequence},'
                f'"start_cycles":{_ticks(start)},"end_cycles":{_ticks(end)}}}'
            )

    def _aicpu(self) -> Iterator[str]:
        t = self.timeline
        columns = [c[self.records].tolist() for c in (t.core, t.dispatch, t.finish)]
        for (core, dispatch, finish), sequence in zip(zip(*columns), self._sequence):
            yield (
                f'{{"core_id":{core},"reg_task_id":{sequence},'
                f'"dispatch_cycles":{_ticks(dispatch)},"finish_cycles":{_ticks(finish)}}}'
            )

    def _submissions(self) -> Iterator[str]:
        run = self.timeline.runtime
        at = self.timeline.submitted[self.tasks].tolist()
        for number, (task, end) in enumerate(zip(self.tasks, at)):
            begin = max(0.0, end - run.submit_us)
            yield (
                f'{{"submit_idx":{number},"task_id":{task},'
                f'"start":{_ticks(begin)},"end":{_ticks(end)}}}'
            )

    def _phases(self) -> Iterator[str]:
        """Yield the work of each scheduler thread in order of time."""
        t, run = self.timeline, self.timeline.runtime
        rows: list[list[tuple[float, str, float]]] = [[] for _ in range(run.threads)]
        columns = [c[self.records].tolist() for c in (t.core, t.dispatch, t.finish)]
        for core, dispatch, finish in zip(*columns):
            mine = rows[t.thread_of(core)]
            mine.append((dispatch - run.dispatch_us, "dispatch", run.dispatch_us))
            mine.append((finish, "complete", run.complete_us))
        for thread in rows:
            lines = (
                f'{{"kind":"{kind}","start_cycles":{_ticks(begin)},'
                f'"end_cycles":{_ticks(begin + length)},"loop_iter":{number},"tasks_processed":1,'
                f'"pop_hit":{int(kind == "dispatch")},"pop_miss":0}}'
                for number, (begin, kind, length) in enumerate(sorted(thread))
            )
            yield "[" + ",\n".join(lines) + "]"

    # Dependencies

    def deps(self) -> str:
        """Return `deps.json`: tasks with their kernels on [AIC, AIV0, AIV1], and edges."""
        rows = ",\n".join(self._task_rows())
        edges = ",\n".join(
            f'{{"from":{e.producer},"to":{e.consumer},"kind":"{e.kind}"}}' for e in self.edges
        )
        cut = len(self.edges) >= MAX_EDGES
        note = self.thinned or (f"cut at {MAX_EDGES:,} edges" if cut else "")
        head = f'{{"modelled":true,"thinned":{json.dumps(note)},'
        return f'{head}"tasks":[\n{rows}\n],\n"edges":[\n{edges}\n]}}\n'

    def _task_rows(self) -> Iterator[str]:
        stream = self.timeline.stream
        ids = self.function_ids()
        for task in self.tasks:
            number = int(stream.kernel[task])
            yield (
                f'{{"task_id":{task},"kernel_ids":{ids[number]},'
                f'"block_num":{int(stream.blocks[task])},"early_dispatch":false}}'
            )

    def function_ids(self) -> list[list[int]]:
        """Return function ids of each kernel on [AIC, AIV0, AIV1], -1 where it does not run.

        Mixed kernels have two ids, as in the per-function table.
        """
        found: list[list[int]] = []
        following = 0
        for kernel in self.timeline.stream.kernels:
            slots = [-1, -1, -1]
            if kernel is not None and Core.AIC in kernel.cores:
                slots[0] = following
                following += 1
            if kernel is not None and Core.AIV in kernel.cores:
                slots[1] = following
                slots[2] = following if kernel.lanes > 1 else -1
                following += 1
            found.append(slots)
        return found

    def name_map(self) -> str:
        """Return function ids and names."""
        names: dict[str, str] = {}
        for slots, name in zip(self.function_ids(), self.timeline.kernel_names):
            mixed = slots[0] >= 0 and slots[1] >= 0
            if slots[0] >= 0:
                names[str(slots[0])] = f"{name}_aic" if mixed else name
            if slots[1] >= 0:
                names[str(slots[1])] = f"{name}_aiv" if mixed else name
        return json.dumps(names, indent=1) + "\n"

    def files(self) -> dict[str, str]:
        """Return every file's text by its name."""
        return {
            "merged_swimlane.json": self.chrome(),
            "chip_swimlane_records.json": self.swimlane(),
            "deps.json": self.deps(),
            "name_map.json": self.name_map(),
        }


def _ticks(us: float) -> int:
    return round(us * TICKS_PER_US)


def _meta(pid: int, tid: int, kind: str, name: str) -> str:
    return (
        f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{kind}","args":{{"name":{json.dumps(name)}}}}}'
    )
