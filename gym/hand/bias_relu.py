"""bias_relu: out = np.maximum(x + w, 0), for x, w."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 32


@pl.jit
def bias_relu(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    w_in: pl.Tensor[[1, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            w = w_in[:, :]
            out[r : r + TILE, :] = pl.relu(pl.col_expand_add(x, w))
    return out
