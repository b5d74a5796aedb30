"""Gradients of causal attention by blocks, from the saved output and log-sum-exp of each row."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEADS, SEQ, DIM, TILE = 2, 64, 32, 16
ROWS, SCALE, BLOCKS = HEADS * SEQ, DIM**-0.5, SEQ // TILE


@pl.jit
def kernel(
    q: pl.Tensor[[ROWS, DIM], pl.FP32],
    k: pl.Tensor[[ROWS, DIM], pl.FP32],
    v: pl.Tensor[[ROWS, DIM], pl.FP32],
    o: pl.Tensor[[ROWS, DIM], pl.FP32],
    do: pl.Tensor[[ROWS, DIM], pl.FP32],
    lse: pl.Tensor[[ROWS, 1], pl.FP32],
    below: pl.Tensor[[TILE, TILE], pl.FP32],
    dq: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
    dk: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
    dv: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
):
    delta = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="delta"):
            both = pl.mul(o[r : r + TILE, :], do[r : r + TILE, :])
            delta[r : r + TILE, :] = pl.row_sum(both)
    for h in pl.parallel(HEADS):
        for j in pl.parallel(BLOCKS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="keys"):
                kj = h * SEQ + j * TILE
                key = k[kj : kj + TILE, :]
                value = v[kj : kj + TILE, :]
                sum_k = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
                sum_v = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
                for i in pl.range(j, BLOCKS):
                    qi = h * SEQ + i * TILE
                    query = q[qi : qi + TILE, :]
                    grad = do[qi : qi + TILE, :]
                    s = pl.mul(pl.matmul(query, key, b_trans=True, out_dtype=pl.FP32), SCALE)
                    if i == j:
                        s = pl.add(s, below[:, :])
                    p = pl.exp(pl.row_expand_sub(s, lse[qi : qi + TILE, :]))
                    sum_v = pl.add(sum_v, pl.matmul(p, grad, a_trans=True, out_dtype=pl.FP32))
                    dp = pl.matmul(grad, value, b_trans=True, out_dtype=pl.FP32)
                    ds = pl.mul(p, pl.row_expand_sub(dp, delta[qi : qi + TILE, :]))
                    sum_k = pl.add(sum_k, pl.matmul(ds, query, a_trans=True, out_dtype=pl.FP32))
                dk[kj : kj + TILE, :] = pl.mul(sum_k, SCALE)
                dv[kj : kj + TILE, :] = sum_v
    for h in pl.parallel(HEADS):
        for i in pl.parallel(BLOCKS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="queries"):
                at = h * SEQ + i * TILE
                query_tile = q[at : at + TILE, :]
                grad_tile = do[at : at + TILE, :]
                sum_q = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
                for j in pl.range(i + 1):
                    there = h * SEQ + j * TILE
                    keys = k[there : there + TILE, :]
                    z = pl.matmul(query_tile, keys, b_trans=True, out_dtype=pl.FP32)
                    z = pl.mul(z, SCALE)
                    if i == j:
                        z = pl.add(z, below[:, :])
                    pz = pl.exp(pl.row_expand_sub(z, lse[at : at + TILE, :]))
                    values = v[there : there + TILE, :]
                    dz = pl.matmul(grad_tile, values, b_trans=True, out_dtype=pl.FP32)
                    dz = pl.mul(pz, pl.row_expand_sub(dz, delta[at : at + TILE, :]))
                    sum_q = pl.add(sum_q, pl.matmul(dz, keys, out_dtype=pl.FP32))
                dq[at : at + TILE, :] = pl.mul(sum_q, SCALE)
    return dq, dk, dv


def forward(q: Any, k: Any) -> tuple[Any, Any]:
    scores = np.einsum("hqd,hkd->hqk", q, k) / np.sqrt(DIM)
    scores = np.where(np.tril(np.ones((SEQ, SEQ), bool)), scores, -np.inf)
    sums = np.exp(scores).sum(axis=-1, keepdims=True)
    return np.exp(scores) / sums, np.log(sums)


def golden(tensors: dict[str, Any]) -> None:
    q, k, v, do = (
        tensors[n].astype(np.float64).reshape(HEADS, SEQ, DIM) for n in ("q", "k", "v", "do")
    )
    p, _ = forward(q, k)
    dp = np.einsum("hqd,hkd->hqk", do, v)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) / np.sqrt(DIM)
    tensors["dq"][:] = np.einsum("hqk,hkd->hqd", ds, k).reshape(ROWS, DIM)
    tensors["dk"][:] = np.einsum("hqk,hqd->hkd", ds, q).reshape(ROWS, DIM)
    tensors["dv"][:] = np.einsum("hqk,hqd->hkd", p, do).reshape(ROWS, DIM)


def normal(seed: int):
    return np.random.default_rng(seed).normal(0, 0.9, (ROWS, DIM)).astype(np.float32)


Q, KEYS, V, DO = (normal(seed) for seed in (1, 2, 3, 4))
P, LSE = forward(Q.reshape(HEADS, SEQ, DIM), KEYS.reshape(HEADS, SEQ, DIM))
SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.FP32, Q),
    TensorSpec("k", [ROWS, DIM], pl.FP32, KEYS),
    TensorSpec("v", [ROWS, DIM], pl.FP32, V),
    TensorSpec("o", [ROWS, DIM], pl.FP32, (P @ V.reshape(HEADS, SEQ, DIM)).reshape(ROWS, DIM)),
    TensorSpec("do", [ROWS, DIM], pl.FP32, DO),
    TensorSpec("lse", [ROWS, 1], pl.FP32, LSE.reshape(ROWS, 1)),
    TensorSpec("below", [TILE, TILE], pl.FP32, np.triu(np.full((TILE, TILE), -1e30), 1)),
    TensorSpec("dq", [ROWS, DIM], pl.FP32, is_output=True),
    TensorSpec("dk", [ROWS, DIM], pl.FP32, is_output=True),
    TensorSpec("dv", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "weights not transposed": (
        "pl.matmul(p, grad, a_trans=True, out_dtype=pl.FP32)",
        "pl.matmul(p, grad, out_dtype=pl.FP32)",
    ),
    "delta of the keys": (
        "ds = pl.mul(p, pl.row_expand_sub(dp, delta[qi : qi + TILE, :]))",
        "ds = pl.mul(p, pl.row_expand_sub(dp, delta[kj : kj + TILE, :]))",
    ),
    "scale twice": (
        "dq[at : at + TILE, :] = pl.mul(sum_q, SCALE)",
        "dq[at : at + TILE, :] = pl.mul(pl.mul(sum_q, SCALE), SCALE)",
    ),
    "all later blocks but the last": (
        "for i in pl.range(j, BLOCKS):",
        "for i in pl.range(j, BLOCKS - 1):",
    ),
    "mask forgotten for queries": ("z = pl.add(z, below[:, :])", "z = pl.add(z, 0.0)"),
    "keys in place of values": (
        "values = v[there : there + TILE, :]",
        "values = k[there : there + TILE, :]",
    ),
    "scores in place of weights": (
        "ds = pl.mul(p, pl.row_expand_sub(dp, delta[qi : qi + TILE, :]))",
        "ds = pl.mul(s, pl.row_expand_sub(dp, delta[qi : qi + TILE, :]))",
    ),
    "delta of inputs": (
        "both = pl.mul(o[r : r + TILE, :], do[r : r + TILE, :])",
        "both = pl.mul(v[r : r + TILE, :], do[r : r + TILE, :])",
    ),
}
