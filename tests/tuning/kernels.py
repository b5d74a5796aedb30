"""A script to tune, and ways to do so without processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from tilelet.scripts.target import Target
from tilelet.tuning.evaluate import Question

SCRIPT = """\
import numpy as np
import pypto.language as pl
from pypto.runtime import TensorSpec, run

ROWS, COLUMNS = 64, 512
TILE = 16
UNUSED = 32
TIMES = 2


def build_program(wide: int = 64):
    @pl.program
    class Scale:
        @pl.function
        def main(
            self, x: pl.Tensor[[ROWS, COLUMNS], pl.FP32], out: pl.Tensor[[ROWS, COLUMNS], pl.FP32]
        ):
            for r in pl.range(0, ROWS, TILE):
                for c in pl.parallel(0, COLUMNS, wide):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        t = pl.slice(x, [TILE, wide], [r, c])
                        for i in pl.range(TIMES):
                            t = pl.add(t, t)
                        out = pl.assemble(out, t, [r, c])
            return out

    return Scale


def golden(tensors):
    tensors["out"][:] = tensors["x"] * 4


if __name__ == "__main__":
    shape = (ROWS, COLUMNS)
    specs = [
        TensorSpec("x", shape, pl.FP32, np.ones(shape, np.float32)),
        TensorSpec("out", shape, pl.FP32, is_output=True),
    ]
    run(build_program(), specs, golden_fn=golden)
"""


class InThisProcess(Executor):
    """Answers at once, and counts requests."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def question(folder: Path, text: str = SCRIPT, machines: tuple[str, ...] = ("a2a3",)) -> Question:
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return Question(Target(str(path)), machines)
