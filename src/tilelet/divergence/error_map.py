"""Describe which regions of an output are wrong, and what the pattern of the error suggests.

Pure functions of two arrays. Regions are described axis by axis: a range, a tail, every k-th block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass
from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array
from tilelet.numerics.casts import as_computable

Bools = NDArray[np.bool_]

MAX_REGIONS = 8
_MAX_ROUNDING = 2e-2
"""Relative L2 error up to which two regions are equal except for rounding."""
_SAMPLE = 1 << 16
"""Sample size where checking every element would take too long."""


@dataclass(frozen=True)
class AxisSpan:
    """Indices of one axis: `width` of every `period`, from `start` up to `stop`."""

    start: int
    stop: int
    extent: int
    width: int = 0
    period: int = 0

    @property
    def is_all(self) -> bool:
        return self.start == 0 and self.stop == self.extent and not self.period

    @property
    def is_tail(self) -> bool:
        return self.start > 0 and self.stop == self.extent and not self.period

    def __str__(self) -> str:
        if self.period:
            blocks = f"{self.width} of every {self.period} from {self.start}"
            return blocks if self.stop == self.extent else f"{blocks} up to {self.stop}"
        if self.stop == self.start + 1:
            return f"{self.start}"
        return f"{self.start}:{self.stop}"


@dataclass(frozen=True)
class Region:
    """A part of an output: a span per axis, and the number of wrong elements."""

    spans: tuple[AxisSpan, ...]
    wrong: int

    @property
    def size(self) -> int:
        return math.prod(_count(s) for s in self.spans)

    @property
    def text(self) -> str:
        return f"[{', '.join(':' if s.is_all else str(s) for s in self.spans)}]"

    @property
    def about(self) -> str:
        """Format as `rows 16:32, all columns`."""
        names = _axis_names(len(self.spans))
        parts = [
            f"all {name}"
            if s.is_all
            else f"the last {s.stop - s.start} {name} ({s})"
            if s.is_tail
            else f"{name} {s}"
            for name, s in zip(names, self.spans)
        ]
        return ", ".join(parts) or "the only element"

    def to_data(self) -> JsonObject:
        spans = [
            {"start": s.start, "stop": s.stop, "width": s.width, "period": s.period}
            for s in self.spans
        ]
        return {"spans": spans, "wrong": self.wrong, "size": self.size}


def _count(span: AxisSpan) -> int:
    if not span.period:
        return span.stop - span.start
    whole, rest = divmod(span.stop - span.start, span.period)
    return whole * span.width + min(rest, span.width)


def _axis_names(rank: int) -> list[str]:
    if rank == 1:
        return ["elements"]
    return [*(f"axis {i} at" for i in range(rank - 2)), "rows", "columns"]


@dataclass(frozen=True)
class Shape:
    """What the pattern of an error suggests.

    kind    "factor", "row factor", "offset", "shift", "transposed", "zero", "NaN", "rounding",
            "sign", "permuted", "unknown"
    value   the factor, the offset, the number of rows, in the unit that `text` names
    """

    kind: str
    text: str
    value: float | None = None

    def to_data(self) -> JsonObject:
        return {"kind": self.kind, "text": self.text, "value": self.value}


# Regions


def regions_of(bad: Bools) -> list[Region]:
    """Describe the wrong elements by few regions: one if they form a grid, else boxes of equal
    rows.
    """
    if not bad.any():
        return []
    if bad.ndim == 0:
        return [Region((), 1)]
    whole = _grid(bad)
    if whole is not None:
        return [whole]
    found = sorted(_boxes(bad), key=lambda region: -region.wrong)
    return found[:MAX_REGIONS]


def _grid(bad: Bools) -> Region | None:
    """Return the region of all wrong elements, if it is a grid that is mostly wrong."""
    spans: list[AxisSpan] = []
    for axis in range(bad.ndim):
        others = tuple(i for i in range(bad.ndim) if i != axis)
        span = _span(np.flatnonzero(bad.any(axis=others)), bad.shape[axis])
        if span is None:
            return None
        spans.append(span)
    region = Region(tuple(spans), int(bad.sum()))
    return region if region.wrong >= 0.5 * region.size else None


def _span(at: NDArray[np.intp], extent: int) -> AxisSpan | None:
    """Describe indices as a range or as periodic blocks, or return None."""
    start, stop = int(at[0]), int(at[-1]) + 1
    if stop - start == at.size:
        return AxisSpan(start, stop, extent)
    breaks = np.flatnonzero(np.diff(at) > 1)
    starts = at[np.concatenate([[0], breaks + 1])]
    widths = np.diff(np.concatenate([[0], breaks + 1, [at.size]]))
    periods = np.diff(starts)
    if (
        np.all(periods == periods[0])
        and np.all(widths[:-1] == widths[0])
        and (widths[-1] <= widths[0])
    ):
        return AxisSpan(start, stop, extent, int(widths[0]), int(periods[0]))
    # Nearly a range: correct elements in it are correct by chance.
    return AxisSpan(start, stop, extent) if at.size > 0.9 * (stop - start) else None


def _boxes(bad: Bools) -> Iterator[Region]:
    """Yield runs of adjacent rows with the same wrong columns; leading axes one by one."""
    matrix = bad.reshape(-1, bad.shape[-1])
    packed = np.packbits(matrix, axis=1)
    changes = np.flatnonzero(np.any(packed[1:] != packed[:-1], axis=1)) + 1
    rows = bad.shape[-2] if bad.ndim > 1 else 1
    # A box stays within one matrix of the leading axes.
    cuts = np.unique(np.concatenate([changes, np.arange(0, len(matrix), rows), [len(matrix)]]))
    for first, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        columns = np.flatnonzero(matrix[first])
        if not columns.size:
            continue
        span = _span(columns, bad.shape[-1]) or AxisSpan(
            int(columns[0]), int(columns[-1]) + 1, bad.shape[-1]
        )
        wrong = int(matrix[first:end].sum())
        if bad.ndim == 1:
            yield Region((span,), wrong)
            continue
        lead, outer = first // rows, list[AxisSpan]()
        for n in reversed(bad.shape[:-2]):
            lead, i = divmod(lead, n)
            outer.insert(0, AxisSpan(i, i + 1, n))
        row = AxisSpan(first % rows, (end - 1) % rows + 1, rows)
        yield Region((*outer, row, span), wrong)


# Patterns


def shape_of(actual: Array, expected: Array, bad: Bools, ulp: float = 0.0) -> Shape:
    """Return what the wrong elements have in common.

    `ulp` is the relative spacing of the output's type, or 0 if it has none.
    """
    a, e = as_computable(actual).astype(np.float64), as_computable(expected).astype(np.float64)
    wrong_a, wrong_e = a[bad], e[bad]
    if not wrong_a.size:
        return Shape("unknown", "close values: only the script's own comparison rejects them")
    if np.isnan(wrong_a).mean() > 0.5:
        return Shape("NaN", "NaN: never written, or the result of 0 / 0 or inf - inf")
    keep = np.isfinite(wrong_a) & np.isfinite(wrong_e)
    wrong_a, wrong_e = wrong_a[keep], wrong_e[keep]
    if not wrong_a.size:
        return Shape("unknown", "infinite")
    if not wrong_a.any():
        return Shape("zero", "zero: not written, or nothing was accumulated")
    found = _match_rounding(wrong_a, wrong_e, ulp) or _factor(wrong_a, wrong_e, actual.shape)
    if found is None:
        box = tuple(slice(s.min(), s.max() + 1) for s in np.nonzero(bad))
        found = (
            _match_moved(a, e, bad)
            or _match_transposed(a[box], e[box])
            or _by_line(a[box], e[box])
            or _offset(wrong_a, wrong_e)
        )
    return found or Shape("unknown", _size_text(wrong_a, wrong_e))


def _size_text(a: Array, e: Array) -> str:
    norm = float(np.linalg.norm(e))
    error = float(np.linalg.norm(a - e)) / norm if norm else math.inf
    return f"no simple pattern; relative L2 error {error:.3g}"


def _match_rounding(a: Array, e: Array, ulp: float) -> Shape | None:
    scale = np.maximum(np.abs(e), np.finfo(np.float64).tiny)
    error = (a - e) / scale
    largest = float(np.max(np.abs(error)))
    if not ulp or largest > 8 * ulp:
        return None
    towards_zero = float(np.mean(np.abs(a) <= np.abs(e)))
    for share, how in ((towards_zero, "towards zero"), (1 - towards_zero, "away from zero")):
        if share > 0.98 and a.size >= 16:
            text = f"rounding, always {how}: up to {largest / ulp:.1f} ulp"
            return Shape("rounding", text, largest / ulp)
    return Shape("rounding", f"rounding: up to {largest / ulp:.1f} ulp", largest / ulp)


def _close(a: Array, e: Array) -> bool:
    norm = float(np.linalg.norm(e))
    return norm > 0 and float(np.linalg.norm(a - e)) <= _MAX_ROUNDING * norm


def _factor(a: Array, e: Array, shape: Sequence[int]) -> Shape | None:
    square = float(np.dot(e, e))
    if square == 0 or a.size < 2:
        return None
    factor = float(np.dot(a, e)) / square
    if abs(factor - 1) < _MAX_ROUNDING or abs(factor) < 1e-9 or not _close(a, factor * e):
        return None
    if abs(factor + 1) < _MAX_ROUNDING:
        return Shape("sign", "the sign is wrong: actual = -golden", -1.0)
    return Shape("factor", f"a constant factor: actual = {_number(factor, shape)} x golden", factor)


def _number(factor: float, shape: Sequence[int]) -> str:
    """Format the factor, explaining it by an extent if possible."""
    for n in sorted({*shape, 2, 3, 4, 8, 16, 32, 64, 128, 256}):
        if n < 2:
            continue
        for value, text in (
            (n, f"{n}"),
            (1 / n, f"1/{n}"),
            (math.sqrt(n), f"sqrt({n})"),
            (1 / math.sqrt(n), f"1/sqrt({n})"),
        ):
            if abs(factor / value - 1) < 1e-3:
                return f"{factor:.6g} (= {text})"
    return f"{factor:.6g}"


def _offset(a: Array, e: Array) -> Shape | None:
    difference = a - e
    mean = float(difference.mean())
    if mean and float(np.abs(difference - mean).max()) <= 1e-2 * abs(mean):
        return Shape("offset", f"a constant offset: actual = golden + {mean:.6g}", mean)
    return None


def _match_transposed(a: Array, e: Array) -> Shape | None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape[-1] < 2:
        return None
    if _close(a, np.swapaxes(e, -1, -2)):
        return Shape("transposed", "transposed: actual[i, j] = golden[j, i]")
    return None


def _by_line(a: Array, e: Array) -> Shape | None:
    """Look for a separate factor per row or per column."""
    for axis, name in ((-1, "row"), (-2, "column")):
        if a.ndim < -axis or a.shape[axis] < 4:
            continue
        square = np.sum(e * e, axis=axis, keepdims=True)
        product = np.sum(a * e, axis=axis, keepdims=True)
        with np.errstate(all="ignore"):
            factor = np.where(square > 0, product / square, 1.0)
        if np.isfinite(factor).all() and _close(a, factor * e):
            low, high = float(factor.min()), float(factor.max())
            text = f"a separate factor for every {name}, from {low:.4g} to {high:.4g}"
            return Shape(f"{name} factor", text)
    return None


def _match_moved(a: Array, e: Array, bad: Bools) -> Shape | None:
    """Look for wrong rows (columns) that are correct rows (columns) of another place."""
    for axis, name in ((-2, "row"), (-1, "column")):
        if a.ndim < -axis or a.shape[axis] < 2:
            continue
        lines_a = np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1)
        lines_e = np.moveaxis(e, axis, 0).reshape(a.shape[axis], -1)
        mask = np.moveaxis(bad, axis, 0).reshape(a.shape[axis], -1)
        found = _shifts(lines_a, lines_e, mask)
        if not found:
            continue
        n = max(set(found), key=found.count)
        # A few lines that wrap around or match two shifts do not hide the shift of the others.
        if found.count(n) >= 0.75 * len(found):
            by = f"{abs(n)} {name}{'s' if abs(n) > 1 else ''}"
            there = f"i {'+' if n > 0 else '-'} {abs(n)}"
            return Shape("shift", f"shifted by {by}: actual[i] = golden[{there}]", float(n))
        if len(found) > 2:
            return Shape("permuted", f"correct {name}s in wrong places")
    return None


def _shifts(a: Array, e: Array, mask: Bools) -> list[int]:
    """Return the distances from some wrong lines to the lines they equal; [] unless each equals
    one.
    """
    lines = np.flatnonzero(mask.any(axis=1))
    wanted = lines[np.linspace(0, lines.size - 1, min(lines.size, 8)).astype(int)]
    found: list[int] = []
    for line in wanted.tolist():
        columns = np.flatnonzero(mask[line])
        columns = slice(columns[0], columns[-1] + 1)
        mine, others = a[line, columns], e[:, columns]
        if mine.size < 4 or not np.isfinite(mine).all():
            return []
        step = max(1, others.size // _SAMPLE)
        distance = np.linalg.norm(others[:, ::step] - mine[::step], axis=1)
        best = int(np.argmin(distance))
        if best == line or distance[best] > _MAX_ROUNDING * max(
            float(np.linalg.norm(mine[::step])), 1e-300
        ):
            return []
        found.append(best - line)
    return found
