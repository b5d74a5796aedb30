"""A model beside the reference implementation, on the same tokens.

The reference is given the prompt and the tokens that were generated here, so every position is
compared, also after a difference. Two implementations round differently. How far they may be apart
follows from the roundoff of the dtype (2^-8 for BF16, 2^-24 for FP32), and that of products over k
in FP32: `u = roundoff + 2^-24 * sqrt(k)`, k the longest sum of a layer.

* A rounding changes a number by `u / sqrt(6)` of it on average (squares, all significands equally
  likely). Between the states before a layer and those after it each implementation rounds 13 times:
  normalised states (2), values, weights, their sum and its projection, gate, up, activation, their
  product and its projection, and two sums. What changes an exponent counts by its size, too:
  queries and keys are rounded 6 times before they make a score, which is rounded, and scores are of
  root mean square s, which for vectors of all directions is that of the product of the two norms'
  weights. So the relative L2 distance `e` of the hidden states should be below
  `u * sqrt(2 * (1 + sum(13 + 7 s^2) / 6))`, a sum over the layers so far, and half as much again:
  errors are not quite independent, and tiny models have few numbers to average over.
* An error of that size, spread over all directions of the final hidden state h, changes the
  difference of two logits by `e |w_a - w_b| |h| / sqrt(hidden)` (one standard deviation). A
  difference of logits below four of those and the rounding of the logits themselves is a near-tie.

With experts there are more choices: those of the routers, which are products too. Where two experts
nearly tie, rounding decides between quite different numbers. So the reference is given our experts,
and every choice of them that is not its own must be such a near-tie. The shares of the experts are
exponentials of the router's logits, of root mean square l: what a layer adds is off by another
`l u` for the rounding of the normalised states and for that of the logits, in each implementation.
To the sum over layers that adds `2 l^2` for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilelet.diag.catalogue.generate import GenerateExtra, ReferenceFailed
from tilelet.dtypes import DType
from tilelet.models.qwen3.cache import CachedSequence
from tilelet.models.qwen3.model import Model
from tilelet.models.qwen3.reference import Array
from tilelet.runtime.data.arrays import as_array
from tilelet.runtime.progress import progress

_DEVIATIONS = 4.0
_MARGIN = 1.5
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
class ExpertChoice:
    """A position whose experts are not those that the reference chooses there.

    margin  how far its router's logit of an expert that is only there is above one only here
    bound   what rounding may change that by
    """

    sequence: int
    position: int
    layer: int
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    margin: float
    bound: float

    @property
    def is_near_tie(self) -> bool:
        return self.margin <= self.bound


@dataclass(frozen=True)
class Comparison:
    """`experts` are the choices of experts that differ, of `routed` in all."""

    layers: list[LayerDistance]
    choices: list[TokenChoice]
    experts: list[ExpertChoice]
    routed: int

    @property
    def differences(self) -> list[TokenChoice]:
        return [choice for choice in self.choices if not choice.is_same]

    @property
    def first_layer(self) -> LayerDistance | None:
        """The first layer after which the hidden states are too far apart."""
        return next((layer for layer in self.layers if not layer.is_near), None)

    @property
    def agrees(self) -> bool:
        differences = (*self.differences, *self.experts)
        return self.first_layer is None and all(c.is_near_tie for c in differences)


@dataclass(frozen=True)
class _Routing:
    """What a router of the reference was given, and made of it, at every position."""

    weight: Array
    states: Array
    logits: Array

    @property
    def size(self) -> float:
        """Root mean square of the logits."""
        return float(np.sqrt(np.mean(self.logits**2)))


def check_reference() -> None:
    """An error if there is no reference here: better known before a long generation."""
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise GenerateExtra(package, "`--compare`")


class Reference:
    """The model of a directory as `transformers` runs it, in the same dtype."""

    def __init__(self, directory: str | Path, dtype: DType, layers: int) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, logging
        except ImportError as error:
            raise GenerateExtra(error.name or "transformers", "`--compare`") from None
        names = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}
        self._torch: Any = torch
        self._directory = str(directory)
        logging.set_verbosity_error()  # layers that are left out on purpose are no news
        logging.disable_progress_bar()
        with progress("loading the reference"), self._understood():
            model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(
                str(directory),
                dtype=getattr(torch, names[dtype.name]),
                local_files_only=True,
                num_hidden_layers=layers,
                # Products in groups have demands on sizes that models need not meet.
                experts_implementation="eager",
            )
        self.model = model.eval()

    @contextmanager
    def _understood(self) -> Generator[None]:
        """What the reference raises has no class of its own; nor is it a fault of ours."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            raise ReferenceFailed(self._directory, f"{type(error).__name__}: {error}") from error

    def run(self, tokens: Array, experts: Mapping[int, Array]) -> _ReferenceRun:
        """A pass over the tokens; in the layers of `experts`, by those `[tokens, chosen]`."""
        states: list[Array] = []
        routing: dict[int, _Routing] = {}

        def keep(_: Any, __: Any, output: Any) -> None:
            found = cast("Any", output[0] if isinstance(output, tuple) else output)
            states.append(as_array(found[0]).astype(np.float64))

        inner = self.model.model
        hooks = [layer.register_forward_hook(keep) for layer in (*inner.layers, inner.norm)]
        for layer, chosen in experts.items():
            router = inner.layers[layer].mlp.gate
            hooks.append(router.register_forward_hook(self._router_hook(routing, layer, chosen)))
        try:
            with self._understood(), self._torch.no_grad():
                given = self._torch.from_numpy(tokens.astype(np.int64))[None]
                logits = as_array(self.model(given, use_cache=False).logits[0])
        finally:
            for hook in hooks:
                hook.remove()
        return _ReferenceRun(states[:-1], states[-1], logits.astype(np.float64), routing)

    def _router_hook(
        self, routing: dict[int, _Routing], layer: int, chosen: Array
    ) -> Callable[[Any, Any, Any], Any]:
        """Note what a router makes of its input, and let it choose the experts `chosen`."""

        def choose(router: Any, given: Any, output: Any) -> Any:
            logits, scores, _ = output
            states = given[0].reshape(logits.shape[0], -1)
            weight, rows, found = (
                as_array(x.detach()).astype(np.float64) for x in (router.weight, states, logits)
            )
            routing[layer] = _Routing(weight, rows, found)
            experts = self._torch.from_numpy(chosen.astype(np.int64))
            shares = logits.float().softmax(-1).gather(1, experts)
            if router.norm_topk_prob:
                shares /= shares.sum(-1, keepdim=True)
            return logits, shares.to(scores.dtype), experts

        return choose


