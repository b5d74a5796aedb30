"""A worker whose emitter has a mistake, named by the environment: the fuzz target must find it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz import verdict, worker

from tilelet.cpu.emit.program import Compiled
from tilelet.ir.core import Program

_BEGIN = ", const tl_word *x) {"  # of the first kernel
FAULTS: dict[str, Callable[[str], str]] = {
    # What `pl.maximum` computes in FP32.
    "wrong": lambda text: text.replace("ts_max_f32(", "ts_min_f32("),
    "crash": lambda text: text.replace(_BEGIN, f"{_BEGIN} __builtin_trap();", 1),
    "hang": lambda text: text.replace(_BEGIN, f'{_BEGIN} for (;;) __asm__ volatile("");', 1),
    # One byte behind the first argument: nothing happens, unless memory is watched.
    "overflow": lambda text: text.replace(
        _BEGIN, f"{_BEGIN} ((volatile char *)w[0].data)[4 * 8 * 4] += 0;", 1
    ),
    "internal": lambda text: text + "\nthis is no C\n",
}


def plant(fault: str) -> None:
    emitted = verdict.emitted

    def spoilt(program: Program) -> Compiled:
        code = emitted(program)
        return replace(code, units=[FAULTS[fault](text) for text in code.units])

    verdict.emitted = spoilt


if __name__ == "__main__":
    plant(os.environ["FUZZ_FAULT"])
    worker.main()
