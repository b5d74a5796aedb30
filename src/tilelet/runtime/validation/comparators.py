"""The comparators of `compare_fn`: each returns a function that judges one output.

Such a function is called as `compare(actual, expected, *, actual_outputs, expected_outputs, inputs,
rtol, atol)` and returns `(ok, message)`. Arrays and torch tensors are both accepted. None of them
passes an output with NaN, except where `allclose_where_defined` or `ignore_nan` allow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tilelet.dataclasses import dataclass
from tilelet.diag.text import quoted_names
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import as_array, to_double
from tilelet.runtime.validation.differences import Differences, detail_lines, scan

Verdict = tuple[bool, str]
Comparator = Callable[..., Verdict]

# Below this magnitude (the smallest normal FP16 number) relative differences are meaningless.
_MIN_NORMAL = 2.0**-14
# Elements that are compared at once.
_BLOCK = 1 << 20


def ratio_allclose(
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
    max_show: int = 10,  # noqa: ARG001 - the report has its own measure
    valid_rows: int | None = None,
    valid_axis: int = 0,
    zero_tail: bool = False,
    ignore_nan: bool = False,
) -> Comparator:
    """Pass if at most `max_error_ratio` of the elements are not close, and all are finite.

    With `valid_rows` only that many leading rows of `valid_axis` are judged; `zero_tail` demands
    that the rest of the actual output is zero. With `ignore_nan`, elements are not compared where
    the golden is NaN, unless it is NaN everywhere.
    """

    def compare(actual: object, expected: object, **context: Any) -> Verdict:
        a, e = as_array(actual), as_array(expected)
        if valid_rows is not None:
            rows = int(valid_rows)
            if zero_tail and _has_tail(a, valid_axis, rows):
                return False, _tail_text(valid_axis, rows)
            a, e = _up_to(a, valid_axis, rows), _up_to(e, valid_axis, rows)
        judged = e.size
        if ignore_nan:
            a, e, judged = _where_defined(a, e)
            if e.size and not judged:
                return False, "the golden is NaN everywhere: nothing to compare with"
        found = scan(
            a,
            e,
            context.get("rtol", 1e-5) if rtol is None else rtol,
            context.get("atol", 1e-5) if atol is None else atol,
        )
        budget = round(max_error_ratio * judged)
        summary = f"{found.mismatched}/{judged} elements not close, {budget} allowed"
        return _verdict(found.mismatched <= budget, summary, found, a, e)

    return _rename(compare, f"ratio_allclose(max_error_ratio={max_error_ratio:g})")


def ratio_reldiff(
    diff_thd: float = 0.01,
    pct_thd: float = 0.05,
    max_diff_hd: float = math.inf,
    max_show: int = 10,  # noqa: ARG001 - the report has its own measure
    valid_rows: int | None = None,
    valid_axis: int = 0,
    zero_tail: bool = False,
) -> Comparator:
    """Pass if at most `pct_thd` of the elements differ by more than `diff_thd`.

    None may differ by `max_diff_hd` or more. `valid_rows`, `valid_axis` and `zero_tail` are those
    of `ratio_allclose`.
    The measure is the absolute difference where that is below `diff_thd`, else the difference
    relative to the larger magnitude of the two.
    """

    def compare(actual: object, expected: object, **_: object) -> Verdict:
        seen, wanted = as_array(actual), as_array(expected)
        if valid_rows is not None:
            if zero_tail and _has_tail(seen, valid_axis, valid_rows):
                return False, _tail_text(valid_axis, valid_rows)
            seen, wanted = (_up_to(x, valid_axis, valid_rows) for x in (seen, wanted))
        found = scan(seen, wanted, 0.0, diff_thd)
        bad, largest = 0, 0.0
        for a, e in _double_blocks(seen, wanted):
            with np.errstate(invalid="ignore"):
                difference = np.abs(a - e)
                scale = np.maximum(np.maximum(np.abs(a), np.abs(e)), _MIN_NORMAL / diff_thd) + 1e-9
                measure = np.where(difference < diff_thd, difference, difference / scale)
                bad += int((measure > diff_thd).sum())
            largest = float(np.maximum(largest, measure.max(initial=0.0)))  # NaN stays NaN
        ok = bad <= round(pct_thd * found.total) and largest < max_diff_hd
        summary = (
            f"{bad}/{found.total} elements differ by more than {diff_thd:g} "
            f"({pct_thd:g} of them may), largest measure {largest:.6g} (limit {max_diff_hd:g})"
        )
        return _verdict(ok, summary, found, seen, wanted)

    return _rename(compare, f"ratio_reldiff(diff_thd={diff_thd:g}, pct_thd={pct_thd:g})")


data_compare = ratio_reldiff
"""The original name of `ratio_reldiff`."""


def bf16_allclose_or_ulp(max_ulp: int = 1) -> Comparator:
    """Pass if each element is close to the golden, or within `max_ulp` BF16 steps of it."""

    def compare(actual: Any, expected: Any, **context: Any) -> Verdict:
        a, e = as_array(actual), as_array(expected)
        if a.dtype != bfloat16 or e.dtype != bfloat16:
            return False, f"needs BF16 outputs, got {a.dtype} and {e.dtype}"
        rtol, atol = context.get("rtol", 1e-5), context.get("atol", 1e-5)
        found = scan(a, e, rtol, atol)
        seen, wanted = to_double(a), to_double(e)
        with np.errstate(invalid="ignore"):
            near = np.abs(seen - wanted) <= atol + rtol * np.abs(wanted)
            near |= np.abs(_steps(a) - _steps(e)) <= max_ulp
        bad = int(np.count_nonzero(~near))
        summary = f"{bad}/{found.total} elements neither close nor within {max_ulp} ulp"
        return _verdict(bad == 0, summary, found, a, e)

    return _rename(compare, f"bf16_allclose_or_ulp(max_ulp={max_ulp})")


def _double_blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield arrays of one shape part by part, as doubles: these need several times their memory."""
    flat = [x.reshape(-1) for x in arrays]
    for begin in range(0, flat[0].size, _BLOCK):
        yield tuple([to_double(x[begin : begin + _BLOCK]) for x in flat])


