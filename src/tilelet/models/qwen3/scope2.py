"""Scope 2 of a Qwen3 decode layer: RoPE, update of the K/V caches, attention over the caches.

Run it:   python -m tilelet.models.qwen3.scope2 --max-seq 512 -p a2a3sim

Versions:
  staged   as first written: four tasks per block of context, each handing its result to the next
           through global memory; eight query heads are padded to sixteen cube rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.pieces import make_rope
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.script import Model, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec

# Below every score; finite, so that the difference of two of them is no NaN.
LOWEST = -1e30


def shape_for(variant: str, **sizes: Any) -> DecodeShape:
    """The sizes a variant is made for, with those in `sizes` changed."""
    return DecodeShape(**sizes)


def specs(s: DecodeShape) -> list[TensorSpec]:
    q, kv = (s.batch, s.hidden), (s.batch, s.kv_width)
    return [
        TensorSpec("q_proj", q, pl.FP32, inputs.normal("q_proj", q, inputs.PEAK)),
        TensorSpec("k_proj", kv, pl.FP32, inputs.normal("k_proj", kv, inputs.PEAK)),
        TensorSpec("v_proj", kv, pl.FP32, inputs.normal("v_proj", kv, 0.5)),
        inputs.seq_lens(s),
        *inputs.rope(s),
        *inputs.caches(s),
        TensorSpec("attn_out", q, pl.BF16, is_output=True),
    ]


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def scope2(tensors: dict[str, Array]) -> None:
        q, k, v = (reference.double(tensors[f"{n}_proj"]) for n in ("q", "k", "v"))
        tensors["attn_out"][:] = attention_output(q, k, v, tensors, s)

    return scope2


def attention_output(
    q_proj: Array, k_proj: Array, v_proj: Array, tensors: dict[str, Array], s: DecodeShape
) -> Array:
    """Attention of every sequence; the caches in `tensors` get the new position first."""
    out = np.empty_like(q_proj)
    k_cache, v_cache = (
        tensors[name].reshape(s.batch, s.kv_heads, s.max_seq, s.head_dim)
        for name in ("k_cache", "v_cache")
    )
    for b in range(s.batch):
        context = int(tensors["seq_lens"][b])
        cos, sin = (tensors[f"rope_{n}"][context - 1] for n in ("cos", "sin"))
        keys = reference.rotate(k_proj[b].reshape(s.kv_heads, s.head_dim), cos, sin)
        k_cache[b, :, context - 1] = keys
        v_cache[b, :, context - 1] = v_proj[b].reshape(s.kv_heads, s.head_dim)
        queries = reference.rotate(q_proj[b].reshape(s.kv_heads, s.q_per_kv, s.head_dim), cos, sin)
        for h in range(s.kv_heads):
            k, v = (reference.double(cache[b, h, :context]) for cache in (k_cache, v_cache))
            heads = reference.attention(reference.bf16(queries[h]), k, v)
            width = s.q_per_kv * s.head_dim
            out[b, h * width : (h + 1) * width] = heads.reshape(-1)
    return out


def make_staged(s: DecodeShape):
    BATCH, HIDDEN, KV_HEADS, MAX_SEQ = s.batch, s.hidden, s.kv_heads, s.max_seq
    HEAD_DIM, HALF, SEQ_TILE = s.head_dim, s.head_dim // 2, s.seq_tile
    Q_PER_KV, Q_GROUPS = s.q_per_kv, s.q_groups
    rotate = make_rope(HALF)
    attend_group = make_staged_group(s)

    @pl.inline
    def staged(q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out):
        for b in pl.parallel(0, BATCH):
            ctx_len = pl.tensor.read(seq_lens, [b])
            pos = ctx_len - 1
            ctx_blocks = (ctx_len + SEQ_TILE - 1) // SEQ_TILE
            cos = pl.slice(rope_cos, [1, HEAD_DIM], [pos, 0])
            sin = pl.slice(rope_sin, [1, HEAD_DIM], [pos, 0])

            for ki in pl.range(KV_HEADS):
                kv_col = ki * HEAD_DIM
                cache_row = b * KV_HEADS * MAX_SEQ + ki * MAX_SEQ + pos
                with pl.incore():
                    k_lo = pl.slice(k_proj, [1, HALF], [b, kv_col])
                    k_hi = pl.slice(k_proj, [1, HALF], [b, kv_col + HALF])
                    rot_lo, rot_hi = rotate(k_lo, k_hi, cos, sin)
                    k_cache = pl.assemble(
                        k_cache, pl.cast(rot_lo, target_type=pl.BF16), [cache_row, 0]
                    )
                    k_cache = pl.assemble(
                        k_cache, pl.cast(rot_hi, target_type=pl.BF16), [cache_row, HALF]
                    )
                    v_row = pl.slice(v_proj, [1, HEAD_DIM], [b, kv_col])
                    v_cache = pl.assemble(
                        v_cache, pl.cast(v_row, target_type=pl.BF16), [cache_row, 0]
                    )

            attn_row = pl.create_tensor([1, HIDDEN], dtype=pl.BF16)
            for gi in pl.parallel(0, KV_HEADS * Q_GROUPS):
                kvh = gi // Q_GROUPS
                first_head = gi * (Q_PER_KV // Q_GROUPS)
                cache_row0 = (b * KV_HEADS + kvh) * MAX_SEQ
                attn_row = attend_group(
                    q_proj, cos, sin, k_cache, v_cache, attn_row,
                    b, first_head, cache_row0, ctx_len, ctx_blocks,
                )  # fmt: skip
            attn_out = pl.assemble(attn_out, attn_row, [b, 0])
        return k_cache, v_cache, attn_out

    return staged


def make_staged_group(s: DecodeShape):
    """Attention of one group of query heads of one sequence."""
    HEAD_DIM, HALF, SEQ_TILE = s.head_dim, s.head_dim // 2, s.seq_tile
    Q_HEAD_BATCH, Q_HEAD_PAD = s.q_head_batch, s.q_head_pad
    PAD_ROWS = Q_HEAD_PAD - Q_HEAD_BATCH
    ATTN_SCALE = HEAD_DIM**-0.5
    rotate = make_rope(HALF)

    @pl.inline
    def attend_group(
        q_proj, cos, sin, k_cache, v_cache, attn_row, b, first_head, cache_row0, ctx_len, ctx_blocks
    ):
        q_padded = pl.create_tensor([Q_HEAD_PAD, HEAD_DIM], dtype=pl.BF16)
        with pl.incore():
            for qi in pl.range(Q_HEAD_BATCH):
                q_col = (first_head + qi) * HEAD_DIM
                q_lo = pl.slice(q_proj, [1, HALF], [b, q_col])
                q_hi = pl.slice(q_proj, [1, HALF], [b, q_col + HALF])
                rot_lo, rot_hi = rotate(q_lo, q_hi, cos, sin)
                q_padded = pl.assemble(q_padded, pl.cast(rot_lo, target_type=pl.BF16), [qi, 0])
                q_padded = pl.assemble(q_padded, pl.cast(rot_hi, target_type=pl.BF16), [qi, HALF])
            q_zero = pl.full([PAD_ROWS, HEAD_DIM], dtype=pl.FP32, value=0.0)
            q_padded = pl.assemble(
                q_padded, pl.cast(q_zero, target_type=pl.BF16), [Q_HEAD_BATCH, 0]
            )
        with pl.incore():
            oi = pl.full([Q_HEAD_BATCH, HEAD_DIM], dtype=pl.FP32, value=0.0)
            li = pl.reshape(pl.full([1, Q_HEAD_BATCH], dtype=pl.FP32, value=0.0), [Q_HEAD_BATCH, 1])
            mi = pl.reshape(
                pl.full([1, Q_HEAD_BATCH], dtype=pl.FP32, value=LOWEST), [Q_HEAD_BATCH, 1]
            )

        for sb in pl.range(ctx_blocks):
            s0 = sb * SEQ_TILE
            valid_len = pl.min(SEQ_TILE, ctx_len - s0)
            row0 = cache_row0 + s0
            raw_scores_pad = pl.create_tensor([Q_HEAD_PAD, SEQ_TILE], dtype=pl.FP32)
            with pl.incore():
                k_tile = pl.slice(k_cache, [SEQ_TILE, HEAD_DIM], [row0, 0])
                raw = pl.matmul(q_padded, k_tile, b_trans=True, out_dtype=pl.FP32)
                raw_scores_pad = pl.assemble(raw_scores_pad, raw, [0, 0])
            exp_padded = pl.create_tensor([Q_HEAD_PAD, SEQ_TILE], dtype=pl.BF16)
            with pl.incore():
                known = pl.slice(
                    raw_scores_pad, [Q_HEAD_BATCH, SEQ_TILE], [0, 0],
                    valid_shape=[Q_HEAD_BATCH, valid_len],
                )  # fmt: skip
                scores = pl.mul(pl.fillpad(known, pad_value=pl.PadValue.min), ATTN_SCALE)
                cur_mi = pl.row_max(scores)
                exp_bf16 = pl.cast(pl.exp(pl.row_expand_sub(scores, cur_mi)), target_type=pl.BF16)
                cur_li = pl.row_sum(pl.cast(exp_bf16, target_type=pl.FP32))
                exp_padded = pl.assemble(exp_padded, exp_bf16, [0, 0])
                exp_zero = pl.full([PAD_ROWS, SEQ_TILE], dtype=pl.FP32, value=0.0)
                exp_padded = pl.assemble(
                    exp_padded, pl.cast(exp_zero, target_type=pl.BF16), [Q_HEAD_BATCH, 0]
                )
            oi_tmp_pad = pl.create_tensor([Q_HEAD_PAD, HEAD_DIM], dtype=pl.FP32)
            with pl.incore():
                v_tile = pl.slice(v_cache, [SEQ_TILE, HEAD_DIM], [row0, 0])
                oi_tmp_pad = pl.assemble(
                    oi_tmp_pad, pl.matmul(exp_padded, v_tile, out_dtype=pl.FP32), [0, 0]
                )
            with pl.incore():
                oi_tmp = pl.slice(oi_tmp_pad, [Q_HEAD_BATCH, HEAD_DIM], [0, 0])
                mi_new = pl.maximum(mi, cur_mi)
                alpha = pl.exp(pl.sub(mi, mi_new))
                beta = pl.exp(pl.sub(cur_mi, mi_new))
                li = pl.add(pl.mul(alpha, li), pl.mul(beta, cur_li))
                oi = pl.add(pl.row_expand_mul(oi, alpha), pl.row_expand_mul(oi_tmp, beta))
                mi = mi_new

        with pl.incore():
            context = pl.cast(pl.row_expand_div(oi, li), target_type=pl.BF16)
            flat = pl.reshape(context, [1, Q_HEAD_BATCH * HEAD_DIM])
            attn_row = pl.assemble(attn_row, flat, [0, first_head * HEAD_DIM])
        return attn_row  # noqa: RET504 - a scope cannot hold the `return`

    return attend_group


VARIANTS = {"staged": make_staged}


def build_scope2(variant: str = "staged", **sizes: Any):
    """The program, with any size of `DecodeShape` changed by name."""
    s = shape_for(variant, **sizes)
    BATCH, HIDDEN, KV_WIDTH = s.batch, s.hidden, s.kv_width
    MAX_SEQ, HEAD_DIM, CACHE_ROWS = s.max_seq, s.head_dim, s.cache_rows
    attend = VARIANTS[variant](s)

    @pl.program
    class Qwen3Scope2:
        @pl.function(type=pl.FunctionType.Opaque)
        def scope2(
            self,
            q_proj: pl.Tensor[[BATCH, HIDDEN], pl.FP32],
            k_proj: pl.Tensor[[BATCH, KV_WIDTH], pl.FP32],
            v_proj: pl.Tensor[[BATCH, KV_WIDTH], pl.FP32],
            seq_lens: pl.Tensor[[BATCH], pl.INT32],
            rope_cos: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            rope_sin: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            k_cache: pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16],
            v_cache: pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16],
            attn_out: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
        ):
            k_cache, v_cache, attn_out = attend(
                q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out
            )
            return k_cache, v_cache, attn_out

    return Qwen3Scope2


MODEL = Model("scope2", tuple(VARIANTS), build_scope2, shape_for, specs, golden, tolerance=3e-3)

if __name__ == "__main__":
    raise SystemExit(main(MODEL))
