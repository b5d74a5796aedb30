"""matmul.c against numerics/matmul.py, bit for bit."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu import clib
from tests.cpu.clib import CODES, Array, address, build, same_bits, special_fp32

from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, INT8, UINT8, DType
from tilelet.numerics import matmul

SOURCE = """
#include "matmul.c"
#include "pair_kernels.c"
const int64_t scratch_bytes = TL_MATMUL_SCRATCH_BYTES;
int takes_pairs(const tl_matmul_args *x) { return is_paired(x); }
int takes_b_in_place(const tl_matmul_args *x) { return is_in_place(x); }
int64_t block_rows(const tl_matmul_args *x) { return block_at(x, 0, 0, 0).kc; }
int64_t block_columns(const tl_matmul_args *x) { return block_at(x, 0, 0, 0).cols; }
const char *next_b(const workspace *work) { return work->ahead.guess; }
int is_next_fed(const workspace *work) { return work->fed == work->ahead.guess; }
void prefer(int order) {
    for (int i = 0; i < ORDERS; i++) readings.cost[i] = i == order ? 1 : 2;
}
"""

# Besides the machine's own build: BF16 pairs by an instruction emulated in C, and by one with
# another order of additions, which must not be used.
BUILDS = {
    **clib.BUILDS,
    "dot": (*clib.BUILDS["native"], "-DTL_EMULATE_DOT=1"),
    "dot backwards": (*clib.BUILDS["native"], "-DTL_EMULATE_DOT=2"),
}

FLOATS = (FP32, BF16, FP16, FP8E4M3FN, FP8E5M2)
INTEGERS = (INT8, UINT8)


class Arguments(ctypes.Structure):
    """tl_matmul_args"""

    _fields_ = (
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p),
        ("lda", ctypes.c_int64), ("ldb", ctypes.c_int64),
        ("c", ctypes.c_void_p), ("ldc", ctypes.c_int64),
        ("parts", ctypes.c_void_p), ("part_columns", ctypes.c_int64),
        ("start", ctypes.c_void_p), ("ld_start", ctypes.c_int64),
        ("then", ctypes.c_void_p),
        ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
        ("a_type", ctypes.c_uint8), ("b_type", ctypes.c_uint8),
        ("a_trans", ctypes.c_uint8), ("b_trans", ctypes.c_uint8),
    )  # fmt: skip


def scratch(library: ctypes.CDLL) -> Array:
    size = ctypes.c_int64.in_dll(library, "scratch_bytes").value
    raw = np.full(size + 64, 0xFF, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size]


@dataclass(frozen=True)
class Stored:
    """A matrix as a window of a wider one, possibly transposed in memory."""

    window: Array
    is_transposed: bool
    dtype: DType

    @property
    def value(self) -> Array:
        return np.ascontiguousarray(self.window.T if self.is_transposed else self.window)

    @property
    def ld(self) -> int:
        return self.window.strides[0] // self.window.itemsize


def stored(value: Array, dtype: DType, is_transposed: bool = False, pad: int = 0) -> Stored:
    inner = value.T if is_transposed else value
    wide = np.ones((inner.shape[0], inner.shape[1] + pad), dtype.numpy)
    wide[:, pad // 2 : pad // 2 + inner.shape[1]] = inner
    return Stored(wide[:, pad // 2 : pad // 2 + inner.shape[1]], is_transposed, dtype)


def repeated(matrix: Stored) -> Stored:
    """The first row in memory in place of all others, as `torch.Tensor.expand` stores it."""
    window = np.broadcast_to(matrix.window[:1], matrix.window.shape)
    return Stored(window, matrix.is_transposed, matrix.dtype)


def random_matrix(shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        return rng.integers(0, 256, shape, dtype=np.uint8).view(dtype.numpy)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype.numpy)


ONE_ROW_TYPES = [(BF16, BF16), (FP32, FP32), (FP32, BF16), (INT8, INT8), (UINT8, INT8)]


def small_integers(shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    """Return small integers in the product's dtype, to start its sums from."""
    drawn = np.random.default_rng(seed).integers(-9, 9, shape)
    return drawn.astype(np.int32 if dtype in INTEGERS else np.float32)


