"""The arguments whose elements control programs read."""

from __future__ import annotations

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.analysis.control_reads import parameters_read

N = 32


@pl.jit
def scaled(
    x: pl.Tensor[[N, N], pl.FP32],
    rows: pl.Tensor[[1], pl.INT32],
    y: pl.Out[pl.Tensor[[N, N], pl.FP32]],
):
    count = pl.read(rows, [0])
    for i in pl.range(count):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[i : i + 1, :] = pl.mul(x[i : i + 1, :], 2.0)
    return y


@pl.jit.host
def host(
    x: pl.Tensor[[2, N, N], pl.FP32],
    unread: pl.Tensor[[2, 1], pl.INT32],
    counts: pl.Tensor[[2, 1], pl.INT32],
    y: pl.Out[pl.Tensor[[2, N, N], pl.FP32]],
):
    for r in pl.range(pld.world_size()):
        scaled(x[r], counts[r], y[r], device=r)


def test_reads_of_a_dispatched_control_program_name_the_arguments_it_gets() -> None:
    program = host.lower()
    assert parameters_read(program) == {"counts"}
