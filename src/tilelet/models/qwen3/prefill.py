# pyright: basic
"""A Qwen3 prefill layer as one program: all tokens of ragged sequences, causal attention.

Run it:   python -m tilelet.models.qwen3.prefill --variant tuned --batch 2 --max-seq 256

hidden_states and out are `[batch, max_seq, hidden]`; sequence b has `seq_lens[b]` tokens. The
remaining rows are padding: nothing reads them, and nothing is written to them, neither in `out` nor
in the caches.

Versions:
  april   four tokens at a time through the three scopes of the decode layer, in the style of April
          2026: chunked loops, and attention token by token, four tasks per block of context.
  tuned   stage by stage over spans of tokens. Every weight is read once per span, for tiles of 128
          tokens; attention works on tiles of 8 tokens with the query heads of a K/V head, against
          whole blocks of keys, of which only the last needs the causal mask.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilelet.language as pl
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.attention import make_cache_update, make_staged_group
from tilelet.models.qwen3.blocks import (
    make_gated_silu,
    make_products,
    make_projection,
    make_rmsnorm,
)
from tilelet.models.qwen3.layer import layer_program, layer_specs
from tilelet.models.qwen3.prefill_tuned import make_tuned
from tilelet.models.qwen3.scope3 import layer_output
from tilelet.models.qwen3.script import ShippedModel, Variant, main
from tilelet.models.qwen3.shapes import PrefillShape
from tilelet.runtime import TensorSpec

# The cube's accumulators (128 KB) hold one [128, 256] block, or two of [128, 128].
TUNED_SIZES = {
    "tok_tile": 128,
    "tok_rows": 128,
    "norm_rows": 16,
    "q_out_chunk": 256,
    "kv_out_chunk": 128,
    "mlp_out_chunk": 128,
    "walk_tile": 128,
    "q_head_batch": 8,
}


def specs(s: PrefillShape) -> list[TensorSpec]:
    tokens = (s.batch, s.max_seq, s.hidden)
    drawn = inputs.uniform("tokens", tokens, -0.4, 0.4)
    # Rows of padding keep their contents.
    return layer_specs(TensorSpec("hidden_states", tokens, pl.BF16, drawn), s, out_starts=0.0)


def golden(s: PrefillShape) -> Callable[[dict[str, Array]], None]:
    def prefill_layer(tensors: dict[str, Array]) -> None:
        for b in range(s.batch):
            length = int(tensors["seq_lens"][b])
            rows = tensors["hidden_states"][b, :length]
            attended = reference.bf16(causal_attention(b, rows, tensors, s))
            layer = {**tensors, "hidden_states": rows}
            tensors["out"][b, :length] = layer_output(attended, layer, s.eps)

    return prefill_layer


def causal_attention(b: int, rows: Array, tensors: dict[str, Array], s: PrefillShape) -> Array:
    """Return the attention output of sequence `b`, updating the caches in `tensors`."""
    length, group = rows.shape[0], s.q_per_kv
    x = reference.double(rows)
    normed = reference.bf16(reference.rmsnorm(x, tensors["input_rms_weight"], s.eps))
    q, k, v = (
        reference.matmul(normed, tensors[w]).reshape(length, -1, s.head_dim).swapaxes(0, 1)
        for w in ("wq", "wk", "wv")
    )
    cos, sin = (tensors[f"rope_{n}"][:length] for n in ("cos", "sin"))
    q = reference.bf16(reference.rotate(q, cos, sin))
    out = np.empty((length, s.heads, s.head_dim))
    for head in range(s.kv_heads):
        start = (b * s.kv_heads + head) * s.max_seq
        cached = slice(start, start + length)
        tensors["k_cache"][cached] = reference.bf16(reference.rotate(k[head], cos, sin))
        tensors["v_cache"][cached] = reference.bf16(v[head])
        keys, values = (reference.double(tensors[f"{n}_cache"][cached]) for n in ("k", "v"))
        for query in range(head * group, (head + 1) * group):
            for t in range(length):
                seen = slice(0, t + 1)
                row = q[query, t : t + 1]
                out[t, query] = reference.attention(row, keys[seen], values[seen])[0]
    return out.reshape(length, -1)


def make_april(s: PrefillShape):
    BATCH, HIDDEN, MAX_SEQ = s.batch, s.hidden, s.max_seq
    TOK_TILE, TOK_ROWS = s.tok_tile, s.tok_rows
    project = make_token_projections(s)
    attend = make_token_attention(s)
    feed_forward = make_token_feed_forward(s)

    @pl.inline
    def april(
        hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin, k_cache, v_cache,
        wo, post_rms_weight, w_gate, w_up, w_down, out,
    ):  # fmt: skip
        for b in pl.parallel(BATCH):
            seq_len = pl.tensor.read(seq_lens, [b])
            sequence = pl.reshape(
                pl.slice(hidden_states, [1, MAX_SEQ, HIDDEN], [b, 0, 0]), [MAX_SEQ, HIDDEN]
            )
            y = pl.reshape(pl.slice(out, [1, MAX_SEQ, HIDDEN], [b, 0, 0]), [MAX_SEQ, HIDDEN])
            for t0 in pl.range(0, seq_len, TOK_TILE):
                tokens = pl.min(TOK_TILE, seq_len - t0)
                states = pl.slice(
                    sequence, [TOK_ROWS, HIDDEN], [t0, 0], valid_shape=[tokens, HIDDEN]
                )
                q_proj, k_proj, v_proj = project(states, input_rms_weight, wq, wk, wv, tokens)
                attended, k_cache, v_cache = attend(
                    q_proj, k_proj, v_proj, rope_cos, rope_sin, k_cache, v_cache, b, t0, tokens
                )
                y = feed_forward(
                    attended, states, wo, post_rms_weight, w_gate, w_up, w_down, y, t0, tokens
                )
        return out

    return april


def make_token_projections(s: PrefillShape):
    """Scope 1: RMSNorm and projections of a tile of tokens."""
    HIDDEN, KV_WIDTH, TOK_ROWS = s.hidden, s.kv_width, s.tok_rows
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    rmsnorm = make_rmsnorm(TOK_ROWS, HIDDEN, s.k_chunk, s.eps)
    project_q = make_projection(TOK_ROWS, s.k_chunk, Q_OUT_CHUNK, s.hidden_blocks)
    project_kv = make_projection(TOK_ROWS, s.k_chunk, KV_OUT_CHUNK, s.hidden_blocks)

    @pl.inline
    def project(states, input_rms_weight, wq, wk, wv, tokens):
        normed = pl.create_tensor([TOK_ROWS, HIDDEN], dtype=pl.BF16)
        with pl.incore():
            normed = rmsnorm(states, input_rms_weight, normed, 0)
        tokens_normed = pl.slice(normed, [TOK_ROWS, HIDDEN], [0, 0], valid_shape=[tokens, HIDDEN])
        q_proj = pl.create_tensor([TOK_ROWS, HIDDEN], dtype=pl.FP32)
        k_proj = pl.create_tensor([TOK_ROWS, KV_WIDTH], dtype=pl.FP32)
        v_proj = pl.create_tensor([TOK_ROWS, KV_WIDTH], dtype=pl.FP32)
        with pl.auto_incore():
            for ob in pl.parallel(0, Q_BLOCKS, chunk=4):
                q0 = ob * Q_OUT_CHUNK
                q_proj = pl.assemble(q_proj, project_q(tokens_normed, wq, 0, q0), [0, q0])
        with pl.auto_incore():
            for ob in pl.parallel(0, KV_BLOCKS, chunk=4):
                kv0 = ob * KV_OUT_CHUNK
                k_proj = pl.assemble(k_proj, project_kv(tokens_normed, wk, 0, kv0), [0, kv0])
                v_proj = pl.assemble(v_proj, project_kv(tokens_normed, wv, 0, kv0), [0, kv0])
        return q_proj, k_proj, v_proj

    return project


def make_token_attention(s: PrefillShape):
    """Scope 2: each token in turn goes into the caches and attends to all up to itself."""
    HIDDEN, KV_HEADS, HEAD_DIM, MAX_SEQ = s.hidden, s.kv_heads, s.head_dim, s.max_seq
    TOK_ROWS, SEQ_TILE, Q_HEAD_BATCH, Q_GROUPS = s.tok_rows, s.seq_tile, s.q_head_batch, s.q_groups
    update_cache = make_cache_update(s)
    attend_group = make_staged_group(s)

    @pl.inline
    def attend(q_proj, k_proj, v_proj, rope_cos, rope_sin, k_cache, v_cache, b, t0, tokens):
        attn = pl.create_tensor([TOK_ROWS, HIDDEN], dtype=pl.BF16)
        for ti in pl.range(tokens):
            pos = t0 + ti
            ctx_len = pos + 1
            ctx_blocks = (ctx_len + SEQ_TILE - 1) // SEQ_TILE
            cos = pl.slice(rope_cos, [1, HEAD_DIM], [pos, 0])
            sin = pl.slice(rope_sin, [1, HEAD_DIM], [pos, 0])
            for ki in pl.range(KV_HEADS):
                cache_row = (b * KV_HEADS + ki) * MAX_SEQ + pos
                k_cache, v_cache = update_cache(
                    k_proj, v_proj, cos, sin, k_cache, v_cache, ti, ki * HEAD_DIM, cache_row
                )
            attn_row = pl.create_tensor([1, HIDDEN], dtype=pl.BF16)
            for gi in pl.parallel(0, KV_HEADS * Q_GROUPS):
                cache_row0 = (b * KV_HEADS + gi // Q_GROUPS) * MAX_SEQ
                attn_row = attend_group(
                    q_proj, cos, sin, k_cache, v_cache, attn_row,
                    ti, gi * Q_HEAD_BATCH, cache_row0, ctx_len, ctx_blocks,
                )  # fmt: skip
            attn = pl.assemble(attn, attn_row, [ti, 0])
        attended = pl.slice(attn, [TOK_ROWS, HIDDEN], [0, 0], valid_shape=[tokens, HIDDEN])
        return attended, k_cache, v_cache

    return attend


def make_token_feed_forward(s: PrefillShape):
    """Scope 3 of a tile of tokens."""
    HIDDEN, INTERMEDIATE, TOK_ROWS, K_CHUNK = s.hidden, s.intermediate, s.tok_rows, s.k_chunk
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    MLP_BLOCKS, MLP_OUT_CHUNK, HIDDEN_BLOCKS = s.mlp_blocks, s.mlp_out_chunk, s.hidden_blocks
    project_out = make_projection(TOK_ROWS, K_CHUNK, Q_OUT_CHUNK, HIDDEN_BLOCKS)
    rmsnorm = make_rmsnorm(TOK_ROWS, HIDDEN, K_CHUNK, s.eps, x_dtype=pl.FP32)
    project_mlp = make_projection(TOK_ROWS, K_CHUNK, MLP_OUT_CHUNK, HIDDEN_BLOCKS)
    first_down, next_down = make_products(MLP_OUT_CHUNK, K_CHUNK)
    gated_silu = make_gated_silu()

    @pl.inline
    def feed_forward(attended, states, wo, post_rms_weight, w_gate, w_up, w_down, y, t0, tokens):
        resid1 = pl.create_tensor([TOK_ROWS, HIDDEN], dtype=pl.FP32)
        with pl.auto_incore(split=pl.SplitMode.UP_DOWN):
            for ob in pl.parallel(0, Q_BLOCKS, chunk=4):
                o0 = ob * Q_OUT_CHUNK
                h_chunk = pl.slice(states, [TOK_ROWS, Q_OUT_CHUNK], [0, o0])
                o_acc = project_out(attended, wo, 0, o0)
                summed = pl.add(o_acc, pl.cast(h_chunk, target_type=pl.FP32))
                resid1 = pl.assemble(resid1, summed, [0, o0])
        residuals = pl.slice(resid1, [TOK_ROWS, HIDDEN], [0, 0], valid_shape=[tokens, HIDDEN])
        post_norm = pl.create_tensor([TOK_ROWS, HIDDEN], dtype=pl.BF16)
        with pl.incore():
            post_norm = rmsnorm(residuals, post_rms_weight, post_norm, 0)
        post_normed = pl.slice(post_norm, [TOK_ROWS, HIDDEN], [0, 0], valid_shape=[tokens, HIDDEN])
        mlp = pl.create_tensor([TOK_ROWS, INTERMEDIATE], dtype=pl.BF16)
        with pl.auto_incore(split=pl.SplitMode.UP_DOWN):
            for ob in pl.parallel(0, MLP_BLOCKS, chunk=4):
                m0 = ob * MLP_OUT_CHUNK
                gate = project_mlp(post_normed, w_gate, 0, m0)
                up = project_mlp(post_normed, w_up, 0, m0)
                mlp = pl.assemble(mlp, gated_silu(gate, up), [0, m0])
        activations = pl.slice(
            mlp, [TOK_ROWS, INTERMEDIATE], [0, 0], valid_shape=[tokens, INTERMEDIATE]
        )
        with pl.auto_incore(split=pl.SplitMode.UP_DOWN):
            for ob in pl.parallel(0, HIDDEN_BLOCKS, chunk=4):
                o0 = ob * K_CHUNK
                residual = pl.slice(residuals, [TOK_ROWS, K_CHUNK], [0, o0])
                mlp_chunk = pl.slice(activations, [TOK_ROWS, MLP_OUT_CHUNK], [0, 0])
                down_acc = first_down(mlp_chunk, w_down, o0)
                for mb in pl.range(1, MLP_BLOCKS):
                    m0 = mb * MLP_OUT_CHUNK
                    mlp_chunk = pl.slice(activations, [TOK_ROWS, MLP_OUT_CHUNK], [0, m0])
                    down_acc = next_down(down_acc, mlp_chunk, w_down, m0, o0)
                rounded = pl.cast(pl.add(down_acc, residual), target_type=pl.BF16)
                y = pl.assemble(y, rounded, [t0, o0])
        return y

    return feed_forward


def program(s: PrefillShape, layer: object):
    return layer_program("Qwen3Prefill", [s.batch, s.max_seq, s.hidden], s, layer)


MODEL = ShippedModel(
    name="prefill",
    about="a whole prefill layer: all tokens of ragged sequences",
    variants={
        "april": Variant("four tokens at a time, attention token by token", make_april),
        "tuned": Variant(
            "stage by stage over spans of tokens, attention on tiles", make_tuned, TUNED_SIZES
        ),
    },
    program=program,
    specs=specs,
    golden=golden,
    tolerance=3e-3,
    shape=PrefillShape,
)
build_prefill = MODEL.build


if __name__ == "__main__":
    raise SystemExit(main(MODEL))
