"""The Qwen3 layer as the published models have it, for decode and for prefill.

Run it:   `LayerStack` in stack.py loads the weights of a model directory and calls these programs.

Queries are `heads * head_dim` wide, which need not be `hidden`. Every head of Q and K has an
RMSNorm before RoPE, which uses the tables of `rope_tables`. Query heads share K/V heads (GQA).
Sequences are ragged: `seq_lens` counts the positions each has in the caches after the call.

Caches are paged: rows `(page * kv_heads + kv_head) * page_size + position`, and `block_table[b, i]`
is the page with positions `i * page_size`... of sequence `b`. A page of `max_seq` positions makes a
contiguous cache: row `b * kv_heads * max_seq + kv_head * max_seq + position` with page b.

Programs:
  build_decode    one new token per sequence; rows of a tile are sequences
  build_prefill   whole sequences from position 0; rows of a tile are tokens of one sequence, and a
                  tile of them attends at once, with a causal mask where the diagonal passes
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import DType
from tilelet.ir.core import Program
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.pieces import make_projection, make_two_projections
from tilelet.models.qwen3.real_pieces import (
    LOWEST,
    make_absorb,
    make_cache_row,
    make_causal,
    make_load,
    make_norm_hidden,
    make_norm_rows,
    make_rope_rows,
    make_scores,
)
from tilelet.models.qwen3.reference import Array


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer's program; `0` for a tile means one that fits, near the usual size."""

    config: Qwen3Config
    batch: int
    max_seq: int
    dtype: DType = pl.BF16
    # Positions per page, and pages of a cache; 0: one page of `max_seq` positions per sequence.
    page: int = 0
    pages: int = 0
    # Longest sequence that prefill takes.
    tokens: int = 0

    # Rows of a projection; tokens that attend at once in prefill; keys of a block.
    row_tile: int = 16
    query_tile: int = 0
    seq_tile: int = 64
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
            "query_tile": _fitting(self.row_tile, max(2, 96 // c.q_per_kv), least=2),
            "k_chunk": _fitting(math.gcd(c.hidden_size, c.q_width, c.intermediate_size), 128),
            "out_chunk": _fitting(math.gcd(c.hidden_size, c.intermediate_size), 64),
        }
        for name, value in defaults.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        c = self.config
        for name in ("batch", "max_seq", "page", "pages", "tokens", "row_tile", "stage"):
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
        if self.query_tile < 2 or self.seq_tile < 2:
            name = "query_tile" if self.query_tile < 2 else "seq_tile"
            raise BadTile(name, getattr(self, name), "at least 2")
        if self.page < self.max_seq:  # a tile must not run over the end of a page
            for part in ("row_tile", "seq_tile"):
                if self.page % getattr(self, part):
                    raise BadTile(part, getattr(self, part), f"a divisor of `page`, {self.page}")

    @property
    def table_width(self) -> int:
        """Pages of the longest sequence."""
        return math.ceil(self.max_seq / self.page)

    @property
    def cache_rows(self) -> int:
        return self.pages * self.config.num_key_value_heads * self.page


def _fitting(whole: int, wanted: int, least: int = 1) -> int:
    """The largest divisor of `whole` from `least` to `wanted`, or `whole` if there is none."""
    found = [n for n in range(least, min(whole, wanted) + 1) if whole % n == 0]
    return found[-1] if found else whole


def rope_tables(config: Qwen3Config, max_seq: int) -> tuple[Array, Array]:
    """Cosine and sine `[max_seq, head_dim]` in FP32, each frequency in both halves.

    Every step is rounded to FP32: that is how the models were trained and are run everywhere, and
    at long positions it differs visibly from angles in double.
    """
    exponent = np.arange(0, config.head_dim, 2) / config.head_dim
    frequency = np.float32(1.0) / (config.rope_theta**exponent).astype(np.float32)
    position = np.arange(max_seq, dtype=np.float32)
    angle = np.outer(position, np.concatenate([frequency, frequency]))
    return np.cos(angle), np.sin(angle)


def make_qkv(s: LayerShape, store_rows: Any):
    """Input RMSNorm and the three projections of a tile; K and V go to the caches.

    `store_rows` is the inline function that puts a tile `[row_tile, head_dim]` into a cache.
    """
    c, T, D, DTYPE = s.config, s.row_tile, s.config.head_dim, s.dtype
    HIDDEN, HEADS, KV_HEADS, Q_WIDTH = c.hidden_size, c.heads, c.kv_heads, c.q_width
    norm_hidden = make_norm_hidden(T, HIDDEN, s.k_chunk, c.rms_norm_eps, DTYPE)
    project_q = make_projection(T, s.k_chunk, D, HIDDEN // s.k_chunk, stage=s.stage)
    project_kv = make_two_projections(T, s.k_chunk, D, HIDDEN // s.k_chunk, s.stage)
    norm_rows = make_norm_rows(D, c.rms_norm_eps)
    rope_rows = make_rope_rows(T, D)
    load_table = make_load(T, D)

    @pl.inline
    def rotated(head, gamma, cos, sin, table_row, valid):
        """One head of Q or K after its projection: normalised, rotated, rounded."""
        cos_rows = load_table(cos, table_row, 0, valid)
        sin_rows = load_table(sin, table_row, 0, valid)
        turned = rope_rows(norm_rows(head, gamma), cos_rows, sin_rows)
        return pl.cast(turned, target_type=DTYPE, mode="rint")

    @pl.inline
    def qkv(
        hidden_states, input_norm, wq, wk, wv, q_norm, k_norm, cos, sin, table_row,
        block_table, seq_lens, k_cache, v_cache, row, b, t0, valid,
    ):  # fmt: skip
        normed = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="input_norm"):
            normed = norm_hidden(hidden_states, input_norm, normed, row, valid)
        q = pl.create_tensor([T, Q_WIDTH], dtype=DTYPE)
        for h in pl.parallel(HEADS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_head"):
                head = rotated(project_q(normed, wq, 0, h * D), q_norm, cos, sin, table_row, valid)
                q = pl.assemble(q, head, [0, h * D])
        for h in pl.parallel(KV_HEADS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_head"):
                k_acc, v_acc = project_kv(normed, wk, wv, 0, h * D, h * D)
                k = rotated(k_acc, k_norm, cos, sin, table_row, valid)
                v = pl.cast(v_acc, target_type=DTYPE, mode="rint")
                k_cache = store_rows(k_cache, k, block_table, seq_lens, h, b, t0, valid)
                v_cache = store_rows(v_cache, v, block_table, seq_lens, h, b, t0, valid)
        return q, k_cache, v_cache

    return qkv


def make_finish(s: LayerShape):
    """What follows attention: output projection, residual, RMSNorm, MLP, residual."""
    c, T, DTYPE, OUT_CHUNK, K_CHUNK = s.config, s.row_tile, s.dtype, s.out_chunk, s.k_chunk
    HIDDEN, INTERMEDIATE = c.hidden_size, c.intermediate_size
    project_out = make_projection(T, K_CHUNK, OUT_CHUNK, c.q_width // K_CHUNK, stage=s.stage)
    project_gate_up = make_two_projections(T, K_CHUNK, OUT_CHUNK, HIDDEN // K_CHUNK, s.stage)
    project_down = make_projection(T, K_CHUNK, OUT_CHUNK, INTERMEDIATE // K_CHUNK, stage=s.stage)
    norm_hidden = make_norm_hidden(T, HIDDEN, K_CHUNK, c.rms_norm_eps, DTYPE)
    load = make_load(T, OUT_CHUNK)

    @pl.inline
    def finish(attended, hidden_states, wo, post_norm, w_gate, w_up, w_down, out, row, valid):
        residual = pl.create_tensor([T, HIDDEN], dtype=pl.FP32)
        for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="output_projection"):
                projected = project_out(attended, wo, 0, o0)
                summed = pl.add(projected, load(hidden_states, row, o0, valid))
                residual = pl.assemble(residual, summed, [0, o0])
        normed = pl.create_tensor([T, HIDDEN], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
            normed = norm_hidden(residual, post_norm, normed, 0, T)
        activation = pl.create_tensor([T, INTERMEDIATE], dtype=DTYPE)
        for m0 in pl.parallel(0, INTERMEDIATE, OUT_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
                gate, up = project_gate_up(normed, w_gate, w_up, 0, m0, m0)
                silu = pl.mul(gate, pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0)))
                gated = pl.cast(pl.mul(silu, up), target_type=DTYPE, mode="rint")
                activation = pl.assemble(activation, gated, [0, m0])
        for o0 in pl.parallel(0, HIDDEN, OUT_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_projection"):
                down = project_down(activation, w_down, 0, o0)
                summed = pl.add(down, pl.slice(residual, [T, OUT_CHUNK], [0, o0]))
                rounded = pl.cast(summed, target_type=DTYPE, mode="rint")
                out = pl.assemble(out, pl.set_validshape(rounded, valid, OUT_CHUNK), [row, o0])
        return out

    return finish


def make_decode_tile(s: LayerShape):
    """The layer for a tile of sequences, one token of each."""
    c, T, D, DTYPE, SEQ_TILE = s.config, s.row_tile, s.config.head_dim, s.dtype, s.seq_tile
    HEADS, KV_HEADS, GROUP, Q_WIDTH = c.heads, c.kv_heads, c.q_per_kv, c.q_width
    # The cube works on 16 rows at a time.
    Q_ROWS = math.ceil(GROUP / 16) * 16
    cache_row = make_cache_row(KV_HEADS, s.page)
    scores_of = make_scores(D, SEQ_TILE)
    absorb = make_absorb(D, SEQ_TILE, DTYPE)

    @pl.inline
    def store_rows(cache, tile, block_table, seq_lens, head, b, t0, valid):
        for r in pl.range(valid):
            pos = pl.read(seq_lens, [b + r]) - 1
            place = cache_row(block_table, b + r, head, pos)
            cache = pl.assemble(cache, pl.slice(tile, [1, D], [r, 0]), [place, 0])
        return cache

    @pl.inline
    def positions(rope, rows, seq_lens, b, valid):
        """The rows of a rope table at the last positions of the sequences."""
        for r in pl.range(valid):
            pos = pl.read(seq_lens, [b + r]) - 1
            rows = pl.assemble(rows, pl.slice(rope, [1, D], [pos, 0]), [r, 0])
        return rows

    @pl.inline
    def attend(q, attended, block_table, seq_lens, k_cache, v_cache, b, valid):
        q_heads = pl.reshape(q, [T * HEADS, D])
        for r in pl.parallel(valid):
            context = pl.read(seq_lens, [b + r])
            for h in pl.parallel(KV_HEADS):
                first = r * HEADS + h * GROUP
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode_attention"):
                    query = pl.slice(q_heads, [Q_ROWS, D], [first, 0], valid_shape=[GROUP, D])
                    query = pl.fillpad(query)
                    oi = pl.full([Q_ROWS, D], dtype=pl.FP32, value=0.0)
                    li = pl.full([Q_ROWS, 1], dtype=pl.FP32, value=0.0)
                    mi = pl.full([Q_ROWS, 1], dtype=pl.FP32, value=LOWEST)
                    for s0 in pl.range(0, context, SEQ_TILE):
                        place = cache_row(block_table, b + r, h, s0)
                        used = pl.min(SEQ_TILE, context - s0)
                        scores = scores_of(query, k_cache, place, used)
                        oi, li, mi = absorb(scores, v_cache, place, used, oi, li, mi)
                    heads = pl.cast(pl.row_expand_div(oi, li), target_type=DTYPE, mode="rint")
                    attended = pl.assemble(attended, pl.set_validshape(heads, GROUP, D), [first, 0])
        return attended

    qkv = make_qkv(s, store_rows)
    finish = make_finish(s)

    @pl.inline
    def decode_tile(
        hidden_states, seq_lens, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down, out, b, valid,
    ):  # fmt: skip
        cos = pl.create_tensor([T, D], dtype=pl.FP32)
        sin = pl.create_tensor([T, D], dtype=pl.FP32)
        attended = pl.create_tensor([T * HEADS, D], dtype=DTYPE)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="positions"):
            cos = positions(rope_cos, cos, seq_lens, b, valid)
            sin = positions(rope_sin, sin, seq_lens, b, valid)
            for r in pl.range(valid, T):
                none = pl.cast(pl.full([HEADS, D], dtype=pl.FP32, value=0.0), target_type=DTYPE)
                attended = pl.assemble(attended, none, [r * HEADS, 0])
        q, k_cache, v_cache = qkv(
            hidden_states, input_norm, wq, wk, wv, q_norm, k_norm, cos, sin, 0,
            block_table, seq_lens, k_cache, v_cache, b, b, 0, valid,
        )  # fmt: skip
        attended = attend(q, attended, block_table, seq_lens, k_cache, v_cache, b, valid)
        out = finish(
            pl.reshape(attended, [T, Q_WIDTH]), hidden_states,
            wo, post_norm, w_gate, w_up, w_down, out, b, valid,
        )  # fmt: skip
        return k_cache, v_cache, out

    return decode_tile


def make_prefill_tile(s: LayerShape):
    """The layer for a tile of tokens of one sequence, whose earlier tokens are in the caches."""
    c, T, D, DTYPE = s.config, s.row_tile, s.config.head_dim, s.dtype
    TOKENS, QUERY_TILE, SEQ_TILE = s.tokens, s.query_tile, s.seq_tile
    KV_HEADS, GROUP, Q_WIDTH = c.kv_heads, c.q_per_kv, c.q_width
    GROUP_WIDTH, ROWS = GROUP * D, QUERY_TILE * GROUP
    cache_row = make_cache_row(KV_HEADS, s.page)
    scores_of = make_scores(D, SEQ_TILE)
    causal = make_causal(QUERY_TILE, GROUP, SEQ_TILE)
    absorb = make_absorb(D, SEQ_TILE, DTYPE)

    @pl.inline
    def store_rows(cache, tile, block_table, seq_lens, head, b, t0, valid):
        place = cache_row(block_table, b, head, t0)
        return pl.assemble(cache, pl.set_validshape(tile, valid, D), [place, 0])

    @pl.inline
    def attend(q, attended, block_table, k_cache, v_cache, b, t0, length):
        for i in pl.parallel(0, T, QUERY_TILE):
            first = t0 + i
            context = pl.min(first + QUERY_TILE, length)
            # Blocks of keys that all tokens of the tile see in full need no mask.
            unmasked = (pl.min(first + 1, length) // SEQ_TILE) * SEQ_TILE
            for h in pl.parallel(KV_HEADS):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="prefill_attention"):
                    tokens = pl.slice(q, [QUERY_TILE, GROUP_WIDTH], [i, h * GROUP_WIDTH])
                    query = pl.reshape(tokens, [ROWS, D])
                    oi = pl.full([ROWS, D], dtype=pl.FP32, value=0.0)
                    li = pl.full([ROWS, 1], dtype=pl.FP32, value=0.0)
                    mi = pl.full([ROWS, 1], dtype=pl.FP32, value=LOWEST)
                    for s0 in pl.range(0, unmasked, SEQ_TILE):
                        place = cache_row(block_table, b, h, s0)
                        scores = scores_of(query, k_cache, place, SEQ_TILE)
                        oi, li, mi = absorb(scores, v_cache, place, SEQ_TILE, oi, li, mi)
                    for s0 in pl.range(unmasked, context, SEQ_TILE):
                        place = cache_row(block_table, b, h, s0)
                        used = pl.min(SEQ_TILE, context - s0)
                        scores = causal(scores_of(query, k_cache, place, used), first, s0)
                        oi, li, mi = absorb(scores, v_cache, place, used, oi, li, mi)
                    heads = pl.cast(pl.row_expand_div(oi, li), target_type=DTYPE, mode="rint")
                    columns = pl.reshape(heads, [QUERY_TILE, GROUP_WIDTH])
                    attended = pl.assemble(attended, columns, [i, h * GROUP_WIDTH])
        return attended

    qkv = make_qkv(s, store_rows)
    finish = make_finish(s)

    @pl.inline
    def prefill_tile(
        hidden_states, seq_lens, block_table, rope_cos, rope_sin, k_cache, v_cache,
        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down, out,
        b, t0, length,
    ):  # fmt: skip
        row = b * TOKENS + t0
        valid = pl.min(T, length - t0)
        q, k_cache, v_cache = qkv(
            hidden_states, input_norm, wq, wk, wv, q_norm, k_norm, rope_cos, rope_sin, t0,
            block_table, seq_lens, k_cache, v_cache, row, b, t0, valid,
        )  # fmt: skip
        attended = pl.create_tensor([T, Q_WIDTH], dtype=DTYPE)
        attended = attend(q, attended, block_table, k_cache, v_cache, b, t0, length)
        out = finish(attended, hidden_states, wo, post_norm, w_gate, w_up, w_down, out, row, valid)
        return k_cache, v_cache, out

    return prefill_tile


def build_decode(s: LayerShape) -> Program:
    """One layer for one new token of every sequence, at position `seq_lens[b] - 1`."""
    c, D, DTYPE, BATCH, T = s.config, s.config.head_dim, s.dtype, s.batch, s.row_tile
    HIDDEN, INTERMEDIATE, Q_WIDTH, KV_WIDTH = (
        c.hidden_size,
        c.intermediate_size,
        c.q_width,
        c.kv_width,
    )
    MAX_SEQ, TABLE_WIDTH, CACHE_ROWS = s.max_seq, s.table_width, s.cache_rows
    decode_tile = make_decode_tile(s)

    @pl.program
    class Qwen3DecodeLayer:
        @pl.function
        def decode_layer(
            self,
            hidden_states: pl.Tensor[[BATCH, HIDDEN], DTYPE],
            seq_lens: pl.Tensor[[BATCH], pl.INT32],
            block_table: pl.Tensor[[BATCH, TABLE_WIDTH], pl.INT32],
            rope_cos: pl.Tensor[[MAX_SEQ, D], pl.FP32],
            rope_sin: pl.Tensor[[MAX_SEQ, D], pl.FP32],
            k_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, D], DTYPE]],
            v_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, D], DTYPE]],
            input_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            wq: pl.Tensor[[HIDDEN, Q_WIDTH], DTYPE],
            wk: pl.Tensor[[HIDDEN, KV_WIDTH], DTYPE],
            wv: pl.Tensor[[HIDDEN, KV_WIDTH], DTYPE],
            q_norm: pl.Tensor[[1, D], pl.FP32],
            k_norm: pl.Tensor[[1, D], pl.FP32],
            wo: pl.Tensor[[Q_WIDTH, HIDDEN], DTYPE],
            post_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            w_gate: pl.Tensor[[HIDDEN, INTERMEDIATE], DTYPE],
            w_up: pl.Tensor[[HIDDEN, INTERMEDIATE], DTYPE],
            w_down: pl.Tensor[[INTERMEDIATE, HIDDEN], DTYPE],
            out: pl.Out[pl.Tensor[[BATCH, HIDDEN], DTYPE]],
        ):
            for b in pl.parallel(0, BATCH, T):
                valid = pl.min(T, BATCH - b)
                k_cache, v_cache, out = decode_tile(
                    hidden_states, seq_lens, block_table, rope_cos, rope_sin, k_cache, v_cache,
                    input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down,
                    out, b, valid,
                )  # fmt: skip
            return k_cache, v_cache, out

    return Qwen3DecodeLayer


