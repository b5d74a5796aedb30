"""Pieces of the real Qwen3 layer, spliced in where they are called.

All work on tiles of `rows` rows of which the first `valid` count. The others are zeros from the
first load on, so that they stay finite; they never reach a cache or an output. Values are rounded
to nearest even, as the reference implementation rounds.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType

# Below every score; finite, so that the difference of two of them is no NaN.
LOWEST = -1e30


def make_load(rows: int, columns: int):
    """A `[rows, columns]` window in FP32, zero below its first `valid` rows."""

    @pl.inline
    def load(x, row, column, valid):
        window = pl.slice(x, [rows, columns], [row, column], valid_shape=[valid, columns])
        return pl.fillpad(pl.cast(window, target_type=pl.FP32))

    return load


def make_norm_rows(columns: int, eps: float):
    """RMSNorm of the rows of a tile, which are on chip in full."""
    COLUMNS_INV = 1.0 / columns

    @pl.inline
    def norm_rows(x, gamma):
        variance = pl.add(pl.mul(pl.row_sum(pl.mul(x, x)), COLUMNS_INV), eps)
        return pl.col_expand_mul(pl.row_expand_mul(x, pl.recip(pl.sqrt(variance))), gamma)

    return norm_rows


def make_norm_hidden(rows: int, hidden: int, k_chunk: int, eps: float, dtype: DType):
    """RMSNorm of rows too long to be on chip: a pass for the scale, a pass to apply it."""
    BLOCKS = hidden // k_chunk
    HIDDEN_INV = 1.0 / hidden
    load = make_load(rows, k_chunk)

    @pl.inline
    def norm_hidden(x, gamma, out, row, valid):
        square_sum = pl.full([rows, 1], dtype=pl.FP32, value=0.0)
        for kb in pl.range(BLOCKS):
            chunk = load(x, row, kb * k_chunk, valid)
            square_sum = pl.add(square_sum, pl.row_sum(pl.mul(chunk, chunk)))
        scale = pl.recip(pl.sqrt(pl.add(pl.mul(square_sum, HIDDEN_INV), eps)))
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            scaled = pl.row_expand_mul(load(x, row, k0, valid), scale)
            normed = pl.col_expand_mul(scaled, pl.slice(gamma, [1, k_chunk], [0, k0]))
            out = pl.assemble(out, pl.cast(normed, target_type=dtype, mode="rint"), [0, k0])
        return out

    return norm_hidden


def make_rope_rows(rows: int, head_dim: int):
    """RoPE by halves where every row has a position, and so a row of the tables, of its own."""
    HALF = head_dim // 2

    @pl.inline
    def rope_rows(x, cos, sin):
        lo = pl.slice(x, [rows, HALF], [0, 0])
        hi = pl.slice(x, [rows, HALF], [0, HALF])
        cos_lo = pl.slice(cos, [rows, HALF], [0, 0])
        cos_hi = pl.slice(cos, [rows, HALF], [0, HALF])
        sin_lo = pl.slice(sin, [rows, HALF], [0, 0])
        sin_hi = pl.slice(sin, [rows, HALF], [0, HALF])
        rotated_lo = pl.sub(pl.mul(lo, cos_lo), pl.mul(hi, sin_lo))
        rotated_hi = pl.add(pl.mul(hi, cos_hi), pl.mul(lo, sin_hi))
        return pl.concat(rotated_lo, rotated_hi)

    return rope_rows


def make_cache_row(kv_heads: int, page: int):
    """Where position `pos` of a sequence lies in a cache, by the sequence's row of the table.

    Pages hold `[kv_heads, page]` rows. A page of `max_seq` positions is a contiguous cache.
    """

    @pl.inline
    def cache_row(block_table, b, kv_head, pos):
        number = pl.read(block_table, [b, pos // page])
        return (number * kv_heads + kv_head) * page + pos % page

    return cache_row


def make_scores(head_dim: int, seq_tile: int):
    """Scaled scores of queries against `used` keys; minus infinity where there is no key."""
    SCALE = head_dim**-0.5

    @pl.inline
    def scores(query, k_cache, row, used):
        k = pl.slice(k_cache, [seq_tile, head_dim], [row, 0], valid_shape=[used, head_dim])
        known = pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32)
        return pl.mul(pl.fillpad(known, pad_value=pl.PadValue.min), SCALE)

    return scores


def make_causal(tokens: int, heads: int, seq_tile: int):
    """Scores of `tokens` x `heads` rows, with keys later than a row's token out of sight."""
    ROWS = tokens * heads

    @pl.inline
    def causal(scores, first_token, first_key):
        token = pl.cast(pl.arange(first_token, [1, tokens], dtype=pl.INT32), pl.FP32)
        key = pl.cast(pl.arange(first_key, [1, seq_tile], dtype=pl.INT32), pl.FP32)
        per_head = pl.full([tokens, heads], dtype=pl.FP32, value=0.0)
        per_head = pl.row_expand_add(per_head, pl.reshape(token, [tokens, 1]))
        distance = pl.full([ROWS, seq_tile], dtype=pl.FP32, value=0.0)
        distance = pl.row_expand_add(distance, pl.reshape(per_head, [ROWS, 1]))
        behind = pl.minimum(pl.col_expand_sub(distance, key), 0.0)
        return pl.add(scores, pl.mul(behind, -LOWEST))

    return causal


def make_absorb(head_dim: int, seq_tile: int, dtype: DType):
    """One block of an online softmax: running output, sum and maximum, carried over blocks."""

    @pl.inline
    def absorb(scores, v_cache, row, used, oi, li, mi):
        v = pl.slice(v_cache, [seq_tile, head_dim], [row, 0], valid_shape=[used, head_dim])
        mi_new = pl.maximum(mi, pl.row_max(scores))
        alpha = pl.exp(pl.sub(mi, mi_new))
        weights = pl.cast(pl.exp(pl.row_expand_sub(scores, mi_new)), target_type=dtype, mode="rint")
        li = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(weights, target_type=pl.FP32)))
        update = pl.matmul(weights, pl.fillpad(v), out_dtype=pl.FP32)
        oi = pl.add(pl.row_expand_mul(oi, alpha), update)
        return oi, li, mi_new

    return absorb
