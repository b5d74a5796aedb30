"""A SwiGLU feed-forward layer: two products over blocks of the hidden size, a gate, a product."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

TOKENS, HIDDEN, INTER, ROWS, STEP, WIDTH = 32, 96, 64, 16, 32, 32


@pl.jit
def kernel(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
    w_gate: pl.Tensor[[HIDDEN, INTER], pl.BF16],
    w_up: pl.Tensor[[HIDDEN, INTER], pl.BF16],
    w_down: pl.Tensor[[INTER, HIDDEN], pl.BF16],
    out: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    act = pl.create_tensor([TOKENS, INTER], dtype=pl.BF16)
    for r in pl.parallel(0, TOKENS, ROWS):
        for c in pl.parallel(0, INTER, WIDTH):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
                gate = pl.full([ROWS, WIDTH], dtype=pl.FP32, value=0.0)
                up = pl.full([ROWS, WIDTH], dtype=pl.FP32, value=0.0)
                for h in pl.range(0, HIDDEN, STEP):
                    tile = x[r : r + ROWS, h : h + STEP]
                    g = pl.matmul(tile, w_gate[h : h + STEP, c : c + WIDTH], out_dtype=pl.FP32)
                    u = pl.matmul(tile, w_up[h : h + STEP, c : c + WIDTH], out_dtype=pl.FP32)
                    gate = pl.add(gate, g)
                    up = pl.add(up, u)
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
                silu = pl.mul(gate, sigmoid)
                product = pl.mul(silu, up)
                act[r : r + ROWS, c : c + WIDTH] = pl.cast(product, pl.BF16, mode="rint")
    for r in pl.parallel(0, TOKENS, ROWS):
        for c in pl.parallel(0, HIDDEN, WIDTH):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down"):
                down = pl.full([ROWS, WIDTH], dtype=pl.FP32, value=0.0)
                for h in pl.range(0, INTER, STEP):
                    a = act[r : r + ROWS, h : h + STEP]
                    w = w_down[h : h + STEP, c : c + WIDTH]
                    down = pl.add(down, pl.matmul(a, w, out_dtype=pl.FP32))
                out[r : r + ROWS, c : c + WIDTH] = down
    return out


def golden(tensors: dict[str, Any]) -> None:
    x, w_gate, w_up, w_down = (
        tensors[n].astype(np.float64) for n in ("x", "w_gate", "w_up", "w_down")
    )
    gate, up = x @ w_gate, x @ w_up
    tensors["out"][:] = (gate / (1 + np.exp(-gate)) * up) @ w_down


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.4, shape)


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, normal(1, TOKENS, HIDDEN)),
    TensorSpec("w_gate", [HIDDEN, INTER], pl.BF16, normal(2, HIDDEN, INTER)),
    TensorSpec("w_up", [HIDDEN, INTER], pl.BF16, normal(3, HIDDEN, INTER)),
    TensorSpec("w_down", [INTER, HIDDEN], pl.BF16, normal(4, INTER, HIDDEN)),
    TensorSpec("out", [TOKENS, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 5e-2
FAULTS = {
    "wrong operand": ("product = pl.mul(silu, up)", "product = pl.mul(sigmoid, up)"),
    "sign": ("pl.exp(pl.neg(gate))", "pl.exp(gate)"),
    "wrong weight": ("u = pl.matmul(tile, w_up[", "u = pl.matmul(tile, w_gate["),
    "lost tail iteration": (
        "for h in pl.range(0, HIDDEN, STEP)",
        "for h in pl.range(0, HIDDEN - STEP, STEP)",
    ),
    "swapped indices": (
        "w = w_down[h : h + STEP, c : c + WIDTH]",
        "w = w_down[c % INTER : c % INTER + STEP, h : h + WIDTH]",
    ),
    "lost accumulation": ("up = pl.add(up, u)", "up = u"),
    "cast through INT8": (
        "pl.mul(silu, up)",
        'pl.cast(pl.cast(pl.cast(pl.mul(silu, up), pl.FP16), pl.INT8, mode="trunc"), pl.FP16)',
    ),
    "fixed block": ("tile = x[r : r + ROWS, h : h + STEP]", "tile = x[r : r + ROWS, 0:STEP]"),
}
