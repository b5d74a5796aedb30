"""How close the engine's matrix product comes to what this machine can do.

Run it:  python bench/matmul.py [--threads 2] [--repeats 7] [--json out.json]

Every figure is a ratio measured in one run. Before and after each timing the FMA peak is measured
on the same threads, and the product's rate is divided by the larger of the two; the median of the
repeats is printed. Both are rates per second of processor time (of the thread that took longest),
so that other work on the machine disturbs them little. torch and NumPy are timed by the clock, in
turn with the engine's product.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "tilelet" / "cpu" / "c"
FLAGS = (
    "-std=gnu11", "-O2", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-Wno-psabi",
)  # fmt: skip
BF16 = np.dtype(ml_dtypes.bfloat16)
CODES = {np.dtype(np.float32): 0, BF16: 2}  # tl_dtype
SCRATCH_BYTES = 640 << 10  # TL_MATMUL_SCRATCH_BYTES
HUGE_PAGE = 2 << 20
SLOW = 2.0  # seconds; what takes longer is run once
PAUSE = 0.2  # seconds; threads of other libraries wait busily for a while after their work


class Arguments(ctypes.Structure):
    """tl_matmul_args"""

    _fields_ = (
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p),
        ("lda", ctypes.c_int64), ("ldb", ctypes.c_int64),
        ("c", ctypes.c_void_p), ("ldc", ctypes.c_int64),
        ("start", ctypes.c_void_p), ("ld_start", ctypes.c_int64),
        ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
        ("a_type", ctypes.c_uint8), ("b_type", ctypes.c_uint8),
        ("a_trans", ctypes.c_uint8), ("b_trans", ctypes.c_uint8),
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A product of so many rows, cut into calls of `columns` columns and `steps` of k."""

    name: str
    m: int
    k: int
    n: int
    columns: int
    steps: int | None = None
    b_trans: bool = False
    dtype: np.dtype[Any] = BF16
    huge_pages: bool = True


CASES = (
    Case("decode, wide calls", 16, 5120, 25600, 512),
    Case("decode, wide calls, 4 KB pages", 16, 5120, 25600, 512, huge_pages=False),
    Case("decode, calls of 256 columns", 16, 5120, 25600, 256),
    Case("decode, calls of 64 columns", 16, 5120, 25600, 64),
    Case("decode, tiles [128, 64] one by one", 16, 5120, 12800, 64, 128),
    Case("decode, hidden 8192", 16, 8192, 8192, 512),
    Case("decode, down projection", 16, 25600, 5120, 512),
    Case("decode, FP32 weights", 16, 5120, 6400, 512, dtype=np.dtype(np.float32)),
    Case("prefill, 64 rows", 64, 5120, 5120, 512),
    Case("prefill, 256 rows", 256, 5120, 2560, 640),
    Case("prefill, 512 rows", 512, 5120, 2048, 512),
    Case("scores of 16 queries, K^T", 16, 128, 65536, 256, b_trans=True),
)


def build() -> ctypes.CDLL:
    compiler = next(
        filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None
    )
    if compiler is None:
        sys.exit("error: no C compiler found: install gcc or clang, or set CC")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "bench.so")
        sources = [str(SOURCES / "matmul.c"), str(ROOT / "bench" / "machine.c")]
        command = [compiler, *FLAGS, "-fPIC", "-shared", f"-I{SOURCES}", *sources]
        subprocess.run([*command, "-o", str(library), "-lm"], check=True)  # noqa: S603
        loaded = ctypes.CDLL(str(library))
    loaded.bench_fma.restype = ctypes.c_double
    return loaded


@dataclass(frozen=True)
class Seconds:
    """By the clock, and of processor time on the thread that took longest."""

    clock: float
    processor: float


def on_threads(count: int, work: Callable[[int], None]) -> Seconds:
    """Runs `work(0)` .. `work(count - 1)`, each on a thread of its own."""
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


def in_pages(shape: tuple[int, ...], dtype: np.dtype[Any], huge: bool = True) -> Array:
    """Zeros, in huge pages where the system has them and `huge` asks for them."""
    size = int(np.prod(shape)) * dtype.itemsize
    # Private: memory that could be shared gets no huge pages on most systems.
    memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    raw = np.frombuffer(memory, np.uint8)
    offset = -raw.ctypes.data % HUGE_PAGE
    return raw[offset : offset + size].view(dtype).reshape(shape)


class Machine:
    """Peaks of this machine on so many threads."""

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.library, self.threads = library, threads
        self._buffer = in_pages((threads, 128 << 20), np.dtype(np.uint8))
        self._buffer[...] = 1

    def flops(self, steps: int = 1_000_000) -> float:
        done = [0.0] * self.threads

        def work(i: int) -> None:
            done[i] = self.library.bench_fma(ctypes.c_int64(steps), ctypes.byref(ctypes.c_float()))

        seconds = on_threads(self.threads, work).processor
        return sum(done) / seconds

    def read_bandwidth(self) -> float:
        def work(i: int) -> None:
            part = self._buffer[i]
            self.library.bench_read(
                ctypes.c_void_p(part.ctypes.data), ctypes.c_int64(part.nbytes),
                ctypes.byref(ctypes.c_float()),
            )  # fmt: skip

        size = self._buffer.nbytes
        return max(size / on_threads(self.threads, work).processor for _ in range(5))


