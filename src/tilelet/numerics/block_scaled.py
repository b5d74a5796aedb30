"""Block-scaled quantization: 32 consecutive numbers share a power-of-two scale.

Everything is computed in FP32. With `e` the exponent field of the group's largest magnitude, the
scale has the exponent field `e - emax` (at least 0), where `emax` is the exponent of the narrow
type's largest number. Numbers are multiplied by the reciprocal of the scale (at most 2^127),
clamped to the narrow type's range, and rounded by `rint`. The scale of a group with a NaN is NaN.
"""

from __future__ import annotations

import numpy as np

from tilelet.dtypes import FP4, FP8E4M3FN, FP8E8M0, Array, DType
from tilelet.numerics.casts import widen

GROUP = 32  # numbers that share a scale
_EMAX = {FP8E4M3FN: 8, FP4: 2}


def quantize(x: Array, to: DType) -> tuple[Array, Array]:
    """Quantize `x` in groups along its last axis; return elements in `to` and FP8E8M0 scales."""
    groups = widen(x).reshape(*x.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(axis=-1)  # NaN if any number is NaN
    field = (largest.view(np.uint32) >> 23).astype(np.int64)
    scale = np.where(np.isnan(largest), 255, np.maximum(field - _EMAX[to], 0))
    reciprocal = ((254 - np.minimum(scale, 254)) << 23).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):  # clamped next
        scaled = np.clip(groups * reciprocal[..., None], -to.largest, to.largest)
    return scaled.reshape(x.shape).astype(to.numpy), scale.astype(np.uint8).view(FP8E8M0.numpy)
