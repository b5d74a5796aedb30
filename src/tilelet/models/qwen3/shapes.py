"""Sizes of a Qwen3 layer, and of its tiles.

The defaults are Qwen3-32B as used in the programs of April 2026: `hidden` is heads x head_dim, so
that `wq` and `wo` are square. Tests pass smaller numbers; nothing may be a module constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from tilelet.diag.catalogue.models import BadTile
from tilelet.diag.text import integer_text

# Number of context-length classes, which are submitted in order, the longest first.
LENGTH_CLASSES = 8
_MAX_SIZE = (1 << 31) - 1


@dataclass(frozen=True)
class DecodeShape:
    """All sizes; `*_chunk` and `*_tile` are tile extents and must divide what they split."""

    batch: int = 16
    hidden: int = 8192
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 25600
    max_seq: int = 4096
    eps: float = 1e-6

    batch_tile: int = 16
    k_chunk: int = 128
    q_out_chunk: int = 64
    kv_out_chunk: int = 64
    mlp_out_chunk: int = 64
    seq_tile: int = 64
    # Query heads of one attention group, and the cube rows they are padded to.
    q_head_batch: int = 8
    q_head_pad: int = 16

    # Only the tuned variants use these, and check them themselves.
    # Columns of a block of a projection: a [128, 256] block of a weight fills the cube's right
    # buffer (64 KB), and its rows are 512 bytes, the shortest that global memory moves efficiently.
    wide_chunk: int = 256
    # Keys of a block of attention: keys and values of two blocks, one in use and one being loaded,
    # must fit into the cube's L1 (512 KB).
    walk_tile: int = 256
    # Rows and columns of an RMSNorm task: the smallest on-chip vector has eight FP32 numbers.
    norm_rows: int = 8
    norm_chunk: int = 1024
    # Hidden columns per step of the projections that rotate immediately.
    rope_k_chunk: int = 256
    # Number of parts into which the inner dimension of the output and down projections is split, so
    # that there are enough tasks for all cores.
    out_split: int = 2
    down_split: int = 2
    # Columns of a task that adds the parts up.
    sum_chunk: int = 512

    def __post_init__(self) -> None:
        for size in fields(self):
            value = getattr(self, size.name)
            if size.type == "float":
                if not (math.isfinite(value) and value >= 0):
                    raise BadTile(size.name, value, "a number of at least 0")
            elif not 0 < value <= _MAX_SIZE:
                raise BadTile(size.name, integer_text(value), f"from 1 to {_MAX_SIZE}")
        for whole, part in (
            ("batch", "batch_tile"),
            ("hidden", "k_chunk"),
            ("hidden", "q_out_chunk"),
            ("kv_width", "kv_out_chunk"),
            ("intermediate", "mlp_out_chunk"),
            ("max_seq", "seq_tile"),
        ):
            self.count(whole, part)

    def count(self, whole: str, part: str) -> int:
        """Return how many `part`s make a `whole`; both are names of sizes."""
        sizes: tuple[int, int] = getattr(self, whole), getattr(self, part)
        _must_divide(whole, sizes[0], part, sizes[1])
        return sizes[0] // sizes[1]

    def part(self, whole: str, part: str) -> int:
        """Return the size `part`, which must divide the size `whole`."""
        self.count(whole, part)
        return getattr(self, part)

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def heads(self) -> int:
        """Query heads: as many as fit into `hidden` in the April programs."""
        return self.count("hidden", "head_dim")

    @property
    def q_per_kv(self) -> int:
        """Query heads that share one K/V head."""
        return self.count("heads", "kv_heads")

    @property
    def q_groups(self) -> int:
        """Groups of `q_head_batch` query heads per K/V head."""
        return self.count("q_per_kv", "q_head_batch")

    @property
    def q_vector_rows(self) -> int:
        """Rows of a group on the vector unit: its heads, padded to multiples of eight."""
        eights = -(-self.q_head_batch // 8) * 8
        return eights if eights < self.q_head_pad else self.q_head_batch

    @property
    def cache_rows(self) -> int:
        """Rows of a K/V cache: row = (sequence * kv_heads + kv_head) * max_seq + position."""
        return self.batch * self.kv_heads * self.max_seq

    @property
    def length_class(self) -> int:
        """Number of positions by which the contexts of one class may differ."""
        return -(-self.max_seq // LENGTH_CLASSES)

    @property
    def hidden_blocks(self) -> int:
        return self.hidden // self.k_chunk

    @property
    def q_blocks(self) -> int:
        return self.hidden // self.q_out_chunk

    @property
    def kv_blocks(self) -> int:
        return self.kv_width // self.kv_out_chunk

    @property
    def mlp_blocks(self) -> int:
        return self.intermediate // self.mlp_out_chunk


@dataclass(frozen=True)
class PrefillShape(DecodeShape):
    """Sizes of a prefill layer, which works on tiles of tokens of one sequence.

    tok_tile   tokens processed together
    tok_rows   rows of their on-chip tiles: the cube needs a multiple of sixteen; rows without a
               token are not valid
    attn_tile  tokens of a tile of queries (tuned), which has a row per token and query head
    span       tokens for which all stages run before the next ones (tuned): each weight is read
               once per span, and intermediate results are kept for this many tokens
    """

    tok_tile: int = 4
    tok_rows: int = 16
    attn_tile: int = 8
    span: int = 512
    q_head_batch: int = 4
    batch_tile: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tok_tile <= self.tok_rows:
            raise BadTile("tok_tile", self.tok_tile, f"from 1 to `tok_rows`, {self.tok_rows}")


def _must_divide(whole: str, whole_size: int, part: str, part_size: int) -> None:
    if part_size <= 0 or whole_size <= 0 or whole_size % part_size:
        raise BadTile(whole, whole_size, f"a positive multiple of `{part}`, {part_size}")
