"""Element types of the `pl` language, and their NumPy storage types."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass

Array: TypeAlias = NDArray[Any]
"""An array of any element type."""

Argument: TypeAlias = "Array | bool | int | float"
"""What a program is run on: an array for a tensor parameter, a number for a scalar one."""

Arguments: TypeAlias = Mapping[str, Argument]
"""Arguments of a program by the names of its parameters."""


@dataclass(frozen=True, eq=False)
class DType:
    """One element type; a singleton, comparable with `is` or `==`."""

    name: str
    kind: str  # "float", "int", "uint", "bool", "index" or "task"
    bits: int
    numpy: np.dtype[np.generic]

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    def packed(self, count: int) -> int:
        """Return the bytes of `count` adjacent elements on a device, which packs 4-bit elements.

        On the host every element has a byte of its own.
        """
        return -(-count // 2) if self.bits == 4 else count * self.itemsize

    @property
    def is_integer(self) -> bool:
        """INT*, UINT* and INDEX; not BOOL."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("float", "int", "index")

    @functools.cached_property
    def limits(self) -> tuple[int, int]:
        """Return the smallest and largest value of an integer type or BOOL."""
        if self.kind == "bool":
            return 0, 1
        lowest = -(1 << (self.bits - 1)) if self.is_signed else 0
        return lowest, (1 << (self.bits - self.is_signed)) - 1

    @functools.cached_property
    def largest(self) -> float:
        """Return the largest finite value of a float type."""
        if self is HF8:
            return 2.0**15
        limits: Any = cast("Any", ml_dtypes).finfo(self.numpy)
        return float(limits.max)

    def get_bit(self) -> int:
        """Width in bits, under the name that scripts use."""
        return self.bits

    def get_byte(self) -> int:
        """Size in whole bytes, under the name that scripts use."""
        return -(-self.bits // 8)

    def __repr__(self) -> str:
        return f"pl.{self.name}"

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        return (by_name, (self.name,))


def _dt(name: str, kind: str, numpy_type: object, bits: int | None = None) -> DType:
    np_dtype = np.dtype(numpy_type)  # type: ignore[call-overload]
    if bits is None:
        bits = 1 if kind == "bool" else np_dtype.itemsize * 8
    return DType(name, kind, bits, np_dtype)


FP32 = _dt("FP32", "float", np.float32)
FP16 = _dt("FP16", "float", np.float16)
BF16 = _dt("BF16", "float", ml_dtypes.bfloat16)
FP8E4M3FN = _dt("FP8E4M3FN", "float", ml_dtypes.float8_e4m3fn)
FP8E5M2 = _dt("FP8E5M2", "float", ml_dtypes.float8_e5m2)
FP8E8M0 = _dt("FP8E8M0", "float", ml_dtypes.float8_e8m0fnu)
FP4 = _dt("FP4", "float", ml_dtypes.float4_e2m1fn, bits=4)
HF8 = _dt("HF8", "float", "V1")  # NumPy has no such type, and must not compute with the codes
INT4 = _dt("INT4", "int", ml_dtypes.int4, bits=4)
UINT4 = _dt("UINT4", "uint", ml_dtypes.uint4, bits=4)
INT8 = _dt("INT8", "int", np.int8)
INT16 = _dt("INT16", "int", np.int16)
INT32 = _dt("INT32", "int", np.int32)
INT64 = _dt("INT64", "int", np.int64)
UINT8 = _dt("UINT8", "uint", np.uint8)
UINT16 = _dt("UINT16", "uint", np.uint16)
UINT32 = _dt("UINT32", "uint", np.uint32)
UINT64 = _dt("UINT64", "uint", np.uint64)
BOOL = _dt("BOOL", "bool", np.bool_)
INDEX = _dt("INDEX", "index", np.int64)
TASK_ID = _dt("TASK_ID", "task", np.int64)

ALL: tuple[DType, ...] = (
    FP32, FP16, BF16, FP8E4M3FN, FP8E5M2,
    INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
    BOOL, INDEX, TASK_ID,
)  # fmt: skip

# Block-scaled data: moved and widened, but never computed or rounded to.
BLOCK_SCALED = (FP8E8M0, FP4)

# Data that is only moved and converted.
MOVED = (*BLOCK_SCALED, HF8, INT4, UINT4)

# Types that only some machines have.
NARROW = (FP8E4M3FN, FP8E5M2, *MOVED)

_BY_NAME = {d.name: d for d in (*ALL, *MOVED)}


def by_name(name: str) -> DType:
    """Return the dtype called `name` ("BF16"); KeyError if there is none."""
    return _BY_NAME[name]


def from_numpy(np_dtype: object) -> DType:
    """Return the dtype stored as `np_dtype`, or raise KeyError; int64 gives INT64, not INDEX."""
    wanted = np.dtype(np_dtype)  # type: ignore[call-overload]
    for d in (*ALL, *MOVED):
        if d.numpy == wanted and d.kind not in ("index", "task"):
            return d
    raise KeyError(str(np_dtype))


def promote(a: DType, b: DType) -> DType:
    """Return the result dtype of a binary op: same; float beats int; wider; signed; else left."""
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_signed != b.is_signed:
        return a if a.is_signed else b
    return a
