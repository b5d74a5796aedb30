"""Symmetric memory: window buffers that every rank of a domain has and its peers can address."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilelet import numerics
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.ranks import NoSuchPeer
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.dtypes import Array
from tilelet.syntax.ranks import NotifyOp
from tilelet.tasks.window import Buffer, Window


@dataclass(frozen=True)
class Domain:
    """The ranks that share a set of windows; a rank's index in it is its position."""

    number: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Membership:
    """A rank in a domain: the value of `pld.get_comm_ctx`."""

    domain: Domain
    index: int


class SymmetricBuffer(Buffer):
    """One rank's slice of a window buffer, in this process.

    Slices of other processes override the memory access.
    """

    __slots__ = ("allocation", "index")

    def __init__(self, allocation: Allocation, index: int, data: Array | None = None) -> None:
        if data is None:
            data = np.zeros(allocation.nbytes, np.uint8)
        super().__init__(allocation.name, allocation.nbytes, data, "window")
        self.allocation = allocation
        self.index = index
        self.made = allocation.loc

    @property
    def rank(self) -> int:
        """Return the logical rank that owns this slice."""
        return self.allocation.domain.ranks[self.index]

    def local_copy(self, window: Window) -> Window:
        """Return a window of this slice whose memory can be read directly."""
        return window

    def store(self, window: Window, source: Array, atomic: bool) -> None:
        """Write or add to a window of this slice."""
        memory = window.array
        source = source.reshape(memory.shape)
        memory[...] = numerics.add(memory, source) if atomic else source

    def signal(self, cell: Window, value: int, kind: NotifyOp) -> None:
        """Add to or set a cell of this slice."""
        memory = cell.array.reshape(-1)
        old = int(memory[0]) if kind is NotifyOp.AtomicAdd else 0
        memory[0] = np.int64(old + value).astype(np.int32)  # wraps, as in hardware


class TemplateBuffer(Buffer):
    """A window buffer in the host function: it belongs to no rank and has no memory."""

    __slots__ = ("allocation",)

    def __init__(self, allocation: Allocation) -> None:
        super().__init__(allocation.name, allocation.nbytes, None, "window")
        self.allocation = allocation
        self.made = allocation.loc


@dataclass(eq=False)
class Allocation:
    """One `pld.alloc_window_buffer`.

    used    ranks that receive a view of it; None: all
    slices  one per rank of its domain, once the domain is known
    """

    name: str
    nbytes: int
    loc: Loc = UNKNOWN
    used: set[int] = field(default_factory=set[int])
    domain: Domain = Domain(0, ())
    slices: list[SymmetricBuffer] = field(default_factory=list[SymmetricBuffer])

    def place(self, domain: Domain, make: MakeSlice) -> None:
        """Allocate memory on every rank of `domain`."""
        self.domain = domain
        self.slices = [make(self, i) for i in range(len(domain.ranks))]

    def slice_of(self, rank: int) -> SymmetricBuffer:
        return self.slices[self.domain.ranks.index(rank)]


MakeSlice = Callable[[Allocation, int], SymmetricBuffer]
"""Makes the slice of a window buffer that the rank of this position in the domain has."""


def on_rank(window: Window, rank: int) -> Window:
    """Map the host's view of a window buffer to a rank; return other windows unchanged."""
    buffer = window.buffer
    if not isinstance(buffer, TemplateBuffer):
        return window
    return view_of_buffer(window, buffer.allocation.slice_of(rank))


def view_of_buffer(window: Window, buffer: Buffer) -> Window:
    """Return the same view of another buffer."""
    return Window(
        buffer,
        window.dtype,
        window.offset,
        window.shape,
        window.strides,
        window.valid,
        window.extent,
    )


def symmetric(window: Window) -> SymmetricBuffer:
    """Return the slice behind a window of a rank."""
    buffer = window.buffer
    assert isinstance(buffer, SymmetricBuffer), f"{window} is no view of a window buffer"
    return buffer


def read_copy(window: Window) -> Array:
    """Return a copy of the contents of a window of any rank."""
    buffer = window.buffer
    if isinstance(buffer, SymmetricBuffer):
        window = buffer.local_copy(window)
    return window.array.copy()


def store(window: Window, source: Array, atomic: bool = False) -> None:
    """Write or add to a window of any rank, or to memory outside window buffers."""
    buffer = window.buffer
    if isinstance(buffer, SymmetricBuffer):
        buffer.store(window, source, atomic)
    else:
        window.array[...] = source.reshape(window.shape)


def at_peer(window: Window, peer: int, op: str, loc: Loc) -> Window:
    """Return the same view of a peer's slice; `peer` is its index in the domain."""
    allocation = symmetric(window).allocation
    if not 0 <= peer < len(allocation.slices):
        raise NoSuchPeer(loc, op, peer, allocation.domain.ranks, allocation.name)
    return view_of_buffer(window, allocation.slices[peer])


def membership(window: Window) -> Membership:
    buffer = symmetric(window)
    return Membership(buffer.allocation.domain, buffer.index)
