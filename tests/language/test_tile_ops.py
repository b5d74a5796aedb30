"""Ops of tile-level code, each in a small program that runs on every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import round_trip

import tilelet.language as pl
from tilelet.diag.core import UserErrors
from tilelet.numerics.philox import philox

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
    """This includes masks of the tile's shape."""
    x = floats(2, 16)
    per_row = 32 // np.dtype(dtype).itemsize
    mask = np.full((2, per_row), 0xAA, np.uint8).repeat(np.dtype(dtype).itemsize, 1).view(dtype)
    expected = np.where(np.arange(16) % 2, x, np.float32(-3))
    out = run(carried, mask=mask, x=x, out=zeros(2, 16))["out"]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_negative_number_in_an_unsigned_tile_is_its_bits(dtype: type) -> None:
    x = np.arange(32, dtype=dtype).reshape(2, 16)
    mask = np.full((2, 32), 0xAA, np.uint8)
    out = run(carried, mask=mask, x=x, out=zeros(2, 16, dtype=dtype))["out"]
    minus_three = np.array(-3, np.int64).astype(dtype)
    np.testing.assert_array_equal(out, np.where(np.arange(16) % 2, x, minus_three))


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


# --- tiles filled by position ---------------------------------------------------------------------


@pl.jit
def triangles(
    shift: pl.Scalar[pl.INT32],
    low: pl.Out[pl.Tensor[[16, 24], pl.FP16]],
    high: pl.Out[pl.Tensor[[16, 24], pl.INT32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.tile.tri(-2, [16, 24], dtype=pl.FP16), [0, 0], low)
        part = pl.tile.tri(shift, [16, 24], valid_shape=[7, 9], upper=True)
        pl.store(part, [0, 0], high)


def test_triangles() -> None:
    low, high = zeros(16, 24, dtype=np.float16), zeros(16, 24, dtype=np.int32)
    left = run(triangles, shift=3, low=low, high=high)
    ones = np.ones((16, 24))
    np.testing.assert_array_equal(left["low"], np.tril(ones, -2))
    high[:7, :9] = np.triu(ones, 3)[:7, :9]
    np.testing.assert_array_equal(left["high"], high)


@pl.jit
def draws(seed: pl.Scalar[pl.INT32], out: pl.Out[pl.Tensor[[3, 8], pl.UINT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.random(seed, 0, -1, 0, 0, 0, [3, 8])


def test_random_words_follow_from_key_and_counter() -> None:
    out = zeros(3, 8, dtype=np.uint32)
    first = run(draws, seed=7, out=out)["out"]
    np.testing.assert_array_equal(run(draws, seed=7, out=out)["out"], first)
    assert (run(draws, seed=8, out=out)["out"] != first).all()
    # The counter of the second block of four words is one higher, with a carry.
    np.testing.assert_array_equal(first.ravel()[4:8], philox((7, 0), (0, 1, 0, 0), 4, 10))


def test_the_generator_is_philox() -> None:
    """The words that its authors publish for counters and keys of zeros and of ones."""
    zero = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    np.testing.assert_array_equal(philox((0, 0), (0,) * 4, 4, 10), zero)
    ones = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    np.testing.assert_array_equal(philox((-1, -1), (-1,) * 4, 4, 10), ones)


# --- rows brought together ------------------------------------------------------------------------


@pl.jit
def gathers_rows(
    pool: pl.Tensor, rows: pl.Tensor, q: pl.Tensor, out: pl.Out[pl.Tensor], sent: pl.Out[pl.Tensor]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        keys = pl.create_l1([16, 32], pl.BF16)
        turned = pl.create_l1([32, 16], pl.BF16, transpose=True)
        for r in pl.range(16):
            row = pl.read(rows, [r])
            keys = pl.gather_row(keys, pool, [r, 0], [row, 0], [1, 32])
            turned = pl.gather_row(turned, pool, [0, r], [row, 0], [1, 32], transpose=True)
        out[:, :] = pl.matmul(q, keys, out_dtype=pl.FP32, b_trans=True)
        keys = pl.gather_row(keys, pool, [0, 0], [0, 0], [16, 32], valid_shape=[5, 32])
        sent[:, :] = pl.matmul(keys, turned, out_dtype=pl.FP32)


def test_rows_are_gathered_into_an_operand() -> None:
    pool = floats(64, 32).astype(ml_dtypes.bfloat16)
    q = floats(16, 32).astype(ml_dtypes.bfloat16)
    rows = RNG.integers(0, 64, 16).astype(np.int32)
    arguments = {"pool": pool, "rows": rows, "q": q}
    left = run(gathers_rows, **arguments, out=zeros(16, 16), sent=zeros(16, 16))
    wide = pool.astype(np.float32)
    np.testing.assert_allclose(
        left["out"], q.astype(np.float32) @ wide[rows].T, rtol=1e-5, atol=1e-5
    )
    mixed = np.concatenate([wide[:5], wide[rows][5:]])
    np.testing.assert_allclose(left["sent"], mixed @ wide[rows].T, rtol=1e-5, atol=1e-5)


@pl.jit
def reads_pages(
    pool: pl.Tensor, chosen: pl.Tensor, pages: pl.Tensor,
    out: pl.Out[pl.Tensor], turned: pl.Out[pl.Tensor],
):  # fmt: skip
    with pl.at(level=pl.Level.CORE_GROUP):
        rows = pl.paged_gather(pool, chosen, pages, block_size=8, size=16, max_indices=16)
        out[:, :] = pl.add(rows, 0.0)
        turned[:, :] = pl.paged_gather(
            pool, chosen, pages, block_size=8, size=16, max_indices=12, col_off=4, is_trans=True
        )


def test_rows_of_pages() -> None:
    pool, pages = floats(64, 24), RNG.permutation(8).astype(np.int32)
    chosen = RNG.integers(0, 64, 12).astype(np.int32)
    arguments = {"pool": pool, "chosen": chosen, "pages": pages}
    left = run(reads_pages, **arguments, out=zeros(16, 16), turned=zeros(16, 12))
    rows = pool[pages[chosen // 8] * 8 + chosen % 8]
    np.testing.assert_array_equal(left["out"][:12], rows[:, :16])
    assert not left["out"][12:].any()
    np.testing.assert_array_equal(left["turned"], rows[:, 4:20].T)


@pl.jit
def extracts(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        whole = pl.load(a, [0, 0], [32, 64], target_memory=pl.Mem.Mat)
        right = pl.move(pl.load(b, [0, 0], [32, 16], target_memory=pl.Mem.Mat), pl.Mem.Right)
        for k in pl.range(2):
            left = pl.tile.extract(whole, 16 * k, 32, [16, 32], target_memory=pl.Mem.Left)
            pl.store(pl.matmul(left, right), [16 * k, 0], out)


def test_parts_of_a_tile_go_elsewhere() -> None:
    a, b = floats(32, 64), floats(32, 16)
    out = run(extracts, a=a, b=b, out=zeros(32, 16))["out"]
    np.testing.assert_allclose(out, a[:, 32:] @ b, rtol=1e-5, atol=1e-5)


# --- small arrays ---------------------------------------------------------------------------------


@pl.jit
def updates_elements(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        starts = pl.array.create(2, pl.INT32)
        for i in pl.range(2):
            starts = pl.array.update_element(starts, i, 8 - 8 * i)
        for i in pl.range(2):
            start = pl.array.get_element(starts, i)
            out[8 * i : 8 * i + 8, :] = x[start : start + 8, :]


def test_elements_of_arrays_by_their_other_names() -> None:
    x = floats(16, 16)
    out = run(updates_elements, x=x, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(out, np.concatenate([x[8:], x[:8]]))


# --- additions to memory --------------------------------------------------------------------------


@pl.jit
def adds_rounded(x: pl.Tensor, out: pl.InOut[pl.Tensor], half: pl.InOut[pl.Tensor]):
    for _ in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.add(x, 0.0), [0, 0], atomic=pl.AtomicType.Add)
            half = pl.store(pl.load(x, [0, 0], [16, 16]), [0, 0], half, atomic=pl.AtomicType.Add)


def test_wide_numbers_are_added_to_narrow_memory() -> None:
    x = floats(16, 16)
    start: Any = np.ones((16, 16), ml_dtypes.bfloat16)
    left = run(adds_rounded, x=x, out=start, half=zeros(16, 16, dtype=np.float16))
    rounded = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(left["out"], (start + rounded) + rounded)
    np.testing.assert_array_equal(left["half"], x.astype(np.float16) * 2)


# --- what only concerns the device ----------------------------------------------------------------


@pl.jit
def waits_and_warms(x: pl.Tensor, flags: pl.Tensor, out: pl.Out[pl.Tensor]):
    warm = pl.prefetch.make_context()
    event = pl.prefetch.async_prefetch(x, warm)
    pl.prefetch.wait(event, pl.prefetch.session(warm))
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.system.set_ffts(flags)
        tile = pl.add(x, 1.0)
        for i in pl.range(2):
            pl.system.sync_set(i, pipe=pl.PipeType.MTE3, ffts_mode=2, core_type="aiv")
            pl.system.sync_wait(i, pipe=pl.PipeType.MTE3, core_type="aic")
            pl.system.sync_set(i, pipe=pl.PipeType.MTE3, core_type=pl.KernelType.AIV)
            pl.system.sync_wait(i, pipe=pl.PipeType.MTE3, core_type=pl.KernelType.AIC)
        pl.set_cache_policy(x, pl.CachePolicy.BYPASS)
        out[:, :] = tile
        pl.system.fence()
        pl.system.cacheinvalid()
        pl.system.cacheinvalid(x, [1, 8], [0, 0])


@pl.jit
def waits(x: pl.Tensor, half: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    for block in pl.spmd(2):
        half[8 * block : 8 * block + 8, :] = pl.add(x[8 * block : 8 * block + 8, :], 1.0)
        pl.system.syncall(core_type=pl.KernelType.MIX, mode=pl.SyncAllMode.HARD)
        out[8 * block : 8 * block + 8, :] = half[8 - 8 * block : 16 - 8 * block, :]


def test_a_barrier_by_the_names_of_late_programs() -> None:
    x = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)
    got = run(waits, x=x, half=np.zeros_like(x), out=np.zeros_like(x))["out"]
    np.testing.assert_array_equal(got, np.roll(x, 8, axis=0) + 1)


@pl.jit
def selects(
    x: pl.Tensor, y: pl.Tensor, n: pl.Tensor, out: pl.Out[pl.Tensor], whole: pl.Out[pl.Tensor]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        a, b = pl.load(x, [0, 0], [16, 16]), pl.load(y, [0, 0], [16, 16])
        greater = pl.tile.select(pl.cmp(a, b, cmp_type=4), a, b)
        pl.store(pl.tile.select(pl.tile.cmps(greater, 1.0, cmp_type=4), greater, 0.0), [0, 0], out)
        pl.store(pl.tile.select(pl.cmps(a, 0.0, cmp_type=4), -1.0, a), [16, 0], out)
        number = pl.load(n, [0, 0], [16, 16])
        pl.store(pl.tile.select(pl.cmps(number, 3, cmp_type=4), number, 7), [0, 0], whole)


def test_a_choice_without_scratch() -> None:
    rng = np.random.default_rng(6)
    x, y = (rng.standard_normal((16, 16)).astype(np.float32) * 2 for _ in range(2))
    n = rng.integers(-9, 9, (16, 16)).astype(np.int32)
    empty = np.zeros((32, 16), np.float32), np.zeros((16, 16), np.int32)
    got = run(selects, x=x, y=y, n=n, out=empty[0], whole=empty[1])
    greater = np.maximum(x, y)
    expected = np.vstack([np.where(greater > 1, greater, 0), np.where(x > 0, -1, x)])
    np.testing.assert_array_equal(got["out"], expected)
    np.testing.assert_array_equal(got["whole"], np.where(n > 3, n, 7))


def test_flags_and_caches_change_no_result() -> None:
    x = floats(16, 16)
    left = run(waits_and_warms, x=x, flags=zeros(8, dtype=np.int32), out=zeros(16, 16))
    np.testing.assert_array_equal(left["out"], x + 1)


# --- one block of values per row ------------------------------------------------------------------


@pl.jit
def expands_blocks(
    x: pl.Tensor, rows: pl.Tensor, out: pl.Out[pl.Tensor], scaled: pl.Out[pl.Tensor]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [16, 44], valid_shape=[9, 43])
        block = pl.load(rows, [0, 0], [16, 8], valid_shape=[9, 8])
        pl.store(pl.tile.row_expand_add(tile, block), [0, 0], out)
        scaled[:, :] = pl.row_expand_mul(x, rows)


def test_blocks_of_a_row_vector_repeat_along_the_row() -> None:
    x, rows = floats(16, 44), floats(16, 8)
    left = run(expands_blocks, x=x, rows=rows, out=zeros(16, 44), scaled=zeros(16, 44))
    wide = np.tile(rows, 6)[:, :44]
    expected = np.zeros_like(x)
    expected[:9, :43] = (x + wide)[:9, :43]
    np.testing.assert_array_equal(left["out"], expected)
    np.testing.assert_array_equal(left["scaled"], x * wide)


# --- products in a window of an accumulator -------------------------------------------------------


@pl.jit
def accumulates_in_windows(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            for k in pl.range(0, 64, 32):
                left = pl.move(pl.load(a, [0, k], [16, 32]), pl.Mem.Left)
                right = pl.move(pl.load(b, [k, 32 * t], [32, 32]), pl.Mem.Right)
                window = pl.tile.slice(acc, [16, 32], [0, t * 32])
                window = pl.matmul_acc(window, left, right, init_cond=(k == 0))
        pl.store(acc, [0, 0], out)


@pl.jit
def accumulates_in_one_window(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            column = t * 32
            window = pl.tile.slice(acc, [16, 32], offset=[0, column])
            for k in pl.range(0, 32, 16):
                left = pl.move(pl.load(a, [0, k], [16, 16]), pl.Mem.Left)
                right = pl.move(pl.load(b, [k, column], [16, 32]), pl.Mem.Right)
                window = pl.matmul_acc(window, left, right, init_cond=(k == 0))
            left = pl.move(pl.load(a, [0, 32], [16, 32]), pl.Mem.Left)
            right = pl.move(pl.load(b, [32, column], [32, 32]), pl.Mem.Right)
            window = pl.matmul_acc(window, left, right)
        pl.store(acc, [0, 0], out)


@pl.jit
def accumulates_in_subscripts(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            for k in pl.range(0, 64, 32):
                left = pl.move(pl.load(a, [0, k], [16, 32]), pl.Mem.Left)
                right = pl.move(pl.load(b, [k, 32 * t], [32, 32]), pl.Mem.Right)
                if k == 0:
                    pl.matmul_acc(acc[0:16, t * 32 : t * 32 + 32], left, right, init_cond=True)
                else:
                    window = acc[0:16, t * 32 : t * 32 + 32]
                    pl.matmul_acc(window, left, right)
        pl.store(acc, [0, 0], out)


@pl.jit
def accumulates_in_rows(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        left = pl.move(pl.load(a, [0, 0], [16, 64]), pl.Mem.Left)
        right = pl.move(pl.load(b, [0, 0], [64, 64]), pl.Mem.Right)
        _ = pl.matmul_acc(acc[0:16], left, right, init_cond=True)
        pl.store(acc, [0, 0], out)


@pl.jit
def accumulates_by_name(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile(shape=[16, 64], dtype=pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            left = pl.move(pl.load(a, [0, 0], [16, 64]), pl.Mem.Left)
            right = pl.move(pl.load(b, [0, 32 * t], [64, 32]), pl.Mem.Right)
            window = pl.tile.slice(tile=acc, shape=[16, 32], offset=[0, t * 32])
            pl.matmul_acc(lhs=left, rhs=right, acc=window, init_cond=True)
        pl.store(acc, [0, 0], out)


@pl.jit
def accumulates_in_views(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            left = pl.move(pl.load(a, [0, 0], [16, 64]), pl.Mem.Left)
            right = pl.move(pl.load(b, [0, 32 * t], [64, 32]), pl.Mem.Right)
            window = pl.view(acc, [16, 32], [0, t * 32])
            window = pl.matmul_acc(window, left, right, init_cond=True)
        pl.store(acc, [0, 0], out)


def test_a_product_in_a_window_changes_the_accumulator() -> None:
    a, b = floats(16, 64), floats(64, 64)
    for program in (
        accumulates_in_windows,
        accumulates_in_one_window,
        accumulates_in_subscripts,
        accumulates_in_rows,
        accumulates_by_name,
        accumulates_in_views,
    ):
        out = run(program, a=a, b=b, out=zeros(16, 64))["out"]
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@pl.jit
def accumulates_once(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        left = pl.move(pl.load(a, [0, 0], [16, 64]), pl.Mem.Left)
        right = pl.move(pl.load(b, [0, 0], [64, 64]), pl.Mem.Right)
        whole = pl.matmul_acc(pl.slice(acc, [16, 64], [0, 0]), left, right, init_cond=True)  # noqa: F841
        pl.store(acc, [0, 0], out)


def test_a_printed_program_puts_a_product_back_once() -> None:
    program = accumulates_once.specialize(zeros(16, 64), zeros(64, 64), zeros(16, 64))
    assert round_trip(program).count("pl.assemble(") == 1


# --- leading axes of extent 1 ---------------------------------------------------------------------


@pl.jit
def adds_across_ranks(a: pl.Tensor, b: pl.Tensor, out: pl.InOut[pl.Tensor], n: pl.Scalar[pl.INDEX]):
    for e in pl.range(n):
        with pl.at(level=pl.Level.CORE_GROUP):
            one = pl.matmul(a, pl.slice(b, [1, 32, 64], [e, 0, 0]), out_dtype=pl.FP32)
            scaled = pl.mul(pl.cast(one, pl.FP32), 2.0)
            scaled = pl.maximum(pl.full([16, 64], pl.FP32, -1.0), scaled)
            out[:, :] = pl.add(out[:, 0:64], scaled)


@pl.jit
def writes_across_ranks(a: pl.Tensor, b: pl.Tensor, out: pl.InOut[pl.Tensor]):
    new = pl.create_tensor([16, 64], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        part = pl.mul(pl.slice(b, [1, 16, 32], [1, 0, 0]), 2.0)
        new[:, 32:64] = part
        new[:, 0:32] = pl.slice(a, [16, 32], [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.add(out, new)


def test_operands_may_lack_leading_axes_of_extent_1() -> None:
    a, b, out = floats(16, 32), floats(3, 32, 64), floats(16, 64)
    found = run(adds_across_ranks, a=a, b=b, out=out.copy(), n=3)["out"]
    wanted = out + sum(np.maximum(2 * (a @ one), -1.0) for one in b)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    found = run(writes_across_ranks, a=a, b=b, out=out.copy())["out"]
    np.testing.assert_array_equal(found, out + np.concatenate([a, 2 * b[1, :16, :32]], axis=1))


@pl.jit
def adds_a_batch(a: pl.Tensor, b: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :, :] = pl.add(pl.slice(b, [2, 16, 32], [0, 0, 0]), a)


def test_longer_axes_must_not_be_missing() -> None:
    with pytest.raises(UserErrors, match=r"E0306.*`\[2, 16, 32\]` and `\[16, 32\]`"):
        run(adds_a_batch, a=floats(16, 32), b=floats(2, 16, 32), out=zeros(2, 16, 32))
