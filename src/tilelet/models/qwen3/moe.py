"""The mixture of experts of Qwen3-MoE: the part of a layer that stands where dense models have MLP.

Every token goes to `num_experts_per_tok` experts, each a small MLP, and gets their weighted sum:

  router       softmax of a product, and the largest of its probabilities, token by token
  dispatch     all pairs of a token and one of its experts ("slots"), sorted by expert
  experts      products in groups: rows of all tokens of one expert, as many as there happen to be
  combine      the products of every token, weighted and added up in FP32, and the residual

Groups are ragged. The control program reads how many rows each expert has, and hands out tiles of
them: an expert that nobody chose costs nothing, and its weights are not read.

Weights of the experts of a layer stand one below the other: `w_gate` and `w_up`
`[experts * hidden, width]`, `w_down` `[experts * width, hidden]`.
"""

from __future__ import annotations

import math
from typing import Any

import tilelet.language as pl
from tilelet.ir.core import Program
from tilelet.models.qwen3.blocks import (
    make_gated_silu,
    make_projection,
    make_rmsnorm,
    make_two_projections,
)
from tilelet.models.qwen3.config import Qwen3MoeConfig
from tilelet.models.qwen3.published import MODE, LayerShape, fitting

# Rows of a group that are multiplied at a time.
_GROUP_ROWS = 16
# Columns of the hidden state that a task of `combine` adds up.
_COMBINE_COLUMNS = 1024
# Below every probability.
_TAKEN = -1.0


def moe_config(s: LayerShape) -> Qwen3MoeConfig:
    assert isinstance(s.config, Qwen3MoeConfig)
    return s.config


def make_router(s: LayerShape, tile: int):
    """Experts and weights of the tokens of a tile, largest weight first.

    Of equal probabilities the expert with the lower number comes first.
    """
    c, DTYPE, T = moe_config(s), s.dtype, tile
    E, K = c.num_experts, c.num_experts_per_tok
    # Rows of a tile are whole blocks of 32 bytes; what is beyond K is zero.
    PADDED, NUMBERS = math.ceil(K / 16) * 16, math.ceil(E / 8) * 8
    K_CHUNK = fitting(c.hidden_size, 128)
    project = make_projection(T, K_CHUNK, E, c.hidden_size // K_CHUNK, stage=s.stage)

    @pl.inline
    def normalised(top):
        return pl.row_expand_div(top, pl.row_sum(top))

    @pl.inline
    def unchanged(top):
        return top

    weights_of = normalised if c.norm_topk_prob else unchanged

    @pl.inline
    def route(normed, w_router, chosen, shares, row, valid):
        """Rows `row`... of `chosen` and `shares`, of which `valid` are real."""
        x = pl.slice(normed, [T, c.hidden_size], [row, 0], valid_shape=[valid, c.hidden_size])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="router"):
            rounded = pl.cast(project(x, w_router, 0, 0), target_type=DTYPE, mode=MODE)
            logits = pl.cast(rounded, target_type=pl.FP32)
            e = pl.exp(pl.row_expand_sub(logits, pl.row_max(logits)))
            left = pl.row_expand_div(e, pl.row_sum(e))
            number = pl.slice(pl.arange(0, [1, NUMBERS]), [1, E], [0, 0])
            numbers = pl.col_expand(left, pl.cast(number, target_type=pl.FP32))
            top = pl.full([T, PADDED], dtype=pl.FP32, value=0.0)
            experts = pl.full([T, PADDED], dtype=pl.INT32, value=0)
            for k in pl.range(K):
                best = pl.row_argmax(left)
                top = pl.assemble(top, pl.row_max(left), [0, k])
                experts = pl.assemble(experts, best, [0, k])
                is_taken = pl.cmp(numbers, pl.cast(best, target_type=pl.FP32))
                left = pl.sel(is_taken, pl.full([T, E], dtype=pl.FP32, value=_TAKEN), left)
            weights = pl.cast(weights_of(top), target_type=DTYPE, mode=MODE)
            weights = pl.cast(weights, target_type=pl.FP32)
            shares = pl.assemble(shares, pl.set_validshape(weights, valid, K), [row, 0])
            chosen = pl.assemble(chosen, pl.set_validshape(experts, valid, K), [row, 0])
        return chosen, shares

    return route


