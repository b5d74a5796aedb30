"""Run-time values: global memory, windows of it, and tiles.

A tensor value is a `Window`: a strided box of a `Buffer`. A tile value is a `TileValue`: an
immutable array with its valid region. Scalars are plain Python numbers.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.analysis.overlap import Bytes, meet
from tilelet.diag.core import Loc
from tilelet.dtypes import Array, DType
from tilelet.ir.types import box

Shape = tuple[int, ...]

_buffer_ids = itertools.count(1)


class Buffer:
    """One allocation of global memory.

    data        its bytes; None if the run only records tasks and the control program has not
                accessed the buffer, and in the record of a task (see `without_data`)
    origin      "param" (the caller's array) or "temp"
    known       whether the contents are accurate; False if a task that was recorded but not run
                would have written here
    initial     a scalar array: the value of every element before the first write
    manual_dep  tasks are not ordered by their accesses to this buffer
    region      number of its first window in the record of tasks, or -1
    made        where the program creates it; None for the caller's arrays
    defined     which elements were written (`interp.definedness`); None if not tracked
    """

    __slots__ = (
        "_without_data",
        "data",
        "defined",
        "id",
        "initial",
        "known",
        "made",
        "manual_dep",
        "name",
        "nbytes",
        "origin",
        "region",
    )

    def __init__(
        self,
        name: str,
        nbytes: int,
        data: Array | None = None,
        origin: str = "temp",
        *,
        initial: Array | None = None,
        manual_dep: bool = False,
    ) -> None:
        self.name = name
        self.nbytes = nbytes
        self.data = data
        self.origin = origin
        self.id = next(_buffer_ids)
        self.known = data is not None or initial is not None
        self.initial = initial
        self.manual_dep = manual_dep
        self.region = -1
        self.made: Loc | None = None
        self.defined: Any = None
        self._without_data: Buffer | None = None

    @property
    def without_data(self) -> Buffer:
        """Return the same buffer (same id) without its data, so that a record keeps no memory
        alive.
        """
        if self._without_data is None:
            self._without_data = copy.copy(self)
            self._without_data.data = None
            self._without_data.known = False
        return self._without_data

    def fill(self) -> None:
        """Set every element to its initial value, allocating memory if there is none."""
        assert self.initial is not None
        if self.data is None:
            self.data = np.empty(self.nbytes, np.uint8)
        self.data.view(self.initial.dtype).fill(self.initial[()])

    def __repr__(self) -> str:
        return f"<{self.origin} {self.name!r} #{self.id}, {self.nbytes} bytes>"


class Window:
    """A strided box of a buffer; offset and strides count elements of `dtype`.

    valid   the part that loads take (`slice(..., valid_shape=)` in the control program); None for
            all
    extent  the part for which memory exists, if the window overhangs its tensor (`clamp=True`, a
            window of which only the valid part fits, or a view of the control program whose rest
            must not be accessed: there `valid` is larger); None for all of it
    region  its number in the record of tasks, or -1
    """

    __slots__ = (
        "_array",
        "buffer",
        "dtype",
        "extent",
        "offset",
        "region",
        "shape",
        "strides",
        "valid",
    )

    def __init__(
        self,
        buffer: Buffer,
        dtype: DType,
        offset: int,
        shape: Shape,
        strides: Shape,
        valid: Shape | None = None,
        extent: Shape | None = None,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.valid = valid
        self.extent = extent
        self.region = -1
        self._array: Array | None = None

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def byte_range(self) -> range:
        """Return the bytes of the buffer from the window's first element to its last."""
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        itemsize = self.dtype.itemsize
        return range(self.offset * itemsize, (self.offset + last + 1) * itemsize)

    @property
    def reach(self) -> Shape:
        """The shape of the memory that exists: `shape`, unless the window overhangs."""
        return self.shape if self.extent is None else self.extent

    @property
    def held(self) -> Shape:
        """The part that both exists and is valid."""
        if self.valid is None or self.extent is None:
            return self.valid or self.reach
        return tuple(map(min, self.valid, self.extent))

    @property
    def array(self) -> Array:
        """Return the memory as a writable NumPy view, cut to `reach`."""
        if self._array is None:
            # NumPy would take None to mean "allocate".
            assert self.buffer.data is not None
            itemsize = self.dtype.itemsize
            self._array = np.ndarray(
                self.reach,
                self.dtype.numpy,
                self.buffer.data,
                self.offset * itemsize,
                tuple(s * itemsize for s in self.strides),
            )
        return self._array

    def slice(self, offset: Sequence[int], shape: Shape) -> Window:
        """Return the box of `shape` at `offset`, which the caller has checked to lie inside."""
        start = self.offset
        for o, s in zip(offset, self.strides):
            start += o * s
        return Window(self.buffer, self.dtype, start, shape, self.strides)

    def reshape(self, shape: Shape) -> Window | None:
        """Return the same elements in row-major order as another shape, or None if that needs a
        copy.
        """
        if self.extent is not None:
            return None
        strides = reshaped_strides(self.shape, self.strides, shape)
        if strides is None:
            return None
        return Window(self.buffer, self.dtype, self.offset, shape, strides)

    def transpose(self, axis1: int, axis2: int) -> Window:
        def swap(dims: Shape) -> Shape:
            swapped = list(dims)
            swapped[axis1], swapped[axis2] = swapped[axis2], swapped[axis1]
            return tuple(swapped)

        return Window(
            self.buffer,
            self.dtype,
            self.offset,
            swap(self.shape),
            swap(self.strides),
            None if self.valid is None else swap(self.valid),
            None if self.extent is None else swap(self.extent),
        )

    @property
    def bytes(self) -> Bytes:
        """Return the bytes of the buffer that the window covers."""
        item = self.dtype.itemsize
        axes = tuple([(n, s * item) for n, s in zip(self.reach, self.strides) if n > 1])
        return Bytes(self.offset * item, item, axes)

    def overlaps(self, other: Window) -> bool:
        """Return whether the two share an element.

        Exact for boxes of one array (also through reshapes and reinterpretations that keep rows
        separate); True when in doubt.
        """
        if self.buffer.id != other.buffer.id or 0 in self.reach or 0 in other.reach:
            return False
        return meet(self.bytes, other.bytes)

    def __repr__(self) -> str:
        return f"<window of {self.name!r}: {self.dtype}{list(self.shape)} at {self.offset}>"


class TileValue:
    """An on-chip value; `data` is immutable, so tiles may share memory.

    Elements outside the origin-anchored box `valid` are zero (poison in a new `create_tile`).

    defined  which elements come from written memory (`interp.definedness`), and the origin of the
             others; None if exactly the valid ones do
    """

    __slots__ = ("data", "defined", "valid")

    def __init__(self, data: Array, valid: Shape | None = None) -> None:
        self.data = data
        self.valid: Shape = data.shape if valid is None else valid
        self.defined: Any = None

    @property
    def full(self) -> bool:
        return self.valid == self.data.shape

    @property
    def cut(self) -> Array:
        """Return only the valid region."""
        return self.data if self.valid == self.data.shape else self.data[box(self.valid)]

    def __repr__(self) -> str:
        part = "" if self.full else f", valid {list(self.valid)}"
        return f"<tile {self.data.dtype}{list(self.data.shape)}{part}>"


@functools.lru_cache(maxsize=4096)
def row_major(shape: Shape) -> Shape:
    """Return the strides, in elements, of a dense array."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def window_of_array(name: str, array: Array, dtype: DType) -> Window:
    """Return the caller's array as a window of a "param" buffer, without copying.

    The array may have any strides that are multiples of its element size, including negative ones.
    """
    item = array.dtype.itemsize
    forward = array[tuple(slice(None, None, -1 if s < 0 else 1) for s in array.strides)]
    if array.size == 0:
        memory = np.empty(0, np.uint8)
    elif array.flags.c_contiguous:
        memory = array.reshape(-1).view(np.uint8)
    else:
        span = 1 + sum((n - 1) * (s // item) for n, s in zip(forward.shape, forward.strides))
        line = np.lib.stride_tricks.as_strided(forward, (span,), (item,))
        memory = line.view(np.uint8)
    # A reversed axis starts at its far end.
    start = sum((n - 1) * (-s // item) for n, s in zip(array.shape, array.strides) if s < 0)
    strides = tuple(s // item for s in array.strides)
    buffer = Buffer(name, memory.nbytes, memory, "param")
    return Window(buffer, dtype, start, array.shape, strides)


def reshaped_strides(shape: Shape, strides: Shape, new_shape: Shape) -> Shape | None:
    """Return strides that view the same elements in row-major order as `new_shape`, or None."""
    if math.prod(shape) != math.prod(new_shape):
        return None
    if 0 in shape:
        return row_major(new_shape)
    runs = _dense_runs(shape, strides)
    result: list[int] = []
    # From the last axis: split each dense run into new axes until it is used up.
    left, step = runs.pop() if runs else (1, 1)
    for n in reversed(new_shape):
        if n > 1:
            if left == 1 and runs:
                left, step = runs.pop()
            if left % n:
                return None
            left //= n
        result.append(step)
        step *= n
    return tuple(reversed(result))


def _dense_runs(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    """Merge adjacent axes that are contiguous; return pairs (number of elements, stride)."""
    runs: list[tuple[int, int]] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * s:
            runs[-1] = (runs[-1][0] * n, s)
        else:
            runs.append((n, s))
    return runs
