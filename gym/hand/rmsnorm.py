"""rmsnorm: out = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w, for x, w."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def rmsnorm(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    w_in: pl.Tensor[[1, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            w = w_in[:, :]
            out[r : r + TILE, :] = pl.col_expand_mul(pl.row_expand_div(x, pl.sqrt(pl.add(pl.mul(pl.row_sum(pl.mul(x, x)), 1.0 / COLS), 1e-6))), w)
    return out
