"""Chains of `matmul_acc` over k whose pieces are partial: they run later, with equal results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu.differential import agree, numbers
from tests.cpu.plans import hands_over, plans_of
from tests.interp.build import Build, tensor

from tilelet.dtypes import BF16, FP16, FP32, INT32, DType
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

ROWS, COLUMNS, PIECE, PIECES = 12, 20, 16, 4


def _program(dtype: DType, starts_with_product: bool, shows_all: bool) -> Program:
    """`cuts[i]` are the valid rows, inner extent and columns of piece i.

    shows_all  what lies outside the valid region of the result is stored, too
    """
    b = Build()
    depth = PIECE * PIECES
    x, w = b.param("x", tensor([ROWS, depth], dtype)), b.param("w", tensor([depth, COLUMNS], dtype))
    cuts = b.param("cuts", tensor([PIECES, 3], INT32))
    iterations = b.param("iterations", tensor([1], INT32))
    out = b.param("out", tensor([ROWS, COLUMNS]))

    def pieces(s: Build, i: Value) -> tuple[Value, Value]:
        at = s.op("scalar.mul", lhs=i, rhs=PIECE) if isinstance(i, Value) else i * PIECE
        rows, inner, columns = (s.op("read", x=cuts, indices=[i, k]) for k in range(3))
        left = s.window(x, [ROWS, PIECE], [0, at], valid_shape=[rows, inner])
        right = s.window(w, [PIECE, COLUMNS], [at, 0], valid_shape=[inner, columns])
        return left, right

    def body(s: Build) -> list[Value]:
        def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
            left, right = pieces(t, i)
            return [t.op("matmul_acc", acc=acc, lhs=left, rhs=right)]

        if starts_with_product:
            left, right = pieces(s, 0)  # type: ignore[arg-type]
            acc = s.op("matmul", lhs=left, rhs=right, out_dtype=FP32)
        else:
            acc = s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.5)
        (acc,) = s.for_(s.op("read", x=iterations, indices=[0]), iteration, [acc], start=1)
        if shows_all:
            acc = s.op("set_validshape", x=acc, rows=ROWS, cols=COLUMNS)
        return [s.put(out, acc, [0, 0])]

    b.scope(body)
    return b.program()


def _arguments(dtype: DType, cuts: Any, iterations: int) -> dict[str, Any]:
    depth = PIECE * PIECES
    return {
        "x": numbers(dtype, ROWS, depth, seed=1),
        "w": numbers(dtype, depth, COLUMNS, seed=2),
        "cuts": np.array(cuts, np.int32),
        "iterations": np.array([iterations], np.int32),
        "out": np.full((ROWS, COLUMNS), 7, np.float32),
    }


PROGRAMS = {
    (dtype, first, shows_all): _program(dtype, first, shows_all)
    for dtype in (FP32, BF16)
    for first in (False, True)
    for shows_all in (False, True)
}


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(sorted(PROGRAMS, key=str)),
    cuts=st.lists(
        st.tuples(st.integers(1, ROWS), st.integers(1, PIECE), st.integers(1, COLUMNS)),
        min_size=PIECES,
        max_size=PIECES,
    ),
    is_even=st.booleans(),
    iterations=st.integers(1, PIECES),
)
def test_cut_pieces(kind: Any, cuts: list[tuple[int, ...]], is_even: bool, iterations: int) -> None:
    if is_even:
        cuts = [cuts[0]] * PIECES
    agree(PROGRAMS[kind], **_arguments(kind[0], cuts, iterations))


@pytest.mark.parametrize("first", [False, True])
def test_they_are_one_product(first: bool) -> None:
    (plan,) = plans_of(run_passes(PROGRAMS[FP32, first, False]))
    (group,) = plan.groups
    assert [op.name for op in group.ops] == ["matmul", "matmul_acc"][not first :]
    assert group.run_after.name == "for"


@pytest.mark.parametrize("otherwise", ["a_trans", "b_trans", "dtype"])
def test_a_first_product_of_matrices_that_are_stored_otherwise(otherwise: str) -> None:
    """It has equal extents and strides, but is no piece of the product that follows."""
    b = Build()
    first_type = FP16 if otherwise == "dtype" else BF16
    x, w = b.param("x", tensor([16, 64], BF16)), b.param("w", tensor([64, 16], BF16))
    y, v = b.param("y", tensor([16, 64], first_type)), b.param("v", tensor([16, 16], first_type))
    out = b.param("out", tensor([16, 16]))

    def body(s: Build) -> list[Value]:
        def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=16)
            left, right = t.window(x, [16, 16], [0, at]), t.window(w, [16, 16], [at, 0])
            return [t.op("matmul_acc", acc=acc, lhs=left, rhs=right)]

        left, right = s.window(y, [16, 16], [0, 0]), s.window(v, [16, 16], [0, 0])
        flags = {} if otherwise == "dtype" else {otherwise: True}
        acc = s.op("matmul", lhs=left, rhs=right, out_dtype=FP32, **flags)
        (acc,) = s.for_(4, iteration, [acc])
        return [s.put(out, acc, [0, 0])]

    b.scope(body)
    arguments = {
        "x": numbers(BF16, 16, 64, seed=1),
        "w": numbers(BF16, 64, 16, seed=2),
        "y": numbers(first_type, 16, 64, seed=3),
        "v": numbers(first_type, 16, 16, seed=4),
    }
    agree(b.program(), **arguments, out=np.zeros((16, 16), np.float32))


# --- what must not be deferred --------------------------------------------------------------------


def _left(s: Build, x: Value, at: Any, **limits: Any) -> Value:
    return s.window(x, [ROWS, PIECE], [0, at], **limits)


def _right(s: Build, w: Value, at: Any) -> Value:
    return s.window(w, [PIECE, COLUMNS], [at, 0])


def _operands(b: Build) -> tuple[Value, Value, Value]:
    depth = PIECE * PIECES
    x, w = b.param("x", tensor([ROWS, depth])), b.param("w", tensor([depth, COLUMNS]))
    return x, w, b.param("out", tensor([ROWS, COLUMNS]))


def _matrices() -> dict[str, Any]:
    arguments = _arguments(FP32, [[0] * 3] * PIECES, 0)
    return {name: arguments[name] for name in ("x", "w", "out")}


def test_a_cut_product_beside_a_whole_one() -> None:
    """Tasks with whole matrices may be batched; the partial product is done once they continue."""
    b = Build()
    x, w, out = _operands(b)
    other = b.param("other", tensor([ROWS, COLUMNS]))

    def body(s: Build) -> list[Value]:
        def iteration(t: Build, i: Value, whole: Value, cut: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=PIECE)
            right, few = _right(t, w, at), _left(t, x, at, valid_shape=[5, PIECE])
            return [
                t.op("matmul_acc", acc=whole, lhs=_left(t, x, at), rhs=right),
                t.op("matmul_acc", acc=cut, lhs=few, rhs=right),
            ]

        lefts = _left(s, x, 0), _left(s, x, 0, valid_shape=[5, PIECE])
        start = [s.op("matmul", lhs=a, rhs=_right(s, w, 0), out_dtype=FP32) for a in lefts]
        whole, cut = s.for_(PIECES, iteration, start, start=1)
        return [s.put(out, whole, [0, 0]), s.put(other, cut, [0, 0])]

    b.scope(body)
    agree(b.program(), **_matrices(), other=np.zeros((ROWS, COLUMNS), np.float32))


def test_a_chain_without_iterations_after_a_cut_one() -> None:
    """The second run has no partial pieces, because nothing is added."""
    b = Build()
    x, w, out = _operands(b)
    iterations = b.param("iterations", tensor([2], INT32))

    def body(s: Build) -> list[Value]:
        def piece(t: Build, i: Value, acc: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=PIECE)
            rows = t.op("read", x=iterations, indices=[0])
            left = _left(t, x, at, valid_shape=[rows, PIECE])
            return [t.op("matmul_acc", acc=acc, lhs=left, rhs=_right(t, w, at))]

        def chain(t: Build, i: Value, _: Value) -> list[Value]:
            acc = t.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.5)
            return list(t.for_(t.op("read", x=iterations, indices=[i]), piece, [acc]))

        nothing = s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.0)
        (last,) = s.for_(2, chain, [nothing])
        return [s.put(out, last, [0, 0])]

    b.scope(body)
    found = agree(b.program(), **_matrices(), iterations=np.array([3, 0], np.int32))
    assert (found["out"] == 0.5).all()


def test_a_store_before_the_chain_goes_on() -> None:
    """The first product has read the values that the store replaces."""
    b = Build()
    x, w, out = _operands(b)

    def body(s: Build) -> list[Value]:
        acc = s.op("matmul", lhs=_left(s, x, 0), rhs=_right(s, w, 0), out_dtype=FP32)
        twos = s.op("full", shape=[PIECE, COLUMNS], dtype=FP32, value=2.0)
        stored = s.put(w, twos, [0, 0])

        def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=PIECE)
            return [t.op("matmul_acc", acc=acc, lhs=_left(t, x, at), rhs=_right(t, stored, at))]

        (acc,) = s.for_(PIECES, iteration, [acc], start=1)
        return [s.put(out, acc, [0, 0]), stored]

    b.scope(body)
    agree(b.program(), **_matrices())


def test_a_condition_that_looks_at_the_product() -> None:
    b = Build()
    x, w, out = _operands(b)

    def body(s: Build) -> list[Value]:
        def small(t: Build, i: Value, acc: Value) -> list[Value]:
            is_small = t.op("scalar.lt", lhs=t.op("read", x=acc, indices=[0, 0]), rhs=40.0)
            return [t.op("scalar.and", lhs=is_small, rhs=t.op("scalar.lt", lhs=i, rhs=9))]

        def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
            more = t.op("matmul_acc", acc=acc, lhs=_left(t, x, 0), rhs=_right(t, w, 0))
            return [t.op("scalar.add", lhs=i, rhs=1), more]

        acc = s.op("full", shape=[ROWS, COLUMNS], dtype=FP32, value=0.0)
        zero = s.op("scalar.add", lhs=s.op("get_block_idx"), rhs=0)
        _, acc = s.while_(small, iteration, [zero, acc])
        return [s.put(out, acc, [0, 0])]

    b.scope(body)
    ones = {name: np.ones_like(a) for name, a in _matrices().items()}
    found = agree(b.program(), **ones)
    assert (found["out"] == 48).all()


@pytest.mark.parametrize("outer", [0, 2])
@pytest.mark.parametrize("is_inner_reached", [False, True])
def test_a_product_before_nested_loops(outer: int, is_inner_reached: bool) -> None:
    """The inner loop continues the chain, but may not be executed."""
    b = Build()
    x, w, out = _operands(b)
    iterations = b.param("iterations", tensor([2], INT32))

    def body(s: Build) -> list[Value]:
        def piece(t: Build, i: Value, acc: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=PIECE)
            return [t.op("matmul_acc", acc=acc, lhs=_left(t, x, at), rhs=_right(t, w, at))]

        def always(t: Build, _: Value, acc: Value) -> list[Value]:
            return list(t.for_(PIECES, piece, [acc], start=1))

        def perhaps(t: Build, _: Value, acc: Value) -> list[Value]:
            reached = t.op("scalar.gt", lhs=t.op("read", x=iterations, indices=[1]), rhs=0)
            twice = t.op("mul", lhs=acc, rhs=2.0)
            return list(t.if_(reached, lambda u: always(u, _, acc), lambda _: [twice]))

        def chain(inner: Any) -> Value:
            acc = s.op("matmul", lhs=_left(s, x, 0), rhs=_right(s, w, 0), out_dtype=FP32)
            return s.for_(s.op("read", x=iterations, indices=[0]), inner, [acc])[0]

        return [s.put(out, s.op("sub", lhs=chain(always), rhs=chain(perhaps)), [0, 0])]

    b.scope(body)
    agree(b.program(), **_matrices(), iterations=np.array([outer, is_inner_reached], np.int32))


# --- chains that go on from a tile ---------------------------------------------------------------


def _from_tile(start: str) -> Program:
    """out += x @ w in pieces, continuing from a tile that is in memory before the loop."""
    b = Build()
    x, w, out = _operands(b)
    other = b.param("other", tensor([ROWS, COLUMNS]))
    spilled: list[Value] = []
    if start == "spilled":
        spilled += b.scope(
            lambda s: [s.op("add", lhs=s.window(out, [ROWS, COLUMNS], [0, 0]), rhs=1.0)]
        )

    def body(s: Build) -> list[Value]:
        def iteration(t: Build, i: Value, acc: Value) -> list[Value]:
            at = t.op("scalar.mul", lhs=i, rhs=PIECE)
            return [t.op("matmul_acc", acc=acc, lhs=_left(t, x, at), rhs=_right(t, w, at))]

        def two(t: Build, i: Value, acc: Value, second: Value) -> list[Value]:
            return [*iteration(t, i, acc), *iteration(t, i, second)]

        source = {"other": other, "spilled": spilled[0] if spilled else out}.get(start, out)
        acc = s.window(source, [ROWS, COLUMNS], [0, 0])
        if start == "two":
            fresh = s.op("matmul", lhs=_left(s, x, 0), rhs=_right(s, w, 0), out_dtype=FP32)
            acc, second = s.for_(PIECES, two, [acc, fresh])
            return [s.put(out, acc, [0, 0]), s.put(other, second, [0, 0])]
        (acc,) = s.for_(PIECES, iteration, [acc])
        return [s.put(out, acc, [0, 0])]

    b.scope(body)
    return b.program()


@pytest.mark.parametrize("start", ["out", "other", "spilled", "two"])
def test_a_chain_that_goes_on_from_a_tile(start: str) -> None:
    """The kernel does not return for its products: it would fill the accumulator again."""
    other = numbers(FP32, ROWS, COLUMNS, seed=5, special=False)
    agree(_from_tile(start), **_matrices(), other=other)
    assert not hands_over(run_passes(_from_tile(start)))
