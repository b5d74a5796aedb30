"""Prepared workers: resident tensors, persistent windows, callbacks."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import SIZE, ring, rows, world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.runtime.programs.compiler import compile_program
from tilelet.runtime.programs.ranks_worker import DistributedWorker


def counter():
    """Every rank adds 1 to a cell of its own window, and returns its value."""

    @pl.jit.incore
    def step(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]], s: pld.DistributedTensor[[1, 1], pl.INT32]):
        me = pld.rank(pld.get_comm_ctx(s))
        pld.system.notify(s, peer=me, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pl.write(y, [0, 0], pl.read(s, [0, 0]))
        return y

    @pl.jit
    def chip(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]], s: pld.DistributedTensor[[1, 1], pl.INT32]):
        return step(y, s)

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[2, 1, 1], pl.INT32]]):
        buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            s = pld.window(buf, [1, 1], dtype=pl.INT32)
            chip(y[r], s, device=r)

    return host.compile(config=world(2))


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, [1, 1, 1]),
        ({"persistent": True}, [1, 1, 1]),
        ({"persistent": True, "reset_persistent_windows": False}, [1, 2, 3]),
    ],
)
def test_windows_of_repeated_runs(options: dict[str, bool], values: list[int]) -> None:
    y = np.zeros((2, 1, 1), np.int32)
    with counter().prepare(**options) as worker:
        for value in values:
            worker(y)
            assert (y == value).all()


def test_resident_tensors() -> None:
    x = rows(2)
    compiled = ring.compile(x, x, config=world(2))
    with compiled.prepare() as worker:
        y = worker.alloc_tensor((2, 1, SIZE), "float32")
        stacked = worker.alloc_stacked_tensor(x)
        worker(stacked, y)
        assert np.array_equal(y, x[::-1])
        back = np.zeros_like(x)
        worker.copy_stacked_from(stacked, back)
        assert np.array_equal(back, x)
        worker.free_stacked_tensor(stacked)
        with pytest.raises(ValueError, match="not a tensor of this worker"):
            worker.free_tensor(x)
        handle = worker.submit(compiled, x, y)
        handle.result()
        assert handle.done
    with pytest.raises(RuntimeError, match="called after close"):
        worker(x, y)


def test_several_programs_need_a_name() -> None:
    x = rows(2)
    compiled, other = ring.compile(x, x, config=world(2)), counter()
    with DistributedWorker([compiled, other]) as worker:
        with pytest.raises(TypeError, match="ambiguous"):
            worker(x, x.copy())
        y = np.zeros_like(x)
        worker.run(compiled, x, y)
        assert np.array_equal(y, x[::-1])
    with compiled.prepare() as worker, pytest.raises(ValueError, match="not a program"):
        worker.run(other, x)
    with pytest.raises(ValueError, match="needs persistent"):
        compiled.prepare(reset_persistent_windows=True)


@pl.program
class Reported:
    @pl.function(type=pl.FunctionType.InCore)
    def double(
        self, x: pl.Tensor[[1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]]
    ) -> pl.Tensor[[1, SIZE], pl.FP32]:
        return pl.store(pl.mul(pl.load(x, [0, 0], [1, SIZE]), 2.0), [0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(
        self, x: pl.Tensor[[1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]]
    ) -> pl.Tensor[[1, SIZE], pl.FP32]:
        return self.double(x, y)

    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
    def report(y: pl.Tensor[[1, SIZE], pl.FP32]): ...  # noqa: N805

    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
    def clip(y: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]]):  # noqa: N805
        y[y > 4.0] = 4.0

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self, x: pl.Tensor[[1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]]
    ) -> pl.Tensor[[1, SIZE], pl.FP32]:
        y = self.chip(x, y)
        y = self.clip(y)
        self.report(y)
        return y


def test_callbacks() -> None:
    pytest.importorskip("torch")
    compiled = compile_program(Reported)
    x = np.arange(SIZE, dtype=np.float32).reshape(1, SIZE)
    y = np.zeros_like(x)
    seen: list[float] = []
    with compiled.prepare(
        callbacks={"report": lambda args: seen.append(float(args[0].max()))}
    ) as w:
        w(x, y)
    assert seen == [4.0]
    assert y.max() == 4.0
    with pytest.raises(ValueError, match="no function for the callback report"):
        compiled.prepare()
    with pytest.raises(ValueError, match="nothing: not callbacks"):
        compiled.prepare(callbacks={"report": print, "nothing": print})
    with pytest.raises(ValueError, match="nothing: not sub-workers"):
        compiled.prepare(sub_worker_overrides={"nothing": print})


def test_bytes_of_a_rank() -> None:
    x = rows(2)
    with ring.compile(x, x, config=world(2)).prepare() as worker:
        kept = worker.malloc(x.nbytes, worker_id=1)
        worker.copy_to(kept, x.ctypes.data, x.nbytes, worker_id=1)
        back = np.zeros_like(x)
        worker.copy_from(back.ctypes.data, kept, back.nbytes, worker_id=1)
        assert np.array_equal(back, x)
        worker.free(kept, worker_id=1)
        with pytest.raises(ValueError, match="no tensor of this worker"):
            worker.copy_from(back.ctypes.data, kept, back.nbytes, worker_id=1)
