# pyright: basic, reportInvalidTypeForm=false
"""Layers with experts on several ranks, for generation: every rank has all tokens.

Attention is divided as in tensor_parallel.py. Every rank routes all tokens, but multiplies only for
its own experts; what it adds to a token is a partial sum, and the ranks add these. No row is
exchanged before the experts, unlike in expert_parallel.py, where ranks have tokens of their own.
"""

from __future__ import annotations

from typing import Any

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.models import BadTile
from tilelet.models.qwen3.moe import (
    Groups,
    expert_matrices,
    make_dispatch,
    make_experts,
    make_routing,
    make_sparse_decode,
    make_sparse_prefill,
    moe_config,
    whole_tiles,
)
from tilelet.models.qwen3.published import MODE, Kind, LayerShape, make_layer_part
from tilelet.models.qwen3.tensor_parallel import (
    RankTypes,
    SumShape,
    make_summed_outputs,
    make_sums,
)


def make_rank_moe(s: LayerShape, sums: SumShape):
    """The MoE part with one rank's experts; `w_down` comes with its buffer, cells and epoch."""
    c, DTYPE, HIDDEN, ROWS = moe_config(s), s.dtype, s.config.hidden_size, sums.rows
    E, K, T, COLUMNS = c.num_experts, c.num_experts_per_tok, s.row_tile, s.out_chunk
    EXPERTS, SLOTS = E // sums.ranks, ROWS * K
    groups_of_rank = Groups(EXPERTS, SLOTS, ROWS, K)
    PRODUCTS = groups_of_rank.product_rows
    normalise_and_route = make_routing(s, ROWS)
    dispatch = make_dispatch(s, ROWS)
    experts = make_experts(s, groups_of_rank)
    block_at, send, add_received = make_sums(s, sums)

    @pl.inline
    def partial_sums(products, places, chosen, shares, me, valid):
        """The weighted sum of the results of own experts, token by token."""
        partial = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
        for o0 in pl.parallel(0, HIDDEN, COLUMNS):
            results = pl.slice(products, [PRODUCTS, COLUMNS], [0, o0])
            own = pl.slice(partial, [ROWS, COLUMNS], [0, o0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="own_experts"):
                for t in pl.range(valid):
                    total = pl.full([1, COLUMNS], dtype=pl.FP32, value=0.0)
                    for k in pl.range(K):
                        if pl.read(chosen, [t, k]) // EXPERTS == me:
                            place = pl.read(places, [0, t * K + k])
                            part = pl.slice(results, [1, COLUMNS], [place, 0])
                            total = pl.add(total, pl.mul(part, pl.read(shares, [t, k])))
                    own = pl.assemble(own, total, [t, 0])
        return partial

    @pl.inline
    def moe(residual, post_norm, w_router, w_gate, w_up, w_down, chosen, out, row, valid):
        matrices, parts, arrived, epoch = w_down
        me = pld.rank(pld.get_comm_ctx(parts))
        normed = pl.create_tensor([ROWS, HIDDEN], dtype=DTYPE)
        shares = pl.create_tensor([ROWS, K], dtype=pl.FP32)
        chosen, shares = normalise_and_route(
            residual, post_norm, w_router, normed, chosen, shares, valid
        )
        order = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        places = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        groups = pl.create_tensor([2, E], dtype=pl.INT32)
        order, places, groups = dispatch(chosen, order, places, groups, valid)
        own_groups = pl.slice(groups, [2, EXPERTS], [0, me * EXPERTS])
        products = experts(normed, order, own_groups, w_gate, w_up, matrices)
        partial = partial_sums(products, places, chosen, shares, me, valid)
        for t0 in pl.parallel(0, valid, T):
            used = pl.min(T, valid - t0)
            for o0 in pl.parallel(0, HIDDEN, COLUMNS):
                window, cell = block_at(parts, arrived, t0, o0)
                rows = pl.slice(partial, [T, COLUMNS], [t0, o0], valid_shape=[used, COLUMNS])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="send_sums"):
                    send(pl.slice(rows, [T, COLUMNS], [0, 0]), window, cell)
            for o0 in pl.parallel(0, HIDDEN, COLUMNS):
                window, cell = block_at(parts, arrived, t0, o0)
                before = pl.slice(residual, [T, COLUMNS], [t0, o0], valid_shape=[used, COLUMNS])
                block = pl.slice(out, [T, COLUMNS], [row + t0, o0], valid_shape=[used, COLUMNS])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_sum"):
                    kept = pl.slice(before, [T, COLUMNS], [0, 0])
                    total = add_received(kept, window, cell, epoch)
                    block = pl.assemble(block, pl.cast(total, target_type=DTYPE, mode=MODE), [0, 0])
        return out

    return moe


