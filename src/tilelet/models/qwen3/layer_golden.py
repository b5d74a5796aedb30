"""A layer of a checkpoint in double precision, computed directly from its files.

It shares nothing with the programs and the loader except the files: matrices are used as stored,
`[out, in]`, block by block, so that a layer of any size needs little memory.
"""

from __future__ import annotations

import math

import numpy as np

from tilelet.dtypes import Array
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.int8 import LARGEST
from tilelet.models.qwen3.published import rope_tables
from tilelet.models.qwen3.reference import rotate, silu
from tilelet.models.qwen3.weights import Checkpoint

# Rows (outputs) of a stored matrix that are widened at a time.
_OUTPUTS = 512


class LayerGolden:
    """Build the golden of one layer; with `int8`, the stored weights are quantized to INT8."""

    def __init__(self, checkpoint: Checkpoint, layer: int, *, int8: bool = False) -> None:
        self._checkpoint = checkpoint
        self._config: Qwen3Config = checkpoint.config
        self._layer = layer
        self._int8 = int8
        self._router = np.zeros((0, 0))
        self._positions = 0

    def __call__(self, states: Array) -> Array:
        """Apply the layer to states `[positions, hidden]` of one sequence, from its start."""
        self._positions = len(states)
        x = states.astype(np.float64)
        x = x + self._attention(self._norm("input_layernorm", x))
        normed = self._norm("post_attention_layernorm", x)
        c = self._config
        if isinstance(c, Qwen3MoeConfig) and c.is_sparse(self._layer):
            return x + self._experts(c, normed)
        return x + self._mlp("mlp", normed, c.intermediate_size)

    def near_ties(self, rounding: float) -> Array:
        """Return the positions of the last call whose choice of experts may change if the router
        logits are off by `rounding` of their size.
        """
        c = self._config
        if (
            not isinstance(c, Qwen3MoeConfig)
            or not len(self._router)
            or c.num_experts == c.num_experts_per_tok
        ):
            return np.zeros(self._positions, bool)
        ordered = np.sort(self._router, axis=1)[:, ::-1]
        k = c.num_experts_per_tok
        size = np.sqrt(np.mean(self._router**2, axis=1))
        return ordered[:, k - 1] - ordered[:, k] < rounding * size

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        return self._checkpoint.whole(f"layers.{self._layer}.{name}.weight", shape)

    def _norm(self, name: str, x: Array) -> Array:
        """Apply RMSNorm to the last axis."""
        weight = self._tensor(name, (x.shape[-1],)).astype(np.float64)
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean + self._config.rms_norm_eps) * weight

    def _times(self, name: str, x: Array, outputs: int, *, narrow: bool = True) -> Array:
        """Multiply `x` by a stored matrix."""
        stored = self._tensor(name, (outputs, x.shape[-1]))
        found = np.empty((len(x), outputs))
        for first in range(0, outputs, _OUTPUTS):
            block = stored[first : first + _OUTPUTS].astype(np.float32).astype(np.float64)
            if self._int8 and narrow:
                factor = np.abs(block).max(axis=1, keepdims=True) / LARGEST
                factor[factor == 0] = 1
                block = np.rint(block / factor) * factor
            found[:, first : first + _OUTPUTS] = x @ block.T
        return found

    def _attention(self, x: Array) -> Array:
        c = self._config
        cos, sin = rope_tables(c, len(x))
        heads = {"q": c.heads, "k": c.kv_heads, "v": c.kv_heads}
        parts: dict[str, Array] = {}
        for part, count in heads.items():
            rows = self._times(f"self_attn.{part}_proj", x, count * c.head_dim)
            head = rows.reshape(len(x), count, c.head_dim)
            if part != "v":
                head = self._norm(f"self_attn.{part}_norm", head)
                head = rotate(head, cos[:, None], sin[:, None])
            parts[part] = head
        mask = np.triu(np.full((len(x), len(x)), -np.inf), 1)
        attended = np.empty((len(x), c.heads, c.head_dim))
        for h in range(c.heads):
            keys, values = (parts[p][:, h // c.q_per_kv] for p in "kv")
            scores = parts["q"][:, h] @ keys.T / math.sqrt(c.head_dim) + mask
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            attended[:, h] = weights / weights.sum(axis=1, keepdims=True) @ values
        return self._times("self_attn.o_proj", attended.reshape(len(x), -1), c.hidden_size)

    def _mlp(self, name: str, x: Array, width: int) -> Array:
        gate, up = (self._times(f"{name}.{part}_proj", x, width) for part in ("gate", "up"))
        return self._times(f"{name}.down_proj", silu(gate) * up, x.shape[1])

    def _experts(self, c: Qwen3MoeConfig, x: Array) -> Array:
        logits = self._times("mlp.gate", x, c.num_experts, narrow=False)
        self._router = logits
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = e / e.sum(axis=1, keepdims=True)
        chosen = np.argsort(-chances, axis=1, kind="stable")[:, : c.num_experts_per_tok]
        shares = np.take_along_axis(chances, chosen, axis=1)
        if c.norm_topk_prob:
            shares = shares / shares.sum(axis=1, keepdims=True)
        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            rows, place = np.nonzero(chosen == expert)
            product = self._mlp(f"mlp.experts.{expert}", x[rows], c.moe_intermediate_size)
            out[rows] += product * shares[rows, place, None]
        return out
