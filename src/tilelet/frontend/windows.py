"""Windows whose size is known at run time, as in `x[0:n]`.

A tile has constant extents: it gets the largest size the window can have, and the window's size as
its valid region. Early versions of the language took such sizes; later ones require `valid_shape=`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.frontend.bindings import ValueFacts
from tilelet.ir.core import Arg, Value
from tilelet.ir.types import Dim, TensorType, TileType

WINDOWS = {"slice": ("x", "shape", "offset"), "load": ("tensor", "shapes", "offsets")}
"""Parameter names of the base, the size and the offset."""


def with_region(facts: ValueFacts, name: str, args: Mapping[str, Arg]) -> Mapping[str, Arg]:
    """Return the arguments of a load with a constant size and a valid region, if possible.

    They are unchanged if the size is constant, if the text states a region, or if neither the
    computation of a size nor the extent of the base bounds it.
    """
    param, size, offset = WINDOWS[name]
    x, sizes, starts = args[param], args[size], args[offset]
    if not isinstance(sizes, tuple) or not any(isinstance(s, Value) for s in sizes):
        return args
    if args.get("valid_shape") is not None or args.get("valid_shapes") is not None:
        return args
    if not isinstance(x, Value) or not isinstance(x.type, (TensorType, TileType)):
        return args
    if not isinstance(starts, tuple) or not len(sizes) == len(starts) == len(x.type.shape):
        return args
    largest = [
        _largest(facts, *axis) if isinstance(axis[1], Value) else axis[1]
        for axis in zip(x.type.shape, sizes, starts, strict=True)
    ]
    if None in largest:
        return args
    return {**args, size: tuple(largest), "valid_shape": sizes, "sized": True}


def _largest(facts: ValueFacts, extent: Dim, size: Arg, start: Arg) -> int | None:
    whole = facts.bounds_of(extent).most
    if whole is not None and isinstance(start, int):
        whole -= start
    known = [bound for bound in (facts.bounds_of(size).most, whole) if bound is not None]
    most = min(known, default=0)
    return most if most > 0 else None
