"""Known defects of programs of several ranks, each with its corrected form.

`DEFECTS` maps a name to a function of `mended` that gives the host program, its arguments, the
number of ranks, and the code of what is found (None: refused before it runs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld

S = 32
ADD = pld.NotifyOp.AtomicAdd
SET = pld.NotifyOp.Set
GE = pld.WaitCmp.Ge
ROW = pl.Tensor[[1, S], pl.FP32]
WROW = pld.DistributedTensor[[1, S], pl.FP32]
CELL = pld.DistributedTensor[[1, 1], pl.INT32]


class Defect(NamedTuple):
    program: Any
    arguments: dict[str, Any]
    ranks: int
    code: str
    says: str
    cores: tuple[int, ...] = ()


def rows(ranks: int) -> dict[str, Any]:
    x = np.arange(ranks * S, dtype=np.float32).reshape(ranks, 1, S)
    return {"x": x, "y": np.zeros_like(x)}


def wait_before_send(mended: bool) -> Defect:
    """The waiting dispatch precedes the sending one."""

    @pl.jit.incore
    def send_step(x: ROW, w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        pld.tensor.put(w, peer=peer, src=x)
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)

    @pl.jit.incore
    def receive_step(y: pl.Out[ROW], w: WROW, s: CELL):
        pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def send(x: ROW, w: WROW, s: CELL):
        send_step(x, w, s)

    @pl.jit
    def receive(y: pl.Out[ROW], w: WROW, s: CELL):
        return receive_step(y, w, s)

    @pl.jit.host
    def wrong(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            receive(y[r], w, s, device=r)
            send(x[r], w, s, device=r)

    @pl.jit.host
    def right(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            send(x[r], w, s, device=r)
            receive(y[r], w, s, device=r)

    program = right if mended else wrong
    return Defect(program, rows(2), 2, "E1710", "is not dispatched")


def waiter_takes_the_core(mended: bool) -> Defect:
    """A waiting task holds the only core; the one that would notify cannot start."""

    @pl.jit
    def blocking(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="waiter") as tid:
            pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="sender"):
                pld.tensor.put(w, peer=peer, src=x)
                pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader", deps=[tid]):
                y[:] = pl.mul(w[:], 2.0)
        return y

    @pl.jit
    def deferring(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="waiter") as tid:
            pld.system.defer_wait(s, offsets=[0, 0], expected=1)
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="sender"):
                pld.tensor.put(w, peer=peer, src=x)
                pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader", deps=[tid]):
                y[:] = pl.mul(w[:], 2.0)
        return y

    chip = deferring if mended else blocking

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    return Defect(host, rows(2), 2, "E1710", "every core is held by `waiter`", (1, 1))


def notify_before_push(mended: bool) -> Defect:
    """The signal is sent before the data."""

    @pl.jit.incore
    def early(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        tile = pl.load(x, [0, 0], [1, S])
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
        pld.tile.remote_store(tile, w, peer=peer, offsets=[0, 0])
        pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit.incore
    def late(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        tile = pl.load(x, [0, 0], [1, S])
        pld.tile.remote_store(tile, w, peer=peer, offsets=[0, 0])
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
        pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    return Defect(_exchange(late if mended else early), rows(2), 2, "E1711", "pushes bytes")


def _exchange(step: Any) -> Any:
    """Two ranks that each run one kernel on a row, a window and a cell."""

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        return step(x, y, w, s)

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    return host


def notify_beside_the_blocks(mended: bool) -> Defect:
    """One task notifies while the blocks of another are still pushing."""
    half = S // 2

    @pl.jit
    def apart(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        for b in pl.spmd(2, name_hint="pusher"):
            at = b * half
            pld.tensor.put(w, peer=peer, src=x, dst_offsets=[0, at], src_offsets=[0, at],
                           shape=[1, half])  # fmt: skip
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="signaller"):
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=2, op=ADD)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader"):
            pld.system.wait(s, offsets=[0, 0], expected=2, cmp=GE)
            y[:] = pl.mul(w[:], 1.0)
        return y

    @pl.jit
    def together(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        for b in pl.spmd(2, name_hint="pusher"):
            at = b * half
            pld.tensor.put(w, peer=peer, src=x, dst_offsets=[0, at], src_offsets=[0, at],
                           shape=[1, half])  # fmt: skip
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader"):
            pld.system.wait(s, offsets=[0, 0], expected=2, cmp=GE)
            y[:] = pl.mul(w[:], 1.0)
        return y

    chip = together if mended else apart

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    return Defect(host, rows(2), 2, "E1711", "no chain of notify and wait")


def barrier_that_is_never_cleared(mended: bool) -> Defect:
    """A barrier of Set(1) and Ge(1) is used twice: the second one lets every rank through."""

    @pl.jit.incore
    def once(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        tile = pl.load(x, [0, 0], [1, S])
        for _ in pl.range(2):
            w = pl.store(tile, [0, 0], w)
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=SET)
            pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
            got = pld.tile.remote_load(w, peer=peer, offsets=[0, 0], shape=[1, S])
            y = pl.store(got, [0, 0], y)
        return y

    @pl.jit.incore
    def counted(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(w))
        tile = pl.load(x, [0, 0], [1, S])
        for i in pl.range(2):
            w = pl.store(tile, [0, 0], w)
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
            pld.system.wait(s, offsets=[0, 0], expected=2 * i + 1, cmp=GE)
            got = pld.tile.remote_load(w, peer=peer, offsets=[0, 0], shape=[1, S])
            y = pl.store(got, [0, 0], y)
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
            pld.system.wait(s, offsets=[0, 0], expected=2 * i + 2, cmp=GE)
        return y

    return Defect(_exchange(counted if mended else once), rows(2), 2, "E1711", "unordered")


def _gather_signals(step: Any, cells: int, ranks: int, more: int = 4) -> Any:
    """Every rank runs one kernel on a signal of `cells` cells."""
    shape = [cells, 1]

    @pl.jit
    def chip(
        y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
        s: pld.DistributedTensor[[cells, 1], pl.INT32],
        t: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        return step(y, s, t)

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[ranks, 1, 1], pl.INT32]]):
        s_buf = pld.alloc_window_buffer(shape, dtype=pl.INT32)
        t_buf = pld.alloc_window_buffer(more)
        for r in pl.range(pld.world_size()):
            s = pld.window(s_buf, shape, dtype=pl.INT32)
            t = pld.window(t_buf, [1, 1], dtype=pl.INT32)
            chip(y[r], s, t, device=r)

    return host


def set_by_several(mended: bool) -> Defect:
    """Two ranks set one cell of a third."""
    op, last = (ADD, 2) if mended else (SET, 1)

    @pl.jit.incore
    def step(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
             s: pld.DistributedTensor[[1, 1], pl.INT32],
             t: pld.DistributedTensor[[1, 1], pl.INT32]):  # fmt: skip
        me = pld.rank(pld.get_comm_ctx(s))
        pl.write(y, [0, 0], 0)
        if me > 0:
            pld.system.notify(s, peer=0, offsets=[0, 0], value=1, op=op)
        else:
            pld.system.wait(s, offsets=[0, 0], expected=last, cmp=GE)
        return y

    arguments = {"y": np.zeros((3, 1, 1), np.int32)}
    return Defect(_gather_signals(step, 1, 3), arguments, 3, "E1714", "set by several ranks")


def cells_in_one_line(mended: bool) -> Defect:
    """Two ranks set neighboring cells."""
    op = ADD if mended else SET

    @pl.jit.incore
    def step(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
             s: pld.DistributedTensor[[3, 1], pl.INT32],
             t: pld.DistributedTensor[[1, 1], pl.INT32]):  # fmt: skip
        me = pld.rank(pld.get_comm_ctx(s))
        pl.write(y, [0, 0], 0)
        if me > 0:
            pld.system.notify(s, peer=0, offsets=[me, 0], value=1, op=op)
        else:
            for src in pl.range(1, 3):
                pld.system.wait(s, offsets=[src, 0], expected=1, cmp=GE)
        return y

    arguments = {"y": np.zeros((3, 1, 1), np.int32)}
    return Defect(_gather_signals(step, 3, 3), arguments, 3, "E1715", "share a 64-byte line")


def buffers_in_one_line(mended: bool) -> Defect:
    """Two small buffers share a line, and two ranks store into them."""
    cells = 16 if mended else 1

    @pl.jit.incore
    def step(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]],
             s: pld.DistributedTensor[[cells, 1], pl.INT32],
             t: pld.DistributedTensor[[1, 1], pl.INT32]):  # fmt: skip
        me = pld.rank(pld.get_comm_ctx(s))
        pl.write(y, [0, 0], 0)
        if me == 1:
            pld.system.notify(s, peer=0, offsets=[0, 0], value=1, op=SET)
        if me == 2:
            pld.system.notify(t, peer=0, offsets=[0, 0], value=1, op=SET)
        if me == 0:
            pld.system.wait(s, offsets=[0, 0], expected=1, cmp=GE)
            pld.system.wait(t, offsets=[0, 0], expected=1, cmp=GE)
        return y

    arguments = {"y": np.zeros((3, 1, 1), np.int32)}
    return Defect(_gather_signals(step, cells, 3), arguments, 3, "E1715", "`s_buf` and `t_buf`")


def data_and_signal_in_one_buffer(mended: bool) -> Defect:
    """A collective of the host gets data and signal from one allocation."""

    @pl.jit.incore
    def fill_step(x: ROW, w: WROW):
        w = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], w)
        return w

    @pl.jit
    def fill(x: ROW, w: WROW):
        return fill_step(x, w)

    @pl.jit.incore
    def drain_step(y: pl.Out[ROW], w: WROW):
        y = pl.store(pl.load(w, [0, 0], [1, S]), [0, 0], y)
        return y

    @pl.jit
    def drain(y: pl.Out[ROW], w: WROW):
        return drain_step(y, w)

    @pl.jit.host
    def wrong(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        w = pld.window(w_buf, [1, S], dtype=pl.FP32)
        s = pld.window(w_buf, [2], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            fill(x[r], w, device=r)
        w = pld.tensor.allreduce(w, s)
        for r in pl.range(pld.world_size()):
            drain(y[r], w, device=r)

    @pl.jit.host
    def right(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(8)
        w = pld.window(w_buf, [1, S], dtype=pl.FP32)
        s = pld.window(s_buf, [2], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            fill(x[r], w, device=r)
        w = pld.tensor.allreduce(w, s)
        for r in pl.range(pld.world_size()):
            drain(y[r], w, device=r)

    return Defect(right if mended else wrong, rows(2), 2, "E1709", "lie in one window buffer")


def tasks_without_an_edge(mended: bool) -> Defect:
    """One task stores into a window, another reads it, and nothing orders them."""

    @pl.jit
    def loose(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        me = pld.rank(pld.get_comm_ctx(w))
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="writer"):
                pld.tensor.put(w, peer=me, src=x)
                pld.system.notify(s, peer=me, offsets=[0, 0], value=1, op=ADD)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader"):
                y[:] = pl.mul(w[:], 1.0)
        return y

    @pl.jit
    def tied(x: ROW, y: pl.Out[ROW], w: WROW, s: CELL):
        me = pld.rank(pld.get_comm_ctx(w))
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="writer") as tid:
                pld.tensor.put(w, peer=me, src=x)
                pld.system.notify(s, peer=me, offsets=[0, 0], value=1, op=ADD)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="reader", deps=[tid]):
                y[:] = pl.mul(w[:], 1.0)
        return y

    chip = tied if mended else loose

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, S], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, S], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, S], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], y[r], w, s, device=r)

    return Defect(host, rows(2), 2, "E1711", "the two tasks of one rank have no edge")


def notify_on_both_cores(mended: bool) -> Defect:
    """A kernel with a matrix product and vector work notifies."""
    n = 16
    matrix = pl.Tensor[[n, n], pl.FP32]

    @pl.jit
    def mixed(a: matrix, c: pl.Out[matrix], s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(s))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            c[:] = pl.mul(pl.matmul(a[:], a[:], out_dtype=pl.FP32), 2.0)
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
        return c

    @pl.jit
    def apart(a: matrix, c: pl.Out[matrix], s: CELL):
        peer = 1 - pld.rank(pld.get_comm_ctx(s))
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product") as tid:
            c[:] = pl.mul(pl.matmul(a[:], a[:], out_dtype=pl.FP32), 2.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="signaller", deps=[tid]):
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=ADD)
        return c

    chip = apart if mended else mixed

    @pl.jit.host
    def host(a: pl.Tensor[[2, n, n], pl.FP32], c: pl.Out[pl.Tensor[[2, n, n], pl.FP32]]):
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(a[r], c[r], s, device=r)

    a = np.ones((2, n, n), np.float32)
    return Defect(host, {"a": a, "c": np.zeros_like(a)}, 2, "E1716", "cube and its vector core")


def barrier_of_some(mended: bool) -> Defect:
    """Ranks without tokens skip a barrier that the others use."""

    @pl.jit.incore
    def some(x: ROW, y: pl.Out[ROW], s: pld.DistributedTensor[[3, 1], pl.INT32],
             tokens: pl.Scalar[pl.INT32]):  # fmt: skip
        y = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], y)
        if tokens > 0:
            s = pld.tensor.barrier(s)
        return y

    @pl.jit.incore
    def every(x: ROW, y: pl.Out[ROW], s: pld.DistributedTensor[[3, 1], pl.INT32],
              tokens: pl.Scalar[pl.INT32]):  # fmt: skip
        if tokens > 0:
            y = pl.store(pl.load(x, [0, 0], [1, S]), [0, 0], y)
        s = pld.tensor.barrier(s)
        return y

    step = every if mended else some

    @pl.jit
    def chip(x: ROW, y: pl.Out[ROW], s: pld.DistributedTensor[[3, 1], pl.INT32],
             tokens: pl.Scalar[pl.INT32]):  # fmt: skip
        return step(x, y, s, tokens)

    @pl.jit.host
    def host(x: pl.Tensor[[3, 1, S], pl.FP32], y: pl.Out[pl.Tensor[[3, 1, S], pl.FP32]]):
        s_buf = pld.alloc_window_buffer([3, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            s = pld.window(s_buf, [3, 1], dtype=pl.INT32)
            chip(x[r], y[r], s, 2 - r, device=r)

    return Defect(host, rows(3), 3, "E1710", "rank 2 has ended without calling")


DEFECTS: dict[str, Callable[[bool], Defect]] = {
    "D1": wait_before_send,
    "D2": waiter_takes_the_core,
    "D3": notify_before_push,
    "D4": notify_beside_the_blocks,
    "D5": barrier_that_is_never_cleared,
    "D6": set_by_several,
    "D7": cells_in_one_line,
    "D8": buffers_in_one_line,
    "D9": data_and_signal_in_one_buffer,
    "D10": tasks_without_an_edge,
    "D11": notify_on_both_cores,
    "D12": barrier_of_some,
}
