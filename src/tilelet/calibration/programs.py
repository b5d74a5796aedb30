# pyright: basic
"""The programs of the calibration rows, written from their descriptions.

Each builder returns a program; `src/tilelet/calibration/rows.py` defines what is compared.
"""

# Capital names are the idiom of kernels, whose bodies are parsed, not run.
# ruff: noqa: N806, RET504, C901

from __future__ import annotations

import tilelet.language as pl
from tilelet.ir.core import Program

TILE = 128
GROUPS = 500


def build_matmul_add() -> Program:
    """500 cube tasks of four FP32 128^3 products, 500 vector tasks of four sums; independent."""
    ROWS = GROUPS * 4 * TILE

    @pl.program
    class MatmulAdd:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[ROWS, TILE], pl.FP32],
            b: pl.Tensor[[ROWS, TILE], pl.FP32],
            c: pl.Out[pl.Tensor[[ROWS, TILE], pl.FP32]],
            x: pl.Tensor[[ROWS, TILE], pl.FP32],
            y: pl.Tensor[[ROWS, TILE], pl.FP32],
            z: pl.Out[pl.Tensor[[ROWS, TILE], pl.FP32]],
        ):
            for g in pl.parallel(GROUPS):
                with pl.incore():
                    for i in pl.range(4):
                        row = (g * 4 + i) * TILE
                        product = pl.matmul(
                            pl.slice(a, [TILE, TILE], [row, 0]), pl.slice(b, [TILE, TILE], [row, 0])
                        )
                        c = pl.assemble(c, product, [row, 0])
                with pl.incore():
                    for i in pl.range(4):
                        row = (g * 4 + i) * TILE
                        total = pl.add(
                            pl.slice(x, [TILE, TILE], [row, 0]), pl.slice(y, [TILE, TILE], [row, 0])
                        )
                        z = pl.assemble(z, total, [row, 0])
            return c, z

    return MatmulAdd


def build_bgemm() -> Program:
    """250 groups x 2 steps of K: four products into scratch, then added into C."""
    BATCH = 250
    K_STEPS = 2
    ROWS = BATCH * 4 * TILE
    DEEP = ROWS * K_STEPS

    @pl.program
    class BatchedGemm:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[DEEP, TILE], pl.FP32],
            b: pl.Tensor[[DEEP, TILE], pl.FP32],
            c: pl.InOut[pl.Tensor[[ROWS, TILE], pl.FP32]],
        ):
            for g in pl.parallel(BATCH):
                window = pl.slice(c, [4 * TILE, TILE], [g * 4 * TILE, 0])
                for k in pl.range(K_STEPS):
                    products = pl.create_tensor([4 * TILE, TILE], dtype=pl.FP32)
                    with pl.incore():
                        for i in pl.range(4):
                            row = ((g * K_STEPS + k) * 4 + i) * TILE
                            product = pl.matmul(
                                pl.slice(a, [TILE, TILE], [row, 0]),
                                pl.slice(b, [TILE, TILE], [row, 0]),
                            )
                            products = pl.assemble(products, product, [i * TILE, 0])
                    with pl.incore():
                        for i in pl.range(4):
                            total = pl.add(
                                pl.slice(window, [TILE, TILE], [i * TILE, 0]),
                                pl.slice(products, [TILE, TILE], [i * TILE, 0]),
                            )
                            window = pl.assemble(window, total, [i * TILE, 0])
            return c

    return BatchedGemm


def build_one_matmul(m: int, k: int, n: int) -> Program:
    """One kernel: load, multiply FP16, store FP32."""
    M, K, N = m, k, n

    @pl.program
    class OneMatmul:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[M, K], pl.FP16],
            b: pl.Tensor[[K, N], pl.FP16],
            c: pl.Out[pl.Tensor[[M, N], pl.FP32]],
        ):
            with pl.incore():
                c = pl.assemble(c, pl.matmul(a, b, out_dtype=pl.FP32), [0, 0])
            return c

    return OneMatmul


