"""The event loop: C and Python agree bit for bit; no event is repeated or premature."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.recording import chain, elementwise, held, mixed, projection, recorded

import tilelet.language as pl
from tilelet.device import load_machine, simulate
from tilelet.device.machine.description import with_fields
from tilelet.device.schedule import native
from tilelet.device.schedule.events import Config, SimResult, Work, run_events
from tilelet.device.schedule.library import library
from tilelet.device.schedule.simulate import Timeline
from tilelet.diag import UserError

A2A3 = load_machine("a2a3")


@st.composite
def configs(draw) -> Config:
    return Config(
        clusters=draw(st.integers(2, 4)),
        vectors=2,
        threads=draw(st.integers(1, 2)),
        slots=draw(st.integers(0, 1)),
        window=draw(st.sampled_from([3, 8, 1000])),
        heap=draw(st.sampled_from([4096, 1 << 30])),
        submit=draw(st.sampled_from([0.1, 0.55, 3.0])),
        submit_arg=0.01,
        node=draw(st.sampled_from([0.0, 0.3])),
        dispatch=0.4,
        complete=0.5,
        head=0.44,
        tail=0.6,
        poll=0.1,
        resolve=0.0,
        stagger=0.0,
        first=draw(st.sampled_from([0.0, 5.0])),
        hbm=draw(st.sampled_from([500.0, 1e6])),
        l2_rate=draw(st.sampled_from([2000.0, 1e7])),
        l2_bytes=draw(st.sampled_from([3000.0, 1e9])),
    )


@st.composite
def works(draw) -> Work:
    n = draw(st.integers(1, 30))
    preds = [
        draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        for i in range(n)
    ]
    succ = [[i for i in range(n) if p in preds[i]] for p in range(n)]
    cells = [
        draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=2))
        for _ in range(n)
    ]
    flat = [c for task in cells for c in task]
    awaits = [
        draw(st.sampled_from([[], [], list(range(i))[-1:], [i // 2][: i > 0]])) for i in range(n)
    ]
    ints = lambda values: np.array(values, np.int64)  # noqa: E731
    heap = ints(draw(st.lists(st.sampled_from([0, 1024]), min_size=n, max_size=n)))
    blocks = draw(st.lists(st.sampled_from([1, 1, 5]), min_size=n, max_size=n))
    # All blocks of a task share one cost, or each has its own.
    sizes = [draw(st.sampled_from([1, count])) for count in blocks]
    costs = [draw(st.lists(st.integers(0, 2), min_size=k, max_size=k)) for k in sizes]
    reads, moved = np.array([1000.0, 2000.0, 8000.0]), np.array([2000.0, 3000.0, 9000.0])
    return Work(
        pred_count=ints([len(p) for p in preds]),
        succ_ptr=np.cumsum([0, *[len(s) for s in succ]]),
        succ=ints([s for ss in succ for s in ss]),
        shape=ints(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))),
        lanes=ints(draw(st.lists(st.integers(1, 2), min_size=n, max_size=n))),
        blocks=ints(blocks),
        cost_ptr=np.cumsum([0, *[len(c) for c in costs]]),
        cost=ints([c for task in costs for c in task]),
        args=ints([2] * n),
        held_until=np.arange(n),
        in_graph=ints(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))),
        heap=heap,
        freed=heap,
        await_ptr=np.cumsum([0, *[len(a) for a in awaits]]),
        awaits=ints([a for task in awaits for a in task]),
        hot=np.array([1.0, 2.5, 20.0]),
        cold=np.array([1.5, 4.0, 31.0]),
        store=np.array([0.0, 3.0, 7.5]),
        moved=moved,
        served=np.array([0.1, 1.0, 30.0]),
        kernel=ints(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))),
        kernels=3,
        read=np.array([sum(reads[c] for c in task) for task in costs]),
        written=np.array([sum((moved - reads)[c] for c in task) for task in costs]),
        all_moved=np.array([sum(moved[c] for c in task) for task in costs]),
        cell_ptr=np.cumsum([0, *[len(c) for c in cells]]),
        cell_base=ints([c[0] for c in flat]),
        cell_rows=ints([1] * len(flat)),
        cell_columns=ints([2] * len(flat)),
        cell_share=np.array([700.0] * len(flat)),
        cell_buffer=ints([0] * len(flat)),
        cell_part=ints([c[1] for c in flat]),
        buffer_pitch=ints([8]),
        buffer_size=np.array([700.0]),
        buffer_heap=ints([draw(st.integers(0, 1))]),
        part_writes=ints([0, 1]),
        part_asked=np.array([0.5, 0.5]),
        cells=10,
    )


@given(configs(), works())
@settings(max_examples=150)
def test_c_and_python_agree_bit_for_bit(config: Config, work: Work) -> None:
    lib = library()
    if lib is None:
        pytest.skip("no C compiler")
    slow, fast = run_events(config, work), native.run_events_native(lib, config, work)
    assert slow.error == fast.error
    if slow.error:
        assert slow.stuck == fast.stuck
        return
    for f in fields(SimResult):
        a, b = np.asarray(getattr(slow, f.name)), np.asarray(getattr(fast, f.name))
        assert a.tobytes() == b.tobytes(), f.name


@given(configs(), works())
@settings(max_examples=80)
def test_a_schedule_is_possible(config: Config, work: Work) -> None:
    out = run_events(config, work)
    if out.error:
        assert config.heap == 4096 or config.window == 3
        return
    for task in range(work.tasks):
        for other in work.awaits[work.await_ptr[task] : work.await_ptr[task + 1]]:
            assert out.finished[other] < out.submitted[task]
    assert (out.rec_start >= out.rec_dispatch).all()
    assert (out.rec_end >= out.rec_start).all()
    assert (out.rec_finish >= out.rec_end).all()
    for core in np.unique(out.rec_core):
        mine = out.rec_core == core
        order = np.argsort(out.rec_start[mine], kind="stable")
        starts, ends = out.rec_start[mine][order], out.rec_end[mine][order]
        assert (starts[1:] >= ends[:-1]).all()
    for producer in range(work.tasks):
        for consumer in work.succ[work.succ_ptr[producer] : work.succ_ptr[producer + 1]]:
            assert out.ready[consumer] >= out.finished[producer]
    members = np.where(work.shape == 3, 0, np.where(work.shape == 0, 1 + work.lanes, 1))
    np.testing.assert_array_equal(
        np.bincount(out.rec_task, minlength=work.tasks), members * work.blocks
    )


def device_run(program, machine=A2A3, **options) -> Timeline:
    tasks, compiled = recorded(program)
    return simulate(tasks, compiled, machine, **options)


def test_the_same_program_gives_the_same_bytes() -> None:
    one, two = (device_run(projection(tasks=60)) for _ in range(2))
    for name in ("task", "core", "dispatch", "start", "end", "finish", "hbm_read"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


def test_independent_tasks_use_all_cores_and_a_chain_one() -> None:
    wide = device_run(projection(tasks=100, depth=8192))
    assert sorted(set(wide.core.tolist())) == list(range(24))
    narrow = device_run(chain(50))
    gaps = narrow.start[1:] - narrow.end[:-1]
    # From the producer's end to the consumer's start: detected, retired, dispatched, received.
    assert (gaps > 1.5).all()
    assert (gaps < 4.0).all()
    assert narrow.critical_path() == list(range(50))


def test_recording_costs_time() -> None:
    with_it, without = (device_run(chain(20), recording=r) for r in (True, False))
    assert with_it.total_us == pytest.approx(without.total_us + 20 * 0.5, rel=0.02)


def test_weights_come_from_memory_once_and_activations_stay_in_l2() -> None:
    line = device_run(projection(columns=256, depth=4096, tasks=48))
    weights, x = 4096 * 256 * 48 * 2, 16 * 4096 * 2
    assert line.hbm_read.sum() == pytest.approx(weights + x, rel=0.01)


def test_narrow_windows_share_their_lines() -> None:
    """Four tasks read 128 bytes each of the same 512-byte lines: memory is read once."""
    line = device_run(projection(columns=64, depth=4096, tasks=48))
    assert line.hbm_read.sum() == pytest.approx(4096 * 64 * 48 * 2 + 16 * 4096 * 2, rel=0.01)


def test_memory_bandwidth_limits_all_cores_together() -> None:
    program = projection(columns=256, depth=8192, step=512, tasks=96, pipelined=True)
    line = device_run(program)
    rate = line.hbm_read.sum() / line.total_us
    assert 0.75 * A2A3.hbm_bytes_per_us < rate <= A2A3.hbm_bytes_per_us
    names = {line.bound_of(k) for k in range(len(line.kernel_names))}
    assert names == {"GM"}
    slower = device_run(program, with_fields(A2A3, {"gm.efficiency": A2A3.gm.efficiency / 2}))
    assert slower.total_us > 1.6 * line.total_us


def test_a_mixed_task_takes_its_cluster() -> None:
    line = device_run(mixed(pl.SplitMode.UP_DOWN))
    assert [line.core_name(int(c)) for c in line.core] == ["AIC 0", "AIV 0", "AIV 1"]
    assert len(set(line.start)) == 1


def spmd(blocks: int):
    BLOCKS = blocks

    @pl.program
    class Spmd:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[BLOCKS * 16, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[BLOCKS * 16, 128], pl.FP32]],
        ):
            for b in pl.spmd(BLOCKS):
                y = pl.assemble(y, pl.exp(pl.slice(x, [16, 128], [b * 16, 0])), [b * 16, 0])
            return y

    return Spmd


def test_an_spmd_task_is_one_task_of_many_blocks() -> None:
    line = device_run(spmd(96))
    assert line.stream.count == 1
    assert len(line.task) == 96
    more = device_run(spmd(960))
    # 0.3 to 0.4 us per block for three schedulers together.
    assert 0.25 < (more.total_us - line.total_us) / 864 < 0.45


def test_no_tasks() -> None:
    @pl.program
    class Empty:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
            return x

    with pytest.raises(UserError) as caught:
        device_run(Empty)
    assert caught.value.code == "E0908"


def test_a_window_that_a_scope_fills_is_a_deadlock() -> None:
    small = with_fields(A2A3, {"runtime.2026-04.task_window": 16})
    tiny = with_fields(A2A3, {"runtime.2026-04.task_window": 4})
    assert device_run(elementwise(tasks=40), tiny).window_stall_us > 0
    with pytest.raises(UserError) as caught:
        device_run(held(40), small)
    assert caught.value.code == "E0909"
    assert "40 tasks" in caught.value.diagnostic.message
    assert caught.value.diagnostic.loc is not None
    assert device_run(held(16), small).total_us > 0


def test_heap_back_pressure_and_deadlock() -> None:
    @pl.program
    class Scratch:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 128], pl.FP32], y: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            for _ in pl.range(30):
                t = pl.create_tensor([16, 128], dtype=pl.FP32)
                with pl.incore():
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [0, 0])), [0, 0])
                with pl.incore():
                    y = pl.assemble(y, pl.exp(pl.slice(t, [16, 128], [0, 0])), [0, 0])
            return y

    free = device_run(Scratch)
    tight = device_run(Scratch, with_fields(A2A3, {"runtime.2026-04.heap_bytes": 2 * 8192}))
    assert free.heap_stall_us == 0
    assert tight.heap_stall_us > 0
    assert tight.total_us > free.total_us
    with pytest.raises(UserError) as caught:
        device_run(Scratch, with_fields(A2A3, {"runtime.2026-04.heap_bytes": 4096}))
    assert caught.value.code == "E0910"


def test_a_dummy_task_joins_without_a_core() -> None:
    line = device_run(chain(3), period="2026-07")
    assert (line.finish > line.end).all()
    assert line.effective_us >= line.orchestrator_end
