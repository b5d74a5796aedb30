"""Ops that run row by row: which ones do, their results, and what the verifier rejects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cpu.both import share_functions
from tests.cpu.differential import agree, numbers
from tests.cpu.plans import plans_of
from tests.cpu.test_generated_programs import kernel_of
from tests.generated.generator import FOCUSES
from tests.generated.harness import compare, compile_text
from tests.interp.build import Build, tensor

from tilelet.bench.programs import build_layernorm, build_rmsnorm, build_softmax
from tilelet.cpu.plan import nests
from tilelet.cpu.plan.model import KernelPlan
from tilelet.cpu.plan.text import plan_text
from tilelet.cpu.plan.verify import PlanError, verify
from tilelet.cpu.run.engine import CpuEngine
from tilelet.dtypes import BF16, FP32, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

ROWS, COLUMNS = 8, 1500

Body = Callable[[Build, Value], Value]


def _kernel(body: Body, dtype: DType = FP32, rows: int = ROWS, columns: int = COLUMNS) -> Program:
    """`out = body(x)`, with all of `x` as one tile."""
    b = Build()
    x, out = b.param("x", tensor([rows, columns], dtype)), b.param("out", tensor([rows, columns]))
    b.scope(lambda s: [s.put(out, body(s, s.window(x, [rows, columns], [0, 0])), [0, 0])])
    return b.program()


def _softmax(s: Build, x: Value) -> Value:
    moved = s.op("row_expand_sub", x=x, row_vec=s.op("row_max", x=x))
    powers = s.op("exp", x=moved)
    return s.op("row_expand_div", x=powers, row_vec=s.op("row_sum", x=powers))


def _plan(program: Program) -> KernelPlan:
    (plan,) = plans_of(run_passes(program))
    return plan


@pytest.fixture(autouse=True)
def _same_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    share_functions(monkeypatch)


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all programs have nests, even without a gain."""
    monkeypatch.setattr(nests, "pays", lambda nbytes, *, is_costly: True)


# --- which ops -----------------------------------------------------------------------------------


def test_softmax_is_one_nest_that_keeps_one_row() -> None:
    plan = _plan(build_softmax(64, 2048))
    (nest,) = plan.nests
    assert [op.name for op in nest.ops] == [
        "row_max", "row_expand_sub", "exp", "row_sum", "row_expand_div", "assemble"
    ]  # fmt: skip
    assert max(slot.elements for slot in plan.slots if slot.hint == "powers") == 2048
    assert nest.ahead is not None
    assert nest.ahead.name == "row_sum"
    assert "for each of 8 rows: 6 ops" in plan_text(plan)


@pytest.mark.parametrize("build", [build_rmsnorm, build_layernorm])
def test_loads_between_the_ops_move_before_the_nest(
    build: Callable[[int, int], Program], everywhere: None
) -> None:
    plan = _plan(build(64, 2048))
    (nest,) = plan.nests
    names = [op.name for op in plan.kernel.body.ops]
    assert names[: names.index(nest.ops[0].name)].count("slice") == names.count("slice") > 1
    assert "reshape" in [op.name for op in nest.ops]


def test_memory_bound_and_small_programs_have_no_nest() -> None:
    assert not _plan(build_rmsnorm(64, 2048)).nests
    assert not _plan(build_softmax(64, 256)).nests


def _by_column(s: Build, x: Value) -> Value:
    """Every row needs the sums of all rows."""
    powers = s.op("exp", x=x)
    sums = s.op("reshape", x=s.op("row_sum", x=powers), shape=[1, 128])
    return s.op("col_expand_mul", x=powers, col_vec=sums)


def test_a_column_used_across_rows_ends_the_nest() -> None:
    program = _kernel(_by_column, rows=128, columns=128)
    assert all(op.name != "col_expand_mul" for n in _plan(program).nests for op in n.ops)
    agree(program, x=numbers(FP32, 128, 128, seed=3), out=np.zeros((128, 128), np.float32))


# --- results -------------------------------------------------------------------------------------


def _layernorm(s: Build, x: Value) -> Value:
    x = s.op("cast", x=x, target_type=FP32)
    mean = s.op("mul", lhs=s.op("row_sum", x=x), rhs=1.0 / COLUMNS)
    centered = s.op("row_expand_sub", x=x, row_vec=mean)
    squares = s.op("row_sum", x=s.op("mul", lhs=centered, rhs=centered))
    inverse = s.op("recip", x=s.op("sqrt", x=s.op("add", lhs=squares, rhs=1e-5)))
    return s.op("row_expand_mul", x=centered, row_vec=inverse)


