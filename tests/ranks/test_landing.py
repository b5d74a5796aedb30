"""Remote stores that land late: after their strand continues, and before its next signal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.ranks.programs import rows, world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.explore import Late, policy_of_seed
from tilelet.ranks.host import plan_of
from tilelet.ranks.rank import Strand
from tilelet.ranks.scheduler import InOrder, World
from tilelet.runtime.programs import jit_call
from tilelet.tasks.arguments import bind_arguments

ROW = pl.Tensor[[1, 64], pl.FP32]


@pl.jit.incore
def step(
    x: ROW,
    y: pl.Out[ROW],
    inbox: pld.DistributedTensor[[1, 64], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    ctx = pld.get_comm_ctx(inbox)
    peer = (pld.rank(ctx) + 1) % pld.nranks(ctx)
    pld.tile.remote_store(pl.load(x, [0, 0], [1, 64]), inbox, peer=peer, offsets=[0, 0])
    pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    pld.system.wait(arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    return pl.store(pl.load(inbox, [0, 0], [1, 64]), [0, 0], y)


@pl.jit
def one(
    x: ROW,
    y: pl.Out[ROW],
    inbox: pld.DistributedTensor[[1, 64], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    return step(x, y, inbox, arrived)


@pl.jit.host
def push(x: pl.Tensor[[2, 1, 64], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 64], pl.FP32]]):
    inbox_buf = pld.alloc_window_buffer([1, 64], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [1, 64], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [1, 1], dtype=pl.INT32)
        one(x[r], y[r], inbox, arrived, device=r)


class Looking(InOrder):
    """Record after which requests of the sender the inbox of rank 1 is full."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.full: dict[str, bool] = {}

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        assert self.world is not None
        inbox = self.world.plan.allocations[0].slices[1].data
        assert inbox is not None
        for strand in self.world.strands:
            if strand.rank == 0 and strand.request is not None and strand.name == "step":
                self.full[strand.request.op] = bool(inbox.any())
        return super().choose(ready, last)


@pytest.mark.parametrize("lands_late", [False, True])
def test_when_a_store_lands(lands_late: bool) -> None:
    x = rows(2) + 1
    y = np.zeros_like(x)
    program = jit_call.compile(push, (x, y), world(2)).program
    plan = plan_of(program, bind_arguments(program, {"x": x, "y": y}, execute=True), 2)
    policy = Looking()
    policy.world = World(program, plan, policy, lands_late=lands_late)
    policy.world.run()
    assert policy.full["pld.tile.remote_store"] is False
    assert policy.full["pld.system.notify"] is not lands_late
    assert policy.full["pld.system.wait"] is True
    assert np.array_equal(y, np.roll(x, 1, axis=0))


def test_a_quarter_of_the_seeds_lands_late() -> None:
    late = [seed for seed in range(12) if isinstance(policy_of_seed(seed)[1], Late)]
    assert late == [2, 6, 10]
