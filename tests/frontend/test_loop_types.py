"""Types of carried names: found by trials, and a dropped trial leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest

import tilelet.language as pl
from tilelet.frontend import loops


def loop(body: str) -> Any:
    """A loop that begins with a tensor and ends with a tile, so its body is lowered twice."""
    return pl.parse(
        f"""
@pl.program
class Loop:
    @pl.function
    def main(
        self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            carried = x
            for i in pl.range(4):
                carried = pl.add(carried, 1.0)
                {body}
            out = pl.assemble(out, carried, [0, 0])
        return out
"""
    )


def test_a_tensor_that_becomes_a_tile_is_loaded_before_the_loop() -> None:
    assert "for i, (carried,) in pl.range(4, init_values=(x_1,)):" in str(loop("pass"))


def test_compile_time_prints_appear_once(capsys: pytest.CaptureFixture[str]) -> None:
    loop("pl.static_print('here')")
    assert capsys.readouterr().out == "here\n"


def test_copies_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_UNROLL", 5)
    text = str(loop("for _ in pl.unroll(5): carried = pl.mul(carried, 2.0)"))
    assert text.count("pl.mul") == 5


BARRIER = """
@pl.program
class Barrier:
    @pl.function
    def main(
        self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.InOut[pl.Tensor[[16, 64], pl.FP32]]
    ):
        for b in pl.spmd(2):
            pl.static_print("here")
            for _ in pl.unroll(3):
                out[b * 8 : b * 8 + 8, :] = pl.add(x[b * 8 : b * 8 + 8, :], 1.0)
            pl.system.syncall()
            other = out[(1 - b) * 8 : (1 - b) * 8 + 8, :]
            out[b * 8 : b * 8 + 8, :] = pl.mul(other, 2.0)
        return out
"""


def test_blocks_that_a_barrier_divides_are_counted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are lowered as one kernel first, which is dropped because the barrier orders them."""
    monkeypatch.setattr(loops, "MAX_UNROLL", 3)
    assert str(pl.parse(BARRIER)).count("pl.spmd") == 2
    assert capsys.readouterr().out == "here\n"
