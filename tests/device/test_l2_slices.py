"""L2 slices: cores wait if they access the same lines, or lines of the same slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.device.recording import only_kernel, recorded

import tilelet.language as pl
from tilelet.device import kernel_cost, load_machine, simulate
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.view import Transfer
from tilelet.device.machine.description import with_fields

A2A3 = load_machine("a2a3")


def projection(width: int, blocks: int = 24) -> Any:
    """Every block reads the same x, with rows of `width` numbers, and columns of its own."""
    WIDTH, BLOCKS = width, blocks

    @pl.program
    class Projection:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[128, WIDTH], pl.BF16],
            w: pl.Tensor[[WIDTH, 64 * BLOCKS], pl.BF16],
            y: pl.Out[pl.Tensor[[128, 64 * BLOCKS], pl.FP32]],
        ):
            for block in pl.spmd(BLOCKS):
                acc = pl.matmul(
                    pl.slice(x, [128, 128], [0, 0]),
                    pl.slice(w, [128, 64], [0, block * 64]),
                    out_dtype=pl.FP32,
                )
                for k in pl.pipeline(1, WIDTH // 128, stage=2):
                    acc = pl.matmul_acc(
                        acc,
                        pl.slice(x, [128, 128], [0, k * 128]),
                        pl.slice(w, [128, 64], [k * 128, block * 64]),
                    )
                y = pl.assemble(y, acc, [0, block * 64])
            return y

    return Projection


def loads(program: Any) -> list[Transfer]:
    found = [step.work for step in only_kernel(program, A2A3).walk() if step.what == "load"]
    return [work for work in found if isinstance(work, Transfer)]


def test_rows_a_multiple_of_many_lines_apart_fall_on_few_slices() -> None:
    for width, slices in ((4096, 2), (5120, 8), (8192, 1)):
        x, w = loads(projection(width))[:2]
        assert (x.slices, x.same_lines) == (slices, True)
        # Each block has columns of its own, distributed over all slices.
        assert (w.slices, w.same_lines) == (0, False)


def block_us(width: int, blocks: int, **options: Any) -> float:
    tasks, program = recorded(projection(width, blocks))
    line = simulate(tasks, program, A2A3, **options)
    return float((line.end - line.start).max())


def test_cores_that_read_the_same_lines_wait_for_each_other() -> None:
    per_row = A2A3.us(A2A3.granule_cycles) * 24 / 2
    assert block_us(4096, 24) > 128 * 32 * per_row
    assert block_us(4096, 1) < 0.5 * block_us(4096, 24)
    # Rows with another pitch are served by more slices, although there are more of them.
    assert block_us(5120, 24) < 0.8 * block_us(4096, 24)


def test_c_and_python_share_slices_alike() -> None:
    tasks, program = recorded(projection(4096))
    fast, slow = (simulate(tasks, program, A2A3, reference=r) for r in (False, True))
    assert np.array_equal(fast.finish, slow.finish)


def test_all_slices_together_serve_what_l2_does() -> None:
    for machine in (A2A3, load_machine("a5")):
        gm = machine.gm
        together = gm.l2_slices * gm.granule / machine.us(machine.granule_cycles)
        assert together == pytest.approx(gm.l2_gbs * 1000)
        faster = with_fields(machine, {"gm.l2_gbs": 2 * gm.l2_gbs})
        assert faster.granule_cycles == pytest.approx(machine.granule_cycles / 2)


def test_a_machine_of_small_granules_serves_short_rows_faster() -> None:
    a5 = load_machine("a5")
    coarse = with_fields(a5, {"gm.granule": a5.gm.l2_line})
    kernel = only_kernel(projection(4096), a5)
    fine, whole = (kernel_cost(kernel, m).l2_granules * m.granule_cycles for m in (a5, coarse))
    # Rows of 256 and 128 bytes in lines of 512.
    assert 1.9 * fine < whole < 4.1 * fine


def test_blocks_that_take_parts_of_the_same_lines_wait_for_each_other() -> None:
    """Columns of 64 two-byte numbers: four blocks share a line of 512 bytes."""
    kernel = only_kernel(projection(4096), A2A3)
    times = {
        (blocks, busy): kernel_cost(
            kernel, with_fields(A2A3, {"gm.serial_cycles": busy}), Signature(blocks=blocks)
        ).exec_us
        for blocks in (1, 2, 24)
        for busy in (0.0, 8.0)
    }
    assert times[1, 8.0] == times[1, 0.0], "alone"
    assert times[1, 8.0] < times[2, 8.0] < times[24, 8.0]
    assert times[24, 0.0] == times[1, 0.0]
    # The requests of each core take at least as long as the turns of the others.
    rows = 4096
    assert times[24, 8.0] >= A2A3.us(rows * 4 * 8.0)
