"""The weights of Qwen3 layers from a model directory, as the programs take them."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from tilelet import dtypes
from tilelet.checkpoint.files import open_files
from tilelet.checkpoint.safetensors import TensorEntry
from tilelet.diag.catalogue.models import (
    ExtraTensors,
    MissingTensors,
    NoSuchLayer,
    WrongTensorDType,
    WrongTensorShape,
)
from tilelet.dtypes import DType
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.reference import Array

_ACCEPTED = {"BF16": dtypes.BF16, "F16": dtypes.FP16, "F32": dtypes.FP32}

# Rows and columns of a weight transposed at a time: both sides stay in the processor's caches.
_BLOCK = 256


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer: matrices `[in, out]` in one dtype, norms `[1, n]` in FP32.

    The fields stand in the order in which the layer programs take them.
    """

    input_norm: Array
    wq: Array
    wk: Array
    wv: Array
    q_norm: Array
    k_norm: Array
    wo: Array
    post_norm: Array
    w_gate: Array
    w_up: Array
    w_down: Array

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.wq.dtype)

    def arrays(self) -> dict[str, Array]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


# Our names, and those in the files.
_STORED = {
    "input_norm": "input_layernorm.weight",
    "wq": "self_attn.q_proj.weight",
    "wk": "self_attn.k_proj.weight",
    "wv": "self_attn.v_proj.weight",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "wo": "self_attn.o_proj.weight",
    "post_norm": "post_attention_layernorm.weight",
    "w_gate": "mlp.gate_proj.weight",
    "w_up": "mlp.up_proj.weight",
    "w_down": "mlp.down_proj.weight",
}


def layer_shapes(config: Qwen3Config) -> dict[str, tuple[int, int]]:
    """The shape of every array of `LayerWeights`."""
    hidden, inter = config.hidden_size, config.intermediate_size
    return {
        "input_norm": (1, hidden),
        "wq": (hidden, config.q_width),
        "wk": (hidden, config.kv_width),
        "wv": (hidden, config.kv_width),
        "q_norm": (1, config.head_dim),
        "k_norm": (1, config.head_dim),
        "wo": (config.q_width, hidden),
        "post_norm": (1, hidden),
        "w_gate": (hidden, inter),
        "w_up": (hidden, inter),
        "w_down": (inter, hidden),
    }


def load_layer(
    path: str | Path, index: int, config: Qwen3Config | None = None, dtype: DType | None = None
) -> LayerWeights:
    """Layer `index` of the model in directory `path`; matrices in `dtype`, or as they are stored.

    `config` is that of the directory unless given.
    """
    config = config or Qwen3Config.read(path)
    return Checkpoint(path, config).layer(index, dtype)


class Checkpoint:
    """The weight files of a model directory, mapped, with their names checked."""

    def __init__(self, path: str | Path, config: Qwen3Config) -> None:
        self.config = config
        self._files = open_files(Path(path))
        self._prefix = "model." if any(n.startswith("model.") for n in self._files) else ""
        extra = sorted(name for name in self._files if not self._is_expected(name))
        if extra:
            raise ExtraTensors(extra)

    def layer(self, index: int, dtype: DType | None = None) -> LayerWeights:
        """The weights of one layer, each checked before any is converted."""
        if not 0 <= operator.index(index) < self.config.num_hidden_layers:
            raise NoSuchLayer(index, self.config.num_hidden_layers)
        names = {ours: f"{self._prefix}layers.{index}.{theirs}" for ours, theirs in _STORED.items()}
        missing = [n for n in names.values() if n not in self._files]
        if missing:
            raise MissingTensors(missing, self._files)
        shapes = layer_shapes(self.config)
        for ours, name in names.items():
            _check_entry(name, self._files[name].entries[name], _stored_shape(shapes[ours]))
        common = dtype or _ACCEPTED[self._files[names["wq"]].entries[names["wq"]].dtype]
        found: dict[str, Array] = {}
        for ours, name in names.items():
            stored = self._files[name].tensor(name)
            if stored.ndim == 1:
                found[ours] = stored.astype(np.float32).reshape(1, -1)
            else:
                found[ours] = _transposed(stored, common)
        return LayerWeights(**found)

    def layers(self, dtype: DType | None = None) -> Iterator[LayerWeights]:
        """All layers in order, each loaded when it is asked for."""
        return (self.layer(i, dtype) for i in range(self.config.num_hidden_layers))

    def _is_expected(self, name: str) -> bool:
        """Whether a model of this configuration may have a tensor of that name."""
        whole = (f"{self._prefix}embed_tokens.weight", f"{self._prefix}norm.weight")
        if name in whole or name == "lm_head.weight":  # tied embeddings may be stored twice
            return True
        inside = re.fullmatch(r"layers\.(0|[1-9][0-9]{0,8})\.(.+)", name.removeprefix(self._prefix))
        if inside is None or not name.startswith(self._prefix):
            return False
        is_layer = int(inside[1]) < self.config.num_hidden_layers
        return is_layer and inside[2] in _STORED.values()


def _stored_shape(shape: tuple[int, int]) -> tuple[int, ...]:
    """As the files have it: matrices `[out, in]`, norms `[n]`."""
    return (shape[1],) if shape[0] == 1 else (shape[1], shape[0])


def _check_entry(name: str, entry: TensorEntry, shape: tuple[int, ...]) -> None:
    if entry.shape != shape:
        raise WrongTensorShape(name, entry.shape, shape)
    if entry.dtype not in _ACCEPTED:
        raise WrongTensorDType(name, entry.dtype, list(_ACCEPTED))


def _transposed(stored: Array, dtype: DType) -> Array:
    """A `[out, in]` matrix as a new `[in, out]` one in `dtype`."""
    rows, columns = stored.shape
    out = np.empty((columns, rows), dtype.numpy)
    for c in range(0, columns, _BLOCK):
        for r in range(0, rows, _BLOCK):
            out[c : c + _BLOCK, r : r + _BLOCK] = stored[r : r + _BLOCK, c : c + _BLOCK].T
    return out
