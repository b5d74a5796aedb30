# pyright: basic, reportInvalidTypeForm=false
"""Qwen3 layers on several ranks, tensor-parallel: every rank has some heads and MLP columns.

Run it:   python -m tilelet.models.qwen3.tensor_parallel --ranks 4 --kind decode

Rank r has its heads' columns of `wq`, `wk` and `wv`, their caches and rows of `wo`, and its columns
of `w_gate` and `w_up` with the rows of `w_down`. Hidden states and norms are on all ranks. What the
output and down projections give on a rank is a partial sum; the ranks add these sums.

Versions:
  obvious     three dispatches per rank, and an all-reduce of the host after the first two
  overlapped  one dispatch: a block of a projection is sent to every rank as soon as it is
              computed, and added up as soon as it has arrived from all. Cells count epochs, one per
              layer, so that buffers and cells are used again without a barrier: a rank sends a
              block of the next layer only after it has received blocks that its peers computed
              from the previous ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import (
    MODE,
    Kind,
    LayerShape,
    attention_matrices,
    build_decode,
    build_prefill,
    make_columns,
    make_decode,
    make_layer_matrix,
    make_layer_part,
    make_layer_projection,
    make_load,
    make_mlp,
    make_prefill,
    rope_tables,
)
from tilelet.models.qwen3.weights import layer_arrays
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig, TensorSpec, compile_program, run

SPLIT_AXIS = {"wq": 1, "wk": 1, "wv": 1, "wo": 0, "w_gate": 1, "w_up": 1, "w_down": 0}
"""The axis along which a matrix `[inputs, outputs]` is divided among ranks; norms are not."""

CELL = 16
"""INT32 per signal cell: a cache line of its own."""


def rank_config(config: Qwen3Config, ranks: int) -> Qwen3Config:
    """Return the sizes of one rank's part of every layer."""
    parts = {}
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        whole = getattr(config, name)
        if ranks < 1 or whole % ranks:
            raise BadTile("ranks", ranks, f"a divisor of `{name}`, {whole}")
        parts[name] = whole // ranks
    return dataclasses.replace(config, **parts)


def rank_shape(s: LayerShape, ranks: int) -> LayerShape:
    """Return the sizes of one rank's program; `s` are those of the whole layer."""
    return dataclasses.replace(s, config=rank_config(s.config, ranks))


# --- sums over ranks ------------------------------------------------------------------------------


class SumShape:
    """Rows of hidden states, in whole tiles, and the blocks in which partial sums are sent."""

    def __init__(self, s: LayerShape, kind: Kind, ranks: int) -> None:
        self.ranks = ranks
        self.states = s.batch * (s.tokens if kind == "prefill" else 1)
        if kind == "prefill" and s.batch != 1:
            raise BadTile("batch", s.batch, "1: the prefill of several ranks takes one sequence")
        self.tiles = math.ceil(self.states / s.row_tile)
        self.rows = self.tiles * s.row_tile
        self.blocks = s.config.hidden_size // s.out_chunk
        self.parts = [ranks * self.rows, s.config.hidden_size]
        self.cells = [self.tiles * self.blocks, CELL]


def make_sums(s: LayerShape, sums: SumShape):
    """Send a block of a partial sum to all ranks; add up a block that all ranks have sent.

    A block has its own window and cell, so that tasks of different blocks are independent. Every
    rank adds in the order of ranks, so that all get the same bits.
    """
    T, COLUMNS, RANKS, BLOCKS = s.row_tile, s.out_chunk, sums.ranks, sums.blocks

    @pl.inline
    def block_at(parts, arrived, row, o0):
        """The window of a block, with the parts of all ranks one below the other, and its cell."""
        cell = row // T * BLOCKS + o0 // COLUMNS
        return (
            pl.slice(parts, [RANKS * T, COLUMNS], [row * RANKS, o0]),
            pl.slice(arrived, [1, CELL], [cell, 0]),
        )

    @pl.inline
    def send(part, window, cell):
        me = pld.rank(pld.get_comm_ctx(window))
        for peer in pl.range(RANKS):
            pld.tensor.remote_store(part, window, peer=peer, offsets=[me * T, 0])
            pld.system.notify(cell, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)

    @pl.inline
    def add_received(total, window, cell, epoch):
        pld.system.wait(cell, offsets=[0, 0], expected=epoch * RANKS, cmp=pld.WaitCmp.Ge)
        received = pl.slice(window, [T, COLUMNS], [0, 0])
        for r in pl.range(1, RANKS):
            received = pl.add(received, pl.slice(window, [T, COLUMNS], [r * T, 0]))
        return pl.add(total, received)

    return block_at, send, add_received


