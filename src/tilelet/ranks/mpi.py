"""Ranks as MPI processes: `mpiexec -n 4 tilelet run FILE --ranks mpi`.

Every process runs the script and plans the host function; it executes only the dispatches of its
own rank. Window buffers are one-sided windows. Each operation on a peer is complete when its
statement ends, so a notify follows the data that it announces. What dispatches write to host
tensors is sent to the ranks that read it, and at the end of a run to all ranks.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from tilelet import numerics
from tilelet.diag.catalogue.ranks import RanksDeadlock, RanksDiffer, WrongWorld
from tilelet.diag.core import UserError
from tilelet.diag.render import render_text
from tilelet.dtypes import Arguments, Array
from tilelet.ir.core import Direction, Program
from tilelet.ir.printer import print_program
from tilelet.ranks.deadlock import explain
from tilelet.ranks.ending import COMM, ENDING
from tilelet.ranks.engine import RankCounts, RanksEngine, RanksExecution
from tilelet.ranks.host import Dispatch, Plan, plan_of
from tilelet.ranks.memory import Allocation, SymmetricBuffer, TemplateBuffer
from tilelet.ranks.rank import RankTask
from tilelet.ranks.scheduler import World
from tilelet.ranks.static import check_shards, check_text, check_waits
from tilelet.syntax.ranks import NotifyOp
from tilelet.tasks.arguments import bind_arguments
from tilelet.tasks.window import Window, window_of_array

_POLL_SECONDS = (0.0, 1e-3)
"""Shortest and longest pause between two looks at the cells that a rank waits for."""


class WindowMemory:
    """Memory of one window buffer: this process's slice, and access to the others."""

    def __init__(self, nbytes: int) -> None:
        self._window = MPI.Win.Allocate(max(nbytes, 1), 1, comm=COMM)
        memory: Any = self._window.tomemory()
        self.own: Array = np.frombuffer(memory, np.uint8)[:nbytes]
        self.own.fill(0)
        self._window.Lock_all()

    def sync(self) -> None:
        """Make stores of other processes visible to loads of this one."""
        self._window.Sync()

    def free(self) -> None:
        self._window.Unlock_all()
        self._window.Free()

    def get(self, rank: int, window: Window) -> Array:
        data = np.empty(window.reach, window.dtype.numpy)
        if data.size:
            at, layout = _target(window)
            self._window.Get(_bytes(data), rank, (at, 1, layout))
            self._window.Flush(rank)
            layout.Free()
        return data

    def put(self, rank: int, window: Window, data: Array) -> None:
        at, layout = _target(window)
        self._window.Put(_bytes(np.ascontiguousarray(data)), rank, (at, 1, layout))
        self._window.Flush(rank)
        layout.Free()

    def accumulate(self, rank: int, at: int, value: int, op: MPI.Op) -> None:
        """Add to or replace an INT32 atomically."""
        number = np.array([value], np.int64).astype(np.int32)
        self._window.Accumulate((number, MPI.INT32_T), rank, (at, 1, MPI.INT32_T), op)
        self._window.Flush(rank)

    def exchange(self, rank: int, at: int, expected: int, value: int) -> int:
        """Compare-and-swap an INT32; return its old value."""
        old = np.zeros(1, np.int32)
        self._window.Compare_and_swap(
            (np.array([value], np.int32), MPI.INT32_T),
            (np.array([expected], np.int32), MPI.INT32_T),
            (old, MPI.INT32_T),
            rank,
            at,
        )
        self._window.Flush(rank)
        return int(old[0])


def _bytes(array: Array) -> object:
    return array.reshape(-1).view(np.uint8)


def _target(window: Window) -> tuple[int, MPI.Datatype]:
    """Return the first byte of a window in its slice, and the layout of its elements from there."""
    item = window.dtype.itemsize
    layout = MPI.BYTE.Create_contiguous(item)
    for extent, stride in zip(reversed(window.reach), reversed(window.strides)):
        outer = layout.Create_hvector(extent, 1, stride * item)
        layout.Free()
        layout = outer
    layout.Commit()
    return window.offset * item, layout


