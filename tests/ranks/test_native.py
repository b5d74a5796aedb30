"""Kernels that do not communicate run natively, with the interpreter's results."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks import native, native_calls, regions
from tilelet.runtime import RunConfig

N = 32


@pl.jit
def product(
    x: pl.Tensor[[N, N], pl.FP32],
    w: pl.Tensor[[N, N], pl.FP32],
    y: pl.Out[pl.Tensor[[N, N], pl.FP32]],
    inbox: pld.DistributedTensor[[N, N], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        ctx = pld.get_comm_ctx(inbox)
        peer = (pld.rank(ctx) + 1) % pld.nranks(ctx)
        pld.tensor.put(inbox, peer=peer, src=x)
        pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    for i in pl.spmd(2):
        y[i * 16 : i * 16 + 16, :] = pl.matmul(inbox[i * 16 : i * 16 + 16, :], w)
    with pl.at(level=pl.Level.CORE_GROUP):
        y[0:16, :] = pl.add(y[0:16, :], y[16:32, :])
    return y


def on_every_rank(kernel, dtype):
    """Return the host function that calls `kernel` on every rank, with its own part of x and y."""

    @pl.jit.host
    def dispatch(
        x: pl.Tensor[[2, N, N], dtype],
        w: pl.Tensor[[N, N], dtype],
        y: pl.Out[pl.Tensor[[2, N, N], pl.FP32]],
    ):
        inbox_buf = pld.alloc_window_buffer([N, N], dtype=pl.FP32)
        arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            inbox = pld.window(inbox_buf, [N, N], dtype=pl.FP32)
            arrived = pld.window(arrived_buf, [1, 1], dtype=pl.INT32)
            kernel(x[r], w, y[r], inbox, arrived, device=r)

    return dispatch


def test_native_kernels_give_what_the_interpreter_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = native.NativeKernels.run

    def noted(self: native.NativeKernels, name: str, values, blocks) -> bool:
        done = run(self, name, values, blocks)
        ran.extend([name] if done else [])
        return done

    monkeypatch.setattr(native_calls, "MAX_INTERPRETED", 0)
    monkeypatch.setattr(native.NativeKernels, "run", noted)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((2, N, N), np.float32)
    w = draw.standard_normal((N, N), np.float32)
    config = world(2).distributed_config
    got, expected = np.zeros_like(x), np.zeros_like(x)
    products = on_every_rank(product, pl.FP32)
    products(x, w, got, config=RunConfig(distributed_config=config))
    assert len(ran) == 4
    products(x, w, expected, config=RunConfig(engine="interp", distributed_config=config))
    assert len(ran) == 4
    assert np.array_equal(got, expected)


@pl.jit
def fused(
    x: pl.Tensor[[N, N], pl.BF16],
    w: pl.Tensor[[N, N], pl.BF16],
    y: pl.Out[pl.Tensor[[N, N], pl.FP32]],
    inbox: pld.DistributedTensor[[N, N], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        ctx = pld.get_comm_ctx(inbox)
        peer = (pld.rank(ctx) + 1) % pld.nranks(ctx)
        total = pl.matmul(x[:, 0:16], w[:, 0:16], b_trans=True, out_dtype=pl.FP32)
        total = pl.matmul_acc(total, x[:, 16:32], w[:, 16:32], b_trans=True)
        pld.tensor.remote_store(total, inbox, peer=peer, offsets=[0, 0])
        pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=pl.Level.CORE_GROUP):
        pld.system.wait(arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        y[:] = inbox[:]
    return y


@pytest.mark.parametrize("interpreted", [0, 1 << 60, N * N * N])
def test_parts_of_kernels_that_communicate(
    monkeypatch: pytest.MonkeyPatch, interpreted: int
) -> None:
    made: list[list[str]] = []
    outline = regions.outline

    def noted(ops, uses):
        made.append([op.name for op in ops])
        return outline(ops, uses)

    monkeypatch.setattr(native_calls, "MAX_INTERPRETED", interpreted)
    monkeypatch.setattr(regions, "outline", noted)
    draw = np.random.default_rng(1)
    x = draw.standard_normal((2, N, N)).astype(pl.BF16.numpy)
    w = draw.standard_normal((N, N)).astype(pl.BF16.numpy)
    config = world(2).distributed_config
    got, expected = np.zeros((2, 2, N, N), np.float32)
    fused_products = on_every_rank(fused, pl.BF16)
    fused_products(x, w, got, config=RunConfig(distributed_config=config))
    if interpreted == 0:
        assert [ops.count("matmul") + ops.count("matmul_acc") for ops in made] == [2, 0]
    fused_products(x, w, expected, config=RunConfig(engine="interp", distributed_config=config))
    assert np.array_equal(got, expected)
    assert expected.any()
