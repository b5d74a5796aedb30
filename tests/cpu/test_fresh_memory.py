"""Fresh tensors are poisoned, unless the first task that uses one writes all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.cpu.differential import agree
from tests.interp.build import Build, kernel, ramp, tensor

from tilelet.cpu.emit.program import emit_program
from tilelet.dtypes import INT32
from tilelet.ir.core import Direction, Function, Program, Value
from tilelet.passes.pipeline import run_passes

SHAPE = [4, 8]
Store = Callable[[Build, Value, Value], Value]


def _whole(k: Build, tile: Value, fresh: Value) -> Value:
    return k.put(fresh, k.op("add", lhs=tile, rhs=1.0), [0, 0])


def _part(k: Build, tile: Value, fresh: Value) -> Value:
    return k.put(fresh, k.window(tile, [2, 8], [0, 0]), [1, 0])


def _two_parts(k: Build, tile: Value, fresh: Value) -> Value:
    return k.put(_part(k, tile, fresh), k.window(tile, [2, 8], [0, 0]), [0, 0])


def _valid_part(k: Build, tile: Value, fresh: Value) -> Value:
    return k.put(fresh, k.op("set_validshape", x=k.op("neg", x=tile), rows=3, cols=8), [0, 0])


def _read_first(k: Build, tile: Value, fresh: Value) -> Value:
    return k.put(fresh, k.op("add", lhs=tile, rhs=k.whole(fresh)), [0, 0])


def _read_later(k: Build, tile: Value, fresh: Value) -> Value:
    stored = _whole(k, tile, fresh)
    return k.put(stored, k.op("mul", lhs=k.whole(stored), rhs=2.0), [0, 0])


def _in_a_branch(k: Build, tile: Value, fresh: Value) -> Value:
    some = k.op("scalar.gt", lhs=k.op("get_block_idx"), rhs=0)
    return k.if_(some, lambda s: [_whole(s, tile, fresh)], lambda s: [fresh])[0]


def _block(k: Build, tile: Value, fresh: Value) -> Value:
    row = k.op("scalar.mul", lhs=k.op("get_block_idx"), rhs=2)
    return k.put(fresh, k.window(tile, [2, 8], [0, 0]), [row, 0])


def _kernel(store: Store, direction: Direction = Direction.Out) -> Function:
    k = kernel()
    x, fresh = k.param("x", tensor(SHAPE)), k.param("fresh", tensor(SHAPE))
    stored = store(k, k.whole(x), fresh)
    return k.function(f"fill{store.__name__}", stored, directions=[Direction.In, direction])


Use = Callable[[Build, Function, Value, Value, Value], Value]


def _call(b: Build, fill: Function, x: Value, fresh: Value, _: Value) -> Value:
    return b.call(fill, [x, fresh])[0]


def _skipped(b: Build, fill: Function, x: Value, fresh: Value, none: Value) -> Value:
    return b.call(fill, [x, fresh], predicate=(none, (0,), "==", 1))[0]


def _in_blocks(b: Build, fill: Function, x: Value, fresh: Value, _: Value) -> Value:
    return b.call(fill, [x, fresh], count=2)[0]


def _in_no_iteration(b: Build, fill: Function, x: Value, fresh: Value, none: Value) -> Value:
    iterations = b.op("read", x=none, indices=[0])
    return b.for_(iterations, lambda s, _, y: [s.call(fill, [x, y])[0]], [fresh])[0]


def _seen_before(b: Build, fill: Function, x: Value, fresh: Value, _: Value) -> Value:
    b.scope(lambda s: [s.put(x, s.whole(fresh), [0, 0])])
    return _call(b, fill, x, fresh, _)


def _program(fill: Function, use: Use) -> Program:
    b = Build()
    x, out = b.param("x", tensor(SHAPE)), b.param("out", tensor(SHAPE))
    none = b.param("none", tensor([1], INT32))
    fresh = b.op("create_tensor", shape=SHAPE, dtype=x.type.dtype)
    filled = use(b, fill, x, fresh, none)
    b.scope(lambda s: [s.put(out, s.whole(filled), [0, 0])])
    return b.program(kernels=[fill])


@pytest.mark.parametrize(
    ("store", "direction", "use", "is_left_as_it_is"),
    [
        (_whole, Direction.Out, _call, True),
        (_read_later, Direction.InOut, _call, False),
        (_part, Direction.Out, _call, False),
        (_two_parts, Direction.Out, _call, False),
        (_valid_part, Direction.Out, _call, False),
        (_read_first, Direction.InOut, _call, False),
        (_in_a_branch, Direction.Out, _call, False),
        (_block, Direction.Out, _in_blocks, False),
        (_whole, Direction.Out, _skipped, False),
        (_whole, Direction.Out, _in_no_iteration, False),
        (_whole, Direction.Out, _seen_before, False),
    ],
)
def test_what_nobody_writes_is_poison(
    store: Store, direction: Direction, use: Use, is_left_as_it_is: bool
) -> None:
    program = _program(_kernel(store, direction), use)
    text = "".join(emit_program(run_passes(program)).units)
    assert ("tl_allocate(" in text) is is_left_as_it_is
    agree(
        program,
        x=ramp(*SHAPE),
        out=np.zeros(SHAPE, np.float32),
        none=np.zeros(1, np.int32),
    )


def test_memory_that_is_used_again_holds_nothing_old() -> None:
    """Tensors of a loop reuse each other's memory: half of each is never written."""
    b = Build()
    out = b.param("out", tensor([64, 8]))
    half, whole = _kernel(_part), _kernel(_whole)
    x = b.param("x", tensor(SHAPE))

    def iteration(s: Build, i: Value, y: Value) -> list[Value]:
        full = s.call(whole, [x, s.op("create_tensor", shape=SHAPE, dtype=x.type.dtype)])[0]
        part = s.call(half, [full, s.op("create_tensor", shape=SHAPE, dtype=x.type.dtype)])[0]
        row = s.op("scalar.mul", lhs=i, rhs=4)
        return s.scope(lambda t: [t.put(y, t.whole(part), [row, 0])])

    b.for_(16, iteration, [out])
    program = b.program(kernels=[half, whole])
    found = agree(program, x=ramp(*SHAPE), out=np.zeros((64, 8), np.float32))
    assert np.isnan(found["out"]).sum() == 16 * 2 * 8
