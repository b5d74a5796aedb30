# pyright: basic
"""Scope 3 of a Qwen3 decode layer: output projection, residual, RMSNorm, MLP, residual.

Run it:   python -m tilelet.models.qwen3.scope3 --variant refactored --hidden 8192 -p a2a3sim

Versions, with their tasks:
  baseline     the program as first written. The down projection runs inside the loop over MLP
               blocks and adds into an accumulator in global memory, two tasks per hidden block.
               hidden 5120: 10 + 160 + 1 + 1200 + 32000 + 40 = 33411;  hidden 8192: 52737
  refactored   the MLP activations are kept in a buffer, and one chain of `matmul_acc` per hidden
               block reads them all.
               hidden 5120: 10 + 160 + 1 + 50 + 1200 + 80 = 1501;      hidden 8192: 1651
  tuned        512-byte rows of every weight, each read once, while the previous block is
               multiplied; gate, up and SiLU in one task; the residual and its RMSNorm in one task;
               long inner dimensions are split, so that all cores have work and the down projection
               starts while the last MLP blocks run; nothing is zero-filled.
               hidden 8192: 64 + 2 + 100 + 64 + 16 = 246
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelet.language as pl
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs, reference
from tilelet.models.qwen3.blocks import (
    make_add_parts,
    make_gated_projections,
    make_gated_silu,
    make_part_projection,
    make_products,
    make_projection,
    make_rms_scale,
    make_rms_steps,
    make_rmsnorm,
    make_zero_fill,
)
from tilelet.models.qwen3.script import ShippedModel, Variant, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import TensorSpec

STAGES = 2


def specs(s: DecodeShape) -> list[TensorSpec]:
    rows = (s.batch, s.hidden)
    return [
        TensorSpec("attn_out", rows, pl.BF16, inputs.make_normal("attn_out", rows, 0.15)),
        inputs.hidden_states(s),
        inputs.output_weight(s),
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
    """Return the layer's output for this attention output."""
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
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, K_CHUNK, s.eps, x_dtype=pl.FP32)
    activate = make_mlp_block(s)

    @pl.inline
    def baseline(attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0):
        resid1 = attention_residual(attn_out, hidden_states, wo, b0)

        post_norm = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        down_acc = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        with pl.incore():
            post_norm = rmsnorm(resid1, post_rms_weight, post_norm, 0)
            for kb in pl.range(HIDDEN_BLOCKS):
                no_sum = pl.full([BATCH_TILE, K_CHUNK], dtype=pl.FP32, value=0.0)
                down_acc = pl.assemble(down_acc, no_sum, [0, kb * K_CHUNK])

        for ob in pl.range(MLP_BLOCKS):
            m0 = ob * MLP_OUT_CHUNK
            mlp_chunk = activate(post_norm, w_gate, w_up, m0)
            for db in pl.range(HIDDEN_BLOCKS):
                d0 = db * K_CHUNK
                with pl.incore():
                    w_down_chunk = pl.slice(w_down, [MLP_OUT_CHUNK, K_CHUNK], [m0, d0])
                    down_part = pl.matmul(mlp_chunk, w_down_chunk, out_dtype=pl.FP32)
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


def make_mlp_block(s: DecodeShape):
    """One block of the MLP's activations as first written: gate, up and SiLU in a task each."""
    project_mlp = make_projection(s.batch_tile, s.k_chunk, s.mlp_out_chunk, s.hidden_blocks)
    gated_silu = make_gated_silu()

    @pl.inline
    def activate(post_norm, w_gate, w_up, m0):
        with pl.incore():
            gate_acc = project_mlp(post_norm, w_gate, 0, m0)
        with pl.incore():
            up_acc = project_mlp(post_norm, w_up, 0, m0)
        with pl.incore():
            mlp_chunk = gated_silu(gate_acc, up_acc)
        return mlp_chunk  # noqa: RET504 - a scope cannot hold the `return`

    return activate


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
    rmsnorm = make_rmsnorm(BATCH_TILE, HIDDEN, K_CHUNK, s.eps, x_dtype=pl.FP32)
    project_out = make_projection(BATCH_TILE, K_CHUNK, Q_OUT_CHUNK, HIDDEN_BLOCKS)
    project_mlp = make_projection(BATCH_TILE, K_CHUNK, MLP_OUT_CHUNK, HIDDEN_BLOCKS)
    first_down, next_down = make_products(MLP_OUT_CHUNK, K_CHUNK)
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
                mlp_chunk = pl.slice(mlp, [BATCH_TILE, MLP_OUT_CHUNK], [0, 0])
                down_acc = first_down(mlp_chunk, w_down, o0)
                for mb in pl.range(1, MLP_BLOCKS):
                    m0 = mb * MLP_OUT_CHUNK
                    mlp_chunk = pl.slice(mlp, [BATCH_TILE, MLP_OUT_CHUNK], [0, m0])
                    down_acc = next_down(down_acc, mlp_chunk, w_down, m0, o0)
            with pl.incore():
                residual = pl.slice(resid1, [BATCH_TILE, K_CHUNK], [0, o0])
                rounded = pl.cast(pl.add(down_acc, residual), target_type=pl.BF16)
                out = pl.assemble(out, rounded, [b0, o0])
        return out

    return refactored


