"""Program handlers: the handling of cases, calls and uncalled programs by each command."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.runtime import RunConfig, TensorSpec, run_jit, session
from tilelet.runtime.handlers.count import Count
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.handlers.export import Export
from tilelet.runtime.handlers.record import ExecuteAndRecord, Record
from tilelet.runtime.session import Session

SOURCE = Path(__file__).parents[2] / "src" / "tilelet"

# Functions that scripts call, or that stand for a command: they alone may read the session in
# force. All others get the session, or the value they need, as an argument.
ENTRY_POINTS = {
    "advice/programs.py": {"_origins"},
    "cli/profile.py": {"period_of"},
    "compat/bench.py": {"benchmark"},
    "runtime/data/inputs.py": {"initial_array", "initial_tensor"},
    "runtime/harness/runner.py": {"_run_case"},
    "runtime/inspection/check.py": {"recorded_runs"},
    "runtime/inspection/diverge.py": {"diverge"},
    "runtime/inspection/profile.py": {"__enter__"},
    "runtime/programs/compiler.py": {
        "compile_program",
        "compile_with_dumps",
        "platform",
        "output_dir",
        "_call",
        "_engine",
    },
    "runtime/programs/jit_call.py": {"compiled_program"},
    "runtime/programs/ranks_worker.py": {"copy_stacked_from"},
    "runtime/validation/golden.py": {"compute_golden"},
    "runtime/programs/warm_calls.py": {"remember", "__call__"},
}


def readers_of_the_session(file: Path) -> set[str]:
    """Functions of a file that call `session.current()`."""
    found: set[str] = set()
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "session.current",
                    "current",
                ):
                    found.add(function.name)
    return found


def test_only_entry_points_read_the_session_in_force() -> None:
    found = {
        str(file.relative_to(SOURCE)): readers
        for file in SOURCE.rglob("*.py")
        if "runtime.session" in (text := file.read_text(encoding="utf-8"))
        or "runtime import session" in text
        if (readers := readers_of_the_session(file))
    }
    assert found == ENTRY_POINTS


@pl.jit
def double(x: pl.Tensor[[32, 64], pl.FP32], out: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    for r in pl.parallel(0, 32, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.mul(x[r : r + 16, :], 2.0)
    return out


def golden(tensors: dict[str, np.ndarray]) -> None:
    tensors["out"][:] = tensors["x"] * 2


SPECS = [
    TensorSpec("x", [32, 64], pl.FP32, lambda: np.random.default_rng(1).normal(size=(32, 64))),
    TensorSpec("out", [32, 64], pl.FP32, is_output=True),
]


def test_counting_executes_nothing() -> None:
    out = np.zeros((32, 64), np.float32)
    with session.active(Session(Count(), quiet_diagnostics=True)) as now:
        double(np.ones((32, 64), np.float32), out)
        assert run_jit(double, SPECS, golden).tasks == {"double_incore_0": 2}
    assert [table.total for table in now.task_tables] == [2, 2]
    assert not out.any()


@pytest.mark.parametrize("handler", [Record(), ExecuteAndRecord()], ids=["record", "execute"])
def test_recorded_runs_keep_the_arguments_of_their_time(handler: Record | ExecuteAndRecord) -> None:
    x, out = np.ones((32, 64), np.float32), np.zeros((32, 64), np.float32)
    with session.active(Session(handler, quiet_diagnostics=True)):
        double(x, out)
        x[:] = 3
        double(x, out)
    first, second = handler.runs
    assert np.all(first.arguments["x"] == 1)
    assert np.all(second.arguments["x"] == 3)
    assert not np.any(first.arguments["out"])
    assert first.tasks.counts() == {"double_incore_0": 2}


def test_a_recorded_case_has_its_comparison_and_result() -> None:
    handler = ExecuteAndRecord()
    with session.active(Session(handler, quiet_diagnostics=True)):
        result = run_jit(double, SPECS, golden)
    (run,) = handler.runs
    assert run.result is result
    assert result.validated
    assert run.comparison is not None
    assert run.comparison.outputs == ("out",)


def test_inputs_made_after_the_script_are_those_of_the_run() -> None:
    """`torch.manual_seed` of a script decides its inputs, even after it has ended."""
    torch = pytest.importorskip("torch")
    specs = [TensorSpec("x", [32, 64], torch.float32, torch.randn), SPECS[1]]
    drawn: list[np.ndarray] = []
    for handler in (Record(), ExecuteAndRecord()):
        with session.active(Session(handler, quiet_diagnostics=True, golden_cache=False)):
            torch.manual_seed(5)
            run_jit(double, specs)
        torch.manual_seed(6)
        drawn.append(handler.runs[0].arguments["x"])
    assert np.array_equal(*drawn)


def test_examining_and_exporting_keep_cases() -> None:
    examine, export = Examine(), Export()
    for handler in (examine, export):
        with session.active(Session(handler, quiet_diagnostics=True)):
            result = run_jit(double, SPECS, golden)
        assert result.passed
        assert not result.was_executed
    ((name, case),) = examine.cases
    assert name == "double"
    assert case.passes(case.expected)
    ((program, specs, _),) = export.cases
    assert program.name == "double"
    assert [spec.name for spec in specs] == ["x", "out"]


def test_a_case_that_is_only_compiled_is_not_examined() -> None:
    handler = Examine()
    with session.active(Session(handler, quiet_diagnostics=True)):
        assert run_jit(double, SPECS, golden, config=RunConfig(compile_only=True)).passed
    assert not handler.cases
