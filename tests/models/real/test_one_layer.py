"""Single layers of a checkpoint, and the golden, compared with the reference implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.real.files import tensors, write_model
from tests.models.real.test_generate import one_thread, prompts
from tests.models.real.tiny import Sizes, Tiny, relative, tiny, tiny_moe, torch

from tilelet.checkpoint.safetensors import SafetensorsFile
from tilelet.cli.main import main
from tilelet.diag.catalogue.checkpoint import BadLayerRequest
from tilelet.diag.catalogue.generate import UnknownToken
from tilelet.diag.catalogue.models import NoSuchLayer
from tilelet.models.qwen3.architecture import architecture_of
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.layer_golden import LayerGolden
from tilelet.models.qwen3.one_layer import LayerInput, LayerRunner, run_layer
from tilelet.models.qwen3.weights import Checkpoint

__all__ = ["one_thread"]
Array = np.ndarray[Any, np.dtype[Any]]


def model(kind: str, dtype: str = "float32") -> Tiny:
    return tiny(dtype, Sizes(layers=2)) if kind == "dense" else tiny_moe(dtype, **MIXED)


MIXED: dict[str, Any] = {"mlp_only_layers": (1,)}
KINDS = ("dense", "moe")


def hidden_states(reference: Tiny, tokens: Array) -> list[Array]:
    """Return the embedding and the output of every layer, the last one before the final norm."""
    with reference.watched():
        reference.outputs.clear()
        reference.model.model(torch.from_numpy(tokens)[None])
    return [reference.embed(tokens), *reference.outputs]


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_is_what_the_reference_computes(kind: str) -> None:
    reference, (tokens,) = model(kind), prompts([21])
    config = Qwen3Config.read(reference.directory)
    arrays_of = architecture_of(config).arrays_of
    checkpoint = Checkpoint(reference.directory, config, arrays_of)
    states = hidden_states(reference, tokens)
    for layer in range(config.num_hidden_layers):
        found = LayerGolden(checkpoint, layer)(states[layer])
        assert relative(found, states[layer + 1]) < 1e-5, layer


@pytest.mark.parametrize("kind", KINDS)
def test_captured_states_are_those_of_the_reference(kind: str) -> None:
    reference, (tokens,) = model(kind), prompts([18])
    states = hidden_states(reference, tokens)
    last = len(states) - 2
    given = LayerInput(capture=True, tokens=[int(t) for t in tokens])
    found = run_layer(reference.directory, last, given, engine="interp")
    assert relative(found.states, states[last]) < 1e-5
    assert relative(found.out, states[last + 1]) < 1e-5
    assert [check.name for check in found.checks] == ["prefill", "decode"]
    assert found.passed


@pytest.mark.parametrize("engine", ["interp", "cpu"])
def test_bf16_and_int8(engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    for kind in KINDS:
        directory = model(kind, "bfloat16").directory
        plain = run_layer(directory, 0, LayerInput(9), engine=engine)
        narrow = run_layer(directory, 0, LayerInput(9), engine=engine, int8=True)
        assert plain.passed
        assert narrow.passed
        assert plain.int8_error is None
        assert narrow.int8_error is not None
        assert 1e-3 < narrow.int8_error < 0.05


def test_one_position_is_decoded() -> None:
    found = run_layer(model("dense").directory, 1, LayerInput(1), engine="interp")
    assert [check.name for check in found.checks] == ["decode"]
    assert found.passed


def test_a_wrong_layer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that differ from those of the files."""
    arrays = LayerRunner.arrays

    def wrong(self: LayerRunner, layer: int) -> dict[str, Array]:
        found = arrays(self, layer)
        found["wk"][:, 0] = 0
        return found

    monkeypatch.setattr(LayerRunner, "arrays", wrong)
    assert not run_layer(model("dense").directory, 0, LayerInput(9), engine="interp").passed


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    write_model(tmp_path)
    with pytest.raises(NoSuchLayer, match="there is no layer `2`: the model has 2 layers"):
        run_layer(tmp_path, 2)
    with pytest.raises(BadLayerRequest, match="positions is 0"):
        run_layer(tmp_path, 0, LayerInput(capture=True, tokens=[]))
    with pytest.raises(UnknownToken, match="token 1 of prompt 0 is 8"):
        run_layer(tmp_path, 0, LayerInput(capture=True, tokens=[7, 8]))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(tmp_path, {n: a / 4 if a.ndim == 2 else a for n, a in tensors().items()})
    saved = tmp_path / "layer.safetensors"
    words = ["layer", str(tmp_path), "--layer", "1", "--engine", "interp", "--capture"]
    assert main([*words, "--tokens", "1 2,3", "--save", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "layer 1 (dense), FP32, 3 positions, captured after 1 layer\n" in text
    assert "prefill  PASS" in text
    entries = SafetensorsFile(saved).entries
    assert {name: entry.shape for name, entry in entries.items()} == {
        "states": (3, 32),
        "out": (3, 32),
        "golden": (3, 32),
    }
    assert main([*words, "--positions", "5", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert data["positions"] == 5
    assert main([*words[:6], "--tokens", "1"]) == 2
    assert main([*words, "--save", str(tmp_path / "layer.npz")]) != 0
    assert "ends in `.safetensors`" in capsys.readouterr().err
