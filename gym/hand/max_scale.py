"""max_scale: out = x / np.abs(x).max(1, keepdims=True), for x."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def max_scale(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.row_expand_div(x, pl.row_max(pl.abs(x)))
    return out
