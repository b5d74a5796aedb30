"""Forms of calls that the language has: names of parameters, their order, spellings."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run

import tilelet.language as pl
from tilelet.diag.catalogue.ops import SortGeometry
from tilelet.diag.core import UserError, UserErrors
from tilelet.runtime import TensorSpec
from tilelet.runtime import run as harness

X = np.arange(256, dtype=np.float32).reshape(16, 16) / 8 - 10
ROW = np.linspace(0.5, 4, 16, dtype=np.float32).reshape(16, 1)


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- names ----------------------------------------------------------------------------------------


@pl.jit
def by_other_names(x: pl.Tensor, row: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.tile.load(x, [0, 0], [16, 16], [8, 16], pl.Mem.Vec)
        tile = pl.tile.abs(tile=tile)
        tile = pl.row_expand_add(lhs=tile, rhs=pl.slice(input=row, shape=[16, 1], offset=[0, 0]))
        tile = pl.tile.row_expand_mul(tile=tile, row_vec=pl.tensor.slice(row, [16, 1], [0, 0]))
        tile = pl.fillpad(value=tile, pad_value=pl.PadValue.zero)
        tile = pl.tile.part_add(src0=tile, src1=tile)
        pl.tile.store(tile, offsets=[0, 0], output_tensor=out)
    return out


def test_parameters_have_other_names() -> None:
    expected = (np.abs(X) + ROW) * ROW
    expected[8:] = 0
    got = run(by_other_names, x=X, row=ROW, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(got, expected + expected)


@pl.jit
def takes_scratch_memory(x: pl.Tensor, rows: pl.Tensor[[1, 4], pl.INT32], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tmp = pl.tile.create([16, 16], pl.FP32, pl.Mem.Vec)
        narrow = pl.tile.cast(x, pl.BF16, tmp=tmp)
        cache = pl.cast(narrow, pl.FP32)
        numbers = pl.cast(pl.tile.ci(0, [1, 16], pl.INT32, tmp=tmp), pl.FP32)
        cache = pl.tile.scatter_update(
            cache, dim=-2, index=rows, src=pl.mul(cache[0:4, :], 2.0), scratch=tmp
        )
        out = pl.store(pl.col_expand_add(cache, numbers), [0, 0], out, st_phase=pl.STPhase.Final)
    return out


def test_scratch_memory_of_the_device_is_not_needed() -> None:
    rows = np.array([[9, 3, 12, 5]], np.int32)
    wide = X.astype(ml_dtypes.bfloat16).astype(np.float32)
    expected = wide.copy()
    expected[rows[0]] = wide[:4] * 2
    got = run(takes_scratch_memory, x=X, rows=rows, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(got, expected + np.arange(16, dtype=np.float32))


@pl.jit
def takes_what_has_no_effect(x: pl.Tensor, row: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tmp = pl.tile.create([16, 16], pl.FP32, pl.Mem.Vec, flat_layout=None)
        a = pl.log(pl.tile.log(pl.add(pl.abs(x), 20.0), True), high_precision=True)
        a = pl.tile.rsqrt(a, tmp)
        a = pl.tile.rsqrt(a, tmp=tmp)
        a = pl.row_expand_add(a, row, tmp)
        a = pl.tile.rem(a, pl.mul(x, 0.25), tmp)
        a = pl.tile.transpose(a, 0, 1, tmp)
        out[:, :] = a
    return out


def test_scratch_and_precision_change_nothing() -> None:
    @pl.jit
    def plain(x: pl.Tensor, row: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = pl.rsqrt(pl.rsqrt(pl.log(pl.log(pl.add(pl.abs(x), 20.0)))))
            out[:, :] = pl.transpose(pl.rem(pl.row_expand_add(a, row), pl.mul(x, 0.25)), 0, 1)
        return out

    x = np.where(X == 0, np.float32(1), X)
    given = {"x": x, "row": ROW, "out": zeros(16, 16)}
    expected = run(plain, **given)["out"]
    np.testing.assert_array_equal(run(takes_what_has_no_effect, **given)["out"], expected)


@pl.jit
def joins_one_element(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        top = pl.row_max(pl.reshape(pl.row_max(x[:, :]), [1, 16]))
        part = pl.slice(x, [16, 16], [0, 0], valid_shape=[7, 10])
        out[:, :] = pl.sub(x[:, :], top)
        out[:, :] = pl.maximum(top, pl.sub(part, top))
    return out


def test_one_element_joins_all_of_a_tile() -> None:
    expected = X - X.max()
    expected[:7, :10] = X.max()
    got = run(joins_one_element, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(got, expected)


def test_a_parameter_is_given_once() -> None:
    @pl.jit
    def twice(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.exp(x, input=x)
        return out

    with pytest.raises((UserError, UserErrors)):
        run(twice, x=X, out=zeros(16, 16))


# --- products -------------------------------------------------------------------------------------


@pl.jit
def products(x: pl.Tensor, k: pl.Tensor, out: pl.Out[pl.Tensor], row: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        a = pl.load(x, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
        b = pl.load(k, [0, 0], [32, 16], target_memory=pl.Mem.Mat)
        scores = pl.matmul(a, pl.tile.transpose_view(b))
        pl.store(scores, [0, 0], output_tensor=out)
        line = pl.load(x, [3, 0], [1, 16], target_memory=pl.Mem.Mat)
        acc = pl.tile.gemv(line, pl.tile.transpose_view(tile=b), acc_phase=pl.AccPhase.Partial)
        acc = pl.tile.gemv_acc(acc, line, pl.tile.transpose_view(b), "final")
        pl.store(acc, [0, 0], row)
    return out, row


def test_transposed_views_and_phases_of_an_accumulator() -> None:
    k = np.sin(np.arange(512, dtype=np.float32)).reshape(32, 16)
    got = run(products, x=X, k=k, out=zeros(16, 32), row=zeros(1, 32))
    np.testing.assert_allclose(got["out"], X @ k.T, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(got["row"], 2 * (X[3:4] @ k.T), rtol=1e-5, atol=1e-4)


@pl.jit
def drained(
    a: pl.Tensor,
    b: pl.Tensor,
    narrow: pl.Out[pl.Tensor],
    half: pl.Out[pl.Tensor],
    out: pl.Out[pl.Tensor],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        left = pl.load(a, [0, 0], [16, 32], target_memory=pl.Mem.Mat)
        right = pl.load(b, [0, 0], [32, 16], target_memory=pl.Mem.Mat)
        product = pl.matmul(left, right)
        pl.tile.store(product, [0, 0], narrow, pre_quant=-0.5, pre_relu=True)
        narrow = pl.tile.store(product, [16, 0], narrow, pre_quant=4096.0)
        scratch = pl.tile.create([16, 16], pl.FP16, target_memory=pl.Mem.Mat)
        scratch = pl.tile.assemble(scratch, product, [0, 0], pre_quant=0.125)
        half = pl.tile.store(pl.tile.move(scratch, pl.Mem.Vec), [0, 0], half)
        pl.store(product, [0, 0], out, shapes=[8, 16], pre_relu=True)
    return narrow, half, out


@pytest.mark.parametrize("small", [np.int8, np.float16, ml_dtypes.bfloat16])
def test_what_the_cube_unit_does_on_the_way_out(small: type) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-9, 10, shape).astype(np.int8) for shape in ((16, 32), (32, 16)))
    product = a.astype(np.int32) @ b.astype(np.int32)
    got = run(
        drained,
        a=a,
        b=b,
        narrow=zeros(32, 16, dtype=small),
        half=zeros(16, 16, dtype=np.float16),
        out=zeros(16, 16, dtype=np.int32),
    )
    limits = np.iinfo(small) if small is np.int8 else ml_dtypes.finfo(small)

    def limited(x: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(x) if small is np.int8 else x, limits.min, limits.max).astype(small)

    # The sign is used before the scale, and nothing overflows.
    np.testing.assert_array_equal(got["narrow"][:16], limited(np.maximum(product, 0) * -0.5))
    np.testing.assert_array_equal(got["narrow"][16:], limited(product * 4096.0))
    np.testing.assert_array_equal(got["half"], (product * 0.125).astype(np.float16))
    np.testing.assert_array_equal(got["out"][:8], np.maximum(product, 0)[:8])
    assert not got["out"][8:].any()


@pl.jit
def twice_multiplied(
    a: pl.Tensor[[16, 32], pl.BF16],
    b: pl.Tensor[[32, 16], pl.BF16],
    out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        left = pl.load(a, [0, 0], [16, 32], target_memory=pl.Mem.Mat)
        right = pl.load(b, [0, 0], [32, 16], target_memory=pl.Mem.Mat)
        scratch = pl.tile.create([16, 32], pl.BF16, target_memory=pl.Mem.Mat)
        scratch = pl.tile.assemble(scratch, pl.matmul(left, right), [0, 0])
        scratch = pl.tile.assemble(scratch, pl.matmul(left, right), [0, 16], pre_relu=True)
        out = pl.store(pl.matmul(scratch, right), [0, 0], out)
    return out


def test_a_product_of_a_product_stays_on_the_chip() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-9, 10, s).astype(ml_dtypes.bfloat16) for s in ((16, 32), (32, 16)))
    got = run(twice_multiplied, a=a, b=b, out=zeros(16, 16))["out"]
    wide = b.astype(np.float32)
    first = a.astype(np.float32) @ wide
    both = np.concatenate([first, np.maximum(first, 0)], axis=1).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, both.astype(np.float32) @ wide)


@pl.jit
def transposed_part(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.tile.transpose_view(pl.load(x, [0, 0], [16, 16], valid_shape=[3, 16]))
        out = pl.store(tile, [0, 0], out)
    return out


def test_a_transposed_view_keeps_its_valid_region() -> None:
    got = run(transposed_part, x=X, out=zeros(16, 16) - 1)["out"]
    expected = zeros(16, 16) - 1
    expected[:, :3] = X[:3].T
    np.testing.assert_array_equal(got, expected)


# --- stores ---------------------------------------------------------------------------------------


@pl.jit
def stores_in_another_shape(x: pl.Tensor, out: pl.Out[pl.Tensor], cube: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [4, 16])
        pl.tile.store(tile, [8, 0], out, shapes=[4, 16])
        pl.tile.store(tile, [1, 0, 0], cube, [2, 2, 16])
    return out, cube


def test_a_store_reshapes() -> None:
    got = run(stores_in_another_shape, x=X, out=zeros(16, 16), cube=zeros(3, 2, 16))
    np.testing.assert_array_equal(got["out"][8:12], X[:4])
    np.testing.assert_array_equal(got["cube"][1:], X[:4].reshape(2, 2, 16))
    assert not got["cube"][0].any()


@pl.jit
def stores_the_first_part(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        row = pl.set_validshape(pl.load(x, [3, 0], [1, 16]), 1, 1)
        pl.tile.store(row, [2, 5], out, shapes=[1, 1])
    return out


def test_a_store_of_less_than_the_tile() -> None:
    got = run(stores_the_first_part, x=X, out=zeros(16, 16))["out"]
    expected = zeros(16, 16)
    expected[2, 5] = X[3, 0]
    np.testing.assert_array_equal(got, expected)


# --- gather and scatter ---------------------------------------------------------------------------


@pl.jit
def gathers(
    x: pl.Tensor,
    index: pl.Tensor,
    where: pl.Tensor,
    picked: pl.Out[pl.Tensor],
    put: pl.Out[pl.Tensor],
    blocks: pl.Out[pl.Tensor],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        src = pl.load(x, [0, 0], [16, 16])
        at = pl.load(index, [0, 0], [4, 8])
        tmp = pl.tile.create([4, 8], pl.INT32)
        found = pl.tile.gather(src, at, tmp)
        picked[:, :] = found
        put[:, :] = pl.tile.scatter(pl.mul(src, 2.0), found, at)
        blocks[:, :] = pl.tile.gatherb(src, where, output_dtype=pl.INT16)
    return picked, put, blocks


def test_flat_indices_and_bytes() -> None:
    index = np.random.default_rng(1).permutation(256)[:32].astype(np.int32).reshape(4, 8)
    where = (np.array([[3, 0, 7, 1, 9, 2, 31, 5]], np.uint32) * 32).astype(np.uint32)
    got = run(
        gathers, x=X, index=index, where=where, picked=zeros(4, 8), put=zeros(16, 16),
        blocks=zeros(1, 128, dtype=np.int16),
    )  # fmt: skip
    np.testing.assert_array_equal(got["picked"], X.ravel()[index])
    put = (X * 2).ravel()
    put[index] = X.ravel()[index]
    np.testing.assert_array_equal(got["put"], put.reshape(16, 16))
    halves = X.view(np.int16).reshape(-1, 16)
    np.testing.assert_array_equal(got["blocks"].reshape(8, 16), halves[where[0] // 32])


@pl.jit
def counts_matches(x: pl.Tensor, found: pl.Out[pl.Tensor], counts: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        columns, matches = pl.gather(
            x, kvalue=0.0, cmp_mode="gt", out_cols=8, offset=100, count_dtype=pl.UINT32
        )
        found[:, :] = columns
        counts[:, :] = matches
    return found, counts


def test_matches_are_counted_in_one_row() -> None:
    got = run(
        counts_matches,
        x=X,
        found=zeros(16, 8, dtype=np.int32),
        counts=zeros(1, 16, dtype=np.uint32),
    )
    np.testing.assert_array_equal(got["counts"][0], np.minimum((X > 0).sum(1), 8))
    assert got["found"][15].tolist() == [100 + i for i in range(8)]


@pl.jit
def gathers_to_mat(
    table: pl.Tensor, rows: pl.Tensor, scratch: pl.Tensor, one: pl.Tensor, out: pl.Out[pl.Tensor]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        found = pl.tile.mgather(
            table, rows, 0, gather_oob=3, target_memory=pl.Mem.Mat, scratch=scratch,
            valid_shape=[4, 16],
        )  # fmt: skip
        unit = pl.load(one, [0, 0], [8, 8], valid_shape=[8, 4], target_memory=pl.Mem.Mat)
        out = pl.store(pl.matmul(unit, found), [0, 0], out)
    return out


def test_mgather_by_rows_of_which_some_count() -> None:
    rows = np.array([[5, 99, 0, 2, 3, 3, 3, 3]], np.int32)
    expected = zeros(8, 16)
    expected[:4] = np.where([[True], [False], [True], [True]], X[[5, 0, 0, 2]], 0)
    one = np.eye(8, dtype=np.float32)
    got = run(gathers_to_mat, table=X, rows=rows, scratch=zeros(4), one=one, out=zeros(8, 16))
    np.testing.assert_array_equal(got["out"], expected)


# --- sorting --------------------------------------------------------------------------------------


@pl.jit
def sorts(x: pl.Tensor, first: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pairs = pl.sort32(x, pl.arange(0, [1, 512], dtype=pl.UINT32))
        start = pl.cast(pl.read(first, [0]), pl.INDEX)
        for i, (runs,) in pl.range(2, init_values=(pairs,)):
            (runs2,) = pl.yield_(pl.mrgsort(runs, block_len=start << (2 * i)))
        out[:, :] = pl.gather(runs2, mask_pattern=pl.tile.MaskPattern.P0101)
    return out


def test_runs_of_a_length_known_at_run_time() -> None:
    x = np.random.default_rng(2).standard_normal((1, 512)).astype(np.float32)
    first = np.array([64], np.int32)
    got = run(sorts, x=x, first=first, out=zeros(1, 512))["out"]
    np.testing.assert_array_equal(got, -np.sort(-x))
    with pytest.raises(SortGeometry, match="cannot sort"):
        run(sorts, x=x, first=first + 1, out=zeros(1, 512))


# --- scopes and tasks -----------------------------------------------------------------------------


@pl.jit
def conditional_blocks(
    x: pl.Tensor, gate: pl.Tensor, out: pl.InOut[pl.Tensor], copy: pl.Out[pl.Tensor]
):
    for i in pl.spmd(
        2,
        optimizations=[
            pl.split(pl.SplitMode.UP_DOWN, slot_num=2),
            pl.cross_core_slot(slot_num=4),
        ],
        predicate=(gate[0, 0] > 0),
    ):
        out[i * 8 : i * 8 + 8, :] = pl.add(x[i * 8 : i * 8 + 8, :], 1.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        copy[:, :] = pl.mul(out, 2.0)
    return out, copy


@pytest.mark.parametrize("gate", [0, 1])
def test_blocks_that_run_if_an_element_says_so(gate: int) -> None:
    flag = np.full((1, 1), gate, np.int32)
    got = run(conditional_blocks, x=X, gate=flag, out=zeros(16, 16) + 3, copy=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], X + 1 if gate else zeros(16, 16) + 3)
    np.testing.assert_array_equal(got["copy"], got["out"] * 2)


@pl.program
class SubmitsWithDumps:
    @pl.function(type=pl.FunctionType.InCore, attrs={"split": pl.SplitMode.UP_DOWN})
    def kernel(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        return pl.store(pl.tile.mul(pl.load(x, [0, 0], [16, 16]), 3.0), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        out, _ = pl.submit(self.kernel, x, out, dumps=[x])
        return out


def test_attributes_of_functions_and_dumps_of_tasks_change_nothing() -> None:
    got = run(SubmitsWithDumps, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(got, X * 3)


def test_a_ring_has_a_depth() -> None:
    with pytest.raises(ValueError, match="slot_num"):
        pl.cross_core_slot(slot_num=0)


def test_a_signed_spec_for_an_unsigned_parameter() -> None:
    @pl.jit
    def inverts(x: pl.Tensor[[16, 16], pl.UINT16], out: pl.Out[pl.Tensor[[16, 16], pl.UINT16]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.not_(x)
        return out

    def golden(tensors: dict[str, np.ndarray]) -> None:
        assert tensors["x"].dtype == np.int16
        tensors["out"][:] = ~tensors["x"]

    values = np.arange(-128, 128, dtype=np.int16).reshape(16, 16)
    specs = [
        TensorSpec("x", [16, 16], np.int16, values),
        TensorSpec("out", [16, 16], np.int16, is_output=True),
    ]
    result = harness(inverts, specs=specs, golden_fn=golden)
    assert result.passed, result.error
    assert not harness(inverts, specs=[TensorSpec("x", [16, 16], np.int32), specs[1]]).passed
