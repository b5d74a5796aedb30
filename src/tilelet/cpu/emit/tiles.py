"""Tiles during emission: elements in memory, or a deferred computation.

An elementwise op whose result is used once is not evaluated in place: it becomes a `Node` that its
user's loop evaluates. A chain of ops thus becomes one loop without intermediate tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilelet.cpu.emit.text import Dim, product
from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.tasks.window import row_major


@dataclass(frozen=True)
class TileSlot:
    """Scratch memory of one tile: its C name and its number in the plan."""

    name: str
    number: int


@dataclass(eq=False)
class Leaf:
    """Elements in memory: `pointer[sum(index * stride)]`.

    slot        the scratch memory, if the elements are there
    window      C name of the window of global memory, if they are read from there
    is_zeroed   memory outside the valid region is zero
    """

    pointer: str
    strides: tuple[Dim, ...]
    slot: TileSlot | None = None
    window: str | None = None
    is_zeroed: bool = False


@dataclass(eq=False)
class Node:
    """A deferred elementwise computation. `make` maps the operands' C expressions to that of one
    element; `index` is the C name of the position along the last axis.
    """

    make: Callable[[Sequence[str], str], str]
    operands: tuple[EmittedTile, ...] = ()
    loc: Loc | None = None
    uses_index: bool = False

    def __post_init__(self) -> None:
        below = [o.form.depth for o in self.operands if isinstance(o.form, Node)]
        self.depth: int = 1 + max(below, default=0)


@dataclass(eq=False)
class EmittedTile:
    shape: tuple[int, ...]
    dtype: DType
    valid: tuple[Dim, ...]
    form: Leaf | Node = field(repr=False)

    @property
    def is_full(self) -> bool:
        """Whether the whole tile is certainly valid."""
        return self.valid == self.shape

    @property
    def leaf(self) -> Leaf:
        assert isinstance(self.form, Leaf)
        return self.form

    @property
    def is_dense(self) -> bool:
        """Whether it lies densely in scratch memory."""
        if not isinstance(self.form, Leaf) or self.form.window is not None:
            return False
        dense = row_major(self.shape)
        return all(n == 1 or s == d for n, s, d in zip(self.shape, self.form.strides, dense))


def count(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def leaves(tile: EmittedTile) -> Iterator[tuple[EmittedTile, Leaf]]:
    """Yield every memory operand that evaluating `tile` reads."""
    if isinstance(tile.form, Leaf):
        yield tile, tile.form
    else:
        for operand in tile.form.operands:
            yield from leaves(operand)


def uses_index(tile: EmittedTile) -> bool:
    if isinstance(tile.form, Leaf):
        return False
    return tile.form.uses_index or any(uses_index(o) for o in tile.form.operands)


@dataclass(frozen=True)
class Axis:
    """One loop: `extent` iterations over the original axes up to and including `last`.

    length  extent of a fully valid tile
    index   C text of the only position, if there is no loop: the current row of a nest
    """

    last: int
    extent: Dim
    length: int
    index: str = ""


def strides_in(shape: Sequence[int], strides: Sequence[Dim], root: Sequence[int]) -> list[Dim]:
    """Return an operand's strides on the axes of the result: 0 where it is broadcast."""
    missing = len(root) - len(shape)
    return [0] * missing + [s if n > 1 else 0 for n, s in zip(shape, strides)]


def merged_axes(
    shape: Sequence[int],
    extents: Sequence[Dim],
    operands: Sequence[Sequence[Dim]],
    *,
    merge: bool,
    fixed: tuple[int, str] | None = None,
) -> list[Axis]:
    """Return the loops over a box: axes of length 1 dropped, adjacent axes merged where strides
    allow. `fixed`: an axis without a loop, and the position there.
    """
    axes: list[Axis] = []
    for i, (length, extent) in enumerate(zip(shape, extents)):
        if length == 1 and extent == 1:
            continue
        if fixed is not None and fixed[0] == i:
            axes.append(Axis(i, extent, length, fixed[1]))
            continue
        previous = axes[-1] if axes else None
        joins = (
            merge
            and previous is not None
            and not previous.index
            and extent == length
            and all(s[previous.last] == product(s[i], length) for s in operands)
        )
        if previous is not None and joins:
            wider = product(previous.extent, length)
            axes[-1] = Axis(
                i, f"({wider})" if isinstance(wider, str) else wider, previous.length * length
            )
        else:
            axes.append(Axis(i, extent, length))
    return axes
