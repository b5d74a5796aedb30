# pyright: basic
"""Attention of one new token per sequence over paged caches: whole contexts, or split ones.

One task per sequence and K/V head leaves cores idle if there are few sequences: one sequence of a
model with eight K/V heads keeps eight cores busy, however long its context. A split context
(flash-decoding) is several tasks, each with the running softmax of its part, and one that combines
them. The parts are a fixed number of positions, whatever the batch and the number of threads, so
that neither changes a bit of the result (ADR 17).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tilelet.language as pl
from tilelet.models.qwen3.attention import (
    make_absorb,
    make_nothing_absorbed,
    make_scaled_scores,
)

if TYPE_CHECKING:
    from tilelet.models.qwen3.published import LayerShape


def make_cache_row(kv_heads: int, page: int):
    """The cache row of position `pos` of a sequence, given the sequence's row of the table."""

    @pl.inline
    def cache_row(block_table, b, kv_head, pos):
        number = pl.read(block_table, [b, pos // page])
        return (number * kv_heads + kv_head) * page + pos % page

    return cache_row


def make_absorb_range(s: LayerShape, mode: str):
    """Running softmax of one K/V head's queries over positions `first` to `end` of a sequence."""
    c, D, SEQ_TILE = s.config, s.config.head_dim, s.seq_tile
    GROUP = c.q_per_kv
    Q_ROWS = math.ceil(GROUP / s.cube_rows) * s.cube_rows
    cache_row = make_cache_row(c.kv_heads, s.page)
    nothing_absorbed = make_nothing_absorbed(Q_ROWS, D)
    scaled_scores = make_scaled_scores(GROUP, SEQ_TILE, D)
    absorb = make_absorb(SEQ_TILE, D, s.dtype, mode)

    @pl.inline
    def absorb_range(q_heads, first_head, block_table, k_cache, v_cache, b, h, first, end):
        query = pl.slice(q_heads, [Q_ROWS, D], [first_head, 0], valid_shape=[GROUP, D])
        mi, li, oi = nothing_absorbed()
        for s0 in pl.range(first, end, SEQ_TILE):
            place = cache_row(block_table, b, h, s0)
            used = pl.min(SEQ_TILE, end - s0)
            scores = scaled_scores(query, k_cache, place, used)
            mi, li, oi = absorb(scores, v_cache, place, used, mi, li, oi)
        return mi, li, oi

    return absorb_range


def make_whole_contexts(s: LayerShape, mode: str):
    """Attention of sequences `b`..., one task per sequence and K/V head."""
    c, T, D, DTYPE = s.config, s.row_tile, s.config.head_dim, s.dtype
    HEADS, KV_HEADS, GROUP = c.heads, c.kv_heads, c.q_per_kv
    absorb_range = make_absorb_range(s, mode)

    @pl.inline
    def attend(q_heads, block_table, seq_lens, k_cache, v_cache, b, valid):
        attended = pl.create_tensor([T * HEADS, D], dtype=DTYPE)
        for r in pl.parallel(valid):
            context = pl.read(seq_lens, [b + r])
            for h in pl.parallel(KV_HEADS):
                first = r * HEADS + h * GROUP
                own = pl.slice(attended, [GROUP, D], [first, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
                    _, li, oi = absorb_range(
                        q_heads, first, block_table, k_cache, v_cache, b + r, h, 0, context
                    )
                    heads = pl.cast(pl.row_expand_div(oi, li), target_type=DTYPE, mode=mode)
                    own = pl.assemble(own, pl.slice(heads, [GROUP, D], [0, 0]), [0, 0])
        return attended

    return attend


def make_split_contexts(s: LayerShape, mode: str):
    """Attention of sequences `b`..., one task per sequence, K/V head and `context_part` positions.

    A context of one part gives the same bits as `make_whole_contexts`.
    """
    c, T, D, DTYPE, PART = s.config, s.row_tile, s.config.head_dim, s.dtype, s.context_part
    HEADS, KV_HEADS, GROUP = c.heads, c.kv_heads, c.q_per_kv
    PARTS = math.ceil(s.max_seq / PART)
    absorb_range = make_absorb_range(s, mode)
    attend_part = make_part(GROUP, D, absorb_range)
    combine = make_combine(GROUP, D)

    @pl.inline
    def attend(q_heads, block_table, seq_lens, k_cache, v_cache, b, valid):
        attended = pl.create_tensor([T * HEADS, D], dtype=DTYPE)
        # A row of maxima and sums, and GROUP rows of outputs, per sequence, K/V head and part.
        maxima = pl.create_tensor([T * KV_HEADS * PARTS, GROUP], dtype=pl.FP32)
        sums = pl.create_tensor([T * KV_HEADS * PARTS, GROUP], dtype=pl.FP32)
        outputs = pl.create_tensor([T * HEADS * PARTS, D], dtype=pl.FP32)
        for r in pl.parallel(valid):
            context = pl.read(seq_lens, [b + r])
            parts = (context + PART - 1) // PART
            for h in pl.parallel(KV_HEADS):
                first = r * HEADS + h * GROUP
                row = (r * KV_HEADS + h) * PARTS
                maxima_of_head = pl.slice(maxima, [PARTS, GROUP], [row, 0])
                sums_of_head = pl.slice(sums, [PARTS, GROUP], [row, 0])
                outputs_of_head = pl.slice(outputs, [PARTS * GROUP, D], [row * GROUP, 0])
                for part in pl.parallel(parts):
                    maximum = pl.slice(maxima_of_head, [1, GROUP], [part, 0])
                    total = pl.slice(sums_of_head, [1, GROUP], [part, 0])
                    output = pl.slice(outputs_of_head, [GROUP, D], [part * GROUP, 0])
                    s0 = part * PART
                    end = pl.min(s0 + PART, context)
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention_part"):
                        maximum, total, output = attend_part(
                            q_heads, first, block_table, k_cache, v_cache, b + r, h, s0, end,
                            maximum, total, output,
                        )  # fmt: skip
                own = pl.slice(attended, [GROUP, D], [first, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="combine_parts"):
                    combined = combine(maxima_of_head, sums_of_head, outputs_of_head, parts)
                    own = pl.assemble(own, pl.cast(combined, target_type=DTYPE, mode=mode), [0, 0])
        return attended

    return attend


def make_part(group: int, head_dim: int, absorb_range):
    """Store the running softmax of one part of a context: maxima and sums as rows, and outputs."""

    @pl.inline
    def attend_part(
        q_heads, first_head, block_table, k_cache, v_cache, b, h, first, end, maximum, total, output
    ):
        mi, li, oi = absorb_range(
            q_heads, first_head, block_table, k_cache, v_cache, b, h, first, end
        )
        mi_row = pl.reshape(pl.slice(mi, [group, 1], [0, 0]), [1, group])
        li_row = pl.reshape(pl.slice(li, [group, 1], [0, 0]), [1, group])
        maximum = pl.assemble(maximum, mi_row, [0, 0])
        total = pl.assemble(total, li_row, [0, 0])
        output = pl.assemble(output, pl.slice(oi, [group, head_dim], [0, 0]), [0, 0])
        return maximum, total, output

    return attend_part


def make_combine(group: int, head_dim: int):
    """Combine the running softmax of the first `parts` parts, in their order."""

    @pl.inline
    def combine(maxima, sums, outputs, parts):
        mi = pl.reshape(pl.slice(maxima, [1, group], [0, 0]), [group, 1])
        li = pl.reshape(pl.slice(sums, [1, group], [0, 0]), [group, 1])
        oi = pl.slice(outputs, [group, head_dim], [0, 0])
        for part in pl.range(1, parts):
            mi_part = pl.reshape(pl.slice(maxima, [1, group], [part, 0]), [group, 1])
            li_part = pl.reshape(pl.slice(sums, [1, group], [part, 0]), [group, 1])
            oi_part = pl.slice(outputs, [group, head_dim], [part * group, 0])
            mi_new = pl.maximum(mi, mi_part)
            alpha = pl.exp(pl.sub(mi, mi_new))
            beta = pl.exp(pl.sub(mi_part, mi_new))
            li = pl.add(pl.mul(li, alpha), pl.mul(li_part, beta))
            oi = pl.add(pl.row_expand_mul(oi, alpha), pl.row_expand_mul(oi_part, beta))
            mi = mi_new
        return pl.row_expand_div(oi, li)

    return combine
