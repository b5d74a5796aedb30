"""A checkpoint with the sizes of a published model and random weights, in shards."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from tilelet.checkpoint.files import INDEX
from tilelet.checkpoint.safetensors import write_header
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.weights import layer_arrays

_SPREAD = 0.02
_BF16 = np.dtype(ml_dtypes.bfloat16)


def write_random_checkpoint(directory: Path, config: Qwen3Config, layers_per_shard: int) -> None:
    """A model directory in BF16; a shard for each few layers, and one for the rest."""
    directory.mkdir(parents=True, exist_ok=True)
    fields = dataclasses.asdict(config) | {"model_type": "qwen3", "hidden_act": "silu"}
    fields["architectures"] = ["Qwen3ForCausalLM"]
    (directory / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    weight_map: dict[str, str] = {}
    rng = np.random.default_rng(0)
    for number, shapes in enumerate(_shards(config, layers_per_shard)):
        name = f"model-{number + 1:05d}.safetensors"
        with (directory / name).open("wb") as file:
            places = write_header(file, {n: (s, _BF16) for n, s in shapes.items()})
            for tensor in sorted(places, key=places.__getitem__):
                file.seek(places[tensor])
                shape = shapes[tensor]
                numbers = (
                    np.ones(shape, np.float32)
                    if len(shape) == 1
                    else _SPREAD * rng.standard_normal(shape, np.float32)
                )
                file.write(numbers.astype(_BF16).view(np.uint8).data)
        weight_map |= dict.fromkeys(shapes, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _shards(config: Qwen3Config, layers_per_shard: int) -> Iterator[dict[str, tuple[int, ...]]]:
    table = (config.vocab_size, config.hidden_size)
    rest = {"model.embed_tokens.weight": table, "model.norm.weight": (config.hidden_size,)}
    yield rest if config.tie_word_embeddings else {**rest, "lm_head.weight": table}
    layers = range(config.num_hidden_layers)
    for first in range(0, config.num_hidden_layers, layers_per_shard):
        yield {
            f"model.layers.{layer}.{piece}": array.stored
            for layer in layers[first : first + layers_per_shard]
            for array in layer_arrays(config).values()
            for piece in array.pieces
        }
