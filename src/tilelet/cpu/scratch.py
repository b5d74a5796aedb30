"""Packing the tiles of a kernel into scratch memory: tiles whose lives do not meet share it."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.analysis.packing import Need, first_fit
from tilelet.cpu.tiles import Slot

ALIGNMENT = 64


def pack(slots: Sequence[Slot]) -> int:
    """Give every slot its offset; the bytes needed in all. Large ones choose first."""
    order = sorted(range(len(slots)), key=lambda i: (-slots[i].nbytes, slots[i].first))
    needs = [Need(s.nbytes, s.first, s.last) for s in slots]
    offsets, end = first_fit(needs, order, ALIGNMENT)
    for slot, offset in zip(slots, offsets):
        slot.offset = offset
    return end
