"""A model beside the reference implementation, on the same tokens.

The reference is given the prompt and the tokens that were generated here, so every position is
compared, also after a difference. Two implementations round differently. How far they may be apart
follows from the roundoff of the dtype (2^-8 for BF16, 2^-24 for FP32), and that of products over k
in FP32: `u = roundoff + 2^-24 * sqrt(k)`, k the longest sum of a layer.

* The hidden states after n layers are sums that each implementation rounded 1 + 2 n times: their
  relative L2 distance `e` should be below `u * sqrt(2 * (1 + 2 n))`.
* An error of that size, spread over all directions of the final hidden state h, changes the
  difference of two logits by `e |w_a - w_b| |h| / sqrt(hidden)` (one standard deviation). A
  difference of logits below four of those and the rounding of the logits themselves is a near-tie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilelet.diag.catalogue.generate import GenerateExtra
from tilelet.dtypes import DType
from tilelet.models.qwen3.cache import CachedSequence
from tilelet.models.qwen3.model import Model
from tilelet.models.qwen3.reference import Array
from tilelet.runtime.arrays import as_array
from tilelet.runtime.progress import progress

_DEVIATIONS = 4.0
_ROUNDOFF = {"BF16": 2.0**-8, "FP16": 2.0**-11, "FP32": 2.0**-24}


@dataclass(frozen=True)
class LayerDistance:
    """Relative L2 distance of the hidden states after a layer, all positions together."""

    layer: int
    distance: float
    bound: float

    @property
    def is_near(self) -> bool:
        return self.distance <= self.bound


@dataclass(frozen=True)
class TokenChoice:
    """A new token, and what the reference chooses at its place.

    margin  how far the reference's largest logit is above that of `ours`; 0 if they agree
    top_two  how far it is above the second largest
    bound   what rounding may change a difference of two such logits by
    """

    sequence: int
    number: int
    ours: int
    theirs: int
    margin: float
    top_two: float
    bound: float

    @property
    def is_same(self) -> bool:
        return self.ours == self.theirs

    @property
    def is_near_tie(self) -> bool:
        return self.margin <= self.bound


@dataclass(frozen=True)
class Comparison:
    layers: list[LayerDistance]
    choices: list[TokenChoice]

    @property
    def differences(self) -> list[TokenChoice]:
        return [choice for choice in self.choices if not choice.is_same]

    @property
    def first_layer(self) -> LayerDistance | None:
        """The first layer after which the hidden states are too far apart."""
        return next((layer for layer in self.layers if not layer.is_near), None)

    @property
    def agrees(self) -> bool:
        return self.first_layer is None and all(c.is_near_tie for c in self.differences)


class Reference:
    """The model of a directory as `transformers` runs it, in the same dtype."""

    def __init__(self, directory: str | Path, dtype: DType, layers: int) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise GenerateExtra(error.name or "transformers", "`--compare`") from None
        names = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}
        self._torch: Any = torch
        with progress("loading the reference"):
            model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(
                str(directory),
                dtype=getattr(torch, names[dtype.name]),
                local_files_only=True,
                num_hidden_layers=layers,
            )
        self.model = model.eval()

    def run(self, tokens: Array) -> tuple[list[Array], Array, Array]:
        """Hidden states after every layer, those after the final norm, and logits."""
        states: list[Array] = []

        def keep(_: Any, __: Any, output: Any) -> None:
            found = cast("Any", output[0] if isinstance(output, tuple) else output)
            states.append(as_array(found[0]).astype(np.float64))

        inner = self.model.model
        hooks = [layer.register_forward_hook(keep) for layer in (*inner.layers, inner.norm)]
        try:
            with self._torch.no_grad():
                given = self._torch.from_numpy(tokens.astype(np.int64))[None]
                logits = as_array(self.model(given, use_cache=False).logits[0])
        finally:
            for hook in hooks:
                hook.remove()
        return states[:-1], states[-1], logits.astype(np.float64)


def compare(
    model: Model,
    reference: Reference,
    prompts: Sequence[Array],
    new: Sequence[Sequence[int]],
) -> Comparison:
    """Our layers and tokens beside those of the reference; `new` are the tokens of each prompt."""
    count = model.config.num_hidden_layers
    squares, distances = np.zeros(count), np.zeros(count)
    choices: list[TokenChoice] = []
    for number, (prompt, tokens) in enumerate(zip(prompts, new)):
        text = np.concatenate([prompt, np.array(tokens[:-1], np.int64)])
        with progress(f"comparing sequence {number + 1} of {len(prompts)}"):
            theirs, normed, logits = reference.run(text)
            ours = _replayed(model, text, len(prompt))
        for layer in range(count):
            squares[layer] += float((theirs[layer] ** 2).sum())
            distances[layer] += float(((ours[layer] - theirs[layer]) ** 2).sum())
        first = len(prompt) - 1
        for i, token in enumerate(tokens):
            row, state = logits[first + i], normed[first + i]
            choices.append(_choice(model, number, i, token, row, state))
    relative = np.sqrt(distances / np.maximum(squares, 1e-300))
    layers = [LayerDistance(n, float(relative[n]), _bound(model, n + 1)) for n in range(count)]
    return Comparison(layers, choices)


def _replayed(model: Model, tokens: Array, prompt: int) -> list[Array]:
    """Hidden states after every layer: the prompt prefilled, then step by step, as generated."""
    found: list[list[Array]] = [[] for _ in range(model.config.num_hidden_layers)]
    rows = 0

    def keep(layer: int, states: Array) -> None:
        found[layer].append(states[:rows].astype(np.float64))

    sequence = CachedSequence()
    try:
        chunk = model.sizes.chunk
        model.cache.reserve(sequence, len(tokens))
        for first in range(0, prompt, chunk):
            rows = min(chunk, prompt - first)
            model.extend(sequence, tokens[first : first + rows], keep)
        rows = 1
        for token in tokens[prompt:]:
            model.step([sequence], [int(token)], keep)
    finally:
        model.cache.release(sequence)
    return [np.concatenate(parts) for parts in found]


def _bound(model: Model, layers: int) -> float:
    """Relative distance of hidden states that rounding explains, after so many layers."""
    c = model.config
    longest = max(c.hidden_size, c.q_width, c.intermediate_size)
    roundoff = _ROUNDOFF[model.dtype.name] + _ROUNDOFF["FP32"] * math.sqrt(longest)
    return roundoff * math.sqrt(2 * (1 + 2 * layers))


def _choice(
    model: Model, sequence: int, number: int, ours: int, logits: Array, normed: Array
) -> TokenChoice:
    best = int(np.argmax(logits))
    second = int(np.argmax(np.where(np.arange(len(logits)) == best, -np.inf, logits)))
    other = ours if ours != best else second
    columns = model.weights.head[:, [best, other]].astype(np.float64)
    between = float(np.linalg.norm(columns[:, 0] - columns[:, 1]))
    scale = float(np.linalg.norm(normed)) / math.sqrt(model.config.hidden_size)
    error = _bound(model, model.config.num_hidden_layers)
    rounding = 2 * _ROUNDOFF[model.dtype.name] * float(np.abs(logits[[best, other]]).max())
    return TokenChoice(
        sequence,
        number,
        ours,
        best,
        float(logits[best] - logits[ours]),
        float(logits[best] - logits[second]),
        _DEVIATIONS * error * between * scale + rounding,
    )
