"""Executions that are reused instead of followed again give the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.checks.programs import generate, parsed, subject_of
from tests.diverge.faults import model_cases

import tilelet.language as pl
from tilelet.checks import init
from tilelet.interp.repeated import RepeatingState
from tilelet.interp.state import State


def seen(program, arguments, fresh):
    """Return the codes of all outputs and every store of a run without values."""
    run = init.watch(program, arguments, fresh, values=False)
    codes = [window.buffer.defined.get(window).copy() for _, window in run.outputs]
    stores = [(loc, task, w.offset, w.shape, w.strides) for loc, task, w in run.watcher.stores]
    return codes, stores, list(run.watcher.uses)


def followed(monkeypatch, program, arguments, fresh):
    """Return the same with every execution followed."""
    with monkeypatch.context() as patch:
        patch.setattr(RepeatingState, "run_kernel", State.run_kernel)
        return seen(program, arguments, fresh)


def agree(monkeypatch, program, arguments, fresh) -> None:
    codes, stores, uses = seen(program, arguments, fresh)
    all_codes, all_stores, all_uses = followed(monkeypatch, program, arguments, fresh)
    assert stores == all_stores
    assert uses == all_uses
    for mine, other in zip(codes, all_codes):
        assert np.array_equal(mine, other)


def test_generated_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100, 130):
        agree(monkeypatch, subject_of(parsed(generate(seed))).program, {}, {"out"})


@pytest.mark.parametrize(
    "name", ["qwen3/scope2:staged", "qwen3/scope3:baseline", "qwen3/prefill:tuned"]
)
def test_qwen3_programs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ((_, case),) = model_cases(*name.split(":"))
    fresh = {"out", "attn_out"} & {p.name for p in case.program.main.params}
    agree(monkeypatch, case.program, case.arguments, fresh)


def counted(monkeypatch: pytest.MonkeyPatch, kernel, **arguments) -> tuple[int, Any]:
    """Return how many executions are followed, and the findings."""
    count = 0
    plain = State.run_kernel

    def run_kernel(self, name, given, blocks):
        nonlocal count
        count += 1
        return plain(self, name, given, blocks)

    monkeypatch.setattr(State, "run_kernel", run_kernel)
    found = init.check(subject_of(kernel, arguments)).findings
    return count, found


@pl.jit
def moving(x: pl.Tensor[[256, 64], pl.FP32], out: pl.Out[pl.Tensor[[256, 64], pl.FP32]]):
    t = pl.create_tensor([256, 64], dtype=pl.FP32)
    for r in pl.parallel(0, 256, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            t[r : r + 16, :] = pl.exp(x[r : r + 16, :])
    for r in pl.parallel(0, 256, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            for c in pl.range(0, 64, 16):
                out[r : r + 16, c : c + 16] = pl.add(t[r : r + 16, c : c + 16], 1.0)
    return out


def test_windows_that_only_move_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, found = counted(monkeypatch, moving)
    assert found == ()
    assert count == 2


def test_a_number_that_decides_is_not_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    @pl.jit
    def growing(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        for r in pl.range(0, 64, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                part = pl.slice(x, [16, 64], [r, 0], valid_shape=[16, r + 16])
                out = pl.assemble(out, pl.exp(part), [r, 0])
        return out

    count, found = counted(monkeypatch, growing)
    assert count == 4
    assert found[0].message == "1536 of 4096 elements of output `out` are never written"


def test_a_window_that_leaves_its_tensor_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    @pl.jit
    def leaving(x: pl.Tensor[[60, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        for r in pl.range(0, 64, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
        return out

    subject = subject_of(leaving)
    run = init.watched_run(subject)
    assert isinstance(run, init.Stopped)
    assert run.task == 3
