"""The scheduler: a deterministic interleaving of the steps of all ranks.

The ranks share one thread. A strand runs from one request to the next; then a policy chooses one of
the ready strands. A schedule is the sequence of choices: the same policy and seed give the same
run.
"""

from __future__ import annotations

import bisect
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tilelet.diag.core import Loc, UserError
from tilelet.interp.lowering import Lowering, Step
from tilelet.interp.movement import read_element
from tilelet.ir.core import Op, Program
from tilelet.ranks.collectives import meet
from tilelet.ranks.deadlock import explain
from tilelet.ranks.host import Dispatch, Plan
from tilelet.ranks.memory import on_rank, store
from tilelet.ranks.notifies import SentSignals
from tilelet.ranks.rank import RankState, RankTask, Strand
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.native import NativeKernels
    from tilelet.ranks.regions import Regions


MAX_IDLE_POLLS = 1_000
"""Reads by one polling strand while no other step is possible, before the run is a deadlock."""


class Policy(Protocol):
    """Choose which ready strand runs next."""

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand: ...


def _program_order(strand: Strand) -> tuple[int, int]:
    return strand.task.dispatch, strand.number


class InOrder:
    """The strand of the earliest dispatch in host order; then the one started first.

    No rank thus runs ahead of the host function's program order.
    """

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        del last
        return min(ready, key=_program_order)


