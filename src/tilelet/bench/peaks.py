"""Measured peaks of this machine: multiply-adds, reading and copying memory."""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilelet.bench.host import run_checked
from tilelet.bench.timing import Seconds
from tilelet.cpu.run.build import SOURCES
from tilelet.dataclasses import astuple, dataclass
from tilelet.native.toolchain import FLAGS, find_compiler, machine_flags

_SOURCE = Path(__file__).parent / "peaks.c"
_FMA_STEPS = 2_000_000  # a few milliseconds
_COLD_RUNS = 5


@dataclass(frozen=True)
class Peaks:
    """Rates per second on all threads: operations; bytes read sequentially and in four streams per
    thread; bytes copied.
    """

    flops: float
    read: float
    read_streams: float
    copy: float

    def better_of(self, other: Peaks) -> Peaks:
        return Peaks(*map(max, astuple(self), astuple(other)))


def load_helpers() -> ctypes.CDLL:
    """Compile peaks.c with the flags of the engine."""
    compiler = find_compiler()
    flags = (*FLAGS, *machine_flags(), "-O2", "-shared", f"-I{SOURCES}")
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder:
        library = Path(folder, "machine.so")
        run_checked(compiler, [*compiler.command, *flags, str(_SOURCE), "-o", str(library)])
        loaded = ctypes.CDLL(str(library))
    loaded.bench_fma.restype = ctypes.c_double
    loaded.bench_kernel_bytes.restype = ctypes.c_int64
    loaded.bench_program_bytes.restype = ctypes.c_int64
    return loaded


class Machine:
    """Measure the rates of this machine on some threads.

    Multiply-adds are counted per second of processor time, which other load does not affect.
    Memory is shared by all cores, so its rates are per second of wall-clock time.
    """

    def __init__(self, threads: int, megabytes: int) -> None:
        self.threads = threads
        self.helpers = load_helpers()
        self._memory = np.ones((threads, megabytes << 20), np.uint8)

    def measure(self) -> Peaks:
        """Return the best of several short runs."""
        best = self.probe()
        for _ in range(_COLD_RUNS - 1):
            best = best.better_of(self.probe())
        return best

    def probe(self) -> Peaks:
        """Measure all rates once."""
        helpers = self.helpers
        return Peaks(
            self._flops(),
            self._read(helpers.bench_read),
            self._read(helpers.bench_read_streams),
            self._copy(),
        )

    def _flops(self) -> float:
        done = [0.0] * self.threads

        def work(i: int) -> None:
            sink = ctypes.byref(ctypes.c_float())
            done[i] = self.helpers.bench_fma(ctypes.c_int64(_FMA_STEPS), sink)

        seconds = _on_threads(self.threads, work)
        return sum(done) / seconds.processor

    def _read(self, read: Callable[..., object]) -> float:
        def work(i: int) -> None:
            part = self._memory[i]
            read(
                ctypes.c_void_p(part.ctypes.data),
                ctypes.c_int64(part.nbytes),
                ctypes.byref(ctypes.c_float()),
            )

        return self._memory.nbytes / _on_threads(self.threads, work).clock

    def _copy(self) -> float:
        half = self._memory.shape[1] // 2

        def work(i: int) -> None:
            start = self._memory[i].ctypes.data
            self.helpers.bench_copy(
                ctypes.c_void_p(start), ctypes.c_void_p(start + half), ctypes.c_int64(half)
            )

        return 2 * half * self.threads / _on_threads(self.threads, work).clock

    def empty_program(self, address: int) -> EmptyProgram:
        return EmptyProgram(self.helpers, address)


class EmptyProgram:
    """Copy a compiled program (a `tl_program`) with empty kernels."""

    def __init__(self, helpers: ctypes.CDLL, address: int) -> None:
        original = ctypes.c_void_p(address)
        self._kernels = ctypes.create_string_buffer(helpers.bench_kernel_bytes(original))
        self._program = ctypes.create_string_buffer(helpers.bench_program_bytes())
        helpers.bench_empty_program(original, self._program, self._kernels)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._program)


def _on_threads(count: int, work: Callable[[int], object]) -> Seconds:
    """Run `work(0)` .. `work(count - 1)` in parallel; return the slowest's processor time."""
    used = [0.0] * count

    def timed(i: int) -> None:
        begin = time.thread_time()
        work(i)
        used[i] = time.thread_time() - begin

    threads = [threading.Thread(target=timed, args=(i,)) for i in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Seconds(time.perf_counter() - begin, max(used))
