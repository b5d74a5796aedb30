"""silu: out = x / (1 + np.exp(-x)), for x."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def silu(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.div(x, pl.add(pl.exp(pl.neg(x)), 1.0))
    return out
