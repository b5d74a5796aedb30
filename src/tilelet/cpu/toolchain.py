"""Finding a C compiler, and the flags to give it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tilelet.diag.catalogue.command import NoCompiler

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
SANITIZE = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g")


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, and a text that tells it from any other."""

    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        return " ".join(self.command)

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version or "zig" in self.name


def find_compiler() -> Compiler:
    """`$CC`, else `cc`, `gcc` or `clang`, else package `ziglang`; `NoCompiler` if none works."""
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, _path: str) -> Compiler:
    candidates = [shlex.split(chosen)] if chosen.strip() else [["cc"], ["gcc"], ["clang"]]
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


def _version(command: list[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell: the user's own compiler
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else None


def machine_flags() -> tuple[str, ...]:
    """Flags for all that this CPU can do."""
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return ("-mcpu=native",)
    return ("-march=native",) if machine in ("x86_64", "amd64", "i686") else ()


def is_sanitizing() -> bool:
    return os.environ.get("TILELET_SANITIZE", "0") not in ("", "0")


@functools.lru_cache(maxsize=1)
def cpu_id() -> str:
    """What this CPU is and can do, as a short text that differs between kinds of CPU."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    lines = sorted({line for line in text.splitlines() if line.startswith(wanted)})
    facts = [platform.machine(), platform.processor(), sys.platform, *lines]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
