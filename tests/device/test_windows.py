"""Arguments narrowed to the part that tasks touch, as the compilers of some weeks did."""

from __future__ import annotations

import pytest
from tests.device.recording import recorded

import tilelet.language as pl
from tilelet.device import load_machine, simulate
from tilelet.ir.core import Program

A2A3 = load_machine("a2a3")
WHOLE, WRITTEN, GUARDED, BOTH = "2026-05-15", "2026-05-19", "2026-05-22", "2026-06-11"


def producers(program: Program, period: str) -> list[list[int]]:
    tasks, compiled = recorded(program)
    line = simulate(tasks, compiled, A2A3, period=period)
    reference = simulate(tasks, compiled, A2A3, period=period, reference=True)
    assert line.total_us == reference.total_us
    return [line.graph.producers(i) for i in range(len(tasks))]


def filled(rows: int, read_whole: bool) -> Program:
    """A sequential loop stores 16 rows at a time, every `rows` rows; then a task reads them."""
    ROWS, READ = rows, 64 if read_whole else 16

    @pl.program
    class Filled:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
            t = pl.create_tensor([64, 64], dtype=pl.FP32)
            for i in pl.range(3):
                with pl.incore(name_hint="fill"):
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 64], [i * 16, 0])), [i * ROWS, 0])
            with pl.incore(name_hint="read"):
                y = pl.assemble(y, pl.exp(pl.slice(t, [READ, 64], [0, 0])), [0, 0])
            return y

    return Filled


@pytest.mark.parametrize(
    ("period", "wanted"),
    [
        (WHOLE, [[], [0], [1], [2]]),
        (WRITTEN, [[], [], [], [0, 1, 2]]),
        # The reader gets the whole tensor, whatever it reads of it.
        (GUARDED, [[], [0], [1], [2]]),
        (BOTH, [[], [], [], [0]]),
    ],
)
def test_disjoint_windows_order_nothing(period: str, wanted: list[list[int]]) -> None:
    assert producers(filled(16, read_whole=False), period) == wanted


def test_windows_that_overlap_stay_ordered() -> None:
    for period in (WHOLE, WRITTEN, BOTH):
        assert producers(filled(8, read_whole=True), period)[:3] == [[], [0], [1]]


def scattered() -> Program:
    """The store's offset is unknown before the task runs."""

    @pl.program
    class Scattered:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 64], pl.FP32],
            where: pl.Tensor[[4], pl.INT32],
            y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            for i in pl.range(3):
                with pl.incore(name_hint="fill"):
                    at = pl.read(where, [i])
                    y = pl.assemble(y, pl.slice(x, [16, 64], [0, 0]), [at, 0])
            return y

    return Scattered


def test_what_is_not_known_stays_whole() -> None:
    assert producers(scattered(), WRITTEN) == [[], [0], [1]]
