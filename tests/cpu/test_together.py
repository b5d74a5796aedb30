"""Narrow products that run side by side: correct results, and the right one of several faults."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import assert_same, numbers
from tests.cpu.plans import hands_over, plans_of
from tests.cpu.test_schedules import IN_ORDER, THREADS, check_schedules
from tests.interp.build import Build, tensor

from tilelet.cpu.run.engine import compile_native
from tilelet.diag.core import UserError
from tilelet.dtypes import BF16, FP32, INT32, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

ROWS, DEPTH, WIDTH, TASKS = 16, 96, 64, 40
SCHEDULES = [(t, s) for t in THREADS for s in (IN_ORDER, 1, 2, 3, 4)]


def _narrow(dtype: DType) -> Program:
    """`TASKS` products of one A with neighboring columns of B, each in two pieces over k.

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


# --- rows that are read together ------------------------------------------------------------------


def _rows(dtype: DType, hidden: bool) -> Program:
    """`TASKS` tasks with two products each of one row with matrices whose rows are in order.

    `from_row[i]` is where task i begins to read the first of them: its own block, or the task
    fails. With `hidden`, something that a task cannot do twice comes before its products.
    """
    b = Build()
    a, extra = b.param("a", tensor([1, DEPTH], dtype)), b.param("extra", tensor([1, WIDTH]))
    gate, up = (b.param(n, tensor([TASKS * DEPTH, WIDTH], dtype)) for n in ("gate", "up"))
    out, total = b.param("out", tensor([TASKS, WIDTH])), b.param("total", tensor([TASKS, WIDTH]))
    from_row, to_row = (b.param(n, tensor([TASKS], INT32)) for n in ("from_row", "to_row"))

    def iteration(s: Build, i: Value) -> list[Value]:
        own = s.op("scalar.mul", lhs=i, rhs=DEPTH)
        start, stored = (s.op("read", x=x, indices=[i]) for x in (from_row, to_row))

        def products(t: Build) -> list[Value]:
            if hidden:
                t.put(extra, t.op("mul", lhs=t.window(extra, [1, WIDTH], [0, 0]), rhs=0.5), [0, 0])
            row = t.window(a, [1, DEPTH], [0, 0])
            first = t.window(gate, [DEPTH, WIDTH], [start, 0])
            first_acc = t.op("matmul", lhs=row, rhs=first, out_dtype=FP32)
            second = t.window(up, [DEPTH, WIDTH], [own, 0])
            second_acc = t.op("matmul", lhs=row, rhs=second, out_dtype=FP32)
            both = t.op("mul", lhs=first_acc, rhs=second_acc)
            return [t.put(out, both, [stored, 0])]

        def sums(t: Build) -> list[Value]:
            tile = t.window(out, [1, WIDTH], [i, 0])
            return [t.put(total, t.op("sub", lhs=tile, rhs=t.op("row_sum", x=tile)), [i, 0])]

        s.scope(products, hint="products")
        s.scope(sums, hint="sums")
        return []

    b.for_(TASKS, iteration)
    return run_passes(b.program())


def _row_arguments(dtype: DType) -> dict[str, Any]:
    matrices = {
        n: numbers(dtype, TASKS * DEPTH, WIDTH, seed=i, special=False)
        for i, n in enumerate(("gate", "up"))
    }
    return {
        "a": numbers(dtype, 1, DEPTH, seed=9),
        "extra": numbers(FP32, 1, WIDTH, seed=8, special=False),
        **matrices,
        "out": np.zeros((TASKS, WIDTH), np.float32),
        "total": np.zeros((TASKS, WIDTH), np.float32),
        "from_row": np.arange(TASKS, dtype=np.int32) * DEPTH,
        "to_row": np.arange(TASKS, dtype=np.int32),
    }


@pytest.mark.parametrize("hidden", [False, True])
def test_rows_give_the_interpreters_results(dtype: DType, hidden: bool) -> None:
    program = _rows(dtype, hidden)
    assert hands_over(program) == (not hidden)
    (plan, _) = plans_of(program)
    assert len(plan.run_after(plan.groups[0].run_after)) == 2, "they are not run together"
    found = check_schedules(program, _row_arguments(dtype), SCHEDULES)
    expected = _row_arguments(dtype)
    Interpreter().run(program, expected)
    for name, array in expected.items():
        assert_same(found[name], array, name)


