"""scale_rows: out = x * s, for x, s."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def scale_rows(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    s_in: pl.Tensor[[ROWS, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            s = s_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.row_expand_mul(x, s)
    return out
