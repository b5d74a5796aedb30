"""Programs of the bench: matrix products and memory-bound programs."""

from __future__ import annotations

from collections.abc import Callable

import tilelet.language as pl
from tilelet.ir.core import Program
from tilelet.models import registry

# ruff: noqa: N806 - kernels read their sizes by the language's own idiom


def build_matmul(
    rows: int, inner: int, columns: int, row_tile: int = 16, k_tile: int = 128, tile: int = 256
) -> Program:
    """`x @ w`: BF16 in, FP32 out, one task per output tile."""
    M, K, N, TILE_M, TILE_K, TILE_N = rows, inner, columns, row_tile, k_tile, tile

    @pl.program
    class Matmul:
        @pl.function(type=pl.FunctionType.Opaque)
        def matmul(
            self,
            x: pl.Tensor[[M, K], pl.BF16],
            w: pl.Tensor[[K, N], pl.BF16],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for n in pl.parallel(0, N, TILE_N):
                for m in pl.parallel(0, M, TILE_M):
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="tile"):
                        x_tile = pl.slice(x, [TILE_M, TILE_K], [m, 0])
                        w_tile = pl.slice(w, [TILE_K, TILE_N], [0, n])
                        acc = pl.matmul(x_tile, w_tile, out_dtype=pl.FP32)
                        for k in pl.range(TILE_K, K, TILE_K):
                            x_tile = pl.slice(x, [TILE_M, TILE_K], [m, k])
                            w_tile = pl.slice(w, [TILE_K, TILE_N], [k, n])
                            acc = pl.matmul_acc(acc, x_tile, w_tile)
                    out = pl.assemble(out, acc, [m, n])
            return out

    return Matmul


def build_int8_row(inner: int, columns: int, tile: int = 512) -> Program:
    """One row times INT8 weights with a scale per column: INT8 in, FP32 out."""
    K, N, TILE_N = inner, columns, tile

    @pl.program
    class Int8Row:
        @pl.function(type=pl.FunctionType.Opaque)
        def int8_row(
            self,
            x: pl.Tensor[[1, K], pl.INT8],
            w: pl.Tensor[[K, N], pl.INT8],
            scale: pl.Tensor[[1, N], pl.FP32],
            out: pl.Tensor[[1, N], pl.FP32],
        ) -> pl.Tensor[[1, N], pl.FP32]:
            for n in pl.parallel(0, N, TILE_N):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="columns"):
                    w_tile = pl.slice(w, [K, TILE_N], [0, n])
                    acc = pl.matmul(pl.slice(x, [1, K], [0, 0]), w_tile, out_dtype=pl.INT32)
                    scaled = pl.mul(
                        pl.cast(acc, target_type=pl.FP32), pl.slice(scale, [1, TILE_N], [0, n])
                    )
                out = pl.assemble(out, scaled, [0, n])
            return out

    return Int8Row