def _needed_later(s: Build, x: Value) -> Value:
    """The powers and their maxima are also needed in another order of rows."""
    powers = s.op("exp", x=x)
    most = s.op("row_max", x=powers)
    scaled = s.op("row_expand_div", x=powers, row_vec=most)
    swapped = s.op("transpose", x=powers, axis1=0, axis2=1)
    back = s.op("transpose", x=s.op("add", lhs=swapped, rhs=1.0), axis1=0, axis2=1)
    again = s.op("row_expand_mul", x=back, row_vec=most)
    return s.op("add", lhs=again, rhs=scaled)


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
@pytest.mark.parametrize("body", [_softmax, _layernorm, _needed_later])
def test_nests_compute_the_same(body: Body, dtype: DType, everywhere: None) -> None:
    if body is _needed_later and dtype is BF16:
        pytest.skip("powers in BF16 are stored in FP32")
    if body is _softmax and dtype is BF16:
        program = _kernel(lambda s, x: _softmax(s, s.op("cast", x=x, target_type=FP32)), dtype)
    else:
        program = _kernel(body, dtype)
    assert _plan(program).nests
    agree(
        program,
        x=numbers(dtype, ROWS, COLUMNS, seed=1, special=False),
        out=np.zeros((ROWS, COLUMNS), np.float32),
    )


@pytest.mark.parametrize("shift", [0, 1, 3, -2])
def test_the_result_overwrites_the_operand(shift: int) -> None:
    """The result is stored in place, a few rows on: rows are read before they are overwritten."""
    both = np.zeros((2 * ROWS, COLUMNS), np.float32)
    both[:] = np.random.default_rng(shift + 5).normal(size=both.shape)
    program, expected = run_passes(_kernel(_softmax)), both.copy()
    assert plans_of(program)[0].nests
    for engine, array in ((Interpreter(), expected), (CpuEngine(), both)):
        x, out = array[4 : 4 + ROWS], array[4 + shift : 4 + shift + ROWS]
        engine.run(program, {"x": x, "out": out})
    assert np.array_equal(both.view(np.uint32), expected.view(np.uint32))


def test_windows_without_unit_stride() -> None:
    x = np.asfortranarray(np.random.default_rng(7).normal(size=(ROWS, COLUMNS)).astype(np.float32))
    out = np.zeros((ROWS, COLUMNS), np.float32, order="F")
    agree(_kernel(_softmax), x=x, out=out)


@pytest.mark.parametrize("focus", FOCUSES)
@pytest.mark.parametrize("number", range(4))
def test_generated_programs_with_nests_everywhere(
    focus: str, number: int, tmp_path: Path, everywhere: None, compile_quickly: None
) -> None:
    kernel = kernel_of(focus, number + 1000)
    arguments = kernel.arguments()
    program = run_passes(compile_text(kernel, tmp_path, arguments))
    expected = copy.deepcopy(arguments)
    Interpreter().run(program, expected)
    CpuEngine().run(program, arguments)
    compare(arguments, expected, f"the interpreter\n{kernel.text}")


# --- the verifier --------------------------------------------------------------------------------


def _refused(plan: KernelPlan, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        verify(plan)


def _changed(plan: KernelPlan, **changes: Any) -> KernelPlan:
    return replace(plan, nests=(replace(plan.nests[0], **changes),))


def test_wrong_nests_are_refused() -> None:
    plan = _plan(_kernel(_softmax))
    (nest,) = plan.nests
    _refused(_changed(plan, ops=nest.ops[:-1]), "needed whole")
    stored = frozenset(v for v in nest.one_row if v.name == "powers")
    _refused(_changed(plan, ops=nest.ops[:-1], one_row=stored), "does not hold|too small")
    _refused(_changed(plan, ops=(nest.ops[1], *nest.ops[2:], nest.ops[0])), "sequence")
    _refused(_changed(plan, rows=ROWS // 2), "reduces something else")
    _refused(_changed(plan, one_row=frozenset()), "is too small")


def test_a_nest_over_an_op_that_mixes_rows_is_refused(everywhere: None) -> None:
    plan = _plan(_kernel(_by_column, rows=128, columns=128))
    ops = plan.kernel.body.ops
    first = next(i for i, op in enumerate(ops) if op.name == "exp")
    store = next(i for i, op in enumerate(ops) if op.name == "assemble")
    nest = nests.RowNest(tuple(ops[first : store + 1]), 128, frozenset())
    _refused(replace(plan, nests=(nest,)), "reads other rows")


def test_rows_that_share_memory_are_refused() -> None:
    plan = _plan(_kernel(_softmax))
    (powers,) = [i for i, slot in enumerate(plan.slots) if slot.elements == COLUMNS]
    other = next(i for i, slot in enumerate(plan.slots) if slot.hint == "row_max")
    slots = list(plan.slots)
    slots[other] = replace(slots[other], offset=slots[powers].offset)
    _refused(replace(plan, slots=tuple(slots)), "shares the memory|does not hold")
