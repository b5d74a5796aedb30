"""The kernel of an assemble that must copy: load and store, tile by tile, in one task."""

from __future__ import annotations

from tilelet.analysis.aliases import is_tensor
from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Op, Value
from tilelet.ir.rebuild import (
    Builder,
    call_op,
    fresh_value,
    index_value,
    return_op,
    substitute_all,
)
from tilelet.ir.types import TensorType

TILE_BYTES = 32 * 1024
"""A small part of the vector memory of every device."""

UNKNOWN_EXTENT = 128
"""Tile extent along an axis whose length is known only at run time."""


def emit_copy(
    b: Builder, assemble: Op, functions: dict[str, Function], *, overlapping: bool
) -> Value:
    """Implement `assemble` as a task with a new kernel; return the updated target.

    If source and target overlap and need several tiles, a temporary tensor is filled first.
    """
    target, source, offset = (assemble.args[k] for k in ("target", "source", "offset"))
    assert is_tensor(target)
    assert is_tensor(source)
    assert isinstance(source.type, TensorType)
    assert isinstance(offset, tuple)
    if overlapping and not _fits_one_tile(source.type):
        shape = _extents(b, source)
        whole = b.emit("create_tensor", tuple(shape), source.type.dtype, result=source.name)
        source = _emit_call(b, whole, source, (0,) * len(shape), functions)
    return _emit_call(b, target, source, offset, functions)


def _emit_call(
    b: Builder,
    target: Value,
    source: Value,
    offset: tuple[Arg, ...],
    functions: dict[str, Function],
) -> Value:
    n = 0
    while f"copy_{n}" in functions:
        n += 1
    name = f"copy_{n}"
    scalars = tuple(dict.fromkeys(v for v in offset if isinstance(v, Value)))
    operands = (source, target, *scalars)
    params = tuple(fresh_value(v) for v in operands)
    kernel = Builder(b.loc, in_scope=True)
    loops = _Copy(kernel, params[0], substitute_all(offset, dict(zip(operands, params))))
    written = loops.axes(kernel, params[1], ())
    functions[name] = Function(
        name,
        FunctionKind.InCore,
        params,
        (Direction.In, Direction.Out, *(Direction.In for _ in scalars)),
        Block((), (*kernel.ops, return_op((written,), b.loc))),
        b.loc,
    )
    result = fresh_value(target)
    b.add(call_op(name, operands, (result,), b.loc))
    return result


def _extents(b: Builder, tensor: Value) -> list[Arg]:
    assert isinstance(tensor.type, TensorType)
    return [
        d if isinstance(d, int) else b.emit("tensor.dim", tensor, axis, result=d.name)
        for axis, d in enumerate(tensor.type.shape)
    ]


class _Copy:
    """Builds the loops over the tiles of `source`."""

    def __init__(self, builder: Builder, source: Value, offset: tuple[Arg, ...]) -> None:
        assert isinstance(source.type, TensorType)
        self._source = source
        self._offset = offset
        self._extents = _extents(builder, source)
        self._tile = _tile_shape(source.type)

    def axes(self, b: Builder, target: Value, at: tuple[Arg, ...]) -> Value:
        """Copy all elements whose leading indices are `at`; return the updated target."""
        axis = len(at)
        if axis == len(self._tile):
            return self._one_tile(b, target, at)
        if self._tile[axis] == self._extents[axis]:
            return self.axes(b, target, (*at, 0))
        index, carried = index_value(f"i{axis}", b.loc), fresh_value(target)
        body = b.inside()
        after = self.axes(body, carried, (*at, index))
        bounds = (0, self._extents[axis], self._tile[axis])
        return b.loop(bounds, (target,), index, (carried,), body, (after,))[0]

    def _one_tile(self, b: Builder, target: Value, at: tuple[Arg, ...]) -> Value:
        valid = [self._valid(b, *where) for where in zip(self._tile, self._extents, at)]
        partial = tuple(valid) if tuple(valid) != self._tile else None
        tile = b.emit("slice", self._source, self._tile, at, valid_shape=partial, result="tile")
        # The ranks may differ by leading axes of extent 1.
        rank = len(self._offset)
        place = (0,) * (rank - len(at)) + at[max(0, len(at) - rank) :]
        offset = tuple(b.scalar("add", o, p) for o, p in zip(self._offset, place))
        return b.emit("assemble", target, tile, offset, result=target.name)

    def _valid(self, b: Builder, size: int, extent: Arg, start: Arg) -> Arg:
        """Return the valid extent of a tile of `size` at `start`."""
        if isinstance(extent, int) and extent % size == 0:
            return size
        return b.scalar("min", size, b.scalar("sub", extent, start))


def _tile_shape(tensor: TensorType) -> tuple[int, ...]:
    """Return the largest tile: whole inner axes as they fit, a part of the next, 1 for the rest."""
    room = TILE_BYTES // tensor.dtype.itemsize
    shape: list[int] = []
    for extent in reversed(tensor.shape):
        size = min(room, extent if isinstance(extent, int) else UNKNOWN_EXTENT)
        shape.append(size)
        room //= size
    return tuple(reversed(shape))


def _fits_one_tile(tensor: TensorType) -> bool:
    return _tile_shape(tensor) == tensor.shape
