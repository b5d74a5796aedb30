"""Definedness of memory: which elements were written, and by whom; used by `interp.definedness`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass, field
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
    """Which elements are defined depends on values that this run does not compute."""


@dataclass(frozen=True)
class UndefinedOrigin:
    """Where undefined elements come from: the statement that read them, and their source."""

    loc: Loc
    name: str
    task: int


@dataclass(frozen=True)
class Undefined:
    """An undefined value decides something: `use` is "a branch" or "an index"."""

    loc: Loc
    use: str
    origin: UndefinedOrigin


class UndefinedInt(int):
    """An undefined integer, which propagates wherever the program passes the number."""

    origin: UndefinedOrigin

    def from_(self, origin: UndefinedOrigin) -> UndefinedInt:
        self.origin = origin
        return self


class UndefinedFloat(float):
    """An undefined float."""

    origin: UndefinedOrigin

    def from_(self, origin: UndefinedOrigin) -> UndefinedFloat:
        self.origin = origin
        return self


class Mask:
    """The defined elements of a tile that has undefined ones, and the origin of the others."""

    __slots__ = ("bits", "origin")

    def __init__(self, bits: Bits, origin: UndefinedOrigin) -> None:
        self.bits = bits
        self.origin = origin


class DefinedCells:
    """Codes of the elements of a buffer, one per `unit` bytes."""

    __slots__ = ("_full", "codes", "origin", "unit")

    def __init__(self, nbytes: int, unit: int) -> None:
        self.unit = unit
        self.codes: Codes = np.zeros(max(1, nbytes // unit), np.uint8)
        self.origin: UndefinedOrigin | None = None
        # Windows known to be defined; they stay so until something undefined is stored.
        self._full: set[tuple[object, ...]] = set()

    def view(self, window: Window) -> Codes:
        """Return the codes of a window's elements as a writable view."""
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
        """Return one code per element of a window: the worst of its bytes."""
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
        """Switch to one code per byte, because elements of another size access this memory."""
        if self.unit > 1:
            self.codes = np.repeat(self.codes, self.unit)
            self.unit = 1


@dataclass(eq=False)
class Watcher:
    """The findings of this mode, and its callbacks.

    touch        called for every window that a statement accesses: (op, window, writes, atomic)
    stores       for buffers in `watched`: (statement, task, window) of every store, in order
    uses         undefined elements that decide something
    any_numbers  whether any undefined number was seen
    execution    the accesses of the running kernel, if they are recorded (`interp.repeated`)
    """

    touch: Callable[[Op, Window, bool, bool], None] | None = None
    watched: set[int] = field(default_factory=set[int])
    stores: list[tuple[Loc, int, Window]] = field(default_factory=list[tuple[Loc, int, Window]])
    undefined_stores: list[tuple[Loc, int, Window, UndefinedOrigin]] = field(
        default_factory=list[tuple[Loc, int, Window, UndefinedOrigin]]
    )
    uses: dict[tuple[Loc, str], Undefined] = field(default_factory=dict[tuple[Loc, str], Undefined])
    any_numbers: bool = False
    execution: Any = None

    def number(self, value: Any, origin: UndefinedOrigin) -> UndefinedInt | UndefinedFloat:
        """Mark `value` as computed from undefined elements."""
        self.any_numbers = True
        if isinstance(value, float):
            return UndefinedFloat(value).from_(origin)
        return UndefinedInt(value).from_(origin)

    def origin_of(self, numbers: Iterable[object]) -> UndefinedOrigin | None:
        """Return the origin of the first undefined one of these cells."""
        if self.any_numbers:
            for number in numbers:
                if isinstance(number, UndefinedInt | UndefinedFloat):
                    return number.origin
        return None

    def fresh(self, window: Window) -> None:
        """Record new memory as unwritten."""
        leave_undefined(window.buffer, window.dtype.itemsize)

    def use(self, loc: Loc, use: str, origin: UndefinedOrigin) -> None:
        self.uses.setdefault((loc, use), Undefined(loc, use, origin))


def leave_undefined(buffer: Buffer, unit: int) -> None:
    """Mark a buffer as unwritten."""
    buffer.defined = DefinedCells(buffer.nbytes, unit)


def cells_of(window: Window) -> DefinedCells | None:
    """Return the codes of a window's buffer, or None if all of it is defined."""
    return window.buffer.defined


def _notify_watcher(
    state: State, op: Op, window: Window, writes: bool, atomic: bool = False
) -> Watcher:
    watcher: Watcher = state.watcher
    if watcher.touch is not None:
        watcher.touch(op, window, writes, atomic)
    return watcher


def loaded_mask(state: State, op: Op, window: Window, region: Shape) -> Mask | None:
    """Return the mask of a tile of `window.shape` whose `region` is loaded from memory."""
    taken = window if region == window.shape else window.slice((0,) * len(region), region)
    _notify_watcher(state, op, taken, writes=False)
    cells = cells_of(window)
    if cells is None or 0 in region or cells.all_defined(taken):
        return None
    inside = cells.get(taken) == DEFINED
    origin = cells.origin or UndefinedOrigin(op.loc, window.name, len(state.tasks))
    bits = np.zeros(window.shape, np.bool_)
    bits[box(region)] = inside
    watcher = state.watcher
    if watcher.execution is not None:
        watcher.execution.spoiled = True
    return Mask(bits, origin)


def store_mask(
    state: State, op: Op, into: Window, mask: Mask | None, region: Shape, atomic: bool
) -> None:
    """Record a store of the `region` of a tile with `mask` into a window."""
    watcher = _notify_watcher(state, op, into, writes=True, atomic=atomic)
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
        cells = buffer.defined = DefinedCells(buffer.nbytes, into.dtype.itemsize)
        cells.codes[...] = DEFINED
    if atomic:
        before = cells.get(into) == DEFINED
        origin = cells.origin or UndefinedOrigin(op.loc, into.name, len(state.tasks))
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
