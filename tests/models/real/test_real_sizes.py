"""Checkpoints with the sizes of published models and random weights, in shards."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tilelet.models import qwen3
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.random_checkpoint import write_random_checkpoint


@pytest.mark.parametrize(
    ("size", "layers", "stream"), [("0.6B", 28, False), ("32B", 1, False), ("32B", 2, True)]
)
def test_loads_and_generates(
    thorough: bool, tmp_path: Path, size: str, layers: int, stream: bool
) -> None:
    """The first layer's caches get finite numbers, and a repetition gives the same tokens."""
    if not thorough:
        pytest.skip("writes gigabytes")
    config = dataclasses.replace(Qwen3Config.preset(size), num_hidden_layers=layers)
    if size == "32B":  # the head is that of the smaller models
        config = dataclasses.replace(config, vocab_size=2048)
    write_random_checkpoint(tmp_path, config, layers_per_shard=7)
    told: list[dict[str, int]] = []
    model = qwen3.load(tmp_path, max_seq=256, batch=1, stream=stream, tell=told.append)
    kept = 1 if stream else layers
    # Norms are FP32 here; the rest is BF16.
    assert told[0]["layers"] == pytest.approx(2 * kept * config.layer_parameters, rel=1e-2)
    found = [list(model.generate([5, 6, 7], max_new_tokens=4)) for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0]) == 4
