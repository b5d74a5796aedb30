"""The sizes of a Qwen3 model, from a Hugging Face `config.json` or a preset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tilelet.checkpoint.json_file import read_json_object
from tilelet.diag.catalogue.models import (
    BadModelField,
    NoModelConfig,
    UnknownPreset,
    UnsupportedModelSetting,
    WrongArchitecture,
)
from tilelet.diag.json_types import JsonObject

_MAX_SIZE = (1 << 31) - 1
_MAX_LAYERS = 10_000
_MAX_NUMBER = 1e30
_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Qwen3Config:
    """The configuration that programs and loader need; names as in `config.json`."""

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    num_hidden_layers: int
    head_dim: int = 128
    vocab_size: int = 151936
    max_position_embeddings: int = 40960
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    torch_dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in _SIZES:
            _check_size(name, getattr(self, name))
        for name in ("rope_theta", "rms_norm_eps"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < _MAX_NUMBER:
                raise BadModelField(name, value, "a positive number")
        tied = self.tie_word_embeddings  # may come from a file
        if not isinstance(tied, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadModelField("tie_word_embeddings", tied, "true or false")
        if self.head_dim % 2:
            raise BadModelField("head_dim", self.head_dim, "even")
        if self.num_attention_heads % self.num_key_value_heads:
            wanted = f"a multiple of `num_key_value_heads`, {self.num_key_value_heads}"
            raise BadModelField("num_attention_heads", self.num_attention_heads, wanted)
        if self.torch_dtype not in _DTYPES:
            raise UnsupportedModelSetting("torch_dtype", self.torch_dtype, " or ".join(_DTYPES))

    @property
    def heads(self) -> int:
        return self.num_attention_heads

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads

    @property
    def q_per_kv(self) -> int:
        """Query heads that share one K/V head."""
        return self.num_attention_heads // self.num_key_value_heads

    def is_sparse(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return False

    @property
    def q_width(self) -> int:
        """Columns of all query heads; in general not the hidden size."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """Number of weights of one layer."""
        attention = 2 * self.hidden_size * (self.q_width + self.kv_width)
        mlp = 3 * self.hidden_size * self.intermediate_size
        return attention + mlp + 2 * self.hidden_size + 2 * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights of the model; tied embeddings count once."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * self.layer_parameters + self.hidden_size + embeddings

    @staticmethod
    def preset(name: str) -> Qwen3Config:
        """Return a published model by its size: `Qwen3Config.preset("0.6B")`."""
        sizes = {key.lower(): config for key, config in (PRESETS | MOE_PRESETS).items()}
        found = sizes.get(name.lower().removeprefix("qwen3-"))
        if found is None:
            raise UnknownPreset(name, [*PRESETS, *MOE_PRESETS])
        return found

    @staticmethod
    def read(directory: str | Path) -> Qwen3Config:
        """Read the configuration of a model directory."""
        folder = Path(directory)
        if not folder.is_dir():
            why = "it is a file" if folder.exists() else "there is no such directory"
            raise NoModelConfig(str(directory), why)
        path = folder / "config.json"
        if not path.is_file():
            raise NoModelConfig(str(directory))
        return Qwen3Config.from_json(read_json_object(path), str(path))

    @staticmethod
    def from_json(fields: Mapping[str, object], file: str = "config.json") -> Qwen3Config:
        """Build the configuration from the fields of a `config.json`, of old and new versions."""
        model_type = fields.get("model_type")
        if model_type not in ("qwen3", "qwen3_moe"):
            architectures = fields.get("architectures")
            names = cast("list[object]", architectures) if isinstance(architectures, list) else []
            first = names[0] if names else "?"
            raise WrongArchitecture(file, str(model_type or first))
        _check_supported(fields)
        known = _known_fields(fields, (*_SIZES, "rms_norm_eps", "tie_word_embeddings"), _REQUIRED)
        rope = _mapping_field(fields, "rope_parameters")
        theta = rope.get("rope_theta", fields.get("rope_theta"))
        if theta is None:
            raise BadModelField("rope_theta", None, "a positive number")
        dtype = fields.get("dtype", fields.get("torch_dtype"))
        if dtype is not None:
            known["torch_dtype"] = str(dtype).removeprefix("torch.")
        known["rope_theta"] = theta
        if model_type == "qwen3":
            return Qwen3Config(**known)
        if fields.get("num_experts") is None:  # its name in some versions
            fields = {**fields, "num_experts": fields.get("num_local_experts")}
        settings = ("norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")
        known |= _known_fields(fields, (*_MOE_SIZES, *settings), _MOE_SIZES)
        return Qwen3MoeConfig(**known)


@dataclass(frozen=True)
class Qwen3MoeConfig(Qwen3Config):
    """A mixture of experts, which replaces the MLP in the layers of `is_sparse`.

    `intermediate_size` is the width of the MLP of the other layers.
    """

    num_experts: int = 128
    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 768
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (*_MOE_SIZES, "decoder_sparse_step"):
            _check_size(name, getattr(self, name))
        if self.num_experts_per_tok > self.num_experts:
            wanted = f"at most `num_experts`, {self.num_experts}"
            raise BadModelField("num_experts_per_tok", self.num_experts_per_tok, wanted)
        normalised = self.norm_topk_prob  # may come from a file
        if not isinstance(normalised, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadModelField("norm_topk_prob", normalised, "true or false")
        dense = cast("object", self.mlp_only_layers)
        layers = tuple(cast("list[object]", dense)) if isinstance(dense, list | tuple) else (None,)
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in layers):
            raise BadModelField("mlp_only_layers", self.mlp_only_layers, "a list of layers")
        object.__setattr__(self, "mlp_only_layers", layers)

    def is_sparse(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0

    @property
    def expert_parameters(self) -> int:
        """Number of weights of the experts of one layer and of its router."""
        return self.num_experts * self.hidden_size * (3 * self.moe_intermediate_size + 1)

    @property
    def parameters(self) -> int:
        sparse = sum(map(self.is_sparse, range(self.num_hidden_layers)))
        mlp = 3 * self.hidden_size * self.intermediate_size
        return super().parameters + sparse * (self.expert_parameters - mlp)


def _known_fields(
    fields: Mapping[str, object], names: Sequence[str], required: Sequence[str]
) -> JsonObject:
    """Return the fields that are present; the required ones must be."""
    for name in required:
        if fields.get(name) is None:
            raise BadModelField(name, None, "a positive integer")
    return {name: fields[name] for name in names if fields.get(name) is not None}


_REQUIRED = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "num_hidden_layers",
)
_MOE_SIZES = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_SIZES = (*_REQUIRED, "head_dim", "vocab_size", "max_position_embeddings")


def _check_size(name: str, value: object) -> None:
    most = _MAX_LAYERS if name == "num_hidden_layers" else _MAX_SIZE
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise BadModelField(name, value, f"a positive integer of at most {most}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping_field(fields: Mapping[str, object], name: str) -> JsonObject:
    """Return the field `name`, which is an object or absent."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadModelField(name, value, "an object")
    return cast("JsonObject", value)


