"""Whole models: a step of decode and a prompt, here and by `transformers`, on one checkpoint."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilelet import dtypes
from tilelet.bench import torch_forms
from tilelet.bench.cases import UsefulWork
from tilelet.bench.report import Goal
from tilelet.bench.runner import Bench
from tilelet.bench.timing import Form, Missing
from tilelet.models.qwen3.cache import CachedSequence
from tilelet.models.qwen3.compare import ReferenceModel
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.model import Model, load
from tilelet.models.qwen3.random_checkpoint import write_random_checkpoint

# goal: share of the bound by reading the weights once
READING = Goal("read_share", 0.85)
AHEAD = {"step of 1": 2.0, "step of 16": 3.0, "prompt": 1.5}

_NAME = "transformers, BF16"
_CONTEXT = 64  # context length before a step
_PROMPT = 512
_STEPS = 4  # consecutive steps, without pauses
_SMALL = Qwen3Config(
    hidden_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=256,
    num_hidden_layers=2,
    head_dim=32,
    vocab_size=1000,
)


def tokens(bench: Bench) -> None:
    """Write random weights with the sizes of Qwen3-0.6B, for both implementations."""
    config = _SMALL if bench.is_quick else Qwen3Config.preset("0.6B")
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder, bench.guard("tokens"):
        bench.say("tokens: a checkpoint with random weights")
        write_random_checkpoint(Path(folder), config, layers_per_shard=7)
        prompt = 64 if bench.is_quick else _PROMPT
        model = load(folder, max_seq=prompt, batch=16)
        theirs = _Theirs(folder, config, bench.threads) if _has_reference() else None
        for batch in (1, 16):
            with bench.guard(f"step of {batch}"):
                _step(bench, model, theirs, batch)
        with bench.guard("prompt"):
            _prompt(bench, model, theirs, prompt)


def _has_reference() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


class _Theirs:
    """Load the reference with its dtype, on as many threads as the engine."""

    def __init__(self, folder: str, config: Qwen3Config, threads: int) -> None:
        torch_forms.use_threads(threads)
        layers = config.num_hidden_layers
        self._model: Any = ReferenceModel(folder, dtypes.BF16, layers).model

    def prompt(self, given: np.ndarray[Any, Any]) -> Any:
        """Run the prompts; return their cache."""
        tensor = torch_forms.tensor(given.astype(np.int64))
        return self._model(tensor, use_cache=True, logits_to_keep=1).past_key_values

    def step(self, cached: Any, given: np.ndarray[Any, Any]) -> None:
        """Run one step of every sequence, then discard it."""
        tensor = torch_forms.tensor(given.astype(np.int64)[:, None])
        self._model(tensor, use_cache=True, past_key_values=cached)
        cached.crop(-1)


def _forms(label: str, run: Callable[[], object] | None, part: float = 1.0) -> list[Form | Missing]:
    name = f"{_NAME}, {label}"
    if run is None:
        return [Missing(name, "not installed: `pip install 'tilelet[generate]'`")]
    return [Form(name, torch_forms.in_inference_mode(run), is_foreign=True, part=part)]


def _read(config: Qwen3Config) -> int:
    """Return the bytes of weights that a pass reads: all but the embedding, in BF16."""
    embedding = config.vocab_size * config.hidden_size
    rest = config.parameters - (0 if config.tie_word_embeddings else embedding)
    return 2 * rest


def _flops(config: Qwen3Config, rows: int, heads: int) -> float:
    """Count multiply-adds with weights; `heads` rows reach the logits."""
    head = config.vocab_size * config.hidden_size
    return 2.0 * (rows * config.num_hidden_layers * config.layer_parameters + heads * head)


def _step(bench: Bench, model: Model, theirs: _Theirs | None, batch: int) -> None:
    c = model.config
    rng = np.random.default_rng(batch)
    given = rng.integers(0, c.vocab_size, (batch, _CONTEXT - 1))
    new = rng.integers(0, c.vocab_size, batch)
    sequences = [CachedSequence() for _ in range(batch)]
    try:
        for sequence, text in zip(sequences, given):
            model.cache.reserve(sequence, _CONTEXT)
            for _ in model.prefill(sequence, text):
                pass

        def step() -> None:
            model.step(sequences, [int(token) for token in new])
            for sequence in sequences:
                sequence.length -= 1

        def several(one: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                for _ in range(_STEPS):
                    one()

            return run

        their_step: Callable[[], object] | None = None
        if theirs:
            cached: Any = torch_forms.in_inference_mode(functools.partial(theirs.prompt, given))()
            their_step = several(functools.partial(theirs.step, cached, new))
        label = f"step of {batch}"
        others = _forms(label, their_step, part=_STEPS)
        bench.measure_form(
            Form(f"{label} at {_CONTEXT}", several(step), part=_STEPS),
            UsefulWork(_flops(c, batch, batch), _read(c)),
            [READING] if batch == 1 else [],
            others,
            {others[0].name: Goal("ours_is_faster", AHEAD[label])},
        )
    finally:
        for sequence in sequences:
            model.cache.release(sequence)


def _prompt(bench: Bench, model: Model, theirs: _Theirs | None, length: int) -> None:
    c = model.config
    given = np.random.default_rng(0).integers(0, c.vocab_size, length)

    def prompt() -> None:
        model.head(model.states_of(0, given)[-1:])

    run = functools.partial(theirs.prompt, given[None]) if theirs else None
    others = _forms("prompt", run)
    bench.measure_form(
        Form(f"prompt of {length} tokens", prompt),
        UsefulWork(_flops(c, length, 1), _read(c)),
        [],
        others,
        {others[0].name: Goal("ours_is_faster", AHEAD["prompt"])},
    )
