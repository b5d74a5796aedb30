"""Memory of a worker's device: resident tensors and plain bytes, at addresses of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.runtime.data.arrays import as_array, as_tensor, dtype_of


class WorkerMemory:
    """The tensors that a worker owns, by address."""

    def __init__(self) -> None:
        self._owned: dict[int, Any] = {}

    def alloc_tensor(self, shape: Sequence[int], dtype: object, init: object = None) -> Any:
        """Return a resident tensor: a torch tensor for a torch dtype, else an array."""
        element = dtype_of(dtype)
        assert element is not None, f"no element type {dtype}"
        array = np.zeros(tuple(shape), element.numpy)
        if init is not None:
            array[...] = as_array(init)
        self._owned[array.ctypes.data] = array
        return as_tensor(array) if type(dtype).__module__.startswith("torch") else array

    def malloc(self, nbytes: int) -> int:
        """Return the address of so many bytes, which are zero."""
        array = np.zeros(nbytes, np.uint8)
        self._owned[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, pointer: object) -> None:
        """Release what `alloc_tensor` or `malloc` has returned."""
        self.address(pointer, 0)
        self._owned.pop(pointer() if callable(pointer) else pointer)  # type: ignore[arg-type]

    @property
    def tensors(self) -> list[Any]:
        return list(self._owned.values())

    def owns(self, tensor: object) -> bool:
        return as_array(tensor).ctypes.data in self._owned

    def copy_to(self, dst_dev_ptr: object, src_host_ptr: int, nbytes: int) -> None:
        """Copy host memory to a tensor of this worker."""
        ctypes.memmove(self.address(dst_dev_ptr, nbytes), src_host_ptr, nbytes)

    def copy_from(self, dst_host_ptr: int, src_dev_ptr: object, nbytes: int) -> None:
        """Copy a tensor of this worker to host memory."""
        ctypes.memmove(dst_host_ptr, self.address(src_dev_ptr, nbytes), nbytes)

    def address(self, pointer: object, nbytes: int) -> int:
        """Return an address given as an integer or as a tensor's `data_ptr` method."""
        address: int = pointer() if callable(pointer) else pointer  # type: ignore[assignment]
        found = self._owned.get(address)
        if found is None or not 0 <= nbytes <= found.nbytes:
            raise ValueError(f"no tensor of this worker has {nbytes} bytes at {address:#x}")
        return address

    def clear(self) -> None:
        self._owned.clear()
