"""Data-dependent control of a program, and inputs that vary it.

Trip counts, branches, offsets and valid extents may come from scalar parameters, from elements
that the program reads, or from extents of the arguments. A rewriting that is correct for the values
of one run may be wrong for others. So may one of a `@pl.jit` function whose shapes each call
decides: the function is lowered again for other shapes.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.dtypes import Array
from tilelet.frontend.decorators import call_numbers, open_parameters, with_extents
from tilelet.ir.core import Direction, Program, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, SymDim, TensorType
from tilelet.passes.pipeline import run_passes

INTEGER_TRIALS = 16
"""Number of input sets with other integers per program, if outputs are small."""

SIZE_TRIALS = 28
"""Number of input sets of other sizes per program; it is lowered again for each."""

_SIZES: tuple[Callable[[int], int], ...] = (
    lambda n: n + 1, lambda n: 2 * n, lambda n: n // 4, lambda n: n // 2, lambda n: n - 1,
)  # fmt: skip
"""Other sizes of a `@pl.jit` function whose shapes a call decides. Programs of whole blocks reject
all but their multiples; with few blocks, loops have no iteration.
"""

_MAX_ELEMENTS = 1 << 22
"""Limit on the elements of larger arguments: programs of other sizes are interpreted."""

_MAX_TABLE = 1 << 20
"""Elements of a table of indices or lengths; integer tensors with more hold weights."""

_NUMBER = -1
"""In place of an axis: a number that is part of the program's text."""

_MAX_KEPT_BYTES = 1 << 28
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


def control_digest(program: Program, given: Mapping[str, object]) -> str:
    """Hash the arguments that can decide the control of a program: scalars, integers, extents.

    A version of a script that passes others solves another problem.
    """
    found = hashlib.sha256()
    for param in program.main.params if data_control(program) else ():
        if param.name in given and (_is_control(param.type) or _is_resizable(param.type)):
            value = np.asarray(given[param.name])
            found.update(f"{param.name} {value.dtype} {value.shape}".encode())
            found.update(value.tobytes() if _is_control(param.type) else b"")
    return found.hexdigest()


def _is_control(kind: object) -> bool:
    """Whether the values of such a parameter may decide trip counts, branches or offsets."""
    if not isinstance(kind, TensorType):
        return True
    size = math.prod(n for n in kind.shape if isinstance(n, int))
    return not kind.dtype.is_float and size <= _MAX_TABLE


def _is_resizable(kind: object) -> bool:
    return isinstance(kind, TensorType) and any(isinstance(n, SymDim) for n in kind.shape)


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


def for_arguments(program: Program, given: Mapping[str, Any]) -> Program:
    """Lower a program again if each call decides its shapes and numbers, and these have others."""
    own = open_parameters(program)
    if not own:
        return program
    shapes = {
        p.name: np.shape(given[p.name])
        for p in program.main.params
        if isinstance(p.type, TensorType) and p.name in own and p.name in given
    }
    numbers = {name: given[name] for name in call_numbers(program) if name in given}
    now = {p.name: p.type.shape for p in program.main.params if isinstance(p.type, TensorType)}
    if all(now[n] == s for n, s in shapes.items()) and not numbers:
        return program
    return run_passes(with_extents(program, shapes, numbers))


def integer_trials(program: Program, given: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Yield arguments whose integers, scalars and open extents differ from those in `given`.

    The caller drops those that the original program rejects, and lowers it `for_arguments`.
    """
    yield from _integer_trials(program, given)
    yield from _size_trials(program, given)


def _size_trials(program: Program, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments of other sizes, if each call decides the sizes.

    Extents and numbers that are equal in `given` change together: all of them, or those of one
    axis. So do all extents.
    """
    own, numbers = open_parameters(program), call_numbers(program)
    places: list[tuple[str, int, int]] = []
    for name in own:
        places += [(name, axis, n) for axis, n in enumerate(np.shape(given.get(name, 0)))]
        if type(numbers.get(name)) is int:
            places.append((name, _NUMBER, int(numbers[name])))
    groups = {frozenset(p for p in places if p[2] == n) for _, _, n in places if n > 1}
    groups |= {frozenset(p for p in group if p[1] == a) for group in groups for _, a, _ in group}
    groups |= {frozenset(p for p in places if p[1] != _NUMBER and p[2] > 1)} - {frozenset()}
    ordered = sorted(groups, key=lambda g: (-len(g), sorted(g)))
    for change, group in itertools.islice(itertools.product(_SIZES, ordered), SIZE_TRIALS):
        made = dict(given)
        for name, axis, n in group:
            if axis == _NUMBER:
                made[name] = change(n)
                continue
            shape = list(np.shape(made[name]))
            shape[axis] = change(n)
            made[name] = np.resize(made[name], shape)
        if change(2) < 4 or sum(map(np.size, made.values())) <= _MAX_ELEMENTS:
            yield made


def _integer_trials(program: Program, given: Mapping[str, object]) -> Iterator[dict[str, object]]:
    control = data_control(program)
    if not control:
        return
    arrays: dict[str, Array] = {
        name: cast("Array", value) for name, value in given.items() if isinstance(value, np.ndarray)
    }
    names = [name for name, array in arrays.items() if array.dtype.kind in "iub"]
    names += [n for n in control.scalars if isinstance(given.get(n), (int, float, np.number))]
    outputs = sum(array.nbytes for array in arrays.values())
    trials = max(2, min(INTEGER_TRIALS, _MAX_KEPT_BYTES // max(outputs, 1)))
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
