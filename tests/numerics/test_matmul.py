from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.numerics.exact import Array, round_to_float, same, same_bits

from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, INT8, UINT8, DType
from tilelet.numerics import matmul


def by_hand(a: Array, b: Array, acc: Array | None = None) -> Array:
    """The contract for operands whose products are exact in FP32: ascending k."""
    total = np.zeros((len(a), b.shape[1]), np.float32) if acc is None else acc.copy()
    a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        for m in range(len(a)):
            for n in range(b.shape[1]):
                for k in range(a.shape[1]):
                    total[m, n] = total[m, n] + a[m, k] * b[k, n]
    return total


def exact_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return round_to_float(exact, FP32, "rint")


def exact_chain(a: Array, b: Array, acc: Array) -> Array:
    total = acc.astype(np.float64)
    for m in range(len(a)):
        for n in range(b.shape[1]):
            c = float(acc[m, n])
            for k in range(a.shape[1]):
                c = exact_fma(float(a[m, k]), float(b[k, n]), c)
            total[m, n] = c
    return total


def operands(shape: tuple[int, int, int], dtype: DType, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    m, k, n = shape
    return (
        rng.standard_normal((m, k)).astype(np.float32).astype(dtype.numpy),
        rng.standard_normal((k, n)).astype(np.float32).astype(dtype.numpy),
    )


SHAPES = [(1, 300, 1), (1, 100, 2), (2, 100, 1), (3, 64, 3), (1, 40, 9), (4, 33, 8), (5, 1, 7)]


@pytest.mark.parametrize("dtype", [BF16, FP16, FP8E4M3FN, FP8E5M2], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_small_floats_accumulate_in_ascending_order(
    dtype: DType, shape: tuple[int, int, int]
) -> None:
    a, b = operands(shape, dtype)
    acc = np.random.default_rng(1).standard_normal((shape[0], shape[2])).astype(np.float32)
    same_bits(matmul(a, b), by_hand(a, b))
    same_bits(matmul(a, b, acc), by_hand(a, b, acc))


def test_a_tile_larger_than_one_block_and_chunk() -> None:
    a, b = operands((40, 96, 600), BF16)
    total = np.zeros((40, 600), np.float32)
    for k in range(96):
        total += np.multiply.outer(a[:, k].astype(np.float32), b[k].astype(np.float32))
    same_bits(matmul(a, b), total)
    same_bits(matmul(a, np.ascontiguousarray(b.T).T), total)  # a transposed view, as b_trans gives
    same_bits(matmul(np.asfortranarray(a), b), total)


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_cutting_k_changes_nothing(dtype: DType) -> None:
    a, b = operands((6, 70, 5), dtype)
    acc = matmul(a[:, :13], b[:13])
    acc = matmul(a[:, 13:14], b[13:14], acc)
    same_bits(matmul(a[:, 14:], b[14:], acc), matmul(a, b))


def test_every_fp16_product_is_exact_in_fp32() -> None:
    """The claim that the FP32 addition rests on: 22 bits, and far inside FP32's exponent range."""
    codes = np.arange(0, 0x7C00, 3, dtype=np.uint16).view(np.float16)
    edge = np.uint16([1, 2, 3, 0x3FF, 0x400, 0x7BFF, 0x3C01]).view(np.float16)
    products = np.multiply.outer(edge.astype(np.float32), codes.astype(np.float32))
    doubles = np.multiply.outer(edge.astype(np.float64), codes.astype(np.float64))
    np.testing.assert_array_equal(products.astype(np.float64), doubles)


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=1, max_size=20))
def test_fp32_step_is_a_fused_multiply_add(triples: list[tuple[float, float, float]]) -> None:
    # Includes c close to -a*b, where only the product's low bits are left.
    with np.errstate(all="ignore"):
        near = [(a, b, float(np.float32(-a * b))) for a, b, _ in triples]
    triples = triples + [t for t in near if np.isfinite(t[2])]
    a, b, c = (np.float32(column).reshape(-1, 1, 1) for column in zip(*triples))
    expected = np.array([exact_fma(*t) for t in triples]).reshape(-1, 1, 1)
    np.testing.assert_array_equal(matmul(a, b, c), expected)