def make_overlapped_sparse(s: LayerShape, kind: Kind, ranks: int) -> Any:
    """The host function of `s.layers` layers, with the sizes of one rank's part."""
    c, N = moe_config(s), s.layers
    if c.num_experts % ranks:
        raise BadTile("ranks", ranks, f"a divisor of `num_experts`, {c.num_experts}")
    sums = SumShape(s, kind, ranks)
    t, PARTS, CELLS = RankTypes(s, sums), sums.parts, sums.cells
    EXPERTS, HIDDEN, E, K = (
        c.num_experts // ranks, c.hidden_size, c.num_experts, c.num_experts_per_tok,
    )  # fmt: skip
    cache_of, norm_of, head_norm_of, q_of, kv_of, output_of, _, _ = t.views(s)
    up_sizes, down_sizes = expert_matrices(c)
    UP, DOWN = (s.stored_shape(*z, N * EXPERTS) for z in (up_sizes, down_sizes))
    up_of, down_of = (make_layer_part(*s.stored_shape(*z, EXPERTS)) for z in (up_sizes, down_sizes))
    router_of = make_layer_part(HIDDEN, E)
    ROUTER = pl.Tensor[[N * HIDDEN, E], s.dtype]
    Up, AllUps = pl.Tensor[[*UP], s.weight_dtype], pl.Tensor[[ranks, *UP], s.weight_dtype]
    Down, AllDowns = pl.Tensor[[*DOWN], s.weight_dtype], pl.Tensor[[ranks, *DOWN], s.weight_dtype]
    CHOSEN = whole_tiles(s, s.tokens if kind == "prefill" else s.batch)
    make_layer = make_sparse_prefill if kind == "prefill" else make_sparse_decode
    attention_output, _ = make_summed_outputs(s, sums)
    layer = make_layer(s, attention_output, make_rank_moe(s, sums))

    @pl.jit
    def rank_sparse_layers(
        states: pl.InOut[t.States], seq_lens: t.Lens, starts: t.Lens, block_table: t.Table,
        rope_cos: t.Rope, rope_sin: t.Rope, k_cache: pl.InOut[t.Cache], v_cache: pl.InOut[t.Cache],
        input_norm: t.Norm, wq: t.Q, wk: t.Kv, wv: t.Kv, q_norm: t.HeadNorm, k_norm: t.HeadNorm,
        wo: t.Output, post_norm: t.Norm, w_router: ROUTER, w_gate: Up, w_up: Up, w_down: Down,
        parts: t.Parts, arrived: t.Cells, down_parts: t.Parts, down_arrived: t.Cells,
    ):  # fmt: skip
        for n in pl.range(N):
            k_part, v_part = cache_of(k_cache, n), cache_of(v_cache, n)
            chosen = pl.create_tensor([CHOSEN, K], dtype=pl.INT32)
            k_part, v_part, states = layer(
                states, seq_lens, starts, block_table, rope_cos, rope_sin, k_part, v_part,
                norm_of(input_norm, n), q_of(wq, n), kv_of(wk, n), kv_of(wv, n),
                head_norm_of(q_norm, n), head_norm_of(k_norm, n),
                (output_of(wo, n), parts, arrived, n + 1),
                norm_of(post_norm, n), router_of(w_router, n), up_of(w_gate, n), up_of(w_up, n),
                (down_of(w_down, n), down_parts, down_arrived, n + 1), chosen,
            )  # fmt: skip
        return k_cache, v_cache, states

    @pl.jit.host
    def overlapped_sparse_layers(
        states: pl.InOut[t.AllStates], seq_lens: t.Lens, starts: t.Lens, block_table: t.Table,
        rope_cos: t.Rope, rope_sin: t.Rope, k_cache: pl.InOut[t.AllCaches],
        v_cache: pl.InOut[t.AllCaches], input_norm: t.Norm, wq: t.AllQ, wk: t.AllKv, wv: t.AllKv,
        q_norm: t.HeadNorm, k_norm: t.HeadNorm, wo: t.AllOutputs, post_norm: t.Norm,
        w_router: ROUTER, w_gate: AllUps, w_up: AllUps, w_down: AllDowns,
    ):  # fmt: skip
        parts_buf = pld.alloc_window_buffer(PARTS, dtype=pl.FP32)
        arrived_buf = pld.alloc_window_buffer(CELLS, dtype=pl.INT32)
        down_parts_buf = pld.alloc_window_buffer(PARTS, dtype=pl.FP32)
        down_arrived_buf = pld.alloc_window_buffer(CELLS, dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            parts = pld.window(parts_buf, PARTS, dtype=pl.FP32)
            arrived = pld.window(arrived_buf, CELLS, dtype=pl.INT32)
            down_parts = pld.window(down_parts_buf, PARTS, dtype=pl.FP32)
            down_arrived = pld.window(down_arrived_buf, CELLS, dtype=pl.INT32)
            rank_sparse_layers(
                states[r], seq_lens, starts, block_table, rope_cos, rope_sin,
                k_cache[r], v_cache[r], input_norm, wq[r], wk[r], wv[r], q_norm, k_norm, wo[r],
                post_norm, w_router, w_gate[r], w_up[r], w_down[r],
                parts, arrived, down_parts, down_arrived, device=r,
            )  # fmt: skip

    return overlapped_sparse_layers
