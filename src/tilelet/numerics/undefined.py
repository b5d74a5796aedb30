"""Elements that were never written, and the one computation that may use them.

Unwritten float memory contains a signaling NaN: a bit pattern that no arithmetic produces, so that
unwritten elements can be told from results computed with them.
"""

from __future__ import annotations

import numpy as np

from tilelet.dtypes import BF16, FP16, FP32, HF8, Array, DType
from tilelet.numerics.casts import dtype_of
from tilelet.numerics.hifloat8 import NAN

# As FP32 all of them are 0x7fa00000.
_PATTERNS = {FP32: (0x7FA00000, np.uint32), BF16: (0x7FA0, np.uint16), FP16: (0x7D00, np.uint16)}
_BYTE = 0xCD


def poison(dtype: DType) -> Array:
    """Return the element that marks memory as never written: a NaN for floats, else bytes of 0xCD.

    BOOL has no spare value; its poison is True.
    """
    if dtype in _PATTERNS:
        bits, carrier = _PATTERNS[dtype]
        return np.asarray(bits, carrier).view(dtype.numpy)
    if dtype.bits == 4:  # FP4 has no NaN; the upper half of a byte is not part of the element
        return np.asarray(7, np.uint8).view(dtype.numpy)
    if dtype is HF8:
        return np.asarray(NAN, np.uint8).view(dtype.numpy)
    if dtype.is_float:
        return np.asarray(np.nan).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.asarray(True)
    return np.frombuffer(bytes([_BYTE]) * dtype.itemsize, dtype.numpy).reshape(())


def zero_where_undefined(result: Array, x: Array) -> Array:
    """Return `result` with zeros where `x` was never written, as `x * 0` and `x - x` are defined.

    Elementwise: results must not depend on how a program divides its data into windows.
    """
    if dtype_of(x) not in _PATTERNS:
        return result
    bits, carrier = _PATTERNS[dtype_of(x)]
    undefined = np.ascontiguousarray(x).view(carrier) == bits
    return np.where(undefined, np.zeros((), result.dtype), result) if undefined.any() else result
