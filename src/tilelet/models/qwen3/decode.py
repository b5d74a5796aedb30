# pyright: basic
"""A whole Qwen3 decode layer as one program: scopes 1, 2 and 3.

Run it:   python -m tilelet.models.qwen3.decode --hidden 8192 --max-seq 512 -p a2a3sim

Versions:
  baseline   as first written, with the faults listed in a review of the public program, so that
             tools can be shown to find them: q/k/v projections and attention output zero-filled
             one block at a time although everything is overwritten; K and V in separate tasks;
             `add(acc, matmul(...))` instead of `matmul_acc`; projections written to global memory
             and read back; four tasks per block of context with round trips through global
             memory; half of the cube rows padding; gate and up each loading the same rows; a
             docstring with an outdated constant. `rmsnorm_fault=True` adds the wrong RMSNorm,
             which changes results.
  tuned_mlp, tuned_attention
             intermediate steps: the baseline with the tuned version of scope 3, and of scope 2 too.
  optimised  none of the faults: the tuned versions of all three scopes. 332 tasks
  fused_qk_rope
             the projecting tasks also rotate queries and keys and update the caches, so that
             attention starts from rotated queries and there are no tensors of plain
             projections. 449 tasks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelet.language as pl
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.attention import ONE_HEAD_TILE, make_cached_kv_head
from tilelet.models.qwen3.blocks import (
    make_products,
    make_projection,
    make_rmsnorm,
    make_rope_heads,
    make_zeros,
)
from tilelet.models.qwen3.layer import layer_program, layer_specs
from tilelet.models.qwen3.scope1 import make_exchanged, make_normalise
from tilelet.models.qwen3.scope2 import attention_output, make_padding_free, make_staged
from tilelet.models.qwen3.scope3 import (
    layer_output,
    make_attention_residual,
    make_mlp_block,
    make_tuned,
)
from tilelet.models.qwen3.script import ShippedModel, Variant, main
from tilelet.models.qwen3.shapes import LENGTH_CLASSES, DecodeShape
from tilelet.runtime import TensorSpec


def specs(s: DecodeShape) -> list[TensorSpec]:
    return layer_specs(inputs.hidden_states(s), s)


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def decode_layer(tensors: dict[str, Array]) -> None:
        x = reference.double(tensors["hidden_states"])
        normed = reference.bf16(reference.rmsnorm(x, tensors["input_rms_weight"], s.eps))
        q, k, v = (reference.matmul(normed, tensors[w]) for w in ("wq", "wk", "wv"))
        attended = reference.bf16(attention_output(q, k, v, tensors, s))
        tensors["out"][:] = layer_output(attended, tensors, s.eps)

    return decode_layer


def make_sequential_zero(rows: int, columns: int, blocks: int, dtype: DType):
    """Fault: zeros that nothing reads, one task per block, one block after the other."""
    zeros = make_zeros(rows, columns, dtype)

    @pl.inline
    def sequential_zero(tensor, first_row):
        for ob in pl.range(blocks):
            with pl.incore():
                tensor = pl.assemble(tensor, zeros(), [first_row, ob * columns])
        return tensor

    return sequential_zero


def make_adding_projection(rows: int, k_chunk: int, out_chunk: int, k_blocks: int):
    """Fault: a projection that adds each product to the accumulator on the vector unit."""

    @pl.inline
    def project(x, w, row, column):
        total = pl.full([rows, out_chunk], dtype=pl.FP32, value=0.0)
        for kb in pl.range(k_blocks):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            product = pl.matmul(
                x_chunk, pl.slice(w, [k_chunk, out_chunk], [k0, column]), out_dtype=pl.FP32
            )
            total = pl.add(total, product)
        return total

    return project


def make_zeroed_projections(s: DecodeShape, rmsnorm_fault: bool = False):
    """Scope 1: the input RMSNorm and the three projections of all rows."""
    BATCH, HIDDEN, BATCH_TILE, K_CHUNK = s.batch, s.hidden, s.batch_tile, s.k_chunk
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, K_CHUNK, s.eps, faulty=rmsnorm_fault)
    zero_q = make_sequential_zero(BATCH_TILE, Q_OUT_CHUNK, Q_BLOCKS, pl.FP32)
    zero_kv = make_sequential_zero(BATCH_TILE, KV_OUT_CHUNK, KV_BLOCKS, pl.FP32)
    project_q = make_adding_projection(BATCH_TILE, K_CHUNK, Q_OUT_CHUNK, s.hidden_blocks)
    project_kv = make_adding_projection(BATCH_TILE, K_CHUNK, KV_OUT_CHUNK, s.hidden_blocks)

    @pl.inline
    def projections(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj):
        """Queries, keys and values of all sequences, in tiles of BATCH_TILE=4 rows."""
        for b0 in pl.range(0, BATCH, BATCH_TILE):
            q_proj = zero_q(q_proj, b0)
            k_proj = zero_kv(k_proj, b0)
            v_proj = zero_kv(v_proj, b0)

            normed_tile = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
            with pl.incore():
                normed_tile = rmsnorm(hidden_states, input_rms_weight, normed_tile, b0)
            for ob in pl.range(Q_BLOCKS):
                q0 = ob * Q_OUT_CHUNK
                with pl.incore():
                    q_proj = pl.assemble(q_proj, project_q(normed_tile, wq, 0, q0), [b0, q0])
            for ob in pl.range(KV_BLOCKS):
                kv0 = ob * KV_OUT_CHUNK
                with pl.incore():
                    k_proj = pl.assemble(k_proj, project_kv(normed_tile, wk, 0, kv0), [b0, kv0])
                with pl.incore():
                    v_proj = pl.assemble(v_proj, project_kv(normed_tile, wv, 0, kv0), [b0, kv0])
        return q_proj

    return projections


def make_zeroed_attention(s: DecodeShape):
    """Scope 2 as first written, with zeros first for an output that is written in full."""
    BATCH, BATCH_TILE = s.batch, s.batch_tile
    zero_out = make_sequential_zero(BATCH_TILE, s.q_out_chunk, s.q_blocks, pl.BF16)
    staged = make_staged(s)

    @pl.inline
    def attend(q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out):
        for b0 in pl.range(0, BATCH, BATCH_TILE):
            attn_out = zero_out(attn_out, b0)
        return staged(
            q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out
        )

    return attend


def make_feed_forward(s: DecodeShape, rmsnorm_fault: bool):
    """Scope 3 of one tile of rows; the down projection adds into global memory, in chunks of 4."""
    HIDDEN, BATCH_TILE, K_CHUNK, MLP_OUT_CHUNK = s.hidden, s.batch_tile, s.k_chunk, s.mlp_out_chunk
    HIDDEN_BLOCKS, MLP_BLOCKS = s.hidden_blocks, s.mlp_blocks
    attention_residual = make_attention_residual(s)
    rmsnorm = make_rmsnorm(
        BATCH_TILE, HIDDEN, K_CHUNK, s.eps, x_dtype=pl.FP32, faulty=rmsnorm_fault
    )
    zero_down = make_sequential_zero(BATCH_TILE, K_CHUNK, HIDDEN_BLOCKS, pl.FP32)
    activate = make_mlp_block(s)

    @pl.inline
    def feed_forward(attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0):
        resid1 = attention_residual(attn_out, hidden_states, wo, b0)
        post_norm = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        with pl.incore():
            post_norm = rmsnorm(resid1, post_rms_weight, post_norm, 0)
        down_acc = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        down_acc = zero_down(down_acc, 0)

        for ob in pl.range(MLP_BLOCKS):
            m0 = ob * MLP_OUT_CHUNK
            mlp_chunk = activate(post_norm, w_gate, w_up, m0)
            with pl.auto_incore():
                for db in pl.parallel(0, HIDDEN_BLOCKS, chunk=4):
                    d0 = db * K_CHUNK
                    so_far = pl.slice(down_acc, [BATCH_TILE, K_CHUNK], [0, d0])
                    w_down_chunk = pl.slice(w_down, [MLP_OUT_CHUNK, K_CHUNK], [m0, d0])
                    down_part = pl.matmul(mlp_chunk, w_down_chunk, out_dtype=pl.FP32)
                    down_acc = pl.assemble(down_acc, pl.add(so_far, down_part), [0, d0])

        with pl.auto_incore():
            for ob in pl.parallel(0, HIDDEN_BLOCKS, chunk=4):
                o0 = ob * K_CHUNK
                down = pl.slice(down_acc, [BATCH_TILE, K_CHUNK], [0, o0])
                residual = pl.slice(resid1, [BATCH_TILE, K_CHUNK], [0, o0])
                rounded = pl.cast(pl.add(down, residual), target_type=pl.BF16)
                out = pl.assemble(out, rounded, [b0, o0])
        return out

    return feed_forward


def make_layer(s: DecodeShape, project_all: Any, attend: Any, feed_forward: Any):
    """The three scopes in sequence, connected by tensors.

    If every task of a scope works on its own windows, independent tasks overlap also
    across scopes: attention of some heads starts when their projections are available.
    """
    BATCH, HIDDEN, KV_WIDTH, BATCH_TILE = s.batch, s.hidden, s.kv_width, s.batch_tile

    @pl.inline
    def layer(
        hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin, k_cache, v_cache,
        wo, post_rms_weight, w_gate, w_up, w_down, out,
    ):  # fmt: skip
        q_proj = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
        k_proj = pl.create_tensor([BATCH, KV_WIDTH], dtype=pl.FP32)
        v_proj = pl.create_tensor([BATCH, KV_WIDTH], dtype=pl.FP32)
        attn_out = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        q_proj = project_all(hidden_states, input_rms_weight, wq, wk, wv, q_proj, k_proj, v_proj)
        attn_out = attend(
            q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out
        )
        for b0 in pl.range(0, BATCH, BATCH_TILE):
            out = feed_forward(
                attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0
            )
        return out

    return layer


def make_baseline(s: DecodeShape, *, rmsnorm_fault: bool = False):
    return make_layer(
        s,
        make_zeroed_projections(s, rmsnorm_fault),
        make_zeroed_attention(s),
        make_feed_forward(s, rmsnorm_fault),
    )


def make_tuned_mlp(s: DecodeShape):
    return make_layer(s, make_zeroed_projections(s), make_zeroed_attention(s), make_tuned(s))


def make_tuned_attention(s: DecodeShape):
    return make_layer(s, make_zeroed_projections(s), make_padding_free(s), make_tuned(s))


def make_optimised(s: DecodeShape):
    return make_layer(s, make_exchanged(s), make_padding_free(s), make_tuned(s))


def make_fused_qk_rope(s: DecodeShape):
    BATCH, HIDDEN, HEADS, KV_HEADS = s.batch, s.hidden, s.heads, s.kv_heads
    HEAD_DIM, MAX_SEQ, GROUP = s.head_dim, s.max_seq, s.q_per_kv
    BATCH_TILE, LENGTH_CLASS = s.batch_tile, s.length_class
    project_and_rotate = make_rotated_projections(s)
    attend = make_cached_kv_head(s)
    feed_forward = make_tuned(s)

    @pl.inline
    def attend_sequence(q_heads, k_cache, v_cache, out_heads, b, ctx_len):
        for ki in pl.parallel(KV_HEADS):
            head = b * KV_HEADS + ki
            q_rows = pl.slice(q_heads, [GROUP, HEAD_DIM], [head * GROUP, 0])
            k_rows = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
            v_rows = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
                context = attend(q_rows, k_rows, v_rows, ctx_len)
            out_heads = pl.assemble(out_heads, context, [head * GROUP, 0])
        return out_heads

    @pl.inline
    def fused_qk_rope(
        hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin, k_cache, v_cache,
        wo, post_rms_weight, w_gate, w_up, w_down, out,
    ):  # fmt: skip
        q_rotated = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        for b0 in pl.parallel(0, BATCH, BATCH_TILE):
            q_rotated = project_and_rotate(
                hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin,
                k_cache, v_cache, q_rotated, b0,
            )  # fmt: skip

        q_heads = pl.reshape(q_rotated, [BATCH * HEADS, HEAD_DIM])
        attn_out = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        out_heads = pl.reshape(attn_out, [BATCH * HEADS, HEAD_DIM])
        for shorter in pl.parallel(LENGTH_CLASSES):
            for b in pl.parallel(BATCH):
                ctx_len = pl.read(seq_lens, [b])
                if (ctx_len - 1) // LENGTH_CLASS == LENGTH_CLASSES - 1 - shorter:
                    out_heads = attend_sequence(q_heads, k_cache, v_cache, out_heads, b, ctx_len)

        for b0 in pl.range(0, BATCH, BATCH_TILE):
            out = feed_forward(
                attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0
            )
        return out

    return fused_qk_rope


def make_rotated_projections(s: DecodeShape):
    """Projections of a tile of rows that produce rotated queries and update the caches.

    A task computes one query head, or the key and value of one K/V head, for all rows of the tile:
    it stores a block of queries at once, and a row of each cache per sequence.
    """
    BATCH, HEADS, KV_HEADS, HEAD_DIM = s.batch, s.heads, s.kv_heads, s.head_dim
    MAX_SEQ, BATCH_TILE, KV_OUT_CHUNK = s.max_seq, s.batch_tile, s.kv_out_chunk
    K_CHUNK, K_BLOCKS = s.rope_k_chunk, s.count("hidden", "rope_k_chunk")
    normalise = make_normalise(s, s.part("batch_tile", "norm_rows"), s.part("hidden", "norm_chunk"))
    project_q = make_projection(BATCH_TILE, K_CHUNK, HEAD_DIM, K_BLOCKS)
    first_kv, next_kv = make_products(K_CHUNK, HEAD_DIM)
    rotate_heads = make_rope_heads(BATCH_TILE, HEAD_DIM // 2, BATCH_TILE)
    gather_rows = make_table_rows(s)

    @pl.inline
    def project_and_rotate(
        hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin, k_cache, v_cache,
        q_rotated, b0,
    ):  # fmt: skip
        pl.static_assert(KV_OUT_CHUNK == HEAD_DIM, "a K/V block must be one head")
        sin = pl.create_tensor([BATCH_TILE, HEAD_DIM], dtype=pl.FP32)
        cos = gather_rows(seq_lens, rope_cos, rope_sin, sin, b0)
        normed = normalise(hidden_states, input_rms_weight, b0)
        k_heads = pl.reshape(k_cache, [BATCH, KV_HEADS, MAX_SEQ, HEAD_DIM])
        v_heads = pl.reshape(v_cache, [BATCH, KV_HEADS, MAX_SEQ, HEAD_DIM])
        for ki in pl.parallel(KV_HEADS):
            k_cached = pl.slice(k_heads, [BATCH_TILE, 1, MAX_SEQ, HEAD_DIM], [b0, ki, 0, 0])
            v_cached = pl.slice(v_heads, [BATCH_TILE, 1, MAX_SEQ, HEAD_DIM], [b0, ki, 0, 0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_projection_rope"):
                kv0 = ki * KV_OUT_CHUNK
                x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0])
                k_acc = first_kv(x_chunk, wk, kv0)
                v_acc = first_kv(x_chunk, wv, kv0)
                for kb in pl.pipeline(1, K_BLOCKS, stage=2):
                    k0 = kb * K_CHUNK
                    x_chunk = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, k0])
                    k_acc = next_kv(k_acc, x_chunk, wk, k0, kv0)
                    v_acc = next_kv(v_acc, x_chunk, wv, k0, kv0)
                k_new = pl.cast(rotate_heads(k_acc, cos, sin), target_type=pl.BF16)
                v_new = pl.cast(v_acc, target_type=pl.BF16)
                for b in pl.range(BATCH_TILE):
                    pos = pl.read(seq_lens, [b0 + b]) - 1
                    k_row = pl.slice(k_new, [1, HEAD_DIM], [b, 0])
                    k_cached = pl.assemble(k_cached, k_row, [b, 0, pos, 0])
                    v_row = pl.slice(v_new, [1, HEAD_DIM], [b, 0])
                    v_cached = pl.assemble(v_cached, v_row, [b, 0, pos, 0])
        for h in pl.parallel(HEADS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_projection_rope"):
                q_acc = project_q(normed, wq, 0, h * HEAD_DIM)
                q_new = pl.cast(rotate_heads(q_acc, cos, sin), target_type=pl.BF16)
            q_rotated = pl.assemble(q_rotated, q_new, [b0, h * HEAD_DIM])
        return q_rotated

    return project_and_rotate


def make_table_rows(s: DecodeShape):
    """The rows of the rope tables at the position of each sequence of a tile, in one task.

    Returns those of the cosines; those of the sines go into `sin`.
    """
    BATCH_TILE, HEAD_DIM = s.batch_tile, s.head_dim

    @pl.inline
    def gather_rows(seq_lens, rope_cos, rope_sin, sin, b0):
        cos = pl.create_tensor([BATCH_TILE, HEAD_DIM], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rope_rows"):
            for b in pl.range(BATCH_TILE):
                pos = pl.read(seq_lens, [b0 + b]) - 1
                cos = pl.assemble(cos, pl.slice(rope_cos, [1, HEAD_DIM], [pos, 0]), [b, 0])
                sin = pl.assemble(sin, pl.slice(rope_sin, [1, HEAD_DIM], [pos, 0]), [b, 0])
        return cos

    return gather_rows


def program(s: DecodeShape, layer: object):
    return layer_program("Qwen3Decode", [s.batch, s.hidden], s, layer)


MODEL = ShippedModel(
    name="decode",
    about="a whole decode layer: one new token of every sequence",
    variants={
        "baseline": Variant(
            "as first written, with twelve faults for the tools to find", make_baseline
        ),
        "tuned_mlp": Variant("the baseline with tuned scope 3", make_tuned_mlp),
        "tuned_attention": Variant("the same with tuned scope 2", make_tuned_attention),
        "optimised": Variant("the tuned scopes, overlapping", make_optimised),
        "fused_qk_rope": Variant(
            "RoPE and cache update in the projecting tasks",
            make_fused_qk_rope,
            {"kv_out_chunk": 128, "walk_tile": ONE_HEAD_TILE},
        ),
    },
    program=program,
    specs=specs,
    golden=golden,
    tolerance=3e-3,
    switches={"rmsnorm_fault": "the wrong RMSNorm of a public program; results change"},
)
build_decode = MODEL.build


if __name__ == "__main__":
    raise SystemExit(main(MODEL))
