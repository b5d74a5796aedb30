"""row_min: out = x.min(1, keepdims=True), for x."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def row_min(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.row_min(x)
    return out
