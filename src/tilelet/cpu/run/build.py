"""Build a loaded library from C text.

The runtime is compiled once per compiler and CPU and cached as object files, and so are the matrix
products, for programs that have any. A program's own units are compiled in parallel and linked with
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from tilelet.cpu.run import native, sanitize
from tilelet.diag.catalogue.command import CompilerFailed
from tilelet.diag.internal import InternalError
from tilelet.native import cache
from tilelet.native.toolchain import (
    FLAGS,
    Compiler,
    cpu_id,
    find_compiler,
    has_ended,
    kill,
    machine_flags,
    start_compiler,
    stopped_when_terminated,
)

SOURCES = Path(__file__).parents[1] / "c"
PRODUCTS = ("matmul.c", "pair_kernels.c", "products.c")
LIBRARY = "program.so"
OPTIMIZE = "-O3"  # programs: the compiler vectorizes element loops
OPTIMIZE_RUNTIME = "-O2"  # already vectorized by hand; -O3 only takes longer
_COMPILER_SECONDS = 600.0  # time limit of one compiler process in seconds
# Seconds between checks for signals: one that arrives just before a wait does not end it.
_POLL = 0.1


@functools.lru_cache(maxsize=1)
def _source_hash() -> str:
    """Hash the source text of the runtime."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".c", ".h"):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _flags(compiler: Compiler) -> tuple[str, ...]:
    more = sanitize.flags(compiler) if sanitize.is_on() else ()
    return (*FLAGS, *machine_flags(), *more)