def arguments(a: Stored, b: Stored, c: Array, start: Array | None) -> Arguments:
    k = a.window.shape[0 if a.is_transposed else 1]
    return Arguments(
        a=a.window.ctypes.data, b=b.window.ctypes.data, lda=a.ld, ldb=b.ld,
        c=c.ctypes.data, ldc=c.strides[0] // 4,
        start=None if start is None else start.ctypes.data,
        ld_start=0 if start is None else start.strides[0] // 4,
        m=c.shape[0], n=c.shape[1], k=k,
        a_type=CODES[a.dtype], b_type=CODES[b.dtype],
        a_trans=a.is_transposed, b_trans=b.is_transposed,
    )  # fmt: skip


def check(
    a: Stored, b: Stored, start: Array | None, *, in_place: bool = False, flags: str = "native"
) -> None:
    """Check one call against the contract, alone and followed by another, with guarded memory."""
    library = build(SOURCE, BUILDS[flags])
    want = matmul(a.value, b.value, None if start is None else np.ascontiguousarray(start))
    for reads_ahead in (False, True):
        around = np.full((want.shape[0] + 2, want.shape[1] + 5), 77, want.dtype)
        c = around[1:-1, 2:-3]
        if in_place:
            assert start is not None
            c[...] = start
        args = arguments(a, b, c, c if in_place else start)
        args.then = args.b if reads_ahead else None
        working = scratch(library)
        library.tl_matmul(ctypes.byref(args), address(working))
        assert same_bits(c, want)
        c[...] = 77
        assert np.all(around == 77)


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize(("a_type", "b_type"), ONE_ROW_TYPES)
def test_one_row(flags: str, a_type: DType, b_type: DType) -> None:
    """Columns at and beside whole vectors and groups of them; k at and beside a few steps; rows
    apart, and one after the other with one, two, three or four strips of vectors in turn.
    """
    apart = ((8, 1), (16, 17), (64, 15), (72, 300), (509, 16), (512, 33), (1040, 40), (2120, 19))
    in_order = ((160, 9), (64, 15), (128, 1), (192, 20), (256, 33), (512, 7), (640, 40))
    for n, k, pad in [(*size, 5) for size in apart] + [(*size, 0) for size in in_order]:
        a = stored(random_matrix((1, k), a_type, n), a_type, pad=3)
        b = stored(random_matrix((k, n), b_type, k), b_type, pad=pad)
        start = small_integers((1, n), b_type, seed=2)
        check(a, b, None, flags=flags)
        check(a, b, start, flags=flags)
        check(a, b, start, in_place=True, flags=flags)
        check(a, repeated(b), start, flags=flags)


dimension = st.one_of(st.integers(1, 20), st.integers(1, 150))


@settings(max_examples=120, deadline=None)
@given(
    m=dimension, n=dimension, k=st.integers(1, 300), dtype=st.sampled_from(FLOATS + INTEGERS),
    a_trans=st.booleans(), b_trans=st.booleans(), pad=st.integers(0, 9),
    begin=st.sampled_from(["zero", "start", "in place"]), seed=st.integers(0, 2**31),
    flags=st.sampled_from(["native", "dot"]), repeats=st.sampled_from(["", "", "", "a", "b", "ab"]),
)  # fmt: skip
def test_any_shape_type_and_transpose(
    m: int, n: int, k: int, dtype: DType, a_trans: bool, b_trans: bool, pad: int, begin: str,
    seed: int, flags: str, repeats: str,
) -> None:  # fmt: skip
    a = stored(random_matrix((m, k), dtype, seed), dtype, a_trans, pad)
    b = stored(random_matrix((k, n), dtype, seed + 1), dtype, b_trans, pad)
    a = repeated(a) if "a" in repeats else a
    b = repeated(b) if "b" in repeats else b
    start = None
    if begin != "zero":
        kind = np.int32 if dtype in INTEGERS else np.float32
        start = (random_matrix((m, n), FP32, seed + 2) * 1000).astype(kind)
    check(a, b, start, in_place=begin == "in place", flags=flags)