def _steps(x: Array) -> Array:
    """Map BF16 values to ordinals; both zeros are 0."""
    bits = np.ascontiguousarray(x).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def input_prefix_ratio_allclose(
    valid_rows_name: str,
    *,
    valid_axis: int = 0,
    exact_tail: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
    max_show: int = 10,  # noqa: ARG001 - the report has its own measure
) -> Comparator:
    """`ratio_allclose` of the leading rows, counted by the input `valid_rows_name`.

    With `exact_tail` the other rows must equal the golden's.
    """

    def compare(
        actual: object, expected: object, *, inputs: Mapping[str, object], **context: object
    ) -> Verdict:
        rows = int(as_array(inputs[valid_rows_name]).reshape(()))
        tail, wanted = (_from(as_array(x), valid_axis, rows) for x in (actual, expected))
        if exact_tail and not np.array_equal(tail, wanted):
            return False, f"rows of axis {valid_axis} from {rows} on are not those of the golden"
        judge = ratio_allclose(atol, rtol, max_error_ratio, valid_rows=rows, valid_axis=valid_axis)
        return judge(actual, expected, **context)

    return _rename(compare, f"input_prefix_ratio_allclose({valid_rows_name!r})")


def allclose_where_defined() -> Comparator:
    """`allclose` of the elements that are not NaN in the golden.

    Goldens of the language's own tests mark elements outside the valid region of a store by NaN.
    """

    def compare(actual: object, expected: object, **context: Any) -> Verdict:
        a, e, _ = _where_defined(as_array(actual), as_array(expected))
        found = scan(a, e, context.get("rtol", 1e-5), context.get("atol", 1e-5))
        summary = f"{found.mismatched}/{found.total} elements not close"
        if found.mismatched:
            return False, "\n".join([summary, *detail_lines(found, a, e)])
        return True, summary

    return _rename(compare, "allclose_where_defined")


def _where_defined(actual: Array, expected: Array) -> tuple[Array, Array, int]:
    """Return both arrays with zeros where the golden is NaN, and the number of other elements."""
    if expected.dtype.kind in "iub":
        return actual, expected, expected.size
    free = np.isnan(to_double(expected))
    a, e = (np.where(free, np.zeros_like(x), x) for x in (actual, expected))
    return a, e, expected.size - int(np.count_nonzero(free))


def _has_tail(x: Array, axis: int, rows: int) -> bool:
    return bool(np.any(to_double(_from(x, axis, rows)) != 0.0))


def _tail_text(axis: int, rows: int) -> str:
    return f"rows of axis {axis} from {rows} on are not all zero"


