"""Missing or failing compilers, and a cache that is damaged, locked, off or shared."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.interp.build import Build, index, ramp, tensor
from tests.limits import HUNG

from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.run import build, engine
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.catalogue.command import CannotWrite, CompilerFailed, NoCompiler
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Program
from tilelet.native import cache
from tilelet.native.toolchain import find_compiler
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.programs import engines
from tilelet.runtime.session import Session

_number = iter(range(1000, 10**6))


def fresh_program() -> Program:
    """Return a program that no earlier test has compiled."""
    return adding(next(_number))


def adding(sevenths: int) -> Program:
    """`x + sevenths / 7`, in lines of `kernel.py` below those of any program built before."""
    b = Build()
    x = b.param("x", tensor([4, 8]))
    b.scope(lambda s: [s.put(x, s.op("add", lhs=s.whole(x), rhs=sevenths / 7), [0, 0])])
    return run_passes(b.program())


@pytest.fixture
def folder(tmp_path: Path, compiled_runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with the runtime in it, and nothing loaded yet."""
    shutil.copytree(compiled_runtime, tmp_path / "cache")
    use_cache(tmp_path / "cache", monkeypatch)
    return tmp_path / "cache" / "cpu"


def use_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_CACHE_DIR", str(folder))
    monkeypatch.delenv("TILELET_NO_CACHE", raising=False)
    monkeypatch.setattr(build, "_loaded", {})
    engine._programs.clear()


