"""A product whose inner dimension is split over two ranks; each adds what the other sends."""

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import TensorSpec, run

RANKS, M, K, N = 2, 32, 128, 64
ADD, GE = pld.NotifyOp.AtomicAdd, pld.WaitCmp.Ge


@pl.jit
def part(
    x: pl.Tensor[[M, K], pl.FP32],
    w: pl.Tensor[[K, N], pl.FP32],
    y: pl.Out[pl.Tensor[[M, N], pl.FP32]],
    inbox: pld.DistributedTensor[[M, N], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    partial = pl.create_tensor([M, N], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        partial[:] = pl.matmul(x, w)
    with pl.at(level=pl.Level.CORE_GROUP):
        peer = 1 - pld.rank(pld.get_comm_ctx(inbox))
        pld.tensor.put(inbox, peer=peer, src=partial)
        pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=ADD)
    with pl.at(level=pl.Level.CORE_GROUP):
        pld.system.wait(arrived, offsets=[0, 0], expected=1, cmp=GE)
        y[:] = pl.add(partial[:], inbox[:])
    return y


@pl.jit.host
def product(
    x: pl.Tensor[[RANKS, M, K], pl.FP32],
    w: pl.Tensor[[RANKS, K, N], pl.FP32],
    y: pl.Out[pl.Tensor[[RANKS, M, N], pl.FP32]],
):
    inbox_buf = pld.alloc_window_buffer([M, N], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [M, N], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [1, 1], dtype=pl.INT32)
        part(x[r], w[r], y[r], inbox, arrived, device=r)


def golden(tensors):
    parts = np.asarray(tensors["x"], np.float64) @ np.asarray(tensors["w"], np.float64)
    tensors["y"][:] = parts.sum(axis=0)


if __name__ == "__main__":
    draw = np.random.default_rng(0)
    specs = [
        TensorSpec("x", [RANKS, M, K], "float32", lambda: draw.standard_normal((RANKS, M, K))),
        TensorSpec("w", [RANKS, K, N], "float32", lambda: draw.standard_normal((RANKS, K, N))),
        TensorSpec("y", [RANKS, M, N], "float32", is_output=True),
    ]
    world = {"distributed_config": DistributedConfig(device_ids=range(RANKS))}
    result = run(product, specs, golden_fn=golden, rtol=1e-3, atol=1e-3, compile_cfg=world)
    raise SystemExit(0 if result.passed else 1)
