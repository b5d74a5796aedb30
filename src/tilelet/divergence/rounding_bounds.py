"""Carry a double and a rounding error bound alongside every number of a run.

The doubles follow the program's ops without its rounding; the bound grows with every op, by its
element type and by the length of its sums. A statement whose result differs from its double by more
than the bound does not round to nearest, or overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.divergence.record import Trace, is_tensor_load, writes_tensor
from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, Array, DType
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.ir.core import Op, Program, Value
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, TileType, box
from tilelet.numerics.casts import as_computable
from tilelet.ops.apply import with_zeros
from tilelet.tasks.window import Shape, TileValue, Window

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]

_ROUNDING = {FP32: 2.0**-24, FP16: 2.0**-11, BF16: 2.0**-8, FP8E4M3FN: 2.0**-4, FP8E5M2: 2.0**-3}
_FUNCTION_ULPS = 4.0
"""Assumed error of functions other than + - * /, in ulps."""
_SLACK = 1.01

UNARY: Mapping[str, Unary] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "recip": lambda x: 1.0 / x,
    "sin": np.sin,
    "cos": np.cos,
    "relu": lambda x: np.maximum(x, 0.0),
}
BINARY: Mapping[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
FOLDS: Mapping[str, Callable[..., Array]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}


@dataclass(frozen=True)
class Wide:
    """Values in double, and bounds on the program's deviation from them."""

    value: Array
    bound: Array


@dataclass(frozen=True)
class Violation:
    """A statement whose result is further from its double than rounding to nearest allows.

    before, after  relative L2 error of its operands and of its result
    index          worst element of the tile, with its value and its double
    """

    event: int
    kind: str
    before: float
    after: float
    index: tuple[int, ...]
    actual: float
    wide: float
    bound: float


def double_function(name: str) -> Callable[..., Array] | None:
    """Return the function on doubles for an elementwise op of one or two arrays."""
    if name in UNARY:
        return UNARY[name]
    stem = name
    for prefix in ("part_", "row_expand_", "col_expand_"):
        stem = stem.removeprefix(prefix)
    return BINARY.get(stem) or BINARY.get(stem.removesuffix("s"))


def unit(dtype: DType) -> float:
    """Return the unit roundoff of a type, or 0 if it does not round."""
    return _ROUNDING.get(dtype, 0.0)


