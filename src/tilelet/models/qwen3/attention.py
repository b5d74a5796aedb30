# pyright: basic
"""Attention of one new token over a K/V cache: the kernels of scope 2 and the decode layers.

  staged    four tasks per block of context, as first written
  cached    one task per sequence and K/V head; nothing goes through global memory in between
  one       the same, and the task also rotates queries and key and updates the caches
  two       the same for two K/V heads, whose query heads fill all rows of the cube's tiles

The new token's key and value are not read back from the cache: `one` and `two` initialize their
running maximum, sum and output from it, and then process the cached context before it.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType
from tilelet.models.qwen3.blocks import make_rope, make_rope_halves, make_softmax_weights
from tilelet.models.qwen3.shapes import DecodeShape

# Below every score; finite, so that the difference of two of them is not NaN.
LOWEST = -1e30
STAGES = 2
# `walk_tile` if a task has one K/V head instead of two.
ONE_HEAD_TILE = 512


def make_cache_update(s: DecodeShape):
    """Store the rotated new key and the value of one K/V head into their cache rows, in a task."""
    HEAD_DIM, HALF = s.head_dim, s.head_dim // 2
    rotated_low, rotated_high = make_rope_halves(HALF)

    @pl.inline
    def update_cache(k_proj, v_proj, cos, sin, k_cache, v_cache, row, kv_col, cache_row):
        with pl.incore():
            k_lo = pl.slice(k_proj, [1, HALF], [row, kv_col])
            k_hi = pl.slice(k_proj, [1, HALF], [row, kv_col + HALF])
            rot_lo = rotated_low(k_lo, k_hi, cos, sin)
            rot_hi = rotated_high(k_lo, k_hi, cos, sin)
            k_cache = pl.assemble(k_cache, pl.cast(rot_lo, target_type=pl.BF16), [cache_row, 0])
            k_cache = pl.assemble(k_cache, pl.cast(rot_hi, target_type=pl.BF16), [cache_row, HALF])
            v_row = pl.slice(v_proj, [1, HEAD_DIM], [row, kv_col])
            v_cache = pl.assemble(v_cache, pl.cast(v_row, target_type=pl.BF16), [cache_row, 0])
        return k_cache, v_cache

    return update_cache


def make_staged_group(s: DecodeShape):
    """Attention of one group of query heads of one sequence."""
    HEAD_DIM, HALF, SEQ_TILE = s.head_dim, s.head_dim // 2, s.seq_tile
    Q_HEAD_BATCH, Q_HEAD_PAD = s.q_head_batch, s.q_head_pad
    ROWS = s.q_vector_rows
    ATTN_SCALE = HEAD_DIM**-0.5
    rotated_low, rotated_high = make_rope_halves(HALF)

    @pl.inline
    def all_rows(context):
        return context

    @pl.inline
    def first_rows(context):
        return pl.slice(context, [Q_HEAD_BATCH, HEAD_DIM], [0, 0])

    heads_of = all_rows if ROWS == Q_HEAD_BATCH else first_rows

    @pl.inline
    def attend_group(
        q_proj, cos, sin, k_cache, v_cache, attn_row, row, first_head, cache_row0, ctx_len,
        ctx_blocks,
    ):  # fmt: skip
        q_padded = pl.create_tensor([Q_HEAD_PAD, HEAD_DIM], dtype=pl.BF16)
        with pl.incore():
            for qi in pl.range(Q_HEAD_BATCH):
                q_col = (first_head + qi) * HEAD_DIM
                q_lo = pl.slice(q_proj, [1, HALF], [row, q_col])
                q_hi = pl.slice(q_proj, [1, HALF], [row, q_col + HALF])
                rot_lo = rotated_low(q_lo, q_hi, cos, sin)
                rot_hi = rotated_high(q_lo, q_hi, cos, sin)
                q_padded = pl.assemble(q_padded, pl.cast(rot_lo, target_type=pl.BF16), [qi, 0])
                q_padded = pl.assemble(q_padded, pl.cast(rot_hi, target_type=pl.BF16), [qi, HALF])
            q_zero = pl.full([Q_HEAD_PAD - Q_HEAD_BATCH, HEAD_DIM], dtype=pl.FP32, value=0.0)
            q_padded = pl.assemble(
                q_padded, pl.cast(q_zero, target_type=pl.BF16), [Q_HEAD_BATCH, 0]
            )
        with pl.incore():
            oi = pl.full([ROWS, HEAD_DIM], dtype=pl.FP32, value=0.0)
            li = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=0.0), [ROWS, 1])
            mi = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=LOWEST), [ROWS, 1])

        for sb in pl.range(ctx_blocks):
            s0 = sb * SEQ_TILE
            valid_len = pl.min(SEQ_TILE, ctx_len - s0)
            row0 = cache_row0 + s0
            raw_scores_pad = pl.create_tensor([Q_HEAD_PAD, SEQ_TILE], dtype=pl.FP32)
            with pl.incore():
                k_tile = pl.slice(
                    k_cache, [SEQ_TILE, HEAD_DIM], [row0, 0], valid_shape=[valid_len, HEAD_DIM]
                )
                raw = pl.matmul(q_padded, k_tile, b_trans=True, out_dtype=pl.FP32)
                raw_scores_pad = pl.assemble(raw_scores_pad, raw, [0, 0])
            exp_padded = pl.create_tensor([Q_HEAD_PAD, SEQ_TILE], dtype=pl.BF16)
            with pl.incore():
                known = pl.slice(
                    raw_scores_pad, [ROWS, SEQ_TILE], [0, 0], valid_shape=[ROWS, valid_len],
                )  # fmt: skip
                scores = pl.mul(pl.fillpad(known, pad_value=pl.PadValue.min), ATTN_SCALE)
                cur_mi = pl.row_max(scores)
                exp_bf16 = pl.cast(pl.exp(pl.row_expand_sub(scores, cur_mi)), target_type=pl.BF16)
                cur_li = pl.row_sum(pl.cast(exp_bf16, target_type=pl.FP32))
                exp_padded = pl.assemble(exp_padded, exp_bf16, [0, 0])
                exp_zero = pl.full([Q_HEAD_PAD - ROWS, SEQ_TILE], dtype=pl.FP32, value=0.0)
                exp_padded = pl.assemble(
                    exp_padded, pl.cast(exp_zero, target_type=pl.BF16), [ROWS, 0]
                )
            oi_tmp_pad = pl.create_tensor([Q_HEAD_PAD, HEAD_DIM], dtype=pl.FP32)
            with pl.incore():
                v_tile = pl.slice(
                    v_cache, [SEQ_TILE, HEAD_DIM], [row0, 0], valid_shape=[valid_len, HEAD_DIM]
                )
                oi_tmp_pad = pl.assemble(
                    oi_tmp_pad, pl.matmul(exp_padded, v_tile, out_dtype=pl.FP32), [0, 0]
                )
            with pl.incore():
                oi_tmp = pl.slice(oi_tmp_pad, [ROWS, HEAD_DIM], [0, 0])
                mi_new = pl.maximum(mi, cur_mi)
                alpha = pl.exp(pl.sub(mi, mi_new))
                beta = pl.exp(pl.sub(cur_mi, mi_new))
                li = pl.add(pl.mul(alpha, li), pl.mul(beta, cur_li))
                oi = pl.add(pl.row_expand_mul(oi, alpha), pl.row_expand_mul(oi_tmp, beta))
                mi = mi_new

        with pl.incore():
            context = pl.cast(pl.row_expand_div(oi, li), target_type=pl.BF16)
            flat = pl.reshape(heads_of(context), [1, Q_HEAD_BATCH * HEAD_DIM])
            attn_row = pl.assemble(attn_row, flat, [0, first_head * HEAD_DIM])
        return attn_row  # noqa: RET504 - a scope cannot hold the `return`

    return attend_group


def make_scaled_scores(rows: int, tile: int, head_dim: int):
    """Scores of `rows` queries against `keys` rows of a cache from `row` on, in a block of `tile`.

    The padding past those keys is filled: a maximum ignores it, and its exponential is zero.
    The number of keys is set again on the vector unit's scores, because PyPTO's compiler
    otherwise drops it from that half of a kernel.
    """
    ATTN_SCALE = head_dim**-0.5

    @pl.inline
    def raw_scores(q, k_tile):
        return pl.matmul(q, k_tile, b_trans=True, out_dtype=pl.FP32)

    @pl.inline
    def scaled_and_filled(raw, keys):
        return pl.fillpad(
            pl.tensor.set_validshape(pl.mul(raw, ATTN_SCALE), rows, keys), pad_value=pl.PadValue.min
        )

    # No named values here: a name would keep its valid region, and the last block has another one.
    @pl.inline
    def scaled_scores(q, k_rows, row, keys):
        return scaled_and_filled(
            raw_scores(
                q, pl.slice(k_rows, [tile, head_dim], [row, 0], valid_shape=[keys, head_dim])
            ),
            keys,
        )

    return scaled_scores


def make_weighted_values(tile: int, head_dim: int):
    """The weighted sum of `keys` rows of a cache of values from `row` on."""

    @pl.inline
    def weighted_values(weights, v_rows, row, keys):
        return pl.matmul(
            weights,
            pl.slice(v_rows, [tile, head_dim], [row, 0], valid_shape=[keys, head_dim]),
            out_dtype=pl.FP32,
        )

    return weighted_values


def make_absorb(tile: int, head_dim: int, dtype: DType = pl.BF16, mode: str = "round"):
    """Accumulate a block of scores and its values into the running softmax."""
    softmax_weights = make_softmax_weights(dtype, mode)
    weighted_values = make_weighted_values(tile, head_dim)

    @pl.inline
    def absorb(scores, v_rows, row, keys, mi, li, oi):
        mi_new = pl.maximum(mi, pl.row_max(scores))
        alpha = pl.exp(pl.sub(mi, mi_new))
        p = softmax_weights(scores, mi_new)
        li_new = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(p, target_type=pl.FP32)))
        update = weighted_values(p, v_rows, row, keys)
        return mi_new, li_new, pl.add(pl.row_expand_mul(oi, alpha), update)

    return absorb


def make_nothing_absorbed(rows: int, head_dim: int):
    """Initial running maximum, sum and output of a softmax."""

    @pl.inline
    def nothing_absorbed():
        mi = pl.reshape(pl.full([1, rows], dtype=pl.FP32, value=LOWEST), [rows, 1])
        li = pl.reshape(pl.full([1, rows], dtype=pl.FP32, value=0.0), [rows, 1])
        oi = pl.full([rows, head_dim], dtype=pl.FP32, value=0.0)
        return mi, li, oi

    return nothing_absorbed


def make_context_walk(s: DecodeShape):
    """Online softmax over the first `length` rows of one head's part of the caches.

    The running maximum, sum and output start from the given values; the result is the output
    divided by the sum.
    """
    WALK_TILE = s.part("max_seq", "walk_tile")
    scaled_scores = make_scaled_scores(s.q_per_kv, WALK_TILE, s.head_dim)
    softmax_weights = make_softmax_weights()
    weighted_values = make_weighted_values(WALK_TILE, s.head_dim)

    @pl.inline
    def walk(q, k_rows, v_rows, length, mi_before, li_before, oi_before):
        mi = mi_before
        li = li_before
        oi = oi_before
        for s0 in pl.pipeline(0, length, WALK_TILE, stage=STAGES):
            keys = pl.min(WALK_TILE, length - s0)
            scores = scaled_scores(q, k_rows, s0, keys)
            mi_new = pl.maximum(mi, pl.row_max(scores))
            alpha = pl.exp(pl.sub(mi, mi_new))
            p = softmax_weights(scores, mi_new)
            li = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(p, target_type=pl.FP32)))
            update = weighted_values(p, v_rows, s0, keys)
            oi = pl.add(pl.row_expand_mul(oi, alpha), update)
            mi = mi_new
        return pl.row_expand_div(oi, li)

    return walk


def make_cached_kv_head(s: DecodeShape):
    """Attention of rotated query heads `[heads, head_dim]` BF16 over an up-to-date cache."""
    GROUP, ROWS, HEAD_DIM = s.q_per_kv, s.q_head_pad, s.head_dim
    walk = make_context_walk(s)

    @pl.inline
    def attend(q_rows, k_rows, v_rows, length):
        pl.static_assert(GROUP <= ROWS, "the query heads of a K/V head must fit into one tile")
        q = pl.slice(q_rows, [ROWS, HEAD_DIM], [0, 0], valid_shape=[GROUP, HEAD_DIM])
        no_max = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=LOWEST), [ROWS, 1])
        no_sum = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=0.0), [ROWS, 1])
        no_output = pl.full([ROWS, HEAD_DIM], dtype=pl.FP32, value=0.0)
        attended = walk(q, k_rows, v_rows, length, no_max, no_sum, no_output)
        return pl.slice(pl.cast(attended, target_type=pl.BF16), [GROUP, HEAD_DIM], [0, 0])

    return attend


def make_one_kv_head(s: DecodeShape):
    """Attention of the query heads of one K/V head; call it in a scope.

    q_rows `[heads, head_dim]`, k_row and v_row `[1, head_dim]` are FP32 and not yet rotated;
    k_rows and v_rows are the head's part of the caches, which get the new token.
    """
    GROUP, ROWS, HEAD_DIM, HALF = s.q_per_kv, s.q_head_pad, s.head_dim, s.head_dim // 2
    ATTN_SCALE = s.head_dim**-0.5
    rotate = make_rope(HALF)
    walk = make_context_walk(s)

    @pl.inline
    def attend(q_rows, k_row, v_row, cos, sin, k_rows, v_rows, pos):
        pl.static_assert(GROUP <= ROWS, "the query heads of a K/V head must fit into one tile")
        q_tile = pl.slice(q_rows, [ROWS, HEAD_DIM], [0, 0], valid_shape=[GROUP, HEAD_DIM])
        q_lo = pl.slice(q_tile, [ROWS, HALF], [0, 0])
        q_hi = pl.slice(q_tile, [ROWS, HALF], [0, HALF])
        q = pl.cast(rotate(q_lo, q_hi, cos, sin), target_type=pl.BF16)
        k_lo = pl.slice(k_row, [1, HALF], [0, 0])
        k_hi = pl.slice(k_row, [1, HALF], [0, HALF])
        key = pl.cast(rotate(k_lo, k_hi, cos, sin), target_type=pl.BF16)
        value = pl.cast(v_row, target_type=pl.BF16)

        q_fp32 = pl.cast(q, target_type=pl.FP32)
        own = pl.row_sum(pl.col_expand_mul(q_fp32, pl.cast(key, target_type=pl.FP32)))
        own_score = pl.mul(own, ATTN_SCALE)
        one = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=1.0), [ROWS, 1])
        own_value = pl.col_expand(q_fp32, pl.cast(value, target_type=pl.FP32))
        attended = walk(q, k_rows, v_rows, pos, own_score, one, own_value)
        k_rows = pl.assemble(k_rows, key, [pos, 0])
        v_rows = pl.assemble(v_rows, value, [pos, 0])
        return pl.slice(pl.cast(attended, target_type=pl.BF16), [GROUP, HEAD_DIM], [0, 0])

    return attend


def make_two_kv_heads(s: DecodeShape):
    """Attention of the query heads of two K/V heads; call it in a scope.

    Arguments as for one head, with twice as many rows, and each head's part of a cache separate.
    The upper half of the queries' tile contains those of the first K/V head, the lower half those
    of the second. A product of the upper half (zeros below it) and one of the lower half (zeros
    above it) add up on the cube to a tile in which every row is used.
    """
    GROUP, ROWS, HEAD_DIM, HALF = s.q_per_kv, 2 * s.q_per_kv, s.head_dim, s.head_dim // 2
    TILE, ATTN_SCALE = s.part("max_seq", "walk_tile"), s.head_dim**-0.5
    rotate = make_rope(HALF)
    softmax_weights = make_softmax_weights()

    @pl.inline
    def block(cached, s0, keys):
        return pl.slice(cached, [TILE, HEAD_DIM], [s0, 0], valid_shape=[keys, HEAD_DIM])

    @pl.inline
    def only(x, half_ones):
        """One half of `x`, in BF16, with zeros in place of the other."""
        return pl.cast(pl.row_expand_mul(x, half_ones), target_type=pl.BF16)

    @pl.inline
    def spread(like, pair, upper, lower):
        """The first row of `pair` in all rows of the upper half, the second in the lower."""
        pair_fp32 = pl.cast(pair, target_type=pl.FP32)
        above = pl.col_expand(like, pl.slice(pair_fp32, [1, HEAD_DIM], [0, 0]))
        below = pl.col_expand(like, pl.slice(pair_fp32, [1, HEAD_DIM], [1, 0]))
        return pl.add(pl.row_expand_mul(above, upper), pl.row_expand_mul(below, lower))

    @pl.inline
    def attend(q_rows, k_pair, v_pair, cos, sin, k_first, k_second, v_first, v_second, pos):
        # Created as rows, because a tile's rows must have at least 32 bytes.
        ones = pl.full([1, ROWS], dtype=pl.FP32, value=1.0)
        first_ones = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
        first_ones = pl.assemble(first_ones, pl.full([1, GROUP], dtype=pl.FP32, value=1.0), [0, 0])
        upper = pl.reshape(first_ones, [ROWS, 1])
        lower = pl.reshape(pl.sub(ones, first_ones), [ROWS, 1])
        q_lo = pl.slice(q_rows, [ROWS, HALF], [0, 0])
        q_hi = pl.slice(q_rows, [ROWS, HALF], [0, HALF])
        q_bf16 = pl.cast(rotate(q_lo, q_hi, cos, sin), target_type=pl.BF16)
        q = pl.cast(q_bf16, target_type=pl.FP32)
        q_upper = only(q, upper)
        q_lower = only(q, lower)
        k_lo = pl.slice(k_pair, [2, HALF], [0, 0])
        k_hi = pl.slice(k_pair, [2, HALF], [0, HALF])
        new_keys = pl.cast(rotate(k_lo, k_hi, cos, sin), target_type=pl.BF16)
        new_values = pl.cast(v_pair, target_type=pl.BF16)

        own = pl.row_sum(pl.mul(q, spread(q, new_keys, upper, lower)))
        mi = pl.mul(own, ATTN_SCALE)
        li = pl.reshape(pl.full([1, ROWS], dtype=pl.FP32, value=1.0), [ROWS, 1])
        oi = spread(q, new_values, upper, lower)
        for s0 in pl.pipeline(0, pos, TILE, stage=STAGES):
            keys = pl.min(TILE, pos - s0)
            raw = pl.matmul(q_upper, block(k_first, s0, keys), b_trans=True, out_dtype=pl.FP32)
            raw = pl.matmul_acc(raw, q_lower, block(k_second, s0, keys), b_trans=True)
            known = pl.tensor.set_validshape(pl.mul(raw, ATTN_SCALE), ROWS, keys)
            scores = pl.fillpad(known, pad_value=pl.PadValue.min)
            mi_new = pl.maximum(mi, pl.row_max(scores))
            alpha = pl.exp(pl.sub(mi, mi_new))
            p = pl.cast(softmax_weights(scores, mi_new), target_type=pl.FP32)
            li = pl.add(pl.mul(li, alpha), pl.row_sum(p))
            update = pl.matmul(only(p, upper), block(v_first, s0, keys), out_dtype=pl.FP32)
            update = pl.matmul_acc(update, only(p, lower), block(v_second, s0, keys))
            oi = pl.add(pl.row_expand_mul(oi, alpha), update)
            mi = mi_new
        k_first = pl.assemble(k_first, pl.slice(new_keys, [1, HEAD_DIM], [0, 0]), [pos, 0])
        k_second = pl.assemble(k_second, pl.slice(new_keys, [1, HEAD_DIM], [1, 0]), [pos, 0])
        v_first = pl.assemble(v_first, pl.slice(new_values, [1, HEAD_DIM], [0, 0]), [pos, 0])
        v_second = pl.assemble(v_second, pl.slice(new_values, [1, HEAD_DIM], [1, 0]), [pos, 0])
        return pl.cast(pl.row_expand_div(oi, li), target_type=pl.BF16)

    return attend
