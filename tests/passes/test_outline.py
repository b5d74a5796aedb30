"""Scopes become kernels and calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.interp.build import FP32, index, kernel, ramp, run, tensor
from tests.passes.build import Source, apply, count_ops, expected, results, same_results, text

from tilelet.diag.catalogue.scopes import ScalarLeavesScope
from tilelet.diag.catalogue.unsupported import UnsupportedConstruct
from tilelet.ir.core import Direction, FunctionKind, Value, walk
from tilelet.ir.views import CallView
from tilelet.passes.outline import outline

IN, OUT, INOUT = Direction.In, Direction.Out, Direction.InOut


def test_a_spilled_value_goes_through_a_hidden_parameter():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))

    def body(c: Source, i: Value, o: Value):
        (y,) = c.scope(
            lambda s: [s.op("exp", x=s.window(x, [16, 16], [i, 0]), result="y")], hint="first"
        )
        return c.scope(lambda s: [s.put(o, s.op("neg", x=s.whole(y)), [i, 0])])

    (done,) = b.loop([0, 64, 16], body, [out])
    before = b.opaque(done)
    after = apply(before, outline)
    assert text(after) == expected("""
        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: pl.Tensor[[64, 16], pl.FP32], out: pl.Tensor[[64, 16], pl.FP32]) -> pl.Tensor[[64, 16], pl.FP32]:
            for i, (out_1,) in pl.parallel(0, 64, 16, init_values=(out,)):
                y = pl.create_tensor([16, 16], pl.FP32)
                y_1 = self.first(x, i, y)
                out_2 = self.main_incore_0(y_1, out_1, i)
                out_3 = pl.yield_(out_2)
            return out_3
        """)  # noqa: E501
    assert text(after, "first") == expected("""
        @pl.function(type=pl.FunctionType.InCore)
        def first(self, x: pl.Tensor[[64, 16], pl.FP32], i: pl.Scalar[pl.INDEX], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]) -> pl.Tensor[[16, 16], pl.FP32]:
            slice = pl.slice(x, [16, 16], [i, 0])
            y_1 = pl.exp(slice)
            y_2 = pl.assemble(y, y_1, [0, 0])
            return y_2
        """)  # noqa: E501
    assert after.functions["main_incore_0"].directions == (IN, OUT, IN)
    same_results(before, after, x=ramp(64, 16) / 999, out=np.zeros((64, 16), np.float32))


def test_only_the_valid_region_is_spilled():
    """As for any store, the rest of the hidden tensor was never written."""
    b = Source()
    n = b.param("n", index())
    x, out = b.param("x", tensor([8, 16])), b.param("out", tensor([8, 16]))
    (y,) = b.scope(lambda s: [s.window(x, [8, 16], [0, 0], valid_shape=[n, 16])])
    (done,) = b.scope(lambda s: [s.put(out, s.whole(y), [0, 0])])
    before = b.opaque(done)
    after = apply(before, outline)
    arguments = {"n": 3, "x": ramp(8, 16), "out": np.zeros((8, 16), np.float32)}
    same_results(before, after, **arguments)
    got = results(after, **arguments)["out"]
    np.testing.assert_array_equal(got[:3], ramp(8, 16)[:3])
    assert np.isnan(got[3:]).all()


def test_tensors_come_before_scalars_in_order_of_first_use():
    b = Source()
    n, m = b.param("n", index()), b.param("m", index())
    x, y, out = (b.param(k, tensor([8, 16])) for k in ("x", "y", "out"))

    def body(s: Source):
        rows = s.window(y, [4, 16], [m, 0])
        return [s.put(out, s.op("add", lhs=rows, rhs=s.window(x, [4, 16], [n, 0])), [n, 0])]

    (done,) = b.scope(body)
    after = apply(b.opaque(done), outline)
    assert [p.name for p in after.kernels[0].params] == ["y", "x", "out", "m", "n"]


def test_results_are_the_written_parameters_in_parameter_order():
    """Includes values that nothing uses afterwards; reading makes a parameter InOut."""
    b = Source()
    first, second, third = (b.param(k, tensor([4, 16])) for k in ("first", "second", "third"))

    def body(s: Source):
        t = s.whole(second)
        s.put(third, t, [0, 0])
        again = s.put(first, t, [0, 0])
        return [s.put(second, s.op("neg", x=t), [0, 0]), again]

    changed, copied = b.scope(body)
    after = apply(b.opaque(copied, changed), outline)
    (call,) = [op for op in walk(after.main.body) if op.name == "call"]
    fn = after.kernels[0]
    assert [p.name for p in fn.params] == ["second", "third", "first"]
    assert fn.directions == (INOUT, OUT, OUT)
    assert [r.name for r in call.results] == ["second", "third", "first"]
    assert after.main.returned == (call.results[2], call.results[0])


def test_options_of_a_scope_go_to_the_call():
    b = Source()
    x, out = b.param("x", tensor([4, 16])), b.param("out", tensor([4, 16]))
    *_, tid = b.scope(lambda s: [s.put(out, s.whole(x), [0, 0])], task_id=True)
    (done,) = b.scope(
        lambda s: [s.put(out, s.op("neg", x=s.whole(x)), [0, 0])],
        deps=[tid],
        no_dep=[out],
        options=(("allow_early_resolve", True),),
        hint="again",
    )
    after = apply(b.opaque(done), outline)
    one, two = (op for op in walk(after.main.body) if op.name == "call")
    assert one.results[-1] is tid
    assert one.args["task_id"] is True
    assert two.args["deps"] == (tid,)
    assert two.args["no_dep"] == (1,)
    assert two.args["options"] == (("allow_early_resolve", True),)
    assert CallView(two).callee == "again"


def test_names_are_unique():
    b = Source()
    out = b.param("out", tensor([4, 16]))
    for hint in ("k", "k", None, "main", None):
        b.scope(lambda s: [s.put(out, s.whole(out), [0, 0])], hint=hint)
    after = apply(b.opaque(out), outline)
    names = [fn.name for fn in after.kernels]
    assert names == ["k", "k_1", "main_incore_0", "main_1", "main_incore_1"]


def test_an_spmd_kernel_asks_for_its_block():
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))

    def body(s: Source, block: Value):
        row = s.scalar("mul", block, 16, result="row")
        return [s.put(out, s.op("exp", x=s.window(x, [16, 16], [row, 0])), [row, 0])]

    (done,) = b.scope(body, kind="spmd", count=4)
    before = b.opaque(done)
    after = apply(before, outline)
    (fn,) = after.kernels
    assert [p.name for p in fn.params] == ["x", "out"]
    assert fn.body.ops[0].name == "get_block_idx"
    (call,) = [op for op in walk(after.main.body) if op.name == "call"]
    assert call.args["count"] == 4
    arguments = {"x": ramp(64, 16) / 999, "out": np.zeros((64, 16), np.float32)}
    same_results(before, after, **arguments)
    assert len(run(after, **arguments).tasks) == 1


def test_grouping_scopes_stay():
    b = Source()
    out = b.param("out", tensor([4, 16]))
    (done,) = b.scope(
        lambda c: c.scope(lambda s: [s.put(out, s.whole(out), [0, 0])]), kind="manual"
    )
    after = apply(b.opaque(done), outline)
    (scope,) = [op for op in walk(after.main.body) if op.name == "scope"]
    assert [op.name for op in scope.blocks[0].ops] == ["call", "yield"]


def test_a_value_that_nothing_uses_is_not_spilled():
    b = Source()
    x, out = b.param("x", tensor([4, 16])), b.param("out", tensor([4, 16]))

    def body(s: Source):
        negated = s.op("neg", x=s.whole(x))
        return [negated, s.put(out, negated, [0, 0])]

    _, done = b.scope(body)
    after = apply(b.opaque(done), outline)
    assert count_ops(after, "create_tensor") == 0
    assert after.kernels[0].directions == (IN, OUT)


# What leaves a scope besides tiles


def test_a_view_made_in_a_scope_is_made_again_outside():
    b = Source()
    x, out = b.param("x", tensor([4, 16])), b.param("out", tensor([1, 64]))

    def body(s: Source):
        changed = s.put(x, s.op("neg", x=s.whole(x)), [0, 0])
        return [s.op("reshape", x=changed, shape=[1, 64])]

    (flat,) = b.scope(body)
    (done,) = b.scope(lambda s: [s.put(out, s.whole(flat), [0, 0])])
    before = b.opaque(done)
    after = apply(before, outline)
    assert [op.name for op in after.main.body.ops] == ["call", "reshape", "call", "return"]
    same_results(before, after, x=ramp(4, 16), out=np.zeros((1, 64), np.float32))


def test_a_scalar_of_scalars_is_computed_again_outside():
    b = Source()
    n, out = b.param("n", index()), b.param("out", tensor([8, 16]))

    def body(s: Source):
        row = s.scalar("add", s.scalar("mul", n, 2), 1, result="row")
        zeros = s.op("full", shape=[1, 16], dtype=FP32, value=0.0)
        return [s.put(out, zeros, [row, 0]), row]

    cleared, row = b.scope(body)
    (done,) = b.scope(
        lambda s: [s.put(cleared, s.op("full", shape=[1, 16], dtype=FP32, value=2.0), [row, 0])]
    )
    before = b.opaque(done)
    after = apply(before, outline)
    assert count_ops(after, "scalar.mul") == 1
    same_results(before, after, n=2, out=ramp(8, 16))


def test_a_scalar_of_data_cannot_leave():
    b = Source()
    out = b.param("out", tensor([8, 16]))

    def body(s: Source):
        changed = s.put(out, s.op("neg", x=s.whole(out)), [0, 0])
        return [changed, s.op("read", x=changed, indices=[0, 0], result="first")]

    changed, first = b.scope(body)
    b.op("write", x=changed, indices=[0, 1], value=first)
    with pytest.raises(ScalarLeavesScope, match="`first`"):
        outline(b.opaque(changed))


def test_a_tensor_chosen_in_a_scope_is_chosen_again_outside():
    b = Source()
    n = b.param("n", index())
    x, y = b.param("x", tensor([4, 16])), b.param("y", tensor([4, 16]))

    def body(s: Source):
        ones = s.op("full", shape=[4, 16], dtype=FP32, value=1.0)
        cond = s.scalar("lt", n, 3)
        return s.if_(cond, lambda t: [t.put(x, ones, [0, 0])], lambda t: [t.put(y, ones, [0, 0])])

    (chosen,) = b.scope(body)
    (done,) = b.scope(lambda s: [s.put(chosen, s.op("neg", x=s.whole(chosen)), [0, 0])])
    before = b.opaque(done)
    after = apply(before, outline)
    assert count_ops(after, "if") == 1
    for n_value in (2, 3):
        same_results(before, after, n=n_value, x=ramp(4, 16), y=ramp(4, 16))


def test_tensors_swapped_in_a_scope_cannot_leave():
    b = Source()
    x, y = b.param("x", tensor([4, 16])), b.param("y", tensor([4, 16]))
    swapped, _ = b.scope(lambda s: s.loop([3], lambda _b, _i, p, q: [q, p], [x, y]))
    with pytest.raises(UnsupportedConstruct, match="one of several tensors"):
        outline(b.opaque(swapped))


# Kernels written by hand


def test_a_hand_written_kernel_gets_the_same_form():
    k = kernel()
    x, y = k.param("x", tensor([4, 16])), k.param("y", tensor([4, 16]))
    total = k.op("add", lhs=k.whole(x), rhs=k.whole(y), result="total")
    doubled = k.put(y, k.op("mul", lhs=k.whole(y), rhs=2.0), [0, 0])
    fn = k.function("work", total, doubled)

    b = Source()
    p, q, out = (b.param(n, tensor([4, 16])) for n in ("p", "q", "out"))
    summed, _ = b.call(fn, [p, q])
    (done,) = b.scope(lambda s: [s.put(out, s.whole(summed), [0, 0])])
    before = b.opaque(done, kernels=[fn])
    after = apply(before, outline)
    assert text(after).count("total = pl.create_tensor([4, 16], pl.FP32)") == 1
    new = after.functions["work"]
    assert [p.name for p in new.params] == ["x", "y", "total"]
    assert new.directions == (IN, INOUT, OUT)
    arguments = {"p": ramp(4, 16), "q": ramp(4, 16), "out": np.zeros((4, 16), np.float32)}
    same_results(before, after, **arguments)


def test_declared_directions_stand():
    k = kernel()
    x, out = k.param("x", tensor([4, 16])), k.param("out", tensor([4, 16]))
    k.put(out, k.op("add", lhs=k.whole(x), rhs=k.whole(out)), [0, 0])
    fn = replace(k.function("work"), declared=(None, OUT))
    b = Source()
    p, q = b.param("p", tensor([4, 16])), b.param("q", tensor([4, 16]))
    b.call(fn, [p, q])
    after = apply(b.opaque(q, kernels=[fn]), outline)
    assert after.functions["work"].directions == (IN, OUT)
    assert len(after.functions["work"].returned) == 1


def test_the_entry_becomes_the_control_program():
    b = Source()
    out = b.param("out", tensor([4, 16]))
    assert outline(b.opaque(out)).main.kind is FunctionKind.Orchestration
