"""Facts about this machine, for `doctor` and the bench."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import stat
import subprocess
import tempfile
from pathlib import Path

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import CompilerFailed
from tilelet.native import cache
from tilelet.native.private import NotPrivateError
from tilelet.native.toolchain import FLAGS, Compiler, machine_flags

PROBE = Path(__file__).parent / "probe.c"
_COMPILER_SECONDS = (
    120.0  # time limit of the compiler in seconds; a new zig first builds its library
)

# Environment variables that affect Tilelet.
VARIABLES = {
    "TILELET_BUILD_DIR": "folder of run directories",
    "TILELET_CACHE_DIR": "folder of compiled programs and goldens",
    "TILELET_CACHE_MB": "size that compiled programs may take",
    "TILELET_CHECKPOINT": "folder of the checkpoint that inputs are read from",
    "TILELET_DUMP_PASSES": "write the program after every pass",
    "TILELET_ENGINE": "what executes programs",
    "TILELET_FORMAT": "of messages: text, json or sarif",
    "TILELET_ISA": "instructions that native code may use",
    "TILELET_NO_CACHE": "keep nothing on disk",
    "TILELET_PERFETTO": "address of a Perfetto on this machine",
    "TILELET_SANITIZE": "build with sanitizers",
    "TILELET_SCHEDULE_SEED": "run ready tasks in a random order",
    "TILELET_SEED": "draw other random inputs",
    "TILELET_THREADS": "threads of the native engine",
}
PACKAGES = ("numpy", "ml_dtypes", "rich", "torch", "transformers", "safetensors", "ziglang", "jax")


@dataclass(frozen=True)
class Target:
    """The target of a compiler with the engine's flags."""

    isa: str
    vector_bytes: int
    has_fma: bool


def probe_compiler(compiler: Compiler) -> Target:
    """Compile and run a tiny program; raise `CompilerFailed` if either fails."""
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder:
        program = Path(folder, "probe")
        flags = (*FLAGS, *machine_flags())
        run_checked(compiler, [*compiler.command, *flags, str(PROBE), "-o", str(program)])
        text = run_checked(compiler, [str(program)])
    isa, width, fma = text.split()
    return Target(isa, int(width), fma == "1")


def run_checked(compiler: Compiler, command: list[str]) -> str:
    """Return the output of a compiler or compiled program; raise `CompilerFailed`."""
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell: the user's own compiler
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerFailed(compiler.name, f"a tiny program: {error}") from None
    if done.returncode:
        what = "a tiny program did not run" if len(command) == 1 else "it refuses a tiny program"
        raise CompilerFailed(compiler.name, f"{what} (code {done.returncode})", done.stderr)
    return done.stdout


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_name() -> str:
    """Return the CPU's model name, or else its architecture."""
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def cpu_isas() -> list[str]:
    """Vector instruction sets of this CPU, the widest first, by the names of probe.c."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return ["NEON"]
    names = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse2": "SSE2"}
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return [isa for flag, isa in names.items() if flag in value.split()]
    return []


@dataclass(frozen=True)
class HostCores:
    """Return the number of cores of the machine, of this process, and of its control group."""

    present: int
    usable: int
    quota: float | None


def cores() -> HostCores:
    present = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    return HostCores(present, usable, _cpu_quota())


def _cpu_quota() -> float | None:
    """Return the CPU limit of the control group in cores; None without a limit."""
    newer = _read("/sys/fs/cgroup/cpu.max").split()
    older = [_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{n}_us").strip() for n in ("quota", "period")]
    for pair in (newer, older):
        if len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() and int(pair[1]):
            return int(pair[0]) / int(pair[1])
    return None


@dataclass(frozen=True)
class Busy:
    """Processor seconds since the start, of the machine and of this process with its children."""

    everything: float
    ours: float

    def others_since(self, before: Busy) -> float:
        """Return the processor seconds of other work in the meantime."""
        everything = self.everything - before.everything
        return max(0.0, everything - (self.ours - before.ours))


def busy() -> Busy | None:
    """Read the counters; None if this system lacks them."""
    first = _read("/proc/stat").split("\n")[0].split()
    if len(first) < 9 or first[0] != "cpu":
        return None
    user, nice, system, _idle, _io, irq, soft_irq, stolen = map(int, first[1:9])
    ticks = user + nice + system + irq + soft_irq + stolen
    times = os.times()
    ours = times.user + times.system + times.children_user + times.children_system
    return Busy(ticks / os.sysconf("SC_CLK_TCK"), ours)


def huge_pages() -> str:
    """The setting of transparent huge pages: `always`, `madvise`, `never`, or `` if unknown."""
    for word in _read("/sys/kernel/mm/transparent_hugepage/enabled").split():
        if word.startswith("["):
            return word.strip("[]")
    return ""


@dataclass(frozen=True)
class CacheFacts:
    """The cache of compiled programs; `folder` is None if there is none, and `why` says why."""

    folder: Path | None
    why: str = ""
    entries: int = 0
    size: int = 0
    cap: int = 0
    mode: str = ""
    is_writable: bool = False


def cache_facts() -> CacheFacts:
    if cache.is_off():
        return CacheFacts(None, "`TILELET_NO_CACHE` turns it off")
    try:
        root = cache.open_root()
    except OSError as error:
        return CacheFacts(None, _unusable_reason(error))
    # Not `rglob`, which fails if another process removes an entry.
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return CacheFacts(
        folder=root,
        entries=sum(1 for path in root.iterdir() if path.is_dir()),
        size=sum(_size(path) for path in files),
        cap=cache.size_cap(),
        mode=stat.filemode(root.stat().st_mode),
        is_writable=_is_writable(root),
    )


def _unusable_reason(error: OSError) -> str:
    if isinstance(error, NotPrivateError):
        return f"{error}, and code of others must not run"
    chosen = os.environ.get("TILELET_CACHE_DIR")
    where = f"`{chosen}`" if chosen else "the user's cache folder"
    return f"{where} cannot be made: {error.strerror or error}"


def _size(path: Path) -> int:
    """Return the size of a file; 0 if another process has removed it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def package_versions() -> dict[str, str | None]:
    """Return versions of the optional packages; None for missing ones."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def settings() -> dict[str, str]:
    """Return the environment variables of Tilelet that are set."""
    also = ("CC", "XDG_CACHE_HOME")
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("TILELET_") or name in also
    }
