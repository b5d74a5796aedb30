"""One small program for each construct of the language, run on every engine."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import task_counts

import tilelet.language as pl
from tilelet.compat.surface import deserialize, serialize
from tilelet.diag.core import UserErrors

X = np.arange(256, dtype=np.float32).reshape(16, 16) / 8 - 10


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


# --- what a control program returns ---------------------------------------------------------------


@pl.jit.inline
def submits(x: pl.Tensor, out: pl.Tensor):
    with pl.at(level=pl.Level.CORE_GROUP) as tid:
        out[:, :] = pl.add(x, 1.0)
    return tid


@pl.jit
def returns_a_task_id(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    return submits(x, out)


@pl.jit
def returns_tasks_and_tensors(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    tids = pl.array.create(2, pl.TASK_ID)
    tids[0] = submits(x, out)
    return out, (tids, tids[0])


def test_a_control_program_may_return_what_is_no_tensor() -> None:
    for program in (returns_a_task_id, returns_tasks_and_tensors):
        np.testing.assert_array_equal(run(program, x=X, out=zeros(16, 16))["out"], X + 1)


# --- arrays in kernels ----------------------------------------------------------------------------


@pl.jit
def counts_in_arrays(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        counts = pl.array.create(4, pl.INT32)
        last = pl.array.create(4, pl.INT32)
        for i in pl.range(4):
            if i > 1:
                counts[i] = i * 4
            last[i] = counts[0]
            counts[0] = i
        for i in pl.range(4):
            out[i * 4 : i * 4 + 4, :] = pl.mul(
                x[i * 4 : i * 4 + 4, :], pl.cast(counts[i] + last[i], pl.FP32)
            )
    return out


def test_arrays_in_kernels() -> None:
    factors = np.repeat([3 + 0, 0 + 0, 8 + 1, 12 + 2], 4)[:, None].astype(np.float32)
    np.testing.assert_array_equal(run(counts_in_arrays, x=X, out=zeros(16, 16))["out"], X * factors)


# --- long names -----------------------------------------------------------------------------------


@pl.jit
def two_kernels_with_long_names(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(
        level=pl.Level.CORE_GROUP, name_hint="a_name_that_is_longer_than_forty_characters_1"
    ):
        out[0:8, :] = pl.add(x[0:8, :], 1.0)
    with pl.at(
        level=pl.Level.CORE_GROUP, name_hint="a_name_that_is_longer_than_forty_characters_2"
    ):
        out[8:16, :] = pl.add(x[8:16, :], 2.0)
    return out


def test_names_that_differ_late_are_different() -> None:
    result = run(two_kernels_with_long_names, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, X + np.repeat([1, 2], 8)[:, None].astype(np.float32))


# --- memory that was never written ----------------------------------------------------------------


@pl.jit
def clears_by_arithmetic(x: pl.Tensor, out: pl.Out[pl.Tensor], others: pl.Out[pl.Tensor]):
    scratch = pl.create_tensor([16, 16], pl.FP32)
    for r in pl.parallel(0, 16, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            part = pl.mul(pl.slice(scratch, [8, 16], [r, 0]), 0.0)
            scratch[r : r + 8, :] = part
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tensor([16, 16], pl.FP32)
        acc = pl.sub(acc, acc)
        out[:, :] = pl.add(pl.add(acc, scratch), x)
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.create_tensor([16, 16], pl.FP32)
        # Neither a computed NaN, nor another factor, nor another value is accepted.
        others[0:16, :] = pl.mul(pl.add(tile, 1.0), 0.0)
        others[16:32, :] = pl.mul(tile, 1.0)
        others[32:48, :] = pl.sub(tile, x)
    return out


def test_only_clearing_hides_undefined_memory() -> None:
    result = run(clears_by_arithmetic, x=X, out=zeros(16, 16), others=zeros(48, 16))
    np.testing.assert_array_equal(result["out"], X)
    assert np.isnan(result["others"]).all()


@pl.jit
def clears_a_part_of_another(x: pl.Tensor, out: pl.InOut[pl.Tensor], late: pl.InOut[pl.Tensor]):
    """A tensor assembled whole may be a window of memory that holds numbers."""
    first = pl.create_tensor([16, 16], dtype=pl.FP32)
    for r in pl.parallel(0, 16, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            block = pl.slice(first, [8, 16], [r, 0])
            first[r : r + 8, :] = pl.mul(block, 0.0)
    out = pl.assemble(out, first, [16, 0])
    second = pl.create_tensor([16, 16], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        second[0:8, :] = x[0:8, :]
    with pl.at(level=pl.Level.CORE_GROUP):
        block = pl.slice(second, [8, 16], [8, 0])
        second[8:16, :] = pl.sub(block, block)
    late = pl.assemble(late, second, [16, 0])
    return out, late


def test_clearing_what_becomes_a_window_of_numbers() -> None:
    numbers = np.full((32, 16), -5.0, np.float32)
    numbers[20], numbers[28] = np.nan, -np.inf
    result = run(clears_a_part_of_another, x=X, out=numbers.copy(), late=numbers.copy())
    expected = np.concatenate([numbers[:16], zeros(16, 16)])
    np.testing.assert_array_equal(result["out"].view(np.int32), expected.view(np.int32))
    expected[16:24] = X[:8]
    np.testing.assert_array_equal(result["late"].view(np.int32), expected.view(np.int32))


@pl.jit
def clears_narrow_floats(out: pl.Out[pl.Tensor], half: pl.Out[pl.Tensor]):
    scratch = pl.create_tensor([16, 16], pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.mul(scratch, 0.0)
        half[:, :] = pl.mul(0, pl.create_tensor([16, 16], pl.FP16))
    return out


def test_clearing_narrow_floats() -> None:
    ones = np.ones((16, 16), np.float16)
    result = run(clears_narrow_floats, out=ones.astype(ml_dtypes.bfloat16), half=ones)
    assert not result["out"].astype(np.float32).any()
    assert not result["half"].any()


def test_clearing_is_noted_once() -> None:
    arrays = [zeros(16, 16), zeros(16, 16), zeros(48, 16)]
    cautions = clears_by_arithmetic.specialize(*arrays).cautions
    assert [c.code for c in cautions if c.code == "W0103"] == ["W0103"] * 2


# --- helpers without a result ---------------------------------------------------------------------


@pl.jit.inline
def adds_to_rows(x: pl.Tensor, out: pl.Tensor, first: pl.INDEX):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[first : first + 8, :] = pl.add(x[first : first + 8, :], 1.0)


@pl.jit
def calls_for_effect(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for r in pl.range(0, 16, 8):
        adds_to_rows(x, out, r)
    return out


def test_a_helper_may_return_nothing() -> None:
    result = run(calls_for_effect, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, X + 1)


# --- outputs under other names --------------------------------------------------------------------


@pl.jit
def rebinds_a_view_of_itself(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for r in pl.range(0, 16, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 8, :] = pl.add(x[r : r + 8, :], 1.0)
    out = pl.reshape(pl.reshape(out, [256]), [16, 16])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:8, :] = pl.mul(x[0:8, :], 2.0)
    return out


def test_an_output_may_become_a_view_of_itself() -> None:
    result = run(rebinds_a_view_of_itself, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, np.concatenate([X[:8] * 2, X[8:] + 1]))


# --- one value in a tuple -------------------------------------------------------------------------


@pl.jit
def unpacks_one_value(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        start = pl.full([16, 16], pl.FP32, 1.0)
        for _, (acc,) in pl.range(3, init_values=(start,)):
            (total,) = pl.yield_(pl.add(acc, x))
        out[:, :] = total
    return out


def test_a_tuple_of_one_name_takes_one_value() -> None:
    result = run(unpacks_one_value, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, 1 + X + X + X)


# --- windows at products of run-time values -------------------------------------------------------


@pl.jit
def windows_at_products(n: pl.Tensor, x: pl.Tensor, out: pl.Out[pl.Tensor]):
    step = pl.cast(pl.read(n, [0]), pl.INDEX)
    for i in pl.range(3):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * step : i * step + 1, :] = x[(i + 1) * step : i * step + step + 1, :]
            row = pl.min(i * step, 12)
            out[row + 1 : row + 2, :] = x[pl.min(i * step, 12) : 1 + row, :]
    return out


def test_windows_at_products() -> None:
    n = np.array([4, 0, 0, 0, 0, 0, 0, 0], np.int32)
    expected = zeros(16, 16)
    for i in range(3):
        expected[i * 4], expected[i * 4 + 1] = X[i * 4 + 4], X[i * 4]
    result = run(windows_at_products, n=n, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, expected)


# --- sources that are larger than the window, but not valid outside it ---------------------------


@pl.jit
def stores_the_valid_part(n: pl.Tensor, x: pl.Tensor, out: pl.Out[pl.Tensor]):
    rows = pl.cast(pl.read(n, [0]), pl.INDEX)
    with pl.at(level=pl.Level.CORE_GROUP):
        wide = pl.slice(x, [8, 16], [0, 0], valid_shape=[8, 4])
        out[0:8, 0:4] = pl.abs(pl.add(wide, 1.0))
        out[8:16, 4:8] = pl.set_validshape(pl.mul(x[0:8, :], 2.0), 8, 4)
        tail = pl.slice(x, [8, 16], [8, 0], valid_shape=[rows, 16])
        out[16 : 16 + rows, :] = pl.neg(tail)
    return out


def test_a_source_may_be_larger_where_it_is_not_valid() -> None:
    n = np.array([3, 0, 0, 0, 0, 0, 0, 0], np.int32)
    expected = zeros(24, 16)
    expected[0:8, 0:4] = np.abs(X[0:8, 0:4] + 1)
    expected[8:16, 4:8] = X[0:8, 0:4] * 2
    expected[16:19] = -X[8:11]
    result = run(stores_the_valid_part, n=n, x=X, out=zeros(24, 16))["out"]
    np.testing.assert_array_equal(result, expected)


@pl.jit
def stores_too_much(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:8, 0:4] = pl.slice(x, [8, 16], [0, 0], valid_shape=[8, 8])
    return out


def test_a_source_that_is_valid_outside_the_window_is_refused() -> None:
    with pytest.raises(UserErrors, match="E0306"):
        stores_too_much.specialize(X, zeros(16, 16))


# --- vectors with tiles of higher rank ------------------------------------------------------------


@pl.jit
def expands_over_many_axes(
    x: pl.Tensor, rows: pl.Tensor, columns: pl.Tensor, out: pl.Out[pl.Tensor]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.slice(x, [2, 1, 8, 16], [0, 0, 0, 0])
        tile = pl.row_expand_mul(tile, pl.slice(rows, [16, 1], [0, 0]))
        out[:, :, :, :] = pl.col_expand_add(tile, pl.slice(columns, [1, 16], [0, 0]))
    return out


def test_vectors_with_tiles_of_higher_rank() -> None:
    rows, columns = X[:, :1].copy(), X[:1].copy()
    x = X.reshape(2, 1, 8, 16)
    out = run(expands_over_many_axes, x=x, rows=rows, columns=columns, out=zeros(2, 1, 8, 16))
    np.testing.assert_array_equal(out["out"].reshape(16, 16), X * rows + columns)


# --- descriptions of loops ------------------------------------------------------------------------


@pl.jit
def describes_its_loop(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for r in pl.parallel(0, 16, 8, attrs={"loop_origin": pl.LoopOrigin.ChunkOuter}):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 8, :] = pl.neg(x[r : r + 8, :])
    return out


def test_a_loop_may_be_described() -> None:
    np.testing.assert_array_equal(run(describes_its_loop, x=X, out=zeros(16, 16))["out"], -X)


# --- program text ---------------------------------------------------------------------------------

ONE_FUNCTION = """
@pl.function
def doubled(x: pl.Tensor[[64], pl.FP32]) -> pl.Tensor[[64], pl.FP32]:
    y: pl.Tensor[[64], pl.FP32] = pl.mul(x, 2.0)
    return y
