"""Seeded inputs of the Qwen3 programs: the same numbers in every run.

They are chosen to expose wrong kernels: attention is peaked (scores spread by several units), in
some heads so much that exponentials overflow unless the maximum is subtracted; norm weights differ
from one, rope tables are real, contexts end on and next to tile boundaries. Outputs and caches stay
below one in magnitude, where one BF16 ulp is within the
tolerance of a layer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import DTypeLike

import tilelet.language as pl
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.reference import rope_tables
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec

# Standard deviations of keys, values and queries; scores have the product of keys and queries.
KEY = 0.2
VALUE = 0.2
QUERY = 2.5 / KEY
# The same for the queries of the first head of every K/V head.
HOT_QUERY = 120 / KEY


# One of many possible seeds. With this one even the shortest context, at the size of the tests, has
# a score so negative that a running maximum initialized to zero would be noticed.
DRAW = 3


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng([DRAW, zlib.crc32(name.encode())])


@cache
def _quantiles() -> Array:
    """Return 65536 equally likely normally distributed numbers."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((i + 0.5) / 65536) for i in range(65536)])


def _normal_array(name: str, shape: tuple[int, ...], std: float, dtype: DTypeLike) -> Array:
    """Return normal numbers, looked up by sixteen random bits each: a layer needs a billion."""
    table = (_quantiles() * std).astype(dtype)
    return table[_rng(name).integers(0, table.size, shape, dtype=np.uint16)]


def make_normal(
    name: str, shape: tuple[int, ...], std: float, dtype: DType = pl.FP32
) -> Callable[[], Array]:
    return lambda: _normal_array(name, shape, std, dtype.numpy)


def uniform(name: str, shape: tuple[int, ...], low: float, high: float) -> Callable[[], Array]:
    return lambda: _rng(name).uniform(low, high, shape).astype(np.float32)


def hidden_states(s: DecodeShape) -> TensorSpec:
    shape = (s.batch, s.hidden)
    return TensorSpec("hidden_states", shape, pl.BF16, uniform("hidden", shape, -0.4, 0.4))


def norm_weight(name: str, s: DecodeShape) -> TensorSpec:
    shape = (1, s.hidden)
    return TensorSpec(name, shape, pl.FP32, uniform(name, shape, 0.5, 1.5))


def weight(name: str, inputs: int, outputs: int, gain: float) -> TensorSpec:
    """Return a weight that maps inputs of variance one to outputs of standard deviation `gain`."""
    shape = (inputs, outputs)
    return TensorSpec(name, shape, pl.BF16, make_normal(name, shape, gain / inputs**0.5, pl.BF16))


def queries(name: str, rows: int, scale: float, s: DecodeShape) -> Callable[[], Array]:
    """Return `[rows, hidden]`; each query head's columns have its standard deviation x `scale`."""

    def drawn() -> Array:
        values = _normal_array(name, (rows, s.hidden), QUERY * scale, np.float32)
        first_heads = values.reshape(rows, s.kv_heads, -1)[:, :, : s.head_dim]
        first_heads *= np.float32(HOT_QUERY / QUERY)
        return values

    return drawn


def qkv_weights(s: DecodeShape) -> list[TensorSpec]:
    square = (s.hidden, s.hidden)
    return [
        TensorSpec("wq", square, pl.BF16, queries("wq", s.hidden, s.hidden**-0.5, s)),
        weight("wk", s.hidden, s.kv_width, KEY),
        weight("wv", s.hidden, s.kv_width, VALUE),
    ]


def projections(s: DecodeShape) -> list[TensorSpec]:
    """Return the results of `qkv_weights` on normalized rows."""
    kv = (s.batch, s.kv_width)
    return [
        TensorSpec("q_proj", (s.batch, s.hidden), pl.FP32, queries("q_proj", s.batch, 1.0, s)),
        TensorSpec("k_proj", kv, pl.FP32, make_normal("k_proj", kv, KEY)),
        TensorSpec("v_proj", kv, pl.FP32, make_normal("v_proj", kv, VALUE)),
    ]


def output_weight(s: DecodeShape) -> TensorSpec:
    """Return an output weight large enough that attention shows in the layer's output.

    It is not so large that a query that rounds the other way shows, too: where two keys of a head
    with high scores are nearly equal, that moves weight from one to the other.
    """
    return weight("wo", s.hidden, s.hidden, 0.2)


def mlp_weights(s: DecodeShape) -> list[TensorSpec]:
    return [
        weight("w_gate", s.hidden, s.intermediate, 1.0),
        weight("w_up", s.hidden, s.intermediate, 1.0),
        weight("w_down", s.intermediate, s.hidden, 0.1),
    ]


def seq_lens(s: DecodeShape) -> TensorSpec:
    """Return ragged contexts; the first ones lie on and next to the edges of a tile and the cache.

    With two positions, one is the new token's own, where it counts most.
    """

    def lengths() -> Array:
        drawn = _rng("seq_lens").integers(1, s.max_seq + 1, s.batch)
        edges = [s.max_seq, s.seq_tile + 1, 1, 2, s.seq_tile, s.seq_tile - 1, s.max_seq - 1]
        for i, edge in enumerate(edges[: s.batch]):
            drawn[i] = min(max(edge, 1), s.max_seq)
        return drawn.astype(np.int32)

    return TensorSpec("seq_lens", (s.batch,), pl.INT32, lengths)


def rope(s: DecodeShape) -> list[TensorSpec]:
    shape = (s.max_seq, s.head_dim)
    return [
        TensorSpec("rope_cos", shape, pl.FP32, lambda: rope_tables(*shape)[0]),
        TensorSpec("rope_sin", shape, pl.FP32, lambda: rope_tables(*shape)[1]),
    ]


def caches(s: DecodeShape) -> list[TensorSpec]:
    """Return K and V caches: read and updated in place, so they are compared as well."""
    shape = (s.cache_rows, s.head_dim)
    return [
        TensorSpec(name, shape, pl.BF16, make_normal(name, shape, std, pl.BF16), is_output=True)
        for name, std in (("k_cache", KEY), ("v_cache", VALUE))
    ]
