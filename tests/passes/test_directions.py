"""In, Out and InOut, inferred from a function's body."""

from __future__ import annotations

from dataclasses import replace

from tests.interp.build import FP32, kernel, tensor
from tests.passes.build import Source, apply

from tilelet.ir.core import Direction, Value
from tilelet.passes.directions import directions
from tilelet.passes.outline import outline
from tilelet.syntax.enums import AtomicType

IN, OUT, INOUT = Direction.In, Direction.Out, Direction.InOut


def test_kernel_and_entry():
    b = Source()
    x, out, state, unused = (b.param(n, tensor([64, 16])) for n in ("x", "out", "state", "unused"))

    def body(c: Source, i: Value, o: Value, t: Value):
        def work(s: Source):
            tile = s.op("add", lhs=s.window(x, [16, 16], [i, 0]), rhs=s.window(t, [16, 16], [i, 0]))
            return [s.put(o, tile, [i, 0]), s.put(t, tile, [i, 0])]

        return c.scope(work)

    done = b.loop([0, 64, 16], body, [out, state])
    after = apply(b.opaque(*done), outline, directions)
    (fn,) = after.kernels
    assert dict(zip([p.name for p in fn.params], fn.directions)) == {
        "x": IN,
        "state": INOUT,
        "out": OUT,
        "i": IN,
    }
    assert after.main.directions == (IN, OUT, INOUT, IN)
    assert after.main.params[3] is unused


def test_reading_through_views_and_windows():
    """A view in the control program reads nothing; a task that gets it does."""
    b = Source()
    x, out = b.param("x", tensor([64, 16])), b.param("out", tensor([64, 16]))
    view = b.op("reshape", x=b.window(x, [16, 16], [16, 0]), shape=[1, 256])
    half = b.window(out, [16, 16], [0, 0])
    b.scope(lambda s: [s.put(half, s.op("reshape", x=s.whole(view), shape=[16, 16]), [0, 0])])
    b.op("tensor.dim", tensor=out, axis=0)
    after = apply(b.opaque(out), outline, directions)
    assert after.main.directions == (IN, OUT)


def test_atomic_add_reads_too():
    b = Source()
    x, out = b.param("x", tensor([16, 16])), b.param("out", tensor([16, 16]))
    (done,) = b.scope(lambda s: [s.put(out, s.whole(x), [0, 0], atomic=AtomicType.Add)])
    after = apply(b.opaque(done), outline, directions)
    assert after.main.directions == (IN, INOUT)


def test_single_elements():
    b = Source()
    x, y = b.param("x", tensor([16, 16])), b.param("y", tensor([16, 16]))
    b.op("write", x=y, indices=[0, 0], value=b.op("read", x=x, indices=[0, 0]))
    assert directions(b.opaque(y)).main.directions == (IN, OUT)


def test_what_is_declared_stands():
    b = Source()
    b.param("x", tensor([16, 16]))
    y = b.param("y", tensor([16, 16]))
    b.op("write", x=y, indices=[0, 0], value=1.0)
    program = b.opaque(y)
    main = replace(program.main, declared=(OUT, INOUT))
    program = program.with_functions({"main": main})
    assert directions(program).main.directions == (OUT, INOUT)


def test_callees_first():
    """The entry precedes its kernel, whose directions were never set."""
    k = kernel()
    p, q = k.param("p", tensor([16, 16])), k.param("q", tensor([16, 16]))
    k.put(q, k.op("exp", x=k.whole(p)), [0, 0])
    fn = k.function("work", q)
    b = Source()
    x, y = b.param("x", tensor([16, 16])), b.op("create_tensor", shape=[16, 16], dtype=FP32)
    b.call(fn, [x, y])
    b.call(fn, [y, x])
    after = apply(b.opaque(x, kernels=[fn]), outline, directions)
    assert after.functions["work"].directions == (IN, OUT)
    assert after.main.directions == (INOUT,)
