"""`run` and its relatives on small programs, called from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tilelet.language as pl
from tilelet.diag.catalogue.harness import (
    ArgumentCount,
    ArgumentMismatch,
    BadRunCall,
    DynamicDimConflict,
    ReadOnlyOutput,
    UnknownData,
)
from tilelet.diag.internal import InternalError
from tilelet.runtime import RunConfig, ScalarSpec, TensorSpec, run, run_jit, session
from tilelet.runtime.handlers.count import Count
from tilelet.runtime.handlers.record import Record
from tilelet.runtime.programs import engines
from tilelet.runtime.programs.compiler import compile_program
from tilelet.runtime.session import Session


@pl.program
class AddToState:
    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        state: pl.Tensor[[16, 32], pl.FP32],
        out: pl.Tensor[[16, 32], pl.FP32],
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        with pl.at(level=pl.Level.CORE_GROUP):
            total = pl.add(pl.slice(x, [16, 32], [0, 0]), pl.slice(state, [16, 32], [0, 0]))
            state = pl.assemble(state, total, [0, 0])
            out = pl.assemble(out, pl.mul(total, 2.0), [0, 0])
        return out


@pl.jit
def scale(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]], factor: float):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.mul(x[:, :], factor)
    return y


ROWS = pl.dynamic("ROWS")


@pl.jit
def copy(x: pl.Tensor[[ROWS, 32], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, 32], pl.FP32]]):
    for r in pl.range(0, pl.tensor.dim(x, 0), 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 16, :] = x[r : r + 16, :]
    return y


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Path:
    """Run directories and the cache go to a folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def specs(state: Any = None, state_is_output: bool = True, dtype: Any = np.float32) -> list[Any]:
    return [
        TensorSpec("x", [16, 32], dtype, np.ones),
        TensorSpec("state", [16, 32], dtype, state, is_output=state_is_output),
        TensorSpec("out", [16, 32], dtype, is_output=True),
    ]


def golden(tensors: dict[str, np.ndarray]) -> None:
    tensors["state"][:] = tensors["state"] + tensors["x"]
    tensors["out"][:] = 2 * tensors["state"]


def test_all_outputs_are_compared_with_in_out_state() -> None:
    result = run(AddToState, specs(state=3.0), golden)
    assert result.passed
    assert result.validated
    assert result.test_name == "AddToState"
    assert result.tasks == {"main_incore_0": 1}
    assert str(result).startswith("PASS (")


def test_the_oldest_form_starts_outputs_at_zero(capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, float] = {}

    def old_golden(tensors: dict[str, np.ndarray], params: dict[str, Any]) -> None:
        seen["state"] = float(tensors["state"].max())
        golden(tensors)

    result = run(program=AddToState, tensor_specs=specs(state=3.0), golden=old_golden)
    assert result.passed
    assert seen == {"state": 0.0}
    assert "  state: PASS (512/512 elements matched)\n" in capsys.readouterr().out


def test_every_way_to_pass_the_same_things() -> None:
    config = RunConfig(rtol=1e-3)
    assert run(AddToState, specs(), golden, config=config).passed
    assert run(AddToState, specs(), config, golden).passed
    assert run(AddToState, specs(), golden_fn=golden, rtol=1e-3).passed
    assert run(program=AddToState, specs=tuple(specs()), golden_fn=golden).passed
    assert run(AddToState, specs(), None, golden_fn=golden).passed


def test_a_wrong_output_fails_with_a_report(elsewhere: Path) -> None:
    def wrong(tensors: dict[str, np.ndarray]) -> None:
        golden(tensors)
        tensors["state"][3, 5] += 1

    result = run(AddToState, specs(), wrong)
    assert not result.passed
    assert result.could_run
    assert result.error is not None
    assert result.error.startswith("Output(s) does not match golden: ['state']\n")
    assert "[3, 5]: actual 1, golden 2" in result.error
    assert str(result).startswith("FAIL: Output(s)")
    (report,) = elsewhere.glob("build_output/AddToState_*/report/mismatch.txt")
    assert "[3, 5]" in report.read_text()


