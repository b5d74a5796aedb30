"""The C compiler and its flags."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import NoCompiler
from tilelet.diag.catalogue.harness import BadConfig

# No -ffast-math: results are defined bit for bit. -ffp-contract=off keeps `a * b + c` two
# roundings; errno and floating-point traps are not part of any result. Scratch memory holds tiles
# of changing types, and integer arithmetic wraps.
FLAGS = (
    "-std=gnu11",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-w",
)

# x86-64 levels by their names in `TILELET_ISA`: the `-march` value and required CPU flags.
_LEVELS = {
    "sse": ("x86-64", ""),
    "avx2": ("x86-64-v3", "avx2 fma f16c bmi1 bmi2 movbe"),
    "avx512": ("x86-64-v4", "avx2 fma f16c bmi1 bmi2 movbe avx512f avx512bw avx512dq avx512vl"),
}


@dataclass(frozen=True)
class Compiler:
    """A C compiler command, and a text that identifies it."""

    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        return " ".join(self.command)

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def is_zig(self) -> bool:
        """Whether it is zig's clang, which spells options differently."""
        return "zig" in self.name


def find_compiler() -> Compiler:
    """`$CC`, else `cc`, `gcc` or `clang`, else package `ziglang`; `NoCompiler` if none works."""
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, _path: str) -> Compiler:
    try:
        candidates = [shlex.split(chosen)] if chosen.strip() else [["cc"], ["gcc"], ["clang"]]
    except ValueError:  # an unterminated quote
        raise NoCompiler(chosen.strip()) from None
    if not chosen.strip() and importlib.util.find_spec("ziglang") is not None:
        candidates.append([sys.executable, "-m", "ziglang", "cc"])
    for command in candidates:
        path = shutil.which(command[0])
        if path is None:
            continue
        version = _version([path, *command[1:]])
        if version is not None:
            return Compiler((path, *command[1:]), version)
    raise NoCompiler(chosen.strip())


def unused_level() -> str | None:
    """Return an ignored optimization level of `CC` or `CFLAGS`: `-O0 in CFLAGS`."""
    for variable in ("CFLAGS", "CC"):
        for word in os.environ.get(variable, "").split():
            if word.startswith("-O") and word != "-O3":
                return f"{word} in {variable}"
    return None


