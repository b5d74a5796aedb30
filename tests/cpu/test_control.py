"""The control program: loops, branches, windows, tasks and their memory."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.differential import agree
from tests.interp.build import FP32, Build, index, kernel, ramp, tensor

from tilelet import dtypes
from tilelet.dtypes import INT32
from tilelet.ir.core import Direction, Value
from tilelet.ir.types import TASK_ID, ScalarType


def _add_one(b: Build, x: Value, rows: object = 0, **options: object) -> Value:
    """A task that adds 1 to four rows of `x`, in place."""

    def body(s: Build) -> list[Value]:
        tile = s.window(x, [4, 8], [rows, 0])
        return [s.put(x, s.op("add", lhs=tile, rhs=1.0), [rows, 0])]

    return b.scope(body, **options)[0]


def test_loop_over_tasks() -> None:
    b = Build()
    x = b.param("x", tensor([16, 8]))
    b.for_(16, lambda s, i, y: [_add_one(s, y, i)], [x], step=4)
    agree(b.program(), x=ramp(16, 8))


@pytest.mark.parametrize("stop", [0, 1, 5])
def test_carried_memory_is_made_anew_in_every_iteration(stop: int) -> None:
    b = Build()
    x = b.param("x", tensor([4, 8]))
    out = b.param("out", tensor([4, 8]))
    n = b.param("n", index())

    def iteration(s: Build, _: Value, y: Value) -> list[Value]:
        return s.scope(lambda t: [t.op("mul", lhs=t.whole(y), rhs=2.0)])

    (y,) = b.for_(n, iteration, [x])
    b.scope(lambda t: [t.put(out, t.whole(y), [0, 0])])
    agree(b.program(), x=ramp(4, 8), out=np.zeros((4, 8), np.float32), n=stop)


def test_branch_joins_two_tensors() -> None:
    b = Build()
    x, y, out = (b.param(n, tensor([4, 8])) for n in ("x", "y", "out"))
    n = b.param("n", index())
    cond = b.op("scalar.gt", lhs=n, rhs=3)
    (chosen,) = b.if_(cond, lambda s: [x], lambda s: [y])
    b.scope(lambda t: [t.put(out, t.whole(chosen), [0, 0])])
    program = b.program()
    for value in (3, 4):
        agree(program, x=ramp(4, 8), y=-ramp(4, 8), out=np.zeros((4, 8), np.float32), n=value)


def test_while_counts_down() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8]))
    n = b.param("n", index())

    def body(s: Build, left: Value) -> list[Value]:
        _add_one(s, x)
        return [s.op("scalar.sub", lhs=left, rhs=1)]

    b.while_(lambda s, left: [s.op("scalar.gt", lhs=left, rhs=0)], body, [n])
    agree(b.program(), x=ramp(4, 8), n=5)


def test_reading_waits_for_the_task_that_writes() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8], INT32))
    y = b.param("y", tensor([4, 8]))

    def double(s: Build) -> list[Value]:
        return [s.put(x, s.op("mul", lhs=s.whole(x), rhs=2), [0, 0])]

    (x2,) = b.scope(double)
    n = b.op("read", x=x2, indices=[0, 1])
    b.for_(n, lambda s, i, v: [_add_one(s, v)], [y])
    b.op("write", x=x2, indices=[3, 7], value=n)
    agree(b.program(), x=ramp(4, 8, dtype=INT32), y=ramp(4, 8))


def test_views_of_memory() -> None:
    b = Build()
    x = b.param("x", tensor([8, 12]))
    out = b.param("out", tensor([6, 4]))
    part = b.window(x, [4, 6], [2, 3])
    turned = b.op("transpose", x=part, axis1=0, axis2=1)
    b.scope(lambda t: [t.put(out, t.op("exp", x=t.op("neg", x=t.whole(turned))), [0, 0])])
    flat = b.op("reshape", x=out, shape=[2, 12])
    b.scope(lambda t: [t.put(flat, t.op("add", lhs=t.whole(flat), rhs=1.0), [0, 0])])
    agree(b.program(), ulp=2, x=ramp(8, 12) / 50, out=np.zeros((6, 4), np.float32))


def test_partly_valid_window_in_the_control_program() -> None:
    b = Build()
    x = b.param("x", tensor([8, 12]))
    out = b.param("out", tensor([8, 12]))
    n = b.param("n", index())
    part = b.window(x, [8, 12], [2, 3], valid_shape=[n, 5])
    b.scope(lambda t: [t.put(out, t.op("add", lhs=t.whole(part), rhs=1.0), [0, 0])])
    program = b.program()
    for value in (0, 4, 6, 7, 9):
        agree(program, x=ramp(8, 12), out=np.zeros((8, 12), np.float32), n=value)


def test_arguments_that_share_memory() -> None:
    """Tasks are ordered as if there were one parameter."""
    b = Build()
    x, y = b.param("x", tensor([4, 8])), b.param("y", tensor([4, 8]))

    def iteration(s: Build, _: Value) -> list[Value]:
        s.scope(lambda t: [t.put(y, t.op("mul", lhs=t.whole(x), rhs=1.5), [0, 0])])
        s.scope(lambda t: [t.put(x, t.op("add", lhs=t.whole(y), rhs=1.0), [0, 0])])
        return []

    b.for_(40, iteration)
    from tilelet.cpu.run.engine import CpuEngine
    from tilelet.interp.interpreter import Interpreter
    from tilelet.passes.pipeline import run_passes

    program = run_passes(b.program())
    results = []
    for engine in (Interpreter(), CpuEngine()):
        shared = ramp(4, 8)
        engine.run(program, {"x": shared, "y": shared})
        results.append(shared)
    np.testing.assert_array_equal(*results)


def test_strided_and_reversed_arguments() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([4, 8]))
    b.scope(lambda t: [t.put(out, t.op("add", lhs=t.whole(x), rhs=1.0), [0, 0])])
    from tilelet.cpu.run.engine import CpuEngine
    from tilelet.passes.pipeline import run_passes

    memory = np.zeros((8, 16), np.float32)
    given = ramp(8, 4).T[:, ::-1]
    CpuEngine().run(run_passes(b.program()), {"x": given, "out": memory[::-2, 1::2]})
    expected = np.zeros((8, 16), np.float32)
    expected[::-2, 1::2] = given + 1
    np.testing.assert_array_equal(memory, expected)


def test_blocks_predicates_and_dependencies() -> None:
    k = kernel()
    y = k.param("y", tensor([8, 8]))
    at = k.op("get_block_idx")
    row = k.op("scalar.mul", lhs=at, rhs=2)
    tile = k.window(y, [2, 8], [row, 0])
    stored = k.put(y, k.op("add", lhs=tile, rhs=1.0), [row, 0])
    body = k.function("step", stored, directions=[Direction.InOut])
    b = Build()
    x = b.param("x", tensor([8, 8]))
    flag = b.param("flag", tensor([2], INT32))
    tids = b.op("array.create", length=2, dtype=dtypes.TASK_ID)
    x1, tid = b.call(body, [x], count=4, task_id=True)
    tids = b.op("array.set", array=tids, index=1, value=tid)
    join = b.op("system.task_dummy", deps=[tids])
    (x2,) = b.call(body, [x1], count=3, deps=(join,), predicate=(flag, (0,), "==", 1))
    b.call(body, [x2], count=2, predicate=(flag, (1,), ">", 5))
    assert tid.type == TASK_ID == ScalarType(dtypes.TASK_ID)
    agree(b.program(kernels=[body]), x=ramp(8, 8), flag=np.array([1, 5], np.int32))


def test_many_tasks_and_little_memory() -> None:
    """There are more tasks than may be in flight, each with its own memory, which is reused."""
    b = Build()
    x = b.param("x", tensor([64, 64]))

    def iteration(s: Build, _: Value, y: Value) -> list[Value]:
        (twice,) = s.scope(lambda t: [t.op("mul", lhs=t.whole(y), rhs=2.0)])
        return s.scope(lambda t: [t.put(y, t.op("mul", lhs=t.whole(twice), rhs=0.5), [0, 0])])

    b.for_(3000, iteration, [x])
    agree(b.program(), x=ramp(64, 64))


def test_scalars_wrap_and_round() -> None:
    """Integer and float scalars, computed by the control program and by a kernel."""
    b = Build()
    n = b.param("n", ScalarType(INT32))
    f = b.param("f", ScalarType(FP32))
    ints, floats = b.param("ints", tensor([12], INT32)), b.param("floats", tensor([6]))

    def numbers(s: Build) -> list[Value]:
        made = [
            s.op(f"scalar.{o}", lhs=n, rhs=7)
            for o in ("add", "sub", "mul", "floordiv", "mod", "min", "max")
        ]
        made += [
            s.op("scalar.shl", lhs=n, rhs=30),
            s.op("scalar.shr", lhs=n, rhs=2),
            s.op("scalar.neg", x=n),
        ]
        made += [s.op("scalar.invert", x=n), s.op("scalar.cast", x=f, target_type=INT32)]
        for i, v in enumerate(made):
            s.op("write", x=ints, indices=[i], value=v)
        real = [
            s.op(f"scalar.{o}", lhs=f, rhs=0.1)
            for o in ("add", "sub", "mul", "truediv", "min", "max")
        ]
        for i, v in enumerate(real):
            s.op("write", x=floats, indices=[i], value=v)
        return []

    numbers(b)
    b.scope(numbers)
    program = b.program()
    for i, v in ((-2147483648, 0.3), (-15, -7.5), (2147483647, 1e30)):
        agree(program, n=i, f=v, ints=np.zeros(12, np.int32), floats=np.zeros(6, np.float32))


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize(
    ("types", "values", "equal", "least", "quotient"),
    [
        (("UINT64", "FP32"), (5, 5.5), 0, 5.0, 5 / 5.5),
        (("UINT64", "FP32"), (2**64 - 1, 5.5), 0, 5.5, 2.0**64 / 5.5),
        (("FP32", "UINT64"), (5.5, 5), 0, 5.0, 5.5 / 5),
        (("INT64", "FP32"), (2**53 + 1, 2.0**53), 1, 2.0**53, 1.0),
        (("INT64", "INT64"), (2**60 + 2**36 + 1, 1), 0, 1.0, 2.0**60 + 2.0**37),
        (("UINT64", "INT64"), (2**64 - 1, -1), 0, -1.0, -(2.0**64)),
        (("UINT64", "UINT64"), (2**64 - 1, 2**63), 0, 2.0**63, 2.0),
    ],
)
def test_scalars_of_two_types(
    types: tuple[str, str],
    values: tuple[float, float],
    equal: int,
    least: float,
    quotient: float,
) -> None:
    """A comparison converts an integer to a double beside a float; a quotient rounds once."""
    b = Build()
    lhs, rhs = (
        b.param(name, ScalarType(getattr(dtypes, dtype))) for name, dtype in zip("ab", types)
    )
    holds, floats = b.param("holds", tensor([6], INT32)), b.param("floats", tensor([3]))

    def numbers(s: Build) -> list[Value]:
        for i, name in enumerate(_COMPARISONS):
            found = s.op(f"scalar.{name}", lhs=lhs, rhs=rhs)
            s.op(
                "write", x=holds, indices=[i], value=s.op("scalar.cast", x=found, target_type=INT32)
            )
        for i, name in enumerate(("min", "max", "truediv")):
            real = s.op(f"scalar.{name}", lhs=lhs, rhs=rhs)
            s.op(
                "write", x=floats, indices=[i], value=s.op("scalar.cast", x=real, target_type=FP32)
            )
        return []

    numbers(b)
    b.scope(numbers)
    given = {"holds": np.zeros(6, np.int32), "floats": np.zeros(3, np.float32)}
    found = agree(b.program(), a=values[0], b=values[1], **given)
    assert found["holds"][0] == equal
    assert found["floats"][0] == np.float32(least)
    assert found["floats"][2] == np.float32(quotient)
