"""An assemble in the control program becomes a window if that makes no difference, else a copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.interp.build import FP32, index, ramp, run, tensor
from tests.passes.build import Source, apply, count_ops, expected, results, same_results, text

from tilelet import dtypes
from tilelet.ir.core import Program, Value
from tilelet.ir.types import SymDim
from tilelet.passes.alias_windows import alias_windows
from tilelet.passes.outline import outline
from tilelet.passes.simplify import simplify


def aliased(program: Program) -> Program:
    return apply(program, outline, alias_windows)


def assert_alias(before: Program, **arguments) -> Program:
    """Assert that no assemble is left, no task copies, and the results are the same."""
    after = aliased(before)
    assert copies(after) == 0, after.cautions
    assert count_ops(after, "assemble") == 0
    same_results(before, after, **arguments)
    return after


def assert_copies(before: Program, why: str, number: int = 1, **arguments) -> Program:
    after = aliased(before)
    assert copies(after) == number
    assert count_ops(after, "assemble") == 0
    assert why in after.cautions[0].notes[0]
    assert {c.code for c in after.cautions} == {"W0402"}
    same_results(before, after, **arguments)
    return after


def copies(program: Program) -> int:
    return sum(fn.name.startswith("copy_") for fn in program.kernels)


def compute(c: Source, x: Value, at, op: str = "exp", shape=(16, 16)) -> Value:
    """The result of a scope."""
    (part,) = c.scope(lambda s: [s.op(op, x=s.window(x, shape, at), result="part")])
    return part


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def blocks(body: Callable[[Source, Value, Value, Value], list[Value]]) -> Program:
    """`for i in range(0, 64, 16)` over `out` and `x`, both [64, 16]."""
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    (done,) = b.loop([0, 64, 16], lambda c, i, o: body(c, i, x, o), [out], kind="range")
    return b.opaque(done)


SMALL = {"x": ramp(64, 16) / 999, "out": zeros(64, 16)}


# Aliases


def test_scope_result_in_a_loop():
    before = blocks(lambda c, i, x, o: [c.put(o, compute(c, x, [i, 0]), [i, 0])])
    after = apply(assert_alias(before, **SMALL), simplify)
    assert text(after) == expected("""
        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: pl.Tensor[[64, 16], pl.FP32], out: pl.Tensor[[64, 16], pl.FP32]) -> pl.Tensor[[64, 16], pl.FP32]:
            for i in pl.range(0, 64, 16):
                part = pl.slice(out, [16, 16], [i, 0], valid_shape=[16, 16])
                part_1 = self.main_incore_0(x, i, part)
            return out
        """)  # noqa: E501


def test_row_filled_by_scopes_in_inner_loops():
    """The create is far above, several tasks fill the tensor, and the offset is computed in
    between.
    """
    b = Source()
    x, out = b.param("x", tensor([4, 64])), b.param("out", tensor([4, 64]))

    def batch(c: Source, i: Value, o: Value):
        row = c.op("create_tensor", shape=[1, 64], dtype=FP32, result="row")

        def head(d: Source, h: Value, r: Value):
            (r,) = d.scope(
                lambda s: [s.put(r, s.op("exp", x=s.window(x, [1, 16], [i, h])), [0, h])]
            )
            return d.scope(
                lambda s: [s.put(r, s.op("neg", x=s.window(r, [1, 16], [0, h])), [0, h])]
            )

        (row,) = c.loop([0, 64, 16], head, [row], name="h", kind="range")
        at = c.scalar("add", c.scalar("sub", i, 1), 1, result="at")
        return [c.put(o, row, [at, 0])]

    (done,) = b.loop([4], batch, [out])
    after = assert_alias(b.opaque(done), x=ramp(4, 64) / 99, out=zeros(4, 64))
    assert count_ops(after, "create_tensor") == 0


def test_two_results_assembled_after_both_scopes():
    b = Source()
    x, k, v = (b.param(n, tensor([64, 16])) for n in ("x", "k", "v"))

    def body(c: Source, i: Value, k: Value, v: Value):
        one, two = compute(c, x, [i, 0]), compute(c, x, [i, 0], "neg")
        return [c.put(k, one, [i, 0]), c.put(v, two, [i, 0])]

    done = b.loop([0, 64, 16], body, [k, v], kind="range")
    assert_alias(b.opaque(*done), x=ramp(64, 16) / 999, k=zeros(64, 16), v=zeros(64, 16))


@pytest.mark.parametrize("second", [(16, 0), (0, 8)])
def test_neighboring_windows_filled_together(second):
    """`[i, j]` and `[i + 16, j]` do not overlap, whatever i and j are."""
    b = Source()
    x, out = b.param("x", tensor([64, 32])), b.param("out", tensor([64, 32]))
    shape = (16, 8)

    def body(c: Source, i: Value, o: Value):
        parts = [c.op("create_tensor", shape=shape, dtype=FP32, result="part") for _ in "ab"]

        def fill(s: Source):
            tile = s.window(x, shape, [i, 0])
            return [s.put(parts[0], tile, [0, 0]), s.put(parts[1], s.op("neg", x=tile), [0, 0])]

        one, two = c.scope(fill)
        row, col = c.scalar("add", i, second[0]), second[1]
        return [c.put(c.put(o, one, [i, 0]), two, [row, col])]

    (done,) = b.loop([0, 64, 32], body, [out])
    after = assert_alias(b.opaque(done), x=ramp(64, 32), out=zeros(64, 32))
    assert len(run(after, x=ramp(64, 32), out=zeros(64, 32)).tasks) == 2


def test_windows_of_windows():
    """Parts of a row, the row a part of a block, the block a part of the output."""
    b = Source()
    x, out = b.param("x", tensor([8, 32])), b.param("out", tensor([8, 32]))

    def body(c: Source, i: Value, o: Value):
        block = c.op("create_tensor", shape=[2, 32], dtype=FP32, result="block")
        for k in range(2):
            row = c.op("create_tensor", shape=[1, 32], dtype=FP32, result="row")
            at = c.scalar("add", i, k)
            left = compute(c, x, [at, 0], shape=(1, 16))
            right = compute(c, x, [at, 16], "neg", shape=(1, 16))
            row = c.put(c.put(row, left, [0, 0]), right, [0, 16])
            block = c.put(block, row, [k, 0])
        return [c.put(o, block, [i, 0])]

    (done,) = b.loop([0, 8, 2], body, [out])
    after = assert_alias(b.opaque(done), x=ramp(8, 32) / 99, out=zeros(8, 32))
    assert count_ops(after, "create_tensor") == 0


def test_two_parts_share_an_offset_that_moves_up():
    b = Source()
    n, x = b.param("n", index()), b.param("x", tensor([64, 16]))
    k, v = b.param("k", tensor([64, 16])), b.param("v", tensor([64, 16]))
    one, two = compute(b, x, [0, 0]), compute(b, x, [16, 0])
    row = b.scalar("mul", n, 16)
    before = b.opaque(b.put(k, one, [row, 0]), b.put(v, two, [row, 0]))
    assert_alias(before, n=2, x=ramp(64, 16) / 999, k=zeros(64, 16), v=zeros(64, 16))


def test_leading_unit_axes():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([2, 64, 16]))

    def body(c: Source, i: Value, o: Value):
        return [c.put(o, compute(c, x, [i, 0]), [1, i, 0])]

    (done,) = b.loop([0, 64, 16], body, [out])
    after = assert_alias(b.opaque(done), x=ramp(64, 16) / 999, out=zeros(2, 64, 16))
    assert count_ops(after, "reshape") == 1


def test_the_filling_task_may_read_the_target_if_it_stores_last():
    def body(c: Source, i: Value, _x: Value, o: Value):
        return [c.put(o, compute(c, o, [i, 0], "neg"), [i, 0])]

    assert_alias(blocks(body), x=zeros(64, 16), out=ramp(64, 16))


def test_the_part_may_be_read_later():
    def body(c: Source, i: Value, x: Value, o: Value):
        part = compute(c, x, [i, 0])
        o = c.put(o, part, [i, 0])
        c.scope(lambda s: [s.put(x, s.whole(part), [i, 0])])
        return [o]

    assert_alias(blocks(body), **SMALL)


def test_only_one_of_two_branches_assembles():
    b = Source()
    n = b.param("n", index())
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    cond = b.scalar("lt", n, 3)
    (done,) = b.if_(cond, lambda t: [t.put(out, compute(t, x, [16, 0]), [32, 0])], lambda _: [out])
    before = b.opaque(done)
    for n_value in (2, 3):
        assert_alias(before, n=n_value, **SMALL)


def test_the_target_comes_out_of_a_branch():
    """The joined name is newer than the filling; an older name of the same memory is used."""
    b = Source()
    n = b.param("n", index())
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    part = compute(b, x, [0, 0])
    (joined,) = b.if_(
        b.scalar("lt", n, 3),
        lambda _: [out],
        lambda t: t.loop([2], lambda _c, _i, o: [o], [out]),
    )
    assert_alias(b.opaque(b.put(joined, part, [16, 0])), n=2, **SMALL)


# Copies


def test_a_parameter_is_copied():
    b = Source()
    x, out = b.param("x", tensor([16, 16])), b.param("out", tensor([64, 16]))
    before = b.opaque(b.put(out, x, [32, 0]))
    after = assert_copies(before, "not a whole tensor created", x=ramp(16, 16), out=zeros(64, 16))
    assert text(after, "copy_0") == expected("""
        @pl.function(type=pl.FunctionType.InCore)
        def copy_0(self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[64, 16], pl.FP32]]) -> pl.Tensor[[64, 16], pl.FP32]:
            tile = pl.slice(x, [16, 16], [0, 0])
            out_1 = pl.assemble(out, tile, [32, 0])
            return out_1
        """)  # noqa: E501


def test_made_once_and_assembled_many_times():
    def body(c: Source, i: Value, part: Value, o: Value):
        return [c.put(o, part, [i, 0])]

    b = Source()
    x, out = b.param("x", tensor([16, 16])), b.param("out", tensor([64, 16]))
    part = compute(b, x, [0, 0])
    (done,) = b.loop([0, 64, 16], lambda c, i, o: body(c, i, part, o), [out])
    before = b.opaque(done)
    assert_copies(before, "as often", x=ramp(16, 16) / 99, out=zeros(64, 16))


def test_assembled_twice():
    def body(c: Source, i: Value, x: Value, o: Value):
        part = compute(c, x, [i, 0])
        o = c.put(o, part, [i, 0])
        return [c.put(o, part, [0, 0])]

    assert_copies(blocks(body), "used again", number=2, **SMALL)


def test_the_target_is_read_while_the_part_is_filled():
    """The old contents of the window are still needed."""

    def body(c: Source, i: Value, x: Value, o: Value):
        part = compute(c, x, [i, 0])
        c.scope(lambda s: [s.put(x, s.window(o, [16, 16], [i, 0]), [i, 0])])
        return [c.put(o, part, [i, 0])]

    assert_copies(blocks(body), "while the source is being filled", **SMALL)


def test_the_filling_task_stores_before_it_reads_the_target():
    def body(c: Source, i: Value, x: Value, o: Value):
        part = c.op("create_tensor", shape=[16, 16], dtype=FP32)

        def fill(s: Source):
            filled = s.put(part, s.window(x, [16, 16], [i, 0]), [0, 0])
            s.put(x, s.window(o, [16, 16], [i, 0]), [i, 0])
            return [filled]

        (part,) = c.scope(fill)
        return [c.put(o, part, [i, 0])]

    assert_copies(blocks(body), "while the source is being filled", **SMALL)


@pytest.mark.parametrize("known", [True, False])
def test_windows_that_may_overlap(known: bool):
    b = Source()
    n = b.param("n", index())
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    one = b.op("create_tensor", shape=[16, 16], dtype=FP32)
    two = b.op("create_tensor", shape=[16, 16], dtype=FP32)

    def fill(s: Source):
        tile = s.window(x, [16, 16], [0, 0])
        return [s.put(one, tile, [0, 0]), s.put(two, s.op("neg", x=tile), [0, 0])]

    first, second = b.scope(fill)
    done = b.put(b.put(out, first, [8, 0]), second, [16 if known else n, 0])
    assert_copies(b.opaque(done), "another part", n=0, **SMALL)


def test_the_part_is_written_after_it_was_assembled():
    def body(c: Source, i: Value, x: Value, o: Value):
        part = compute(c, x, [i, 0])
        o = c.put(o, part, [i, 0])
        c.scope(lambda s: [s.put(part, s.op("neg", x=s.whole(part)), [0, 0])])
        return [o]

    assert_copies(blocks(body), "used again", **SMALL)


def test_the_part_is_wanted_after_the_block():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    nothing = b.undef(tensor([16, 16]))

    def body(c: Source, i: Value, o: Value, _last: Value):
        part = compute(c, x, [i, 0])
        return [c.put(o, part, [i, 0]), part]

    filled, last = b.loop([0, 64, 16], body, [out, nothing])
    (done,) = b.scope(lambda s: [s.put(filled, s.op("neg", x=s.whole(last)), [0, 0])])
    assert_copies(b.opaque(done), "after this block", **SMALL)


def test_the_target_is_made_later():
    b = Source()
    x, out = b.param("x", tensor([16, 16])), b.param("out", tensor([32, 16]))
    part = compute(b, x, [0, 0])
    late = b.op("create_tensor", shape=[32, 16], dtype=FP32, result="late")
    late = b.put(late, part, [0, 0])
    (late,) = b.scope(lambda s: [s.put(late, s.window(x, [16, 16], [0, 0]), [16, 0])])
    (done,) = b.scope(lambda s: [s.put(out, s.whole(late), [0, 0])])
    before = b.opaque(done)
    assert_copies(before, "does not exist yet", x=ramp(16, 16) / 99, out=zeros(32, 16))


def test_the_offset_is_read_from_what_is_written_meanwhile():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    rows = b.param("rows", tensor([1, 8], dtypes.INT32))
    part = compute(b, x, [0, 0])
    b.op("write", x=rows, indices=[0, 0], value=32)
    row = b.op("read", x=rows, indices=[0, 0])
    before = b.opaque(b.put(out, part, [row, 0]))
    arguments = {**SMALL, "rows": np.zeros((1, 8), np.int32)}
    assert_copies(before, "offset is not known yet", **arguments)


def test_an_offset_read_from_an_input_moves_up():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    rows = b.param("rows", tensor([1, 8], dtypes.INT32))
    part = compute(b, x, [0, 0])
    row = b.scalar("mul", b.op("read", x=rows, indices=[0, 1]), 16)
    before = b.opaque(b.put(out, part, [row, 0]))
    assert_alias(before, **SMALL, rows=np.array([[0, 3, 0, 0, 0, 0, 0, 0]], np.int32))


# The copy itself


def test_a_big_copy_goes_tile_by_tile():
    b = Source()
    x, out = b.param("x", tensor([3, 5, 5000])), b.param("out", tensor([4, 6, 5008]))
    before = b.opaque(b.put(out, x, [1, 1, 8]))
    after = assert_copies(
        before, "not a whole tensor created", x=ramp(3, 5, 5000), out=zeros(4, 6, 5008)
    )
    assert count_ops(after, "slice", "copy_0") == 1
    assert "pl.slice(x, [1, 1, 5000]" in text(after, "copy_0")


def test_rows_longer_than_a_tile():
    b = Source()
    x, out = b.param("x", tensor([2, 9000])), b.param("out", tensor([2, 9000]))
    before = b.opaque(b.put(out, x, [0, 0]))
    assert_copies(before, "", x=ramp(2, 9000), out=zeros(2, 9000))


def test_extents_known_at_run_time():
    b = Source()
    m = SymDim("M")
    x, out = b.param("x", tensor([m, 300])), b.param("out", tensor([m, 300]))
    before = b.opaque(b.put(out, x, [0, 0]))
    assert_copies(before, "", x=ramp(7, 300), out=zeros(7, 300))


def test_a_copy_within_one_tensor_goes_through_another():
    b = Source()
    x = b.param("x", tensor([600, 64]))
    before = b.opaque(b.put(x, b.window(x, [400, 64], [0, 0]), [100, 0]))
    after = aliased(before)
    assert copies(after) == 2
    got, data = results(after, x=ramp(600, 64))["x"], ramp(600, 64)
    np.testing.assert_array_equal(got[100:500], data[:400])
    np.testing.assert_array_equal(got[:100], data[:100])
    np.testing.assert_array_equal(got[500:], data[500:])
