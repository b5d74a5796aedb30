"""From C text to a loaded library.

The runtime is compiled once for a compiler and CPU and kept as objects; a program's own units are
compiled side by side and linked with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import shutil
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilelet.cpu import cache
from tilelet.cpu.toolchain import (
    FLAGS,
    SANITIZE,
    Compiler,
    cpu_id,
    find_compiler,
    is_sanitizing,
    machine_flags,
)
from tilelet.diag.catalogue.command import CompilerFailed

SOURCES = Path(__file__).parent / "c"
LIBRARY = "program.so"
OPTIMISE = "-O3"  # programs: loops over elements are vectorised by the compiler
OPTIMISE_RUNTIME = "-O2"  # its loops are vectors already; -O3 only takes longer
_LONGEST = 600.0  # seconds that one compiler process may take


@functools.lru_cache(maxsize=1)
def _source_hash() -> str:
    """All of the runtime's text."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".c", ".h"):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _flags() -> tuple[str, ...]:
    return (*FLAGS, *machine_flags(), *(SANITIZE if is_sanitizing() else ()))


def _key(compiler: Compiler, *parts: str) -> str:
    text = "\0".join([compiler.name, compiler.version, cpu_id(), _source_hash(), *_flags(), *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell: the user's own compiler
            command, capture_output=True, text=True, errors="replace", timeout=_LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompilerFailed(command[0], f"it took more than {_LONGEST:.0f} s") from None
    except OSError as error:
        raise CompilerFailed(command[0], error.strerror or str(error)) from None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise CompilerFailed(command[0], f"it was ended by {name}", done.stderr)
    if done.returncode:
        raise CompilerFailed(command[0], f"it ended with code {done.returncode}", done.stderr)


def _object(compiler: Compiler, source: Path, target: Path, *flags: str) -> None:
    command = [*compiler.command, *_flags(), *flags, f"-I{SOURCES}", "-c", str(source)]
    _run([*command, "-o", str(target)])


def _each(work: Sequence[tuple[Compiler, Path, Path, str]]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(work))) as pool:
        for result in [pool.submit(_object, *item) for item in work]:
            result.result()


def _build_runtime(compiler: Compiler, folder: Path) -> None:
    sources = sorted(SOURCES.glob("*.c"))
    _each([(compiler, s, folder / f"{s.stem}.o", OPTIMISE_RUNTIME) for s in sources])


def _build_program(compiler: Compiler, units: Sequence[str], folder: Path) -> None:
    work: list[tuple[Compiler, Path, Path, str]] = []
    for i, text in enumerate(units):
        source = folder / f"unit{i}.c"
        source.write_text(text, encoding="utf-8")
        work.append((compiler, source, folder / f"unit{i}.o", OPTIMISE))
    with ThreadPoolExecutor(max_workers=1) as beside, contextlib.ExitStack() as held:
        # The runtime, if it is not there yet, takes as long as the program: both at once.
        runtime_entry = cache.entry(
            f"runtime-{_key(compiler, OPTIMISE_RUNTIME)}", lambda f: _build_runtime(compiler, f)
        )
        runtime_ready = beside.submit(held.enter_context, runtime_entry)
        _each(work)
        runtime = runtime_ready.result()
        objects = [str(w[2]) for w in work] + [str(p) for p in sorted(runtime.glob("*.o"))]
        link = [*compiler.command, *_flags(), "-shared", *objects, "-lm", "-lpthread"]
        _run([*link, "-o", str(folder / LIBRARY)])
    for item in work:
        item[2].unlink()


_loaded: dict[str, ctypes.CDLL] = {}


def load(units: Sequence[str], keep: Path | None = None) -> ctypes.CDLL:
    """The library of a program; compiled if no earlier run has left it. `keep` receives the C."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for i, text in enumerate(units):
            (keep / f"unit{i}.c").write_text(text, encoding="utf-8")
        for header in SOURCES.glob("*.h"):
            shutil.copy(header, keep)
    compiler = find_compiler()
    key = _key(compiler, OPTIMISE, *units)
    if key not in _loaded:
        with cache.entry(key, lambda folder: _build_program(compiler, units, folder)) as folder:
            try:
                _loaded[key] = ctypes.CDLL(str(folder / LIBRARY))
            except OSError as error:
                # A sanitizer's own library has to be there first: LD_PRELOAD it.
                raise CompilerFailed(
                    compiler.name, "its library does not load", str(error)
                ) from None
    return _loaded[key]
