"""Windows, loads, stores, views, elements: aliasing and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.interp.build import FP32, Build, index, ramp, run, tensor

from tilelet import dtypes
from tilelet.diag.catalogue.harness import TooBig
from tilelet.diag.catalogue.ops import ReshapeCount
from tilelet.diag.catalogue.windows import (
    ExtentNotPositive,
    IndexOutOfRange,
    ReshapeNeedsCopy,
    ValidRegionLost,
    ValidShapeTooLarge,
    WindowOutOfRange,
)
from tilelet.dtypes import BF16
from tilelet.ir.core import Program
from tilelet.ir.types import Mem
from tilelet.syntax.enums import AtomicType, PadValue


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


# Aliasing


def test_view_sees_later_writes_and_a_load_does_not() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([3, 8]))
    view = b.window(x, [1, 8], [2, 0])

    def work(s):
        before = s.whole(view)
        changed = s.put(x, s.op("full", shape=[1, 8], dtype=FP32, value=-1.0), [2, 0])
        after = s.whole(view)
        again = s.window(changed, [1, 8], [2, 0])
        o = out
        for i, tile in enumerate((before, after, again)):
            o = s.put(o, tile, [i, 0])
        return [o]

    b.scope(work)
    result, data = zeros(3, 8), ramp(4, 8)
    run(b.program(), x=data, out=result)
    np.testing.assert_array_equal(result[0], ramp(4, 8)[2])
    np.testing.assert_array_equal(result[1:], np.full((2, 8), -1))
    np.testing.assert_array_equal(data[2], np.full(8, -1))


def test_assemble_into_a_tensor_is_in_place_and_its_result_is_the_target() -> None:
    b = Build()
    out = b.param("out", tensor([4, 8]))
    view = b.window(out, [2, 8], [1, 0])
    (v,) = b.scope(
        lambda s: [s.put(view, s.op("full", shape=[1, 8], dtype=FP32, value=3.0), [1, 0])]
    )
    result = zeros(4, 8)
    (window,) = run(b.program(v), out=result).returned
    np.testing.assert_array_equal(result[:, 0], [0, 0, 3, 0])
    assert (window.offset, window.shape) == (8, (2, 8))


def test_assemble_into_a_tile_is_a_new_value() -> None:
    b = Build()
    out = b.param("out", tensor([2, 2, 8]))

    def work(s):
        target = s.op("full", shape=[2, 8], dtype=FP32, value=1.0)
        inserted = s.put(target, s.op("full", shape=[1, 4], dtype=FP32, value=5.0), [1, 2])
        o = s.put(out, target, [0, 0, 0])
        return [s.put(o, inserted, [1, 0, 0])]

    b.scope(work)
    result = zeros(2, 2, 8)
    run(b.program(), out=result)
    assert (result[0] == 1).all()
    assert result[1].tolist() == [[1] * 8, [1, 1, 5, 5, 5, 5, 1, 1]]


def test_control_assemble_copies() -> None:
    b = Build()
    x, out = b.param("x", tensor([2, 8])), b.param("out", tensor([4, 8]))
    part = b.window(x, [1, 8], [1, 0])
    o = b.put(out, part, [3, 0])
    b.put(o, b.window(o, [1, 8], [3, 0]), [0, 0])
    result = zeros(4, 8)
    execution = run(b.program(), x=ramp(2, 8), out=result)
    np.testing.assert_array_equal(result[3], ramp(2, 8)[1])
    np.testing.assert_array_equal(result[0], ramp(2, 8)[1])
    assert len(execution.tasks) == 0


def test_leading_axes_of_one_may_be_missing_in_a_store() -> None:
    b = Build()
    out = b.param("out", tensor([3, 2, 4, 8]))

    def work(s):
        low = s.op("full", shape=[4, 8], dtype=FP32, value=2.0)
        high = s.op("full", shape=[1, 1, 2, 1, 8], dtype=FP32, value=3.0)
        return [s.put(s.put(out, low, [2, 1, 0, 0]), high, [0, 0, 3, 0])]

    b.scope(work)
    result = zeros(3, 2, 4, 8)
    run(b.program(), out=result)
    expected = zeros(3, 2, 4, 8)
    expected[2, 1] = 2
    expected[0, 0:2, 3] = 3
    np.testing.assert_array_equal(result, expected)


def test_atomic_add() -> None:
    b = Build()
    out = b.param("out", tensor([2, 8]))

    def work(s, block):
        one = s.op("full", shape=[1, 8], dtype=FP32, value=1.5)
        return [s.put(out, one, [1, 0], atomic=AtomicType.Add)]

    b.scope(work, kind="spmd", count=4)
    result = zeros(2, 8)
    run(b.program(), out=result)
    assert result[:, 0].tolist() == [0, 6]


def test_load_store_move() -> None:
    b = Build()
    x, out = b.param("x", tensor([8, 16])), b.param("out", tensor([16, 8], BF16))

    def work(s):
        turned = s.op("load", tensor=x, offsets=[0, 0], shapes=[8, 16], target_memory=Mem.Mat,
                      transpose=True)  # fmt: skip
        left = s.op("move", tile=turned, target_memory=Mem.Left)
        eye = s.op("load", tensor=x, offsets=[0, 0], shapes=[8, 8], target_memory=Mem.Mat)
        right = s.op("move", tile=eye, target_memory=Mem.Right)
        acc = s.op("matmul", lhs=left, rhs=right)
        return [s.op("store", tile=acc, offsets=[0, 0], tensor=out)]

    b.scope(work)
    data = (ramp(8, 16) % 5) - 2
    result = np.zeros((16, 8), ml_dtypes.bfloat16)
    run(b.program(), x=data, out=result)
    np.testing.assert_array_equal(result.astype(np.float32), data.T @ data[:, :8])


# Valid regions


def test_load_with_valid_shape_zero_fills_and_store_writes_the_valid_part() -> None:
    b = Build()
    x, out = b.param("x", tensor([8, 8])), b.param("out", tensor([2, 8, 8]))
    rows, cols = b.param("rows", index()), b.param("cols", index())

    def work(s):
        tile = s.window(x, [8, 8], [0, 0], valid_shape=[rows, cols])
        filled = s.op("fillpad", x=tile, pad_value=PadValue.min)
        return [s.put(s.put(out, tile, [0, 0, 0]), filled, [1, 0, 0])]

    b.scope(work)
    result = np.full((2, 8, 8), 9, np.float32)
    run(b.program(), x=ramp(8, 8), out=result, rows=3, cols=5)
    expected = np.full((8, 8), 9, np.float32)
    expected[:3, :5] = ramp(8, 8)[:3, :5]
    np.testing.assert_array_equal(result[0], expected)
    expected = np.full((8, 8), -np.inf, np.float32)
    expected[:3, :5] = ramp(8, 8)[:3, :5]
    np.testing.assert_array_equal(result[1], expected)


def test_spilled_partial_tile_leaves_the_rest_unwritten() -> None:
    b = Build()
    x = b.param("x", tensor([8, 8]))
    (y,) = b.scope(lambda s: [s.op("exp", x=s.window(x, [8, 8], [0, 0], valid_shape=[3, 5]))])
    (window,) = run(b.program(y), x=zeros(8, 8)).returned
    expected = np.full((8, 8), np.nan, np.float32)
    expected[:3, :5] = 1
    np.testing.assert_array_equal(window.array, expected)


def test_view_remembers_its_valid_part_until_it_is_loaded() -> None:
    b = Build()
    x, out = b.param("x", tensor([8, 8])), b.param("out", tensor([4, 1]))
    view = b.window(x, [4, 8], [2, 0], valid_shape=[4, 3])
    turned = b.op("transpose", x=b.op("transpose", x=view, axis1=0, axis2=1), axis1=1, axis2=0)
    part = b.window(turned, [4, 4], [0, 1])
    b.scope(lambda s: [s.put(out, s.op("row_sum", x=s.whole(part)), [0, 0])])
    result = zeros(4, 1)
    run(b.program(), x=ramp(8, 8), out=result)
    np.testing.assert_array_equal(result[:, 0], ramp(8, 8)[2:6, 1:3].sum(axis=1))


def test_set_validshape_on_views_and_tiles() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([2, 4, 1]))
    n = b.param("n", index())
    view = b.op("set_validshape", x=x, rows=4, cols=n)

    def work(s):
        first = s.op("row_sum", x=s.whole(view))
        second = s.op("row_sum", x=s.op("set_validshape", x=s.whole(x), rows=2, cols=8))
        return [s.put(s.put(out, first, [0, 0, 0]), second, [1, 0, 0])]

    b.scope(work)
    program = b.program()
    result = zeros(2, 4, 1)
    run(program, x=ramp(4, 8), out=result, n=3)
    np.testing.assert_array_equal(result[0, :, 0], ramp(4, 8)[:, :3].sum(axis=1))
    np.testing.assert_array_equal(result[1, :, 0], [*ramp(4, 8)[:2].sum(axis=1), 0, 0])
    with pytest.raises(ValidShapeTooLarge, match="valid extent 9 does not fit a tile of extent 8"):
        run(program, x=ramp(4, 8), out=result, n=9)


def test_clamped_window_is_cut_at_the_edge() -> None:
    b = Build()
    x, out = b.param("x", tensor([6, 8])), b.param("out", tensor([2, 4, 8]))
    start = b.param("start", index())
    view = b.window(x, [4, 8], [start, 0], clamp=True)

    def work(s):
        from_view = s.op("fillpad", x=s.whole(view))
        direct = s.op("fillpad", x=s.window(x, [4, 8], [start, 0], clamp=True))
        return [s.put(s.put(out, from_view, [0, 0, 0]), direct, [1, 0, 0])]

    b.scope(work)
    program = b.program()
    for start, rows in ((4, 2), (6, 0), (1, 4)):
        result = np.full((2, 4, 8), 9, np.float32)
        run(program, x=ramp(6, 8), out=result, start=start)
        expected = zeros(4, 8)
        expected[:rows] = ramp(6, 8)[start : start + rows]
        np.testing.assert_array_equal(result[0], expected)
        np.testing.assert_array_equal(result[1], expected)
    with pytest.raises(WindowOutOfRange, match="window -1:3 is outside axis 0 of `x`"):
        run(program, x=ramp(6, 8), out=zeros(2, 4, 8), start=-1)


def test_pad_value_of_a_load() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([4, 8]))

    def work(s):
        tile = s.window(x, [4, 8], [0, 0], valid_shape=[1, 8], pad_value=PadValue.max)
        return [s.put(out, tile, [0, 0])]

    b.scope(work)
    result = zeros(4, 8)
    run(b.program(), x=ramp(4, 8), out=result)
    np.testing.assert_array_equal(result[0], ramp(4, 8)[0])
    assert np.isposinf(result[1:]).all()


def test_drop_dims() -> None:
    b = Build()
    x, out = b.param("x", tensor([3, 4, 8])), b.param("out", tensor([4, 8]))
    view = b.window(x, [1, 4, 8], [1, 0, 0], drop_dims=[0])

    def work(s):
        tile = s.window(x, [1, 4, 8], [2, 0, 0], drop_dims=[0])
        return [s.put(out, s.op("add", lhs=s.whole(view), rhs=tile), [0, 0])]

    b.scope(work)
    result = zeros(4, 8)
    run(b.program(), x=ramp(3, 4, 8), out=result)
    np.testing.assert_array_equal(result, ramp(3, 4, 8)[1] + ramp(3, 4, 8)[2])


# Views


def test_reshape_of_a_tensor_is_a_view() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8]))
    flat = b.op("reshape", x=b.window(x, [2, 8], [1, 0]), shape=[16, 1])
    b.scope(lambda s: [s.put(flat, s.op("full", shape=[16, 1], dtype=FP32, value=0.0), [0, 0])])
    data = ramp(4, 8)
    run(b.program(), x=data)
    np.testing.assert_array_equal(data[1:3], zeros(2, 8))
    np.testing.assert_array_equal(data[[0, 3]], ramp(4, 8)[[0, 3]])


def test_reshape_that_needs_a_copy_is_refused() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8]))
    b.op("reshape", x=b.window(x, [4, 4], [0, 0]), shape=[16, 1])
    with pytest.raises(ReshapeNeedsCopy, match="`x` as `\\[16, 1\\]`"):
        run(b.program(), x=ramp(4, 8))


def test_reshape_to_run_time_extents() -> None:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())
    y = b.op("reshape", x=x, shape=[n, 2])
    program = b.program(y)
    assert run(program, x=ramp(4, 8), n=16).returned[0].shape == (16, 2)
    with pytest.raises(ReshapeCount, match="32 elements into 30"):
        run(program, x=ramp(4, 8), n=15)
    with pytest.raises(ExtentNotPositive, match="extent of axis 0 is -16"):
        run(program, x=ramp(4, 8), n=-16)


def test_reshape_of_a_partly_valid_value() -> None:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())
    b.op("reshape", x=b.window(x, [4, 8], [0, 0], valid_shape=[4, n]), shape=[8, 4])
    b.scope(
        lambda s: [s.op("reshape", x=s.window(x, [4, 8], [0, 0], valid_shape=[2, 8]), shape=[8, 4])]
    )
    program = b.program()
    run(program, x=ramp(4, 8), n=8)
    with pytest.raises(ValidRegionLost, match="reshape` of a partially valid value"):
        run(program, x=ramp(4, 8), n=5)


def test_transpose_and_reinterpret_views_share_memory() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8]))
    turned = b.op("transpose", x=x, axis1=0, axis2=-1)
    words = b.op("reinterpret_view", x=x, dtype=dtypes.INT32)
    halves = b.op("reinterpret_view", x=b.window(x, [2, 8], [2, 0]), dtype=dtypes.INT16)
    shaped = b.op("reinterpret_view", x=x, dtype=dtypes.UINT8, shape=[128])
    data = ramp(4, 8)
    t, w, h, u = run(b.program(turned, words, halves, shaped), x=data).returned
    np.testing.assert_array_equal(t.array, data.T)
    np.testing.assert_array_equal(w.array, data.view(np.int32))
    np.testing.assert_array_equal(h.array, data[2:].view(np.int16))
    np.testing.assert_array_equal(u.array, data.view(np.uint8).reshape(-1))
    assert all(np.shares_memory(v.array, data) for v in (t, w, h, u))


def test_reinterpreting_torn_elements_is_refused() -> None:
    b = Build()
    x = b.param("x", tensor([4, 8], dtypes.INT16))
    b.op("reinterpret_view", x=b.window(x, [4, 4], [0, 1]), dtype=dtypes.INT32)
    with pytest.raises(ReshapeNeedsCopy):
        run(b.program(), x=np.zeros((4, 8), np.int16))


# Elements and fresh memory


def test_read_and_write_elements() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([2, 8]))
    n = b.param("n", index())
    first = b.op("read", x=x, indices=[n, 1])
    b.op("write", x=out, indices=[0, n], value=first)

    def work(s):
        tile = s.whole(x)
        value = s.op("read", x=tile, indices=[1, n])
        changed = s.op("write", x=tile, indices=[0, 0], value=-4.0)
        row = s.window(changed, [1, 8], [0, 0])
        o = s.put(out, row, [1, 0])
        return [s.op("write", x=o, indices=[1, 7], value=value)]

    b.scope(work)
    program = b.program()
    result, data = zeros(2, 8), ramp(4, 8)
    run(program, x=data, out=result, n=2)
    assert result[0, 2] == data[2, 1]
    assert result[1].tolist() == [-4, *data[0, 1:7], data[1, 2]]
    np.testing.assert_array_equal(data, ramp(4, 8))
    with pytest.raises(IndexOutOfRange, match="index 4 is outside axis 0 of `x`"):
        run(program, x=data, out=result, n=4)
    with pytest.raises(IndexOutOfRange, match="index -1 is outside axis 0 of `x`"):
        run(program, x=data, out=result, n=-1)


def test_bare_index_of_a_vector() -> None:
    b = Build()
    x = b.param("x", tensor([8], BF16))
    value = b.op("read", x=x, indices=3)
    assert run(b.program(value), x=ramp(8, dtype=BF16)).returned == (4.0,)


def test_dim_of_a_dynamic_tensor() -> None:
    from tilelet.ir.types import SymDim

    b = Build()
    x = b.param("x", tensor([SymDim("M"), 8]))
    rows = b.op("tensor.dim", tensor=x, axis=0)
    cols = b.op("tensor.dim", tensor=x, axis=-1)
    assert run(b.program(rows, cols), x=ramp(5, 8)).returned == (5, 8)


def test_fresh_memory_is_poison() -> None:
    b = Build()
    floats = b.op("create_tensor", shape=[2, 8], dtype=BF16)
    ints = b.op("create_tensor", shape=[2, 8], dtype=dtypes.INT32)
    (tile,) = b.scope(lambda s: [s.op("create_tensor", shape=[2, 8], dtype=FP32)])
    filled = b.op("create_tensor", shape=[2, 8], dtype=dtypes.INT32, init_value=7, manual_dep=True)
    program = b.program(floats, ints, tile, filled)
    a, i, t, f = run(program).returned
    assert np.isnan(a.array.astype(np.float32)).all()
    assert (i.array == -842150451).all()
    assert np.isnan(t.array).all()
    assert (f.array == 7).all()
    assert (f.buffer.manual_dep, i.buffer.manual_dep) == (True, False)


def test_undefined_memory_can_be_zero() -> None:
    from tilelet.interp.interpreter import Interpreter

    b = Build()
    x = b.op("create_tensor", shape=[2, 8], dtype=FP32)
    (tile,) = b.scope(lambda s: [s.op("create_tile", shape=[2, 8], dtype=FP32)])
    execution = Interpreter().run(b.program(x, tile), {}, initial_poison=False)
    assert not any(w.array.any() for w in execution.returned)


def test_memory_beyond_the_machines_is_refused_before_it_is_taken() -> None:
    b = Build()
    n = b.param("n", index())
    b.op("create_tensor", shape=[n, 1 << 20], dtype=FP32, result="huge")
    with pytest.raises(TooBig, match="`huge` needs 4 TiB"):
        run(b.program(), n=1 << 20)


def test_tile_beyond_the_machines_memory_is_refused() -> None:
    b = Build()
    b.scope(lambda s: [s.op("full", shape=[1 << 20, 1 << 20], dtype=FP32, value=0.0, result="t")])
    with pytest.raises(TooBig, match="`t` needs 4 TiB"):
        run(b.program())


def test_run_time_shape_must_be_positive() -> None:
    b = Build()
    n = b.param("n", index())
    b.op("create_tensor", shape=[4, n], dtype=FP32)
    with pytest.raises(ExtentNotPositive, match="`\\[4, 0\\]`"):
        run(b.program(), n=0)


# Windows out of range


def window_program(where: str) -> Program:
    """Takes or writes `[16, 8]` at a run-time row of a `[64, 8]` tensor."""
    b = Build()
    x, row = b.param("x", tensor([64, 8])), b.param("row", index())

    def work(s):
        tile = s.op("full", shape=[16, 8], dtype=FP32, value=0.0)
        if where == "load":
            s.window(x, [16, 8], [row, 0])
        elif where == "tile load":
            s.op("load", tensor=x, offsets=[row, 0], shapes=[16, 8])
        elif where == "assemble":
            s.put(x, tile, [row, 0])
        elif where == "store":
            s.op("store", tile=tile, offsets=[row, 0], tensor=x)
        elif where == "slice of a tile":
            s.window(s.window(x, [64, 8], [0, 0], result="x"), [16, 8], [row, 0])
        elif where == "insert":
            whole = s.window(x, [64, 8], [0, 0], result="x")
            s.put(whole, tile, [row, 0])
        return []

    b.scope(work)
    return b.program()


@pytest.mark.parametrize(
    "where", ["load", "tile load", "assemble", "store", "slice of a tile", "insert"]
)
def test_every_window_is_checked(where: str) -> None:
    program = window_program(where)
    for row in (0, 48):
        run(program, x=ramp(64, 8), row=row)
    for row, end in ((49, 65), (-1, 15), (1 << 40, (1 << 40) + 16)):
        with pytest.raises(WindowOutOfRange) as caught:
            run(program, x=ramp(64, 8), row=row)
        d = caught.value.diagnostic
        assert d.message == f"window {row}:{end} is outside axis 0 of `x`, which has extent 64"
        assert d.loc is not None
        assert d.loc.file == "kernel.py"


def test_only_the_valid_part_has_to_be_inside() -> None:
    b = Build()
    x, row = b.param("x", tensor([20, 8])), b.param("row", index())
    n, out = b.param("n", index()), b.param("out", tensor([16, 8]))
    view = b.window(x, [16, 8], [row, 0], valid_shape=[n, 8])

    def work(s):
        first = s.window(x, [16, 8], [row, 0], valid_shape=[n, 8])
        return [s.put(out, s.op("add", lhs=first, rhs=s.whole(view)), [0, 0])]

    b.scope(work)
    program = b.program()
    result = zeros(16, 8)
    run(program, x=ramp(20, 8), out=result, row=16, n=4)
    np.testing.assert_array_equal(result[:4], 2 * ramp(20, 8)[16:])
    assert not result[4:].any()
    with pytest.raises(WindowOutOfRange, match="window 16:21 is outside axis 0 of `x`"):
        run(program, x=ramp(20, 8), out=result, row=16, n=5)
    with pytest.raises(ValidShapeTooLarge, match="valid extent 17 does not fit"):
        run(program, x=ramp(20, 8), out=result, row=0, n=17)
    untouched = ramp(16, 8)
    run(program, x=ramp(20, 8), out=untouched, row=0, n=-1)
    np.testing.assert_array_equal(untouched, ramp(16, 8))


def test_store_checks_the_valid_part_only() -> None:
    b = Build()
    x, n = b.param("x", tensor([20, 8])), b.param("n", index())

    def work(s):
        tile = s.op("set_validshape", x=s.window(x, [16, 8], [0, 0]), rows=n, cols=8)
        return [s.put(x, tile, [16, 0])]

    b.scope(work)
    program = b.program()
    data = ramp(20, 8)
    run(program, x=data, n=4)
    np.testing.assert_array_equal(data[16:], ramp(20, 8)[:4])
    run(program, x=data, n=0)
    with pytest.raises(WindowOutOfRange, match="window 16:21"):
        run(program, x=data, n=5)


def test_writing_outside_what_a_clamped_view_has_is_a_fault() -> None:
    b = Build()
    x, row = b.param("x", tensor([6, 8])), b.param("row", index())
    view = b.window(x, [4, 8], [4, 0], clamp=True)
    one = lambda s: s.op("full", shape=[1, 8], dtype=FP32, value=0.0)  # noqa: E731
    b.scope(lambda s: [s.put(view, one(s), [row, 0])])
    program = b.program()
    data = ramp(6, 8)
    run(program, x=data, row=1)
    assert not data[5].any()
    with pytest.raises(WindowOutOfRange, match=r"window 2:3 is .* a view of `x` .* only 2 of"):
        run(program, x=data, row=2)
