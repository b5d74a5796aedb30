"""Hand-written kernels: names of outputs and sharing of work, run on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import task_counts

import tilelet.language as pl
from tilelet.diag import UserError
from tilelet.diag.core import UserErrors

X = np.arange(64 * 16, dtype=np.float32).reshape(64, 16) / 8 - 10


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- a name for the memory of an output -----------------------------------------------------------


@pl.program
class NamedInALoop:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        for r in pl.range(0, 64, 16):
            tile = pl.load(x, [r, 0], [16, 16])
            done = pl.store(pl.mul(tile, 2.0), [r, 0], y)
        return done

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        y = self.kernel(x, y)
        return y


@pl.program
class NamedOnOnePath:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.InOut[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        for i in pl.range(4):
            if i % 2 == 1:
                continue
            tile = pl.load(x, [i * 16, 0], [16, 16])
            done = pl.store(pl.mul(tile, 2.0), [i * 16, 0], y)
        return done

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.InOut[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        y = self.kernel(x, y)
        return y


def test_a_name_first_bound_in_a_loop_may_be_the_memory_of_an_output() -> None:
    np.testing.assert_array_equal(run(NamedInALoop, x=X, y=zeros(64, 16))["y"], 2 * X)


def test_a_name_bound_on_one_path_is_the_output_on_the_other() -> None:
    expected = 2 * X
    expected[16:32] = expected[48:] = 7
    got = run(NamedOnOnePath, x=X, y=np.full((64, 16), 7, np.float32))
    np.testing.assert_array_equal(got["y"], expected)


# --- what annotations say beyond shape and dtype --------------------------------------------------


@pl.program
class Annotated:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self,
        x: pl.Tensor[[64, 16], pl.FP32, pl.TensorView(valid_shape=[64, 16], layout=pl.ND)],
        n: pl.Scalar[pl.INDEX],
        y: pl.Out[pl.Tensor[[64, 16], pl.FP32]],
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        for i in pl.range(4):
            tile: pl.Tile[
                [16, 16],
                pl.FP32,
                pl.MemRef("buffer", slots=2)[i % 2],
                pl.Mem.Vec,
                pl.TileView(valid_shape=[n * 2, 16]),
            ] = pl.load(x, [i * 16, 0], [16, 16])
            y = pl.store(pl.add(tile, 1.0), [i * 16, 0], y)
        return y

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        rows = pl.tensor.dim(x, 0)
        made: pl.Tensor[[rows, 16], pl.FP32] = pl.slice(x, [rows, 16], [0, 0])
        y = self.kernel(made, 4, y)
        return y


def test_annotations_may_describe_views_and_memory() -> None:
    np.testing.assert_array_equal(run(Annotated, x=X, y=zeros(64, 16))["y"], X + 1)


# --- two cores that hand each other tiles ---------------------------------------------------------

A = (np.arange(256, dtype=np.float32).reshape(16, 16) % 7) - 3
SPLIT = {"split": pl.SplitMode.UP_DOWN}


@pl.program
class ThereAndBack:
    """y = (x + 1) @ (x + 1) + 1 in four steps; the cube runs one step behind."""

    @pl.function(type=pl.FunctionType.AIV, attrs=SPLIT)
    def vector(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        slots = pl.reserve_buffer(name="back", size=4096, base=pl.AUTO)
        peer = pl.import_peer_buffer(name="there", peer_func="cube")
        pl.aiv_initialize_pipe(slots, peer, dir_mask=3, slot_size=1024)
        pl.tpush_to_aic(pl.add(pl.load(x, [0, 0], [16, 16]), 1.0), split=1, id=1)
        for i in pl.range(1, 4):
            pl.tpush_to_aic(pl.add(pl.load(x, [i * 16, 0], [16, 16]), 1.0), split=1, id=1)
            product: pl.Tile[[16, 16], pl.FP32, pl.Mem.Vec] = pl.tpop_from_aic(split=1)
            y = pl.store(pl.add(product, 1.0), [i * 16 - 16, 0], y)
            pl.tfree_to_aic(product)
        last = pl.tpop_from_aic(shape=[16, 16], dtype=pl.FP32, split=1)
        return pl.store(pl.add(last, 1.0), [48, 0], y)

    @pl.function(type=pl.FunctionType.AIC, attrs=SPLIT)
    def cube(self, x: pl.Tensor[[64, 16], pl.FP32]):
        slots = pl.system.reserve_buffer(name="there", size=4096)
        pl.aic_initialize_pipe(0, slots, dir_mask=3, slot_size=1024, slot_num=4)
        for _ in pl.range(1, 4):
            one: pl.Tile[[16, 16], pl.FP32, pl.Mem.Mat] = pl.tpop_from_aiv(split=1, id=1)
            pl.tpush_to_aiv(pl.matmul(one, one), split=1)
            pl.tfree_to_aiv(one, id=1)
        other: pl.Tile[[16, 16], pl.FP32] = pl.system.tpop_from_aiv(split=1, id=1)
        pl.system.tpush_to_aiv(pl.matmul(other, other), split=1)

    @pl.function(type=pl.FunctionType.Group, attrs=SPLIT)
    def both(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        result = self.vector(x, y)
        self.cube(x)
        return result

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[64, 16], pl.FP32], y: pl.Out[pl.Tensor[[64, 16], pl.FP32]]
    ) -> pl.Tensor[[64, 16], pl.FP32]:
        y = self.both(x, y)
        return y


def group(cube_body: str, vector_body: str) -> Any:
    """A program of a cube and a vector core with these bodies, which use `x`, `n` and `y`."""
    parameters = (
        "self, x: pl.Tensor[[64, 16], pl.FP32], n: pl.Tensor[[1], pl.INT32], "
        "y: pl.InOut[pl.Tensor[[64, 16], pl.FP32]], k: pl.Scalar[pl.INT32]"
    )
    lines = ["import tilelet.language as pl", "@pl.program", "class Two:"]
    for kind, name, body in (("AIC", "cube", cube_body), ("AIV", "vector", vector_body)):
        lines += [
            f"    @pl.function(type=pl.FunctionType.{kind})",
            f"    def {name}({parameters}):",
        ]
        lines += [f"        {line}" for line in body.strip("\n").splitlines()]
    lines += ["    @pl.function(type=pl.FunctionType.Group)", f"    def both({parameters}):"]
    lines += [
        "        self.cube(x, n, y, k)",
        "        self.vector(x, n, y, k)",
        "        return y",
    ]
    lines += ["    @pl.function(type=pl.FunctionType.Orchestration)"]
    lines += [f"    def main({parameters.rpartition(',')[0]}):"]
    lines += ["        y = self.both(x, n, y, pl.read(n, [0]))", "        return y"]
    return pl.parse("\n".join(lines))


def test_cores_hand_each_other_tiles() -> None:
    steps = X.reshape(4, 16, 16) / 16
    expected = np.stack([(s + 1) @ (s + 1) + 1 for s in steps]).reshape(64, 16)
    given = np.ascontiguousarray(X / 16)
    got = run(ThereAndBack, x=given, y=zeros(64, 16))["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    (count,) = task_counts(ThereAndBack, {"x": given, "y": zeros(64, 16)}).values()
    assert count == 1


VECTOR_OF_FOUR = """
for i in pl.range(4):
    got: pl.Tile[[16, 16], pl.FP32] = pl.tpop_from_aic(split=0)
    pl.store(got, [i * 16, 0], y)