def test_nan_in_both_is_a_mismatch() -> None:
    result = run(AddToState, specs(state=float("nan")), golden)
    assert not result.passed
    assert "512 NaN in actual, 512 NaN in golden" in str(result.error)


def test_an_unmarked_output_is_compared_if_the_golden_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def only_out(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = 2 * (tensors["state"] + tensors["x"])

    def wrong_state(tensors: dict[str, np.ndarray]) -> None:
        only_out(tensors)
        tensors["state"][:] = 7

    unmarked = specs(state=1.0, state_is_output=False)
    assert run(AddToState, unmarked, only_out).passed
    assert "'state' is written, but not by the golden: not compared" in capsys.readouterr().out
    assert not run(AddToState, unmarked, wrong_state).passed


def test_torch_specs_give_torch_goldens_and_comparators() -> None:
    kinds: set[type] = set()

    def torch_golden(tensors: dict[str, torch.Tensor]) -> None:
        kinds.add(type(tensors["x"]))
        tensors["state"] += tensors["x"]
        tensors["out"][:] = 2 * tensors["state"]

    def compare(actual: Any, expected: Any, *, inputs: Mapping[str, Any], **_: Any) -> Any:
        kinds.add(type(inputs["x"]))
        assert float(inputs["state"].max()) == 3.0  # as it was before the run
        return bool(torch.equal(actual, expected)), ""

    result = run(
        AddToState,
        specs(state=3.0, dtype=torch.float32),
        torch_golden,
        compare_fn={"out": compare},
    )
    assert result.passed, result.error
    assert kinds == {torch.Tensor}


def test_a_jit_function_with_a_scalar() -> None:
    def scale_golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * tensors["factor"].item()

    arguments = [
        TensorSpec("x", [16, 32], pl.FP32, np.ones),
        TensorSpec("y", [16, 32], pl.FP32, is_output=True),
        ScalarSpec("factor", pl.FP32, 2.5),
    ]
    assert run_jit(scale, arguments, scale_golden).passed
    assert run_jit(fn=scale, specs=list(reversed(arguments)), golden_fn=scale_golden).passed


@pl.jit
def halved(
    x: pl.Tensor,
    y: pl.Out[pl.Tensor],
    factor: pl.Scalar[pl.FP32] = 0.5,
    bias: float = 1.0,
):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:] = pl.add(pl.mul(x, factor), bias)
    return y


def test_numbers_with_defaults_need_no_spec() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * 0.5 + 1

    arguments = [
        TensorSpec("x", [16, 32], pl.FP32, np.ones),
        TensorSpec("y", [16, 32], pl.FP32, is_output=True),
    ]
    assert run_jit(halved, arguments, golden).passed
    assert not run_jit(halved, [*arguments, ScalarSpec("bias", 2.0)], golden).passed


