# pyright: basic
"""Sample the next token from logits: greedy, or with temperature, top-k and top-p.

    choose = Sampler(batch, vocabulary)
    tokens = choose(logits, [Sampling(temperature=0.8, top_p=0.95, seed=7)] * batch, steps)

A draw uses one uniform number and the kept tokens in vocabulary order: it selects the first whose
cumulative probability exceeds the number, which depends only on the seed and the step, so that a
sequence gets the same tokens in any batch. The kept tokens are those of `transformers`: those not
below the k-th largest logit, and of these the fewest with a total probability of at least top_p,
plus tokens with the same logit as the last one kept.

Nothing is sorted. A limit is found by bisection over the bits of a logit, which are ordered like
the numbers once those of negative ones are inverted: 32 passes over a row, whatever its contents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.diag.catalogue.sampling import BadLogits, BadSampling, WrongSamplerInput
from tilelet.diag.text import shape_text
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Program
from tilelet.runtime import RunConfig, compile_program

# Maximum tokens per block: two FP32 and two INT32 tiles fit on chip, double-buffered.
LARGEST_BLOCK = 4096
# A tile's rows must have at least 32 bytes.
SMALLEST_BLOCK = 8
# Key of -infinity, below every other; and the bits of a number without its sign.
LOWEST_KEY = -0x7F800001
MAGNITUDE = 0x7FFFFFFF
LOWEST = -math.inf
# Bisection steps for a range of 2**32 keys.
HALVINGS = 32
# Bits of a uniform number: the precision of FP32.
UNIFORM_BITS = 24


@dataclass(frozen=True)
class Sampling:
    """How the tokens of one sequence are sampled; temperature 0 takes the largest logit.

    `top_k` 0 and `top_p` 1 keep all tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        # Values may come from a command line or a request.
        for name, ok, wanted in (
            ("temperature", 0 <= self.temperature < math.inf, "a number of at least 0"),
            ("top_k", 0 <= self.top_k < 1 << 31, "an integer of at least 0; 0 keeps all tokens"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1, which keeps all tokens"),
            ("seed", 0 <= self.seed < 1 << 64, "an integer from 0 to 2**64 - 1"),
        ):
            if not ok:
                raise BadSampling(name, getattr(self, name), wanted)


def block_of(vocabulary: int) -> int:
    """Return the number of tokens per block: a power of two."""
    return min(max(SMALLEST_BLOCK, 1 << (vocabulary - 1).bit_length()), LARGEST_BLOCK)


def _whole_rows(count: int) -> int:
    """Return the columns of a tile with one number per block: rows are whole 32-byte blocks."""
    return math.ceil(count / SMALLEST_BLOCK) * SMALLEST_BLOCK


def make_argmax(columns: int, dtype: DType):
    """Return the maximum of a row of logits and its first column, as scalars.

    As in torch, NaN counts as the largest value.
    """
    BLOCK = block_of(columns)
    blocks = math.ceil(columns / BLOCK)
    COLUMNS = _whole_rows(blocks)
    load = _make_load(columns, dtype)

    @pl.inline
    def argmax(logits, row):
        # Block results side by side, so that the first maximum or NaN is found in two steps.
        highest = pl.full([1, COLUMNS], dtype=pl.FP32, value=LOWEST)
        for i in pl.range(blocks):
            highest = pl.assemble(highest, pl.row_max(load(logits, row, i * BLOCK)), [0, i])
        block = pl.read(pl.row_argmax(highest), [0, 0])
        place = pl.read(pl.row_argmax(load(logits, row, block * BLOCK)), [0, 0])
        token = block * BLOCK + place
        return pl.read(highest, [0, block]), token

    return argmax


def _make_load(columns: int, dtype: DType):
    """Load a block of a row of logits in FP32; the last may be short."""
    BLOCK = block_of(columns)

    @pl.inline
    def widened(logits, row, c0):
        valid = pl.min(BLOCK, columns - c0)
        x = pl.slice(logits, [1, BLOCK], [row, c0], valid_shape=[1, valid])
        return pl.cast(x, target_type=pl.FP32)

    @pl.inline
    def unchanged(logits, row, c0):
        valid = pl.min(BLOCK, columns - c0)
        return pl.slice(logits, [1, BLOCK], [row, c0], valid_shape=[1, valid])

    return unchanged if dtype is pl.FP32 else widened


def _make_weigh(columns: int, dtype: DType):
    """Compute two rows from the logits: their ordered keys, and the softmax numerators.

    Both are whole blocks: past the vocabulary they hold the lowest key and zero weight.
    """
    BLOCK = block_of(columns)
    blocks = math.ceil(columns / BLOCK)
    load = _make_load(columns, dtype)

    @pl.inline
    def weigh(logits, keys, weights, row, highest, temperature):
        for i in pl.range(blocks):
            x = load(logits, row, i * BLOCK)
            bits = pl.reinterpret_view(pl.add(x, 0.0), pl.INT32)  # no negative zero
            key = pl.xor(bits, pl.and_(pl.shr(bits, 31), MAGNITUDE))
            key = pl.fillpad(key, pad_value=pl.PadValue.min)
            weight = pl.exp(pl.div(pl.sub(x, highest), temperature))
            weight = pl.fillpad(weight, pad_value=pl.PadValue.zero)
            keys = pl.assemble(keys, key, [row, i * BLOCK])
            weights = pl.assemble(weights, weight, [row, i * BLOCK])
        return keys, weights

    return weigh


def _make_limits(block: int, blocks: int):
    """Return the key of the last token kept by top-k, and of the last of those kept by top-p."""
    BLOCK = block

    @pl.inline
    def count_from(keys, row, limit):
        counts = pl.full([1, BLOCK], dtype=pl.INT32, value=0)
        for i in pl.range(blocks):
            key = pl.slice(keys, [1, BLOCK], [row, i * BLOCK])
            counts = pl.add(counts, pl.cmps(key, limit, cmp_type="ge"))
        return pl.read(pl.row_sum(counts), [0, 0])

    @pl.inline
    def weight_from(keys, weights, row, limit):
        sums = pl.full([1, BLOCK], dtype=pl.FP32, value=0.0)
        for i in pl.range(blocks):
            key = pl.slice(keys, [1, BLOCK], [row, i * BLOCK])
            weight = pl.slice(weights, [1, BLOCK], [row, i * BLOCK])
            kept = pl.sels(pl.cmps(key, limit, cmp_type="ge"), weight, None, 0.0)
            sums = pl.add(sums, kept)
        return pl.read(pl.row_sum(sums), [0, 0])

    @pl.inline
    def limit_by_count(keys, row, wanted, steps):
        kept: Any = LOWEST_KEY
        below = MAGNITUDE
        for _ in pl.range(steps):
            middle = (kept + below) >> 1
            if count_from(keys, row, pl.cast(middle, pl.INT32)) >= wanted:
                kept = middle
            else:
                below = middle
        return kept

    @pl.inline
    def limit_by_weight(keys, weights, row, first, top_p, steps):
        kept = first
        below = MAGNITUDE
        wanted = top_p * weight_from(keys, weights, row, pl.cast(first, pl.INT32))
        for _ in pl.range(steps):
            middle = (kept + below) >> 1
            if weight_from(keys, weights, row, pl.cast(middle, pl.INT32)) >= wanted:
                kept = middle
            else:
                below = middle
        return kept

    return limit_by_count, limit_by_weight


def _make_draw(block: int, blocks: int):
    """Return the first token whose cumulative weight exceeds `uniform` times the kept weight."""
    BLOCK, HALVES = block, block.bit_length() - 1
    COLUMNS = _whole_rows(blocks)

    @pl.inline
    def kept_weights(keys, weights, row, limit, c0):
        key = pl.slice(keys, [1, BLOCK], [row, c0])
        weight = pl.slice(weights, [1, BLOCK], [row, c0])
        return pl.sels(pl.cmps(key, limit, cmp_type="ge"), weight, None, 0.0)

    @pl.inline
    def draw(keys, weights, row, limit, uniform):
        sums = pl.full([1, COLUMNS], dtype=pl.FP32, value=0.0)
        total = pl.const(0.0, pl.FP32)
        for i in pl.range(blocks):
            block_sum = pl.row_sum(kept_weights(keys, weights, row, limit, i * BLOCK))
            sums = pl.assemble(sums, block_sum, [0, i])
            total = total + pl.read(block_sum, [0, 0])
        wanted = uniform * total
        # The block in which the cumulative weight exceeds `wanted`, and the weight before it.
        cumulated = pl.const(0.0, pl.FP32)
        before = pl.const(0.0, pl.FP32)
        found = 0
        for i in pl.range(blocks):
            following = cumulated + pl.read(sums, [0, i])
            if cumulated <= wanted and following > wanted:
                before = cumulated
                found = i
            cumulated = following
        kept = kept_weights(keys, weights, row, limit, found * BLOCK)
        column = pl.arange(0, [1, BLOCK])
        # Sums of masked rows are added in a fixed order, so they are monotonic in the mask.
        low = 0
        for step in pl.range(HALVES):
            size = BLOCK >> (step + 1)
            head = pl.cmps(column, pl.cast(low + size, pl.INT32), cmp_type="lt")
            if before + pl.read(pl.row_sum(pl.sels(head, kept, None, 0.0)), [0, 0]) <= wanted:
                low = low + size
        return found * BLOCK + low

    return draw


def build_sampling(batch: int, vocabulary: int, dtype: DType = pl.FP32) -> Program:
    """Build the program that samples a token for every row of logits; a row is a task.

    A row without a finite maximum gives token -1, unless it is greedy.
    """
    BATCH, VOCABULARY, DTYPE = batch, vocabulary, dtype
    BLOCK = block_of(vocabulary)
    BLOCKS = math.ceil(vocabulary / BLOCK)
    WIDTH = BLOCKS * BLOCK
    argmax = make_argmax(vocabulary, dtype)
    weigh = _make_weigh(vocabulary, dtype)
    limit_by_count, limit_by_weight = _make_limits(BLOCK, BLOCKS)
    draw = _make_draw(BLOCK, BLOCKS)

    @pl.inline
    def uniform_number(seeds, steps, row):
        key0, key1 = pl.read(seeds, [row, 0]), pl.read(seeds, [row, 1])
        words = pl.random(key0, key1, pl.read(steps, [row]), 0, 0, 0, [1, SMALLEST_BLOCK])
        number = pl.cast(pl.shr(words, 32 - UNIFORM_BITS), target_type=pl.FP32)
        return pl.read(pl.mul(number, 2.0**-UNIFORM_BITS), [0, 0])

    @pl.program
    class SampleTokens:
        @pl.function
        def sample_tokens(
            self,
            logits: pl.Tensor[[BATCH, VOCABULARY], DTYPE],
            temperatures: pl.Tensor[[BATCH], pl.FP32],
            top_ks: pl.Tensor[[BATCH], pl.INT32],
            top_ps: pl.Tensor[[BATCH], pl.FP32],
            seeds: pl.Tensor[[BATCH, 2], pl.INT32],
            steps: pl.Tensor[[BATCH], pl.INT32],
            tokens: pl.Out[pl.Tensor[[BATCH], pl.INT32]],
        ):
            keys = pl.create_tensor([BATCH, WIDTH], dtype=pl.INT32)
            weights = pl.create_tensor([BATCH, WIDTH], dtype=pl.FP32)
            for row in pl.parallel(BATCH):
                temperature = pl.read(temperatures, [row])
                top_k = pl.read(top_ks, [row])
                top_p = pl.read(top_ps, [row])
                if temperature > 0.0:
                    by_count = 0
                    if top_k > 0 and top_k < VOCABULARY:
                        by_count = HALVINGS
                    by_weight = 0
                    if top_p < 1.0:
                        by_weight = HALVINGS
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sample"):
                        highest, best = argmax(logits, row)
                        token: Any = -1
                        if highest - highest == 0.0:
                            keys, weights = weigh(logits, keys, weights, row, highest, temperature)
                            limit = limit_by_count(keys, row, top_k, by_count)
                            limit = limit_by_weight(keys, weights, row, limit, top_p, by_weight)
                            uniform = uniform_number(seeds, steps, row)
                            token = draw(keys, weights, row, pl.cast(limit, pl.INT32), uniform)
                        tokens = pl.write(tokens, [row], pl.cast(token, pl.INT32))
                else:
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="greedy"):
                        highest, best = argmax(logits, row)
                        tokens = pl.write(tokens, [row], pl.cast(best, pl.INT32))
            return tokens

    return SampleTokens


