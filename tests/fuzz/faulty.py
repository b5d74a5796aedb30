"""A worker whose emitter has a mistake, named by the environment: the fuzz target must find it."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.fuzz import library, worker

from tilelet.ir.core import Program

_BEGIN = ", const tl_word *x) {"  # of the first kernel
FAULTS: dict[str, Callable[[str], str]] = {
    # What `pl.maximum` computes in FP32.
    "wrong": lambda text: text.replace("ts_max_f32(", "ts_min_f32("),
    "crash": lambda text: text.replace(_BEGIN, f"{_BEGIN} __builtin_trap();", 1),
    "hang": lambda text: text.replace(_BEGIN, f'{_BEGIN} for (;;) __asm__ volatile("");', 1),
    "internal": lambda text: text + "\nthis is no C\n",
}


def plant(fault: str) -> None:
    text_of = library.text_of

    def spoilt(program: Program) -> str:
        return FAULTS[fault](text_of(program))

    library.text_of = spoilt


if __name__ == "__main__":
    plant(os.environ["FUZZ_FAULT"])
    worker.main()
