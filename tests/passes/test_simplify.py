"""Constant folding and removal of dead ops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.interp.build import FP32, index, ramp, tensor
from tests.passes.build import Source, apply, count_ops, expected, same_results, text

from tilelet import dtypes
from tilelet.ir.core import Const, Value, walk
from tilelet.ir.types import SymDim
from tilelet.passes.outline import outline
from tilelet.passes.simplify import simplify


def clear(scope: Source, out: Value, row, value: float = 0.0) -> Value:
    return scope.put(out, scope.op("full", shape=[1, 16], dtype=FP32, value=value), [row, 0])


def test_constants_and_neutral_operands():
    b = Source()
    n, out = b.param("n", index()), b.param("out", tensor([8, 16]))
    two = b.scalar("add", 1, 1)
    row = b.scalar("add", b.scalar("mul", b.scalar("sub", n, 0), 1), b.scalar("sub", two, two))
    (done,) = b.scope(lambda s: [clear(s, out, row)])
    after = apply(b.opaque(done), outline, simplify)
    assert text(after) == expected("""
        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, n: pl.Scalar[pl.INDEX], out: pl.Tensor[[8, 16], pl.FP32]) -> pl.Tensor[[8, 16], pl.FP32]:
            out_1 = self.main_incore_0(out, n)
            return out_1
        """)  # noqa: E501


@pytest.mark.parametrize(
    ("op", "operands", "value"),
    [
        ("floordiv", (-7, 2), -3),
        ("mod", (-7, 2), -1),
        ("floordiv", (7, 0), None),
        ("lt", (2, 3), True),
        ("max", (Const(2, dtypes.INT32), Const(5, dtypes.INT32)), Const(5, dtypes.INT32)),
        ("sub", (Const(-(2**31), dtypes.INT32), 1), Const(2**31 - 1, dtypes.INT32)),
        ("mul", (0.5, 3), 1.5),
        ("truediv", (1, 4), 0.25),
    ],
)
def test_values(op, operands, value):
    """Division truncates, integers wrap, and a division by zero is left, as at run time."""
    b = Source()
    b.param("out", tensor([8, 16]))
    program = b.opaque(b.scalar(op, *operands))
    (returned,) = apply(program, simplify).main.returned
    if value is None:
        assert isinstance(returned, Value)
    else:
        assert returned == value
        assert type(returned) is type(value)


def test_extents_in_the_type():
    b = Source()
    x = b.param("x", tensor([SymDim("M"), 16]))
    program = b.opaque(*(b.op("tensor.dim", tensor=x, axis=axis) for axis in (0, 1, -1)))
    rows, *columns = apply(program, simplify).main.returned
    assert isinstance(rows, Value)
    assert columns == [16, 16]


def test_decided_branch():
    b = Source()
    out = b.param("out", tensor([8, 16]))
    (done,) = b.if_(
        b.scalar("lt", 3, 2),
        lambda t: t.scope(lambda s: [clear(s, out, 0)]),
        lambda t: t.scope(lambda s: [clear(s, out, 1)]),
    )
    before = apply(b.opaque(done), outline)
    after = apply(before, simplify)
    assert [op.name for op in after.main.body.ops] == ["call", "return"]
    same_results(before, after, out=ramp(8, 16))


def test_loops_that_do_nothing():
    b = Source()
    n, out = b.param("n", index()), b.param("out", tensor([8, 16]))
    (never,) = b.loop([5, 5], lambda c, i, o: c.scope(lambda s: [clear(s, o, i)]), [out])
    (passed,) = b.loop([n], lambda c, i, o: [o] if c.scalar("mul", i, 2) else [], [never])
    (done,) = b.scope(lambda s: [clear(s, passed, 0)])
    after = apply(b.opaque(done), outline, simplify)
    assert [op.name for op in after.main.body.ops] == ["call", "return"]


def test_only_what_is_read_is_carried():
    """`a` feeds only itself and is dropped; `b` feeds the task and stays."""
    b = Source()
    n, out = b.param("n", index()), b.param("out", tensor([8, 16]))

    def body(c: Source, i: Value, o: Value, unread: Value, row: Value):
        (o,) = c.scope(lambda s: [clear(s, o, row)])
        return [o, c.scalar("add", unread, i), c.scalar("add", row, 1)]

    zero = b.scalar("mul", n, 0, result="zero")
    done, _, _ = b.loop([4], body, [out, zero, zero])
    before = apply(b.opaque(done), outline)
    after = apply(before, simplify)
    (loop,) = [op for op in walk(after.main.body) if op.name == "for"]
    assert [p.name for p in loop.blocks[0].params] == ["i", "out", "zero"]
    assert count_ops(after, "scalar.add") == 1
    same_results(before, after, n=3, out=ramp(8, 16))


def test_values_carried_by_a_while():
    b = Source()
    n, out = b.param("n", index()), b.param("out", tensor([8, 16]))

    def body(c: Source, i: Value, o: Value, unread: Value):
        (o,) = c.scope(lambda s: [clear(s, o, i)])
        return [c.scalar("add", i, 1), o, c.scalar("add", unread, i)]

    zero = b.scalar("mul", n, 0)
    _, done, _ = b.while_(lambda c, i, o, u: [c.scalar("lt", i, 5)], body, [zero, out, zero])
    before = apply(b.opaque(done), outline)
    after = apply(before, simplify)
    (loop,) = [op for op in walk(after.main.body) if op.name == "while"]
    assert [len(block.params) for block in loop.blocks] == [2, 2]
    assert len(loop.results) == 2
    same_results(before, after, n=3, out=ramp(8, 16))


def test_effects_stay():
    """Writes, tasks and joins stay although nothing uses their results; dead values are removed."""
    b = Source()
    x, out = b.param("x", tensor([8, 16])), b.param("out", tensor([8, 16]))
    b.op("write", x=out, indices=[0, 0], value=1.0)
    b.op("read", x=out, indices=[0, 0])
    b.window(x, [4, 16], [0, 0])
    b.op("create_tensor", shape=[4, 16], dtype=FP32)
    b.op("system.task_dummy")

    def work(s: Source):
        s.op("exp", x=s.whole(x))
        clear(s, out, 2)
        return []

    b.scope(work)
    after = apply(b.opaque(x), outline, simplify)
    names = [op.name for op in after.main.body.ops]
    assert names == ["write", "system.task_dummy", "call", "return"]
    assert [op.name for op in after.kernels[0].body.ops] == ["full", "assemble", "return"]


def test_unused_results_of_branches_and_scopes_go():
    b = Source()
    n, x, out = (
        b.param("n", index()),
        b.param("x", tensor([8, 16])),
        b.param("out", tensor([8, 16])),
    )
    cond = b.scalar("lt", n, 3)

    def group(c: Source):
        chosen, row = c.if_(
            cond, lambda t: [x, t.scalar("add", n, 1)], lambda t: [out, t.scalar("add", n, 2)]
        )
        return [chosen, row, c.scalar("mul", n, 7)]

    _, row, _ = b.scope(group, kind="manual")
    (done,) = b.scope(lambda s: [clear(s, out, row)])
    before = apply(b.opaque(done), outline)
    after = apply(before, simplify)
    (branch,) = [op for op in walk(after.main.body) if op.name == "if"]
    assert len(branch.results) == 1
    (scope,) = [op for op in walk(after.main.body) if op.name == "scope"]
    assert len(scope.results) == 1
    same_results(before, after, n=1, x=ramp(8, 16), out=np.zeros((8, 16), np.float32))


def test_nothing_to_do():
    b = Source()
    out = b.param("out", tensor([8, 16]))
    (done,) = b.loop([8], lambda c, i, o: c.scope(lambda s: [clear(s, o, i)]), [out])
    before = apply(b.opaque(done), outline)
    assert text(apply(before, simplify)) == text(before)
