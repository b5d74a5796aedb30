"""Matrix product with the accumulation order of the numerics contract.

Float operands, result FP32. Each output element is computed on its own:

    c = acc[m, n] (or +0)
    for k = 0, 1, ..., K-1:  c = fma(a[m, k], b[k, n], c)

where `fma` rounds the exact a*b + c once to FP32, nearest even. So a product over K may be cut
into `matmul` calls over consecutive pieces of K, each continuing from the last one's result,
without changing a bit. Integer operands (INT8, UINT8), result INT32: the exact integer sum, plus
acc, modulo 2^32.

How it is computed here. Where every product a*b is an FP32 value, the FMA is a rounded addition
of that value. That holds for FP16 and FP8 always (at most 22 significant bits, between 2^-48 and
2^32) and for BF16 (16 significant bits) as long as no product of the tile can leave FP32's
exponent range, which is looked up per call. All other operands take the second way, which works
in double.
"""

from __future__ import annotations

import math

import numpy as np

from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, INT8, UINT8, Array, DType
from tilelet.numerics.casts import dtype_of, widen
from tilelet.numerics.reductions import fold_ascending

# Elements of one output block and of its products: in FP32 (512 KiB), and in double (128 KiB, since
# that path makes several passes over its products and needs them in cache).
_BLOCK_ELEMENTS = 1 << 14
_EXACT_PRODUCTS = 1 << 17
_FMA_PRODUCTS = 1 << 14

_FP32_LOWEST_BIT = -149
_FP32_TOP = 128  # every finite FP32 value is below 2^128
_FP32_PRECISION = 24


def matmul(a: Array, b: Array, acc: Array | None = None) -> Array:
    """[..., M, K] times [..., K, N], continued from `acc` [..., M, N]; batch axes broadcast."""
    a_type, b_type = dtype_of(a), dtype_of(b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"cannot multiply matrices of shapes {a.shape} and {b.shape}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    integers = (INT8, UINT8)
    if a_type in integers and b_type in integers:
        _check_accumulator(acc, shape, np.int32)
        return _integer_product(a, b, acc)
    if not (a_type.is_float and b_type.is_float):
        raise TypeError(
            f"matmul takes two float or two 8-bit integer types, not {a_type}, {b_type}"
        )
    _check_accumulator(acc, shape, np.float32)
    out = np.zeros(shape, np.float32) if acc is None else acc.astype(np.float32, order="C")
    if not out.size or not a.shape[-1]:
        return out  # nothing to add: the valid region may be empty
    _float_product(
        np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:]),
        np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(-1, *b.shape[-2:]),
        out.reshape(-1, *shape[-2:]),
    )
    return out


def _check_accumulator(acc: Array | None, shape: tuple[int, ...], kind: type[object]) -> None:
    if acc is not None and (acc.shape != shape or acc.dtype != kind):
        raise ValueError(
            f"accumulator is {acc.dtype} {acc.shape}, the product {np.dtype(kind)} {shape}"
        )


def _integer_product(a: Array, b: Array, acc: Array | None) -> Array:
    """Compute exactly with BLAS: sums of these products are exact in FP32 up to 2^24."""
    largest = math.prod(-int(i.min) or int(i.max) for i in map(np.iinfo, (a.dtype, b.dtype)))
    exact = np.float32 if largest * a.shape[-1] <= 1 << _FP32_PRECISION else np.float64
    total = np.matmul(a.astype(exact), b.astype(exact)).astype(np.int64)
    if acc is not None:
        total += acc
    return total.astype(np.int32)


