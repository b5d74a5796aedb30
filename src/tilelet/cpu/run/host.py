"""Run in Python the ops that generated code leaves to their references."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.emit.ops_host import scalar_operands, shaped_operands
from tilelet.cpu.run.native import Win, Word
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Arg, Const, Op, Value
from tilelet.ir.types import ScalarType, TensorType, TileType, box
from tilelet.ops.apply import Application, with_zeros

Shape = tuple[int, ...]


def memory_of(window: Win, dtype: DType) -> Array:
    """Return a window's elements as an array that shares its memory."""
    shape = tuple(window.reach[: window.rank])
    item = dtype.itemsize
    strides = [s * item for s in window.stride[: window.rank]]
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides)) + item
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    memory = (ctypes.c_uint8 * (high - low)).from_address(window.data + low)
    return np.ndarray(shape, dtype.numpy, memoryview(memory), -low, strides)


class HostOp:
    """One op, prepared for windows."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._application = Application(op)
        self._shaped = shaped_operands(op)
        self._scalars = scalar_operands(op)
        self._dtypes = [r.type.dtype for r in op.results if isinstance(r.type, TileType)]

    def run(self, windows: Sequence[Win], words: Sequence[Word]) -> None:
        """Compute the results into their windows; raise the catalogue's error on a fault."""
        arrays: dict[Value, Array] = {}
        valid: dict[Value, Shape] = {}
        for v, window in zip(self._shaped, windows):
            assert isinstance(v.type, (TensorType, TileType))
            arrays[v] = memory_of(window, v.type.dtype)
            valid[v] = tuple(window.valid[: window.rank])
        numbers = {v: _number(v, w) for v, w in zip(self._scalars, words)}
        taken = {v: self._application.operand(a, valid[v]) for v, a in arrays.items()}
        args = {n: _argument(a, taken, numbers) for n, a in self._op.args.items()}
        regions = {
            name: (arrays[arg].shape, valid[arg])
            for name, arg in self._op.args.items()
            if isinstance(arg, Value) and arg in arrays
        }
        if self._op.name == "dump":
            self._dump(arrays, valid, numbers)
            return
        with np.errstate(all="ignore"):
            if not self._dtypes:
                made = self._application.contents(args, regions)
                for target, array in zip(self._op.spec.writes, made):
                    value = self._op.args[target]
                    assert isinstance(value, Value)
                    arrays[value][...] = array
            else:
                results = windows[len(self._shaped) :]
                made = self._application.results(args, regions)
                for window, dtype, (array, shape, region) in zip(results, self._dtypes, made):
                    memory_of(window, dtype)[...] = with_zeros(array, shape, region)
                    window.valid[: len(region)] = region

    def _dump(
        self, arrays: dict[Value, Array], valid: dict[Value, Shape], numbers: dict[Value, Any]
    ) -> None:
        from tilelet.interp.debug import dump

        cut = {
            v: a[box(valid[v])].copy() if isinstance(v.type, TileType) else a
            for v, a in arrays.items()
        }
        values, names = self._op.args["values"], self._op.args["names"]
        assert isinstance(values, tuple)
        assert isinstance(names, tuple)
        shown = [_argument(v, cut, numbers) for v in values]
        dump([str(n) for n in names], shown, self._op.loc)


def _number(value: Value, word: Word) -> int | float | bool:
    assert isinstance(value.type, ScalarType)
    number = getattr(word, word_field(value.type.dtype))
    return bool(number) if value.type.dtype.kind == "bool" else number


def _argument(arg: Arg, arrays: dict[Value, Array], numbers: dict[Value, Any]) -> Any:
    if isinstance(arg, Value):
        return arrays[arg] if arg in arrays else numbers[arg]
    if isinstance(arg, Const):
        return arg.value
    if isinstance(arg, tuple):
        return tuple([_argument(a, arrays, numbers) for a in arg])
    return arg
