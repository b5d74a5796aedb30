"""Which elements of memory were ever written, and by whom: what `interp.definedness` keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.diag.core import Loc
from tilelet.interp.state import State
from tilelet.ir.core import Op
from tilelet.ir.types import box
from tilelet.tasks.window import Buffer, Shape, Window

Bits = NDArray[np.bool_]
Codes = NDArray[np.uint8]

NEVER, DEFINED, UNDEFINED = 0, 1, 2
"""Of an element of memory: nobody wrote it; something was written; something undefined was."""


class NeedsValuesError(Exception):
    """Which elements are defined depends on data that this run does not compute."""


@dataclass(frozen=True)
class Origin:
    """Where undefined elements come from: the statement that took them, and of what."""

    loc: Loc
    name: str
    task: int


@dataclass(frozen=True)
class Undefined:
    """Something undefined decides: `use` is "a branch" or "an index"."""

    loc: Loc
    use: str
    origin: Origin


class UndefinedInt(int):
    """An undefined number: it goes wherever the program hands a number on."""

    origin: Origin

    def from_(self, origin: Origin) -> UndefinedInt:
        self.origin = origin
        return self


class UndefinedFloat(float):
    """The same of a float."""

    origin: Origin

    def from_(self, origin: Origin) -> UndefinedFloat:
        self.origin = origin
        return self


class Mask:
    """Of a tile with undefined elements: which are defined, and where the others come from."""

    __slots__ = ("bits", "origin")

    def __init__(self, bits: Bits, origin: Origin) -> None:
        self.bits = bits
        self.origin = origin


class Cells:
    """Codes of the elements of a buffer; each stands for `unit` bytes."""

    __slots__ = ("_full", "codes", "origin", "unit")

    def __init__(self, nbytes: int, unit: int) -> None:
        self.unit = unit
        self.codes: Codes = np.zeros(max(1, nbytes // unit), np.uint8)
        self.origin: Origin | None = None
        # Windows that were found to be defined: they stay so until something undefined is stored.
        self._full: set[tuple[Any, ...]] = set()

    def view(self, window: Window) -> Codes:
        """The codes of a window's elements; writing to them changes the buffer's."""
        item = window.dtype.itemsize
        if item != self.unit:
            self._refine()
        per = item // self.unit
        shape, strides = window.reach, tuple(s * per for s in window.strides)
        if per > 1:
            shape, strides = (*shape, per), (*strides, 1)
        return np.lib.stride_tricks.as_strided(
            self.codes[window.offset * per :], shape, strides, writeable=True
        )

    def get(self, window: Window) -> Codes:
        """One code for each element of a window: the worst of its bytes."""
        codes = self.view(window)
        if window.dtype.itemsize == self.unit:
            return codes
        whole = (codes == DEFINED).all(-1)
        never = (codes == NEVER).all(-1)
        return np.where(whole, DEFINED, np.where(never, NEVER, UNDEFINED)).astype(np.uint8)

    def all_defined(self, window: Window) -> bool:
        """Whether every element of a window is defined."""
        key = (window.offset, window.reach, window.strides, window.dtype)
        if key not in self._full:
            if not bool((self.view(window) == DEFINED).all()):
                return False
            self._full.add(key)
        return True

    def set(self, window: Window, codes: Codes | int) -> None:
        if not isinstance(codes, int) or codes != DEFINED:
            self._full.clear()
        into = self.view(window)
        if isinstance(codes, np.ndarray) and window.dtype.itemsize != self.unit:
            codes = codes[..., None]
        into[...] = codes

    def _refine(self) -> None:
        """Count single bytes: elements of another size look at this memory."""
        if self.unit > 1:
            self.codes = np.repeat(self.codes, self.unit)
            self.unit = 1


@dataclass(eq=False)
class Watcher:
    """What the mode finds, and whom it tells.

    touch   called for every window of memory that a statement reads or writes:
            (op, window, writes, atomic)
    stores  of buffers in `watched`: (statement, task, window) of every store, in order
    uses    undefined elements that decide something
    any_numbers  whether there ever was an undefined number
    execution  what a kernel touches, if it is to be kept (`interp.repeated`)
    """

    touch: Callable[[Op, Window, bool, bool], None] | None = None
    watched: set[int] = field(default_factory=set[int])
    stores: list[tuple[Loc, int, Window]] = field(default_factory=list[tuple[Loc, int, Window]])
    undefined_stores: list[tuple[Loc, int, Window, Origin]] = field(
        default_factory=list[tuple[Loc, int, Window, Origin]]
    )
    uses: dict[tuple[Loc, str], Undefined] = field(default_factory=dict[tuple[Loc, str], Undefined])
    any_numbers: bool = False
    execution: Any = None

    def number(self, value: Any, origin: Origin) -> UndefinedInt | UndefinedFloat:
        """`value`, which comes from undefined elements."""
        self.any_numbers = True
        if isinstance(value, float):
            return UndefinedFloat(value).from_(origin)
        return UndefinedInt(value).from_(origin)

    def origin_of(self, numbers: Iterable[Any]) -> Origin | None:
        """Where the first undefined one of these comes from."""
        if self.any_numbers:
            for number in numbers:
                if isinstance(number, UndefinedInt | UndefinedFloat):
                    return number.origin
        return None

    def fresh(self, window: Window) -> None:
        """Memory was taken, of which nothing has been written."""
        leave_undefined(window.buffer, window.dtype.itemsize)

    def use(self, loc: Loc, use: str, origin: Origin) -> None:
        self.uses.setdefault((loc, use), Undefined(loc, use, origin))


def leave_undefined(buffer: Buffer, unit: int) -> None:
    """From now on nothing of this buffer has been written."""
    buffer.defined = Cells(buffer.nbytes, unit)


def cells_of(window: Window) -> Cells | None:
    """The codes of a window's buffer; None if all of it is defined."""
    return window.buffer.defined