def build_prefill(s: LayerShape) -> Program:
    """One layer for whole sequences of up to `tokens` tokens; row `b * tokens + position`."""
    c, D, DTYPE, BATCH, T = s.config, s.config.head_dim, s.dtype, s.batch, s.row_tile
    HIDDEN, INTERMEDIATE, Q_WIDTH, KV_WIDTH = (
        c.hidden_size,
        c.intermediate_size,
        c.q_width,
        c.kv_width,
    )
    MAX_SEQ, TABLE_WIDTH, CACHE_ROWS, TOKENS = s.max_seq, s.table_width, s.cache_rows, s.tokens
    prefill_tile = make_prefill_tile(s)

    @pl.program
    class Qwen3PrefillLayer:
        @pl.function
        def prefill_layer(
            self,
            hidden_states: pl.Tensor[[BATCH * TOKENS, HIDDEN], DTYPE],
            seq_lens: pl.Tensor[[BATCH], pl.INT32],
            block_table: pl.Tensor[[BATCH, TABLE_WIDTH], pl.INT32],
            rope_cos: pl.Tensor[[MAX_SEQ, D], pl.FP32],
            rope_sin: pl.Tensor[[MAX_SEQ, D], pl.FP32],
            k_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, D], DTYPE]],
            v_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, D], DTYPE]],
            input_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            wq: pl.Tensor[[HIDDEN, Q_WIDTH], DTYPE],
            wk: pl.Tensor[[HIDDEN, KV_WIDTH], DTYPE],
            wv: pl.Tensor[[HIDDEN, KV_WIDTH], DTYPE],
            q_norm: pl.Tensor[[1, D], pl.FP32],
            k_norm: pl.Tensor[[1, D], pl.FP32],
            wo: pl.Tensor[[Q_WIDTH, HIDDEN], DTYPE],
            post_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            w_gate: pl.Tensor[[HIDDEN, INTERMEDIATE], DTYPE],
            w_up: pl.Tensor[[HIDDEN, INTERMEDIATE], DTYPE],
            w_down: pl.Tensor[[INTERMEDIATE, HIDDEN], DTYPE],
            out: pl.Out[pl.Tensor[[BATCH * TOKENS, HIDDEN], DTYPE]],
        ):
            for b in pl.parallel(BATCH):
                length = pl.read(seq_lens, [b])
                for t0 in pl.range(0, length, T):
                    k_cache, v_cache, out = prefill_tile(
                        hidden_states, seq_lens, block_table, rope_cos, rope_sin, k_cache, v_cache,
                        input_norm, wq, wk, wv, q_norm, k_norm, wo, post_norm, w_gate, w_up, w_down,
                        out, b, t0, length,
                    )  # fmt: skip
            return k_cache, v_cache, out

    return Qwen3PrefillLayer
