"""Sanitizers: what `TILELET_SANITIZE=1` requires, and that errors in C are found."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilelet.cpu.run import build, engine, sanitize
from tilelet.diag.catalogue.command import CompilerFailed, SanitizerNotLoaded
from tilelet.native.toolchain import Compiler, find_compiler

ROOT = Path(__file__).parents[2]
GCC, CLANG = Compiler(("gcc",), "gcc 12"), Compiler(("clang",), "clang version 14")


@pytest.fixture
def gcc() -> Compiler:
    compiler = find_compiler()
    try:
        sanitize.library(compiler)
    except CompilerFailed:
        pytest.skip("the compiler has no address sanitizer")
    return compiler


def test_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_SANITIZE", "0")
    plain = build._flags(GCC)
    assert not any("sanitize" in flag for flag in plain)
    monkeypatch.setenv("TILELET_SANITIZE", "1")
    assert "-fsanitize=address,undefined" in build._flags(GCC)
    assert "-shared-libasan" in build._flags(CLANG)
    assert build._key(GCC, "text") != build._key(CLANG, "text")


def test_a_python_that_started_without_it(gcc: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to set; loading the program would end the process."""
    from tests.cpu.test_build import fresh_program

    if sanitize.is_loaded():
        pytest.skip("these tests run with the sanitizer")
    monkeypatch.setenv("TILELET_SANITIZE", "1")
    with pytest.raises(SanitizerNotLoaded, match="LD_PRELOAD=/"):
        engine.compile_native(fresh_program())


def test_a_compiler_without_it(tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho libasan.so\n")  # gcc's answer if it has no such file
    script.chmod(0o755)
    with pytest.raises(CompilerFailed, match="it has no address sanitizer"):
        sanitize.library(Compiler((str(script),), "small 1.0"))


def test_the_command_starts_again_with_it(gcc: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *what: started.append(what))
    monkeypatch.setattr(sanitize, "is_loaded", lambda: False)
    monkeypatch.setenv("UBSAN_OPTIONS", "halt_on_error=1")
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "tilelet.cli", "run", "k.py"])
    monkeypatch.setenv("TILELET_SANITIZE", "0")
    sanitize.restart()
    assert not started
    monkeypatch.setenv("TILELET_SANITIZE", "1")
    sanitize.restart()
    ((program, arguments, environment),) = started
    assert (program, arguments[1:]) == (sys.executable, ["-m", "tilelet.cli", "run", "k.py"])
    assert environment["LD_PRELOAD"] == f"{sanitize.library(gcc)} other.so"
    assert environment["ASAN_OPTIONS"] == "detect_leaks=0:allocator_may_return_null=1"
    assert environment["UBSAN_OPTIONS"] == "halt_on_error=1"
    assert "LD_PRELOAD" not in sanitize.without_preload(environment)
    monkeypatch.setattr(sanitize, "is_loaded", lambda: True)
    sanitize.restart()
    assert len(started) == 1


_SPOILED = """
import sys
from tests.cpu.test_build import fresh_program
from tests.interp.build import ramp
from tilelet.cpu.run import engine

right = engine.emit_program

def wrong(program):
    code = right(program)
    mark = "(void)c, (void)w, (void)x;"
    assert mark in code.units[0]
    code.units[0] = code.units[0].replace(mark, mark + sys.argv[1], 1)
    return code

engine.emit_program = wrong
engine.CpuEngine().run(fresh_program(), {"x": ramp(4, 8)})
print("ran")
"""


def _run_sanitized(
    text: str, compiler: Compiler, folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    wanted = {"TILELET_SANITIZE": "1", "PYTHONPATH": paths, **sanitize.environment(compiler)}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **wanted}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("", None),
        ("((volatile char *)w[0].data)[4 * 8 * 4] = 1;", "heap-buffer-overflow"),
        ("volatile int far = 40; volatile int r = 1 << far;", "shift exponent 40 is too large"),
    ],
)
def test_mistakes_are_found(
    mistake: str, message: str | None, gcc: Compiler, thorough: bool, tmp_path: Path
) -> None:
    if not thorough:
        pytest.skip("compiling the runtime with sanitizers takes half a minute: --thorough")
    done = _run_sanitized(_SPOILED, gcc, tmp_path, mistake)
    if message is None:
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    else:
        assert message in done.stderr
        assert "k_main_incore_0" in done.stderr


_LOST_PRODUCT = """
from dataclasses import replace
from tests.cpu.test_chains import _from_tile, _matrices
from tilelet.cpu.emit import program
from tilelet.cpu.plan import products
from tilelet.cpu.run.engine import CpuEngine
from tilelet.passes.pipeline import run_passes

decided = products._with_handover
def spoiled(*args):
    return tuple(replace(g, starts_new=True, handover=True) for g in decided(*args))
products._with_handover = spoiled
program.verify = lambda plan: None
other = _matrices()["out"]
CpuEngine().run(run_passes(_from_tile("out")), {**_matrices(), "other": other})
print("ran")
"""


def test_a_repeated_fill_of_a_product_is_found(
    gcc: Compiler, thorough: bool, tmp_path: Path
) -> None:
    """Result memory is guarded while a kernel replays up to the flush of its products."""
    if not thorough:
        pytest.skip("compiling the runtime with sanitizers takes half a minute: --thorough")
    done = _run_sanitized(_LOST_PRODUCT, gcc, tmp_path)
    assert "use-after-poison" in done.stderr
    assert done.stdout == ""


_TANGLED = """
from tests.cpu.test_schedules import _arguments, _tangled
from tilelet.cpu.run.engine import compile_native
from tilelet.bench.cases import model_case
from tilelet.bench.data import Data
from tilelet.bench.sizes import SMALL

program = compile_native(_tangled())
for seed in range(-1, 8):
    program.run(_arguments(), 4, seed)
# More tasks than are in flight at once, in temporaries that are used again.
staged = model_case(Data(), "staged", "qwen3/scope2:staged", SMALL)
for seed in (-1, 3):
    compile_native(staged.compiled.program).run(staged.arguments, 4, seed)
print("ran")
"""


def _thread_sanitizer(compiler: Compiler) -> str:
    command = [*compiler.command, "-print-file-name=libtsan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute() or shutil.which("setarch") is None:
        pytest.skip("the compiler has no thread sanitizer, or the system cannot run it")
    return found


def test_threads_do_not_race(gcc: Compiler, thorough: bool, tmp_path: Path) -> None:
    if not thorough:
        pytest.skip("compiling the runtime with a sanitizer takes long: --thorough")
    if sanitize.is_loaded():
        pytest.skip("one sanitizer at a time")
    script = tmp_path / "tangled.py"
    script.write_text(_TANGLED)
    wanted = {
        "CC": shlex.join([*gcc.command, "-fsanitize=thread", "-g"]),
        "LD_PRELOAD": _thread_sanitizer(gcc),
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",  # Python is one
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(  # it knows the memory layout: no address randomization
        ["setarch", "-R", sys.executable, str(script)],
        env={**os.environ, **wanted}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ThreadSanitizer" not in done.stderr
    assert (done.returncode, done.stdout) == (0, "ran\n")
