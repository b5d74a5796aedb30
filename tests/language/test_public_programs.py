"""Constructs of public programs of several versions of the language, run on every engine."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import task_counts

import tilelet.language as pl
from tilelet.diag.core import UserErrors

X = np.arange(256, dtype=np.float32).reshape(16, 16) / 8 - 10


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


# --- ops of the language on numbers ---------------------------------------------------------------


@pl.jit
def windows_by_ops(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(0, 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.mul(pl.add(i, 0), 4)
            out[row : row + 4, :] = x[pl.sub(row, 0) : row + 4, :]
    return out


def test_ops_on_numbers_are_arithmetic() -> None:
    np.testing.assert_array_equal(run(windows_by_ops, x=X, out=zeros(16, 16))["out"], X)


# --- the first spellings of the language ----------------------------------------------------------


@pl.program
class FirstSpellings:
    @pl.function(type=pl.FunctionType.InCore)
    def product(
        self,
        a: pl.Tensor[[16, 16], pl.FP32],
        b: pl.Tensor[[16, 16], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        left = pl.load(a, [0, 0], [16, 16], target_memory=pl.MemorySpace.Mat)
        right = pl.load(b, [0, 0], [16, 16], target_memory=pl.MemorySpace.Mat)
        moved = pl.move(right, target_memory=pl.MemorySpace.Right, transpose=True)
        acc = pl.matmul(pl.move(left, target_memory=pl.MemorySpace.Left), moved)
        out = pl.l0c_store(acc, [0, 0], [16, 16], out)
        return out

    @pl.function(type=pl.FunctionType.InCore)
    def marked(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[32, 16], pl.FP32]]
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        ones = pl.block.full([16, 16], dtype=pl.FP32, value=1.0)
        narrow = pl.tile.cast(pl.load(x, [0, 0], [16, 16]), dtype=pl.FP16)
        out = pl.store(pl.tile.cast(narrow, dtype=pl.FP32), [0, 0], [16, 16], out)
        out = pl.store(ones, [16, 0], [16, 16], out)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        product: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
        marks: pl.Out[pl.Tensor[[32, 16], pl.FP32]],
    ) -> tuple[pl.Tensor[[16, 16], pl.FP32], pl.Tensor[[32, 16], pl.FP32]]:
        first = pl.view(x, [16, 16], [0, 0])
        second = pl.view(pl.view(x, [16, 16], [0, 16]), [16, 16])
        product = self.product(first, second, product)
        marks = self.marked(first, marks)
        return product, marks


def test_first_spellings() -> None:
    x = np.random.default_rng(3).integers(-8, 8, (16, 32)).astype(np.float32)
    got = run(FirstSpellings, x=x, product=zeros(16, 16), marks=zeros(32, 16))
    np.testing.assert_array_equal(got["product"], x[:, :16] @ x[:, 16:].T)
    np.testing.assert_array_equal(got["marks"], np.vstack([x[:, :16], np.ones((16, 16))]))


@pl.program
class OpsByTheirFirstNames:
    @pl.function
    def main(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Tensor[[16, 16], pl.FP32]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        for i in pl.range(0, 4):
            with pl.incore():
                rows = pl.op.tensor.view(x, [4, 16], [i * 4, 0])
                halves = pl.op.mul(pl.op.neg(rows), -1.0)
                flat = pl.op.tensor.view(pl.op.tensor.mul(halves, 2.0), [8, 8])
                rows_again = pl.op.tensor.view(flat, [4, 16])
                out = pl.op.tensor.assemble(out, rows_again, [i * 4, 0])
        return out


def test_ops_by_their_first_names() -> None:
    np.testing.assert_array_equal(run(OpsByTheirFirstNames, x=X, out=zeros(16, 16))["out"], 2 * X)
    assert [p.name_hint for p in OpsByTheirFirstNames.main.params] == ["x", "out"]


@pl.program
class CallsWithoutTheirOutputs:
    @pl.function(type=pl.FunctionType.InCore)
    def added(
        self,
        a: pl.Tensor[[16, 16], pl.FP32],
        number: pl.Scalar[pl.FP32],
        sum_: pl.Tensor[[16, 16], pl.FP32],
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        return pl.store(pl.add(pl.load(a, [0, 0], [16, 16]), number), [0, 0], [16, 16], sum_)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Tensor[[16, 16], pl.FP32]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        one: pl.Tensor[[16, 16], pl.FP32] = self.added(x, 1.0)
        out = self.added(self.added(one, 2.0), 4.0, out)
        return out


def test_calls_once_left_out_what_they_write() -> None:
    got = run(CallsWithoutTheirOutputs, x=X, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], X + 7)
    assert sum(task_counts(CallsWithoutTheirOutputs, got).values()) == 3


def test_what_is_read_cannot_be_left_out() -> None:
    with pytest.raises(UserErrors, match=r"`scaled` takes 3 arguments, got 1"):

        @pl.program
        class Wrong:
            @pl.function(type=pl.FunctionType.InCore)
            def scaled(
                self,
                a: pl.Tensor[[16, 16], pl.FP32],
                b: pl.Tensor[[16, 16], pl.FP32],
                c: pl.Tensor[[16, 16], pl.FP32],
            ) -> pl.Tensor[[16, 16], pl.FP32]:
                return pl.store(pl.mul(pl.load(a, [0, 0], [16, 16]), b), [0, 0], [16, 16], c)

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(
                self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Tensor[[16, 16], pl.FP32]
            ) -> pl.Tensor[[16, 16], pl.FP32]:
                out = self.scaled(x)
                return out


@pl.jit
def tensor_of_a_scope(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(0, 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            kept = pl.create_tensor([4, 16], dtype=pl.FP32)
            kept[:, :] = x[i * 4 : i * 4 + 4, :]
            kept = pl.store(pl.neg(x[i * 4 : i * 4 + 1, :]), [3, 0], kept)
            pl.store(pl.full([1, 16], dtype=pl.FP32, value=5.0), [0, 0], [1, 16], kept)
            out[i * 4 : i * 4 + 3, :] = pl.load(kept, [1, 0], [3, 16])
            out[i * 4 + 3 : i * 4 + 4, :] = pl.load(kept, [0, 0], [1, 16])
    return out


def test_loads_and_stores_of_a_tensor_that_a_scope_makes() -> None:
    expected = X.reshape(4, 4, 16)[:, [1, 2, 0, 0]].copy()
    expected[:, 2] *= -1
    expected[:, 3] = 5
    got = run(tensor_of_a_scope, x=X, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], expected.reshape(16, 16))


@pl.jit
def stores_as_statements(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.load(x, [0, 0], [8, 16]), [0, 0], [8, 16], out)
        padded = pl.fillpad(pl.load(x, [8, 0], [8, 16]), pad_value=pl.TilePad.zero)
        pl.store(padded, [8, 0], output_tensor=out)
        out[0:1, :] = pl.neg(out[8:9, :])
    return out


@pl.jit
def stores_whole_tensors(
    x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 48], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.add(x, 1.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.store(x, [0, 0], out)
        out = pl.store(y, [0, 16], out)
        out = pl.store(pl.reshape(pl.reshape(y, [1, 256]), [16, 16]), [0, 32], out)
    return out


def test_whole_tensors_are_loaded_for_a_store() -> None:
    got = run(stores_whole_tensors, x=X, out=zeros(16, 48))["out"]
    np.testing.assert_array_equal(got, np.hstack([X, X + 1, X + 1]))


def test_stores_as_statements() -> None:
    expected = X.copy()
    expected[0] = -X[8]
    got = run(stores_as_statements, x=X, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], expected)


@pl.jit
def stores_of_products_as_statements(
    a: pl.Tensor[[16, 32], pl.BF16],
    b: pl.Tensor[[32, 16], pl.BF16],
    out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        left = pl.load(a, [0, 0], [16, 32], target_memory=pl.Mem.Mat)
        right = pl.load(b, [0, 0], [32, 16], target_memory=pl.Mem.Mat)
        kept = pl.create_tensor([16, 16], dtype=pl.FP32)
        pl.l0c_store(pl.matmul(left, right), [0, 0], [16, 16], kept)
        out[:, 0:16] = pl.mul(pl.slice(kept, [16, 16], [0, 0]), 2.0)
        product = pl.matmul(a, b)
        out = pl.assemble(out, product, [0, 16])
    return out


@pl.jit
def products_by_subscript(
    a: pl.Tensor[[16, 32], pl.FP16],
    b: pl.Tensor[[32, 16], pl.FP16],
    out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.matmul(a, b)
    return out


@pl.jit
def assembles_into_a_number(x: pl.Tensor[[16, 16], pl.BF16], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        row = pl.read(x, [0, 0])
        out = pl.assemble(row, pl.matmul(x, x), [0, 0])
    return out


def test_a_number_is_no_place_for_a_product() -> None:
    with pytest.raises(UserErrors, match="target"):
        assembles_into_a_number.specialize(X.astype(ml_dtypes.bfloat16), zeros(16, 16))


def test_products_are_written_as_they_were_accumulated() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-99, 99, s).astype(ml_dtypes.bfloat16) for s in ((16, 32), (32, 16)))
    got = run(stores_of_products_as_statements, a=a, b=b, out=zeros(16, 32))["out"]
    exact = a.astype(np.float32) @ b.astype(np.float32)
    assert (exact != exact.astype(ml_dtypes.bfloat16).astype(np.float32)).any()
    np.testing.assert_array_equal(got, np.hstack([2 * exact, exact]))
    half = {"a": a.astype(np.float16), "b": b.astype(np.float16)}
    got = run(products_by_subscript, **half, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(got, exact)


@pl.jit
def stores_of_a_part(x: pl.Tensor, n: pl.Tensor[[1], pl.INT32], out: pl.Out[pl.Tensor]):
    rows = pl.read(n, [0])
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.store(pl.load(x, [0, 0], [8, 16]), [2, 0], [rows, 16], out)
    return out


def test_stores_of_as_many_rows_as_a_number_says() -> None:
    got = run(stores_of_a_part, x=X, n=np.array([3], np.int32), out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], np.vstack([zeros(2, 16), X[:3], zeros(11, 16)]))


@pl.jit
def integers_decide(
    x: pl.Tensor, flags: pl.Tensor[[4], pl.INT32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
):
    for i in pl.range(0, 4):
        flag = pl.read(flags, [i])
        with pl.at(level=pl.Level.CORE_GROUP):
            if flag:
                out[i * 4 : i * 4 + 4, :] = pl.neg(x[i * 4 : i * 4 + 4, :])
            else:
                out[i * 4 : i * 4 + 4, :] = x[i * 4 : i * 4 + 4, :]
    left = 3
    while left:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[left : left + 1, :] = pl.full([1, 16], dtype=pl.FP32, value=7.0)
        left = left - 1
    return out


def test_an_integer_that_is_not_zero_holds() -> None:
    flags = np.array([0, 1, -(2**31), 0], np.int32)
    expected = X.copy()
    expected[4:12] *= -1
    expected[1:4] = 7
    got = run(integers_decide, x=X, flags=flags, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], expected)


@pl.program
class ChunksWithoutAScope:
    @pl.function
    def main(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Tensor[[16, 16], pl.FP32]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        for r in pl.parallel(0, 16, 1, chunk=4):
            out = pl.assemble(out, pl.neg(pl.slice(x, [1, 16], [r, 0])), [r, 0])
        return out


def test_chunk_loops_once_needed_no_scope() -> None:
    got = run(ChunksWithoutAScope, x=X, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], -X)
    assert sum(task_counts(ChunksWithoutAScope, got).values()) == 4
    assert [c.code for c in ChunksWithoutAScope.cautions] == ["W0101"]


@pl.program
class ChunksAroundScopes:
    @pl.function
    def main(
        self, x: pl.Tensor[[16, 16], pl.FP32], out: pl.Tensor[[16, 16], pl.FP32]
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        for r in pl.parallel(0, 16, 1, chunk=4):
            with pl.incore():
                out = pl.assemble(out, pl.neg(pl.slice(x, [1, 16], [r, 0])), [r, 0])
        return out


def test_chunk_loops_around_scopes_are_not_cut() -> None:
    got = run(ChunksAroundScopes, x=X, out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], -X)
    assert sum(task_counts(ChunksAroundScopes, got).values()) == 16
    assert "W0102" in [c.code for c in ChunksAroundScopes.cautions]


@pl.jit
def draft(x: pl.Tensor, state: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        _ = pl.add(x, state)
    return out


def test_a_draft_may_leave_an_output_for_later() -> None:
    program = draft.specialize(X, X, X)
    assert [c.code for c in program.cautions] == ["W0204"]
    run(program, x=X, state=X, out=zeros(16, 16))


# --- outputs that a helper was handed -------------------------------------------------------------


@pl.jit.inline
def writes_and_returns_a_tile(x: pl.Tensor, out: pl.Tensor):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.add(x, 1.0)
        out[:, :] = y
    return y


@pl.jit.incore
def stores_and_returns_a_tile(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    tile = pl.add(pl.load(x, [0, 0], [16, 16]), 1.0)
    pl.store(tile, [0, 0], out)
    return tile


@pl.jit
def rebinds_what_helpers_wrote(
    x: pl.Tensor, inlined: pl.Out[pl.Tensor], called: pl.Out[pl.Tensor], sums: pl.Out[pl.Tensor]
):
    inlined = writes_and_returns_a_tile(x, inlined)
    called = stores_and_returns_a_tile(x, called)
    with pl.at(level=pl.Level.CORE_GROUP):
        sums[:, :] = pl.add(inlined, called)
    return inlined, called, sums


def test_an_output_may_take_the_result_of_what_wrote_it() -> None:
    got = run(
        rebinds_what_helpers_wrote,
        x=X, inlined=zeros(16, 16), called=zeros(16, 16), sums=zeros(16, 16),
    )  # fmt: skip
    np.testing.assert_array_equal(got["inlined"], X + 1)
    np.testing.assert_array_equal(got["called"], X + 1)
    np.testing.assert_array_equal(got["sums"], 2 * X + 2)


@pl.jit.inline
def makes_another(x: pl.Tensor):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.add(x, 1.0)
    return y


@pl.jit
def drops_a_write(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    out = makes_another(x)
    return out


def test_a_helper_that_never_saw_the_output_wrote_nothing() -> None:
    with pytest.raises(UserErrors, match="E0207"):
        drops_a_write.specialize(X, X)


# --- barriers -------------------------------------------------------------------------------------


@pl.jit
def computes_its_place_once(x: pl.Tensor, middle: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    with pl.spmd(4):
        block = pl.tile.get_block_idx()
        row = pl.min(block * 4, 12)
        middle[row : row + 4, :] = pl.neg(x[row : row + 4, :])
        pl.system.syncall(core_type="mix")
        other = 12 - row
        out[row : row + 4, :] = middle[other : other + 4, :]
    return out


def test_numbers_of_a_block_hold_after_a_barrier() -> None:
    got = run(computes_its_place_once, x=X, middle=zeros(16, 16), out=zeros(16, 16))
    np.testing.assert_array_equal(got["out"], -X.reshape(4, 4, 16)[::-1].reshape(16, 16))


# --- windows whose extent is known at run time ----------------------------------------------------


@pl.jit
def clears_the_rest(rows: pl.Scalar[pl.INDEX], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    end = ((rows + 7) // 8) * 8
    with pl.at(level=pl.Level.CORE_GROUP):
        out[rows:end, :] = pl.full([4, 16], dtype=pl.FP32, value=3.0)
    return out


@pl.program
class SumsWhatCounts:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 16], pl.FP32],
        count: pl.Scalar[pl.INDEX],
        whole: pl.Tensor[[16, 1], pl.FP32],
        part: pl.Tensor[[16, 16], pl.FP32],
    ) -> tuple[pl.Tensor[[16, 1], pl.FP32], pl.Tensor[[16, 16], pl.FP32]]:
        with pl.incore():
            doubled = pl.add(x, x)
            counted: pl.Tensor[[16, count], pl.FP32] = pl.slice(doubled, [16, count], [0, 0])
            whole = pl.assemble(whole, pl.row_sum(counted), [0, 0])
            part = pl.assemble(part, pl.slice(x, [count, 16], [0, 0]), [0, 0])
        return whole, part


def test_a_slice_may_be_as_long_as_a_number_says() -> None:
    got = run(SumsWhatCounts, x=X, count=5, whole=zeros(16, 1), part=zeros(16, 16))
    np.testing.assert_array_equal(got["whole"], (2 * X[:, :5]).sum(1, keepdims=True))
    expected = zeros(16, 16)
    expected[:5] = X[:5]
    np.testing.assert_array_equal(got["part"], expected)


def test_a_source_is_written_as_far_as_the_window_goes() -> None:
    for rows, end in ((4, 8), (6, 8), (1, 5)):
        got = run(clears_the_rest, rows=rows, out=zeros(16, 16))["out"]
        expected = zeros(16, 16)
        expected[rows:end] = 3
        np.testing.assert_array_equal(got, expected)


# --- joins ----------------------------------------------------------------------------------------

ROWS = pl.dynamic("ROWS")


@pl.jit
def layers(
    x: pl.Tensor[[ROWS, 16], pl.FP32],
    limits: pl.Tensor[[2], pl.INT32],
    out: pl.Out[pl.Tensor[[ROWS, 16], pl.FP32]],
):
    rows = pl.tensor.dim(x, 0)
    hidden = x
    for _ in pl.range(3):
        following = pl.create_tensor([rows, 16], dtype=pl.FP32)
        for r in pl.parallel(0, rows, 4):
            with pl.at(level=pl.Level.CORE_GROUP):
                following[r : r + 4, :] = pl.add(hidden[r : r + 4, :], 1.0)
        hidden = following
    limit = pl.read(limits, [0])
    stop = pl.read(limits, [1])
    if limit > 0:
        stop = limit
    else:
        stop = rows
    done = pl.read(limits, [1])
    while done < stop:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[done : done + 4, :] = hidden[done : done + 4, :]
        done = pl.cast(done + 4, pl.INDEX)
    return out


def test_extents_and_integers_of_two_paths_need_not_be_the_same() -> None:
    for limit in (0, 8):
        given = np.array([limit, 0], np.int32)
        got = run(layers, x=X, limits=given, out=zeros(16, 16))["out"]
        expected = zeros(16, 16)
        expected[: limit or 16] = X[: limit or 16] + 3
        np.testing.assert_array_equal(got, expected)


# --- dependencies ---------------------------------------------------------------------------------


@pl.jit
def joins_tasks(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    ids = pl.array.create(4, pl.TASK_ID)
    with pl.manual_scope():
        for i in pl.unroll(4):
            with pl.at(level=pl.Level.CORE_GROUP) as tid:
                out[i * 4 : i * 4 + 4, :] = pl.neg(x[i * 4 : i * 4 + 4, :])
            ids[i] = tid
        joined = pl.system.task_dummy(deps=[ids[i] for i in range(4)])
        with pl.at(level=pl.Level.CORE_GROUP, deps=[joined]):
            out[0:4, :] = pl.add(out[4:8, :], 1.0)
    return out


def test_a_join_of_tasks_takes_a_comprehension() -> None:
    got = run(joins_tasks, x=X, out=zeros(16, 16))["out"]
    expected = -X
    expected[:4] = expected[4:8] + 1
    np.testing.assert_array_equal(got, expected)


# --- helpers that write into a tile of their caller -----------------------------------------------


@pl.inline
def double_by_halves(x, into):
    for h in pl.range(2):
        into = pl.assemble(into, pl.mul(pl.slice(x, [4, 8], [0, h * 8]), 2.0), [0, h * 8])


@pl.jit
def filled_by_a_helper(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        for r in pl.range(0, 16, 4):
            both = pl.create_tensor([4, 16], dtype=pl.FP32)
            double_by_halves(pl.slice(x, [4, 16], [r, 0]), both)
            out = pl.assemble(out, both, [r, 0])
    return out


@pl.jit
def made_outside(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        both = pl.create_tensor([4, 16], dtype=pl.FP32)
        for r in pl.range(0, 16, 4):
            double_by_halves(pl.slice(x, [4, 16], [r, 0]), both)
            out = pl.assemble(out, both, [r, 0])
    return out


def test_a_helper_writes_into_its_callers_tile() -> None:
    np.testing.assert_array_equal(run(filled_by_a_helper, x=X, out=zeros(16, 16))["out"], 2 * X)


def test_a_tile_from_outside_the_loop_is_used_up_and_not_undefined() -> None:
    with pytest.raises(UserErrors, match="`both` is used after it was assembled into"):
        run(made_outside, x=X, out=zeros(16, 16))


# --- blocks beyond the end of a context -----------------------------------------------------------


@pl.jit
def blocks_beyond_the_end(lens: pl.Tensor[[1], pl.INT32], x: pl.Tensor, out: pl.Out[pl.Tensor]):
    length = pl.read(lens, [0])
    for b in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            known = pl.min(4, length - b * 4)
            tile = pl.slice(x, [4, 16], [b * 4, 0], valid_shape=[known, 16])
            out = pl.assemble(out, pl.fillpad(tile, pad_value=pl.PadValue.min), [b * 4, 0])
    return out


@pytest.mark.parametrize("length", [16, 6, 1])
def test_nothing_is_valid_beyond_the_end(length: int) -> None:
    lens = np.array([length], np.int32)
    wanted = np.full_like(X, -np.inf)
    wanted[:length] = X[:length]
    given = run(blocks_beyond_the_end, lens=lens, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(given, wanted)


# --- functions beside a jit function, called as its methods ---------------------------------------


@pl.jit.incore
def doubled(x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    out[:, :] = pl.mul(x[:, :], 2.0)
    return out


@pl.jit
def calls_beside(x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.manual_scope():
        out, _tid = pl.submit(self.doubled, x, out)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return out


def test_a_function_beside_is_called_as_a_method() -> None:
    np.testing.assert_array_equal(run(calls_beside, x=X, out=zeros(16, 16))["out"], 2 * X)
