"""The paged key/value caches of a model, and the pages of each sequence.

All layers use the same pages, each in its own part of the caches. Page 0 belongs to no sequence:
unused rows of a batch write there, and read what they wrote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilelet.diag.catalogue.models import NoFreePages
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.config import Qwen3Config


@dataclass(eq=False)
class CachedSequence:
    """A sequence in the caches: its number of positions, and its pages."""

    length: int = 0
    pages: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class CacheSize:
    """`pages` of `page` positions each; a sequence has at most `max_seq` positions."""

    config: Qwen3Config
    dtype: DType
    max_seq: int
    page: int
    pages: int

    @property
    def table_width(self) -> int:
        return math.ceil(self.max_seq / self.page)

    @property
    def total_pages(self) -> int:
        return self.pages + 1

    @property
    def page_bytes(self) -> int:
        """Size of the keys and values of one page in one layer."""
        return 2 * self.page * self.config.kv_width * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.total_pages * self.page_bytes * self.config.num_hidden_layers

    def pages_of(self, positions: int) -> int:
        return math.ceil(positions / self.page)


class PagedCache:
    """Keys and values of all layers, `[layers * rows, head_dim]` each.

    With several `ranks`, each has a cache of this size: the arrays have one dimension more.
    """

    def __init__(self, size: CacheSize, ranks: int = 1) -> None:
        self.size = size
        c = size.config
        self._rows = size.total_pages * c.kv_heads * size.page
        shape = (c.num_hidden_layers * self._rows, c.head_dim)
        if ranks > 1:
            shape = (ranks, *shape)
        # Untouched zero pages take no memory yet.
        self._keys, self._values = (np.zeros(shape, size.dtype.numpy) for _ in range(2))
        self._free = list(range(size.pages, 0, -1))

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def of_layers(self, first: int, count: int) -> tuple[Array, Array]:
        """Return the writable caches of some layers."""
        rows = slice(first * self._rows, (first + count) * self._rows)
        return self._keys[..., rows, :], self._values[..., rows, :]

    def reserve(self, sequence: CachedSequence, positions: int) -> None:
        """Reserve the pages for this many positions of a sequence; all of them or none."""
        wanted = self.size.pages_of(positions) - len(sequence.pages)
        if wanted > len(self._free):
            raise NoFreePages(wanted, len(self._free), self.size.page_bytes)
        for _ in range(wanted):
            sequence.pages.append(self._free.pop())

    def release(self, sequence: CachedSequence) -> None:
        """Release the pages of a sequence."""
        self._free += reversed(sequence.pages)
        sequence.pages.clear()
        sequence.length = 0

    def table(self, sequences: Sequence[CachedSequence], rows: int) -> Array:
        """Return the block table of a batch of `rows`; unused rows have page 0."""
        table = np.zeros((rows, self.size.table_width), np.int32)
        for row, sequence in enumerate(sequences):
            table[row, : len(sequence.pages)] = sequence.pages
        return table
