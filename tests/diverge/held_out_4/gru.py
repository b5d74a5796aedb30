"""A bidirectional GRU layer over sequences of different lengths, a time step after the other."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

STEPS, BATCH, INPUT, HIDDEN = 5, 16, 32, 32
WIDE = 3 * HIDDEN


@pl.jit
def kernel(
    x: pl.Tensor[[STEPS * BATCH, INPUT], pl.FP32],
    w_input: pl.Tensor[[2 * INPUT, WIDE], pl.FP32],
    w_hidden: pl.Tensor[[2 * HIDDEN, WIDE], pl.FP32],
    b_input: pl.Tensor[[2, WIDE], pl.FP32],
    b_hidden: pl.Tensor[[2, WIDE], pl.FP32],
    alive: pl.Tensor[[STEPS * BATCH, 1], pl.FP32],
    states: pl.Out[pl.Tensor[[STEPS * BATCH, 2 * HIDDEN], pl.FP32]],
    final: pl.Out[pl.Tensor[[2 * BATCH, HIDDEN], pl.FP32]],
):
    for d in pl.parallel(2):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="direction"):
            wi = pl.slice(w_input, [INPUT, WIDE], [d * INPUT, 0])
            wh = pl.slice(w_hidden, [HIDDEN, WIDE], [d * HIDDEN, 0])
            bi = b_input[d : d + 1, :]
            bh = b_hidden[d : d + 1, :]
            h = pl.full([BATCH, HIDDEN], dtype=pl.FP32, value=0.0)
            for step in pl.range(STEPS):
                t = step + d * (STEPS - 1 - 2 * step)
                row = t * BATCH
                xt = x[row : row + BATCH, :]
                gx = pl.col_expand_add(pl.matmul(xt, wi, out_dtype=pl.FP32), bi)
                gh = pl.col_expand_add(pl.matmul(h, wh, out_dtype=pl.FP32), bh)
                r_in = pl.add(gx[:, 0:HIDDEN], gh[:, 0:HIDDEN])
                z_in = pl.add(gx[:, HIDDEN : 2 * HIDDEN], gh[:, HIDDEN : 2 * HIDDEN])
                r = pl.recip(pl.add(pl.exp(pl.neg(r_in)), 1.0))
                z = pl.recip(pl.add(pl.exp(pl.neg(z_in)), 1.0))
                n_in = pl.add(gx[:, 2 * HIDDEN : WIDE], pl.mul(r, gh[:, 2 * HIDDEN : WIDE]))
                e = pl.exp(pl.mul(n_in, 2.0))
                n = pl.div(pl.sub(e, 1.0), pl.add(e, 1.0))
                new = pl.add(pl.mul(pl.sub(1.0, z), n), pl.mul(z, h))
                live = alive[row : row + BATCH, :]
                moved = pl.row_expand_mul(pl.sub(new, h), live)
                h = pl.add(h, moved)
                column = d * HIDDEN
                shown = pl.row_expand_mul(h, live)
                states = pl.assemble(states, shown, [row, column])
            final[d * BATCH : d * BATCH + BATCH, :] = h
    return states, final


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64).reshape(STEPS, BATCH, INPUT)
    alive = tensors["alive"].reshape(STEPS, BATCH) > 0
    states = tensors["states"].reshape(STEPS, BATCH, 2, HIDDEN)
    final = tensors["final"].reshape(2, BATCH, HIDDEN)
    for d in range(2):
        wi = tensors["w_input"].astype(np.float64).reshape(2, INPUT, 3, HIDDEN)[d]
        wh = tensors["w_hidden"].astype(np.float64).reshape(2, HIDDEN, 3, HIDDEN)[d]
        bi = tensors["b_input"].reshape(2, 3, HIDDEN)[d]
        bh = tensors["b_hidden"].reshape(2, 3, HIDDEN)[d]
        h = np.zeros((BATCH, HIDDEN))
        for t in range(STEPS) if d == 0 else reversed(range(STEPS)):
            reset = 1 / (1 + np.exp(-(x[t] @ wi[:, 0] + bi[0] + h @ wh[:, 0] + bh[0])))
            update = 1 / (1 + np.exp(-(x[t] @ wi[:, 1] + bi[1] + h @ wh[:, 1] + bh[1])))
            new = np.tanh(x[t] @ wi[:, 2] + bi[2] + reset * (h @ wh[:, 2] + bh[2]))
            after = (1 - update) * new + update * h
            h = np.where(alive[t][:, None], after, h)
            states[t, :, d] = np.where(alive[t][:, None], h, 0.0)
        final[d] = h


RNG = np.random.default_rng
LENGTHS = RNG(9).integers(2, STEPS + 1, BATCH)
ALIVE = (np.arange(STEPS)[:, None] < LENGTHS).astype(np.float32)


def normal(seed: int, scale: float, *shape: int):
    return lambda: RNG(seed).normal(0, scale, shape)


SPECS = [
    TensorSpec("x", [STEPS * BATCH, INPUT], pl.FP32, normal(1, 1.0, STEPS * BATCH, INPUT)),
    TensorSpec("w_input", [2 * INPUT, WIDE], pl.FP32, normal(2, 0.25, 2 * INPUT, WIDE)),
    TensorSpec("w_hidden", [2 * HIDDEN, WIDE], pl.FP32, normal(3, 0.25, 2 * HIDDEN, WIDE)),
    TensorSpec("b_input", [2, WIDE], pl.FP32, normal(4, 0.4, 2, WIDE)),
    TensorSpec("b_hidden", [2, WIDE], pl.FP32, normal(5, 0.4, 2, WIDE)),
    TensorSpec("alive", [STEPS * BATCH, 1], pl.FP32, ALIVE.reshape(-1, 1)),
    TensorSpec("states", [STEPS * BATCH, 2 * HIDDEN], pl.FP32, is_output=True),
    TensorSpec("final", [2 * BATCH, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "both directions forward": ("t = step + d * (STEPS - 1 - 2 * step)", "t = step + d * 0"),
    "gates exchanged": (
        "z_in = pl.add(gx[:, HIDDEN : 2 * HIDDEN], gh[:, HIDDEN : 2 * HIDDEN])",
        "z_in = pl.add(gx[:, HIDDEN : 2 * HIDDEN], gh[:, 0:HIDDEN])",
    ),
    "reset of the whole candidate": (
        "n_in = pl.add(gx[:, 2 * HIDDEN : WIDE], pl.mul(r, gh[:, 2 * HIDDEN : WIDE]))",
        "n_in = pl.mul(r, pl.add(gx[:, 2 * HIDDEN : WIDE], gh[:, 2 * HIDDEN : WIDE]))",
    ),
    "update gate the wrong way round": (
        "new = pl.add(pl.mul(pl.sub(1.0, z), n), pl.mul(z, h))",
        "new = pl.add(pl.mul(pl.sub(1.0, z), h), pl.mul(z, n))",
    ),
    "bias of the other product": (
        "gh = pl.col_expand_add(pl.matmul(h, wh, out_dtype=pl.FP32), bh)",
        "gh = pl.col_expand_add(pl.matmul(h, wh, out_dtype=pl.FP32), bi)",
    ),
    "ended sequences go on": (
        "moved = pl.row_expand_mul(pl.sub(new, h), live)",
        "moved = pl.sub(new, h)",
    ),
    "padding shown": ("shown = pl.row_expand_mul(h, live)", "shown = pl.mul(h, 1.0)"),
    "hidden weights of one direction": (
        "wh = pl.slice(w_hidden, [HIDDEN, WIDE], [d * HIDDEN, 0])",
        "wh = pl.slice(w_hidden, [HIDDEN, WIDE], [0, 0])",
    ),
}
