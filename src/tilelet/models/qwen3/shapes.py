"""Sizes of a Qwen3 decode layer, and of the tiles it is cut into.

The defaults are Qwen3-32B as the programs of April 2026 use it: `hidden` is heads x head_dim, so
that `wq` and `wo` are square. Tests pass smaller numbers; nothing may be a module constant.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeShape:
    """All sizes. `*_chunk` and `*_tile` are tile extents and must divide what they cut."""

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

    def __post_init__(self) -> None:
        for whole, part in (
            ("batch", "batch_tile"),
            ("hidden", "k_chunk"),
            ("hidden", "q_out_chunk"),
            ("kv_width", "kv_out_chunk"),
            ("intermediate", "mlp_out_chunk"),
            ("max_seq", "seq_tile"),
        ):
            _must_divide(whole, getattr(self, whole), part, getattr(self, part))

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def heads(self) -> int:
        """Query heads: the April programs have as many as fit into `hidden`."""
        _must_divide("hidden", self.hidden, "head_dim", self.head_dim)
        return self.hidden // self.head_dim

    @property
    def q_per_kv(self) -> int:
        """Query heads that share one K/V head."""
        _must_divide("heads", self.heads, "kv_heads", self.kv_heads)
        return self.heads // self.kv_heads

    @property
    def q_groups(self) -> int:
        """Groups of `q_head_batch` query heads per K/V head."""
        _must_divide("q_per_kv", self.q_per_kv, "q_head_batch", self.q_head_batch)
        return self.q_per_kv // self.q_head_batch

    @property
    def cache_rows(self) -> int:
        """Rows of a K/V cache: row = (sequence * kv_heads + kv_head) * max_seq + position."""
        return self.batch * self.kv_heads * self.max_seq

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


def _must_divide(whole: str, whole_size: int, part: str, part_size: int) -> None:
    if part_size <= 0 or whole_size <= 0 or whole_size % part_size:
        raise ValueError(f"{whole} {whole_size} is not a positive multiple of {part} {part_size}")
