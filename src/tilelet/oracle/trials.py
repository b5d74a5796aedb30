"""Further inputs for a case, drawn from the values that its specs gave."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.dtypes import Argument, Arguments
from tilelet.ir.core import Program
from tilelet.ir.types import SymDim, TensorType
from tilelet.runtime.data.arrays import to_double

Array = NDArray[Any]

LARGE = 128.0
"""Factor on the magnitude of much larger inputs: of normal ones, exponentials overflow in FP32."""


@dataclass(frozen=True)
class Trial:
    """Inputs by parameter name; `about` says how they differ from the reference's."""

    about: str
    arguments: Arguments


def is_float(array: Array) -> bool:
    """Return whether elements are floating-point numbers, those of `ml_dtypes` included."""
    return array.dtype.kind not in "iub"


def _rng(about: str, name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{about} {name}".encode()))


def _spread(array: Array) -> tuple[float, float]:
    values = to_double(array)
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _shuffle(array: Array, rng: np.random.Generator) -> Array:
    """Other values of the same distribution; constants get a distribution first."""
    low, high = _spread(array)
    if is_float(array) and low == high:
        scale = abs(low) or 1.0
        return (low + scale * rng.uniform(-0.5, 0.5, array.shape)).astype(array.dtype)
    return rng.permutation(array.reshape(-1)).reshape(array.shape)


def _wide_values(array: Array, rng: np.random.Generator) -> Array:
    """Larger magnitudes, both signs, and exact zeros."""
    if not is_float(array):
        low, high = (int(v) for v in _spread(array))
        return rng.integers(low, high, array.shape, endpoint=True).astype(array.dtype)
    low, high = _spread(array)
    scale = 2.0 * (max(abs(low), abs(high)) or 1.0)
    drawn = rng.uniform(-scale, scale, array.shape)
    drawn[rng.random(array.shape) < 0.1] = 0.0
    return drawn.astype(array.dtype)


def _edges(array: Array, rng: np.random.Generator) -> Array:
    """Only the ends of the range, zero and one."""
    low, high = _spread(array)
    if not is_float(array):
        return rng.choice([low, high], array.shape).astype(array.dtype)
    return rng.choice([low, high, 0.0, -0.0, 1.0, -1.0], array.shape).astype(array.dtype)


def _lowest(array: Array, rng: np.random.Generator) -> Array:
    low, _ = _spread(array)
    return np.full_like(array, low) if not is_float(array) else _shuffle(array, rng)


def _highest(array: Array, rng: np.random.Generator) -> Array:
    _, high = _spread(array)
    return np.full_like(array, high) if not is_float(array) else _shuffle(array, rng)


def _large(array: Array, rng: np.random.Generator) -> Array:
    """Numbers so large that an exponential overflows, unless it is guarded; the same integers."""
    if not is_float(array):
        return array
    low, high = _spread(array)
    scale = LARGE * (max(abs(low), abs(high)) or 1.0)
    return rng.uniform(-scale, scale, array.shape).astype(array.dtype)


def _halved(array: Array, rng: np.random.Generator) -> Array:
    return array // 2 if not is_float(array) else _shuffle(array, rng)


_DRAWS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "other values of the same distribution": _shuffle,
    "larger values of both signs, with zeros": _wide_values,
    "the ends of the range, zeros and ones": _edges,
    "the lowest integers": _lowest,
    "the highest integers": _highest,
    "integers halved": _halved,
    "much larger values": _large,
}

_OF_INTEGERS = (_lowest, _highest, _halved)


def trials(program: Program, given: Arguments, fresh: Collection[str]) -> Iterator[Trial]:
    """Yield further inputs; whether they are legal is for the reference to show."""
    inputs: dict[str, Array] = {
        n: a for n, a in given.items() if isinstance(a, np.ndarray) and n not in fresh
    }
    integers = [n for n, a in inputs.items() if not is_float(a)]
    for about, draw in _DRAWS.items():
        if draw in _OF_INTEGERS and not integers:
            continue
        drawn = {n: draw(a, _rng(about, n)) for n, a in inputs.items()}
        yield Trial(about, {**given, **drawn})
        if integers and draw not in (*_OF_INTEGERS, _large):
            kept = {n: inputs[n] for n in integers}
            yield Trial(f"{about}, the same integers", {**given, **drawn, **kept})
    yield from _other_scalars(given)
    yield from _other_lengths(program, given)


def _other_scalars(given: Arguments) -> Iterator[Trial]:
    for name, value in given.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            yield Trial(f"`{name}` one less", {**given, name: value - 1})


def _other_lengths(program: Program, given: Arguments) -> Iterator[Trial]:
    """Resize the axes of symbolic extent: shorter by one, and about half as long."""
    axes: dict[SymDim, list[tuple[str, int]]] = {}
    for param in program.main.params:
        if isinstance(param.type, TensorType) and param.name in given:
            for axis, extent in enumerate(param.type.shape):
                if isinstance(extent, SymDim):
                    axes.setdefault(extent, []).append((param.name, axis))
    for symbol, places in axes.items():
        name, axis = places[0]
        extent = np.shape(given[name])[axis]
        for length in dict.fromkeys((extent - 1, extent // 2 + 1)):
            if 0 < length < extent:
                resized = dict(given)
                for tensor, at in places:
                    resized[tensor] = np.take(resized[tensor], range(length), axis=at)
                yield Trial(f"`{symbol.name}` = {length}", resized)


def noise(given: Arguments, fresh: list[str]) -> dict[str, Argument]:
    """Return the arguments with outputs that look as if an earlier run had written them."""
    left = {n: _left_over(np.asarray(given[n]), _rng("noise", n)) for n in fresh if n in given}
    return {**given, **left}


def _left_over(array: Array, rng: np.random.Generator) -> Array:
    if is_float(array):
        return rng.uniform(100.0, 101.0, array.shape).astype(array.dtype)
    return rng.integers(60, 100, array.shape).astype(array.dtype)
