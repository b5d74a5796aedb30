"""A tiny random Qwen3, as the reference implementation builds and runs it."""

from __future__ import annotations

import atexit
import copy
import functools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.stack import LayerStack
from tilelet.runtime.data.arrays import as_array

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY = 96
BOUND = {"float32": 1e-5, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Sizes:
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32  # queries are twice as wide as the hidden state
    intermediate: int = 128
    layers: int = 3


@dataclass(eq=False)
class Tiny:
    """The model, the directory it is saved in, and its layers' outputs in the last call."""

    model: Any
    directory: Path
    outputs: list[Array] = field(default_factory=list)
    known: dict[tuple[bytes, int], list[Array]] = field(default_factory=dict)

    def embed(self, tokens: Array) -> Array:
        with torch.no_grad():
            return as_array(self.model.model.embed_tokens(torch.from_numpy(tokens)))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Collect the output of every layer."""
        layers = self.model.model.layers
        hooks = [layer.register_forward_hook(self._keep) for layer in layers]
        try:
            with torch.no_grad():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _keep(self, module: Any, args: Any, output: Any) -> None:
        found = output[0] if isinstance(output, tuple) else output
        self.outputs.append(as_array(found[0]).copy())

    def hidden_states(self, tokens: Array, prefill: int) -> list[Array]:
        """Return every layer's output for one sequence: prefilled, then token by token with a
        cache.

        Kept: tests run the same texts on several engines.
        """
        key = (tokens.tobytes(), prefill)
        if key not in self.known:
            self.known[key] = self._hidden_states(tokens, prefill)
        return self.known[key]

    def _hidden_states(self, tokens: Array, prefill: int) -> list[Array]:
        steps: list[list[Array]] = []
        cache = None
        pieces = [tokens[:prefill], *tokens[prefill:, None]]
        with self.watched():
            for piece in pieces:
                self.outputs.clear()
                given = torch.from_numpy(piece[None])
                found = self.model.model(given, past_key_values=cache, use_cache=True)
                cache = found.past_key_values
                steps.append(list(self.outputs))
        return [np.concatenate(rows) for rows in zip(*steps)]


USUAL = Sizes()
MOE_FIELDS: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "attn_implementation": "eager",
    "experts_implementation": "eager",
}


def _config(sizes: Sizes, **changes: Any) -> Any:
    return transformers.Qwen3Config(
        hidden_size=sizes.hidden,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        attn_implementation="eager",
        **changes,
    )


def _saved(model: Any, dtype: str) -> Tiny:
    model = model.to(getattr(torch, dtype)).eval()
    directory = Path(tempfile.mkdtemp(prefix="tiny-qwen3-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    model.save_pretrained(directory)
    return Tiny(model, directory)


@functools.cache
def ordinary(dtype: str, sizes: Sizes = USUAL, seed: int = 0) -> Tiny:
    """Return a model as `from_config` makes it, with all its defaults."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _saved(transformers.AutoModelForCausalLM.from_config(_config(sizes)), dtype)


@functools.cache
def whole(dtype: str, sizes: Sizes, *, vocabulary: int, tied: bool) -> Tiny:
    """A model with its output head: another vocabulary, embeddings tied or not."""
    config = _config(sizes, tie_word_embeddings=tied)
    config.vocab_size = vocabulary
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return _saved(transformers.AutoModelForCausalLM.from_config(config), dtype)


@functools.cache
def tiny(dtype: str, sizes: Sizes = USUAL, gain: float = 1.0) -> Tiny:
    """A model with peaked attention and norms that are not 1.

    `gain` is the size of what a layer adds to its input, in proportion.
    """
    generator = torch.Generator().manual_seed(7)
    # The term under the root is large enough to matter.
    model = transformers.Qwen3ForCausalLM(_config(sizes, rms_norm_eps=1e-3))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                peak = 1.5 if "_norm" in name else 1.0
                weight.uniform_(0.5 * peak, 1.5 * peak, generator=generator)
            elif "embed" in name:
                weight.normal_(0, 1, generator=generator)
            else:
                adds = "o_proj" in name or "down_proj" in name
                spread = (gain if adds else 1.0) / weight.shape[1] ** 0.5
                weight.normal_(0, spread, generator=generator)
    return _saved(model, dtype)


@functools.cache
def tiny_moe(dtype: str, **changes: Any) -> Tiny:
    """A mixture of experts with a biased router."""
    generator = torch.Generator().manual_seed(11)
    fields = {**MOE_FIELDS, **changes}
    if "mlp_only_layers" in fields:
        fields["mlp_only_layers"] = list(fields["mlp_only_layers"])
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**fields))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5, generator=generator)
            else:
                size = 1.0 if "embed" in name else weight.shape[-1] ** -0.5
                weight.normal_(0, size, generator=generator)
    return _saved(model, dtype)


@functools.cache
def widened(reference: Tiny) -> Tiny:
    """The same weights, computed with in FP32."""
    return Tiny(copy.deepcopy(reference.model).float(), reference.directory)


def tokens(lengths: Sequence[int], steps: int) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, VOCABULARY, n + steps) for n in lengths]


def relative(found: Array, wanted: Array) -> float:
    """Relative L2 distance."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def run_stack(
    stack: LayerStack, reference: Tiny, texts: Sequence[Array], lengths: Sequence[int], steps: int
) -> list[Array]:
    """Return hidden states of every sequence after the last layer: prefill, then `steps` decode
    steps.
    """
    embedded = [reference.embed(text) for text in texts]
    hidden = np.zeros((len(texts), max(lengths), embedded[0].shape[1]), embedded[0].dtype)
    for b, n in enumerate(lengths):
        hidden[b, :n] = embedded[b][:n]
    out = stack.prefill(hidden, list(lengths))
    found = [[out[b, :n]] for b, n in enumerate(lengths)]
    for step in range(steps):
        row = np.stack([embedded[b][n + step] for b, n in enumerate(lengths)])
        for b, state in enumerate(stack.decode(row)):
            found[b].append(state[None])
    return [np.concatenate(parts) for parts in found]


def references(reference: Tiny, texts: Sequence[Array], lengths: Sequence[int]) -> list[Array]:
    """Return the last layer's output for every sequence."""
    return [reference.hidden_states(text, n)[-1] for text, n in zip(texts, lengths)]


def by_sequence(
    found: Sequence[Array], wanted: Sequence[Array], lengths: Sequence[int]
) -> dict[str, float]:
    """Return the relative L2 of each sequence: of its prefill, and of each position after it."""
    worst: dict[str, float] = {}
    for b, (ours, theirs, n) in enumerate(zip(found, wanted, lengths)):
        assert ours.shape == theirs.shape
        worst[f"sequence {b}, prefill of {n}"] = relative(ours[:n], theirs[:n])
        for position in range(n, len(ours)):
            name = f"sequence {b}, position {position}"
            worst[name] = relative(ours[position], theirs[position])
    return worst


def by_step(
    found: Sequence[Array], wanted: Sequence[Array], lengths: Sequence[int], steps: int
) -> dict[str, float]:
    """Return the relative L2 of the batch's hidden states, after prefill and after each step."""
    ends = [slice(0, n) for n in lengths]
    worst: dict[str, float] = {}
    for step in range(steps + 1):
        ours, theirs = (np.concatenate([x[e] for x, e in zip(xs, ends)]) for xs in (found, wanted))
        worst[f"step {step}"] = relative(ours, theirs)
        ends = [slice(n + step, n + step + 1) for n in lengths]
    return worst


def check(worst: dict[str, float], bound: float) -> None:
    bad = {name: error for name, error in worst.items() if not error <= bound}
    assert not bad
