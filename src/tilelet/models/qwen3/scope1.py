# pyright: basic
"""Scope 1 of a Qwen3 decode layer: input RMSNorm, then the Q, K and V projections.

Run it:   python -m tilelet.models.qwen3.scope1 --variant chunked -p a2a3sim

Versions, with their tasks at hidden 8192:
  per_block   one task per output block, K and V separate: the program as first written.
              1 + 128 + 32 = 161
  chunked     four blocks per task, K and V of a block together, longer chunks of K.
              1 + 32 + 4 = 37
  split_accumulation
              the cube multiplies each chunk of K into a buffer of partial products, and the vector
              unit adds them up. This moves 64 times the result through global memory and back, with
              no benefit: on the modelled a2a3 it is slower than per_block at every tiling tried,
              by 14 % as written here, by 4 % with chunks of K of 512.
              1 + 256 + 32 = 289
Alternatives to it, which keep the accumulator on chip:
  wide        blocks of 256 columns, so that rows of the weights are 512 bytes long; loads overlap
              with products; K and V share their loads; no task waits for another.
              2 + 32 + 4 = 38
  exchanged   the loop over K outside, over two blocks of columns inside: a chunk of the rows is
              loaded once for 512 columns, and all tasks take the same time.
              2 + 16 + 4 = 22
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelet.language as pl
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.blocks import make_products, make_projection, make_rmsnorm
from tilelet.models.qwen3.script import ShippedModel, Variant, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec

STAGES = 2


def specs(s: DecodeShape) -> list[TensorSpec]:
    widths = (("q", s.hidden), ("k", s.kv_width), ("v", s.kv_width))
    return [
        inputs.hidden_states(s),
        inputs.norm_weight("input_rms_weight", s),
        *(inputs.weight(f"w{n}", s.hidden, width, 1.0) for n, width in widths),
        TensorSpec("q_proj", (s.batch, s.hidden), pl.FP32, is_output=True),
        TensorSpec("k_proj", (s.batch, s.kv_width), pl.FP32, is_output=True),
        TensorSpec("v_proj", (s.batch, s.kv_width), pl.FP32, is_output=True),
    ]


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def scope1(tensors: dict[str, Array]) -> None:
        x = reference.double(tensors["hidden_states"])
        normed = reference.bf16(reference.rmsnorm(x, tensors["input_rms_weight"], s.eps))
        for name in ("q", "k", "v"):
            tensors[f"{name}_proj"][:] = reference.matmul(normed, tensors[f"w{name}"])

    return scope1


def make_row_tiles(s: DecodeShape, project_rows: Any):
    """RMSNorm of a tile of rows in one task, then `project_rows`, tile by tile."""
    BATCH, HIDDEN, BATCH_TILE = s.batch, s.hidden, s.batch_tile
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, s.k_chunk, s.eps)

    @pl.inline
    def row_tiles(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj):
        for b0 in pl.range(0, BATCH, BATCH_TILE):
            normed = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
            with pl.incore():
                normed = rmsnorm(hidden_states, input_rms_weight, normed, b0)
            q_proj = project_rows(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0)
        return q_proj

    return row_tiles


def make_block_projections(s: DecodeShape):
    """A block of the Q projection, and one of the K or V projection."""
    return (
        make_projection(s.batch_tile, s.k_chunk, width, s.hidden_blocks)
        for width in (s.q_out_chunk, s.kv_out_chunk)
    )


def make_per_block(s: DecodeShape):
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    project_q, project_kv = make_block_projections(s)

    @pl.inline
    def project_rows(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0):
        for ob in pl.range(Q_BLOCKS):
            q0 = ob * Q_OUT_CHUNK
            with pl.incore():
                q_acc = project_q(normed, wq, 0, q0)
            q_proj = pl.assemble(q_proj, q_acc, [b0, q0])
        for ob in pl.range(KV_BLOCKS):
            kv0 = ob * KV_OUT_CHUNK
            with pl.incore():
                k_acc = project_kv(normed, wk, 0, kv0)
            k_proj = pl.assemble(k_proj, k_acc, [b0, kv0])
            with pl.incore():
                v_acc = project_kv(normed, wv, 0, kv0)
            v_proj = pl.assemble(v_proj, v_acc, [b0, kv0])
        return q_proj

    return make_row_tiles(s, project_rows)


def make_chunked(s: DecodeShape):
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    project_q, project_kv = make_block_projections(s)

    @pl.inline
    def project_rows(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0):
        with pl.auto_incore():
            for ob in pl.parallel(0, Q_BLOCKS, chunk=4):
                q0 = ob * Q_OUT_CHUNK
                q_proj = pl.assemble(q_proj, project_q(normed, wq, 0, q0), [b0, q0])
        with pl.auto_incore():
            for ob in pl.parallel(0, KV_BLOCKS, chunk=4):
                kv0 = ob * KV_OUT_CHUNK
                k_proj = pl.assemble(k_proj, project_kv(normed, wk, 0, kv0), [b0, kv0])
                v_proj = pl.assemble(v_proj, project_kv(normed, wv, 0, kv0), [b0, kv0])
        return q_proj

    return make_row_tiles(s, project_rows)


def make_split_accumulation(s: DecodeShape):
    BATCH, HIDDEN, KV_WIDTH, BATCH_TILE = s.batch, s.hidden, s.kv_width, s.batch_tile
    K_CHUNK, HIDDEN_BLOCKS = s.k_chunk, s.hidden_blocks
    Q_OUT_CHUNK, KV_OUT_CHUNK = s.q_out_chunk, s.kv_out_chunk
    # Partial products of a tile of rows, one below the other.
    PART_ROWS = HIDDEN_BLOCKS * BATCH_TILE
    ALL_PART_ROWS = BATCH // BATCH_TILE * PART_ROWS
    multiply_q, multiply_kv, sum_q, sum_kv = (
        make(BATCH_TILE, K_CHUNK, width, HIDDEN_BLOCKS)
        for make in (make_partial_products, make_partial_sum)
        for width in (Q_OUT_CHUNK, KV_OUT_CHUNK)
    )
    normalise = make_normalise(s, BATCH_TILE, K_CHUNK)

    @pl.inline
    def split_accumulation(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj):
        q_partial = pl.create_tensor([ALL_PART_ROWS, HIDDEN], dtype=pl.FP32)
        k_partial = pl.create_tensor([ALL_PART_ROWS, KV_WIDTH], dtype=pl.FP32)
        v_partial = pl.create_tensor([ALL_PART_ROWS, KV_WIDTH], dtype=pl.FP32)
        for b0 in pl.range(0, BATCH, BATCH_TILE):
            part0 = b0 * HIDDEN_BLOCKS
            normed = normalise(hidden_states, input_rms_weight, b0)
            for q0 in pl.parallel(0, HIDDEN, Q_OUT_CHUNK):
                q_part = pl.slice(q_partial, [PART_ROWS, Q_OUT_CHUNK], [part0, q0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_partial_products"):
                    q_part = multiply_q(normed, wq, q_part, q0)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_reduce"):
                    q_sum = sum_q(q_part)
                q_proj = pl.assemble(q_proj, q_sum, [b0, q0])
            for kv0 in pl.parallel(0, KV_WIDTH, KV_OUT_CHUNK):
                k_part = pl.slice(k_partial, [PART_ROWS, KV_OUT_CHUNK], [part0, kv0])
                v_part = pl.slice(v_partial, [PART_ROWS, KV_OUT_CHUNK], [part0, kv0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_partial_products"):
                    k_part = multiply_kv(normed, wk, k_part, kv0)
                    v_part = multiply_kv(normed, wv, v_part, kv0)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_reduce"):
                    k_sum = sum_kv(k_part)
                    v_sum = sum_kv(v_part)
                k_proj = pl.assemble(k_proj, k_sum, [b0, kv0])
                v_proj = pl.assemble(v_proj, v_sum, [b0, kv0])
        return q_proj

    return split_accumulation


def make_partial_products(rows: int, k_chunk: int, out_chunk: int, k_blocks: int):
    """The product of each chunk of K separately, into `parts`, on the cube."""

    @pl.inline
    def multiply(x, w, parts, column):
        for kb in pl.range(k_blocks):
            x_chunk = pl.slice(x, [rows, k_chunk], [0, kb * k_chunk])
            w_chunk = pl.slice(w, [k_chunk, out_chunk], [kb * k_chunk, column])
            product = pl.matmul(x_chunk, w_chunk, out_dtype=pl.FP32)
            parts = pl.assemble(parts, product, [kb * rows, 0])
        return parts

    return multiply


def make_partial_sum(rows: int, k_chunk: int, out_chunk: int, k_blocks: int):
    """The sum of all partial products, on the vector unit."""

    @pl.inline
    def add_up(parts):
        total = pl.full([rows, out_chunk], dtype=pl.FP32, value=0.0)
        for kb in pl.range(k_blocks):
            total = pl.add(total, pl.slice(parts, [rows, out_chunk], [kb * rows, 0]))
        return total

    return add_up


def make_normalise(s: DecodeShape, rows: int, columns: int):
    """The input RMSNorm of one tile of rows, `rows` of them per task."""
    HIDDEN, BATCH_TILE = s.hidden, s.batch_tile
    rmsnorm = make_rmsnorm(rows, HIDDEN, columns, s.eps)

    @pl.inline
    def normalise(hidden_states, input_rms_weight, b0):
        normed = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        for r0 in pl.parallel(0, BATCH_TILE, rows):
            part = pl.create_tensor([rows, HIDDEN], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="input_rmsnorm"):
                part = rmsnorm(hidden_states, input_rms_weight, part, b0 + r0)
            normed = pl.assemble(normed, part, [r0, 0])
        return normed

    return normalise


def make_wide_kv(s: DecodeShape):
    """The K and V projections of a tile of rows; a task computes a block of both."""
    KV_WIDTH, KV_CHUNK = s.kv_width, s.part("kv_width", "wide_chunk")
    BATCH_TILE, K_CHUNK, K_BLOCKS = s.batch_tile, s.k_chunk, s.hidden_blocks
    first_kv, next_kv = make_products(K_CHUNK, KV_CHUNK)

    @pl.inline
    def project_kv(normed, wk, wv, k_proj, v_proj, b0):
        for kv0 in pl.parallel(0, KV_WIDTH, KV_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_projection"):
                x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0])
                k_acc = first_kv(x_chunk, wk, kv0)
                v_acc = first_kv(x_chunk, wv, kv0)
                for kb in pl.pipeline(1, K_BLOCKS, stage=STAGES):
                    k0 = kb * K_CHUNK
                    x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, k0])
                    k_acc = next_kv(k_acc, x_chunk, wk, k0, kv0)
                    v_acc = next_kv(v_acc, x_chunk, wv, k0, kv0)
            k_proj = pl.assemble(k_proj, k_acc, [b0, kv0])
            v_proj = pl.assemble(v_proj, v_acc, [b0, kv0])
        return k_proj

    return project_kv


def make_wide(s: DecodeShape):
    BATCH, HIDDEN, BATCH_TILE = s.batch, s.hidden, s.batch_tile
    Q_CHUNK = s.part("hidden", "wide_chunk")
    normalise = make_normalise(s, s.part("batch_tile", "norm_rows"), s.part("hidden", "norm_chunk"))
    project_q = make_projection(BATCH_TILE, s.k_chunk, Q_CHUNK, s.hidden_blocks, stage=STAGES)
    project_kv = make_wide_kv(s)

    @pl.inline
    def wide(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj):
        for b0 in pl.parallel(0, BATCH, BATCH_TILE):
            normed = normalise(hidden_states, input_rms_weight, b0)
            k_proj = project_kv(normed, wk, wv, k_proj, v_proj, b0)
            for q0 in pl.parallel(0, HIDDEN, Q_CHUNK):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_projection"):
                    q_acc = project_q(normed, wq, 0, q0)
                q_proj = pl.assemble(q_proj, q_acc, [b0, q0])
        return q_proj

    return wide


def make_exchanged(s: DecodeShape):
    BATCH, HIDDEN, BATCH_TILE = s.batch, s.hidden, s.batch_tile
    Q_CHUNK = s.part("hidden", "wide_chunk")
    normalise = make_normalise(s, s.part("batch_tile", "norm_rows"), s.part("hidden", "norm_chunk"))
    K_CHUNK, K_BLOCKS = s.k_chunk, s.hidden_blocks
    first_q, next_q = make_products(K_CHUNK, Q_CHUNK)
    project_kv = make_wide_kv(s)

    @pl.inline
    def exchanged(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj):
        for b0 in pl.parallel(0, BATCH, BATCH_TILE):
            normed = normalise(hidden_states, input_rms_weight, b0)
            k_proj = project_kv(normed, wk, wv, k_proj, v_proj, b0)
            for q0 in pl.parallel(0, HIDDEN, 2 * Q_CHUNK):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_projection"):
                    x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0])
                    left = first_q(x_chunk, wq, q0)
                    right = first_q(x_chunk, wq, q0 + Q_CHUNK)
                    for kb in pl.pipeline(1, K_BLOCKS, stage=STAGES):
                        k0 = kb * K_CHUNK
                        x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, k0])
                        left = next_q(left, x_chunk, wq, k0, q0)
                        right = next_q(right, x_chunk, wq, k0, q0 + Q_CHUNK)
                q_proj = pl.assemble(q_proj, left, [b0, q0])
                q_proj = pl.assemble(q_proj, right, [b0, q0 + Q_CHUNK])
        return q_proj

    return exchanged


def program(s: DecodeShape, project_all: Any):
    BATCH, HIDDEN, KV_WIDTH = s.batch, s.hidden, s.kv_width

    @pl.program
    class Qwen3Scope1:
        @pl.function(type=pl.FunctionType.Opaque)
        def scope1(
            self,
            hidden_states: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            input_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
            wq: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            wk: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            wv: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            q_proj: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.FP32]],
            k_proj: pl.Out[pl.Tensor[[BATCH, KV_WIDTH], pl.FP32]],
            v_proj: pl.Out[pl.Tensor[[BATCH, KV_WIDTH], pl.FP32]],
        ):
            q_proj = project_all(
                hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj
            )
            return q_proj, k_proj, v_proj

    return Qwen3Scope1


MODEL = ShippedModel(
    name="scope1",
    about="input RMSNorm and Q/K/V projections of a decode layer",
    variants={
        "per_block": Variant("one task per output block, K and V separate", make_per_block),
        "chunked": Variant(
            "four blocks per task, K and V together", make_chunked, {"k_chunk": 512}
        ),
        "split_accumulation": Variant(
            "cube products into global memory, added up by the vector unit", make_split_accumulation
        ),
        "wide": Variant(
            "accumulators on chip, rows of 512 bytes, loads overlapping products", make_wide
        ),
        "exchanged": Variant(
            "like wide, with the loop over K outside the one over columns", make_exchanged
        ),
    },
    program=program,
    specs=specs,
    golden=golden,
    tolerance=1e-3,
)
build_scope1 = MODEL.build


if __name__ == "__main__":
    raise SystemExit(main(MODEL))