def test_the_form_of_late_scripts() -> None:
    """The program is `fn`, settings are a dict, and only the signature says what is an output."""

    def scale_golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * tensors["factor"]

    def wrong(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"]

    arguments = [
        TensorSpec("x", [16, 32], torch.float32, torch.ones),
        TensorSpec("y", [16, 32], torch.float32),
        ScalarSpec("factor", torch.float32, 2.5, compile_runtime=True, benchmark_step=1),
    ]
    settings = {"platform": "a2a3sim", "device_id": 0, "enable_chip_swimlane": 0}
    result = run(fn=scale, specs=arguments, golden_fn=scale_golden, config=settings)
    assert result.passed, result.error
    assert not run(fn=scale, specs=arguments, golden_fn=wrong, config=settings).passed
    x, y = torch.ones(16, 32), torch.zeros(16, 32)
    run(copy, x, y, config=settings)
    assert torch.equal(x, y)


def test_what_is_wrong_with_a_late_call() -> None:
    arguments = [TensorSpec("x", [32, 32], pl.FP32), TensorSpec("y", [32, 32], pl.FP32)]
    for settings, message in (({"platfrom": "a5"}, "platfrom"), (3, "a `RunConfig` or a dict")):
        assert message in str(run(fn=copy, specs=arguments, config=settings).error)
    with pytest.raises(BadRunCall, match="`program` and `fn` are the same"):
        run(copy, fn=copy, specs=arguments)
    with pytest.raises(BadRunCall, match="there is no program"):
        run(specs=arguments)


@pl.program
class ReturnsNewTensors:
    @pl.function(type=pl.FunctionType.InCore)
    def added(
        self,
        a: pl.Tensor[[16, 32], pl.FP32],
        number: pl.Scalar[pl.FP32],
        b: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        return pl.store(pl.add(pl.load(a, [0, 0], [16, 32]), number), [0, 0], b)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[16, 32], pl.FP32]
    ) -> tuple[pl.Tensor[[16, 32], pl.FP32], pl.Tensor[[16, 32], pl.FP32]]:
        one = pl.create_tensor([16, 32], dtype=pl.FP32)
        one = self.added(x, 1.0, one)
        three = pl.create_tensor([16, 32], dtype=pl.FP32)
        three = self.added(one, 2.0, three)
        return three, one


@pytest.mark.parametrize("right", [True, False])
def test_specs_of_what_an_entry_returns(right: bool) -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["three"][:] = tensors["x"] + (3 if right else 4)
        tensors["one"][:] = tensors["x"] + 1

    arguments = [
        TensorSpec("x", [16, 32], pl.FP32, np.random.randn),
        TensorSpec("three", [16, 32], pl.FP32, is_output=True),
        TensorSpec("one", [16, 32], pl.FP32, is_output=True),
    ]
    result = run(ReturnsNewTensors, arguments, golden)
    assert result.passed == right, result.error
    assert sum(result.tasks.values()) == 2
    few = run(ReturnsNewTensors, arguments[:2], golden)
    assert "spec `three` has no parameter" in str(few.error)


def test_comparators_see_scalars_as_the_golden_does() -> None:
    def compare(actual: Any, expected: Any, *, inputs: Mapping[str, Any], **_: Any) -> Any:
        assert isinstance(inputs["factor"], torch.Tensor)
        return torch.equal(actual, inputs["x"] * inputs["factor"]), ""

    def scale_golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * tensors["factor"]

    arguments = [
        TensorSpec("x", [16, 32], torch.float32, torch.ones),
        TensorSpec("y", [16, 32], torch.float32, is_output=True),
        ScalarSpec("factor", torch.float32, 2.5),
    ]
    result = run_jit(scale, arguments, scale_golden, compare_fn={"y": compare})
    assert result.passed, result.error


def test_the_configuration_may_name_the_comparators() -> None:
    def never(actual: Any, expected: Any, **_: Any) -> Any:
        return False, "never"

    def scale_golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * tensors["factor"]

    arguments = [
        TensorSpec("x", [16, 32], pl.FP32, np.ones),
        TensorSpec("y", [16, 32], pl.FP32, is_output=True),
        ScalarSpec("factor", pl.FP32, 2.5),
    ]
    assert run_jit(scale, arguments, scale_golden, config=RunConfig(atol=1e-3)).passed
    for given in (never, {"y": never}):
        config = RunConfig(compare_fn=given)
        assert "never" in str(run_jit(scale, arguments, scale_golden, config=config).error)


