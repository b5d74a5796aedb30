"""Parallel blocks, and thousands of windows of one buffer: every conflict is ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import agree, assert_same, numbers
from tests.cpu.test_schedules import IN_ORDER, check_schedules
from tests.interp.build import Build, index, kernel, ramp, tensor

from tilelet.dtypes import FP32, INT32
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Direction, Function, Program, Value
from tilelet.passes.pipeline import run_passes
from tilelet.syntax.enums import AtomicType

SCHEDULES = [(t, s) for t in (1, 2, 4, 8) for s in (IN_ORDER, 0, 1, 2, 3, 4)]
ROWS = 64


def check(program: Program, **arguments: Any) -> None:
    """All schedules give the interpreter's results."""
    lowered = run_passes(program)
    found = check_schedules(lowered, arguments, SCHEDULES)
    Interpreter().run(lowered, arguments)
    for name, array in arguments.items():
        if isinstance(array, np.ndarray):
            assert_same(found[name], array, name)


def _blocks(body: Callable[[Build, Value, Value], Value], name: str = "blocks") -> Function:
    """A kernel whose blocks change rows of its tensor."""
    k = kernel()
    x = k.param("x", tensor([ROWS, 8]))
    changed = body(k, x, k.op("get_block_idx"))
    return k.function(name, changed, directions=[Direction.InOut])


def _overlapping(k: Build, x: Value, block: Value) -> Value:
    """Three rows, two of which the next block changes again."""
    tile = k.window(x, [3, 8], [block, 0])
    return k.put(x, k.op("add", lhs=k.op("mul", lhs=tile, rhs=0.5), rhs=1.0), [block, 0])


def _adding(k: Build, x: Value, block: Value) -> Value:
    """All blocks add to the same rows: the sum depends on their order."""
    tile = k.window(x, [2, 8], [block, 0])
    return k.put(x, k.op("mul", lhs=tile, rhs=1.1), [ROWS - 2, 0], atomic=AtomicType.Add)


def _backwards(k: Build, x: Value, block: Value) -> Value:
    """A row that another block has changed, or will change."""
    tile = k.window(x, [1, 8], [k.op("scalar.sub", lhs=ROWS - 1, rhs=block), 0])
    return k.put(x, k.op("add", lhs=tile, rhs=0.5), [block, 0])


@pytest.mark.parametrize("body", [_overlapping, _adding, _backwards])
@pytest.mark.parametrize("count", [1, 2, 40, 60])
def test_blocks_that_touch_the_same_rows(body: Any, count: int) -> None:
    work = _blocks(body)
    b = Build()
    x = b.param("x", tensor([ROWS, 8]))
    (y,) = b.call(work, [x], count=count)
    b.call(work, [y], count=count)
    check(b.program(kernels=[work]), x=numbers(FP32, ROWS, 8))


def test_more_blocks_than_tasks_under_way() -> None:
    k = kernel()
    x = k.param("x", tensor([3000, 8]))
    block = k.op("get_block_idx")
    tile = k.window(x, [1, 8], [block, 0])
    count = k.op("scalar.cast", x=k.op("get_block_num"), target_type=FP32)
    work = k.function(
        "work",
        k.put(x, k.op("add", lhs=tile, rhs=count), [block, 0]),
        directions=[Direction.InOut],
    )
    b = Build()
    x = b.param("x", tensor([3000, 8]))
    n = b.param("n", index())
    (y,) = b.call(work, [x], count=n)
    b.scope(lambda s: [s.put(y, s.op("mul", lhs=s.window(y, [3, 8], [1, 0]), rhs=2.0), [0, 0])])
    check(b.program(kernels=[work]), x=ramp(3000, 8), n=3000)


@pytest.mark.parametrize("count", [0, -1])
def test_no_blocks(count: int) -> None:
    work = _blocks(_overlapping)
    b = Build()
    x, n = b.param("x", tensor([ROWS, 8])), b.param("n", index())
    b.call(work, [x], count=n)
    agree(b.program(kernels=[work]), x=ramp(ROWS, 8), n=count)


