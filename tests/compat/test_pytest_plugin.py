"""Test suites of the language under `-p tilelet.compat.pytest_plugin`, on a small suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

FILES = {
    "harness/__init__.py": "",
    "harness/core/__init__.py": "from harness.core.test_runner import TestRunner, TestSuite\n",
    "harness/core/test_runner.py": """
raise RuntimeError('this one drives a board')


def publish_platform(name, item):
    pass
""",
    "harness/core/environment.py": """
def is_hardware_available():
    return False


def ensure_simpler_available():
    raise RuntimeError("no runtime")
""",
    "conftest.py": """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from harness.core.environment import ensure_simpler_available, is_hardware_available
from harness.core.test_runner import TestRunner, publish_platform
from pypto import LogLevel
from pypto.pypto_core import _clear_thread_log_level, _set_thread_log_level
from pypto.pypto_core.passes import MemoryPlanner
from pypto.runtime.runner import _SWIMLANE_FULL_LEVEL, RunConfig


@pytest.fixture(autouse=True)
def board():
    _set_thread_log_level(LogLevel.ERROR)
    publish_platform("a2a3", item=None)
    if not is_hardware_available():
        pytest.skip("no board")
    assert ensure_simpler_available().is_dir()
    yield
    _clear_thread_log_level()


@pytest.fixture
def test_runner():
    return TestRunner(RunConfig(platform="a2a3", analyze_auto_scopes_for_deps=True,
                                memory_planner=MemoryPlanner.PTOAS))
""",
    "test_ops.py": """
import pypto.language as pl
import pytest
import torch
from pypto.ir.compiled_program import CompiledProgram
from pypto.debug import a_tool_that_is_not_here


@pl.program
class Doubles:
    @pl.function
    def main(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.add(x, x)
        return y


@pl.program
class IsRefused:
    @pl.function
    def main(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.there_is_no_such_op(x)
        return y


class Spec:
    def __init__(self, name, init_value=None, is_output=False):
        self.name, self.shape, self.dtype = name, [16, 16], torch.float32
        self.init_value, self.is_output = init_value, is_output


class Case:
    def __init__(self, program, factor=2.0):
        self.program, self.factor, self.config = program, factor, None

    def get_name(self):
        return "case"

    def get_program(self):
        return self.program

    @property
    def tensor_specs(self):
        return [Spec("x", lambda shape: torch.ones(shape) * 3), Spec("y", is_output=True)]

    def compute_expected(self, tensors, params=None):
        tensors["y"][:] = tensors["x"] * self.factor


@pl.jit
def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.mul(x, 2.0)
    return y


def test_passes(test_runner):
    assert test_runner.run(Case(Doubles)).passed


def test_mismatch(test_runner):
    result = test_runner.run(Case(Doubles, factor=3.0))
    assert not result.passed
    assert result.test_name == "case"


class UpperHalf(Case):
    # What the golden leaves NaN is not compared; what it has is.

    def compute_expected(self, tensors, params=None):
        tensors["y"][:] = float("nan")
        tensors["y"][:8] = tensors["x"][:8] * self.factor


def test_undefined_is_not_compared(test_runner):
    assert test_runner.run(UpperHalf(Doubles)).passed
    assert not test_runner.run(UpperHalf(Doubles, factor=3.0)).passed


def test_refused(test_runner):
    result = test_runner.run(Case(IsRefused))
    assert not result.passed
    assert "there_is_no_such_op" in result.error


def test_cache():
    kernel._cache.clear()
    kernel(torch.ones(16, 16), torch.zeros(16, 16))
    (compiled,) = kernel._cache.values()
    assert isinstance(compiled, CompiledProgram)


def test_not_ours():
    a_tool_that_is_not_here(Doubles)


def test_workers_of_a_board():
    from simpler.board import Tool

    Tool(1)


def test_what_a_board_is_given():
    kernel(torch.ones(16, 16), torch.zeros(16, 16))
    (compiled,) = kernel._cache.values()
    assert type(compiled).from_dir


def test_errors_of_the_other_compiler():
    with pytest.raises(a_tool_that_is_not_here):
        pass


def test_names_that_the_runner_never_had():
    with pytest.raises(ImportError, match="publish_platfrom"):
        from harness.core.test_runner import publish_platfrom


def test_attributes_that_are_ours():
    with pytest.raises(AttributeError):
        kernel.there_is_no_such_thing
""",
    "distributed/test_ranks.py": """
import pypto.language as pl
import torch
from pypto import ir


@pl.program
class Two:
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(
        self, a: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator):
            with pl.at(level=pl.Level.CORE_GROUP):
                y = pl.assemble(y, pl.add(a, a), [0, 0])
        return y


def test_behavior_after_a_look_at_generated_files():
    compiled = ir.compile(Two, platform="a2a3sim")
    assert (compiled.output_dir / "next_levels" / "host_chip_0").is_dir()
    a, y = torch.ones((16, 16)), torch.zeros((16, 16))
    compiled(a, y)
    assert torch.equal(y, a + a)


def test_generated_text():
    compiled = ir.compile(Two, platform="a2a3sim")
    assert "submit" in (compiled.output_dir / "host.py").read_text()
""",
    "codegen/test_text.py": "raise RuntimeError('is not even imported')\n",
}


def test_a_suite(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "tilelet.compat.pytest_plugin"]
    command += ["-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TILELET_ENGINE": "interp"}
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert "8 passed, 6 skipped" in done.stdout, done.stdout + done.stderr
    assert "text of generated code" in done.stdout
    assert "needs `host.py`" in done.stdout
    assert "needs `pypto.debug.a_tool_that_is_not_here`" in done.stdout
    assert done.returncode == 0
