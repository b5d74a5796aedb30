"""Whole models with experts, compared with the reference implementation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.real.files import write_file
from tests.models.real.test_generate import (
    LENGTHS,
    NEW,
    SMALL,
    one_thread,
    prompts,
    reference_tokens,
    tokens_of,
)
from tests.models.real.tiny import Tiny, relative, tiny_moe, torch, widened

from tilelet import dtypes
from tilelet.checkpoint.files import SINGLE
from tilelet.checkpoint.safetensors import SafetensorsFile
from tilelet.cli.main import main
from tilelet.diag.catalogue.models import MissingTensors, UnsupportedModelSetting
from tilelet.models import qwen3
from tilelet.models.qwen3.architecture import Kind
from tilelet.models.qwen3.compare import ReferenceModel, compare
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.device_pass import PassShape, device_pass, drawn_groups
from tilelet.models.qwen3.stack import LayerStack

__all__ = ["one_thread"]

CASES: dict[str, dict[str, Any]] = {
    "all sparse": {},
    "dense between": {"mlp_only_layers": (1,)},
    "every second": {"decoder_sparse_step": 2, "num_hidden_layers": 4, "norm_topk_prob": False},
    "odd sizes": {
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "hidden_size": 56,
        "moe_intermediate_size": 40,
        "tie_word_embeddings": True,
    },
}


def reference_of(dtype: str, case: str) -> Tiny:
    return tiny_moe(dtype, **CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_fp32_tokens_are_those_of_the_reference(case: str, thorough: bool) -> None:
    """Five prompts in a batch of four: the last waits until a sequence ends."""
    if not thorough:
        pytest.skip("compiles for a minute")
    reference, texts = reference_of("float32", case), prompts(LENGTHS)
    model = qwen3.load(reference.directory, **SMALL)
    assert tokens_of(model, texts, max_new_tokens=NEW) == [
        reference_tokens(reference, text, NEW) for text in texts
    ]


def test_a_prompt_and_some_tokens() -> None:
    """Layers with experts and without; a prompt of one chunk and a token."""
    reference, (text,) = reference_of("float32", "dense between"), prompts([17])
    model = qwen3.load(reference.directory, **{**SMALL, "chunk": 16, "engine": "interp"})
    assert tokens_of(model, [text], max_new_tokens=4) == [reference_tokens(reference, text, 4)]


def is_near_tie(reference: Tiny, text: list[int], ours: int, theirs: int) -> bool:
    """Whether two tokens differ by rounding only. They do if they are nearer to each other than the
    reference to itself in FP32, or if rounding decides which experts the last token goes to,
    because another expert gives very different logits.
    """
    given, exact_model = torch.tensor(text)[None], widened(reference).model
    margins: list[float] = []

    def watch(router: Any, given: Any, found: Any) -> None:
        logits = found[0][-1]
        best = logits.sort(descending=True).values
        gap = best[router.top_k - 1] - best[router.top_k]
        margins.append(float(gap / logits.square().mean().sqrt()))

    routers = [layer.mlp.gate for layer in exact_model.model.layers if hasattr(layer.mlp, "gate")]
    hooks = [router.register_forward_hook(watch) for router in routers]
    with torch.no_grad():
        rounded = reference.model(given).logits[0, -1].float()
        exact = exact_model(given).logits[0, -1]
    for hook in hooks:
        hook.remove()
    assert len(margins) == len(routers)
    slack = 2 * (rounded - exact).abs().max()
    is_near = bool((exact[theirs] - exact[ours]).abs() <= slack)
    return is_near or min(margins) < 2**-8  # half a unit in the last place of BF16


@pytest.mark.parametrize("case", ["all sparse", "dense between"])
def test_bf16_tokens_but_for_near_ties(case: str, thorough: bool) -> None:
    if not thorough:
        pytest.skip("compiles for a minute")
    reference, texts = reference_of("bfloat16", case), prompts(LENGTHS)
    model = qwen3.load(reference.directory, **SMALL)
    for text, ours in zip(texts, tokens_of(model, texts, max_new_tokens=NEW)):
        theirs = reference_tokens(reference, text, NEW)
        for n, (a, b) in enumerate(zip(ours, theirs)):
            if a != b:
                assert is_near_tie(reference, [*text.tolist(), *theirs[:n]], a, b)
                break  # the rest continues another text


def test_streamed_and_cached_weights_give_the_same(tmp_path: Path) -> None:
    reference, (text,) = reference_of("float32", "dense between"), prompts([9])
    sizes = {**SMALL, "chunk": 16, "engine": "interp"}
    wanted = qwen3.load(reference.directory, **sizes).forward(text)
    for how in ({"stream": True}, {"weights_cache": tmp_path}, {"weights_cache": tmp_path}):
        assert np.array_equal(qwen3.load(reference.directory, **sizes, **how).forward(text), wanted)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_first_layers_only() -> None:
    reference, (text,) = reference_of("float32", "dense between"), prompts([5])
    model = qwen3.load(reference.directory, **{**SMALL, "chunk": 16, "engine": "interp"}, layers=2)
    assert [(run.kind.name, run.count) for run in model.architecture.runs] == [
        ("sparse", 1),
        ("dense", 1),
    ]
    found = model.states_of(0, text)
    with torch.no_grad():
        states = reference.model.model(
            torch.from_numpy(text)[None], output_hidden_states=True
        ).hidden_states
    assert relative(found, states[2][0].numpy()) < 1e-5


def test_a_missing_expert(tmp_path: Path) -> None:
    directory = reference_of("float32", "dense between").directory
    (tmp_path / "config.json").write_bytes((directory / "config.json").read_bytes())
    file = SafetensorsFile(directory / SINGLE)
    name = "model.layers.2.mlp.experts.4.up_proj.weight"
    write_file(tmp_path / SINGLE, {n: file.tensor(n) for n in file.entries if n != name})
    with pytest.raises(MissingTensors, match=re.escape(name)):
        qwen3.load(tmp_path, **SMALL)


def test_a_layer_stack_has_no_experts() -> None:
    directory = reference_of("float32", "dense between").directory
    with pytest.raises(UnsupportedModelSetting, match="`num_experts`"):
        LayerStack.load(directory, batch=1, max_seq=16)


@pytest.mark.parametrize("machine", ["a2a3", "a5"])
@pytest.mark.parametrize(("kind", "batch"), [("decode", 2), ("prefill", 1)])
def test_modelled_passes_have_tasks_for_the_experts_that_have_rows(
    machine: str, kind: Kind, batch: int
) -> None:
    """Layers of both kinds are counted."""
    config = Qwen3Config.read(reference_of("float32", "dense between").directory)
    assert isinstance(config, Qwen3MoeConfig)
    found = device_pass(PassShape(config, kind, batch, 3, dtypes.FP32), machine)
    assert [(part.name, part.times) for part in found.parts] == [
        ("embedding", 1), ("sparse layer", 2), ("dense layer", 1), ("output head", 1),
    ]  # fmt: skip
    groups = drawn_groups(config, found.tokens)
    assert groups[0].sum() == found.tokens * config.num_experts_per_tok
    tasks = {k.name: k.tasks for k in found.parts[1].profile.kernels}
    assert {"router", "dispatch", "expert_gate_up", "expert_down", "combine"} <= set(tasks)
    assert tasks["expert_rows"] == np.count_nonzero(groups[0])  # no expert has more than a tile


def test_experts_of_modelled_passes_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    directory = reference_of("float32", "dense between").directory
    given = ["--tokens", "1", "--max-new-tokens", "1", "--engine", "interp"]
    assert main(["generate", str(directory), *given, "--profile", "a5"]) == 0
    assert "experts of the tokens: drawn, all equally likely" in capsys.readouterr().out


def test_one_expert_for_one_row() -> None:
    """The smallest possible group: one slot."""
    fields = {"num_experts_per_tok": 1, "num_hidden_layers": 1}
    reference, (text,) = tiny_moe("float32", **fields), prompts([3])
    model = qwen3.load(reference.directory, **{**SMALL, "chunk": 16, "engine": "interp"})
    assert tokens_of(model, [text], max_new_tokens=3) == [reference_tokens(reference, text, 3)]


class _OtherExperts:
    """A model whose observers are told of other experts than it used."""

    def __init__(self, model: Any) -> None:
        self._extend = model.extend

    def __call__(self, sequence: Any, tokens: Any, observe: Any = None) -> Any:
        def changed(layer: int, states: Any, experts: Any) -> None:
            observe(layer, states, None if experts is None else 5 - experts)

        return self._extend(sequence, tokens, changed if observe else None)


def test_a_wrong_expert_is_no_near_tie() -> None:
    reference, (text,) = reference_of("float32", "dense between"), prompts([9])
    model = qwen3.load(reference.directory, **{**SMALL, "chunk": 16, "engine": "interp"})
    layers = model.config.num_hidden_layers
    theirs = ReferenceModel(reference.directory, model.dtype, layers)
    (new,) = tokens_of(model, [text], max_new_tokens=2)
    right = compare(model, theirs, [text], [new])
    assert right.agrees
    assert (right.routed, right.experts) == (2 * 10, [])
    model.extend = _OtherExperts(model)  # type: ignore[method-assign]
    wrong = compare(model, theirs, [text], [new])
    assert not wrong.agrees
    assert any(not choice.is_near_tie for choice in wrong.experts)
