"""`TILELET_SANITIZE=1`: run programs with the address and undefined-behavior sanitizers.

The address sanitizer's library must be loaded first in a process. A Python process that was started
without it cannot load such a program and must be restarted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tilelet.diag.catalogue.command import CompilerFailed, SanitizerNotLoaded
from tilelet.native.toolchain import Compiler, find_compiler

_FLAGS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g")
# Sanitizer defaults, which the user can override: Python itself leaks on purpose, and failed
# allocations are reported as errors with a location.
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def is_on() -> bool:
    return os.environ.get("TILELET_SANITIZE", "0") not in ("", "0")


def flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags for compiling and linking."""
    return (*_FLAGS, "-shared-libasan") if compiler.is_clang else _FLAGS


def is_loaded() -> bool:
    """Whether the address sanitizer is loaded in this process."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def library(compiler: Compiler) -> Path:
    """Return the address sanitizer's library; raise `CompilerFailed` if the compiler has none."""
    names = ["libasan.so"]
    if compiler.is_clang:
        names = ["libclang_rt.asan.so", f"libclang_rt.asan-{platform.machine()}.so"]
    for name in names:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(  # noqa: S603 - a list, no shell: the user's own compiler
                [*compiler.command, f"-print-file-name={name}"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            found = Path(done.stdout.strip())
            if found.is_absolute() and found.exists():
                return found
    raise CompilerFailed(compiler.name, "it has no address sanitizer")


def environment(compiler: Compiler) -> dict[str, str]:
    """Return the environment that Python must be started with."""
    return {"LD_PRELOAD": str(library(compiler)), **_OPTIONS}


def check_loaded(compiler: Compiler) -> None:
    """Raise `SanitizerNotLoaded` if a program with sanitizers would end this process."""
    if not is_loaded():
        raise SanitizerNotLoaded(environment(compiler))


def without_preload(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for compilers, which the sanitizer only slows down."""
    return {name: value for name, value in variables.items() if name != "LD_PRELOAD"}


def restart() -> None:
    """Restart this command with the sanitizer, if it is requested and not loaded."""
    if not is_on() or is_loaded():
        return
    wanted = environment(find_compiler())
    wanted["LD_PRELOAD"] = " ".join(filter(None, [wanted["LD_PRELOAD"], os.getenv("LD_PRELOAD")]))
    options = {name: os.environ.get(name, value) for name, value in _OPTIONS.items()}
    os.execve(  # noqa: S606 - this very command
        sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted, **options}
    )
