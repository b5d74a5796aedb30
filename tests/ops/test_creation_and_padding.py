"""Ops that make tiles, and ops on the valid region."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.ops.calls import Part, infer1, number, region, run, tensor, tile

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadChoice,
    ConstantOutOfRange,
    NonConstantShape,
    NotConstant,
    RankMismatch,
    ShapeMismatch,
    ZeroSizeDim,
)
from tilelet.diag.catalogue.windows import ValidShapeTooLarge
from tilelet.dtypes import BF16, BOOL, FP8E4M3FN, FP16, FP32, INT8, INT16, INT32, TASK_ID, UINT32
from tilelet.ir.core import Const
from tilelet.ir.faults import ValidTooLargeFault
from tilelet.ir.types import Mem, SymDim, TensorType, TileType, types_agree
from tilelet.syntax.enums import PadValue, TensorLayout

# --- creation ------------------------------------------------------------------------------------


def test_create_tensor_is_memory_or_a_tile():
    assert infer1("create_tensor", (16, 128), FP32) == TileType((16, 128), FP32)
    assert infer1("create_tensor", (16, 128), FP32, in_scope=False) == TensorType((16, 128), FP32)
    assert infer1("create_tensor", (Const(4, INT32), 8), BF16).shape == (4, 8)


def test_run_time_extents():
    n = number()
    found = infer1("create_tensor", (n, 128), FP32, in_scope=False)
    assert isinstance(found.shape[0], SymDim)
    assert str(found.shape[0]) == "n"
    assert types_agree(found, infer1("create_tensor", (n, 128), FP32, in_scope=False))
    with pytest.raises(NonConstantShape, match="axis 0"):
        infer1("create_tensor", (n, 128), FP32)


@pytest.mark.parametrize("name", ["create_tensor", "create_tile"])
def test_bad_shapes(name):
    with pytest.raises(ZeroSizeDim):
        infer1(name, (16, 0), FP32)
    with pytest.raises(ZeroSizeDim):
        infer1(name, (-1, 16), FP32)
    with pytest.raises(BadArgument):
        infer1(name, (16, 1.5), FP32)
    with pytest.raises(BadArgument):
        infer1(name, (16, tile(8, 8)), FP32)
    with pytest.raises(RankMismatch):
        infer1(name, (), FP32)
    with pytest.raises(BadArgument):
        infer1(name, (16, 16), "FP32")
    with pytest.raises(BadChoice):
        infer1(name, (16, 16), TASK_ID)


def test_create_tensor_options():
    make = {"in_scope": False}
    assert infer1("create_tensor", (4,), FP32, TensorLayout.NZ, init_value=1.5, **make)
    assert infer1("create_tensor", (4,), BF16, init_value=0, manual_dep=True, **make)
    with pytest.raises(BadArgument):
        infer1("create_tensor", (4,), BF16, init_value=1.0, **make)
    with pytest.raises(NotConstant):
        infer1("create_tensor", (4,), FP32, init_value=number(FP32), **make)
    with pytest.raises(ConstantOutOfRange):
        infer1("create_tensor", (4,), INT8, init_value=200, **make)
    with pytest.raises(BadArgument, match=r"pl\.full"):
        infer1("create_tensor", (4, 4), FP32, init_value=0)
    with pytest.raises(BadArgument):
        infer1("create_tensor", (4,), FP32, "NZ", **make)


def test_create_tile():
    assert infer1("create_tile", (16, 16), FP32, Mem.Mat) == TileType((16, 16), FP32, Mem.Mat)
    assert infer1("create_tile", (16, 16), FP32).space is Mem.Vec
    with pytest.raises(BadArgument):
        infer1("create_tile", (16, 16), FP32, Mem.DDR)


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16, INT32, INT8, BOOL])
def test_full(dtype):
    result = run("full", (4, 8), dtype, 1)
    np.testing.assert_array_equal(result.astype(np.float32), np.ones((4, 8), np.float32))


def test_full_values():
    assert run("full", (1, 8), BF16, 1 / 3)[0, 0] == np.float32(1 / 3).astype(ml_dtypes.bfloat16)
    assert np.isneginf(run("full", (1, 8), FP32, -math.inf)).all()
    with pytest.raises(NotConstant):
        infer1("full", (4, 8), FP32, number(FP32))
    with pytest.raises(ConstantOutOfRange):
        infer1("full", (4, 8), INT8, 300)
    with pytest.raises(ConstantOutOfRange):
        infer1("full", (4, 8), INT32, 1.5)
    with pytest.raises(ConstantOutOfRange):
        infer1("full", (4, 8), INT32, math.inf)
    with pytest.raises(NonConstantShape):
        infer1("full", (number(), 8), FP32, 0)


def test_arange():
    np.testing.assert_array_equal(run("arange", 5, (1, 4)), [[5, 6, 7, 8]])
    np.testing.assert_array_equal(run("ci", 5, (1, 4), INT16, True), [[5, 4, 3, 2]])
    np.testing.assert_array_equal(run("arange", 0, (1, 4), dtype=UINT32), np.arange(4)[None])
    assert infer1("arange", number(UINT32), (1, 64), UINT32) == TileType((1, 64), UINT32)
    for shape in ((1, 1), (2, 8)):
        with pytest.raises(BadArgument):
            infer1("arange", 0, shape)
    with pytest.raises(BadChoice):
        infer1("arange", 0, (1, 8), FP32)
    with pytest.raises(BadArgument):
        infer1("arange", 0.5, (1, 8))
    with pytest.raises(ConstantOutOfRange):
        infer1("arange", -1, (1, 8), UINT32)


# --- padding -------------------------------------------------------------------------------------

LIMITS = {
    FP32: (-math.inf, math.inf),
    BF16: (-math.inf, math.inf),
    FP8E4M3FN: (-448.0, 448.0),
    INT8: (-128, 127),
    dtypes.UINT16: (0, 65535),
    BOOL: (0, 1),
}


@pytest.mark.parametrize("dtype", LIMITS)
def test_fillpad_values(dtype):
    x = np.ones((4, 6), dtype.numpy)
    low, high = LIMITS[dtype]
    for pads, value in (
        ((PadValue.zero, 0, 0.0), 0),
        ((PadValue.min, -math.inf), low),
        ((PadValue.max, math.inf), high),
    ):
        for pad in pads:
            result = run("fillpad", Part(x, 3, 2), pad).astype(np.float64)
            assert (result[:3, :2] == 1).all()
            assert (result[3:] == value).all()
            assert (result[:, 2:] == value).all()


def test_fillpad_makes_everything_valid():
    x = np.ones((4, 6), np.float32)
    assert region("fillpad", Part(x, 3, 2)) == (4, 6)
    assert region("fillpad_inplace", Part(x, 3, 2), PadValue.min) == (4, 6)
    assert infer1("fillpad", tile(4, 6, dtype=BF16)) == TileType((4, 6), BF16)


@pytest.mark.parametrize("pad", [PadValue.null, 7.0, "min", None, True])
def test_other_pads(pad):
    with pytest.raises(BadChoice):
        infer1("fillpad", tile(8, 8), pad)


def test_fillpad_expand():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = run("fillpad_expand", Part(x, 2, 4), (5, 6), PadValue.max)
    np.testing.assert_array_equal(result[:2, :4], x[:2])
    assert np.isposinf(result[2:]).all()
    assert np.isposinf(result[:, 4:]).all()
    assert region("fillpad_expand", Part(x, 2, 4), (5, 6)) == (5, 6)
    with pytest.raises(ShapeMismatch):
        infer1("fillpad_expand", tile(3, 4), (2, 6))
    with pytest.raises(RankMismatch):
        infer1("fillpad_expand", tile(3, 4), (5, 6, 7))


def test_set_validshape():
    x = np.ones((4, 6), np.float32)
    assert region("set_validshape", x, 3, 2) == (3, 2)
    assert run("set_validshape", x, 3, 2).sum() == 6
    assert infer1("set_validshape", tile(4, 6), number(), 6) == TileType((4, 6), FP32)
    view = infer1("set_validshape", tensor(4, 6), 2, 2, in_scope=False)
    assert view == TensorType((4, 6), FP32)
    for rows in (5, -1):
        with pytest.raises(ValidShapeTooLarge):
            infer1("set_validshape", tile(4, 6), rows, 6)
    with pytest.raises(RankMismatch):
        infer1("set_validshape", tile(2, 4, 6), 1, 1)
    with pytest.raises(BadArgument):
        infer1("set_validshape", tile(4, 6), 1.0, 1)


def test_region_given_at_run_time_is_checked():
    with pytest.raises(ValidTooLargeFault) as caught:
        rule_with_rows(7)
    assert (caught.value.axis, caught.value.valid, caught.value.size) == (0, 7, 4)


def rule_with_rows(rows: int) -> tuple[int, ...]:
    from tilelet.ir.spec import REGISTRY

    rule = REGISTRY["set_validshape"].valid
    assert rule is not None
    return rule({"x": ((4, 6), (4, 6))}, (4, 6), {"x": None, "rows": rows, "cols": 6})