class Product:
    """One case with its data."""

    def __init__(self, case: Case, library: ctypes.CDLL, threads: int) -> None:
        self.case, self.library, self.threads = case, library, threads
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((case.m, case.k)).astype(np.float32).astype(case.dtype)
        shape = (case.n, case.k) if case.b_trans else (case.k, case.n)
        self.w = in_pages(shape, case.dtype, case.huge_pages)
        self.w[...] = rng.standard_normal((1, shape[1])).astype(np.float32).astype(case.dtype)
        self.c = np.zeros((case.m, case.n), np.float32)
        self._scratch = in_pages((threads, SCRATCH_BYTES), np.dtype(np.uint8))
        self._calls = [self._calls_of(i) for i in range(threads)]

    @property
    def flops(self) -> float:
        return 2.0 * self.case.m * self.case.k * self.case.n

    def _calls_of(self, thread: int) -> list[Arguments]:
        case, size = self.case, self.case.dtype.itemsize
        steps = case.steps or case.k
        calls: list[Arguments] = []
        for n0 in range(thread * case.columns, case.n, self.threads * case.columns):
            c = self.c.ctypes.data + 4 * n0
            for k0 in range(0, case.k, steps):
                corner = n0 * case.k + k0 if case.b_trans else k0 * case.n + n0
                calls.append(
                    Arguments(
                        a=self.x.ctypes.data + size * k0,
                        lda=case.k,
                        b=self.w.ctypes.data + size * corner,
                        ldb=self.w.shape[1],
                        c=c,
                        ldc=case.n,
                        start=c if k0 else None,
                        ld_start=case.n,
                        m=case.m,
                        n=min(case.columns, case.n - n0),
                        k=min(steps, case.k - k0),
                        a_type=CODES[case.dtype],
                        b_type=CODES[case.dtype],
                        b_trans=case.b_trans,
                    )
                )
        return calls

    def run(self) -> Seconds:
        def work(i: int) -> None:
            scratch = ctypes.c_void_p(self._scratch[i].ctypes.data)
            for call in self._calls[i]:
                self.library.tl_matmul(ctypes.byref(call), scratch)

        return on_threads(self.threads, work)


def measure(product: Product, machine: Machine, repeats: int) -> dict[str, float]:
    """Medians: share of the FMA peak, seconds of processor time, seconds by the clock."""
    shares: list[float] = []
    times: list[Seconds] = []
    product.run()
    for _ in range(repeats):
        before = machine.flops()
        times.append(product.run())
        peak = max(before, machine.flops())
        shares.append(product.flops / times[-1].processor / peak)
    return {
        "share_of_peak": statistics.median(shares),
        "processor_seconds": statistics.median(t.processor for t in times),
        "clock_seconds": statistics.median(t.clock for t in times),
    }


def other_forms(product: Product, threads: int) -> dict[str, Callable[[], object]]:
    """The same product elsewhere, weights held as the name says."""
    x, w = product.x, product.w
    x_wide, w_wide = x.astype(np.float32), w.astype(np.float32)
    forms: dict[str, Callable[[], object]] = {"numpy FP32 weights": lambda: x_wide @ w_wide}
    try:
        import torch
    except ImportError:
        print("torch is not installed: left out")
        return forms
    torch.set_num_threads(threads)
    tx, tw = (torch.from_numpy(v.view(np.int16)).view(torch.bfloat16) for v in (x, w))
    transposed = tw.t().contiguous()
    fx, fw = torch.from_numpy(x_wide), torch.from_numpy(w_wide)
    forms["torch BF16 F.linear"] = lambda: torch.nn.functional.linear(tx, transposed)
    forms["torch BF16 weights, FP32 product"] = lambda: fx @ tw.float()
    forms["torch FP32 weights"] = lambda: fx @ fw
    forms["torch BF16 x @ W"] = lambda: tx @ tw
    return forms


def times_ours(product: Product, form: Callable[[], object], repeats: int) -> float:
    """Median of how many times our time a form takes, by the clock, in turn with ours."""
    ratios: list[float] = []
    for _ in range(repeats):
        time.sleep(PAUSE)
        ours = product.run().clock
        begin = time.perf_counter()
        form()
        took = time.perf_counter() - begin
        ratios.append(took / ours)
        if took > SLOW:
            break
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()

    library = build()
    machine = Machine(library, options.threads)
    peak = max(machine.flops(4_000_000) for _ in range(3))
    bandwidth = machine.read_bandwidth()
    print(f"{options.threads} threads: FMA peak {peak / 1e9:.0f} GFLOP/s, "
          f"reading {bandwidth / 1e9:.1f} GB/s")  # fmt: skip
    report: dict[str, Any] = {
        "threads": options.threads, "fma_peak": peak, "read_bandwidth": bandwidth, "cases": {},
    }  # fmt: skip
    for case in CASES:
        if options.only not in case.name:
            continue
        product = Product(case, library, options.threads)
        found = measure(product, machine, options.repeats)
        found["weights_share_of_bandwidth"] = (
            product.w.nbytes / found["processor_seconds"] / bandwidth
        )
        report["cases"][case.name] = found
        print(
            f"{case.name:36} {f'[{case.m},{case.k}]x[{case.k},{case.n}]':24}"
            f"{found['share_of_peak']:6.1%} of FMA peak "
            f"{found['weights_share_of_bandwidth']:6.1%} of bandwidth "
            f"{found['processor_seconds'] * 1e3:7.1f} ms",
            flush=True,
        )
        if case is CASES[0]:
            report["others"] = {}
            for name, form in other_forms(product, options.threads).items():
                ratio = times_ours(product, form, options.repeats)
                report["others"][name] = ratio
                print(f"    {name:34} {ratio:6.1f} x our time", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
