"""Measure how far a model with INT8 weights is from the same model as stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array
from tilelet.models.qwen3.loading import layer_bytes
from tilelet.models.qwen3.model import Model, load, token_array


@dataclass(frozen=True)
class Int8Error:
    """The effect of INT8 on one prompt.

    layers      relative L2 distance of the hidden states after each layer
    logits      the same for the logits
    same_best   share of positions where the best token is the same
    positions   tokens of the prompt
    bytes       size of the weights of all layers as stored; `int8_bytes` in INT8
    """

    layers: tuple[float, ...]
    logits: float
    same_best: float
    positions: int
    bytes: int
    int8_bytes: int

    def to_json(self) -> JsonObject:
        return {**asdict(self), "layers": list(self.layers)}

    def __str__(self) -> str:
        worst = max(range(len(self.layers)), key=self.layers.__getitem__)
        lines = [
            f"layer {n:>3}  {error:.2e}{'  (largest)' if n == worst else ''}"
            for n, error in enumerate(self.layers)
        ]
        lines += [
            f"logits     {self.logits:.2e}",
            f"best token the same at {self.same_best:.1%} of {self.positions} positions",
            f"weights of the layers: {self.int8_bytes / self.bytes:.1%} of {self.bytes:,} bytes",
        ]
        return "\n".join(lines)


def int8_error(directory: str | Path, tokens: object, **options: object) -> Int8Error:
    """Run a prompt through a model twice, with the stored weights and in INT8.

    Layers are streamed, so that neither run needs memory for more than one; `options` are those of
    `load`.
    """
    prompt = token_array(tokens)
    settings: dict[str, Any] = {**options, "stream": True}
    settings.pop("quantize", None)
    exact = load(directory, **settings)
    narrow = load(directory, quantize="int8", **settings)
    (wide_states, wide), (states, logits) = (_run_model(m, prompt) for m in (exact, narrow))
    return Int8Error(
        layers=tuple(_distance(a, b) for a, b in zip(states, wide_states)),
        logits=_distance(logits, wide),
        same_best=float((logits.argmax(axis=1) == wide.argmax(axis=1)).mean()),
        positions=len(prompt),
        bytes=_bytes(exact),
        int8_bytes=_bytes(narrow),
    )


def _run_model(model: Model, prompt: Array) -> tuple[list[Array], Array]:
    """Return hidden states after each layer, and logits."""
    chunk, seen = model.sizes.chunk, dict[int, list[Array]]()
    states = model.states_of(
        0, prompt, lambda n, rows, _: seen.setdefault(n, []).append(rows.copy())
    )
    used = [min(chunk, len(prompt) - first) for first in range(0, len(prompt), chunk)]
    layers = [
        np.concatenate([rows[:count] for rows, count in zip(seen[n], used)]) for n in sorted(seen)
    ]
    return layers, model.logits_of(states).astype(np.float64)


def _distance(found: Array, wanted: Array) -> float:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _bytes(model: Model) -> int:
    runs = model.architecture.runs
    return sum(run.count * layer_bytes(run.kind.arrays, model.dtype) for run in runs)
