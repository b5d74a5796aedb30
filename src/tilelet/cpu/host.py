"""Running in Python the ops that generated code leaves to their references."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.cpu.elements import word_field
from tilelet.cpu.native import Win, Word
from tilelet.cpu.ops_host import scalar_operands, shaped_operands
from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.dtypes import DType
from tilelet.interp.compute import padded
from tilelet.ir.core import Arg, Const, Op, Value
from tilelet.ir.faults import Fault
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.tasks.window import Array, box

Shape = tuple[int, ...]


def memory_of(window: Win, dtype: DType) -> Array:
    """The elements of a window as an array that shares its memory."""
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
    """One op, ready to be applied to windows."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self._shaped = shaped_operands(op)
        self._scalars = scalar_operands(op)
        self._results = [r for r in op.results if isinstance(r.type, TileType)]

    def run(self, windows: Sequence[Win], words: Sequence[Word]) -> None:
        """Compute the results into their windows; raises the catalogue's error on a fault."""
        try:
            self._apply(windows, words)
        except Fault as fault:
            raise fault.error(self.op.loc) from None
        except (UserError, InternalError, MemoryError):
            raise
        except Exception as error:
            problem = f"{type(error).__name__} in the reference: {error}"
            raise InternalError(problem, op=self.op.name, loc=self.op.loc) from error

    def _apply(self, windows: Sequence[Win], words: Sequence[Word]) -> None:
        spec = self.op.spec
        arrays: dict[Value, Array] = {}
        valid: dict[Value, Shape] = {}
        for v, window in zip(self._shaped, windows):
            assert isinstance(v.type, (TensorType, TileType))
            arrays[v] = memory_of(window, v.type.dtype)
            valid[v] = tuple(window.valid[: window.rank])
        numbers = {v: _number(v, w) for v, w in zip(self._scalars, words)}
        regions = {
            name: (arrays[arg].shape, valid[arg])
            for name, arg in self.op.args.items()
            if isinstance(arg, Value) and arg in arrays
        }
        args = {n: _argument(a, arrays, numbers) for n, a in self.op.args.items()}
        if self.op.name == "dump":
            self._dump(arrays, valid, numbers)
            return
        if spec.cut_to_valid:
            args = {n: a[box(regions[n][1])] if n in regions else a for n, a in args.items()}
        results = windows[len(self._shaped) :]
        shapes = [r.type.shape for r in self._results if isinstance(r.type, TileType)]
        valids = [s if spec.valid is None else spec.valid(regions, s, args) for s in shapes]
        if spec.cut_to_valid and any(0 in v for v in valids):
            made: tuple[Array, ...] = tuple([np.zeros((0,) * len(s)) for s in shapes])
        else:
            made = self._reference(args, regions)
        if not self._results:
            (target,) = spec.writes
            value = self.op.args[target]
            assert isinstance(value, Value)
            arrays[value][...] = made[0]
        for r, window, array, shape, region in zip(self._results, results, made, shapes, valids):
            assert isinstance(r.type, TileType)
            whole = (
                array
                if region == shape
                else padded(array.astype(r.type.dtype.numpy), shape, region)
            )
            memory_of(window, r.type.dtype)[...] = whole
            window.valid[: len(region)] = region

    def _dump(
        self, arrays: dict[Value, Array], valid: dict[Value, Shape], numbers: dict[Value, Any]
    ) -> None:
        from tilelet.interp.debug import dump

        cut = {
            v: a[box(valid[v])].copy() if isinstance(v.type, TileType) else a
            for v, a in arrays.items()
        }
        values, names = self.op.args["values"], self.op.args["names"]
        assert isinstance(values, tuple)
        assert isinstance(names, tuple)
        shown = [_argument(v, cut, numbers) for v in values]
        dump([str(n) for n in names], shown, self.op.loc)

    def _reference(
        self, args: dict[str, Any], regions: dict[str, tuple[Shape, Shape]]
    ) -> tuple[Array, ...]:
        spec = self.op.spec
        more: dict[str, Any] = {}
        if spec.takes_valid:
            more["valid"] = {name: region for name, (_, region) in regions.items()}
        if spec.takes_result_type:
            more["result_type"] = self.op.result.type
        assert spec.reference is not None
        with np.errstate(all="ignore"):
            made = spec.reference(**args, **more)
        return made if isinstance(made, tuple) else (made,)


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
