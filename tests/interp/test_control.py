"""Control flow, scopes, calls, tasks."""

from __future__ import annotations

import numpy as np
import pytest
from tests.interp.build import FP32, Build, index, kernel, ramp, run, tensor

from tilelet import dtypes
from tilelet.diag.catalogue.scopes import ZeroStep
from tilelet.diag.catalogue.windows import BlockCount, DependsOnTaskData, IndexOutOfRange
from tilelet.ir.core import Direction, FunctionKind, Program, Value
from tilelet.ir.types import ArrayType, ScalarType, TileType
from tilelet.tasks.stream import NO_TASK
from tilelet.tasks.window import Window


def counted(program: Program, **arguments) -> dict[str, int]:
    """Return the task counts of a run, which counting alone must give, too."""
    counts = run(program, execute=True, **arguments).tasks.counts()
    assert run(program, execute=False, **arguments).tasks.counts() == counts
    return counts


# Loops and branches


def test_for_carries_values() -> None:
    b = Build()
    (total,) = b.for_(
        10, lambda l, i, s: [l.op("scalar.add", lhs=s, rhs=i)], [b.op("scalar.add", lhs=0, rhs=5)]
    )
    assert run(b.program(total)).returned == (50,)


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [(0, 0, 1, []), (3, 10, 4, [3, 7]), (5, 0, -2, [5, 3, 1]), (4, 2, 1, [])],
)
def test_for_bounds(start, stop, step, expected) -> None:
    b = Build()
    out = b.param("out", tensor([8], dtypes.INT64))

    def body(l, i, n):
        l.op("write", x=out, indices=[n], value=l.op("scalar.cast", x=i, target_type=dtypes.INT64))
        return [l.op("scalar.add", lhs=n, rhs=1)]

    (count,) = b.for_(stop, body, [b.op("scalar.add", lhs=0, rhs=0)], start, step)
    array = np.zeros(8, np.int64)
    assert run(b.program(count), out=array).returned == (len(expected),)
    assert array[: len(expected)].tolist() == expected


def test_run_time_step_of_zero_is_a_fault() -> None:
    b = Build()
    step = b.param("step", index())
    b.for_(4, lambda l, i: [], step=step)
    program = b.program()
    assert run(program, step=1).returned == ()
    with pytest.raises(ZeroStep):
        run(program, step=0)


def test_while() -> None:
    b = Build()
    limit = b.param("limit", index())
    (x,) = b.while_(
        lambda c, x: [c.op("scalar.lt", lhs=x, rhs=limit)],
        lambda l, x: [l.op("scalar.mul", lhs=x, rhs=2)],
        [b.op("scalar.add", lhs=1, rhs=0)],
    )
    program = b.program(x)
    assert run(program, limit=100).returned == (128,)
    assert run(program, limit=0).returned == (1,)


def test_if_joins() -> None:
    b = Build()
    n = b.param("n", index())
    (x,) = b.if_(
        b.op("scalar.gt", lhs=n, rhs=3),
        lambda t: [t.op("scalar.add", lhs=n, rhs=10)],
        lambda e: [7],
    )
    program = b.program(x)
    assert run(program, n=4).returned == (14,)
    assert run(program, n=3).returned == (7,)


def test_undef_is_poison() -> None:
    b = Build()
    x = b.undef(tensor([4]))
    array = b.undef(ArrayType(3, dtypes.TASK_ID))
    number = b.undef(ScalarType(FP32))
    (tile,) = b.scope(lambda s: [s.undef(TileType((2, 8), FP32))])
    returned = run(b.program(x, array, number, tile)).returned
    assert np.isnan(returned[0].array).all()
    assert returned[1] == (NO_TASK,) * 3
    assert returned[2] == 0.0
    assert np.isnan(returned[3].array).all()


# Scopes


def test_scope_is_one_task_per_execution() -> None:
    b = Build()
    x, out = b.param("x", tensor([64, 8])), b.param("out", tensor([64, 8]))

    def body(l, i, o):
        row = l.op("scalar.mul", lhs=i, rhs=16)

        def work(s):
            return [s.put(o, s.op("exp", x=s.window(x, [16, 8], [row, 0])), [row, 0])]

        return l.scope(work, hint="exp_rows")

    (o,) = b.for_(4, body, [out])
    program = b.program(o)
    data, result = ramp(64, 8) / 512, np.zeros((64, 8), np.float32)
    assert counted(program, x=data, out=result) == {"exp_rows": 4}
    np.testing.assert_allclose(result, np.exp(data), rtol=1e-6)


