"""Packing the tiles of a kernel into scratch memory: tiles whose lives do not meet share it."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.cpu.tiles import Slot

ALIGNMENT = 64


def pack(slots: Sequence[Slot]) -> int:
    """Give every slot its offset; the bytes needed in all. Large ones choose first."""
    placed: list[Slot] = []
    end = 0
    for slot in sorted(slots, key=lambda s: (-s.nbytes, s.first)):
        size = _aligned(slot.nbytes)
        offset = 0
        neighbours = [p for p in placed if p.first <= slot.last and slot.first <= p.last]
        for other in sorted(neighbours, key=lambda s: s.offset):
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + _aligned(other.nbytes))
        slot.offset = offset
        placed.append(slot)
        end = max(end, offset + size)
    return end


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