def nearly_cancelling(
    m: int, n: int, pairs: int, exponents: tuple[int, int], seed: int
) -> tuple[Array, Array]:
    """A and B in BF16 with these least exponents: each product is followed by its negative but for
    the last bits. Mantissas are few, so differences come down to products of last bits:
    x x - (x + 1) (x - 1). Some elements are zero.
    """
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, int, int], axis: int, exponent: int) -> Array:
        bits = rng.integers(129, 132, shape)
        after = (bits + rng.integers(-1, 2, shape)) * (-1 if axis == 2 else 1)
        both = np.concatenate([bits, after], axis) * rng.choice([-1, 1, 1, 0], shape)
        return np.ldexp(both.astype(np.float64), exponent - 7)

    a = draw((m, pairs, 1), 2, exponents[0]).reshape(m, -1)
    b = draw((pairs, 1, n), 1, exponents[1]).reshape(-1, n)
    with np.errstate(all="ignore"):
        return a.astype(BF16.numpy), b.astype(BF16.numpy)


@settings(max_examples=200, deadline=None)
@given(
    m=st.integers(2, 36), n=st.one_of(st.integers(1, 40), st.sampled_from([32, 64, 96])),
    pairs=st.integers(1, 6), b_trans=st.booleans(),
    a_exponent=st.integers(-126, 20),
    total=st.one_of(st.integers(-135, -105), st.integers(-114, -111)),
    starts=st.sampled_from(["zero", "products", "anything"]), seed=st.integers(0, 2**31),
    flags=st.sampled_from(["native", "dot"]),
)  # fmt: skip
def test_pairs_whose_sums_are_nearly_subnormal(
    m: int, n: int, pairs: int, b_trans: bool, a_exponent: int, total: int, starts: str, seed: int,
    flags: str,
) -> None:  # fmt: skip
    """The instruction takes subnormal numbers for zero: products lie about 2^total, and sums of
    them, or of them and where the chains start, on both sides of 2^-126.
    """
    a, b = nearly_cancelling(m, n, pairs, (a_exponent, total - a_exponent), seed)
    rng = np.random.default_rng(seed + 1)
    start = None
    if starts != "zero":
        first = a[:, :1].astype(np.float32) * b[:1].astype(np.float32)
        start = -first if starts == "products" else np.ldexp(first, rng.integers(-20, 3))
        start = (start.view(np.int32) + rng.integers(0, 3, (m, n), np.int32)).view(np.float32)
    check(stored(a, BF16), stored(b, BF16, b_trans), start, flags=flags)


@pytest.mark.parametrize("rows", [4, 20, 40])
@pytest.mark.parametrize("pad", [0, 600])
def test_subnormal_elements_are_not_taken_for_zero(rows: int, pad: int) -> None:
    """The value occurs once, in A, in B or in the start; other passes are unaffected."""
    a, b = np.ones((rows, 8), BF16.numpy), np.ones((8, 96), BF16.numpy)
    start = np.full((rows, 96), -8, np.float32)
    for operand, column in ((a, 1), (b, 1), (b, 70), (start, 33)):
        kept = operand[1, column]
        operand[1, column] = 2.0**-130
        if operand is start:
            a[1] = 0
        check(stored(a, BF16), stored(b, BF16, pad=pad), start, flags="dot")
        check(stored(a, BF16), stored(b, BF16, pad=pad), start, in_place=True, flags="dot")
        check(stored(a[1:2], BF16), stored(b, BF16), None, flags="dot")
        operand[1, column] = kept
        a[1] = 1


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (32, 64), (40, 32)])
def test_a_subnormal_element_in_rows_that_a_later_pass_takes(rows: int, columns: int) -> None:
    """A is too deep to be packed at once; in some cases each pass packs its own rows."""
    a, b = np.ones((rows, 4098), BF16.numpy), np.ones((4098, columns), BF16.numpy)
    a[-1] = 0
    a[-1, -1] = 2.0**-130
    check(stored(a, BF16), stored(b, BF16), None, flags="dot")


