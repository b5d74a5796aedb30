"""Narrow products that are run side by side: right results, and the right one of several faults."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import assert_same, numbers
from tests.cpu.test_schedules import IN_ORDER, THREADS, check_schedules
from tests.interp.build import Build, tensor

from tilelet.cpu.engine import compiled
from tilelet.cpu.program import emit_program
from tilelet.diag.core import UserError
from tilelet.dtypes import BF16, FP32, INT32, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

ROWS, DEPTH, WIDTH, TASKS = 16, 96, 64, 40
SCHEDULES = [(t, s) for t in THREADS for s in (IN_ORDER, 1, 2, 3, 4)]


def _narrow(dtype: DType) -> Program:
    """`TASKS` products of one A with neighbouring columns of B, each in two pieces over k.

    `from_row[i]` is where task i begins to read B, `to_row[i]` where it stores: both 0, or the task
    fails, before its product or after it. A second task reads what the first one has stored.
    """
    b = Build()
    columns = WIDTH * TASKS
    a, bias = b.param("a", tensor([ROWS, DEPTH], dtype)), b.param("bias", tensor([1, columns]))
    weights = b.param("weights", tensor([DEPTH, columns], dtype))
    out, total = b.param("out", tensor([ROWS, columns])), b.param("total", tensor([ROWS, columns]))
    from_row, to_row = (b.param(n, tensor([TASKS], INT32)) for n in ("from_row", "to_row"))

    def iteration(s: Build, i: Value) -> list[Value]:
        column = s.op("scalar.mul", lhs=i, rhs=WIDTH)
        start, stored = (s.op("read", x=x, indices=[i]) for x in (from_row, to_row))
        half = DEPTH // 2

        def product(t: Build) -> list[Value]:
            upper = t.window(weights, [half, WIDTH], [start, column])
            lower = t.window(weights, [half, WIDTH], [half, column])
            acc = t.op("matmul", lhs=t.window(a, [ROWS, half], [0, 0]), rhs=upper, out_dtype=FP32)
            acc = t.op("matmul_acc", acc=acc, lhs=t.window(a, [ROWS, half], [0, half]), rhs=lower)
            scaled = t.op("mul", lhs=acc, rhs=0.25)
            moved = t.op("add", lhs=scaled, rhs=t.window(bias, [1, WIDTH], [0, column]))
            return [t.put(out, moved, [stored, column])]

        def sums(t: Build) -> list[Value]:
            tile = t.window(out, [ROWS, WIDTH], [0, column])
            return [t.put(total, t.op("sub", lhs=tile, rhs=t.op("row_sum", x=tile)), [0, column])]

        s.scope(product, hint="product")
        s.scope(sums, hint="sums")
        return []

    b.for_(TASKS, iteration)
    return run_passes(b.program())


def _arguments(dtype: DType) -> dict[str, Any]:
    columns = WIDTH * TASKS
    return {
        "a": numbers(dtype, ROWS, DEPTH, seed=1),
        "bias": numbers(FP32, 1, columns, seed=2, special=False),
        "weights": numbers(dtype, DEPTH, columns, seed=3, special=False),
        "out": np.zeros((ROWS, columns), np.float32),
        "total": np.zeros((ROWS, columns), np.float32),
        "from_row": np.zeros(TASKS, np.int32),
        "to_row": np.zeros(TASKS, np.int32),
    }


@pytest.fixture(scope="module", params=[FP32, BF16], ids=str)
def dtype(request: pytest.FixtureRequest) -> DType:
    return request.param


@pytest.fixture(scope="module")
def narrow(dtype: DType) -> Program:
    program = _narrow(dtype)
    text = "".join(emit_program(program).units)
    assert "tl_flush_products" in text, "the products are not deferred: this tests nothing"
    return program


def test_results_are_the_interpreters(narrow: Program, dtype: DType) -> None:
    found = check_schedules(narrow, _arguments(dtype), SCHEDULES)
    expected = _arguments(dtype)
    Interpreter().run(narrow, expected)
    for name, array in expected.items():
        assert_same(found[name], array, name)


@pytest.mark.parametrize(
    ("bad_loads", "bad_stores"),
    [([17], []), ([], [17]), ([30, 9], [8, 31]), ([8, 38], [9, 37]), ([0], [39]), ([39], [0])],
)
def test_the_earliest_fault_is_reported(
    narrow: Program, dtype: DType, bad_loads: list[int], bad_stores: list[int]
) -> None:
    """Tasks fail before their product and after it, some beside others that also fail."""
    given = _arguments(dtype)
    for task in bad_loads:
        given["from_row"][task] = 100 + task
    for task in bad_stores:
        given["to_row"][task] = 200 + task
    with pytest.raises(UserError) as wanted:
        Interpreter().run(narrow, copy.deepcopy(given))
    assert str(min(bad_loads + bad_stores)) in str(wanted.value)
    native = compiled(narrow)
    for threads, seed in SCHEDULES:
        with pytest.raises(UserError) as found:
            native.run(copy.deepcopy(given), threads, seed)
        assert str(found.value) == str(wanted.value), f"{threads} threads, seed {seed}"


def test_what_comes_before_a_fault_is_done(narrow: Program, dtype: DType) -> None:
    """Tasks that the program submits before the one that fails run as if it did not."""
    given = _arguments(dtype)
    given["to_row"][20] = 5
    expected = copy.deepcopy(given)
    with pytest.raises(UserError):
        Interpreter().run(narrow, expected)
    for threads, seed in SCHEDULES[:8]:
        found = copy.deepcopy(given)
        with pytest.raises(UserError):
            compiled(narrow).run(found, threads, seed)
        done = slice(0, 20 * WIDTH)
        for name in ("out", "total"):
            assert_same(
                np.ascontiguousarray(found[name][:, done]),
                np.ascontiguousarray(expected[name][:, done]),
                name,
            )
