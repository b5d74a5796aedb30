"""Sorting of (value, index) records, and picking columns by a mask pattern.

A record is 8 bytes, little-endian, in an array of the values' own type (as the hardware lays it
out):

* FP32 values: two slots, (value, index); the second holds the bits of the UINT32 index.
* FP16 values: four slots, (value, +0, low half, high half); the last two hold the bits of the
  index.

So `gather_mask(..., "P0101")` (FP32) or `"P0001"` (FP16) picks the values, and `"P1010"` with an
output type of INT32 or UINT32 the indices, for both.

Records are ordered by value, greatest first. NaN sorts before every number (so that it shows up
in a top-k instead of hiding), all NaN being equal; -0 equals +0. Among equal values the smaller
index comes first; records equal in both keep their order. Values and indices keep their bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilelet.dtypes import FP16, FP32, Array, DType
from tilelet.numerics.casts import dtype_of, widen

SORT_RUN = 32

# Pattern -> (first column, step); read from the right: the last digit is column 0.
MASK_PATTERNS: dict[str, tuple[int, int]] = {
    "P0101": (0, 2),
    "P1010": (1, 2),
    "P0001": (0, 4),
    "P0010": (1, 4),
    "P0100": (2, 4),
    "P1000": (3, 4),
    "P1111": (0, 1),
}


def record_slots(dtype: DType) -> int:
    """Array elements per record: 2 for FP32 values, 4 for FP16."""
    if dtype not in (FP32, FP16):
        raise TypeError(f"records hold FP32 or FP16 values, not {dtype}")
    return 8 // dtype.itemsize


def sort32(values: Array, indices: Array) -> Array:
    """Return the records of each run of 32 columns, sorted within the run; the last may be shorter.

    values [..., N] FP32 or FP16, indices [..., N] of 32-bit integers -> [..., N * record_slots].
    """
    slots = record_slots(dtype_of(values))
    if indices.dtype not in (np.dtype(np.uint32), np.dtype(np.int32)):
        raise TypeError(f"sort32 takes 32-bit integer indices, not {dtype_of(indices)}")
    if values.shape != indices.shape:
        raise ValueError(
            f"sort32 takes one index per value, not {indices.shape} for {values.shape}"
        )
    records = np.zeros((*values.shape, slots), values.dtype)
    records[..., 0] = values
    _indices_of(records)[...] = indices.view(np.uint32)
    whole = values.shape[-1] // SORT_RUN * SORT_RUN
    runs = records[..., :whole, :].reshape(*values.shape[:-1], -1, SORT_RUN, slots)
    parts = [
        _sort_records(runs).reshape(*values.shape[:-1], whole, slots),
        _sort_records(records[..., whole:, :]),
    ]
    return np.concatenate(parts, axis=-2).reshape(*values.shape[:-1], -1)


def mrgsort(x: Array, block_len: int) -> Array:
    """Merge every four adjacent sorted runs of `block_len` columns into one of `4 * block_len`.

    Defined as sorting the records of the four runs together, which equals merging sorted runs.
    """
    slots = record_slots(dtype_of(x))
    if block_len < slots or block_len % slots or x.shape[-1] % (4 * block_len):
        raise ValueError(f"mrgsort: {x.shape[-1]} columns are not groups of 4 runs of {block_len}")
    groups = x.reshape(*x.shape[:-1], -1, 4 * block_len // slots, slots)
    return _sort_records(groups).reshape(x.shape)


def mrgsort_lists(lists: Sequence[Array], exhausted: bool = False) -> Array:
    """Merge two to four sorted lists of records [..., L_i] into one [..., L_0 + L_1 + ...].

    With `exhausted` the merge stops after the record that exhausts the first list; the rest of the
    result is zero.
    """
    slots = record_slots(dtype_of(lists[0]))
    if not 2 <= len(lists) <= 4:
        raise ValueError(f"mrgsort merges two to four lists, not {len(lists)}")
    if any(each.dtype != lists[0].dtype or each.shape[-1] % slots for each in lists):
        raise ValueError("mrgsort takes lists of whole records of one element type")
    joined = np.concatenate(lists, axis=-1)
    records = joined.reshape(*joined.shape[:-1], -1, slots)
    order = _order(records)
    merged = np.take_along_axis(records, order[..., None], axis=-2)
    if exhausted:
        ends = np.cumsum([each.shape[-1] // slots for each in lists]) - 1
        is_last = np.isin(order, ends)
        taken = np.argmax(is_last, axis=-1)[..., None] + 1
        merged[np.arange(order.shape[-1]) >= taken] = 0
    return merged.reshape(joined.shape)


def gather_mask(x: Array, pattern: str, output_dtype: DType | None = None) -> Array:
    """Return the columns of x that `pattern` selects, in order.

    With `output_dtype` the bytes of each row are first reinterpreted as that type, and the pattern
    applies to the result.
    """
    first, step = _pattern(pattern)
    if output_dtype is not None:
        if x.shape[-1] * x.itemsize % output_dtype.itemsize:
            raise ValueError(f"rows of {x.shape[-1]} {dtype_of(x)} are not whole {output_dtype}")
        x = np.ascontiguousarray(x).view(output_dtype.numpy)
    return x[..., first::step].copy()


def scatter_mask(target: Array, source: Array, pattern: str) -> Array:
    """Return a copy of `target` whose selected columns are those of `source`, in order."""
    first, step = _pattern(pattern)
    result = target.copy()
    selected = result[..., first::step]
    if source.shape != selected.shape or source.dtype != target.dtype:
        wanted = f"{selected.dtype} {selected.shape}"
        raise ValueError(f"{pattern} selects {wanted}, not {source.dtype} {source.shape}")
    selected[...] = source
    return result


def _pattern(pattern: str) -> tuple[int, int]:
    if pattern not in MASK_PATTERNS:
        raise ValueError(f"unknown mask pattern {pattern!r}; expected {', '.join(MASK_PATTERNS)}")
    return MASK_PATTERNS[pattern]


def _indices_of(records: Array) -> Array:
    """View of the UINT32 index of each record: [..., slots] contiguous -> [...]."""
    return records.view(np.uint32)[..., 1]


def _order(records: Array) -> Array:
    """Positions of the records [..., R, slots] in sorted order, [..., R]."""
    values = widen(records[..., 0]) + np.float32(0)  # -0 + 0 is +0, so that all zeros are equal
    bits = values.view(np.uint32)
    # Map to unsigned integers in descending order of the values.
    falling = np.where(bits >> 31 != 0, bits, ~(bits | np.uint32(0x80000000)))
    falling = np.where(np.isnan(values), np.uint32(0), falling)
    key = (falling.astype(np.uint64) << np.uint64(32)) | _indices_of(records)
    return np.argsort(key, axis=-1, kind="stable")


def _sort_records(records: Array) -> Array:
    return np.take_along_axis(records, _order(records)[..., None], axis=-2)
