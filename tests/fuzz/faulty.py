"""A worker with a planted mistake, selected by an environment variable, for the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz import verdict, worker

from tilelet.cpu.emit.program import Compiled
from tilelet.ir.core import Program

_BEGIN = ", const tl_word *x) {"  # head of the first kernel
FAULTS: dict[str, Callable[[str], str]] = {
    # What `pl.maximum` computes in FP32.
    "wrong": lambda text: text.replace("ts_max_f32(", "ts_min_f32("),
    "crash": lambda text: text.replace(_BEGIN, f"{_BEGIN} __builtin_trap();", 1),
    "hang": lambda text: text.replace(_BEGIN, f'{_BEGIN} for (;;) __asm__ volatile("");', 1),
    # Access one byte past the first argument, which only a sanitizer notices.
    "overflow": lambda text: text.replace(
        _BEGIN, f"{_BEGIN} ((volatile char *)w[0].data)[4 * 8 * 4] += 0;", 1
    ),
    "internal": lambda text: text + "\nthis is no C\n",
}
STOPPED = 4  # seconds


def _stop_for_a_while() -> None:
    subprocess.Popen(["sh", "-c", f"sleep {STOPPED}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


# Ways to delay a worker.
DELAYS: dict[str, Callable[[], None]] = {
    "stopped": _stop_for_a_while,
    "asleep": lambda: time.sleep(3600),
}


def delay(name: str) -> None:
    emitted = verdict.emitted

    def late(program: Program) -> Compiled:
        DELAYS[name]()
        return emitted(program)

    verdict.emitted = late


def plant(fault: str) -> None:
    emitted = verdict.emitted

    def spoilt(program: Program) -> Compiled:
        code = emitted(program)
        return replace(code, units=[FAULTS[fault](text) for text in code.units])

    verdict.emitted = spoilt


if __name__ == "__main__":
    name = os.environ["FUZZ_FAULT"]
    delay(name) if name in DELAYS else plant(name)
    worker.main()
