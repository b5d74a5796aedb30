"""Substitution, cloning and builders."""

from __future__ import annotations

from tests.interp.build import index, tensor
from tests.passes.build import Source

from tilelet import dtypes
from tilelet.analysis.affine import constant_difference
from tilelet.ir.core import Block, Const, Op, Value, walk
from tilelet.ir.rebuild import (
    Builder,
    Rewriter,
    clone_block,
    defined_values,
    free_values,
    substitute,
    with_operands,
)
from tilelet.ir.types import ScalarType
from tilelet.ir.verify import verify


def nested() -> tuple[Value, Value, Block]:
    """A loop body that uses two outer values."""
    b = Source()
    n, x = b.param("n", index()), b.param("x", tensor([8, 16]))

    def body(c: Source, i: Value, o: Value):
        row = c.scalar("add", i, n, result="row")
        return c.scope(lambda s: [s.put(o, s.window(x, [1, 16], [row, 0]), [i, 0])])

    b.loop([8], body, [x])
    return n, x, b.block([], [])


def test_substitution_keeps_what_does_not_change():
    a, b, c = (Value(name, index()) for name in "abc")
    args = (a, (b, 1), "text")
    assert substitute(args, {c: 1}) is args
    assert substitute(args, {b: 7}) == (a, (7, 1), "text")
    op = Builder().add(Op(nested()[2].ops[0].spec, {"x": args}))
    assert with_operands(op, {c: 1}) is op


def test_a_clone_shares_no_value():
    n, x, block = nested()
    copy = clone_block(block, {})
    assert defined_values(copy).isdisjoint(defined_values(block))
    assert len(defined_values(copy)) == len(defined_values(block))
    assert free_values(copy) == free_values(block) == (x, n)
    assert [op.name for op in walk(copy)] == [op.name for op in walk(block)]


def test_a_clone_uses_the_mapped_values():
    n, x, block = nested()
    other = Value("other", index())
    copy = clone_block(block, {n: other})
    assert free_values(copy) == (x, other)
    (row,) = [op for op in walk(copy) if op.name == "scalar.add"]
    assert row.args["rhs"] is other


def test_a_rewriter_redirects_later_uses():
    class Drop(Rewriter):
        def rewrite(self, op):
            if op.name == "scalar.add":
                self.mapping[op.result] = op.args["lhs"]
                return ()
            return (self.descend(op),)

    *_, block = nested()
    after = Drop().block(block)
    assert not any(op.name == "scalar.add" for op in walk(after))
    (load,) = [op for op in walk(after) if op.name == "slice"]
    loop = after.ops[0]
    assert load.args["offset"] == (loop.blocks[0].params[0], 0)


def test_scalar_arithmetic_of_constants_emits_nothing():
    b = Builder()
    n = Value("n", index())
    assert b.scalar("mul", 3, 4) == 12
    assert b.scalar("floordiv", -7, 2) == -3
    assert b.scalar("add", n, 0) is n
    assert b.ops == []
    for op, *operands in (("add", n, 1), ("sub", 0, n), ("floordiv", 1, n)):
        assert b.scalar(op, *operands) is b.ops[-1].result
    assert [op.name for op in b.ops] == ["scalar.add", "scalar.sub", "scalar.floordiv"]


def test_folding_keeps_the_dtype():
    b = Builder()
    n = Value("n", ScalarType(dtypes.INT32))
    one = Const(1, dtypes.INT32)
    assert b.scalar("add", one, one) == Const(2, dtypes.INT32)
    assert b.scalar("mul", n, 1) is n
    wide = b.scalar("mul", n, Const(1, dtypes.INT64))
    assert isinstance(wide, Value)
    assert wide.type == ScalarType(dtypes.INT64)


def test_built_control_flow_is_right():
    source = Source()
    n, x = source.param("n", index()), source.param("x", tensor([8, 16]))
    b = Builder()
    i, carried = Value("i", index()), Value("x", x.type)
    body = b.inside()
    row = body.scalar("mul", i, 2)
    then = body.inside()
    written = then.emit("write", carried, (row, 0), 1.0)
    after = body.branch(body.scalar("lt", row, n), (then, [written]), (body.inside(), [carried]))
    results = b.loop((0, 4, 1), [x], i, [carried], body, after)
    source.ops = b.ops
    verify(source.opaque(*results))


def test_differences_that_are_known():
    b = Source()
    i, j = b.param("i", index()), b.param("j", index())
    twice = b.scalar("mul", b.scalar("add", i, 3), 2)
    other = b.scalar("sub", b.scalar("add", b.scalar("mul", 2, i), j), j)
    definition = {op.result: op for op in b.ops}
    assert constant_difference(twice, other, definition) == 6
    assert constant_difference(other, 4, definition) is None
    assert constant_difference(9, Const(4, dtypes.INT32), definition) == 5
    product = b.scalar("mul", i, j)
    definition = {op.result: op for op in b.ops}
    assert constant_difference(b.scalar("add", product, 1), product, definition) is None
    definition = {op.result: op for op in b.ops}
    assert constant_difference(b.ops[-1].result, product, definition) == 1
