"""The device view of kernels: pipes, memory spaces, L0 tiling, AIC and AIV."""

from __future__ import annotations

from tests.device.recording import elementwise, mixed, only_kernel, projection

import tilelet.language as pl
from tilelet.device import Core, Loop, Pipe, load_machine
from tilelet.device.kernel.view import CubeWork, Transfer, walk_steps
from tilelet.dtypes import BF16, FP32
from tilelet.ir.types import Mem

A2A3 = load_machine("a2a3")
A5 = load_machine("a5")


def test_a_cube_kernel() -> None:
    kernel = only_kernel(projection(), A2A3)
    assert kernel.shape == "AIC"
    assert {t.space for t in kernel.tiles} == {Mem.Mat, Mem.Left, Mem.Right, Mem.Acc}
    # One accumulator under several names.
    (acc,) = [t for t in kernel.tiles if t.space is Mem.Acc]
    assert acc.nbytes == 16 * 64 * 4
    pipes = [s.pipe for s in kernel.walk()]
    assert pipes == [
        *(Pipe.MTE2, Pipe.MTE2, Pipe.MTE1, Pipe.MTE1, Pipe.CUBE),
        *(Pipe.MTE2, Pipe.MTE2, Pipe.MTE1, Pipe.MTE1, Pipe.CUBE),
        Pipe.FIXPIPE,
    ]


def test_loads_know_their_rows_and_window() -> None:
    kernel = only_kernel(projection(columns=64, step=128), A2A3)
    loads = [s.work for s in kernel.walk() if s.pipe is Pipe.MTE2]
    x, w = loads[:2]
    assert isinstance(x, Transfer)
    assert isinstance(w, Transfer)
    assert (x.rows, x.row_bytes, x.path) == (16, 256, "gm_to_l1")
    assert (w.rows, w.row_bytes) == (128, 128)
    assert kernel.function.params[w.param].name == "w"  # type: ignore[index]
    assert w.box == (128, 64)


def test_a_vector_kernel() -> None:
    kernel = only_kernel(elementwise(), A2A3)
    assert kernel.shape == "AIV"
    assert {t.space for t in kernel.tiles} == {Mem.Vec}
    assert [s.pipe for s in kernel.walk()] == [Pipe.MTE2, Pipe.VEC, Pipe.MTE3]


def test_live_ranges() -> None:
    kernel = only_kernel(projection(), A2A3)
    (acc,) = [t for t in kernel.tiles if t.space is Mem.Acc]
    loop = next(n for n in kernel.body if isinstance(n, Loop))
    assert acc.live[0] < loop.span[0]
    assert acc.live[1] == kernel.steps - 1
    inside = [t for t in kernel.tiles if loop.span[0] <= t.live[0] and t.space is Mem.Mat]
    assert inside
    assert all(t.live[1] < loop.span[1] for t in inside)


def test_a_large_product_is_cut_to_fit_l0_twice() -> None:
    @pl.program
    class Big:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[128, 512], pl.BF16],
            b: pl.Tensor[[512, 256], pl.BF16],
            c: pl.Out[pl.Tensor[[128, 256], pl.FP32]],
        ):
            with pl.incore():
                c = pl.assemble(c, pl.matmul(a, b, out_dtype=pl.FP32), [0, 0])
            return c

    kernel = only_kernel(Big, A2A3)
    (loop,) = [n for n in kernel.body if isinstance(n, Loop)]
    (cube,) = [s.work for s in walk_steps(loop.body) if s.pipe is Pipe.CUBE]
    assert isinstance(cube, CubeWork)
    assert (cube.m, cube.n) == (128, 256)
    assert loop.stop == 512 // cube.k
    pieces = [t for t in kernel.tiles if t.space in (Mem.Left, Mem.Right)]
    assert [t.buffers for t in pieces] == [2, 2]
    assert all(t.total_bytes <= A2A3.buffers[t.space].usable for t in pieces)


def test_padding_to_fractals() -> None:
    @pl.program
    class Small:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[8, 48], pl.BF16],
            b: pl.Tensor[[48, 24], pl.BF16],
            c: pl.Out[pl.Tensor[[8, 24], pl.FP32]],
        ):
            with pl.incore():
                c = pl.assemble(c, pl.matmul(a, b, out_dtype=pl.FP32), [0, 0])
            return c

    kernel = only_kernel(Small, A2A3)
    (cube,) = [s.work for s in kernel.walk() if s.pipe is Pipe.CUBE]
    assert cube == CubeWork(16, 48, 32, BF16)
    by_space = {t.space: t.nbytes for t in kernel.tiles if t.dtype is FP32}
    assert by_space[Mem.Acc] == 16 * 32 * 4


def test_a_mixed_kernel_goes_through_gm_where_there_is_no_path() -> None:
    through_gm = only_kernel(mixed(pl.SplitMode.NONE), A2A3)
    assert through_gm.shape == "MIX"
    assert through_gm.lanes == 1
    assert [s.what for s in through_gm.walk()][-4:] == ["push", "pop", "exp", "store"]
    direct = only_kernel(mixed(pl.SplitMode.NONE), A5)
    moves = [
        s.work.path for s in direct.walk() if isinstance(s.work, Transfer) and s.what == "move"
    ]
    assert moves[-1] == "l0c_to_ub"
    assert "push" not in [s.what for s in direct.walk()]


def test_split_modes_halve_the_vector_work() -> None:
    kernels = {
        mode: only_kernel(mixed(mode), A2A3)
        for mode in (pl.SplitMode.NONE, pl.SplitMode.UP_DOWN, pl.SplitMode.LEFT_RIGHT)
    }
    stores = {
        mode.name: next(s.work for s in k.walk() if s.what == "store")
        for mode, k in kernels.items()
    }
    sizes = {m: (w.rows, w.row_bytes) for m, w in stores.items() if isinstance(w, Transfer)}
    assert sizes == {"NONE": (64, 256), "UP_DOWN": (32, 256), "LEFT_RIGHT": (64, 128)}
    assert [k.lanes for k in kernels.values()] == [1, 2, 2]


def test_pipelining_gives_two_buffers() -> None:
    plain, piped = (only_kernel(projection(pipelined=p), A2A3) for p in (False, True))
    assert {t.buffers for t in plain.tiles if t.space is Mem.Mat} == {1}
    assert sorted(t.buffers for t in piped.tiles if t.space is Mem.Mat) == [1, 1, 2, 2]
    assert all(t.core is Core.AIC for t in piped.tiles)
