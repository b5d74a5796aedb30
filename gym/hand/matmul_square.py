"""matmul_square: out = a @ b."""

import tilelet.language as pl

ROWS, COLS, INNER, TILE = 256, 256, 256, 128


@pl.jit
def matmul_square(
    a: pl.Tensor[[ROWS, INNER], pl.FP32],
    b: pl.Tensor[[INNER, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for i in pl.spmd(ROWS // TILE * (COLS // 64)):
        r, c = i // (COLS // 64) * TILE, i % (COLS // 64) * 64
        acc = pl.matmul(a[r : r + TILE, 0:64], b[0:64, c : c + 64])
        for k in pl.pipeline(64, INNER, 64, stage=2):
            left = a[r : r + TILE, k : k + 64]
            acc = pl.matmul_acc(acc, left, b[k : k + 64, c : c + 64])
        out[r : r + TILE, c : c + 64] = acc
    return out