class Random:
    """Any ready strand, chosen by a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - schedules, not secrets

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        del last
        return ready[self._random.randrange(len(ready))]


class Watcher(Protocol):
    """Observer of a run, for finding races and explaining deadlocks.

    sees_loads  `watched` observes loads and stores of window buffers
    """

    sees_loads: bool

    def access(self, strand: Strand, how: str, window: Window, op: Op, value: int) -> None: ...

    def watched(self, state: RankState, low: Lowering, op: Op, step: Step) -> Step: ...

    def begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None: ...

    def end(self, task: RankTask, parent: RankTask | None) -> None: ...

    def awaited(self, strand: Strand) -> None: ...

    def complete(self, task: RankTask, cell: Window) -> None: ...


Callbacks = Mapping[str, Callable[..., Any]]


CollectiveCall: TypeAlias = "tuple[str, list[list[int]], Loc]"


def _land(strand: Strand) -> None:
    """Complete the pending remote stores, as the fence after them does."""
    for window, data, atomic in strand.landing:
        store(window, data, atomic)
    strand.landing.clear()


class World:
    """All ranks of one run.

    orders_all  tasks in `pl.manual_scope()` are also ordered by their tensors
    lands_late  a remote store becomes visible when its strand continues, not immediately: the
                compiler's fence follows the store, and other ranks may read before it
    native      runs kernels and parts of kernels; None: all are interpreted
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        policy: Policy | None = None,
        *,
        watcher: Watcher | None = None,
        cores: Sequence[int] = (),
        callbacks: Callbacks | None = None,
        orders_all: bool = False,
        lands_late: bool = False,
        native: NativeKernels | None = None,
    ) -> None:
        self.program = program
        self.plan = plan
        self.policy = policy or InOrder()
        self.watcher = watcher
        self.cores = cores
        self.orders_all = orders_all
        self.lands_late = lands_late
        self.native = native
        self.control_reads: dict[int, list[Any]] = defaultdict(list)  # by dispatch
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.sent = SentSignals()
        # By signal and rank: what each collective is, its shapes, and where it is called.
        self.collective_calls: dict[tuple[object, ...], list[CollectiveCall]] = {}
        self.lacked_cores = False  # a task once waited for a core
        self.ranks = [RankState(self, r) for r in range(plan.world)]
        self.strands: list[Strand] = []
        self._in_order: list[Strand] = []  # the same ones, in program order
        self.dispatched: list[RankTask | None] = [None] * len(plan.dispatches)
        self.active: dict[int, RankTask] = {}  # the dispatch that each rank runs
        self.deferred: list[RankTask] = []
        self._callbacks = callbacks or {}
        self.pending = list(range(len(plan.dispatches)))
        self._started = 0
        self._idle_polls = 0  # polls since another step

    # Running

    def run(self) -> None:
        """Run everything to its end; raise an error if no rank can proceed."""
        last: Strand | None = None
        with np.errstate(all="ignore"):
            while True:
                self._start()
                chosen = self._choose(last)
                if chosen is not None:
                    last = chosen
                    self.step(chosen)
                elif self.strands or self.pending or self.deferred:
                    self.stall()
                else:
                    return

    def _choose(self, last: Strand | None) -> Strand | None:
        """Return the strand to run next; None if none is ready.

        Strands that poll a cell run only if no other can; if that changes nothing, none is ready.
        """
        if type(self.policy) is InOrder:  # as `choose`, without looking at all strands
            chosen = next((s for s in self._in_order if s.is_ready and not s.polls), None)
        else:
            ready = [s for s in self.strands if s.is_ready and not s.polls]
            chosen = self.policy.choose(ready, last) if ready else None
        if chosen is not None:
            self._idle_polls = 0
            return chosen
        polling = [s for s in self._in_order if s.polls]
        self._idle_polls += 1
        if not polling or self._idle_polls > MAX_IDLE_POLLS * len(polling):
            return None
        return polling[self._idle_polls % len(polling)]

    def stall(self) -> None:
        """Handle that no strand here can proceed: raise an error unless another process can change
        that.
        """
        raise explain(self)

    def step(self, strand: Strand) -> None:
        """Run one strand to its next request."""
        self.steps += 1
        if strand.rank >= 0:
            state = self.ranks[strand.rank]
            state.strand = strand
            state.block, state.blocks = strand.block, strand.blocks
        assert strand.run is not None
        _land(strand)
        try:
            strand.request = next(strand.run)
        except StopIteration:
            _land(strand)
            self._finished(strand)
        except UserError as error:
            raise self._on(strand, error) from None

    def _on(self, strand: Strand, error: UserError) -> UserError:
        """Add the rank to an error."""
        from dataclasses import replace

        note = f"on {strand.title}"
        if len(self.ranks) > 1 and strand.rank >= 0 and note not in error.diagnostic.notes:
            notes = (*error.diagnostic.notes, note)
            error.diagnostic = replace(error.diagnostic, notes=notes)
        return error

    def _finished(self, strand: Strand) -> None:
        self.strands.remove(strand)
        self._in_order.remove(strand)
        task = strand.task
        if task.kernel:
            state = self.ranks[strand.rank]
            state.cores.give(task.cores)
            state.cores.holders.remove(strand)
            state.may_start = True
        self._release(task)

    def _release(self, task: RankTask) -> None:
        """Remove one of the reasons that keep a task open."""
        task.open -= 1
        if task.open:
            return
        if any(not c.holds for c, _ in task.deferred):
            task.open = 1
            self.deferred.append(task)
            return
        if self.watcher is not None:
            for condition, _ in task.deferred:
                self.watcher.complete(task, condition.cell)
        self._done(task)

    def _done(self, task: RankTask) -> None:
        if self.watcher is not None:
            parent = None if task.kind is None else self.active[task.rank]
            self.watcher.end(task, parent)
        if task.kind is None:
            self.end_dispatch(task)
            return
        self.ranks[task.rank].retire(task)
        self._release(self.active[task.rank])

    def end_dispatch(self, task: RankTask) -> None:
        """End a dispatch and start the rank's next one."""
        task.done = True
        self.active.pop(task.rank, None)

    # Starting

    def _start(self) -> None:
        """Start whatever can start: deferred completions, dispatches, tasks with free cores."""
        moved = True
        while moved:
            moved = self._complete() or self._dispatch()
            for state in self.ranks:
                moved = self._start_tasks(state) or moved

    def _complete(self) -> bool:
        over = [t for t in self.deferred if all(c.holds for c, _ in t.deferred)]
        for task in over:
            self.deferred.remove(task)
            self._release(task)
        return bool(over)

    def _dispatch(self) -> bool:
        for i in self.pending:
            dispatch = self.plan.dispatches[i]
            if dispatch.rank in self.active or not all(
                (t := self.dispatched[j]) is not None and t.done for j in dispatch.waits_for
            ):
                continue
            self.pending.remove(i)
            self._begin(i, dispatch)
            return True
        return False

    def _begin(self, position: int, dispatch: Dispatch) -> None:
        task = RankTask(dispatch.rank, position, "", dispatch.loc, position)
        self.dispatched[position] = task
        self.active[dispatch.rank] = task
        earlier = [t for j in dispatch.waits_for if (t := self.dispatched[j]) is not None]
        if dispatch.callback is not None:
            self._call(dispatch)
            task.open = 1
            self._release(task)
            return
        state = self.ranks[dispatch.rank]
        operands = tuple(
            [on_rank(v, dispatch.rank) if isinstance(v, Window) else v for v in dispatch.operands]
        )
        name = dispatch.function or dispatch.op.name
        strand = Strand(dispatch.rank, name, dispatch.loc, task)
        if dispatch.function:
            strand.run = state.resumable(dispatch.function).start(operands)
        else:
            args = {
                n: on_rank(v, dispatch.rank) if isinstance(v, Window) else v
                for n, v in dispatch.args.items()
            }
            self.count(dispatch.op.name)
            strand.run = meet(state, dispatch.op, args)
        self._add(strand, earlier)

    @property
    def _is_watched(self) -> bool:
        """Whether loads and stores of window buffers are observed."""
        return self.watcher is not None and self.watcher.sees_loads

    def regions(self, kernel: str) -> Regions | None:
        """Return the regions of a kernel that run natively; None if it is interpreted."""
        if self.native is None:
            return None
        return self.native.regions(kernel, watched=self._is_watched)

    def _call(self, dispatch: Dispatch) -> None:
        assert dispatch.callback is not None
        function = self._callbacks.get(dispatch.callback)
        if function is not None:
            function(*[v.array if isinstance(v, Window) else v for v in dispatch.operands])

    def _add(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        strand.number = self._started
        self._started += 1
        strand.task.open += 1
        self.strands.append(strand)
        bisect.insort(self._in_order, strand, key=_program_order)
        if self.watcher is not None:
            self.watcher.begin(strand, earlier)

    def _start_tasks(self, state: RankState) -> bool:
        started, may_start, state.may_start = False, state.may_start, False
        if not may_start:
            return False
        lacking: set[tuple[int, int]] = set()
        for task in list(state.waiting):
            if not task.kernel:
                state.waiting.remove(task)
                task.started, task.open = True, 1
                self._release(task)
                started = True
                continue
            need = state.needs(task.kernel)
            if need in lacking and (task.predicate is None or task.begun):
                continue
            begun = task.begun
            if self._start_task(state, task):
                state.waiting.remove(task)
                started = True
            else:
                lacking.add(need)
            started = started or task.begun > begun
        return started

    def _start_task(self, state: RankState, task: RankTask) -> bool:
        """Start a task on free cores; return whether all of it has started.

        Blocks of a kernel that communicates start as cores become free.
        """
        if task.predicate is not None and not task.begun:
            window, at, compare, limit = task.predicate
            if not compare(read_element(state, window, at, task.loc), limit):
                task.started, task.open = True, 1
                self._release(task)
                return True
        apart = state.communicates(task.kernel)
        need = state.needs(task.kernel)
        blocks = (task.blocks or 1) if apart else 1
        while task.begun < blocks:
            if not state.cores.take(need):
                self.lacked_cores = True
                return False
            if not task.begun:
                task.started, task.cores = True, need
                task.open += 1  # until its last block has started
                state.allocate(task.values)
            strand = Strand(state.rank, task.kernel, task.loc, task, task.begun, blocks)
            strand.run = (
                state.resumable(task.kernel).start(task.values)
                if apart
                else self._whole(state, task)
            )
            task.begun += 1
            state.cores.holders.append(strand)
            self._add(strand, task.edges)
        task.open -= 1
        return True

    def _whole(self, state: RankState, task: RankTask) -> Any:
        """Run a task that does not communicate in one step."""
        native = self.native
        if native is not None and self._is_watched and state.sees_windows(task):
            code = state.resumable(task.kernel)
            for _ in state.each_block(task.blocks or 1):
                yield from code.start(task.values)
        elif native is None or not native.run(task.kernel, task.values, task.blocks):
            state.run_kernel(task.kernel, task.values, task.blocks)

    # Events reported by ranks

    def count(self, kernel: str) -> None:
        if kernel:
            self.counts[kernel] += 1

    def submitted(self, state: RankState, task: RankTask) -> None:
        """Note a task that a control program has submitted."""
        if self.watcher is not None:
            task.clock = dict(state.strand.clock)
