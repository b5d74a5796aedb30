# pyright: basic
"""The stages of the tuned Qwen3 prefill layer; see `prefill.py` for how to run it.

A stage works on one span of one sequence: `[span, ...]` tensors of which the first `length` rows
are tokens. Its loops run over blocks of a weight and, inside, over tiles of tokens, so that a block
is read for all tiles of the span while it is in the cache of the device.

Of the last tile only some rows are tokens. The kernels get their number, `known`, and pass it
to every load of rows, because a kernel is compiled separately and knows only a view's shape.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType
from tilelet.models.qwen3.attention import LOWEST, make_scaled_scores, make_weighted_values
from tilelet.models.qwen3.blocks import (
    make_causal_bias,
    make_gated_silu,
    make_products,
    make_rms_scale,
    make_rms_steps,
    make_rope_halves,
    make_softmax_weights,
)
from tilelet.models.qwen3.shapes import PrefillShape

STAGES = 2


def make_tuned(s: PrefillShape):
    BATCH, HIDDEN, SPAN = s.batch, s.hidden, s.part("max_seq", "span")
    input_norm, post_norm = make_norms(s)
    project_kv = make_kv_stage(s)
    project_q = make_q_stage(s)
    attend = make_attention_stage(s)
    project_out = make_out_stage(s)
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
                states = pl.reshape(
                    pl.slice(hidden_states, [1, SPAN, HIDDEN], [b, p0, 0]), [SPAN, HIDDEN]
                )
                y = pl.reshape(pl.slice(out, [1, SPAN, HIDDEN], [b, p0, 0]), [SPAN, HIDDEN])
                normed = input_norm(states, input_rms_weight, length)
                k_cache = project_kv(
                    normed, wk, wv, rope_cos, rope_sin, k_cache, v_cache, b, p0, length
                )
                queries = project_q(normed, wq, rope_cos, rope_sin, p0, length)
                attn = attend(queries, k_cache, v_cache, b, p0, length)
                resid1 = project_out(attn, states, wo, length)
                post_normed = post_norm(resid1, post_rms_weight, length)
                y = feed_forward(post_normed, resid1, w_gate, w_up, w_down, y, length)
        return out

    return tuned


def make_rows(rows: int, columns: int):
    """Load some columns of a tile of `rows` rows, of which the first `known` are tokens."""

    @pl.inline
    def known_rows(view, start, known):
        return pl.slice(view, [rows, columns], [0, start], valid_shape=[known, columns])

    return known_rows


def make_norm(rows: int, hidden: int, k_chunk: int, eps: float, x_dtype: DType):
    """RMSNorm of the known rows of a tile of `x_dtype`, `k_chunk` columns at a time."""
    BLOCKS = hidden // k_chunk
    known_rows = make_rows(rows, k_chunk)
    row_scale = make_rms_scale(hidden, eps)
    squares, scaled = make_rms_steps(rows)

    @pl.inline
    def widened_rows(view, start, known):
        return pl.cast(known_rows(view, start, known), target_type=pl.FP32)

    load = known_rows if x_dtype is pl.FP32 else widened_rows

    @pl.inline
    def norm(x_rows, weight, target, known):
        square_sum = pl.full([1, rows], dtype=pl.FP32, value=0.0)
        for kb in pl.range(BLOCKS):
            square_sum = pl.add(square_sum, squares(load(x_rows, kb * k_chunk, known)))
        scale = pl.reshape(row_scale(square_sum), [rows, 1])
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            gamma = pl.slice(weight, [1, k_chunk], [0, k0])
            target = pl.assemble(target, scaled(load(x_rows, k0, known), scale, gamma), [0, k0])
        return target

    return norm


def make_tile_product(rows: int, k_chunk: int, out_chunk: int, k_blocks: int):
    """A block of the product of a tile's known rows and a weight, accumulated on chip."""
    known_rows = make_rows(rows, k_chunk)
    first_product, next_product = make_products(k_chunk, out_chunk)

    @pl.inline
    def tile_product(x_rows, w, column, known):
        acc = first_product(known_rows(x_rows, 0, known), w, column)
        for kb in pl.pipeline(1, k_blocks, stage=STAGES):
            k0 = kb * k_chunk
            acc = next_product(acc, known_rows(x_rows, k0, known), w, k0, column)
        return acc

    return tile_product


