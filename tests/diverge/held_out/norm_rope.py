"""RMS normalization of heads, then a rotary embedding, written into a cache row by row."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, HEADS, DIM, TILE, EPS = 32, 4, 64, 16, 1e-6
HALF = DIM // 2


@pl.jit
def kernel(
    x: pl.Tensor[[TOKENS, HEADS * DIM], pl.FP32],
    gain: pl.Tensor[[1, DIM], pl.FP32],
    cos: pl.Tensor[[TOKENS, HALF], pl.FP32],
    sin: pl.Tensor[[TOKENS, HALF], pl.FP32],
    out: pl.Out[pl.Tensor[[HEADS * TOKENS, DIM], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        for t in pl.parallel(0, TOKENS, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="rope"):
                tile = pl.slice(x, [TILE, DIM], [t, h * DIM])
                power = pl.mul(pl.row_sum(pl.mul(tile, tile)), 1.0 / DIM)
                inverse = pl.rsqrt(pl.add(power, EPS))
                normed = pl.col_expand_mul(pl.row_expand_mul(tile, inverse), gain[:, :])
                low = pl.slice(normed, [TILE, HALF], [0, 0])
                high = pl.slice(normed, [TILE, HALF], [0, HALF])
                c = cos[t : t + TILE, :]
                s = sin[t : t + TILE, :]
                first = pl.sub(pl.mul(low, c), pl.mul(high, s))
                second = pl.add(pl.mul(high, c), pl.mul(low, s))
                row = h * TOKENS + t
                out = pl.assemble(out, first, [row, 0])
                out = pl.assemble(out, second, [row, HALF])
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64).reshape(TOKENS, HEADS, DIM)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPS) * tensors["gain"]
    a, b = x[..., :HALF], x[..., HALF:]
    cos, sin = tensors["cos"][:, None], tensors["sin"][:, None]
    turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    tensors["out"][:] = turned.transpose(1, 0, 2).reshape(HEADS * TOKENS, DIM)


def angles():
    return np.outer(np.arange(TOKENS), 10000.0 ** (-np.arange(HALF) / HALF))


SPECS = [
    TensorSpec(
        "x",
        [TOKENS, HEADS * DIM],
        pl.FP32,
        lambda: np.random.default_rng(1).normal(size=(TOKENS, HEADS * DIM)),
    ),
    TensorSpec(
        "gain", [1, DIM], pl.FP32, lambda: np.random.default_rng(2).uniform(0.5, 2, (1, DIM))
    ),
    TensorSpec("cos", [TOKENS, HALF], pl.FP32, lambda: np.cos(angles())),
    TensorSpec("sin", [TOKENS, HALF], pl.FP32, lambda: np.sin(angles())),
    TensorSpec("out", [HEADS * TOKENS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "sign of the rotation": (
        "pl.sub(pl.mul(low, c), pl.mul(high, s))",
        "pl.add(pl.mul(low, c), pl.mul(high, s))",
    ),
    "halves mixed": ("pl.mul(high, c), pl.mul(low, s)", "pl.mul(low, c), pl.mul(low, s)"),
    "wrong count": ("1.0 / DIM", "1.0 / HALF"),
    "angles of the first tokens": ("c = cos[t : t + TILE, :]", "c = cos[0:TILE, :]"),
    "not squared": ("pl.row_sum(pl.mul(tile, tile))", "pl.row_sum(tile)"),
    "swapped rows": ("row = h * TOKENS + t", "row = t * HEADS + h * TILE"),
    "no gain": (
        "pl.col_expand_mul(pl.row_expand_mul(tile, inverse), gain[:, :])",
        "pl.row_expand_mul(tile, inverse)",
    ),
    "high half at the start": ("[TILE, HALF], [0, HALF])", "[TILE, HALF], [0, 0])"),
}
