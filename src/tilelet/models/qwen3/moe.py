# pyright: basic
"""The mixture of experts of Qwen3-MoE, which replaces the MLP part of dense models.

Every token goes to `num_experts_per_tok` experts, each a small MLP, and gets their weighted sum:

  router       softmax of a product, and its largest probabilities, token by token
  dispatch     all (token, expert) pairs ("slots"), sorted by expert
  experts      grouped products: the rows of all tokens of one expert, however many
  combine      the weighted sum of each token's results in FP32, plus the residual

Groups are ragged. The control program reads the row count of each expert and submits that many
tiles: an expert that no token chose costs nothing, and its weights are not read.

Weights of the experts of a layer are concatenated: `w_gate` and `w_up`
`[experts * hidden, width]`, `w_down` `[experts * width, hidden]`; or each of them in blocks of
columns, see `LayerShape.blocked`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import tilelet.language as pl
from tilelet.ir.core import Program
from tilelet.models.qwen3.blocks import (
    make_gated_silu,
    make_projection,
    make_rmsnorm,
)
from tilelet.models.qwen3.config import Qwen3MoeConfig
from tilelet.models.qwen3.published import (
    KEPT_PROGRAMS,
    MODE,
    LayerShape,
    attention_matrices,
    fitting_divisor,
    make_columns,
    make_decode_attention,
    make_layer_matrix,
    make_layer_part,
    make_layer_projection,
    make_prefill_attention,
    make_two_layer_projections,
)

# Rows of a group that are multiplied at a time.
_GROUP_ROWS = 16
# Maximum columns of an expert's matrices per task.
_EXPERT_COLUMNS = 128
# Columns of the hidden state per task of `combine`.
_COMBINE_COLUMNS = 1024
# Smaller than every probability.
_TAKEN = -1.0


def moe_config(s: LayerShape) -> Qwen3MoeConfig:
    assert isinstance(s.config, Qwen3MoeConfig)
    return s.config


def expert_columns(config: Qwen3MoeConfig) -> int:
    """Return the columns of an expert's matrices per task."""
    return fitting_divisor(
        math.gcd(config.hidden_size, config.moe_intermediate_size), _EXPERT_COLUMNS
    )


def expert_matrices(config: Qwen3MoeConfig) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return inputs, outputs and columns per task of an expert's up and down matrices."""
    hidden, width = config.hidden_size, config.moe_intermediate_size
    columns = expert_columns(config)
    return (hidden, width, columns), (width, hidden, columns)


def make_router(s: LayerShape, tile: int):
    """Experts and weights of the tokens of a tile, largest weight first.

    Ties go to the expert with the lower index.
    """
    c, DTYPE, T = moe_config(s), s.dtype, tile
    E, K = c.num_experts, c.num_experts_per_tok
    # Rows of a tile are whole 32-byte blocks; columns past K are zero.
    PADDED, NUMBERS = math.ceil(K / 16) * 16, math.ceil(E / 8) * 8
    K_CHUNK = fitting_divisor(c.hidden_size, 128)
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
    """Slots sorted by expert: their order, the position of each, and the groups.

    A slot is `row * K + k`. `groups[0, e]` is the number of slots of expert e, `groups[1, e]` the
    position of the first.
    """
    c = moe_config(s)
    E, K, SLOTS = c.num_experts, c.num_experts_per_tok, rows * c.num_experts_per_tok
    NUMBERS = math.ceil(SLOTS / 8) * 8  # whole 32-byte blocks

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
            number = pl.slice(pl.arange(0, [1, NUMBERS]), [1, SLOTS], [0, 0])
            places = pl.mscatter(pl.set_validshape(number, 1, valid * K), sorted_slots, places)
        return order, places, groups

    return dispatch


