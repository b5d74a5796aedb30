"""Data-dependent control of a program, and inputs that vary it.

Trip counts, branches, offsets and valid extents may come from scalar parameters, from elements
that the program reads, or from extents of the arguments. A rewriting that is correct for the values
of one run may be wrong for others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.dtypes import Array
from tilelet.ir.core import Direction, Program, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, SymDim, TensorType

INTEGER_TRIALS = 16
"""Number of input sets with other integers per program, if outputs are small."""

_KEPT_BYTES = 1 << 28
"""Bytes of the original's outputs kept for comparison over all integer trials."""


@dataclass(frozen=True)
class DataControl:
    """Data-dependent control of a program; falsy if the text fixes all control.

    scalars   names of scalar parameters
    extents   symbolic extents of parameters
    elements  whether elements become scalars, or rows are selected by index
    """

    scalars: tuple[str, ...] = ()
    extents: tuple[SymDim, ...] = ()
    elements: bool = False

    def __bool__(self) -> bool:
        return bool(self.scalars or self.extents or self.elements)


def data_control(program: Program) -> DataControl:
    """Find the data-dependent control of `program`, conservatively."""
    params = program.main.params
    extents = [
        extent
        for param in params
        if isinstance(param.type, TensorType)
        for extent in param.type.shape
        if isinstance(extent, SymDim)
    ]
    ops = [op for function in program.functions.values() for op in walk(function.body)]
    return DataControl(
        tuple(p.name for p in params if isinstance(p.type, ScalarType)),
        tuple(dict.fromkeys(extents)),
        any(
            (
                bool(op.spec.traits & (Trait.NUMBER | Trait.BY_INDEX))
                and Trait.SHAPE_ONLY not in op.spec.traits
            )
            or op.args.get("predicate") is not None
            for op in ops
        ),
    )


def overlapping_arguments(program: Program, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return two parameters that share memory, one written; proofs assume there are none."""
    arrays: list[tuple[str, bool, Array]] = [
        (p.name, direction is not Direction.In, given[p.name])
        for p, direction in zip(program.main.params, program.main.directions)
        if isinstance(given.get(p.name), np.ndarray)
    ]
    for (a, a_written, first), (b, b_written, second) in itertools.combinations(arrays, 2):
        if (a_written or b_written) and np.may_share_memory(first, second):
            return a, b
    return None


def integer_trials(program: Program, given: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Yield arguments whose integers, scalars and open extents differ from those in `given`.

    The caller drops those that the original program rejects.
    """
    control = data_control(program)
    if not control:
        return
    arrays: dict[str, Array] = {
        name: cast("Array", value) for name, value in given.items() if isinstance(value, np.ndarray)
    }
    names = [name for name, array in arrays.items() if array.dtype.kind in "iub"]
    names += [n for n in control.scalars if isinstance(given.get(n), (int, float, np.number))]
    outputs = sum(array.nbytes for array in arrays.values())
    trials = max(2, min(INTEGER_TRIALS, _KEPT_BYTES // max(outputs, 1)))
    largest = max((n for array in arrays.values() for n in array.shape), default=1)
    for trial in range(trials):
        draw = np.random.default_rng(trial)
        # One argument at a time first, so that the others keep valid values.
        alone = names[trial % len(names)] if names and trial < trials // 2 else None
        made = dict(given)
        for name in names:
            if alone in (None, name):
                made[name] = _other_integers(
                    given[name], trial // max(len(names), 1), largest, draw
                )
        if control.extents:
            _resize(program, made, {e: _extent(e, program, given, draw) for e in control.extents})
        yield made


def _other_integers(value: Any, trial: int, largest: int, draw: np.random.Generator) -> Any:
    array: Array = np.asarray(value)
    if array.dtype.kind == "f":
        other = array * draw.uniform(-1.0, 2.0)
    elif array.dtype.kind == "b":
        other = draw.integers(0, 2, array.shape)
    else:
        most = int(np.abs(array.astype(np.int64)).max(initial=0))
        wide = array.astype(np.int64)
        choices = (
            lambda: np.zeros_like(wide),
            lambda: draw.integers(0, most + 1, array.shape),
            lambda: wide + 1,
            lambda: np.maximum(wide - 1, 0),
            lambda: draw.permutation(wide.reshape(-1)).reshape(array.shape),
            lambda: draw.integers(0, 2 * most + 2, array.shape),
            lambda: draw.integers(0, most // 2 + 1, array.shape),
            lambda: draw.integers(0, largest + 1, array.shape),
        )
        other = choices[trial % len(choices)]()
        limits = np.iinfo(array.dtype)
        other = np.clip(other, limits.min, limits.max)
    if isinstance(value, np.ndarray):
        return other.astype(array.dtype)
    return type(value)(np.asarray(other).item())


def _extent(
    extent: SymDim, program: Program, given: Mapping[str, Any], draw: np.random.Generator
) -> int:
    now = next(
        (
            n
            for param in program.main.params
            if isinstance(param.type, TensorType) and param.name in given
            for dim, n in zip(param.type.shape, np.shape(given[param.name]))
            if dim is extent
        ),
        1,
    )
    return int(draw.integers(1, 2 * now + 1))


def _resize(program: Program, made: dict[str, Any], extents: Mapping[SymDim, int]) -> None:
    """Repeat or cut the arrays of parameters whose extents change."""
    for param in program.main.params:
        if isinstance(param.type, TensorType) and param.name in made:
            array = made[param.name]
            shape = tuple(
                extents.get(dim, n) if isinstance(dim, SymDim) else n
                for dim, n in zip(param.type.shape, array.shape)
            )
            if shape != array.shape:
                made[param.name] = np.resize(array, shape)
