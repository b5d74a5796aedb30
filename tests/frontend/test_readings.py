"""Ambiguous texts: the first reading without mistakes wins, and others leave no trace."""

from __future__ import annotations

from typing import Any

import pytest

import tilelet.language as pl
from tilelet.diag.catalogue.cautions import RetiredSpelling
from tilelet.diag.catalogue.names import UndefinedName
from tilelet.diag.catalogue.scopes import OnlyInScope
from tilelet.diag.core import UserErrors

# One kernel: as two, the barrier would be in the control program.
WHOLE = """
        with pl.auto_incore():
            a = pl.exp(x)
            b = pl.slice(x, [16, 64], [0, 0])
            c = pl.mul(a, b)
            out = pl.assemble(out, c, [0, 0])
            pl.system.syncall()
"""


def program(body: str, result: str = "") -> Any:
    return pl.parse(
        f"""
import tilelet.language as pl
@pl.program
class Auto:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 64], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ){result}:
        {body.strip()}
        return out
"""
    )


def codes(raised: pytest.ExceptionInfo[UserErrors]) -> list[str]:
    return [d.code for d in raised.value.diagnostics]


def test_a_scope_that_cannot_be_several_kernels_is_one() -> None:
    assert str(program(WHOLE)).count("with pl.at") == 1


def test_cautions_are_those_of_the_reading_that_wins() -> None:
    assert [d.code for d in program(WHOLE).cautions] == [RetiredSpelling.code]


def test_compile_time_prints_appear_once(capsys: pytest.CaptureFixture[str]) -> None:
    program(f"pl.static_print('shape', x.shape){WHOLE}")
    assert capsys.readouterr().out == "shape (16, 64)\n"


def test_mistakes_are_those_of_the_first_reading() -> None:
    with pytest.raises(UserErrors) as raised:
        program(WHOLE, result=" -> pl.Tensor[[3, 3], pl.FP32]")
    assert codes(raised) == [OnlyInScope.code]


@pl.jit.incore
def broken(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    out[:, :] = pl.exp(missing)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return out


@pl.jit
def caller(x: pl.Tensor[[32, 32], pl.FP32], out: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
        a = pl.exp(x)
        _ = pl.create_tensor([32, 32], dtype=pl.FP32)
        pl.add(a, a)
    out = broken(x, out)
    return out


def test_another_reading_of_the_caller_keeps_the_mistakes_of_a_kernel() -> None:
    with pytest.raises(UserErrors) as raised:
        caller.specialize()
    assert codes(raised) == [UndefinedName.code]


STORED = """
@pl.program
class Stored:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[64, 16], pl.FP32, pl.DN],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        pl.static_print("shape", x.shape)
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.add(pl.exp(x), pl.slice(out, [16, 64], [0, 0])), [0, 0])
        return out
"""


def test_tensors_taken_as_stored_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As declared, `x` does not fit `out`; in March 2026 `pl.DN` meant the transpose."""
    pl.parse(STORED)
    assert capsys.readouterr().out == "shape (16, 64)\n"