class Control:
    """State that the processes share besides window buffers: a lock, and which ranks are blocked.

    Three INT32 per rank: the lock of its slices, its number of state changes (odd: blocked), and
    the last poll round that it answered with "still blocked".
    """

    _LOCK, _CHANGES, _ANSWER = 0, 4, 8

    def __init__(self) -> None:
        self._region = WindowMemory(12)
        self._changes = 0
        COMM.Barrier()

    def free(self) -> None:
        COMM.Barrier()
        self._region.free()

    def locked(self, rank: int) -> _Lock:
        return _Lock(self._region, rank)

    def change(self) -> None:
        """Record that this rank is now blocked, or running again."""
        self._changes += 1
        self._region.accumulate(COMM.rank, self._CHANGES, self._changes, MPI.REPLACE)

    def answer(self, number: int) -> None:
        self._region.accumulate(COMM.rank, self._ANSWER, number, MPI.REPLACE)

    def states(self) -> list[tuple[int, int]]:
        """Return the number of state changes and the last answer of each rank."""
        return [
            (self._read(rank, self._CHANGES), self._read(rank, self._ANSWER))
            for rank in range(COMM.size)
        ]

    def _read(self, rank: int, at: int) -> int:
        return self._region.exchange(rank, at, -1, -1)


class _Lock:
    """Mutual exclusion for additions to the slices of a rank."""

    def __init__(self, region: WindowMemory, rank: int) -> None:
        self._region, self._rank = region, rank

    def __enter__(self) -> None:
        while self._region.exchange(self._rank, 0, 0, 1):
            time.sleep(0)

    def __exit__(self, *_: object) -> None:
        self._region.accumulate(self._rank, 0, 0, MPI.REPLACE)


class MpiSlice(SymmetricBuffer):
    """A rank's slice in its own process, the only one with its memory."""

    __slots__ = ("control", "remote")

    def __init__(
        self, allocation: Allocation, index: int, region: WindowMemory, control: Control
    ) -> None:
        self.remote, self.control = region, control
        super().__init__(allocation, index, region.own)
        if self.rank != COMM.rank:
            self.data = None

    def local_copy(self, window: Window) -> Window:
        if self.data is not None:
            return window
        data = self.remote.get(self.rank, window)
        copied = window_of_array(self.name, data, window.dtype)
        copied.shape, copied.valid, copied.extent = window.shape, window.valid, window.extent
        return copied

    def store(self, window: Window, source: Array, atomic: bool) -> None:
        source = source.reshape(window.shape)
        if not atomic:
            self.remote.put(self.rank, window, source)
            return
        with self.control.locked(self.rank):
            old = self.remote.get(self.rank, window)
            self.remote.put(self.rank, window, numerics.add(old, source))

    def signal(self, cell: Window, value: int, kind: NotifyOp) -> None:
        op = MPI.SUM if kind is NotifyOp.AtomicAdd else MPI.REPLACE
        self.remote.accumulate(self.rank, cell.offset * cell.dtype.itemsize, value, op)


