from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.numerics.exact import Array, same, same_bits

from tilelet import numerics as nm
from tilelet.dtypes import BF16, FP8E5M2, FP16, FP32, DType


def values(shape: tuple[int, ...], dtype: DType = FP32, seed: int = 0) -> Array:
    """Magnitudes so mixed that any other order of additions gives another result."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    return x.astype(np.float32).astype(dtype.numpy)


Step = Callable[[np.float32, np.float32], np.float32]


def lanes_by_hand(row: Array, step: Step) -> np.float32:
    lanes: list[np.float32 | None] = [None] * 8
    for position, v in enumerate(row):
        lane = lanes[position % 8]
        lanes[position % 8] = np.float32(v) if lane is None else step(lane, np.float32(v))
    while len(lanes) > 1:
        half = len(lanes) // 2
        pairs = zip(lanes[:half], lanes[half:])
        lanes = [p if q is None else step(p, q) for p, q in pairs]  # type: ignore[arg-type]
    assert lanes[0] is not None
    return lanes[0]


def ascending_by_hand(column: Array, step: Step) -> np.float32:
    total = np.float32(column[0])
    for v in column[1:]:
        total = step(total, np.float32(v))
    return total


OPS = {
    "sum": lambda p, q: np.float32(p + q),
    "prod": lambda p, q: np.float32(p * q),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [*range(1, 27), 64, 100, 128, 777])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_row_order(op: str, length: int, rows: int) -> None:
    x = values((rows, length), seed=length)
    if op == "prod":
        x = x / np.abs(x).max() + np.float32(1)
    expected = np.array([[lanes_by_hand(r, OPS[op])] for r in x], dtype=np.float32)
    same_bits(getattr(nm, f"row_{op}")(x), expected)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (300, 1), (300, 2), (40, 3), (16, 64), (9, 200)])
def test_column_order(op: str, shape: tuple[int, int]) -> None:
    x = values(shape, seed=3)
    if op == "prod":
        x = x / np.abs(x).max() + np.float32(1)
    expected = np.array([[ascending_by_hand(c, OPS[op]) for c in x.T]], dtype=np.float32)
    same_bits(getattr(nm, f"col_{op}")(x), expected)


def test_order_does_not_depend_on_memory_layout_or_batching() -> None:
    x = values((3, 60, 50))
    for reduce in (nm.row_sum, nm.col_sum):
        whole = reduce(x)
        same_bits(whole, np.stack([reduce(part) for part in x]))
        same_bits(reduce(np.asfortranarray(x)), whole)
        same_bits(reduce(np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)), whole)
        wide = np.zeros((3, 60, 100), np.float32)
        wide[..., ::2] = x
        same_bits(reduce(wide[..., ::2]), whole)
        unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
        assert not unaligned.flags.aligned
        same_bits(reduce(unaligned.reshape(x.shape)), whole)


def test_negative_zero_survives() -> None:
    x = np.full((2, 11), -0.0, np.float32)
    for reduce in (nm.row_sum, nm.col_sum, nm.row_max, nm.col_min, nm.row_min, nm.col_max):
        assert np.signbit(reduce(x)).all()


@pytest.mark.parametrize("dtype", [BF16, FP16, FP8E5M2], ids=str)
def test_small_floats_accumulate_in_fp32_and_round_once(dtype: DType) -> None:
    x = (values((6, 90)) / 1000).astype(dtype.numpy)
    for name in ("row_sum", "col_sum"):
        if name == "col_sum" and dtype is FP16:
            continue
        reduce = getattr(nm, name)
        same_bits(reduce(x), reduce(x.astype(np.float32)).astype(dtype.numpy))
    ones = np.ones((1, 4096), BF16.numpy)  # in BF16 a running sum of ones would stop at 256
    assert nm.row_sum(ones).astype(float).tolist() == [[4096]]


def test_column_sums_of_fp16_are_rounded_at_every_step() -> None:
    ones = np.ones((3001, 2), np.float16)
    assert nm.col_sum(ones).tolist() == [[2048, 2048]]  # 2048 + 1 is 2048 in FP16
    assert nm.col_sum(ones, in_pairs=True).tolist() == [[3000, 3000]]
    for rows in (1, 2, 5, 7, 32):
        x = (values((rows, 9)) / 1000).astype(np.float16)
        steps = x[:1]
        for row in x[1:]:
            steps = steps + row
        same_bits(nm.col_sum(x), steps)
    a, b, c, d, e = (x := (values((5, 9)) / 1000).astype(np.float16))
    same_bits(nm.col_sum(x, in_pairs=True), (((a + b) + e) + (c + d))[np.newaxis])


def test_integer_sums_wrap_in_their_own_type() -> None:
    x = np.full((2, 3), 100, np.int8)
    assert nm.row_sum(x).tolist() == [[44], [44]]
    assert nm.col_sum(x).tolist() == [[-56, -56, -56]]
    assert nm.row_sum(x).dtype == np.int8
    assert nm.row_prod(np.int32([[1 << 20, 1 << 20, 3]])).tolist() == [[0]]
    big = np.full((1, 4), 2**62, np.int64)
    assert nm.row_sum(big).tolist() == [[0]]


def test_maxima_and_minima_order_nan_and_zeros() -> None:
    nan, inf = math.nan, math.inf
    x = np.float32(
        [
            [1, 5, -3],
            [-0.0, 0.0, -1],
            [0.0, -0.0, 1],
            [nan, 1, inf],
            [-inf, -inf, -inf],
            [-0.0, -2, -1],
        ]
    )
    same(nm.row_max(x), np.array([[5], [0.0], [1], [nan], [-inf], [-0.0]]))
    same(nm.row_min(x), np.array([[-3], [-1], [-0.0], [nan], [-inf], [-2]]))
    for dtype in (FP32, BF16, FP16):
        turned = x.T.astype(dtype.numpy)
        same_bits(nm.col_max(turned), nm.row_max(x).T.astype(dtype.numpy))
        same_bits(nm.col_min(turned), nm.row_min(x).T.astype(dtype.numpy))
    integers = np.int16([[3, -7, 9], [0, 0, -1]])
    assert nm.row_max(integers).tolist() == [[9], [0]]
    assert nm.col_min(integers).tolist() == [[0, -7, -1]]
    assert nm.col_min(integers).dtype == np.int16


@pytest.mark.parametrize("length", [2, 7, 16, 33, 100])
def test_one_zero_of_the_other_sign_among_many(length: int) -> None:
    negative = np.where(np.eye(length), np.float32(0.0), np.float32(-0.0)).astype(np.float32)
    assert not np.signbit(nm.row_max(negative)).any()
    assert not np.signbit(nm.col_max(negative)).any()
    assert np.signbit(nm.row_min(-negative)).all()
    assert np.signbit(nm.col_min(-negative)).all()


def test_arg_reductions_take_the_first_and_prefer_nan() -> None:
    nan = math.nan
    x = np.float32([[1, 5, 5, -3], [-0.0, 0.0, -0.0, 0.0], [2, nan, 9, nan], [4, 4, 4, 4]])
    assert nm.row_argmax(x).tolist() == [[1], [0], [1], [0]]
    assert nm.row_argmin(x).tolist() == [[3], [0], [1], [0]]
    for dtype in (FP32, BF16, FP16):
        turned = x.T.astype(dtype.numpy)
        assert nm.col_argmax(turned).tolist() == [[1, 0, 1, 0]]
        assert nm.col_argmin(turned).tolist() == [[3, 0, 1, 0]]
        assert nm.col_argmin(turned).dtype == np.int32
    assert nm.row_argmax(np.int8([[-5, -5, -9]])).tolist() == [[0]]


def test_an_empty_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="length 0"):
        nm.row_sum(np.zeros((3, 0), np.float32))
