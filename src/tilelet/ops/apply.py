"""Run an op by its NumPy reference; only this module knows the arguments of `OpSpec.reference`.

The interpreter runs most ops this way, and the CPU engine those without C code. They pass operands
as arrays and decide where the results go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.dtypes import Array
from tilelet.ir.core import Op
from tilelet.ir.faults import Fault
from tilelet.ir.spec import Shape, Valid
from tilelet.ir.types import ScalarType, TileType, box
from tilelet.numerics.undefined import zero_where_undefined
from tilelet.ops.clearing import cleared_operand

Args = Mapping[str, Any]
"""Every bound argument: arrays for tiles and tensors, numbers for scalars."""

Regions = Mapping[str, tuple[Shape, Valid]]
"""Shape and valid region of each array among the arguments, by parameter name."""

Result = tuple[Array, Shape, Valid]
"""The reference's array for one tile, its shape and its valid region. The array is not yet zeroed
outside the region; it may be only the valid part."""


class Application:
    """An op prepared for repeated application."""

    __slots__ = ("_cleared", "_fixed", "_known", "_memoise", "_op", "_types", "_where")

    def __init__(self, op: Op, where: str = "") -> None:
        """`where`: the function that contains the op, for bug reports."""
        self._op = op
        self._where = where
        self._cleared = cleared_operand(op)
        self._fixed = {"result_type": op.result.type} if op.spec.takes_result_type else {}
        self._types = [r.type for r in op.results if isinstance(r.type, TileType)]
        # Shapes are constant, so without scalar operands only the regions can differ.
        self._memoise = not any(isinstance(v.type, ScalarType) for v in op.operands)
        self._known: dict[tuple[Valid, ...], list[Valid]] = {}

    def operand(self, array: Array, valid: Valid) -> Array:
        """Return an array operand as the reference expects it: whole, or only its valid part."""
        if self._op.spec.cut_to_valid and valid != array.shape:
            return array[box(valid)]
        return array

    def results(self, args: Args, regions: Regions) -> list[Result]:
        """Return the op's tile results."""
        try:
            valids = self.valids(args, regions)
            if self._op.spec.cut_to_valid and any(0 in valid for valid in valids):
                arrays = tuple([np.zeros((0,) * len(t.shape), t.dtype.numpy) for t in self._types])
            else:
                arrays = self._arrays(args, regions)
        except Exception as error:
            self._report(error)
        return [(a, t.shape, valid) for a, t, valid in zip(arrays, self._types, valids)]

    def contents(self, args: Args, regions: Regions) -> tuple[Array, ...]:
        """Return the new contents of each tensor that the op writes in place."""
        try:
            return self._arrays(args, regions)
        except Exception as error:
            self._report(error)

    def _arrays(self, args: Args, regions: Regions) -> tuple[Array, ...]:
        spec = self._op.spec
        if spec.takes_valid:
            args = {**args, "valid": {name: valid for name, (_, valid) in regions.items()}}
        assert spec.reference is not None
        made: Array | tuple[Array, ...] = spec.reference(**args, **self._fixed)
        if isinstance(made, tuple):
            return made
        return (zero_where_undefined(made, args[self._cleared]) if self._cleared else made,)

    def valids(self, args: Args, regions: Regions) -> list[Valid]:
        """Return the valid region of each result."""
        key = tuple([valid for _, valid in regions.values()])
        known = self._known.get(key) if self._memoise else None
        if known is not None:
            return known
        rule = self._op.spec.valid
        valids = [t.shape if rule is None else rule(regions, t.shape, args) for t in self._types]
        if self._memoise:
            self._known[key] = valids
        return valids

    def _report(self, error: Exception) -> NoReturn:
        """Report a program error at the op's location, and anything else as an internal error."""
        if isinstance(error, Fault):
            raise error.error(self._op.loc) from None
        if isinstance(error, (UserError, InternalError, MemoryError)):
            raise error
        problem = f"{type(error).__name__} in the reference: {error}"
        raise InternalError(problem, self._where, self._op.name, self._op.loc) from error


def with_zeros(array: Array, shape: Shape, valid: Valid) -> Array:
    """Pad the valid part of `array` (which may be only that part) with zeros."""
    if valid == shape:
        return array
    whole: Array = np.zeros(shape, array.dtype)
    if 0 not in valid:
        inside = box(valid)
        whole[inside] = array[inside]
    return whole