@dataclass(frozen=True)
class _ReferenceRun:
    """Hidden states after every layer, those after the final norm, logits, and routers by layer."""

    states: list[Array]
    normed: Array
    logits: Array
    routing: dict[int, _Routing]


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
    experts: list[ExpertChoice] = []
    routed = 0
    scores = np.array([_score_size(model, layer) for layer in range(count)])
    sizes = np.zeros(count)  # of the logits of routers, the largest of all sequences
    for number, (prompt, tokens) in enumerate(zip(prompts, new)):
        text = np.concatenate([prompt, np.array(tokens[:-1], np.int64)])
        with progress(f"comparing sequence {number + 1} of {len(prompts)}"):
            ours, chosen = _replayed(model, text, len(prompt))
            theirs = reference.run(text, chosen)
        for layer in range(count):
            squares[layer] += float((theirs.states[layer] ** 2).sum())
            distances[layer] += float(((ours[layer] - theirs.states[layer]) ** 2).sum())
        own = np.zeros(count)
        for layer, routing in theirs.routing.items():
            own[layer] = routing.size
        bounds, sizes = _bounds(model, scores, own), np.maximum(sizes, own)
        for layer, rows in chosen.items():
            routed += len(rows)
            routing = theirs.routing[layer]
            experts += _other_experts(model, number, layer, rows, routing, bounds[layer])
        first = len(prompt) - 1
        for i, token in enumerate(tokens):
            row, state = theirs.logits[first + i], theirs.normed[first + i]
            choices.append(_choice(model, number, i, token, row, state, bounds[-1]))
    relative = np.sqrt(distances / np.maximum(squares, 1e-300))
    bounds = _bounds(model, scores, sizes)
    layers = [LayerDistance(n, float(relative[n]), bounds[n]) for n in range(count)]
    return Comparison(layers, choices, experts, routed)


