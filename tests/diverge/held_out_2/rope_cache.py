"""Rotary embedding of new keys, written with their values into a cache by slot."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, HEADS, DIM, SLOTS, LONGEST = 6, 2, 32, 16, 24
HALF, ROWS, PLACES = DIM // 2, TOKENS * HEADS, SLOTS * HEADS


@pl.jit
def kernel(
    keys: pl.Tensor[[ROWS, DIM], pl.FP32],
    values: pl.Tensor[[ROWS, DIM], pl.FP32],
    cos: pl.Tensor[[LONGEST, HALF], pl.FP32],
    sin: pl.Tensor[[LONGEST, HALF], pl.FP32],
    slots: pl.Tensor[[TOKENS], pl.INT32],
    positions: pl.Tensor[[TOKENS], pl.INT32],
    key_cache: pl.InOut[pl.Tensor[[PLACES, DIM], pl.FP32]],
    value_cache: pl.InOut[pl.Tensor[[PLACES, DIM], pl.FP32]],
):
    for t in pl.parallel(TOKENS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rotate"):
            slot = pl.read(slots, [t])
            pos = pl.read(positions, [t])
            c = pl.slice(cos, [1, HALF], [pos, 0])
            s = pl.slice(sin, [1, HALF], [pos, 0])
            for h in pl.range(HEADS):
                row = t * HEADS + h
                lo = pl.slice(keys, [1, HALF], [row, 0])
                hi = pl.slice(keys, [1, HALF], [row, HALF])
                first = pl.sub(pl.mul(lo, c), pl.mul(hi, s))
                second = pl.add(pl.mul(hi, c), pl.mul(lo, s))
                place = slot * HEADS + h
                key_cache = pl.assemble(key_cache, first, [place, 0])
                key_cache = pl.assemble(key_cache, second, [place, HALF])
                value = pl.slice(values, [1, DIM], [row, 0])
                value_cache = pl.assemble(value_cache, value, [place, 0])
    return key_cache, value_cache


def golden(tensors: dict[str, Any]) -> None:
    keys = tensors["keys"].astype(np.float64).reshape(TOKENS, HEADS, 2, HALF)
    values = tensors["values"].reshape(TOKENS, HEADS, DIM)
    cos = tensors["cos"].astype(np.float64)[tensors["positions"]][:, None]
    sin = tensors["sin"].astype(np.float64)[tensors["positions"]][:, None]
    turned = np.concatenate(
        [
            keys[:, :, 0] * cos - keys[:, :, 1] * sin,
            keys[:, :, 1] * cos + keys[:, :, 0] * sin,
        ],
        axis=2,
    )
    tensors["key_cache"].reshape(SLOTS, HEADS, DIM)[tensors["slots"]] = turned
    tensors["value_cache"].reshape(SLOTS, HEADS, DIM)[tensors["slots"]] = values


RNG = np.random.default_rng
ANGLES = np.arange(LONGEST)[:, None] / 100.0 ** (np.arange(HALF) / HALF)
SPECS = [
    TensorSpec("keys", [ROWS, DIM], pl.FP32, lambda: RNG(1).normal(size=(ROWS, DIM))),
    TensorSpec("values", [ROWS, DIM], pl.FP32, lambda: RNG(2).normal(size=(ROWS, DIM))),
    TensorSpec("cos", [LONGEST, HALF], pl.FP32, lambda: np.cos(ANGLES)),
    TensorSpec("sin", [LONGEST, HALF], pl.FP32, lambda: np.sin(ANGLES)),
    TensorSpec("slots", [TOKENS], pl.INT32, np.array([3, 9, 0, 14, 7, 5])),
    TensorSpec("positions", [TOKENS], pl.INT32, np.array([11, 4, 17, 2, 23, 8])),
    TensorSpec(
        "key_cache",
        [PLACES, DIM],
        pl.FP32,
        lambda: RNG(3).normal(size=(PLACES, DIM)),
        is_output=True,
    ),
    TensorSpec(
        "value_cache",
        [PLACES, DIM],
        pl.FP32,
        lambda: RNG(4).normal(size=(PLACES, DIM)),
        is_output=True,
    ),
]
TOLERANCE = 1e-4
FAULTS = {
    "angle of the slot": (
        "pl.slice(sin, [1, HALF], [pos, 0])",
        "pl.slice(sin, [1, HALF], [slot, 0])",
    ),
    "slot of the token": ("slot = pl.read(slots, [t])", "slot = t + pl.read(slots, [0])"),
    "turned back": (
        "second = pl.add(pl.mul(hi, c), pl.mul(lo, s))",
        "second = pl.sub(pl.mul(hi, c), pl.mul(lo, s))",
    ),
    "heads apart": ("place = slot * HEADS + h", "place = slot + h * SLOTS"),
    "value of the first head": (
        "pl.slice(values, [1, DIM], [row, 0])",
        "pl.slice(values, [1, DIM], [t * HEADS, 0])",
    ),
}
