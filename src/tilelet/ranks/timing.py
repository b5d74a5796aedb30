"""Modelled time of several ranks: one run, its transfers priced by the links of a machine.

A run is executed once and traced (trace.py). The tasks of each dispatch are simulated on one chip,
where communication takes no time; that gives their durations, dependencies and earliest starts.
Then the traced tasks are simulated together: a task starts when the tasks before it are done and a
core is free, not earlier than on one chip; it computes, then communicates. Transfers of a link
follow each other in the order in which they start.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.device.machine.description import Machine
from tilelet.device.schedule.graph import Graph
from tilelet.device.schedule.simulate import Timeline, simulate
from tilelet.diag.catalogue.ranks import NoLinks
from tilelet.diag.core import Loc
from tilelet.ir.core import Op, Program
from tilelet.ranks.host import Plan
from tilelet.ranks.memory import SymmetricBuffer
from tilelet.ranks.rank import RankTask, Strand
from tilelet.ranks.record import record_streams
from tilelet.ranks.scheduler import World
from tilelet.ranks.trace import AWAITED, RunTrace
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.native import NativeKernels

_WRITES = ("write", "push", "add")


@dataclass(frozen=True)
class BlockSpan:
    """One block of a task that ran on a rank; times in microseconds."""

    rank: int
    kernel: str
    block: int
    start: float
    end: float


@dataclass(frozen=True)
class Message:
    """A transfer, or (`nbytes` is 4) a signal, from one rank to another."""

    source: int
    target: int
    nbytes: int
    start: float
    end: float
    loc: Loc


@dataclass(frozen=True)
class Waiting:
    """The time that a rank spent in a wait; `source` is the rank whose signal ended it."""

    rank: int
    kernel: str
    source: int
    start: float
    end: float
    loc: Loc


@dataclass
class RanksTimeline:
    """Timeline of all ranks of a machine.

    tasks    tasks of each kernel, on all ranks together
    chip_us  time of each rank's tasks if communication took none
    """

    name: str
    machine: str
    world: int
    tasks: Counter[str] = field(default_factory=Counter[str])
    chip_us: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    spans: list[BlockSpan] = field(default_factory=list[BlockSpan])
    messages: list[Message] = field(default_factory=list[Message])
    waits: list[Waiting] = field(default_factory=list[Waiting])
    begins: dict[int, float] = field(default_factory=dict[int, float])
    ends: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def total_us(self) -> float:
        return max(self.ends.values(), default=0.0) - min(self.begins.values(), default=0.0)

    def waited_us(self, rank: int) -> float:
        """The time during which some block of a rank waits."""
        total, end = 0.0, float("-inf")
        for wait in sorted((w for w in self.waits if w.rank == rank), key=lambda w: w.start):
            total += max(0.0, wait.end - max(wait.start, end))
            end = max(end, wait.end)
        return total


def model_ranks(
    name: str,
    program: Program,
    plan: Plan,
    machines: Sequence[Machine],
    native: NativeKernels | None = None,
) -> list[RanksTimeline]:
    """Run a plan once, and give its time on each machine."""
    for machine in machines:
        if machine.links is None:
            raise NoLinks(machine.name)
    trace = RunTrace()
    smallest = min((m.cores for m in machines), key=lambda cores: cores.clusters)
    cores = smallest.clusters, smallest.vectors
    world = World(program, plan, watcher=trace, native=native, cores=cores)
    world.run()
    streams = record_streams(program, plan, world.control_reads).streams
    found: list[RanksTimeline] = []
    for machine in machines:
        chips = [None if s is None else Chip.of(simulate(s, program, machine)) for s in streams]
        timeline = RanksTimeline(name, machine.name, plan.world, tasks=world.counts)
        for dispatch, chip in zip(plan.dispatches, chips):
            if chip is not None:
                timeline.chip_us[dispatch.rank] += chip.end
        found.append(RanksSimulation(timeline, machine, plan, chips, trace.events).run())
    return found


@dataclass(frozen=True)
class Chip:
    """The tasks of a dispatch on one chip: earliest start, duration of a block, producers."""

    started: Sequence[float]
    taken: Sequence[float]
    graph: Graph
    end: float

    @classmethod
    def of(cls, line: Timeline) -> Chip:
        count = len(line.submitted)
        records = np.maximum(np.bincount(line.task, minlength=count), 1)
        total = np.bincount(line.task, line.finish - line.dispatch, minlength=count)
        taken = [float(t) for t in total / records]
        started = np.full(count, np.inf)
        np.minimum.at(started, line.task, line.dispatch)
        started = np.where(np.isinf(started), line.submitted, started)  # joins have no record
        return cls([float(t) for t in started], taken, line.graph, float(line.last_activity))


@dataclass(eq=False)
class _Lane:
    """A strand: what it does after its computation, in order."""

    strand: Strand
    node: _Node
    steps: deque[tuple[str, Window, Op, int]] = field(
        default_factory=deque[tuple[str, Window, Op, int]]
    )
    start: float = 0.0
    end: float = 0.0
    waits_since: float = 0.0
    holds: tuple[int, ...] = (0, 0)


@dataclass(eq=False)
class _Node:
    """A task, the control program of a dispatch, or a point where one waits for tasks.

    missing  nodes that must be done first
    open     lanes, tasks of a dispatch and signals of `defer_wait` that are not over
    """

    task: RankTask | None
    taken: float = 0.0
    earliest: float = 0.0
    parent: _Node | None = None
    lanes: list[_Lane] = field(default_factory=list[_Lane])
    missing: int = 0
    open: int = 0
    followers: list[_Node] = field(default_factory=list["_Node"])
    deferred: list[tuple[tuple[int, int], int]] = field(
        default_factory=list[tuple[tuple[int, int], int]]
    )
    ready: float = 0.0
    start: float = 0.0
    is_done: bool = False

    def after(self, other: _Node) -> None:
        other.followers.append(self)
        self.missing += 1


class RanksSimulation:
    """Replays a trace in the order of time."""

    def __init__(
        self,
        timeline: RanksTimeline,
        machine: Machine,
        plan: Plan,
        chips: Sequence[Chip | None],
        events: Sequence[tuple[object, ...]],
    ) -> None:
        assert machine.links is not None
        self._timeline, self._links, self._plan, self._chips = timeline, machine.links, plan, chips
        cores = machine.cores
        self._capacity = (cores.clusters, cores.vectors)
        self._free = {rank: list(self._capacity) for rank in range(-1, plan.world)}
        self._queue: dict[int, deque[_Lane]] = {r: deque() for r in range(-1, plan.world)}
        self._nodes: dict[RankTask, _Node] = {}
        self._lanes: dict[Strand, _Lane] = {}
        self._dispatches: dict[int, _Node] = {}
        self._tasks: dict[int, dict[int, _Node]] = defaultdict(dict)  # by dispatch and position
        self._first: dict[int, int] = {}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._now = 0.0
        self._link_free: dict[tuple[int, int], float] = {}
        self._signals: dict[tuple[int, int], list[tuple[float, int, str, int]]] = defaultdict(list)
        self._blocked: dict[tuple[int, int], list[_Lane]] = defaultdict(list)
        self._promised: dict[tuple[int, int], list[tuple[int, _Node]]] = defaultdict(list)
        self._build(events)

    # The traced run as a graph

    def _build(self, events: Sequence[tuple[object, ...]]) -> None:
        self._ended: dict[int, list[_Node]] = defaultdict(list)
        self._points: dict[int, _Node] = {}
        self._last: dict[int, _Node] = {}
        self._counted: Counter[tuple[int, int]] = Counter()
        for kind, *rest in events:
            getattr(self, f"_add_{kind}")(*rest)

    def _add_begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        node = self._nodes.get(strand.task) or self._add(strand.task, earlier)
        lane = self._lanes[strand] = _Lane(strand, node)
        node.lanes.append(lane)
        node.open += 1

    def _add(self, task: RankTask, earlier: Sequence[RankTask]) -> _Node:
        node = self._nodes[task] = _Node(task)
        if task.kind is None:
            self._dispatches[task.dispatch] = node
            for other in earlier:
                if other in self._nodes:
                    node.after(self._nodes[other])
            if task.rank in self._last:
                node.after(self._last[task.rank])
            else:
                node.ready = self._skew(task.rank)
            self._last[task.rank] = node
            return node
        chip = self._chips[task.dispatch]
        assert chip is not None
        at = task.index - self._first.setdefault(task.dispatch, task.index)
        node.parent = self._dispatches[task.dispatch]
        node.parent.open += 1
        node.taken, node.earliest = chip.taken[at], chip.started[at]
        node.missing += 1  # for the start of its dispatch
        node.parent.followers.append(node)
        known = self._tasks[task.dispatch]
        for producer in chip.graph.producers(at):
            if producer in known:
                node.after(known[producer])
        known[at] = node
        clock: dict[int, int] = task.clock or {}
        point = self._points.get(clock.get(AWAITED, 0))
        if point is not None:
            node.after(point)
        return node

    def _add_access(self, strand: Strand, how: str, window: Window, op: Op, value: int) -> None:
        self._lanes[strand].steps.append((how, window, op, value))
        if how in ("notify", "set"):
            self._counted[_key(window)] += 1

    def _add_awaited(self, strand: Strand, number: int) -> None:
        point = self._points[number] = _Node(None)
        point.missing, point.parent = 1, self._dispatches[strand.task.dispatch]
        point.parent.followers.append(point)
        for node in self._ended[strand.task.dispatch]:
            point.after(node)
        self._ended[strand.task.dispatch] = [point]

    def _add_complete(self, task: RankTask, cell: Window) -> None:
        node = self._nodes[task]
        node.deferred.append((_key(cell), self._counted[_key(cell)]))
        node.open += 1

    def _add_end(self, task: RankTask, parent: RankTask | None) -> None:
        node = self._nodes.get(task) or self._add(task, task.edges)
        if parent is not None:
            self._ended[task.dispatch].append(node)

    # Replay

    def run(self) -> RanksTimeline:
        for node in self._nodes.values():
            if node.task is not None and node.task.kind is None and not node.missing:
                self._at(node.ready, self._begin, node)
        while self._heap or self._overcommit():
            time, _, step = heapq.heappop(self._heap)
            step(time)
        return self._timeline

    def _at(self, time: float, step: Callable[[float, Any], None], what: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time, self._count, lambda now: step(now, what)))

    def _overcommit(self) -> bool:
        """Start a task without a core if waiting tasks hold all: the traced run had more."""
        queue = next((q for q in self._queue.values() if q), None)
        if queue is None:
            return False
        self._run_lane(self._now, queue.popleft())
        return True

    def _skew(self, rank: int) -> float:
        return self._links.start_skew_us * max(rank, 0) / max(1, self._plan.world - 1)

    def _begin(self, now: float, node: _Node) -> None:
        """Begin a node that is submitted and whose predecessors are done."""
        self._now = node.start = now
        task = node.task
        if task is not None and task.kind is None:
            self._timeline.begins.setdefault(task.rank, now)
            for follower in node.followers:
                if follower.parent is node:
                    self._release(follower, now + follower.earliest)
        if not node.open:
            self._finish(now, node)
        for key, count in node.deferred:
            self._promised[key].append((count, node))
            self._check_promises(now, key)
        for lane in node.lanes:
            if task is None or task.kind is None:
                self._run_lane(now, lane)
            else:
                blocks = 1 if len(node.lanes) > 1 else task.blocks or 1
                pairs = zip(task.cores, self._capacity)
                lane.holds = tuple([min(need * blocks, most) for need, most in pairs])
                self._queue[lane.strand.rank].append(lane)
        if task is not None:
            self._start_queued(now, task.rank)

    def _start_queued(self, now: float, rank: int) -> None:
        queue, free = self._queue[rank], self._free[rank]
        for lane in list(queue):
            if all(n <= f for n, f in zip(lane.holds, free)):
                queue.remove(lane)
                self._free[rank] = free = [f - n for n, f in zip(lane.holds, free)]
                self._run_lane(now, lane)

    def _run_lane(self, now: float, lane: _Lane) -> None:
        lane.start = now
        self._at(now + lane.node.taken, self._step, lane)

    def _release(self, node: _Node, now: float) -> None:
        """Note that a predecessor of `node` is done, or that its dispatch begins."""
        node.missing -= 1
        node.ready = max(node.ready, now)
        if not node.missing:
            self._at(node.ready, self._begin, node)

    def _finish(self, now: float, node: _Node) -> None:
        node.is_done = True
        for follower in node.followers:
            if follower.parent is not node:
                self._release(follower, now)
        task = node.task
        if task is None:
            return
        if task.kind is None and task.rank >= 0:
            self._timeline.ends[task.rank] = now
        if task.kernel or (task.kind is None and not self._plan.dispatches[task.dispatch].function):
            self._timeline.spans += [
                BlockSpan(
                    lane.strand.rank, lane.strand.name, lane.strand.block, lane.start, lane.end
                )
                for lane in node.lanes
            ]
        if node.parent is not None:
            self._close(now, node.parent)

    def _close(self, now: float, node: _Node) -> None:
        """Note the end of a lane, task or signal of a node."""
        node.open -= 1
        if not node.open and not node.is_done:
            self._finish(now, node)

    def _step(self, now: float, lane: _Lane) -> None:
        """Process the next statement of a communicating strand."""
        self._now = now
        if not lane.steps:
            lane.end = now
            rank = lane.strand.rank
            self._free[rank] = [f + n for f, n in zip(self._free[rank], lane.holds)]
            self._close(now, lane.node)
            self._start_queued(now, rank)
            return
        how, window, op, value = lane.steps[0]
        buffer = window.buffer
        assert isinstance(buffer, SymmetricBuffer)
        own, other = lane.strand.rank, buffer.rank
        if how in ("wait", "match"):
            lane.waits_since = now
            self._blocked[_key(window)].append(lane)
            self._check_waits(_key(window))
            return
        lane.steps.popleft()
        end = now
        if how in ("notify", "set"):
            arrives = now + (self._links.signal_us if other != own else 0.0)
            self._signals[_key(window)].append((arrives, value, how, own))
            self._check_waits(_key(window))
            self._check_promises(now, _key(window))
            if other != own:
                self._timeline.messages.append(Message(own, other, 4, now, arrives, op.loc))
        elif other != own:
            nbytes = window.dtype.itemsize * math.prod(window.held)
            source, target = (own, other) if how in _WRITES else (other, own)
            end = self._transfer(source, target, nbytes, now)
            self._timeline.messages.append(Message(source, target, nbytes, now, end, op.loc))
        self._at(end, self._step, lane)

    # Links and signals

    def _transfer(self, source: int, target: int, nbytes: int, start: float) -> float:
        """Return the end of a transfer: one core moves it; a link serves one transfer at a time."""
        links = self._links
        end = start + links.start_us + nbytes / (links.core_gbs * 1e3)
        for key, rate in (((source, target), links.link_gbs), ((source, -1), links.rank_gbs)):
            busy = max(start, self._link_free.get(key, 0.0)) + nbytes / (rate * 1e3)
            self._link_free[key] = busy
            end = max(end, busy)
        return end

    def _check_waits(self, key: tuple[int, int]) -> None:
        """Continue waits of a cell for which enough signals are on their way."""
        for lane in list(self._blocked[key]):
            how, _, op, expected = lane.steps[0]
            found = self._satisfied(key, how, expected)
            if found is None:
                continue
            at, sender = found
            self._blocked[key].remove(lane)
            lane.steps.popleft()
            start, end = lane.waits_since, max(lane.waits_since, at)
            if end > start:
                strand = lane.strand
                wait = Waiting(strand.rank, strand.name, sender, start, end, op.loc)
                self._timeline.waits.append(wait)
            self._at(end, self._step, lane)

    def _satisfied(self, key: tuple[int, int], how: str, expected: int) -> tuple[float, int] | None:
        """Return when a cell satisfies a wait, and the rank of the last signal needed; or None."""
        total = 0
        for at, value, kind, sender in [(0.0, 0, "", -1), *sorted(self._signals[key])]:
            total = value if kind == "set" else total + value
            if (total == expected) if how == "match" else (total >= expected):
                return at, sender
        return None

    def _check_promises(self, now: float, key: tuple[int, int]) -> None:
        """Close the deferred waits of a cell whose signals are all on their way."""
        arrived = sorted(at for at, *_ in self._signals[key])
        for count, node in list(self._promised[key]):
            if len(arrived) >= count:
                self._promised[key].remove((count, node))
                last = arrived[count - 1] if count else now
                self._at(max(now, last), self._close, node)


def _key(cell: Window) -> tuple[int, int]:
    return cell.buffer.id, cell.bytes.start