def _float_product(a: Array, b: Array, out: Array) -> None:
    """Accumulate a[i] b[i] into out[i], in blocks that bound the temporaries."""
    batches, rows, columns = out.shape
    accumulate = _accumulate_exact_products if _products_are_exact(a, b) else _accumulate_fma
    a, b = widen(a), widen(b)
    block_rows = max(1, _BLOCK_ELEMENTS // columns)
    block_batches = max(1, _BLOCK_ELEMENTS // (rows * columns))
    with np.errstate(all="ignore"):
        for i in range(0, batches, block_batches):
            batch = slice(i, i + block_batches)
            for m in range(0, rows, block_rows):
                part = (batch, slice(m, m + block_rows))
                out[part] = accumulate(a[part], b[batch], out[part])


def _chunks_of_k(a: Array, b: Array, products: int, block: Array) -> list[tuple[Array, Array]]:
    """Split operands along k into [k, i, m, 1] and [k, i, 1, n], `products` at a time."""
    by_k_a = np.ascontiguousarray(a.transpose(2, 0, 1))[..., None]
    by_k_b = np.ascontiguousarray(b.transpose(1, 0, 2))[:, :, None, :]
    step = max(1, products // block.size)
    return [(by_k_a[k : k + step], by_k_b[k : k + step]) for k in range(0, a.shape[-1], step)]


def _accumulate_exact_products(a: Array, b: Array, start: Array) -> Array:
    total = start
    chunks = _chunks_of_k(a, b, _EXACT_PRODUCTS, start)
    buffer = np.empty((len(chunks[0][0]), *start.shape), np.float32)
    for a_k, b_k in chunks:
        products = np.multiply(a_k, b_k, out=buffer[: len(a_k)])
        products[0] += total
        total = fold_ascending(products.reshape(len(products), -1), np.add).reshape(start.shape)
    return total


def _accumulate_fma(a: Array, b: Array, start: Array) -> Array:
    """Emulate FMA in double: the product of two FP32 values is exact there, the sum nearly so.

    Rounding that sum to FP32 is a second rounding. It is wrong only if the double sum was inexact
    and fell on an FP32 tie, which is too rare to check in every step: the chain is run without
    checks, then all sums are scanned, and elements with such a sum are recomputed carefully.
    """
    total = start.astype(np.float64)
    narrowed = np.empty_like(start)
    chunks = _chunks_of_k(a, b, _FMA_PRODUCTS, start)
    buffers = np.empty((2, len(chunks[0][0]), *start.shape), np.float64)
    for a_k, b_k in chunks:
        products, sums = buffers[:, : len(a_k)]
        np.multiply(a_k, b_k, out=products, dtype=np.float64)
        before = total.copy()
        for product, rounded in zip(products, sums):
            np.add(total, product, out=rounded)
            narrowed[...] = rounded
            total[...] = narrowed
        suspects = _may_round_twice(sums)
        if np.any(suspects):
            suspects[suspects] = _is_inexact(np.nonzero(suspects), products, sums, before)
            redo = np.any(suspects, axis=0)
            if np.any(redo):
                total[redo] = _careful_chain(products[:, redo], before[redo])
    return total.astype(np.float32)


def _is_inexact(places: tuple[Array, ...], products: Array, sums: Array, start: Array) -> Array:
    """Return whether double sums were rounded: operands with few bits often sum to an exact tie."""
    step, *element = places
    earlier = sums[(np.maximum(step - 1, 0), *element)].astype(np.float32).astype(np.float64)
    total = np.where(step == 0, start[tuple(element)], earlier)
    return _rounding_error(total, products[places], sums[places]) != 0


def _rounding_error(total: Array, product: Array, rounded: Array) -> Array:
    """Return `total + product - rounded` (TwoSum)."""
    from_product = rounded - total
    return (total - (rounded - from_product)) + (product - from_product)


def _may_round_twice(sums: Array) -> Array:
    """Return doubles on a tie between FP32 neighbors, or so small that ties lie elsewhere."""
    dropped_bits = sums.view(np.int64) & ((1 << 29) - 1)
    suspects = dropped_bits == 1 << 28
    tiny = np.abs(sums) < np.finfo(np.float32).tiny
    if np.any(tiny):
        suspects |= tiny & (sums != 0)
    return suspects


def _careful_chain(products: Array, start: Array) -> Array:
    """Compute the chain start + products[0] + products[1] ..., rounding each step once to FP32.

    TwoSum gives the rounding error of the double sum; an inexact sum is moved to the adjacent
    double with an odd last bit, from which narrowing to FP32 rounds as from the exact value (also
    to subnormals and to infinity, since 29 or more bits are dropped).
    """
    total = start
    for product in products:
        rounded = total + product
        error = _rounding_error(total, product, rounded)
        bits = rounded.view(np.int64)
        away_from_zero = (error > 0) == (rounded > 0)
        # NaN and infinite sums have a NaN error, which is neither above nor below zero.
        move = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
        bits += np.where(move, np.where(away_from_zero, 1, -1), 0)
        total = rounded.astype(np.float32).astype(np.float64)
    return total


def _products_are_exact(a: Array, b: Array) -> bool:
    a_bits, a_low, a_top = _significance(a)
    b_bits, b_low, b_top = _significance(b)
    return (
        a_bits + b_bits <= _FP32_PRECISION
        and a_low + b_low >= _FP32_LOWEST_BIT
        and a_top + b_top <= _FP32_TOP
    )


_FIXED_SIGNIFICANCE: dict[DType, tuple[int, int, int]] = {
    FP32: (24, -149, 128),
    FP16: (11, -24, 16),
    FP8E4M3FN: (4, -9, 9),
    FP8E5M2: (3, -16, 16),
}


def _significance(x: Array) -> tuple[int, int, int]:
    """Return (p, low, top): each finite x is a multiple of 2^low below 2^top with p bits."""
    dtype = dtype_of(x)
    if dtype is not BF16:
        return _FIXED_SIGNIFICANCE[dtype]
    magnitude = x.view(np.uint16) & np.uint16(0x7FFF)
    # Zeros wrap around to the maximum: they have no lowest bit.
    smallest = int((magnitude - np.uint16(1)).min()) + 1
    mantissa_bits, bias = 7, 127
    low = max(smallest >> mantissa_bits, 1) - bias - mantissa_bits
    top = (int(magnitude.max()) >> mantissa_bits) - bias + 1
    return mantissa_bits + 1, low, top
