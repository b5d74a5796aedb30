"""Small transfers pay for issue and latency, as much as published measurements say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.device.recorded import device_run

import tilelet.language as pl
from tilelet.device import load_machine

KB = 1024


def copied(kilobytes: int, cores: int, pipelined: bool) -> Any:
    """Every vector core adds 1 to tiles of its own, one at a time or double-buffered."""
    STEPS, TILE = 64, kilobytes
    OWN = STEPS * TILE
    ROWS = OWN * cores

    @pl.inline
    def step(x, y, r):
        y[r : r + TILE, :] = pl.add(x[r : r + TILE, :], 1.0)
        return y

    @pl.jit
    def in_turn(x: pl.Tensor[[ROWS, 256], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, 256], pl.FP32]]):
        for b in pl.spmd(cores):
            for i in pl.range(STEPS):
                y = step(x, y, b * OWN + i * TILE)
        return y

    @pl.jit
    def at_once(x: pl.Tensor[[ROWS, 256], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, 256], pl.FP32]]):
        for b in pl.spmd(cores):
            for i in pl.pipeline(STEPS, stage=2):
                y = step(x, y, b * OWN + i * TILE)
        return y

    return at_once if pipelined else in_turn


def rates(machine: str, kilobytes: int, pipelined: bool = False) -> tuple[float, float]:
    """Return the GB/s that all vector cores read together: from memory, and from L2."""
    described = load_machine(machine)
    cores = described.cores.vectors
    (cost,) = device_run(copied(kilobytes, cores, pipelined), described).timeline.stream.costs
    nbytes = cores * 64 * kilobytes * KB
    return nbytes / cost.cold_us / 1000, nbytes / cost.exec_us / 1000


def test_small_tiles_on_a5_are_as_slow_as_published() -> None:
    """121 GB/s with tiles of 1 KB, about 1 TB/s with 8 KB, from either memory."""
    for kilobytes, published in ((1, 121.0), (8, 1000.0)):
        cold, hot = rates("a5", kilobytes)
        assert 0.95 * cold < published < 1.05 * hot
        assert hot < 1.8 * cold


@pytest.mark.parametrize("machine", ["a2a3", "a5"])
def test_transfers_below_16_kb_do_not_reach_the_rate_of_a_core(machine: str) -> None:
    """Double-buffered, so that only the transfers count. A vendor's guide says 16 KB."""
    described = load_machine(machine)
    path = described.paths["gm_to_ub"]
    full = path.cold_bytes_per_cycle * described.cores.vectors * described.cores.clock_ghz
    shares = {n: rates(machine, n, pipelined=True)[0] / full for n in (1, 4, 16, 32)}
    assert shares[1] < shares[4] < shares[16] < shares[32]
    assert shares[1] < 0.15
    assert shares[4] < 0.5
    assert shares[16] > 0.6
