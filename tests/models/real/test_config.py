"""Model configurations: presets, files of old and new versions, and invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.real.files import CONFIG, config

from tilelet.diag import UserError
from tilelet.diag.catalogue import models
from tilelet.models.qwen3.config import MOE_PRESETS, PRESETS, Qwen3Config, Qwen3MoeConfig

# Parameters of the published models, embeddings included.
PUBLISHED = {
    "0.6B": 596_049_920,
    "1.7B": 1_720_574_976,
    "4B": 4_022_468_096,
    "8B": 8_190_735_360,
    "14B": 14_768_307_200,
    "32B": 32_762_123_264,
    "30B-A3B": 30_532_122_624,
    "235B-A22B": 235_093_634_560,
}

MOE = {
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_number_of_parameters(name: str) -> None:
    assert Qwen3Config.preset(name).parameters == PUBLISHED[name]
    assert [*PRESETS, *MOE_PRESETS] == list(PUBLISHED)


def test_query_width_is_not_the_hidden_size() -> None:
    widths = {name: (c.hidden_size, c.q_width, c.kv_width) for name, c in PRESETS.items()}
    assert widths["0.6B"] == (1024, 2048, 1024)
    assert widths["4B"] == (2560, 4096, 1024)
    assert widths["32B"] == (5120, 8192, 1024)


def test_presets_by_other_spellings() -> None:
    assert Qwen3Config.preset("Qwen3-0.6b") is PRESETS["0.6B"]
    with pytest.raises(models.UnknownPreset, match=r"did you mean `1\.7B`"):
        Qwen3Config.preset("1.8B")


def test_fields_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = Qwen3Config.read(tmp_path)
    assert found == config()
    assert (found.q_width, found.kv_width, found.q_per_kv) == (64, 32, 2)
    assert (found.rope_theta, found.rms_norm_eps, found.torch_dtype) == (1e6, 1e-6, "float32")


def test_new_versions_nest_rope_and_rename_the_dtype() -> None:
    newer = {k: v for k, v in CONFIG.items() if k not in ("rope_theta", "torch_dtype")}
    newer["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "default"}
    newer["dtype"] = "bfloat16"
    found = Qwen3Config.from_json(newer)
    assert (found.rope_theta, found.torch_dtype) == (5e5, "bfloat16")


def test_fields_of_a_mixture_of_experts() -> None:
    changes = {"num_hidden_layers": 8, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    found = config(**MOE, **changes)
    assert isinstance(found, Qwen3MoeConfig)
    assert [n for n in range(8) if found.is_sparse(n)] == [1, 5, 7]
    assert not found.norm_topk_prob
    renamed = {"num_experts": None, "num_local_experts": 6}  # as newer versions write it
    assert config(**{**MOE, **renamed}) == config(**MOE)


def test_defaults_of_absent_fields() -> None:
    few = {k: v for k, v in CONFIG.items() if k not in ("head_dim", "torch_dtype", "vocab_size")}
    found = Qwen3Config.from_json(few)
    assert (found.head_dim, found.torch_dtype, found.vocab_size) == (128, "bfloat16", 151936)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"model_type": "qwen2_moe"}, models.WrongArchitecture, "`qwen2_moe` model, not `qwen3`"),
        ({"model_type": "qwen3_moe"}, models.BadModelField, "`num_experts` .* is missing"),
        ({**MOE, "num_experts": 0}, models.BadModelField, "`num_experts` .* is `0`"),
        ({**MOE, "num_experts_per_tok": 7}, models.BadModelField, "at most `num_experts`, 6"),
        ({**MOE, "decoder_sparse_step": 0}, models.BadModelField, "`decoder_sparse_step`"),
        ({**MOE, "mlp_only_layers": ["1"]}, models.BadModelField, "a list of layers"),
        ({**MOE, "norm_topk_prob": 1}, models.BadModelField, "`norm_topk_prob`"),
        ({"model_type": None}, models.WrongArchitecture, "`Qwen3ForCausalLM`"),
        ({"model_type": None, "architectures": []}, models.WrongArchitecture, r"`\?` model"),
        ({"hidden_size": None}, models.BadModelField, "`hidden_size` .* is missing"),
        ({"hidden_size": -1}, models.BadModelField, "`hidden_size` .* is `-1`"),
        ({"hidden_size": True}, models.BadModelField, "`hidden_size` .* is `True`"),
        ({"hidden_size": "64"}, models.BadModelField, "positive integer"),
        ({"hidden_size": 1 << 40}, models.BadModelField, "positive integer"),
        ({"num_hidden_layers": 5_000_000}, models.BadModelField, "at most 10000"),
        ({"num_attention_heads": 5}, models.BadModelField, "a multiple of `num_key_value_heads`"),
        ({"head_dim": 15}, models.BadModelField, "must be even"),
        ({"rope_theta": None}, models.BadModelField, "`rope_theta` .* is missing"),
        ({"rope_theta": 0}, models.BadModelField, "positive number"),
        ({"rms_norm_eps": 10**400}, models.BadModelField, "positive number"),
        ({"tie_word_embeddings": "no"}, models.BadModelField, "true or false"),
        ({"rope_parameters": 3}, models.BadModelField, "must be an object"),
        ({"attention_bias": True}, models.UnsupportedModelSetting, "`attention_bias`"),
        ({"hidden_act": "gelu"}, models.UnsupportedModelSetting, "`'gelu'`"),
        ({"use_sliding_window": True}, models.UnsupportedModelSetting, "sliding"),
        ({"rope_scaling": {"type": "yarn"}}, models.UnsupportedModelSetting, "`'yarn'`"),
        ({"quantization_config": {"bits": 4}}, models.UnsupportedModelSetting, "quantization"),
        ({"torch_dtype": "int8"}, models.UnsupportedModelSetting, "`'int8'`"),
    ],
)
def test_fields_that_are_wrong(changes: dict[str, Any], error: type[UserError], text: str) -> None:
    with pytest.raises(error, match=text):
        config(**changes)


def test_null_rope_scaling_is_none() -> None:
    assert config(rope_scaling=None, use_sliding_window=False) == config()


def test_directories_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(models.NoModelConfig, match=r"there is no `config\.json` in it"):
        Qwen3Config.read(tmp_path)
    with pytest.raises(models.NoModelConfig, match="there is no such directory"):
        Qwen3Config.read(tmp_path / "absent")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(models.NoModelConfig, match="it is a file"):
        Qwen3Config.read(file)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "is not an object"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read|model, not"),
    ],
)
def test_files_that_are_not_configurations(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises((models.BadModelConfig, models.WrongArchitecture), match=text):
        Qwen3Config.read(tmp_path)
