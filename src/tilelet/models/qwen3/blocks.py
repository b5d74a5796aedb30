"""Pieces that several Qwen3 programs share, written once and spliced in where they are called.

Each `make_*` function fixes the sizes and gives a `@pl.inline` function. Calls of those that
compute must stand in a scope; `make_zero_fill` brings its own.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import DType


def make_rms_scale(columns: int, eps: float, *, faulty: bool = False):
    """What RMSNorm multiplies a row with, from the sum of the squares of its `columns` numbers.

    `faulty` leaves it at mean(x^2) + eps instead of the reciprocal of its square root: the mistake
    that a public program made together with its golden, kept to show that ours notices it.
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

    @pl.inline
    def rmsnorm(x, weight, target, row):
        """Normalise rows `row`... of `x` into `target`, from its row 0."""
        square_sum = pl.full([1, rows], dtype=pl.FP32, value=0.0)
        for kb in pl.range(BLOCKS):
            piece = load(x, row, kb * k_chunk)
            chunk_sum = pl.row_sum(pl.mul(piece, piece))
            square_sum = pl.add(square_sum, pl.reshape(chunk_sum, [1, rows]))
        scale = pl.reshape(row_scale(square_sum), [rows, 1])
        for kb in pl.range(BLOCKS):
            k0 = kb * k_chunk
            gamma = pl.slice(weight, [1, k_chunk], [0, k0])
            scaled = pl.col_expand_mul(pl.row_expand_mul(load(x, row, k0), scale), gamma)
            target = pl.assemble(target, pl.cast(scaled, target_type=dtype, mode=mode), [0, k0])
        return target

    return rmsnorm


def make_weight(k_chunk: int, out_chunk: int, int8_as: DType | None = None):
    """How a block of a weight is loaded, and what is done with the sum of its products.

    A weight in INT8 is a pair: the numbers, which are widened to `int8_as` (all of them are exact
    there), and a factor for each column.
    """

    @pl.inline
    def block(w, k0, column):
        return pl.slice(w, [k_chunk, out_chunk], [k0, column])

    WIDE = int8_as or pl.FP32

    @pl.inline
    def widened(w, k0, column):
        numbers, _ = w
        narrow = pl.slice(numbers, [k_chunk, out_chunk], [k0, column])
        return pl.cast(narrow, target_type=WIDE)

    @pl.inline
    def unchanged(acc, w, column):
        return acc

    @pl.inline
    def scaled(acc, w, column):
        _, factors = w
        return pl.col_expand_mul(acc, pl.slice(factors, [1, out_chunk], [0, column]))

    return (block, unchanged) if int8_as is None else (widened, scaled)


def make_projection(
    rows: int,
    k_chunk: int,
    out_chunk: int,
    k_blocks: int,
    *,
    stage: int = 1,
    int8_as: DType | None = None,
):
    """One `[rows, out_chunk]` block of `x @ w`, accumulated on chip over `k_blocks` chunks of K.

    With `stage` above 1 the next chunks are loaded while one is multiplied. `int8_as` as for
    `make_weight`.
    """
    block, finished = make_weight(k_chunk, out_chunk, int8_as)

    @pl.inline
    def first(x, w, row, column):
        return pl.matmul(
            pl.slice(x, [rows, k_chunk], [row, 0]), block(w, 0, column), out_dtype=pl.FP32
        )

    @pl.inline
    def following(acc, x, w, row, column, k0):
        return pl.matmul_acc(acc, pl.slice(x, [rows, k_chunk], [row, k0]), block(w, k0, column))

    @pl.inline
    def project(x, w, row, column):
        acc = first(x, w, row, column)
        for kb in pl.range(1, k_blocks):
            acc = following(acc, x, w, row, column, kb * k_chunk)
        return finished(acc, w, column)

    @pl.inline
    def project_pipelined(x, w, row, column):
        acc = first(x, w, row, column)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            acc = following(acc, x, w, row, column, kb * k_chunk)
        return finished(acc, w, column)

    return project if stage == 1 else project_pipelined


def make_two_projections(
    rows: int,
    k_chunk: int,
    out_chunk: int,
    k_blocks: int,
    stage: int,
    int8_as: DType | None = None,
):
    """A block of `x @ w` and one of `x @ w2`: each chunk of `x` is loaded once for both."""
    block, finished = make_weight(k_chunk, out_chunk, int8_as)

    @pl.inline
    def project_two(x, w, w2, row, column, column2):
        x_chunk = pl.slice(x, [rows, k_chunk], [row, 0])
        w_chunk = block(w, 0, column)
        acc = pl.matmul(x_chunk, w_chunk, out_dtype=pl.FP32)
        w2_chunk = block(w2, 0, column2)
        acc2 = pl.matmul(x_chunk, w2_chunk, out_dtype=pl.FP32)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            w_chunk = block(w, k0, column)
            acc = pl.matmul_acc(acc, x_chunk, w_chunk)
            w2_chunk = block(w2, k0, column2)
            acc2 = pl.matmul_acc(acc2, x_chunk, w2_chunk)
        return finished(acc, w, column), finished(acc2, w2, column2)

    return project_two


