"""Simulate a recorded run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.pipes import KernelCost
from tilelet.device.machine.description import Machine, Runtime
from tilelet.device.schedule import native
from tilelet.device.schedule.arrays import Stream, build_stream
from tilelet.device.schedule.callsites import CallSites
from tilelet.device.schedule.events import Config, SimResult, Work, run_events
from tilelet.device.schedule.graph import Graph, build_graph
from tilelet.device.schedule.l2_cells import Cells, build_cells
from tilelet.device.schedule.library import library
from tilelet.device.schedule.pricing import CostCache
from tilelet.device.schedule.repricing import followed_again, followed_roughly
from tilelet.device.schedule.windows import with_windows
from tilelet.diag.catalogue.device import HeapDeadlock, NoTasks, WindowDeadlock
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Program
from tilelet.tasks.stream import TaskStream

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """What the modelled device did; times in microseconds from the orchestrator's start.

    A record is one block of a task on one core: `task`, `core`, and the four stamps `dispatch`,
    `start`, `end`, `finish`, in dispatch order. A mixed block has one record per core, an spmd task
    one per block.

    By task: `submitted`, `ready`, `finished`; `released_by` is the task whose completion made it
    ready (-1: it was ready when submitted); `hbm_read` and `hbm_written` are bytes that missed L2.
    """

    machine: Machine
    runtime: Runtime
    recording: bool
    stream: Stream
    graph: Graph
    cells: Cells
    task: Ints
    core: Ints
    dispatch: Floats
    start: Floats
    end: Floats
    finish: Floats
    submitted: Floats
    ready: Floats
    finished: Floats
    released_by: Ints
    hbm_read: Floats
    hbm_written: Floats
    thread_busy_us: Floats
    orchestrator_end: float
    window_stall_us: float
    heap_stall_us: float
    read_stall_us: float
    last_activity: float

    # Totals

    @property
    def total_us(self) -> float:
        """`Total Test Time`: from the earliest dispatch to the latest finish."""
        return float(self.finish.max() - self.dispatch.min()) if len(self.task) else 0.0

    @property
    def effective_us(self) -> float:
        """From the orchestrator's start to the last activity of it or of a scheduler."""
        return max(self.orchestrator_end, self.last_activity)

    @property
    def average_latency_us(self) -> float:
        return float((self.finish - self.dispatch).mean()) if len(self.task) else 0.0

    @property
    def average_exec_us(self) -> float:
        return float((self.end - self.start).mean()) if len(self.task) else 0.0

    # Names and locations

    @property
    def kernel_names(self) -> list[str]:
        return self.stream.kernel_names

    @cached_property
    def kernel(self) -> Ints:
        """Index of each record's kernel in `kernel_names`."""
        return self.stream.kernel[self.task]

    def cost_of(self, task: int) -> KernelCost:
        """Return the cost of a task's first block."""
        return self.stream.costs[int(self.stream.first_cost[task])]

    def core_name(self, core: int) -> str:
        """Format as `AIC 3`, `AIV 17`."""
        clusters = self.machine.cores.clusters
        return f"AIC {core}" if core < clusters else f"AIV {core - clusters}"

    def is_cube(self, core: int) -> bool:
        return core < self.machine.cores.clusters

    def thread_of(self, core: int) -> int:
        """Return the scheduler thread that owns a core."""
        cores = self.machine.cores
        cluster = core if core < cores.clusters else (core - cores.clusters)
        if core >= cores.clusters:
            cluster //= cores.vectors_per_cluster
        return cluster % self.runtime.threads

    def utilization(self) -> dict[str, float]:
        """Return the share of the total time in which the cores of each kind execute."""
        cores, total = self.machine.cores, self.total_us
        spent = self.end - self.start
        cube = self.core < cores.clusters
        if not total:
            return {"AIC": 0.0, "AIV": 0.0}
        return {
            "AIC": float(spent[cube].sum()) / (total * cores.clusters),
            "AIV": float(spent[~cube].sum()) / (total * cores.vectors),
        }

    def bound_of(self, kernel: int) -> str:
        """Return what limits a kernel (by number) in this run.

        "dispatch" if its blocks spend less time executing than being dispatched and retired, "GM"
        if sharing global memory or missing L2 made them a quarter longer, else `KernelCost.bound`.
        """
        mine = np.flatnonzero(self.kernel == kernel)
        if not len(mine):
            return "latency"
        spent = float((self.end[mine] - self.start[mine]).sum())
        latency = float((self.finish[mine] - self.dispatch[mine]).sum())
        costs = [self.cost_of(int(t)) for t in self.task[mine[:1]]]
        each = self.stream.total(np.array([c.exec_us for c in self.stream.costs]))
        alone = float((each / self.stream.blocks)[self.task[mine]].sum())
        if 2 * spent < latency:
            return "dispatch"
        return "GM" if spent > 1.25 * alone else costs[0].bound

    @cached_property
    def bound(self) -> str:
        """Return what bounds the whole run: "memory", "cores" or "waiting".

        Memory, if its traffic alone would take half of the time; cores, if those of one kind are
        busy for half of it; otherwise it waits for its own tasks or for the runtime.
        """
        traffic = float(self.hbm_read.sum() + self.hbm_written.sum())
        if 2 * traffic > self.total_us * self.machine.hbm_bytes_per_us:
            return "memory"
        return "cores" if max(self.utilization().values()) > 0.5 else "waiting"

    def critical_path(self) -> list[int]:
        """Return tasks from the first to the last finished, each made ready by the one before.

        A task that was ready at once, or that waited for a core, starts the path, because it then
        waited for the machine and not for a task.
        """
        if not len(self.finished):
            return []
        task = int(np.argmax(self.finished))
        path = [task]
        while self.released_by[task] >= 0:
            task = int(self.released_by[task])
            path.append(task)
        return path[::-1]


