"""Program changes with a known effect, faster or slower: the model predicts the direction."""

from __future__ import annotations

from typing import Any

import pytest
from tests.device.recorded import A2A3, device_run

import tilelet.language as pl
from tilelet.device.report.compare import ProfileComparison
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun

ROWS, COLUMNS = 1536, 1024


def copy_tiles(height: int, width: int, stage: int = 1) -> Any:
    """24 blocks copy the same bytes in tiles of a given size."""
    H, W, STAGE = height, width, stage
    EACH = ROWS // 24

    if STAGE > 1:

        @pl.jit
        def pipelined(
            x: pl.Tensor[[ROWS, COLUMNS], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]]
        ):
            for b in pl.spmd(24):
                for i in pl.pipeline(EACH // H * (COLUMNS // W), stage=STAGE):
                    r = b * EACH + i // (COLUMNS // W) * H
                    c = i % (COLUMNS // W) * W
                    y[r : r + H, c : c + W] = pl.add(x[r : r + H, c : c + W], 1.0)
            return y

        return pipelined

    @pl.jit
    def copied(
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]]
    ):
        for b in pl.spmd(24):
            for i in pl.range(EACH // H * (COLUMNS // W)):
                r = b * EACH + i // (COLUMNS // W) * H
                c = i % (COLUMNS // W) * W
                y[r : r + H, c : c + W] = pl.add(x[r : r + H, c : c + W], 1.0)
        return y

    return copied


def blocks_of_rows(height: int, parallel: bool, rows: int = 512) -> Any:
    """One task per block of rows, or one task that loops over them."""
    H, R = height, rows

    if parallel:

        @pl.jit
        def in_parallel(x: pl.Tensor[[R, 256], pl.FP32], y: pl.Out[pl.Tensor[[R, 256], pl.FP32]]):
            for r in pl.parallel(0, R, H):
                with pl.at(level=pl.Level.CORE_GROUP):
                    y[r : r + H, :] = pl.exp(pl.exp(pl.exp(x[r : r + H, :])))
            return y

        return in_parallel

    @pl.jit
    def serial(x: pl.Tensor[[R, 256], pl.FP32], y: pl.Out[pl.Tensor[[R, 256], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            for r in pl.range(0, R, H):
                y[r : r + H, :] = pl.exp(pl.exp(pl.exp(x[r : r + H, :])))
        return y

    return serial


def sums(dependent: bool) -> Any:
    """48 tasks that add blocks of rows into one block, or each into its own."""

    if dependent:

        @pl.jit
        def in_turn(x: pl.Tensor[[768, 256], pl.FP32], y: pl.InOut[pl.Tensor[[768, 256], pl.FP32]]):
            for r in pl.range(0, 768, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    y[0:16, :] = pl.add(y[0:16, :], x[r : r + 16, :])
            return y

        return in_turn

    @pl.jit
    def apart(
        x: pl.Tensor[[768, 256], pl.FP32],
        z: pl.Tensor[[768, 256], pl.FP32],
        y: pl.Out[pl.Tensor[[768, 256], pl.FP32]],
    ):
        for r in pl.parallel(0, 768, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[r : r + 16, :] = pl.add(z[r : r + 16, :], x[r : r + 16, :])
        return y

    return apart


CHANGES = {
    "tile halved below the transfer knee": (copy_tiles(8, 128), copy_tiles(4, 128), "slower"),
    "tile doubled below the transfer knee": (copy_tiles(4, 128), copy_tiles(8, 128), "faster"),
    "loads of the next iteration overlap": (copy_tiles(8, 128), copy_tiles(8, 128, 2), "faster"),
    "dependency removed": (sums(True), sums(False), "faster"),
    "dependency added": (sums(False), sums(True), "slower"),
    "serial loop made parallel": (blocks_of_rows(16, False), blocks_of_rows(16, True), "faster"),
    "parallel loop made serial": (blocks_of_rows(16, True), blocks_of_rows(16, False), "slower"),
    "tasks of one row": (blocks_of_rows(16, True), blocks_of_rows(1, True), "slower"),
    "twice the bytes": (
        blocks_of_rows(32, True, 12288),
        blocks_of_rows(32, True, 24576),
        "slower",
    ),
    "half the bytes": (blocks_of_rows(32, True, 24576), blocks_of_rows(32, True, 12288), "faster"),
}


def profile(kernel: Any) -> Profile:
    """Model a program with a runtime that orders only dependent tasks."""
    return DeviceRun(device_run(kernel).run, A2A3, "2026-07").profile


@pytest.mark.parametrize("name", CHANGES)
def test_the_direction_of_a_certain_change_is_right(name: str) -> None:
    before, after, direction = CHANGES[name]
    a, b = profile(before), profile(after)
    ratio = b.total_us / a.total_us
    assert ratio < 0.98 if direction == "faster" else ratio > 1.02
    interval = ProfileComparison(a, b).ratio
    assert interval is not None
    assert interval[0] < ratio < interval[1]


def test_a_change_that_no_published_row_covers_is_noted() -> None:
    a, b = profile(copy_tiles(8, 128)), profile(copy_tiles(4, 128))
    found = ProfileComparison(a, b)
    assert not any("no published change" in note for note in found.notes())
    nobody = dict(found.pair, dispatch=0.0, GM=0.0, cube=0.0, vector=0.0, waiting=0.0)
    object.__setattr__(b, "pair", nobody)
    assert any("no published change" in note for note in ProfileComparison(a, b).notes())
