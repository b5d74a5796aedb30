# pyright: basic
"""Qwen3 layers of the published models, for decode and for prefill.

Run it:   `LayerStack` in stack.py loads the weights of a model directory and calls these programs,
          as does `Model` in model.py, from tokens to tokens.

Queries are `heads * head_dim` wide, which need not equal `hidden`. Every head of Q and K has an
RMSNorm before RoPE, which uses the tables of `rope_tables`. Query heads share K/V heads (GQA).
Sequences are ragged: `seq_lens` counts the positions of each in the caches after the call,
`starts` those before it.

A program is one layer, or several consecutive ones: then weights and caches of the layers are
concatenated, and one call runs them all. Hidden states are replaced by those after the last layer.

Caches are paged: rows `(page * kv_heads + kv_head) * page_size + position`, and `block_table[b, i]`
is the page with positions `i * page_size`... of sequence `b`. A page of `max_seq` positions makes a
contiguous cache: row `b * kv_heads * max_seq + kv_head * max_seq + position` with page b.

Programs:
  build_decode    one new token per sequence; rows of a tile are sequences
  build_prefill   some tokens of each sequence after those in the caches; rows of a tile are tokens
                  of one sequence, which attend together, with a causal mask where the diagonal
                  passes

A layer is an attention part and an MLP part (a parameter of `make_decode` and `make_prefill`), so
that another MLP part makes another architecture.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Program
from tilelet.models.qwen3.attention import (
    make_absorb,
    make_nothing_absorbed,
    make_scaled_scores,
)
from tilelet.models.qwen3.blocks import (
    make_causal_bias,
    make_gated_silu,
    make_load,
    make_projection,
    make_rms_scale,
    make_rmsnorm,
    make_rope_heads,
    make_two_projections,
)
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.int8_products import make_int8_projection, make_two_int8_projections
from tilelet.models.qwen3.paged_attention import (
    make_cache_row,
    make_split_contexts,
    make_whole_contexts,
)

Kind = Literal["prefill", "decode"]

# The reference implementation rounds to nearest, ties to even.
MODE = "rint"
# Additional rows of an INT8 matrix whose bytes are the FP32 scales of its columns.
FACTOR_ROWS = 4
# Programs of these sizes that are kept: stacks of equal layers share them and what is compiled.
KEPT_PROGRAMS = 16


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer's program; a tile size of 0 selects a fitting one near the usual size."""

    config: Qwen3Config
    batch: int
    max_seq: int
    dtype: DType = pl.BF16
    # Positions per page, and pages of a cache; 0: one page of `max_seq` positions per sequence.
    page: int = 0
    pages: int = 0
    # Maximum tokens of a sequence per call of prefill.
    tokens: int = 0
    # Layers per call.
    layers: int = 1
    # Whether matrices are in INT8, with the scales of their columns below (`make_matrix`).
    int8: bool = False
    # Whether the columns of a matrix are stored in blocks of one task, one below the other, so
    # that a task reads memory sequentially. Otherwise a matrix is `[inputs, outputs]`.
    blocked: bool = False

    # Rows of a projection; tokens that attend together in prefill; keys of a block.
    row_tile: int = 16
    query_tile: int = 0
    seq_tile: int = 64
    # Positions of a context that one task of decode attends to; longer contexts are split.
    context_part: int = 0
    # Row granularity of an NPU's cube, to which groups of queries are padded.
    cube_rows: int = 16
    # Columns: of the inputs of a projection, and of its outputs.
    k_chunk: int = 0
    out_chunk: int = 0
    # Chunks of a projection in flight: the next are loaded while one is multiplied.
    stage: int = 2

    def __post_init__(self) -> None:
        c = self.config
        defaults = {
            "page": self.max_seq,
            "pages": self.batch * math.ceil(self.max_seq / (self.page or self.max_seq)),
            "tokens": self.max_seq,
            "context_part": self.max_seq,
            "query_tile": fitting_divisor(self.row_tile, max(2, 96 // c.q_per_kv), least=2),
            "k_chunk": fitting_divisor(
                math.gcd(c.hidden_size, c.q_width, c.intermediate_size), 128
            ),
            "out_chunk": fitting_divisor(math.gcd(c.hidden_size, c.intermediate_size), 64),
        }
        for name, value in defaults.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        c = self.config
        counts = ("batch", "max_seq", "page", "pages", "tokens", "layers", "context_part")
        for name in (*counts, "row_tile", "cube_rows", "stage"):
            if getattr(self, name) < 1:
                raise BadTile(name, getattr(self, name), "at least 1")
        if self.tokens > self.max_seq:
            raise BadTile("tokens", self.tokens, f"at most `max_seq`, {self.max_seq}")
        for part, whole, size in (
            ("k_chunk", "hidden_size", c.hidden_size),
            ("k_chunk", "q_width", c.q_width),
            ("k_chunk", "intermediate_size", c.intermediate_size),
            ("out_chunk", "hidden_size", c.hidden_size),
            ("out_chunk", "intermediate_size", c.intermediate_size),
            ("query_tile", "row_tile", self.row_tile),
        ):
            if getattr(self, part) < 1 or size % getattr(self, part):
                raise BadTile(part, getattr(self, part), f"a divisor of `{whole}`, {size}")
        if self.seq_tile < 2:
            raise BadTile("seq_tile", self.seq_tile, "at least 2")
        if self.context_part < self.max_seq and self.context_part % self.seq_tile:
            wanted = f"a multiple of `seq_tile`, {self.seq_tile}"
            raise BadTile("context_part", self.context_part, wanted)
        if self.query_tile < 2 <= self.row_tile:  # decoding one sequence uses tiles of one row
            raise BadTile("query_tile", self.query_tile, "at least 2")
        if self.page < self.max_seq:  # a tile must not cross the end of a page
            for part in ("row_tile", "seq_tile"):
                if self.page % getattr(self, part):
                    raise BadTile(part, getattr(self, part), f"a divisor of `page`, {self.page}")

    @property
    def table_width(self) -> int:
        """Return the number of pages of the longest sequence."""
        return math.ceil(self.max_seq / self.page)

    @property
    def weight_dtype(self) -> DType:
        return pl.INT8 if self.int8 else self.dtype

    def stored_rows(self, inputs: int) -> int:
        """Return the stored rows of a matrix with `inputs` inputs, or of a block of its columns."""
        return inputs + (FACTOR_ROWS if self.int8 else 0)

    def stored_shape(
        self, inputs: int, outputs: int, columns: int, count: int = 1
    ) -> tuple[int, int]:
        """Return the shape of `count` concatenated matrices with `columns` columns per task."""
        rows = count * self.stored_rows(inputs)
        return (outputs // columns * rows, columns) if self.blocked else (rows, outputs)

    @property
    def cache_rows(self) -> int:
        """Return the number of rows of one layer's cache."""
        return self.pages * self.config.num_key_value_heads * self.page


def fitting_divisor(whole: int, wanted: int, least: int = 1) -> int:
    """Return the largest divisor of `whole` from `least` to `wanted`, or `whole`."""
    found = [n for n in range(least, min(whole, wanted) + 1) if whole % n == 0]
    return found[-1] if found else whole


def rope_tables(config: Qwen3Config, max_seq: int) -> tuple[Array, Array]:
    """Return cosine and sine `[max_seq, head_dim]` in FP32, each frequency in both halves.

    Every step is rounded to FP32, as in training and in other implementations; at long positions
    the result differs visibly from angles computed in double.
    """
    exponent = np.arange(0, config.head_dim, 2) / config.head_dim
    frequency = np.float32(1.0) / (config.rope_theta**exponent).astype(np.float32)
    position = np.arange(max_seq, dtype=np.float32)
    angle = np.outer(position, np.concatenate([frequency, frequency]))
    return np.cos(angle), np.sin(angle)


def make_layer_projection(s: LayerShape, rows: int, k_chunk: int, out_chunk: int, inner: int):
    """`make_projection` with a weight of the layer, `[inner, ...]`."""
    blocks = inner // k_chunk
    if s.int8:
        return make_int8_projection(rows, k_chunk, out_chunk, blocks, stage=s.stage, dtype=s.dtype)
    return make_projection(rows, k_chunk, out_chunk, blocks, stage=s.stage)


def make_two_layer_projections(s: LayerShape, rows: int, k_chunk: int, out_chunk: int, inner: int):
    """`make_two_projections` with weights of the layer."""
    blocks = inner // k_chunk
    if s.int8:
        return make_two_int8_projections(rows, k_chunk, out_chunk, blocks, s.stage, s.dtype)
    return make_two_projections(rows, k_chunk, out_chunk, blocks, s.stage)


def make_rotated(s: LayerShape):
    """One head of Q or K after its projection: normalized, rotated, rounded."""
    T, D, DTYPE = s.row_tile, s.config.head_dim, s.dtype
    rms_scale = make_rms_scale(D, s.config.rms_norm_eps)
    rotate_heads = make_rope_heads(T, D // 2, T)

    @pl.inline
    def rotated(head, gamma, cos, sin):
        scale = rms_scale(pl.row_sum(pl.mul(head, head)))
        normed = pl.col_expand_mul(pl.row_expand_mul(head, scale), gamma)
        return pl.cast(rotate_heads(normed, cos, sin), target_type=DTYPE, mode=MODE)

    return rotated


def make_qkv(s: LayerShape, cache_rows: Any, store_rows: Any):
    """Input RMSNorm and the three projections of a tile; K and V go to the caches.

    Rows of `x`, `cos` and `sin` correspond; the first `valid` are real. `cache_rows` returns the
    window of a cache for a head, `store_rows` stores a tile `[row_tile, head_dim]` there.

    Tasks write to their own windows: machines that order tasks by whole arguments would otherwise
    serialize the tasks of a loop.
    """
    c, T, D, DTYPE = s.config, s.row_tile, s.config.head_dim, s.dtype
    HIDDEN, HEADS, KV_HEADS, Q_WIDTH = c.hidden_size, c.heads, c.kv_heads, c.q_width
    rmsnorm = make_rmsnorm(
        T, HIDDEN, s.k_chunk, c.rms_norm_eps, x_dtype=DTYPE, dtype=DTYPE, mode=MODE
    )
    project_q = make_layer_projection(s, T, s.k_chunk, D, HIDDEN)
    project_kv = make_two_layer_projections(s, T, s.k_chunk, D, HIDDEN)
    head_of = make_columns(s, HIDDEN, D)
    rotated = make_rotated(s)

    @pl.inline
    def qkv(
        x, input_norm, wq, wk, wv, q_norm, k_norm, cos, sin,
        block_table, starts, k_cache, v_cache, b, t0, valid,
    ):  # fmt: skip
        normed = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="input_norm"):
            normed = rmsnorm(x, input_norm, normed, 0)
        normed = pl.set_validshape(normed, valid, HIDDEN)
        q = pl.create_tensor([T, Q_WIDTH], dtype=DTYPE)
        for h in pl.parallel(HEADS):
            columns = pl.slice(q, [T, D], [0, h * D])
            q_weight = head_of(wq, h)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_head"):
                head = rotated(project_q(normed, q_weight, 0, 0), q_norm, cos, sin)
                columns = pl.assemble(columns, head, [0, 0])
        for h in pl.parallel(KV_HEADS):
            k_rows = cache_rows(k_cache, block_table, h, b, t0)
            v_rows = cache_rows(v_cache, block_table, h, b, t0)
            k_weight, v_weight = head_of(wk, h), head_of(wv, h)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_head"):
                k_acc, v_acc = project_kv(normed, k_weight, v_weight, 0, 0, 0)
                k = rotated(k_acc, k_norm, cos, sin)
                v = pl.cast(v_acc, target_type=DTYPE, mode=MODE)
                k_rows = store_rows(k_rows, k, block_table, starts, b, valid)
                v_rows = store_rows(v_rows, v, block_table, starts, b, valid)
        return q, k_cache, v_cache

    return qkv


def make_attention_output(s: LayerShape):
    """The end of the attention part: output projection and residual, in FP32.

    The first `valid` rows of `x` and `attended` are real; `row` is the first among the hidden
    states.
    """
    c, T, OUT_CHUNK, K_CHUNK = s.config, s.row_tile, s.out_chunk, s.k_chunk
    HIDDEN = c.hidden_size
    project_out = make_layer_projection(s, T, K_CHUNK, OUT_CHUNK, c.q_width)
    columns_of = make_columns(s, c.q_width, OUT_CHUNK)
    load = make_load(T, OUT_CHUNK, s.dtype)

    @pl.inline
    def attention_output(attended, x, wo, row, valid):
        residual = pl.create_tensor([T, HIDDEN], dtype=pl.FP32)
        for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            block = pl.slice(residual, [T, OUT_CHUNK], [0, o0])
            weight = columns_of(wo, o0 // OUT_CHUNK)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="output_projection"):
                summed = pl.add(project_out(attended, weight, 0, 0), load(x, 0, o0))
                block = pl.assemble(block, summed, [0, 0])
        return pl.set_validshape(residual, valid, HIDDEN)

    return attention_output


def make_mlp_output(s: LayerShape):
    """The end of the MLP part: down projection and residual, into `out` from `row` on."""
    c, T, DTYPE, OUT_CHUNK = s.config, s.row_tile, s.dtype, s.out_chunk
    HIDDEN, INTERMEDIATE = c.hidden_size, c.intermediate_size
    project_down = make_layer_projection(s, T, s.k_chunk, OUT_CHUNK, INTERMEDIATE)
    down_columns = make_columns(s, INTERMEDIATE, OUT_CHUNK)

    @pl.inline
    def mlp_output(activation, residual, w_down, out, row, valid):
        for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            block = pl.slice(out, [T, OUT_CHUNK], [row, o0], valid_shape=[valid, OUT_CHUNK])
            down_weight = down_columns(w_down, o0 // OUT_CHUNK)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_projection"):
                down = project_down(activation, down_weight, 0, 0)
                summed = pl.add(down, pl.slice(residual, [T, OUT_CHUNK], [0, o0]))
                block = pl.assemble(block, pl.cast(summed, target_type=DTYPE, mode=MODE), [0, 0])
        return out

    return mlp_output


def make_mlp(s: LayerShape, output: Any = None):
    """The MLP part: RMSNorm, MLP, residual; `output` replaces its end, `make_mlp_output`.

    The first `valid` rows of `residual` are real; the results go to `out`, starting at `row`.
    """
    c, T, DTYPE, OUT_CHUNK, K_CHUNK = s.config, s.row_tile, s.dtype, s.out_chunk, s.k_chunk
    HIDDEN, INTERMEDIATE = c.hidden_size, c.intermediate_size
    project_gate_up = make_two_layer_projections(s, T, K_CHUNK, OUT_CHUNK, HIDDEN)
    up_columns = make_columns(s, HIDDEN, OUT_CHUNK)
    mlp_output = output or make_mlp_output(s)
    rmsnorm = make_rmsnorm(
        T, HIDDEN, K_CHUNK, c.rms_norm_eps, x_dtype=pl.FP32, dtype=DTYPE, mode=MODE
    )
    gated_silu = make_gated_silu(DTYPE, MODE)

    @pl.inline
    def mlp(residual, post_norm, w_gate, w_up, w_down, out, row, valid):
        normed = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
            normed = rmsnorm(residual, post_norm, normed, 0)
        normed = pl.set_validshape(normed, valid, HIDDEN)
        activation = pl.create_tensor([T, INTERMEDIATE], dtype=DTYPE)
        for m0 in pl.parallel(0, INTERMEDIATE, OUT_CHUNK):
            block = pl.slice(activation, [T, OUT_CHUNK], [0, m0])
            gate_weight = up_columns(w_gate, m0 // OUT_CHUNK)
            up_weight = up_columns(w_up, m0 // OUT_CHUNK)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
                gate, up = project_gate_up(normed, gate_weight, up_weight, 0, 0, 0)
                block = pl.assemble(block, gated_silu(gate, up), [0, 0])
        activation = pl.set_validshape(activation, valid, INTERMEDIATE)
        return mlp_output(activation, residual, w_down, out, row, valid)

    return mlp


def make_decode_attention(s: LayerShape, output: Any = None):
    """The attention part for one token of some sequences; rows of a tile are sequences.

    `output` replaces its end, `make_attention_output`.
    """
    c, T, D = s.config, s.row_tile, s.config.head_dim
    HEADS, KV_HEADS, Q_WIDTH = c.heads, c.kv_heads, c.q_width
    PAGES, PAGE = s.pages, s.page
    is_split = s.context_part < s.max_seq
    attend_heads = (make_split_contexts if is_split else make_whole_contexts)(s, MODE)

    @pl.inline
    def cache_rows(cache, block_table, head, b, t0):
        pages = pl.reshape(cache, [PAGES, KV_HEADS, PAGE, D])
        return pl.slice(pages, [PAGES, 1, PAGE, D], [0, head, 0, 0])

    @pl.inline
    def store_rows(rows, tile, block_table, starts, b, valid):
        for r in pl.range(valid):
            pos = pl.read(starts, [b + r])
            number = pl.read(block_table, [b + r, pos // PAGE])
            row = pl.slice(tile, [1, D], [r, 0])
            rows = pl.assemble(rows, pl.reshape(row, [1, 1, 1, D]), [number, 0, pos % PAGE, 0])
        return rows

    @pl.inline
    def table_rows(rope_cos, rope_sin, starts, b, valid):
        """The rows of the rope tables at the new positions of the sequences."""
        cos = pl.create_tensor([T, D], dtype=pl.FP32)
        sin = pl.create_tensor([T, D], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="table_rows"):
            for r in pl.range(valid):
                pos = pl.read(starts, [b + r])
                cos = pl.assemble(cos, pl.slice(rope_cos, [1, D], [pos, 0]), [r, 0])
                sin = pl.assemble(sin, pl.slice(rope_sin, [1, D], [pos, 0]), [r, 0])
        return pl.set_validshape(cos, valid, D), pl.set_validshape(sin, valid, D)

    @pl.inline
    def attend(q, block_table, seq_lens, k_cache, v_cache, b, valid):
        q_heads = pl.reshape(q, [T * HEADS, D])
        attended = attend_heads(q_heads, block_table, seq_lens, k_cache, v_cache, b, valid)
        return pl.set_validshape(pl.reshape(attended, [T, Q_WIDTH]), valid, Q_WIDTH)

    qkv = make_qkv(s, cache_rows, store_rows)
    attention_output = output or make_attention_output(s)

    @pl.inline
    def attention(
        x, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, b, valid,
    ):  # fmt: skip
        cos, sin = table_rows(rope_cos, rope_sin, starts, b, valid)
        q, k_cache, v_cache = qkv(
            x, input_norm, wq, wk, wv, q_norm, k_norm, cos, sin,
            block_table, starts, k_cache, v_cache, b, 0, valid,
        )  # fmt: skip
        attended = attend(q, block_table, seq_lens, k_cache, v_cache, b, valid)
        return k_cache, v_cache, attention_output(attended, x, wo, b, valid)

    return attention


def make_prefill_attention(s: LayerShape, output: Any = None):
    """The attention part for tokens of one sequence; `output` as for `make_decode_attention`.

    When a tile of tokens attends, all tokens before it are already in the caches.
    """
    c, T, D, DTYPE = s.config, s.row_tile, s.config.head_dim, s.dtype
    QUERY_TILE, SEQ_TILE = s.query_tile, s.seq_tile
    KV_HEADS, GROUP, Q_WIDTH = c.kv_heads, c.q_per_kv, c.q_width
    GROUP_WIDTH, ROWS = GROUP * D, QUERY_TILE * GROUP
    cache_row = make_cache_row(KV_HEADS, s.page)
    nothing_absorbed = make_nothing_absorbed(ROWS, D)
    scaled_scores = make_scaled_scores(ROWS, SEQ_TILE, D)
    causal_bias = make_causal_bias(QUERY_TILE, GROUP, SEQ_TILE)
    absorb = make_absorb(SEQ_TILE, D, DTYPE, MODE)

    @pl.inline
    def cache_rows(cache, block_table, head, b, t0):
        return pl.slice(cache, [T, D], [cache_row(block_table, b, head, t0), 0], clamp=True)

    @pl.inline
    def store_rows(rows, tile, block_table, starts, b, valid):
        return pl.assemble(rows, pl.set_validshape(tile, valid, D), [0, 0])

    @pl.inline
    def attend(q, block_table, k_cache, v_cache, b, t0, length):
        attended = pl.create_tensor([T, Q_WIDTH], dtype=DTYPE)
        for i in pl.parallel(0, T, QUERY_TILE):
            first = t0 + i
            context = pl.min(first + QUERY_TILE, length)
            # Blocks of keys that all tokens of the tile see entirely need no mask.
            unmasked = (pl.min(first + 1, length) // SEQ_TILE) * SEQ_TILE
            for h in pl.parallel(KV_HEADS):
                own = pl.slice(attended, [QUERY_TILE, GROUP_WIDTH], [i, h * GROUP_WIDTH])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="prefill_attention"):
                    tokens = pl.slice(q, [QUERY_TILE, GROUP_WIDTH], [i, h * GROUP_WIDTH])
                    query = pl.reshape(tokens, [ROWS, D])
                    mi, li, oi = nothing_absorbed()
                    for s0 in pl.range(0, unmasked, SEQ_TILE):
                        place = cache_row(block_table, b, h, s0)
                        scores = scaled_scores(query, k_cache, place, SEQ_TILE)
                        mi, li, oi = absorb(scores, v_cache, place, SEQ_TILE, mi, li, oi)
                    for s0 in pl.range(unmasked, context, SEQ_TILE):
                        place = cache_row(block_table, b, h, s0)
                        used = pl.min(SEQ_TILE, context - s0)
                        seen = scaled_scores(query, k_cache, place, used)
                        scores = pl.add(seen, causal_bias(first - s0))
                        mi, li, oi = absorb(scores, v_cache, place, used, mi, li, oi)
                    heads = pl.cast(pl.row_expand_div(oi, li), target_type=DTYPE, mode=MODE)
                    columns = pl.reshape(heads, [QUERY_TILE, GROUP_WIDTH])
                    own = pl.assemble(own, columns, [0, 0])
        return attended

    qkv = make_qkv(s, cache_rows, store_rows)
    attention_output = output or make_attention_output(s)

    @pl.inline
    def attention(
        x, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, b, t0, row, length, valid,
    ):  # fmt: skip
        cos = pl.slice(rope_cos, [T, D], [t0, 0], valid_shape=[valid, D])
        sin = pl.slice(rope_sin, [T, D], [t0, 0], valid_shape=[valid, D])
        q, k_cache, v_cache = qkv(
            x, input_norm, wq, wk, wv, q_norm, k_norm, cos, sin,
            block_table, starts, k_cache, v_cache, b, t0, valid,
        )  # fmt: skip
        attended = attend(q, block_table, k_cache, v_cache, b, t0, length)
        attended = pl.set_validshape(attended, valid, Q_WIDTH)
        return k_cache, v_cache, attention_output(attended, x, wo, row, valid)

    return attention


def make_rows_at(s: LayerShape):
    """Number of sequences from `b` on in a tile; a constant if it is always full."""
    T, BATCH = s.row_tile, s.batch

    @pl.inline
    def all_rows(b):
        return T

    @pl.inline
    def some_rows(b):
        return pl.min(T, BATCH - b)

    return some_rows if BATCH % T else all_rows


def make_decode(s: LayerShape, attention_output: Any = None, mlp: Any = None):
    """The layer for one token of every sequence.

    `attention_output` replaces the end of the attention part, `mlp` the MLP part.
    """
    T, BATCH, HIDDEN = s.row_tile, s.batch, s.config.hidden_size
    rows_at = make_rows_at(s)
    attention = make_decode_attention(s, attention_output)
    mlp = mlp or make_mlp(s)

    @pl.inline
    def decode(
        states, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down,
    ):  # fmt: skip
        for b in pl.parallel(0, BATCH, T):
            valid = rows_at(b)
            x = pl.slice(states, [T, HIDDEN], [b, 0], valid_shape=[valid, HIDDEN])
            k_cache, v_cache, residual = attention(
                x, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
                input_norm, wq, wk, wv, q_norm, k_norm, wo, b, valid,
            )  # fmt: skip
            states = mlp(residual, post_norm, w_gate, w_up, w_down, states, b, valid)
        return k_cache, v_cache, states

    return decode


def make_prefill(s: LayerShape, attention_output: Any = None, mlp: Any = None):
    """The layer for tokens of every sequence, after the first `starts` that are in the caches.

    A tile of rows must not cross the end of a page, so `starts` are multiples of it. Parts
    are replaced as for `make_decode`.
    """
    T, BATCH, TOKENS, HIDDEN = s.row_tile, s.batch, s.tokens, s.config.hidden_size
    attention = make_prefill_attention(s, attention_output)
    mlp = mlp or make_mlp(s)

    @pl.inline
    def prefill(
        states, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down,
    ):  # fmt: skip
        for b in pl.parallel(BATCH):
            start = pl.read(starts, [b])
            length = pl.read(seq_lens, [b])
            for t0 in pl.range(start, length, T):
                row = b * TOKENS + t0 - start
                valid = pl.min(T, length - t0)
                x = pl.slice(states, [T, HIDDEN], [row, 0], valid_shape=[valid, HIDDEN])
                k_cache, v_cache, residual = attention(
                    x, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
                    input_norm, wq, wk, wv, q_norm, k_norm, wo, b, t0, row, length, valid,
                )  # fmt: skip
                states = mlp(residual, post_norm, w_gate, w_up, w_down, states, row, valid)
        return k_cache, v_cache, states

    return prefill


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def build_decode(s: LayerShape) -> Program:
    """Build the layers for one new token of every sequence, at position `starts[b]`."""
    return _program("Qwen3DecodeLayers", s, s.batch, make_decode(s))


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def build_prefill(s: LayerShape) -> Program:
    """Build the layers for up to `tokens` tokens of every sequence, from position `starts[b]`.

    Row `b * tokens` of the hidden states is that of position `starts[b]`.
    """
    return _program("Qwen3PrefillLayers", s, s.batch * s.tokens, make_prefill(s))


def make_layer_part(rows: int, columns: int):
    """A view of one layer's part of an array that is concatenated over layers."""

    @pl.inline
    def layer_part(stacked, layer):
        return pl.slice(stacked, [rows, columns], [layer * rows, 0])

    return layer_part


def make_matrix(s: LayerShape, inputs: int, outputs: int):
    """A view of one of several concatenated matrices; in INT8 with its scales."""
    STORED = s.stored_rows(inputs)

    @pl.inline
    def plain(stacked, number):
        return pl.slice(stacked, [inputs, outputs], [number * inputs, 0])

    @pl.inline
    def with_factors(stacked, number):
        numbers = pl.slice(stacked, [inputs, outputs], [number * STORED, 0])
        below = pl.slice(stacked, [FACTOR_ROWS, outputs], [number * STORED + inputs, 0])
        return numbers, pl.reinterpret_view(below, pl.FP32, shape=[1, outputs])

    return with_factors if s.int8 else plain


def make_columns(s: LayerShape, inputs: int, columns: int):
    """The operand of a task: a view of the matrix' columns from `number * columns` on.

    Call it outside scopes, with a matrix from `make_layer_matrix`.
    """

    @pl.inline
    def plain(matrix, number):
        return pl.slice(matrix, [inputs, columns], [0, number * columns])

    @pl.inline
    def with_factors(matrix, number):
        numbers, factors = matrix
        return (
            pl.slice(numbers, [inputs, columns], [0, number * columns]),
            pl.slice(factors, [1, columns], [0, number * columns]),
        )

    if s.blocked:  # a block is stored like a separate matrix
        return make_matrix(s, inputs, columns)
    return with_factors if s.int8 else plain


def attention_matrices(s: LayerShape) -> tuple[tuple[int, int, int], ...]:
    """Return inputs, outputs and columns per task of the Q, K and V, and output matrices."""
    c = s.config
    return (
        (c.hidden_size, c.q_width, c.head_dim),
        (c.hidden_size, c.kv_width, c.head_dim),
        (c.q_width, c.hidden_size, s.out_chunk),
    )


def make_layer_matrix(s: LayerShape, inputs: int, outputs: int, columns: int):
    """A view of one layer's matrix in an array concatenated over layers."""
    if s.blocked:
        return make_layer_part(*s.stored_shape(inputs, outputs, columns))
    return make_matrix(s, inputs, outputs)


def _program(name: str, s: LayerShape, rows: int, layer: Any) -> Program:
    """Wrap the inline function `layer` in a program for `rows` rows of hidden states."""
    c, D, DTYPE, BATCH, ROWS, N = s.config, s.config.head_dim, s.dtype, s.batch, rows, s.layers
    HIDDEN, INTERMEDIATE = c.hidden_size, c.intermediate_size
    MAX_SEQ, TABLE_WIDTH, CACHE_ROWS = s.max_seq, s.table_width, s.cache_rows
    cache_of = make_layer_part(CACHE_ROWS, D)
    norm_of, head_norm_of = make_layer_part(1, HIDDEN), make_layer_part(1, D)
    q, kv, output = attention_matrices(s)
    up, down = (HIDDEN, INTERMEDIATE, s.out_chunk), (INTERMEDIATE, HIDDEN, s.out_chunk)
    q_of, kv_of, output_of, up_of, down_of = (
        make_layer_matrix(s, *sizes) for sizes in (q, kv, output, up, down)
    )
    WQ, WKV, WO, UP, DOWN = (s.stored_shape(*sizes, N) for sizes in (q, kv, output, up, down))
    WEIGHT = s.weight_dtype

    @pl.program
    class Qwen3Layers:
        @pl.function
        def qwen3_layers(
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
            w_gate: pl.Tensor[UP, WEIGHT], w_up: pl.Tensor[UP, WEIGHT],
            w_down: pl.Tensor[DOWN, WEIGHT],
        ):  # fmt: skip
            for n in pl.range(N):
                k_part, v_part = cache_of(k_cache, n), cache_of(v_cache, n)
                k_part, v_part, states = layer(
                    states, seq_lens, starts, block_table, rope_cos, rope_sin, k_part, v_part,
                    norm_of(input_norm, n), q_of(wq, n), kv_of(wk, n), kv_of(wv, n),
                    head_norm_of(q_norm, n), head_norm_of(k_norm, n), output_of(wo, n),
                    norm_of(post_norm, n), up_of(w_gate, n), up_of(w_up, n), down_of(w_down, n),
                )  # fmt: skip
            return k_cache, v_cache, states

    return dataclasses.replace(Qwen3Layers, name=name)
