"""The parameters of a whole layer, shared by decode and prefill programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tilelet.language as pl
from tilelet.ir.core import Program
from tilelet.models.qwen3 import inputs
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec


def layer_program(name: str, states: Sequence[int], s: DecodeShape, layer: Any) -> Program:
    """Wrap the inline function `layer` in a program called `name`.

    `states` is the shape of the hidden states that go in and come out.
    """
    STATES = list(states)
    BATCH, HIDDEN, KV_WIDTH, INTERMEDIATE = s.batch, s.hidden, s.kv_width, s.intermediate
    MAX_SEQ, HEAD_DIM, CACHE_ROWS = s.max_seq, s.head_dim, s.cache_rows

    @pl.program
    class Qwen3Layer:
        @pl.function(type=pl.FunctionType.Opaque)
        def qwen3_layer(
            self,
            hidden_states: pl.Tensor[STATES, pl.BF16],
            input_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
            wq: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            wk: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            wv: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            seq_lens: pl.Tensor[[BATCH], pl.INT32],
            rope_cos: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            rope_sin: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            k_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
            v_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
            wo: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            post_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
            w_gate: pl.Tensor[[HIDDEN, INTERMEDIATE], pl.BF16],
            w_up: pl.Tensor[[HIDDEN, INTERMEDIATE], pl.BF16],
            w_down: pl.Tensor[[INTERMEDIATE, HIDDEN], pl.BF16],
            out: pl.Out[pl.Tensor[STATES, pl.BF16]],
        ):
            out = layer(
                hidden_states, input_rms_weight, wq, wk, wv, seq_lens, rope_cos, rope_sin,
                k_cache, v_cache, wo, post_rms_weight, w_gate, w_up, w_down, out,
            )  # fmt: skip
            return out  # noqa: RET504 - the assignment says that `out` was written

    return dataclasses.replace(Qwen3Layer, name=name)


def layer_specs(
    hidden_states: TensorSpec, s: DecodeShape, out_starts: float | None = None
) -> list[TensorSpec]:
    """Return inputs and outputs of a layer; the caches are both. `out_starts` is the initial value
    of `out`, for layers that do not write all of it.
    """
    return [
        hidden_states,
        inputs.norm_weight("input_rms_weight", s),
        *inputs.qkv_weights(s),
        inputs.seq_lens(s),
        *inputs.rope(s),
        *inputs.caches(s),
        inputs.output_weight(s),
        inputs.norm_weight("post_rms_weight", s),
        *inputs.mlp_weights(s),
        TensorSpec("out", hidden_states.shape, pl.BF16, out_starts, is_output=True),
    ]
