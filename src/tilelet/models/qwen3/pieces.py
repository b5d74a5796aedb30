"""Pieces that several Qwen3 programs share, written once and spliced in where they are called.

Each `make_*` function fixes the sizes and gives a `@pl.inline` function. Calls of those that
compute must stand in a scope; `make_zero_fill` brings its own.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType


def make_rmsnorm(rows: int, hidden: int, k_chunk: int, eps: float, *, faulty: bool = False):
    """RMSNorm of `rows` rows, in two passes over the columns, `k_chunk` at a time.

    `faulty` multiplies by mean(x^2) + eps instead of dividing by its square root: the mistake that
    a public program made together with its golden, kept to show that ours notices it.
    """
    BLOCKS = hidden // k_chunk
    HIDDEN_INV = 1.0 / hidden

    @pl.inline
    def inverse_root(variance):
        return pl.recip(pl.sqrt(variance))

    @pl.inline
    def unchanged(variance):
        return variance

    row_scale = unchanged if faulty else inverse_root

    @pl.inline
    def rmsnorm(x, weight, out, row):
        """Normalise rows `row`... of `x` into `out` (BF16, from its row 0)."""
        square_sum = pl.full([1, rows], dtype=pl.FP32, value=0.0)
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            x_chunk = pl.cast(pl.slice(x, [rows, k_chunk], [row, k0]), target_type=pl.FP32)
            chunk_sum = pl.row_sum(pl.mul(x_chunk, x_chunk))
            square_sum = pl.add(square_sum, pl.reshape(chunk_sum, [1, rows]))
        variance = pl.add(pl.mul(square_sum, HIDDEN_INV), eps)
        scale = pl.reshape(row_scale(variance), [rows, 1])
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            x_chunk = pl.cast(pl.slice(x, [rows, k_chunk], [row, k0]), target_type=pl.FP32)
            gamma = pl.slice(weight, [1, k_chunk], [0, k0])
            normed = pl.col_expand_mul(pl.row_expand_mul(x_chunk, scale), gamma)
            out = pl.assemble(out, pl.cast(normed, target_type=pl.BF16), [0, k0])
        return out

    return rmsnorm


def make_projection(rows: int, k_chunk: int, out_chunk: int, k_blocks: int):
    """One `[rows, out_chunk]` block of `x @ w`, accumulated on chip over `k_blocks` chunks of K."""

    @pl.inline
    def project(x, w, row, column):
        x_chunk = pl.slice(x, [rows, k_chunk], [row, 0])
        w_chunk = pl.slice(w, [k_chunk, out_chunk], [0, column])
        acc = pl.matmul(x_chunk, w_chunk, out_dtype=pl.FP32)
        for kb in pl.range(1, k_blocks):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            w_chunk = pl.slice(w, [k_chunk, out_chunk], [k0, column])
            acc = pl.matmul_acc(acc, x_chunk, w_chunk)
        return acc

    return project


def make_rope(half: int):
    """RoPE by halves, of rows given as two halves `[R, half]`; tables are `[1, 2 * half]`."""

    @pl.inline
    def rotate(lo, hi, cos, sin):
        cos_lo = pl.slice(cos, [1, half], [0, 0])
        cos_hi = pl.slice(cos, [1, half], [0, half])
        sin_lo = pl.slice(sin, [1, half], [0, 0])
        sin_hi = pl.slice(sin, [1, half], [0, half])
        rotated_lo = pl.sub(pl.col_expand_mul(lo, cos_lo), pl.col_expand_mul(hi, sin_lo))
        rotated_hi = pl.add(pl.col_expand_mul(hi, cos_hi), pl.col_expand_mul(lo, sin_hi))
        return rotated_lo, rotated_hi

    return rotate


def make_gated_silu():
    """`silu(gate) * up`, rounded to BF16."""

    @pl.inline
    def gated_silu(gate, up):
        sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
        return pl.cast(pl.mul(pl.mul(gate, sigmoid), up), target_type=pl.BF16)

    return gated_silu


def make_zero_fill(rows: int, columns: int, blocks: int, dtype: DType):
    """Zeros into `blocks` blocks `[rows, columns]` side by side, eight blocks per task."""

    @pl.inline
    def zero_fill(tensor):
        with pl.auto_incore():
            for ob in pl.parallel(0, blocks, chunk=8):
                zero = pl.full([rows, columns], dtype=pl.FP32, value=0.0)
                tensor = pl.assemble(tensor, pl.cast(zero, target_type=dtype), [0, ob * columns])
        return tensor

    return zero_fill
