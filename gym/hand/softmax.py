"""softmax: out = np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True), for x."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 16


@pl.jit
def softmax(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            e = pl.exp(pl.row_expand_sub(x, pl.row_max(x)))
            out[r : r + TILE, :] = pl.row_expand_div(e, pl.row_sum(e))
    return out
