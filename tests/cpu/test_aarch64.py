"""Programs compiled for aarch64 and run under an emulator give the interpreter's bits.

`make emulator` installs the cross compiler and the emulator on Debian and Ubuntu. Not covered: the
speed of anything, ops that the host applies by their references, faults, and the orders in which
weakly ordered memory lets several cores see each other's writes, which the emulator does not show.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cpu.both import share_functions
from tests.cpu.differential import numbers
from tests.cpu.test_generated_programs import kernel_of
from tests.generated.generator import FOCUSES
from tests.generated.harness import compare, compile_text
from tests.interp.build import Build, tensor

from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.run import native
from tilelet.cpu.run.build import OPTIMIZE_RUNTIME, SOURCES
from tilelet.dtypes import BF16, FP32, INT8, INT32, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.ir.types import ScalarType
from tilelet.native.toolchain import FLAGS
from tilelet.passes.pipeline import run_passes

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
MACHINES = {"neon": "armv8-a", "bf16": "armv8.6-a+bf16"}
DRAWN = 6  # generated programs of each focus and machine


class Board:
    """An emulated machine; the runtime is compiled once and linked with every program."""

    def __init__(self, march: str, folder: Path) -> None:
        self._command = [COMPILER, *FLAGS, f"-march={march}", f"-I{SOURCES}"]
        self._folder = folder
        sources = [*SOURCES.glob("*.c"), Path(__file__).with_name("emulated.c")]
        self._objects = [self._compile(source, OPTIMIZE_RUNTIME) for source in sources]

    def _compile(self, source: Path, level: str) -> str:
        target = self._folder / f"{source.stem}.o"
        subprocess.run([*self._command, level, "-c", source, "-o", target], check=True)
        return str(target)

    def run(self, program: Program, arguments: dict[str, Any], threads: int) -> dict[str, Any]:
        """Run a program without host ops on copies of the arguments; return these."""
        code = emit_program(program)
        assert not code.host_ops
        units: list[str] = []
        for i, text in enumerate(code.units):
            source = self._folder / f"unit{i}.c"
            source.write_text(text)
            units.append(self._compile(source, "-O2"))
        executable, given, found = (self._folder / name for name in ("program", "in", "out"))
        objects = [*units, *self._objects, "-lm"]
        command = [*self._command, "-static", *objects, "-o", executable]
        subprocess.run(command, check=True)
        given.write_bytes(_packed(program, arguments))
        subprocess.run(
            [EMULATOR, "-cpu", "max", executable, given, found, str(threads)], check=True
        )
        return _unpacked(found.read_bytes(), arguments)


def _packed(program: Program, arguments: dict[str, Any]) -> bytes:
    values = [(p, arguments[p.name]) for p in program.main.params]
    tensors = [a for _, a in values if isinstance(a, np.ndarray)]
    head = [len(tensors), len(values) - len(tensors)]
    for a in tensors:
        head += [a.ndim, a.itemsize, a.nbytes, *a.shape]
    words = b""
    for p, value in values:
        if isinstance(p.type, ScalarType):
            word = native.Word()
            setattr(word, word_field(p.type.dtype), value)
            words += bytes(word)
    return np.array(head, np.int64).tobytes() + words + b"".join(a.tobytes() for a in tensors)


def _unpacked(data: bytes, arguments: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(arguments)
    at = 0
    for name, a in found.items():
        if isinstance(a, np.ndarray):
            found[name] = np.frombuffer(data, a.dtype, a.size, at).reshape(a.shape)
            at += a.nbytes
    return found


@pytest.fixture(scope="module", params=MACHINES)
def board(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Board:
    if not request.config.getoption("--thorough"):
        pytest.skip("compiling for another machine takes half a minute: --thorough")
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        pytest.skip(f"no {COMPILER} or {EMULATOR}: make emulator")
    return Board(MACHINES[request.param], tmp_path_factory.mktemp("board"))


def _product(dtype: DType, rows: int) -> Program:
    """Products of two windows, whole and accumulated over k, and of a computed tile."""
    b = Build()
    depth, columns = 96, 80
    total = INT32 if dtype is INT8 else FP32
    x, w = b.param("x", tensor([rows, depth], dtype)), b.param("w", tensor([depth, columns], dtype))
    out = b.param("out", tensor([3 * rows, columns], total))

    def body(s: Build) -> None:
        def piece(t: Build, i: Any, acc: Any) -> list[Any]:
            at = t.op("scalar.mul", lhs=i, rhs=32)
            left, right = t.window(x, [rows, 32], [0, at]), t.window(w, [32, columns], [at, 0])
            return [t.op("matmul_acc", acc=acc, lhs=left, rhs=right)]

        whole = s.op("matmul", lhs=s.whole(x), rhs=s.whole(w), out_dtype=total)
        (summed,) = s.for_(3, piece, [s.op("full", shape=[rows, columns], dtype=total, value=1)])
        twice = s.op("add", lhs=s.whole(x), rhs=s.whole(x))
        computed = s.op("matmul", lhs=twice, rhs=s.whole(w), out_dtype=total)
        for i, tile in enumerate((whole, summed, computed)):
            s.put(out, tile, [i * rows, 0])

    b.scope(lambda s: body(s) or [])
    return run_passes(b.program())


@pytest.mark.parametrize("rows", [1, 7, 70])
@pytest.mark.parametrize("dtype", [FP32, BF16, INT8], ids=str)
def test_products(board: Board, dtype: DType, rows: int) -> None:
    program = _product(dtype, rows)
    out = program.main.params[2]
    given = {
        "x": numbers(dtype, rows, 96, seed=1),
        "w": numbers(dtype, 96, 80, seed=2),
        "out": np.zeros(out.type.shape, out.type.dtype.numpy),  # type: ignore[union-attr]
    }
    expected = copy.deepcopy(given)
    Interpreter().run(program, expected)
    compare(board.run(program, given, 2), expected, "the interpreter")


@pytest.mark.parametrize("focus", FOCUSES)
def test_generated_programs(
    board: Board, focus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_functions(monkeypatch)
    drawn = 0
    for number in range(1000, 1100):
        kernel = kernel_of(focus, number)
        arguments = kernel.arguments()
        program = run_passes(compile_text(kernel, tmp_path, arguments))
        if emit_program(program).host_ops:
            continue
        expected = copy.deepcopy(arguments)
        Interpreter().run(program, expected)
        compare(board.run(program, arguments, 3), expected, f"the interpreter\n{kernel.text}")
        drawn += 1
        if drawn == DRAWN:
            return
    pytest.fail("hardly any program without host ops")
