"""Arrays of the bench, shared by name between cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.diag.text import size_text
from tilelet.dtypes import Array
from tilelet.interp.state import available_memory
from tilelet.runtime.data.inputs import initial_array
from tilelet.runtime.data.specs import TensorSpec

_LINE = 64  # bytes: arrays are aligned to cache lines, as in other libraries
_PATTERN = 1 << 20  # random numbers that large arrays repeat
_MIN_SHARED_BYTES = 8 << 20  # bytes: smaller arrays get the data of their program's harness
_MAX_MEMORY_SHARE = 0.9  # share of the free memory
_WEIGHT_STD = 0.01  # keeps sums over thousands of inputs near variance one
_CACHE_STD = 0.2


class Data:
    """Memory by name; a smaller array of the same name is a part of it."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._pattern = rng.standard_normal(_PATTERN, dtype=np.float32)
        self._arrays: dict[str, tuple[tuple[object, float], Array]] = {}

    def normal(self, name: str, shape: Sequence[int], dtype: Any, std: float = 1.0) -> Array:
        """Return normal numbers with a standard deviation; zeros if it is 0."""
        count = math.prod(shape)
        kind = (np.dtype(dtype), std)
        known, flat = self._arrays.get(name, (None, np.empty(0)))
        if known != kind or flat.size < count:
            self._arrays.pop(name, None)
            del flat  # before allocating the new one
            _check_memory(name, count * kind[0].itemsize)
            flat = _aligned_array(count, kind[0])
            self._fill(flat, std)
            self._arrays[name] = (kind, flat)
        return flat[:count].reshape(tuple(shape))

    def _fill(self, flat: Array, std: float) -> None:
        pattern = (self._pattern * np.float32(std)).astype(flat.dtype)
        for start in range(0, flat.size, _PATTERN):
            part = flat[start : start + _PATTERN]
            part[:] = pattern[: part.size]

    def arguments(self, specs: Sequence[TensorSpec], context: int) -> dict[str, Array]:
        """Return the arguments of a model program; every sequence has `context` positions."""
        return {spec.name: self._argument(spec, context) for spec in specs}

    def _argument(self, spec: TensorSpec, context: int) -> Array:
        dtype = spec.element.numpy
        if spec.name == "seq_lens":
            return np.full(spec.shape, context, dtype)
        if spec.init_value is not None and spec.nbytes < _MIN_SHARED_BYTES:
            return initial_array(spec)
        return self.normal(spec.name, spec.shape, dtype, _std(spec))

    def clear(self) -> None:
        """Release all memory."""
        self._arrays.clear()


def _std(spec: TensorSpec) -> float:
    """Return shared numbers for all weights, and zeros for outputs."""
    if spec.init_value is None:
        return 0.0
    if spec.name.endswith("_cache"):
        return _CACHE_STD
    return _WEIGHT_STD if spec.name.startswith("w") else 1.0


def _check_memory(name: str, nbytes: int) -> None:
    """Refuse allocations beyond the available memory, which would end the process."""
    available = available_memory()
    if available is not None and nbytes > _MAX_MEMORY_SHARE * available:
        raise MemoryError(f"`{name}` needs {size_text(nbytes)}, {size_text(available)} are free")


def _aligned_array(count: int, dtype: np.dtype[Any]) -> Array:
    raw = np.empty(count * dtype.itemsize + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + count * dtype.itemsize].view(dtype)
