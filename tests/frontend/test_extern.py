"""`@pl.jit.extern`: kernels whose code is written outside the language."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.cpu.run.engine import CpuEngine
from tilelet.device import load_machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.core import UserError, UserErrors
from tilelet.interp.interpreter import Interpreter
from tilelet.passes.pipeline import run_passes


def program(us: float | None = None, reference: Any = None, core_type: str = "aiv") -> Any:
    @pl.jit.extern(source="norms.cpp", core_type=core_type)
    def norms(
        x: pl.Tensor[[64, 256], pl.FP32],
        factor: pl.Scalar[pl.FP32],
        total: pl.InOut[pl.Tensor[[64, 1], pl.FP32]],
        y: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
    ): ...

    if us is not None:
        norms.us = us
    norms.reference = reference

    @pl.jit
    def main(
        x: pl.Tensor[[64, 256], pl.FP32],
        total: pl.InOut[pl.Tensor[[64, 1], pl.FP32]],
        z: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
    ):
        y = pl.create_tensor([64, 256], dtype=pl.FP32)
        total, y = norms(x, 2.0, total, y)
        with pl.at(level=pl.Level.CORE_GROUP):
            z[:, :] = pl.add(y[:, :], 1.0)
        return z

    return main


def in_place(x: Any, factor: float, total: Any, y: Any) -> None:
    y[:] = x * np.float32(factor)
    total += x.sum(axis=1, keepdims=True, dtype=np.float32)


def returned(x: Any, factor: float, total: Any, y: Any) -> Any:
    return total + x.sum(axis=1, keepdims=True, dtype=np.float32), x * np.float32(factor)


@pytest.mark.parametrize("reference", [in_place, returned])
@pytest.mark.parametrize("engine", [Interpreter(), CpuEngine()])
def test_the_reference_runs(engine: Any, reference: Any) -> None:
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    total, z = np.ones((64, 1), np.float32), np.zeros((64, 256), np.float32)
    built = run_passes(program(reference=reference).specialize())
    tasks = engine.run(built, {"x": x, "total": total, "z": z}).tasks
    assert tasks.total == 2
    np.testing.assert_array_equal(z, x * np.float32(2) + np.float32(1))
    np.testing.assert_array_equal(total, 1 + x.sum(axis=1, keepdims=True, dtype=np.float32))


def figures(built: Any) -> Profile:
    done = run_passes(built.specialize())
    tasks = Interpreter().run(done, {}, execute=False).tasks
    return DeviceRun(Recorded("main", done, tasks), load_machine("a2a3")).figures


def modelled(built: Any) -> dict[str, float]:
    return {k.name: k.exec_us / k.tasks for k in figures(built).kernels}


def test_its_time_is_stated() -> None:
    assert modelled(program(us=50.0))["norms"] == pytest.approx(50.0, rel=0.01)
    assert figures(program(us=50.0)).guesses == ()
    (guess,) = figures(program()).guesses
    assert "`norms` is external; it is assumed to move its tensors once" in guess


@pytest.mark.parametrize("core_type", ["aiv", "aic", "mixed"])
def test_otherwise_it_moves_its_tensors_once(core_type: str) -> None:
    us = modelled(program(core_type=core_type))["norms"]
    assert 1.0 < us < 20.0  # 128 KB by one core, at tens of GB/s


def test_without_a_reference_it_cannot_run() -> None:
    built = run_passes(program().specialize())
    arrays = {"x": (64, 256), "total": (64, 1), "z": (64, 256)}
    given = {name: np.zeros(shape, np.float32) for name, shape in arrays.items()}
    with pytest.raises(UserError, match="`norms` has no reference to run"):
        Interpreter().run(built, given)


def test_a_reference_has_the_declared_results() -> None:
    built = run_passes(program(reference=lambda *_: np.zeros(3)).specialize())
    given = {n: np.zeros(s, np.float32) for n, s in (("x", (64, 256)), ("total", (64, 1)))}
    with pytest.raises(UserError, match="returns other shapes than"):
        Interpreter().run(built, {**given, "z": np.zeros((64, 256), np.float32)})


def test_it_declares_an_output() -> None:
    @pl.jit.extern(source="k.cpp")
    def reads(x: pl.Tensor[[64, 256], pl.FP32]): ...

    @pl.jit
    def main(x: pl.Tensor[[64, 256], pl.FP32], y: pl.Out[pl.Tensor[[64, 256], pl.FP32]]):
        reads(x)
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.add(x[:, :], 1.0)
        return y

    with pytest.raises(UserErrors, match="declares no output"):
        main.specialize()


def test_a_stub_says_how_many_outputs_it_returns() -> None:
    @pl.jit.extern(source="k.cpp")
    def both(
        x: pl.Tensor[[64, 256], pl.FP32],
        y: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
        scratch: pl.InOut[pl.Tensor[[64, 256], pl.FP32]],
    ) -> pl.Tensor: ...

    both.reference = lambda x, y, scratch: np.copyto(y, x + 3)

    @pl.jit
    def main(x: pl.Tensor[[64, 256], pl.FP32], z: pl.Out[pl.Tensor[[64, 256], pl.FP32]]):
        scratch = pl.create_tensor([64, 256], dtype=pl.FP32)
        z = both(x, z, scratch)
        return z

    z = np.zeros((64, 256), np.float32)
    x = np.ones((64, 256), np.float32)
    Interpreter().run(run_passes(main.specialize()), {"x": x, "z": z})
    assert (z == 4).all()


def test_blocks_of_a_scope_call_it() -> None:
    @pl.jit.extern(source="k.cpp")
    def fill(
        x: pl.Tensor[[64, 256], pl.FP32],
        y: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
        first: pl.Scalar[pl.INDEX],
    ) -> pl.Tensor: ...

    def reference(x: Any, y: Any, first: int) -> None:
        y[first : first + 16] = x[first : first + 16] + first

    fill.reference = reference

    @pl.jit
    def main(x: pl.Tensor[[64, 256], pl.FP32], y: pl.Out[pl.Tensor[[64, 256], pl.FP32]]):
        with pl.spmd(4):
            y = fill(x, y, pl.get_block_idx() * 16)
        return y

    built = run_passes(main.specialize())
    for engine in (Interpreter(), CpuEngine()):
        x, y = np.ones((64, 256), np.float32), np.zeros((64, 256), np.float32)
        engine.run(built, {"x": x, "y": y})
        np.testing.assert_array_equal(y[:, 0], 1 + np.arange(64) // 16 * 16)


def test_blocks_share_its_tensors() -> None:
    @pl.jit.extern(source="k.cpp")
    def copy(
        x: pl.Tensor[[1 << 20], pl.FP32], y: pl.Out[pl.Tensor[[1 << 20], pl.FP32]]
    ) -> pl.Tensor: ...

    def build(blocks: int) -> Any:
        @pl.jit
        def main(x: pl.Tensor[[1 << 20], pl.FP32], y: pl.Out[pl.Tensor[[1 << 20], pl.FP32]]):
            with pl.spmd(blocks, name_hint="copy"):
                y = copy(x, y)
            return y

        return main

    one, many = (modelled(build(blocks))["copy"] for blocks in (1, 32))
    assert many / 32 < 0.1 * one  # a sum over blocks