def test_a_block_that_fails() -> None:
    """Blocks from 62 on exceed the last row; the first of them is reported."""
    work = _blocks(_overlapping)
    b = Build()
    x = b.param("x", tensor([ROWS, 8]))
    b.call(work, [x], count=ROWS)
    agree(b.program(kernels=[work]), x=ramp(ROWS, 8))


def test_explicit_dependencies_on_all_blocks() -> None:
    """Their arguments say nothing (`no_dep`): only the ids keep the tasks in order."""
    k = kernel()
    y, at = k.param("y", tensor([ROWS, 8])), k.op("get_block_idx")
    tile = k.window(y, [1, 8], [at, 0])
    slow = tile
    for _ in range(40):
        slow = k.op("add", lhs=k.op("mul", lhs=slow, rhs=0.75), rhs=1.0)
    many = k.function("many", k.put(y, slow, [at, 0]), directions=[Direction.InOut])
    k = kernel()
    y = k.param("y", tensor([ROWS, 8]))
    halved = k.op("mul", lhs=k.whole(y), rhs=0.5)
    one = k.function("one", k.put(y, halved, [0, 0]), directions=[Direction.InOut])
    b = Build()
    x = b.param("x", tensor([ROWS, 8]))

    def iteration(s: Build, _: Value) -> list[Value]:
        _, first = s.call(many, [x], count=ROWS, task_id=True, no_dep=(0,))
        _, second = s.call(one, [x], deps=(first,), no_dep=(0,), task_id=True)
        _, third = s.call(many, [x], count=ROWS // 2, deps=(second,), no_dep=(0,), task_id=True)
        join = s.op("system.task_dummy", deps=[third])
        s.call(one, [x], deps=(join,))
        return []

    b.for_(5, iteration)
    check(b.program(kernels=[many, one]), x=ramp(ROWS, 8))


SHAPES = [(8, 8), (16, 4), (1, 64), (32, 32), (3, 5), (96, 1), (2, 96)]
SIDE, TURNS = 96, 250


def _windows(in_kernel: bool) -> Program:
    """One task per shape in every iteration: it reads one window and changes another."""
    b = Build()
    x = b.param("x", tensor([SIDE, SIDE]))
    at = b.param("at", tensor([TURNS, len(SHAPES), 4], INT32))

    def iteration(s: Build, i: Value) -> list[Value]:
        for n, shape in enumerate(SHAPES):
            r0, c0, r1, c1 = (s.op("read", x=at, indices=[i, n, k]) for k in range(4))
            views = None
            if not in_kernel:
                views = s.window(x, shape, [r0, c0]), s.window(x, shape, [r1, c1])

            def body(
                t: Build, views: Any = views, shape: Any = shape, o: Any = (r0, c0, r1, c1)
            ) -> list[Value]:
                read = t.whole(views[0]) if views else t.window(x, shape, o[:2])
                old = t.whole(views[1]) if views else t.window(x, shape, o[2:])
                new = t.op("add", lhs=t.op("mul", lhs=read, rhs=0.5), rhs=old)
                target, place = (views[1], (0, 0)) if views else (x, o[2:])
                return [t.put(target, t.op("minimum", lhs=new, rhs=1e3), place)]

            s.scope(body)
        return []

    b.for_(TURNS, iteration)
    return b.program()


@pytest.mark.parametrize("in_kernel", [True, False], ids=["in kernels", "in the control program"])
def test_thousands_of_windows_of_one_buffer(in_kernel: bool) -> None:
    rng = np.random.default_rng(4)
    places = np.empty((TURNS, len(SHAPES), 4), np.int32)
    for n, shape in enumerate(SHAPES):
        for k in range(4):
            places[:, n, k] = rng.integers(0, SIDE - shape[k % 2] + 1, TURNS)
    check(_windows(in_kernel), x=numbers(FP32, SIDE, SIDE, special=False), at=places)
