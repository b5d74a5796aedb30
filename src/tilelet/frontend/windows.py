"""Windows whose size is known at run time, as in `x[0:n]`.

A tile has constant extents: it gets the largest that the window can have, and so much is valid. The
first versions of the language took such sizes; later ones want `valid_shape=`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.frontend.bindings import ValueFacts
from tilelet.ir.core import Arg, Value
from tilelet.ir.types import Dim, TensorType, TileType

WINDOWS = {"slice": ("x", "shape", "offset"), "load": ("tensor", "shapes", "offsets")}
"""What the window lies in, its size and its place."""


def with_region(facts: ValueFacts, name: str, args: Mapping[str, Arg]) -> Mapping[str, Arg]:
    """The arguments of a load with a constant size and a valid region instead, where they can be.

    They stay as they are if the size is constant, if the text states a region, or if nothing bounds
    a number: not the way it is computed, nor the extent of what the window lies in.
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
