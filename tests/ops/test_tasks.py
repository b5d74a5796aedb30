"""Arrays, task ids, block numbers, pipelines; and the few rules that all ops share."""

from __future__ import annotations

import pytest
from tests.ops.calls import infer, infer1, number, tile

from tilelet.diag.catalogue.ops import BadArgument, BadChoice, ConstantOutOfRange, NotConstant
from tilelet.diag.catalogue.scopes import BadDependency
from tilelet.diag.catalogue.windows import (
    DivisionByZero,
    IndexOutOfRange,
    ValidRegionLost,
    ValidShapeTooLarge,
)
from tilelet.diag.core import Loc
from tilelet.dtypes import BF16, FP32, INDEX, INT8, INT32, TASK_ID
from tilelet.ir.core import Value
from tilelet.ir.faults import DivisionFault, IndexFault, RegionFault, ValidTooLargeFault
from tilelet.ir.spec import REGISTRY, Engine, OpSpec, Plane, register, spec_of
from tilelet.ir.types import ArrayType, Mem, ScalarType, SymDim, TensorType, TileType, types_agree
from tilelet.syntax.enums import PipeType


def array(length: int = 4, dtype=INT32) -> Value:
    return Value("a", ArrayType(length, dtype))


def task() -> Value:
    return Value("tid", ScalarType(TASK_ID))


def test_arrays():
    assert infer1("array.create", 8, TASK_ID) == ArrayType(8, TASK_ID)
    assert infer1("array.get", array(), number()) == ScalarType(INT32)
    assert infer1("array.set", array(), 3, 7) == ArrayType(4, INT32)
    assert infer1("array.set", array(4, TASK_ID), 0, task()) == ArrayType(4, TASK_ID)
    assert infer1("array.set", array(4, TASK_ID), 0, None) == ArrayType(4, TASK_ID)


def test_array_errors():
    with pytest.raises(BadArgument):
        infer1("array.create", 0, INT32)
    with pytest.raises(NotConstant):
        infer1("array.create", number(), INT32)
    with pytest.raises(BadChoice):
        infer1("array.create", 4, FP32)
    for index in (4, -1):
        with pytest.raises(IndexOutOfRange):
            infer1("array.get", array(), index)
    with pytest.raises(BadArgument):
        infer1("array.get", tile(4, 4), 0)
    with pytest.raises(BadArgument):
        infer1("array.set", array(4, TASK_ID), 0, 3)
    with pytest.raises(ConstantOutOfRange):
        infer1("array.set", array(4, INT8), 0, 200)
    with pytest.raises(BadArgument):
        infer1("array.set", array(), 0, task())


def test_tasks():
    assert infer1("system.task_invalid") == ScalarType(TASK_ID)
    deps = (task(), None, array(4, TASK_ID))
    assert infer1("system.task_dummy", deps) == ScalarType(TASK_ID)
    assert infer1("system.task_dummy") == ScalarType(TASK_ID)
    for wrong in (3, number(), array(4, INT32)):
        with pytest.raises(BadDependency):
            infer1("system.task_dummy", (wrong,))
    assert REGISTRY["system.task_dummy"].plane is Plane.CONTROL


def test_blocks_and_pipelines():
    for name in ("get_block_idx", "get_block_num", "get_subblock_idx"):
        assert infer1(name) == ScalarType(INDEX)
    assert infer("system.bar_all") == ()
    assert infer("system.sync_src", PipeType.MTE2, PipeType.V, 0) == ()
    with pytest.raises(BadArgument):
        infer("system.sync_dst", "MTE2", PipeType.V, 0)
    with pytest.raises(BadArgument):
        infer("system.sync_dst", PipeType.MTE2, PipeType.V, -1)


def test_faults_become_catalogue_errors_with_a_place():
    loc = Loc("kernel.py", 3)
    for fault, error in (
        (IndexFault("gather", 1, 16, 16), IndexOutOfRange),
        (RegionFault("reshape", (4, 6), (4, 8)), ValidRegionLost),
        (ValidTooLargeFault(0, 7, 4), ValidShapeTooLarge),
        (DivisionFault("//"), DivisionByZero),
    ):
        found = fault.error(loc)
        assert type(found) is error
        assert found.diagnostic.labels[0].loc == loc


def test_types_agree():
    m, n = SymDim("M"), SymDim("N")
    assert types_agree(TensorType((m, 4), FP32), TensorType((n, 4), FP32))
    assert types_agree(TensorType((m, 4), FP32), TensorType((8, 4), FP32))
    assert not types_agree(TensorType((m, 4), FP32), TensorType((m, 5), FP32))
    assert not types_agree(TensorType((4,), FP32), TensorType((4,), BF16))
    assert types_agree(TileType((4, 4), FP32), TileType((4, 4), FP32, Mem.Acc))
    assert not types_agree(TileType((4, 4), FP32, Mem.Vec), TileType((4, 4), FP32, Mem.Acc))
    assert not types_agree(TileType((4, 4), FP32), TensorType((4, 4), FP32))
    assert types_agree(ScalarType(INDEX), ScalarType(INDEX))


def test_an_op_is_defined_once():
    with pytest.raises(ValueError, match="defined twice"):
        register(OpSpec("add", REGISTRY["add"].infer, engine=Engine.VEC))
    assert spec_of(len) is None