def _version(command: list[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell: the user's own compiler
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else None


def run_compiler(command: Sequence[str], seconds: float) -> None:
    """Run a compiler; raise `subprocess.SubprocessError` if it fails. It is killed on errors."""
    process = start_compiler(command)
    try:
        _, errors = process.communicate(timeout=seconds)
    except BaseException:
        kill(process)
        process.communicate()
        raise
    finally:
        has_ended(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), stderr=errors)


def start_compiler(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a compiler in its own session; the caller reports its end by `has_ended`."""
    with _termination.deferred():
        process = subprocess.Popen(  # noqa: S603 - a list, no shell: the user's own compiler
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        _termination.sessions.add(process.pid)
    for watch in list(_watches):
        watch.tell(process.pid)
    return process


def has_ended(process: subprocess.Popen[Any]) -> None:
    """Forget a compiler that has ended."""
    _termination.sessions.discard(process.pid)
    for watch in list(_watches):
        watch.tell(-process.pid)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a compiler's session: the driver only starts the actual compiler."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


class _TerminatedError(BaseException):
    """The process is being terminated; compilers are killed and drafts removed on the way out."""


class _Termination:
    """The signal that ends this process, and the compilers that must not outlive it."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self.sessions: set[int] = set()  # process groups of running compilers
        self._is_deferred = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.caught is None:
            self.caught = number
            if not self._is_deferred:
                raise _TerminatedError

    @contextlib.contextmanager
    def deferred(self) -> Generator[None]:
        """Delay the exception: a compiler whose `Popen` is interrupted is known to nobody."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self.caught is not None:
            raise _TerminatedError

    def end(self) -> None:
        """End this process if a signal was caught, and its compilers first."""
        if self.caught is None:
            return
        for session in list(self.sessions):
            with contextlib.suppress(OSError):
                os.killpg(session, signal.SIGKILL)
        os.kill(os.getpid(), self.caught)


_termination = _Termination()


# Reads numbers of sessions, negative ones of those that have ended, until nobody can write more; 0
# says that all is well, and compilers that still run are those of other threads.
_WATCH = """
import os, signal, sys
sessions = set()
for line in sys.stdin:
    number = int(line)
    sessions.add(number) if number > 0 else sessions.discard(-number)
    if number == 0:
        sys.exit()
for number in sessions:
    try:
        os.killpg(number, signal.SIGKILL)
    except OSError:
        pass
"""


class _Watch:
    """A watchdog process that kills our compilers when this process dies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this very Python
            [sys.executable, "-I", "-S", "-c", _WATCH],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def tell(self, number: int) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(f"{number}\n")
            self._process.stdin.flush()

    def leave(self) -> None:
        """Stop writing to the watchdog, which continues for other processes."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()

    def close(self) -> None:
        self.tell(0)
        self.leave()
        self._process.wait()


_watches: set[_Watch] = set()


def _in_forked_child() -> None:
    """Reset the state after a fork: compilers belong to the parent."""
    _termination.sessions.clear()
    while _watches:
        _watches.pop().leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


@contextlib.contextmanager
def _under_watch() -> Generator[None]:
    try:
        watch = None if getattr(sys, "frozen", False) else _Watch()
    except OSError:  # no more processes, so no compiler either
        watch = None
    if watch is None:
        yield
        return
    _watches.add(watch)
    try:
        yield
    finally:
        _watches.discard(watch)
        watch.close()


@contextlib.contextmanager
def stopped_when_terminated() -> Generator[None]:
    """Turn SIGTERM and SIGHUP into an exception in the block, then end this process.

    The default action would not reach compilers, which have their own sessions. Only the main
    thread can handle signals; for other threads there is a watchdog process.
    """
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    signals = [s for s in signals if signal.getsignal(s) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        with _under_watch():
            yield
        return
    if not signals:
        yield
        return
    for each in signals:
        signal.signal(each, _termination.handle)
    try:
        yield
    finally:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        _termination.end()


def machine_flags() -> tuple[str, ...]:
    """Return flags for this CPU's instruction sets, as far as `TILELET_ISA` permits."""
    machine = platform.machine().lower()
    is_x86 = machine in ("x86_64", "amd64")
    level = os.environ.get("TILELET_ISA") or "native"
    if level != "native":
        return (f"-march={_level(level, is_x86)}",)
    if machine in ("arm64", "aarch64"):
        return ("-mcpu=native",)
    return ("-march=native",) if is_x86 or machine == "i686" else ()


def _level(name: str, is_x86: bool) -> str:
    """Return the `-march` of a level; raise an error if this CPU does not support it."""
    known = _LEVELS if is_x86 else {}
    if name not in known:
        raise BadConfig("TILELET_ISA", name, " or ".join([*known, "native"]), "environment")
    march, needed = known[name]
    has = _cpu_flags()
    missing = [flag for flag in needed.split() if has and flag not in has]
    if missing:
        fits = [n for n, (_, flags) in known.items() if set(flags.split()) <= has]
        why = f"{' or '.join([*fits, 'native'])}: this CPU has no {missing[0]}"
        raise BadConfig("TILELET_ISA", name, why, "environment")
    return march.replace("-", "_") if find_compiler().is_zig else march


def _cpuinfo() -> list[str]:
    """Return the lines of /proc/cpuinfo; empty on other systems."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


@functools.lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    for line in _cpuinfo():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


@functools.lru_cache(maxsize=1)
def cpu_id() -> str:
    """Return a short text that identifies the CPU model and its features."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    lines = sorted({line for line in _cpuinfo() if line.startswith(wanted)})
    facts = [platform.machine(), sys.platform, *lines]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