def make_split_projection(
    name: str,
    rows: int,
    inner: int,
    outputs: int,
    split: int,
    k_chunk: int,
    out_chunk: int,
    stage: int,
):
    """`x @ w` with the inner dimension cut into `split` parts: more, shorter, tasks.

    The products of the parts come one below the other: `[split * rows, outputs]`, to be added up.
    Each task depends only on its part of `x`, so the first can start before all of `x` is there.
    """
    PART = inner // split
    if PART * split != inner or PART % k_chunk:
        wanted = f"{split} times a multiple of `k_chunk`, {k_chunk}"
        raise BadTile("the inner dimension of a product", inner, wanted)
    project = make_projection(rows, k_chunk, out_chunk, PART // k_chunk, stage=stage)

    @pl.inline
    def split_projection(x, w, row):
        parts = pl.create_tensor([split * rows, outputs], dtype=pl.FP32)
        for part in pl.parallel(split):
            x_part = pl.slice(x, [rows, PART], [row, part * PART])
            for n0 in pl.parallel(0, outputs, out_chunk):
                w_part = pl.slice(w, [PART, out_chunk], [part * PART, n0])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint=name):
                    acc = project(x_part, w_part, 0, 0)
                parts = pl.assemble(parts, acc, [part * rows, n0])
        return parts

    return split_projection


def make_add_parts(rows: int, columns: int, split: int, stride: int):
    """Adds a block of each part of a split projection; parts are `stride` rows apart."""

    @pl.inline
    def add_parts(first, parts, row, column):
        total = first
        for part in pl.range(split):
            block = pl.slice(parts, [rows, columns], [row + part * stride, column])
            total = pl.add(total, block)
        return total

    return add_parts


def make_rope(half: int, rows: int = 1):
    """RoPE by halves, of rows given as two halves `[R, half]`.

    Tables are `[rows, 2 * half]`: one position for all rows, or one for each.
    """

    @pl.inline
    def by_one_position(part, table):
        return pl.col_expand_mul(part, table)

    @pl.inline
    def by_each_position(part, table):
        return pl.mul(part, table)

    turned = by_one_position if rows == 1 else by_each_position

    @pl.inline
    def rotate(lo, hi, cos, sin):
        cos_lo = pl.slice(cos, [rows, half], [0, 0])
        cos_hi = pl.slice(cos, [rows, half], [0, half])
        sin_lo = pl.slice(sin, [rows, half], [0, 0])
        sin_hi = pl.slice(sin, [rows, half], [0, half])
        rotated_lo = pl.sub(turned(lo, cos_lo), turned(hi, sin_lo))
        rotated_hi = pl.add(turned(hi, cos_hi), turned(lo, sin_hi))
        return rotated_lo, rotated_hi

    return rotate


def make_rope_heads(rows: int, half: int, table_rows: int = 1):
    """RoPE of whole rows `[rows, 2 * half]`, a head or several of the same position each."""
    rotate = make_rope(half, table_rows)

    @pl.inline
    def rotate_heads(x, cos, sin):
        lo = pl.slice(x, [rows, half], [0, 0])
        hi = pl.slice(x, [rows, half], [0, half])
        rotated_lo, rotated_hi = rotate(lo, hi, cos, sin)
        return pl.concat(rotated_lo, rotated_hi)

    return rotate_heads


def make_softmax_step(dtype: DType = pl.BF16, mode: str = "round"):
    """One block of online softmax.

    Takes scaled scores `[R, S]` and the running maximum and sum `[R, 1]`. Gives the exponentials in
    `dtype` and the same numbers in FP32 (rounded before they are summed, so that the sum agrees
    with what the second product sees), the factor by which what was summed so far shrinks, and the
    new maximum and sum.
    """

    @pl.inline
    def softmax_step(scores, mi, li):
        mi_new = pl.maximum(mi, pl.row_max(scores))
        alpha = pl.exp(pl.sub(mi, mi_new))
        p = pl.cast(pl.exp(pl.row_expand_sub(scores, mi_new)), target_type=dtype, mode=mode)
        p_fp32 = pl.cast(p, target_type=pl.FP32)
        li_new = pl.add(pl.mul(li, alpha), pl.row_sum(p_fp32))
        return p, p_fp32, alpha, mi_new, li_new

    return softmax_step


def make_causal_bias(tokens: int, heads: int, keys: int):
    """What to add to scores `[tokens * heads, keys]` so that no token sees a later one.

    Row r belongs to token `r // heads`; the first token is `offset` keys after the first key. Zero
    where the key may be seen; -1e30 per key beyond, which leaves nothing of an exponential.
    """
    ROWS = tokens * heads

    @pl.inline
    def causal_bias(offset):
        row = pl.cast(pl.arange(0, [1, ROWS]), target_type=pl.FP32)
        # Half a row further on, no rounding can reach a whole number.
        quotient = pl.mul(pl.add(row, 0.5), 1.0 / heads)
        token = pl.cast(pl.cast(quotient, pl.INT32, mode="floor"), target_type=pl.FP32)
        key = pl.cast(pl.arange(0 - offset, [1, keys]), target_type=pl.FP32)
        key_rows = pl.col_expand(pl.full([ROWS, keys], dtype=pl.FP32, value=0.0), key)
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
    """A tile of zeros; BF16 is made from FP32, as kernels of April 2026 had to."""

    @pl.inline
    def zeros():
        return pl.full([rows, columns], dtype=pl.FP32, value=0.0)

    @pl.inline
    def narrowed_zeros():
        return pl.cast(pl.full([rows, columns], dtype=pl.FP32, value=0.0), target_type=dtype)

    return zeros if dtype is pl.FP32 else narrowed_zeros


def make_zero_fill(rows: int, columns: int, blocks: int, dtype: DType):
    """Zeros into `blocks` blocks `[rows, columns]` side by side, eight blocks per task."""
    zeros = make_zeros(rows, columns, dtype)

    @pl.inline
    def zero_fill(tensor):
        with pl.auto_incore():
            for ob in pl.parallel(0, blocks, chunk=8):
                tensor = pl.assemble(tensor, zeros(), [0, ob * columns])
        return tensor

    return zero_fill
