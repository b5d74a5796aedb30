"""Reductions of a tile along rows (last axis) or columns (axis -2); the axis stays, of length 1.

Order of floating-point sums and products, which fixes every rounding (bit for bit):

* `row_*`: eight lanes. Lane j combines x[j], x[j+8], x[j+16], ... in ascending order, starting from
  x[j] itself. Then lanes are combined pairwise: (s0,s4) (s1,s5) (s2,s6) (s3,s7) -> t0..t3,
  (t0,t2) (t1,t3) -> u0,u1, (u0,u1); the lower-numbered lane is the left operand. A row shorter than
  eight has fewer lanes; a pair whose second lane is missing passes its first on unchanged.
* `col_*`: rows in ascending order, starting from row 0.
* Nothing starts from a neutral element, so a sum of -0 alone is -0.
* BF16, FP16 and FP8 are widened to FP32, combined in FP32, and rounded once (`rint`) at the end;
  but `col_sum` of FP16 rounds each sum, as the device does.
* Integers wrap, in the array's own type.

Maxima and minima do not depend on the order: NaN if any element is NaN; +0 counts as greater than
-0. Arg reductions give INT32 positions; the first position wins among equals (-0 equals +0); the
first NaN, if there is one, wins over everything, for argmax and argmin alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tilelet.dtypes import FP16, Array
from tilelet.numerics.casts import dtype_of, narrow, widen

LANES = 8

_ROW, _COL = -1, -2
# Adding -0 or multiplying by 1 changes no value, not even a zero's sign.
_NEUTRAL: dict[np.ufunc, np.float32] = {np.add: np.float32(-0.0), np.multiply: np.float32(1)}


def col_sum(x: Array, in_pairs: bool = False) -> Array:
    """Return the sum of each column; FP16 sums are rounded at every step.

    in_pairs: add FP16 rows pairwise, then these sums pairwise, and so on
    """
    if dtype_of(x) is FP16:
        return _pairs(x) if in_pairs else _steps(x)
    return _fold(x, np.add, _COL)


def _steps(x: Array) -> Array:
    """Add rows sequentially, in their own type."""
    with np.errstate(all="ignore"):
        return np.add.accumulate(x, axis=_COL, dtype=x.dtype)[..., -1:, :]


def _pairs(x: Array) -> Array:
    """Add adjacent rows until one is left; an odd row joins the first pair."""
    with np.errstate(all="ignore"):
        while x.shape[_COL] > 1:
            odd = x[..., -1, :] if x.shape[_COL] % 2 else None
            x = x[..., 0 : x.shape[_COL] // 2 * 2 : 2, :] + x[..., 1::2, :]
            if odd is not None:
                x[..., 0, :] += odd
    return x.copy()


def _fold(x: Array, op: np.ufunc, axis: int) -> Array:
    dtype = dtype_of(x)
    if x.shape[axis] == 0:
        raise ValueError("cannot reduce an axis of length 0")
    with np.errstate(all="ignore"):
        if not dtype.is_float:
            return np.asarray(op.reduce(x, axis=axis, dtype=x.dtype, keepdims=True))
        # Contiguous and aligned, so that NumPy has only one traversal order.
        fp32 = np.require(widen(x), requirements=["C", "A"])
        folded = _fold_lanes(fp32, op) if axis == _ROW else fold_ascending(fp32, op)
        return narrow(folded, dtype)


def fold_ascending(x: Array, op: np.ufunc) -> Array:
    """Combine the rows of a C-contiguous FP32 array in ascending order: [..., R, C] -> [..., 1, C].

    NumPy reduces an outer axis row by row into the accumulator. If rows have one element, the
    reduced axis would become the inner one, which NumPy sums pairwise; `accumulate` does not.
    """
    if x.shape[-1] == 1:
        return op.accumulate(x, axis=-2)[..., -1:, :]
    return op.reduce(x, axis=-2, keepdims=True, initial=_NEUTRAL[op])


def _fold_lanes(x: Array, op: np.ufunc) -> Array:
    length = x.shape[-1]
    whole = length - length % LANES
    if whole:
        blocks = np.ascontiguousarray(x[..., :whole]).reshape(*x.shape[:-1], -1, LANES)
        lanes = fold_ascending(blocks, op)[..., 0, :]
        tail = x[..., whole:]
        lanes[..., : length - whole] = op(lanes[..., : length - whole], tail)
    else:
        lanes = x.copy()
    for width in (4, 2, 1):
        paired = max(lanes.shape[-1] - width, 0)
        lanes[..., :paired] = op(lanes[..., :paired], lanes[..., width:])
        lanes = lanes[..., :width]
    return lanes


def _extreme(x: Array, op: np.ufunc, axis: int) -> Array:
    dtype = dtype_of(x)
    if not dtype.is_float:
        return np.asarray(op.reduce(x, axis=axis, keepdims=True))
    fp32 = widen(x)
    with np.errstate(all="ignore"):
        result = op.reduce(fp32, axis=axis, keepdims=True)
    zero = result == 0
    if np.any(zero):
        # The sign of zero that NumPy returns depends on the machine; here +0 is greater than -0.
        preferred, other = (0.0, -0.0) if op is np.maximum else (-0.0, 0.0)
        is_preferred = (fp32 == 0) & (np.signbit(fp32) == np.signbit(preferred))
        sign_fixed = np.where(
            np.any(is_preferred, axis=axis, keepdims=True), np.float32(preferred), np.float32(other)
        )
        result = np.where(zero, sign_fixed, result)
    return narrow(result, dtype)


def _position(x: Array, find: Callable[..., Array], axis: int) -> Array:
    values = widen(x) if dtype_of(x).is_float else x
    return np.asarray(find(values, axis=axis, keepdims=True)).astype(np.int32)


row_sum = partial(_fold, op=np.add, axis=_ROW)
row_prod = partial(_fold, op=np.multiply, axis=_ROW)
row_max = partial(_extreme, op=np.maximum, axis=_ROW)
row_min = partial(_extreme, op=np.minimum, axis=_ROW)
row_argmax = partial(_position, find=np.argmax, axis=_ROW)
row_argmin = partial(_position, find=np.argmin, axis=_ROW)
col_prod = partial(_fold, op=np.multiply, axis=_COL)
col_max = partial(_extreme, op=np.maximum, axis=_COL)
col_min = partial(_extreme, op=np.minimum, axis=_COL)
col_argmax = partial(_position, find=np.argmax, axis=_COL)
col_argmin = partial(_position, find=np.argmin, axis=_COL)