def _seen(state: State, op: Op, window: Window, writes: bool, atomic: bool = False) -> Watcher:
    watcher: Watcher = state.watcher
    if watcher.touch is not None:
        watcher.touch(op, window, writes, atomic)
    return watcher


def loaded_mask(state: State, op: Op, window: Window, region: Shape) -> Mask | None:
    """The mask of a tile of `window.shape` of which `region` is taken from memory."""
    taken = window if region == window.shape else window.slice((0,) * len(region), region)
    _seen(state, op, taken, writes=False)
    cells = cells_of(window)
    if cells is None or 0 in region or cells.all_defined(taken):
        return None
    inside = cells.get(taken) == DEFINED
    origin = cells.origin or Origin(op.loc, window.name, len(state.tasks))
    bits = np.zeros(window.shape, np.bool_)
    bits[box(region)] = inside
    watcher = state.watcher
    if watcher.execution is not None:
        watcher.execution.spoiled = True
    return Mask(bits, origin)


def store_mask(
    state: State, op: Op, into: Window, mask: Mask | None, region: Shape, atomic: bool
) -> None:
    """Something is written to a window; `mask` is that of the tile, of which `region` is taken."""
    watcher = _seen(state, op, into, writes=True, atomic=atomic)
    buffer = into.buffer
    if buffer.id in watcher.watched:
        watcher.stores.append((op.loc, len(state.tasks), into))
    cells = cells_of(into)
    bits = None if mask is None else mask.bits[box(region)].reshape(into.shape)
    if bits is not None and bits.all():
        bits = None
    if cells is None:
        if bits is None:
            return
        cells = buffer.defined = Cells(buffer.nbytes, into.dtype.itemsize)
        cells.codes[...] = DEFINED
    if atomic:
        before = cells.get(into) == DEFINED
        origin = cells.origin or Origin(op.loc, into.name, len(state.tasks))
        if not before.all():
            bits = before if bits is None else bits & before
            mask = mask or Mask(bits, origin)
    if bits is None:
        cells.set(into, DEFINED)
        return
    assert mask is not None
    if watcher.execution is not None:
        watcher.execution.spoiled = True
    cells.origin = mask.origin
    cells.set(into, np.where(bits, DEFINED, UNDEFINED).astype(np.uint8))
    if buffer.id in watcher.watched:
        watcher.undefined_stores.append((op.loc, len(state.tasks), into, mask.origin))
