"""Routing within the best group of experts; the chosen expert is read from a tile."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, HIDDEN, GROUPS, MEMBERS, WIDTH = 8, 32, 4, 8, 32
EXPERTS = GROUPS * MEMBERS


@pl.jit
def kernel(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.FP32],
    router: pl.Tensor[[HIDDEN, EXPERTS], pl.FP32],
    weights: pl.Tensor[[EXPERTS * HIDDEN, WIDTH], pl.FP32],
    out: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
):
    scores = pl.create_tensor([TOKENS, EXPERTS], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="score"):
        logits = pl.matmul(x[:, :], router[:, :], out_dtype=pl.FP32)
        scores[:, :] = pl.recip(pl.add(pl.exp(pl.neg(logits)), 1.0))
    for t in pl.parallel(TOKENS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert"):
            mine = pl.reshape(pl.slice(scores, [1, EXPERTS], [t, 0]), [GROUPS, MEMBERS])
            strength = pl.reshape(pl.row_max(mine), [1, GROUPS])
            group = pl.read(pl.row_argmax(strength), [0, 0])
            members = pl.slice(mine, [1, MEMBERS], [group, 0])
            member = pl.read(pl.row_argmax(members), [0, 0])
            expert = group * MEMBERS + member
            gate = pl.read(members, [0, member])
            share = pl.row_expand_div(members, pl.row_sum(members))
            part = pl.read(share, [0, member])
            w = pl.slice(weights, [HIDDEN, WIDTH], [expert * HIDDEN, 0])
            y = pl.matmul(x[t : t + 1, :], w, out_dtype=pl.FP32)
            scaled = pl.mul(pl.mul(y, gate), part)
            out[t : t + 1, :] = scaled
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    weights = tensors["weights"].astype(np.float64).reshape(EXPERTS, HIDDEN, WIDTH)
    scores = 1 / (1 + np.exp(-(x @ tensors["router"].astype(np.float64))))
    for t in range(TOKENS):
        grouped = scores[t].reshape(GROUPS, MEMBERS)
        best = grouped[grouped.max(axis=1).argmax()]
        y = x[t] @ weights[scores[t].argmax()]
        tensors["out"][t] = y * best.max() * best.max() / best.sum()


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.4, shape)


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.FP32, normal(1, TOKENS, HIDDEN)),
    TensorSpec("router", [HIDDEN, EXPERTS], pl.FP32, normal(2, HIDDEN, EXPERTS)),
    TensorSpec("weights", [EXPERTS * HIDDEN, WIDTH], pl.FP32, normal(3, EXPERTS * HIDDEN, WIDTH)),
    TensorSpec("out", [TOKENS, WIDTH], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "member for expert": ("expert = group * MEMBERS + member", "expert = member"),
    "gate of the first member": ("pl.read(members, [0, member])", "pl.read(members, [0, 0])"),
    "member of the weakest": (
        "member = pl.read(pl.row_argmax(members), [0, 0])",
        "member = pl.read(pl.row_argmin(members), [0, 0])",
    ),
    "wrong stride of groups": (
        "expert = group * MEMBERS + member",
        "expert = group * GROUPS + member",
    ),
    "share of the sum of logits": (
        "share = pl.row_expand_div(members, pl.row_sum(members))",
        "share = pl.row_expand_div(members, pl.row_max(members))",
    ),
}