def make_dispatch(s: LayerShape, rows: int):
    """Slots sorted by expert: their order, where each stands in it, and the groups.

    A slot is `row * K + k`. `groups[0, e]` is the number of slots of expert e, `groups[1, e]` the
    place of the first.
    """
    c = moe_config(s)
    E, K, SLOTS = c.num_experts, c.num_experts_per_tok, rows * c.num_experts_per_tok

    @pl.inline
    def dispatch(chosen, order, places, groups, valid):
        slots = pl.reshape(chosen, [1, SLOTS])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="dispatch"):
            experts = pl.slice(slots, [1, SLOTS], [0, 0], valid_shape=[1, valid * K])
            first: Any = 0
            for e in pl.range(E):
                members, counts = pl.gather(
                    experts, kvalue=pl.cast(e, pl.INT32), cmp_mode=0, out_cols=SLOTS
                )
                count = pl.read(counts, [0, 0])
                pl.write(groups, [0, e], count)
                pl.write(groups, [1, e], pl.cast(first, pl.INT32))
                order = pl.assemble(order, pl.set_validshape(members, 1, count), [0, first])
                first = first + count
            sorted_slots = pl.slice(order, [1, SLOTS], [0, 0], valid_shape=[1, valid * K])
            places = pl.mscatter(
                pl.set_validshape(pl.arange(0, [1, SLOTS]), 1, valid * K), sorted_slots, places
            )
        return order, places, groups

    return dispatch