"""


def test_one_function_can_be_parsed(tmp_path: Path) -> None:
    file = tmp_path / "doubled.py"
    file.write_text("import tilelet.language as pl\n" + ONE_FUNCTION)
    for function in (pl.parse(ONE_FUNCTION), pl.loads(file)):
        assert function.name == "doubled"
        assert [str(t) for t in function.return_types] == ["pl.Tensor[[64], pl.FP32]"]  # pyright: ignore[reportAttributeAccessIssue]
        assert "pl.mul" in function.as_python()
        assert deserialize(serialize(function)).as_python() == function.as_python()


HELPERS = """
@pl.program
class Powers:
    @pl.function
    def square(self, x: pl.Tensor[[64], pl.FP32]) -> pl.Tensor[[64], pl.FP32]:
        y: pl.Tensor[[64], pl.FP32] = pl.mul(x, x)
        return y

    @pl.function
    def main(self, x: pl.Tensor[[64], pl.FP32]) -> pl.Tensor[[64], pl.FP32]:
        y: pl.Tensor[[64], pl.FP32] = self.square(x)
        z: pl.Tensor[[64], pl.FP32] = self.square(y)
        return z
"""


def test_a_function_that_became_part_of_its_callers_is_still_there() -> None:
    program = pl.parse(HELPERS)
    square = program.get_function("square")
    assert [p.name for p in square.params] == ["x"]
    assert program.get_function("main") is program.main
    assert program.get_function("cube") is None


def test_text_that_is_not_one_program() -> None:
    with pytest.raises(ValueError, match="2 functions"):
        pl.parse(ONE_FUNCTION + ONE_FUNCTION.replace("doubled", "again"))
    with pytest.raises(ValueError, match="E0124"):
        pl.parse("x = 42\ny = x + 1")
    with pytest.raises(SyntaxError):
        pl.parse("def kernel(:")


# --- calls that stand for several ops -------------------------------------------------------------


@pl.jit
def makes_memory_with_a_region(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    part = pl.create_tensor([16, 16], pl.FP32, valid_shape=[8, 16])
    with pl.at(level=pl.Level.CORE_GROUP):
        part[0:8, :] = pl.neg(x[0:8, :])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.fillpad(pl.slice(part, [16, 16], [0, 0]), pad_value=pl.PadValue.zero)
    return out


def test_memory_may_be_made_with_a_region() -> None:
    result = run(makes_memory_with_a_region, x=X, out=zeros(16, 16) + 1)["out"]
    np.testing.assert_array_equal(result, np.concatenate([-X[:8], zeros(8, 16)]))


@pl.jit.incore
def clones(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    return pl.expand_clone(x, y)


@pl.jit
def clones_into_a_tensor(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    y = clones(x, y)
    return y


def test_a_clone_writes_its_target() -> None:
    x = X.reshape(2, 1, 8, 16)[:, 0, :1]
    result = run(clones_into_a_tensor, x=x.copy(), y=zeros(2, 8, 16))["y"]
    np.testing.assert_array_equal(result, np.broadcast_to(x, (2, 8, 16)))


@pl.jit
def takes_windows_of_lower_rank(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = pl.slice(x, [8, 16], [i, 1, 0, 0])
            b = pl.load(x, [i, 0, 0, 0], [8, 16], valid_shape=[4, 16])
            out[i * 8 : i * 8 + 8, :] = a
            out = pl.store(b, [i * 8, 0], out)
    return out


def test_windows_of_lower_rank() -> None:
    x = np.arange(2 * 2 * 8 * 16, dtype=np.float32).reshape(2, 2, 8, 16)
    expected = x[:, 1].copy()
    expected[:, :4] = x[:, 0, :4]
    result = run(takes_windows_of_lower_rank, x=x, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, expected.reshape(16, 16))


# --- one text under two decorators ----------------------------------------------------------------


@pl.jit.inline
def negated(x: pl.Tensor):
    return pl.neg(x)


inlined = pl.inline(negated._func)


@pl.jit
def uses_both(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = inlined(negated(x))
    return out


def test_a_function_can_be_decorated_again() -> None:
    np.testing.assert_array_equal(run(uses_both, x=X, out=zeros(16, 16))["out"], X)
    assert uses_both._func.__name__ == "uses_both"
    assert uses_both._param_names() == ["x", "out"]


# --- extents that are computed --------------------------------------------------------------------

ROWS = pl.dynamic("ROWS")
TWICE = ROWS * 2


@pl.jit
def doubles_its_rows(
    x: pl.Tensor[[ROWS, 16], pl.FP32], out: pl.Out[pl.Tensor[[ROWS * 2, 16], pl.FP32]]
):
    for i in pl.range(0, TWICE, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i : i + 8, :] = pl.add(x[i // 16 * 8 : i // 16 * 8 + 8, :], 1.0)
    return out


def test_an_extent_may_be_computed() -> None:
    expected = np.repeat(X.reshape(2, 1, 8, 16), 2, axis=1).reshape(32, 16) + 1
    np.testing.assert_array_equal(run(doubles_its_rows, x=X, out=zeros(32, 16))["out"], expected)


@pl.jit
def makes_memory_of_computed_rows(
    x: pl.Tensor[[ROWS, 16], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, 16], pl.FP32]]
):
    scratch = pl.create_tensor([TWICE, 16], pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        scratch[16:32, :] = pl.neg(x[0:16, :])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:16, :] = pl.slice(scratch, [16, 16], [16, 0])
    return out


def test_a_computed_extent_without_a_parameter() -> None:
    result = run(makes_memory_of_computed_rows, x=X, out=zeros(16, 16))["out"]
    np.testing.assert_array_equal(result, -X)


# --- programs of the host, and parts that a device replays ----------------------------------------


@pl.jit.graph
def replayed(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x, 1.0)
    return out


@pl.jit
def on_the_chip(x: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    mid = replayed(x, mid)
    for _ in pl.range(2):
        with pl.graph(name_hint="twice"):  # noqa: SIM117
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = pl.mul(mid, 2.0)
    return out


@pl.jit.host
def of_the_host(x: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    result = on_the_chip(x, mid, out)
    return result


def test_host_programs_and_graphs_are_executed_as_they_stand() -> None:
    arguments = {"x": X, "mid": zeros(16, 16), "out": zeros(16, 16)}
    np.testing.assert_array_equal(run(of_the_host, **arguments)["out"], (X + 1) * 2)
    program = of_the_host.specialize(*arguments.values())
    assert sum(task_counts(program, arguments).values()) == 3


# --- blocks that wait for each other, and lanes that share work -----------------------------------


@pl.jit
def waits_for_all_blocks(x: pl.Tensor, mid: pl.Out[pl.Tensor], out: pl.Out[pl.Tensor]):
    for core in pl.spmd(4):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            row = core * 4 + lane * 2
            mid[row : row + 2, :] = pl.mul(x[row : row + 2, :], 2.0)
        pl.system.syncall(core_type="mix")
        turned = 12 - core * 4
        out[core * 4 : core * 4 + 4, :] = pl.add(mid[turned : turned + 4, :], 1.0)
    return out


def test_all_blocks_reach_a_barrier_before_any_goes_on() -> None:
    left = run(waits_for_all_blocks, x=X, mid=zeros(16, 16), out=zeros(16, 16))
    expected = (X * 2 + 1).reshape(4, 4, 16)[::-1].reshape(16, 16)
    np.testing.assert_array_equal(left["out"], expected)


@pl.jit
def waits_in_a_loop(n: pl.Tensor, mid: pl.InOut[pl.Tensor], out: pl.InOut[pl.Tensor]):
    """In each step, every block adds to its rows what the opposite block left there."""
    steps = pl.read(n, [0])
    with pl.spmd(4):
        core = pl.tile.get_block_idx()
        row = core * 4
        opposite = 12 - row
        for step in pl.range(steps):
            kept = row
            if step > 0:
                mid[kept : kept + 4, :] = pl.add(mid[kept : kept + 4, :], 1.0)
                pl.system.syncall(core_type="aiv_only")
            seen = mid[opposite : opposite + 4, :]
            out[row : row + 4, :] = pl.add(out[row : row + 4, :], seen)
            pl.system.syncall()
            mid[kept : kept + 4, :] = pl.mul(out[row : row + 4, :], 0.5)
            pl.system.syncall()
    return out


@pl.program
class TilesWait:
    @pl.function(type=pl.FunctionType.InCore)
    def body(self, x: pl.Tensor[[32, 16], pl.FP32], y: pl.Out[pl.Tensor[[32, 16], pl.FP32]]):
        row = pl.tile.get_block_idx() * 16
        tile = pl.load(x, [row, 0], [16, 16])
        pl.system.syncall(core_type="aiv_only", mode="soft", used_cores=2)
        return pl.store(pl.add(tile, 1.0), [row, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[32, 16], pl.FP32], y: pl.Out[pl.Tensor[[32, 16], pl.FP32]]):
        with pl.spmd(2):
            y = self.body(x, y)
        return y


@pl.jit
def tiles_wait(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(2):
        tile = pl.mul(x[block * 16 : block * 16 + 16, :], 2.0)
        pl.system.syncall()
        y[block * 16 : block * 16 + 16, :] = pl.add(tile, 1.0)
    return y


def test_tiles_of_a_launch_may_wait_where_blocks_share_nothing() -> None:
    x = np.arange(512, dtype=np.float32).reshape(32, 16)
    np.testing.assert_array_equal(run(tiles_wait, x=x, y=zeros(32, 16))["y"], 2 * x + 1)
    program = tiles_wait.specialize(x, x)
    assert sum(task_counts(program, {"x": x, "y": x}).values()) == 1


def test_tiles_of_a_kernel_may_wait() -> None:
    x = np.arange(512, dtype=np.float32).reshape(32, 16)
    np.testing.assert_array_equal(run(TilesWait, x=x, y=zeros(32, 16))["y"], x + 1)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_barriers_in_loops_and_branches(steps: int) -> None:
    mid, out = X.copy().reshape(4, 4, 16), np.zeros((4, 4, 16), np.float32)
    for step in range(steps):
        mid = mid + np.float32(step > 0)
        out = out + mid[::-1]
        mid = out * np.float32(0.5)
    count = np.array([steps], np.int32)
    left = run(waits_in_a_loop, n=count, mid=X, out=zeros(16, 16))
    np.testing.assert_array_equal(left["out"], out.reshape(16, 16))
    np.testing.assert_array_equal(left["mid"], mid.reshape(16, 16))


# --- arguments by name ----------------------------------------------------------------------------


@pl.jit.inline
def scaled_sum(a, b, factor):
    return pl.mul(pl.sub(a, b), factor)


@pl.jit.incore
def scaled(x: pl.Tensor, factor: pl.Scalar[pl.FP32], out: pl.Out[pl.Tensor]):
    out[:, :] = scaled_sum(factor=factor, b=x, a=pl.mul(x, 3.0))
    return out


@pl.jit
def names_arguments(x: pl.Tensor, out: pl.Out[pl.Tensor], again: pl.Out[pl.Tensor]):
    out = scaled(x, out=out, factor=0.5)
    again = scaled(out=again, x=x, factor=2.0)
    return out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("scaled(x, 1.0, x=x, out=out)", r"E0305.*`scaled` got the argument `x` twice"),
        ("scaled(x, 1.0, outt=out)", r"E0302.*`scaled` has no argument `outt`"),
        ("scaled(x, out=out)", r"E0303.*`scaled` takes 3 arguments, got 2"),
        ("scaled(x, 1.0, out, out=out)", r"E0305.*`scaled` got the argument `out` twice"),
    ],
)
def test_wrong_names_of_arguments_are_mistakes(call: str, said: str) -> None:
    text = f"""
