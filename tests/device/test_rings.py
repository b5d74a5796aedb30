"""Rings that pass tiles between the two kinds of core of a mixed kernel."""

from __future__ import annotations

import pytest
from tests.device.recorded import A2A3, passed

import tilelet.language as pl
from tilelet.device.kernel.lowering import Ring, lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.memory.rings import ring_findings, ring_uses
from tilelet.device.schedule.pricing import CostCache
from tilelet.ir.core import Program
from tilelet.ir.printer import print_program
from tilelet.ir.types import Mem

ROWS, DEPTH, COLUMNS = 64, 128, 1024


def stated(slots: int, tile: int = 128) -> Program:
    @pl.jit
    def scores(
        q: pl.Tensor[[ROWS, DEPTH], pl.BF16],
        k: pl.Tensor[[COLUMNS, DEPTH], pl.BF16],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.cross_core_slot(slot_num=slots)]):
            for i in pl.pipeline(0, COLUMNS, tile, stage=2):
                s = pl.matmul(q, k[i : i + tile, :], b_trans=True, out_dtype=pl.FP32)
                y[:, i : i + tile] = pl.exp(s)
        return y

    return passed(scores)


def both_ways() -> Program:
    @pl.jit
    def squared(
        q: pl.Tensor[[ROWS, DEPTH], pl.BF16],
        k: pl.Tensor[[DEPTH, DEPTH], pl.BF16],
        y: pl.Out[pl.Tensor[[ROWS, DEPTH], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            s = pl.cast(pl.exp(pl.matmul(q, k, out_dtype=pl.FP32)), pl.BF16)
            y[:, :] = pl.exp(pl.matmul(s, k, out_dtype=pl.FP32))
        return y

    return passed(squared)


def one_way() -> Program:
    @pl.jit
    def scores(
        q: pl.Tensor[[ROWS, DEPTH], pl.BF16],
        k: pl.Tensor[[COLUMNS, DEPTH], pl.BF16],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            for i in pl.pipeline(0, COLUMNS, 128, stage=2):
                s = pl.matmul(q, k[i : i + 128, :], b_trans=True, out_dtype=pl.FP32)
                y[:, i : i + 128] = pl.exp(s)
        return y

    return passed(scores)


def depths(program: Program, period: str, *, ideal: bool = False) -> list[int]:
    cache = CostCache(A2A3, A2A3.period(period), ideal=ideal)
    kernel = cache.kernel(program, program.kernels[0].name)
    return [kernel.tiles[ring].buffers for ring in kernel.rings]


def with_slots(slots: int) -> DeviceKernel:
    return lower_kernel(stated(slots).kernels[0], A2A3, Ring(8, 4))


def test_the_depth_of_rings_is_that_of_the_compiler_of_the_time() -> None:
    assert depths(one_way(), "2026-07") == [8]
    assert depths(both_ways(), "2026-07") == [4, 4]
    assert depths(both_ways(), "2026-08-20") == [2, 2]
    assert depths(one_way(), "2026-09") == [2]
    assert depths(stated(3), "2026-09") == [3]
    assert depths(one_way(), "2026-09", ideal=True) == []


def test_a_core_waits_for_a_free_slot() -> None:
    times = [kernel_cost(with_slots(n), A2A3).exec_us for n in (1, 2, 8)]
    ideal = kernel_cost(lower_kernel(one_way().kernels[0], A2A3), A2A3).exec_us
    assert times[0] > 1.03 * times[1]
    assert times[1] >= times[2] == pytest.approx(ideal)


def test_findings_name_a_number_of_slots_that_fits() -> None:
    (found,) = ring_findings(stated(1), A2A3)
    assert found.code == "W0923"
    assert (
        "wait for slots: they pass tiles through a ring of 1 slot of 32 KiB"
        in found.diagnostic.message
    )
    assert found.diagnostic.helps[0].startswith("`pl.cross_core_slot(slot_num=2)`: 64 KiB, ")
    assert ring_findings(stated(2), A2A3) == []


def test_slots_take_memory_of_the_core_that_receives() -> None:
    (use,) = ring_uses(with_slots(8), A2A3)
    assert (use.space, use.slot) == (Mem.Vec, ROWS * 128 * 4)
    assert 8 * use.slot + use.others > use.limit >= use.most * use.slot + use.others
    kernel = lower_kernel(both_ways().kernels[0], A2A3, Ring(8, 4))
    assert {u.space for u in ring_uses(kernel, A2A3)} == {Mem.Vec, Mem.Mat}


def test_the_printed_program_states_its_slots() -> None:
    @pl.jit
    def scores(q: pl.Tensor[[ROWS, DEPTH], pl.BF16], y: pl.Out[pl.Tensor[[ROWS, ROWS], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.split(slot_num=3)]):
            y[:, :] = pl.exp(pl.matmul(q, q, b_trans=True, out_dtype=pl.FP32))
        return y

    text = print_program(scores.specialize())
    assert "pl.split(pl.SplitMode.UP_DOWN), pl.cross_core_slot(slot_num=3)" in text
