"""Chains of `matmul_acc` over k whose pieces are cut: they are run late, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu.differential import agree, numbers
from tests.interp.build import Build, tensor

from tilelet.cpu.program import emit_program
from tilelet.dtypes import BF16, FP32, INT32, DType
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

ROWS, COLUMNS, PIECE, PIECES = 12, 20, 16, 4


def _program(dtype: DType, starts_with_product: bool, shows_all: bool) -> Program:
    """`cuts[i]` are the valid rows, inner extent and columns of piece i.

    shows_all  what lies outside the valid region of the result is stored, too
    """
    b = Build()
    depth = PIECE * PIECES
    x, w = b.param("x", tensor([ROWS, depth], dtype)), b.param("w", tensor([depth, COLUMNS], dtype))
    cuts = b.param("cuts", tensor([PIECES, 3], INT32))
    turns = b.param("turns", tensor([1], INT32))
    out = b.param("out", tensor([ROWS, COLUMNS]))

    def pieces(s: Build, i: Value) -> tuple[Value, Value]:
        at = s.op("scalar.mul", lhs=i, rhs=PIECE) if isinstance(i, Value) else i * PIECE
        rows, inner, columns = (s.op("read", x=cuts, indices=[i, k]) for k in range(3))
        left = s.window(x, [ROWS, PIECE], [0, at], valid_shape=[rows, inner])
        right = s.window(w, [PIECE, COLUMNS], [at, 0], valid_shape=[inner, columns])
        return left, right

    def body(s: Build) -> list[Value]:
        def turn(t: Build, i: Value, acc: Value) -> list[Value]:
            left, right = pieces(t, i)
            return [t.op("matmul_acc", acc=acc, lhs=left, rhs=right)]

        if starts_with_product:
            left, right = pieces(s, 0)  # type: ignore[arg-type]
            acc = s.op("matmul", lhs=left, rhs=right, out_dtype=FP32)
        else:
            acc = s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.5)
        (acc,) = s.for_(s.op("read", x=turns, indices=[0]), turn, [acc], start=1)
        if shows_all:
            acc = s.op("set_validshape", x=acc, rows=ROWS, cols=COLUMNS)
        return [s.put(out, acc, [0, 0])]

    b.scope(body)
    return b.program()


def _arguments(dtype: DType, cuts: Any, turns: int) -> dict[str, Any]:
    depth = PIECE * PIECES
    return {
        "x": numbers(dtype, ROWS, depth, seed=1),
        "w": numbers(dtype, depth, COLUMNS, seed=2),
        "cuts": np.array(cuts, np.int32),
        "turns": np.array([turns], np.int32),
        "out": np.full((ROWS, COLUMNS), 7, np.float32),
    }


PROGRAMS = {
    (dtype, first, shows_all): _program(dtype, first, shows_all)
    for dtype in (FP32, BF16)
    for first in (False, True)
    for shows_all in (False, True)
}


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(sorted(PROGRAMS, key=str)),
    cuts=st.lists(
        st.tuples(st.integers(1, ROWS), st.integers(1, PIECE), st.integers(1, COLUMNS)),
        min_size=PIECES,
        max_size=PIECES,
    ),
    is_even=st.booleans(),
    turns=st.integers(1, PIECES),
)
def test_cut_pieces(kind: Any, cuts: list[tuple[int, ...]], is_even: bool, turns: int) -> None:
    if is_even:
        cuts = [cuts[0]] * PIECES
    agree(PROGRAMS[kind], **_arguments(kind[0], cuts, turns))


@pytest.mark.parametrize("first", [False, True])
def test_they_are_one_product(first: bool) -> None:
    text = "".join(emit_program(run_passes(PROGRAMS[FP32, first, False])).units)
    assert "tl_matmul(&product" not in text
    assert text.count("tl_run_product(") == 1
