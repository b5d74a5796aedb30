# pyright: basic
"""Products with INT8 weights, in place of those of blocks.py.

A weight is a pair: the numbers, which are widened on chip (all of them are exact in BF16), and a
scale for each column, by which the sum of the products is multiplied.
"""

from __future__ import annotations

import tilelet.language as pl
from tilelet.dtypes import DType


def _make_block(k_chunk: int, out_chunk: int, dtype: DType):
    @pl.inline
    def block(numbers, k0, column):
        narrow = pl.slice(numbers, [k_chunk, out_chunk], [k0, column])
        return pl.cast(narrow, target_type=dtype)

    return block


def make_int8_projection(
    rows: int, k_chunk: int, out_chunk: int, k_blocks: int, *, stage: int, dtype: DType
):
    """Like `make_projection`; `dtype` is that of `x`."""
    block = _make_block(k_chunk, out_chunk, dtype)

    @pl.inline
    def project(x, w, row, column):
        numbers, factors = w
        x_chunk = pl.slice(x, [rows, k_chunk], [row, 0])
        acc = pl.matmul(x_chunk, block(numbers, 0, column), out_dtype=pl.FP32)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            acc = pl.matmul_acc(acc, x_chunk, block(numbers, k0, column))
        return pl.col_expand_mul(acc, pl.slice(factors, [1, out_chunk], [0, column]))

    return project


def make_two_int8_projections(
    rows: int, k_chunk: int, out_chunk: int, k_blocks: int, stage: int, dtype: DType
):
    """Like `make_two_projections`."""
    block = _make_block(k_chunk, out_chunk, dtype)

    @pl.inline
    def project_two(x, w, w2, row, column, column2):
        numbers, factors = w
        numbers2, factors2 = w2
        x_chunk = pl.slice(x, [rows, k_chunk], [row, 0])
        acc = pl.matmul(x_chunk, block(numbers, 0, column), out_dtype=pl.FP32)
        acc2 = pl.matmul(x_chunk, block(numbers2, 0, column2), out_dtype=pl.FP32)
        for kb in pl.pipeline(1, k_blocks, stage=stage):
            k0 = kb * k_chunk
            x_chunk = pl.slice(x, [rows, k_chunk], [row, k0])
            acc = pl.matmul_acc(acc, x_chunk, block(numbers, k0, column))
            acc2 = pl.matmul_acc(acc2, x_chunk, block(numbers2, k0, column2))
        scaled = pl.col_expand_mul(acc, pl.slice(factors, [1, out_chunk], [0, column]))
        scaled2 = pl.col_expand_mul(acc2, pl.slice(factors2, [1, out_chunk], [0, column2]))
        return scaled, scaled2

    return project_two
