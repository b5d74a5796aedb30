"""Communication ops of kernels: transfers and signals, each a point where strands may switch.

A routine first yields a request and then acts, so it sees everything that other strands did in
between. Accesses to windows are reported to the run's observer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tilelet.diag.catalogue.ranks import BadDeferredWait
from tilelet.diag.catalogue.windows import WindowOutOfRange
from tilelet.diag.core import Loc
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.interp.movement import as_tuple, load_window, stored_window, window_at
from tilelet.ir.core import Arg, Op
from tilelet.ir.types import box
from tilelet.ranks.code import LowerRoutine, Routine, Suspension
from tilelet.ranks.memory import (
    Membership,
    at_peer,
    membership,
    read_copy,
    store,
    symmetric,
)
from tilelet.ranks.requests import Condition, Request
from tilelet.syntax.enums import AtomicType
from tilelet.syntax.ranks import NotifyOp
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.rank import RankState

MAX_CONDITIONS = 64
"""Conditions of `defer_wait` that one task may have."""

ROUTINES: dict[str, LowerRoutine] = {}


def routine(*names: str) -> Callable[[LowerRoutine], LowerRoutine]:
    """Register the routine for the ops of these names."""

    def add(lower: LowerRoutine) -> LowerRoutine:
        for name in names:
            ROUTINES[f"pld.{name}"] = lower
        return lower

    return add


def rank_state(low: Lowering) -> RankState:
    return cast("RankState", low.state)


# --- where a rank stands -------------------------------------------------------------------------


@lowers("pld.get_comm_ctx")
def lower_context(low: Lowering, op: Op) -> Step:
    tensor, result = low.slot(op.args["tensor"]), low.result(op)

    def step(frame: Frame) -> None:
        frame[result] = membership(frame[tensor])

    return step


@lowers("pld.rank", "pld.nranks")
def lower_rank(low: Lowering, op: Op) -> Step:
    ctx, result = low.slot(op.args["ctx"]), low.result(op)

    def rank(frame: Frame) -> None:
        member: Membership = frame[ctx]
        frame[result] = member.index

    def nranks(frame: Frame) -> None:
        member: Membership = frame[ctx]
        frame[result] = len(member.domain.ranks)

    return rank if op.name == "pld.rank" else nranks


# --- windows -------------------------------------------------------------------------------------


def _list(low: Lowering, arg: Arg) -> Callable[[Frame], Sequence[int]]:
    return low.get(as_tuple(arg))


def _no_offsets(_: Frame) -> None:
    """Return the offsets of a transfer without a region."""


def cell_of(window: Window, offsets: Sequence[int], loc: Loc) -> Window:
    """Return one cell of a signal."""
    for axis, (at, extent) in enumerate(zip(offsets, window.shape)):
        if not 0 <= at < extent:
            raise WindowOutOfRange(loc, axis, at, 1, extent, window.name, True)
    return window.slice(offsets, (1,) * len(offsets))


def part_of(window: Window, offsets: Sequence[int] | None, shape: Any, loc: Loc) -> Window:
    """Return a region of a window, bounds-checked; the whole window if there are no offsets."""
    if offsets is None:
        return window
    return window_at(window, offsets, tuple(shape), None, False, loc)


# --- transfers -----------------------------------------------------------------------------------


@routine("tile.remote_load")
def lower_remote_load(low: Lowering, op: Op) -> Routine:
    state, loc, args = rank_state(low), op.loc, op.args
    target, peer = low.slot(args["target"]), low.slot(args["peer"])
    offsets, shape = _list(low, args["offsets"]), _list(low, args["shape"])
    limit = None if args["valid_shape"] is None else _list(low, args["valid_shape"])
    result = low.result(op)

    def run(frame: Frame) -> Suspension:
        yield Request(op.name, loc)
        there = at_peer(frame[target], frame[peer], op.name, loc)
        valid = None if limit is None else limit(frame)
        window = window_at(there, offsets(frame), tuple(shape(frame)), valid, False, loc)
        state.observe("read", window, op)
        frame[result] = load_window(symmetric(window).local_copy(window))

    return run


@routine("tile.remote_store", "tensor.remote_store")
def lower_remote_store(low: Lowering, op: Op) -> Routine:
    state, loc, args = rank_state(low), op.loc, op.args
    source, target = low.slot(args["src"]), low.slot(args["target"])
    peer, offsets = low.slot(args["peer"]), _list(low, args["offsets"])
    atomic = args["atomic"] is AtomicType.Add
    result = low.result(op)

    def run(frame: Frame) -> Suspension:
        yield Request(op.name, loc)
        there = at_peer(frame[target], frame[peer], op.name, loc)
        tile = frame[source]
        window = stored_window(there, tile.valid, offsets(frame), loc)
        if 0 not in window.shape:
            state.observe("add" if atomic else "push", window, op)
            state.push(window, tile.data[box(tile.valid)], atomic)
        frame[result] = frame[target]

    return run


@routine("tensor.put", "tensor.get")
def lower_transfer(low: Lowering, op: Op) -> Routine:
    state, loc, args = rank_state(low), op.loc, op.args
    dst, src, peer = low.slot(args["dst"]), low.slot(args["src"]), low.slot(args["peer"])
    is_put = op.name == "pld.tensor.put"
    has_region = args["shape"] is not None
    to, taken, shape = (
        _list(low, args[name]) if has_region else _no_offsets
        for name in ("dst_offsets", "src_offsets", "shape")
    )
    atomic = is_put and args["atomic"] is AtomicType.Add
    result = low.result(op)

    def run(frame: Frame) -> Suspension:
        yield Request(op.name, loc)
        into, source = frame[dst], frame[src]
        if is_put:
            into = at_peer(into, frame[peer], op.name, loc)
        else:
            source = at_peer(source, frame[peer], op.name, loc)
        size = shape(frame)
        frame[result] = frame[dst]
        if size is not None and 0 in size:
            return
        source = part_of(source, taken(frame), size, loc)
        into = part_of(into, to(frame), size, loc)
        state.observe("read", source, op)
        state.observe("add" if atomic else "write", into, op)
        # Source and destination may overlap: read the whole source first.
        store(into, read_copy(source), atomic)

    return run


# --- signals -------------------------------------------------------------------------------------


def signal(state: RankState, cell: Window, value: int, kind: NotifyOp, op: Op) -> None:
    """Add to or set a cell, as `notify` does."""
    state.observe("notify" if kind is NotifyOp.AtomicAdd else "set", cell, op, value)
    state.world.sent.note(state.rank, op, cell, value, kind)
    symmetric(cell).signal(cell, value, kind)


@routine("system.notify")
def lower_notify(low: Lowering, op: Op) -> Routine:
    state, loc, args = rank_state(low), op.loc, op.args
    target, peer = low.slot(args["target"]), low.slot(args["peer"])
    value, offsets = low.slot(args["value"]), _list(low, args["offsets"])
    kind = args["op"]
    assert isinstance(kind, NotifyOp)
    result = low.result(op)

    def run(frame: Frame) -> Suspension:
        yield Request(op.name, loc)
        there = at_peer(frame[target], frame[peer], op.name, loc)
        signal(state, cell_of(there, offsets(frame), loc), int(frame[value]), kind, op)
        frame[result] = frame[target]

    return run


def condition_of(low: Lowering, op: Op) -> Callable[[Frame], Condition]:
    """Return the condition of a `wait` or `defer_wait`."""
    args, loc = op.args, op.loc
    window, offsets = low.slot(args["signal"]), _list(low, args["offsets"])
    expected, cmp = low.slot(args["expected"]), low.slot(args["cmp"])

    def condition(frame: Frame) -> Condition:
        signal: Window = frame[window]
        cell = cell_of(signal, offsets(frame), loc)
        return Condition(cell, int(frame[expected]), frame[cmp], signal)

    return condition


@routine("system.wait")
def lower_wait(low: Lowering, op: Op) -> Routine:
    state, condition = rank_state(low), condition_of(low, op)

    def run(frame: Frame) -> Suspension:
        wanted = condition(frame)
        yield Request(op.name, op.loc, (wanted,))
        state.waited(wanted, op)

    return run


@routine("system.defer_wait")
def lower_defer_wait(low: Lowering, op: Op) -> Routine:
    state, condition = rank_state(low), condition_of(low, op)

    def run(frame: Frame) -> Suspension:
        deferred = state.strand.task.deferred
        deferred.append((condition(frame), op))
        if len(deferred) > MAX_CONDITIONS:
            raise BadDeferredWait(op.loc, f"a task has more than {MAX_CONDITIONS} conditions")
        return
        yield

    return run
