"""The verifier rejects wrong plans: mutants of correct ones, and the consequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cpu.plans import plans_of
from tests.cpu.test_chains import COLUMNS, PIECE, PIECES, ROWS, _from_tile, _left, _operands, _right
from tests.interp.build import Build, tensor

import tilelet.cpu.emit.program
from tilelet.cli.main import main
from tilelet.cpu.plan.model import Inline, KernelPlan, ProductGroup, Stored
from tilelet.cpu.plan.text import plan_text
from tilelet.cpu.plan.verify import PlanError, verify
from tilelet.cpu.run.engine import CpuEngine
from tilelet.dtypes import BF16, FP32
from tilelet.ir.core import Op, Program, Value, walk
from tilelet.passes.pipeline import run_passes

Body = Callable[[Build, Value, Value, Value], list[Value]]


def _plan(body: Body, dtype: Any = FP32) -> KernelPlan:
    """Return the plan of a kernel on the matrices `x`, `w` and `out`."""
    b = Build()
    depth = PIECE * PIECES
    x, w = b.param("x", tensor([ROWS, depth], dtype)), b.param("w", tensor([depth, COLUMNS], dtype))
    out = b.param("out", tensor([ROWS, COLUMNS]))
    b.scope(lambda s: body(s, x, w, out))
    (plan,) = plans_of(run_passes(b.program()))
    return plan


def _op(plan: KernelPlan, name: str, at: int = 0) -> Op:
    return [op for op in walk(plan.kernel.body) if op.name == name][at]


def _product(s: Build, x: Value, w: Value, at: Any = 0, dtype: Any = FP32) -> Value:
    return s.op("matmul", lhs=_left(s, x, at), rhs=_right(s, w, at), out_dtype=dtype)


def _piece(x: Value, w: Value) -> Any:
    def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
        at = t.op("scalar.mul", lhs=i, rhs=PIECE)
        return [t.op("matmul_acc", acc=acc, lhs=_left(t, x, at), rhs=_right(t, w, at))]

    return iteration


def _with_groups(plan: KernelPlan, *groups: ProductGroup) -> KernelPlan:
    return replace(plan, groups=groups)


def _refused(plan: KernelPlan, problem: str) -> None:
    with pytest.raises(PlanError, match=problem) as found:
        verify(plan)
    assert found.value.details == plan_text(plan)


def _with_step(plan: KernelPlan, op: Op, **changes: Any) -> KernelPlan:
    return replace(plan, steps={**plan.steps, op: replace(plan.steps[op], **changes)})


# --- wrong results that deferral has given --------------------------------------------------------


def test_a_product_that_waits_beyond_a_store_over_its_operand() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        acc = _product(s, x, w)
        stored = s.put(w, s.op("full", shape=[PIECE, COLUMNS], dtype=FP32, value=2.0), [0, 0])
        (acc,) = s.for_(PIECES, _piece(x, stored), [acc], start=1)
        return [s.put(out, acc, [0, 0]), stored]

    plan = _plan(body)
    start, chain = plan.groups
    assert start.run_after.name == "full"
    together = replace(chain, ops=(*start.ops, *chain.ops), starts_new=True)
    _refused(_with_groups(plan, together), "operands of a deferred product were written")
    _refused(_with_groups(plan, replace(start, run_after=_op(plan, "assemble")), chain), "written")


def test_a_product_that_a_condition_looks_at() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        def small(t: Build, acc: Value) -> list[Value]:
            return [t.op("scalar.lt", lhs=t.op("read", x=acc, indices=[0, 0]), rhs=40.0)]

        def more(t: Build, acc: Value) -> list[Value]:
            return [t.op("matmul_acc", acc=acc, lhs=_left(t, x, 0), rhs=_right(t, w, 0))]

        acc = s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.0)
        (acc,) = s.while_(small, more, [acc])
        return [s.put(out, acc, [0, 0])]

    plan = _plan(body)
    assert plan.groups == ()
    acc, loop = _op(plan, "matmul_acc"), _op(plan, "while")
    group = ProductGroup((acc,), plan.steps[acc].slots[0], False, loop)
    _refused(_with_groups(plan, group), "of a deferred product is read")


def test_a_product_that_only_an_inner_loop_would_run() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        def outer(t: Build, _: Value, acc: Value) -> list[Value]:
            return list(t.for_(PIECES, _piece(x, w), [acc], start=1))

        (acc,) = s.for_(2, outer, [_product(s, x, w)])
        return [s.put(out, acc, [0, 0])]

    plan = _plan(body)
    start, chain = plan.groups
    together = replace(chain, ops=(*start.ops, *chain.ops), starts_new=True)
    _refused(_with_groups(plan, together), "of a deferred product is read")


def test_a_hand_over_of_a_chain_that_goes_on_from_a_tile() -> None:
    (plan,) = plans_of(run_passes(_from_tile("out")))
    (group,) = plan.groups
    _refused(_with_groups(plan, replace(group, handover=True)), "do not start there")
    believed = replace(group, handover=True, starts_new=True)
    _refused(_with_groups(plan, believed), "writes the memory of its products")


def test_a_product_that_is_rounded_before_it_is_run() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        first = _product(s, x, w, dtype=BF16)
        both = s.op("mul", lhs=first, rhs=first)
        return [s.put(out, s.op("cast", x=both, target_type=FP32, mode="rint"), [0, 0])]

    plan = _plan(body, BF16)
    (group,) = plan.groups
    assert group.run_after is group.ops[0]
    _refused(_with_groups(plan, replace(group, run_after=_op(plan, "mul"))), "is written|is read")


def test_a_hand_over_with_the_start_of_another_product_before_it() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        first, second = _product(s, x, w), _product(s, x, w, PIECE)
        (second,) = s.for_(PIECES, _piece(x, w), [second], start=2)
        return [s.put(out, s.op("add", lhs=first, rhs=second), [0, 0])]

    plan = _plan(body)
    first, chain = plan.groups
    assert first.handover
    late = replace(first, run_after=_op(plan, "matmul", 1))
    _refused(_with_groups(plan, late, chain), "cannot be repeated")


def test_a_product_whose_memory_another_tile_takes_before_it_is_run() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        (acc,) = s.for_(PIECES, _piece(x, w), [_product(s, x, w)], start=1)
        return [s.put(out, s.op("mul", lhs=acc, rhs=2.0), [0, 0])]

    plan = _plan(body)
    (group,) = plan.groups
    window = plan.steps[_op(plan, "slice", 2)].slots[0]
    slots = list(plan.slots)
    slots[window] = replace(slots[window], offset=slots[group.slot].offset)
    _refused(replace(plan, slots=tuple(slots)), "of a deferred product is written")


def test_a_hand_over_of_a_cut_product() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        left = _left(s, x, 0, valid_shape=[5, PIECE])
        acc = s.op("matmul", lhs=left, rhs=_right(s, w, 0), out_dtype=FP32)
        (acc,) = s.for_(PIECES, _piece(x, w), [acc], start=1)
        return [s.put(out, acc, [0, 0])]

    plan = _plan(body)
    (group,) = plan.groups
    assert not group.handover
    _refused(_with_groups(plan, replace(group, handover=True)), "is cleared again")


# --- the other rules ------------------------------------------------------------------------------


def _chain(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
    first, second = _product(s, x, w), _product(s, x, w, PIECE)
    scaled = s.op("mul", lhs=first, rhs=0.5)
    total = s.op("add", lhs=scaled, rhs=s.op("row_sum", x=scaled))
    return [s.put(out, s.op("sub", lhs=total, rhs=second), [0, 0])]


def test_right_plans_are_accepted_and_printed() -> None:
    plan = _plan(_chain)
    verify(plan)
    text = plan_text(plan)
    assert "run %2 (1 ops), %5 (1 ops); the kernel may be left here" in text
    assert "= add: inline(" in text
    assert text.count("deferred, in %") == 2


def test_products_that_are_never_run_or_deferred_twice() -> None:
    plan = _plan(_chain)
    first, second = plan.groups
    _refused(_with_groups(plan, first, second, replace(first, run_after=_op(plan, "mul"))), "twice")
    before = replace(first, run_after=_op(plan, "slice"), handover=False)
    _refused(_with_groups(plan, before, replace(second, handover=False)), "is read|is never run")


def test_an_op_without_a_step() -> None:
    plan = _plan(_chain)
    left = {op: step for op, step in plan.steps.items() if op.name != "add"}
    _refused(replace(plan, steps=left), "no step for this op")


def test_lifetimes_that_overlap() -> None:
    plan = _plan(_chain)
    together = tuple(replace(s, offset=0) for s in plan.slots)
    _refused(replace(plan, slots=together), "slot|overlaps")
    _refused(replace(plan, scratch=64), "no scratch memory")
    small = tuple(replace(s, elements=1) for s in plan.slots)
    _refused(replace(plan, slots=small), "too small")


def test_results_from_something_else() -> None:
    plan = _plan(_chain)
    add = _op(plan, "add")
    form = plan.steps[add].result
    assert isinstance(form, Inline)
    fewer = replace(form, operands=form.operands[:1])
    _refused(_with_step(plan, add, result=fewer), "from fewer operands")
    other = plan.steps[_op(plan, "matmul")].result
    assert isinstance(other, Stored)
    _refused(_with_step(plan, add, result=replace(form, operands=(other, other))), "something else")
    _refused(_with_step(plan, add, result=other), "a view of something else")


def test_carried_tiles_that_are_not_moved_or_in_the_wrong_order() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        def swap(t: Build, _: Value, a: Value, b: Value) -> list[Value]:
            return [t.op("add", lhs=b, rhs=1.0), t.op("add", lhs=a, rhs=2.0)]

        one, two = (s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=v) for v in (1.0, 2.0))
        one, two = s.for_(3, swap, [one, two])
        return [s.put(out, s.op("sub", lhs=one, rhs=two), [0, 0])]

    plan = _plan(body)
    loop = _op(plan, "for")
    (moves,) = plan.steps[loop].moves
    assert len(moves) == 3, "one of two tiles that exchange places waits in a copy"
    _refused(_with_step(plan, loop, moves=(moves[1:],)), "does not hold")
    _refused(_with_step(plan, loop, moves=((),)), "does not get")


def test_a_load_that_is_not_copied_before_a_store() -> None:
    def body(s: Build, x: Value, w: Value, out: Value) -> list[Value]:
        old = s.window(out, [ROWS, COLUMNS], [0, 0])
        s.put(out, s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=2.0), [0, 0])
        return [s.put(out, s.op("mul", lhs=old, rhs=old), [0, 0])]

    plan = _plan(body)
    store = _op(plan, "assemble")
    assert plan.steps[store].copies
    mutant, mul = _with_step(plan, store, copies=()), _op(plan, "mul")
    _refused(mutant, "something else")
    window, form = plan.steps[_op(plan, "slice")].result, plan.steps[mul].result
    assert isinstance(form, Inline)
    planned = replace(form, operands=(window, window))
    _refused(_with_step(mutant, mul, result=planned), "was written meanwhile")


# --- what a user sees -----------------------------------------------------------------------------


def _spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the planner place all tiles at the same address."""
    right = tilelet.cpu.emit.program.plan_kernel

    def wrong(*args: Any, **options: Any) -> KernelPlan:
        plan = right(*args, **options)
        return replace(plan, slots=tuple(replace(s, offset=0) for s in plan.slots))

    monkeypatch.setattr(tilelet.cpu.emit.program, "plan_kernel", wrong)


