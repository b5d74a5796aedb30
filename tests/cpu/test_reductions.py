"""Rows that are reduced while they are computed, and used again afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.differential import agree, numbers
from tests.interp.build import Build, tensor

from tilelet.cpu.emit.program import emit_program
from tilelet.dtypes import BF16, FP32, DType
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes


def _program(rows: int, columns: int, reduction: str, dtype: DType, valid: bool) -> Program:
    """`y = x * x - 0.5`, reduced; then `y - reduced` and a sum of y's first columns."""
    b = Build()
    x, out = b.param("x", tensor([rows, columns], dtype)), b.param("out", tensor([rows, columns]))
    edge = b.param("edge", tensor([rows, 1]))

    def body(s: Build) -> list[Value]:
        limits = {"valid_shape": [rows - 1, columns - 3]} if valid else {}
        tile = s.window(x, [rows, columns], [0, 0], **limits)
        y = s.op("sub", lhs=s.op("mul", lhs=tile, rhs=tile), rhs=0.5)
        reduced = s.op(reduction, x=y)
        y_wide = s.op("cast", x=y, target_type=FP32)
        reduced_wide = s.op("cast", x=reduced, target_type=FP32)
        first = s.op("row_sum", x=s.window(y_wide, [rows, 4], [0, 0]))
        moved = s.op("row_expand_sub", x=y_wide, row_vec=reduced_wide)
        return [s.put(out, moved, [0, 0]), s.put(edge, first, [0, 0])]

    b.scope(body)
    return b.program()


@pytest.mark.parametrize("reduction", ["row_sum", "row_prod", "row_max", "row_min"])
@pytest.mark.parametrize("columns", [5, 8, 100, 256, 261, 1000])
@pytest.mark.parametrize("valid", [False, True], ids=["all", "part"])
def test_a_row_is_kept(reduction: str, columns: int, valid: bool) -> None:
    rows = 4
    agree(
        _program(rows, columns, reduction, FP32, valid),
        x=numbers(FP32, rows, columns, seed=columns),
        out=np.zeros((rows, columns), np.float32),
        edge=np.zeros((rows, 1), np.float32),
    )


@pytest.mark.parametrize("reduction", ["row_sum", "row_max"])
def test_narrow_rows(reduction: str) -> None:
    """Results are rounded before they are reduced."""
    agree(
        _program(3, 300, reduction, BF16, valid=False),
        x=numbers(BF16, 3, 300, seed=1),
        out=np.zeros((3, 300), np.float32),
        edge=np.zeros((3, 1), np.float32),
    )


def test_the_row_is_computed_once() -> None:
    program = run_passes(_program(4, 1000, "row_sum", FP32, valid=False))
    text = "".join(emit_program(program).units)
    assert text.count("0x1.0000000000000p-1f") == 1