def make_tuned(s: DecodeShape):
    HIDDEN, INTERMEDIATE, BATCH_TILE, K_CHUNK = s.hidden, s.intermediate, s.batch_tile, s.k_chunk
    OUT_CHUNK, MLP_CHUNK = s.part("hidden", "wide_chunk"), s.part("intermediate", "wide_chunk")
    SUM_CHUNK = s.part("hidden", "sum_chunk")
    OUT_PARTS, DOWN_PARTS = s.out_split * BATCH_TILE, s.down_split * BATCH_TILE
    project_out = make_out_parts(s, OUT_CHUNK)
    project_down = make_down_parts(s, OUT_CHUNK)
    add_residual_and_norm = make_residual_norm(s)
    gated = make_gated_projections(BATCH_TILE, K_CHUNK, MLP_CHUNK, s.hidden_blocks, STAGES)
    add_down_parts = make_add_parts(BATCH_TILE, SUM_CHUNK, s.down_split, BATCH_TILE)

    @pl.inline
    def tuned(attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0):
        out_parts = pl.create_tensor([OUT_PARTS, HIDDEN], dtype=pl.FP32)
        out_parts = project_out(attn_out, wo, out_parts, b0)
        resid1 = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.FP32)
        post_norm = add_residual_and_norm(out_parts, hidden_states, post_rms_weight, resid1, b0)

        mlp = pl.create_tensor([BATCH_TILE, INTERMEDIATE], dtype=pl.BF16)
        for m0 in pl.parallel(0, INTERMEDIATE, MLP_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up_silu"):
                activation = gated(post_norm, w_gate, w_up, m0)
            mlp = pl.assemble(mlp, activation, [0, m0])

        down_parts = pl.create_tensor([DOWN_PARTS, HIDDEN], dtype=pl.FP32)
        down_parts = project_down(mlp, w_down, down_parts)
        for c0 in pl.parallel(0, HIDDEN, SUM_CHUNK):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_sum"):
                down = pl.slice(resid1, [BATCH_TILE, SUM_CHUNK], [0, c0])
                down = add_down_parts(down, down_parts, 0, c0)
                rounded = pl.cast(down, target_type=pl.BF16)
            out = pl.assemble(out, rounded, [b0, c0])
        return out

    return tuned


def make_out_parts(s: DecodeShape, out_chunk: int):
    """Partial products of the output projection, one below the other in `out_parts`."""
    HIDDEN, BATCH_TILE, SPLIT, PART = s.hidden, s.batch_tile, s.out_split, s.hidden // s.out_split
    multiply = make_part_projection(BATCH_TILE, HIDDEN, SPLIT, s.k_chunk, out_chunk, STAGES)

    @pl.inline
    def project_out(attn_out, wo, out_parts, b0):
        for part in pl.parallel(SPLIT):
            attn_part = pl.slice(attn_out, [BATCH_TILE, PART], [b0, part * PART])
            for n0 in pl.parallel(0, HIDDEN, out_chunk):
                wo_part = pl.slice(wo, [PART, out_chunk], [part * PART, n0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="out_projection"):
                    out_block = multiply(attn_part, wo_part, 0, 0)
                out_parts = pl.assemble(out_parts, out_block, [part * BATCH_TILE, n0])
        return out_parts

    return project_out


def make_down_parts(s: DecodeShape, out_chunk: int):
    """Partial products of the down projection, one below the other in `down_parts`."""
    HIDDEN, BATCH_TILE, SPLIT = s.hidden, s.batch_tile, s.down_split
    INNER, PART = s.intermediate, s.intermediate // s.down_split
    multiply = make_part_projection(BATCH_TILE, INNER, SPLIT, s.k_chunk, out_chunk, STAGES)

    @pl.inline
    def project_down(mlp, w_down, down_parts):
        for part in pl.parallel(SPLIT):
            mlp_part = pl.slice(mlp, [BATCH_TILE, PART], [0, part * PART])
            for n0 in pl.parallel(0, HIDDEN, out_chunk):
                w_down_part = pl.slice(w_down, [PART, out_chunk], [part * PART, n0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_projection"):
                    down_block = multiply(mlp_part, w_down_part, 0, 0)
                down_parts = pl.assemble(down_parts, down_block, [part * BATCH_TILE, n0])
        return down_parts

    return project_down


def make_residual_norm(s: DecodeShape):
    """The residual after attention, into `resid1`, FP32; returns its RMSNorm, BF16.

    `norm_rows` rows per task.
    """
    HIDDEN, BATCH_TILE = s.hidden, s.batch_tile
    NORM_ROWS, NORM_CHUNK = s.part("batch_tile", "norm_rows"), s.part("hidden", "norm_chunk")
    add_out_parts = make_add_parts(NORM_ROWS, NORM_CHUNK, s.out_split, BATCH_TILE)
    squares, scaled = make_rms_steps(NORM_ROWS)
    row_scale = make_rms_scale(HIDDEN, s.eps)

    @pl.inline
    def add_residual_and_norm(out_parts, hidden_states, post_rms_weight, resid1, b0):
        post_norm = pl.create_tensor([BATCH_TILE, HIDDEN], dtype=pl.BF16)
        for r0 in pl.parallel(0, BATCH_TILE, NORM_ROWS):
            resid_part = pl.create_tensor([NORM_ROWS, HIDDEN], dtype=pl.FP32)
            norm_part = pl.create_tensor([NORM_ROWS, HIDDEN], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual_rmsnorm"):
                for c0 in pl.range(0, HIDDEN, NORM_CHUNK):
                    states = pl.slice(hidden_states, [NORM_ROWS, NORM_CHUNK], [b0 + r0, c0])
                    residual = pl.cast(states, target_type=pl.FP32)
                    residual = add_out_parts(residual, out_parts, r0, c0)
                    resid_part = pl.assemble(resid_part, residual, [0, c0])
                resid_squares = pl.full([1, NORM_ROWS], dtype=pl.FP32, value=0.0)
                for c0 in pl.range(0, HIDDEN, NORM_CHUNK):
                    added = pl.slice(resid_part, [NORM_ROWS, NORM_CHUNK], [0, c0])
                    resid_squares = pl.add(resid_squares, squares(added))
                resid_scale = pl.reshape(row_scale(resid_squares), [NORM_ROWS, 1])
                for c0 in pl.range(0, HIDDEN, NORM_CHUNK):
                    added = pl.slice(resid_part, [NORM_ROWS, NORM_CHUNK], [0, c0])
                    post_gamma = pl.slice(post_rms_weight, [1, NORM_CHUNK], [0, c0])
                    norm_part = pl.assemble(
                        norm_part, scaled(added, resid_scale, post_gamma), [0, c0]
                    )
            resid1 = pl.assemble(resid1, resid_part, [r0, 0])
            post_norm = pl.assemble(post_norm, norm_part, [r0, 0])
        return post_norm

    return add_residual_and_norm


def program(s: DecodeShape, scope3_rows: Any):
    BATCH, HIDDEN, INTERMEDIATE, BATCH_TILE = s.batch, s.hidden, s.intermediate, s.batch_tile

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
            out: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.BF16]],
        ) -> pl.Tensor[[BATCH, HIDDEN], pl.BF16]:
            for b0 in pl.range(0, BATCH, BATCH_TILE):
                out = scope3_rows(
                    attn_out, hidden_states, wo, post_rms_weight, w_gate, w_up, w_down, out, b0
                )
            return out

    return Qwen3Scope3


MODEL = ShippedModel(
    name="scope3",
    about="output projection, residual, RMSNorm and MLP of a decode layer",
    variants={
        "baseline": Variant(
            "down projection accumulated in global memory, block by block",
            make_baseline,
            {"hidden": 5120},
        ),
        "refactored": Variant(
            "one chain of products per block of the down projection", make_refactored
        ),
        "tuned": Variant(
            "wide blocks, fused gate/up/SiLU, no zero fills, work for all cores", make_tuned
        ),
    },
    program=program,
    specs=specs,
    golden=golden,
    tolerance=3e-3,
)
build_scope3 = MODEL.build


if __name__ == "__main__":
    raise SystemExit(main(MODEL))
