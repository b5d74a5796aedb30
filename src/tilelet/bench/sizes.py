"""Sizes of the layers that are measured."""

from __future__ import annotations

# A layer small enough for a test that the bench works.
SMALL: dict[str, int] = {
    "hidden": 1024,
    "kv_heads": 4,
    "head_dim": 64,
    "intermediate": 2048,
    "max_seq": 512,
    "q_head_batch": 4,
    "kv_out_chunk": 64,
}
SMALL_PREFILL: dict[str, int] = {
    **SMALL,
    "kv_heads": 2,
    "head_dim": 128,
    "kv_out_chunk": 128,
    "batch": 2,
    "max_seq": 128,
    "span": 128,
}

HIDDEN_5120: dict[str, int] = {"hidden": 5120}
HIDDEN_8192: dict[str, int] = {"hidden": 8192}
# Five query heads share a K/V head at this width.
LAYER_5120: dict[str, int] = {**HIDDEN_5120, "q_head_batch": 5}
PREFILL: dict[str, int] = {**HIDDEN_8192, "batch": 2, "max_seq": 256, "span": 256}
