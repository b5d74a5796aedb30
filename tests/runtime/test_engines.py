"""Which engine runs a program, with which arguments and messages."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tilelet.language as pl
from tilelet.cpu.run import engine as cpu
from tilelet.diag.catalogue.command import NoCompiler, UnknownEngine
from tilelet.diag.catalogue.harness import (
    ArgumentMismatch,
    BadConfig,
    OverlappingOutput,
    ReadOnlyOutput,
    UnknownData,
)
from tilelet.dtypes import DType
from tilelet.interp.interpreter import Interpreter
from tilelet.native import toolchain
from tilelet.runtime import RunConfig, TensorSpec, run, session
from tilelet.runtime.data.arrays import as_array, as_tensor
from tilelet.runtime.handlers.record import ExecuteAndRecord
from tilelet.runtime.programs import engines
from tilelet.runtime.programs.compiler import compile_program
from tilelet.runtime.session import Session
from tilelet.tasks.stream import TaskStream


@pl.jit
def twice(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):
    for r in pl.range(0, 8, 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 4, :] = pl.mul(x[r : r + 4, :], 2.0)
    return y


@pl.jit
def negated(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.neg(x[:, :])
    return y


@pl.jit
def one_more(x: pl.Tensor[[8, 16], pl.UINT32], y: pl.Out[pl.Tensor[[8, 16], pl.UINT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.add(x[:, :], 1)
    return y


@pl.program
class Growing:
    """The number of tasks depends on the result of the first task."""

    @pl.function
    def main(
        self, n: pl.InOut[pl.Tensor[[1, 8], pl.INT32]], x: pl.InOut[pl.Tensor[[4, 8], pl.FP32]]
    ) -> pl.Tensor[[4, 8], pl.FP32]:
        with pl.at(level=pl.Level.CORE_GROUP):
            n[:, :] = pl.add(n[:, :], 2)
        for _ in pl.range(pl.cast(pl.read(n, [0, 0]), pl.INDEX)):
            with pl.at(level=pl.Level.CORE_GROUP):
                x[:, :] = pl.add(x[:, :], 1.0)
        return x


@pytest.fixture
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILELET_ENGINE", raising=False)
    monkeypatch.setattr(engines, "_no_compiler_said", threading.Event())


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> toolchain.Compiler:
        raise NoCompiler

    monkeypatch.setattr(toolchain, "find_compiler", none)
    monkeypatch.setattr("tilelet.cpu.run.build.find_compiler", none)


@pytest.mark.usefixtures("nobody_chose")
def test_programs_are_compiled_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert session.DEFAULT_ENGINE == "cpu"
    assert isinstance(engines.get(), cpu.CpuEngine)
    with session.active(Session(engine="interp")):
        assert isinstance(engines.get(), Interpreter)
        assert isinstance(engines.get("cpu"), cpu.CpuEngine)
    with session.active(Session(seed_valid=True)):
        assert isinstance(engines.get(), Interpreter)
        assert isinstance(engines.get("cpu"), Interpreter)
    monkeypatch.setenv("TILELET_ENGINE", "interp")
    assert isinstance(engines.get(), Interpreter)
    with pytest.raises(UnknownEngine, match="`gpu`"):
        engines.get("gpu")


@pytest.mark.usefixtures("nobody_chose", "no_compiler")
def test_without_a_compiler_programs_are_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    """The message appears once, in one line, with the ways to get a compiler."""
    x = np.ones((8, 16), np.float32)
    for _ in range(2):
        y = np.zeros_like(x)
        twice(x, y)
        assert (y == 2).all()
    (line,) = capsys.readouterr().err.splitlines()
    assert "no C compiler found: programs are interpreted" in line
    assert "`pip install 'tilelet[cc]'`" in line
    assert "`gcc`" in line


@pytest.mark.usefixtures("nobody_chose", "no_compiler")
@pytest.mark.parametrize("how", ["session", "config", "environment"])
def test_who_names_the_native_engine_gets_it_or_an_error(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.ones((8, 16), np.float32)
    if how == "environment":
        monkeypatch.setenv("TILELET_ENGINE", "cpu")
    config = RunConfig(engine="cpu" if how == "config" else None)
    compiled = compile_program(twice.specialize(x, x))
    now = Session(engine="cpu" if how == "session" else None)
    with session.active(now), pytest.raises(NoCompiler):
        compiled(x, x.copy(), config=config)


@pytest.mark.usefixtures("nobody_chose", "no_compiler")
def test_counting_needs_no_compiler_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    counts = compile_program(twice.specialize(*[np.ones((8, 16), np.float32)] * 2)).task_counts({})
    assert list(counts.values()) == [2]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("nobody_chose")
@pytest.mark.parametrize("how", ["recorder", "profiling"])
def test_tasks_of_a_native_run_are_recorded_if_wanted(how: str, tmp_path: Path) -> None:
    """The results may decide the number of tasks, which is then unknown beforehand."""
    compiled = compile_program(Growing)
    given = {"n": np.ones((1, 8), np.int32), "x": np.zeros((4, 8), np.float32)}
    if how == "recorder":
        handler = ExecuteAndRecord()
        with session.active(Session(handler, build_dir=tmp_path)):
            compiled(*given.values())
        tasks = handler.runs[0].tasks
    else:
        tasks = compiled.run_tasks(given, RunConfig(enable_profiling=True))
    assert isinstance(tasks, TaskStream)
    assert sorted(tasks.counts().values()) == [1, 3]
    assert (given["x"] == 3).all()


DTYPES = [pl.FP32, pl.BF16, pl.FP16, pl.INT32, pl.INT8]


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_ENGINE", "cpu")


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_and_tensors_are_used_in_place(dtype: DType) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype.numpy)
    result = np.zeros_like(array)
    assert negated(array, result) is result
    assert np.array_equal(result, -array)
    tensor, out = as_tensor(array), as_tensor(np.zeros_like(array))
    address = out.data_ptr()
    assert negated(tensor, out) is out
    assert out.data_ptr() == address
    assert np.array_equal(as_array(out), -array)
    assert torch.equal(tensor, as_tensor(array))


@pytest.mark.parametrize("engine", ["cpu", "interp"])
def test_signed_integers_for_unsigned_parameters(engine: str, monkeypatch: Any) -> None:
    """torch has few unsigned types: equal bits, on the first call and on later ones."""
    monkeypatch.setenv("TILELET_ENGINE", engine)
    x = torch.arange(-64, 64, dtype=torch.int32).reshape(8, 16)
    for _ in range(3):
        y = torch.zeros_like(x)
        assert one_more(x, y) is y
        assert torch.equal(y, x + 1)
    unsigned = np.zeros((8, 16), np.uint32)
    one_more(x.numpy(), unsigned)
    assert np.array_equal(unsigned.view(np.int32), x.numpy() + 1)
    with pytest.raises(ArgumentMismatch, match="INT64"):
        one_more(x.long(), unsigned)


class Foreign:
    """A tensor of a library that Tilelet does not know."""

    def __init__(self, tensor: torch.Tensor, versioned: bool) -> None:
        self.tensor = tensor
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.tensor.__dlpack__(**options)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_libraries_by_dlpack(dtype: DType, versioned: bool) -> None:
    """Arrays are inputs and outputs, strided, and of types that NumPy itself does not exchange."""
    wide = as_tensor(np.arange(24).reshape(4, 6).astype(dtype.numpy))
    x, y = wide.t()[1:5], torch.zeros(4, 4, dtype=wide.dtype)
    out = Foreign(y, versioned)
    assert negated(Foreign(x, versioned), out) is out
    assert torch.equal(y, -x)


@pytest.mark.usefixtures("native")
def test_memory_of_other_libraries_lives_as_long_as_it_is_needed() -> None:
    from tilelet.runtime.data.dlpack import from_dlpack

    array = from_dlpack(Foreign(torch.full((1 << 16,), 7.0), True))
    others = [torch.full((1 << 16,), float(i)) for i in range(8)]
    assert (array == 7).all()
    assert len(others) == 8


def test_foreign_objects_that_do_not_fit() -> None:
    x = np.zeros((8, 16), np.float32)
    with pytest.raises(UnknownData, match="DLPack type 2, 64 bits"):
        twice(Foreign(torch.zeros(8, 16, dtype=torch.float64), True), x)
    far = Foreign(torch.zeros(8, 16), True)
    far.__class__ = type("Far", (Foreign,), {"__dlpack_device__": lambda self: (2, 0)})
    with pytest.raises(UnknownData, match="memory of another device"):
        twice(far, x)
    locked = np.zeros((8, 16), np.float32)
    locked.flags.writeable = False
    shown = type("Locked", (), {
        "__dlpack__": lambda self, **options: locked.__dlpack__(**options),
        "__dlpack_device__": lambda self: locked.__dlpack_device__(),
    })()  # fmt: skip
    with pytest.raises(ReadOnlyOutput):
        twice(x, shown)


@pytest.mark.parametrize("engine", ["native", "interp"])
def test_outputs_whose_elements_share_memory(
    engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "native":
        request.getfixturevalue("native")
    else:
        monkeypatch.setenv("TILELET_ENGINE", "interp")
    x = torch.arange(128.0).reshape(8, 16)
    memory = torch.zeros(500)
    for y in (
        torch.zeros(1, 16).expand(8, 16),
        memory.as_strided((8, 16), (8, 1)),
        memory.as_strided((8, 16), (3, 2)),
    ):
        with pytest.raises(OverlappingOutput):
            twice(x, y)
        assert (y == 0).all()
        twice(y, torch.empty(8, 16))  # as an input it is what it says
    woven = memory.as_strided((8, 16), (1, 8))
    twice(x, woven)
    assert (woven == 2 * x).all()
    odd = memory.as_strided((8, 16), (33, 16))  # rows interleave without overlapping
    twice(x, odd)
    assert (odd == 2 * x).all()


@pytest.mark.usefixtures("native")
def test_elements_at_odd_addresses() -> None:
    memory = np.zeros(8 * 16 * 4 + 1, np.uint8)
    x = memory[1:].view(np.float32).reshape(8, 16)
    assert not x.flags.aligned
    x[...] = 3
    y = np.zeros((8, 16), np.float32)
    twice(x, y)
    assert (y == 6).all()
    twice(y, x)
    assert (x == 12).all()


@pytest.mark.usefixtures("native")
def test_several_programs_at_once_from_several_threads() -> None:
    """Equal and different programs, compiled and run concurrently."""
    shapes = [(4 + n % 3, 8 + n % 4) for n in range(12)]
    results: dict[int, Any] = {}

    def work(n: int) -> None:
        x = np.full(shapes[n], float(n), np.float32)
        for _ in range(20):
            y = negated(x, np.zeros_like(x))
            y = negated(y, np.zeros_like(y))
        results[n] = y

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(12):
        assert np.array_equal(results[n], np.full(shapes[n], float(n), np.float32))


@pytest.mark.usefixtures("native")
def test_the_interpreter_lock_is_free_while_native_code_runs() -> None:
    """Other Python threads continue: one of them stops the run that waits for nothing else."""
    ticks: list[int] = []
    done = threading.Event()

    def count() -> None:
        while not done.wait(0.001):
            ticks.append(1)

    @pl.jit
    def long(x: pl.InOut[pl.Tensor[[64, 64], pl.FP32]]):
        for _ in pl.range(3000):
            with pl.at(level=pl.Level.CORE_GROUP):
                x[:, :] = pl.sqrt(pl.add(x[:, :], 1.0))
        return x

    x = np.zeros((64, 64), np.float32)
    long(x)
    thread = threading.Thread(target=count)
    thread.start()
    while len(ticks) < 5:
        long(x)
    done.set()
    thread.join()


@pytest.mark.usefixtures("native")
def test_c_text_is_kept_once_for_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.ones((8, 16), np.float32)
    with session.active(Session(keep_c=True, build_dir=tmp_path)):
        compiled = compile_program(twice.specialize(x, x))
        for _ in range(3):
            compiled(x, np.zeros_like(x))
    (folder,) = tmp_path.glob("twice_*/c")
    text = (folder / "unit0.c").read_text()
    assert "y[r : r + 4, :] = pl.mul(x[r : r + 4, :], 2.0)" in text
    assert (folder / "kernel.h").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"note: the C text of twice is in {folder}"


@pytest.mark.usefixtures("native")
def test_c_text_of_a_run_goes_to_its_directory(tmp_path: Path) -> None:
    specs = [TensorSpec("x", [8, 16], "float32", init_value=1.0),
             TensorSpec("y", [8, 16], "float32", is_output=True)]  # fmt: skip
    with session.active(Session(keep_c=True, build_dir=tmp_path)):
        result = run(twice, specs)
    assert result.passed, result.error
    assert list(tmp_path.glob("twice_*/c/unit0.c"))
    with session.active(Session(keep_c=True, keep_c_in=tmp_path / "there")):
        run(twice, specs)
    assert (tmp_path / "there" / "twice" / "unit0.c").exists()
    (tmp_path / "file").write_text("")
    with session.active(Session(keep_c=True, keep_c_in=tmp_path / "file")):
        result = run(twice, specs)
    assert "error[E0709]" in str(result.error)


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", "0"), ("THREADS", "two"), ("THREADS", "²"), ("SCHEDULE_SEED", "-1")],
)
@pytest.mark.usefixtures("native")
def test_settings_that_make_no_sense(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TILELET_{name}", value)
    x = np.ones((8, 16), np.float32)
    with pytest.raises(BadConfig, match=f"TILELET_{name}={value}` in the environment"):
        twice(x, x.copy())


def test_threads_and_seed_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_THREADS", "3")
    monkeypatch.setenv("TILELET_SCHEDULE_SEED", "12")
    assert cpu.thread_count() == 3
    assert cpu.schedule_seed() == 12
    monkeypatch.delenv("TILELET_THREADS")
    monkeypatch.delenv("TILELET_SCHEDULE_SEED")
    assert cpu.thread_count() >= 1
    assert cpu.schedule_seed() < 0
