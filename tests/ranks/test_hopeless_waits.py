"""Waits that no statement can satisfy: found before anything runs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.ranks import RanksDeadlock

ADD, GE = pld.NotifyOp.AtomicAdd, pld.WaitCmp.Ge


def host_of(expected: int, notifies: bool, guarded: bool):
    """A kernel that announces its start, and waits for a cell, which perhaps is notified."""
    Row = pl.Tensor[[1, 64], pl.FP32]
    Cell = pld.DistributedTensor[[1, 16], pl.INT32]

    @pl.jit.incore
    def step(x: Row, y: pl.Out[Row], cell: Cell, n: pl.Scalar[pl.INT32]):
        if notifies:
            pld.system.notify(cell, peer=0, offsets=[0, 0], value=1, op=ADD)
        if guarded:
            if n > 0:
                pld.system.wait(cell, offsets=[0, 0], expected=expected, cmp=GE)
        else:
            pld.system.wait(cell, offsets=[0, 0], expected=expected, cmp=GE)
        y = pl.store(pl.load(x, [0, 0], [1, 64]), [0, 0], y)
        return y

    @pl.jit
    def control(x: Row, y: pl.Out[Row], cell: Cell, n: pl.Scalar[pl.INT32]):
        for _ in pl.range(2):
            y = step(x, y, cell, n)
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[1, 1, 64], pl.FP32], y: pl.Out[pl.Tensor[[1, 1, 64], pl.FP32]]):
        cell_buf = pld.alloc_window_buffer([1, 16], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            cell = pld.window(cell_buf, [1, 16], dtype=pl.INT32)
            control(x[r], y[r], cell, 0, device=r)

    return host


def run(host) -> np.ndarray:
    x = np.ones((1, 1, 64), np.float32)
    y = np.zeros_like(x)
    host(x, y, config=world(1))
    return y


def test_nobody_notifies() -> None:
    with pytest.raises(RanksDeadlock) as caught:
        run(host_of(1, notifies=False, guarded=False))
    (label,) = caught.value.diagnostic.labels
    assert label.text == "waits for 1, and no statement notifies `cell_buf`"


@pytest.mark.parametrize(
    ("expected", "notifies", "guarded"), [(0, False, False), (1, True, False), (1, False, True)]
)
def test_waits_that_end_or_are_not_reached(expected: int, notifies: bool, guarded: bool) -> None:
    assert run(host_of(expected, notifies, guarded)).all()
