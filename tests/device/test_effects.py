"""Single effects of the hardware and its runtime, each isolated in a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.device.recording import chain, mixed, only_kernel, recorded

import tilelet.language as pl
from tilelet.device import kernel_cost, load_machine, simulate
from tilelet.device.kernel.costs import vector_cycles, work_cycles
from tilelet.device.kernel.view import ScalarWork, Transfer, VectorWork
from tilelet.device.machine.description import Machine, with_fields
from tilelet.ir.spec import Cost

A2A3, A5 = load_machine("a2a3"), load_machine("a5")
ROWS = 64


def element_reads(stride: int) -> Any:
    """Reads one number per iteration, `stride` numbers further on each time."""
    STRIDE = stride

    @pl.program
    class Reads:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            index: pl.Tensor[[ROWS * STRIDE], pl.INT32],
            out: pl.Out[pl.Tensor[[ROWS, 64], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.range(ROWS):
                    n = pl.read(index, [i * STRIDE])
                    row = pl.full([1, 64], dtype=pl.FP32, value=1.0)
                    if n > 0:
                        out = pl.assemble(out, row, [i, 0])
            return out

    return Reads


def followed_reads() -> Any:
    """The address of the second read depends on the result of the first."""

    @pl.program
    class Followed:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            index: pl.Tensor[[ROWS], pl.INT32],
            table: pl.Tensor[[1024], pl.INT32],
            out: pl.Out[pl.Tensor[[1024, 64], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.range(ROWS):
                    n = pl.read(index, [i])
                    m = pl.read(table, [pl.cast(n, pl.INDEX)])
                    row = pl.full([1, 64], dtype=pl.FP32, value=1.0)
                    out = pl.assemble(out, row, [pl.cast(m, pl.INDEX), 0])
            return out

    return Followed


def misses(program: Any) -> list[float]:
    kernel = only_kernel(program, A2A3)
    return [s.work.misses for s in kernel.walk() if isinstance(s.work, ScalarWork)]


def test_neighboring_numbers_share_a_line_of_the_scalar_cache() -> None:
    assert misses(element_reads(1)) == [pytest.approx(4 / 64)]
    assert misses(element_reads(4)) == [pytest.approx(16 / 64)]
    assert misses(element_reads(100)) == [1.0]


def test_a_read_whose_place_data_decides_misses() -> None:
    assert misses(followed_reads()) == [pytest.approx(4 / 64), 1.0]


def test_misses_take_time() -> None:
    near, far = (kernel_cost(only_kernel(element_reads(n), A2A3), A2A3) for n in (1, 100))
    assert far.busy_us["AIV.SCALAR"] > 5 * near.busy_us["AIV.SCALAR"]


def scattering() -> Any:
    @pl.program
    class Scattering:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[32, 32], pl.FP32],
            out: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
        ):
            with pl.incore():
                into = pl.full([32, 64], dtype=pl.FP32, value=0.0)
                half = pl.slice(x, [32, 32], [0, 0])
                spread = pl.tensor.scatter(half, mask_pattern=pl.tile.MaskPattern.P0101, dst=into)
                out = pl.assemble(out, spread, [0, 0])
            return out

    return Scattering


def test_only_machines_that_can_scatter_do_it_on_the_vector_unit() -> None:
    scalar = kernel_cost(only_kernel(scattering(), A2A3), A2A3)
    elements = 32 * 32
    assert scalar.busy_us["AIV.SCALAR"] == pytest.approx(
        A2A3.us(2 * elements * A2A3.body.element_cycles)
    )
    assert "AIV.SCALAR" not in kernel_cost(only_kernel(scattering(), A5), A5).busy_us


@pytest.mark.parametrize("split", [pl.SplitMode.NONE, pl.SplitMode.UP_DOWN])
def test_a_mixed_block_holds_its_whole_cluster(split: Any) -> None:
    stream, program = recorded(mixed(split))
    line = simulate(stream, program, A2A3)
    per_block = 1 + A2A3.cores.vectors_per_cluster
    assert len(line.task) == per_block * stream.total
    first = line.task == 0
    assert len(set(line.core[first].tolist())) == per_block


def cache_writes() -> Any:
    """Every task writes a short row in each of eight distant places of a large tensor."""

    @pl.program
    class CacheWrites:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 128], pl.BF16],
            cache: pl.InOut[pl.Tensor[[16 * 8 * 4096, 128], pl.BF16]],
        ):
            for b in pl.parallel(16):
                with pl.incore():
                    for h in pl.range(8):
                        row = pl.slice(x, [1, 128], [b, 0])
                        cache = pl.assemble(cache, row, [b * 8 * 4096 + h * 4096, 0])
            return cache

    return CacheWrites


def test_rows_far_apart_count_as_rows_not_as_the_box_around_them() -> None:
    stream, program = recorded(cache_writes())
    line = simulate(stream, program, A2A3)
    moved = 8 * 128 * 2
    assert (line.hbm_written <= 8 * moved).all()
    assert line.bound_of(0) != "GM"


def test_gaps_between_producer_and_consumer_add_up() -> None:
    @pl.program
    class Chain:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.InOut[pl.Tensor[[16, 64], pl.FP32]]):
            for _ in pl.range(10):
                with pl.incore():
                    tile = pl.slice(x, [16, 64], [0, 0])
                    x = pl.assemble(x, pl.add(tile, tile), [0, 0])
            return x

    stream, program = recorded(Chain)
    slower = with_fields(A2A3, {"runtime.2026-06.resolve_us": 5.0})
    before, after = (simulate(stream, program, m, period="2026-06") for m in (A2A3, slower))
    assert after.total_us - before.total_us == pytest.approx(9 * 5.0)
    reference = simulate(stream, program, slower, period="2026-06", reference=True)
    assert np.array_equal(reference.finish, after.finish)


def test_schedulers_enter_their_loops_one_after_the_other() -> None:
    stream, program = recorded(mixed(pl.SplitMode.NONE))
    late = with_fields(A2A3, {"runtime.2026-06.stagger_us": 4.0})
    line = simulate(stream, program, late, period="2026-06")
    reference = simulate(stream, program, late, period="2026-06", reference=True)
    assert np.array_equal(reference.finish, line.finish)
    for thread in range(late.period("2026-06").threads):
        mine = [i for i, core in enumerate(line.core) if line.thread_of(int(core)) == thread]
        if mine:
            assert line.dispatch[mine].min() >= 4.0 * thread


def test_products_leave_the_cube_faster_into_l2_than_into_memory() -> None:
    kernel = only_kernel(mixed(pl.SplitMode.NONE), A2A3)
    (push,) = [s.work for s in kernel.walk() if s.what == "push"]
    assert isinstance(push, Transfer)
    path = A2A3.paths[push.path]
    assert path.bytes_per_cycle > 2 * path.cold_bytes_per_cycle
    assert path.cold_latency_cycles > path.latency_cycles


def product_into(heap: bool) -> Any:
    """A product stored into the caller's memory, or into the runtime's heap."""
    HEAP = heap

    @pl.program
    class Product:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[128, 128], pl.BF16],
            b: pl.Tensor[[128, 128], pl.BF16],
            c: pl.Out[pl.Tensor[[128, 128], pl.FP32]],
        ):
            into = pl.create_tensor([128, 128], dtype=pl.FP32) if HEAP else c
            with pl.incore():
                into = pl.assemble(into, pl.matmul(a, b, out_dtype=pl.FP32), [0, 0])
            return into

    return Product


def test_stores_wait_for_memory_by_what_they_overwrite() -> None:
    """Heap memory was used before, so it is in L2; the caller's memory is not yet."""
    times: list[float] = []
    for heap in (True, False):
        stream, program = recorded(product_into(heap))
        line = simulate(stream, program, A2A3)
        cost = line.cost_of(0)
        assert cost.store_us > 1.0
        assert cost.cold_us > cost.exec_us
        assert line.end[0] - line.start[0] == pytest.approx(
            cost.cold_us + (0.0 if heap else cost.store_us)
        )
        reference = simulate(stream, program, A2A3, reference=True)
        assert np.array_equal(reference.end, line.end)
        times.append(float(line.end[0] - line.start[0]))
    assert times[1] > times[0] + 1.0