@pytest.mark.parametrize(
    ("bad_loads", "bad_stores"), [([17], []), ([], [17]), ([30, 9], [8, 31]), ([8, 38], [9, 37])]
)
def test_the_earliest_fault_of_rows_is_reported(
    dtype: DType, bad_loads: list[int], bad_stores: list[int]
) -> None:
    program, given = _rows(dtype, False), _row_arguments(dtype)
    for task in bad_loads:
        given["from_row"][task] = 10000 + task
    for task in bad_stores:
        given["to_row"][task] = 200 + task
    with pytest.raises(UserError) as wanted:
        Interpreter().run(program, copy.deepcopy(given))
    native = compile_native(program)
    for threads, seed in SCHEDULES:
        with pytest.raises(UserError) as found:
            native.run(copy.deepcopy(given), threads, seed)
        assert str(found.value) == str(wanted.value), f"{threads} threads, seed {seed}"


def test_a_product_before_one_that_a_loop_continues(dtype: DType) -> None:
    """Tasks are re-entered after the first product: the start of the second is not skipped."""
    piece, tasks = DEPTH // 3, 8
    b = Build()
    a = b.param("a", tensor([1, DEPTH], dtype))
    gate, up = (b.param(n, tensor([tasks * DEPTH, WIDTH], dtype)) for n in ("gate", "up"))
    firsts, seconds = (b.param(n, tensor([tasks, WIDTH])) for n in ("firsts", "seconds"))

    def iteration(s: Build, i: Value) -> list[Value]:
        own = s.op("scalar.mul", lhs=i, rhs=DEPTH)

        def products(t: Build) -> list[Value]:
            row, block = t.window(a, [1, DEPTH], [0, 0]), t.window(gate, [DEPTH, WIDTH], [own, 0])
            first = t.op("matmul", lhs=row, rhs=block, out_dtype=FP32)
            row, block = t.window(a, [1, piece], [0, 0]), t.window(up, [piece, WIDTH], [own, 0])
            second = t.op("matmul", lhs=row, rhs=block, out_dtype=FP32)

            def more(u: Build, k: Value, acc: Value) -> list[Value]:
                at = u.op("scalar.mul", lhs=k, rhs=piece)
                below = u.op("scalar.add", lhs=own, rhs=at)
                row, block = (
                    u.window(a, [1, piece], [0, at]),
                    u.window(up, [piece, WIDTH], [below, 0]),
                )
                return [u.op("matmul_acc", acc=acc, lhs=row, rhs=block)]

            (second,) = t.for_(3, more, [second], start=1)
            t.put(firsts, first, [i, 0])
            return [t.put(seconds, second, [i, 0])]

        s.scope(products)
        return []

    b.for_(tasks, iteration)
    program = run_passes(b.program())
    assert hands_over(program)
    blocks = numbers(dtype, tasks * DEPTH, WIDTH, seed=2, special=False)
    given = {
        "a": numbers(dtype, 1, DEPTH, seed=1, special=False),
        "gate": blocks,
        "up": blocks[::-1].copy(),
        "firsts": np.zeros((tasks, WIDTH), np.float32),
        "seconds": np.zeros((tasks, WIDTH), np.float32),
    }
    found = check_schedules(program, given, SCHEDULES)
    Interpreter().run(program, given)
    for name, array in given.items():
        assert_same(found[name], array, name)


@pytest.mark.parametrize("valid", [(ROWS, DEPTH), (ROWS, DEPTH - 1)])
def test_a_valid_part_that_is_all_changes_nothing(valid: tuple[int, int]) -> None:
    b = Build()
    a, w = b.param("a", tensor([ROWS, DEPTH])), b.param("w", tensor([DEPTH, WIDTH]))
    out = b.param("out", tensor([ROWS, WIDTH]))
    seen = b.op("set_validshape", x=a, rows=valid[0], cols=valid[1])

    def body(t: Build) -> list[Value]:
        left, right = t.window(seen, [ROWS, DEPTH], [0, 0]), t.window(w, [DEPTH, WIDTH], [0, 0])
        return [t.put(out, t.op("matmul", lhs=left, rhs=right, out_dtype=FP32), [0, 0])]

    b.scope(body)
    program = run_passes(b.program())
    assert hands_over(program) == (valid == (ROWS, DEPTH))
    given = {
        "a": numbers(FP32, ROWS, DEPTH, seed=1, special=False),
        "w": numbers(FP32, DEPTH, WIDTH, seed=2, special=False),
        "out": np.zeros((ROWS, WIDTH), np.float32),
    }
    expected = copy.deepcopy(given)
    Interpreter().run(program, expected)
    compile_native(program).run(given, 2, IN_ORDER)
    assert_same(given["out"], expected["out"])