def _check_supported(fields: Mapping[str, object]) -> None:
    """Reject settings that change what a layer computes."""
    for name, supported in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("use_sliding_window", False),
        ("quantization_config", None),
    ):
        found = fields.get(name, supported)
        if found != supported:
            raise UnsupportedModelSetting(name, found, f"`{json.dumps(supported)}`")
    kinds: object = fields.get("layer_types") or []
    if not isinstance(kinds, list):
        raise UnsupportedModelSetting("layer_types", kinds, "a list of `full_attention`")
    others = [k for k in cast("list[object]", kinds) if k != "full_attention"]
    if others:
        raise UnsupportedModelSetting("layer_types", others[0], "`full_attention`")
    for name in ("rope_parameters", "rope_scaling"):
        rope = _mapping_field(fields, name)
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise UnsupportedModelSetting(name, kind, "`default`: rope tables without scaling")


def _published_config(
    hidden: int, layers: int, heads: int, intermediate: int, *, tied: bool
) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=8,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        tie_word_embeddings=tied,
    )


def _published_moe(hidden: int, layers: int, heads: int, width: int, mlp: int) -> Qwen3MoeConfig:
    return Qwen3MoeConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=4,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        moe_intermediate_size=width,
        norm_topk_prob=True,
    )


PRESETS = {
    "0.6B": _published_config(1024, 28, 16, 3072, tied=True),
    "1.7B": _published_config(2048, 28, 16, 6144, tied=True),
    "4B": _published_config(2560, 36, 32, 9728, tied=True),
    "8B": _published_config(4096, 36, 32, 12288, tied=False),
    "14B": _published_config(5120, 40, 40, 17408, tied=False),
    "32B": _published_config(5120, 64, 64, 25600, tied=False),
}
MOE_PRESETS = {
    "30B-A3B": _published_moe(2048, 48, 32, 768, 6144),
    "235B-A22B": _published_moe(4096, 94, 64, 1536, 12288),
}
