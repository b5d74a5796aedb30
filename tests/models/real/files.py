"""Model directories written by hand, including invalid ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.checkpoint.files import INDEX, SINGLE
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.reference import Array

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "vocab_size": 8,
    "max_position_embeddings": 64,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "int8": "I8"}


def config(**changes: Any) -> Qwen3Config:
    return Qwen3Config.from_json({**CONFIG, **changes})


def tensors(dtype: Any = np.float32) -> dict[str, Array]:
    """Return all tensors of the model in `CONFIG`, with distinct numbers."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (8, 32),
        "model.norm.weight": (32,),
        "lm_head.weight": (8, 32),
    }
    for i in range(2):
        layer = f"model.layers.{i}."
        shapes |= {
            layer + "input_layernorm.weight": (32,),
            layer + "self_attn.q_proj.weight": (64, 32),
            layer + "self_attn.k_proj.weight": (32, 32),
            layer + "self_attn.v_proj.weight": (32, 32),
            layer + "self_attn.q_norm.weight": (16,),
            layer + "self_attn.k_norm.weight": (16,),
            layer + "self_attn.o_proj.weight": (32, 64),
            layer + "post_attention_layernorm.weight": (32,),
            layer + "mlp.gate_proj.weight": (48, 32),
            layer + "mlp.up_proj.weight": (48, 32),
            layer + "mlp.down_proj.weight": (32, 48),
        }
    return {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}


def header_of(arrays: Mapping[str, Array]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        fields = {"dtype": NAMES[array.dtype.name], "shape": list(array.shape)}
        header[name] = {**fields, "data_offsets": [begin, end]}
    return header


def write_raw(path: Path, header: bytes, data: bytes, length: int | None = None) -> Path:
    """Write a file with this header, whatever it says."""
    size = len(header) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + header + data)
    return path


def write_file(path: Path, arrays: Mapping[str, Array]) -> Path:
    data = b"".join(a.tobytes() for a in arrays.values())
    return write_raw(path, json.dumps(header_of(arrays)).encode(), data)


def write_model(directory: Path, arrays: Mapping[str, Array] | None = None, **changes: Any) -> Path:
    """A directory with `config.json` and one file of weights."""
    (directory / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    write_file(directory / SINGLE, tensors() if arrays is None else arrays)
    return directory


def write_shards(directory: Path, arrays: Mapping[str, Array]) -> dict[str, str]:
    """A directory with `config.json`, two files of weights and their index; gives the index."""
    (directory / "config.json").write_text(json.dumps(CONFIG))
    names, weight_map = list(arrays), {}
    for i, part in enumerate((names[::2], names[1::2])):
        shard = f"model-{i + 1:05d}-of-00002.safetensors"
        write_file(directory / shard, {n: arrays[n] for n in part})
        weight_map |= dict.fromkeys(part, shard)
    write_index(directory, weight_map)
    return weight_map


def write_index(directory: Path, weight_map: object) -> None:
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