def build_add(rows: int, columns: int, tile: int = 8) -> Program:
    """The sum of two FP32 tensors."""
    M, N, TILE = rows, columns, tile

    @pl.program
    class Add:
        @pl.function(type=pl.FunctionType.Opaque)
        def add(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            y: pl.Tensor[[M, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    total = pl.add(pl.slice(x, [TILE, N], [r, 0]), pl.slice(y, [TILE, N], [r, 0]))
                out = pl.assemble(out, total, [r, 0])
            return out

    return Add


def build_cast(rows: int, columns: int, tile: int = 8) -> Program:
    """FP32 to BF16."""
    M, N, TILE = rows, columns, tile

    @pl.program
    class Cast:
        @pl.function(type=pl.FunctionType.Opaque)
        def cast(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.BF16],
        ) -> pl.Tensor[[M, N], pl.BF16]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    narrow = pl.cast(pl.slice(x, [TILE, N], [r, 0]), target_type=pl.BF16)
                out = pl.assemble(out, narrow, [r, 0])
            return out

    return Cast


def build_softmax(rows: int, columns: int, tile: int = 8) -> Program:
    """Softmax of every row, FP32."""
    M, N, TILE = rows, columns, tile

    @pl.program
    class Softmax:
        @pl.function(type=pl.FunctionType.Opaque)
        def softmax(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    values = pl.slice(x, [TILE, N], [r, 0])
                    powers = pl.exp(pl.row_expand_sub(values, pl.row_max(values)))
                    weights = pl.row_expand_div(powers, pl.row_sum(powers))
                out = pl.assemble(out, weights, [r, 0])
            return out

    return Softmax


def build_rmsnorm(rows: int, columns: int, tile: int = 8, eps: float = 1e-6) -> Program:
    """RMSNorm of every row with a weight, FP32."""
    M, N, TILE, EPS = rows, columns, tile, eps

    @pl.program
    class RmsNorm:
        @pl.function(type=pl.FunctionType.Opaque)
        def rmsnorm(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            weight: pl.Tensor[[1, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    values = pl.slice(x, [TILE, N], [r, 0])
                    square_sum = pl.reshape(pl.row_sum(pl.mul(values, values)), [1, TILE])
                    mean = pl.add(pl.mul(square_sum, 1.0 / N), EPS)
                    inverse = pl.reshape(pl.recip(pl.sqrt(mean)), [TILE, 1])
                    gamma = pl.slice(weight, [1, N], [0, 0])
                    normed = pl.col_expand_mul(pl.row_expand_mul(values, inverse), gamma)
                out = pl.assemble(out, normed, [r, 0])
            return out

    return RmsNorm


def build_layernorm(rows: int, columns: int, tile: int = 8, eps: float = 1e-5) -> Program:
    """LayerNorm of every row with a weight and a bias, FP32."""
    M, N, TILE, EPS = rows, columns, tile, eps

    @pl.program
    class LayerNorm:
        @pl.function(type=pl.FunctionType.Opaque)
        def layernorm(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            weight: pl.Tensor[[1, N], pl.FP32],
            bias: pl.Tensor[[1, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    values = pl.slice(x, [TILE, N], [r, 0])
                    mean = pl.mul(pl.row_sum(values), 1.0 / N)
                    centered = pl.row_expand_sub(values, mean)
                    square_sum = pl.reshape(pl.row_sum(pl.mul(centered, centered)), [1, TILE])
                    variance = pl.add(pl.mul(square_sum, 1.0 / N), EPS)
                    inverse = pl.reshape(pl.recip(pl.sqrt(variance)), [TILE, 1])
                    gamma = pl.slice(weight, [1, N], [0, 0])
                    beta = pl.slice(bias, [1, N], [0, 0])
                    normed = pl.col_expand_mul(pl.row_expand_mul(centered, inverse), gamma)
                    shifted = pl.col_expand_add(normed, beta)
                out = pl.assemble(out, shifted, [r, 0])
            return out

    return LayerNorm


def build_swiglu(rows: int, columns: int, tile: int = 8) -> Program:
    """SwiGLU of a gate `x` and a value `y`, FP32."""
    M, N, TILE = rows, columns, tile

    @pl.program
    class SwiGlu:
        @pl.function(type=pl.FunctionType.Opaque)
        def swiglu(
            self,
            x: pl.Tensor[[M, N], pl.FP32],
            y: pl.Tensor[[M, N], pl.FP32],
            out: pl.Tensor[[M, N], pl.FP32],
        ) -> pl.Tensor[[M, N], pl.FP32]:
            for r in pl.parallel(0, M, TILE):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
                    gate = pl.slice(x, [TILE, N], [r, 0])
                    sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
                    swish = pl.mul(gate, sigmoid)
                    product = pl.mul(swish, pl.slice(y, [TILE, N], [r, 0]))
                out = pl.assemble(out, product, [r, 0])
            return out

    return SwiGlu


OWN: dict[str, Callable[..., Program]] = {
    "bench/matmul": build_matmul,
    "bench/add": build_add,
    "bench/cast": build_cast,
    "bench/softmax": build_softmax,
    "bench/rmsnorm": build_rmsnorm,
    "bench/layernorm": build_layernorm,
    "bench/swiglu": build_swiglu,
    "bench/int8_row": build_int8_row,
}


def build(name: str, sizes: dict[str, int]) -> Program:
    """Build a program of the bench or of a model: `bench/add`, `qwen3/scope3:tuned`."""
    if name in OWN:
        return OWN[name](**sizes)
    model, variant = registry.resolve(name)
    return model.build(variant, **sizes)
