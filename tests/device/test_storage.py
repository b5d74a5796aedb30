"""Which tile values share storage, and the memories they are in."""

from __future__ import annotations

import pytest

import tilelet.language as pl
from tilelet import dtypes
from tilelet.device.kernel.storage import Storage, padded_bytes
from tilelet.ir.core import Function, Op, Program, Value, walk
from tilelet.ir.types import Mem
from tilelet.passes.pipeline import run_passes


def only_kernel(program: Program) -> Function:
    (kernel,) = run_passes(program).kernels
    return kernel


def ops_named(kernel: Function, name: str) -> list[Op]:
    return [op for op in walk(kernel.body) if op.name == name]


def attention() -> Function:
    """A product of loads, exponentials of it, and a product of those."""

    @pl.program
    class Attention:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            q: pl.Tensor[[16, 64], pl.BF16],
            k: pl.Tensor[[64, 64], pl.BF16],
            v: pl.Tensor[[64, 64], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.incore():
                scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)
                weights = pl.cast(pl.exp(scores), pl.BF16)
                out = pl.assemble(out, pl.matmul(weights, v, out_dtype=pl.FP32), [0, 0])
            return out

    return only_kernel(Attention)


def test_a_class_lives_where_its_producer_leaves_it() -> None:
    kernel = attention()
    storage = Storage(kernel)
    products = [op.result for op in ops_named(kernel, "matmul")]
    assert [storage.home(p) for p in products] == [Mem.Acc, Mem.Acc]
    (weights,) = ops_named(kernel, "cast")
    assert storage.home(weights.result) is Mem.Vec
    assert storage.wanted(weights.result) == {Mem.Mat}, "the cube wants it elsewhere"
    assert storage.wanted(products[0]) == {Mem.Vec}
    assert storage.wanted(products[1]) == set(), "a store takes it from where it is"


def test_loads_go_to_who_uses_them() -> None:
    @pl.program
    class Loads:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[16, 64], pl.BF16],
            b: pl.Tensor[[64, 16], pl.BF16],
            y: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
            z: pl.Out[pl.Tensor[[16, 64], pl.BF16]],
        ):
            with pl.incore():
                both = pl.slice(a, [16, 64], [0, 0])
                cube = pl.slice(b, [64, 16], [0, 0])
                y = pl.assemble(y, pl.matmul(both, cube, out_dtype=pl.FP32), [0, 0])
                z = pl.assemble(z, pl.neg(both), [0, 0])
            return y, z

    kernel = only_kernel(Loads)
    storage = Storage(kernel)
    both, cube = (op.result for op in ops_named(kernel, "slice"))
    assert storage.home(cube) is Mem.Mat
    assert storage.home(both) is Mem.Vec
    assert storage.wanted(both) == {Mem.Vec, Mem.Mat}


def test_an_accumulator_is_one_tile_through_its_loop() -> None:
    @pl.program
    class Accumulated:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[16, 256], pl.BF16],
            b: pl.Tensor[[256, 16], pl.BF16],
            y: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
        ):
            with pl.incore():
                acc = pl.matmul(a[:, :64], b[:64, :], out_dtype=pl.FP32)
                for i in pl.range(1, 4):
                    left = pl.slice(a, [16, 64], [0, i * 64])
                    acc = pl.matmul_acc(acc, left, pl.slice(b, [64, 16], [i * 64, 0]))
                y = pl.assemble(y, acc, [0, 0])
            return y

    kernel = only_kernel(Accumulated)
    storage = Storage(kernel)
    (first,), (step,) = ops_named(kernel, "matmul"), ops_named(kernel, "matmul_acc")
    (loop,) = ops_named(kernel, "for")
    same: list[Value] = [first.result, step.result, *loop.results, *loop.blocks[0].params[1:]]
    assert len({storage.find(v) for v in same}) == 1
    loads = {storage.find(op.result) for op in ops_named(kernel, "slice")}
    assert len(loads) == 4
    assert storage.find(first.result) not in loads


def test_views_and_joined_values_share_storage_results_do_not() -> None:
    @pl.program
    class Views:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 64], pl.FP32],
            n: pl.Scalar[pl.INT32],
            y: pl.Out[pl.Tensor[[64, 16], pl.FP32]],
        ):
            with pl.incore():
                tile = pl.slice(x, [16, 64], [0, 0])
                if n > 3:
                    chosen = pl.exp(tile)
                else:
                    chosen = pl.neg(tile)
                y = pl.assemble(y, pl.reshape(chosen, [64, 16]), [0, 0])
            return y

    kernel = only_kernel(Views)
    storage = Storage(kernel)
    (load,), (exp,), (neg,) = (ops_named(kernel, n) for n in ("slice", "exp", "neg"))
    (view,), (join,) = ops_named(kernel, "reshape"), ops_named(kernel, "if")
    same = {storage.find(v) for v in (exp.result, neg.result, join.results[0], view.result)}
    assert len(same) == 1
    assert storage.find(load.result) not in same


def test_a_stated_memory_stands() -> None:
    @pl.program
    class Placed:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 64], pl.BF16], y: pl.Out[pl.Tensor[[16, 64], pl.BF16]]):
            with pl.incore():
                tile = pl.load(x, [0, 0], [16, 64], target_memory=pl.Mem.Mat)
                y = pl.store(pl.move(tile, pl.Mem.Vec), [0, 0], y)
            return y

    kernel = only_kernel(Placed)
    storage = Storage(kernel)
    (load,), (move,) = ops_named(kernel, "load"), ops_named(kernel, "move")
    assert storage.home(load.result) is Mem.Mat
    assert storage.home(move.result) is Mem.Vec


@pytest.mark.parametrize(
    ("shape", "dtype", "space", "wanted"),
    [
        ((16, 64), dtypes.FP32, Mem.Vec, 16 * 256),
        ((16, 3), dtypes.FP32, Mem.Vec, 16 * 32),  # rows of whole blocks
        ((16, 1), dtypes.FP32, Mem.Vec, 64),  # elements of a column are contiguous
        ((3, 5), dtypes.BF16, Mem.Mat, 16 * 16 * 2),  # whole fractals
        ((16, 16), dtypes.BF16, Mem.Acc, 16 * 16 * 4),  # products are stored in FP32
    ],
)
def test_what_the_hardware_takes_for_a_tile(shape, dtype, space, wanted) -> None:
    assert padded_bytes(shape, dtype, space, 16) == wanted
