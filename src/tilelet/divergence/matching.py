"""Find a tile among the arrays of a golden by its values: at any offset, transposed, or scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.divergence.golden_trace import Intermediate
from tilelet.dtypes import Array

Ints = NDArray[np.int64]

CLOSE = 1e-2
"""Relative L2 error up to which a tile agrees: BF16 leaves a few thousandths."""
_MIN_ELEMENTS = 8
_MAX_MAGNITUDE = 1e100
"""Squares of larger doubles overflow."""
_PROBES = 6
_MAX_CANDIDATES = 20000
_MAX_RATIOS = 4 << 20
"""Limit on golden elements indexed by their ratio to the next one."""
_MAX_MULTIPLES = 64
_MIN_FACTOR_DISTANCE = 0.02
"""Ignore factors this close to 1."""


@dataclass(frozen=True)
class Match:
    """Where a tile was found: which array, at which element."""

    array: Intermediate
    position: tuple[int, ...]
    error: float


def _in_order(values: Array) -> tuple[Array, Ints]:
    """Sort the values in FP32 with their positions; NaN comes last.

    Tiles are looked up within rounding, for which FP32 suffices. Words of FP32 bits and position
    sort faster than doubles, and the sort is stable.
    """
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
    single[np.isnan(single)] = np.nan  # NaNs may differ in sign: give all the same bits
    bits = single.view(np.int32)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # bits in the order of the values
    words = (bits.astype(np.int64) << 32) | np.arange(len(values), dtype=np.int64)
    words.sort()
    places = words & 0xFFFFFFFF
    return single[places], places


def _within(ordered: Array, value: float, slack: float) -> slice:
    """Return the slice of values from `_in_order` that are near `value`."""
    # In FP32: `searchsorted` would convert the whole array for a double.
    low, high = np.float32(value - slack), np.float32(value + slack)
    return slice(
        int(np.searchsorted(ordered, low)), int(np.searchsorted(ordered, high, side="right"))
    )


def _without_zero_tails(block: Array) -> Array:
    """Drop trailing rows and columns of zeros: padding, which a golden does not have."""
    for _ in range(2):
        lines = np.flatnonzero(block.any(axis=1))
        block = block[: int(lines[-1]) + 1 if lines.size else 1].T
    return block


class Matcher:
    """Looks up tiles in all arrays of a golden at once.

    Tiles of a few elements are never found, because they match everywhere.
    """

    def __init__(self, arrays: Sequence[Intermediate]) -> None:
        kept = [a for a in arrays if a.array.size >= 2]
        self._arrays = kept
        sizes = [a.array.size for a in kept]
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._flat: Array = (
            np.concatenate([a.array.reshape(-1) for a in kept]) if kept else np.zeros(0)
        )
        self._sorted, self._order = _in_order(self._flat)
        rank = max((a.array.ndim for a in kept), default=1)
        # Element strides of the axes before the last one, innermost first; 0 if missing.
        self._strides = np.zeros((len(kept), max(rank - 1, 1)), np.int64)
        for i, a in enumerate(kept):
            step = 1
            for j, n in enumerate(reversed(a.array.shape[1:])):
                step *= n
                self._strides[i, j] = step

    def find(self, tile: Array, close: float = CLOSE) -> Match | None:
        """Return an array that contains the tile as a block, within rounding, or None."""
        block = self._block(tile)
        if block is None:
            return None
        norm = float(np.linalg.norm(block))
        probes = self._probes(block)
        candidates = self._near(block[probes[0]], norm / block.size**0.5)
        if not candidates.size:
            return None
        return self._look(block, norm, probes, candidates, close)

    def multiples(self, tile: Array) -> list[tuple[Match, float]]:
        """Return arrays that contain a multiple of the tile, with the factors, which are not 1."""
        block = self._block(tile)
        if block is None or block.shape[1] < 2:
            return []
        pairs = np.minimum(np.abs(block[:, :-1]), np.abs(block[:, 1:]))
        i, j = divmod(int(np.argmax(pairs)), block.shape[1] - 1)
        if not pairs[i, j]:
            return []
        with np.errstate(all="ignore"):
            return self._multiples(block, [(i, j), *self._probes(block)])

    def _multiples(self, block: Array, probes: list[tuple[int, int]]) -> list[tuple[Match, float]]:
        i, j = probes[0]
        ratio = float(block[i, j + 1] / block[i, j])
        slack = 3 * CLOSE * abs(ratio)
        found: list[tuple[Match, float]] = []
        for ratios, order, steps in self._ratios:
            for one in self._multiples_at(
                block, probes, order[_within(ratios, ratio, slack)], steps
            ):
                if not any(abs(one[1] - factor) <= CLOSE * abs(factor) for _, factor in found):
                    found.append(one)
        return found

    def _block(self, tile: Array) -> Array | None:
        """Return the tile as a matrix (a column as a row), or None if it is not distinctive."""
        block = np.asarray(tile, np.float64)
        block = block.reshape(-1, block.shape[-1]) if block.ndim else block.reshape(1, 1)
        block = _without_zero_tails(block)
        if block.size < _MIN_ELEMENTS or not np.isfinite(block).all():
            return None
        if float(np.abs(block).max()) > _MAX_MAGNITUDE:
            return None
        norm = float(np.linalg.norm(block))
        spread = block - block.mean()
        if norm == 0 or float(np.linalg.norm(spread)) < 1e-3 * norm:
            return None  # a constant matches everywhere
        return block.reshape(1, -1) if 1 in block.shape else block

    @cached_property
    def _ratios(self) -> list[tuple[Array, Ints, Ints | None]]:
        """Return ratios of adjacent elements, sorted, with the position and distance of each pair.

        The distance is None for elements next to each other.
        """
        flat = self._flat[:_MAX_RATIOS]
        places = np.arange(flat.size, dtype=np.int64)
        owner = np.searchsorted(self._start, places, side="right") - 1
        end = np.minimum(self._start[owner + 1], flat.size)
        found: list[tuple[Array, Ints, Ints | None]] = []
        for axis in range(-1, min(self._strides.shape[1], 2)):
            steps = np.ones_like(places) if axis < 0 else self._strides[owner, axis]
            usable = (steps > 0) & (places + steps < end) & (flat != 0)
            usable &= (axis < 0) | (steps > 1)
            at = places[usable]
            ratios = flat[at + steps[usable]] / flat[at]
            ordered, order = _in_order(ratios)
            found.append((ordered, at[order], None if axis < 0 else steps))
        return found

    def _multiples_at(
        self, block: Array, probes: list[tuple[int, int]], at: Ints, steps: Ints | None
    ) -> Iterator[tuple[Match, float]]:
        owner = np.searchsorted(self._start, at, side="right") - 1
        factors = self._flat[at] / block[probes[0]]
        other = np.isfinite(factors) & (np.abs(factors - 1) > _MIN_FACTOR_DISTANCE)
        scale = float(np.linalg.norm(block)) / block.size**0.5
        rows, columns = block.shape
        for down, across in self._layouts(rows, owner, None if steps is None else steps[at]):
            base = at - probes[0][0] * down - probes[0][1] * across
            last = base + (rows - 1) * down + (columns - 1) * across
            fits = other & (base >= self._start[owner]) & (last < self._start[owner + 1])
            kept = np.flatnonzero(fits & ((down > 0) | (rows == 1)))
            for i, j in probes[1:]:
                there = self._flat[base[kept] + i * down[kept] + j * across[kept]]
                slack = 4 * CLOSE * max(abs(float(block[i, j])), scale)
                kept = kept[np.abs(there / factors[kept] - block[i, j]) <= slack]
            for k in kept[:_MAX_MULTIPLES].tolist():
                place = int(base[k]), int(down[k]), int(across[k])
                factor = float((self._there(block, *place) * block).sum() / (block**2).sum())
                scaled = block * factor
                norm = float(np.linalg.norm(scaled))
                if norm == 0:
                    continue  # ratios of very small numbers
                match = self._verify(scaled, norm, *place, CLOSE)
                if match is not None and abs(factor - 1) > _MIN_FACTOR_DISTANCE:
                    yield match, factor

    def _layouts(self, rows: int, owner: Ints, steps: Ints | None) -> Iterator[tuple[Ints, Ints]]:
        """Yield the row and column strides of a block, for pairs `steps` apart."""
        ones = np.ones_like(owner)
        if steps is not None:
            yield ones, steps
        elif rows == 1:
            yield ones, ones
        else:
            for axis in range(self._strides.shape[1]):
                yield self._strides[owner, axis], ones

    def _probes(self, block: Array) -> list[tuple[int, int]]:
        """Return the positions of large elements far from each other, the least disturbed ones."""
        flat = np.argsort(-np.abs(block.reshape(-1)), kind="stable")
        chosen = flat[np.linspace(0, max(flat.size // 2, 1), _PROBES).astype(int)]
        corners = [0, block.size - 1]
        return [divmod(int(i), block.shape[1]) for i in (*chosen, *corners)]

    def _near(self, value: float, scale: float) -> Ints:
        slack = 2 * CLOSE * max(abs(value), scale)
        found = self._order[_within(self._sorted, value, slack)]
        return found[:: max(1, found.size // _MAX_CANDIDATES)] if found.size else found

    def _look(
        self,
        block: Array,
        norm: float,
        probes: list[tuple[int, int]],
        candidates: Ints,
        close: float,
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
                    place = int(base[k]), int(down[k]), int(across[k])
                    found = self._verify(block, norm, *place, close)
                    if found is not None:
                        return found
        return None

    def _there(self, block: Array, base: int, down: int, across: int) -> Array:
        """Return the block of an array at the position and strides of `block`."""
        return np.lib.stride_tricks.as_strided(
            self._flat[base:], block.shape, (8 * down, 8 * across), writeable=False
        )

    def _verify(
        self, block: Array, norm: float, base: int, down: int, across: int, close: float
    ) -> Match | None:
        there = self._there(block, base, down, across)
        error = float(np.linalg.norm(there - block)) / norm
        if not error <= close:  # the golden may have NaN there
            return None
        owner = int(np.searchsorted(self._start, base, side="right")) - 1
        array = self._arrays[owner]
        inside = base - int(self._start[owner])
        position = tuple(int(i) for i in np.unravel_index(inside, array.array.shape))
        return Match(array, position, error)