def build_gemm(size: int, cores: int = 24) -> Program:
    """A tuned FP16 GEMM as one launch: 128 x 256 tiles (FP32), K in steps of 256, two stages."""
    SIZE, CORES = size, cores
    TM, TN, TK = 128, 256, 256
    COLUMNS = SIZE // TN
    TILES = (SIZE // TM) * COLUMNS
    PER_CORE = -(-TILES // CORES)

    @pl.program
    class Gemm:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[SIZE, SIZE], pl.FP16],
            b: pl.Tensor[[SIZE, SIZE], pl.FP16],
            c: pl.Out[pl.Tensor[[SIZE, SIZE], pl.FP32]],
        ):
            for block in pl.spmd(CORES):
                for t in pl.range(PER_CORE):
                    tile = block * PER_CORE + t
                    row = tile // COLUMNS * TM
                    column = tile % COLUMNS * TN
                    acc = pl.matmul(
                        pl.slice(a, [TM, TK], [row, 0]),
                        pl.slice(b, [TK, TN], [0, column]),
                        out_dtype=pl.FP32,
                    )
                    for kb in pl.pipeline(1, SIZE // TK, stage=2):
                        acc = pl.matmul_acc(
                            acc,
                            pl.slice(a, [TM, TK], [row, kb * TK]),
                            pl.slice(b, [TK, TN], [kb * TK, column]),
                        )
                    c = pl.assemble(c, acc, [row, column])
            return c

    return Gemm


def build_stream_loop(iterations: int, pipelined: bool) -> Program:
    """A loop of products that moves 16 KB in and 32 KB out: INT8 tiles times a resident tile."""
    N, ROWS, COLUMNS, OUT = iterations, 128, 128, 64
    if pipelined:

        @pl.program
        class PipelinedLoop:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(
                self,
                x: pl.Tensor[[N * ROWS, COLUMNS], pl.INT8],
                w: pl.Tensor[[COLUMNS, OUT], pl.INT8],
                y: pl.Out[pl.Tensor[[N * ROWS, OUT], pl.INT32]],
            ):
                with pl.incore():
                    stays = pl.slice(w, [COLUMNS, OUT], [0, 0])
                    for i in pl.pipeline(N, stage=2):
                        tile = pl.slice(x, [ROWS, COLUMNS], [i * ROWS, 0])
                        product = pl.matmul(tile, stays, out_dtype=pl.INT32)
                        y = pl.assemble(y, product, [i * ROWS, 0])
                return y

        return PipelinedLoop

    @pl.program
    class PlainLoop:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[N * ROWS, COLUMNS], pl.INT8],
            w: pl.Tensor[[COLUMNS, OUT], pl.INT8],
            y: pl.Out[pl.Tensor[[N * ROWS, OUT], pl.INT32]],
        ):
            with pl.incore():
                stays = pl.slice(w, [COLUMNS, OUT], [0, 0])
                for i in pl.range(N):
                    tile = pl.slice(x, [ROWS, COLUMNS], [i * ROWS, 0])
                    product = pl.matmul(tile, stays, out_dtype=pl.INT32)
                    y = pl.assemble(y, product, [i * ROWS, 0])
            return y

    return PlainLoop


