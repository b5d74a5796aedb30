"""All variants of all Qwen3 programs, at sizes for tests."""

from __future__ import annotations

from typing import Any

import pytest

from tilelet.models.registry import models

# Two batch tiles, several blocks on every axis, remainders in every chunk loop.
SMALL: dict[str, Any] = {
    "batch": 8,
    "hidden": 256,
    "kv_heads": 2,
    "head_dim": 32,
    "intermediate": 384,
    "max_seq": 64,
    "batch_tile": 4,
    "k_chunk": 64,
    "q_out_chunk": 32,
    "kv_out_chunk": 32,
    "mlp_out_chunk": 32,
    "seq_tile": 16,
    "walk_tile": 16,
    "wide_chunk": 32,
    "q_head_batch": 2,
    "q_head_pad": 4,
    "norm_rows": 2,
    "norm_chunk": 128,
    "sum_chunk": 64,
    "down_split": 3,
    "rope_k_chunk": 128,
}
# The fewest blocks with more than one on every axis. The term that keeps RMSNorm from dividing by
# zero is large enough to matter.
TINY: dict[str, Any] = {
    "batch": 4,
    "hidden": 64,
    "kv_heads": 4,
    "head_dim": 8,
    "intermediate": 64,
    "max_seq": 24,
    "eps": 0.02,
    "batch_tile": 2,
    "k_chunk": 32,
    "q_out_chunk": 32,
    "kv_out_chunk": 16,
    "mlp_out_chunk": 32,
    "seq_tile": 8,
    "walk_tile": 8,
    "wide_chunk": 16,
    "q_head_batch": 2,
    "q_head_pad": 4,
    "norm_rows": 2,
    "norm_chunk": 32,
    "sum_chunk": 32,
    "down_split": 2,
    "rope_k_chunk": 32,
}
# Two sequences of several spans, spans of several tiles of tokens.
SMALL_PREFILL = {
    "batch": 3,
    "batch_tile": 1,
    "max_seq": 32,
    "seq_tile": 8,
    "walk_tile": 8,
    "span": 16,
    "tok_tile": 8,
    "tok_rows": 8,
    "attn_tile": 4,
}
TINY_PREFILL = {
    "batch": 2,
    "batch_tile": 1,
    "max_seq": 16,
    "seq_tile": 4,
    "walk_tile": 4,
    "span": 8,
    "tok_tile": 4,
    "tok_rows": 4,
    "attn_tile": 2,
}

NAMES = [f"{name}:{variant}" for name, model in models().items() for variant in model.variants]
every_program = pytest.mark.parametrize("name", NAMES)
every_engine = pytest.mark.parametrize("engine", ["interp", "cpu"])


def sizes_of(name: str, base: dict[str, Any]) -> dict[str, Any]:
    """`SMALL` or `TINY`, with what that program needs."""
    sizes = dict(base)
    if "prefill" in name:
        sizes |= SMALL_PREFILL if base is SMALL else TINY_PREFILL
    if name == "qwen3/prefill:april":
        # Its tiles are larger than their contents, and end in the middle of one.
        sizes |= {"tok_tile": sizes["tok_tile"] // 2 + 1}
    if "fused_qk_rope" in name:
        sizes["kv_out_chunk"] = sizes["head_dim"]  # one K/V head per task
    return sizes
