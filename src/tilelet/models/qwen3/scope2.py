# pyright: basic
"""Scope 2 of a Qwen3 decode layer: RoPE, update of the K/V caches, attention over the caches.

Run it:   python -m tilelet.models.qwen3.scope2 --max-seq 512 -p a2a3sim

Versions:
  staged         as first written: four tasks per block of context, each passing its result to the
                 next through global memory; eight query heads are padded to sixteen cube rows.
  fused          one task per sequence and K/V head: scores, exponentials and partial outputs never
                 become tensors; long contexts are submitted first. Batch 16 with 8 K/V heads: 128
                 tasks, whatever the context.
  padding_free   one task per sequence and two K/V heads, whose query heads share a tile: all
                 sixteen rows are used. 64 tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.attention import (
    ONE_HEAD_TILE,
    make_cache_update,
    make_one_kv_head,
    make_staged_group,
    make_two_kv_heads,
)
from tilelet.models.qwen3.script import ShippedModel, Variant, main
from tilelet.models.qwen3.shapes import LENGTH_CLASSES, DecodeShape
from tilelet.runtime import TensorSpec


def specs(s: DecodeShape) -> list[TensorSpec]:
    return [
        *inputs.projections(s),
        inputs.seq_lens(s),
        *inputs.rope(s),
        *inputs.caches(s),
        TensorSpec("attn_out", (s.batch, s.hidden), pl.BF16, is_output=True),
    ]


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def scope2(tensors: dict[str, Array]) -> None:
        q, k, v = (reference.double(tensors[f"{n}_proj"]) for n in ("q", "k", "v"))
        tensors["attn_out"][:] = attention_output(q, k, v, tensors, s)

    return scope2


def attention_output(
    q_proj: Array, k_proj: Array, v_proj: Array, tensors: dict[str, Array], s: DecodeShape
) -> Array:
    """Return the attention of every sequence, after adding the new position to the caches."""
    out = np.empty_like(q_proj)
    k_cache, v_cache = (
        tensors[name].reshape(s.batch, s.kv_heads, s.max_seq, s.head_dim)
        for name in ("k_cache", "v_cache")
    )
    for b in range(s.batch):
        context = int(tensors["seq_lens"][b])
        cos, sin = (tensors[f"rope_{n}"][context - 1] for n in ("cos", "sin"))
        keys = reference.rotate(k_proj[b].reshape(s.kv_heads, s.head_dim), cos, sin)
        k_cache[b, :, context - 1] = reference.bf16(keys)
        v_cache[b, :, context - 1] = reference.bf16(v_proj[b].reshape(s.kv_heads, s.head_dim))
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
        return attn_out

    return staged


def make_fused(s: DecodeShape):
    HEAD_DIM, MAX_SEQ = s.head_dim, s.max_seq
    attend_head = make_one_kv_head(s)

    @pl.inline
    def attention_task(q_rows, k_new, v_new, cos, sin, k_cache, v_cache, head, pos):
        k_rows = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
        v_rows = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
            context = attend_head(q_rows, k_new, v_new, cos, sin, k_rows, v_rows, pos)
        return context  # noqa: RET504 - a scope cannot hold the `return`

    return make_attention_tasks(s, 1, attention_task)


def make_padding_free(s: DecodeShape):
    HEAD_DIM, MAX_SEQ = s.head_dim, s.max_seq
    attend_heads = make_two_kv_heads(s)

    @pl.inline
    def attention_task(q_rows, k_new, v_new, cos, sin, k_cache, v_cache, head, pos):
        k_first = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
        k_second = pl.slice(k_cache, [MAX_SEQ, HEAD_DIM], [(head + 1) * MAX_SEQ, 0])
        v_first = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [head * MAX_SEQ, 0])
        v_second = pl.slice(v_cache, [MAX_SEQ, HEAD_DIM], [(head + 1) * MAX_SEQ, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
            context = attend_heads(
                q_rows, k_new, v_new, cos, sin, k_first, k_second, v_first, v_second, pos
            )
        return context  # noqa: RET504 - a scope cannot hold the `return`

    return make_attention_tasks(s, 2, attention_task)


def make_attention_tasks(s: DecodeShape, kv_heads: int, attention_task: Any):
    """One task per sequence and `kv_heads` K/V heads, each on its own windows of everything.

    Long contexts come first: a long task that starts last would leave the other cores idle.
    """
    BATCH, KV_HEADS, HEADS, HEAD_DIM = s.batch, s.kv_heads, s.heads, s.head_dim
    LENGTH_CLASS = s.length_class
    Q_ROWS = kv_heads * s.q_per_kv
    if KV_HEADS % kv_heads:
        raise BadTile("kv_heads", KV_HEADS, f"a multiple of {kv_heads}")

    @pl.inline
    def attend_sequence(q_heads, k_heads, v_heads, cos, sin, k_cache, v_cache, out_heads, b, pos):
        for ki in pl.parallel(0, KV_HEADS, kv_heads):
            head = b * KV_HEADS + ki
            first_row = head // kv_heads * Q_ROWS
            q_rows = pl.slice(q_heads, [Q_ROWS, HEAD_DIM], [first_row, 0])
            k_new = pl.slice(k_heads, [kv_heads, HEAD_DIM], [head, 0])
            v_new = pl.slice(v_heads, [kv_heads, HEAD_DIM], [head, 0])
            context = attention_task(q_rows, k_new, v_new, cos, sin, k_cache, v_cache, head, pos)
            out_heads = pl.assemble(out_heads, context, [first_row, 0])
        return out_heads

    @pl.inline
    def attention(q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out):
        q_heads = pl.reshape(q_proj, [BATCH * HEADS, HEAD_DIM])
        k_heads = pl.reshape(k_proj, [BATCH * KV_HEADS, HEAD_DIM])
        v_heads = pl.reshape(v_proj, [BATCH * KV_HEADS, HEAD_DIM])
        out_heads = pl.reshape(attn_out, [BATCH * HEADS, HEAD_DIM])
        for shorter in pl.parallel(LENGTH_CLASSES):
            for b in pl.parallel(BATCH):
                pos = pl.read(seq_lens, [b]) - 1
                if pos // LENGTH_CLASS == LENGTH_CLASSES - 1 - shorter:
                    cos = pl.slice(rope_cos, [1, HEAD_DIM], [pos, 0])
                    sin = pl.slice(rope_sin, [1, HEAD_DIM], [pos, 0])
                    out_heads = attend_sequence(
                        q_heads, k_heads, v_heads, cos, sin, k_cache, v_cache, out_heads, b, pos
                    )
        return attn_out

    return attention


def program(s: DecodeShape, attend: Any):
    BATCH, HIDDEN, KV_WIDTH = s.batch, s.hidden, s.kv_width
    MAX_SEQ, HEAD_DIM, CACHE_ROWS = s.max_seq, s.head_dim, s.cache_rows

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
            k_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
            v_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
            attn_out: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.BF16]],
        ):
            attn_out = attend(
                q_proj, k_proj, v_proj, seq_lens, rope_cos, rope_sin, k_cache, v_cache, attn_out
            )
            return k_cache, v_cache, attn_out

    return Qwen3Scope2


MODEL = ShippedModel(
    name="scope2",
    about="RoPE, cache update and attention of a decode layer",
    variants={
        "staged": Variant(
            "four tasks per block of context, results through global memory", make_staged
        ),
        "fused": Variant(
            "one task per sequence and K/V head", make_fused, {"walk_tile": ONE_HEAD_TILE}
        ),
        "padding_free": Variant(
            "one task per sequence and two K/V heads, no cube row wasted", make_padding_free
        ),
    },
    program=program,
    specs=specs,
    golden=golden,
    tolerance=3e-3,
)
build_scope2 = MODEL.build


if __name__ == "__main__":
    raise SystemExit(main(MODEL))