def _program() -> Program:
    b = Build()
    x, w, out = _operands(b)
    b.scope(lambda s: _chain(s, x, w, out))
    return run_passes(b.program())


def test_the_engine_reports_a_wrong_plan_and_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch)
    rng = np.random.default_rng(1)
    given = {
        "x": rng.standard_normal((ROWS, PIECE * PIECES), dtype=np.float32),
        "w": rng.standard_normal((PIECE * PIECES, COLUMNS), dtype=np.float32),
        "out": np.zeros((ROWS, COLUMNS), np.float32),
    }
    errors: list[PlanError] = []
    CpuEngine(report=lambda error, _: errors.append(error)).run(_program(), given)
    assert len(errors) == 1
    assert given["out"].any()


@pytest.fixture
def softmax(tmp_path: Path) -> list[str]:
    return ["run", "examples/03_softmax.py", "--build-dir", str(tmp_path), "--no-golden-cache"]


def test_a_wrong_plan_is_an_internal_error_with_a_reproducer(
    softmax: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _spoil(monkeypatch)
    assert main(softmax) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "internal error" in line]
    assert len(lines) == 1
    assert "plan refused: " in lines[0]
    assert "is interpreted, which is slow; please report " in lines[0]
    (file,) = tmp_path.rglob("reproducer.txt")
    assert str(file) in lines[0]
    text = file.read_text()
    assert "kernel softmax_rows: " in text
    assert "@pl.program" in text


def test_plans_are_kept_beside_the_c_text(softmax: list[str], tmp_path: Path) -> None:
    assert main([*softmax, "--keep-plan"]) == 0
    (file,) = tmp_path.rglob("plan.txt")
    assert (file.parent / "unit0.c").exists()
    text = file.read_text()
    assert "kernel softmax_rows: " in text
    assert "result = pl.row_expand_div(numerator, pl.row_sum(numerator))" in text