@pytest.mark.parametrize("flags", BUILDS)
def test_b_is_taken_from_where_it_lies(flags: str) -> None:
    """Rows at and beside whole passes, k at and beside blocks and turns, columns of some panels;
    B with and without other columns beside it.
    """
    for (m, n), k, pad in product(
        [(2, 32), (8, 64), (9, 96), (16, 256), (31, 32)], [2, 6, 62, 510, 514, 1030], [0, 40]
    ):
        a = stored(random_matrix((m, k), BF16, n), BF16, pad=3)
        b = stored(random_matrix((k, n), BF16, k), BF16, pad=pad)
        start = random_matrix((m, n), FP32, 2)
        if flags == "dot":
            args = arguments(a, b, start, None)
            library = build(SOURCE, BUILDS[flags])
            assert not library.takes_b_in_place(ctypes.byref(args))
            args.then = args.b
            assert library.takes_b_in_place(ctypes.byref(args))
        check(a, b, None, flags=flags)
        check(a, b, start, in_place=True, flags=flags)


@pytest.mark.parametrize("rows", [3, 16, 32, 33])
@pytest.mark.parametrize("k", [254, 258, 514, 1030, 5130])
def test_blocks_of_a_large_b_are_wide_with_few_rows(rows: int, k: int) -> None:
    """Sizes include the ends of blocks; A is packed at once or, if too large, block by block."""
    a = stored(random_matrix((rows, k), BF16, rows), BF16)
    b = stored(random_matrix((k, 1100), BF16, k), BF16)
    start = random_matrix((rows, 1100), FP32, 2)
    args, library = arguments(a, b, start, None), build(SOURCE, BUILDS["dot"])
    depth, width = (256, 512) if rows <= 32 and k > 512 else (512, 256)
    assert library.block_rows(ctypes.byref(args)) == min(k, depth)
    assert library.block_columns(ctypes.byref(args)) == width
    check(a, b, start, flags="dot")
    check(a, b, start, in_place=True, flags="native")


@pytest.mark.parametrize("flags", ["native", "dot"])
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_a_is_prepared_anew_for_every_call(flags: str, rows: int) -> None:
    """Products that run together pack A once; nothing of an earlier call is reused."""
    library = build(SOURCE, BUILDS[flags])
    b = stored(random_matrix((64, 32), BF16, 1), BF16)
    a = stored(random_matrix((rows, 64), BF16, 2), BF16)
    c, working = np.zeros((rows, 32), np.float32), scratch(library)
    for seed in range(3):
        a.window[...] = random_matrix((rows, 64), BF16, seed)
        args = arguments(a, b, c, None)
        calls = [
            lambda args=args: library.tl_matmul(ctypes.byref(args), address(working)),
            lambda args=args: library.tl_matmul_pieces(
                ctypes.byref(Product(args, 1, 0, 0)), address(working)
            ),
            lambda args=args: library.tl_matmul_side_by_side(
                (Product * 1)(Product(args, 1, 0, 0)), ctypes.c_int64(1), None, address(working)
            ),
        ]
        calls[seed]()
        assert same_bits(c, matmul(a.value, b.value, None))


@pytest.mark.parametrize("flags", [name for name in BUILDS if name != "dot backwards"])
@pytest.mark.parametrize("period", [1, 2, 4])
def test_the_next_block_of_a_loop_is_prefetched(flags: str, period: int) -> None:
    """Products over alternating blocks of keys and values, as in attention, from task to task: the
    next block is predicted, and no prediction changes a result.
    """
    library = build(SOURCE, BUILDS[flags])
    library.next_b.restype = ctypes.c_void_p
    block, width, task = 48, 32, 4
    tensors = [random_matrix((3 * task * block, width), BF16, seed) for seed in range(period)]
    working = scratch(library)
    guess, right, fed = None, 0, 0
    for first in (2 * task, 0):  # the second task starts elsewhere
        for i in range(first, first + task):
            for number, tensor in enumerate(tensors):
                is_transposed = number % 2 == 0
                b = Stored(tensor[i * block : (i + 1) * block], is_transposed, BF16)
                inner = width if is_transposed else block
                a = stored(random_matrix((8, inner), BF16, 9), BF16)
                c = np.zeros((8, block if is_transposed else width), np.float32)
                library.tl_matmul(ctypes.byref(arguments(a, b, c, None)), address(working))
                assert same_bits(c, matmul(a.value, b.value, None))
                right += guess == b.window.ctypes.data
                guess = library.next_b(address(working))
                fed += library.is_next_fed(address(working))
    products = 2 * task * period
    # Five without a history; in the second task the first, and the one whose two predecessors
    # belong to different tasks.
    assert right >= products - 5 - 2
    assert fed >= right - 3


