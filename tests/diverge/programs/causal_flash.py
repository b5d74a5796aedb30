"""Causal attention by blocks of keys, with a running maximum, sum and output."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

HEADS, SEQ, DIM, TILE = 2, 96, 32, 32
ROWS, SCALE = HEADS * SEQ, DIM**-0.5


@pl.jit
def kernel(
    q: pl.Tensor[[ROWS, DIM], pl.BF16],
    k: pl.Tensor[[ROWS, DIM], pl.BF16],
    v: pl.Tensor[[ROWS, DIM], pl.BF16],
    below: pl.Tensor[[TILE, TILE], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        for i in pl.parallel(SEQ // TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="flash"):
                base = h * SEQ
                q0 = base + i * TILE
                query = q[q0 : q0 + TILE, :]
                o = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
                l = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
                m = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
                for j in pl.range(i + 1):
                    k0 = base + j * TILE
                    keys = k[k0 : k0 + TILE, :]
                    s = pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32)
                    s = pl.mul(s, SCALE)
                    if j == i:
                        s = pl.add(s, below[:, :])
                    m_new = pl.maximum(m, pl.row_max(s))
                    alpha = pl.exp(pl.sub(m, m_new))
                    p = pl.exp(pl.row_expand_sub(s, m_new))
                    l = pl.add(pl.mul(l, alpha), pl.row_sum(p))
                    weights = pl.cast(p, pl.BF16, mode="rint")
                    update = pl.matmul(weights, v[k0 : k0 + TILE, :], out_dtype=pl.FP32)
                    o = pl.add(pl.row_expand_mul(o, alpha), update)
                    m = m_new
                out[q0 : q0 + TILE, :] = pl.row_expand_div(o, l)
    return out


def golden(tensors: dict[str, Any]) -> None:
    q, k, v = (tensors[n].astype(np.float64).reshape(HEADS, SEQ, DIM) for n in ("q", "k", "v"))
    scores = np.einsum("hqd,hkd->hqk", q, k) * SCALE
    scores = np.where(np.tril(np.ones((SEQ, SEQ), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    tensors["out"][:] = np.einsum("hqk,hkd->hqd", p, v).reshape(ROWS, DIM)


def normal(seed: int, scale: float):
    return lambda: scale * np.random.default_rng(seed).normal(size=(ROWS, DIM))


def triangle():
    return np.where(np.tril(np.ones((TILE, TILE))), 0.0, -1e9)


SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.BF16, normal(1, 2.0)),
    TensorSpec("k", [ROWS, DIM], pl.BF16, normal(2, 2.0)),
    TensorSpec("v", [ROWS, DIM], pl.BF16, normal(3, 1.0)),
    TensorSpec("below", [TILE, TILE], pl.FP32, triangle),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-2
FAULTS = {
    "mask elsewhere": ("if j == i:", "if j == i - 1:"),
    "no diagonal block": ("pl.range(i + 1)", "pl.range(pl.max(i, 1))"),
    "stale maximum": (
        "alpha = pl.exp(pl.sub(m, m_new))",
        "alpha = pl.exp(pl.sub(m, pl.row_max(s)))",
    ),
    "sum of the old": (
        "l = pl.add(pl.mul(l, alpha), pl.row_sum(p))",
        "l = pl.add(pl.mul(l, alpha), pl.row_sum(s))",
    ),
    "old maximum kept": (
        "                    m = m_new\n",
        "                    m = pl.row_max(s)\n",
    ),
    "output not rescaled": ("pl.add(pl.row_expand_mul(o, alpha), update)", "pl.add(o, update)"),
    "sum not rescaled": ("pl.add(pl.mul(l, alpha), pl.row_sum(p))", "pl.add(l, pl.row_sum(p))"),
    "scale after the maximum": ("s = pl.mul(s, SCALE)", "s = pl.mul(s, 1.0)"),
    "keys of the first head": ("k0 = base + j * TILE", "k0 = j * TILE"),
    "values of the query": ("v[k0 : k0 + TILE, :]", "v[q0 : q0 + TILE, :]"),
    "cast through INT8": (
        'weights = pl.cast(p, pl.BF16, mode="rint")',
        'weights = pl.cast(pl.cast(pl.cast(p, pl.INT8, mode="trunc"), pl.FP16), pl.BF16)',
    ),
}
