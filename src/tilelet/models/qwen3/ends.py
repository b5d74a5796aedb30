# pyright: basic
"""The programs before and after the layers of a model: the embedding and the output head.

Programs:
  build_embedding   rows of the embedding table, one for each token
  build_head        final RMSNorm and logits, in blocks of vocabulary columns; and the token with
                    the largest logit of each row, the first in case of ties

The head's matrix is stored in blocks of the columns of one task, one below the other: a task reads
memory sequentially. If the last block lacks columns, the missing ones are never read.

Logits are rounded to the dtype of the model before they are compared, as in the reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tilelet.language as pl
from tilelet.dtypes import DType
from tilelet.ir.core import Program
from tilelet.models.qwen3.blocks import make_projection, make_rmsnorm
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import MODE, fitting_divisor

# Vocabulary columns per task, and embedding rows that a task copies.
_COLUMNS = 256
_LOOKUPS = 16


@dataclass(frozen=True)
class EndShape:
    """Sizes of the programs before and after the layers, for `rows` rows of hidden states."""

    config: Qwen3Config
    rows: int
    dtype: DType = pl.BF16
    # Columns of a block of logits, and of a product's inputs; 0 selects fitting ones.
    columns: int = 0
    k_chunk: int = 0

    def __post_init__(self) -> None:
        columns = self.columns or min(_COLUMNS, self.config.vocab_size)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(
            self, "k_chunk", self.k_chunk or fitting_divisor(self.config.hidden_size, 64)
        )

    @property
    def blocks(self) -> int:
        """Number of blocks of logits; the last may have fewer columns."""
        return math.ceil(self.config.vocab_size / self.columns)


def build_embedding(s: EndShape) -> Program:
    """`states[r]` becomes the row of `table` selected by `tokens[r]`."""
    ROWS, HIDDEN, VOCABULARY, DTYPE = s.rows, s.config.hidden_size, s.config.vocab_size, s.dtype
    LOOKUPS = fitting_divisor(ROWS, _LOOKUPS)

    @pl.program
    class Qwen3Embedding:
        @pl.function
        def qwen3_embedding(
            self,
            tokens: pl.Tensor[[ROWS], pl.INT32],
            table: pl.Tensor[[VOCABULARY, HIDDEN], DTYPE],
            states: pl.Out[pl.Tensor[[ROWS, HIDDEN], DTYPE]],
        ):
            for first in pl.parallel(0, ROWS, LOOKUPS):
                own = pl.slice(states, [LOOKUPS, HIDDEN], [first, 0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="embedding"):
                    for r in pl.range(LOOKUPS):
                        row = pl.slice(table, [1, HIDDEN], [pl.read(tokens, [first + r]), 0])
                        own = pl.assemble(own, row, [r, 0])
            return states

    return Qwen3Embedding


def make_logits(s: EndShape, columns: int):
    """One block of logits, with the maximum of every row and its column."""
    ROWS, HIDDEN, DTYPE, WIDTH = s.rows, s.config.hidden_size, s.dtype, s.columns
    project = make_projection(ROWS, s.k_chunk, columns, HIDDEN // s.k_chunk, stage=2)

    @pl.inline
    def logits_block(normed, head, logits, largest, places, block):
        v0 = block * WIDTH
        own_logits = pl.slice(logits, [ROWS, columns], [0, v0])
        own_largest = pl.slice(largest, [1, ROWS], [block, 0])
        own_places = pl.slice(places, [1, ROWS], [block, 0])
        weight = pl.slice(head, [HIDDEN, columns], [block * HIDDEN, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="logits"):
            acc = project(normed, weight, 0, 0)
            rounded = pl.cast(acc, target_type=DTYPE, mode=MODE)
            own_logits = pl.assemble(own_logits, rounded, [0, 0])
            wide = pl.cast(rounded, target_type=pl.FP32)
            here = pl.reshape(pl.row_argmax(wide), [1, ROWS])
            own_largest = pl.assemble(own_largest, pl.reshape(pl.row_max(wide), [1, ROWS]), [0, 0])
            own_places = pl.assemble(own_places, pl.add(here, v0), [0, 0])
        return logits, largest, places

    return logits_block


def build_head(s: EndShape) -> Program:
    """Final RMSNorm, logits and the best token of every row."""
    c, ROWS, DTYPE = s.config, s.rows, s.dtype
    HIDDEN, VOCABULARY, BLOCKS, WIDTH = c.hidden_size, c.vocab_size, s.blocks, s.columns
    WHOLE, REST = VOCABULARY // s.columns, VOCABULARY % s.columns
    rmsnorm = make_rmsnorm(
        ROWS, HIDDEN, s.k_chunk, c.rms_norm_eps, x_dtype=DTYPE, dtype=DTYPE, mode=MODE
    )
    logits_block = make_logits(s, s.columns)
    rest_of_logits = make_logits(s, REST or s.columns)

    @pl.inline
    def no_rest(normed, head, logits, largest, places):
        return logits, largest, places

    @pl.inline
    def one_rest(normed, head, logits, largest, places):
        return rest_of_logits(normed, head, logits, largest, places, WHOLE)

    rest = one_rest if REST else no_rest

    @pl.program
    class Qwen3Head:
        @pl.function
        def qwen3_head(
            self,
            states: pl.Tensor[[ROWS, HIDDEN], DTYPE],
            final_norm: pl.Tensor[[1, HIDDEN], pl.FP32],
            head: pl.Tensor[[BLOCKS * HIDDEN, WIDTH], DTYPE],
            logits: pl.Out[pl.Tensor[[ROWS, VOCABULARY], DTYPE]],
            best: pl.Out[pl.Tensor[[1, ROWS], pl.INT32]],
        ):
            normed = pl.create_tensor([ROWS, HIDDEN], dtype=DTYPE)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="final_norm"):
                normed = rmsnorm(states, final_norm, normed, 0)
            largest = pl.create_tensor([BLOCKS, ROWS], dtype=pl.FP32)
            places = pl.create_tensor([BLOCKS, ROWS], dtype=pl.INT32)
            for block in pl.parallel(WHOLE):
                logits, largest, places = logits_block(normed, head, logits, largest, places, block)
            logits, largest, places = rest(normed, head, logits, largest, places)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="best_token"):
                top = pl.slice(largest, [1, ROWS], [0, 0])
                token = pl.slice(places, [1, ROWS], [0, 0])
                for block in pl.range(1, BLOCKS):
                    value = pl.slice(largest, [1, ROWS], [block, 0])
                    place = pl.slice(places, [1, ROWS], [block, 0])
                    is_larger = pl.cmp(value, top, cmp_type="gt")
                    token = pl.sel(is_larger, place, token)
                    top = pl.maximum(top, value)
                best = pl.assemble(best, token, [0, 0])
            return logits, best

    return Qwen3Head