def make_experts(s: LayerShape, rows: int):
    """The products of all slots, in the order of `dispatch`, in FP32."""
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, WIDTH = c.hidden_size, c.moe_intermediate_size
    E, K, SLOTS = c.num_experts, c.num_experts_per_tok, rows * c.num_experts_per_tok
    # A token has an expert at most once.
    T = min(_GROUP_ROWS, rows)
    K_CHUNK = fitting(math.gcd(HIDDEN, WIDTH), 128)
    OUT_CHUNK = fitting(math.gcd(HIDDEN, WIDTH), 64)
    PADDED = SLOTS + T
    project_gate_up = make_two_projections(T, K_CHUNK, OUT_CHUNK, HIDDEN // K_CHUNK, s.stage)
    project_down = make_projection(T, K_CHUNK, OUT_CHUNK, WIDTH // K_CHUNK, stage=s.stage)
    gated_silu = make_gated_silu(DTYPE, MODE)

    @pl.inline
    def rows_of(normed, order, first, used):
        """The rows of the tokens of some slots, one below the other."""
        x = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_rows"):
            for r in pl.range(used):
                token = pl.read(order, [0, first + r]) // K
                x = pl.assemble(x, pl.slice(normed, [1, HIDDEN], [token, 0]), [r, 0])
        return pl.set_validshape(x, used, HIDDEN)

    @pl.inline
    def experts(normed, order, groups, w_gate, w_up, w_down):
        products = pl.create_tensor([PADDED, HIDDEN], dtype=pl.FP32)
        for e in pl.parallel(E):
            count = pl.read(groups, [0, e])
            begin = pl.read(groups, [1, e])
            for r0 in pl.range(0, count, T):
                used = pl.min(T, count - r0)
                x = rows_of(normed, order, begin + r0, used)
                activation = pl.create_tensor([T, WIDTH], dtype=DTYPE)
                gate_of = pl.slice(w_gate, [HIDDEN, WIDTH], [e * HIDDEN, 0])
                up_of = pl.slice(w_up, [HIDDEN, WIDTH], [e * HIDDEN, 0])
                down_of = pl.slice(w_down, [WIDTH, HIDDEN], [e * WIDTH, 0])
                for m0 in pl.parallel(0, WIDTH, OUT_CHUNK):
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_gate_up"):
                        gate, up = project_gate_up(x, gate_of, up_of, 0, m0, m0)
                        activation = pl.assemble(activation, gated_silu(gate, up), [0, m0])
                activation = pl.set_validshape(activation, used, WIDTH)
                for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_down"):
                        down = project_down(activation, down_of, 0, o0)
                        down = pl.set_validshape(down, used, OUT_CHUNK)
                        products = pl.assemble(products, down, [begin + r0, o0])
        return products

    return experts


def make_combine(s: LayerShape, rows: int):
    """The weighted products of every token added up, and the residual; into `out` from `row` on."""
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, K = c.hidden_size, c.num_experts_per_tok
    PADDED = rows * K + min(_GROUP_ROWS, rows)
    COLUMNS = fitting(HIDDEN, _COMBINE_COLUMNS)

    @pl.inline
    def combine(residual, products, places, shares, out, row, valid):
        for c0 in pl.parallel(0, HIDDEN, COLUMNS):
            parts = pl.slice(products, [PADDED, COLUMNS], [0, c0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="combine"):
                for t in pl.range(valid):
                    total = pl.slice(residual, [1, COLUMNS], [t, c0])
                    for k in pl.range(K):
                        place = pl.read(places, [0, t * K + k])
                        part = pl.slice(parts, [1, COLUMNS], [place, 0])
                        total = pl.add(total, pl.mul(part, pl.read(shares, [t, k])))
                    total = pl.cast(total, target_type=DTYPE, mode=MODE)
                    out = pl.assemble(out, total, [row + t, c0])
        return out

    return combine


def make_moe(s: LayerShape, rows: int):
    """RMSNorm, the experts and the residual, of `rows` rows of which the first `valid` are real.

    The results go to `out`, from `row` on.
    """
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, K, SLOTS = c.hidden_size, c.num_experts_per_tok, rows * c.num_experts_per_tok
    T = min(s.row_tile, rows)
    ROWS, E = rows, c.num_experts
    rmsnorm = make_rmsnorm(
        T, HIDDEN, fitting(HIDDEN, 128), c.rms_norm_eps, x_dtype=pl.FP32, dtype=DTYPE, mode=MODE
    )
    route = make_router(s, T)
    dispatch = make_dispatch(s, rows)
    experts = make_experts(s, rows)
    combine = make_combine(s, rows)

    @pl.inline
    def moe(residual, post_norm, w_router, w_gate, w_up, w_down, out, row, valid):
        normed = pl.create_tensor([ROWS, HIDDEN], dtype=DTYPE)
        chosen = pl.create_tensor([ROWS, K], dtype=pl.INT32)
        shares = pl.create_tensor([ROWS, K], dtype=pl.FP32)
        for t0 in pl.parallel(0, valid, T):
            used = pl.min(T, valid - t0)
            x = pl.slice(residual, [T, HIDDEN], [t0, 0], valid_shape=[used, HIDDEN])
            rows_normed = pl.slice(normed, [T, HIDDEN], [t0, 0], valid_shape=[used, HIDDEN])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
                rows_normed = rmsnorm(x, post_norm, rows_normed, 0)
            chosen, shares = route(normed, w_router, chosen, shares, t0, used)
        order = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        places = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        groups = pl.create_tensor([2, E], dtype=pl.INT32)
        order, places, groups = dispatch(chosen, order, places, groups, valid)
        products = experts(normed, order, groups, w_gate, w_up, w_down)
        return combine(residual, products, places, shares, out, row, valid)

    return moe


def build_moe(s: LayerShape, rows: int) -> Program:
    """The part by itself: `residual` in, hidden states out, of the first `count[0]` rows."""
    c, DTYPE, ROWS = moe_config(s), s.dtype, rows
    HIDDEN, WIDTH, E = c.hidden_size, c.moe_intermediate_size, c.num_experts
    moe: Any = make_moe(s, rows)

    @pl.program
    class Qwen3Moe:
        @pl.function
        def qwen3_moe(
            self,
            residual: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
            count: pl.Tensor[[1], pl.INT32],
            post_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            w_router: pl.Tensor[[HIDDEN, E], DTYPE],
            w_gate: pl.Tensor[[E * HIDDEN, WIDTH], DTYPE],
            w_up: pl.Tensor[[E * HIDDEN, WIDTH], DTYPE],
            w_down: pl.Tensor[[E * WIDTH, HIDDEN], DTYPE],
            out: pl.Out[pl.Tensor[[ROWS, HIDDEN], DTYPE]],
        ):
            valid = pl.read(count, [0])
            out = moe(residual, post_norm, w_router, w_gate, w_up, w_down, out, 0, valid)
            return out  # noqa: RET504 - the assignment says that `out` was written

    return Qwen3Moe
