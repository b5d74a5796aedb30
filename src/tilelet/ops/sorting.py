"""Sorting of (value, index) records."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import NoSuchForm, ShapeMismatch, SortGeometry
from tilelet.dtypes import FP16, FP32, INT32, UINT32, Array
from tilelet.ir.core import Value
from tilelet.ir.faults import RegionFault, SortFault
from tilelet.ir.spec import Call, Cost, Shape, Valid, op
from tilelet.ir.types import TileType
from tilelet.ops import infer
from tilelet.ops.annotations import Int, Shaped
from tilelet.ops.families import VECTOR
from tilelet.ops.valid import Args, Operands

__all__ = ["mrgsort", "sort32"]

_RUN = 32


def _infer_sort32(call: Call) -> infer.Types:
    src, idx = infer.tile(call, "src"), infer.tile(call, "idx")
    infer.check_dtype(call, "src", src.dtype, (FP32, FP16))
    infer.check_dtype(call, "idx", idx.dtype, (UINT32, INT32))
    infer.same_shape(call, "src", src, "idx", idx, "one index per value")
    if src.shape[-1] % _RUN:
        raise SortGeometry(call.at("src"), call.shown, src.shape, "rows of a multiple of 32")
    columns = src.shape[-1] * numerics.record_slots(src.dtype)
    return (
        TileType((*src.shape[:-1], columns), src.dtype, infer.vector_space(call, "src", "idx")),
    )


def _sort32(src: Array, idx: Array) -> Array:
    rows = tuple(map(min, src.shape, idx.shape))
    box = tuple(slice(0, extent) for extent in rows)
    return numerics.sort32(src[box], np.ascontiguousarray(idx[box]))


def _valid_sort32(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, _ = operands["src"]
    region = tuple(map(min, operands["src"][1], operands["idx"][1]))
    return (*region[:-1], region[-1] * (result_shape[-1] // shape[-1]))


@op(
    infer=_infer_sort32,
    reference=_sort32,
    valid=_valid_sort32,
    cut_to_valid=True,
    era="APR",
    cost=Cost.SORT,
    family=VECTOR,
)
def sort32(src: Shaped, idx: Shaped) -> Shaped:
    """Sort each run of 32 columns, greatest first, and keep the index of each value.

    src: FP32 or FP16, rows of a multiple of 32; idx: UINT32 (or INT32) of the same shape
    result: records (value, index) side by side, in src's dtype: two columns each for FP32, four
        for FP16, the index as raw bits. Equal values are ordered by index; NaN comes first

    Example: `pairs = pl.sort32(scores, pl.arange(0, [1, 512], dtype=pl.UINT32))`
    """
    ...


def _lists(args: Args) -> list[str]:
    return [p for p in ("src0", "src1", "src2", "src3") if args[p] is not None]


def _infer_mrgsort(call: Call) -> infer.Types:
    first = infer.tile(call, "src0")
    infer.check_dtype(call, "src0", first.dtype, (FP32, FP16))
    infer.scratch(call, "tmp")
    infer.flag(call, "exhausted")
    lists = _lists(call.args)
    space = infer.vector_space(call, *lists)
    if (call["block_len"] is None) == (len(lists) == 1):
        forms = ("pl.mrgsort(x, block_len=B)", "pl.mrgsort(a, b, c, d, exhausted=False)")
        raise NoSuchForm(call.loc, call.shown, forms)
    if len(lists) == 1:
        _check_runs(call, first)
        return (TileType(first.shape, first.dtype, space),)
    columns = 0
    for param in lists:
        each = infer.tile(call, param)
        infer.same_dtype(call, "src0", first.dtype, param, each.dtype)
        if each.shape[:-1] != first.shape[:-1]:
            raise ShapeMismatch(
                call.shown, call.at("src0"), first.shape, call.at(param), each.shape, "equal rows"
            )
        if each.shape[-1] % numerics.record_slots(first.dtype):
            raise SortGeometry(call.at(param), call.shown, each.shape, "rows of whole records")
        columns += each.shape[-1]
    return (TileType((*first.shape[:-1], columns), first.dtype, space),)


def _unfit(shape: Sequence[int], block: int) -> str:
    """Return what a row needs for runs of `block`; empty if it fits."""
    fits = block > 0 and block % 64 == 0 and shape[-1] % (4 * block) == 0
    if fits and math.prod(shape[:-1]) == 1:
        return ""
    return f"one row of a multiple of 4 * block_len = {4 * block}, block_len a multiple of 64"


def _check_runs(call: Call, x: TileType) -> None:
    if isinstance(call["block_len"], Value):
        infer.integer(call, "block_len")
        return
    needs = _unfit(x.shape, infer.constant_int(call, "block_len", at_least=1))
    if needs:
        raise SortGeometry(call.at("src0"), call.shown, x.shape, needs)


def _mrgsort(
    src0: Array,
    src1: Array | None,
    src2: Array | None,
    src3: Array | None,
    tmp: Array | None,
    exhausted: bool,
    block_len: int | None,
) -> Array:
    if block_len is not None:
        needs = _unfit(src0.shape, block_len)
        if needs:
            raise SortFault("mrgsort", src0.shape, needs)
        return numerics.mrgsort(src0, block_len)
    given = [x for x in (src0, src1, src2, src3) if x is not None]
    return numerics.mrgsort_lists(given, exhausted)


def _valid_mrgsort(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    for param in _lists(args):
        shape, region = operands[param]
        if region != shape:
            raise RegionFault("mrgsort", region, shape)
    return result_shape


@op(
    infer=_infer_mrgsort,
    reference=_mrgsort,
    valid=_valid_mrgsort,
    era="APR",
    cost=Cost.SORT,
    family=VECTOR,
)
def mrgsort(
    src0: Shaped,
    src1: Shaped | None = None,
    src2: Shaped | None = None,
    src3: Shaped | None = None,
    tmp: Shaped | None = None,
    exhausted: bool = False,
    *,
    block_len: Int | None = None,
) -> Shaped:
    """Merge sorted runs of (value, index) records. Two forms:

    `mrgsort(src0, block_len=B)`: every four adjacent runs of B columns of the single row become one
        sorted run of 4 B. B is a multiple of 64 (as returned by `pl.sort32`) and may be a run-time
        number; the row length is a multiple of 4 B
    `mrgsort(src0, src1, src2, src3)`: two to four sorted lists become one. With
        `exhausted=True` the merge stops when one list is exhausted; the rest is zero

    tmp: scratch tile, accepted for compatibility and ignored
    result: records, greatest value first, as `pl.sort32` orders them

    Example: `pairs = pl.mrgsort(pairs, block_len=64)`
    """
    ...
