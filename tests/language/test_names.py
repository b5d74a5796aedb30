"""Names of the language that describe, mark or rename, and change no result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import round_trip

import tilelet.language as pl
from tilelet.diag import UserError
from tilelet.diag.core import UserErrors

X = np.arange(256, dtype=np.float32).reshape(16, 16) / 8 - 10


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


@pl.program(strict_ssa=True)
class Described:
    @pl.function(type=pl.FunctionType.InCore)
    def body(
        self,
        x: pl.Tensor[[16, 16], pl.FP32],
        n: pl.Scalar[pl.INT32],
        y: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    ):
        pl.func_attr({"stationary": x})
        warm: pl.PrefetchAsyncContext = pl.prefetch.make_context()
        event: pl.AsyncEvent = pl.prefetch.async_prefetch(x, warm)
        order: pl.AsyncSession = pl.prefetch.session(warm)
        pl.prefetch.wait(event, order)
        tile = pl.load(x, [0, 0], [16, 16])
        more = pl.tile.max(lhs=n, rhs=pl.min(rhs=5, lhs=3))
        pl.system.bar_all(span=None)
        return pl.store(pl.add(tile, pl.cast(more, pl.FP32)), [0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        pl.dump_tag(x)
        flat = pl.tensor.view(x, [256])
        back = pl.tensor.view(tensor=flat, shape=[16, 16])
        arguments = {"arg_directions": [pl.adir.input, pl.adir.scalar, pl.adir.output_existing]}
        out = self.body(pl.no_dep(tensor=back), 2, y, attrs=arguments)
        return out


def test_names_that_change_no_result() -> None:
    np.testing.assert_array_equal(run(Described, x=X, y=zeros(16, 16))["y"], X + 3)


def test_all_functions_of_a_program_may_be_strict() -> None:
    with pytest.raises((UserError, UserErrors), match="strict_ssa"):

        @pl.program(strict_ssa=True)
        class Rebinds:  # pyright: ignore[reportUnusedClass]
            @pl.function
            def main(
                self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
            ):
                with pl.at(level=pl.Level.CORE_GROUP):
                    a = pl.add(x, 1.0)
                    a = pl.add(a, 1.0)
                    y[:] = a
                return y


@pl.jit
def counted(
    x: pl.Tensor,
    y: pl.Out[pl.Tensor],
    times: pl.Scalar[pl.INT32] = pl.RUNTIME,  # pyright: ignore[reportArgumentType]
):
    """Rows distributed over as many clusters as there are."""
    for core in pl.spmd(pl.system.available_cluster_count()):
        for row in pl.range(core, 16, pl.system.available_cluster_count()):
            y[row : row + 1, :] = pl.mul(x[row : row + 1, :], pl.cast(times, pl.FP32))
    return y


def test_numbers_that_a_device_knows() -> None:
    got = run(counted, x=X, y=zeros(16, 16), times=3)["y"]
    np.testing.assert_array_equal(got, 3 * X)


@pl.jit
def compares(x: pl.Tensor, columns: pl.Out[pl.Tensor], counts: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tmp = pl.create_tile([16, 32], pl.UINT8, pl.Mem.Vec)
        found, count = pl.tile.gather_compare(x, 3.0, tmp, out_cols=8, offset=1)
        columns[:, :] = found
        counts[:, :] = count


def test_columns_that_compare_equal() -> None:
    x = (np.arange(256, dtype=np.float32) % 5).reshape(16, 16)
    left = run(
        compares, x=x, columns=zeros(16, 8, dtype=np.int32), counts=zeros(1, 16, dtype=np.int32)
    )
    for row in range(16):
        found = np.flatnonzero(x[row] == 3)
        assert left["counts"][0, row] == len(found)
        np.testing.assert_array_equal(left["columns"][row, : len(found)], found + 1)


@pl.program
class Batches:
    @pl.function(type=pl.FunctionType.InCore)
    def body(
        self,
        a: pl.Tensor[[2, 16, 16], pl.FP32],
        b: pl.Tensor[[1, 16, 16], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 16, 16], pl.FP32]],
    ):
        left = pl.load(a, [0, 0, 0], [2, 16, 16], target_memory=pl.Mem.Mat)
        right = pl.load(b, [0, 0, 0], [1, 16, 16], target_memory=pl.Mem.Mat)
        acc = pl.tile.batch_matmul(left, right)
        return pl.store(pl.tile.batch_matmul_acc(acc, left, right), [0, 0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        a: pl.Tensor[[2, 16, 16], pl.FP32],
        b: pl.Tensor[[1, 16, 16], pl.FP32],
        y: pl.Out[pl.Tensor[[2, 16, 16], pl.FP32]],
    ):
        y = self.body(a, b, y)
        return y


def test_products_are_added_to_batches() -> None:
    a, b = np.stack([X, X + 1]), X[None]
    got = run(Batches, a=a, b=b, y=zeros(2, 16, 16))["y"]
    np.testing.assert_allclose(got, 2 * (a @ b), rtol=1e-5)


def test_programs_by_other_names(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(round_trip(Described), encoding="utf-8")
    for program in (pl.loads_program(file), pl.parser.parse_program(file.read_text("utf-8"))):
        np.testing.assert_array_equal(run(program, x=X, y=zeros(16, 16))["y"], X + 3)


def test_types_by_other_names() -> None:
    assert isinstance(counted, pl.JITFunction)
    assert pl.DynVar("M").name == "M"
    assert pl.ForKind.Parallel.name == "Parallel"
    assert pl.Ptr is pl.PtrType
    assert pl.TileView().blayout is pl.TileLayout.row_major
    assert pl.optimizations.split(pl.SplitMode.UP_DOWN) == pl.split(pl.SplitMode.UP_DOWN)


def test_other_names_of_levels_and_roles() -> None:
    assert pl.Level.POD is pl.Level.CLUSTER_0
    assert pl.Level.NODE is pl.Level.HOST
    assert pl.Role.SubWorker is pl.Role.Worker


def test_sizes_of_elements_are_numbers_in_scripts_and_kernels() -> None:
    assert [t.get_byte() for t in (pl.FP32, pl.BF16, pl.INT8, pl.FP4)] == [4, 2, 1, 1]
    assert [t.get_bit() for t in (pl.FP32, pl.BF16, pl.INT8, pl.FP4)] == [32, 16, 8, 4]

    @pl.jit
    def first(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
        rows = 2 * pl.FP32.get_byte()
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0:rows, :] = x[0:rows, :]
        return out

    x, out = np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)
    first(x, out)
    assert out.sum(1).tolist() == [64.0] * 8 + [0.0] * 8
