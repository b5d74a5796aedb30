"""Ops of tile-level code, each in a small program that runs on every engine."""

from __future__ import annotations

import numpy as np
import pytest
from tests.everywhere import run

import tilelet.language as pl
from tilelet.diag.core import UserErrors

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- masks of one bit per element -----------------------------------------------------------------


@pl.jit
def selects_by_bits(x: pl.Tensor, y: pl.Tensor, out: pl.Out[pl.Tensor], low: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        xt = pl.load(x, [0, 0], [16, 40], valid_shape=[13, 37])
        yt = pl.load(y, [0, 0], [16, 40], valid_shape=[13, 37])
        mask: pl.Tile[[16, 32], pl.UINT8] = pl.tile.cmp(xt, yt, cmp_type=4)
        pl.store(pl.tile.sel(mask, xt, yt), [0, 0], out)
        below = pl.tile.cmps(xt, 0.25, cmp_type="lt")
        pl.store(pl.tile.sels(below, xt, None, 0.25), [0, 0], low)


def test_masks_of_comparisons() -> None:
    x, y = floats(16, 40), floats(16, 40)
    left = run(selects_by_bits, x=x, y=y, out=zeros(16, 40), low=zeros(16, 40))
    inside = np.zeros((16, 40), bool)
    inside[:13, :37] = True
    np.testing.assert_array_equal(left["out"], np.where(inside, np.maximum(x, y), 0))
    np.testing.assert_array_equal(left["low"], np.where(inside, np.minimum(x, 0.25), 0))


@pl.jit
def packs(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.tile.cmps(x, 0.0, cmp_type=4)


def test_a_packed_mask_is_its_bits() -> None:
    x = floats(4, 24)
    out = run(packs, x=x, out=zeros(4, 32, dtype=np.uint8))["out"]
    np.testing.assert_array_equal(out[:, :3], np.packbits(x > 0, axis=1, bitorder="little"))
    assert not out[:, 3:].any()


@pl.jit
def carried(mask: pl.Tensor, x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.tile.sels(mask, x, None, -3.0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32])
def test_bits_come_in_carriers_of_any_width(dtype: type) -> None:
    """Also where the mask has the shape of the tile."""
    x = floats(2, 16)
    per_row = 32 // np.dtype(dtype).itemsize
    mask = np.full((2, per_row), 0xAA, np.uint8).repeat(np.dtype(dtype).itemsize, 1).view(dtype)
    expected = np.where(np.arange(16) % 2, x, np.float32(-3))
    out = run(carried, mask=mask, x=x, out=zeros(2, 16))["out"]
    np.testing.assert_array_equal(out, expected)


def test_a_mask_with_too_few_bits_is_refused() -> None:
    arguments = {"mask": zeros(2, 1, dtype=np.uint8), "x": zeros(2, 16), "out": zeros(2, 16)}
    with pytest.raises(UserErrors, match="one bit for each element"):
        run(carried, **arguments)


# --- sums of columns ------------------------------------------------------------------------------


@pl.jit
def sums_halves(x: pl.Tensor, steps: pl.Out[pl.Tensor], pairs: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [37, 16])
        tmp = pl.tile.create([37, 16], dtype=pl.FP16)
        pl.store(pl.tile.col_sum(tile), [0, 0], steps)
        pl.store(pl.tile.col_sum(tile, tmp), [0, 0], pairs)


def test_column_sums_of_halves_are_rounded_as_they_grow() -> None:
    x = np.full((37, 16), 100.3, np.float16)
    empty = zeros(1, 16, dtype=np.float16)
    left = run(sums_halves, x=x, steps=empty, pairs=empty)
    step = np.float16(0)
    for value in x[:, 0]:
        step = np.float16(step + value)
    assert (left["steps"] == step).all()
    assert (left["pairs"] != step).all()
    np.testing.assert_allclose(left["pairs"], 37 * 100.3, rtol=1e-3)
