"""Scope 1 of a Qwen3 decode layer: input RMSNorm, then the Q, K and V projections.

Run it:   python -m tilelet.models.qwen3.scope1 --variant chunked -p a2a3sim

Versions, with their tasks at hidden 8192:
  per_block   one task per output block, K and V apart: the program as first written.
              1 + 128 + 32 = 161
  chunked     four blocks per task, K and V of a block together, longer chunks of K.
              1 + 32 + 4 = 37
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelet.language as pl
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.pieces import make_projection, make_rmsnorm
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.script import Model, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec


def shape_for(variant: str, **sizes: Any) -> DecodeShape:
    """The sizes a variant is made for, with those in `sizes` changed."""
    own = {"k_chunk": 512} if variant == "chunked" else {}
    return DecodeShape(**{**own, **sizes})


def specs(s: DecodeShape) -> list[TensorSpec]:
    return [
        inputs.hidden_states(s),
        inputs.norm_weight("input_rms_weight", s),
        *inputs.qkv_weights(s),
        TensorSpec("q_proj", (s.batch, s.hidden), pl.FP32, is_output=True),
        TensorSpec("k_proj", (s.batch, s.kv_width), pl.FP32, is_output=True),
        TensorSpec("v_proj", (s.batch, s.kv_width), pl.FP32, is_output=True),
    ]


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def scope1(tensors: dict[str, Array]) -> None:
        x = reference.double(tensors["hidden_states"])
        normed = reference.bf16(reference.rmsnorm(x, tensors["input_rms_weight"], s.eps))
        for name in ("q", "k", "v"):
            tensors[f"{name}_proj"][:] = reference.matmul(normed, tensors[f"w{name}"])

    return scope1


def make_per_block(s: DecodeShape):
    BATCH_TILE, K_CHUNK, HIDDEN_BLOCKS = s.batch_tile, s.k_chunk, s.hidden_blocks
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    project_q = make_projection(BATCH_TILE, K_CHUNK, Q_OUT_CHUNK, HIDDEN_BLOCKS)
    project_kv = make_projection(BATCH_TILE, K_CHUNK, KV_OUT_CHUNK, HIDDEN_BLOCKS)

    @pl.inline
    def per_block(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0):
        for ob in pl.range(Q_BLOCKS):
            q0 = ob * Q_OUT_CHUNK
            with pl.incore():
                q_acc = project_q(normed, wq, 0, q0)
            q_proj = pl.assemble(q_proj, q_acc, [b0, q0])
        for ob in pl.range(KV_BLOCKS):
            kv0 = ob * KV_OUT_CHUNK
            with pl.incore():
                k_acc = project_kv(normed, wk, 0, kv0)
            k_proj = pl.assemble(k_proj, k_acc, [b0, kv0])
            with pl.incore():
                v_acc = project_kv(normed, wv, 0, kv0)
            v_proj = pl.assemble(v_proj, v_acc, [b0, kv0])
        return q_proj, k_proj, v_proj

    return per_block


def make_chunked(s: DecodeShape):
    BATCH_TILE, K_CHUNK, HIDDEN_BLOCKS = s.batch_tile, s.k_chunk, s.hidden_blocks
    Q_BLOCKS, Q_OUT_CHUNK = s.q_blocks, s.q_out_chunk
    KV_BLOCKS, KV_OUT_CHUNK = s.kv_blocks, s.kv_out_chunk
    project_q = make_projection(BATCH_TILE, K_CHUNK, Q_OUT_CHUNK, HIDDEN_BLOCKS)
    project_kv = make_projection(BATCH_TILE, K_CHUNK, KV_OUT_CHUNK, HIDDEN_BLOCKS)

    @pl.inline
    def chunked(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0):
        with pl.auto_incore():
            for ob in pl.parallel(0, Q_BLOCKS, chunk=4):
                q0 = ob * Q_OUT_CHUNK
                q_proj = pl.assemble(q_proj, project_q(normed, wq, 0, q0), [b0, q0])
        with pl.auto_incore():
            for ob in pl.parallel(0, KV_BLOCKS, chunk=4):
                kv0 = ob * KV_OUT_CHUNK
                k_proj = pl.assemble(k_proj, project_kv(normed, wk, 0, kv0), [b0, kv0])
                v_proj = pl.assemble(v_proj, project_kv(normed, wv, 0, kv0), [b0, kv0])
        return q_proj, k_proj, v_proj

    return chunked


VARIANTS = {"per_block": make_per_block, "chunked": make_chunked}


def build_scope1(variant: str = "per_block", **sizes: Any):
    """The program, with any size of `DecodeShape` changed by name."""
    s = shape_for(variant, **sizes)
    BATCH, HIDDEN, KV_WIDTH, BATCH_TILE = s.batch, s.hidden, s.kv_width, s.batch_tile
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, s.k_chunk, s.eps)
    project_all = VARIANTS[variant](s)

    @pl.program
    class Qwen3Scope1:
        @pl.function(type=pl.FunctionType.Opaque)
        def scope1(
            self,
            hidden_states: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            input_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
            wq: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            wk: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            wv: pl.Tensor[[HIDDEN, KV_WIDTH], pl.BF16],
            q_proj: pl.Tensor[[BATCH, HIDDEN], pl.FP32],
            k_proj: pl.Tensor[[BATCH, KV_WIDTH], pl.FP32],
            v_proj: pl.Tensor[[BATCH, KV_WIDTH], pl.FP32],
        ):
            for b0 in pl.range(0, BATCH, BATCH_TILE):
                normed = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
                with pl.incore():
                    normed = rmsnorm(hidden_states, input_rms_weight, normed, b0)
                q_proj, k_proj, v_proj = project_all(normed, wq, wk, wv, q_proj, k_proj, v_proj, b0)
            return q_proj, k_proj, v_proj

    return Qwen3Scope1


MODEL = Model("scope1", tuple(VARIANTS), build_scope1, shape_for, specs, golden, tolerance=1e-3)

if __name__ == "__main__":
    raise SystemExit(main(MODEL))