"""
CUBE_OF_TWO = """
for i in pl.range(2):
    for j in pl.unroll(2):
        a: pl.Tile[[16, 16], pl.FP32, pl.Mem.Mat] = pl.load(
            x, [i * 32 + j * 16, 0], [16, 16], target_memory=pl.Mem.Mat)
        pl.tpush_to_aiv(pl.matmul(a, a), split=0)
"""
CUBE_ON_CONDITION = """
for i in pl.range(4):
    if i < k:
        a = pl.load(x, [i * 16, 0], [16, 16], target_memory=pl.Mem.Mat)
        pl.tpush_to_aiv(pl.matmul(a, a), split=0)
"""
VECTOR_ON_CONDITION = """
for i in pl.range(4):
    if i < k:
        got: pl.Tile[
            [16, 16], pl.FP32, pl.Mem.Vec, pl.TileView(valid_shape=[k * 2, 16])
        ] = pl.tpop_from_aic(split=0)
        pl.store(got, [i * 16, 0], y)
"""


def test_loops_of_two_cores_need_not_be_the_same() -> None:
    steps = X.reshape(4, 16, 16)
    expected = np.stack([s @ s for s in steps]).reshape(64, 16)
    program = group(CUBE_OF_TWO, VECTOR_OF_FOUR)
    got = run(program, x=X, n=np.array([2], np.int32), y=zeros(64, 16))["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_branches_of_two_cores_are_the_same() -> None:
    expected = np.full((64, 16), 7, np.float32)
    for i in range(3):
        expected[i * 16 : i * 16 + 6] = (X[i * 16 : i * 16 + 16] @ X[i * 16 : i * 16 + 16])[:6]
    program = group(CUBE_ON_CONDITION, VECTOR_ON_CONDITION)
    given = np.full((64, 16), 7, np.float32)
    got = run(program, x=X, n=np.array([3], np.int32), y=given)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("cube", "vector", "problem"),
    [
        ("pass", VECTOR_OF_FOUR, "no core pushes"),
        (CUBE_OF_TWO.replace("a, a)", "a, a, out_dtype=pl.BF16)"), VECTOR_OF_FOUR, "declares"),
        (CUBE_ON_CONDITION.replace("< k", "< 2"), VECTOR_ON_CONDITION, "no core pushes"),
        (CUBE_OF_TWO.replace("range(2)", "range(k)"), VECTOR_OF_FOUR, "no core pushes"),
        (CUBE_OF_TWO.replace("range(2)", "range(4)"), VECTOR_OF_FOUR, "more tiles than it pops"),
    ],
)
def test_cores_that_do_not_agree(cube: str, vector: str, problem: str) -> None:
    with pytest.raises((UserError, UserErrors), match=f"(?s)E0811.*{problem}"):
        group(cube, vector)


def test_a_transfer_needs_a_group() -> None:
    with pytest.raises((UserError, UserErrors), match="E0805"):
        pl.parse(
            "import tilelet.language as pl\n"
            "@pl.program\n"
            "class One:\n"
            "    @pl.function(type=pl.FunctionType.AIV)\n"
            "    def main(self, x: pl.Tensor[[16, 16], pl.FP32]):\n"
            "        pl.tpush_to_aic(pl.load(x, [0, 0], [16, 16]), split=0)\n"
        )


# --- vector lanes, by hand ------------------------------------------------------------------------


@pl.jit
def halves(
    a: pl.Tensor[[16, 16], pl.FP32],
    by_rows: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    by_columns: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    again: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        product = pl.matmul(a, a)
        for _ in pl.range(2):
            for _lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
                half = pl.aiv_shard(product)
                twice = pl.mul(half, 2.0)
                at = pl.tile.get_subblock_idx() * 8
                by_rows = pl.assemble(by_rows, twice, [at, 0])
                whole = pl.aic_gather(twice)
        again = pl.assemble(again, pl.matmul(whole, a), [0, 0])
        for lane in pl.split_aiv(2, mode=pl.SplitMode.LEFT_RIGHT):
            by_columns = pl.assemble(by_columns, pl.aiv_shard(product), [0, lane * 8])
    return by_rows, by_columns, again


@pl.jit
def shares(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[32, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        for _lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            at = pl.tile.get_subblock_idx() * 16
            y = pl.assemble(y, pl.aic_gather(pl.add(pl.aiv_shard(x), 1.0)), [at, 0])
    return y


def test_lanes_have_halves_of_tiles() -> None:
    got = run(halves, a=A, by_rows=zeros(16, 16), by_columns=zeros(16, 16), again=zeros(16, 16))
    np.testing.assert_array_equal(got["by_rows"], 2 * (A @ A))
    np.testing.assert_array_equal(got["by_columns"], A @ A)
    np.testing.assert_array_equal(got["again"], 2 * (A @ A) @ A)


def test_lanes_without_halves() -> None:
    got = run(shares, x=A, y=zeros(32, 16))["y"]
    np.testing.assert_array_equal(got, np.concatenate([A + 1, A + 1]))
