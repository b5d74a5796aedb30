# pyright: basic
"""Building blocks shared by several Qwen3 programs, written once and inlined where they are called.

Each `make_*` function fixes the sizes and returns a `@pl.inline` function. Functions that compute
must be called in a scope; `make_zero_fill` brings its own.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import DType


def make_rms_scale(columns: int, eps: float, *, faulty: bool = False):
    """The factor by which RMSNorm scales a row, from the sum of squares of its `columns` numbers.

    `faulty` leaves it at mean(x^2) + eps instead of the reciprocal of its square root: a mistake
    that a public program and its golden shared, kept to show that our golden notices it.
    """
    COLUMNS_INV = 1.0 / columns

    @pl.inline
    def rms_scale(square_sum):
        return pl.recip(pl.sqrt(pl.add(pl.mul(square_sum, COLUMNS_INV), eps)))

    @pl.inline
    def variance(square_sum):
        return pl.add(pl.mul(square_sum, COLUMNS_INV), eps)

    return variance if faulty else rms_scale


def make_load(rows: int, columns: int, dtype: DType = pl.BF16):
    """A `[rows, columns]` window of `x`, which is of `dtype`, in FP32."""

    @pl.inline
    def widened(x, row, column):
        return pl.cast(pl.slice(x, [rows, columns], [row, column]), target_type=pl.FP32)

    @pl.inline
    def unchanged(x, row, column):
        return pl.slice(x, [rows, columns], [row, column])

    return unchanged if dtype is pl.FP32 else widened


def make_rmsnorm(
    rows: int,
    hidden: int,
    k_chunk: int,
    eps: float,
    *,
    x_dtype: DType = pl.BF16,
    dtype: DType = pl.BF16,
    mode: str = "round",
    faulty: bool = False,
):
    """RMSNorm of `rows` rows of `x_dtype`, in two passes over the columns, `k_chunk` at a time.

    The result is rounded to `dtype` in the given mode; `faulty` as for `make_rms_scale`.
    """
    BLOCKS = hidden // k_chunk
    load = make_load(rows, k_chunk, x_dtype)
    row_scale = make_rms_scale(hidden, eps, faulty=faulty)
    squares, scaled = make_rms_steps(rows, dtype, mode)

    @pl.inline
    def rmsnorm(x, weight, target, row):
        """Normalize rows `row`... of `x` into `target`, from its row 0."""
        square_sum = pl.full([1, rows], dtype=pl.FP32, value=0.0)
        for kb in pl.range(BLOCKS):
            square_sum = pl.add(square_sum, squares(load(x, row, kb * k_chunk)))
        scale = pl.reshape(row_scale(square_sum), [rows, 1])
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            gamma = pl.slice(weight, [1, k_chunk], [0, k0])
            target = pl.assemble(target, scaled(load(x, row, k0), scale, gamma), [0, k0])
        return target

    return rmsnorm


def make_rms_steps(rows: int, dtype: DType = pl.BF16, mode: str = "round"):
    """The two passes of RMSNorm on a piece of `rows` rows.

    One function returns the sums of squares, `[1, rows]`, the other the piece, scaled and rounded
    to `dtype`.
    """

    @pl.inline
    def squares(piece):
        return pl.reshape(pl.row_sum(pl.mul(piece, piece)), [1, rows])

    @pl.inline
    def scaled(piece, scale, gamma):
        return pl.cast(
            pl.col_expand_mul(pl.row_expand_mul(piece, scale), gamma), target_type=dtype, mode=mode
        )

    return squares, scaled


def make_projection(rows: int, k_chunk: int, out_chunk: int, k_blocks: int, *, stage: int = 1):
    """One `[rows, out_chunk]` block of `x @ w`, accumulated on chip over `k_blocks` chunks of K.

    With `stage` above 1 the next chunks are loaded while one is multiplied.
    """

    @pl.inline
    def first_chunk(x, w, row, column):
        return pl.matmul(
            pl.slice(x, [rows, k_chunk], [row, 0]),
            pl.slice(w, [k_chunk, out_chunk], [0, column]),
            out_dtype=pl.FP32,
        )

    @pl.inline
    def next_chunk(partial, x, w, row, column, k0):
        return pl.matmul_acc(
            partial,
            pl.slice(x, [rows, k_chunk], [row, k0]),
            pl.slice(w, [k_chunk, out_chunk], [k0, column]),
        )

    @pl.inline
    def project(x, w, row, column):
        product = first_chunk(x, w, row, column)
        for kb in pl.range(1, k_blocks):
            product = next_chunk(product, x, w, row, column, kb * k_chunk)
        return product

    @pl.inline
    def project_pipelined(x, w, row, column):
        acc = first_chunk(x, w, row, column)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            acc = next_chunk(acc, x, w, row, column, kb * k_chunk)
        return acc

    return project if stage == 1 else project_pipelined


def make_products(k_chunk: int, out_chunk: int):
    """The products of a projection one by one, for several projections that share their loads.

    One function multiplies rows by the first chunk of a weight, the other multiplies by a further
    chunk and accumulates.
    """

    @pl.inline
    def first_product(x_chunk, w, column):
        return pl.matmul(x_chunk, pl.slice(w, [k_chunk, out_chunk], [0, column]), out_dtype=pl.FP32)

    @pl.inline
    def next_product(partial, x_chunk, w, k0, column):
        return pl.matmul_acc(partial, x_chunk, pl.slice(w, [k_chunk, out_chunk], [k0, column]))

    return first_product, next_product


def make_gated_projections(
    rows: int,
    k_chunk: int,
    out_chunk: int,
    k_blocks: int,
    stage: int,
    *,
    dtype: DType = pl.BF16,
    mode: str = "round",
):
    """A block of `silu(x @ w_gate) * (x @ w_up)`: each chunk of `x` is loaded once for both."""
    first_product, next_product = make_products(k_chunk, out_chunk)
    gated_silu = make_gated_silu(dtype, mode)

    @pl.inline
    def gated(x, w_gate, w_up, column):
        both = pl.slice(x, [rows, k_chunk], [0, 0])
        gate = first_product(both, w_gate, column)
        up = first_product(both, w_up, column)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            k0 = kb * k_chunk
            both = pl.slice(x, [rows, k_chunk], [0, k0])
            gate = next_product(gate, both, w_gate, k0, column)
            up = next_product(up, both, w_up, k0, column)
        return gated_silu(gate, up)

    return gated


def make_two_projections(rows: int, k_chunk: int, out_chunk: int, k_blocks: int, stage: int):
    """A block of `x @ w` and one of `x @ w2`: each chunk of `x` is loaded once for both."""
    first_product, next_product = make_products(k_chunk, out_chunk)

    @pl.inline
    def project_two(x, w, w2, row, column, column2):
        x_chunk = pl.slice(x, [rows, k_chunk], [row, 0])
        acc = first_product(x_chunk, w, column)
        acc2 = first_product(x_chunk, w2, column2)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            acc = next_product(acc, x_chunk, w, k0, column)
            acc2 = next_product(acc2, x_chunk, w2, k0, column2)
        return acc, acc2

    return project_two


def make_part_projection(
    rows: int, inner: int, split: int, k_chunk: int, out_chunk: int, stage: int
):
    """One block of a split-K product, of `split` parts: more, shorter tasks.

    A task depends only on its part of `x`, so the first can start before all of `x` is available;
    the partial products must be added up.
    """
    PART = inner // split
    if PART * split != inner or PART % k_chunk:
        wanted = f"{split} times a multiple of `k_chunk`, {k_chunk}"
        raise BadTile("the inner dimension of a product", inner, wanted)
    return make_projection(rows, k_chunk, out_chunk, PART // k_chunk, stage=stage)


def make_add_parts(rows: int, columns: int, split: int, stride: int):
    """Add a block of each partial product to `total`; the parts are `stride` rows apart."""

    @pl.inline
    def add_parts(total, parts, row, column):
        for part in pl.range(split):
            total = pl.add(total, pl.slice(parts, [rows, columns], [row + part * stride, column]))
        return total

    return add_parts


def make_rope_halves(half: int, table_rows: int = 1):
    """RoPE by halves: the lower and the upper half of rows given as two halves `[R, half]`.

    Tables are `[table_rows, 2 * half]`: one position for all rows, or one for each.
    """

    @pl.inline
    def by_one_position(part, table):
        return pl.col_expand_mul(part, table)

    @pl.inline
    def by_each_position(part, table):
        return pl.mul(part, table)

    turned = by_one_position if table_rows == 1 else by_each_position

    @pl.inline
    def rotated_low(lo, hi, cos, sin):
        cos_lo = pl.slice(cos, [table_rows, half], [0, 0])
        sin_lo = pl.slice(sin, [table_rows, half], [0, 0])
        return pl.sub(turned(lo, cos_lo), turned(hi, sin_lo))

    @pl.inline
    def rotated_high(lo, hi, cos, sin):
        cos_hi = pl.slice(cos, [table_rows, half], [0, half])
        sin_hi = pl.slice(sin, [table_rows, half], [0, half])
        return pl.add(turned(hi, cos_hi), turned(lo, sin_hi))

    return rotated_low, rotated_high


def make_rope(half: int, table_rows: int = 1):
    """RoPE of rows given as two halves; returns them side by side."""
    rotated_low, rotated_high = make_rope_halves(half, table_rows)

    @pl.inline
    def rotate(lo, hi, cos, sin):
        return pl.concat(rotated_low(lo, hi, cos, sin), rotated_high(lo, hi, cos, sin))

    return rotate


def make_rope_heads(rows: int, half: int, table_rows: int = 1):
    """RoPE of whole rows `[rows, 2 * half]`, one or several heads of the same position each."""
    rotate = make_rope(half, table_rows)

    @pl.inline
    def rotate_heads(x, cos, sin):
        lo = pl.slice(x, [rows, half], [0, 0])
        hi = pl.slice(x, [rows, half], [0, half])
        return rotate(lo, hi, cos, sin)

    return rotate_heads


def make_softmax_weights(dtype: DType = pl.BF16, mode: str = "round"):
    """Exponentials of scaled scores `[R, S]` minus their running maximum, `[R, 1]`, in `dtype`.

    Sum the rounded values, so that the sum agrees with what the product with the values
    uses.
    """

    @pl.inline
    def softmax_weights(scores, maximum):
        return pl.cast(pl.exp(pl.row_expand_sub(scores, maximum)), target_type=dtype, mode=mode)

    return softmax_weights


def make_causal_bias(tokens: int, heads: int, keys: int):
    """The bias for scores `[tokens * heads, keys]` that hides later keys from each token.

    Row r belongs to token `r // heads`; the first token is `offset` keys after the first key. Zero
    where the key is visible; -1e30 per key beyond, so that its exponential is zero.
    """
    ROWS, KEYS = tokens * heads, keys

    @pl.inline
    def causal_bias(offset):
        row_number = pl.cast(pl.arange(0, [1, ROWS]), target_type=pl.FP32)
        # Half a row further on, rounding cannot reach an integer.
        quotient = pl.mul(pl.add(row_number, 0.5), 1.0 / heads)
        token = pl.cast(pl.cast(quotient, pl.INT32, mode="floor"), target_type=pl.FP32)
        key = pl.cast(pl.arange(pl.cast(0 - offset, pl.INT32), [1, KEYS]), target_type=pl.FP32)
        key_rows = pl.col_expand(pl.full([ROWS, KEYS], dtype=pl.FP32, value=0.0), key)
        ahead = pl.row_expand_sub(key_rows, pl.reshape(token, [ROWS, 1]))
        return pl.mul(pl.maximum(ahead, 0.0), -1e30)

    return causal_bias


def make_gated_silu(dtype: DType = pl.BF16, mode: str = "round"):
    """`silu(gate) * up`, rounded to `dtype`."""

    @pl.inline
    def gated_silu(gate, up):
        sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
        return pl.cast(pl.mul(pl.mul(gate, sigmoid), up), target_type=dtype, mode=mode)

    return gated_silu


def make_zeros(rows: int, columns: int, dtype: DType):
    """A tile of zeros; BF16 is converted from FP32, as required by kernels of April 2026."""

    @pl.inline
    def zeros():
        return pl.full([rows, columns], dtype=pl.FP32, value=0.0)

    @pl.inline
    def narrowed_zeros():
        return pl.cast(pl.full([rows, columns], dtype=pl.FP32, value=0.0), target_type=dtype)

    return zeros if dtype is pl.FP32 else narrowed_zeros


def make_zero_fill(rows: int, columns: int, blocks: int, dtype: DType):
    """Write zeros into `blocks` adjacent blocks `[rows, columns]`, eight blocks per task."""
    zeros = make_zeros(rows, columns, dtype)

    @pl.inline
    def zero_fill(tensor):
        with pl.auto_incore():
            for ob in pl.parallel(0, blocks, chunk=8):
                tensor = pl.assemble(tensor, zeros(), [0, ob * columns])
        return tensor

    return zero_fill