class MpiWorld(World):
    """The rank of this process; others are reached by messages and windows."""

    def __init__(
        self, program: Program, plan: Plan, control: Control, resident: set[int], **options: Any
    ) -> None:
        super().__init__(program, plan, **options)
        self._control = control
        self._resident = resident  # ids of buffers
        self._regions = {
            part.remote: None
            for allocation in plan.allocations
            for part in allocation.slices
            if isinstance(part, MpiSlice)
        }
        self.pending = [i for i in self.pending if _owner(plan.dispatches[i]) == COMM.rank]
        self._awaited = {
            j for i in self.pending for j in plan.dispatches[i].waits_for if not self._is_own(j)
        }
        self._sent: list[MPI.Request] = []

    def _is_own(self, position: int) -> bool:
        return _owner(self.plan.dispatches[position]) == COMM.rank

    def end_dispatch(self, task: RankTask) -> None:
        super().end_dispatch(task)
        readers = {_owner(d) for d in self.plan.dispatches if task.dispatch in d.waits_for} - {
            COMM.rank
        }
        if readers:
            written = [w.array.copy() for w in self._written(self.plan.dispatches[task.dispatch])]
            self._sent += [COMM.isend(written, r, tag=task.dispatch) for r in readers]

    def stall(self) -> None:
        """Wait until a cell or a message lets this rank proceed; raise an error if no rank can."""
        self._control.change()
        pause, longest = _POLL_SECONDS
        before: list[tuple[int, int]] = []
        while not self._goes_on():
            if pause >= longest:
                before = self._look_around(before)
            time.sleep(pause)
            pause = min(longest, pause * 2 or 1e-6)
        self._control.change()

    def _goes_on(self) -> bool:
        for region in self._regions:
            region.sync()
        arrived = [j for j in self._awaited if self._receive(j)]
        self._awaited.difference_update(arrived)
        tasks_over = any(all(c.holds for c, _ in t.deferred) for t in self.deferred)
        return bool(arrived) or tasks_over or any(s.is_ready for s in self.strands)

    def _receive(self, position: int) -> bool:
        dispatch = self.plan.dispatches[position]
        source = _owner(dispatch)
        if not COMM.iprobe(source, tag=position):
            return False
        for window, data in zip(self._written(dispatch), COMM.recv(source=source, tag=position)):
            window.array[...] = data
        task = RankTask(source, position, "", dispatch.loc, position)
        task.done = True
        self.dispatched[position] = task
        return True

    def _look_around(self, before: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Detect whether all ranks are blocked.

        If all seem to be, each re-checks its cells and answers the round whose number is the sum of
        all changes. If all have answered and none has changed, no rank can proceed.
        """
        now = self._control.states()
        if any(changes % 2 == 0 for changes, _ in now):
            return []
        number = sum(changes for changes, _ in now)
        if [c for c, _ in now] != [c for c, _ in before]:
            return now
        if self._goes_on():
            return []
        self._control.answer(number)
        if all(answer == number for _, answer in now):
            raise self._deadlock()
        return now

    def _deadlock(self) -> RanksDeadlock:
        """Return the error of all ranks: what each of them waits for."""
        found = COMM.allgather([(x.loc, x.text) for x in explain(self).diagnostic.labels])
        labels = list(dict.fromkeys(x for part in found for x in part))
        note = "`tilelet check` says which statements would have to notify, and why they do not"
        return RanksDeadlock(labels, [note])

    def _written(self, dispatch: Dispatch) -> list[Window]:
        """Return the non-resident host tensors that a dispatch writes."""
        return [
            window
            for window, direction in dispatch.windows
            if direction is not Direction.In
            and not isinstance(window.buffer, TemplateBuffer)
            and window.buffer.id not in self._resident
        ]

    def share_results(self) -> None:
        """Send what the dispatches have written to host tensors to every process."""
        MPI.Request.waitall(self._sent)
        for dispatch in self.plan.dispatches:
            for window in self._written(dispatch):
                data = np.ascontiguousarray(window.array)
                COMM.Bcast(_bytes(data), _owner(dispatch))
                window.array[...] = data


def _owner(dispatch: Dispatch) -> int:
    """Return the process that runs a dispatch; callbacks run in the first."""
    return max(dispatch.rank, 0)


class MpiEngine(RanksEngine):
    """Run the rank of this process."""

    def run(
        self, program: Program, arguments: Arguments, *, execute: bool = True
    ) -> RanksExecution:
        check_text(program)
        if self.config.world != COMM.size:
            raise WrongWorld(program.main.loc, self.config.world, COMM.size)
        _check_texts(program)
        bound = bind_arguments(program, arguments, execute=execute)
        control = Control()
        regions: dict[Allocation, WindowMemory] = {}

        def make(allocation: Allocation, index: int) -> MpiSlice:
            if allocation not in regions:
                regions[allocation] = WindowMemory(allocation.nbytes)
            return MpiSlice(allocation, index, regions[allocation], control)

        plan = plan_of(program, bound, self.config.world, make)
        if self.kept is None or self.kept.zeroes:
            check_waits(program, plan)
        check_shards(program, bound, plan, self.resident)
        if self.kept is not None:
            self.kept.use(program.name, plan)
        COMM.Barrier()
        resident = {
            value.buffer.id
            for param, value in zip(program.main.params, bound)
            if param.name in self.resident and isinstance(value, Window)
        }
        world = MpiWorld(
            program, plan, control, resident, callbacks=self.callbacks, native=self.native(program)
        )
        try:
            world.run()
        except RanksDeadlock:
            raise
        except UserError as error:
            ENDING.fail(render_text(error.diagnostic, color=False))
        except Exception as error:  # other ranks must not wait
            ENDING.fail(f"{type(error).__name__}: {error}")
        world.share_results()
        control.free()
        used = {p.remote for a in plan.allocations for p in a.slices if isinstance(p, MpiSlice)}
        for region in regions.values():
            if self.kept is None or region not in used:
                region.free()
        counts: Counter[str] = Counter()
        for found in COMM.allgather(world.counts):
            counts.update(found)
        return RanksExecution(RankCounts(counts))


@functools.lru_cache(maxsize=64)
def _digest(program: Program) -> str:
    return hashlib.sha256(print_program(program).encode()).hexdigest()


def _check_texts(program: Program) -> None:
    """Raise the same error everywhere if the processes run different programs."""
    found = COMM.allgather((program.name, _digest(program)))
    others = [r for r, other in enumerate(found) if other != found[0]]
    if others:
        raise RanksDiffer(program.main.loc, found[0][0], others)


def gather_shards(stack: Array, owners: Sequence[int]) -> None:
    """Give every process all shards of a resident stack."""
    for shard, owner in zip(stack, owners):
        data = np.ascontiguousarray(shard)
        COMM.Bcast(_bytes(data), owner)
        shard[...] = data
