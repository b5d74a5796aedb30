"""Transfers with short rows, for which the public compilers print hints."""

from __future__ import annotations

from tests.device.recorded import A2A3, A5, passed

import tilelet.language as pl
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.machine.description import Machine
from tilelet.device.report.hints import row_hints, short_row_finding, short_transfers
from tilelet.diag.catalogue.device import ShortTransferRows


def columns(width: int, machine: Machine) -> ShortTransferRows | None:
    @pl.jit
    def scale(x: pl.Tensor[[16, 512], pl.FP32], y: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        for c in pl.parallel(0, 512, width):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[:, c : c + width] = pl.mul(x[:, c : c + width], 2.0)
        return y

    return short_row_finding([lower_kernel(f, machine) for f in passed(scale).kernels], machine)


def test_rows_of_whole_ranges_have_no_finding() -> None:
    assert columns(128, A2A3) is None
    assert columns(32, A5) is None


def test_all_short_rows_of_a_program_are_one_finding() -> None:
    found = columns(64, A2A3)
    assert found is not None
    assert "rows of less than 512 bytes are moved in 1 line" in found.diagnostic.message
    assert "16 rows of 256 bytes" in found.diagnostic.labels[0].text
    assert found.diagnostic.notes[0].startswith("`scale_incore_0`: line ")
    assert columns(16, A5) is not None


def test_a_single_short_row_counts_for_the_finding_alone() -> None:
    @pl.jit
    def row(x: pl.Tensor[[1, 64], pl.FP32], y: pl.Out[pl.Tensor[[1, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.mul(x[:, :], 2.0)
        return y

    kernels = [lower_kernel(f, A2A3) for f in passed(row).kernels]
    assert [t.what for t in short_transfers(kernels, A2A3)] == ["load", "store"]
    assert row_hints(kernels, A2A3) == []
