"""The C part of the model: compiled once and cached."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
from pathlib import Path

from tilelet.diag.core import UserError
from tilelet.native import cache
from tilelet.native.toolchain import (
    FLAGS,
    Compiler,
    cpu_id,
    find_compiler,
    machine_flags,
    run_compiler,
    stopped_when_terminated,
)

SOURCES = Path(__file__).parent / "c"
LIBRARY = "device.so"
FUNCTIONS = ("tl_simulate", "tl_graph", "tl_cells_place", "tl_conflicts", "tl_walk")


def _build(compiler: Compiler, folder: Path) -> None:
    sources = [str(p) for p in sorted(SOURCES.glob("*.c"))]
    flags = [*FLAGS, *machine_flags(), "-O2", "-shared"]
    run_compiler([*compiler.command, *flags, *sources, "-o", str(folder / LIBRARY)], seconds=600)


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or None without a working C compiler."""
    try:
        compiler = find_compiler()
    except UserError:
        return None
    text = b"\0".join(p.read_bytes() for p in sorted(SOURCES.glob("*.[ch]")))
    parts = (compiler.name, compiler.version, cpu_id(), *FLAGS, *machine_flags())
    key = hashlib.sha256(text + "\0".join(parts).encode()).hexdigest()[:40]
    try:
        with stopped_when_terminated():
            return cache.use(
                f"device-{key}",
                lambda folder: _build(compiler, folder),
                lambda made: made.load(LIBRARY, *FUNCTIONS),
            )
    except (OSError, UserError, subprocess.SubprocessError, cache.UnusableError):
        return None
