"""First-fit memory allocation for buffers with known lifetimes."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """A buffer of `nbytes` that is live from time `first` through `last`."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Need) -> bool:
        return self.first <= other.last and other.first <= self.last


def first_fit(needs: Sequence[Need], order: Sequence[int], alignment: int) -> tuple[list[int], int]:
    """Return an offset per buffer, and the total size.

    Buffers are placed in the given order, each at the lowest offset that is free during its
    lifetime. Offsets and sizes are multiples of `alignment`.
    """
    sizes = [-(-need.nbytes // alignment) * alignment for need in needs]
    offsets = [0] * len(needs)
    placed: list[int] = []
    for i in order:
        offset = 0
        neighbors = [j for j in placed if needs[j].meets(needs[i])]
        for j in sorted(neighbors, key=offsets.__getitem__):
            if offset + sizes[i] <= offsets[j]:
                break
            offset = max(offset, offsets[j] + sizes[j])
        offsets[i] = offset
        placed.append(i)
    return offsets, max((offsets[i] + sizes[i] for i in order), default=0)
