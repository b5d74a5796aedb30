"""Two experts per token: rows are gathered by expert, multiplied, and combined by token."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, TOP, EXPERTS, HIDDEN, INTER, TILE = 20, 2, 4, 32, 32, 8
PAIRS = TOKENS * TOP


@pl.jit
def kernel(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
    order: pl.Tensor[[PAIRS], pl.INT32],
    rank: pl.Tensor[[TOKENS, TOP], pl.INT32],
    begin: pl.Tensor[[EXPERTS + 1], pl.INT32],
    logits: pl.Tensor[[TOKENS, TOP], pl.FP32],
    up: pl.Tensor[[EXPERTS * HIDDEN, 2 * INTER], pl.BF16],
    down: pl.Tensor[[EXPERTS * INTER, HIDDEN], pl.BF16],
    out: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    rows = pl.create_tensor([PAIRS, HIDDEN], dtype=pl.BF16)
    made = pl.create_tensor([PAIRS, HIDDEN], dtype=pl.FP32)
    for n in pl.parallel(0, PAIRS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="gather"):
            for i in pl.range(TILE):
                pair = pl.read(order, [n + i])
                token = pair // TOP
                rows[n + i : n + i + 1, :] = x[token : token + 1, :]
    for e in pl.range(EXPERTS):
        first = pl.read(begin, [e])
        last = pl.read(begin, [e + 1])
        for r in pl.range(first, last, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert"):
                count = pl.min(TILE, last - r)
                tile = pl.slice(rows, [TILE, HIDDEN], [r, 0], valid_shape=[count, HIDDEN])
                w = pl.slice(up, [HIDDEN, 2 * INTER], [e * HIDDEN, 0])
                both = pl.matmul(tile, w, out_dtype=pl.FP32)
                gate = pl.slice(both, [TILE, INTER], [0, 0])
                linear = pl.slice(both, [TILE, INTER], [0, INTER])
                gate = pl.minimum(gate, 1.5)
                linear = pl.minimum(pl.maximum(linear, -1.5), 1.5)
                sigmoid = pl.recip(pl.add(pl.exp(pl.mul(gate, -1.702)), 1.0))
                act = pl.mul(pl.mul(gate, sigmoid), pl.add(linear, 1.0))
                act = pl.cast(act, pl.BF16, mode="rint")
                w = pl.slice(down, [INTER, HIDDEN], [e * INTER, 0])
                made[r : r + TILE, :] = pl.matmul(act, w, out_dtype=pl.FP32)
    for t in pl.parallel(TOKENS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="combine"):
            mine = logits[t : t + 1, :]
            weights = pl.exp(pl.row_expand_sub(mine, pl.row_max(mine)))
            weights = pl.row_expand_div(weights, pl.row_sum(weights))
            total = pl.full([1, HIDDEN], dtype=pl.FP32, value=0.0)
            for j in pl.range(TOP):
                at = pl.read(rank, [t, j])
                share = pl.read(weights, [0, j])
                total = pl.add(total, pl.mul(made[at : at + 1, :], share))
            out[t : t + 1, :] = total
    return out


def golden(tensors: dict[str, Any]) -> None:
    x, up, down = (tensors[n].astype(np.float64) for n in ("x", "up", "down"))
    gates = np.exp(tensors["logits"].astype(np.float64))
    gates = gates / gates.sum(axis=1, keepdims=True)
    chosen = np.searchsorted(tensors["begin"], tensors["rank"], side="right") - 1
    result = np.zeros((TOKENS, HIDDEN))
    for e in range(EXPERTS):
        both = x @ up[e * HIDDEN : (e + 1) * HIDDEN]
        gate = np.minimum(both[:, :INTER], 1.5)
        act = gate / (1 + np.exp(-1.702 * gate)) * (np.clip(both[:, INTER:], -1.5, 1.5) + 1)
        y = act @ down[e * INTER : (e + 1) * INTER]
        result += y * np.where(chosen == e, gates, 0.0).sum(axis=1, keepdims=True)
    tensors["out"][:] = result


RNG = np.random.default_rng
CHOSEN = np.stack([RNG(20 + t).permutation(EXPERTS)[:TOP] for t in range(TOKENS)])
ORDER = np.argsort(CHOSEN.reshape(-1), kind="stable")
RANK = np.argsort(ORDER).reshape(TOKENS, TOP)
BEGIN = np.searchsorted(np.sort(CHOSEN.reshape(-1)), np.arange(EXPERTS + 1))


def normal(seed: int, scale: float, *shape: int):
    return lambda: RNG(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, normal(1, 1.0, TOKENS, HIDDEN)),
    TensorSpec("order", [PAIRS], pl.INT32, ORDER),
    TensorSpec("rank", [TOKENS, TOP], pl.INT32, RANK),
    TensorSpec("begin", [EXPERTS + 1], pl.INT32, BEGIN),
    TensorSpec("logits", [TOKENS, TOP], pl.FP32, normal(2, 1.0, TOKENS, TOP)),
    TensorSpec("up", [EXPERTS * HIDDEN, 2 * INTER], pl.BF16, normal(3, 0.3, 128, 64)),
    TensorSpec("down", [EXPERTS * INTER, HIDDEN], pl.BF16, normal(4, 0.3, 128, 32)),
    TensorSpec("out", [TOKENS, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 2e-2
FAULTS = {
    "pair for token": ("token = pair // TOP", "token = pair % TOKENS"),
    "first expert again": (
        "w = pl.slice(down, [INTER, HIDDEN], [e * INTER, 0])",
        "w = pl.slice(down, [INTER, HIDDEN], [0, 0])",
    ),
    "tail of an expert lost": ("pl.range(first, last, TILE)", "pl.range(first, last - 1, TILE)"),
    "gate not clamped": ("gate = pl.minimum(gate, 1.5)", "gate = pl.maximum(gate, -1.5)"),
    "one missing": ("pl.add(linear, 1.0))", "pl.add(linear, 0.0))"),
    "weights not normalized": (
        "weights = pl.row_expand_div(weights, pl.row_sum(weights))",
        "weights = pl.row_expand_div(weights, pl.row_max(weights))",
    ),
    "rank of the first": ("at = pl.read(rank, [t, j])", "at = pl.read(rank, [t, 0])"),
    "combination overwrites": (
        "total = pl.add(total, pl.mul(made[at : at + 1, :], share))",
        "total = pl.mul(made[at : at + 1, :], share)",
    ),
}
