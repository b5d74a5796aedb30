"""Small programs of several ranks that several tests use."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig

SIZE = 64


def world(ranks: int) -> RunConfig:
    return RunConfig(distributed_config=DistributedConfig(device_ids=list(range(ranks))))


@pl.jit.incore
def push_step(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    inbox: pld.DistributedTensor[[1, SIZE], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    ctx = pld.get_comm_ctx(inbox)
    peer = (pld.rank(ctx) + 1) % pld.nranks(ctx)
    pld.tensor.put(inbox, peer=peer, src=x)
    pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    pld.system.wait(arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    y = pl.store(pl.load(inbox, [0, 0], [1, SIZE]), [0, 0], y)
    return y


@pl.jit
def push(
    x: pl.Tensor[[1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]],
    inbox: pld.DistributedTensor[[1, SIZE], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    return push_step(x, y, inbox, arrived)


RANKS = pl.dynamic("RANKS")


@pl.jit.host
def ring(
    x: pl.Tensor[[RANKS, 1, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[RANKS, 1, SIZE], pl.FP32]],
):
    inbox_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [1, SIZE], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [1, 1], dtype=pl.INT32)
        push(x[r], y[r], inbox, arrived, device=r)


def rows(ranks: int, size: int = SIZE) -> np.ndarray[Any, Any]:
    return np.random.default_rng(ranks).normal(size=(ranks, 1, size)).astype(np.float32)
