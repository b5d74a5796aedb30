"""Windows, loads and stores, views, single elements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.calls import Part, infer1, lines, number, region, run, tensor, tile

from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadAxis,
    BadChoice,
    DTypeMismatch,
    DuplicateArgument,
    NonConstantShape,
    RankMismatch,
    ReshapeCount,
    ShapeMismatch,
    WrongMemorySpace,
    ZeroSizeDim,
)
from tilelet.diag.catalogue.scopes import OnlyInScope
from tilelet.diag.catalogue.windows import (
    IndexOutOfRange,
    ValidShapeTooLarge,
    WindowOutOfRange,
    WrongIndexCount,
)
from tilelet.dtypes import BF16, BOOL, FP16, FP32, INDEX, INT16, INT32, INT64, TASK_ID
from tilelet.ir.faults import RegionFault
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import Mem, ScalarType, SymDim, TensorType, TileType
from tilelet.syntax.enums import AtomicType, PadValue

M = SymDim("M")
RNG = np.random.default_rng(5)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- slice ---------------------------------------------------------------------------------------


def test_slice_is_a_view_or_a_load():
    x = tensor(64, 128, dtype=BF16)
    assert infer1("slice", x, (16, 128), (0, 0)) == TileType((16, 128), BF16)
    assert infer1("slice", x, (16, 128), (0, 0), in_scope=False) == TensorType((16, 128), BF16)
    placed = tile(16, 128, space=Mem.Vec)
    assert infer1("slice", placed, (8, 64), (8, 64)) == TileType((8, 64), FP32, Mem.Vec)
    view = infer1("slice", x, (number(), 128), (0, 0), in_scope=False)
    assert str(view.shape[0]) == "n"


@pytest.mark.parametrize(
    ("shape", "offset"),
    [((16, 128), (49, 0)), ((16, 128), (0, 1)), ((16, 128), (-1, 0)), ((65, 128), (number(), 0))],
)
def test_windows_certainly_outside(shape, offset):
    with pytest.raises(WindowOutOfRange) as caught:
        infer1("slice", tensor(64, 128), shape, offset)
    assert lines(caught.value) == [12]
    assert "`x`" in caught.value.diagnostic.message


def test_windows_that_may_be_inside():
    assert infer1("slice", tensor(64, 128), (16, 128), (number(), 0)).shape == (16, 128)
    assert infer1("slice", tensor(M, 128), (16, 128), (1000, 0)).shape == (16, 128)
    with pytest.raises(WindowOutOfRange):
        infer1("slice", tensor(M, 128), (16, 128), (-1, 0))


def test_valid_shape_is_what_is_read():
    x = tensor(60, 128)
    assert infer1("slice", x, (16, 128), (48, 0), (12, 128)).shape == (16, 128)
    assert infer1("slice", x, (16, 128), (48, 0), (number(), 128)).shape == (16, 128)
    with pytest.raises(WindowOutOfRange):
        infer1("slice", x, (16, 128), (48, 0), (13, 128))
    for wrong in (17, -1):
        with pytest.raises(ValidShapeTooLarge) as caught:
            infer1("slice", x, (16, 128), (0, 0), valid_shape=(wrong, 128))
        assert lines(caught.value) == [13]
    assert infer1("slice", x, (16, 128), (48, 0), clamp=True).shape == (16, 128)
    with pytest.raises(WindowOutOfRange):
        infer1("slice", x, (16, 128), (-1, 0), clamp=True)


def test_slice_arguments():
    x = tensor(64, 128)
    with pytest.raises(RankMismatch):
        infer1("slice", x, (16,), (0, 0))
    with pytest.raises(RankMismatch):
        infer1("slice", x, (16, 128), (0,))
    with pytest.raises(RankMismatch):
        infer1("slice", x, (16, 128), (0, 0), (16,))
    with pytest.raises(NonConstantShape):
        infer1("slice", x, (number(), 128), (0, 0))
    with pytest.raises(ZeroSizeDim):
        infer1("slice", x, (0, 128), (0, 0))
    with pytest.raises(BadArgument):
        infer1("slice", x, (16, 128), (0, 0.5))
    with pytest.raises(BadArgument):
        infer1("slice", x, (16, 128), (number(FP32), 0))
    with pytest.raises(BadArgument):
        infer1("slice", number(), (16, 128), (0, 0))
    with pytest.raises(OnlyInScope):
        infer1("slice", x, (16, 128), (0, 0), pad_value=PadValue.zero, in_scope=False)


def test_drop_dims():
    x = tensor(4, 64, 128)
    assert infer1("slice", x, (1, 16, 128), (0, 0, 0), drop_dims=(0,)).shape == (16, 128)
    with pytest.raises(BadArgument):
        infer1("slice", x, (2, 16, 128), (0, 0, 0), drop_dims=(0,))
    for axes in ((3,), (0, -3)):
        with pytest.raises(BadAxis):
            infer1("slice", x, (1, 16, 128), (0, 0, 0), drop_dims=axes)


def test_slice_of_a_tile():
    x = f32(8, 16)
    np.testing.assert_array_equal(run("slice", x, (2, 4), (3, 8)), x[3:5, 8:12])
    np.testing.assert_array_equal(run("slice", x, (1, 4), (3, 8), drop_dims=(0,)), x[3, 8:12])
    assert region("slice", Part(x, 4, 10), (2, 4), (3, 8)) == (1, 2)
    assert region("slice", Part(x, 4, 10), (2, 4), (6, 0)) == (0, 4)
    assert region("slice", x, (2, 4), (0, 0), (2, 3)) == (2, 3)
    assert region("slice", x, (4, 4), (6, 0), clamp=True) == (2, 4)
    np.testing.assert_array_equal(run("slice", x, (4, 4), (6, 0), clamp=True)[:2], x[6:, :4])
    padded = run("slice", x, (2, 4), (0, 0), (2, 3), pad_value=PadValue.min)
    assert np.isneginf(padded[:, 3]).all()
    assert region("slice", x, (2, 4), (0, 0), (2, 3), pad_value=PadValue.min) == (2, 4)


# --- load, store, move ---------------------------------------------------------------------------


def test_load():
    x = tensor(64, 128, dtype=BF16)
    assert infer1("load", x, (0, 0), (16, 128)) == TileType((16, 128), BF16, Mem.Vec)
    mat = infer1("load", x, (0, 0), (16, 128), target_memory=Mem.Mat, transpose=True)
    assert mat == TileType((128, 16), BF16, Mem.Mat)
    assert infer1("load", x, (60, 0), (16, 128), valid_shapes=(4, 128)).shape == (16, 128)
    assert infer1("load", x, (60, 0), (16, 128), valid_shape=(4, 128)).shape == (16, 128)
    with pytest.raises(DuplicateArgument):
        infer1("load", x, (0, 0), (16, 128), valid_shapes=(4, 128), valid_shape=(4, 128))
    with pytest.raises(WindowOutOfRange):
        infer1("load", x, (60, 0), (16, 128))
    with pytest.raises(WrongMemorySpace):
        infer1("load", x, (0, 0), (16, 128), Mem.Left)
    with pytest.raises(BadArgument):
        infer1("load", x, (0, 0), (16, 128), transpose=True)
    with pytest.raises(BadArgument):
        infer1("load", tile(64, 128), (0, 0), (16, 128))


def test_load_region():
    rule = REGISTRY["load"].valid
    assert rule is not None
    args = {"offsets": (60, 0), "shapes": (16, 128), "valid_shapes": None, "valid_shape": None}
    whole = {"tensor": ((64, 128), (64, 128))}
    assert rule(whole, (16, 128), {**args, "transpose": False}) == (4, 128)
    assert rule(whole, (128, 16), {**args, "transpose": True}) == (128, 4)
    limited = {**args, "valid_shapes": (3, 128), "transpose": False}
    assert rule(whole, (16, 128), limited) == (3, 128)


def test_move():
    assert infer1("move", tile(16, 16, space=Mem.Mat), Mem.Left).space is Mem.Left
    x = f32(4, 4)
    assert region("move", Part(x, 2, 3), Mem.Vec) == (2, 3)
    for wrong in (Mem.Acc, Mem.DDR):
        with pytest.raises(WrongMemorySpace):
            infer1("move", tile(16, 16), wrong)


def test_store():
    out = tensor(64, 128, dtype=BF16)
    assert infer1("store", tile(16, 128, dtype=BF16), (0, 0), out) == out.type
    assert infer1("store", tile(16, 128, space=Mem.Acc), (0, 0), out) == out.type
    with pytest.raises(DTypeMismatch) as caught:
        infer1("store", tile(16, 128), (0, 0), out)
    assert lines(caught.value) == [10, 12]
    with pytest.raises(WrongMemorySpace):
        infer1("store", tile(16, 128, dtype=BF16, space=Mem.Mat), (0, 0), out)
    with pytest.raises(WindowOutOfRange):
        infer1("store", tile(16, 128, dtype=BF16), (64, 0), out)
    with pytest.raises(BadArgument):
        infer1("store", tile(16, 128), (0, 0), tile(16, 128))


# --- assemble ------------------------------------------------------------------------------------


def test_assemble_types():
    out, acc = tensor(64, 128), tile(64, 128)
    assert infer1("assemble", out, tile(16, 128), (0, 0)) == out.type
    assert infer1("assemble", acc, tile(16, 128), (number(), 0)) == acc.type
    assert infer1("assemble", out, tensor(16, 128), (48, 0), in_scope=False) == out.type
    assert infer1("assemble", tensor(4, 64, 128), tile(16, 128), (0, 0, 0)).shape == (4, 64, 128)
    assert infer1("assemble", out, tile(1, 16, 128), (0, 0)).shape == (64, 128)


def test_assemble_errors():
    out = tensor(64, 128)
    with pytest.raises(DTypeMismatch) as caught:
        infer1("assemble", out, tile(16, 128, dtype=BF16), (0, 0))
    assert lines(caught.value) == [11, 10]
    with pytest.raises(ShapeMismatch):
        infer1("assemble", out, tile(2, 16, 128), (0, 0))
    with pytest.raises(RankMismatch):
        infer1("assemble", out, tile(16, 128), (0,))
    with pytest.raises(WindowOutOfRange):
        infer1("assemble", out, tensor(16, 128), (49, 0), in_scope=False)
    # A tile may be valid in less than its shape, which is known only at run time.
    assert infer1("assemble", out, tile(16, 128), (60, 0)) == out.type
    with pytest.raises(WindowOutOfRange):
        infer1("assemble", out, tile(16, 128), (64, 0))
    with pytest.raises(BadArgument):
        infer1("assemble", out, 0.0, (0, 0))


def test_atomic_assemble():
    out = tensor(64, 128)
    assert infer1("assemble", out, tile(16, 128), (0, 0), AtomicType.Add) == out.type
    with pytest.raises(OnlyInScope):
        infer1("assemble", out, tensor(16, 128), (0, 0), AtomicType.Add, in_scope=False)
    with pytest.raises(BadArgument):
        infer1("assemble", tile(64, 128), tile(16, 128), (0, 0), AtomicType.Add)
    with pytest.raises(BadArgument):
        infer1("assemble", out, tile(16, 128), (0, 0), "add")
    with pytest.raises(DTypeMismatch):
        infer1("assemble", tensor(8, 8, dtype=BOOL), tile(8, 8, dtype=BOOL), (0, 0), AtomicType.Add)


def test_assemble_into_a_tile():
    acc, part = f32(8, 16), f32(2, 4)
    expected = acc.copy()
    expected[3:5, 8:12] = part
    np.testing.assert_array_equal(run("assemble", acc, part, (3, 8)), expected)
    expected = acc.copy()
    expected[3:5, 8:11] = part[:, :3]
    np.testing.assert_array_equal(run("assemble", acc, Part(part, 2, 3), (3, 8)), expected)


def test_assemble_regions():
    acc = f32(8, 16)
    assert region("assemble", Part(acc, 4, 16), f32(2, 16), (4, 0)) == (6, 16)
    assert region("assemble", Part(acc, 4, 16), f32(2, 4), (1, 8)) == (4, 16)
    assert region("assemble", Part(acc, 0, 0), f32(2, 4), (0, 0)) == (2, 4)
    assert region("assemble", Part(acc, 4, 4), f32(8, 8), (0, 0)) == (8, 8)
    for source, offset in ((f32(2, 8), (4, 0)), (f32(2, 16), (5, 0))):
        with pytest.raises(RegionFault):
            region("assemble", Part(acc, 4, 16), source, offset)


# --- other shapes --------------------------------------------------------------------------------


def test_reshape():
    assert infer1("reshape", tile(16, 128), (2048,)) == TileType((2048,), FP32)
    assert infer1("reshape", tensor(16, 128), (8, 256)) == TensorType((8, 256), FP32)
    assert infer1("reshape", tensor(M, 128), (number(), 64)).shape[1] == 64
    with pytest.raises(ReshapeCount):
        infer1("reshape", tile(16, 128), (8, 128))
    with pytest.raises(NonConstantShape):
        infer1("reshape", tile(16, 128), (number(), 128))
    x = f32(4, 6)
    np.testing.assert_array_equal(run("reshape", x, (3, 8)), x.reshape(3, 8))


@pytest.mark.parametrize(
    ("shape", "valid", "new", "expected"),
    [
        ((16, 1), (5, 1), (1, 16), (1, 5)),
        ((1, 16), (1, 5), (16, 1), (5, 1)),
        ((4, 8), (3, 8), (32, 1), (24, 1)),
        ((4, 8), (3, 8), (2, 2, 8), None),
        ((4, 8), (2, 8), (2, 2, 8), (1, 2, 8)),
        ((4, 8), (4, 6), (4, 2, 4), None),
        ((4, 8), (4, 4), (4, 2, 4), (4, 1, 4)),
        ((4, 8), (4, 6), (2, 16), None),
        ((2, 4, 8), (2, 4, 5), (8, 8), (8, 5)),
        ((4, 8), (0, 8), (8, 4), (0, 0)),
    ],
)
def test_reshape_keeps_boxes_only(shape, valid, new, expected):
    x = f32(*shape)
    if expected is None:
        with pytest.raises(RegionFault):
            region("reshape", Part(x, *valid), new)
    else:
        assert region("reshape", Part(x, *valid), new) == expected


def test_transpose():
    assert infer1("transpose", tile(16, 128), 0, 1) == TileType((128, 16), FP32)
    assert infer1("transpose", tensor(4, 16, 128), -1, 0, in_scope=False).shape == (128, 16, 4)
    x = f32(4, 6)
    np.testing.assert_array_equal(run("transpose", x, 0, -1), x.T)
    assert region("transpose", Part(x, 3, 5), 0, 1) == (5, 3)
    for axes in ((0, 2), (0, -2), (-3, 0)):
        with pytest.raises(BadAxis):
            infer1("transpose", tile(16, 128), *axes)
    with pytest.raises(BadArgument):
        infer1("transpose", tensor(16, 128), 0, 1)


def test_concat():
    a, b = f32(4, 6), f32(4, 2)
    np.testing.assert_array_equal(run("concat", a, b), np.hstack([a, b]))
    assert region("concat", Part(a, 3, 6), Part(b, 3, 1)) == (3, 7)
    assert region("concat", Part(a, 3, 4), Part(b, 0, 2)) == (3, 4)
    for part_a, part_b in (((3, 4), (3, 2)), ((4, 6), (3, 2))):
        with pytest.raises(RegionFault):
            region("concat", Part(a, *part_a), Part(b, *part_b))
    with pytest.raises(ShapeMismatch):
        infer1("concat", tile(4, 6), tile(3, 6))
    with pytest.raises(DTypeMismatch):
        infer1("concat", tile(4, 6), tile(4, 6, dtype=BF16))
    with pytest.raises(RankMismatch):
        infer1("concat", tile(6), tile(6))


def test_reinterpret_view():
    x = f32(4, 6)
    np.testing.assert_array_equal(run("reinterpret_view", x, INT32), x.view(np.int32))
    np.testing.assert_array_equal(run("reinterpret_view", x, INT16), x.view(np.int16))
    np.testing.assert_array_equal(
        run("reinterpret_view", x, INT64, shape=(2, 6)), x.view(np.int64).reshape(2, 6)
    )
    assert infer1("reinterpret_view", tensor(M, 8), FP16).shape == (M, 16)
    assert region("reinterpret_view", Part(x, 3, 4), INT16) == (3, 8)
    with pytest.raises(RegionFault):
        region("reinterpret_view", Part(x, 3, 3), INT64)
    with pytest.raises(BadArgument):
        infer1("reinterpret_view", tile(4, 3), INT64)
    with pytest.raises(ReshapeCount):
        infer1("reinterpret_view", tile(4, 6), INT32, shape=(4, 7))
    with pytest.raises(BadArgument):
        infer1("reinterpret_view", tile(4, 6), TASK_ID)


# --- single elements -----------------------------------------------------------------------------


def test_read():
    assert infer1("read", tensor(16, dtype=INT32), 3) == ScalarType(INT32)
    assert infer1("read", tensor(4, 4), (number(), 0)) == ScalarType(FP32)
    assert infer1("read", tile(4, 4), (0, 0), in_scope=True) == ScalarType(FP32)
    with pytest.raises(WrongIndexCount):
        infer1("read", tensor(4, 4), (0,))
    for index in (4, -1):
        with pytest.raises(IndexOutOfRange):
            infer1("read", tensor(4, 4), (0, index))
    with pytest.raises(BadArgument):
        infer1("read", tensor(4, 4), (0, 1.0))


def test_write():
    x = tensor(4, 4, dtype=INT32)
    assert infer1("write", x, (0, 0), 5, in_scope=False) == x.type
    assert infer1("write", x, (0, number()), number(INT32)) == x.type
    assert infer1("write", tensor(4), 0, 1) == TensorType((4,), FP32)
    with pytest.raises(DTypeMismatch):
        infer1("write", x, (0, 0), number(INDEX))
    with pytest.raises(DTypeMismatch):
        infer1("write", x, (0, 0), 0.5)
    with pytest.raises(IndexOutOfRange):
        infer1("write", x, (4, 0), 1)
    with pytest.raises(BadArgument):
        infer1("write", x, (0, 0), tile(4, 4))


def test_dim():
    assert infer1("tensor.dim", tensor(M, 4), -2) == ScalarType(INDEX)
    with pytest.raises(BadAxis):
        infer1("tensor.dim", tensor(M, 4), 2)


def test_choices_are_listed():
    with pytest.raises(BadChoice):
        infer1("slice", tensor(64, 128), (16, 128), (0, 0), (16, 100), pad_value=PadValue.null)
