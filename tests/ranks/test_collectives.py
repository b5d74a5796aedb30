"""Collectives in kernels and in host functions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld

S = 16


def data(ranks: int, rows: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).integers(1, 5, (ranks, rows, S)).astype(dtype)


REDUCED = {
    pld.ReduceOp.Sum: lambda x: x.sum(axis=0, keepdims=True),
    pld.ReduceOp.Max: lambda x: x.max(axis=0, keepdims=True),
    pld.ReduceOp.Min: lambda x: x.min(axis=0, keepdims=True),
    pld.ReduceOp.Prod: lambda x: x.prod(axis=0, keepdims=True),
}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("op", list(REDUCED))
def test_allreduce_in_a_kernel(ranks: int, op: pld.ReduceOp) -> None:
    row = pl.Tensor[[1, S], pl.FP32]
    window = pld.DistributedTensor[[1, S], pl.FP32]
    signal = pld.DistributedTensor[[ranks, 1], pl.INT32]

    @pl.jit.incore
    def step(x: row, y: pl.Out[row], w: window, s: signal):
        for _ in pl.range(2):  # the signal is zero again after each call
            w = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], w)
            w = pld.tensor.allreduce(w, s, op=op)
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def chip(x: row, y: pl.Out[row], w: window, s: signal):
        return step(x, y, w, s)

    @pl.jit.host
    def host(x: pl.Tensor[[ranks, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[ranks, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [ranks, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    x = data(ranks, 1)
    y = np.zeros_like(x)
    host(x, y, config=world(ranks))
    assert np.array_equal(y, np.broadcast_to(REDUCED[op](x), y.shape))


@pytest.mark.parametrize("ranks", [2, 4])
def test_exchanges_in_a_kernel(ranks: int) -> None:
    """all_to_all on the result of allgather, which reduce_scatter then sums."""
    row = pl.Tensor[[1, S], pl.FP32]
    table = pl.Tensor[[ranks, S], pl.FP32]
    window = pld.DistributedTensor[[ranks, S], pl.FP32]
    signal = pld.DistributedTensor[[ranks, 1], pl.INT32]

    @pl.jit.incore
    def step(x: row, y: pl.Out[table], z: pl.Out[table], g: window, e: window, s: signal):
        g = pld.tensor.allgather(x, g, s)
        e = pld.tensor.all_to_all(g, e, s)
        y = pl.store(pl.load(e, [0, 0], [ranks, S]), [0, 0], y)
        g = pld.tensor.reduce_scatter(g, s)
        z = pl.store(pl.load(g, [0, 0], [ranks, S]), [0, 0], z)
        return y, z

    @pl.jit
    def chip(x: row, y: pl.Out[table], z: pl.Out[table], g: window, e: window, s: signal):
        return step(x, y, z, g, e, s)

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, 1, S], pl.FP32],
        y: pl.Out[pl.Tensor[[ranks, ranks, S], pl.FP32]],
        z: pl.Out[pl.Tensor[[ranks, ranks, S], pl.FP32]],
    ):
        g_buf = pld.alloc_window_buffer([ranks, S], dtype=pl.FP32)
        e_buf = pld.alloc_window_buffer([ranks, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            g = pld.window(g_buf, [ranks, S], dtype=pl.FP32)
            e = pld.window(e_buf, [ranks, S], dtype=pl.FP32)
            s = pld.window(s_buf, [ranks, 1], dtype=pl.INT32)
            chip(x[r], y[r], z[r], g, e, s, device=r)

    x = data(ranks, 1)
    y, z = np.zeros((ranks, ranks, S), np.float32), np.zeros((ranks, ranks, S), np.float32)
    host(x, y, z, config=world(ranks))
    for r in range(ranks):
        assert np.array_equal(y[r], np.broadcast_to(x[r], (ranks, S)))
        assert np.array_equal(z[r, r], ranks * x[r, 0])
        assert np.isnan(np.delete(z[r], r, axis=0)).all()  # undefined


@pytest.mark.parametrize("ranks", [2, 3])
def test_counts_of_all_to_all_v(ranks: int) -> None:
    """Whole blocks move; the counts say how many rows of each are meaningful."""
    block = 2
    rows = ranks * block
    table = pl.Tensor[[rows, S], pl.FP32]
    window = pld.DistributedTensor[[rows, S], pl.FP32]
    signal = pld.DistributedTensor[[ranks, 1], pl.INT32]
    counts = pl.Tensor[[ranks, 1], pl.INT32]

    @pl.jit.incore
    def step(
        x: table, n: counts, y: pl.Out[table], m: pl.Out[counts], w: window, s: signal, c: signal
    ):
        w = pld.tensor.all_to_all_v(x, w, s, n, c)
        y = pl.store(pl.load(w, [0, 0], [rows, S]), [0, 0], y)
        for i in pl.range(ranks):
            pl.write(m, [i, 0], pl.read(c, [i, 0]))
        return y, m

    @pl.jit
    def chip(
        x: table, n: counts, y: pl.Out[table], m: pl.Out[counts], w: window, s: signal, c: signal
    ):
        return step(x, n, y, m, w, s, c)

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, rows, S], pl.FP32],
        n: pl.Tensor[[ranks, ranks, 1], pl.INT32],
        y: pl.Out[pl.Tensor[[ranks, rows, S], pl.FP32]],
        m: pl.Out[pl.Tensor[[ranks, ranks, 1], pl.INT32]],
    ):
        w_buf = pld.alloc_window_buffer([rows, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        c_buf = pld.alloc_window_buffer([ranks, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [rows, S], dtype=pl.FP32)
            s = pld.window(s_buf, [ranks, 1], dtype=pl.INT32)
            c = pld.window(c_buf, [ranks, 1], dtype=pl.INT32)
            chip(x[r], n[r], y[r], m[r], w, s, c, device=r)

    x = data(ranks, rows)
    n = np.arange(ranks * ranks, dtype=np.int32).reshape(ranks, ranks, 1)
    y, m = np.zeros_like(x), np.zeros_like(n)
    host(x, n, y, m, config=world(ranks))
    blocks = x.reshape(ranks, ranks, block, S)
    arrived = np.minimum(n[:, :, 0].T, block)
    assert np.array_equal(m[:, :, 0], arrived)
    beyond = np.arange(block) >= arrived[:, :, None]
    wanted = np.where(beyond[..., None], np.nan, blocks.transpose(1, 0, 2, 3))
    assert beyond.any()
    assert np.array_equal(y.reshape(blocks.shape), wanted, equal_nan=True)


@pytest.mark.parametrize("mode", ["mesh", "ring"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_of_the_host(ranks: int, mode: str) -> None:
    row = pl.Tensor[[1, S], pl.FP32]
    window = pld.DistributedTensor[[1, S], pl.FP32]
    cells = [2 * (ranks - 1) + 1, ranks] if mode == "ring" else [ranks]

    @pl.jit.incore
    def fill_step(x: row, w: window):
        w = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], w)
        return w

    @pl.jit
    def fill(x: row, w: window):
        return fill_step(x, w)

    @pl.jit.incore
    def drain_step(y: pl.Out[row], w: window):
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def drain(y: pl.Out[row], w: window):
        return drain_step(y, w)

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, 1, S], pl.FP32],
        y: pl.Out[pl.Tensor[[ranks, 1, S], pl.FP32]],
        z: pl.Out[pl.Tensor[[ranks, 1, S], pl.FP32]],
    ):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(cells, dtype=pl.INT32)
        t_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
        w = pld.window(w_buf, [1, S], dtype=pl.FP32)
        s = pld.window(s_buf, cells, dtype=pl.INT32)
        t = pld.window(t_buf, [ranks], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            fill(x[r], w, device=r)
        w = pld.tensor.allreduce(w, s, mode=mode)
        for r in pl.range(pld.world_size()):
            drain(y[r], w, device=r)
        pld.tensor.barrier(t)
        for r in pl.range(pld.world_size()):
            fill(x[r], w, device=r)
        w = pld.tensor.broadcast(w, t, root=1)
        for r in pl.range(pld.world_size()):
            drain(z[r], w, device=r)

    x = data(ranks, 1)
    y, z = np.zeros_like(x), np.zeros_like(x)
    host(x, y, z, config=world(ranks))
    assert np.array_equal(y, np.broadcast_to(x.sum(axis=0), y.shape))
    assert np.array_equal(z, np.broadcast_to(x[1], z.shape))


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("ranks", [2, 3])
def test_allreduces_of_the_host_with_signals_of_their_own(ranks: int, cores: int) -> None:
    row = pl.Tensor[[1, S], pl.FP16]
    window = pld.DistributedTensor[[1, S], pl.FP16]

    @pl.jit
    def fill(x: row, w: window):
        with pl.at(level=pl.Level.CORE_GROUP):
            w[:] = pl.mul(x, 1.0)
        return w

    @pl.jit
    def drain(y: pl.Out[row], w: window):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.mul(w, 1.0)
        return y

    @pl.jit.host
    def host(
        x: pl.Tensor[[ranks, 1, S], pl.FP16],
        y: pl.Out[pl.Tensor[[ranks, 1, S], pl.FP16]],
    ):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP16)
        w = pld.window(w_buf, [1, S], dtype=pl.FP16)
        for r in pl.range(pld.world_size()):
            fill(x[r], w, device=r)
        w = pld.tensor.allreduce(w, op=pld.ReduceOp.Max, core_num=cores)
        w = pld.tensor.allreduce(w)
        for r in pl.range(pld.world_size()):
            drain(y[r], w, device=r)

    x = data(ranks, 1, np.float16)
    y = np.zeros_like(x)
    host(x, y, config=world(ranks))
    assert np.array_equal(y, np.broadcast_to(ranks * x.max(axis=0), y.shape))
