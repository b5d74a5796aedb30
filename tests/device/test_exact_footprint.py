"""Compulsory traffic: the bytes that tasks access, each counted once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.recording import recorded

import tilelet.language as pl
from tilelet.analysis.affine import Affine
from tilelet.device import load_machine, simulate
from tilelet.device.kernel.exact_footprint import Box, _merge_boxes
from tilelet.device.report.traffic import Bytes, traffic

A2A3 = load_machine("a2a3")
HEAD = 64


def bytes_of(program, name: str, **arguments) -> Bytes:
    tasks, compiled = recorded(program, **arguments)
    line = simulate(tasks, compiled, A2A3)
    return traffic(line.stream).tensors[name, "param"]


@pl.program
class Caches:
    """Each task reads its sequence's cache twice, up to the sequence's length."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        lengths: pl.Tensor[[4], pl.INT32],
        cache: pl.Tensor[[4 * 512, HEAD], pl.FP32],
        y: pl.Out[pl.Tensor[[4 * 16, HEAD], pl.FP32]],
    ):
        for b in pl.parallel(4):
            n = pl.read(lengths, [b])
            for _ in pl.range(2):
                with pl.incore():
                    for i in pl.range(n // 16):
                        row = b * 512 + i * 16
                        y = pl.assemble(y, pl.slice(cache, [16, HEAD], [row, 0]), [b * 16, 0])
        return y


def test_caches_count_as_far_as_they_are_read() -> None:
    lengths = np.array([64, 16, 512, 0], np.int32)
    cache = bytes_of(Caches, "cache", lengths=lengths)
    assert cache.least_read == (64 + 16 + 512) * HEAD * 4
    assert cache.read == 2 * cache.least_read


@pl.program
class Striped:
    """Every second column block, selected by the task's index modulo 2."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[64, 512], pl.FP32],
        y: pl.Out[pl.Tensor[[64, 512], pl.FP32]],
    ):
        for t in pl.parallel(8):
            with pl.incore():
                row = (t // 4) * 32
                column = (t % 4) * 128
                for i in pl.range(2):
                    tile = pl.slice(x, [16, 64], [row + i * 16, column])
                    y = pl.assemble(y, tile, [row + i * 16, column])
        return y


def test_gaps_do_not_count() -> None:
    x, y = bytes_of(Striped, "x"), bytes_of(Striped, "y")
    assert x.read == x.least_read == 64 * 256 * 4
    assert y.written == y.least_written == 64 * 256 * 4


@pl.program
class Boxed:
    """The first rows of each of four matrices."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[4, 32, 64], pl.FP32],
        y: pl.Out[pl.Tensor[[4, 32, 64], pl.FP32]],
    ):
        with pl.incore():
            y = pl.assemble(y, pl.slice(x, [4, 8, 64], [0, 0, 0]), [0, 0, 0])
        return y


def test_boxes_of_three_axes_leave_out_what_lies_between() -> None:
    assert bytes_of(Boxed, "x").least_read == 4 * 8 * 64 * 4


@pl.program
class Blocks:
    """Blocks of one task, each with rows of its own, all with one common row."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[16 * 16, 64], pl.FP32],
        y: pl.Out[pl.Tensor[[8 * 16, 64], pl.FP32]],
    ):
        for b in pl.spmd(8):
            first = pl.slice(x, [16, 64], [0, 0])
            mine = pl.slice(x, [16, 64], [b * 32, 0])
            y = pl.assemble(y, pl.add(first, mine), [b * 16, 0])
        return y


def test_blocks_touch_rows_of_their_own() -> None:
    x = bytes_of(Blocks, "x")
    assert x.least_read == 8 * 16 * 64 * 4
    assert x.read == 2 * x.least_read


@pl.program
class Gathered:
    """The read address is data: nothing is claimed beyond the bytes moved."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        table: pl.Tensor[[4], pl.INT32],
        x: pl.Tensor[[64 * 16, 64], pl.FP32],
        y: pl.Out[pl.Tensor[[4 * 16, 64], pl.FP32]],
    ):
        for t in pl.parallel(4):
            with pl.incore():
                page = pl.read(table, [t])
                y = pl.assemble(y, pl.slice(x, [16, 64], [page * 16, 0]), [t * 16, 0])
        return y


def test_compulsory_is_never_more_than_moved() -> None:
    x = bytes_of(Gathered, "x", table=np.array([3, 9, 3, 60], np.int32))
    assert x.least_read == x.read == 4 * 16 * 64 * 4


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([((0, 0), (4, 8)), ((4, 0), (4, 8))], 1),  # one above the other
        ([((0, 0), (4, 8)), ((5, 0), (4, 8))], 2),  # a row between them
        ([((0, 0), (4, 8)), ((4, 0), (4, 4))], 2),  # of different width
        ([((0, 0), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 2)), ((2, 2), (2, 2))], 1),
    ],
)
def test_boxes_are_joined_only_if_nothing_is_added(boxes, expected: int) -> None:
    made = [Box(tuple(Affine(s) for s in start), extents) for start, extents in boxes]
    merged = _merge_boxes(made)
    assert len(merged) == expected
    assert sum(a * b for a, b in (box.extents for box in merged)) == sum(
        a * b for a, b in (box.extents for box in made)
    )


def test_boxes_that_move_differently_stay_apart() -> None:
    still, moving = Affine(0), Affine(0, ((0, 1),))
    assert len(_merge_boxes([Box((still,), (4,)), Box((moving,), (4,))])) == 2