def test_one_comparator_for_all_outputs_is_not_asked_about_inputs() -> None:
    seen: list[tuple[int, ...]] = []

    def compare(actual: Any, expected: Any, **_: Any) -> Any:
        seen.append(tuple(actual.shape))
        return np.array_equal(actual, expected), ""

    def scale_golden(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = tensors["x"] * tensors["factor"]

    arguments = [
        TensorSpec("x", [16, 32], pl.FP32, np.ones),
        TensorSpec("y", [16, 32], pl.FP32, is_output=True),
        ScalarSpec("factor", pl.FP32, 2.5),
    ]
    result = run_jit(scale, arguments, scale_golden, compare_fn=compare)
    assert result.passed, result.error
    assert seen == [(16, 32)]


def test_a_script_may_hand_on_the_folder_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [
        TensorSpec("x", [32, 32], pl.FP32, np.random.randn),
        TensorSpec("y", [32, 32], pl.FP32, is_output=True),
    ]
    first = run(copy, arguments)
    assert not list(tmp_path.iterdir())  # nothing has requested it yet
    assert run(copy, arguments, runtime_dir=str(first.work_dir)).passed
    with session.active(Session(Count())):
        assert Path(str(run(copy, arguments).work_dir)).is_dir()


def test_two_runs_have_the_same_inputs() -> None:
    drawn: list[np.ndarray] = []

    def remember(tensors: dict[str, np.ndarray]) -> None:
        drawn.append(tensors["x"].copy())
        tensors["y"][:] = tensors["x"]

    arguments = [
        TensorSpec("x", [32, 32], pl.FP32, np.random.randn),
        TensorSpec("y", [32, 32], pl.FP32, is_output=True),
    ]
    with session.active(Session(golden_cache=False)):
        assert run(copy, arguments, remember).passed
        assert run(copy, arguments, remember).passed
    assert np.array_equal(*drawn)


def test_without_a_golden_validation_is_said_to_be_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run(AddToState, specs())
    assert result.passed
    assert not result.validated
    assert "validation skipped: no golden" in capsys.readouterr().out


def test_run_never_raises() -> None:
    result = run(AddToState, [*specs()[:2]], golden)
    assert not result.passed
    assert not result.could_run
    assert "no spec for the parameter `out`" in str(result.error)


def test_sizes_beyond_memory_are_refused_before_anything_is_made() -> None:
    huge = [
        TensorSpec("x", [1 << 40, 32], pl.FP32, lambda: pytest.fail("made")),
        TensorSpec("y", [1 << 40, 32], pl.FP32, is_output=True),
    ]
    result = run(copy, huge, golden)
    assert "error[E0607]: `y` needs 384 TiB" in str(result.error)


class Broken:
    def prepare(self, program: Any) -> None: ...

    def run(self, program: Any, arguments: Any, *, execute: bool = True) -> Any:
        raise InternalError("the wheels came off", function="main")


def test_a_bug_in_tilelet_says_so_and_leaves_a_reproducer(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setitem(engines._FACTORIES, "broken", lambda _: Broken())
    result = run(AddToState, specs(), golden, config=RunConfig(engine="broken"))
    assert not result.passed
    error = str(result.error)
    assert error.startswith("internal error: the wheels came off")
    assert "this is a bug in Tilelet" in error
    (report,) = elsewhere.glob("build_output/AddToState_*/report/reproducer.txt")
    text = report.read_text()
    assert "class AddToState:" in text
    assert "the wheels came off" in text


def test_counting_needs_no_float_data() -> None:
    with session.active(Session(Count(), quiet_diagnostics=True)):
        result = run(AddToState, specs(state=lambda: pytest.fail("not needed")), golden)
    assert result.passed
    assert result.tasks == {"main_incore_0": 1}
    assert str(result) == "not executed: 1 tasks counted"


def test_counting_reads_stored_inputs(tmp_path: Path) -> None:
    @pl.jit
    def steps(n: pl.Tensor[[1], pl.UINT32], y: pl.Out[pl.Tensor[[8, 32], pl.FP32]]):
        for i in pl.range(pl.cast(pl.read(n, [0]), pl.INDEX)):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[i : i + 1, :] = pl.full([1, 32], dtype=pl.FP32, value=1.0)
        return y

    given = [
        TensorSpec("n", [1], pl.INT32, lambda: np.zeros(1, np.int32)),
        TensorSpec("y", [8, 32], pl.FP32, is_output=True),
    ]
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "n.npy", np.array([3], np.int32))
    with session.active(Session(Count(), quiet_diagnostics=True)):
        result = run_jit(steps, given, golden_data=tmp_path)
    assert str(result) == "not executed: 3 tasks counted"


def test_a_count_that_stopped_says_so() -> None:
    @pl.jit
    def rows(x: pl.Tensor[[8, 32], pl.FP32], y: pl.Out[pl.Tensor[[8, 32], pl.FP32]]):
        for i in pl.range(8):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)
        return y

    given = [TensorSpec("x", [8, 32], pl.FP32), TensorSpec("y", [8, 32], pl.FP32, is_output=True)]
    with session.active(Session(Record(most_tasks=5), quiet_diagnostics=True)):
        assert str(run_jit(rows, given)) == "not executed: the first 5 tasks counted"


