"""Represent a set of elements by few boxes: `out[48:64, :]` instead of thousands of elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelet.checks.findings import Box

Bits = NDArray[np.bool_]


def boxes_of(mask: Bits, name: str, most: int = 8) -> tuple[list[Box], int]:
    """Return boxes that together form the set, largest first, and the number left out.

    Along the first axis, adjacent equal slices become one box, and slices that repeat periodically
    become one box with a step.
    """
    found = _boxes(mask) if mask.any() else []
    found.sort(key=lambda axes: -int(np.prod([len(range(*a)) for a in axes])))
    boxes = [Box(name, *(tuple(a[i] for a in axes) for i in range(3))) for axes in found[:most]]
    return boxes, max(0, len(found) - most)


def _boxes(mask: Bits) -> list[tuple[tuple[int, int, int], ...]]:
    """Return the set as boxes of (start, stop, step) per axis."""
    if mask.ndim == 0:
        return [()]
    rows = mask.reshape(mask.shape[0], -1)
    used = np.flatnonzero(rows.any(1))
    kinds: dict[bytes, list[int]] = {}
    for row in used.tolist():
        kinds.setdefault(rows[row].tobytes(), []).append(row)
    found: list[tuple[tuple[int, int, int], ...]] = []
    for places in kinds.values():
        inner = _boxes(mask[places[0]])
        for run in _runs(places):
            found += [(run, *axes) for axes in inner]
    return found


def _runs(places: list[int]) -> list[tuple[int, int, int]]:
    """Group ascending numbers into (start, stop, step); a step above 1 needs three numbers."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(places):
        step = places[at + 1] - places[at] if at + 1 < len(places) else 1
        end = at + 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        if step != 1 and end - at < 3:
            end, step = at + 1, 1
        runs.append((places[at], places[end - 1] + 1, step))
        at = end
    return runs
