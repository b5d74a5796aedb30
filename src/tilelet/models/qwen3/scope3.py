"""Scope 3 of a Qwen3 decode layer: output projection, residual, RMSNorm, MLP, residual.

Run it:   python -m tilelet.models.qwen3.scope3 --variant refactored --hidden 8192 -p a2a3sim

Versions, with their tasks:
  baseline     the program as first written. The down projection runs inside the loop over MLP
               blocks and adds into an accumulator in global memory, two tasks per hidden block.
               hidden 5120: 10 + 160 + 1 + 1200 + 32000 + 40 = 33411;  hidden 8192: 52737
  refactored   the MLP activations are kept in a buffer, and one chain of `matmul_acc` per hidden
               block reads them all.
               hidden 5120: 10 + 160 + 1 + 50 + 1200 + 80 = 1501;      hidden 8192: 1651
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelet.language as pl
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.pieces import (
    make_gated_silu,
    make_projection,
    make_rmsnorm,
    make_zero_fill,
)
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.script import Model, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec


def shape_for(variant: str, **sizes: Any) -> DecodeShape:
    """The sizes a variant is made for, with those in `sizes` changed."""
    own = {"hidden": 5120} if variant == "baseline" else {}
    return DecodeShape(**{**own, **sizes})


def specs(s: DecodeShape) -> list[TensorSpec]:
    rows = (s.batch, s.hidden)
    return [
        TensorSpec("attn_out", rows, pl.BF16, inputs.normal("attn_out", rows, 0.5)),
        inputs.hidden_states(s),
        inputs.weight("wo", s.hidden, s.hidden, 0.15),
        inputs.norm_weight("post_rms_weight", s),
        *inputs.mlp_weights(s),
        TensorSpec("out", rows, pl.BF16, is_output=True),
    ]


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    def scope3(tensors: dict[str, Array]) -> None:
        attn_out = reference.double(tensors["attn_out"])
        tensors["out"][:] = layer_output(attn_out, tensors, s.eps)

    return scope3


def layer_output(attn_out: Array, tensors: dict[str, Array], eps: float) -> Array:
    """What the layer gives for this attention output."""
    residual = reference.double(tensors["hidden_states"])
    residual = residual + reference.matmul(attn_out, tensors["wo"])
    normed = reference.bf16(reference.rmsnorm(residual, tensors["post_rms_weight"], eps))
    gate = reference.matmul(normed, tensors["w_gate"])
    up = reference.matmul(normed, tensors["w_up"])
    activation = reference.bf16(reference.silu(gate) * up)
    return residual + reference.matmul(activation, tensors["w_down"])


def make_baseline(s: DecodeShape):
    HIDDEN, BATCH_TILE, K_CHUNK, MLP_OUT_CHUNK = s.hidden, s.batch_tile, s.k_chunk, s.mlp_out_chunk
    HIDDEN_BLOCKS, MLP_BLOCKS = s.hidden_blocks, s.mlp_blocks
    attention_residual = make_attention_residual(s)
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, K_CHUNK, s.eps)
    project_mlp = make_projection(BATCH_TILE, K_CHUNK, MLP_OUT_CHUNK, HIDDEN_BLOCKS)
    gated_silu = make_gated_silu()

    @pl.inline
    def baseline(attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0):
        resid1 = attention_residual(attn_out, hidden_states, wo, b0)

        post_norm = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        down_acc = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        with pl.incore():
            post_norm = rmsnorm(resid1, post_rms_weight, post_norm, 0)
            for kb in pl.range(HIDDEN_BLOCKS):
                zero = pl.full([BATCH_TILE, K_CHUNK], dtype=pl.FP32, value=0.0)
                down_acc = pl.assemble(down_acc, zero, [0, kb * K_CHUNK])

        for ob in pl.range(MLP_BLOCKS):
            m0 = ob * MLP_OUT_CHUNK
            with pl.incore():
                gate_acc = project_mlp(post_norm, w_gate, 0, m0)
            with pl.incore():
                up_acc = project_mlp(post_norm, w_up, 0, m0)
            with pl.incore():
                mlp_chunk = gated_silu(gate_acc, up_acc)
            for db in pl.range(HIDDEN_BLOCKS):
                d0 = db * K_CHUNK
                with pl.incore():
                    w_chunk = pl.slice(w_down, [MLP_OUT_CHUNK, K_CHUNK], [m0, d0])
                    down_part = pl.matmul(mlp_chunk, w_chunk, out_dtype=pl.FP32)
                with pl.incore():
                    so_far = pl.slice(down_acc, [BATCH_TILE, K_CHUNK], [0, d0])
                    down_acc = pl.assemble(down_acc, pl.add(so_far, down_part), [0, d0])

        for ob in pl.range(HIDDEN_BLOCKS):
            o0 = ob * K_CHUNK
            with pl.incore():
                down = pl.slice(down_acc, [BATCH_TILE, K_CHUNK], [0, o0])
                residual = pl.slice(resid1, [BATCH_TILE, K_CHUNK], [0, o0])
                rounded = pl.cast(pl.add(down, residual), target_type=pl.BF16)
                out = pl.assemble(out, rounded, [b0, o0])
        return out

    return baseline


def make_attention_residual(s: DecodeShape):
    """Output projection and residual as first written: the product goes through `resid1` in GM."""
    HIDDEN, BATCH_TILE, Q_BLOCKS, Q_OUT_CHUNK = s.hidden, s.batch_tile, s.q_blocks, s.q_out_chunk
    zero_resid1 = make_zero_fill(BATCH_TILE, Q_OUT_CHUNK, Q_BLOCKS, pl.FP32)
    project_out = make_projection(BATCH_TILE, s.k_chunk, Q_OUT_CHUNK, s.hidden_blocks)

    @pl.inline
    def attention_residual(attn_out, hidden_states, wo, b0):
        resid1 = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        resid1 = zero_resid1(resid1)
        for ob in pl.range(Q_BLOCKS):
            o0 = ob * Q_OUT_CHUNK
            with pl.incore():
                o_acc = project_out(attn_out, wo, b0, o0)
                resid1 = pl.assemble(resid1, o_acc, [0, o0])
            with pl.incore():
                o_chunk = pl.slice(resid1, [BATCH_TILE, Q_OUT_CHUNK], [0, o0])
                h_chunk = pl.slice(hidden_states, [BATCH_TILE, Q_OUT_CHUNK], [b0, o0])
                summed = pl.add(o_chunk, pl.cast(h_chunk, target_type=pl.FP32))
                resid1 = pl.assemble(resid1, summed, [0, o0])
        return resid1

    return attention_residual


def make_refactored(s: DecodeShape):
    HIDDEN, INTERMEDIATE, BATCH_TILE, K_CHUNK = s.hidden, s.intermediate, s.batch_tile, s.k_chunk
    Q_OUT_CHUNK, MLP_OUT_CHUNK = s.q_out_chunk, s.mlp_out_chunk
    HIDDEN_BLOCKS, Q_BLOCKS, MLP_BLOCKS = s.hidden_blocks, s.q_blocks, s.mlp_blocks
    zero_resid1 = make_zero_fill(BATCH_TILE, Q_OUT_CHUNK, Q_BLOCKS, pl.FP32)
    zero_mlp = make_zero_fill(BATCH_TILE, MLP_OUT_CHUNK, MLP_BLOCKS, pl.BF16)
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, K_CHUNK, s.eps)
    project_out = make_projection(BATCH_TILE, K_CHUNK, Q_OUT_CHUNK, HIDDEN_BLOCKS)
    project_mlp = make_projection(BATCH_TILE, K_CHUNK, MLP_OUT_CHUNK, HIDDEN_BLOCKS)
    project_down = make_projection(BATCH_TILE, MLP_OUT_CHUNK, K_CHUNK, MLP_BLOCKS)
    gated_silu = make_gated_silu()

    @pl.inline
    def refactored(attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0):
        resid1 = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        resid1 = zero_resid1(resid1)
        for ob in pl.range(Q_BLOCKS):
            o0 = ob * Q_OUT_CHUNK
            with pl.incore():
                o_acc = project_out(attn_out, wo, b0, o0)
            with pl.incore():
                h_chunk = pl.slice(hidden_states, [BATCH_TILE, Q_OUT_CHUNK], [b0, o0])
                summed = pl.add(o_acc, pl.cast(h_chunk, target_type=pl.FP32))
                resid1 = pl.assemble(resid1, summed, [0, o0])

        post_norm = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        with pl.incore():
            post_norm = rmsnorm(resid1, post_rms_weight, post_norm, 0)

        mlp = pl.create_tensor([BATCH_TILE, INTERMEDIATE], dtype=pl.BF16)
        mlp = zero_mlp(mlp)
        for ob in pl.range(MLP_BLOCKS):
            m0 = ob * MLP_OUT_CHUNK
            with pl.incore():
                gate_acc = project_mlp(post_norm, w_gate, 0, m0)
            with pl.incore():
                up_acc = project_mlp(post_norm, w_up, 0, m0)
            with pl.incore():
                mlp = pl.assemble(mlp, gated_silu(gate_acc, up_acc), [0, m0])

        for ob in pl.range(HIDDEN_BLOCKS):
            o0 = ob * K_CHUNK
            with pl.incore():
                down_acc = project_down(mlp, w_down, 0, o0)
            with pl.incore():
                residual = pl.slice(resid1, [BATCH_TILE, K_CHUNK], [0, o0])
                rounded = pl.cast(pl.add(down_acc, residual), target_type=pl.BF16)
                out = pl.assemble(out, rounded, [b0, o0])
        return out

    return refactored


VARIANTS = {"baseline": make_baseline, "refactored": make_refactored}


def build_scope3(variant: str = "baseline", **sizes: Any):
    """The program, with any size of `DecodeShape` changed by name."""
    s = shape_for(variant, **sizes)
    BATCH, HIDDEN, INTERMEDIATE, BATCH_TILE = s.batch, s.hidden, s.intermediate, s.batch_tile
    scope3_rows = VARIANTS[variant](s)

    @pl.program
    class Qwen3Scope3:
        @pl.function(type=pl.FunctionType.Opaque)
        def scope3(
            self,
            attn_out: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            hidden_states: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            wo: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
            post_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
            w_gate: pl.Tensor[[HIDDEN, INTERMEDIATE], pl.BF16],
            w_up: pl.Tensor[[HIDDEN, INTERMEDIATE], pl.BF16],
            w_down: pl.Tensor[[INTERMEDIATE, HIDDEN], pl.BF16],
            out: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
        ) -> pl.Tensor[[BATCH, HIDDEN], pl.BF16]:
            for b0 in pl.range(0, BATCH, BATCH_TILE):
                out = scope3_rows(
                    attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0
                )
            return out

    return Qwen3Scope3


MODEL = Model("scope3", tuple(VARIANTS), build_scope3, shape_for, specs, golden, tolerance=3e-3)

if __name__ == "__main__":
    raise SystemExit(main(MODEL))