def test_direct_calls_write_into_their_arguments() -> None:
    x = torch.randn(16, 32)
    y = torch.zeros(16, 32)
    assert scale(x, y, 3.0) is y
    assert torch.equal(y, x * 3.0)
    rows = np.ones((48, 32), np.float32)
    assert np.array_equal(copy(rows, np.zeros_like(rows)), rows)


def test_a_strided_output_is_written_in_place() -> None:
    wide = torch.zeros(32, 16)
    x = torch.randn(16, 32)
    scale(x, wide.t(), 2.0)
    assert torch.equal(wide.t(), x * 2.0)


def test_left_out_outputs_are_made() -> None:
    x = torch.randn(16, 32)
    compiled = scale.compile(x, torch.zeros(16, 32), 2.0)
    made = compiled(x)
    assert isinstance(made, torch.Tensor)
    assert torch.equal(made, x * 2.0)
    rows = np.ones((32, 32), np.float32)
    compiled = copy.compile(rows, rows)
    assert np.array_equal(compiled(rows), rows)


def test_a_signature_that_states_all_needs_no_samples() -> None:
    @pl.jit
    def added(
        x: pl.Tensor[[16, 32], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
        amount: int = 3,
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(x, amount * 1.0)
        return out

    x = torch.randn(16, 32)
    assert torch.equal(added.compile()(x), x + 3)
    assert added.lower().as_python(concise=True) == added.lower(x, x).as_python()
    text = added.compile().program.functions["added_incore_0"].as_python(format=False)
    assert "pl.add" in text
    with pytest.raises(ArgumentCount, match="expects 2 arguments, got 0"):
        copy_of_any.compile()


@pl.jit
def copy_of_any(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.slice(x, [16, 32], [0, 0])
    return out


def test_only_what_was_left_out_is_given_back() -> None:
    @pl.program
    class Both:
        @pl.function
        def main(
            self,
            x: pl.Tensor[[16, 32], pl.FP32],
            total: pl.InOut[pl.Tensor[[16, 32], pl.FP32]],
            out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                total = pl.assemble(total, pl.add(total, x), [0, 0])
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, pl.mul(total, 2.0), [0, 0])
            return total, out

    compiled = compile_program(Both)
    assert compiled.output_indices == [2]
    assert Path(str(compiled)) == compiled.output_dir
    x, total = torch.ones(16, 32), torch.full((16, 32), 2.0)
    for doubled in (6.0, 8.0, 10.0):  # again: the second call takes the fast path
        made = compiled(x, total)
        assert isinstance(made, torch.Tensor)
        assert torch.equal(made, torch.full((16, 32), doubled))
        assert torch.equal(made, 2 * total)
    given = torch.zeros(16, 32)
    back = compiled(x, total, given)
    assert back[0] is total
    assert back[1] is given
    assert torch.equal(given, torch.full((16, 32), 12.0))


def test_mistakes_in_direct_calls() -> None:
    x = np.zeros((16, 32), np.float32)
    with pytest.raises(ArgumentCount):
        scale()
    with pytest.raises(TypeError, match="expects 3 arguments, got 1"):
        scale(x)
    with pytest.raises(ArgumentMismatch, match="shape"):
        scale(x, np.zeros((16, 16), np.float32), 1.0)
    with pytest.raises(ArgumentMismatch, match="dtype"):
        scale(x.astype(np.float16), x, 1.0)
    with pytest.raises(UnknownData, match="float64"):
        scale(x.astype(np.float64), x, 1.0)
    with pytest.raises(DynamicDimConflict):
        copy(x, np.zeros((32, 32), np.float32))
    locked = np.zeros((16, 32), np.float32)
    locked.flags.writeable = False
    with pytest.raises(ReadOnlyOutput):
        scale(x, locked, 1.0)


FLAT, COLUMNS = pl.dynamic("FLAT"), pl.dynamic("COLUMNS")


@pl.program
class Folded:
    """The symbol of `x` has another extent in `y`."""

    @pl.function(type=pl.FunctionType.Orchestration)
    def fold(
        self,
        x: pl.Tensor[[FLAT], pl.FP32],
        y: pl.Out[pl.Tensor[[FLAT, COLUMNS], pl.FP32]],
    ):
        rows = pl.reshape(x, [8, 16])
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.assemble(y, pl.mul(rows, 2.0), [0, 0])
        return y


@pytest.mark.parametrize("engine", ["interp", "cpu"])
def test_a_tensor_has_its_own_extents_where_a_symbol_is_another_number(engine: str) -> None:
    def double(tensors: dict[str, np.ndarray]) -> None:
        tensors["y"][:] = 2 * tensors["x"].reshape(8, 16)

    tensors = [
        TensorSpec("x", [128], np.float32, lambda: np.arange(128, dtype=np.float32)),
        TensorSpec("y", [8, 16], np.float32, is_output=True),
    ]
    with session.active(Session()) as now:
        assert run(Folded, tensors, double, config=RunConfig(engine=engine)).passed
    (noted,) = [d for d in now.diagnostics if d.code == "W0602"]
    assert "taken as `pl.Tensor[[8, 16], pl.FP32]`" in noted.message
    with pytest.raises(DynamicDimConflict):
        compile_program(Folded)(np.zeros(128, np.float32), np.zeros((8, 16), np.float32))


def test_a_program_is_compiled_once_per_signature() -> None:
    x = np.zeros((16, 32), np.float32)
    assert scale.compile(x, x, 2.0) is scale.compile(x, x, 2.0)
    assert scale.compile(x, x, 2.0) is not scale.compile(x, x, 3.0)


def test_mistakes_in_the_call_point_at_the_script() -> None:
    one_too_many = [*specs(), TensorSpec("more", [16, 32], np.float32)]
    result = run(AddToState, one_too_many, golden_fn=golden)
    assert "error[E0606]: spec `more` has no parameter" in str(result.error)
    call = "result = run(AddToState, one_too_many, golden_fn=golden)"
    assert call in str(result.error)
    assert f" {'^' * len(call)} in this call" in str(result.error)


def test_the_c_compiler_works_in_the_compile_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The runtime stage finds the program compiled."""
    from tilelet.cpu.run import engine

    monkeypatch.chdir(tmp_path)
    seen: list[str] = []
    compile_once = engine.compile_native

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.append(capsys.readouterr().out)
        return compile_once(*arguments, **options)

    monkeypatch.setattr(engine, "compile_native", watched)
    specs = [
        TensorSpec("x", [16, 32], pl.FP32, 0.5),
        TensorSpec("state", [16, 32], pl.FP32, 0.5),
        TensorSpec("out", [16, 32], pl.FP32, is_output=True),
    ]
    with session.active(Session(engine="cpu")):
        assert run_jit(AddToState, specs).passed
    assert "[RUN] compile ..." in seen[0]
    assert "compile done" not in seen[0]