def make_norms(s: PrefillShape):
    """The two RMSNorms of all tokens: of hidden states, and of the residual after attention.

    `norm_rows` rows per task.
    """
    HIDDEN, SPAN = s.hidden, s.span
    NORM_ROWS, NORM_CHUNK = s.part("span", "norm_rows"), s.part("hidden", "norm_chunk")
    norm_states = make_norm(NORM_ROWS, HIDDEN, NORM_CHUNK, s.eps, pl.BF16)
    norm_residual = make_norm(NORM_ROWS, HIDDEN, NORM_CHUNK, s.eps, pl.FP32)

    @pl.inline
    def input_norm(states, input_rms_weight, length):
        normed = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        for r0 in pl.parallel(0, length, NORM_ROWS):
            known = pl.min(NORM_ROWS, length - r0)
            state_rows = pl.slice(states, [NORM_ROWS, HIDDEN], [r0, 0])
            norm_part = pl.create_tensor([NORM_ROWS, HIDDEN], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="input_rmsnorm"):
                norm_part = norm_states(state_rows, input_rms_weight, norm_part, known)
            normed = pl.assemble(normed, norm_part, [r0, 0])
        return normed

    @pl.inline
    def post_norm(resid1, post_rms_weight, length):
        normed = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        for r0 in pl.parallel(0, length, NORM_ROWS):
            known = pl.min(NORM_ROWS, length - r0)
            resid_rows = pl.slice(resid1, [NORM_ROWS, HIDDEN], [r0, 0])
            norm_part = pl.create_tensor([NORM_ROWS, HIDDEN], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_rmsnorm"):
                norm_part = norm_residual(resid_rows, post_rms_weight, norm_part, known)
            normed = pl.assemble(normed, norm_part, [r0, 0])
        return normed

    return input_norm, post_norm


def make_kv_stage(s: PrefillShape):
    """Rotated keys, and values, of all tokens into the caches: a K/V head per task.

    Results of the cube are processed in halves of a head, two of which fit the vector unit's
    buffer. Halves are stored separately: joined, they would count as valid in all rows.
    """
    HIDDEN, KV_HEADS, HEAD_DIM, MAX_SEQ = s.hidden, s.kv_heads, s.head_dim, s.max_seq
    TOK, K_CHUNK, K_BLOCKS = s.part("span", "tok_tile"), s.k_chunk, s.hidden_blocks
    HALF = HEAD_DIM // 2
    known_rows = make_rows(TOK, K_CHUNK)
    first_kv, next_kv = make_products(K_CHUNK, HEAD_DIM)
    rotated_low, rotated_high = make_rope_halves(HALF, TOK)

    @pl.inline
    def project_kv(normed, wk, wv, rope_cos, rope_sin, k_cache, v_cache, b, p0, length):
        for ki in pl.parallel(KV_HEADS):
            n0 = ki * HEAD_DIM
            row0 = (b * KV_HEADS + ki) * MAX_SEQ + p0
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                tokens = pl.slice(normed, [TOK, HIDDEN], [t0, 0])
                cos = pl.slice(rope_cos, [TOK, HEAD_DIM], [p0 + t0, 0])
                sin = pl.slice(rope_sin, [TOK, HEAD_DIM], [p0 + t0, 0])
                k_cached = pl.slice(k_cache, [TOK, HEAD_DIM], [row0 + t0, 0])
                v_cached = pl.slice(v_cache, [TOK, HEAD_DIM], [row0 + t0, 0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="kv_projection",
                ):
                    x_chunk = known_rows(tokens, 0, known)
                    k_acc = first_kv(x_chunk, wk, n0)
                    v_acc = first_kv(x_chunk, wv, n0)
                    for kb in pl.pipeline(1, K_BLOCKS, stage=STAGES):
                        k0 = kb * K_CHUNK
                        x_chunk = known_rows(tokens, k0, known)
                        k_acc = next_kv(k_acc, x_chunk, wk, k0, n0)
                        v_acc = next_kv(v_acc, x_chunk, wv, k0, n0)
                    k_lo = pl.slice(k_acc, [TOK, HALF], [0, 0])
                    k_hi = pl.slice(k_acc, [TOK, HALF], [0, HALF])
                    k_low = pl.cast(rotated_low(k_lo, k_hi, cos, sin), target_type=pl.BF16)
                    k_cached = pl.assemble(k_cached, k_low, [0, 0])
                    k_high = pl.cast(rotated_high(k_lo, k_hi, cos, sin), target_type=pl.BF16)
                    k_cached = pl.assemble(k_cached, k_high, [0, HALF])
                    for part in pl.range(2):
                        v0 = part * HALF
                        v_half = pl.slice(v_acc, [TOK, HALF], [0, v0])
                        v_new = pl.cast(v_half, target_type=pl.BF16)
                        v_cached = pl.assemble(v_cached, v_new, [0, v0])
        return k_cache

    return project_kv


def make_q_stage(s: PrefillShape):
    """Rotated queries of all tokens."""
    HIDDEN, SPAN, HEAD_DIM, TOK = s.hidden, s.span, s.head_dim, s.part("span", "tok_tile")
    Q_OUT_CHUNK, BLOCK_HEADS = s.q_out_chunk, s.count("q_out_chunk", "head_dim")
    HALF = HEAD_DIM // 2
    project = make_tile_product(TOK, s.k_chunk, Q_OUT_CHUNK, s.hidden_blocks)
    rotated_low, rotated_high = make_rope_halves(HALF, TOK)

    @pl.inline
    def project_q(normed, wq, rope_cos, rope_sin, p0, length):
        queries = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        for n0 in pl.parallel(0, HIDDEN, Q_OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                tokens = pl.slice(normed, [TOK, HIDDEN], [t0, 0])
                cos = pl.slice(rope_cos, [TOK, HEAD_DIM], [p0 + t0, 0])
                sin = pl.slice(rope_sin, [TOK, HEAD_DIM], [p0 + t0, 0])
                q_block = pl.slice(queries, [TOK, Q_OUT_CHUNK], [t0, n0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="q_projection",
                ):
                    q_acc = project(tokens, wq, n0, known)
                    for h in pl.range(BLOCK_HEADS):
                        h0 = h * HEAD_DIM
                        q_lo = pl.slice(q_acc, [TOK, HALF], [0, h0])
                        q_hi = pl.slice(q_acc, [TOK, HALF], [0, h0 + HALF])
                        q_low = pl.cast(rotated_low(q_lo, q_hi, cos, sin), target_type=pl.BF16)
                        q_block = pl.assemble(q_block, q_low, [0, h0])
                        q_high = pl.cast(rotated_high(q_lo, q_hi, cos, sin), target_type=pl.BF16)
                        q_block = pl.assemble(q_block, q_high, [0, h0 + HALF])
        return queries

    return project_q


def make_attention_stage(s: PrefillShape):
    """Causal attention of all tokens over the caches, which already contain them."""
    HIDDEN, SPAN, HEADS, HEAD_DIM = s.hidden, s.span, s.heads, s.head_dim
    KV_HEADS, GROUP, MAX_SEQ = s.kv_heads, s.q_per_kv, s.max_seq
    TILE = s.part("span", "attn_tile")
    attend_tile = make_causal_tile(s)

    @pl.inline
    def attend(queries, k_cache, v_cache, b, p0, length):
        q_heads = pl.reshape(queries, [SPAN, HEADS, HEAD_DIM])
        attn = pl.create_tensor([SPAN, HIDDEN], dtype=pl.BF16)
        attn_heads = pl.reshape(attn, [SPAN, HEADS, HEAD_DIM])
        for ki in pl.parallel(KV_HEADS):
            row0 = (b * KV_HEADS + ki) * MAX_SEQ
            k_rows = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [row0, 0])
            v_rows = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [row0, 0])
            for a0 in pl.parallel(0, length, TILE):
                known = pl.min(TILE, length - a0)
                q_rows = pl.slice(q_heads, [TILE, GROUP, HEAD_DIM], [a0, ki * GROUP, 0])
                out_rows = pl.slice(attn_heads, [TILE, GROUP, HEAD_DIM], [a0, ki * GROUP, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="causal_attention"):
                    context = attend_tile(q_rows, k_rows, v_rows, p0 + a0, known)
                    out_rows = pl.assemble(out_rows, context, [0, 0, 0])
        return attn

    return attend


def make_causal_tile(s: PrefillShape):
    """Attention of `known` tokens starting at `pos`, a row per token and head; call it in a scope.

    Keys before the block that contains `pos` are visible to all rows. Tiles of tokens do not cross
    the boundary of a block, so that only one block is left that needs the mask.
    """
    TILE, GROUP, HEAD_DIM = s.part("walk_tile", "attn_tile"), s.q_per_kv, s.head_dim
    WALK_TILE, ROWS = s.part("max_seq", "walk_tile"), TILE * GROUP
    causal_bias = make_causal_bias(TILE, GROUP, WALK_TILE)
    scaled_scores = make_scaled_scores(ROWS, WALK_TILE, HEAD_DIM)
    softmax_weights = make_softmax_weights()
    weighted_values = make_weighted_values(WALK_TILE, HEAD_DIM)

    @pl.inline
    def attend_tile(q_rows, k_rows, v_rows, pos, known):
        q_tile = pl.slice(
            q_rows, [TILE, GROUP, HEAD_DIM], [0, 0, 0], valid_shape=[known, GROUP, HEAD_DIM]
        )
        # All rows are filled, because missing tokens' heads have no place among rows of heads.
        q = pl.reshape(pl.fillpad(q_tile), [ROWS, HEAD_DIM])
        mi = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=LOWEST), [ROWS, 1])
        li = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=0.0), [ROWS, 1])
        oi = pl.full([ROWS, HEAD_DIM], dtype=pl.FP32, value=0.0)
        last = pos // WALK_TILE * WALK_TILE
        for s0 in pl.pipeline(0, last, WALK_TILE, stage=STAGES):
            scores = scaled_scores(q, k_rows, s0, WALK_TILE)
            mi_new = pl.maximum(mi, pl.row_max(scores))
            alpha = pl.exp(pl.sub(mi, mi_new))
            p = softmax_weights(scores, mi_new)
            update = weighted_values(p, v_rows, s0, WALK_TILE)
            li = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(p, target_type=pl.FP32)))
            oi = pl.add(pl.row_expand_mul(oi, alpha), update)
            mi = mi_new
        last_keys = pos - last + known
        masked = pl.add(scaled_scores(q, k_rows, last, last_keys), causal_bias(pos - last))
        maximum = pl.maximum(mi, pl.row_max(masked))
        shrunk = pl.exp(pl.sub(mi, maximum))
        last_p = softmax_weights(masked, maximum)
        last_update = weighted_values(last_p, v_rows, last, last_keys)
        total = pl.add(pl.mul(li, shrunk), pl.row_sum(pl.cast(last_p, target_type=pl.FP32)))
        summed = pl.add(pl.row_expand_mul(oi, shrunk), last_update)
        context_rows = pl.cast(pl.row_expand_div(summed, total), target_type=pl.BF16)
        return pl.reshape(context_rows, [TILE, GROUP, HEAD_DIM])

    return attend_tile