@dataclass(frozen=True)
class Groups:
    """Slots of some experts; a row of the input has `per_row` slots, an expert at most `largest`.

    narrows  rows of the input are FP32, to be rounded to the dtype of the model
    """

    experts: int
    slots: int
    largest: int
    per_row: int
    narrows: bool = False

    @property
    def tile(self) -> int:
        """Return the rows that are multiplied at a time."""
        return min(_GROUP_ROWS, self.largest)

    @property
    def product_rows(self) -> int:
        return self.slots + self.tile


def all_groups(s: LayerShape, rows: int) -> Groups:
    """All experts for `rows` tokens, each of which has an expert at most once."""
    c = moe_config(s)
    return Groups(c.num_experts, rows * c.num_experts_per_tok, rows, c.num_experts_per_tok)


def make_experts(s: LayerShape, g: Groups):
    """The results of all slots, in the order of `dispatch`, in FP32."""
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, WIDTH = c.hidden_size, c.moe_intermediate_size
    E, PER_ROW, T = g.experts, g.per_row, g.tile
    K_CHUNK = fitting_divisor(math.gcd(HIDDEN, WIDTH), 128)
    OUT_CHUNK = expert_columns(c)
    PADDED = g.product_rows
    project_gate_up = make_two_layer_projections(s, T, K_CHUNK, OUT_CHUNK, HIDDEN)
    project_down = make_layer_projection(s, T, K_CHUNK, OUT_CHUNK, WIDTH)
    up_of, down_of = (make_layer_matrix(s, *sizes) for sizes in expert_matrices(c))
    up_columns = make_columns(s, HIDDEN, OUT_CHUNK)
    down_columns = make_columns(s, WIDTH, OUT_CHUNK)
    gated_silu = make_gated_silu(DTYPE, MODE)

    @pl.inline
    def unchanged(row):
        return row

    @pl.inline
    def rounded(row):
        return pl.cast(row, target_type=DTYPE, mode=MODE)

    narrowed = rounded if g.narrows else unchanged

    @pl.inline
    def rows_of(normed, order, first, used):
        """The rows of the tokens of some slots, one below the other."""
        x = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_rows"):
            for r in pl.range(used):
                token = pl.read(order, [0, first + r]) // PER_ROW
                x = pl.assemble(x, narrowed(pl.slice(normed, [1, HIDDEN], [token, 0])), [r, 0])
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
                # Outside the scopes these are views.
                gate_matrix, up_matrix = up_of(w_gate, e), up_of(w_up, e)
                down_matrix = down_of(w_down, e)
                for m0 in pl.parallel(0, WIDTH, OUT_CHUNK):
                    block = pl.slice(activation, [T, OUT_CHUNK], [0, m0])
                    gate_weight = up_columns(gate_matrix, m0 // OUT_CHUNK)
                    up_weight = up_columns(up_matrix, m0 // OUT_CHUNK)
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_gate_up"):
                        gate, up = project_gate_up(x, gate_weight, up_weight, 0, 0, 0)
                        block = pl.assemble(block, gated_silu(gate, up), [0, 0])
                activation = pl.set_validshape(activation, used, WIDTH)
                for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
                    own = pl.slice(
                        products, [T, OUT_CHUNK], [begin + r0, o0], valid_shape=[used, OUT_CHUNK]
                    )
                    down_weight = down_columns(down_matrix, o0 // OUT_CHUNK)
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert_down"):
                        down = project_down(activation, down_weight, 0, 0)
                        own = pl.assemble(own, pl.set_validshape(down, used, OUT_CHUNK), [0, 0])
        return products

    return experts


def make_combine(s: LayerShape, product_rows: int):
    """The weighted sum of every token's results plus the residual; into `out` from `row` on.

    `places` has, for each slot, the row of its result in `products`.
    """
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, K = c.hidden_size, c.num_experts_per_tok
    PADDED = product_rows
    COLUMNS = fitting_divisor(HIDDEN, _COMBINE_COLUMNS)

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


def make_routing(s: LayerShape, rows: int):
    """RMSNorm of the rows into `normed`, and their experts and weights."""
    c, DTYPE, HIDDEN = moe_config(s), s.dtype, s.config.hidden_size
    T = min(s.row_tile, rows)
    rmsnorm = make_rmsnorm(
        T,
        HIDDEN,
        fitting_divisor(HIDDEN, 128),
        c.rms_norm_eps,
        x_dtype=pl.FP32,
        dtype=DTYPE,
        mode=MODE,
    )
    route = make_router(s, T)

    @pl.inline
    def normalise_and_route(residual, post_norm, w_router, normed, chosen, shares, valid):
        for t0 in pl.parallel(0, valid, T):
            used = pl.min(T, valid - t0)
            x = pl.slice(residual, [T, HIDDEN], [t0, 0], valid_shape=[used, HIDDEN])
            rows_normed = pl.slice(normed, [T, HIDDEN], [t0, 0], valid_shape=[used, HIDDEN])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
                rows_normed = rmsnorm(x, post_norm, rows_normed, 0)
            chosen, shares = route(normed, w_router, chosen, shares, t0, used)
        return chosen, shares

    return normalise_and_route


def make_moe(s: LayerShape, rows: int):
    """RMSNorm, the experts and the residual, for `rows` rows of which the first `valid` are real.

    The results go to `out`, starting at `row`; the experts of every row to `chosen`.
    """
    c, DTYPE = moe_config(s), s.dtype
    HIDDEN, K, SLOTS = c.hidden_size, c.num_experts_per_tok, rows * c.num_experts_per_tok
    ROWS, E = rows, c.num_experts
    normalise_and_route = make_routing(s, rows)
    dispatch = make_dispatch(s, rows)
    experts = make_experts(s, all_groups(s, rows))
    combine = make_combine(s, all_groups(s, rows).product_rows)

    @pl.inline
    def moe(residual, post_norm, w_router, w_gate, w_up, w_down, chosen, out, row, valid):
        normed = pl.create_tensor([ROWS, HIDDEN], dtype=DTYPE)
        shares = pl.create_tensor([ROWS, K], dtype=pl.FP32)
        chosen, shares = normalise_and_route(
            residual, post_norm, w_router, normed, chosen, shares, valid
        )
        order = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        places = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        groups = pl.create_tensor([2, E], dtype=pl.INT32)
        order, places, groups = dispatch(chosen, order, places, groups, valid)
        products = experts(normed, order, groups, w_gate, w_up, w_down)
        return combine(residual, products, places, shares, out, row, valid)

    return moe


def build_moe(s: LayerShape, rows: int) -> Program:
    """Build this part alone: `residual` in, hidden states out, for the first `count[0]` rows."""
    c, DTYPE, ROWS = moe_config(s), s.dtype, rows
    HIDDEN, E = c.hidden_size, c.num_experts
    K, WEIGHT = c.num_experts_per_tok, s.weight_dtype
    UP, DOWN = (s.stored_shape(*sizes, E) for sizes in expert_matrices(c))
    moe: Any = make_moe(s, rows)

    @pl.program
    class Qwen3Moe:
        @pl.function
        def qwen3_moe(
            self, residual: pl.Tensor[[ROWS, HIDDEN], pl.FP32], count: pl.Tensor[[1], pl.INT32],
            post_norm: pl.Tensor[[1, HIDDEN], pl.FP32], w_router: pl.Tensor[[HIDDEN, E], DTYPE],
            w_gate: pl.Tensor[UP, WEIGHT], w_up: pl.Tensor[UP, WEIGHT],
            w_down: pl.Tensor[DOWN, WEIGHT], out: pl.Out[pl.Tensor[[ROWS, HIDDEN], DTYPE]],
        ):  # fmt: skip
            valid = pl.read(count, [0])
            chosen = pl.create_tensor([ROWS, K], dtype=pl.INT32)
            out = moe(residual, post_norm, w_router, w_gate, w_up, w_down, chosen, out, 0, valid)
            return out  # noqa: RET504 - the assignment says that `out` was written

    return Qwen3Moe


def whole_tiles(s: LayerShape, rows: int) -> int:
    """Return the rows of the tiles needed for `rows` rows."""
    return math.ceil(rows / s.row_tile) * s.row_tile


def make_sparse_decode(s: LayerShape, attention_output: Any = None, moe: Any = None):
    """The layer for one token of every sequence; parts are replaced as for `make_decode`."""
    T, BATCH, HIDDEN = s.row_tile, s.batch, s.config.hidden_size
    attention = make_decode_attention(s, attention_output)
    ROWS = whole_tiles(s, BATCH)
    moe = moe or make_moe(s, ROWS)

    @pl.inline
    def decode(
        states, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_router, w_gate, w_up, w_down,
        chosen,
    ):  # fmt: skip
        residual = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
        for b in pl.parallel(0, BATCH, T):
            valid = pl.min(T, BATCH - b)
            x = pl.slice(states, [T, HIDDEN], [b, 0], valid_shape=[valid, HIDDEN])
            k_cache, v_cache, part = attention(
                x, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
                input_norm, wq, wk, wv, q_norm, k_norm, wo, b, valid,
            )  # fmt: skip
            residual = pl.assemble(residual, part, [b, 0])
        states = moe(residual, post_norm, w_router, w_gate, w_up, w_down, chosen, states, 0, BATCH)
        return k_cache, v_cache, states

    return decode


def make_sparse_prefill(s: LayerShape, attention_output: Any = None, moe: Any = None):
    """The layer for tokens of every sequence; the experts get all of one sequence at once.

    Parts are replaced as for `make_decode`.
    """
    T, BATCH, TOKENS, HIDDEN = s.row_tile, s.batch, s.tokens, s.config.hidden_size
    attention = make_prefill_attention(s, attention_output)
    ROWS = whole_tiles(s, TOKENS)
    moe = moe or make_moe(s, ROWS)
    chosen_of = make_layer_part(ROWS, moe_config(s).num_experts_per_tok)

    @pl.inline
    def prefill(
        states, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_router, w_gate, w_up, w_down,
        chosen,
    ):  # fmt: skip
        for b in pl.parallel(BATCH):
            start = pl.read(starts, [b])
            length = pl.read(seq_lens, [b])
            residual = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
            for t0 in pl.range(start, length, T):
                row = b * TOKENS + t0 - start
                valid = pl.min(T, length - t0)
                x = pl.slice(states, [T, HIDDEN], [row, 0], valid_shape=[valid, HIDDEN])
                k_cache, v_cache, part = attention(
                    x, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
                    input_norm, wq, wk, wv, q_norm, k_norm, wo, b, t0, row, length, valid,
                )  # fmt: skip
                residual = pl.assemble(residual, part, [t0 - start, 0])
            states = moe(
                residual, post_norm, w_router, w_gate, w_up, w_down,
                chosen_of(chosen, b), states, b * TOKENS, length - start,
            )  # fmt: skip
        return k_cache, v_cache, states

    return prefill


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def build_sparse_decode(s: LayerShape) -> Program:
    """Like `published.build_decode`, for layers with experts."""
    chosen = whole_tiles(s, s.batch)
    return _program("Qwen3MoeDecodeLayers", s, s.batch, chosen, make_sparse_decode(s))


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def build_sparse_prefill(s: LayerShape) -> Program:
    """Like `published.build_prefill`, for layers with experts."""
    chosen = s.batch * whole_tiles(s, s.tokens)
    return _program("Qwen3MoePrefillLayers", s, s.batch * s.tokens, chosen, make_sparse_prefill(s))


def _program(name: str, s: LayerShape, rows: int, chosen_rows: int, layer: Any) -> Program:
    """Wrap the inline function `layer` in a program for `rows` rows of hidden states.

    `chosen` gets the experts of every row in every layer, in `chosen_rows` rows each: whole
    tiles.
    """
    c, D, DTYPE, BATCH, ROWS, N = moe_config(s), s.config.head_dim, s.dtype, s.batch, rows, s.layers
    HIDDEN, E, K = c.hidden_size, c.num_experts, c.num_experts_per_tok
    MAX_SEQ, TABLE_WIDTH, CACHE_ROWS = s.max_seq, s.table_width, s.cache_rows
    WEIGHT = s.weight_dtype
    q, kv, output = attention_matrices(s)
    q_of, kv_of, output_of = (make_layer_matrix(s, *sizes) for sizes in (q, kv, output))
    WQ, WKV, WO = (s.stored_shape(*sizes, N) for sizes in (q, kv, output))
    up, down = (s.stored_shape(*sizes, E) for sizes in expert_matrices(c))
    up_of, down_of = make_layer_part(*up), make_layer_part(*down)
    UP, DOWN = (s.stored_shape(*sizes, N * E) for sizes in expert_matrices(c))
    cache_of = make_layer_part(CACHE_ROWS, D)
    norm_of, head_norm_of = make_layer_part(1, HIDDEN), make_layer_part(1, D)
    CHOSEN = chosen_rows
    router_of, chosen_of = make_layer_part(HIDDEN, E), make_layer_part(CHOSEN, K)

    @pl.program
    class Qwen3MoeLayers:
        @pl.function
        def qwen3_moe_layers(
            self, states: pl.InOut[pl.Tensor[[ROWS, HIDDEN], DTYPE]],
            seq_lens: pl.Tensor[[BATCH], pl.INT32], starts: pl.Tensor[[BATCH], pl.INT32],
            block_table: pl.Tensor[[BATCH, TABLE_WIDTH], pl.INT32],
            rope_cos: pl.Tensor[[MAX_SEQ, D], pl.FP32], rope_sin: pl.Tensor[[MAX_SEQ, D], pl.FP32],
            k_cache: pl.InOut[pl.Tensor[[N * CACHE_ROWS, D], DTYPE]],
            v_cache: pl.InOut[pl.Tensor[[N * CACHE_ROWS, D], DTYPE]],
            input_norm: pl.Tensor[[N, HIDDEN], pl.FP32], wq: pl.Tensor[WQ, WEIGHT],
            wk: pl.Tensor[WKV, WEIGHT], wv: pl.Tensor[WKV, WEIGHT],
            q_norm: pl.Tensor[[N, D], pl.FP32], k_norm: pl.Tensor[[N, D], pl.FP32],
            wo: pl.Tensor[WO, WEIGHT], post_norm: pl.Tensor[[N, HIDDEN], pl.FP32],
            w_router: pl.Tensor[[N * HIDDEN, E], DTYPE], w_gate: pl.Tensor[UP, WEIGHT],
            w_up: pl.Tensor[UP, WEIGHT], w_down: pl.Tensor[DOWN, WEIGHT],
            chosen: pl.Out[pl.Tensor[[N * CHOSEN, K], pl.INT32]],
        ):  # fmt: skip
            for n in pl.range(N):
                k_part, v_part = cache_of(k_cache, n), cache_of(v_cache, n)
                k_part, v_part, states = layer(
                    states, seq_lens, starts, block_table, rope_cos, rope_sin, k_part, v_part,
                    norm_of(input_norm, n), q_of(wq, n), kv_of(wk, n), kv_of(wv, n),
                    head_norm_of(q_norm, n), head_norm_of(k_norm, n), output_of(wo, n),
                    norm_of(post_norm, n), router_of(w_router, n),
                    up_of(w_gate, n), up_of(w_up, n), down_of(w_down, n), chosen_of(chosen, n),
                )  # fmt: skip
            return k_cache, v_cache, states, chosen

    return dataclasses.replace(Qwen3MoeLayers, name=name)