def build_row_width(columns: int) -> Program:
    """A vector kernel that stores 16 KB tiles in rows of `columns` FP32 numbers."""
    COLUMNS, ROWS, TILES = columns, 4096 // columns, 8
    WIDTH = COLUMNS * TILES

    @pl.program
    class RowWidth:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[ROWS, WIDTH], pl.FP32],
            y: pl.Out[pl.Tensor[[ROWS, WIDTH], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.range(TILES):
                    tile = pl.slice(x, [ROWS, COLUMNS], [0, i * COLUMNS])
                    y = pl.assemble(y, pl.exp(tile), [0, i * COLUMNS])
            return y

    return RowWidth


def build_decode_14b() -> Program:
    """The traffic of a Qwen3-14B decode layer: all weights once, the K and V caches once.

    Weights in tiles of 512 x 256 (rows of 512 bytes) with two stages; narrow matrices are also
    split along K, so that all cores work. Attention is its two products, one task per sequence and
    K/V head.
    """
    BATCH, HIDDEN, KV, INTER, HEAD, SEQ = 16, 5120, 1024, 17408, 128, 4096
    TK, TN, SEQ_TILE = 512, 256, 256

    @pl.inline
    def partial(x, w, first, steps, column):
        acc = pl.matmul(
            pl.slice(x, [BATCH, TK], [0, first]),
            pl.slice(w, [TK, TN], [first, column]),
            out_dtype=pl.FP32,
        )
        for kb in pl.pipeline(1, steps, stage=2):
            k = first + kb * TK
            acc = pl.matmul_acc(
                acc, pl.slice(x, [BATCH, TK], [0, k]), pl.slice(w, [TK, TN], [k, column])
            )
        return acc

    @pl.inline
    def narrowed(wide, narrow, rows, width):
        """Round to BF16, 1024 columns per task: the vector work between two products."""
        for j in pl.parallel(width // 1024):
            with pl.incore():
                part = pl.slice(wide, [rows, 1024], [0, j * 1024])
                narrow = pl.assemble(narrow, pl.cast(part, pl.BF16), [0, j * 1024])
        return narrow

    @pl.program
    class Decode14B:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            wq: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            wkv: pl.Tensor[[HIDDEN, 2 * KV], pl.BF16],
            wo: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            w_gate: pl.Tensor[[HIDDEN, INTER], pl.BF16],
            w_up: pl.Tensor[[HIDDEN, INTER], pl.BF16],
            w_down: pl.Tensor[[INTER, HIDDEN], pl.BF16],
            k_cache: pl.Tensor[[BATCH * 8 * SEQ, HEAD], pl.BF16],
            v_cache: pl.Tensor[[BATCH * 8 * SEQ, HEAD], pl.BF16],
            out: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.FP32]],
        ):
            q32 = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
            kv = pl.create_tensor([BATCH, 2 * KV], dtype=pl.FP32)
            for j in pl.parallel(HIDDEN // TN):
                with pl.incore():
                    q32 = pl.assemble(q32, partial(x, wq, 0, HIDDEN // TK, j * TN), [0, j * TN])
            for j in pl.parallel(2 * KV // TN):
                with pl.incore():
                    kv = pl.assemble(kv, partial(x, wkv, 0, HIDDEN // TK, j * TN), [0, j * TN])

            q = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
            q = narrowed(q32, q, BATCH, HIDDEN)
            q_rows = pl.reshape(q, [BATCH * 40, HEAD])

            heads = pl.create_tensor([BATCH * 8 * 16, HEAD], dtype=pl.FP32)
            for h in pl.parallel(BATCH * 8):
                with pl.incore():
                    query = pl.slice(q_rows, [16, HEAD], [h * 4, 0])
                    mixed = pl.matmul(
                        pl.matmul(
                            query,
                            pl.slice(k_cache, [SEQ_TILE, HEAD], [h * SEQ, 0]),
                            b_trans=True,
                        ),
                        pl.slice(v_cache, [SEQ_TILE, HEAD], [h * SEQ, 0]),
                        out_dtype=pl.FP32,
                    )
                    for s in pl.pipeline(1, SEQ // SEQ_TILE, stage=2):
                        scores = pl.matmul(
                            query,
                            pl.slice(k_cache, [SEQ_TILE, HEAD], [h * SEQ + s * SEQ_TILE, 0]),
                            b_trans=True,
                        )
                        mixed = pl.matmul_acc(
                            mixed,
                            scores,
                            pl.slice(v_cache, [SEQ_TILE, HEAD], [h * SEQ + s * SEQ_TILE, 0]),
                        )
                    heads = pl.assemble(heads, mixed, [h * 16, 0])

            attn = pl.create_tensor([BATCH, 8 * 16 * HEAD], dtype=pl.BF16)
            attn = narrowed(pl.reshape(heads, [BATCH, 8 * 16 * HEAD]), attn, BATCH, 8 * 16 * HEAD)
            attended32 = pl.create_tensor([BATCH * 2, HIDDEN], dtype=pl.FP32)
            for j in pl.parallel(HIDDEN // TN):
                for half in pl.parallel(2):
                    with pl.incore():
                        part = partial(attn, wo, half * (HIDDEN // 2), HIDDEN // 2 // TK, j * TN)
                        attended32 = pl.assemble(attended32, part, [half * BATCH, j * TN])

            attended = pl.create_tensor([BATCH * 2, HIDDEN], dtype=pl.BF16)
            attended = narrowed(attended32, attended, 2 * BATCH, HIDDEN)

            gate = pl.create_tensor([BATCH, INTER], dtype=pl.FP32)
            up = pl.create_tensor([BATCH, INTER], dtype=pl.FP32)
            for j in pl.parallel(INTER // TN):
                with pl.incore():
                    part = partial(attended, w_gate, 0, HIDDEN // TK, j * TN)
                    gate = pl.assemble(gate, part, [0, j * TN])
                with pl.incore():
                    part = partial(attended, w_up, 0, HIDDEN // TK, j * TN)
                    up = pl.assemble(up, part, [0, j * TN])

            mlp = pl.create_tensor([BATCH, INTER], dtype=pl.BF16)
            for j in pl.parallel(INTER // 1024):
                with pl.incore():
                    product = pl.mul(
                        pl.slice(gate, [BATCH, 1024], [0, j * 1024]),
                        pl.slice(up, [BATCH, 1024], [0, j * 1024]),
                    )
                    mlp = pl.assemble(mlp, pl.cast(product, pl.BF16), [0, j * 1024])

            parts = pl.create_tensor([BATCH * 2, HIDDEN], dtype=pl.FP32)
            for j in pl.parallel(HIDDEN // TN):
                for half in pl.parallel(2):
                    with pl.incore():
                        part = partial(mlp, w_down, half * (INTER // 2), INTER // 2 // TK, j * TN)
                        parts = pl.assemble(parts, part, [half * BATCH, j * TN])
            for j in pl.parallel(HIDDEN // 1024):
                with pl.incore():
                    total = pl.add(
                        pl.slice(parts, [BATCH, 1024], [0, j * 1024]),
                        pl.slice(parts, [BATCH, 1024], [BATCH, j * 1024]),
                    )
                    out = pl.assemble(out, total, [0, j * 1024])
            return out

    return Decode14B