import tilelet.language as pl
from {__name__} import scaled

@pl.jit
def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    out = {call}
    return out
"""
    names: dict[str, Any] = {}
    linecache.cache["<names>"] = (len(text), None, text.splitlines(keepends=True), "<names>")
    exec(compile(text, "<names>", "exec"), names)
    with pytest.raises(UserErrors, match=said):
        names["main"].specialize(X, zeros(16, 16))


def test_arguments_of_jit_functions_may_be_named() -> None:
    left = run(names_arguments, x=X, out=zeros(16, 16), again=zeros(16, 16))
    np.testing.assert_array_equal(left["out"], X)
    np.testing.assert_array_equal(left["again"], 4 * X)


@pl.inline
def stepped(x, *, rows: int, width: int = 8, widened: bool = True, factor: float):
    total = pl.full([rows, width], dtype=pl.FP32, value=0.0)
    for i in pl.range(16 // width):
        part = pl.slice(x, [rows, width], [0, i * width])
        if widened:
            part = pl.mul(part, factor)
        total = pl.add(total, part)
    return total


@pl.program
class KeywordOnly:
    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[16, 16], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 8], pl.FP32]],
        again: pl.Out[pl.Tensor[[16, 4], pl.FP32]],
    ) -> pl.Tensor[[16, 8], pl.FP32]:
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, stepped(x, rows=16, factor=0.5), [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP):
            four = stepped(x, widened=False, width=4, factor=9.0, rows=16)
            again = pl.assemble(again, four, [0, 0])
        return out


def test_functions_to_inline_take_constants_by_name_only() -> None:
    left = run(KeywordOnly, x=X, out=zeros(16, 8), again=zeros(16, 4))
    np.testing.assert_array_equal(left["out"], 0.5 * X[:, :8] + 0.5 * X[:, 8:])
    np.testing.assert_array_equal(left["again"], sum(X[:, n : n + 4] for n in (0, 4, 8, 12)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("stepped(x, rows=16)", r"E0303.*`stepped` takes 5 arguments, got 4"),
        ("stepped(x, 16, factor=1.0)", r"E0303.*`stepped` takes 5 arguments, got 2"),
        ("stepped(x, rows=16, factor=1.0, size=3)", r"E0302.*`stepped` has no argument `size`"),
    ],
)
def test_mistakes_with_arguments_by_name_only(call: str, said: str) -> None:
    text = f"""
import tilelet.language as pl
from {__name__} import stepped

@pl.jit
def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, 0:8] = {call}
    return out
"""
    names: dict[str, Any] = {}
    linecache.cache["<names>"] = (len(text), None, text.splitlines(keepends=True), "<names>")
    exec(compile(text, "<names>", "exec"), names)
    with pytest.raises(UserErrors, match=said):
        names["main"].specialize(X, zeros(16, 16))
