"""Finding a tile among the arrays of a golden: by its values, at any offset, also transposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilelet.divergence.error_map import Array
from tilelet.divergence.golden_trace import Intermediate

Ints = NDArray[np.int64]

CLOSE = 1e-2
"""Relative error in the 2-norm up to which a tile agrees: BF16 leaves a few thousandths."""
_LEAST_ELEMENTS = 8
_LARGEST = 1e100
"""Beyond, squares of doubles overflow."""
_PROBES = 6
_MOST_CANDIDATES = 20000


@dataclass(frozen=True)
class Match:
    """Where a tile was found: which array, at which element."""

    array: Intermediate
    position: tuple[int, ...]
    error: float


def _without_zero_tails(block: Array) -> Array:
    """Without the last rows and columns that are all zero: padding, of which a golden has none."""
    for _ in range(2):
        lines = np.flatnonzero(block.any(axis=1))
        block = block[: int(lines[-1]) + 1 if lines.size else 1].T
    return block


class Matcher:
    """Looks tiles up in all arrays of a golden at once."""

    def __init__(self, arrays: Sequence[Intermediate]) -> None:
        kept = [a for a in arrays if a.array.size >= 2]
        self._arrays = kept
        sizes = [a.array.size for a in kept]
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._flat: Array = (
            np.concatenate([a.array.reshape(-1) for a in kept]) if kept else np.zeros(0)
        )
        order = np.argsort(self._flat, kind="stable")
        self._order = order.astype(np.int64)
        self._sorted = self._flat[order]
        rank = max((a.array.ndim for a in kept), default=1)
        # Element strides of the axes before the last one, nearest first; 0: there is none.
        self._strides = np.zeros((len(kept), max(rank - 1, 1)), np.int64)
        for i, a in enumerate(kept):
            step = 1
            for j, n in enumerate(reversed(a.array.shape[1:])):
                step *= n
                self._strides[i, j] = step

    def find(self, tile: Array) -> Match | None:
        """An array that has the tile as a block, within rounding; None if no array has."""
        block = np.asarray(tile, np.float64)
        block = block.reshape(-1, block.shape[-1]) if block.ndim else block.reshape(1, 1)
        block = _without_zero_tails(block)
        if block.size < _LEAST_ELEMENTS or not np.isfinite(block).all():
            return None
        if float(np.abs(block).max()) > _LARGEST:
            return None
        norm = float(np.linalg.norm(block))
        spread = block - block.mean()
        if norm == 0 or float(np.linalg.norm(spread)) < 1e-3 * norm:
            return None  # a constant is everywhere
        if block.shape[0] == 1 or block.shape[1] == 1:
            block = block.reshape(1, -1)
        probes = self._probes(block)
        candidates = self._near(block[probes[0]], norm / block.size**0.5)
        if not candidates.size:
            return None
        return self._look(block, norm, probes, candidates)

    def _probes(self, block: Array) -> list[tuple[int, int]]:
        """Places of large elements, far from each other: they are the least disturbed."""
        flat = np.argsort(-np.abs(block.reshape(-1)), kind="stable")
        chosen = flat[np.linspace(0, max(flat.size // 2, 1), _PROBES).astype(int)]
        corners = [0, block.size - 1]
        return [divmod(int(i), block.shape[1]) for i in (*chosen, *corners)]

    def _near(self, value: float, scale: float) -> Ints:
        slack = 2 * CLOSE * max(abs(value), scale)
        first = np.searchsorted(self._sorted, value - slack)
        end = np.searchsorted(self._sorted, value + slack, side="right")
        found = self._order[first:end]
        return found[:: max(1, found.size // _MOST_CANDIDATES)] if found.size else found

    def _look(
        self, block: Array, norm: float, probes: list[tuple[int, int]], candidates: Ints
    ) -> Match | None:
        owner = np.searchsorted(self._start, candidates, side="right") - 1
        rows, columns = block.shape
        scale = norm / block.size**0.5
        for axis in range(self._strides.shape[1]):
            step = self._strides[owner, axis]
            ones = np.ones_like(step)
            layouts = [(step, ones), (ones, step)] if rows > 1 else [(ones, ones), (ones, step)]
            for down, across in layouts:
                usable = (step > 0) | (rows == 1)
                base = candidates - probes[0][0] * down - probes[0][1] * across
                last = base + (rows - 1) * down + (columns - 1) * across
                fits = usable & (base >= self._start[owner]) & (last < self._start[owner + 1])
                at = np.flatnonzero(fits)
                for i, j in probes[1:]:
                    if not at.size:
                        break
                    there = self._flat[base[at] + i * down[at] + j * across[at]]
                    slack = 4 * CLOSE * max(abs(float(block[i, j])), scale)
                    at = at[np.abs(there - block[i, j]) <= slack]
                for k in at[:16].tolist():
                    found = self._verify(block, norm, int(base[k]), int(down[k]), int(across[k]))
                    if found is not None:
                        return found
        return None

    def _verify(self, block: Array, norm: float, base: int, down: int, across: int) -> Match | None:
        there = np.lib.stride_tricks.as_strided(
            self._flat[base:], block.shape, (8 * down, 8 * across), writeable=False
        )
        error = float(np.linalg.norm(there - block)) / norm
        if error > CLOSE:
            return None
        owner = int(np.searchsorted(self._start, base, side="right")) - 1
        array = self._arrays[owner]
        inside = base - int(self._start[owner])
        position = tuple(int(i) for i in np.unravel_index(inside, array.array.shape))
        return Match(array, position, error)
