"""Scope 2 of a Qwen3 decode layer: RoPE, update of the K/V caches, attention over the caches.

Run it:   python -m tilelet.models.qwen3.scope2 --max-seq 512 -p a2a3sim

Versions:
  staged         as first written: four tasks per block of context, each handing its result to the
                 next through global memory; eight query heads are padded to sixteen cube rows.
  fused          one task per sequence and K/V head: scores, exponentials and partial outputs never
                 become tensors. Batch 16 with 8 K/V heads: 128 tasks, whatever the context.
  padding_free   one task per sequence and two K/V heads, whose query heads share a tile: all
                 sixteen rows are wanted. 64 tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.attention import (
    make_cache_update,
    make_one_kv_head,
    make_staged_group,
    make_two_kv_heads,
)
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.script import Model, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec

# A [128, 128] block of keys is half of the cube's right buffer: two fit, one being filled.
LONG_TILES = {"seq_tile": 128}
OWN_SIZES = {"fused": LONG_TILES, "padding_free": LONG_TILES}


def shape_for(variant: str, **sizes: Any) -> DecodeShape:
    """The sizes a variant is made for, with those in `sizes` changed."""
    return DecodeShape(**{**OWN_SIZES.get(variant, {}), **sizes})


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
    HEAD_DIM, SEQ_TILE = s.head_dim, s.seq_tile
    Q_PER_KV, Q_GROUPS = s.q_per_kv, s.q_groups
    update_cache = make_cache_update(s)
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
                cache_row = b * KV_HEADS * MAX_SEQ + ki * MAX_SEQ + pos
                k_cache, v_cache = update_cache(
                    k_proj, v_proj, cos, sin, k_cache, v_cache, b, ki * HEAD_DIM, cache_row
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


def make_fused(s: DecodeShape):
    return make_attention_tasks(s, 1, make_one_kv_head(s))


def make_padding_free(s: DecodeShape):
    return make_attention_tasks(s, 2, make_two_kv_heads(s))


def make_attention_tasks(s: DecodeShape, kv_heads: int, attend: Any):
    """One task per sequence and `kv_heads` K/V heads, each on its own windows of everything."""
    BATCH, KV_HEADS, HEADS, HEAD_DIM = s.batch, s.kv_heads, s.heads, s.head_dim
    Q_ROWS, CACHE_ROWS = kv_heads * s.q_per_kv, kv_heads * s.max_seq
    if KV_HEADS % kv_heads:
        raise ValueError(f"kv_heads {KV_HEADS} is not a multiple of {kv_heads}")
    TASKS = KV_HEADS // kv_heads

    @pl.inline
    def attention(q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out):
        q_heads = pl.reshape(q_proj, [BATCH * HEADS, HEAD_DIM])
        k_heads = pl.reshape(k_proj, [BATCH * KV_HEADS, HEAD_DIM])
        v_heads = pl.reshape(v_proj, [BATCH * KV_HEADS, HEAD_DIM])
        out_heads = pl.reshape(attn_out, [BATCH * HEADS, HEAD_DIM])
        for b in pl.parallel(BATCH):
            pos = pl.read(seq_lens, [b]) - 1
            cos = pl.slice(rope_cos, [1, HEAD_DIM], [pos, 0])
            sin = pl.slice(rope_sin, [1, HEAD_DIM], [pos, 0])
            for group in pl.parallel(TASKS):
                task = b * TASKS + group
                q_rows = pl.slice(q_heads, [Q_ROWS, HEAD_DIM], [task * Q_ROWS, 0])
                k_new = pl.slice(k_heads, [kv_heads, HEAD_DIM], [task * kv_heads, 0])
                v_new = pl.slice(v_heads, [kv_heads, HEAD_DIM], [task * kv_heads, 0])
                k_rows = pl.slice(k_cache, [CACHE_ROWS, HEAD_DIM], [task * CACHE_ROWS, 0])
                v_rows = pl.slice(v_cache, [CACHE_ROWS, HEAD_DIM], [task * CACHE_ROWS, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
                    context, k_rows, v_rows = attend(
                        q_rows, k_new, v_new, cos, sin, k_rows, v_rows, pos
                    )
                out_heads = pl.assemble(out_heads, context, [task * Q_ROWS, 0])
        return k_cache, v_cache, attn_out

    return attention


VARIANTS = {"staged": make_staged, "fused": make_fused, "padding_free": make_padding_free}


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
