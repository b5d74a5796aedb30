"""Kernel cost: pipes overlap correctly, and long loops are multiplied correctly."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.recording import elementwise, mixed, only_kernel, projection, recorded

import tilelet.language as pl
from tilelet.device import Core, kernel_cost, load_machine, simulate
from tilelet.device.kernel.control_path import ControlPath
from tilelet.device.machine.description import with_fields
from tilelet.interp.replay import find_control_traces

A2A3 = load_machine("a2a3")


@pytest.mark.parametrize("pipelined", [False, True])
def test_multiplied_iterations_are_the_followed_ones(
    pipelined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = only_kernel(projection(depth=128 * 50, pipelined=pipelined), A2A3)
    jumped = kernel_cost(kernel, A2A3)
    monkeypatch.setattr(ControlPath, "runs", lambda *args: list(range(1, args[3] + 1)))
    followed = kernel_cost(kernel, A2A3)
    assert jumped.exec_us == pytest.approx(followed.exec_us, rel=1e-9)
    assert jumped.cold_us == pytest.approx(followed.cold_us, rel=1e-9)
    assert jumped.read == followed.read
    assert jumped.macs == followed.macs == 16 * 64 * 128 * 50
    assert jumped.busy_us == pytest.approx(followed.busy_us)


def test_bytes_and_bound() -> None:
    cost = kernel_cost(only_kernel(projection(columns=64, depth=512), A2A3), A2A3)
    assert cost.read == {0: 16 * 512 * 2, 1: 512 * 64 * 2}
    assert cost.written == {2: 16 * 64 * 4}
    assert cost.bound == "latency"
    assert cost.cold_us > cost.exec_us
    assert not cost.guessed


def test_two_stages_hide_latency() -> None:
    plain, piped = (
        kernel_cost(only_kernel(projection(depth=8192, pipelined=p), A2A3), A2A3)
        for p in (False, True)
    )
    assert piped.exec_us < 0.75 * plain.exec_us
    # Never faster than the busiest pipe.
    assert piped.exec_us > max(piped.busy_us.values())


def test_wide_tiles_are_cheaper_per_byte() -> None:
    narrow, wide = (
        kernel_cost(only_kernel(projection(columns=n, depth=4096), A2A3), A2A3) for n in (32, 256)
    )
    assert wide.exec_us / wide.read_bytes < 0.5 * narrow.exec_us / narrow.read_bytes


def test_a_slower_path_costs_time() -> None:
    kernel = only_kernel(elementwise(rows=64), A2A3)
    slower = with_fields(A2A3, {"paths.gm_to_ub.latency_cycles": 600.0, "body.issue_cycles": 60.0})
    assert kernel_cost(kernel, slower).exec_us > kernel_cost(kernel, A2A3).exec_us


def test_splitting_helps_a_mixed_kernel() -> None:
    whole, halves = (
        kernel_cost(only_kernel(mixed(m), A2A3), A2A3)
        for m in (pl.SplitMode.NONE, pl.SplitMode.UP_DOWN)
    )
    assert halves.exec_us < whole.exec_us
    assert halves.written == whole.written
    assert whole.exchanged == 64 * 64 * 4


def epilogue(split):
    """A product of 128 x 128 whose result is scaled by row and column: vector work dominates."""
    SPLIT = split

    @pl.program
    class Epilogue:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[128, 64], pl.BF16],
            b: pl.Tensor[[64, 128], pl.BF16],
            rows: pl.Tensor[[128, 1], pl.FP32],
            columns: pl.Tensor[[1, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[128, 128], pl.BF16]],
        ):
            with pl.auto_incore(split=SPLIT):
                product = pl.matmul(a, b, out_dtype=pl.FP32)
                by_row = pl.row_expand_mul(product, pl.slice(rows, [128, 1], [0, 0]))
                both = pl.col_expand_mul(by_row, pl.slice(columns, [1, 128], [0, 0]))
                y = pl.assemble(y, pl.cast(both, pl.BF16), [0, 0])
            return y

    return Epilogue


def test_halves_of_rows_cost_more_than_whole_ones() -> None:
    """Published for one kernel: 238 us without a split, 200 by rows, 309 by columns."""
    modes = (pl.SplitMode.UP_DOWN, pl.SplitMode.NONE, pl.SplitMode.LEFT_RIGHT)
    costs = [kernel_cost(only_kernel(epilogue(m), A2A3), A2A3) for m in modes]
    by_rows, whole, by_columns = (cost.exec_us for cost in costs)
    assert by_rows < whole < by_columns
    assert len({cost.written_bytes for cost in costs}) == 1


def test_what_has_one_column_is_not_halved() -> None:
    kernel = only_kernel(epilogue(pl.SplitMode.LEFT_RIGHT), A2A3)
    names = [p.name for p in kernel.function.params]
    loads = [s.work for s in kernel.walk() if s.what == "load" and s.core is Core.AIV]
    widths = {names[work.param]: work.row_bytes for work in loads}  # pyright: ignore[reportAttributeAccessIssue]
    assert widths == {"rows": 4, "columns": 64 * 4}


def data_dependent():
    @pl.program
    class DataDependent:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            count: pl.Tensor[[1], pl.INT32],
            x: pl.Tensor[[64 * 16, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[64 * 16, 128], pl.FP32]],
        ):
            with pl.incore():
                n = pl.read(count, [0])
                for i in pl.range(n):
                    y = pl.assemble(y, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
            return y

    return DataDependent


def test_trip_counts_that_data_decides() -> None:
    tasks, program = recorded(data_dependent())
    guess = simulate(tasks, program, A2A3)
    assert guess.cost_of(0).guessed
    find_control_traces(program, tasks, {"count": np.array([40], np.int32)})
    known = simulate(tasks, program, A2A3)
    assert not known.cost_of(0).guessed
    assert known.cost_of(0).read_bytes == 40 * 16 * 128 * 4
    assert known.total_us > guess.total_us


def test_iterations_that_differ_are_followed() -> None:
    @pl.program
    class Triangle:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.range(10):
                    for _ in pl.range(i):
                        y = pl.assemble(y, pl.exp(pl.slice(x, [16, 128], [0, 0])), [0, 0])
            return y

    cost = kernel_cost(only_kernel(Triangle, A2A3), A2A3)
    assert cost.written_bytes == 45 * 16 * 128 * 4