def test_products_of_bf16_take_pairs_where_that_is_exact() -> None:
    a = stored(random_matrix((16, 64), BF16, 1), BF16)
    b, odd = random_matrix((64, 32), BF16, 2), random_matrix((63, 32), BF16, 3)
    c = np.zeros((16, 32), np.float32)
    a_odd = stored(random_matrix((16, 63), BF16, 4), BF16)
    for flags, takes in (("dot", 1), ("dot backwards", 0)):
        library = build(SOURCE, BUILDS[flags])
        for b_trans in (False, True):
            args = arguments(a, stored(b, BF16, b_trans), c, None)
            assert library.takes_pairs(ctypes.byref(args)) == takes
        args = arguments(a_odd, stored(odd, BF16), c, None)
        assert library.takes_pairs(ctypes.byref(args)) == 0


@pytest.mark.parametrize("flags", ["native", "dot"])
@pytest.mark.parametrize("rows", [3, 20])
def test_a_transposed_b_that_begins_between_words(flags: str, rows: int) -> None:
    a = stored(random_matrix((rows, 35), BF16, 1), BF16)
    wide = stored(random_matrix((35, 37), BF16, 2), BF16, is_transposed=True, pad=5)
    b = Stored(wide.window[:, 1:], True, BF16)
    odd = Stored(a.window[:, 1:], False, BF16)
    args = arguments(odd, b, np.zeros((rows, 37), np.float32), None)
    assert (args.k % 2, args.ldb % 2, args.b % 4) == (0, 0, 2)
    assert not build(SOURCE, BUILDS[flags]).takes_pairs(ctypes.byref(args))
    check(odd, b, None, flags=flags)


PAIRS = [*product(FLOATS, FLOATS), *product(INTEGERS, INTEGERS)]


@pytest.mark.parametrize(("a_type", "b_type"), PAIRS, ids=str)
def test_operands_of_two_types(a_type: DType, b_type: DType) -> None:
    a, b = random_matrix((7, 40), a_type, 1), random_matrix((40, 33), b_type, 2)
    for b_trans in (False, True):
        check(stored(a, a_type), stored(b, b_type, b_trans), None)


@pytest.mark.parametrize("flags", ["native", "dot"])
@pytest.mark.parametrize(
    "shape", [(257, 140, 17), (3, 129, 530), (16, 512, 256), (40, 300, 260), (60, 1030, 70)]
)
@pytest.mark.parametrize("b_trans", [False, True])
def test_more_than_one_block_of_rows_columns_and_k(
    shape: tuple[int, int, int], b_trans: bool, flags: str
) -> None:
    m, k, n = shape
    a, b = random_matrix((m, k), BF16, 3), random_matrix((k, n), BF16, 4)
    check(stored(a, BF16), stored(b, BF16, b_trans, pad=8), None, flags=flags)


@pytest.mark.parametrize("flags", BUILDS)
@pytest.mark.parametrize("b_trans", [False, True])
@pytest.mark.parametrize("dtype", [FP32, BF16, FP16], ids=str)
def test_special_values(dtype: DType, b_trans: bool, flags: str) -> None:
    """NaN, infinities, subnormals, overflow and signed zeros, in both builds."""
    with np.errstate(all="ignore"):
        a = special_fp32(11 * 38, 5).reshape(11, 38).astype(dtype.numpy)
        b = special_fp32(38 * 29, 6).reshape(38, 29).astype(dtype.numpy)
    a[:6, ::2], b[::2, :15] = 0, 1  # rows and columns that are not all NaN at the end
    start = special_fp32(11 * 29, 7).reshape(11, 29).copy()
    check(stored(a, dtype), stored(b, dtype, b_trans), start, flags=flags)
    one_row = stored(a[6:7], dtype), stored(np.ascontiguousarray(b[:, -16:]), dtype, b_trans)
    check(*one_row, np.ascontiguousarray(start[6:7, -16:]), flags=flags)


