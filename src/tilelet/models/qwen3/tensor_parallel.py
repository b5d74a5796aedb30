# pyright: basic, reportInvalidTypeForm=false
"""Scope 3 of a Qwen3 decode layer on several ranks: output projection and MLP, tensor-parallel.

Run it:   python -m tilelet.models.qwen3.tensor_parallel --tp 4 --variant overlapped

Rank r has the attention output of its heads, the rows of `wo` and `w_down` and the columns of
`w_gate` and `w_up` that belong to them; so the results of both projections are sums over ranks.

Versions:
  obvious     three dispatches per rank, and an all-reduce of the host between them
  overlapped  one dispatch: a block of a projection is pushed to every rank as soon as it is
              computed, and summed as soon as it has arrived from all
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.models.qwen3 import scope3
from tilelet.models.qwen3.blocks import make_gated_projections, make_projection, make_rmsnorm
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig, TensorSpec, run

SPLIT_AXIS = {"attn_out": 1, "wo": 0, "w_gate": 1, "w_up": 1, "w_down": 0}
"""The axis along which a tensor of the layer is divided among ranks; others are whole on each."""

CELL = 16
"""INT32 per signal cell: a cache line of its own."""


def specs(s: DecodeShape, ranks: int) -> list[TensorSpec]:
    """The tensors of scope 3, divided among the ranks along a new first axis."""
    found: list[TensorSpec] = []
    for spec in scope3.specs(s):
        if spec.is_output:
            found.append(TensorSpec(spec.name, (ranks, *spec.shape), spec.dtype, is_output=True))
        elif spec.name in SPLIT_AXIS:
            shape = list(spec.shape)
            shape[SPLIT_AXIS[spec.name]] //= ranks
            found.append(TensorSpec(spec.name, (ranks, *shape), spec.dtype, _divided(spec, ranks)))
        else:
            found.append(spec)
    return found


def _divided(spec: TensorSpec, ranks: int) -> Callable[[], Array]:
    def draw() -> Array:
        whole = np.asarray(spec.create_tensor())
        return np.stack(np.split(whole, ranks, SPLIT_AXIS[spec.name]))

    return draw


def golden(s: DecodeShape) -> Callable[[dict[str, Array]], None]:
    """The single-rank layer, on the parts put together."""

    def layer(tensors: dict[str, Array]) -> None:
        whole = {
            name: np.concatenate(list(np.asarray(x)), SPLIT_AXIS[name]) if name in SPLIT_AXIS else x
            for name, x in tensors.items()
        }
        whole["out"] = np.empty_like(np.asarray(tensors["out"])[0])
        scope3.golden(s)(whole)
        tensors["out"][:] = whole["out"]

    return layer


def make_obvious(s: DecodeShape, ranks: int) -> Any:
    BATCH, HIDDEN, CHUNK, INTER = s.batch, s.hidden, s.k_chunk, s.intermediate // ranks
    WIDTH, BLOCKS = HIDDEN // ranks, s.hidden_blocks
    project_out = make_projection(BATCH, CHUNK, CHUNK, WIDTH // CHUNK)
    gated = make_gated_projections(BATCH, CHUNK, CHUNK, BLOCKS, scope3.STAGES)
    project_down = make_projection(BATCH, CHUNK, CHUNK, INTER // CHUNK)
    rmsnorm = make_rmsnorm(BATCH, HIDDEN, CHUNK, s.eps, x_dtype=pl.FP32)
    Sums = pld.DistributedTensor[[BATCH, HIDDEN], pl.FP32]
    Rows = pl.Tensor[[BATCH, HIDDEN], pl.BF16]

    @pl.jit
    def attention_part(
        attn_out: pl.Tensor[[BATCH, WIDTH], pl.BF16],
        wo: pl.Tensor[[WIDTH, HIDDEN], pl.BF16],
        sums: pl.Out[Sums],
    ):
        for i in pl.spmd(BLOCKS, name_hint="out_projection"):
            n0 = i * CHUNK
            sums[:, n0 : n0 + CHUNK] = project_out(attn_out, wo, 0, n0)
        return sums

    @pl.jit
    def mlp_part(
        sums: Sums,
        hidden_states: Rows,
        gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
        w_gate: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_up: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_down: pl.Tensor[[INTER, HIDDEN], pl.BF16],
        down: pl.Out[Sums],
    ):
        resid = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
        for i in pl.spmd(BLOCKS, name_hint="residual"):
            n0 = i * CHUNK
            states = pl.cast(hidden_states[:, n0 : n0 + CHUNK], target_type=pl.FP32)
            resid[:, n0 : n0 + CHUNK] = pl.add(states, sums[:, n0 : n0 + CHUNK])
        normed = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rmsnorm"):
            normed = rmsnorm(resid, gamma, normed, 0)
        mlp = pl.create_tensor([BATCH, INTER], dtype=pl.BF16)
        for i in pl.spmd(INTER // CHUNK, name_hint="gate_up_silu"):
            m0 = i * CHUNK
            mlp[:, m0 : m0 + CHUNK] = gated(normed, w_gate, w_up, m0)
        for i in pl.spmd(BLOCKS, name_hint="down_projection"):
            n0 = i * CHUNK
            down[:, n0 : n0 + CHUNK] = project_down(mlp, w_down, 0, n0)
        return down

    @pl.jit
    def finish(sums: Sums, down: Sums, hidden_states: Rows, out: pl.Out[Rows]):
        for i in pl.spmd(BLOCKS, name_hint="down_sum"):
            n0 = i * CHUNK
            states = pl.cast(hidden_states[:, n0 : n0 + CHUNK], target_type=pl.FP32)
            resid = pl.add(states, sums[:, n0 : n0 + CHUNK])
            total = pl.add(resid, down[:, n0 : n0 + CHUNK])
            out[:, n0 : n0 + CHUNK] = pl.cast(total, target_type=pl.BF16)
        return out

    @pl.jit.host
    def scope3_obvious(
        attn_out: pl.Tensor[[ranks, BATCH, WIDTH], pl.BF16],
        hidden_states: Rows,
        wo: pl.Tensor[[ranks, WIDTH, HIDDEN], pl.BF16],
        post_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
        w_gate: pl.Tensor[[ranks, HIDDEN, INTER], pl.BF16],
        w_up: pl.Tensor[[ranks, HIDDEN, INTER], pl.BF16],
        w_down: pl.Tensor[[ranks, INTER, HIDDEN], pl.BF16],
        out: pl.Out[pl.Tensor[[ranks, BATCH, HIDDEN], pl.BF16]],
    ):
        sums_buf = pld.alloc_window_buffer([BATCH, HIDDEN], dtype=pl.FP32)
        down_buf = pld.alloc_window_buffer([BATCH, HIDDEN], dtype=pl.FP32)
        sums_signal_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
        down_signal_buf = pld.alloc_window_buffer([ranks], dtype=pl.INT32)
        sums = pld.window(sums_buf, [BATCH, HIDDEN], dtype=pl.FP32)
        down = pld.window(down_buf, [BATCH, HIDDEN], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            attention_part(attn_out[r], wo[r], sums, device=r)
        sums = pld.tensor.allreduce(sums, pld.window(sums_signal_buf, [ranks], dtype=pl.INT32))
        for r in pl.range(pld.world_size()):
            mlp_part(
                sums, hidden_states, post_rms_weight, w_gate[r], w_up[r], w_down[r], down, device=r
            )
        down = pld.tensor.allreduce(down, pld.window(down_signal_buf, [ranks], dtype=pl.INT32))
        for r in pl.range(pld.world_size()):
            finish(sums, down, hidden_states, out[r], device=r)

    return scope3_obvious


def make_overlapped(s: DecodeShape, ranks: int) -> Any:
    BATCH, HIDDEN, CHUNK, INTER = s.batch, s.hidden, s.k_chunk, s.intermediate // ranks
    WIDTH, BLOCKS = HIDDEN // ranks, s.hidden_blocks
    project_out = make_projection(BATCH, CHUNK, CHUNK, WIDTH // CHUNK)
    gated = make_gated_projections(BATCH, CHUNK, CHUNK, BLOCKS, scope3.STAGES)
    project_down = make_projection(BATCH, CHUNK, CHUNK, INTER // CHUNK)
    rmsnorm = make_rmsnorm(BATCH, HIDDEN, CHUNK, s.eps, x_dtype=pl.FP32)
    Parts = pld.DistributedTensor[[ranks * BATCH, HIDDEN], pl.FP32]
    Cells = pld.DistributedTensor[[BLOCKS, CELL], pl.INT32]
    Rows = pl.Tensor[[BATCH, HIDDEN], pl.BF16]

    @pl.inline
    def push(block, parts, arrived, i, n0):
        me = pld.rank(pld.get_comm_ctx(parts))
        for peer in pl.range(ranks):
            pld.tensor.remote_store(block, parts, peer=peer, offsets=[me * BATCH, n0])
            pld.system.notify(
                arrived, peer=peer, offsets=[i, 0], value=1, op=pld.NotifyOp.AtomicAdd
            )

    @pl.inline
    def summed(total, parts, arrived, i, n0):
        pld.system.wait(arrived, offsets=[i, 0], expected=ranks, cmp=pld.WaitCmp.Ge)
        sums = pl.slice(parts, [BATCH, CHUNK], [0, n0])
        for r in pl.range(1, ranks):
            sums = pl.add(sums, pl.slice(parts, [BATCH, CHUNK], [r * BATCH, n0]))
        return pl.add(total, sums)

    @pl.jit
    def layer_part(
        attn_out: pl.Tensor[[BATCH, WIDTH], pl.BF16],
        hidden_states: Rows,
        wo: pl.Tensor[[WIDTH, HIDDEN], pl.BF16],
        gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
        w_gate: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_up: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_down: pl.Tensor[[INTER, HIDDEN], pl.BF16],
        out: pl.Out[Rows],
        parts: Parts,
        arrived: Cells,
        down_parts: Parts,
        down_arrived: Cells,
    ):
        for i in pl.spmd(BLOCKS, name_hint="out_projection"):
            push(project_out(attn_out, wo, 0, i * CHUNK), parts, arrived, i, i * CHUNK)
        resid = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
        for i in pl.spmd(BLOCKS, name_hint="out_sum"):
            n0 = i * CHUNK
            states = pl.cast(hidden_states[:, n0 : n0 + CHUNK], target_type=pl.FP32)
            resid[:, n0 : n0 + CHUNK] = summed(states, parts, arrived, i, n0)
        normed = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rmsnorm"):
            normed = rmsnorm(resid, gamma, normed, 0)
        mlp = pl.create_tensor([BATCH, INTER], dtype=pl.BF16)
        for i in pl.spmd(INTER // CHUNK, name_hint="gate_up_silu"):
            m0 = i * CHUNK
            mlp[:, m0 : m0 + CHUNK] = gated(normed, w_gate, w_up, m0)
        for i in pl.spmd(BLOCKS, name_hint="down_projection"):
            push(project_down(mlp, w_down, 0, i * CHUNK), down_parts, down_arrived, i, i * CHUNK)
        for i in pl.spmd(BLOCKS, name_hint="down_sum"):
            n0 = i * CHUNK
            total = summed(resid[:, n0 : n0 + CHUNK], down_parts, down_arrived, i, n0)
            out[:, n0 : n0 + CHUNK] = pl.cast(total, target_type=pl.BF16)
        return out

    @pl.jit.host
    def scope3_overlapped(
        attn_out: pl.Tensor[[ranks, BATCH, WIDTH], pl.BF16],
        hidden_states: Rows,
        wo: pl.Tensor[[ranks, WIDTH, HIDDEN], pl.BF16],
        post_rms_weight: pl.Tensor[[1, HIDDEN], pl.FP32],
        w_gate: pl.Tensor[[ranks, HIDDEN, INTER], pl.BF16],
        w_up: pl.Tensor[[ranks, HIDDEN, INTER], pl.BF16],
        w_down: pl.Tensor[[ranks, INTER, HIDDEN], pl.BF16],
        out: pl.Out[pl.Tensor[[ranks, BATCH, HIDDEN], pl.BF16]],
    ):
        parts_buf = pld.alloc_window_buffer([ranks * BATCH, HIDDEN], dtype=pl.FP32)
        down_parts_buf = pld.alloc_window_buffer([ranks * BATCH, HIDDEN], dtype=pl.FP32)
        arrived_buf = pld.alloc_window_buffer([BLOCKS, CELL], dtype=pl.INT32)
        down_arrived_buf = pld.alloc_window_buffer([BLOCKS, CELL], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            parts = pld.window(parts_buf, [ranks * BATCH, HIDDEN], dtype=pl.FP32)
            down_parts = pld.window(down_parts_buf, [ranks * BATCH, HIDDEN], dtype=pl.FP32)
            arrived = pld.window(arrived_buf, [BLOCKS, CELL], dtype=pl.INT32)
            down_arrived = pld.window(down_arrived_buf, [BLOCKS, CELL], dtype=pl.INT32)
            layer_part(
                attn_out[r],
                hidden_states,
                wo[r],
                post_rms_weight,
                w_gate[r],
                w_up[r],
                w_down[r],
                out[r],
                parts,
                arrived,
                down_parts,
                down_arrived,
                device=r,
            )

    return scope3_overlapped


VARIANTS = {"obvious": make_obvious, "overlapped": make_overlapped}


def main() -> int:
    parser = argparse.ArgumentParser(description="tensor-parallel scope 3 of a Qwen3 decode layer")
    parser.add_argument("--tp", type=int, default=2, choices=(1, 2, 4, 8))
    parser.add_argument("--variant", default="overlapped", choices=tuple(VARIANTS))
    parser.add_argument("--hidden", type=int, default=DecodeShape.hidden)
    parser.add_argument("--intermediate", type=int, default=DecodeShape.intermediate)
    parser.add_argument("-p", "--platform", default="a2a3sim")
    args = parser.parse_args()
    shape = DecodeShape(hidden=args.hidden, intermediate=args.intermediate)
    world = DistributedConfig(device_ids=range(args.tp))
    result = run(
        VARIANTS[args.variant](shape, args.tp),
        specs(shape, args.tp),
        golden_fn=golden(shape),
        config=RunConfig(platform=args.platform, distributed_config=world),
        rtol=3e-3,
        atol=3e-3,
    )
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
