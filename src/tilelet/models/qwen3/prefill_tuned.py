"""The stages of the tuned Qwen3 prefill layer; `prefill.py` says what it is and how to run it.

A stage works on one span of one sequence: `[span, ...]` tensors of which the first `length` rows
are tokens. Its loops run over blocks of a weight and, inside, over tiles of tokens, so that a block
is read for all tiles of the span while the cache of the device still has it.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType
from tilelet.models.qwen3.attention import (
    make_absorb,
    make_nothing_absorbed,
    make_scaled_scores,
)
from tilelet.models.qwen3.blocks import (
    make_causal_bias,
    make_gated_silu,
    make_projection,
    make_rmsnorm,
    make_rope_heads,
    make_two_projections,
)
from tilelet.models.qwen3.shapes import PrefillShape

STAGES = 2


def make_tuned(s: PrefillShape):
    BATCH, HIDDEN, SPAN = s.batch, s.hidden, s.part("max_seq", "span")
    input_norm = make_norm("input_rmsnorm", pl.BF16, s)
    project_kv = make_kv_stage(s)
    project_q = make_q_stage(s)
    attend = make_attention_stage(s)
    project_out = make_out_stage(s)
    post_norm = make_norm("post_rmsnorm", pl.FP32, s)
    feed_forward = make_mlp_stage(s)

    @pl.inline
    def tuned(
        hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin, k_cache, v_cache,
        wo, post_rms_weight, w_gate, w_up, w_down, out,
    ):  # fmt: skip
        for b in pl.parallel(BATCH):
            seq_len = pl.read(seq_lens, [b])
            for p0 in pl.range(0, seq_len, SPAN):
                length = pl.min(SPAN, seq_len - p0)
                x = pl.reshape(
                    pl.slice(hidden_states, [1, SPAN, HIDDEN], [b, p0, 0]), [SPAN, HIDDEN]
                )
                y = pl.reshape(pl.slice(out, [1, SPAN, HIDDEN], [b, p0, 0]), [SPAN, HIDDEN])
                normed = input_norm(x, input_rms_weight, length)
                k_cache, v_cache = project_kv(
                    normed, wk, wv, rope_cos, rope_sin, k_cache, v_cache, b, p0, length
                )
                q = project_q(normed, wq, rope_cos, rope_sin, p0, length)
                attn = attend(q, k_cache, v_cache, b, p0, length)
                resid1 = project_out(attn, x, wo, length)
                post_normed = post_norm(resid1, post_rms_weight, length)
                y = feed_forward(post_normed, resid1, w_gate, w_up, w_down, y, length)
        return out

    return tuned


def make_norm(name: str, x_dtype: DType, s: PrefillShape):
    """RMSNorm of all tokens, rows of `x_dtype`, `norm_rows` per task."""
    HIDDEN, SPAN = s.hidden, s.span
    NORM_ROWS, NORM_CHUNK = s.part("span", "norm_rows"), s.part("hidden", "norm_chunk")
    rmsnorm = make_rmsnorm(NORM_ROWS, HIDDEN, NORM_CHUNK, s.eps, x_dtype=x_dtype)

    @pl.inline
    def norm(x, weight, length):
        normed = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        for r0 in pl.parallel(0, length, NORM_ROWS):
            known = pl.min(NORM_ROWS, length - r0)
            rows = pl.slice(x, [NORM_ROWS, HIDDEN], [r0, 0], valid_shape=[known, HIDDEN])
            part = pl.create_tensor([NORM_ROWS, HIDDEN], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint=name):
                part = rmsnorm(rows, weight, part, 0)
            normed = pl.assemble(normed, part, [r0, 0])
        return normed

    return norm


def make_kv_stage(s: PrefillShape):
    """Keys, rotated, and values of all tokens into the caches."""
    BATCH, HIDDEN, KV_WIDTH, KV_HEADS = s.batch, s.hidden, s.kv_width, s.kv_heads
    HEAD_DIM, MAX_SEQ, TOK = s.head_dim, s.max_seq, s.part("span", "tok_tile")
    KV_OUT_CHUNK, BLOCK_HEADS = s.kv_out_chunk, s.count("kv_out_chunk", "head_dim")
    project_two = make_two_projections(TOK, s.k_chunk, KV_OUT_CHUNK, s.hidden_blocks, STAGES)
    rotate_heads = make_rope_heads(TOK, HEAD_DIM // 2, TOK)

    @pl.inline
    def project_kv(normed, wk, wv, rope_cos, rope_sin, k_cache, v_cache, b, p0, length):
        k_heads = pl.reshape(k_cache, [BATCH * KV_HEADS, MAX_SEQ, HEAD_DIM])
        v_heads = pl.reshape(v_cache, [BATCH * KV_HEADS, MAX_SEQ, HEAD_DIM])
        for n0 in pl.parallel(0, KV_WIDTH, KV_OUT_CHUNK):
            head = b * KV_HEADS + n0 // HEAD_DIM
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                x = pl.slice(normed, [TOK, HIDDEN], [t0, 0], valid_shape=[known, HIDDEN])
                cos = pl.slice(rope_cos, [TOK, HEAD_DIM], [p0 + t0, 0])
                sin = pl.slice(rope_sin, [TOK, HEAD_DIM], [p0 + t0, 0])
                k_rows = pl.slice(k_heads, [BLOCK_HEADS, TOK, HEAD_DIM], [head, p0 + t0, 0])
                v_rows = pl.slice(v_heads, [BLOCK_HEADS, TOK, HEAD_DIM], [head, p0 + t0, 0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="kv_projection",
                ):
                    k_acc, v_acc = project_two(x, wk, wv, 0, n0, n0)
                    for h in pl.range(BLOCK_HEADS):
                        k_head = pl.slice(k_acc, [TOK, HEAD_DIM], [0, h * HEAD_DIM])
                        k_new = pl.cast(rotate_heads(k_head, cos, sin), target_type=pl.BF16)
                        k_rows = pl.assemble(k_rows, k_new, [h, 0, 0])
                        v_head = pl.slice(v_acc, [TOK, HEAD_DIM], [0, h * HEAD_DIM])
                        v_rows = pl.assemble(
                            v_rows, pl.cast(v_head, target_type=pl.BF16), [h, 0, 0]
                        )
        return k_cache, v_cache

    return project_kv


def make_q_stage(s: PrefillShape):
    """Rotated queries of all tokens."""
    HIDDEN, SPAN, HEAD_DIM, TOK = s.hidden, s.span, s.head_dim, s.part("span", "tok_tile")
    Q_OUT_CHUNK, BLOCK_HEADS = s.q_out_chunk, s.count("q_out_chunk", "head_dim")
    project = make_projection(TOK, s.k_chunk, Q_OUT_CHUNK, s.hidden_blocks, stage=STAGES)
    rotate_heads = make_rope_heads(TOK, HEAD_DIM // 2, TOK)

    @pl.inline
    def project_q(normed, wq, rope_cos, rope_sin, p0, length):
        q = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        for n0 in pl.parallel(0, HIDDEN, Q_OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                x = pl.slice(normed, [TOK, HIDDEN], [t0, 0], valid_shape=[known, HIDDEN])
                cos = pl.slice(rope_cos, [TOK, HEAD_DIM], [p0 + t0, 0])
                sin = pl.slice(rope_sin, [TOK, HEAD_DIM], [p0 + t0, 0])
                q_rows = pl.slice(q, [TOK, Q_OUT_CHUNK], [t0, n0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="q_projection",
                ):
                    acc = project(x, wq, 0, n0)
                    for h in pl.range(BLOCK_HEADS):
                        head = pl.slice(acc, [TOK, HEAD_DIM], [0, h * HEAD_DIM])
                        rotated = pl.cast(rotate_heads(head, cos, sin), target_type=pl.BF16)
                        q_rows = pl.assemble(q_rows, rotated, [0, h * HEAD_DIM])
        return q

    return project_q


def make_attention_stage(s: PrefillShape):
    """Causal attention of all tokens over the caches, which hold them already."""
    HIDDEN, SPAN, HEADS, HEAD_DIM = s.hidden, s.span, s.heads, s.head_dim
    KV_HEADS, GROUP, MAX_SEQ = s.kv_heads, s.q_per_kv, s.max_seq
    TILE = s.part("span", "attn_tile")
    attend_tile = make_causal_tile(s)

    @pl.inline
    def attend(q, k_cache, v_cache, b, p0, length):
        q_heads = pl.reshape(q, [SPAN, HEADS, HEAD_DIM])
        attn = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        attn_heads = pl.reshape(attn, [SPAN, HEADS, HEAD_DIM])
        for ki in pl.parallel(KV_HEADS):
            row0 = (b * KV_HEADS + ki) * MAX_SEQ
            k_rows = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [row0, 0])
            v_rows = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [row0, 0])
            for a0 in pl.parallel(0, length, TILE):
                known = pl.min(TILE, length - a0)
                q_rows = pl.slice(
                    q_heads, [TILE, GROUP, HEAD_DIM], [a0, ki * GROUP, 0],
                    valid_shape=[known, GROUP, HEAD_DIM],
                )  # fmt: skip
                out_rows = pl.slice(attn_heads, [TILE, GROUP, HEAD_DIM], [a0, ki * GROUP, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="causal_attention"):
                    context = attend_tile(q_rows, k_rows, v_rows, p0 + a0, known)
                    out_rows = pl.assemble(out_rows, context, [0, 0, 0])
        return attn

    return attend


def make_causal_tile(s: PrefillShape):
    """Attention of `tokens` tokens from `pos` on, a row per token and head; call it in a scope.

    Keys before the block that holds `pos` are seen by all rows. Tiles of tokens do not cross the
    border of a block, so that one block is left, and needs the mask.
    """
    TILE, GROUP, HEAD_DIM = s.part("walk_tile", "attn_tile"), s.q_per_kv, s.head_dim
    WALK_TILE, ROWS = s.part("max_seq", "walk_tile"), TILE * GROUP
    causal_bias = make_causal_bias(TILE, GROUP, WALK_TILE)
    scaled_scores = make_scaled_scores(WALK_TILE, HEAD_DIM)
    absorb = make_absorb(WALK_TILE, HEAD_DIM)
    nothing_absorbed = make_nothing_absorbed(ROWS, HEAD_DIM)

    @pl.inline
    def attend_tile(q_rows, k_rows, v_rows, pos, tokens):
        q_heads = pl.slice(q_rows, [TILE, GROUP, HEAD_DIM], [0, 0, 0])
        q = pl.reshape(q_heads, [ROWS, HEAD_DIM])
        mi, li, oi = nothing_absorbed()
        last = pos // WALK_TILE * WALK_TILE
        for s0 in pl.pipeline(0, last, WALK_TILE, stage=STAGES):
            scores = scaled_scores(q, k_rows, s0, WALK_TILE)
            mi, li, oi = absorb(scores, v_rows, s0, WALK_TILE, mi, li, oi)
        keys = pos - last + tokens
        masked = pl.add(scaled_scores(q, k_rows, last, keys), causal_bias(pos - last))
        mi, li, oi = absorb(masked, v_rows, last, keys, mi, li, oi)
        context = pl.cast(pl.row_expand_div(oi, li), target_type=pl.BF16)
        return pl.reshape(context, [TILE, GROUP, HEAD_DIM])

    return attend_tile


def make_out_stage(s: PrefillShape):
    """Output projection and residual of all tokens, FP32."""
    HIDDEN, SPAN, TOK, OUT_CHUNK = s.hidden, s.span, s.part("span", "tok_tile"), s.q_out_chunk
    project = make_projection(TOK, s.k_chunk, OUT_CHUNK, s.hidden_blocks, stage=STAGES)

    @pl.inline
    def project_out(attn, x, wo, length):
        resid1 = pl.create_tensor([SPAN, HIDDEN], dtype=pl.FP32)
        for n0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                rows = pl.slice(attn, [TOK, HIDDEN], [t0, 0], valid_shape=[known, HIDDEN])
                x_block = pl.slice(x, [TOK, OUT_CHUNK], [t0, n0], valid_shape=[known, OUT_CHUNK])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="out_projection",
                ):
                    acc = project(rows, wo, 0, n0)
                    summed = pl.add(acc, pl.cast(x_block, target_type=pl.FP32))
                resid1 = pl.assemble(resid1, summed, [t0, n0])
        return resid1

    return project_out


def make_mlp_stage(s: PrefillShape):
    """Gate, up and SiLU of all tokens, then the down projection and the residual."""
    HIDDEN, INTERMEDIATE, SPAN = s.hidden, s.intermediate, s.span
    TOK, MLP_OUT_CHUNK, OUT_CHUNK = s.part("span", "tok_tile"), s.mlp_out_chunk, s.q_out_chunk
    project_two = make_two_projections(TOK, s.k_chunk, MLP_OUT_CHUNK, s.hidden_blocks, STAGES)
    gated_silu = make_gated_silu()
    DOWN_BLOCKS = s.count("intermediate", "k_chunk")
    project_down = make_projection(TOK, s.k_chunk, OUT_CHUNK, DOWN_BLOCKS, stage=STAGES)

    @pl.inline
    def feed_forward(normed, resid1, w_gate, w_up, w_down, y, length):
        mlp = pl.create_tensor([SPAN, INTERMEDIATE], dtype=pl.BF16)
        for m0 in pl.parallel(0, INTERMEDIATE, MLP_OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                rows = pl.slice(normed, [TOK, HIDDEN], [t0, 0], valid_shape=[known, HIDDEN])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="gate_up_silu",
                ):
                    gate, up = project_two(rows, w_gate, w_up, 0, m0, m0)
                    activation = gated_silu(gate, up)
                mlp = pl.assemble(mlp, activation, [t0, m0])
        for n0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                act = pl.slice(mlp, [TOK, INTERMEDIATE], [t0, 0], valid_shape=[known, INTERMEDIATE])
                residual = pl.slice(resid1, [TOK, OUT_CHUNK], [t0, n0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="down_projection",
                ):
                    acc = project_down(act, w_down, 0, n0)
                    known_rows = pl.slice(
                        residual, [TOK, OUT_CHUNK], [0, 0], valid_shape=[known, OUT_CHUNK]
                    )
                    rounded = pl.cast(pl.add(acc, known_rows), target_type=pl.BF16)
                y = pl.assemble(y, rounded, [t0, n0])
        return y

    return feed_forward