@pytest.mark.parametrize("flags", BUILDS)
def test_tiny_values_round_once(flags: str) -> None:
    """Products and sums around the smallest normal number: one rounding each, no flushing."""
    rng = np.random.default_rng(8)
    a = (rng.standard_normal((9, 50)) * 2.0**-70).astype(np.float32)
    b = (rng.standard_normal((50, 20)) * 2.0**-72).astype(np.float32)
    start = (rng.standard_normal((9, 20)) * 2.0**-140).astype(np.float32)
    check(stored(a, FP32), stored(b, FP32), start, flags=flags)


@pytest.mark.parametrize("flags", BUILDS)
def test_plain_and_wide_builds_agree_with_the_contract(flags: str) -> None:
    for dtype in (FP32, BF16, INT8):
        a, b = random_matrix((13, 150), dtype, 9), random_matrix((150, 75), dtype, 10)
        check(stored(a, dtype), stored(b, dtype), None, flags=flags)
        check(stored(a, dtype, is_transposed=True), stored(b, dtype, True), None, flags=flags)


def test_integers_wrap() -> None:
    a, b = np.full((2, 5), 255, np.uint8), np.full((5, 3), 255, np.uint8)
    start = np.full((2, 3), 2**31 - 1, np.int32)
    check(stored(a, UINT8), stored(b, UINT8), start)


def test_no_k_copies_the_start() -> None:
    library = build(SOURCE)
    start, c = random_matrix((3, 5), FP32, 11), np.ones((3, 5), np.float32)
    a, b = stored(np.ones((3, 0)), FP32, pad=1), stored(np.ones((0, 5)), FP32)
    working = scratch(library)
    library.tl_matmul(ctypes.byref(arguments(a, b, c, start)), address(working))
    assert same_bits(c, start)
    library.tl_matmul(ctypes.byref(arguments(a, b, c, None)), address(working))
    assert same_bits(c, np.zeros_like(c))


class Product(ctypes.Structure):
    """tl_product"""

    _fields_ = (
        ("args", Arguments), ("pieces", ctypes.c_int64),
        ("a_step", ctypes.c_int64), ("b_step", ctypes.c_int64),
    )  # fmt: skip


