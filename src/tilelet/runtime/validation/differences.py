"""Differences of two outputs, and their report.

The rule is that of `torch.allclose`: |actual - expected| <= atol + rtol * |expected| for every
element. Equal infinities are close, NaN never is. Differences are taken in double; of integers,
exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import as_array, to_double

WORST = 5  # elements shown
ROWS = 5  # mismatching rows shown
ROW_VALUES = 4  # values shown of each
# Elements compared at once, which bounds the memory of a comparison.
_BLOCK = 1 << 21


class DifferingElement(NamedTuple):
    """One mismatching element, ordered by severity."""

    badness: float
    place: int  # flat index in the output
    actual: object
    expected: object
    difference: float
    allowed: float


@dataclass
class Differences:
    """Statistics of a scan over two outputs of the same shape."""

    shape: tuple[int, ...]
    rtol: float
    atol: float
    total: int = 0
    mismatched: int = 0
    nan_actual: int = 0
    nan_expected: int = 0
    inf_actual: int = 0
    inf_expected: int = 0
    first: int = -1  # flat index of the first mismatching element
    largest: float = 0.0  # finite absolute difference
    worst: list[DifferingElement] = field(default_factory=list[DifferingElement])
    # Mismatches by row (all axes but the last), of the first `ROWS` rows that have any.
    rows: dict[int, int] = field(default_factory=dict[int, int])
    _difference_squares: float = 0.0
    _expected_squares: float = 0.0

    @property
    def matched(self) -> int:
        return self.total - self.mismatched

    @property
    def not_finite(self) -> int:
        return self.nan_actual + self.nan_expected + self.inf_actual + self.inf_expected

    @property
    def relative_l2(self) -> float:
        """|actual - expected| / |expected| in the 2-norm, over the finite elements."""
        if self._expected_squares == 0.0:
            return 0.0 if self._difference_squares == 0.0 else math.inf
        return math.sqrt(self._difference_squares / self._expected_squares)

    def position(self, index: int) -> tuple[int, ...]:
        """Return the index of a flattened element in the output's own axes."""
        return tuple(int(i) for i in np.unravel_index(index, self.shape)) if self.shape else ()

    def add(self, start: int, actual: Array, expected: Array) -> None:
        """Count one block of elements, the first of which has the flat index `start`."""
        difference, magnitude, equal = _distance(actual, expected)
        finite = np.isfinite(difference)
        with np.errstate(invalid="ignore"):  # no tolerance for infinite values
            allowed = self.atol + self.rtol * magnitude
        bad = np.flatnonzero(~(equal | (finite & (difference <= allowed))))
        self.total += actual.size
        self.mismatched += bad.size
        self._count_special(actual, expected)
        self.largest = max(self.largest, float(np.max(difference, where=finite, initial=0.0)))
        self._difference_squares += _squares(difference[finite])
        self._expected_squares += _squares(magnitude[np.isfinite(magnitude)])
        if bad.size:
            self.first = start + int(bad[0]) if self.first < 0 else self.first
            self._note_worst(start, bad, actual, expected, difference, allowed)
            self._note_rows(start, bad)

    def _count_special(self, actual: Array, expected: Array) -> None:
        if not _is_float(actual) and not _is_float(expected):
            return
        a, e = to_double(actual), to_double(expected)
        self.nan_actual += int(np.isnan(a).sum())
        self.nan_expected += int(np.isnan(e).sum())
        self.inf_actual += int(np.isinf(a).sum())
        self.inf_expected += int(np.isinf(e).sum())

    def _note_worst(
        self,
        start: int,
        bad: Array,
        actual: Array,
        expected: Array,
        difference: Array,
        allowed: Array,
    ) -> None:
        badness = np.nan_to_num(difference[bad], nan=np.inf, posinf=np.inf)
        # Ties keep the first element; a stable sort of the negated values does that.
        first = np.argsort(-badness, kind="stable")[:WORST]
        found = [
            DifferingElement(
                float(badness[i]),
                start + int(bad[i]),
                actual[bad[i]].item(),
                expected[bad[i]].item(),
                float(difference[bad[i]]),
                float(allowed[bad[i]]),
            )
            for i in first
        ]
        self.worst = heapq.nsmallest(WORST, self.worst + found, key=lambda e: (-e.badness, e.place))

    def _note_rows(self, start: int, bad: Array) -> None:
        width = self.shape[-1] if self.shape else 1
        rows, counts = np.unique((bad + start) // width, return_counts=True)
        for row, count in zip(rows.tolist(), counts.tolist()):
            if row in self.rows or len(self.rows) < ROWS:
                self.rows[row] = self.rows.get(row, 0) + count


def scan(actual: object, expected: object, rtol: float, atol: float) -> Differences:
    """Compare two outputs of the same shape element by element."""
    a, e = as_array(actual), as_array(expected)
    if a.shape != e.shape:
        raise ValueError(f"cannot compare shapes {list(a.shape)} and {list(e.shape)}")
    found = Differences(a.shape, rtol, atol)
    for start, left, right in _blocks(a, e):
        found.add(start, left, right)
    return found


def mismatches(actual: object, expected: object, rtol: float, atol: float) -> Array:
    """Which elements are not close: an array of booleans of the outputs' shape."""
    a, e = as_array(actual), as_array(expected)
    bad: Array = np.zeros(a.size, np.bool_)
    for start, left, right in _blocks(a, e):
        difference, magnitude, equal = _distance(left, right)
        close = np.isfinite(difference) & (difference <= atol + rtol * magnitude)
        bad[start : start + left.size] = ~(equal | close)
    return bad.reshape(a.shape)


def allclose(actual: object, expected: object, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """`torch.allclose(actual, expected, rtol, atol)` for arrays and tensors."""
    return scan(actual, expected, rtol, atol).mismatched == 0


def failure_text(name: str, found: Differences, actual: object, expected: object) -> str:
    """Return the text of a failed comparison: counts, tolerances, norms, worst elements, rows."""
    share = 100.0 * found.mismatched / max(found.total, 1)
    lines = [
        f"Output '{name}' does not match golden.",
        f"Mismatched elements: {found.mismatched}/{found.total} ({share:.3g}%)",
        f"rtol={found.rtol:g}, atol={found.atol:g}",
        *detail_lines(found, actual, expected),
    ]
    return "\n".join(lines)


def detail_lines(found: Differences, actual: object, expected: object) -> list[str]:
    """Norms, NaN and Inf counts, worst elements and first mismatching rows."""
    lines = _special_lines(found)
    if max(found.nan_actual, found.nan_expected) < found.total:
        # With NaNs, the norm is over the other elements, and labelled so.
        of = " of the finite elements" if found.not_finite else ""
        norms = f"Relative L2 error{of}: {found.relative_l2:.4g}"
        lines.append(f"{norms}; largest difference: {found.largest:.6g}")
    if found.worst:
        lines.append("Worst elements:")
        lines += [f"  {_element_text(found, element)}" for element in found.worst]
    if found.rows:
        lines.append("First mismatching rows:")
        a, e = as_array(actual), as_array(expected)
        lines += [line for row in found.rows for line in _row_lines(found, row, a, e)]
    return lines


def _special_lines(found: Differences) -> list[str]:
    counts = [
        (found.nan_actual, "NaN", "actual"),
        (found.nan_expected, "NaN", "golden"),
        (found.inf_actual, "Inf", "actual"),
        (found.inf_expected, "Inf", "golden"),
    ]
    shown = [f"{n} {what} in {where}" for n, what, where in counts if n]
    lines = [f"Not finite: {', '.join(shown)}"] if shown else []
    if found.nan_actual and not found.nan_expected:
        lines.append(
            "  memory that was never written reads as NaN; 0 / 0, inf - inf and 0 * inf give NaN"
        )
    return lines


def _element_text(found: Differences, element: DifferingElement) -> str:
    return (
        f"{list(found.position(element.place))}: actual {value_text(element.actual)}, "
        f"golden {value_text(element.expected)}, difference {element.difference:.6g} "
        f"(allowed {element.allowed:.6g})"
    )


def _row_lines(found: Differences, row: int, actual: Array, expected: Array) -> list[str]:
    """Return a row's index and count, and values of both sides from its first mismatch on."""
    width = found.shape[-1] if found.shape else 1
    place = found.position(row * width)[:-1]
    a = actual[place].reshape(-1) if found.shape else actual.reshape(-1)
    e = expected[place].reshape(-1) if found.shape else expected.reshape(-1)
    first = scan(a, e, found.rtol, found.atol).first
    shown = slice(first, first + ROW_VALUES)
    more = ", ..." if first + ROW_VALUES < width else ""
    columns = f"{first}:{min(first + ROW_VALUES, width)}"
    return [
        f"  row {list(place)}: {found.rows[row]} of {width} differ; columns {columns}",
        f"    actual [{', '.join(value_text(v) for v in a[shown].tolist())}{more}]",
        f"    golden [{', '.join(value_text(v) for v in e[shown].tolist())}{more}]",
    ]


def value_text(value: object) -> str:
    """Format a number with its significant digits."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _is_float(array: Array) -> bool:
    # ml_dtypes types are of kind "V" or "f", depending on the version; integers are not.
    return array.dtype.kind not in "iub"


def _distance(actual: Array, expected: Array) -> tuple[Array, Array, Array]:
    """|actual - expected|, |expected| (both double) and exact equality."""
    if _is_float(actual) or _is_float(expected):
        a, e = to_double(actual), to_double(expected)
        with np.errstate(invalid="ignore"):
            return np.abs(a - e), np.abs(e), a == e
    # the absolute difference of 64-bit integers, exact modulo 2^64
    larger, smaller = np.maximum(actual, expected), np.minimum(actual, expected)
    wide = larger.astype(np.uint64) - smaller.astype(np.uint64)
    return wide.astype(np.float64), np.abs(expected.astype(np.float64)), actual == expected


def _squares(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.dot(values, values))


def _blocks(actual: Array, expected: Array) -> Iterator[tuple[int, Array, Array]]:
    """Both arrays in flat pieces of about `_BLOCK` elements, with the first index of each."""
    if actual.ndim <= 1 or actual.size <= _BLOCK:
        yield 0, actual.reshape(-1), expected.reshape(-1)
        return
    row = actual.size // actual.shape[0]
    step = max(1, _BLOCK // row)
    for first in range(0, actual.shape[0], step):
        rows = slice(first, first + step)
        yield first * row, actual[rows].reshape(-1), expected[rows].reshape(-1)
