"""Write a sharded checkpoint with the sizes of a published model and random weights.

    python -m tilelet.models.qwen3.random_checkpoint 0.6B folder

For use without a real checkpoint: the text is meaningless, but the speed is real.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from tilelet.checkpoint.files import INDEX
from tilelet.checkpoint.safetensors import write_header
from tilelet.dtypes import Array
from tilelet.models.qwen3.architecture import architecture_of
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.runtime.progress import progress

_SPREAD = 0.02
_BF16 = np.dtype(ml_dtypes.bfloat16)
_BATCH = 1 << 20  # numbers drawn at a time


def write_random_checkpoint(directory: Path, config: Qwen3Config, layers_per_shard: int) -> None:
    """Write a model directory in BF16; a shard for every few layers, and one for the rest."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_fields(config), indent=2), encoding="utf-8")
    weight_map: dict[str, str] = {}
    rng = np.random.default_rng(0)
    for number, shapes in enumerate(_shards(config, layers_per_shard)):
        name = f"model-{number + 1:05d}.safetensors"
        with (directory / name).open("wb") as file, progress(f"writing {name}"):
            places = write_header(file, {n: (s, _BF16) for n, s in shapes.items()})
            for tensor in sorted(places, key=places.__getitem__):
                file.seek(places[tensor])
                for block in _numbers(shapes[tensor], rng):
                    file.write(block.view(np.uint8).data)
        weight_map |= dict.fromkeys(shapes, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _fields(config: Qwen3Config) -> dict[str, object]:
    is_sparse = isinstance(config, Qwen3MoeConfig)
    name = "Qwen3MoeForCausalLM" if is_sparse else "Qwen3ForCausalLM"
    kind = "qwen3_moe" if is_sparse else "qwen3"
    fields: dict[str, object] = {"architectures": [name], "model_type": kind, "hidden_act": "silu"}
    return fields | dataclasses.asdict(config)


def _numbers(shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[Array]:
    """Yield ones for norms and random numbers for matrices, block by block."""
    count = int(np.prod(shape))
    if len(shape) == 1:
        yield np.ones(count, _BF16)
        return
    for first in range(0, count, _BATCH):
        drawn = rng.standard_normal(min(_BATCH, count - first), np.float32)
        yield (_SPREAD * drawn).astype(_BF16)


def _shards(config: Qwen3Config, layers_per_shard: int) -> Iterator[dict[str, tuple[int, ...]]]:
    table = (config.vocab_size, config.hidden_size)
    rest = {"model.embed_tokens.weight": table, "model.norm.weight": (config.hidden_size,)}
    yield rest if config.tie_word_embeddings else {**rest, "lm_head.weight": table}
    layers = range(config.num_hidden_layers)
    arrays_of = architecture_of(config).arrays_of
    for first in range(0, config.num_hidden_layers, layers_per_shard):
        yield {
            f"model.layers.{layer}.{piece}": array.stored
            for layer in layers[first : first + layers_per_shard]
            for array in arrays_of(layer).values()
            for piece in array.pieces
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a checkpoint with random weights.")
    parser.add_argument("size", help="of a published model: 0.6B, 32B, 30B-A3B ...")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=0, help="number of layers (all)")
    found = parser.parse_args(arguments)
    config = Qwen3Config.preset(found.size)
    if found.layers:
        config = dataclasses.replace(config, num_hidden_layers=found.layers)
    write_random_checkpoint(found.directory, config, layers_per_shard=4)


if __name__ == "__main__":
    main()
