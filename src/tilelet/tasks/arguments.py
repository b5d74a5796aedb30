"""Convert the caller's arrays and numbers to arguments of the entry function."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilelet.analysis.aliases import infer_directions
from tilelet.diag.catalogue.harness import (
    ArgumentMismatch,
    ArgumentMissing,
    ArgumentUnknown,
    OverlappingOutput,
    ReadOnlyOutput,
    UnknownData,
)
from tilelet.diag.catalogue.ops import ZeroSizeDim
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Direction, Function, Program, Value
from tilelet.ir.types import ScalarType, TensorType, shape_text
from tilelet.tasks.extents import Extents
from tilelet.tasks.window import Buffer, Window, row_major, window_of_array

Argument = Array | float | bool


def bind_arguments(
    program: Program, arguments: Mapping[str, Argument], *, execute: bool
) -> list[Any]:
    """Return run-time values for the entry's parameters, in order.

    If nothing is executed, tensors of known shape may be omitted: they have no contents then.
    """
    entry = program.main
    names = [p.name for p in entry.params]
    for name in arguments:
        if name not in names:
            raise ArgumentUnknown(name, names)
    extents = Extents()
    bound: list[object] = []
    for param in entry.params:
        if param.name in arguments:
            bound.append(_bind(param, arguments[param.name], extents))
        else:
            bound.append(_without_data(param, execute))
    if execute:
        _check_outputs(program, entry, bound)
    return bound


def _bind(param: Value, given: Argument, extents: Extents) -> object:
    if isinstance(param.type, TensorType):
        return _tensor(param, param.type, given, extents)
    if isinstance(param.type, ScalarType):
        return scalar_value(param, param.type.dtype, given)
    raise ArgumentMismatch(param.name, "kind", type(given).__name__, param.type, param.loc)


def _tensor(param: Value, type_: TensorType, given: Argument, extents: Extents) -> Window:
    if not isinstance(given, np.ndarray):
        raise ArgumentMismatch(param.name, "type", type(given).__name__, type_, param.loc)
    if given.dtype != type_.dtype.numpy:
        raise ArgumentMismatch(param.name, "dtype", given.dtype, type_.dtype, param.loc)
    expected, got = shape_text(type_.shape), shape_text(given.shape)
    if len(given.shape) != len(type_.shape):
        raise ArgumentMismatch(param.name, "shape", got, expected, param.loc)
    for axis, extent in enumerate(given.shape):
        if extent == 0:
            raise ZeroSizeDim(param.loc, f"argument `{param.name}`", given.shape, axis)
    if not extents.fits(param.name, given.shape, type_.shape):
        raise ArgumentMismatch(param.name, "shape", got, expected, param.loc)
    if any(stride % given.itemsize for stride in given.strides):
        raise UnknownData(param.name, "an array whose elements overlap or are spaced unevenly")
    return window_of_array(param.name, given, type_.dtype)


def scalar_value(param: Value, dtype: DType, given: Argument) -> int | float | bool:
    """Convert a number to the parameter's type: floats are rounded, integers checked."""

    def wrong() -> ArgumentMismatch:
        what = "type" if isinstance(given, (np.ndarray, str)) else "value"
        shown = type(given).__name__ if what == "type" else given
        return ArgumentMismatch(param.name, what, shown, dtype, param.loc)

    if isinstance(given, np.ndarray):
        raise wrong()
    if dtype.is_float:
        try:
            number = float(given)
        except (TypeError, ValueError):
            raise wrong() from None
        with np.errstate(over="ignore"):
            return float(np.asarray(number).astype(dtype.numpy))
    try:
        # NumPy's bool does not implement `__index__`.
        integer = int(given) if isinstance(given, np.bool_) else operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise wrong() from None
    if dtype.kind == "bool":
        return bool(integer)
    lowest, highest = dtype.limits
    if not lowest <= integer <= highest:
        raise wrong()
    return integer


def _without_data(param: Value, execute: bool) -> Window:
    """Return a tensor without contents, which suffices for counting tasks."""
    type_ = param.type
    if execute or not isinstance(type_, TensorType):
        raise ArgumentMissing(param.name, param.loc)
    shape = tuple([d for d in type_.shape if isinstance(d, int)])
    if len(shape) != len(type_.shape):
        raise ArgumentMissing(param.name, param.loc)
    buffer = Buffer(param.name, math.prod(shape) * type_.dtype.itemsize, origin="param")
    return Window(buffer, type_.dtype, 0, shape, row_major(shape))


def _check_outputs(program: Program, entry: Function, bound: list[object]) -> None:
    """Check that output arrays are writable and that their elements do not share memory."""
    wrong = [
        (param, error)
        for param, value in zip(entry.params, bound)
        if isinstance(value, Window) and (error := _not_an_output(value)) is not None
    ]
    if not wrong:
        return
    directions = dict(zip(entry.params, infer_directions(entry, program.functions)))
    for param, error in wrong:
        if directions[param] is not Direction.In:
            raise error(param.name, param.loc)


def _not_an_output(window: Window) -> type[ReadOnlyOutput | OverlappingOutput] | None:
    data = window.buffer.data
    if data is None:
        return None
    if not data.flags.writeable:
        return ReadOnlyOutput
    return OverlappingOutput if _overlaps_itself(window) else None


def _overlaps_itself(window: Window) -> bool:
    """Return whether two elements share memory."""
    axes = sorted((abs(s), n) for s, n in zip(window.strides, window.shape) if n > 1)
    reach = 0  # extent covered by the axes with smaller strides
    for stride, extent in axes:
        if stride <= reach:
            break  # rows overlap in range, but may interleave
        reach += stride * (extent - 1)
    else:
        return False
    if axes[0][0] == 0:
        return True
    places = functools.reduce(
        lambda found, axis: (found[:, None] + axis[0] * np.arange(axis[1])).reshape(-1),
        axes,
        np.zeros(1, np.int64),
    )
    return len(np.unique(places)) < len(places)
