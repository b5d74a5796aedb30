"""Arrays of other libraries, viewed as NumPy arrays by the DLPack protocol.

`numpy.from_dlpack` does not support BF16 and FP8, so the tensor's descriptor is read here.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from typing import Any, ClassVar

import numpy as np

from tilelet import dtypes
from tilelet.dtypes import Array, DType

_CPU_DEVICES = (1, 3)  # host memory, pinned or not
_READ_ONLY = 1
# by type code and number of bits
_TYPES: dict[tuple[int, int], DType] = {
    (2, 32): dtypes.FP32,
    (2, 16): dtypes.FP16,
    (4, 16): dtypes.BF16,
    (10, 8): dtypes.FP8E4M3FN,
    (12, 8): dtypes.FP8E5M2,
    (6, 8): dtypes.BOOL,
    **{(0, bits): dtypes.by_name(f"INT{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): dtypes.by_name(f"UINT{bits}") for bits in (8, 16, 32, 64)},
}


class _Tensor(Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(Structure):
    """The managed tensor before DLPack 1.0."""

    _fields_: ClassVar = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class _Versioned(Structure):
    _fields_: ClassVar = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class _Memory:
    """The array interface of a capsule's memory; the capsule owns the memory."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self._capsule = capsule
        self.__array_interface__ = interface


def speaks_dlpack(value: object) -> bool:
    """Whether `value` supports DLPack."""
    kind = type(value)
    return hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")


def from_dlpack(value: Any) -> Array:
    """Return `value` as an array sharing its memory; TypeError for other types and devices."""
    device = int(value.__dlpack_device__()[0])
    if device not in _CPU_DEVICES:
        raise TypeError("memory of another device")
    capsule = _capsule_of(value)
    tensor, is_read_only = _describe(capsule)
    dtype = _TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeError(f"elements of DLPack type {tensor.code}, {tensor.bits} bits")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = None
    if tensor.strides:
        strides = tuple(s * dtype.itemsize for s in tensor.strides[: tensor.ndim])
    interface = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": np.dtype(f"u{dtype.itemsize}").str,
        "data": ((tensor.data or 0) + tensor.byte_offset, is_read_only),
    }
    return np.asarray(_Memory(capsule, interface)).view(dtype.numpy)


def _capsule_of(value: Any) -> object:
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # the library predates that argument
        return value.__dlpack__()


def _describe(capsule: object) -> tuple[_Tensor, bool]:
    """Return the tensor, and whether it is read-only."""
    api = ctypes.pythonapi
    is_valid, pointer_of = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    is_valid.argtypes, is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer_of.restype = ctypes.c_void_p
    if is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise TypeError(f"DLPack of version {managed.major}")
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    if not is_valid(capsule, b"dltensor"):
        raise TypeError("no DLPack capsule")
    return _Managed.from_address(pointer_of(capsule, b"dltensor")).tensor, False
