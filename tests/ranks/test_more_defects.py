"""Defects of other shapes: trees, blocks in waves, options of collectives, windows that persist."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.ranks import BadCollective, RanksDeadlock
from tilelet.ranks.explore import Explorer
from tilelet.ranks.schedules import Schedules

S = 32
ADD = pld.NotifyOp.AtomicAdd
GE = pld.WaitCmp.Ge
ROW = pl.Tensor[[1, S], pl.FP32]
WINDOW = pld.DistributedTensor[[1, S], pl.FP32]


def dispatching(chip, ranks: int, cells: int):
    """Return a host that dispatches a control program of a row, a window and cells to all ranks."""

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, 1, S], pl.FP32],
        y: pl.Out[pl.Tensor[[ranks, 1, S], pl.FP32]],
        epoch: pl.Scalar[pl.INT32],
    ):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer([cells, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [cells, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, r, epoch, device=r)

    return host


def row(ranks: int) -> np.ndarray:
    return np.arange(ranks * S, dtype=np.float32).reshape(ranks, 1, S)


@pytest.mark.parametrize("skips", [True, False])
def test_a_rank_that_skips_its_notify_is_named(skips: bool) -> None:
    cells = pld.DistributedTensor[[4, 1], pl.INT32]

    @pl.jit
    def chip(
        x: ROW,
        y: pl.Out[ROW],
        w: WINDOW,
        s: cells,
        me: pl.Scalar[pl.INT32],
        epoch: pl.Scalar[pl.INT32],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="meet"):
            if me != 2 or not skips:
                for p in pl.range(4):
                    pld.system.notify(s, peer=p, offsets=[me, 0], value=epoch, op=ADD)
            for p in pl.range(4):
                pld.system.wait(s, offsets=[p, 0], expected=1, cmp=GE)
            w[:] = pl.mul(x, 1.0)
            y[:] = pl.mul(x, 1.0)
        return y

    x = row(4)
    host = dispatching(chip, 4, 4)
    if not skips:
        host(x, np.zeros_like(x), 1, config=world(4))
        return
    with pytest.raises(RanksDeadlock) as caught:
        host(x, np.zeros_like(x), 1, config=world(4))
    notes = caught.value.diagnostic.notes
    assert notes[0].startswith("rank 2, `meet` skips its notify")
    assert not any(n.startswith(("rank 0, `meet`", "rank 1, `meet`")) for n in notes)


@pytest.mark.parametrize("reversed_", [True, False])
def test_blocks_start_as_cores_become_free(reversed_: bool) -> None:
    """Block b waits for the signal of block 127 - b, which needs the core that b holds."""
    cells = pld.DistributedTensor[[128, 1], pl.INT32]

    @pl.jit
    def chip(
        x: ROW,
        y: pl.Out[ROW],
        w: WINDOW,
        s: cells,
        me: pl.Scalar[pl.INT32],
        epoch: pl.Scalar[pl.INT32],
    ):
        for b in pl.spmd(128, name_hint="handshake"):
            pld.system.notify(s, peer=1 - me, offsets=[b, 0], value=epoch, op=ADD)
            at = 127 - b if reversed_ else b
            pld.system.wait(s, offsets=[at, 0], expected=1, cmp=GE)
        with pl.at(level=pl.Level.CORE_GROUP):
            w[:] = pl.mul(x, 1.0)
            y[:] = pl.mul(x, 2.0)
        return y

    x = row(2)
    y = np.zeros_like(x)
    host = dispatching(chip, 2, 128)
    if not reversed_:
        host(x, y, 1, config=world(2))
        assert np.array_equal(y, 2 * x)
        return
    with pytest.raises(RanksDeadlock) as caught:
        host(x, y, 1, config=world(2))
    notes = caught.value.diagnostic.notes
    (note,) = [n for n in notes if n.startswith("rank 0, `handshake` blocks 48 to 127 would")]
    assert "every core is held by `handshake`" in note


@pytest.mark.parametrize("differs", ["op", "order", ""])
def test_ranks_that_call_other_collectives(differs: str) -> None:
    cells = pld.DistributedTensor[[2, 1], pl.INT32]

    @pl.jit.incore
    def step(x: ROW, y: pl.Out[ROW], w: WINDOW, s: cells, me: pl.Scalar[pl.INT32]):
        w = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], w)
        if me == 0:
            w = pld.tensor.allreduce(w, s, op=pld.ReduceOp.Sum)
            s = pld.tensor.barrier(s)
        else:
            if differs == "order":
                s = pld.tensor.barrier(s)
                w = pld.tensor.allreduce(w, s, op=pld.ReduceOp.Sum)
            elif differs == "op":
                w = pld.tensor.allreduce(w, s, op=pld.ReduceOp.Max)
                s = pld.tensor.barrier(s)
            else:
                w = pld.tensor.allreduce(w, s, op=pld.ReduceOp.Sum)
                s = pld.tensor.barrier(s)
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def chip(
        x: ROW,
        y: pl.Out[ROW],
        w: WINDOW,
        s: cells,
        me: pl.Scalar[pl.INT32],
        epoch: pl.Scalar[pl.INT32],
    ):
        return step(x, y, w, s, me)

    x = row(2)
    y = np.zeros_like(x)
    host = dispatching(chip, 2, 2)
    if not differs:
        host(x, y, 1, config=world(2))
        assert np.array_equal(y, np.broadcast_to(x.sum(axis=0), y.shape))
        return
    with pytest.raises(BadCollective, match="call 1 with this signal is") as caught:
        host(x, y, 1, config=world(2))
    assert len({label.loc.line for label in caught.value.diagnostic.labels}) == 2


@pytest.mark.parametrize(("epochs", "is_found"), [((1, 2), False), ((1, 1), True)])
def test_windows_that_persist_are_explored_as_the_last_run_left_them(
    epochs: tuple[int, int], is_found: bool
) -> None:
    cells = pld.DistributedTensor[[1, 1], pl.INT32]

    @pl.jit
    def chip(
        x: ROW,
        y: pl.Out[ROW],
        w: WINDOW,
        s: cells,
        me: pl.Scalar[pl.INT32],
        epoch: pl.Scalar[pl.INT32],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="swap"):
            pld.tensor.put(w, peer=1 - me, src=x)
            pld.system.notify(s, peer=1 - me, offsets=[0, 0], value=1, op=ADD)
            pld.system.wait(s, offsets=[0, 0], expected=epoch, cmp=GE)
            y[:] = pl.mul(w, 1.0)
        return y

    x = row(2)
    y = np.zeros_like(x)
    compiled = dispatching(chip, 2, 1).compile(x, y, 1, config=world(2))
    found: list[Schedules] = []
    with compiled.prepare(persistent=True, reset_persistent_windows=False) as worker:
        for epoch in epochs:
            explorer = Explorer(
                "swap",
                compiled.program,
                {"x": x, "y": y, "epoch": epoch},
                world(2).distributed_config,
                kept=worker.kept_windows,
            )
            found.append(explorer.explore())
            worker(x, y, epoch)
    assert [bool(s.findings) for s in found] == [False, is_found]
