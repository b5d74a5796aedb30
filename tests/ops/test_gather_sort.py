"""Gather, scatter and sorting."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.calls import Part, infer, infer1, lines, number, region, run, tensor, tile

from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadAxis,
    BadChoice,
    DTypeMismatch,
    DTypeNotAllowed,
    NoSuchForm,
    RankMismatch,
    ShapeMismatch,
    SortGeometry,
)
from tilelet.dtypes import BF16, FP16, FP32, INT16, INT32, UINT32
from tilelet.ir.faults import IndexFault, RegionFault
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import Mem, TensorType, TileType
from tilelet.syntax.enums import CmpType, MaskPattern

RNG = np.random.default_rng(17)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def indices(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.int32)


# --- gather --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "start", "step"),
    [("P0101", 0, 2), ("P1010", 1, 2), ("P0001", 0, 4), ("P0100", 2, 4), ("P1111", 0, 1)],
)
def test_mask_patterns(pattern, start, step):
    x = f32(4, 16)
    for spelling in (pattern, MaskPattern[pattern], MaskPattern[pattern].value):
        np.testing.assert_array_equal(run("gather", x, mask_pattern=spelling), x[:, start::step])
    np.testing.assert_array_equal(run("gather_mask", x, pattern), x[:, start::step])


def test_output_dtype_reads_the_bits():
    x = f32(2, 16)
    result = run("gather", x, mask_pattern="P1010", output_dtype=INT32)
    np.testing.assert_array_equal(result, x.view(np.int32)[:, 1::2])
    halves = infer1("gather", tile(2, 16, dtype=FP16), mask_pattern=2, output_dtype=INT32)
    assert halves == TileType((2, 4), INT32)
    with pytest.raises(BadArgument):
        infer1("gather", tile(2, 3, dtype=FP16), mask_pattern=2, output_dtype=INT32)


def test_gather_by_index_like_torch():
    torch = pytest.importorskip("torch")
    x, index = f32(4, 16), indices(16, 4, 8)
    expected = torch.gather(torch.from_numpy(x), -1, torch.from_numpy(index).long()).numpy()
    np.testing.assert_array_equal(run("gather", x, -1, index), expected)
    x3, index3 = f32(2, 8, 6), indices(8, 2, 5, 6)
    expected = torch.gather(torch.from_numpy(x3), 1, torch.from_numpy(index3).long()).numpy()
    np.testing.assert_array_equal(run("gather", x3, dim=1, index=index3), expected)


def test_flat_gather():
    x, index = f32(4, 16), indices(64, 3, 8)
    np.testing.assert_array_equal(run("gather", x, index=index), x.ravel()[index])


def test_compare_gather():
    x = np.array([[5, 1, 7, 7], [0, 0, 0, 0], [9, 8, 7, 6]], np.float32)
    found, counts = run("gather", x, kvalue=6.0, cmp_mode="gt", out_cols=3)
    np.testing.assert_array_equal(found, [[2, 3, 0], [0, 0, 0], [0, 1, 2]])
    np.testing.assert_array_equal(counts, [[2, 0, 3]])
    found, counts = run("gather", Part(x, 3, 2), kvalue=6.0, cmp_mode=CmpType.GT, out_cols=3)
    np.testing.assert_array_equal(counts, [[0, 0, 2]])
    types = infer("gather", tile(3, 4), kvalue=6.0, cmp_mode=4, out_cols=3)
    assert types == (TileType((3, 3), INT32), TileType((1, 3), INT32))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"dim": 1},
        {"mask_pattern": 1, "index": tile(4, 4, dtype=INT32)},
        {"kvalue": 1.0},
        {"output_dtype": INT32},
    ],
)
def test_no_such_form(kwargs):
    with pytest.raises(NoSuchForm):
        infer("gather", tile(4, 16), **kwargs)


def test_gather_errors():
    x = tile(4, 16)
    with pytest.raises(BadChoice):
        infer1("gather", x, mask_pattern="P0011")
    with pytest.raises(BadChoice):
        infer1("gather", x, mask_pattern=9)
    with pytest.raises(DTypeNotAllowed):
        infer1("gather", x, -1, tile(4, 8))
    with pytest.raises(BadAxis):
        infer1("gather", x, 2, tile(4, 8, dtype=INT32))
    with pytest.raises(ShapeMismatch) as caught:
        infer1("gather", x, -1, tile(5, 8, dtype=INT32))
    assert lines(caught.value) == [10, 12]
    with pytest.raises(BadChoice):
        infer("gather", x, kvalue=1.0, cmp_mode=9, out_cols=3)
    with pytest.raises(BadArgument):
        infer("gather", x, kvalue=1.0, cmp_mode=0, out_cols=0)


def test_index_out_of_range_is_a_fault():
    x = f32(4, 16)
    for wrong in (16, -1):
        index = np.full((4, 2), wrong, np.int32)
        with pytest.raises(IndexFault) as caught:
            run("gather", x, -1, index)
        assert (caught.value.axis, caught.value.index, caught.value.extent) == (1, wrong, 16)


def test_gather_regions():
    x, index = f32(4, 16), indices(16, 4, 8)
    assert region("gather", x, -1, Part(index, 4, 5)) == (4, 5)
    assert region("gather", Part(x, 3, 7), mask_pattern="P0101") == (3, 4)
    assert region("gather", Part(x, 3, 7), mask_pattern="P1010") == (3, 3)
    assert region("gather_mask", Part(x, 3, 16), 2, INT16) == (3, 16)
    with pytest.raises(RegionFault):
        region("gather", Part(x, 3, 7), mask_pattern="P1010", output_dtype=INT16)


# --- scatter -------------------------------------------------------------------------------------


def test_scatter_last_one_stays():
    x, src = f32(4, 8), f32(4, 6)
    index = np.tile(np.array([0, 3, 3, 7, 0, 1], np.int32), (4, 1))
    expected = x.copy()
    for k in range(6):
        expected[np.arange(4), index[:, k]] = src[:, k]
    np.testing.assert_array_equal(run("scatter", x, -1, index, src), expected)
    part = run("scatter", x, -1, Part(index, 4, 2), src)
    np.testing.assert_array_equal(part[:, 1:3], x[:, 1:3])
    np.testing.assert_array_equal(part[:, 3], src[:, 1])


def test_scatter_along_rows():
    x, src = f32(5, 3), f32(2, 3)
    index = np.array([[0, 1, 2], [4, 4, 0]], np.int32)
    expected = x.copy()
    for k in range(2):
        expected[index[k], np.arange(3)] = src[k]
    np.testing.assert_array_equal(run("scatter", x, dim=0, index=index, src=src), expected)


def test_scatter_mask_is_the_inverse():
    dst, x = f32(4, 16), f32(4, 8)
    result = run("scatter", x, mask_pattern="P0101", dst=dst)
    np.testing.assert_array_equal(result[:, ::2], x)
    np.testing.assert_array_equal(result[:, 1::2], dst[:, 1::2])
    np.testing.assert_array_equal(run("scatter_mask", dst, x, "P0101"), result)
    assert region("scatter", x, mask_pattern="P0101", dst=Part(dst, 4, 10)) == (4, 10)


def test_scatter_errors():
    x, index = tile(4, 8), tile(4, 6, dtype=INT32)
    with pytest.raises(NoSuchForm):
        infer1("scatter", x, -1, index)
    with pytest.raises(ShapeMismatch):
        infer1("scatter", x, -1, index, tile(4, 5))
    with pytest.raises(DTypeMismatch):
        infer1("scatter", x, -1, index, tile(4, 6, dtype=BF16))
    with pytest.raises(ShapeMismatch):
        infer1("scatter", tile(4, 7), mask_pattern="P0101", dst=tile(4, 16))
    with pytest.raises(IndexFault):
        run("scatter", f32(4, 8), -1, np.full((4, 2), 8, np.int32), f32(4, 2))


def test_scatter_update():
    x, src = f32(32, 8), f32(6, 8)
    index = np.array([[5, 5, 7], [2, 31, 5]], np.int32)
    expected = x.copy()
    for k, row in enumerate(index.ravel()):
        expected[row] = src[k]
    np.testing.assert_array_equal(run("scatter_update", x, -2, index, src), expected)
    np.testing.assert_array_equal(run("scatter_update", x, index=index, src=src), expected)


def test_scatter_update_of_blocks():
    cache, src = f32(4, 8, 1, 16), f32(2, 3, 1, 16)
    index = np.array([[0, 9, 17], [31, 8, 1]], np.int32)
    result = run("scatter_update", cache, -2, index, src)
    for b, s in np.ndindex(2, 3):
        block, slot = divmod(int(index[b, s]), 8)
        np.testing.assert_array_equal(result[block, slot], src[b, s])


def test_scatter_update_types():
    x, index, src = tensor(32, 8), tensor(2, 3, dtype=INT32), tensor(6, 8)
    assert infer1("scatter_update", x, -2, index, src, in_scope=False) == x.type
    assert REGISTRY["scatter_update"].writes == ("input",)
    with pytest.raises(BadChoice):
        infer1("scatter_update", x, -1, index, src)
    with pytest.raises(ShapeMismatch):
        infer1("scatter_update", x, -2, index, tensor(5, 8))
    with pytest.raises(RankMismatch):
        infer1("scatter_update", tensor(2, 32, 8), -2, index, src)
    with pytest.raises(BadArgument):
        infer1("scatter_update", x, -2, index)
    with pytest.raises(IndexFault):
        run("scatter_update", f32(4, 8), -2, np.full((1, 1), 4, np.int32), f32(1, 8))


# --- by way of global memory ---------------------------------------------------------------------


def test_mgather_types():
    mem, idx = tensor(64, 32), tile(1, 16, dtype=INT32)
    assert infer1("mgather", mem, idx) == TileType((16, 32), FP32)
    assert infer1("mgather", mem, idx, "elem") == TileType((1, 16), FP32)
    placed = tile(1, 16, dtype=INT32, space=Mem.Vec)
    assert infer1("mgather", mem, placed, target_memory=Mem.Mat).space is Mem.Mat
    with pytest.raises(BadChoice):
        infer1("mgather", mem, idx, "rows")
    with pytest.raises(BadChoice):
        infer1("mgather", mem, idx, gather_oob="ignore")
    with pytest.raises(BadArgument):
        infer1("mgather", tile(64, 32), idx)


def mgather(mem: np.ndarray, idx: np.ndarray, coalesce: str, oob: str = "undefined") -> np.ndarray:
    reference = REGISTRY["mgather"].reference
    assert reference is not None
    return reference(
        mem=mem, idx=idx, coalesce=coalesce, gather_oob=oob, target_memory=Mem.Vec, valid_shape=None
    )


def test_mgather_values():
    mem = f32(64, 32)
    idx = indices(64, 1, 16)
    np.testing.assert_array_equal(mgather(mem, idx, "row"), mem[idx[0]])
    flat = indices(64 * 32, 4, 8)
    np.testing.assert_array_equal(mgather(mem, flat, "elem"), mem.ravel()[flat])
    outside = np.array([[70, -1, 3]], np.int32)
    np.testing.assert_array_equal(mgather(mem, outside, "row", "clamp"), mem[[63, 63, 3]])
    np.testing.assert_array_equal(mgather(mem, outside, "row", "wrap"), mem[[6, 63, 3]])
    odd = mgather(mem[:7], outside, "row", "wrap")  # as unsigned: 2**32 - 1 is 3 modulo 7
    np.testing.assert_array_equal(odd, mem[[0, 3, 3]])
    zeroed = mgather(mem, outside, "row", "zero")
    assert not zeroed[:2].any()
    np.testing.assert_array_equal(zeroed[2], mem[3])
    with pytest.raises(IndexFault):
        mgather(mem, outside, "row")


def test_mscatter():
    out, src = f32(4, 8), f32(2, 3)
    idx = np.array([[0, 31, 5], [5, 9, 10]], np.int32)
    reference = REGISTRY["mscatter"].reference
    assert reference is not None
    result = reference(src=src, idx=idx, output_tensor=out, valid={"src": (2, 2), "idx": (2, 3)})
    expected = out.copy().ravel()
    expected[[0, 31, 5, 9]] = src[:, :2].ravel()
    np.testing.assert_array_equal(result.ravel(), expected)
    target = tensor(4, 8)
    assert infer1("mscatter", tile(2, 3), tile(2, 3, dtype=INT32), target) == TensorType(
        (4, 8), FP32
    )
    with pytest.raises(ShapeMismatch):
        infer1("mscatter", tile(2, 3), tile(3, 2, dtype=INT32), target)


def test_gatherb():
    src = f32(1, 64)
    offsets = (np.array([[7, 0], [3, 5]]) * 32).astype(np.uint32)
    blocks = src.reshape(8, 8)
    expected = np.stack([blocks[[7, 0]].ravel(), blocks[[3, 5]].ravel()])
    np.testing.assert_array_equal(run("gatherb", src, offsets), expected)
    assert region("gatherb", src, Part(offsets, 2, 1)) == (2, 8)
    for wrong in (2, 256):
        with pytest.raises(IndexFault):
            run("gatherb", src, np.full((1, 1), wrong, np.uint32))


# --- sorting -------------------------------------------------------------------------------------


def pairs_of(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = run("gather", records, mask_pattern="P0101")
    return values, run("gather", records, mask_pattern="P1010", output_dtype=INT32)


def test_top_k():
    scores = RNG.permutation(1024).astype(np.float32)[None]
    ramp = run("arange", 0, (1, 1024), UINT32)
    records = run("sort32", scores, ramp)
    for block in (64, 256):
        records = run("mrgsort", records, block_len=block)
    records = run("mrgsort", records[:, :1024].copy(), records[:, 1024:].copy())
    order = np.argsort(-scores[0])
    values, where = pairs_of(records)
    np.testing.assert_array_equal(where[0], order)
    np.testing.assert_array_equal(values[0], scores[0][order])


def test_sort32_types():
    assert infer1("sort32", tile(1, 64), tile(1, 64, dtype=UINT32)) == TileType((1, 128), FP32)
    half = infer1("sort32", tile(2, 64, dtype=FP16), tile(2, 64, dtype=UINT32))
    assert half == TileType((2, 256), FP16)
    with pytest.raises(SortGeometry):
        infer1("sort32", tile(1, 48), tile(1, 48, dtype=UINT32))
    with pytest.raises(ShapeMismatch):
        infer1("sort32", tile(1, 64), tile(1, 32, dtype=UINT32))
    with pytest.raises(DTypeNotAllowed):
        infer1("sort32", tile(1, 64, dtype=BF16), tile(1, 64, dtype=UINT32))
    with pytest.raises(DTypeNotAllowed):
        infer1("sort32", tile(1, 64), tile(1, 64))


def test_sort32_of_a_part():
    scores = f32(1, 64)
    ramp = np.arange(64, dtype=np.uint32)[None]
    part = Part(scores, 1, 40)
    assert region("sort32", part, ramp) == (1, 80)
    values, _ = pairs_of(run("sort32", part, ramp)[:, :80].copy())
    np.testing.assert_array_equal(values[0, :32], np.sort(scores[0, :32])[::-1])
    np.testing.assert_array_equal(values[0, 32:], np.sort(scores[0, 32:40])[::-1])


def test_merge_of_lists():
    lists = []
    for k in range(3):
        values = f32(1, 32)
        ramp = np.arange(32 * k, 32 * k + 32, dtype=np.uint32)[None]
        lists.append((values, run("sort32", values, ramp)))
    merged = run("mrgsort", *[records for _, records in lists])
    every = np.concatenate([values for values, _ in lists], axis=1)[0]
    values, where = pairs_of(merged)
    np.testing.assert_array_equal(values[0], np.sort(every)[::-1])
    np.testing.assert_array_equal(every[where[0]], values[0])


def test_merge_errors():
    for kwargs in ({}, {"block_len": 64, "src1": tile(1, 256)}):
        with pytest.raises(NoSuchForm):
            infer1("mrgsort", tile(1, 256), **kwargs)
    for x, block in ((tile(1, 256), 32), (tile(1, 128), 64), (tile(2, 256), 64)):
        with pytest.raises(SortGeometry):
            infer1("mrgsort", x, block_len=block)
    with pytest.raises(ShapeMismatch):
        infer1("mrgsort", tile(1, 64), tile(2, 64))
    with pytest.raises(DTypeMismatch):
        infer1("mrgsort", tile(1, 64), tile(1, 64, dtype=FP16))
    with pytest.raises(SortGeometry):
        infer1("mrgsort", tile(1, 64), tile(1, 63))
    with pytest.raises(RegionFault):
        region("mrgsort", Part(f32(1, 256), 1, 128), block_len=64)
    assert infer1("mrgsort", tile(1, 64), tile(1, 32), exhausted=True).shape == (1, 96)
    with pytest.raises(BadArgument):
        infer1("mrgsort", number(), block_len=64)
