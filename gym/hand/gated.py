"""gated: out = x * y + (x - y) * z, for x, y, z."""

import tilelet.language as pl

ROWS, COLS, TILE, BLOCK = 512, 1024, 8, 16


@pl.jit
def gated(
    x_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    y_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    z_in: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // BLOCK):
        for r in pl.pipeline(i * BLOCK, i * BLOCK + BLOCK, TILE, stage=2):
            x = x_in[r : r + TILE, :]
            y = y_in[r : r + TILE, :]
            z = z_in[r : r + TILE, :]
            out[r : r + TILE, :] = pl.add(pl.mul(x, y), pl.mul(pl.sub(x, y), z))
    return out
