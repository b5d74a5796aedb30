"""Programs and tensors that a script keeps on a chip."""

from __future__ import annotations

import pytest
import torch

import tilelet.language as pl
from tilelet.compat.bench import benchmark
from tilelet.compat.worker import ChipWorker, Worker
from tilelet.runtime import session
from tilelet.runtime.handlers.count import Count
from tilelet.runtime.session import Session


@pl.jit
def add(a: pl.Tensor, b: pl.Tensor, c: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        c[:, :] = pl.add(a, b)
    return c


def test_programs_are_registered_once_and_called_often() -> None:
    sample = torch.zeros((16, 32))
    with ChipWorker() as worker:
        compiled = add.compile(sample, sample, sample.clone())
        handle = worker.register(compiled)
        assert worker.register(compiled) is handle
        assert worker.aicpu_dlopen_count == 1
        weights = worker.alloc_tensor(sample.shape, torch.float32, init=torch.full((16, 32), 0.5))
        for step in range(3):
            out = torch.zeros((16, 32))
            handle(torch.full((16, 32), float(step)), weights, out)
            assert torch.equal(out, torch.full((16, 32), step + 0.5))
        worker.free_tensor(weights)
        assert worker.aicpu_dlopen_count == 1
    with pytest.raises(RuntimeError, match="no longer registered"):
        handle(sample, sample, sample)
    with pytest.raises(RuntimeError, match="closed"):
        worker.register(compiled)


def test_bytes_go_to_tensors_of_a_worker_and_back() -> None:
    given, back = torch.arange(64.0).reshape(8, 8), torch.zeros(8, 8)
    with ChipWorker() as worker:
        kept = worker.alloc_tensor((8, 8), torch.float32)
        worker.copy_to(kept.data_ptr(), given.data_ptr(), kept.nbytes)
        worker.copy_from(back.data_ptr(), kept.data_ptr, kept.nbytes)
        assert torch.equal(back, given)
        with pytest.raises(ValueError, match="257 bytes"):
            worker.copy_from(back.data_ptr(), kept.data_ptr(), 257)
        worker.free_tensor(kept)
        with pytest.raises(ValueError, match="no tensor of this worker"):
            worker.copy_to(kept.data_ptr(), given.data_ptr(), 4)


@pytest.mark.parametrize("gives_output", [False, True])
def test_a_worker_runs_the_callable_of_a_program(gives_output: bool) -> None:
    one, two = torch.ones((16, 32)), torch.full((16, 32), 2.0)
    out = torch.zeros((16, 32))
    compiled = add.compile(one, two, out)
    config = compiled.build_call_config(aicpu_thread_num=3)
    assert config.aicpu_thread_num == 3
    worker = Worker(level=2, device_id=0, runtime=compiled.runtime_name)
    worker.init()
    given = (one, two, out) if gives_output else (one, two)
    args, seen, makes_outputs = compiled.build_orch_args(*given, worker=worker)
    assert makes_outputs is not gives_output
    number = worker.register(compiled.chip_callable)
    worker.run(number, args, config)
    worker.unregister(number)
    assert Worker.unregister_callable is Worker.unregister
    worker.close()
    (written,) = compiled.output_indices
    assert torch.equal(seen[written], compiled(one, two))
    assert gives_output is (seen[written] is out)


def test_launches_are_counted_and_modelled() -> None:
    one, two, out = torch.ones((16, 32)), torch.full((16, 32), 2.0), torch.zeros((16, 32))
    compiled = add.compile(one, two, out)
    stats = benchmark(compiled, [one, two, out], rounds=5, warmup=2, device_id=0)
    assert torch.equal(out, one + two)
    assert (stats.rounds, stats.warmup) == (5, 2)
    assert len(stats.device_wall_us) == len(stats.host_wall_us) == 5
    assert not stats.all_zero_device
    assert 0 < stats.device_us_min == stats.device_us_median == stats.device_wall_us_max
    assert stats.device_us_stdev == 0
    slower = benchmark(compiled, [one, two, out], rounds=1, warmup=0, platform="a5")
    assert slower.samples != stats.samples[:1]
    assert "5 launches (and 2 before them)" in str(stats)


def test_no_launch_is_modelled_while_tasks_are_counted() -> None:
    one, out = torch.ones((16, 32)), torch.zeros((16, 32))
    compiled = add.compile(one, one, out)
    with session.active(Session(Count(), quiet_diagnostics=True)):
        stats = benchmark(compiled, [one, one, out], rounds=3)
    assert stats.all_zero_device
    assert stats.device_us_median == 0
    assert not out.any()
