"""A mixture-of-experts layer: softmax gates over all experts, a weighted sum of their outputs."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, HIDDEN, EXPERTS, INTER, TILE = 32, 64, 8, 32, 16


@pl.jit
def kernel(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.FP32],
    router: pl.Tensor[[HIDDEN, EXPERTS], pl.FP32],
    first: pl.Tensor[[EXPERTS * HIDDEN, INTER], pl.FP32],
    second: pl.Tensor[[EXPERTS * INTER, HIDDEN], pl.FP32],
    out: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    gates = pl.create_tensor([TOKENS, EXPERTS], dtype=pl.FP32)
    for t in pl.parallel(0, TOKENS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="route"):
            logits = pl.matmul(x[t : t + TILE, :], router[:, :], out_dtype=pl.FP32)
            shifted = pl.row_expand_sub(logits, pl.row_max(logits))
            weights = pl.exp(shifted)
            normed = pl.row_expand_div(weights, pl.row_sum(weights))
            gates[t : t + TILE, :] = normed
    for t in pl.parallel(0, TOKENS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="experts"):
            tile = x[t : t + TILE, :]
            acc = pl.full([TILE, HIDDEN], dtype=pl.FP32, value=0.0)
            for e in pl.range(EXPERTS):
                w1 = pl.slice(first, [HIDDEN, INTER], [e * HIDDEN, 0])
                hidden = pl.relu(pl.matmul(tile, w1, out_dtype=pl.FP32))
                w2 = pl.slice(second, [INTER, HIDDEN], [e * INTER, 0])
                y = pl.matmul(hidden, w2, out_dtype=pl.FP32)
                gate = pl.slice(gates, [TILE, 1], [t, e])
                acc = pl.add(acc, pl.row_expand_mul(y, gate))
            out[t : t + TILE, :] = acc
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    logits = x @ tensors["router"].astype(np.float64)
    gates = np.exp(logits)
    gates = gates / gates.sum(axis=1, keepdims=True)
    first = tensors["first"].astype(np.float64).reshape(EXPERTS, HIDDEN, INTER)
    second = tensors["second"].astype(np.float64).reshape(EXPERTS, INTER, HIDDEN)
    total = np.zeros((TOKENS, HIDDEN))
    for e in range(EXPERTS):
        total += gates[:, e : e + 1] * (np.maximum(x @ first[e], 0) @ second[e])
    tensors["out"][:] = total


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.3, shape)


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.FP32, normal(1, TOKENS, HIDDEN)),
    TensorSpec("router", [HIDDEN, EXPERTS], pl.FP32, normal(2, HIDDEN, EXPERTS)),
    TensorSpec("first", [EXPERTS * HIDDEN, INTER], pl.FP32, normal(3, EXPERTS * HIDDEN, INTER)),
    TensorSpec("second", [EXPERTS * INTER, HIDDEN], pl.FP32, normal(4, EXPERTS * INTER, HIDDEN)),
    TensorSpec("out", [TOKENS, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "unnormalised gates": ("gates[t : t + TILE, :] = normed", "gates[t : t + TILE, :] = weights"),
    "gate of the first": (
        "pl.slice(gates, [TILE, 1], [t, e])",
        "pl.slice(gates, [TILE, 1], [t, 0])",
    ),
    "gates not by row": (
        "pl.slice(gates, [TILE, 1], [t, e])",
        "pl.slice(gates, [TILE, 1], [0, e])",
    ),
    "wrong stride": ("[e * INTER, 0]", "[e * HIDDEN // 4, 0]"),
    "no activation": (
        "hidden = pl.relu(pl.matmul(tile, w1, out_dtype=pl.FP32))",
        "hidden = pl.matmul(tile, w1, out_dtype=pl.FP32)",
    ),
    "lost expert": ("for e in pl.range(EXPERTS)", "for e in pl.range(EXPERTS - 1)"),
    "sum of logits": ("pl.row_sum(weights)", "pl.row_sum(shifted)"),
    "gate squared": ("pl.row_expand_mul(y, gate)", "pl.row_expand_mul(y, pl.mul(gate, gate))"),
}
