"""Splitting of chunk loops: the result, the number of tasks, and each index exactly once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interp.build import index, ramp, run, tensor
from tests.passes.build import Source, apply, expected, same_results, static_tasks, text

from tilelet.diag.internal import InternalError
from tilelet.ir.core import Program, Value, walk
from tilelet.ir.views import ForView, ScopeView
from tilelet.passes.split_chunks import split_chunks


def tick(scope: Source, out: Value, *at) -> Value:
    """Add one to an element of `out`, in place."""
    value = scope.op("read", x=out, indices=at)
    return scope.op("write", x=out, indices=at, value=scope.scalar("add", value, 1.0))


def one_loop(bounds, chunk, policy, params=()) -> Program:
    """`for i in parallel(bounds, chunk): out[0, i] += 1` in an auto scope."""
    b = Source()
    out = b.param("out", tensor([1, 80]))
    bounds = [b.param(x, index()) if x in params else x for x in bounds]

    def body(c: Source, i: Value, o: Value):
        return c.scope(lambda s: [tick(s, o, 0, i)], kind="implied")

    (done,) = b.scope(
        lambda c: c.loop(bounds, body, [out], chunk=chunk, policy=policy), kind="chunked"
    )
    return b.opaque(done)


def two_loops(outer, inner, policy, second_policy=None) -> Program:
    """A nest of two chunk loops over `out[i, j] += 1`; each level is (extent, chunk)."""
    b = Source()
    out = b.param("out", tensor([outer[0], inner[0]]))

    def body(c: Source, i: Value, o: Value):
        def innermost(d: Source, j: Value, p: Value):
            return d.scope(lambda s: [tick(s, p, i, j)], kind="implied")

        return c.loop(
            [inner[0]], innermost, [o], name="j", chunk=inner[1], policy=second_policy or policy
        )

    (done,) = b.scope(
        lambda c: c.loop([outer[0]], body, [out], chunk=outer[1], policy=policy), kind="chunked"
    )
    return b.opaque(done)


def test_leading_full_with_remainder():
    after = apply(one_loop([13], 5, "leading_full"), split_chunks)
    assert text(after) == expected("""
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, out: pl.Tensor[[1, 80], pl.FP32]) -> pl.Tensor[[1, 80], pl.FP32]:
            for i_out, (out_1,) in pl.parallel(0, 10, 5, init_values=(out,)):
                with pl.at(level=pl.Level.CORE_GROUP):
                    for i_in, (out_2,) in pl.parallel(5, init_values=(out_1,)):
                        i = i_out + i_in
                        read = pl.read(out_2, [0, i])
                        add = read + 1.0
                        write = pl.write(out_2, [0, i], add)
                        out_3 = pl.yield_(write)
                out_4 = pl.yield_(out_3)
            with pl.at(level=pl.Level.CORE_GROUP):
                for i_in_1, (out_5,) in pl.parallel(3, init_values=(out_4,)):
                    i_1 = 10 + i_in_1
                    read_1 = pl.read(out_5, [0, i_1])
                    add_1 = read_1 + 1.0
                    write_1 = pl.write(out_5, [0, i_1], add_1)
                    out_6 = pl.yield_(write_1)
            return out_6
        """)


def test_guarded():
    after = apply(one_loop([20, 3, -2], 4, "guarded"), split_chunks)
    assert text(after) == expected("""
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, out: pl.Tensor[[1, 80], pl.FP32]) -> pl.Tensor[[1, 80], pl.FP32]:
            for i_out, (out_1,) in pl.parallel(20, 3, -8, init_values=(out,)):
                with pl.at(level=pl.Level.CORE_GROUP):
                    for i_in, (out_2,) in pl.parallel(4, init_values=(out_1,)):
                        mul = i_in * -2
                        i = i_out + mul
                        gt = i > 3
                        if gt:
                            read = pl.read(out_2, [0, i])
                            add = read + 1.0
                            write = pl.write(out_2, [0, i], add)
                            write_1 = pl.yield_(write)
                        else:
                            write_1 = pl.yield_(out_2)
                        out_3 = pl.yield_(write_1)
                out_4 = pl.yield_(out_3)
            return out_4
        """)


@pytest.mark.parametrize("policy", ["leading_full", "guarded"])
def test_no_remainder_no_guard(policy: str):
    after = apply(two_loops((80, 8), (6, 2), policy), split_chunks)
    assert static_tasks(after.main.body) == 10 * 3
    assert not any(op.name == "if" for op in walk(after.main.body))


def test_eighty_blocks_by_eight_are_ten_tasks():
    after = apply(one_loop([80], 8, "leading_full"), split_chunks)
    assert static_tasks(after.main.body) == 10


small = st.integers(1, 9)


@settings(max_examples=60)
@given(outer=st.tuples(small, small), inner=st.tuples(small, small))
def test_nest_leading_full(outer, inner):
    (a, ca), (b, cb) = outer, inner
    after = apply(two_loops(outer, inner, "leading_full"), split_chunks)
    per_row = b // cb + (b % cb > 0)
    assert static_tasks(after.main.body) == (a // ca) * per_row + (a % ca) * per_row
    assert_each_once(after, (a, b), tasks=static_tasks(after.main.body))


@settings(max_examples=40)
@given(outer=st.tuples(small, small), inner=st.tuples(small, small))
def test_nest_guarded(outer, inner):
    (a, ca), (b, cb) = outer, inner
    after = apply(two_loops(outer, inner, "guarded"), split_chunks)
    assert static_tasks(after.main.body) == -(-a // ca) * -(-b // cb)
    assert_each_once(after, (a, b), tasks=static_tasks(after.main.body))


def test_policies_mix():
    after = apply(two_loops((7, 3), (5, 2), "leading_full", "guarded"), split_chunks)
    assert static_tasks(after.main.body) == 2 * 3 + 1 * 3
    assert_each_once(after, (7, 5), tasks=9)


def assert_each_once(program: Program, shape, tasks: int) -> None:
    out = np.zeros(shape, np.float32)
    assert len(run(program, out=out).tasks) == tasks
    np.testing.assert_array_equal(out, np.ones(shape, np.float32))


@settings(max_examples=120)
@given(
    start=st.integers(0, 40),
    stop=st.integers(0, 40),
    step=st.sampled_from([1, 2, 3, -1, -2, -5]),
    chunk=st.integers(1, 7),
    policy=st.sampled_from(["leading_full", "guarded"]),
    run_time=st.sets(st.sampled_from(["start", "stop", "step"])),
)
def test_bounds_known_or_not(start, stop, step, chunk, policy, run_time):
    """Any mixture of constant and run-time bounds visits `range(start, stop, step)` once."""
    bounds = {"start": start, "stop": stop, "step": step}
    given_bounds = [k if k in run_time else v for k, v in bounds.items()]
    after = apply(one_loop(given_bounds, chunk, policy, run_time), split_chunks)
    out = np.zeros((1, 80), np.float32)
    tasks = run(after, out=out, **{k: bounds[k] for k in run_time}).tasks
    visited = range(start, stop, step)
    np.testing.assert_array_equal(np.flatnonzero(out), sorted(visited))
    assert out.sum() == len(visited)
    assert len(tasks) == -(-len(visited) // chunk)


def test_loop_that_does_not_run():
    after = apply(one_loop([0], 4, "leading_full"), split_chunks)
    assert [op.name for op in after.main.body.ops] == ["return"]


def test_bounds_of_an_inner_loop_may_depend_on_the_outer_one():
    """In that case only the outer loop is split; the inner one is a plain loop of the task."""
    b = Source()
    out = b.param("out", tensor([9, 9]))

    def body(c: Source, i: Value, o: Value):
        return c.loop(
            [i, 9],
            lambda d, j, p: d.scope(lambda s: [tick(s, p, i, j)], kind="implied"),
            [o],
            name="j",
            chunk=2,
        )

    (done,) = b.scope(lambda c: c.loop([9], body, [out], chunk=4), kind="chunked")
    after = apply(b.opaque(done), split_chunks)
    result = np.zeros((9, 9), np.float32)
    assert len(run(after, out=result).tasks) == 3
    np.testing.assert_array_equal(result, np.triu(np.ones((9, 9), np.float32)))


def test_scalars_between_the_loops_move_into_the_task():
    b = Source()
    out = b.param("out", tensor([12, 4]))

    def body(c: Source, i: Value, o: Value):
        row = c.scalar("mul", i, 2, result="row")
        return c.loop(
            [4],
            lambda d, j, p: d.scope(lambda s: [tick(s, p, row, j)], kind="implied"),
            [o],
            name="j",
            chunk=4,
        )

    (done,) = b.scope(lambda c: c.loop([6], body, [out], chunk=3), kind="chunked")
    before = b.opaque(done)
    after = apply(before, split_chunks)
    assert static_tasks(after.main.body) == 2
    same_results(before, after, out=np.zeros((12, 4), np.float32))


@pytest.mark.parametrize("policy", ["leading_full", "guarded"])
def test_a_tile_that_the_loop_carries_stays_on_chip(policy: str):
    """A value computed in the body and carried is loaded and spilled once for each task."""
    b = Source()
    x, out = b.param("x", tensor([11, 16])), b.param("out", tensor([1, 16]))
    (total,) = b.scope(lambda s: [s.op("full", shape=[1, 16], dtype=out.type.dtype, value=0.0)])

    def body(c: Source, i: Value, t: Value):
        return c.scope(
            lambda s: [s.op("add", lhs=s.whole(t), rhs=s.window(x, [1, 16], [i, 0]))],
            kind="implied",
        )

    (summed,) = b.scope(
        lambda c: c.loop([11], body, [total], chunk=4, policy=policy), kind="chunked"
    )
    (done,) = b.scope(lambda s: [s.put(out, s.whole(summed), [0, 0])])
    before = b.opaque(done)
    after = apply(before, split_chunks)
    scopes = [op for op in walk(after.main.body) if op.name == "scope"]
    carried = [
        ForView(op).carried[0].type for s in scopes for op in walk(s.blocks[0]) if op.name == "for"
    ]
    assert carried
    assert all(str(t) == "pl.Tile[[1, 16], pl.FP32]" for t in carried)
    same_results(before, after, x=ramp(11, 16), out=np.zeros((1, 16), np.float32))


def test_a_name_that_leaks_out_of_the_loop_is_the_last_one():
    b = Source()
    x, out = b.param("x", tensor([7, 16])), b.param("out", tensor([1, 16]))
    nothing = b.undef(tensor([1, 16]))

    def body(c: Source, i: Value, _: Value):
        return c.scope(lambda s: [s.op("exp", x=s.window(x, [1, 16], [i, 0]))], kind="implied")

    (last,) = b.scope(lambda c: c.loop([7], body, [nothing], chunk=3), kind="chunked")
    (done,) = b.scope(lambda s: [s.put(out, s.whole(last), [0, 0])])
    before = b.opaque(done)
    after = apply(before, split_chunks)
    # Nothing is loaded for it: the first iteration of a task defines it.
    assert sum(op.name == "slice" for op in walk(after.main.body)) == 3
    same_results(before, after, x=ramp(7, 16) / 50, out=np.zeros((1, 16), np.float32))


def test_what_the_auto_scope_says_goes_to_its_tasks():
    b = Source()
    out = b.param("out", tensor([1, 8]))
    *_, first = b.scope(lambda s: [tick(s, out, 0, 0)], task_id=True)

    def body(c: Source, i: Value, o: Value):
        return c.scope(lambda s: [tick(s, o, 0, i)], kind="implied")

    def mixed(c: Source):
        (o,) = c.scope(lambda s: [tick(s, out, 0, 1)], hint="own")
        return c.loop([8], body, [o], chunk=4)

    (done,) = b.scope(mixed, kind="chunked", hint="block", deps=[first], split="UP_DOWN")
    after = apply(b.opaque(done), split_chunks)
    scopes = [ScopeView(op) for op in walk(after.main.body) if op.name == "scope"]
    assert [s.hint for s in scopes] == [None, "own", "block"]
    assert [s.op.args["deps"] for s in scopes] == [(), (first,), (first,)]
    assert [s.op.args["split"] for s in scopes] == [None, "UP_DOWN", "UP_DOWN"]
    assert {s.kind for s in scopes} == {"incore"}


def test_in_a_kernel_a_chunk_means_nothing():
    b = Source()
    out = b.param("out", tensor([1, 8]))
    (done,) = b.scope(lambda s: s.loop([8], lambda r, i, o: [tick(r, o, 0, i)], [out], chunk=3))
    after = apply(b.opaque(done), split_chunks)
    assert [ForView(op).chunk for op in walk(after.main.body) if op.name == "for"] == [None]


def test_a_chunk_loop_with_another_body_is_a_bug():
    b = Source()
    out = b.param("out", tensor([1, 8]))
    (done,) = b.loop([8], lambda c, i, o: [tick(c, o, 0, i)], [out], chunk=3)
    with pytest.raises(InternalError, match="one loop or one scope"):
        split_chunks(b.opaque(done))
