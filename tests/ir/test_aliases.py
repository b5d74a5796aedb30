"""Which memory a tensor refers to, and what accesses it."""

from __future__ import annotations

from tests.interp.build import FP32, index, kernel, tensor
from tests.passes.build import Source

from tilelet.analysis.aliases import Aliases, accesses, has_effect, infer_directions
from tilelet.ir.core import Direction, Value, walk
from tilelet.syntax.enums import AtomicType

SHAPE = [16, 16]


def analyzed(b: Source, *kernels) -> Aliases:
    return Aliases(b.block([], []), {k.name: k for k in kernels})


def test_in_place_and_views():
    b = Source()
    x = b.param("x", tensor(SHAPE))
    y = b.op("create_tensor", shape=[4, 16], dtype=FP32)
    view = b.window(x, [4, 16], [8, 0])
    flat = b.op("reshape", x=view, shape=[1, 64])
    put = b.put(x, y, [0, 0])
    into_view = b.op("write", x=view, indices=[0, 0], value=1.0)
    found = analyzed(b)
    assert found.roots(put) == found.roots(flat) == found.roots(into_view) == {x}
    assert found.whole(put) is x
    assert found.whole(y) is y
    assert found.whole(flat) is None
    assert found.end(into_view) is view
    assert found.whole(into_view) is None


def test_a_loop_that_updates_in_place():
    b = Source()
    x = b.param("x", tensor(SHAPE))
    (done,) = b.loop([4], lambda c, i, o: [c.op("write", x=o, indices=[i, 0], value=1.0)], [x])
    assert analyzed(b).whole(done) is x


def test_a_loop_whose_iterations_alternate():
    b = Source()
    x, y = b.param("x", tensor(SHAPE)), b.param("y", tensor(SHAPE))
    p, q = b.loop([4], lambda c, i, p, q: [q, p], [x, y])
    found = analyzed(b)
    assert found.roots(p) == found.roots(q) == {x, y}
    assert found.whole(p) is None


def test_while():
    b = Source()
    n, x = b.param("n", index()), b.param("x", tensor(SHAPE))
    _, done = b.while_(
        lambda c, i, o: [c.scalar("lt", i, 4)],
        lambda c, i, o: [c.scalar("add", i, 1), c.op("write", x=o, indices=[i, 0], value=1.0)],
        [n, x],
    )
    assert analyzed(b).whole(done) is x


def test_a_join_and_an_undefined_value():
    b = Source()
    x, y = b.param("x", tensor(SHAPE)), b.param("y", tensor(SHAPE))
    nothing = b.undef(tensor(SHAPE))
    either, maybe = b.if_(True, lambda _: [x, x], lambda _: [y, nothing])
    found = analyzed(b)
    assert found.roots(either) == {x, y}
    assert found.whole(either) is None
    assert found.roots(maybe) == {x}
    assert found.roots(nothing) == frozenset()


def test_scopes():
    b = Source()
    x = b.param("x", tensor(SHAPE))
    spilled, updated = b.scope(lambda s: [s.op("neg", x=s.whole(x)), s.put(x, s.whole(x), [0, 0])])
    found = analyzed(b)
    assert found.whole(spilled) is spilled
    assert found.whole(updated) is x


def test_calls():
    k = kernel()
    p, q = k.param("p", tensor(SHAPE)), k.param("q", tensor(SHAPE))
    tile = k.op("exp", x=k.whole(p))
    view = k.op("reshape", x=p, shape=[1, 256])
    fn = k.function("work", k.put(q, tile, [0, 0]), tile, view)
    b = Source()
    x, y = b.param("x", tensor(SHAPE)), b.param("y", tensor(SHAPE))
    written, fresh, flat = b.call(fn, [x, y])
    found = analyzed(b, fn)
    assert found.whole(written) is y
    assert found.whole(fresh) is fresh
    assert found.roots(flat) == {x}
    assert found.whole(flat) is None


def test_accesses():
    b = Source()
    x, y = b.param("x", tensor(SHAPE)), b.param("y", tensor(SHAPE))
    view = b.window(x, SHAPE, [0, 0])
    b.op("tensor.dim", tensor=x, axis=0)
    b.put(y, view, [0, 0])
    b.scope(lambda s: [s.put(y, s.whole(x), [0, 0], atomic=AtomicType.Add)])
    touched = [(op.name, *access) for op in walk(b.block([], [])) for access in accesses(op, {})]
    assert touched == [
        ("assemble", y, Direction.Out),
        ("assemble", view, Direction.In),
        ("slice", x, Direction.In),
        ("assemble", y, Direction.InOut),
    ]


def test_effects():
    b = Source(in_scope=True)
    x = b.param("x", tensor(SHAPE))
    tile = b.whole(x)
    inserted = b.put(tile, tile, [0, 0])
    stored = b.put(x, inserted, [0, 0])
    assert [has_effect(op) for op in b.ops] == [False, False, True]
    assert stored.type == x.type


def test_directions_of_a_kernel():
    k = kernel()
    p, q, r = (k.param(n, tensor(SHAPE)) for n in "pqr")

    def body(c, i: Value, o: Value):
        return [c.put(o, c.window(p, [1, 16], [i, 0]), [i, 0])]

    (done,) = k.for_(16, body, [q])
    k.put(r, k.whole(done), [0, 0])
    fn = k.function("work")
    assert infer_directions(fn, {}) == (
        Direction.In,
        Direction.InOut,
        Direction.Out,
    )