def test_scope_task_lists_what_it_takes() -> None:
    b = Build()
    x, out = b.param("x", tensor([32, 8])), b.param("out", tensor([32, 8]))
    n = b.param("n", index())
    view = b.window(x, [16, 8], [16, 0])

    def work(s):
        tile = s.op("exp", x=s.whole(view))
        return [s.put(out, tile, [n, 0]), tile]

    b.scope(work)
    program = b.program()
    arguments = {"x": ramp(32, 8), "out": np.zeros((32, 8), np.float32), "n": 3}
    (task,) = run(program, **arguments).tasks
    (same,) = run(program, execute=False, **arguments).tasks
    assert same.directions == task.directions
    assert [w.shape for w, _ in same.windows] == [w.shape for w, _ in task.windows]
    (window, how), (target, writes), (scalar, _), (spilled, fresh) = task.args
    assert (window.shape, window.offset, how) == ((16, 8), 128, Direction.In)
    assert (target.name, target.buffer.origin) == ("out", "param")
    assert writes is Direction.Out
    assert scalar == 3
    assert (spilled.buffer.origin, fresh) == ("temp", Direction.Out)
    assert all(w.buffer.data is None for w, _ in task.windows), "records keep no memory"
    assert task.loc.line > 0


def test_kernel_names_are_those_of_outlining() -> None:
    b = Build()
    for hint in (None, "k", None, "k"):
        b.scope(lambda s: [], hint=hint)
    assert run(b.program()).tasks.counts() == {
        "main_incore_0": 1,
        "k": 1,
        "main_incore_1": 1,
        "k_1": 1,
    }


def test_grouping_scopes_are_no_tasks() -> None:
    b = Build()
    n = b.op("scalar.add", lhs=1, rhs=1)
    for kind in ("chunked", "cluster", "runtime"):
        (n,) = b.scope(lambda s, n=n: [s.op("scalar.mul", lhs=n, rhs=3)], kind=kind)
    execution = run(b.program(n))
    assert execution.returned == (54,)
    assert len(execution.tasks) == 0


def test_tasks_know_their_manual_scope() -> None:
    b = Build()
    b.scope(lambda s: [], hint="before")
    b.scope(lambda m: m.scope(lambda s: [], hint="inside"), kind="manual")
    b.scope(lambda s: [], hint="after")
    flags = {t.kernel: t.manual for t in run(b.program()).tasks}
    assert flags == {"before": False, "inside": True, "after": False}


def test_spill_is_fresh_memory_each_time() -> None:
    b = Build()
    x = b.param("x", tensor([2, 8]))
    out = b.param("out", tensor([4, 2, 8]))

    def body(l, i, last):
        (spilled,) = l.scope(lambda s: [s.op("add", lhs=s.whole(last), rhs=1.0)], hint="produce")

        def consume(s):
            s.put(out, s.whole(spilled), [i, 0, 0])
            return []

        l.scope(consume, hint="consume")
        return [spilled]

    (last,) = b.for_(4, body, [x])
    data, result = ramp(2, 8), np.zeros((4, 2, 8), np.float32)
    execution = run(b.program(last), x=data, out=result)
    for i in range(4):
        np.testing.assert_array_equal(result[i], ramp(2, 8) + i + 1)
    np.testing.assert_array_equal(data, ramp(2, 8))
    written = [t.windows[-1][0].buffer.id for t in execution.tasks if t.kernel == "produce"]
    assert len(set(written)) == 4
    assert execution.returned[0].buffer.id == written[-1]


def test_a_tile_handed_on_twice_is_spilled_once() -> None:
    b = Build()
    x = b.param("x", tensor([2, 8]))

    def work(s):
        tile = s.op("exp", x=s.whole(x))
        return [tile, x, tile]

    program = b.program(*b.scope(work))
    for execute in (True, False):
        execution = run(program, execute=execute, x=ramp(2, 8))
        first, _, second = execution.returned
        assert first.buffer.id == second.buffer.id
        assert [w.name for w, _ in execution.tasks[0].windows] == ["x", "exp"]


