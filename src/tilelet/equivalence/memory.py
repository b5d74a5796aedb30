"""Global memory of a symbolic execution: the term of every element of every buffer.

Windows may have unknown offsets. Such a store makes an element a function of its old value, its
position, the offset and the stored tile; such a load is a function of all elements it may reach. A
load of the same window as an earlier store returns the stored tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilelet.dataclasses import dataclass, field, replace
from tilelet.equivalence.terms import (
    ZERO,
    Symbol,
    Terms,
    combine,
    digest,
    grid,
    tag,
)

Extent = Symbol | int


class UnprovableError(Exception):
    """The two programs cannot be compared; the message says why."""


@dataclass(eq=False)
class Buffer:
    """Memory of a parameter, or of a tensor that the program creates.

    key   identifies the buffer, in a rewritten program too
    data  its elements; None for an unwritten parameter
    last  the last store at an unknown offset, if nothing was written since
    is_frozen  only the contents are known: it must not be written
    """

    key: str
    size: int
    data: Terms | None = None
    last: Store | None = None
    is_frozen: bool = False

    def elements(self) -> Terms:
        if self.data is None:
            self.data = combine(tag("input", self.key), grid((self.size,)))
        return self.data


@dataclass(frozen=True)
class Store:
    """A store at an unknown offset: its window, tile, and the overwritten contents."""

    view: View
    tile: Terms
    before: Terms


@dataclass(frozen=True)
class View:
    """A strided box of a buffer.

    reach  extents of the memory that it may access
    at     the offset in `reach` on each axis; None: 0, and known
    valid  valid extents of loads; None: all
    """

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reach: tuple[int, ...] = ()
    at: tuple[Symbol | None, ...] = ()
    valid: tuple[Extent, ...] | None = None

    @property
    def unknown(self) -> tuple[int, ...]:
        """Axes with unknown offsets."""
        return tuple(i for i, at in enumerate(self.at) if at is not None)

    @property
    def place(self) -> tuple[object, ...]:
        return self.offset, self.shape, self.strides, self.reach, self.at

    def is_same(self, other: View) -> bool:
        return self.buffer is other.buffer and self.place == other.place

    def sliced(self, offset: Sequence[Extent], shape: Sequence[int]) -> View:
        start, reach, at = self.offset, list(self.reach), list(self.at)
        for axis, (first, size) in enumerate(zip(offset, shape)):
            here = self.at[axis]
            if here is not None:
                moved = here + first
                at[axis] = moved if isinstance(moved, Symbol) else None
                if not isinstance(moved, Symbol):
                    raise UnprovableError("an unknown offset cancels out in a view of a view")
            elif isinstance(first, Symbol):
                at[axis] = first
            else:
                if first < 0 or size < 1 or first + size > self.reach[axis]:
                    raise UnprovableError("a window reaches beyond its tensor")
                start += first * self.strides[axis]
                reach[axis] = size
        return View(self.buffer, start, tuple(shape), self.strides, tuple(reach), tuple(at))

    def transposed(self, a: int, b: int) -> View:
        def swap(items: tuple[object, ...]) -> tuple[object, ...]:
            found = list(items)
            found[a], found[b] = found[b], found[a]
            return tuple(found)

        return replace(
            self,
            shape=swap(self.shape),
            strides=swap(self.strides),
            reach=swap(self.reach),
            at=swap(self.at),
            valid=None if self.valid is None else swap(self.valid),
        )  # type: ignore[arg-type]

    def without(self, axes: Sequence[int]) -> View:
        dropped = {axis % len(self.shape) for axis in axes}
        if dropped & {*self.unknown}:
            raise UnprovableError("an axis at an unknown offset is dropped")
        kept = [i for i in range(len(self.shape)) if i not in dropped]
        return View(
            self.buffer,
            self.offset,
            tuple(self.shape[i] for i in kept),
            tuple(self.strides[i] for i in kept),
            tuple(self.reach[i] for i in kept),
            tuple(self.at[i] for i in kept),
            None if self.valid is None else tuple(self.valid[i] for i in kept),
        )

    def region(self) -> Terms:
        """A view of the memory that it may access."""
        data = self.buffer.elements()
        return as_strided(data[self.offset :], self.reach, [s * 8 for s in self.strides])


def whole_view(buffer: Buffer, shape: Sequence[int]) -> View:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return View(buffer, 0, tuple(shape), tuple(strides), tuple(shape), (None,) * len(shape))


@dataclass
class Memory:
    """All buffers, with their contents before branches."""

    saved: list[dict[Buffer, Terms]] = field(default_factory=list[dict[Buffer, Terms]])

    def load(self, view: View) -> Terms:
        """Return the elements of a window, with zeros outside the valid region."""
        found = self._elements(view)
        if view.valid is None:
            return found
        return mask_invalid(found, view.valid)

    def _elements(self, view: View) -> Terms:
        last = view.buffer.last
        if last is not None and last.view.is_same(view):
            return last.tile
        if not view.unknown:
            if view.buffer.data is None:
                return combine(tag("input", view.buffer.key), _indices(view))
            return view.region().copy()
        if view.buffer.data is None:
            everything = combine(tag("input", view.buffer.key), _indices(view))
        else:
            everything = view.region()
        found = np.broadcast_to(digest(everything, view.unknown), view.shape)
        return combine(tag("load", view.at, view.shape), found, grid(view.shape))

    def store(self, view: View, tile: Terms, valid: Sequence[Extent], head: np.uint64) -> None:
        """Write the valid region of a tile into a window of its shape.

        head  ZERO for a plain write; otherwise the operation on old and new elements
        """
        self.touch(view.buffer)
        region, buffer = view.region(), view.buffer
        full = tuple(valid) == view.shape
        if full and not view.unknown:
            region[...] = tile if head == ZERO else combine(head, region, tile)
            buffer.last = None
            return
        replaces = full and head == ZERO
        if replaces and buffer.last is not None and buffer.last.view.is_same(view):
            region[...] = buffer.last.before  # overwritten contents are not observable
        before = region.copy()
        how = tag("store", view.at, view.shape, view.reach, tuple(valid), head)
        if view.unknown:
            stored = np.broadcast_to(digest(tile, view.unknown), view.reach)
        else:
            stored = tile
        region[...] = combine(how, before, stored, grid(view.reach))
        buffer.last = Store(view, tile.copy(), before) if replaces else None

    def touch(self, buffer: Buffer) -> None:
        """Save the contents of a buffer for paths that have not written to it."""
        if buffer.is_frozen:
            raise UnprovableError("a loop that data bounds decides which memory is written")
        for frame in reversed(self.saved):
            if buffer in frame:
                break
            frame[buffer] = buffer.elements().copy()
        buffer.elements()


def mask_invalid(terms: Terms, valid: Sequence[Extent]) -> Terms:
    """Return the elements with zeros outside the valid region."""
    if all(isinstance(v, int) for v in valid):
        made = np.zeros_like(terms)
        inside = tuple(slice(0, max(0, int(v))) for v in valid if isinstance(v, int))
        made[inside] = terms[inside]
        return made
    return combine(tag("valid", tuple(valid), terms.shape), terms, grid(terms.shape))


def _indices(view: View) -> Terms:
    """Return the position in the buffer of every element of a view."""
    found = np.full((), view.offset, np.int64)
    for axis, (extent, stride) in enumerate(zip(view.reach, view.strides)):
        steps = np.arange(extent, dtype=np.int64) * stride
        found = found + steps.reshape([-1 if i == axis else 1 for i in range(len(view.reach))])
    return found.astype(np.uint64)


def with_valid(view: View, valid: tuple[Extent, ...], shape: tuple[int, ...]) -> View:
    """Return a view with a valid region that must fit into `shape`."""
    for limit, extent in zip(valid, shape):
        if isinstance(limit, int) and limit > extent:
            raise UnprovableError("a valid region is larger than its window")
    limits = tuple(max(0, v) if isinstance(v, int) else v for v in valid)
    return View(view.buffer, view.offset, view.shape, view.strides, view.reach, view.at, limits)