def near_tie_products(count: int) -> list[tuple[float, float]]:
    """Pairs with a*b = 2^47 + r in units of the last place: a power of two and, far below, a bit.

    Added to a number for which that power of two is half an ulp, the sum is so close to a tie that
    a double cannot tell.
    """
    found: list[tuple[float, float]] = []
    a = 0x800001
    while len(found) < count:
        b = -(-(1 << 47) // a)
        if b < 1 << 24 and 0 < a * b - (1 << 47) < 1 << 16:
            found.append((a * 2.0**-23, b * 2.0**-24))
        a += 2
    return found


@pytest.mark.parametrize("scale", [0, -120, -130, -140, 100], ids=str)
def test_sums_that_a_double_rounds_onto_a_tie(scale: int) -> None:
    """Inputs cover both parities of the last place, both signs, normal and subnormal results."""
    triples: list[tuple[float, float, float]] = []
    for a, b in near_tie_products(40):
        for significand in (1.0, 1 + 2.0**-23, 1.5, 2 - 2.0**-23):
            for sign in (1, -1):
                c = significand * 2.0**scale
                half_ulp = 2.0 ** (max(scale - 23, -149) - 1)
                # Return a*b*half_ulp as two FP32 factors.
                first, second = a * 2.0 ** (scale // 2 - 12), half_ulp / 2.0 ** (scale // 2 - 12)
                triples.append((first * sign, b * second, c))
                triples.append((first * sign, b * second, -c))
    held = [t for t in triples if all(float(np.float32(v)) == v for v in t)]
    assert len(held) > 100
    a, b, c = (np.float32(column).reshape(-1, 1, 1) for column in zip(*held))
    expected = np.array([exact_fma(*t) for t in held]).reshape(-1, 1, 1)
    np.testing.assert_array_equal(matmul(a, b, c), expected)
    plainly = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (plainly != expected).any(), "these sums should be wrong when rounded twice"


def test_overflow_is_decided_by_the_exact_sum() -> None:
    largest = float(np.finfo(np.float32).max)
    half_ulp = 2.0**103
    triples = [
        (2.0**60, 2.0**43, largest),  # exactly half an ulp above: to infinity
        (2.0**60, 2.0**43 * (1 - 2.0**-24), largest),  # a little less: stays
        (-(2.0**60), 2.0**43, -largest),
        (2.0**64, 2.0**64, -(2.0**127)),  # the product alone is past the range
        (2.0**64, 2.0**64, 0.0),
    ]
    a, b, c = (np.float32(column).reshape(-1, 1, 1) for column in zip(*triples))
    expected = [np.inf, largest, -np.inf, 2.0**127, np.inf]
    assert half_ulp == 2.0**60 * 2.0**43
    same(matmul(a, b, c).ravel(), np.array(expected))
    small = (x.astype(BF16.numpy) for x in (a[3:], b[3:]))
    same(matmul(*small, c[3:]).ravel(), np.array(expected[3:]))


@pytest.mark.parametrize("shape", [(1, 60, 1), (2, 40, 3)], ids=str)
def test_fp32_chains(shape: tuple[int, int, int]) -> None:
    a, b = operands(shape, FP32)
    acc = np.zeros((shape[0], shape[2]), np.float32)
    np.testing.assert_array_equal(matmul(a, b), exact_chain(a, b, acc))
    tiny = matmul(a * np.float32(2.0**-70), b * np.float32(2.0**-72))
    expected = exact_chain(a * np.float32(2.0**-70), b * np.float32(2.0**-72), acc)
    np.testing.assert_array_equal(tiny, expected)


def test_fp32_chain_over_several_chunks_with_a_suspect_in_one() -> None:
    a, b = operands((16, 200, 64), FP32)
    step_by_step = np.zeros((16, 64), np.float32)
    for k in range(200):
        step_by_step = matmul(a[:, k : k + 1], b[k : k + 1], step_by_step)
    same_bits(matmul(a, b), step_by_step)
    (x, y), *_ = near_tie_products(1)
    a[3, 150], b[150, 9] = x * 2.0**-12, y * 2.0**-12
    a[3, :150], b[:150, 9] = 0, 0
    a[3, 0], b[0, 9] = 1, 1
    a[3, 151:] = 0
    assert float(matmul(a, b)[3, 9]) == exact_fma(float(a[3, 150]), float(b[150, 9]), 1.0)
    assert float(matmul(a, b)[3, 9]) == 1 + 2.0**-23


def test_bf16_beyond_fp32s_range_keeps_exact_products() -> None:
    rng = np.random.default_rng(5)
    for exponent_a, exponent_b in ((-100, -40), (-126, -20), (-133, 1), (62, 62)):
        a = np.float32(rng.standard_normal((3, 24)) * 2.0**exponent_a).astype(BF16.numpy)
        b = np.float32(rng.standard_normal((24, 4)) * 2.0**exponent_b).astype(BF16.numpy)
        expected = exact_chain(a.astype(np.float32), b.astype(np.float32), np.zeros((3, 4)))
        np.testing.assert_array_equal(matmul(a, b), expected)
    zeros = np.zeros((2, 2), BF16.numpy)
    assert matmul(zeros, zeros).tolist() == [[0, 0], [0, 0]]


def test_signs_of_zero_and_special_values() -> None:
    negative_zero = np.full((2, 2), -0.0, np.float32)
    for dtype in (FP32, BF16, FP16):
        a, b = np.full((2, 5), -0.0, np.float32), np.ones((5, 2), np.float32)
        a, b = a.astype(dtype.numpy), b.astype(dtype.numpy)
        assert not np.signbit(matmul(a, b)).any()  # from +0
        assert np.signbit(matmul(a, b, negative_zero)).all()
        special = np.float32([[np.inf, 1], [np.nan, 1], [np.inf, -np.inf], [1, 2]])
        other = np.float32([[1], [1]])
        result = matmul(special.astype(dtype.numpy), other.astype(dtype.numpy))
        same(result, np.array([[np.inf], [np.nan], [np.nan], [3]]))


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_batches_broadcast(dtype: DType) -> None:
    rng = np.random.default_rng(6)
    a = rng.standard_normal((2, 1, 4, 20)).astype(np.float32).astype(dtype.numpy)
    b = rng.standard_normal((3, 20, 5)).astype(np.float32).astype(dtype.numpy)
    acc = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    result = matmul(a, b, acc)
    assert result.shape == (2, 3, 4, 5)
    for i in range(2):
        for j in range(3):
            same_bits(result[i, j], matmul(a[i, 0], b[j], acc[i, j]))
    many = rng.standard_normal((500, 4, 20)).astype(np.float32).astype(dtype.numpy)
    product = matmul(many, b[0])
    for i in (0, 250, 499):
        same_bits(product[i], matmul(many[i], b[0]))


@pytest.mark.parametrize("depth", [1, 100, 1000])
@pytest.mark.parametrize("kinds", [(INT8, INT8), (UINT8, UINT8), (UINT8, INT8)], ids=str)
def test_integers_are_exact(depth: int, kinds: tuple[DType, DType]) -> None:
    rng = np.random.default_rng(7)
    a, b = (
        rng.integers(np.iinfo(d.numpy).min, np.iinfo(d.numpy).max + 1, shape).astype(d.numpy)
        for d, shape in zip(kinds, ((3, depth), (depth, 4)))
    )
    a[0], b[:, 0] = np.iinfo(a.dtype).min, np.iinfo(b.dtype).max
    exact = a.astype(np.int64) @ b.astype(np.int64)
    same_bits(matmul(a, b), exact.astype(np.int32))
    acc = rng.integers(-(2**31), 2**31, (3, 4)).astype(np.int32)
    same_bits(matmul(a, b, acc), (exact + acc).astype(np.int32))


def test_the_accumulator_is_not_modified() -> None:
    a, b = operands((2, 3, 4), BF16)
    acc = np.ones((2, 4), np.float32)
    matmul(a, b, acc)
    assert (acc == 1).all()


def test_wrong_operands_are_refused() -> None:
    a, b = operands((2, 3, 4), FP32)
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\)"):
        matmul(a, a)
    with pytest.raises(TypeError, match=r"pl\.FP32, pl\.INT8"):
        matmul(a, b.astype(np.int8))
    with pytest.raises(ValueError, match="accumulator"):
        matmul(a, b, np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="accumulator"):
        matmul(a, b, np.zeros((2, 4), np.float16))


@pytest.mark.parametrize("dtype", [FP32, BF16, INT8])
def test_an_empty_inner_extent_adds_nothing(dtype: DType) -> None:
    a, b = np.zeros((4, 0), dtype.numpy), np.zeros((0, 3), dtype.numpy)
    acc = np.full((4, 3), 7, np.int32 if dtype is INT8 else np.float32)
    np.testing.assert_array_equal(matmul(a, b, acc), acc)
    np.testing.assert_array_equal(matmul(a, b), np.zeros((4, 3)))