def simulate(
    tasks: TaskStream,
    program: Program,
    machine: Machine,
    *,
    period: str | None = None,
    recording: bool = True,
    cache: CostCache | None = None,
    reference: bool = False,
    graph: Graph | None = None,
) -> Timeline:
    """Simulate the recorded tasks of `program` (after all passes) on a machine.

    Data-dependent trip counts come from the record if the tasks were executed or replayed
    (`interp.replay`); otherwise the report lists an assumption.

    period     runtime of that month; by default the machine's own
    recording  include the cost of recording a profile, unlike plain runs
    cache      costs of kernels, kept from one call to the next
    reference  use the Python event loop, which is slow and defines the result
    graph      dependencies, if not those of the runtime's rules
    """
    runtime = machine.period(period)
    if tasks.total == 0:
        raise NoTasks(program.name, program.main.loc)
    if cache is None or cache.machine is not machine:
        cache = CostCache(machine, runtime, reference=reference)
    stream = with_windows(build_stream(tasks, program, runtime, cache), runtime.windows)
    lib = None if reference else library()
    if graph is None:
        graph = native.build_graph_native(lib, stream) if lib else build_graph(stream)
    what = (stream.parts, stream.regions, machine.gm.l2_line, stream.count)
    cells = native.build_cells_native(lib, *what) if lib else build_cells(*what)
    played = _play(machine, runtime, recording, stream, graph, cells, reference)
    if isinstance(played, SimResult):
        _explain(played, stream, program, runtime)
    assert isinstance(played, Timeline)
    return played


def replay(line: Timeline, machine: Machine) -> Timeline:
    """Simulate the same tasks on a machine that differs only in costs, for what-if analysis.

    Tasks, dependencies and accesses stay; kernels are simulated again if one of their costs has
    changed. A machine with other cores or memories needs `simulate`.
    """
    return _replay_stream(line, machine, followed_again(line.stream, line.machine, machine))


def replay_roughly(line: Timeline, machines: Sequence[Machine]) -> Iterator[Timeline]:
    """Simulate the same tasks on several machines, simulating only each kernel's longest path.

    The other paths change by the same factor.
    """
    for machine, stream in zip(machines, followed_roughly(line.stream, line.machine, machines)):
        yield _replay_stream(line, machine, stream)


def _replay_stream(line: Timeline, machine: Machine, stream: Stream) -> Timeline:
    old = line.machine
    name = next(name for name, runtime in old.runtime.items() if runtime is line.runtime)
    played = _play(
        machine, machine.runtime[name], line.recording, stream, line.graph, line.cells, False
    )
    return played if isinstance(played, Timeline) else line


def _play(
    machine: Machine,
    runtime: Runtime,
    recording: bool,
    stream: Stream,
    graph: Graph,
    cells: Cells,
    reference: bool,
) -> Timeline | SimResult:
    """Run the event loop; return its partial result if it cannot go on."""
    lib = None if reference else library()
    config = _config(machine, runtime, recording)
    work = _work(stream, graph, cells, machine.us(machine.granule_cycles))
    outcome = native.run_events_native(lib, config, work) if lib else run_events(config, work)
    if outcome.error:
        return outcome
    return Timeline(
        machine=machine,
        runtime=runtime,
        recording=recording,
        stream=stream,
        graph=graph,
        cells=cells,
        task=outcome.rec_task,
        core=outcome.rec_core,
        dispatch=outcome.rec_dispatch,
        start=outcome.rec_start,
        end=outcome.rec_end,
        finish=outcome.rec_finish,
        submitted=outcome.submitted,
        ready=outcome.ready,
        finished=outcome.finished,
        released_by=outcome.released_by,
        hbm_read=outcome.hbm_read,
        hbm_written=outcome.hbm_written,
        thread_busy_us=outcome.thread_busy,
        orchestrator_end=outcome.orchestrator_end,
        window_stall_us=outcome.window_stall,
        heap_stall_us=outcome.heap_stall,
        read_stall_us=outcome.read_stall,
        last_activity=outcome.last,
    )