def test_spmd_runs_every_block_in_one_task() -> None:
    b = Build()
    out, n = b.param("out", tensor([8, 8])), b.param("n", index())

    def work(s, block):
        blocks = s.op("get_block_num")
        value = s.op("scalar.add", lhs=block, rhs=s.op("scalar.mul", lhs=blocks, rhs=10))
        tile = s.op(
            "expands", target=s.op("full", shape=[1, 8], dtype=FP32, value=0.0), scalar=value
        )
        return [s.put(out, tile, [block, 0])]

    b.scope(work, kind="spmd", count=n, hint="blocks")
    program = b.program()
    result = np.zeros((8, 8), np.float32)
    assert counted(program, out=result, n=8) == {"blocks": 1}
    np.testing.assert_array_equal(result[:, 0], np.arange(8) + 80)
    (task,) = run(program, out=result, n=5).tasks
    assert task.blocks == 5
    with pytest.raises(BlockCount):
        run(program, out=result, n=0)


# Calls


def doubling():
    """`k(x, out)`: out = 2 x, returned."""
    k = kernel()
    x, out = k.param("x", tensor([2, 8])), k.param("out", tensor([2, 8]))
    return k.function(
        "double",
        k.put(out, k.op("mul", lhs=k.whole(x), rhs=2.0), [0, 0]),
        directions=[Direction.In, Direction.Out],
    )


def test_call_result_is_the_operand() -> None:
    k = doubling()
    b = Build()
    x, out = b.param("x", tensor([2, 8])), b.param("out", tensor([2, 8]))
    (o,) = b.call(k, [x, out])
    (o2,) = b.call(k, [o, b.op("create_tensor", shape=[2, 8], dtype=FP32)])
    program = b.program(o, o2, kernels=[k])
    result = np.zeros((2, 8), np.float32)
    assert counted(program, x=ramp(2, 8), out=result) == {"double": 2}
    np.testing.assert_array_equal(result, ramp(2, 8) * 2)
    for execute in (True, False):
        execution = run(program, execute=execute, x=ramp(2, 8), out=result)
        first, second = execution.tasks
        assert first.values[1].overlaps(second.values[0]), "the dependency is in the windows"
        assert execution.returned[0].buffer.name == "out"
        assert execution.returned[1].buffer.id == second.values[1].buffer.id
        assert first.directions == (Direction.In, Direction.Out)


def test_call_of_a_function_that_returns_a_tile_spills_it() -> None:
    k = kernel()
    x = k.param("x", tensor([2, 8]))
    f = k.function("fresh", k.op("exp", x=k.whole(x)), x)
    b = Build()
    x = b.param("x", tensor([2, 8]))
    y, same = b.call(f, [x])
    program = b.program(y, same, kernels=[f])
    data = ramp(2, 8) / 16
    y, same = run(program, x=data).returned
    np.testing.assert_allclose(y.array, np.exp(data), rtol=1e-6)
    assert same.array[0, 0] == data[0, 0]
    y, same = run(program, execute=False, x=data).returned
    assert (y.shape, y.buffer.data) == ((2, 8), None)
    assert same.name == "x"


def test_call_of_a_control_function_is_no_task() -> None:
    k = doubling()
    inner = Build()
    x, out = inner.param("x", tensor([2, 8])), inner.param("out", tensor([2, 8]))
    (o,) = inner.call(k, [x, out])
    helper = inner.function("helper", o, kind=FunctionKind.Orchestration)
    b = Build()
    x, out = b.param("x", tensor([2, 8])), b.param("out", tensor([2, 8]))
    (o,) = b.call(helper, [x, out])
    program = b.program(o, kernels=[helper, k])
    assert counted(program, x=ramp(2, 8), out=ramp(2, 8)) == {"double": 1}


def test_spmd_call_gives_each_block_its_index() -> None:
    k = kernel()
    out = k.param("out", tensor([4, 8]))
    block = k.op("get_block_idx")
    row = k.op("expands", target=k.op("full", shape=[1, 8], dtype=FP32, value=0.0), scalar=block)
    f = k.function("rows", k.put(out, row, [block, 0]), directions=[Direction.Out])
    b = Build()
    out = b.param("out", tensor([4, 8]))
    (o,) = b.call(f, [out], count=4)
    result = np.zeros((4, 8), np.float32)
    execution = run(b.program(o, kernels=[f]), out=result)
    assert result[:, 3].tolist() == [0, 1, 2, 3]
    assert [t.blocks for t in execution.tasks] == [4]