class Sampler:
    """Samples tokens from logits `[batch, vocabulary]` with the tile program."""

    def __init__(
        self,
        batch: int,
        vocabulary: int,
        dtype: DType = pl.FP32,
        *,
        engine: str | None = None,
    ) -> None:
        self._shape = (batch, vocabulary)
        self._dtype = dtype
        self._settings = RunConfig(engine=engine)
        self._program = compile_program(
            build_sampling(batch, vocabulary, dtype), config=self._settings
        )

    def __call__(self, logits: Array, settings: Sequence[Sampling], steps: Sequence[int]) -> Array:
        """Return the token of each row; `steps` counts the tokens of each sequence so far."""
        batch = self._shape[0]
        if logits.shape != self._shape or logits.dtype != self._dtype.numpy:
            found = f"{logits.dtype} {shape_text(logits.shape)}"
            raise WrongSamplerInput(found, f"{self._dtype.numpy} {shape_text(self._shape)}")
        if not len(settings) == len(steps) == batch:
            raise WrongSamplerInput(
                f"{len(settings)} settings and {len(steps)} steps", f"{batch} of each"
            )
        seeds = np.array([s.seed for s in settings], np.uint64)
        tokens = np.empty(batch, np.int32)
        self._program(
            logits,
            np.array([s.temperature for s in settings], np.float32),
            np.array([s.top_k for s in settings], np.int32),
            np.array([s.top_p for s in settings], np.float32),
            seeds.view(np.int32).reshape(batch, 2),
            np.array(steps, np.int64).astype(np.int32),
            tokens,
            config=self._settings,
        )
        bad = np.flatnonzero(tokens < 0)
        if bad.size:
            raise BadLogits(int(bad[0]))
        return tokens
