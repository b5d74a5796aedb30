"""A deadlock names the statements that would signal this very cell, and why they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.ranks import RanksDeadlock

ADD, SET = pld.NotifyOp.AtomicAdd, pld.NotifyOp.Set
GE, EQ = pld.WaitCmp.Ge, pld.WaitCmp.Eq
P, S = 3, 32
ROW = pl.Tensor[[1, S], pl.FP32]
CELLS = pld.DistributedTensor[[P, 16], pl.INT32]


def notes_of(chip: Any) -> list[str]:
    """Run a control program on three ranks; return the notes of its deadlock, if it has one."""

    @pl.jit.host
    def host(x: pl.Tensor[[P, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[P, 1, S], pl.FP32]]):
        s_buf = pld.alloc_window_buffer([P, 16], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            s = pld.window(s_buf, [P, 16], dtype=pl.INT32)
            chip(x[r], y[r], s, r, device=r)

    x = np.arange(P * S, dtype=np.float32).reshape(P, 1, S)
    try:
        host(x, np.zeros_like(x), config=world(P))
    except RanksDeadlock as error:
        return list(error.diagnostic.notes)
    return []


def ring_receives_first(is_wrong: bool) -> Any:
    first = -1 if is_wrong else 0

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: CELLS, me: pl.Scalar[pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="hop"):
            if me != first:
                pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
            pld.system.notify(s, peer=(me + 1) % P, offsets=[0, 0], value=1, op=ADD)
            if me == first:
                pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
            y[:] = pl.mul(x, 1.0)
        return y

    return chip


def other_cell(is_wrong: bool) -> Any:
    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: CELLS, me: pl.Scalar[pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="meet"):
            for p in pl.range(P):
                if is_wrong:
                    pld.system.notify(s, peer=p, offsets=[p, 0], value=1, op=ADD)
                else:
                    pld.system.notify(s, peer=p, offsets=[me, 0], value=1, op=ADD)
            for q in pl.range(P):
                pld.system.wait(s, offsets=[q, 0], expected=1, cmp=GE)
            y[:] = pl.mul(x, 1.0)
        return y

    return chip


def goes_past(is_wrong: bool) -> Any:
    cmp = EQ if is_wrong else GE

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: CELLS, me: pl.Scalar[pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="arrive"):
            if me > 0:
                pld.system.notify(s, peer=0, offsets=[1, 2], value=2, op=ADD)
            else:
                pld.system.wait(s, offsets=[1, 2], expected=1, cmp=cmp)
            y[:] = pl.mul(x, 1.0)
        return y

    return chip


def published_zero(is_wrong: bool) -> Any:
    more = 0 if is_wrong else 1

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: CELLS, me: pl.Scalar[pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="count"):
            count = pl.cast(pl.read(x, [0, 0]), pl.INT32)
            peer = (me + 1) % P
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=count + more, op=SET)
            pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
            y[:] = pl.mul(x, 1.0)
        return y

    return chip


def skips_without_data(is_wrong: bool) -> Any:
    least = 1 if is_wrong else 0

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: CELLS, me: pl.Scalar[pl.INT32]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="meet"):
            count = pl.cast(pl.read(x, [0, 0]), pl.INT32)
            if count >= least:
                for p in pl.range(P):
                    pld.system.notify(s, peer=p, offsets=[me, 0], value=1, op=ADD)
            for q in pl.range(P):
                pld.system.wait(s, offsets=[q, 0], expected=1, cmp=GE)
            y[:] = pl.mul(x, 1.0)
        return y

    return chip


SAYS = {
    ring_receives_first: [
        "cycle: rank 0 waits for rank 2, rank 2 waits for rank 1, rank 1 waits for rank 0",
        "rank 2, `hop` would notify at line",
        "rank 0, `hop` would notify at line",
        "rank 1, `hop` would notify at line",
    ],
    other_cell: [
        "no rank notifies cell [1, 0] of `s_buf` on rank 0: the notify at line",
        "no rank notifies cell [0, 0] of `s_buf` on rank 1: the notify at line",
        "no rank notifies cell [0, 0] of `s_buf` on rank 2: the notify at line",
    ],
    goes_past: [
        "cell [1, 2] of `s_buf` on rank 0 has gone past 1, and `Eq` takes no other value",
        "ranks 1, 2 have each added 2 to cell [1, 2] of `s_buf` on rank 0, at line",
    ],
    published_zero: ["rank 0 has set cell [0, 0] of `s_buf` on rank 1 to 0, at line"],
    skips_without_data: ["rank 0, `meet` has not run its notify at line"],
}


@pytest.mark.parametrize("program", SAYS, ids=lambda p: p.__name__)
def test_the_cause_is_named_and_nothing_else(program: Callable[[bool], Any]) -> None:
    notes = notes_of(program(True))
    assert len(notes) == len(SAYS[program])
    for note, start in zip(notes, SAYS[program]):
        assert note.startswith(start)
    assert notes_of(program(False)) == []