def _config(machine: Machine, runtime: Runtime, recording: bool) -> Config:
    record = runtime.record_us if recording else 0.0
    return Config(
        clusters=machine.cores.clusters,
        vectors=machine.cores.vectors_per_cluster,
        threads=runtime.threads,
        slots=runtime.slots,
        window=runtime.task_window,
        heap=runtime.heap_bytes,
        submit=runtime.submit_us,
        submit_arg=runtime.submit_arg_us,
        node=runtime.node_us if runtime.graphs == "whole" else runtime.submit_us,
        dispatch=runtime.dispatch_us,
        # Detecting the end of a block requires reading its core's register.
        complete=runtime.complete_us + runtime.poll_us,
        head=runtime.head_us + record,
        tail=runtime.tail_us + record,
        poll=runtime.poll_us,
        resolve=runtime.resolve_us,
        stagger=runtime.stagger_us,
        first=runtime.first_us,
        hbm=machine.hbm_bytes_per_us,
        l2_rate=machine.gm.l2_gbs * 1000.0,
        l2_bytes=float(machine.gm.l2_bytes),
    )


def _work(stream: Stream, graph: Graph, cells: Cells, granule_us: float) -> Work:
    succ_ptr, succ = graph.successors()
    costs = stream.costs
    moved = [c.read_bytes + c.written_bytes + 2 * c.exchanged for c in costs]
    return Work(
        pred_count=np.diff(graph.ptr),
        succ_ptr=succ_ptr,
        succ=succ,
        shape=stream.shape,
        lanes=stream.lanes,
        blocks=stream.blocks,
        cost_ptr=stream.cost_ptr,
        cost=stream.cost,
        args=np.diff(stream.arg_ptr),
        held_until=stream.held_until,
        in_graph=stream.in_graph,
        heap=stream.heap,
        freed=stream.freed,
        await_ptr=stream.await_ptr,
        awaits=stream.awaits,
        hot=np.array([c.exec_us for c in costs]),
        cold=np.array([c.cold_us for c in costs]),
        store=np.array([c.store_us for c in costs]),
        moved=np.array([float(m) for m in moved]),
        served=np.array([c.l2_granules * granule_us for c in costs]),
        kernel=stream.kernel,
        kernels=max(1, len(stream.kernels)),
        read=stream.total(np.array([float(c.read_bytes) for c in costs])),
        written=stream.total(np.array([float(c.written_bytes) for c in costs])),
        all_moved=stream.total(np.array([float(m) for m in moved])),
        cell_ptr=cells.ptr,
        cell_base=cells.base,
        cell_rows=cells.rows,
        cell_columns=cells.columns,
        cell_share=cells.share,
        cell_buffer=cells.buffer,
        cell_part=cells.part,
        buffer_pitch=cells.pitch,
        buffer_size=cells.size,
        buffer_heap=stream.regions.fresh.astype(np.int64),
        part_writes=cells.writes,
        part_asked=cells.asked,
        cells=cells.total,
    )


def _explain(outcome: SimResult, stream: Stream, program: Program, runtime: Runtime) -> None:
    task = stream.tasks[min(outcome.stuck, stream.count - 1)]
    scope = CallSites(program, runtime.rule).scope_loc(task)
    if outcome.error == 1:
        held = int(stream.held_until[outcome.stuck]) - outcome.stuck + 1
        live = max(held, runtime.task_window + 1)
        raise WindowDeadlock(live, runtime.task_window, scope or task.loc)
    if outcome.error == 2:
        fresh = [w for w, _ in task.windows if w.buffer.origin == "temp"]
        name = max(fresh, key=lambda w: w.buffer.nbytes).name if fresh else task.kernel
        size = int(stream.heap[outcome.stuck])
        raise HeapDeadlock(name, size, runtime.heap_bytes, task.loc, scope)
    raise InternalError(
        "the modelled device waits for a task that never comes", function=task.kernel
    )
