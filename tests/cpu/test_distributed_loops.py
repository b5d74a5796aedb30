"""Kernels that loop over matrix products: iterations run as tasks, but count as one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.differential import agree
from tests.cpu.plans import hands_over

import tilelet.language as pl
from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.catalogue.windows import WindowOutOfRange
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes

RNG = np.random.default_rng(5)


def chain(rows: int = 96, stop: int = 5) -> Program:
    """Every iteration reads what the previous one has written."""

    @pl.program
    class Chain:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            w: pl.Tensor[[64, 64], pl.FP32],
            out: pl.InOut[pl.Tensor[[rows, 64], pl.FP32]],
        ) -> pl.Tensor[[rows, 64], pl.FP32]:
            with pl.at(level=pl.Level.CORE_GROUP):
                for i in pl.range(stop):
                    a = pl.slice(out, [16, 64], [16 * i, 0])
                    out = pl.assemble(out, pl.matmul(a, w), [16 * i + 16, 0])
            return out

    return Chain


def apart() -> Program:
    """Independent iterations: columns of one product, with work after it."""

    @pl.program
    class Apart:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 128], pl.BF16],
            w: pl.Tensor[[128, 256], pl.BF16],
            out: pl.Tensor[[16, 256], pl.FP32],
        ) -> pl.Tensor[[16, 256], pl.FP32]:
            for part in pl.parallel(2):
                with pl.at(level=pl.Level.CORE_GROUP):
                    for i in pl.parallel(4):
                        n = part * 128 + i * 32
                        acc = pl.matmul(
                            pl.slice(x, [16, 64], [0, 0]),
                            pl.slice(w, [64, 32], [0, n]),
                            out_dtype=pl.FP32,
                        )
                        acc = pl.matmul_acc(
                            acc, pl.slice(x, [16, 64], [0, 64]), pl.slice(w, [64, 32], [64, n])
                        )
                        out = pl.assemble(out, pl.mul(acc, 0.5), [0, n])
            return out

    return Apart


def text_of(program: Program) -> str:
    return "".join(emit_program(run_passes(program)).units)


@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize("seed", ["", "3", "8"])
def test_iterations_in_order(monkeypatch: pytest.MonkeyPatch, threads: str, seed: str) -> None:
    monkeypatch.setenv("TILELET_THREADS", threads)
    monkeypatch.setenv("TILELET_SCHEDULE_SEED", seed)
    program = chain()
    w = RNG.standard_normal((64, 64), dtype=np.float32) / 8
    agree(program, w=w, out=RNG.standard_normal((96, 64), dtype=np.float32))
    assert ", 5}," in text_of(program)


@pytest.mark.parametrize("seed", ["", "1", "2"])
def test_distributed_loops_side_by_side(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("TILELET_SCHEDULE_SEED", seed)
    program = apart()
    bf16 = pl.BF16.numpy
    found = agree(
        program,
        x=RNG.standard_normal((16, 128), dtype=np.float32).astype(bf16),
        w=RNG.standard_normal((128, 256), dtype=np.float32).astype(bf16),
        out=np.zeros((16, 256), np.float32),
    )
    assert np.all(found["out"] != 0)
    assert ", 4}," in text_of(program)
    assert hands_over(run_passes(program))


def test_they_count_as_one_task() -> None:
    lowered = run_passes(chain())
    arguments = {"w": np.eye(64, dtype=np.float32), "out": np.ones((96, 64), np.float32)}
    assert CpuEngine().run(lowered, arguments).tasks.total == 1


def test_the_first_turn_that_fails_is_the_one_reported() -> None:
    lowered = run_passes(chain(rows=64))
    arguments = {"w": np.eye(64, dtype=np.float32), "out": np.ones((64, 64), np.float32)}
    with pytest.raises(WindowOutOfRange, match="64"):
        CpuEngine().run(lowered, arguments)
