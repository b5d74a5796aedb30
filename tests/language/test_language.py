"""The surface `pl`: annotations, enums, markers, unsupported names, the generated manual."""

from __future__ import annotations

import inspect
import re

import pytest

import tilelet.language as pl
from tilelet import dtypes
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.catalogue.unsupported import (
    MxFormat,
    UnsupportedDType,
    UnsupportedOp,
)
from tilelet.diag.core import Loc
from tilelet.ir.core import Const, Direction, FunctionKind
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import Mem, SymDim
from tilelet.ops.manual import ops_markdown
from tilelet.syntax import markers, types, unsupported

LOC = Loc("kernel.py", 1)


# --- annotations ---------------------------------------------------------------------------------


def test_tensor_annotation():
    m = pl.dynamic("M")
    assert pl.Tensor[[16, 128], pl.BF16] == types.TensorAnnotation((16, 128), dtypes.BF16)
    assert pl.Tensor[[m, 64], pl.FP32].shape == (m, 64)
    assert pl.Tensor[[16], pl.FP32, pl.NZ].layout is pl.TensorLayout.NZ  # pyright: ignore[reportAttributeAccessIssue]
    assert pl.Tile[[16, 16], pl.FP32, pl.Mem.Vec] == types.TileAnnotation(
        (16, 16), dtypes.FP32, Mem.Vec
    )
    assert pl.Scalar[pl.INT32] == types.ScalarAnnotation(dtypes.INT32)
    assert pl.Array[8, pl.TASK_ID] == types.ArrayAnnotation(8, dtypes.TASK_ID)


def test_directions():
    inner = pl.Tensor[[16], pl.FP32]
    assert pl.Out[inner] == types.DirectionAnnotation(inner, Direction.Out)
    assert pl.InOut[inner] == types.DirectionAnnotation(inner, Direction.InOut)
    assert pl.Out[pl.Tensor].inner is pl.Tensor  # pyright: ignore[reportAttributeAccessIssue]
    assert pl.Tuple[inner, inner].__args__ == (inner, inner)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.Tensor[16],
        lambda: pl.Tensor[16, pl.FP32],
        lambda: pl.Tensor[[16, "n"], pl.FP32],
        lambda: pl.Tensor[[16], "FP32"],
        lambda: pl.Tensor[[16], pl.FP32, pl.Mem.Vec],
        lambda: pl.Tile[[16], pl.FP32, "Vec"],
        lambda: pl.Scalar[4],
    ],
)
def test_wrong_annotations(make):
    with pytest.raises(TypeError, match="pl"):
        make()


def test_numpy_extents_become_ints():
    np = pytest.importorskip("numpy")
    (extent,) = pl.Tensor[[np.int64(4)], pl.FP32].shape
    assert type(extent) is int


def test_dynamic_is_equal_only_to_itself():
    a, b = pl.dynamic("M"), pl.dynamic("M")
    assert isinstance(a, SymDim)
    assert a != b
    assert {a: 1}[a] == 1


# --- names ---------------------------------------------------------------------------------------


def test_dtypes_and_enums():
    for d in dtypes.ALL:
        assert getattr(pl, d.name) is d
    assert pl.MemorySpace is pl.Mem
    assert pl.FunctionType is FunctionKind
    assert pl.Level.CORE_GROUP.name == "CORE_GROUP"
    assert [p.name for p in pl.PadValue] == ["null", "zero", "min", "max"]
    assert pl.SplitMode.UP_DOWN is not pl.SplitMode.LEFT_RIGHT
    assert isinstance(pl.FP32, pl.DataType)


def test_data_markers_work_anywhere():
    assert pl.const(1, pl.INT32) == Const(1, dtypes.INT32)
    assert type(pl.const(1, pl.FP32).value) is float
    assert pl.split(pl.SplitMode.UP_DOWN) == markers.Split(pl.SplitMode.UP_DOWN)
    assert pl.chunked_loop_optimizer(split=pl.SplitMode.UP_DOWN) == markers.Split(
        pl.SplitMode.UP_DOWN, chunked=True
    )
    assert pl.auto_chunk.chunked


DATA = {"const", "cross_core_slot", "dynamic", "split", "auto_chunk", "chunked_loop_optimizer"}


@pytest.mark.parametrize("name", sorted(set(markers.__all__) - DATA))
def test_other_markers_need_a_kernel(name):
    marker = getattr(pl, name)
    assert inspect.getdoc(marker)
    with pytest.raises(OpOutsideKernel, match=f"`pl.{name}`"):
        marker()


def test_decorators():
    for name in ("program", "function", "inline", "jit", "parse"):
        assert callable(getattr(pl, name))


# --- unsupported ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("MX_A_ND", MxFormat),
        ("HF4", UnsupportedDType),
        ("tile.view", UnsupportedOp),
        ("tile.alloc", UnsupportedOp),
    ],
)
def test_known_but_unsupported(name, error):
    with pytest.raises(error, match=re.escape(name)):
        unsupported.check(name, LOC)


@pytest.mark.parametrize("name", ["row_summ", "tile.ad", "", "tensor."])
def test_unknown_names_are_left_to_others(name):
    assert unsupported.check(name, LOC) is None


def test_unsupported_names_are_not_offered():
    offered = {*vars(pl), *vars(pl.tensor), *vars(pl.tile), *vars(pl.system)}
    assert not offered & set(unsupported.UNSUPPORTED)


# --- the manual ----------------------------------------------------------------------------------


def test_manual_lists_every_op():
    page = ops_markdown()
    for spec in REGISTRY.values():
        if not spec.structural:
            assert f"pl.{spec.name}\n" in page or f"| {spec.name} |" in page
    for name in ("range", "at", "spmd", "submit", "static_assert"):
        assert f"### pl.{name}\n" in page
    assert "pl.load(tensor, offsets, shapes, target_memory=pl.Mem.Vec, valid_shapes=None" in page
    assert "<Mem" not in page
    assert page == ops_markdown()


def test_manual_links_lead_somewhere():
    page = ops_markdown()
    anchors = {
        re.sub(r"[^\w ]", "", line[4:]).replace(" ", "-").lower()
        for line in page.splitlines()
        if line.startswith("### ")
    }
    links = re.findall(r"\]\(#([^)]*)\)", page)
    assert links
    assert set(links) <= anchors