@pytest.mark.parametrize("b_trans", [False, True])
def test_pieces_of_k_change_nothing(b_trans: bool) -> None:
    library = build(SOURCE)
    m, n, k, piece = 6, 70, 240, 40
    a = stored(random_matrix((m, k), BF16, 12), BF16)
    b = stored(random_matrix((k, n), BF16, 13), BF16, b_trans)
    c, working = np.zeros((m, n), np.float32), scratch(library)
    args = arguments(a, b, c, None)
    args.k = piece
    pieces = Product(args, k // piece, 2 * piece, 2 * (piece if b_trans else piece * n))
    library.tl_matmul_pieces(ctypes.byref(pieces), address(working))
    assert same_bits(c, matmul(a.value, b.value))


def test_pieces_that_lie_apart() -> None:
    """The pieces are every second block of k of a longer matrix."""
    library = build(SOURCE)
    a_whole, b_whole = random_matrix((5, 160), FP32, 14), random_matrix((160, 20), FP32, 15)
    used = np.arange(160).reshape(4, 2, 20)[:, 0].ravel()
    want = matmul(np.ascontiguousarray(a_whole[:, used]), np.ascontiguousarray(b_whole[used]))
    a, b, c = stored(a_whole, FP32), stored(b_whole, FP32), np.zeros((5, 20), np.float32)
    args, working = arguments(a, b, c, None), scratch(library)
    args.k = 20
    library.tl_matmul_pieces(ctypes.byref(Product(args, 4, 4 * 40, 4 * 40 * 20)), address(working))
    assert same_bits(c, want)


@settings(max_examples=80, deadline=None)
@given(
    width=st.sampled_from([16, 32, 48, 64, 160, 7, 33]),
    count=st.integers(1, 11),
    odd_one=st.integers(-1, 10),
    rows=st.sampled_from([1, 2, 6, 16, 64, 65]),
    start=st.sampled_from(["zeros", "in place", "elsewhere"]),
    gaps=st.sets(st.integers(1, 7)),
    pieces=st.integers(1, 3),
    depth_of_piece=st.sampled_from([33, 64, 300]),
    dtype=st.sampled_from([BF16, FP32, INT8]),
    reads_ahead=st.booleans(),
    seed=st.integers(0, 1000),
    flags=st.sampled_from(["native", "dot"]),
)
def test_products_side_by_side(
    width: int,
    count: int,
    odd_one: int,
    rows: int,
    start: str,
    gaps: set[int],
    pieces: int,
    depth_of_piece: int,
    dtype: DType,
    reads_ahead: bool,
    seed: int,
    flags: str,
) -> None:
    """Each gets its own result, whether its columns are adjacent to the previous ones or not."""
    library = build(SOURCE, BUILDS[flags])
    depth = depth_of_piece * pieces
    widths = [width + (9 if i == odd_one else 0) for i in range(count)]
    places = np.cumsum([0, *(w + (5 if i + 1 in gaps else 0) for i, w in enumerate(widths))])
    a = stored(random_matrix((rows, depth), dtype, seed), dtype)
    whole = random_matrix((depth, int(places[-1])), dtype, seed + 1)
    result = np.int32 if dtype is INT8 else np.float32
    rng = np.random.default_rng(seed)
    products = (Product * count)()
    kept: list[Array] = []
    wanted: list[Array] = []
    for i, (at, n) in enumerate(zip(places, widths)):
        b = Stored(whole[:, at : at + n], False, dtype)
        first = rng.integers(-9, 9, (rows, n)).astype(result)
        c = first.copy()
        begin = {"zeros": None, "in place": c, "elsewhere": first}[start]
        args = arguments(a, b, c, begin)
        args.k = depth // pieces
        steps = (dtype.itemsize * args.k, dtype.itemsize * args.k * args.ldb)
        products[i] = Product(args, pieces, *steps)
        kept += [c, first]
        wanted += [matmul(a.value, b.value, None if begin is None else first), first.copy()]
    working = scratch(library)
    then = address(whole) if reads_ahead else None
    library.tl_matmul_side_by_side(products, ctypes.c_int64(count), then, address(working))
    for got, want in zip(kept, wanted):
        assert same_bits(got, want)


@pytest.mark.parametrize("flags", ["native", "dot"])
@pytest.mark.parametrize("seed", range(32))
def test_products_whose_a_begins_at_the_same_place(flags: str, seed: int) -> None:
    """A packed A is reused only for an identical operand, and only if the memory was not
    overwritten.
    """
    library = build(SOURCE, BUILDS[flags])
    rng = np.random.default_rng(seed)
    memory = random_matrix((1, 1 << 19), BF16, seed).reshape(-1)
    kinds = [
        (rows, depth, ld, is_transposed, dtype)
        for rows, depth in ((1, 64), (1, 600), (2, 64), (20, 64), (20, 63), (20, 600), (300, 64))
        for ld in (640, 700)
        for is_transposed in (False, True)
        for dtype in (BF16, FP16)
    ]
    usual = [kinds[int(rng.integers(len(kinds)))] for _ in range(2)]
    products = (Product * 24)()
    kept: list[Any] = []
    wanted: list[Array] = []
    for i in range(len(products)):
        changed = kinds[int(rng.integers(len(kinds)))]
        rows, depth, ld, is_transposed, dtype = usual[i // 6 % 2]
        respect = int(rng.integers(8))
        if respect == 0:
            rows, depth = changed[:2]
        elif respect == 1:
            ld = changed[2]
        elif respect == 2:
            is_transposed = changed[3]
        elif respect == 3:
            dtype = changed[4]
        inner = (depth, rows) if is_transposed else (rows, depth)
        seen = memory[: inner[0] * ld].reshape(inner[0], ld)[:, : inner[1]].view(dtype.numpy)
        a = Stored(seen, is_transposed, dtype)
        n, b_type = int(rng.choice([7, 32, 128, 128])), FP32 if rng.random() < 0.3 else BF16
        b = stored(random_matrix((depth, n), b_type, i), b_type, bool(rng.random() < 0.2))
        c = np.zeros((rows, n), np.float32)
        products[i] = Product(arguments(a, b, c, None), 1, 0, 0)
        kept.append((b, c))
        wanted.append(matmul(a.value, b.value, None))
    count, working = ctypes.c_int64(len(products)), scratch(library)
    library.tl_matmul_side_by_side(products, count, None, address(working))
    for (_, got), want in zip(kept, wanted):
        assert same_bits(got, want)


@pytest.mark.parametrize("flags", ["native", "dot"])
def test_rows_that_are_read_together_between_others(flags: str) -> None:
    """They use the memory that holds the packed A of the first product."""
    library = build(SOURCE, BUILDS[flags])
    a = stored(random_matrix((1, 64), BF16, 1), BF16)
    widths = (7, 128, 128, 7)
    bs = [stored(random_matrix((64, n), BF16, i), BF16) for i, n in enumerate(widths)]
    cs = [np.zeros((1, n), np.float32) for n in widths]
    products = (Product * 4)(*(Product(arguments(a, b, c, None), 1, 0, 0) for b, c in zip(bs, cs)))
    working = scratch(library)
    library.tl_matmul_side_by_side(products, ctypes.c_int64(4), None, address(working))
    for b, c in zip(bs, cs):
        assert same_bits(c, matmul(a.value, b.value, None))


@settings(max_examples=80, deadline=None)
@given(
    width=st.sampled_from([64, 128, 192, 256, 320, 512, 32, 576]),
    count=st.integers(1, 9),
    odd_one=st.sampled_from(["none", "width", "depth", "a", "apart"]),
    odd_place=st.integers(0, 8),
    start=st.sampled_from(["zeros", "in place", "elsewhere"]),
    pieces=st.integers(1, 3),
    depth=st.integers(1, 40),
    types=st.sampled_from(ONE_ROW_TYPES),
    order=st.integers(0, 1),
    flags=st.sampled_from(list(BUILDS)),
    seed=st.integers(0, 1000),
)
def test_rows_that_are_read_together(
    width: int,
    count: int,
    odd_one: str,
    odd_place: int,
    start: str,
    pieces: int,
    depth: int,
    types: tuple[DType, DType],
    order: int,
    flags: str,
    seed: int,
) -> None:
    """Products of one row with matrices whose rows are in order; one of them may be unlike the
    others: wider, of another depth, with another A, or with rows that lie apart.
    """
    library = build(SOURCE, BUILDS[flags])
    library.prefer(order)
    a_type, b_type = types
    products = (Product * count)()
    kept: list[Any] = []
    wanted: list[Array] = []
    shared = stored(random_matrix((1, depth * pieces), a_type, seed), a_type)
    for i in range(count):
        odd = odd_one if i == odd_place else "none"
        k = depth + 1 if odd == "depth" else depth
        n = width + (64 if odd == "width" else 0)
        a = shared
        if odd in ("depth", "a"):
            a = stored(random_matrix((1, k * pieces), a_type, seed + 50), a_type)
        values = random_matrix((k * pieces, n), b_type, seed + i)
        b = stored(values, b_type, pad=7 if odd == "apart" else 0)
        first = small_integers((1, n), b_type, seed=seed + i)
        c = first.copy()
        begin = {"zeros": None, "in place": c, "elsewhere": first}[start]
        args = arguments(a, b, c, begin)
        args.k = k
        products[i] = Product(args, pieces, a_type.itemsize * k, b_type.itemsize * k * args.ldb)
        kept += [c, (a, b, first)]
        wanted.append(matmul(a.value, b.value, None if begin is None else first))
    working = scratch(library)
    library.tl_matmul_side_by_side(products, ctypes.c_int64(count), None, address(working))
    for got, want in zip(kept[::2], wanted):
        assert same_bits(got, want)
