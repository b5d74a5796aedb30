"""Block-scaled quantisation: 32 numbers in a row share a scale, a power of two.

Everything is computed in FP32. With `e` the exponent field of the group's largest magnitude, the
scale has the exponent field `e - emax` (at least 0), where `emax` is the exponent of the largest
number of the narrow type; numbers are multiplied by the scale's reciprocal, at most 2^127, limited
to the narrow type's largest, and rounded by `rint`. A group with a NaN has a NaN for its scale.
"""

from __future__ import annotations

import numpy as np

from tilelet.dtypes import FP4, FP8E4M3FN, FP8E8M0, DType
from tilelet.numerics.casts import Array, widen

GROUP = 32  # numbers that share a scale
_EMAX = {FP8E4M3FN: 8, FP4: 2}


def quantised(x: Array, to: DType) -> tuple[Array, Array]:
    """`x` in groups along its last axis: numbers of type `to`, and FP8E8M0 scales."""
    groups = widen(x).reshape(*x.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(axis=-1)  # NaN if any number is
    field = (largest.view(np.uint32) >> 23).astype(np.int64)
    scale = np.where(np.isnan(largest), 255, np.maximum(field - _EMAX[to], 0))
    reciprocal = ((254 - np.minimum(scale, 254)) << 23).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):  # limited next
        scaled = np.clip(groups * reciprocal[..., None], -to.largest, to.largest)
    return scaled.reshape(x.shape).astype(to.numpy), scale.astype(np.uint8).view(FP8E8M0.numpy)
