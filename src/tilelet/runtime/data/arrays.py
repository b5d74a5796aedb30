"""User data: NumPy arrays and torch tensors, viewed as NumPy arrays without copying.

torch is imported only if the caller wants a tensor; if the user passes one, it is already loaded.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, cast, get_origin

import numpy as np

from tilelet import dtypes
from tilelet.dtypes import Array, DType
from tilelet.numerics.casts import as_computable

# Names of our types in other libraries; `dtypes.from_numpy` knows those of NumPy.
_NAMES = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "FP8E4M3FN",
    "float8_e5m2": "FP8E5M2",
    "float8_e8m0fnu": "FP8E8M0",
    "float4_e2m1fn_x2": "FP4",  # two per element
    "half": "FP16",
    "float": "FP32",
    "int": "INT32",
    "long": "INT64",
    "bool": "BOOL",
}

# Integer type with the bits of a type that NumPy or torch lacks.
_CARRIER = {1: np.uint8, 2: np.int16}


def loaded_torch() -> ModuleType | None:
    """The torch module if the user's script imported it."""
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def is_deferred(value: object) -> bool:
    """Whether `value` is a torch tensor whose elements are computed on first access."""
    module = sys.modules.get("tilelet.runtime.torch_scripts.deferred")
    return module is not None and isinstance(value, module.Deferred)


def is_array(value: object) -> bool:
    """Whether `value` holds elements: a NumPy array or a torch tensor."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def is_torch_dtype(value: object) -> bool:
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.dtype)


def dtype_of(value: object) -> DType | None:
    """Return the `pl` type for a `pl` dtype, torch dtype, NumPy dtype or string."""
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else ""
    if is_torch_dtype(value):
        name = str(value).removeprefix("torch.")
    if name:
        known = _NAMES.get(name, name)
        if known in {d.name for d in (*dtypes.ALL, *dtypes.MOVED)}:
            return dtypes.by_name(known)
    try:
        return dtypes.from_numpy(name or value)
    except (KeyError, TypeError):
        return None


def is_dtype(value: object) -> bool:
    """Whether `value` is a dtype object (not a string, not a number)."""
    if isinstance(value, DType | np.dtype) or is_torch_dtype(value):
        return True
    if not isinstance(value, type) or get_origin(value) is not None:  # `list[int]`, in Python 3.10
        return False
    return issubclass(value, np.generic | bool | int | float)


def as_array(value: Any) -> Array:
    """Return `value` as a NumPy array sharing its memory. A tensor must be on the CPU.

    Element types that the language lacks (FP64) are allowed. Raise TypeError if NumPy lacks the
    type, or if the elements are not stored in memory as they are.
    """
    if type(value) is np.ndarray:  # `np.ma` takes longer to import than most calls to run
        return value
    if isinstance(value, np.ma.MaskedArray):
        masked = cast("np.ma.MaskedArray[Any, Any]", value)
        if np.ma.is_masked(masked):
            raise TypeError("a masked array: use its `filled()`")
        return masked.data
    if isinstance(value, np.ndarray):
        return cast("Array", value)
    try:
        return _of_tensor(value.detach())
    except (TypeError, RuntimeError, NotImplementedError) as error:
        # other devices, sparse, nested, transformed, or lazily negated tensors
        raise TypeError(f"a torch tensor without plain memory: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _of_tensor(tensor: Any) -> Array:
    carried = _carrier_dtypes(tensor.dtype)
    if carried is None:
        return tensor.numpy()
    carrier, dtype = carried
    plain = tensor.view(carrier).numpy()
    return _unpack_fp4(plain) if dtype == dtypes.FP4.numpy else plain.view(dtype)


def _unpack_fp4(pairs: Array) -> Array:
    """Unpack bytes of two FP4 elements each into a read-only copy."""
    both = np.stack([pairs & 15, pairs >> 4], axis=-1)
    array = both.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1]).view(dtypes.FP4.numpy)
    array.flags.writeable = False
    return array


def _in_pairs(array: Array) -> Array:
    """Pack FP4 elements, two per byte."""
    codes = array.view(np.uint8)
    return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)


@functools.lru_cache
def _carrier_dtypes(torch_type: object) -> tuple[Any, np.dtype[Any]] | None:
    """Map torch dtypes that NumPy lacks to the dtypes used to view and interpret them."""
    dtype = dtype_of(torch_type)
    if dtype is None or dtype.numpy.isbuiltin == 1:
        return None
    torch = loaded_torch()
    assert torch is not None
    return (torch.uint8 if dtype.itemsize == 1 else torch.int16), dtype.numpy


def as_tensor(array: Array) -> Any:
    """Return `array` as a torch tensor sharing its memory; FP4 is copied, two elements per byte."""
    import torch

    from_numpy = cast("Any", torch).from_numpy  # has no types
    dtype = dtypes.from_numpy(array.dtype)
    if array.dtype.isbuiltin == 1:
        return from_numpy(array)
    if dtype is dtypes.FP4:
        return from_numpy(_in_pairs(array)).view(torch_dtype(dtype))
    return from_numpy(array.view(_CARRIER[dtype.itemsize])).view(torch_dtype(dtype))


def torch_dtype(dtype: DType) -> Any:
    """Return the corresponding torch dtype."""
    import torch

    for name, ours in _NAMES.items():
        if ours == dtype.name and dtype.numpy.isbuiltin != 1:
            return getattr(torch, name)
    return getattr(torch, dtype.numpy.name)


def raw(array: Array) -> Array:
    """Return the same bits in a type that NumPy can store in a file."""
    return array if array.dtype.isbuiltin == 1 else array.view(_CARRIER[array.dtype.itemsize])


def to_double(array: Array) -> Array:
    """Widen floats to double, so that differences of narrow types are accurate."""
    array = as_computable(array)
    return array if array.dtype == np.float64 else array.astype(np.float64)