def test_a_product_of_a_product_waits_for_it() -> None:
    """A product whose operand is overwritten in between also runs before the store."""
    b = Build()
    a = b.param("a", tensor([1, WIDTH]))
    square, other = b.param("square", tensor([WIDTH, WIDTH])), b.param("other", tensor([1, WIDTH]))
    out = b.param("out", tensor([4, WIDTH]))

    def body(t: Build) -> list[Value]:
        row, matrix = t.window(a, [1, WIDTH], [0, 0]), t.window(square, [WIDTH, WIDTH], [0, 0])
        first = t.op("matmul", lhs=row, rhs=matrix, out_dtype=FP32)
        again = t.op("matmul", lhs=first, rhs=matrix, out_dtype=FP32)
        beside = t.op("matmul", lhs=t.window(other, [1, WIDTH], [0, 0]), rhs=matrix, out_dtype=FP32)
        t.put(other, first, [0, 0])
        after = t.op("matmul", lhs=t.window(other, [1, WIDTH], [0, 0]), rhs=matrix, out_dtype=FP32)
        for i, tile in enumerate((first, again, beside, after)):
            t.put(out, tile, [i, 0])
        return []

    b.scope(body)
    program = run_passes(b.program())
    given = {
        "a": numbers(FP32, 1, WIDTH, seed=1, special=False),
        "square": numbers(FP32, WIDTH, WIDTH, seed=2, special=False),
        "other": numbers(FP32, 1, WIDTH, seed=3, special=False),
        "out": np.zeros((4, WIDTH), np.float32),
    }
    expected = copy.deepcopy(given)
    Interpreter().run(program, expected)
    compile_native(program).run(given, 2, IN_ORDER)
    for name, array in expected.items():
        assert_same(given[name], array, name)


def test_a_product_that_is_rounded_and_used_twice() -> None:
    """Rounding is the first use of the result."""
    b = Build()
    a, w = b.param("a", tensor([1, DEPTH], BF16)), b.param("w", tensor([DEPTH, WIDTH], BF16))
    out = b.param("out", tensor([3, WIDTH], BF16))

    def body(t: Build) -> list[Value]:
        row, matrix = t.window(a, [1, DEPTH], [0, 0]), t.window(w, [DEPTH, WIDTH], [0, 0])
        first = t.op("matmul", lhs=row, rhs=matrix, out_dtype=BF16)
        second = t.op("matmul", lhs=row, rhs=matrix, out_dtype=BF16)
        for i, tile in enumerate((first, second, t.op("mul", lhs=first, rhs=second))):
            t.put(out, tile, [i, 0])
        return []

    b.scope(body)
    program = run_passes(b.program())
    given = {
        "a": numbers(BF16, 1, DEPTH, seed=1, special=False),
        "w": numbers(BF16, DEPTH, WIDTH, seed=2, special=False),
        "out": np.zeros((3, WIDTH), BF16.numpy),
    }
    expected = copy.deepcopy(given)
    Interpreter().run(program, expected)
    compile_native(program).run(given, 2, IN_ORDER)
    assert_same(given["out"], expected["out"])


@pytest.fixture(scope="module", params=[FP32, BF16], ids=str)
def dtype(request: pytest.FixtureRequest) -> DType:
    return request.param


@pytest.fixture(scope="module")
def narrow(dtype: DType) -> Program:
    program = _narrow(dtype)
    assert hands_over(program), "the products are not deferred: this tests nothing"
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
    """Tasks fail before or after their product, some beside others that also fail."""
    given = _arguments(dtype)
    for task in bad_loads:
        given["from_row"][task] = 100 + task
    for task in bad_stores:
        given["to_row"][task] = 200 + task
    with pytest.raises(UserError) as wanted:
        Interpreter().run(narrow, copy.deepcopy(given))
    assert str(min(bad_loads + bad_stores)) in str(wanted.value)
    native = compile_native(narrow)
    for threads, seed in SCHEDULES:
        with pytest.raises(UserError) as found:
            native.run(copy.deepcopy(given), threads, seed)
        assert str(found.value) == str(wanted.value), f"{threads} threads, seed {seed}"


def test_what_comes_before_a_fault_is_done(narrow: Program, dtype: DType) -> None:
    """Tasks submitted before the failing one run as if it did not fail."""
    given = _arguments(dtype)
    given["to_row"][20] = 5
    expected = copy.deepcopy(given)
    with pytest.raises(UserError):
        Interpreter().run(narrow, expected)
    for threads, seed in SCHEDULES[:8]:
        found = copy.deepcopy(given)
        with pytest.raises(UserError):
            compile_native(narrow).run(found, threads, seed)
        done = slice(0, 20 * WIDTH)
        for name in ("out", "total"):
            assert_same(
                np.ascontiguousarray(found[name][:, done]),
                np.ascontiguousarray(expected[name][:, done]),
                name,
            )
