"""Programs of several ranks run, with the results that their text says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import SIZE, ring, rows, world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.ranks import (
    BadDevice,
    BadDispatch,
    BadSignal,
    BadWindowBuffer,
    NoSuchPeer,
    NotDistributed,
    RanksDeadlock,
    TransferMismatch,
)
from tilelet.diag.catalogue.windows import WindowOutOfRange
from tilelet.diag.core import UserErrors
from tilelet.diag.tracebacks import user_frames
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.host import plan_of
from tilelet.ranks.rank import RankState, RankTask
from tilelet.ranks.scheduler import World
from tilelet.runtime import TensorSpec, run
from tilelet.tasks.arguments import bind_arguments


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_row_goes_to_the_next_rank(ranks: int) -> None:
    x = rows(ranks)
    y = np.zeros_like(x)
    ring(x, y, config=world(ranks))
    assert np.array_equal(y, np.roll(x, 1, axis=0))


def test_the_harness_compares_with_a_golden() -> None:
    def golden(tensors):
        tensors["y"][:] = np.roll(np.asarray(tensors["x"]), 1, axis=0)

    specs = [
        TensorSpec("x", [2, 1, SIZE], "float32", init_value=lambda: rows(2)),
        TensorSpec("y", [2, 1, SIZE], "float32", is_output=True),
    ]
    config = {"distributed_config": DistributedConfig(device_ids=[5, 3])}
    result = run(ring, specs, golden_fn=golden, compile_cfg=config)
    assert result.passed, result.error
    assert result.tasks == {"push_step": 2}


def test_a_wrong_result_is_reported_by_region() -> None:
    def golden(tensors):
        tensors["y"][:] = np.roll(np.asarray(tensors["x"]), 1, axis=0)
        tensors["y"][1, 0, 3:9] += 1

    specs = [
        TensorSpec("x", [2, 1, SIZE], "float32", init_value=lambda: rows(2)),
        TensorSpec("y", [2, 1, SIZE], "float32", is_output=True),
    ]
    result = run(ring, specs, golden_fn=golden, config=world(2))
    assert not result.passed
    assert "columns 3:9" in result.error
    assert "several ranks write" in result.error
    assert "Search for races: tilelet check" in result.error


def test_scopes_of_a_chip_are_dispatched_in_turn() -> None:
    rows_of = pl.Tensor[[16, 16], pl.FP32]

    @pl.jit.host
    def host(a: rows_of, b: rows_of, total: pl.Out[rows_of], rest: pl.Out[rows_of]):
        with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator):  # noqa: SIM117
            with pl.at(level=pl.Level.CORE_GROUP):
                total = pl.assemble(total, pl.add(a, b), [0, 0])
        with pl.at(level=pl.Level.CHIP):  # noqa: SIM117
            with pl.at(level=pl.Level.CORE_GROUP):
                rest = pl.assemble(rest, pl.sub(total, b), [0, 0])
        return total, rest

    a, b = np.full((16, 16), 3, np.float32), np.full((16, 16), 2, np.float32)
    total, rest = np.zeros_like(a), np.zeros_like(a)
    host(a, b, total, rest, config=world(2))
    assert np.array_equal(total, a + b)
    assert np.array_equal(rest, a)


def test_a_rank_that_nobody_notifies_is_a_deadlock() -> None:
    @pl.jit.incore
    def step(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        pld.system.wait(s, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        pl.write(y, [0, 0], pl.read(s, [0, 0]))
        return y

    @pl.jit
    def chip(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        return step(s, y)

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[2, 1, 1], pl.INT32]]):
        buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            s = pld.window(buf, [1, 1], dtype=pl.INT32)
            chip(s, y[r], device=r)

    with pytest.raises(
        RanksDeadlock, match=r"cell \[0, 0\] of `buf` on rank 0 is 0, waits for at least 1"
    ):
        host(np.zeros((2, 1, 1), np.int32), config=world(2))


@pytest.mark.parametrize(
    ("ids", "problem"),
    [([], "empty"), ([0, 0], "repeat"), ([-1], "from 0 up"), ([True], "from 0 up")],
)
def test_worlds_that_cannot_be(ids: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        DistributedConfig(device_ids=ids)
    assert [f.filename for f in user_frames(caught.value)] == [__file__]


def test_options_of_earlier_releases_are_accepted() -> None:
    config = DistributedConfig(
        device_ids=[0, 1], num_sub_workers=0, block_dim=3, aicpu_thread_num=4
    )
    assert config.world == 2


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_deadlock_tells_notifies_that_are_past_from_those_to_come(rounds: int) -> None:
    @pl.jit.incore
    def step(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        peer = 1 - pld.rank(pld.get_comm_ctx(s))
        for _ in pl.range(rounds):
            pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
            if rounds > 1:
                pld.system.wait(s, offsets=[0, 0], expected=2, cmp=pld.WaitCmp.Ge)
        pld.system.wait(s, offsets=[0, 0], expected=3, cmp=pld.WaitCmp.Ge)
        return y

    @pl.jit
    def chip(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        return step(s, y)

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[2, 1, 1], pl.INT32]]):
        buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            s = pld.window(buf, [1, 1], dtype=pl.INT32)
            chip(s, y[r], device=r)

    with pytest.raises(RanksDeadlock) as caught:
        host(np.zeros((2, 1, 1), np.int32), config=world(2))
    notes = " ".join(caught.value.diagnostic.notes)
    assert "rank 1 has added 1 to cell [0, 0] of `buf` on rank 0, at line" in notes
    assert ("waits itself" in notes) == (rounds == 2)


@pytest.mark.parametrize("is_notified", [True, False])
def test_a_loop_that_polls_a_signal_lets_others_run(is_notified: bool) -> None:
    step = int(is_notified)

    @pl.jit.incore
    def meet(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        peer = 1 - pld.rank(pld.get_comm_ctx(s))
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=step, op=pld.NotifyOp.AtomicAdd)
        seen = pl.read(s, [0, 0])
        while seen < 1:
            seen = pl.read(s, [0, 0])
        pl.write(y, [0, 0], seen)
        return y

    @pl.jit
    def chip(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        return meet(s, y)

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[2, 1, 1], pl.INT32]]):
        buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            s = pld.window(buf, [1, 1], dtype=pl.INT32)
            chip(s, y[r], device=r)

    y = np.zeros((2, 1, 1), np.int32)
    if is_notified:
        host(y, config=world(2))
        assert y.all()
        return
    with pytest.raises(RanksDeadlock) as caught:
        host(y, config=world(2))
    (label,) = caught.value.diagnostic.labels
    assert "rank 0, `meet` reads cell 0 of `buf` on rank 0, which stays 0" in label.text
    assert "rank 1 has added 0 to cell 0 of `buf` on rank 0" in caught.value.diagnostic.notes[0]


# --- mistakes at their line ----------------------------------------------------------------------


def lowered(step, host_text=None):
    """Lower a host program around one kernel that takes a tensor, a window and a signal."""

    @pl.jit
    def chip(
        x: pl.Tensor[[1, SIZE], pl.FP32],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        return step(x, w, s)

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        w_buf = pld.alloc_window_buffer([1, SIZE], dtype=pl.FP32)
        s_buf = pld.alloc_window_buffer(4)
        for r in pl.range(pld.world_size()):
            w = pld.window(w_buf, [1, SIZE], dtype=pl.FP32)
            s = pld.window(s_buf, [1, 1], dtype=pl.INT32)
            chip(x[r], w, s, device=r)

    return host


def kernel_put_to_a_tensor():
    @pl.jit.incore
    def step(
        x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        pld.tensor.put(x, peer=0, src=w)
        return x

    return step


def kernel_signal_of_floats():
    @pl.jit.incore
    def step(
        x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        pld.system.notify(w, peer=0, offsets=[0, 0], value=1, op=pld.NotifyOp.Set)
        return x

    return step


def kernel_half_a_region():
    @pl.jit.incore
    def step(
        x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        pld.tensor.put(w, peer=0, src=x, dst_offsets=[0, 0])
        return x

    return step


@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        (kernel_put_to_a_tensor, NotDistributed),
        (kernel_signal_of_floats, BadSignal),
        (kernel_half_a_region, TransferMismatch),
    ],
)
def test_mistakes_in_kernels(kernel, error) -> None:
    with pytest.raises(UserErrors) as caught:
        lowered(kernel()).lower()
    assert [d.code for d in caught.value.diagnostics] == [error.code]
    assert caught.value.diagnostics[0].loc is not None


def test_a_peer_outside_the_domain() -> None:
    @pl.jit.incore
    def step(
        x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        pld.tensor.put(w, peer=pld.nranks(pld.get_comm_ctx(w)), src=x)
        return x

    with pytest.raises(NoSuchPeer, match=r"peer 2 of a domain of 2"):
        lowered(step)(rows(2), config=world(2))


@pytest.mark.parametrize("decorated", [pl.jit.incore, pl.jit.inline])
def test_the_host_dispatches_control_programs_only(decorated) -> None:
    @decorated
    def step(x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]]):
        return x

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        for r in pl.range(pld.world_size()):
            step(x[r], device=r)

    with pytest.raises(UserErrors) as caught:
        host.lower()
    assert caught.value.diagnostics[0].code == BadDispatch.code


def test_a_device_outside_the_world() -> None:
    @pl.jit.incore
    def step(x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]]):
        x = pl.store(pl.neg(pl.load(x, [0, 0], [1, SIZE])), [0, 0], x)
        return x

    @pl.jit
    def chip(x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]]):
        return step(x)

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        for r in pl.range(2):
            chip(x[r], device=r)

    with pytest.raises(BadDevice, match=r"rank 1 of a world of 1"):
        host(rows(2), config=world(1))


def test_a_view_past_its_allocation() -> None:
    @pl.jit
    def chip(w: pld.DistributedTensor[[1, SIZE], pl.FP32]):
        return w

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        buf = pld.alloc_window_buffer(SIZE)
        for r in pl.range(pld.world_size()):
            chip(pld.window(buf, [1, SIZE], dtype=pl.FP32), device=r)

    with pytest.raises(UserErrors, match=r"256 bytes of a window buffer of 64") as caught:
        host.lower()
    assert caught.value.diagnostics[0].code == BadWindowBuffer.code


def test_a_buffer_that_nobody_gets() -> None:
    @pl.jit
    def chip(x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]]):
        return x

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        buf = pld.alloc_window_buffer(SIZE)  # noqa: F841
        for r in pl.range(pld.world_size()):
            chip(x[r], device=r)

    with pytest.raises(BadWindowBuffer, match=r"no dispatch gets a view of `buf`"):
        host(rows(2), config=world(2))


def test_ranks_of_two_domains_are_counted_within_each() -> None:
    """Ranks 0 and 1 share one buffer, ranks 1 and 2 another: rank 1 is 1 here and 0 there."""

    @pl.jit.incore
    def step(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        ctx = pld.get_comm_ctx(s)
        me = pld.rank(ctx)
        peer = pld.nranks(ctx) - 1 - me
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=me + 1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(s, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        pl.write(y, [0, 0], pl.read(s, [0, 0]))
        return y

    @pl.jit
    def chip(s: pld.DistributedTensor[[1, 1], pl.INT32], y: pl.Out[pl.Tensor[[1, 1], pl.INT32]]):
        return step(s, y)

    @pl.jit.host
    def host(a: pl.Out[pl.Tensor[[3, 1, 1], pl.INT32]], b: pl.Out[pl.Tensor[[3, 1, 1], pl.INT32]]):
        a_buf = pld.alloc_window_buffer(4)
        b_buf = pld.alloc_window_buffer(4)
        for r in pl.range(2):
            chip(pld.window(a_buf, [1], dtype=pl.INT32), a[r], device=r)
        for r in pl.range(1, 3):
            chip(pld.window(b_buf, [1], dtype=pl.INT32), b[r], device=r)

    a, b = np.zeros((3, 1, 1), np.int32), np.zeros((3, 1, 1), np.int32)
    host(a, b, config=world(3))
    assert a[:, 0, 0].tolist() == [2, 1, 0]
    assert b[:, 0, 0].tolist() == [0, 2, 1]


def test_an_error_says_which_rank_it_is_of() -> None:
    @pl.jit.incore
    def step(
        x: pl.InOut[pl.Tensor[[1, SIZE], pl.FP32]],
        w: pld.DistributedTensor[[1, SIZE], pl.FP32],
        s: pld.DistributedTensor[[1, 1], pl.INT32],
    ):
        me = pld.rank(pld.get_comm_ctx(w))
        pld.system.notify(s, peer=0, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        return x

    with pytest.raises(WindowOutOfRange, match=r"on rank 1, `step`"):
        lowered(step)(rows(2), config=world(2))


def test_a_collective_in_a_control_program_is_in_the_wrong_place() -> None:
    @pl.jit
    def chip(s: pld.DistributedTensor[[2, 1], pl.INT32]):
        s = pld.tensor.barrier(s)
        return s

    @pl.jit.host
    def host(x: pl.InOut[pl.Tensor[[2, 1, SIZE], pl.FP32]]):
        buf = pld.alloc_window_buffer(8)
        for r in pl.range(pld.world_size()):
            chip(pld.window(buf, [2, 1], dtype=pl.INT32), device=r)

    with pytest.raises(UserErrors, match=r"E1704.*`pld.tensor.barrier` in a control program"):
        host(rows(2), config=world(2))


@pl.jit(auto_scope=False)
def doubled_flat(
    x: pl.Tensor[[2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, SIZE], pl.FP32]],
):
    flat = pl.reshape(y, [2 * SIZE, 1])
    rows = pl.reshape(flat, [2, SIZE])
    for i in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            rows[i : i + 1, :] = pl.mul(x[i : i + 1, :], 2.0)
    with pl.scope():
        back = pl.reshape(rows, [1, 2, SIZE])
    return pl.reshape(back, [2, SIZE])


@pl.jit.host
def double_views(
    x: pl.Tensor[[2, 2, SIZE], pl.FP32],
    y: pl.Out[pl.Tensor[[2, 2, SIZE], pl.FP32]],
):
    for r in pl.range(pld.world_size()):
        doubled_flat(x[r], y[r], device=r)


def test_a_dispatch_may_return_a_view_that_its_loops_wrote() -> None:
    x = rows(4).reshape(2, 2, SIZE)
    y = np.zeros_like(x)
    double_views(x, y, config=world(2))
    assert np.array_equal(y, 2 * x)


def test_the_host_submits_dispatches_with_dependencies() -> None:
    """Without the edge, a rank's second dispatch would run first, because it is named later."""

    @pl.jit
    def add(x: pl.Tensor[[1, SIZE], pl.FP32], y: pl.Out[pl.Tensor[[1, SIZE], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.add(x, x)
        return y

    @pl.jit.host
    def host(
        x: pl.Tensor[[2, 1, SIZE], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 1, SIZE], pl.FP32]],
        z: pl.Out[pl.Tensor[[2, 1, SIZE], pl.FP32]],
    ):
        for r in pl.range(pld.world_size()):
            _, first = pl.submit(add, x[r], y[r], device=r)
            _, second = pl.submit(add, x[r], z[r], device=1, deps=[first])
            add(y[r], z[r], device=r)

    x = rows(2)
    y, z = np.zeros_like(x), np.zeros_like(x)
    host(x, y, z, config=world(2))
    assert np.array_equal(z, 4 * x)
    compiled = host.compile(x, y, z, config=world(2))
    bound = bind_arguments(compiled.program, {"x": x, "y": y, "z": z}, execute=True)
    plan = plan_of(compiled.program, bound, 2)
    assert [d.waits_for for d in plan.dispatches] == [[], [0], [0, 1], [], [3], [3, 4]]
    assert [d.rank for d in plan.dispatches] == [0, 1, 0, 1, 1, 1]


def test_the_host_may_read_what_no_dispatch_writes() -> None:
    row = pl.Tensor[[1, SIZE], pl.FP32]

    @pl.jit
    def twice(x: row, y: pl.Out[row]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.add(x[:], x[:])
        return y

    @pl.jit.host
    def host(
        n: pl.Tensor[[2], pl.INT32],
        x: pl.Tensor[[2, 1, SIZE], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 1, SIZE], pl.FP32]],
    ):
        twice(x[0], y[0], device=0)
        if pl.read(x, [0, 0, 0]) > 0.0:
            for r in pl.range(1, pl.read(n, [1])):
                twice(x[r], y[r], device=r)

    x = np.full((2, 1, SIZE), 3, np.float32)
    y = np.zeros_like(x)
    host(np.array([0, 2], np.int32), x, y, config=world(2))
    assert np.array_equal(y, x + x)


def test_tasks_without_a_core_are_not_tried_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    start = World._start_task

    def counted(self: World, state: RankState, task: RankTask) -> bool:
        tried.append(task.kernel)
        return start(self, state, task)

    row_of, rows_of = pl.Tensor[[1, 16], pl.FP32], pl.Tensor[[400, 16], pl.FP32]

    @pl.jit.incore
    def double(x: row_of, y: pl.Out[row_of]):
        y = pl.store(pl.mul(pl.load(x, [0, 0], [1, 16]), 2.0), [0, 0], y)
        return y

    @pl.jit
    def chip(x: rows_of, y: pl.Out[rows_of]):
        for i in pl.range(400):
            double(x[i : i + 1, :], y[i : i + 1, :])
        return y

    pair = pl.Tensor[[2, 400, 16], pl.FP32]

    @pl.jit.host
    def host(x: pair, y: pl.Out[pair]):
        for r in pl.range(pld.world_size()):
            chip(x[r], y[r], device=r)

    monkeypatch.setattr(World, "_start_task", counted)
    x = np.ones((2, 400, 16), np.float32)
    y = np.zeros_like(x)
    host(x, y, config=world(2))
    assert np.array_equal(y, 2 * x)
    assert len(tried) < 3 * 800