class WideTrace(Trace):
    """A trace with doubles; with `element=np.float32` everything is carried in FP32."""

    def __init__(
        self, program: Program, element: Any = np.float64, limit: float = math.inf
    ) -> None:
        super().__init__(program, limit)
        self._element = element
        self._tiles: dict[int, Wide] = {}
        self._memory: dict[int, tuple[int, Wide]] = {}
        self.violations: list[Violation] = []
        self.errors: dict[int, float] = {}

    # The observer

    def observe(self, low: Lowering, op: Op) -> Step:
        if writes_tensor(op):
            return self._store(low, op)
        step = super().observe(low, op)
        if not op.results or not isinstance(op.results[0].type, TileType):
            return step
        result = low.slot(op.results[0])
        several = len(op.results) > 1
        getters = {name: low.get(arg) for name, arg in op.args.items()}
        loads = is_tensor_load(op)

        def wide(frame: Frame) -> None:
            step(frame)
            number = len(self.events) - 1
            tile: TileValue = frame[result]
            args = {name: get(frame) for name, get in getters.items()}
            window = self.events[number].window
            if not several:
                made = self._loaded(tile, window) if loads else self._made(op, args, tile)
                self._enter(op, number, tile, args, made)

        return wide

    def _store(self, low: Lowering, op: Op) -> Step:
        step = super().observe(low, op)
        source = op.args.get("source", op.args.get("tile"))
        get = low.get(source) if isinstance(source, Value) else None
        atomic = op.args.get("atomic") is not None and "Add" in str(op.args["atomic"])

        def store(frame: Frame) -> None:
            step(frame)
            window = self.events[-1].window
            if window is None or not window.dtype.is_float:
                return
            value = get(frame) if get is not None else None
            mine = self._of(value) if isinstance(value, TileValue) else None
            there = self._view(window)
            if there is None:
                return
            if mine is None or not isinstance(value, TileValue) or 0 in window.shape:
                there.value[...] = as_computable(window.array).astype(self._element)
                there.bound[...] = 0.0
                return
            part = box(value.valid)
            stored = mine.value[part].reshape(window.shape)
            bound = mine.bound[part].reshape(window.shape)
            if atomic:
                stored, bound = there.value + stored, there.bound + bound
            there.value[...] = stored
            there.bound[...] = bound + unit(window.dtype) * np.abs(stored)

        return store

    # Memory

    def _view(self, window: Window) -> Wide | None:
        """Return the doubles of a window, or None if its memory is viewed as another type."""
        item = window.dtype.itemsize
        known = self._memory.get(window.buffer.id)
        if known is None:
            count = max(window.buffer.nbytes // item, 1)
            value = np.full(count, np.nan, self._element)
            if window.buffer.data is not None and window.buffer.origin == "param":
                # Nothing has written here before, so these are the caller's contents.
                value[...] = as_computable(window.buffer.data.view(window.dtype.numpy)).astype(
                    self._element
                )
            known = self._memory[window.buffer.id] = item, Wide(value, np.zeros(count))
        if known[0] != item:
            return None
        return Wide(*(_strided_view(flat, window) for flat in (known[1].value, known[1].bound)))

    def memory(self, window: Window) -> Wide | None:
        """Return the doubles and bounds of a window."""
        return self._view(window) if window.dtype.is_float else None

    def output(self, window: Window) -> Array | None:
        """Return the doubles of a window."""
        found = self.memory(window)
        return None if found is None else found.value.copy()

    # Values

    def _of(self, tile: TileValue) -> Wide | None:
        return self._tiles.get(id(tile))

    def _exact(self, data: Array) -> Wide:
        value = as_computable(data).astype(self._element)
        return Wide(value, np.zeros(value.shape))

    def _loaded(self, tile: TileValue, window: Window | None) -> Wide | None:
        if window is None or not window.dtype.is_float or tile.data.size != _size(window.shape):
            return None
        there = self._view(window)
        if there is None or window.reach != window.shape:
            return None
        swap = tile.data.shape != there.value.shape
        value, bound = there.value.copy(), there.bound.copy()
        if swap:
            value, bound = np.swapaxes(value, -1, -2), np.swapaxes(bound, -1, -2)
        if value.shape != tile.data.shape:
            return None
        return Wide(
            with_zeros(value, tile.data.shape, tile.valid),
            with_zeros(bound, tile.data.shape, tile.valid),
        )

    def _made(self, op: Op, args: Mapping[str, object], tile: TileValue) -> Wide | None:
        type_ = op.results[0].type
        assert isinstance(type_, TileType)
        if not type_.dtype.is_float:
            return None
        try:
            if op.name == "cast":
                return self._cast(op, args, type_.dtype)
            function = double_function(op.name)
            if function is not None:
                return self._elementwise(op, function, args, tile, type_.dtype)
            if Trait.FOLD in op.spec.traits:
                return self._fold(op, args, tile)
            if Trait.GEMM in op.spec.traits:
                return self._product(op, args, tile)
            if Trait.ARITHMETIC not in op.spec.traits and op.spec.reference is not None:
                return self._moved(op, args, tile)
        except (TypeError, ValueError, KeyError, IndexError):
            return None
        return None

    def _operand(self, arg: object) -> Wide:
        if isinstance(arg, TileValue):
            return self._of(arg) or self._exact(arg.data)
        # A number takes the tile's type, of which FP32 is the widest.
        return self._exact(np.asarray(arg, np.float64).astype(np.float32))

    def _cast(self, op: Op, args: Mapping[str, object], to: DType) -> Wide | None:
        source = args["x"]
        if not isinstance(source, TileValue):
            return None
        x = self._operand(source)
        value = op.args["x"]
        if isinstance(value, Value) and not _is_float(value):
            return self._exact(source.data)
        return Wide(x.value, x.bound + unit(to) * np.abs(x.value))

    def _elementwise(
        self,
        op: Op,
        function: Callable[..., Array],
        args: Mapping[str, object],
        tile: TileValue,
        dtype: DType,
    ) -> Wide:
        names = list(op.args)[: 1 if op.name in UNARY else 2]
        operands = [self._operand(args[name]) for name in names]
        values = [o.value for o in operands]
        made = function(*values)
        bound = np.zeros(made.shape)
        for i, operand in enumerate(operands):
            if operand.bound.any():
                bound = bound + _reaction(function, values, i, operand.bound, made)
        ulps = _FUNCTION_ULPS if op.name in UNARY else 1.0
        bound = _SLACK * bound + ulps * max(unit(dtype), 2.0**-24) * np.abs(made)
        return _cut_to_valid(made, bound, tile)

    def _fold(self, op: Op, args: Mapping[str, object], tile: TileValue) -> Wide | None:
        source = args["x"]
        axis = op.spec.reduces
        function = FOLDS.get(op.name.rpartition("_")[2])
        if not isinstance(source, TileValue) or axis is None or function is None:
            return None
        x, part = self._operand(source), box(source.valid)
        value, bound = x.value[part], x.bound[part]
        made = function(value, axis=axis, keepdims=True)
        if function is np.sum:
            length = value.shape[axis]
            sums = np.sum(np.abs(value), axis=axis, keepdims=True)
            total = np.sum(bound, axis=axis, keepdims=True) + length * 2.0**-24 * sums
        else:
            total = np.max(bound, axis=axis, keepdims=True)
        type_ = op.results[0].type
        assert isinstance(type_, TileType)
        total = total + unit(type_.dtype) * np.abs(made)
        return _pad_with_zeros(made, total, tile)

    def _product(self, op: Op, args: Mapping[str, object], tile: TileValue) -> Wide | None:
        sides: list[Wide] = []
        for name, flag in (("lhs", "a_trans"), ("rhs", "b_trans")):
            source = args[name]
            if not isinstance(source, TileValue):
                return None
            whole, part = self._operand(source), box(source.valid)
            value, bound = whole.value[part], whole.bound[part]
            if op.args.get(flag):
                value, bound = np.swapaxes(value, -1, -2), np.swapaxes(bound, -1, -2)
            sides.append(Wide(value, bound))
        a, b = sides
        made = a.value @ b.value
        sizes = np.abs(a.value) @ np.abs(b.value)
        length = a.value.shape[-1] + 1
        bound = a.bound @ np.abs(b.value) + np.abs(a.value) @ b.bound + a.bound @ b.bound
        acc = args.get("acc")
        if isinstance(acc, TileValue) and not _starts_over(op, args):
            before, part = self._operand(acc), box(acc.valid)
            made = made + before.value[part]
            bound = bound + before.bound[part]
            sizes = sizes + np.abs(before.value[part])
        type_ = op.results[0].type
        assert isinstance(type_, TileType)
        bound = bound + length * 2.0**-24 * sizes + unit(type_.dtype) * np.abs(made)
        return _pad_with_zeros(made, bound, tile)

    def _moved(self, op: Op, args: Mapping[str, object], tile: TileValue) -> Wide | None:
        """Apply an op that only moves numbers to the doubles, using its reference."""
        if op.spec.takes_result_type or not any(isinstance(a, TileValue) for a in args.values()):
            return None
        assert op.spec.reference is not None
        made: list[Array] = []
        for part in ("value", "bound"):
            given: dict[str, object] = {
                name: getattr(self._operand(a), part) if isinstance(a, TileValue) else a
                for name, a in args.items()
            }
            if op.spec.takes_valid:
                given["valid"] = {n: a.valid for n, a in args.items() if isinstance(a, TileValue)}
            made.append(op.spec.reference(**given))
        # Padding values are exact.
        bound = np.where(np.isfinite(made[0]), np.abs(made[1]), 0.0)
        return _cut_to_valid(made[0], bound, tile)

    # Violations

    def _enter(
        self, op: Op, number: int, tile: TileValue, args: Mapping[str, object], made: Wide | None
    ) -> None:
        if not _is_float(op.results[0]):
            return
        if made is None or made.value.shape != tile.data.shape:
            self._tiles[id(tile)] = self._exact(tile.data)
            return
        self._tiles[id(tile)] = made
        part = box(tile.valid)
        actual, wide, bound = (
            x[part] for x in (as_computable(tile.data).astype(np.float64), made.value, made.bound)
        )
        difference = np.abs(actual - wide)
        dtype = op.results[0].type.dtype  # type: ignore[union-attr]
        tiny = _smallest(dtype)
        over = (difference > _SLACK * bound + tiny) & np.isfinite(wide)
        over |= ~np.isfinite(actual) & np.isfinite(wide) & (np.abs(wide) < 1e300)
        over |= _rounds_far(op, args, tile)[part]
        over &= ~np.isnan(wide)
        self.errors[number] = _relative_distance(actual, wide)
        if not over.any() or self._element is not np.float64:
            return
        ratio = np.nan_to_num(difference / (bound + tiny), nan=np.inf)
        excess = np.where(over, np.maximum(ratio, 0.0), -1.0)
        flat = int(np.argmax(excess))
        index = tuple(int(i) for i in np.unravel_index(flat, actual.shape))
        before = [
            _relative_distance(as_computable(a.data).astype(np.float64), self._operand(a).value)
            for a in args.values()
            if isinstance(a, TileValue) and a.data.dtype.kind not in "iub"
        ]
        self.violations.append(
            Violation(
                number,
                _kind(op, float(actual[index])),
                max(before, default=0.0),
                self.errors[number],
                index,
                float(actual[index]),
                float(wide[index]),
                float(bound[index]),
            )
        )
        # Reset the bound, so that later statements are judged by their own error only.
        whole = np.zeros(tile.data.shape)
        whole[part] = np.where(np.isfinite(difference), difference, 0.0)
        self._tiles[id(tile)] = Wide(made.value, np.maximum(made.bound, whole))


def _reaction(
    function: Callable[..., Array], values: list[Array], which: int, bound: Array, made: Array
) -> Array:
    """Return the change of the result when one operand changes by its bound, either way."""
    largest = np.zeros(made.shape)
    for sign in (1.0, -1.0):
        moved = [*values]
        moved[which] = values[which] + sign * bound
        largest = np.maximum(largest, np.abs(function(*moved) - made))
    return largest


def _rounds_far(op: Op, args: Mapping[str, object], tile: TileValue) -> Array:
    """Return the elements that a cast moved further than to the nearest value."""
    source, type_ = args.get("x"), op.results[0].type
    from_float = isinstance(op.args.get("x"), Value) and _is_float(op.args["x"])  # type: ignore[arg-type]
    if op.name != "cast" or not from_float or not isinstance(source, TileValue):
        return np.zeros(tile.data.shape, np.bool_)
    assert isinstance(type_, TileType)
    given = as_computable(source.data).astype(np.float64)
    moved = np.abs(as_computable(tile.data).astype(np.float64) - given)
    return moved > _SLACK * unit(type_.dtype) * np.abs(given) + _smallest(type_.dtype)


def _is_float(value: Value) -> bool:
    type_ = value.type
    return isinstance(type_, TileType | ScalarType) and type_.dtype.is_float


def _kind(op: Op, actual: float) -> str:
    if np.isnan(actual):
        return "undefined read"
    if np.isinf(actual):
        return "overflow"
    return "rounding mode" if "mode" in op.args else "real error"


def _smallest(dtype: DType) -> float:
    """Return the absolute rounding error near zero, where values of the type are sparse."""
    return 2.0**-24 if dtype is FP16 else 2.0**-126


def _relative_distance(actual: Array, wide: Array) -> float:
    keep = np.isfinite(actual) & np.isfinite(wide)
    norm = float(np.linalg.norm(wide[keep]))
    return float(np.linalg.norm((actual - wide)[keep])) / norm if norm else 0.0


def _strided_view(flat: Array, window: Window) -> Array:
    item = flat.dtype.itemsize
    strides = tuple([s * item for s in window.strides])
    return np.ndarray(window.reach, flat.dtype, flat, window.offset * item, strides)


def _size(shape: Shape) -> int:
    return int(np.prod(shape))


def _starts_over(op: Op, args: Mapping[str, object]) -> bool:
    return "init_cond" in op.args and op.args["init_cond"] is not None and bool(args["init_cond"])


def _cut_to_valid(value: Array, bound: Array, tile: TileValue) -> Wide:
    shape = tile.data.shape
    if value.shape != shape:
        value, bound = np.broadcast_to(value, shape), np.broadcast_to(bound, shape)
    return Wide(with_zeros(value, shape, tile.valid), with_zeros(bound, shape, tile.valid))


def _pad_with_zeros(value: Array, bound: Array, tile: TileValue) -> Wide:
    """Pad results of the valid parts with zeros."""
    shape = tile.data.shape
    whole = np.zeros(shape), np.zeros(shape)
    part = box(tile.valid)
    for into, made in zip(whole, (value, bound)):
        into[part] = made.reshape(into[part].shape)
    return Wide(*whole)
