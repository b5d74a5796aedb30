"""Compilers that are missing or fail, and a cache that is damaged, locked, off or shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.interp.build import Build, index, ramp, tensor

from tilelet.cpu import build, cache, engine
from tilelet.cpu.engine import CpuEngine
from tilelet.diag.catalogue.command import CompilerFailed, NoCompiler
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes

_number = iter(range(1000, 10**6))


def fresh_program() -> Program:
    """A program that no earlier test has compiled."""
    b = Build()
    x = b.param("x", tensor([4, 8]))
    b.scope(lambda s: [s.put(x, s.op("add", lhs=s.whole(x), rhs=next(_number) / 7), [0, 0])])
    return run_passes(b.program())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with nothing loaded yet."""
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILELET_NO_CACHE", raising=False)
    monkeypatch.setattr(build, "_loaded", {})
    engine._programs.clear()
    return tmp_path / "cache" / "cpu"


def runs(program: Program) -> bool:
    before = x = ramp(4, 8)
    before = before.copy()
    CpuEngine().run(program, {"x": x})
    return bool((x != before).all())


def again(program: Program, monkeypatch: pytest.MonkeyPatch) -> bool:
    """As in another process."""
    monkeypatch.setattr(build, "_loaded", {})
    engine._programs.clear()
    return runs(program)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoCompiler, match="no C compiler"):
        runs(fresh_program())


def test_chosen_compiler_does_not_exist(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(NoCompiler, match="no-such-compiler"):
        runs(fresh_program())


def _fake_compiler(tmp_path: Path, what: str) -> str:
    script = tmp_path / "fakecc"
    script.write_text(f'#!/bin/sh\ncase "$1" in --version) echo fake 1.0; exit 0;; esac\n{what}\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("what", "message"),
    [("echo no space left >&2; exit 1", "code 1"), ("kill -9 $$", "SIGKILL")],
)
def test_compiler_fails(
    what: str, message: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", _fake_compiler(tmp_path, what))
    with pytest.raises(CompilerFailed, match=message):
        runs(fresh_program())
    assert not [p for p in folder.iterdir() if p.name.startswith("new-")]


def test_entries_are_found_again_and_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fresh_program()
    assert runs(program)
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(build, "_build_program", lambda *_: pytest.fail("compiled again"))
    assert again(program, monkeypatch)


@pytest.mark.parametrize("damage", ["cut", "empty", "no sums"])
def test_damaged_entries_are_built_again(
    damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fresh_program()
    assert runs(program)
    for entry in folder.iterdir():
        library = entry / build.LIBRARY
        if library.exists():
            if damage == "no sums":
                (entry / cache.SUMS).unlink()
            else:
                library.unlink()  # the loaded library keeps its own file
                library.write_bytes(b"" if damage == "empty" else b"\x7fELF")
    assert again(program, monkeypatch)


def test_cache_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_NO_CACHE", "1")
    assert runs(fresh_program())
    assert not folder.exists()


def test_cache_where_a_file_is(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "file"))
    assert runs(fresh_program())


def test_size_cap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_CACHE_MB", "0")
    assert runs(fresh_program())
    assert runs(fresh_program())
    # Another process may just be about to load what was used a moment ago.
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(cache, "IN_USE", -1.0)
    assert runs(fresh_program())
    assert len(list(folder.iterdir())) == 1


_WORKER = """
import sys
from tests.cpu.test_build import fresh_program, runs
sys.exit(not runs(fresh_program()))
"""


def test_many_processes_at_once(folder: Path) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    started = [
        subprocess.Popen([sys.executable, "-c", _WORKER], env=env, cwd=root) for _ in range(4)
    ]
    assert [p.wait(timeout=120) for p in started] == [0] * 4


def test_kept_text_names_the_source(tmp_path: Path) -> None:
    CpuEngine(keep_c=tmp_path / "c").run(fresh_program(), {"x": ramp(4, 8)})
    text = "".join(p.read_text() for p in (tmp_path / "c").glob("*.c"))
    assert "kernel.py:" in text
    assert "k_main_incore_0" in text


def _endless() -> Program:
    b = Build()
    x, n = b.param("x", tensor([64, 64])), b.param("n", index())

    def body(s):
        (y,) = s.for_(n, lambda t, i, y: [t.op("mul", lhs=y, rhs=1.0)], [s.whole(x)])
        return [s.put(x, y, [0, 0])]

    b.scope(body)
    return run_passes(b.program())


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Also where the tests run in the background, and Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_stops_a_kernel() -> None:
    program = _endless()
    CpuEngine().run(program, {"x": ramp(64, 64), "n": 1})
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        CpuEngine().run(program, {"x": ramp(64, 64), "n": 2**40})


def test_two_programs_at_once() -> None:
    program = fresh_program()
    arrays = [ramp(4, 8) + i for i in range(6)]
    threads = [threading.Thread(target=CpuEngine().run, args=(program, {"x": a})) for a in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    steps = [a - (ramp(4, 8) + i) for i, a in enumerate(arrays)]
    for step in steps:
        np.testing.assert_allclose(step, steps[0], rtol=1e-4)