def _key(compiler: Compiler, *parts: str) -> str:
    who = (compiler.name, compiler.version, cpu_id(), _source_hash())
    text = "\0".join([*who, *_flags(compiler), *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class _Making:
    """An object file that another thread is compiling.

    Not a `Future`: importing it here would keep a lock in children that are forked meanwhile.
    """

    def __init__(self, make: Callable[[], Path]) -> None:
        self._make = make
        self._done = threading.Event()
        self._path: Path | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._path = self._make()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> Path:
        while not self._done.wait(_POLL):
            pass
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path


class _Jobs:
    """Compiler processes that run in parallel."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._threads: list[threading.Thread] = []
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._given_up = False

    def give_up(self) -> None:
        """End the running compilers, and start no more."""
        with self._lock:
            self._given_up = True
            for process in self._running:
                kill(process)

    def close(self) -> None:
        for thread in self._threads:
            thread.join()

    def compile(self, sources: Sequence[Path], folder: Path, optimize: str) -> list[_Making]:
        """Start compiling each source to an object file in `folder`."""
        return [self._side_by_side(s, folder, optimize) for s in sources]

    def _side_by_side(self, source: Path, folder: Path, optimize: str) -> _Making:
        making = _Making(lambda: self._object(source, folder, optimize))
        thread = threading.Thread(target=making.run, name="tilelet cc")
        try:
            thread.start()
        except RuntimeError:  # no more threads available: compile sequentially
            making.run()
        else:
            self._threads.append(thread)
        return making

    def link(self, objects: Sequence[Path], target: Path) -> None:
        names = [str(o) for o in objects]
        self._make(target, "-shared", *names, "-lm", "-lpthread")

    def _object(self, source: Path, folder: Path, optimize: str) -> Path:
        target = folder / f"{source.stem}.o"
        self._make(target, optimize, f"-I{SOURCES}", "-c", str(source))
        return target

    def _make(self, target: Path, *arguments: str) -> None:
        """Run the compiler with these arguments; raise `CompilerFailed` if it is unusable."""
        who = self._compiler.name
        arguments = (*arguments, "-o", str(target))
        try:
            process = self._start([*self._compiler.command, *_flags(self._compiler), *arguments])
            _, output = process.communicate(timeout=_COMPILER_SECONDS)
        except subprocess.TimeoutExpired:
            raise CompilerFailed(who, f"it took more than {_COMPILER_SECONDS:.0f} s") from None
        except OSError as error:
            raise CompilerFailed(who, error.strerror or str(error)) from None
        with self._lock:
            self._running.discard(process)
        has_ended(process)
        if process.returncode:
            if _NO_VECTORS in output:
                why = "it has no vector types; set CC to gcc 10, clang 11, or a later version"
                raise CompilerFailed(who, why)
            complaint = _complaint(output)
            if process.returncode > 0 and complaint and not _room(target):
                raise InternalError(
                    f"`{who}` refuses the generated C: {complaint}\n{output.strip()}"
                )
            raise CompilerFailed(who, _ending_text(process.returncode) + _room(target), output)
        if not target.exists():
            raise CompilerFailed(who, f"it wrote no {target.name}", output)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._given_up:
                raise CompilerFailed(self._compiler.name, "it was not waited for")
            process = start_compiler(command, sanitize.without_preload(os.environ))
            self._running.add(process)
            return process


@contextlib.contextmanager
def _jobs(compiler: Compiler) -> Generator[_Jobs]:
    """Yield compile jobs; end those still running after Ctrl-C or an error."""
    jobs = _Jobs(compiler)
    try:
        yield jobs
    finally:
        jobs.give_up()
        jobs.close()


def _ending_text(code: int) -> str:
    if code > 0:
        return f"it ended with code {code}"
    return f"it was ended by {signal.Signals(-code).name}"


_NO_VECTORS = '"no vector types"'  # as in vec.h
# Errors about generated text are bugs of Tilelet; a missing header is a problem of the machine.
_COMPLAINT = re.compile(
    r"unit\d+\.[co](?::[^:\n]*)*: (?:error: |undefined reference|multiple definition).*"
)


def _complaint(output: str) -> str:
    """Return the first diagnostic of a compiler or linker about a generated unit."""
    found = _COMPLAINT.search(output)
    return found.group() if found else ""


def _room(target: Path) -> str:
    """Return a remark if the disk is nearly full: not every compiler reports that."""
    free = shutil.disk_usage(target.parent).free
    return f"; perhaps no space left: {free >> 10} KiB are free" if free < cache.BUILD_BYTES else ""


def _parts(*, has_products: bool) -> dict[str, list[Path]]:
    """Return the sources of the parts of the C library that a program is linked with, by name."""
    runtime = [path for path in sorted(SOURCES.glob("*.c")) if path.name not in PRODUCTS]
    parts = {"runtime": runtime}
    if has_products:
        # First, because these take longest to compile.
        parts = {"products": [SOURCES / name for name in PRODUCTS], **parts}
    return parts


class _Library:
    """Parts of the C library, from the cache or compiled in parallel."""

    def __init__(self, jobs: _Jobs, compiler: Compiler, parts: dict[str, list[Path]]) -> None:
        self._jobs = jobs
        self._parts = parts
        self.keys = {name: f"{name}-{_key(compiler, OPTIMIZE_RUNTIME)}" for name in parts}
        self._started: dict[str, list[_Making]] = {}

    def start(self, folder: Path) -> None:
        """Start compiling the parts that are not in the cache."""
        for name, sources in self._parts.items():
            if not cache.has(self.keys[name]):
                self._started[name] = self._jobs.compile(sources, folder, OPTIMIZE_RUNTIME)

    def use(self, folder: Path, take: Callable[[list[Path]], None]) -> None:
        """Call `take` with copies of all objects."""
        self._use(list(self._parts), [], folder, take)

    def _use(
        self,
        names: list[str],
        objects: list[Path],
        folder: Path,
        take: Callable[[list[Path]], None],
    ) -> None:
        if not names:
            take(objects)
            return
        name, *rest = names
        cache.use(
            self.keys[name],
            lambda draft: self._build(name, draft),
            lambda entry: self._use(rest, [*objects, *entry.copy(".o", folder)], folder, take),
        )

    def _build(self, name: str, draft: Path) -> None:
        started = self._started.pop(name, None)
        if started is None:
            _results(self._jobs.compile(self._parts[name], draft, OPTIMIZE_RUNTIME))
        else:
            for path in _results(started):
                shutil.copyfile(path, draft / path.name)


def _results(making: Sequence[_Making]) -> list[Path]:
    return [one.result() for one in making]


def _build_program(compiler: Compiler, units: Sequence[str], folder: Path, optimize: str) -> None:
    sources = _write(units, folder)
    with _jobs(compiler) as jobs:
        has_products = any("tl_matmul_side_by_side" in text for text in units)
        library = _Library(jobs, compiler, _parts(has_products=has_products))
        library.start(folder)
        making = jobs.compile(sources, folder, optimize)

        def link(objects: list[Path]) -> None:
            made = _results(making)
            try:
                jobs.link([*made, *objects], folder / LIBRARY)
            except CompilerFailed as error:
                raise _NotLinkedError(error) from error

        try:
            library.use(folder, link)
        except _NotLinkedError as failed:
            raise failed.error from None
    for path in folder.glob("*.o"):
        path.unlink()


class _NotLinkedError(cache.UnusableError):
    """Linking failed, perhaps because of cached object files of the runtime."""

    def __init__(self, error: CompilerFailed) -> None:
        super().__init__(str(error))
        self.error = error


def _write(units: Sequence[str], folder: Path) -> list[Path]:
    paths = [folder / f"unit{i}.c" for i in range(len(units))]
    for path, text in zip(paths, units):
        path.write_text(text, encoding="utf-8")
    return paths


# The `pl` location that `Text.add` appends to a line.
_PLACE = re.compile(r"  // [^\"\n]*:\d+$", re.MULTILINE)

_loaded: dict[str, ctypes.CDLL] = {}


def load(
    units: Sequence[str], tables: Sequence[str] = (native.TABLE,), optimize: str = ""
) -> ctypes.CDLL:
    """Return the library that contains the programs named `tables`; compile it if it is not cached.

    Locations in comments are not part of the key: a kernel that moved within its file is not
    recompiled.
    """
    compiler = find_compiler()
    if sanitize.is_on():
        sanitize.check_loaded(compiler)
    optimize = optimize or OPTIMIZE
    key = _key(compiler, optimize, *(_PLACE.sub("", unit) for unit in units))
    needed = (*native.FUNCTIONS, *tables)
    if key not in _loaded:
        try:
            with stopped_when_terminated():
                _loaded[key] = cache.use(
                    key,
                    lambda folder: _build_program(compiler, units, folder, optimize),
                    lambda made: made.load(LIBRARY, *needed, lasting=sanitize.is_on()),
                )
        except cache.UnusableError as error:
            why = "its library does not load"
            raise CompilerFailed(compiler.name, why, str(error)) from None
    return _loaded[key]