def test_vector_stores_take_as_long_either_way() -> None:
    stream, program = recorded(scattered_rows())
    assert simulate(stream, program, A2A3).cost_of(0).store_us == 0.0


def scattered_rows() -> Any:
    """Blocks read tiles of a large tensor at offsets whose bounds do not determine the place."""

    @pl.program
    class Scattered:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            w: pl.Tensor[[65536, 512], pl.BF16],
            y: pl.Out[pl.Tensor[[24 * 16, 128], pl.FP32]],
        ):
            for block in pl.spmd(24):
                part = block - block // 3 * 3
                tile = pl.slice(w, [16, 128], [part * 16, block // 3 % 4 * 128])
                y = pl.assemble(y, pl.cast(tile, pl.FP32), [block * 16, 0])
            return y

    return Scattered


def test_a_box_that_is_known_loosely_brings_no_more_lines_than_are_moved() -> None:
    stream, program = recorded(scattered_rows())
    line = simulate(stream, program, A2A3)
    assert line.hbm_read.sum() <= 2 * 24 * 16 * 128 * 2


def attention() -> Any:
    """Compute products, vector work on each, and products with its results, in a pipelined loop."""

    @pl.program
    class Attention:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            q: pl.Tensor[[16, 128], pl.BF16],
            k: pl.Tensor[[128, 8192], pl.BF16],
            v: pl.Tensor[[8192, 128], pl.BF16],
            y: pl.Out[pl.Tensor[[64 * 16, 128], pl.FP32]],
        ):
            with pl.incore():
                first = pl.slice(q, [16, 128], [0, 0])
                for i in pl.pipeline(64, stage=2):
                    scores = pl.matmul(
                        first, pl.slice(k, [128, 128], [0, i * 128]), out_dtype=pl.FP32
                    )
                    weights = pl.cast(pl.exp(scores), pl.BF16)
                    out = pl.matmul(
                        weights, pl.slice(v, [128, 128], [i * 128, 0]), out_dtype=pl.FP32
                    )
                    y = pl.assemble(y, out, [i * 16, 0])
            return y

    return Attention


def test_loads_of_the_next_iteration_do_not_wait_for_the_other_core() -> None:
    """Otherwise their latency would be part of every iteration."""
    kernel = only_kernel(attention(), A2A3)
    slower = with_fields(A2A3, {"paths.gm_to_l1.cold_latency_cycles": 700.0 + 500.0})
    usual, late = (kernel_cost(kernel, m).cold_us for m in (A2A3, slower))
    assert late - usual < 64 * A2A3.us(500) / 4


def test_stores_wait_for_their_acknowledgement_side_by_side() -> None:
    path = A2A3.paths["ub_to_gm"]
    kernel = only_kernel(cache_writes(), A2A3)
    slower = with_fields(A2A3, {"paths.ub_to_gm.latency_cycles": path.latency_cycles + 1000.0})
    usual, late = (kernel_cost(kernel, m).exec_us for m in (A2A3, slower))
    assert late - usual == pytest.approx(A2A3.us(1000))


def test_products_leave_the_cube_row_by_row() -> None:
    """Rows of a dense result are not contiguous: each takes at least the published 4.45 cycles."""
    work = Transfer("l0c_to_gm", 128, 256, param=0, writes_gm=True, dense_if_whole=True)
    path = A2A3.paths["l0c_to_gm"]
    busy, _ = work_cycles(work, A2A3)
    assert busy == pytest.approx(path.fixed_cycles + 128 * path.row_cycles)


def test_a_core_begins_its_first_block_late() -> None:
    stream, program = recorded(chain(6))
    period = "2026-06"
    line, even = (
        simulate(
            stream, program, with_fields(A2A3, {f"runtime.{period}.first_us": us}), period=period
        )
        for us in (5.3, 0.0)
    )
    heads = line.start - line.dispatch
    assert (np.abs(even.start - even.dispatch - heads[-1]) < 1e-9).all()
    first = [int(np.flatnonzero(line.core == core)[0]) for core in np.unique(line.core)]
    for i, head in enumerate(heads):
        late = head - heads[-1]
        assert (0.0 <= late <= 5.3) if i in first else late == pytest.approx(0.0)
    assert heads.max() > heads.min()


def test_a_gather_makes_addresses_row_by_row() -> None:
    few, many = (vector_cycles(VectorWork(Cost.GATHER, 8192, rows), A2A3) for rows in (1, 32))
    muls = A2A3.vector["muls"]
    each = muls.slope + muls.constant + A2A3.body.sync_cycles
    assert many - few == pytest.approx(31 * each)


def test_reductions_combine_parts_one_after_the_other() -> None:
    combine, sync = A2A3.vector["combine"], A2A3.body.sync_cycles

    def cycles(cost: Cost, rows: int, row_bytes: int) -> float:
        return vector_cycles(VectorWork(cost, rows * row_bytes, rows), A2A3)

    # A column sum adds rows in turn, one repeat each; each waits for the previous one.
    each = combine.slope + combine.constant + sync
    more = cycles(Cost.COL_REDUCE, 17, 256) - cycles(Cost.COL_REDUCE, 1, 256)
    assert more == pytest.approx(16 * each)
    # In a row sum, the repeats of all rows do.
    each = 16 * combine.slope + combine.constant + sync
    more = cycles(Cost.ROW_REDUCE, 16, 1024) - cycles(Cost.ROW_REDUCE, 16, 256)
    assert more == pytest.approx(3 * each)
    # A machine with vector registers has no such steps.
    few, many = (vector_cycles(VectorWork(Cost.COL_REDUCE, n * 256, n), A5) for n in (1, 17))
    assert many - few == pytest.approx(16 * A5.vector["col_reduce"].slope)


def test_values_of_rows_are_spread_before_they_meet_the_rows() -> None:
    def cycles(cost: Cost, machine: Machine, rows: int = 32) -> float:
        return vector_cycles(VectorWork(cost, rows * 256, rows), machine)

    spread = A2A3.vector["spread"]
    more = cycles(Cost.ROW_BROADCAST, A2A3) - cycles(Cost.BROADCAST, A2A3)
    assert more == pytest.approx(4 * spread.slope + spread.constant + A2A3.body.sync_cycles)
    assert cycles(Cost.ROW_DIVIDE, A2A3) > cycles(Cost.ROW_BROADCAST, A2A3)
    body = A2A3.body
    assert cycles(Cost.REPEATED_ROWS, A2A3, 64) == 64 * body.issue_cycles + body.mask_cycles
    assert cycles(Cost.FILLED_ROWS, A2A3) > 2 * cycles(Cost.REPEATED_ROWS, A2A3)
    kinds = (Cost.ROW_BROADCAST, Cost.ROW_DIVIDE, Cost.REPEATED_ROWS, Cost.FILLED_ROWS)
    assert {cycles(cost, A5) for cost in kinds} == {cycles(Cost.BROADCAST, A5)}


def test_every_vector_op_sets_its_mask_once() -> None:
    without = with_fields(A2A3, {"body.mask_cycles": 0.0})
    for cost in (Cost.ADD, Cost.ROW_REDUCE, Cost.ROW_BROADCAST, Cost.PAD, Cost.SORT):
        for rows in (1, 64):
            work = VectorWork(cost, rows * 256, rows)
            more = vector_cycles(work, A2A3) - vector_cycles(work, without)
            assert more == pytest.approx(A2A3.body.mask_cycles)


def test_padding_is_paid_by_row() -> None:
    tall, flat = (VectorWork(Cost.PAD, 16 * 512, rows) for rows in (16, 4))
    assert vector_cycles(tall, A2A3) - vector_cycles(flat, A2A3) == 12 * A2A3.vector["pad"].slope
    assert vector_cycles(tall, A5) == vector_cycles(flat, A5)


def test_copies_behind_a_decision_on_data_share_one_buffer() -> None:
    """Buffers alternate only if every iteration uses them."""

    @pl.program
    class Copies:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            index: pl.Tensor[[ROWS], pl.INT32],
            x: pl.Tensor[[ROWS, 512], pl.FP32],
            out: pl.Out[pl.Tensor[[ROWS, 512], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.pipeline(ROWS, stage=4):
                    first = pl.slice(x, [1, 512], [i, 0])
                    out = pl.assemble(out, pl.add(first, 1.0), [i, 0])
                    n = pl.read(index, [i])
                    if n > 0:
                        again = pl.slice(x, [1, 512], [i, 0])
                        out = pl.assemble(out, pl.add(again, 2.0), [i, 0])
            return out

    tiles = {tile.name.split("_")[0]: tile for tile in only_kernel(Copies, A2A3).tiles}
    assert tiles["first"].buffers == 4
    assert tiles["again"].buffers == 1


def test_a_repeated_scan_misses_only_once() -> None:
    def misses(scanned: int) -> float:
        N = scanned

        @pl.program
        class Scan:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(
                self,
                index: pl.Tensor[[N], pl.INT32],
                out: pl.Out[pl.Tensor[[16, 64], pl.INT32]],
            ):
                with pl.incore():
                    for i in pl.range(16):
                        seen = pl.cast(0, pl.INT32)
                        for j in pl.range(N):
                            seen = seen + pl.read(index, [j])
                        row = pl.full([1, 64], dtype=pl.INT32, value=1)
                        if seen > 0:
                            out = pl.assemble(out, row, [i, 0])
                return out

        works = [step.work for step in only_kernel(Scan, A2A3).walk()]
        (read,) = (w for w in works if isinstance(w, ScalarWork) and w.misses)
        return read.misses

    assert misses(1024) == pytest.approx(4 / 64 / 16)
    assert misses(A2A3.body.scalar_cache) == pytest.approx(4 / 64)
