"""Modelled time of several ranks: one run, with transfers priced by the links of a machine.

A run is executed once and traced. The tasks of each dispatch are simulated on one chip with free
communication, which gives their durations and queueing times. Replaying the trace then places every
task on the common timeline: it is ready when its dispatch has submitted it and its predecessors are
done; a kernel that communicates first computes, then performs its transfers in order; a wait ends
when the signal that satisfies it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilelet.dataclasses import dataclass, field
from tilelet.device.machine.description import Machine
from tilelet.device.schedule.simulate import simulate
from tilelet.diag.catalogue.ranks import NoLinks
from tilelet.diag.core import Loc
from tilelet.ir.core import Op, Program
from tilelet.ranks.host import Plan
from tilelet.ranks.memory import SymmetricBuffer
from tilelet.ranks.rank import RankTask, Strand
from tilelet.ranks.record import record_streams
from tilelet.ranks.scheduler import World
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.native import NativeKernels
    from tilelet.ranks.rank import RankState

_WRITES = ("write", "push", "add")


@dataclass(frozen=True)
class Span:
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
    """Timeline of all ranks of a machine."""

    name: str
    machine: str
    world: int
    spans: list[Span] = field(default_factory=list[Span])
    messages: list[Message] = field(default_factory=list[Message])
    waits: list[Waiting] = field(default_factory=list[Waiting])
    begins: dict[int, float] = field(default_factory=dict[int, float])
    ends: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def total_us(self) -> float:
        return max(self.ends.values(), default=0.0) - min(self.begins.values(), default=0.0)

    def waited_us(self, rank: int) -> float:
        """Return the time during which at least one block of a rank waits."""
        total, end = 0.0, float("-inf")
        for wait in sorted((w for w in self.waits if w.rank == rank), key=lambda w: w.start):
            total += max(0.0, wait.end - max(wait.start, end))
            end = max(end, wait.end)
        return total


class _Trace:
    """An observer that records the events of a run in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def access(self, strand: Strand, how: str, window: Window, op: Op, value: int) -> None:
        if isinstance(window.buffer, SymmetricBuffer):
            self.events.append(("access", strand, how, window, op, value))

    def watched(self, state: RankState, low: object, op: Op, step: object) -> Any:
        del state, low, op
        return step

    def begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        if strand.clock is None:
            strand.clock = {}  # submissions copy it
        self.events.append(("begin", strand, tuple(earlier)))

    def end(self, task: RankTask, parent: RankTask | None) -> None:
        self.events.append(("end", task, parent))

    def awaited(self, strand: Strand) -> None:
        self.events.append(("awaited", strand))

    def complete(self, task: RankTask, cell: Window) -> None:
        self.events.append(("complete", task, cell))


def model_ranks(
    name: str,
    program: Program,
    plan: Plan,
    machines: Sequence[Machine],
    native: NativeKernels | None = None,
) -> list[RanksTimeline]:
    """Run a plan once; return its modelled time on each machine."""
    for machine in machines:
        if machine.links is None:
            raise NoLinks(machine.name)
    streams = record_streams(program, plan).streams
    trace = _Trace()
    World(program, plan, watcher=trace, native=native).run()
    found: list[RanksTimeline] = []
    for machine in machines:
        chips = [None if s is None else _Chip.of(simulate(s, program, machine)) for s in streams]
        pricing = _Pricing(RanksTimeline(name, machine.name, plan.world), machine, plan, chips)
        found.append(pricing.timeline_of(trace.events))
    return found


@dataclass(frozen=True)
class _Chip:
    """Simulation of a dispatch's tasks on one chip: submission times and durations."""

    submitted: Sequence[float]
    taken: Sequence[float]
    end: float

    @classmethod
    def of(cls, timeline: Any) -> _Chip:
        taken = [max(0.0, f - r) for f, r in zip(timeline.finished, timeline.ready)]
        return cls(list(timeline.submitted), taken, float(timeline.last_activity))


