"""The range that a task can touch, as computed by its kernel's generated C function."""

from __future__ import annotations

import ctypes

import pytest
from tests.cpu import clib

import tilelet.language as pl
from tilelet.cpu.emit.footprint import footprint_lines
from tilelet.cpu.run.native import Win, Word
from tilelet.ir.core import Function, Program
from tilelet.ir.types import TensorType
from tilelet.passes.pipeline import run_passes

SHAPE = (64, 32)

Span = tuple[int, int]


def kernel_of(program: Program) -> tuple[Function, Program]:
    compiled = run_passes(program)
    (kernel,) = compiled.kernels
    return kernel, compiled


def touched(program: Program, scalars: list[int], block: int = 0) -> dict[str, list[Span]]:
    """Return first index and end on each axis, by tensor."""
    kernel, compiled = kernel_of(program)
    name, lines = footprint_lines(kernel, compiled.functions)
    names = [p.name for p in kernel.params if isinstance(p.type, TensorType)]
    windows = (Win * len(names))(*[whole() for _ in names])
    if name != "NULL":
        text = "\n".join(['#include "rt.h"', *lines]).replace("static void", "void")
        words = (Word * max(1, len(scalars)))(*[Word(i=s) for s in scalars])
        getattr(clib.build(text), name)(words, ctypes.c_int64(block), windows)
    return {n: spans(w) for n, w in zip(names, windows)}


def whole() -> Win:
    made = Win(data=0, rank=2, itemsize=1)
    made.shape[:2] = made.valid[:2] = made.reach[:2] = SHAPE
    made.stride[:2] = (SHAPE[1], 1)
    return made


def spans(window: Win) -> list[Span]:
    """Derive spans from the address and remaining extents of a window that began at 0."""
    at = divmod(window.data or 0, SHAPE[1])
    return [(start, start + window.reach[axis]) for axis, start in enumerate(at)]


ALL = [(0, 64), (0, 32)]


def test_offsets_follow_from_scalars() -> None:
    @pl.program
    class Blocks:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 32], pl.INT8], y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]]):
            for i in pl.parallel(4):
                with pl.incore():
                    y = pl.assemble(y, pl.slice(x, [8, 16], [i * 16 + 8, 16]), [i * 16, 0])
            return y

    assert touched(Blocks, [2]) == {"x": [(40, 48), (16, 32)], "y": [(32, 40), (0, 16)]}
    assert touched(Blocks, [0])["x"] == [(8, 16), (16, 32)]


def test_a_loop_in_the_kernel_spans_all_its_iterations() -> None:
    @pl.program
    class Looped:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 32], pl.INT8], y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]]):
            for i in pl.parallel(4):
                with pl.incore():
                    for k in pl.range(1, 3):
                        part = pl.slice(x, [4, 8], [i * 16 + 4 * k, k * 8])
                        y = pl.assemble(y, part, [i * 16, 0])
            return y

    assert touched(Looped, [1])["x"] == [(20, 28), (8, 24)]
    assert touched(Looped, [1])["y"] == [(16, 20), (0, 8)]


def test_the_box_is_around_all_windows_of_a_tensor() -> None:
    @pl.program
    class Two:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 32], pl.INT8], y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]]):
            for i in pl.parallel(2):
                with pl.incore():
                    a = pl.slice(x, [8, 8], [i * 8, 0])
                    b = pl.slice(x, [8, 8], [i * 8 + 32, 16])
                    y = pl.assemble(y, pl.add(a, b), [pl.min(i, 1) * 8, 0])
            return y

    assert touched(Two, [1])["x"] == [(8, 48), (0, 24)]
    assert touched(Two, [1])["y"] == [(8, 16), (0, 8)]


def test_blocks_of_a_task_touch_their_own_part() -> None:
    @pl.program
    class Spmd:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 32], pl.INT8], y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]]):
            for b in pl.spmd(4):
                y = pl.assemble(y, pl.slice(x, [16, 32], [b * 16, 0]), [b * 16, 0])
            return y

    assert touched(Spmd, [], block=3)["y"] == [(48, 64), (0, 32)]


def test_what_data_decides_is_all_of_the_tensor() -> None:
    @pl.program
    class ByData:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[64, 32], pl.INT8],
            at: pl.Tensor[[64, 32], pl.INT32],
            y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]],
        ):
            for i in pl.parallel(4):
                with pl.incore():
                    row = pl.cast(pl.read(at, [i, 0]), pl.INDEX)
                    y = pl.assemble(y, pl.slice(x, [8, 32], [row, 0]), [i * 8, 0])
            return y

    found = touched(ByData, [2])
    assert found["x"] == ALL
    assert found["at"] == [(2, 3), (0, 1)]
    assert found["y"] == [(16, 24), (0, 32)]


@pytest.mark.parametrize(("row", "wanted"), [(60, (60, 64)), (-4, (0, 4))])
def test_it_stays_inside_the_argument(row: int, wanted: Span) -> None:
    @pl.program
    class Edges:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[64, 32], pl.INT8],
            at: pl.Scalar[pl.INDEX],
            y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]],
        ):
            with pl.incore():
                y = pl.assemble(y, pl.slice(x, [8, 32], [at, 0]), [0, 0])
            return y

    assert touched(Edges, [row])["x"][0] == wanted


def test_a_kernel_that_takes_everything_needs_no_function() -> None:
    @pl.program
    class Viewed:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 32], pl.INT8], y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]]):
            with pl.incore():
                flat = pl.reshape(y, [2048, 1])
                flat = pl.assemble(flat, pl.reshape(pl.slice(x, [4, 4], [0, 0]), [16, 1]), [0, 0])
            return y

    kernel, compiled = kernel_of(Viewed)
    name, lines = footprint_lines(kernel, compiled.functions)
    assert name == "NULL" or f"&f[{[p.name for p in kernel.params].index('y')}]" not in str(lines)


def test_an_offset_that_a_branch_hands_on_beside_others_is_not_known() -> None:
    @pl.program
    class Joined:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[64, 32], pl.INT8],
            n: pl.Scalar[pl.INDEX],
            y: pl.InOut[pl.Tensor[[64, 32], pl.INT8]],
        ):
            with pl.incore():
                if n > 0:
                    i, k = n + 1, n * 2
                else:
                    i, k = n + 2, n * 3
                y = pl.assemble(y, pl.slice(x, [4, 8], [i, k]), [i, 0])
            return y

    assert touched(Joined, [1])["x"] == ALL
