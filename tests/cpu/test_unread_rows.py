"""Rows of products that no kernel reads are not computed, with equal results."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.differential import agree
from tests.interp.build import Build, tensor

from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.plan.unread_rows import without_unread_rows
from tilelet.dtypes import BF16, FP32
from tilelet.ir.core import Program, Value, walk
from tilelet.ir.types import TileType
from tilelet.models.qwen3.scope2 import build_scope2
from tilelet.passes.pipeline import run_passes

HEADS, PADDED, KEYS, DEPTH = 5, 16, 24, 32


def _padded(rows_read: int = HEADS, *, is_returned: bool = False, whole: bool = False) -> Program:
    """`out = rows_read rows of x_padded @ w.T`, each step a task of its own."""
    b = Build()
    x, w = b.param("x", tensor([HEADS, DEPTH], BF16)), b.param("w", tensor([KEYS, DEPTH], BF16))
    out = b.param("out", tensor([PADDED if whole else rows_read, KEYS]))
    given = b.param("given", tensor([PADDED, KEYS])) if is_returned else None
    padded = b.op("create_tensor", shape=[PADDED, DEPTH], dtype=BF16)

    def fill(s: Build) -> list[Value]:
        target = s.put(padded, s.window(x, [HEADS, DEPTH], [0, 0]), [0, 0])
        zero = s.op("full", shape=[PADDED - HEADS, DEPTH], dtype=BF16, value=0.0)
        return [s.put(target, zero, [HEADS, 0])]

    (padded,) = b.scope(fill)
    scores = given or b.op("create_tensor", shape=[PADDED, KEYS], dtype=FP32)

    def multiply(s: Build) -> list[Value]:
        rows = s.window(padded, [PADDED, DEPTH], [0, 0])
        keys = s.window(w, [KEYS, DEPTH], [0, 0])
        product = s.op("matmul", lhs=rows, rhs=keys, b_trans=True, out_dtype=FP32)
        return [s.put(scores, product, [0, 0])]

    (scores,) = b.scope(multiply)

    def use(s: Build) -> list[Value]:
        if whole:
            return [
                s.put(
                    out, s.op("add", lhs=s.window(scores, [PADDED, KEYS], [0, 0]), rhs=1.0), [0, 0]
                )
            ]
        read = s.window(scores, [rows_read, KEYS], [0, 0])
        return [s.put(out, s.op("mul", lhs=read, rhs=2.0), [0, 0])]

    b.scope(use)
    return b.program()


def _product_rows(program: Program) -> list[int]:
    """Return the number of rows of every product."""
    rows: list[int] = []
    for function in without_unread_rows(run_passes(program))[0].functions.values():
        for op in walk(function.body):
            if op.name == "matmul":
                assert isinstance(op.result.type, TileType)
                rows.append(op.result.type.shape[0])
    return rows


def _stores(program: Program) -> int:
    functions = program.functions.values()
    return sum(op.name in ("assemble", "store") for f in functions for op in walk(f.body))


def _arguments(rows: int = HEADS, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    x, w = (rng.normal(size=(n, DEPTH)).astype(ml_dtypes.bfloat16) for n in (HEADS, KEYS))
    return {"x": x, "w": w, "out": np.zeros((rows, KEYS), np.float32), **more}


def test_rows_of_padding_are_left_out() -> None:
    program = _padded()
    assert _product_rows(program) == [HEADS]
    lowered = run_passes(program)
    assert _stores(without_unread_rows(lowered)[0]) == _stores(lowered) - 1  # that of the zero fill
    agree(program, **_arguments())


@pytest.mark.parametrize("rows", [1, 8, 15])
def test_as_many_rows_as_are_read(rows: int) -> None:
    assert _product_rows(_padded(rows)) == [rows]
    agree(_padded(rows), **_arguments(rows))


@pytest.mark.parametrize(("rows", "filled"), [(HEADS, []), (15, ["15"]), (PADDED, ["16"])])
def test_poison_fills_rows_that_are_read(rows: int, filled: list[str]) -> None:
    """None if the first store of each temporary writes all of them."""
    text = emit_program(run_passes(_padded(rows, whole=rows == PADDED))).units[-1]
    assert re.findall(r"tl_create\(.*, (\w+), UINT64_C", text) == filled


def test_rows_that_are_read_stay() -> None:
    assert _product_rows(_padded(whole=True)) == [PADDED]
    agree(_padded(whole=True), **_arguments(PADDED))


def test_rows_that_the_caller_sees_stay() -> None:
    program = _padded(is_returned=True)
    assert _product_rows(program) == [PADDED]
    found = agree(program, **_arguments(given=np.full((PADDED, KEYS), 7, np.float32)))
    assert not found["given"][HEADS:].any()


def test_staged_attention_multiplies_its_queries_alone() -> None:
    """Eight of sixteen rows: the vector unit processes eight at a time."""
    sizes = {"hidden": 1024, "kv_heads": 4, "head_dim": 64, "max_seq": 128, "q_head_batch": 4}
    assert _product_rows(build_scope2("staged", **sizes)) == [8, 8]
