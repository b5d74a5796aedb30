"""Partial-order reduction finds what trying every interleaving finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.ranks.defects import ADD, DEFECTS, GE, Defect, S
from tests.ranks.test_defects import explorer

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.explore import Explorer
from tilelet.ranks.rank import Strand

MOST = 3000


class Scripted:
    """Takes given branches, then the first of each; steps without accesses are no choice."""

    def __init__(self, taken: Sequence[int]) -> None:
        self.taken = list(taken)
        self.widths: list[int] = []

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        del last
        for strand in ready:
            if strand.request is None:
                return strand
        at = len(self.widths)
        self.widths.append(len(ready))
        if at == len(self.taken):
            self.taken.append(0)
        return ready[self.taken[at]]


def places(found: Sequence[Any]) -> set[tuple[Any, ...]]:
    return {(d.code, *sorted({label.loc.line for label in d.labels})) for d in found}


def by_brute_force(defect: Defect) -> set[tuple[Any, ...]]:
    seen: set[tuple[Any, ...]] = set()
    taken: list[int] = []
    for _ in range(MOST):
        policy = Scripted(taken)
        found, _, _ = explorer(defect).run(policy)
        seen |= places([e.diagnostic for e in found])
        taken = policy.taken[: len(policy.widths)]
        while taken and taken[-1] + 1 == policy.widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return seen
        taken[-1] += 1
    pytest.fail("too many interleavings")


def first_of_two(mended: bool) -> Defect:
    """Rank 0 continues after one of two signals, and reads what only one of them announces."""
    needed = 2 if mended else 1

    @pl.jit.incore
    def step(
        x: pl.Tensor[[1, S], pl.FP32],
        y: pl.Out[pl.Tensor[[1, S], pl.FP32]],
        w: pld.DistributedTensor[[1, S], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        me = pld.rank(pld.get_comm_ctx(w))
        if me == 1:
            pld.tensor.put(w, peer=0, src=x)
        if me > 0:
            pld.system.notify(s, peer=0, offsets=[0, 0], value=1, op=ADD)
            y = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], y)
        else:
            pld.system.wait(s, offsets=[0, 0], expected=needed, cmp=GE)
            y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def chip(
        x: pl.Tensor[[1, S], pl.FP32],
        y: pl.Out[pl.Tensor[[1, S], pl.FP32]],
        w: pld.DistributedTensor[[1, S], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        return step(x, y, w, s)

    @pl.jit.host
    def host(x: pl.Tensor[[3, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[3, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    x = np.ones((3, 1, S), np.float32)
    return Defect(host, {"x": x, "y": np.zeros_like(x)}, 3, "E1711", "")


PROGRAMS = {
    **{name: DEFECTS[name] for name in ("D1", "D3", "D5", "D6", "D10", "D12")},
    "first of two": first_of_two,
}


# The corrected D5 has 184756 interleavings.
CASES = [(n, m) for n in PROGRAMS for m in (False, True) if (n, m) != ("D5", True)]


@pytest.mark.parametrize(("name", "mended"), CASES)
def test_reduction_loses_nothing(name: str, mended: bool) -> None:
    defect = PROGRAMS[name](mended)
    result = explorer(defect).explore()
    assert result.complete
    assert places([d for d, _ in result.findings]) == by_brute_force(defect)


def test_sixteen_ranks_of_an_exchange_are_covered() -> None:
    ranks = 16
    table = pl.Tensor[[ranks, S], pl.FP32]
    window = pld.DistributedTensor[[ranks, S], pl.FP32]
    signal = pld.DistributedTensor[[ranks, 16], pl.INT32]

    @pl.jit
    def chip(x: table, y: pl.Out[table], inbox: window, outbox: window, sent: signal, done: signal):
        me = pld.rank(pld.get_comm_ctx(inbox))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="send"):
            for e in pl.range(ranks):
                pld.tensor.put(
                    inbox, peer=e, src=x, dst_offsets=[me, 0], src_offsets=[e, 0], shape=[1, S]
                )
                pld.system.notify(sent, peer=e, offsets=[me, 0], value=1, op=ADD)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="experts"):
            for s in pl.range(ranks):
                pld.system.wait(sent, offsets=[s, 0], expected=1, cmp=GE)
                tile = pl.mul(pl.load(inbox, [s, 0], [1, S]), 2.0)
                pld.tile.remote_store(tile, outbox, peer=s, offsets=[me, 0])
                pld.system.notify(done, peer=s, offsets=[me, 0], value=1, op=ADD)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="combine"):
            for s in pl.range(ranks):
                pld.system.wait(done, offsets=[s, 0], expected=1, cmp=GE)
            y = pl.store(pl.load(outbox, [0, 0], [ranks, S]), [0, 0], y)
        return y

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, ranks, S], pl.FP32], y: pl.Out[pl.Tensor[[ranks, ranks, S], pl.FP32]]
    ):
        inbox_buf = pld.alloc_window_buffer([ranks, S], dtype=pl.FP32)
        outbox_buf = pld.alloc_window_buffer([ranks, S], dtype=pl.FP32)
        sent_buf = pld.alloc_window_buffer([ranks, 16], dtype=pl.INT32)
        done_buf = pld.alloc_window_buffer([ranks, 16], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            inbox = pld.window(inbox_buf, [ranks, S], dtype=pl.FP32)
            outbox = pld.window(outbox_buf, [ranks, S], dtype=pl.FP32)
            sent = pld.window(sent_buf, [ranks, 16], dtype=pl.INT32)
            done = pld.window(done_buf, [ranks, 16], dtype=pl.INT32)
            chip(x[r], y[r], inbox, outbox, sent, done, device=r)

    x = np.ones((ranks, ranks, S), np.float32)
    config = DistributedConfig(device_ids=list(range(ranks)))
    found = Explorer("exchange", host.lower(), {"x": x, "y": np.zeros_like(x)}, config).explore()
    assert found.ok
    assert found.complete


def test_long_executions_get_seeded_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilelet.ranks.explore.MAX_TRACE", 3)
    found = explorer(DEFECTS["D5"](False)).explore()
    assert not found.complete
    assert found.tried > 1
    assert {d.code for d, _ in found.findings} == {"E1711"}