def topk_pair_compare(
    vals_name: str,
    dim: int = -1,
    descending: bool = True,
    max_show: int = 10,  # noqa: ARG001 - the report has its own measure
) -> Comparator:
    """Judge the indices of a top-k, letting equal values come in any order.

    `vals_name` is the output that holds the values. They must be close to the golden's, if it has
    them. An index may differ from the golden's where the values on both sides of it are still in
    order; an index that occurs twice in a row of the top-k, where the golden has none twice, never
    passes.
    """

    def compare(
        actual: object,
        expected: object,
        *,
        actual_outputs: Mapping[str, object],
        expected_outputs: Mapping[str, object],
        rtol: float = 1e-5,
        atol: float = 1e-5,
        **_: object,
    ) -> Verdict:
        if vals_name not in actual_outputs:
            return False, f"there is no output '{vals_name}', only {quoted_names(actual_outputs)}"
        values = as_array(actual_outputs[vals_name])
        if vals_name in expected_outputs:  # a script may have computed them from the selection
            golden_values = as_array(expected_outputs[vals_name])
            found = scan(values, golden_values, rtol, atol)
            if found.mismatched:
                summary = f"{found.mismatched}/{found.total} values of '{vals_name}' not close"
                return _verdict(False, summary, found, values, golden_values)
        picked = np.moveaxis(as_array(actual), dim, -1)
        wanted = np.moveaxis(as_array(expected), dim, -1)
        ordered = _in_order(np.moveaxis(to_double(values), dim, -1), descending)
        illegal = (picked != wanted) & ~ordered
        if illegal.any():
            where = [int(i) for i in np.argwhere(illegal)[0]]
            return False, (
                f"{int(illegal.sum())} indices differ where '{vals_name}' is out of order; "
                f"first at {where}: actual {picked[tuple(where)]}, golden {wanted[tuple(where)]}"
            )
        doubled = _has_repeats(picked) & ~_has_repeats(wanted)
        if doubled.any():
            row = [int(i) for i in np.argwhere(doubled)[0]]
            return False, f"an index occurs twice in row {row}: {picked[tuple(row)].tolist()}"
        swapped = int((picked != wanted).sum())
        return True, f"{swapped} of {picked.size} indices differ between equal values"

    return _rename(compare, f"topk_pair_compare(vals_name={vals_name!r})")


def topk_set_compare() -> Comparator:
    """Judge the indices of a top-k as sets: rows may differ from the golden's in order."""

    def compare(actual: object, expected: object, **_: object) -> Verdict:
        a, e = (np.sort(as_array(x), axis=-1) for x in (actual, expected))
        if a.shape != e.shape:
            return False, f"shape {list(a.shape)}, not {list(e.shape)}"
        bad = np.argwhere((a != e).any(axis=-1))
        if not bad.size:
            return True, ""
        row = tuple(int(i) for i in bad[0])
        return False, (
            f"{len(bad)} of {a[..., 0].size} rows hold other indices; "
            f"first: row {list(row)}: actual {a[row].tolist()}, golden {e[row].tolist()}"
        )

    return _rename(compare, "topk_set_compare")


def mapped_pool_ratio_allclose(
    mapping_name: str,
    *,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool = False,
    pool_name: str = "pool",
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
) -> Comparator:
    """Judge a paged pool `[blocks, block_size, ...]` by the rows that a slot mapping names.

    The input `mapping_name` holds row numbers (block * block_size + row in block); negative ones
    are unused. Rows it names are judged by `ratio_allclose`; every other row must equal the
    golden's bit for bit, so a write outside the mapping is found. With `leading_rank_axis` pool and
    mapping have one more axis in front, and each rank is judged by its own mapping.
    """
    judge = ratio_allclose(atol, rtol, max_error_ratio)
    pool = _Pool(mapping_name, mapping_shape, block_size, leading_rank_axis, pool_name)
    return _rename(pool.judged(judge), f"mapped_pool_ratio_allclose({mapping_name!r})")


def mapped_pool_ratio_reldiff(
    mapping_name: str,
    *,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool = False,
    pool_name: str = "pool",
    diff_thd: float = 0.01,
    pct_thd: float = 0.05,
    max_diff_hd: float = math.inf,
) -> Comparator:
    """`mapped_pool_ratio_allclose` with `ratio_reldiff` for the rows that the mapping names."""
    judge = ratio_reldiff(diff_thd, pct_thd, max_diff_hd)
    pool = _Pool(mapping_name, mapping_shape, block_size, leading_rank_axis, pool_name)
    return _rename(pool.judged(judge), f"mapped_pool_ratio_reldiff({mapping_name!r})")