def make_summed_outputs(s: LayerShape, sums: SumShape):
    """The ends of both parts of a layer; a weight comes with its buffer, cells and epoch."""
    c, T, DTYPE, COLUMNS, HIDDEN = s.config, s.row_tile, s.dtype, s.out_chunk, s.config.hidden_size
    load = make_load(T, COLUMNS, DTYPE)
    block_at, send, add_received = make_sums(s, sums)

    def sending(inner: int, hint: str):
        project = make_layer_projection(s, T, s.k_chunk, COLUMNS, inner)
        columns_of = make_columns(s, inner, COLUMNS)

        @pl.inline
        def send_blocks(x, weight, row):
            matrix, parts, arrived, _ = weight
            for o0 in pl.parallel(0, HIDDEN, COLUMNS):
                window, cell = block_at(parts, arrived, row, o0)
                columns = columns_of(matrix, o0 // COLUMNS)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint=hint):
                    send(project(x, columns, 0, 0), window, cell)

        return send_blocks

    send_output = sending(c.q_width, "output_projection")
    send_down = sending(c.intermediate_size, "down_projection")

    @pl.inline
    def attention_output(attended, x, wo, row, valid):
        send_output(attended, wo, row)
        _, parts, arrived, epoch = wo
        residual = pl.create_tensor([T, HIDDEN], dtype=pl.FP32)
        for o0 in pl.parallel(0, HIDDEN, COLUMNS):
            window, cell = block_at(parts, arrived, row, o0)
            block = pl.slice(residual, [T, COLUMNS], [0, o0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="output_sum"):
                summed = add_received(load(x, 0, o0), window, cell, epoch)
                block = pl.assemble(block, summed, [0, 0])
        return pl.set_validshape(residual, valid, HIDDEN)

    @pl.inline
    def mlp_output(activation, residual, w_down, out, row, valid):
        send_down(activation, w_down, row)
        _, parts, arrived, epoch = w_down
        for o0 in pl.parallel(0, HIDDEN, COLUMNS):
            window, cell = block_at(parts, arrived, row, o0)
            block = pl.slice(out, [T, COLUMNS], [row, o0], valid_shape=[valid, COLUMNS])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_sum"):
                before = pl.slice(residual, [T, COLUMNS], [0, o0])
                total = add_received(before, window, cell, epoch)
                block = pl.assemble(block, pl.cast(total, target_type=DTYPE, mode=MODE), [0, 0])
        return out

    return attention_output, mlp_output


class RankTypes:
    """Types of the tensors of `layers` layers on one rank, and with `ranks` on all of them."""

    def __init__(self, s: LayerShape, sums: SumShape) -> None:
        c, layers, first = s.config, s.layers, [sums.ranks]
        q, kv, output = attention_matrices(s)
        up = (c.hidden_size, c.intermediate_size, s.out_chunk)
        down = (c.intermediate_size, c.hidden_size, s.out_chunk)
        self.matrices = {"q": q, "kv": kv, "output": output, "up": up, "down": down}

        def both(shape: Any, dtype: Any) -> tuple[Any, Any]:
            return pl.Tensor[[*shape], dtype], pl.Tensor[[*first, *shape], dtype]

        self.Lens = pl.Tensor[[s.batch], pl.INT32]
        self.Table = pl.Tensor[[s.batch, s.table_width], pl.INT32]
        self.Rope = pl.Tensor[[s.max_seq, c.head_dim], pl.FP32]
        self.Norm = pl.Tensor[[layers, c.hidden_size], pl.FP32]
        self.HeadNorm = pl.Tensor[[layers, c.head_dim], pl.FP32]
        self.States, self.AllStates = both([sums.states, c.hidden_size], s.dtype)
        self.Cache, self.AllCaches = both([layers * s.cache_rows, c.head_dim], s.dtype)
        self.Q, self.AllQ = both(s.stored_shape(*q, layers), s.weight_dtype)
        self.Kv, self.AllKv = both(s.stored_shape(*kv, layers), s.weight_dtype)
        self.Output, self.AllOutputs = both(s.stored_shape(*output, layers), s.weight_dtype)
        self.Up, self.AllUps = both(s.stored_shape(*up, layers), s.weight_dtype)
        self.Down, self.AllDowns = both(s.stored_shape(*down, layers), s.weight_dtype)
        self.Parts = pld.DistributedTensor[sums.parts, pl.FP32]
        self.Cells = pld.DistributedTensor[sums.cells, pl.INT32]
        self.Sums = pld.DistributedTensor[[sums.rows, c.hidden_size], pl.FP32]

    def views(self, s: LayerShape) -> tuple[Any, ...]:
        """Return functions that take one layer's part of every kind of array."""
        c = s.config
        return (
            make_layer_part(s.cache_rows, c.head_dim),
            make_layer_part(1, c.hidden_size),
            make_layer_part(1, c.head_dim),
            *(make_layer_matrix(s, *sizes) for sizes in self.matrices.values()),
        )


def make_overlapped(s: LayerShape, kind: Kind, ranks: int) -> Any:
    """The host function of `s.layers` layers, with the sizes of one rank's part."""
    sums = SumShape(s, kind, ranks)
    t, N, PARTS, CELLS = RankTypes(s, sums), s.layers, sums.parts, sums.cells
    cache_of, norm_of, head_norm_of, q_of, kv_of, output_of, up_of, down_of = t.views(s)
    make_layer = make_prefill if kind == "prefill" else make_decode
    attention_output, mlp_output = make_summed_outputs(s, sums)
    layer = make_layer(s, attention_output, make_mlp(s, mlp_output))

    @pl.jit
    def rank_layers(
        states: pl.InOut[t.States], seq_lens: t.Lens, starts: t.Lens, block_table: t.Table,
        rope_cos: t.Rope, rope_sin: t.Rope, k_cache: pl.InOut[t.Cache], v_cache: pl.InOut[t.Cache],
        input_norm: t.Norm, wq: t.Q, wk: t.Kv, wv: t.Kv, q_norm: t.HeadNorm, k_norm: t.HeadNorm,
        wo: t.Output, post_norm: t.Norm, w_gate: t.Up, w_up: t.Up, w_down: t.Down, parts: t.Parts,
        arrived: t.Cells, down_parts: t.Parts, down_arrived: t.Cells,
    ):  # fmt: skip
        for n in pl.range(N):
            k_part, v_part = cache_of(k_cache, n), cache_of(v_cache, n)
            k_part, v_part, states = layer(
                states, seq_lens, starts, block_table, rope_cos, rope_sin, k_part, v_part,
                norm_of(input_norm, n), q_of(wq, n), kv_of(wk, n), kv_of(wv, n),
                head_norm_of(q_norm, n), head_norm_of(k_norm, n),
                (output_of(wo, n), parts, arrived, n + 1),
                norm_of(post_norm, n), up_of(w_gate, n), up_of(w_up, n),
                (down_of(w_down, n), down_parts, down_arrived, n + 1),
            )  # fmt: skip
        return k_cache, v_cache, states

    @pl.jit.host
    def overlapped_layers(
        states: pl.InOut[t.AllStates], seq_lens: t.Lens, starts: t.Lens, block_table: t.Table,
        rope_cos: t.Rope, rope_sin: t.Rope, k_cache: pl.InOut[t.AllCaches],
        v_cache: pl.InOut[t.AllCaches], input_norm: t.Norm, wq: t.AllQ, wk: t.AllKv, wv: t.AllKv,
        q_norm: t.HeadNorm, k_norm: t.HeadNorm, wo: t.AllOutputs, post_norm: t.Norm,
        w_gate: t.AllUps, w_up: t.AllUps, w_down: t.AllDowns,
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
            rank_layers(
                states[r], seq_lens, starts, block_table, rope_cos, rope_sin,
                k_cache[r], v_cache[r], input_norm, wq[r], wk[r], wv[r], q_norm, k_norm, wo[r],
                post_norm, w_gate[r], w_up[r], w_down[r],
                parts, arrived, down_parts, down_arrived, device=r,
            )  # fmt: skip

    return overlapped_layers


# --- all-reduces of the host ----------------------------------------------------------------------


def make_stored_outputs(s: LayerShape):
    """The ends of both parts, which store partial sums into a window of the rank itself."""
    c, T, COLUMNS, HIDDEN = s.config, s.row_tile, s.out_chunk, s.config.hidden_size

    def stored(inner: int, hint: str):
        project = make_layer_projection(s, T, s.k_chunk, COLUMNS, inner)
        columns_of = make_columns(s, inner, COLUMNS)

        @pl.inline
        def store_blocks(x, weight, sums, row, valid):
            for o0 in pl.parallel(0, HIDDEN, COLUMNS):
                block = pl.slice(sums, [T, COLUMNS], [row, o0], valid_shape=[valid, COLUMNS])
                columns = columns_of(weight, o0 // COLUMNS)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint=hint):
                    block = pl.assemble(block, project(x, columns, 0, 0), [0, 0])
            return sums

        return store_blocks

    store_output = stored(c.q_width, "output_projection")
    store_down = stored(c.intermediate_size, "down_projection")

    @pl.inline
    def attention_output(attended, x, wo, row, valid):
        weight, sums = wo
        return store_output(attended, weight, sums, row, valid)

    @pl.inline
    def mlp_output(activation, residual, w_down, sums, row, valid):
        return store_down(activation, w_down, sums, row, valid)

    return attention_output, mlp_output


def make_residual(s: LayerShape):
    """Hidden states plus the sums of all ranks, FP32, in tasks of some columns."""
    T, COLUMNS, HIDDEN = s.row_tile, s.out_chunk, s.config.hidden_size
    load = make_load(T, COLUMNS, s.dtype)

    @pl.inline
    def residual_of(x, sums, row, valid):
        residual = pl.create_tensor([T, HIDDEN], dtype=pl.FP32)
        for o0 in pl.parallel(0, HIDDEN, COLUMNS):
            block = pl.slice(residual, [T, COLUMNS], [0, o0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="output_sum"):
                added = pl.add(load(x, 0, o0), pl.slice(sums, [T, COLUMNS], [row, o0]))
                block = pl.assemble(block, added, [0, 0])
        return pl.set_validshape(residual, valid, HIDDEN)

    return residual_of


def make_row_count(s: LayerShape, kind: Kind):
    """The number of rows of hidden states that are real."""
    BATCH = s.batch

    @pl.inline
    def sequences(seq_lens, starts):
        return BATCH

    @pl.inline
    def new_tokens(seq_lens, starts):
        return pl.read(seq_lens, [0]) - pl.read(starts, [0])

    return new_tokens if kind == "prefill" else sequences


def make_obvious(s: LayerShape, kind: Kind, ranks: int) -> Any:
    """The host function of one layer, with the sizes of one rank's part."""
    sums = SumShape(s, kind, ranks)
    t, T, COLUMNS, HIDDEN = RankTypes(s, sums), s.row_tile, s.out_chunk, s.config.hidden_size
    DTYPE, ROWS = s.dtype, sums.rows
    attention_output, mlp_output = make_stored_outputs(s)

    @pl.inline
    def no_mlp(residual, post_norm, w_gate, w_up, w_down, out, row, valid):
        return out

    make_layer = make_prefill if kind == "prefill" else make_decode
    attention_only = make_layer(s, attention_output, no_mlp)
    mlp = make_mlp(s, mlp_output)
    residual_of, rows_of = make_residual(s), make_row_count(s, kind)

    @pl.jit
    def attention_part(
        states: t.States, seq_lens: t.Lens, starts: t.Lens, block_table: t.Table, rope_cos: t.Rope,
        rope_sin: t.Rope, k_cache: pl.InOut[t.Cache], v_cache: pl.InOut[t.Cache],
        input_norm: t.Norm, wq: t.Q, wk: t.Kv, wv: t.Kv, q_norm: t.HeadNorm, k_norm: t.HeadNorm,
        wo: t.Output, sums: pl.Out[t.Sums],
    ):  # fmt: skip
        k_cache, v_cache, states = attention_only(
            states, seq_lens, starts, block_table, rope_cos, rope_sin, k_cache, v_cache,
            input_norm, wq, wk, wv, q_norm, k_norm, (wo, sums), 0, 0, 0, 0,
        )  # fmt: skip
        return k_cache, v_cache, sums

    @pl.jit
    def mlp_part(
        states: t.States, seq_lens: t.Lens, starts: t.Lens, post_norm: t.Norm, w_gate: t.Up,
        w_up: t.Up, w_down: t.Down, sums: t.Sums, down: pl.Out[t.Sums],
    ):  # fmt: skip
        for row in pl.parallel(0, rows_of(seq_lens, starts), T):
            valid = pl.min(T, rows_of(seq_lens, starts) - row)
            x = pl.slice(states, [T, HIDDEN], [row, 0], valid_shape=[valid, HIDDEN])
            residual = residual_of(x, sums, row, valid)
            down = mlp(residual, post_norm, w_gate, w_up, w_down, down, row, valid)
        return down

    @pl.jit
    def add_sums(
        states: pl.InOut[t.States], seq_lens: t.Lens, starts: t.Lens, sums: t.Sums, down: t.Sums
    ):
        for row in pl.parallel(0, rows_of(seq_lens, starts), T):
            valid = pl.min(T, rows_of(seq_lens, starts) - row)
            x = pl.slice(states, [T, HIDDEN], [row, 0], valid_shape=[valid, HIDDEN])
            residual = residual_of(x, sums, row, valid)
            for o0 in pl.parallel(0, HIDDEN, COLUMNS):
                block = pl.slice(states, [T, COLUMNS], [row, o0], valid_shape=[valid, COLUMNS])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_sum"):
                    before = pl.slice(residual, [T, COLUMNS], [0, o0])
                    total = pl.add(before, pl.slice(down, [T, COLUMNS], [row, o0]))
                    block = pl.assemble(block, pl.cast(total, target_type=DTYPE, mode=MODE), [0, 0])
        return states

    @pl.jit.host
    def obvious_layer(
        states: pl.InOut[t.AllStates], seq_lens: t.Lens, starts: t.Lens, block_table: t.Table,
        rope_cos: t.Rope, rope_sin: t.Rope, k_cache: pl.InOut[t.AllCaches],
        v_cache: pl.InOut[t.AllCaches], input_norm: t.Norm, wq: t.AllQ, wk: t.AllKv, wv: t.AllKv,
        q_norm: t.HeadNorm, k_norm: t.HeadNorm, wo: t.AllOutputs, post_norm: t.Norm,
        w_gate: t.AllUps, w_up: t.AllUps, w_down: t.AllDowns,
    ):  # fmt: skip
        sums_buf = pld.alloc_window_buffer([ROWS, HIDDEN], dtype=pl.FP32)
        down_buf = pld.alloc_window_buffer([ROWS, HIDDEN], dtype=pl.FP32)
        sums_signal_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
        down_signal_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
        sums = pld.window(sums_buf, [ROWS, HIDDEN], dtype=pl.FP32)
        down = pld.window(down_buf, [ROWS, HIDDEN], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            attention_part(
                states[r], seq_lens, starts, block_table, rope_cos, rope_sin,
                k_cache[r], v_cache[r], input_norm, wq[r], wk[r], wv[r], q_norm, k_norm, wo[r],
                sums, device=r,
            )  # fmt: skip
        sums = pld.tensor.allreduce(sums, pld.window(sums_signal_buf, [ranks], dtype=pl.INT32))
        for r in pl.range(pld.world_size()):
            mlp_part(
                states[r], seq_lens, starts, post_norm, w_gate[r], w_up[r], w_down[r], sums, down,
                device=r,
            )  # fmt: skip
        down = pld.tensor.allreduce(down, pld.window(down_signal_buf, [ranks], dtype=pl.INT32))
        for r in pl.range(pld.world_size()):
            add_sums(states[r], seq_lens, starts, sums, down, device=r)

    return obvious_layer


VARIANTS = {"obvious": make_obvious, "overlapped": make_overlapped}


# --- inputs and golden ----------------------------------------------------------------------------


def divide(name: str, whole: Array, s: LayerShape, ranks: int) -> Array:
    """Return a tensor of a layer as its program on several ranks takes it."""
    if name == "states":
        return np.repeat(whole[None], ranks, 0)
    if name in ("k_cache", "v_cache"):
        c = s.config
        heads = whole.reshape(-1, ranks, c.kv_heads // ranks, s.page, c.head_dim)
        return np.ascontiguousarray(np.moveaxis(heads, 1, 0)).reshape(ranks, -1, c.head_dim)
    if name in SPLIT_AXIS:
        return np.stack(np.split(whole, ranks, SPLIT_AXIS[name]))
    return whole


def whole_tensors(s: LayerShape, kind: Kind) -> dict[str, Array]:
    """Draw the tensors of one layer on one rank; sequences of different lengths."""
    c, rng = s.config, np.random.default_rng(5)
    rows = s.batch * (s.tokens if kind == "prefill" else 1)
    lengths = np.full(s.batch, s.tokens, np.int32)
    starts = np.zeros(s.batch, np.int32)
    if kind == "decode":
        lengths = rng.integers(1, s.max_seq + 1, s.batch).astype(np.int32)
        starts = lengths - 1
    table = np.arange(s.batch * s.table_width, dtype=np.int32).reshape(s.batch, -1)
    cos, sin = rope_tables(c, s.max_seq)
    cache = (s.cache_rows, c.head_dim)
    found: dict[str, Array] = {
        "states": rng.uniform(-0.4, 0.4, (rows, c.hidden_size)).astype(s.dtype.numpy),
        "seq_lens": lengths,
        "starts": starts,
        "block_table": table,
        "rope_cos": cos,
        "rope_sin": sin,
    }
    for name in ("k_cache", "v_cache"):
        found[name] = inputs.make_normal(name, cache, 0.5, s.dtype)()
    for name, array in layer_arrays(c).items():
        rows, columns = array.shape
        if array.dtype is not None:
            found[name] = rng.uniform(0.5, 1.5, array.shape).astype(np.float32)
        else:
            found[name] = inputs.make_normal(name, (rows, columns), rows**-0.5, s.dtype)()
    return found


def specs(s: LayerShape, kind: Kind, ranks: int) -> list[TensorSpec]:
    """Return the tensors of a layer, those that ranks have parts of with a new first axis."""
    found: list[TensorSpec] = []
    for name, whole in whole_tensors(s, kind).items():
        value = divide(name, whole, s, ranks)
        is_output = name in ("states", "k_cache", "v_cache")
        dtype = s.dtype if value.dtype == s.dtype.numpy else _DTYPES[value.dtype.name]
        found.append(TensorSpec(name, value.shape, dtype, value, is_output=is_output))
    return found


_DTYPES = {"float32": pl.FP32, "int32": pl.INT32}


def golden(
    s: LayerShape, kind: Kind, ranks: int, engine: str | None = None
) -> Callable[[dict[str, Array]], None]:
    """The layer of one rank."""

    def layer(tensors: Mapping[str, Array]) -> None:
        whole = whole_tensors(s, kind)
        build = build_prefill if kind == "prefill" else build_decode
        compile_program(build(s), config=RunConfig(engine=engine))(*whole.values())
        for name in ("states", "k_cache", "v_cache"):
            tensors[name][:] = divide(name, whole[name], s, ranks)

    return layer


def layer_shape(
    config: Qwen3Config, kind: Kind, ranks: int, *, batch: int = 16, context: int = 4096
) -> LayerShape:
    """Return the sizes of a layer: a step of `batch` sequences, or a prompt of `context` tokens."""
    own = rank_config(config, ranks)
    columns = math.gcd(own.hidden_size, own.intermediate_size, 128)
    is_prompt = kind == "prefill"
    return LayerShape(
        config,
        1 if is_prompt else batch,
        context,
        tokens=context if is_prompt else 0,
        row_tile=64 if is_prompt else 16,
        seq_tile=min(128, context),
        k_chunk=math.gcd(own.hidden_size, own.q_width, own.intermediate_size, 128),
        out_chunk=columns,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="a tensor-parallel Qwen3 layer")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kind", default="decode", choices=("decode", "prefill"))
    parser.add_argument("--variant", default="overlapped", choices=tuple(VARIANTS))
    parser.add_argument("--size", default="0.6B", help="a published model, such as 32B")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("-p", "--platform", default="a2a3sim")
    args = parser.parse_args()
    shape = layer_shape(Qwen3Config.preset(args.size), args.kind, args.ranks, context=args.context)
    world = DistributedConfig(device_ids=range(args.ranks))
    result = run(
        VARIANTS[args.variant](rank_shape(shape, args.ranks), args.kind, args.ranks),
        specs(shape, args.kind, args.ranks),
        golden_fn=golden(shape, args.kind, args.ranks),
        config=RunConfig(platform=args.platform, distributed_config=world),
        rtol=1e-2,
        atol=1e-2,
    )
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