@pytest.fixture
def quick_runtime(compiled_runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy objects instead of compiling the library, for tests of the cache alone."""

    def copy(_: build._Library, name: str, draft: Path) -> None:
        for path in compiled_runtime.glob(f"cpu/{name}-*/*.o"):
            shutil.copy(path, draft)

    monkeypatch.setattr(build._Library, "start", lambda *_: None)
    monkeypatch.setattr(build._Library, "_build", copy)


def runs(program: Program) -> bool:
    before = x = ramp(4, 8)
    before = before.copy()
    CpuEngine().run(program, {"x": x})
    return bool((x != before).all())


def again(program: Program, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Forget loaded entries, as if in another process."""
    monkeypatch.setattr(build, "_loaded", {})
    engine._programs.clear()
    return runs(program)


@pytest.mark.usefixtures("quick_runtime")
def test_products_are_compiled_for_programs_that_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products take longer to compile than the rest of the runtime."""
    use_cache(tmp_path / "cache", monkeypatch)

    def parts() -> set[str]:
        root = cache.cache_root()
        assert root is not None
        return {p.name.split("-")[0] for p in root.iterdir() if "-" in p.name}

    assert runs(fresh_program())
    assert parts() == {"runtime"}
    b = Build()
    x = b.param("x", tensor([4, 4]))
    b.scope(lambda s: [s.put(x, s.op("matmul", lhs=s.whole(x), rhs=s.whole(x)), [0, 0])])
    squared = ramp(4, 4)
    wanted = squared @ squared
    CpuEngine().run(run_passes(b.program()), {"x": squared})
    np.testing.assert_array_equal(squared, wanted)
    assert parts() == {"runtime", "products"}


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
    script.write_text(f'#!/bin/sh\ncase "$*" in *--version) echo fake 1.0; exit 0;; esac\n{what}\n')
    script.chmod(0o755)
    return str(script)


def test_chosen_compiler_with_half_a_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc '-m64")
    with pytest.raises(NoCompiler, match="gcc '-m64"):
        find_compiler()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("echo no space left >&2; exit 1", "code 1"),
        ("kill -9 $$", "SIGKILL"),
        ("exit 0", r"it wrote no \w+\.o"),
    ],
)
def test_compiler_fails(
    what: str, message: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", _fake_compiler(tmp_path, what))
    with pytest.raises(CompilerFailed, match=message):
        runs(fresh_program())
    assert not [p for p in _entries(folder) if p.name.startswith(cache.DRAFT)]


def test_a_compiler_without_vectors(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's complaint is about missing vectors, not about a macro in a header."""
    preprocess = "gcc -E -U__has_builtin"
    monkeypatch.setenv("CC", _fake_compiler(tmp_path, f'exec {preprocess} "$@"'))
    with pytest.raises(CompilerFailed, match="it has no vector types; set CC to gcc 10") as found:
        runs(fresh_program())
    assert not found.value.diagnostic.notes


@pytest.mark.parametrize(
    ("variable", "value"), [("CFLAGS", "-g -O0"), ("CC", "cc -O1"), ("CFLAGS", "-O3 -g")]
)
def test_an_optimization_level_that_is_not_used(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    request = engines.RunRequest(session=Session())
    engines.get("cpu", request)
    engines.get("cpu", request)
    level = {"-g -O0": "-O0 in CFLAGS", "cc -O1": "-O1 in CC"}.get(value)
    line = f"note: {level} is not used: programs are compiled with -O3\n"
    assert capsys.readouterr().err == (line if level else "")


@pytest.mark.parametrize(
    "complaint",
    [
        "/x/new-1/unit0.c:7:3: error: redefinition of k_main",
        "/usr/bin/ld: /x/unit1.o:(.bss+0x0): multiple definition of `k_main`; first defined here",
        "unit0.c:(.text+0x5): undefined reference to `tl_nothing`",
    ],
)
def test_complaints_about_generated_text_are_our_bugs(
    complaint: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "complaint"
    text.write_text(complaint)
    monkeypatch.setenv("CC", _fake_compiler(tmp_path, f"cat {text} >&2; exit 1"))
    with pytest.raises(InternalError, match="refuses the generated C"):
        runs(fresh_program())


def test_a_system_that_gives_no_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their work is done sequentially."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert runs(fresh_program())


def test_entries_are_found_again_and_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fresh_program()
    assert runs(program)
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(build, "_build_program", lambda *_: pytest.fail("compiled again"))
    assert again(program, monkeypatch)


def test_a_program_that_moved_in_its_file_is_not_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = next(_number)
    first, below = adding(number), adding(number)
    assert emit_program(first).units != emit_program(below).units
    assert runs(first)
    monkeypatch.setattr(build, "_build_program", lambda *_: pytest.fail("compiled again"))
    assert again(below, monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        again(adding(number + 1), monkeypatch)


@pytest.mark.parametrize("damage", ["cut", "empty", "no seal"])
def test_damaged_entries_are_built_again(
    damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fresh_program()
    assert runs(program)
    for entry in folder.iterdir():
        library = entry / build.LIBRARY
        if library.exists():
            if damage == "no seal":
                (entry / cache.SEAL).unlink()
            else:
                library.unlink()  # the loaded library keeps its own file
                library.write_bytes(b"" if damage == "empty" else b"\x7fELF")
    assert again(program, monkeypatch)


@pytest.mark.usefixtures("quick_runtime")
def test_cache_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_NO_CACHE", "1")
    before = sorted(folder.iterdir())
    assert runs(fresh_program())
    assert sorted(folder.iterdir()) == before


@pytest.mark.usefixtures("quick_runtime")
def test_cache_where_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    use_cache(tmp_path / "file", monkeypatch)
    assert runs(fresh_program())


@contextlib.contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """A file system in memory; only root can mount one."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """A folder that nobody can write to, not even root."""
    if os.getuid() == 0:
        with small_disk(place, "ro,mode=755") as folder:
            yield folder
    else:
        place.mkdir(mode=0o500)
        yield place
        place.chmod(0o700)


@pytest.mark.usefixtures("quick_runtime")
@pytest.mark.parametrize("variable", ["TILELET_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_a_cache_that_cannot_be_written(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is compiled in a temporary folder."""
    use_cache(tmp_path, monkeypatch)
    for name in ("TILELET_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with read_only(tmp_path / "locked") as locked:
        monkeypatch.setenv(variable, str(locked))
        assert runs(fresh_program())
        assert not list(locked.iterdir())


@pytest.mark.usefixtures("quick_runtime")
def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(tmp_path, monkeypatch)
    for name in ("TILELET_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert cache.cache_root() is None
    assert runs(fresh_program())


@pytest.mark.parametrize("room", ["16k", "96k"])  # for the C text, for some objects
def test_a_full_disk(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A full cache: the program is compiled elsewhere. A full temporary folder: an error."""
    if room == "16k":
        request.getfixturevalue("quick_runtime")
    monkeypatch.setattr(build, "OPTIMIZE_RUNTIME", "-O0")
    with small_disk(tmp_path / "disk", f"size={room},mode=700") as disk:
        use_cache(disk / "cache", monkeypatch)
        assert runs(fresh_program())
        assert not [p for p in _entries(disk / "cache" / "cpu") if p.name.startswith("new-")]
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        with pytest.raises((CompilerFailed, CannotWrite), match=r"(?i)no space left|E0709"):
            runs(fresh_program())


def test_a_compiler_that_does_not_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ziglang` just aborts on a full disk. The message names it, not only its Python."""
    monkeypatch.setenv("CC", f"{_fake_compiler(tmp_path, 'kill -6 $$')} -m64")
    with small_disk(tmp_path / "disk", "size=64k,mode=700") as disk:
        use_cache(disk / "cache", monkeypatch)
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        with pytest.raises(CompilerFailed, match=r"fakecc -m64` failed: .* no space left: \d+ KiB"):
            runs(fresh_program())


def test_no_place_for_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(tmp_path, monkeypatch)
    monkeypatch.setenv("TILELET_NO_CACHE", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(CannotWrite, match="a temporary folder"):
        runs(fresh_program())


def test_a_library_that_does_not_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError("failed to map segment")

    monkeypatch.setattr(build.ctypes, "CDLL", refuse)
    with pytest.raises(CompilerFailed, match="failed to map segment"):
        runs(fresh_program())


def _entries(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_dir()]


def test_size_cap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_CACHE_MB", "0")
    monkeypatch.setattr(cache, "TRIM_EVERY", -1.0)
    assert runs(fresh_program())
    assert runs(fresh_program())
    # Another process may be about to load an entry used a moment ago: both programs and the
    # runtime. These programs have no products, so the entry of products may be older.
    used = [entry for entry in _entries(folder) if not entry.name.startswith("products")]
    assert len(used) == 3
    monkeypatch.setattr(cache, "IN_USE", -1.0)
    assert runs(fresh_program())
    assert len(_entries(folder)) == 1


@pytest.mark.usefixtures("quick_runtime")
def test_all_entries_are_looked_at_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILELET_CACHE_MB", "0")
    monkeypatch.setattr(cache, "IN_USE", -1.0)
    assert runs(fresh_program())
    assert runs(fresh_program())
    assert len(_entries(folder)) > 1
    long_ago = 1e9
    os.utime(folder / cache.STAMP, (long_ago, long_ago))
    assert runs(fresh_program())
    assert len(_entries(folder)) == 1


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
    assert [p.wait(timeout=HUNG) for p in started] == [0] * 4


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


def test_ctrl_c_stops_a_kernel() -> None:
    program = _endless()
    CpuEngine().run(program, {"x": ramp(64, 64), "n": 1})
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        CpuEngine().run(program, {"x": ramp(64, 64), "n": 2**40})


def test_ctrl_c_ends_compilers(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All their children end, too; Ctrl-C may be sent to Python alone."""
    ticks = tmp_path / "ticks"
    what = f"sh -c 'for i in $(seq 1000); do echo >> {ticks}; sleep 0.05; done'"
    monkeypatch.setenv("CC", _fake_compiler(tmp_path, what))

    def interrupt() -> None:
        while not ticks.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        runs(fresh_program())
    done = ticks.stat().st_size
    assert done < 1000, "it was waited for"
    time.sleep(0.5)
    assert ticks.stat().st_size == done, "it still runs"
    assert not [p for p in _entries(folder) if p.name.startswith(cache.DRAFT)]


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


SLOW = 2 * HUNG  # seconds that the slow compiler takes: one that keeps running is noticed
SLOW_COMPILER = """#!/bin/sh
case "$*" in *--version*) exec cc "$@";; esac
sleep {seconds} &
echo $! >> {pids}
wait
"""


def slow_compiler(folder: Path) -> tuple[Path, Path]:
    """A compiler that works in a child process, and the file with the process ids."""
    pids, compiler = folder / "pids", folder / "slow-cc"
    compiler.write_text(SLOW_COMPILER.format(pids=pids, seconds=int(SLOW)))
    compiler.chmod(0o755)
    return compiler, pids


COMPILE = """
from tests.cpu.test_build import fresh_program, runs
runs(fresh_program())
"""
PROFILE = "from tilelet.device.schedule.library import library; library()"


@pytest.mark.parametrize("script", [COMPILE, PROFILE])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_no_compiler_outlives_a_process_that_is_ended(
    script: str, number: signal.Signals, tmp_path: Path
) -> None:
    compiler, pids = slow_compiler(tmp_path)
    settings = {"CC": str(compiler), "TILELET_CACHE_DIR": str(tmp_path / "cache")}
    environment = {**os.environ, **settings, "TMPDIR": str(tmp_path)}
    heed = f"import signal; signal.signal({number:d}, signal.SIG_DFL)"  # nohup ignores SIGHUP
    command = [sys.executable, "-c", f"{heed}\n{script}"]
    process = subprocess.Popen(command, env=environment)
    wait_for(lambda: pids.exists() and bool(pids.read_text().split()))
    process.send_signal(number)
    assert process.wait(timeout=HUNG) == -number
    wait_for(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))
    assert not list((tmp_path / "cache" / "cpu").glob(f"{cache.DRAFT}*"))


SIGNAL_WHILE_STARTING = """
import os, pathlib, signal, subprocess, time
start = subprocess.Popen.__init__
def interrupted(self, command, *args, **kwargs):
    start(self, command, *args, **kwargs)
    if "--version" not in command:
        while not pathlib.Path({pids!r}).exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen.__init__ = interrupted
"""


@pytest.mark.parametrize("script", [COMPILE, PROFILE])
def test_a_signal_while_a_compiler_starts(script: str, tmp_path: Path) -> None:
    compiler, pids = slow_compiler(tmp_path)
    settings = {"CC": str(compiler), "TILELET_CACHE_DIR": str(tmp_path / "cache")}
    script = SIGNAL_WHILE_STARTING.format(pids=str(pids)) + script
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**os.environ, **settings}, check=False)
    assert done.returncode == -signal.SIGTERM
    wait_for(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("script", [COMPILE, PROFILE])
def test_no_compiler_of_another_thread_outlives_its_process(
    script: str, number: signal.Signals, tmp_path: Path
) -> None:
    compiler, pids = slow_compiler(tmp_path)
    settings = {"CC": str(compiler), "TILELET_CACHE_DIR": str(tmp_path / "cache")}
    environment = {**os.environ, **settings, "TMPDIR": str(tmp_path)}
    threaded = f"import threading; t = threading.Thread(target=lambda: exec({script!r}, {{}}))"
    command = [sys.executable, "-c", f"{threaded}; t.start(); t.join()"]
    process = subprocess.Popen(command, env=environment)
    wait_for(lambda: pids.exists() and bool(pids.read_text().split()))
    time.sleep(0.5)  # killed before it has told the watcher, a process leaves a compiler behind
    process.send_signal(number)
    assert process.wait(timeout=HUNG) == -number
    wait_for(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HUNG
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


FORK = """
import os, sys, threading, time
from tests.cpu.test_build import fresh_program, runs
from tilelet.cpu.run import engine
program = fresh_program()
threading.Thread(target=runs, args=(program,), daemon=True).start()
while not engine._programs or not next(iter(engine._programs.values()))._lock.locked():
    time.sleep(0.01)
child = os.fork()
if child == 0:
    os.environ["CC"] = "cc"
    os._exit(0 if runs(program) else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_while_a_thread_compiles(tmp_path: Path) -> None:
    compiler, _ = slow_compiler(tmp_path)
    settings = {"CC": str(compiler), "TILELET_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FORK]
    done = subprocess.run(command, env={**os.environ, **settings}, timeout=HUNG, check=False)
    assert done.returncode == 0