def make_out_stage(s: PrefillShape):
    """Output projection and residual of all tokens, FP32."""
    HIDDEN, SPAN, TOK, OUT_CHUNK = s.hidden, s.span, s.part("span", "tok_tile"), s.q_out_chunk
    PIECE, PIECES = s.head_dim, s.count("q_out_chunk", "head_dim")
    project = make_tile_product(TOK, s.k_chunk, OUT_CHUNK, s.hidden_blocks)
    known_states = make_rows(TOK, PIECE)

    @pl.inline
    def project_out(attn, states, wo, length):
        resid1 = pl.create_tensor([SPAN, HIDDEN], dtype=pl.FP32)
        for n0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                attended = pl.slice(attn, [TOK, HIDDEN], [t0, 0])
                states_block = pl.slice(states, [TOK, OUT_CHUNK], [t0, n0])
                resid_block = pl.slice(resid1, [TOK, OUT_CHUNK], [t0, n0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="out_projection",
                ):
                    o_acc = project(attended, wo, n0, known)
                    for piece in pl.range(PIECES):
                        c0 = piece * PIECE
                        o_piece = pl.slice(o_acc, [TOK, PIECE], [0, c0])
                        piece_states = pl.cast(
                            known_states(states_block, c0, known), target_type=pl.FP32
                        )
                        with_states = pl.add(o_piece, piece_states)
                        resid_block = pl.assemble(resid_block, with_states, [0, c0])
        return resid1

    return project_out


def make_mlp_stage(s: PrefillShape):
    """Gate, up and SiLU of all tokens, then the down projection and the residual."""
    HIDDEN, INTERMEDIATE, SPAN = s.hidden, s.intermediate, s.span
    TOK, MLP_OUT_CHUNK, OUT_CHUNK = s.part("span", "tok_tile"), s.mlp_out_chunk, s.q_out_chunk
    K_CHUNK, K_BLOCKS, HALF = s.k_chunk, s.hidden_blocks, s.mlp_out_chunk // 2
    PIECE, PIECES = s.head_dim, s.count("q_out_chunk", "head_dim")
    known_tokens = make_rows(TOK, K_CHUNK)
    first_mlp, next_mlp = make_products(K_CHUNK, MLP_OUT_CHUNK)
    gated_silu = make_gated_silu()
    project_down = make_tile_product(TOK, K_CHUNK, OUT_CHUNK, s.count("intermediate", "k_chunk"))
    known_residuals = make_rows(TOK, PIECE)

    @pl.inline
    def feed_forward(normed, resid1, w_gate, w_up, w_down, y, length):
        mlp = pl.create_tensor([SPAN, INTERMEDIATE], dtype=pl.BF16)
        for m0 in pl.parallel(0, INTERMEDIATE, MLP_OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                tokens = pl.slice(normed, [TOK, HIDDEN], [t0, 0])
                mlp_block = pl.slice(mlp, [TOK, MLP_OUT_CHUNK], [t0, m0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="gate_up_silu",
                ):
                    both = known_tokens(tokens, 0, known)
                    gate_acc = first_mlp(both, w_gate, m0)
                    up_acc = first_mlp(both, w_up, m0)
                    for kb in pl.pipeline(1, K_BLOCKS, stage=STAGES):
                        k0 = kb * K_CHUNK
                        both = known_tokens(tokens, k0, known)
                        gate_acc = next_mlp(gate_acc, both, w_gate, k0, m0)
                        up_acc = next_mlp(up_acc, both, w_up, k0, m0)
                    for part in pl.range(2):
                        a0 = part * HALF
                        gate_half = pl.slice(gate_acc, [TOK, HALF], [0, a0])
                        up_half = pl.slice(up_acc, [TOK, HALF], [0, a0])
                        activation = gated_silu(gate_half, up_half)
                        mlp_block = pl.assemble(mlp_block, activation, [0, a0])
        for n0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            for t0 in pl.parallel(0, length, TOK):
                known = pl.min(TOK, length - t0)
                act = pl.slice(mlp, [TOK, INTERMEDIATE], [t0, 0])
                residual = pl.slice(resid1, [TOK, OUT_CHUNK], [t0, n0])
                y_block = pl.slice(y, [TOK, OUT_CHUNK], [t0, n0])
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    optimizations=[pl.split(pl.SplitMode.UP_DOWN)],
                    name_hint="down_projection",
                ):
                    down = project_down(act, w_down, n0, known)
                    for piece in pl.range(PIECES):
                        c0 = piece * PIECE
                        down_piece = pl.slice(down, [TOK, PIECE], [0, c0])
                        with_residual = pl.add(down_piece, known_residuals(residual, c0, known))
                        rounded = pl.cast(with_residual, target_type=pl.BF16)
                        y_block = pl.assemble(y_block, rounded, [0, c0])
        return y

    return feed_forward
