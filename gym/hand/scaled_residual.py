"""scaled_residual: out = x * s + y, for x, y, s."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 16


@pl.jit
def scaled_residual(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    y_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    s_in: pl.Tensor[[ROWS, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            y = y_in[r : r + TILE, :]
            s = s_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.add(pl.row_expand_mul(x, s), y)
    return out
