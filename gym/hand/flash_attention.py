"""Attention without the matrix of scores: blocks of keys, with a running maximum, sum and output.

A task owns one block of queries of one head and walks over all keys. When a block raises the
maximum, what was summed so far shrinks by `alpha`.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

HEADS, SEQ, DIM, Q_TILE, K_TILE = 2, 256, 64, 64, 64
ROWS, SCALE = HEADS * SEQ, DIM**-0.5


@pl.jit
def attention(
    q: pl.Tensor[[ROWS, DIM], pl.BF16],
    k: pl.Tensor[[ROWS, DIM], pl.BF16],
    v: pl.Tensor[[ROWS, DIM], pl.BF16],
    out: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        for q0 in pl.parallel(0, SEQ, Q_TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="flash_block"):
                first = h * SEQ + q0
                query = q[first : first + Q_TILE, :]
                oi = pl.full([Q_TILE, DIM], dtype=pl.FP32, value=0.0)
                li = pl.reshape(pl.full([1, Q_TILE], dtype=pl.FP32, value=0.0), [Q_TILE, 1])
                mi = pl.reshape(pl.full([1, Q_TILE], dtype=pl.FP32, value=-1e30), [Q_TILE, 1])
                for k0 in pl.range(h * SEQ, (h + 1) * SEQ, K_TILE):
                    scores = pl.matmul(
                        query, k[k0 : k0 + K_TILE, :], b_trans=True, out_dtype=pl.FP32
                    )
                    scores = pl.mul(scores, SCALE)
                    mi_new = pl.maximum(mi, pl.row_max(scores))
                    alpha = pl.exp(pl.sub(mi, mi_new))
                    p = pl.cast(pl.exp(pl.row_expand_sub(scores, mi_new)), pl.BF16, mode="rint")
                    li = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(p, pl.FP32)))
                    update = pl.matmul(p, v[k0 : k0 + K_TILE, :], out_dtype=pl.FP32)
                    oi = pl.add(pl.row_expand_mul(oi, alpha), update)
                    mi = mi_new
                out[first : first + Q_TILE, :] = pl.row_expand_div(oi, li)
    return out


def golden(tensors: dict[str, Any]):
    shape = (HEADS, SEQ, DIM)
    q, k, v = (tensors[n].astype(np.float64).reshape(shape) for n in ("q", "k", "v"))
    scores = q @ k.transpose(0, 2, 1) * SCALE
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    tensors["out"][:] = (p / p.sum(axis=-1, keepdims=True) @ v).reshape(ROWS, DIM)


def normal(seed: int, scale: float):
    return lambda: scale * np.random.default_rng(seed).normal(size=(ROWS, DIM))


SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.BF16, normal(1, 2.0)),
    TensorSpec("k", [ROWS, DIM], pl.BF16, normal(2, 2.0)),
    TensorSpec("v", [ROWS, DIM], pl.BF16, normal(3, 1.0)),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(attention, SPECS, golden_fn=golden, runtime_cfg=config, rtol=5e-3, atol=5e-3)
    print(result)
    raise SystemExit(not result.passed)
