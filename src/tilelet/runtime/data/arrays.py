"""Data of the user: NumPy arrays or torch tensors, seen as NumPy arrays without copying.

torch is never imported here unless the caller asks for a tensor: when a user's value is a tensor,
torch is loaded already.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, cast, get_origin

import numpy as np

from tilelet import dtypes
from tilelet.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]

# What other libraries call our types; NumPy's own names are found by `dtypes.from_numpy`.
_NAMES = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "FP8E4M3FN",
    "float8_e5m2": "FP8E5M2",
    "float8_e8m0fnu": "FP8E8M0",
    "float4_e2m1fn_x2": "FP4",  # two of them in each element
    "half": "FP16",
    "float": "FP32",
    "int": "INT32",
    "long": "INT64",
    "bool": "BOOL",
}

# The integer type that carries the bits of types which NumPy (or torch) does not know.
_CARRIER = {1: np.uint8, 2: np.int16}


def loaded_torch() -> Any | None:
    """The torch module if the user's script imported it."""
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Whether `value` holds elements: a NumPy array or a torch tensor."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def is_torch_dtype(value: object) -> bool:
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.dtype)


def dtype_of(value: object) -> DType | None:
    """The `pl` type that `value` names: a `pl` dtype, torch dtype, NumPy dtype or string."""
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else ""
    if is_torch_dtype(value):
        name = str(value).removeprefix("torch.")
    if name:
        known = _NAMES.get(name, name)
        if known in {d.name for d in (*dtypes.ALL, *dtypes.BLOCK_SCALED)}:
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
    """`value` as a NumPy array sharing its memory. A tensor must live on the CPU.

    Element types that the language lacks (FP64) are fine here; TypeError if NumPy lacks them too,
    or if there is no memory in which the elements stand as they are.
    """
    if type(value) is np.ndarray:  # `np.ma` takes longer to import than most calls to run
        return cast("Array", value)
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
        # On another device, sparse, nested, of a function transform, with a pending negation ...
        raise TypeError(f"a torch tensor without plain memory: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _of_tensor(tensor: Any) -> Array:
    carried = _carried(tensor.dtype)
    if carried is None:
        return tensor.numpy()
    carrier, dtype = carried
    plain = tensor.view(carrier).numpy()
    return _apart(plain) if dtype == dtypes.FP4.numpy else plain.view(dtype)


def _apart(pairs: Array) -> Array:
    """FP4 elements, of bytes that hold two each: a copy, which therefore cannot be written to."""
    both = np.stack([pairs & 15, pairs >> 4], axis=-1)
    array = both.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1]).view(dtypes.FP4.numpy)
    array.flags.writeable = False
    return array


def _in_pairs(array: Array) -> Array:
    """Bytes that hold two FP4 elements each."""
    codes = array.view(np.uint8)
    return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)


@functools.lru_cache
def _carried(torch_type: Any) -> tuple[Any, np.dtype[Any]] | None:
    """How elements that torch does not show as NumPy's are shown: as what, and seen as what."""
    dtype = dtype_of(torch_type)
    if dtype is None or dtype.numpy.isbuiltin == 1:
        return None
    torch = loaded_torch()
    assert torch is not None
    return (torch.uint8 if dtype.itemsize == 1 else torch.int16), dtype.numpy


def as_tensor(array: Array) -> Any:
    """`array` as a torch tensor sharing its memory; of FP4, a copy with two elements in a byte."""
    import torch

    from_numpy = cast("Any", torch).from_numpy  # has no types
    dtype = dtypes.from_numpy(array.dtype)
    if array.dtype.isbuiltin == 1:
        return from_numpy(array)
    if dtype is dtypes.FP4:
        return from_numpy(_in_pairs(array)).view(torch_dtype(dtype))
    return from_numpy(array.view(_CARRIER[dtype.itemsize])).view(torch_dtype(dtype))


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype of the same elements."""
    import torch

    for name, ours in _NAMES.items():
        if ours == dtype.name and dtype.numpy.isbuiltin != 1:
            return getattr(torch, name)
    return getattr(torch, dtype.numpy.name)


def raw(array: Array) -> Array:
    """The same bits in a type that NumPy can store in a file."""
    return array if array.dtype.isbuiltin == 1 else array.view(_CARRIER[array.dtype.itemsize])


def to_double(array: Array) -> Array:
    """Float elements as double, so that differences of narrow types are exact enough to compare."""
    return array if array.dtype == np.float64 else array.astype(np.float64)