def test_view_and_scalar_results_are_known_without_running() -> None:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())

    def work(s):
        s.op("exp", x=s.whole(x))
        view = s.op("reshape", x=x, shape=[8, 4])
        return [view, s.op("scalar.add", lhs=n, rhs=1)]

    view, number = b.scope(work)
    assert isinstance(view, Value)
    window, count = run(b.program(view, number), execute=False, x=ramp(4, 8), n=6).returned
    assert window.shape == (8, 4)
    assert (window.name, count) == ("x", 7)


# Task ids, dependencies, predicates


def test_explicit_dependencies() -> None:
    k = doubling()
    b = Build()
    x, out = b.param("x", tensor([2, 8])), b.param("out", tensor([2, 8]))
    ids = b.op("array.create", length=3, dtype=dtypes.TASK_ID)
    (first,) = b.scope(lambda s: [], task_id=True)
    ids = b.op("array.set", array=ids, index=1, value=first)
    _, second = b.call(k, [x, out], task_id=True, deps=(first, None, first), no_dep=(1,))
    ids = b.op("array.set", array=ids, index=2, value=second)
    joined = b.op("system.task_dummy", deps=[ids])
    nothing = b.op("system.task_invalid")
    b.scope(lambda s: [], deps=(joined, nothing), hint="last")
    got = b.op("array.get", array=ids, index=2)
    execution = run(b.program(got, kernels=[k]), x=ramp(2, 8), out=ramp(2, 8))
    assert [t.deps for t in execution.tasks] == [(), (0,), (0, 1), (2,)]
    assert execution.tasks[1].no_dep == (1,)
    assert execution.returned == (1,)
    # A join is an entry of the stream, but not a task of a kernel.
    assert [t.kernel for t in execution.tasks] == ["main_incore_0", "double", "", "last"]
    assert (len(execution.tasks), execution.tasks.total) == (4, 3)
    assert "" not in execution.tasks.counts()


def test_array_index_is_checked() -> None:
    b = Build()
    n = b.param("n", index())
    ids = b.op("array.create", length=3, dtype=dtypes.INT32)
    b.op("array.get", array=ids, index=n)
    program = b.program()
    assert run(program, n=2).returned == ()
    with pytest.raises(IndexOutOfRange, match="index 3 is outside axis 0"):
        run(program, n=3)


def predicated() -> Program:
    k = doubling()
    b = Build()
    flags = b.param("flags", tensor([4], dtypes.INT32))
    x, out = b.param("x", tensor([2, 8])), b.param("out", tensor([2, 8]))
    o = out
    for i in range(3):
        (o,) = b.call(k, [x, o], predicate=(flags, (i,), ">", 0))
    return b.program(o, kernels=[k])


def test_predicate_decides_whether_a_task_runs() -> None:
    out = np.zeros((2, 8), np.float32)
    for flags, ran in (([0, -1, 0, 9], [False] * 3), ([0, 1, 0, 0], [False, True, False])):
        execution = run(predicated(), flags=np.array(flags, np.int32), x=ramp(2, 8), out=out)
        assert [t.ran for t in execution.tasks] == ran
        assert execution.tasks.counts() == {"double": 3}
        np.testing.assert_array_equal(out, ramp(2, 8) * 2 if any(ran) else np.zeros((2, 8)))


def test_predicate_is_known_when_counting_unless_a_task_decides_it() -> None:
    flags = np.array([0, 1, 0, 0], np.int32)
    execution = run(predicated(), execute=False, flags=flags)
    assert [t.ran for t in execution.tasks] == [False, True, False]
    assert [t.ran for t in run(predicated(), execute=False).tasks] == [None] * 3


def test_result_of_a_task_that_did_not_run_is_poison() -> None:
    k = kernel()
    x = k.param("x", tensor([2, 8]))
    f = k.function("fresh", k.op("exp", x=k.whole(x)))
    b = Build()
    flags, x = b.param("flags", tensor([1], dtypes.INT32)), b.param("x", tensor([2, 8]))
    (y,) = b.call(f, [x], predicate=(flags, (0,), "==", 1))
    (z,) = b.scope(lambda s: [s.op("neg", x=s.whole(y))])
    (window,) = run(b.program(z, kernels=[f]), flags=np.zeros(1, np.int32), x=ramp(2, 8)).returned
    assert np.isnan(window.array).all()


