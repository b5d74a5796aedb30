"""Reductions along rows or columns, in the order defined by `numerics/reductions.py`."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.cpu.emit.elements import element
from tilelet.cpu.emit.kernel import KernelEmitter, emits
from tilelet.cpu.emit.ops_host import emit_host
from tilelet.cpu.emit.text import Dim, array_text, product, total
from tilelet.cpu.emit.tiles import Axis, EmittedTile, Leaf, TileSlot, merged_axes, strides_in
from tilelet.cpu.plan.forms import PIECE
from tilelet.cpu.plan.regions import define_reductions
from tilelet.dtypes import FP16
from tilelet.ir.core import Op, Value
from tilelet.tasks.window import row_major

_NAMES = ("sum", "prod", "max", "min")
_FOLDED = ("sum", "prod")
_COMBINE = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "ts_max_{2}({0}, {1})",
    "min": "ts_min_{2}({0}, {1})",
}


define_reductions([f"row_{n}" for n in (*_NAMES, "argmax", "argmin")], -1)
define_reductions([f"col_{n}" for n in _NAMES], -2)


def _reduced_region(k: KernelEmitter, op: Op, x: EmittedTile, axis: int) -> tuple[Dim, ...]:
    """Return the region with `axis` reduced to 1; reducing no elements gives an empty region."""
    if not isinstance(x.valid[axis], int) or x.valid[axis] == 0:
        others = [v for i, v in enumerate(x.valid) if i != axis and not (isinstance(v, int) and v)]
        some = " && ".join([f"{x.valid[axis]} == 0", *(f"{v} != 0" for v in others)])
        fail = (
            f"tl_fail_region(c, {k.site(op, op.name)}, {array_text(x.valid)}, "
            f"{array_text(x.shape)}, {len(x.shape)})"
        )
        k.out.add(f"if ({some}) return {fail};")
    return tuple(1 if i == axis else v for i, v in enumerate(x.valid))


@emits(*(f"row_{n}" for n in (*_NAMES, "argmax", "argmin")))
def emit_row(k: KernelEmitter, op: Op) -> None:
    _along_rows(k, op, op.name.removeprefix("row_"))


@emits(*(f"col_{n}" for n in _NAMES))
def emit_col(k: KernelEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    if op.name == "col_sum" and op.args["tmp_tile"] and k.tile_type(x).dtype is FP16:
        emit_host(k, op)  # pairwise
        return
    _along_columns(k, op, op.name.removeprefix("col_"))


def _along_rows(k: KernelEmitter, op: Op, function: str) -> None:
    x = k.tile(op.args["x"])
    rank = len(x.shape)
    e = element(x.dtype)
    suffix = "f32" if e.is_float else e.suffix
    region = _reduced_region(k, op, x, rank - 1)
    result = _result_slot(k, op, x, region, rank - 1)
    slot = result.leaf.slot
    assert slot is not None
    into = element(result.dtype)
    is_plain = (
        isinstance(x.form, Leaf)
        and not e.is_narrow_float
        and (x.shape[-1] == 1 or x.form.strides[-1] == 1)
    )
    in_pieces = not is_plain and e.is_float and function in _FOLDED and x.shape[-1] > PIECE
    kept = k.planned_slot(op.args["x"])  # the whole tile, if it is needed again
    strides = row_major((*x.shape[:-1], 1))
    axes = k.box_axes(x.shape[:-1], x.valid[:-1])
    with k.out.block("", op.loc), k.loops(axes, vector=False) as index:
        if is_plain:
            row = _row_pointer(x, axes, index)
        else:
            if kept is not None:
                row = _new_row(k, x, kept, axes, index)
            else:
                row = k.take_slot().name  # one row or piece of a row
            last = k.box_axes(x.shape, x.valid)[len(axes) :]
            if in_pieces:
                ahead = k.nest_operands if k.nest and k.nest.ahead is op else []
                windows = [t for t in ahead if t.leaf.window is not None and t.shape == x.shape]
                is_kept = kept is not None
                _fold_pieces(k, x, function, row, axes, index, last[0], windows, is_kept=is_kept)
            else:
                with k.loops(last) as column:
                    value = k.element_text(x, x.shape, [*axes, *last], [*index, *column])
                    k.out.add(f"{row}[{column[0] if column else 0}] = {value};")
        if in_pieces:
            number = f"ts_folded_{function}_f32(&folded, {row})"
        else:
            number = f"ts_row_{function}_{suffix}({row}, {x.valid[-1]})"
        if into.is_float:
            number = into.rounded(number)
        place = total([product(i, strides[a.last]) for a, i in zip(axes, index)])
        k.out.add(f"{slot.name}[{place}] = {into.store(number)};")
    if kept is not None:
        k.define(op.operands[0], k.written(x, kept))
    k.result(op, result)


def _new_row(
    k: KernelEmitter, x: EmittedTile, slot: TileSlot, axes: list[Axis], index: list[str]
) -> str:
    """Return where a row of the tile is written."""
    strides = k.slot_strides(slot, x.shape)
    start = total([product(i, strides[a.last]) for a, i in zip(axes, index)])
    name = k.name("row")
    k.out.add(f"float *const {name} = {slot.name} + ({start});")
    return name


def _fold_pieces(
    k: KernelEmitter,
    x: EmittedTile,
    function: str,
    piece: str,
    axes: list[Axis],
    index: list[str],
    last: Axis,
    windows: Sequence[EmittedTile],
    *,
    is_kept: bool,
) -> None:
    """Compute a long row in pieces, so that each stays in the L1 cache. Unless the row is kept, all
    pieces use the same memory. The next row of `windows` is prefetched.
    """
    k.out.add("ts_fold folded = {0};")
    with k.pieces(last, PIECE) as (start, count_):
        for tile in windows:
            leaf, size = tile.leaf, tile.dtype.itemsize
            at = total([product(f"({k.row} + 1)", leaf.strides[0]), start])
            k.out.add(f"tl_prefetch({leaf.pointer} + {at}, {count_} * {size});")
        if is_kept:
            row, piece = piece, k.name("now")
            k.out.add(f"float *const {piece} = {row} + {start};")
        with k.loops([Axis(last.last, count_, PIECE)]) as column:
            at = k.variable("at", f"{start} + {column[0]}")
            number = k.element_text(x, x.shape, [*axes, last], [*index, at])
            k.out.add(f"{piece}[{column[0]}] = {number};")
        k.out.add(f"ts_fold_{function}_f32(&folded, {piece}, {count_});")


def _row_pointer(x: EmittedTile, axes: list[Axis], index: list[str]) -> str:
    """Return a pointer to a row of a tile in memory; its last axis must have stride 1."""
    leaf = x.leaf
    strides = strides_in(x.shape, leaf.strides, x.shape)
    return f"{leaf.pointer} + ({total([product(i, strides[a.last]) for a, i in zip(axes, index)])})"


def _result_slot(
    k: KernelEmitter, op: Op, x: EmittedTile, region: tuple[Dim, ...], axis: int
) -> EmittedTile:
    """Return memory for the result; an axis that is dropped has extent 1."""
    t = k.tile_type(op.result)
    if len(t.shape) != len(x.shape):
        region = tuple(v for i, v in enumerate(region) if i != axis)
    slot = k.take_slot()
    k.clear_outside(t.shape, region, slot, t.dtype)
    return k.slot_tile(slot, t.shape, t.dtype, region)


def _along_columns(k: KernelEmitter, op: Op, function: str) -> None:
    x = k.tile(op.args["x"])
    rank = len(x.shape)
    e = element(x.dtype)
    region = _reduced_region(k, op, x, rank - 2)
    result = _result_slot(k, op, x, region, rank - 2)
    slot = result.leaf.slot
    assert slot is not None
    # Narrow floats are summed in FP32 and rounded once at the end; FP16 is rounded at every step.
    is_stepwise = x.dtype is FP16 and function == "sum"
    sums = slot
    if e.is_narrow_float:
        sums = k.take_slot()
    outer = merged_axes(x.shape[:-2], x.valid[:-2], [], merge=False)
    inner = merged_axes(x.shape, x.valid, [], merge=False)
    columns = [a for a in inner if a.last == rank - 1]
    rows = [a for a in inner if a.last == rank - 2]
    with k.out.block("", op.loc), k.loops(outer, vector=False) as index:
        batch_strides = row_major((*x.shape[:-2], x.shape[-1]))
        base = (
            "0"
            if e.is_narrow_float
            else str(total([product(i, batch_strides[a.last]) for a, i in zip(outer, index)]))
        )
        with k.loops(rows, vector=False) as row, k.loops(columns) as column:
            number = k.element_text(x, x.shape, [*outer, *rows, *columns], [*index, *row, *column])
            place = f"{sums.name}[{total([base if base != '0' else 0, *column])}]"
            suffix = "f32" if e.is_float else e.suffix
            combined = _COMBINE[function].format(place, number, suffix)
            combined = e.rounded(combined) if is_stepwise else combined
            first = f"{row[0]} == 0" if row else "1"
            k.out.add(f"{place} = {first} ? {number} : ({e.number})({combined});")
        if e.is_narrow_float:
            with k.loops(columns) as column:
                place = total([product(i, batch_strides[a.last]) for a, i in zip(outer, index)])
                at = total([place, *column])
                read = f"{sums.name}[{column[0] if column else 0}]"
                k.out.add(f"{slot.name}[{at}] = {e.store(e.rounded(read))};")
    k.result(op, result)
