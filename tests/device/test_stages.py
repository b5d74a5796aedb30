"""Buffers of pipelined stages, as the public compiler assigns them."""

from __future__ import annotations

import pytest
from tests.device.recorded import A2A3, passed

import tilelet.language as pl
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.memory.limits import shared_stage_findings
from tilelet.device.memory.stages import shared_stages
from tilelet.device.schedule.pricing import CostCache
from tilelet.ir.core import Program
from tilelet.ir.types import Mem


def shared(program: Program) -> list[tuple[Mem, int, int, int]]:
    found = (s for f in program.kernels for s in shared_stages(lower_kernel(f, A2A3), A2A3))
    return [(s.space, s.stages, s.depth, s.needed) for s in found]


def products(depth: int, stage: int, blocks: int = 8) -> Program:
    @pl.jit
    def chain(
        a: pl.Tensor[[16, 4096], pl.BF16],
        b: pl.Tensor[[4096, 256], pl.BF16],
        c: pl.Out[pl.Tensor[[16, 256], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            acc = pl.matmul(a[:, 0:depth], b[0:depth, :], out_dtype=pl.FP32)
            for k in pl.pipeline(depth, blocks * depth, depth, stage=stage):
                acc = pl.matmul_acc(acc, a[:, k : k + depth], b[k : k + depth, :])
            c[:, :] = acc
        return c

    return passed(chain)


def test_stages_of_a_product_in_pieces_share_l0b() -> None:
    # Each of two stages loads [128, 256] in two pieces of 32 KiB; a piece of 64 rows fits whole.
    assert shared(products(128, stage=2)) == [(Mem.Right, 2, 1, 4 * 32 * 1024)]
    assert shared(products(64, stage=2)) == []


def test_one_stage_needs_no_copies() -> None:
    assert shared(products(128, stage=1)) == []


def test_iterations_that_do_not_exist_need_no_buffers() -> None:
    assert [found[1:3] for found in shared(products(64, stage=4))] == [(4, 2)]
    assert shared(products(64, stage=4, blocks=3)) == []


def test_a_loop_around_loops_copies_all_their_tiles() -> None:
    def build(rows: int) -> Program:
        @pl.jit
        def scale(x: pl.Tensor[[64, 1024], pl.FP32], y: pl.Out[pl.Tensor[[64, 1024], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.pipeline(0, 64, 32, stage=2):
                    for i in pl.range(0, 32, rows):
                        y[r + i : r + i + rows, :] = pl.exp(x[r + i : r + i + rows, :])
            return y

        return passed(scale)

    assert shared(build(16)) == []
    assert shared(build(32)) == [(Mem.Vec, 2, 1, 2 * 128 * 1024)]


def test_findings_have_sizes_that_fit_and_the_time_lost() -> None:
    (found,) = shared_stage_findings(products(128, stage=2), A2A3)
    assert found.code == "W0920"
    assert "need 128 KiB of Right and share buffers" in found.diagnostic.message
    assert "whether stages overlap or not" in found.diagnostic.notes[0]
    assert "[64, 256]" in found.diagnostic.helps[0]


@pytest.mark.parametrize(("rows", "fits"), [(16, True), (32, False)])
def test_an_ideal_plan_overlaps_all_stages(rows: int, fits: bool) -> None:
    @pl.jit
    def scale(x: pl.Tensor[[256, 1024], pl.FP32], y: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            for r in pl.pipeline(0, 256, rows, stage=2):
                y[r : r + rows, :] = pl.exp(x[r : r + rows, :])
        return y

    program = passed(scale)
    compiled, ideal = (
        kernel_cost(
            CostCache(A2A3, A2A3.period(), ideal=i).kernel(program, program.kernels[0].name), A2A3
        ).exec_us
        for i in (False, True)
    )
    assert (compiled == ideal) == fits
    assert compiled >= ideal