# Counting


def reading_program() -> Program:
    """Loops whose trip count is an element of `n`, which a task may have written."""
    b = Build()
    n, touch = b.param("n", tensor([1, 8], dtypes.INT32)), b.param("touch", index())

    def rewrite(t):
        (written,) = t.scope(
            lambda s: [s.put(n, s.op("add", lhs=s.whole(n), rhs=1), [0, 0])], hint="touch"
        )
        return [written]

    (n2,) = b.if_(b.op("scalar.gt", lhs=touch, rhs=0), rewrite, lambda e: [n])
    times = b.op("read", x=n2, indices=[0, 0])
    b.for_(times, lambda l, i: l.scope(lambda s: [], hint="work") and [])
    return b.program()


def test_counting_reads_inputs() -> None:
    n = np.full((1, 8), 5, np.int32)
    assert counted(reading_program(), n=n, touch=0) == {"work": 5}


def test_counting_cannot_know_what_tasks_write() -> None:
    n = np.full((1, 8), 5, np.int32)
    assert run(reading_program(), n=n, touch=1).tasks.counts() == {"touch": 1, "work": 6}
    with pytest.raises(DependsOnTaskData, match="`n`"):
        run(reading_program(), execute=False, n=n, touch=1)


def test_counting_sees_through_kernels_without_directions() -> None:
    k = kernel()
    n = k.param("n", tensor([1, 8], dtypes.INT32))
    bump = k.function("bump", k.put(n, k.op("add", lhs=k.whole(n), rhs=1), [0, 0]))
    b = Build()
    n = b.param("n", tensor([1, 8], dtypes.INT32))
    (n2,) = b.call(bump, [n])
    times = b.op("read", x=n2, indices=[0, 0])
    program = b.program(times, kernels=[bump])
    (task,) = run(program, n=np.zeros((1, 8), np.int32)).tasks
    assert task.directions == (Direction.InOut,)
    with pytest.raises(DependsOnTaskData):
        run(program, execute=False, n=np.zeros((1, 8), np.int32))


def test_counting_touches_no_array() -> None:
    b = Build()
    out = b.param("out", tensor([2, 8]))
    b.scope(lambda s: [s.put(out, s.op("full", shape=[2, 8], dtype=FP32, value=1.0), [0, 0])])
    array = np.zeros((2, 8), np.float32)
    run(b.program(), execute=False, out=array)
    assert not array.any()


def test_counting_follows_the_control_programs_own_memory() -> None:
    b = Build()
    plan = b.op("create_tensor", shape=[4], dtype=dtypes.INT32, init_value=2)
    plan = b.op("write", x=plan, indices=[1], value=3)
    n = b.op(
        "scalar.add", lhs=b.op("read", x=plan, indices=[1]), rhs=b.op("read", x=plan, indices=[0])
    )
    b.for_(n, lambda l, i: l.scope(lambda s: [], hint="work") and [])
    assert counted(b.program()) == {"work": 5}


def test_counting_needs_no_memory() -> None:
    b = Build()
    huge = b.op("create_tensor", shape=[1 << 20, 1 << 20], dtype=FP32)
    view = b.window(huge, [16, 128], [5, 5])
    b.scope(lambda s: [s.op("exp", x=s.whole(view))])
    assert run(b.program(), execute=False).tasks.total == 1


def test_many_tasks_are_cheap() -> None:
    b = Build()
    x = b.param("x", tensor([64, 64]))

    def body(l, i):
        row = l.op("scalar.mod", lhs=i, rhs=64)
        view = l.window(x, [1, 64], [row, 0])
        l.scope(lambda s: [s.whole(view)], hint="row")
        return []

    b.for_(33411, body)
    tasks = run(b.program(), execute=False).tasks
    assert len(tasks) == 33411
    assert isinstance(tasks[0].values[0], Window)
    assert not hasattr(tasks[0], "__dict__")


def test_empty_program() -> None:
    assert run(Build().program()).returned == ()