@dataclass(frozen=True)
class _Pool:
    """A paged pool and the input that names its rows."""

    mapping_name: str
    mapping_shape: tuple[int, ...]
    block_size: int
    leading_rank_axis: bool
    name: str

    def judged(self, judge: Comparator) -> Comparator:
        def compare(
            actual: object, expected: object, *, inputs: Mapping[str, object], **context: object
        ) -> Verdict:
            a, e = as_array(actual), as_array(expected)
            mapping = as_array(inputs[self.mapping_name])
            ranks = a.shape[0] if self.leading_rank_axis else 1
            if mapping.size not in (self._size, self._size * ranks) or mapping.size % ranks:
                shape = list(mapping.shape)
                return False, f"'{self.mapping_name}' has shape {shape}, not {self.mapping_shape}"
            if not self.leading_rank_axis:
                a, e = a[None], e[None]
            if a.shape[2] != self.block_size:
                return False, f"{self.name} has {a.shape[2]} rows per block, not {self.block_size}"
            slots = mapping.reshape(a.shape[0], -1)
            for rank in range(a.shape[0]):
                rows, golden_rows = (x[rank].reshape(-1, *x.shape[3:]) for x in (a, e))
                problem = self._problem(rank, slots[rank], rows, golden_rows, judge, context)
                if problem:
                    return False, problem
            return True, ""

        return compare

    @property
    def _size(self) -> int:
        return math.prod(self.mapping_shape)

    def _problem(
        self,
        rank: int,
        slots: Array,
        rows: Array,
        golden_rows: Array,
        judge: Comparator,
        context: Mapping[str, object],
    ) -> str:
        """Return the mistakes in the rows of one rank, or ""."""
        named = slots[slots >= 0].astype(np.int64)
        if named.size and named.max() >= rows.shape[0]:
            return f"'{self.mapping_name}' names row {named.max()} of {rows.shape[0]}"
        written = np.zeros(rows.shape[0], dtype=bool)
        written[named] = True
        touched = np.flatnonzero(~written & _rows_differ(rows, golden_rows))
        if touched.size:
            return (
                f"{touched.size} rows of {self.name} outside '{self.mapping_name}' changed; "
                f"first: row {touched[0]} of rank {rank}"
            )
        ok, message = judge(rows[written], golden_rows[written], **context)
        return "" if ok else f"rows of {self.name} named by '{self.mapping_name}': {message}"


def error_distribution(
    diff_thds: Sequence[float] = (),
    quantiles: Sequence[float] = (0.5, 0.9, 0.99, 0.999, 1.0),
    always_pass: bool = True,
) -> Comparator:
    """Report the distribution of differences; always pass by default.

    diff_thds: report for each threshold how many elements differ by more
    quantiles: of the differences, from 0 to 1
    always_pass: False to fail if a result is not finite
    """

    def compare(actual: Any, expected: Any, **context: Any) -> Verdict:
        found = scan(actual, expected, context.get("rtol", 1e-5), context.get("atol", 1e-5))
        seen, wanted = as_array(actual), as_array(expected)
        difference, end = np.empty(seen.size), 0
        for a, e in _double_blocks(seen, wanted):
            begin, end = end, end + a.size
            np.abs(a - e, out=difference[begin:end])
        is_finite = np.isfinite(difference)
        finite = difference if is_finite.all() else difference[is_finite]
        parts = [f"relative L2 {found.relative_l2:.4g}"]
        if finite.size:
            special = {0.5: "median", 1.0: "max"}
            names = [special.get(q, f"{100 * q:g}%") for q in quantiles]
            values = np.quantile(finite, quantiles, overwrite_input=True)
            parts += [f"{name} {value:.4g}" for name, value in zip(names, values)]
        more = [(limit, np.count_nonzero(~(difference <= limit))) for limit in diff_thds]
        parts += [f"{count} above {limit:g}" for limit, count in more]
        if finite.size < difference.size:
            parts.append(f"{difference.size - finite.size} not finite")
        can_pass = always_pass or all(np.isfinite(a).all() for (a,) in _double_blocks(seen))
        return can_pass, "difference: " + ", ".join(parts)

    return _rename(compare, "error_distribution")


def _verdict(ok: bool, summary: str, found: Differences, actual: Array, expected: Array) -> Verdict:
    """Return `ok` and a message with details on failure; fail if a value is not finite."""
    if found.not_finite == 0 and ok:
        return True, summary
    if ok:
        summary = f"{found.not_finite} values are not finite"
    return False, "\n".join([summary, *detail_lines(found, actual, expected)])


def _rename(compare: Comparator, name: str) -> Comparator:
    compare.__name__ = name
    return compare


def _up_to(array: Array, axis: int, stop: int) -> Array:
    return np.moveaxis(np.moveaxis(array, axis, 0)[:stop], 0, axis)


def _from(array: Array, axis: int, start: int) -> Array:
    return np.moveaxis(np.moveaxis(array, axis, 0)[start:], 0, axis)


def _in_order(values: Array, descending: bool) -> Array:
    """Return for each position of the last axis whether it is in order with its neighbors."""
    step = np.diff(values, axis=-1)
    right = step <= 0 if descending else step >= 0
    edge = np.ones((*values.shape[:-1], 1), dtype=bool)
    return np.concatenate([edge, right], axis=-1) & np.concatenate([right, edge], axis=-1)


def _has_repeats(indices: Array) -> Array:
    """Return for each row of the last axis whether an element occurs twice."""
    ordered = np.sort(indices, axis=-1)
    return (ordered[..., 1:] == ordered[..., :-1]).any(axis=-1)


def _rows_differ(rows: Array, golden_rows: Array) -> Array:
    flat, golden = (x.reshape(x.shape[0], -1) for x in (rows, golden_rows))
    return (flat.view(np.uint8) != golden.view(np.uint8)).any(axis=-1)