def _replayed(model: Model, tokens: Array, prompt: int) -> tuple[list[Array], dict[int, Array]]:
    """Hidden states after every layer, and the experts of every position in those that have any.

    The prompt is prefilled, the rest goes step by step, as when it was generated.
    """
    found: list[list[Array]] = [[] for _ in range(model.config.num_hidden_layers)]
    chosen: dict[int, list[Array]] = {}
    rows = 0

    def keep(layer: int, states: Array, experts: Array | None) -> None:
        found[layer].append(states[:rows].astype(np.float64))
        if experts is not None:
            chosen.setdefault(layer, []).append(experts[:rows].copy())

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
    together = {layer: np.concatenate(parts) for layer, parts in chosen.items()}
    return [np.concatenate(parts) for parts in found], together


def _other_experts(
    model: Model, sequence: int, layer: int, chosen: Array, routing: _Routing, error: float
) -> list[ExpertChoice]:
    """The positions whose experts the reference would not have chosen."""
    found: list[ExpertChoice] = []
    for position, (row, logits) in enumerate(zip(chosen, routing.logits)):
        ours = {int(e) for e in row}
        theirs = {int(e) for e in np.argsort(-logits, kind="stable")[: len(row)]}
        if ours == theirs:
            continue
        first = max(theirs - ours, key=logits.__getitem__)
        last = min(ours - theirs, key=logits.__getitem__)
        pair = [first, last]
        state = routing.states[position]
        bound = _explained(model, error, routing.weight[pair], state, logits[pair])
        experts = tuple(sorted(ours)), tuple(sorted(theirs))
        margin = float(logits[first] - logits[last])
        found.append(ExpertChoice(sequence, position, layer, *experts, margin, bound))
    return found


def _score_size(model: Model, layer: int) -> float:
    """The root mean square of a layer's scores, for queries and keys of all directions."""
    weights = model.weights.source.layers(layer, 1)
    product = weights["q_norm"].astype(np.float64) * weights["k_norm"].astype(np.float64)
    return float(np.sqrt((product**2).mean()))


def _bounds(model: Model, scores: Array, routers: Array) -> list[float]:
    """Relative distances of hidden states that rounding explains, after every layer.

    scores   root mean squares of the scores of the layers' attention
    routers  those of the logits of the layers' routers, 0 without one
    """
    c = model.config
    longest = max(c.hidden_size, c.q_width, c.intermediate_size)
    roundoff = _ROUNDOFF[model.dtype.name] + _ROUNDOFF["FP32"] * math.sqrt(longest)
    roundings = 1 + np.cumsum((13 + 7 * scores**2) / 6 + 2 * routers**2)
    return [_MARGIN * roundoff * math.sqrt(2 * n) for n in roundings]


def _explained(model: Model, error: float, rows: Array, state: Array, logits: Array) -> float:
    """What rounding may change the difference of two logits by: those of a normalised state, off by
    `error`, by two rows of a matrix.
    """
    between = float(np.linalg.norm(rows[0] - rows[1]))
    scale = float(np.linalg.norm(state)) / math.sqrt(model.config.hidden_size)
    rounding = 2 * _ROUNDOFF[model.dtype.name] * float(np.abs(logits).max())
    return _DEVIATIONS * error * between * scale + rounding


def _choice(
    model: Model,
    sequence: int,
    number: int,
    ours: int,
    logits: Array,
    normed: Array,
    error: float,
) -> TokenChoice:
    best = int(np.argmax(logits))
    second = int(np.argmax(np.where(np.arange(len(logits)) == best, -np.inf, logits)))
    pair = [best, ours if ours != best else second]
    rows = np.stack([model.weights.head_column(t) for t in pair]).astype(np.float64)
    return TokenChoice(
        sequence,
        number,
        ours,
        best,
        float(logits[best] - logits[ours]),
        float(logits[best] - logits[second]),
        _explained(model, error, rows, normed, logits[pair]),
    )
