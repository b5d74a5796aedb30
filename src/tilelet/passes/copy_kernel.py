"""The kernel of an assemble that has to copy: load and store, tile by tile, in one task."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Op, Value
from tilelet.ir.rebuild import (
    Builder,
    call_op,
    fresh,
    index_value,
    return_op,
    substitute_all,
)
from tilelet.ir.types import TensorType

TILE_BYTES = 32 * 1024
"""A small part of the vector memory of every device."""


def emit_copy(b: Builder, assemble: Op, functions: dict[str, Function]) -> Value:
    """Add a kernel that does `assemble` and emit its call; the result is the updated target."""
    target, source, offset = (assemble.args[k] for k in ("target", "source", "offset"))
    assert isinstance(target, Value)
    assert isinstance(source, Value)
    assert isinstance(offset, tuple)
    n = 0
    while f"copy_{n}" in functions:
        n += 1
    name = f"copy_{n}"
    scalars = tuple(dict.fromkeys(v for v in offset if isinstance(v, Value)))
    operands = (source, target, *scalars)
    params = tuple(fresh(v) for v in operands)
    offset = substitute_all(offset, dict(zip(operands, params)))
    kernel = _Copy(Builder(b.loc, in_scope=True), params[0], offset)
    written = kernel.axes(kernel.builder, params[1], ())
    functions[name] = Function(
        name,
        FunctionKind.InCore,
        params,
        (Direction.In, Direction.Out, *(Direction.In for _ in scalars)),
        Block((), (*kernel.builder.ops, return_op((written,), b.loc))),
        b.loc,
        {"scope": "copy"},
    )
    result = fresh(assemble.result)
    b.add(call_op(name, operands, (result,), b.loc))
    return result


class _Copy:
    """Builds the loops over the tiles of `source`."""

    def __init__(self, builder: Builder, source: Value, offset: tuple[Arg, ...]) -> None:
        assert isinstance(source.type, TensorType)
        self.builder = builder
        self._source = source
        self._offset = offset
        self._extents: list[Arg] = [
            d if isinstance(d, int) else builder.emit("tensor.dim", source, i, result=d.name)
            for i, d in enumerate(source.type.shape)
        ]
        self._tile = _tile_shape(self._extents, source.type.dtype.itemsize)

    def axes(self, b: Builder, target: Value, at: tuple[Arg, ...]) -> Value:
        """Copy everything whose first indices are `at`; the updated target."""
        axis = len(at)
        if axis == len(self._tile):
            return self._one_tile(b, target, at)
        if self._tile[axis] == self._extents[axis]:
            return self.axes(b, target, (*at, 0))
        index, carried = index_value(f"i{axis}", b.loc), fresh(target)
        body = b.inside()
        after = self.axes(body, carried, (*at, index))
        bounds = (0, self._extents[axis], self._tile[axis])
        return b.loop(bounds, (target,), index, (carried,), body, (after,))[0]

    def _one_tile(self, b: Builder, target: Value, at: tuple[Arg, ...]) -> Value:
        valid = [self._valid(b, *where) for where in zip(self._tile, self._extents, at)]
        partial = tuple(valid) if tuple(valid) != self._tile else None
        tile = b.emit("slice", self._source, self._tile, at, valid_shape=partial, result="tile")
        # Axes that only one of the two has are leading ones of extent 1.
        rank = len(self._offset)
        place = (0,) * (rank - len(at)) + at[max(0, len(at) - rank) :]
        offset = tuple(b.scalar("add", o, p) for o, p in zip(self._offset, place))
        return b.emit("assemble", target, tile, offset, result=target.name)

    def _valid(self, b: Builder, size: int, extent: Arg, start: Arg) -> Arg:
        """How much of a tile of `size` is there at `start`."""
        if isinstance(extent, int) and extent % size == 0:
            return size
        return b.scalar("min", size, b.scalar("sub", extent, start))


def _tile_shape(extents: Sequence[Arg], itemsize: int) -> tuple[int, ...]:
    """As many whole inner axes as fit, a part of the next, one of all others."""
    room = TILE_BYTES // itemsize
    shape: list[int] = []
    for extent in reversed(extents):
        size = min(extent, room) if isinstance(extent, int) else min(room, UNKNOWN_EXTENT)
        shape.append(size)
        room = max(1, room // size)
    return tuple(reversed(shape))


UNKNOWN_EXTENT = 128
"""Tile extent along an axis whose length is known only at run time."""
