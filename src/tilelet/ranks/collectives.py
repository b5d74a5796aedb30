"""Collectives in kernels, built from signals and remote loads.

Every call begins and ends with all cells of the signal at zero. Its phases are separated by credit
barriers: in phase g a rank adds 1 to its cell on every peer and waits until its own cells of all
peers are at least g; at the end it subtracts the credits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ranks import BadCollective
from tilelet.dtypes import Array
from tilelet.interp.lowering import Frame, Lowering
from tilelet.ir.core import Op
from tilelet.numerics.undefined import poison
from tilelet.ops.apply import Args
from tilelet.ranks.code import LowerRoutine, Routine, Suspension
from tilelet.ranks.collective_rules import check_collective
from tilelet.ranks.comm import rank_state, signal
from tilelet.ranks.memory import read_copy, store, symmetric, view_of_buffer
from tilelet.ranks.requests import Condition, Request
from tilelet.syntax.ranks import NotifyOp, ReduceOp, WaitCmp
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.rank import RankState

ROUTINES: dict[str, LowerRoutine] = {}

REDUCTIONS: dict[ReduceOp, Callable[[Array, Array], Array]] = {
    ReduceOp.Sum: numerics.add,
    ReduceOp.Max: np.maximum,
    ReduceOp.Min: np.minimum,
    ReduceOp.Prod: numerics.mul,
}


class Meeting:
    """One call of a collective on one rank."""

    def __init__(self, state: RankState, op: Op, cells: Window) -> None:
        self.state = state
        self.op = op
        buffer = symmetric(cells)
        self.me = buffer.index
        self.slices = buffer.allocation.slices
        self.size = len(self.slices)
        self._cells = cells
        self._phase = 0

    @property
    def peers(self) -> list[int]:
        return [p for p in range(self.size) if p != self.me]

    def _cell(self, owner: int, source: int) -> Window:
        """Return the cell of `owner` that `source` signals."""
        whole = view_of_buffer(self._cells, self.slices[owner])
        axes = len(whole.shape)
        if whole.shape[0] >= self.size:
            at = (source, *(0 for _ in range(axes - 1)))
        else:
            at = (*(0 for _ in range(axes - 1)), source)
        return whole.slice(at, (1,) * axes)

    def barrier(self) -> Suspension:
        self._phase += 1
        yield Request(self.op.name, self.op.loc)
        for peer in self.peers:
            signal(self.state, self._cell(peer, self.me), 1, NotifyOp.AtomicAdd, self.op)
        wanted = [Condition(self._cell(self.me, p), self._phase, WaitCmp.Ge) for p in self.peers]
        yield Request(self.op.name, self.op.loc, tuple(wanted))
        for condition in wanted:
            self.state.waited(condition, self.op)

    def leave(self) -> None:
        """Subtract the credits of this call."""
        for peer in self.peers:
            cell = self._cell(self.me, peer)
            signal(self.state, cell, -self._phase, NotifyOp.AtomicAdd, self.op)

    def at(self, window: Window, rank: int) -> Window:
        """Return the same view of the buffer on another rank of the domain."""
        return view_of_buffer(window, symmetric(window).allocation.slices[rank])

    def read(self, window: Window) -> Array:
        self.state.observe("read", window, self.op)
        return read_copy(window)

    def write(self, window: Window, data: Array) -> None:
        self.state.observe("write", window, self.op)
        store(window, data.astype(window.dtype.numpy, copy=False))

    @staticmethod
    def leave_undefined(window: Window) -> None:
        """Poison rows that the collective does not define, so that using them shows."""
        if 0 not in window.shape:
            store(window, np.full(window.shape, poison(window.dtype)))


def rows_of(window: Window, parts: int, op: Op) -> list[Window]:
    """Split the window into equal parts along its first axis."""
    rows = window.shape[0]
    if rows % parts:
        problem = f"{rows} rows of `{window.name}` do not divide among {parts} ranks"
        raise BadCollective(op.loc, op.name, problem)
    size = rows // parts
    rest = window.shape[1:]
    zeros = (0,) * len(rest)
    return [window.slice((p * size, *zeros), (size, *rest)) for p in range(parts)]


Body = Callable[[Meeting, Args], Suspension]


def _barrier(_: Meeting, __: Args) -> Suspension:
    return
    yield


def _allreduce(m: Meeting, args: Args) -> Suspension:
    target: Window = args["target"]
    combine = REDUCTIONS[args["op"]]
    total = m.read(m.at(target, 0))
    for peer in range(1, m.size):
        total = combine(total, m.read(m.at(target, peer)))
    yield from m.barrier()
    m.write(target, total)


def _broadcast(m: Meeting, args: Args) -> Suspension:
    target, root = args["target"], args["root"]
    if root >= m.size:
        problem = f"root {root} of a domain of {m.size}"
        raise BadCollective(m.op.loc, m.op.name, problem)
    if m.me != root:
        m.write(target, m.read(m.at(target, root)))
    return
    yield


def _allgather(m: Meeting, args: Args) -> Suspension:
    row = m.read(args["local"])
    for peer in range(m.size):
        m.write(rows_of(m.at(args["target"], peer), m.size, m.op)[m.me], row)
    return
    yield


def _reduce_scatter(m: Meeting, args: Args) -> Suspension:
    rows = [rows_of(m.at(args["target"], p), m.size, m.op)[m.me] for p in range(m.size)]
    total = m.read(rows[0])
    for row in rows[1:]:
        total = numerics.add(total, m.read(row))
    yield from m.barrier()
    for peer, row in enumerate(rows_of(m.at(args["target"], m.me), m.size, m.op)):
        if peer == m.me:
            m.write(row, total)
        else:
            m.leave_undefined(row)


def _all_to_all(m: Meeting, args: Args) -> Suspension:
    for peer, row in enumerate(rows_of(args["input"], m.size, m.op)):
        m.write(rows_of(m.at(args["target"], peer), m.size, m.op)[m.me], m.read(row))
    return
    yield


def _all_to_all_v(m: Meeting, args: Args) -> Suspension:
    yield from _all_to_all(m, args)
    limit = args["target"].shape[0] // m.size
    sent = m.read(args["send_counts"]).reshape(-1)
    for peer in range(m.size):
        count = min(int(sent[peer]), limit)
        counts = m.at(args["recv_counts"], peer)
        at = (m.me, *(0 for _ in counts.shape[1:]))
        m.write(counts.slice(at, (1,) * len(counts.shape)), np.array(count))
        block = rows_of(m.at(args["target"], peer), m.size, m.op)[m.me]
        rest = block.shape[1:]
        tail = block.slice((count, *(0 for _ in rest)), (limit - count, *rest))
        m.leave_undefined(tail)


BODIES: dict[str, Body] = {
    "pld.tensor.barrier": _barrier,
    "pld.tensor.allreduce": _allreduce,
    "pld.tensor.broadcast": _broadcast,
    "pld.tensor.allgather": _allgather,
    "pld.tensor.reduce_scatter": _reduce_scatter,
    "pld.tensor.all_to_all": _all_to_all,
    "pld.tensor.all_to_all_v": _all_to_all_v,
}


def meet(state: RankState, op: Op, args: Args) -> Suspension:
    """Run one call of a collective: wait for all ranks, exchange data, wait until all have
    finished.
    """
    _check_buffers(op, args)
    m = Meeting(state, op, args["signal"])
    _check_alike(m, args)
    if state.strand.task.kernel:  # host collectives are checked when they are planned
        check_collective(op, args, m.size, in_host=False)
    yield from m.barrier()
    yield from BODIES[op.name](m, args)
    if op.name != "pld.tensor.barrier":
        yield from m.barrier()
    m.leave()


def _check_alike(m: Meeting, args: Args) -> None:
    """Check that this call is the one that the other ranks make at this place of their order."""
    options = [args[name] for name in ("op", "mode", "root", "core_num") if name in args]
    shown = [o.name if isinstance(o, ReduceOp) else str(o) for o in options]
    call = f"{m.op.name}({', '.join(shown)})"
    shapes = [list(args[name].shape) for name in ("input", "local", "target") if name in args]
    allocation = symmetric(args["signal"]).allocation
    calls = m.state.world.collective_calls
    mine = calls.setdefault((allocation, args["signal"].offset, m.me), [])
    mine.append((call, shapes, m.op.loc))
    for peer in m.peers:
        theirs = calls.get((allocation, args["signal"].offset, peer), [])
        if len(theirs) < len(mine):
            continue
        other, their_shapes, loc = theirs[len(mine) - 1]
        if (other, their_shapes) == (call, shapes):
            continue
        if other == call:
            other, call = f"{call} of {their_shapes}", f"{call} of {shapes}"
        here, there = allocation.domain.ranks[m.me], allocation.domain.ranks[peer]
        problem = (
            f"call {len(mine)} with this signal is `{call}` on rank {here}"
            f" and `{other}` on rank {there}"
        )
        advice = "all ranks make the same calls in the same order"
        raise BadCollective(m.op.loc, m.op.name, problem, advice, loc)


def _check_buffers(op: Op, args: Args) -> None:
    """Check that the operands of a collective lie in different window buffers."""
    seen: dict[int, str] = {}
    for name, value in args.items():
        if isinstance(value, Window):
            other = seen.setdefault(value.buffer.id, name)
            if other != name:
                problem = f"`{other}` and `{name}` lie in one window buffer"
                raise BadCollective(op.loc, op.name, problem, "give each its own buffer")


def _lower(low: Lowering, op: Op) -> Routine:
    state = rank_state(low)
    getters = {name: low.get(arg) for name, arg in op.args.items()}
    result, first = low.result(op), op.spec.writes[0]

    def run(frame: Frame) -> Suspension:
        args = {name: get(frame) for name, get in getters.items()}
        yield from meet(state, op, args)
        frame[result] = args[first]

    return run


ROUTINES.update(dict.fromkeys(BODIES, _lower))