class _Pricing:
    """Walk a trace and assign a time to every event."""

    def __init__(
        self, timeline: RanksTimeline, machine: Machine, plan: Plan, chips: Sequence[_Chip | None]
    ) -> None:
        assert machine.links is not None
        self._timeline, self._links, self._plan, self._chips = timeline, machine.links, plan, chips
        self._now: dict[Strand, float] = {}
        self._begun: dict[Strand, float] = {}
        self._done: dict[RankTask, float] = {}
        self._floor: dict[RankTask, float] = {}  # earliest time of a dispatch's next submission
        self._first: dict[int, int] = {}  # index of the first task of a dispatch
        self._rank_free: dict[int, float] = {}  # end of a rank's last dispatch
        self._link_free: dict[tuple[int, int], float] = {}
        self._signals: dict[tuple[int, int], list[tuple[float, int, str, int]]] = {}
        self._strands: dict[RankTask, list[Strand]] = {}
        self._dispatches: dict[int, RankTask] = {}

    def timeline_of(self, events: Sequence[tuple[object, ...]]) -> RanksTimeline:
        for kind, *rest in events:
            getattr(self, f"_{kind}")(*rest)
        return self._timeline

    # Tasks

    def _begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        task = strand.task
        ready = max((self._done.get(t, 0.0) for t in earlier), default=0.0)
        if task.kind is None:
            begin = max(ready, self._rank_free.get(task.rank, self._skew(task.rank)))
            self._timeline.begins.setdefault(task.rank, begin)
            self._floor[task] = self._done[task] = begin
            self._dispatches[task.dispatch] = task
        else:
            chip = self._chips[task.dispatch]
            assert chip is not None
            parent = self._dispatches[task.dispatch]
            at = task.index - self._first.setdefault(task.dispatch, task.index)
            begun = self._begun_dispatch(parent)
            begin = max(ready, self._floor[parent], begun + chip.submitted[at]) + chip.taken[at]
            ready = begin - chip.taken[at]
        self._begun[strand], self._now[strand] = max(ready, 0.0), begin
        self._strands.setdefault(task, []).append(strand)

    def _begun_dispatch(self, dispatch: RankTask) -> float:
        return self._begun[self._strands[dispatch][0]]

    def _skew(self, rank: int) -> float:
        return self._links.start_skew_us * rank / max(1, self._plan.world - 1)

    def _end(self, task: RankTask, parent: RankTask | None) -> None:
        strands = self._strands.get(task, [])
        end = max((self._now[s] for s in strands), default=0.0)
        end = max([end, self._done.get(task, 0.0), *[self._done.get(t, 0.0) for t in task.edges]])
        self._done[task] = end
        if parent is not None:
            self._done[parent] = max(end, self._done.get(parent, 0.0))
        if task.kind is None:
            self._rank_free[task.rank] = end
            if task.rank >= 0:
                self._timeline.ends[task.rank] = end
        if task.kernel or (task.kind is None and not self._plan.dispatches[task.dispatch].function):
            self._timeline.spans += [
                Span(s.rank, s.name, s.block, self._begun[s], self._now[s]) for s in strands
            ]

    def _awaited(self, strand: Strand) -> None:
        self._floor[strand.task] = self._done[strand.task]

    def _complete(self, task: RankTask, cell: Window) -> None:
        arrivals = self._signals.get(_key(cell), [])
        last = max((t for t, *_ in arrivals), default=0.0)
        self._done[task] = max(self._done.get(task, 0.0), last)

    # Links

    def _access(self, strand: Strand, how: str, window: Window, op: Op, value: int) -> None:
        buffer = window.buffer
        assert isinstance(buffer, SymmetricBuffer)
        own, other = strand.rank, buffer.rank
        if how in ("notify", "set"):
            start = self._now[strand]
            end = start + (self._links.signal_us if other != own else 0.0)
            self._signals.setdefault(_key(window), []).append((end, value, how, own))
            if other != own:
                self._timeline.messages.append(Message(own, other, 4, start, end, op.loc))
        elif how in ("wait", "match"):
            self._wait(strand, how, window, op, value)
        elif other != own:
            nbytes = window.dtype.itemsize
            for extent in window.held:
                nbytes *= extent
            source, target = (own, other) if how in _WRITES else (other, own)
            start = self._now[strand]
            end = self._transfer(source, target, nbytes, start)
            self._now[strand] = end
            self._timeline.messages.append(Message(source, target, nbytes, start, end, op.loc))

    def _transfer(self, source: int, target: int, nbytes: int, start: float) -> float:
        """Return the end of a transfer: one core performs it, and its link serializes transfers."""
        links = self._links
        end = start + links.start_us + nbytes / (links.core_gbs * 1e3)
        for key, rate in (((source, target), links.link_gbs), ((source, -1), links.rank_gbs)):
            busy = max(start, self._link_free.get(key, 0.0)) + nbytes / (rate * 1e3)
            self._link_free[key] = busy
            end = max(end, busy)
        return end

    def _wait(self, strand: Strand, how: str, cell: Window, op: Op, expected: int) -> None:
        start = end = self._now[strand]
        source, total = strand.rank, 0
        for at, value, kind, sender in sorted(self._signals.get(_key(cell), [])):
            total = value if kind == "set" else total + value
            if (total == expected) if how == "match" else (total >= expected):
                end, source = max(start, at), sender
                break
        self._now[strand] = end
        if end > start:
            wait = Waiting(strand.rank, strand.name, source, start, end, op.loc)
            self._timeline.waits.append(wait)


def _key(cell: Window) -> tuple[int, int]:
    return cell.buffer.id, cell.bytes.start
