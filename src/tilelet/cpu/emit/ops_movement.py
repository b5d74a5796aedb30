"""Loads, stores, tile views, single elements, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilelet.cpu.emit.elements import element, repeat_bytes, scalar_type
from tilelet.cpu.emit.kernel import KernelEmitter, TensorRef, emits
from tilelet.cpu.emit.ops_elementwise import name_extent
from tilelet.cpu.emit.scalars import constant_sizes
from tilelet.cpu.emit.text import Dim, array_text, lesser, product, total
from tilelet.cpu.emit.tiles import EmittedTile, Leaf, Node, leaves
from tilelet.cpu.plan.forms import is_tile
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.types import TensorType, TileType
from tilelet.ops.padding import pad_element
from tilelet.ops.transfers import fit_rank
from tilelet.syntax.enums import AtomicType
from tilelet.tasks.window import row_major


def items(arg: Arg) -> tuple[Arg, ...]:
    """Return a list argument; a bare number is a list of one."""
    return arg if isinstance(arg, tuple) else (arg,)


def dropped_axes(arg: Arg, rank: int) -> set[int]:
    if arg is None:
        return set()
    return {a % rank for a in items(arg) if isinstance(a, int)}


def kept_axes(dims: Sequence[Dim], dropped: set[int]) -> tuple[Dim, ...]:
    return tuple(d for i, d in enumerate(dims) if i not in dropped)


# --- checks --------------------------------------------------------------------------------------


def check_inside(
    k: KernelEmitter,
    op: Op,
    starts: Sequence[Dim],
    sizes: Sequence[Dim],
    extents: Sequence[Dim],
    name: str,
    window: str = "NULL",
) -> None:
    """Emit the check that a window lies inside its parent, whose C name is `window`."""
    for axis, (start, size, extent) in enumerate(zip(starts, sizes, extents)):
        if (
            all(isinstance(n, int) for n in (start, size, extent))
            and start >= 0  # type: ignore[operator]
            and start + size <= extent  # type: ignore[operator]
        ):
            continue
        site = k.site(op, name)
        fail = f"tl_fail_window(c, {site}, {axis}, {start}, {size}, {extent}, {window})"
        k.out.add(f"if (tl_outside({start}, {size}, {extent})) return {fail};")


# --- loads ---------------------------------------------------------------------------------------


@emits("slice")
def emit_slice(k: KernelEmitter, op: Op) -> None:
    if is_tile(op.args["x"]):
        _slice_tile(k, op)
        return
    limits = op.args["valid_shape"]
    tile = loaded_window(
        k,
        op,
        "x",
        k.dims(op.args["offset"]),
        constant_sizes(op.args["shape"]),
        None if limits is None else k.dims(limits),
    )
    dropped = dropped_axes(op.args["drop_dims"], len(tile.shape))
    _finish_slice(k, op, tile, dropped)


def _finish_slice(k: KernelEmitter, op: Op, tile: EmittedTile, dropped: set[int]) -> None:
    form = tile.leaf
    shape = tuple(d for d in kept_axes(tile.shape, dropped) if isinstance(d, int))
    strides = kept_axes(form.strides, dropped)
    leaf = Leaf(form.pointer, strides, form.slot, form.window, form.is_zeroed and not dropped)
    tile = EmittedTile(shape, tile.dtype, kept_axes(tile.valid, dropped), leaf)
    if op.args["pad_value"] is not None:
        tile = pad_tile(k, tile, op.args["pad_value"], tile.shape)
    k.result(op, tile)


@emits("load")
def emit_load(k: KernelEmitter, op: Op) -> None:
    limits = op.args["valid_shapes"] if op.args["valid_shape"] is None else op.args["valid_shape"]
    tile = loaded_window(
        k,
        op,
        "tensor",
        k.dims(op.args["offsets"]),
        constant_sizes(op.args["shapes"]),
        None if limits is None else k.dims(limits),
    )
    if op.args["transpose"]:
        rank = len(tile.shape)
        tile = swap_axes(tile, rank - 2, rank - 1)
    k.result(op, tile)


def loaded_window(
    k: KernelEmitter,
    op: Op,
    source: str,
    offset: list[Dim],
    sizes: tuple[int, ...],
    limits: list[Dim] | None,
) -> EmittedTile:
    """Return a window of global memory as a tile that is read in place.

    Its last axis has stride 1; a window without unit stride is copied first.
    """
    ref = k.tensor(op.args[source])
    value = op.args[source]
    assert isinstance(value, Value)
    assert isinstance(value.type, TensorType)
    dtype = value.type.dtype
    e = element(dtype)
    rank = len(sizes)
    pointer, valid = k.name(f"g_{op.results[0].name}"), tuple[Dim, ...](sizes)
    k.out.add(f"// {op.name} `{value.name}`", op.loc)
    if ref.is_full and limits is None and not op.args["clamp"]:
        check_inside(k, op, offset, sizes, _reach(ref, rank), value.name, ref.pointer)
        place = total(
            [
                product(f"({o})" if isinstance(o, str) else o, ref.stride(i))
                for i, o in enumerate(offset)
            ]
        )
        k.out.add(
            f"const {e.memory} *{pointer} = (const {e.memory} *){ref.pointer}->data + ({place});"
        )
        strides: tuple[Dim, ...] = tuple(ref.stride(i) for i in range(rank))
    else:
        window = k.name("window")
        k.out.add(f"tl_win {window};")
        cut = array_text(limits) if limits is not None else "NULL"
        edge = "TL_SIZED" if op.args["sized"] else "TL_INSIDE"
        edge = "TL_CLAMP" if op.args["clamp"] else edge
        k.check(
            f"tl_slice(c, {k.site(op, value.name)}, &{window}, {ref.pointer}, "
            f"{array_text(offset)}, {array_text(sizes)}, {cut}, {edge})"
        )
        k.out.add(f"const {e.memory} *{pointer} = (const {e.memory} *){window}.data;")
        strides = tuple(f"{window}.stride[{i}]" for i in range(rank))
        valid = tuple(f"{window}.valid[{i}]" for i in range(rank))
        valid = tuple(k.variable("valid", v) for v in valid)
    return _unit_stride(k, pointer, strides, sizes, valid, ref, value)


def _unit_stride(
    k: KernelEmitter,
    pointer: str,
    strides: tuple[Dim, ...],
    sizes: tuple[int, ...],
    valid: tuple[Dim, ...],
    ref: TensorRef,
    value: Value,
) -> EmittedTile:
    assert isinstance(value.type, TensorType)
    dtype, rank = value.type.dtype, len(sizes)
    if sizes[-1] == 1:
        names = [k.variable("ld", s) for s in strides]
        return EmittedTile(sizes, dtype, valid, Leaf(pointer, tuple(names), window=ref.pointer))
    slot = k.take_slot()
    dense = row_major(sizes)
    names = [k.name("ld") for _ in range(rank - 1)]
    for name, s in zip(names, strides):
        k.out.add(f"int64_t {name} = {s};")
    with k.out.block(f"if ({strides[-1]} != 1)"):
        k.out.add(
            f"tl_copy_in({slot.name}, {pointer}, {array_text(sizes)}, {array_text(valid)}, "
            f"{array_text(strides)}, {rank}, {dtype.itemsize});"
        )
        k.out.add(f"{pointer} = {slot.name};")
        for name, d in zip(names, dense):
            k.out.add(f"{name} = {d};")
    return EmittedTile(sizes, dtype, valid, Leaf(pointer, (*names, 1), slot, window=ref.pointer))


# --- stores --------------------------------------------------------------------------------------


@emits("assemble")
def emit_assemble(k: KernelEmitter, op: Op) -> None:
    if is_tile(op.args["target"]):
        _insert(k, op)
    else:
        store(k, op, "target", "source", "offset")


@emits("store")
def emit_store(k: KernelEmitter, op: Op) -> None:
    store(k, op, "tensor", "tile", "offsets")


def fitted_tile(tile: EmittedTile, rank: int) -> EmittedTile:
    """Return the tile with leading axes of extent 1 added or removed to have `rank` axes."""
    extra = len(tile.shape) - rank
    shape = fit_rank(tile.shape, rank)
    assert shape is not None
    if extra == 0:
        return tile
    valid = tile.valid[extra:] if extra > 0 else ((1,) * -extra + tile.valid)
    form = tile.form
    assert isinstance(form, Leaf)
    strides = form.strides[extra:] if extra > 0 else ((0,) * -extra + form.strides)
    return EmittedTile(
        shape,
        tile.dtype,
        valid,
        Leaf(form.pointer, strides, form.slot, form.window, form.is_zeroed),
    )


def store(k: KernelEmitter, op: Op, target: str, source: str, offset: str) -> None:
    """Write the valid part of a tile to global memory.

    The store is direct if the last axis has stride 1 and no pending read overlaps the buffer
    (except exactly at the replaced elements); otherwise it goes through scratch memory.
    """
    ref, into = k.tensor(op.args[target]), op.args[target]
    assert isinstance(into, Value)
    assert isinstance(into.type, TensorType)
    dtype, rank = into.type.dtype, len(into.type.shape)
    if len(k.tile(op.args[source]).shape) != rank:
        k.stored(op.args[source])
    tile = fitted_tile(k.tile(op.args[source]), rank)
    tile = _as_stored(tile, into)
    starts = k.dims(op.args[offset])
    k.out.add(f"// {op.name} `{into.name}`", op.loc)
    with k.out.block():
        check_inside(k, op, starts, tile.valid, _reach(ref, rank), into.name, ref.pointer)
        e = element(dtype)
        place = total(
            [
                product(f"({o})" if isinstance(o, str) else o, ref.stride(i))
                for i, o in enumerate(starts)
            ]
        )
        there, to = k.name("there"), k.name("to")
        k.out.add(f"{e.memory} *const {there} = ({e.memory} *){ref.pointer}->data + ({place});")
        strides = [ref.stride(i) for i in range(rank)]
        is_direct = _direct_condition([tile, *k.nest_operands], ref, there, strides)
        slot = k.take_slot()
        names = [k.name("ld") for _ in range(rank)]
        k.out.add(f"const int is_direct = {is_direct};")
        k.out.add(f"{e.memory} *const {to} = is_direct ? {there} : {slot.name};")
        for name, s, d in zip(names, strides, row_major(tile.shape)):
            k.out.add(f"const int64_t {name} = is_direct ? {s} : {d};")
        written: list[Dim] = [*names[:-1], 1]
        if op.args["atomic"] is AtomicType.Add:
            k.out.add(
                f"if (!is_direct) tl_copy_in({to}, {there}, {array_text(tile.shape)}, "
                f"{array_text(tile.valid)}, {array_text(strides)}, {rank}, {dtype.itemsize});"
            )
            sum_ = e.rounded("{place} + {}") if e.is_float else f"({e.number})({{place}} + {{}})"
            k.evaluate(tile, to, written, sum_)
        else:
            _write(k, tile, to, written, ref)
            # Where it fits exactly, its offset is 0.
            is_first = tile.shape == into.type.shape or starts[0] == 0
            if ref.is_full and tile.is_full and is_first and tile.shape[1:] == into.type.shape[1:]:
                k.note_store_of_rows(op, into, tile.shape[0])
        is_over = f" && {k.row} == {k.nest.rows - 1}" if k.nest else ""
        k.out.add(
            f"if (!is_direct{is_over}) tl_copy_out({there}, {to}, {array_text(tile.shape)}, "
            f"{array_text(tile.valid)}, {array_text(strides)}, {rank}, {dtype.itemsize});"
        )
    k.define(op.result, ref)


def _write(
    k: KernelEmitter, tile: EmittedTile, to: str, strides: Sequence[Dim], ref: TensorRef
) -> None:
    """Write a tile that is stored. A nest writes through the cache while it computes other rows:
    non-temporal stores of a whole row would make the next row wait.
    """
    if k.nest:
        k.evaluate(tile, to, strides)
        return
    k.out.add(f"const int bypasses_cache = is_direct && {ref.pointer}->is_far;")
    k.evaluate_bypassing_cache(tile, to, strides, "bypasses_cache")


def _as_stored(tile: EmittedTile, into: Value) -> EmittedTile:
    """Round an FP32 accumulator that is stored to a narrower type to nearest even."""
    assert isinstance(into.type, TensorType)
    dtype = into.type.dtype
    if not tile.dtype.is_float or tile.dtype is dtype:
        return EmittedTile(tile.shape, dtype, tile.valid, tile.form)
    e = element(dtype)
    return EmittedTile(
        tile.shape, dtype, tile.valid, Node(lambda texts, _: e.rounded(texts[0]), (tile,))
    )


def _reach(ref: TensorRef, rank: int) -> list[Dim]:
    if ref.exists:
        return [ref.extent(i) for i in range(rank)]
    return [f"{ref.pointer}->reach[{i}]" for i in range(rank)]


def _direct_condition(
    tiles: Sequence[EmittedTile], ref: TensorRef, there: str, strides: list[str]
) -> str:
    """Return the condition that the first of `tiles` may be stored while all are read."""
    tile = tiles[0]
    conditions = [f"{strides[-1]} == 1"] if tile.shape[-1] > 1 else ["1"]
    for part, leaf in (pair for read in tiles for pair in leaves(read)):
        if leaf.window is None:
            continue
        apart = f"{leaf.window}->buf != {ref.pointer}->buf"
        if part.shape == tile.shape and part.dtype.itemsize == tile.dtype.itemsize:
            pairs = zip(part.shape, leaf.strides, strides)
            same = " && ".join(f"{a} == {b}" for n, a, b in pairs if n > 1)
            same = f"(const void *){leaf.pointer} == (const void *){there}" + (
                f" && {same}" if same else ""
            )
            apart = f"({apart} || ({same}))"
        conditions.append(apart)
    return " && ".join(dict.fromkeys(conditions))


def _insert(k: KernelEmitter, op: Op) -> None:
    """Emit `assemble` into a tile, in place if nothing else needs its memory."""
    into, source = op.args["target"], op.args["source"]
    t = k.tile_type(op.result)
    rank = len(t.shape)
    if len(k.tile(source).shape) != rank:
        k.stored(source)
    part = fitted_tile(k.tile(source), rank)
    target = k.tile(into)
    starts = k.dims(op.args["offset"])
    assert isinstance(into, Value)
    check_inside(k, op, starts, part.valid, t.shape, into.name)
    if len(k.step.slots) == 2:  # the source lies in the memory that it is inserted into
        part = k.materialize_tile(part, k.take_slot())
    slot = k.take_replaced(into)
    valid: tuple[Dim, ...] = t.shape
    if not target.is_full:
        name = k.name("region")
        k.out.add(f"int64_t {name}[{rank}];")
        k.check(
            f"tl_insert_valid(c, {k.site(op, 'assemble')}, {array_text(t.shape)}, "
            f"{array_text(target.valid)}, {array_text(part.valid)}, "
            f"{array_text(starts)}, {rank}, {name})"
        )
        valid = tuple(k.variable("valid", f"{name}[{i}]") for i in range(rank))
    strides = row_major(t.shape)
    place = total(
        [product(f"({o})" if isinstance(o, str) else o, s) for o, s in zip(starts, strides)]
    )
    k.evaluate(part, f"({slot.name} + {place})", strides)
    k.result(op, k.slot_tile(slot, t.shape, t.dtype, valid))


# --- views of tiles ------------------------------------------------------------------------------


def _slice_tile(k: KernelEmitter, op: Op) -> None:
    x = k.stored(op.args["x"])
    value = op.args["x"]
    assert isinstance(value, Value)
    starts, limits = k.dims(op.args["offset"]), op.args["valid_shape"]
    sizes = constant_sizes(op.args["shape"])
    needed: Sequence[Dim] = sizes
    if limits is not None:
        needed = _regions(k, op, k.dims(limits), sizes, value.name)
    if not op.args["clamp"]:
        check_inside(k, op, starts, needed, x.shape, value.name)
    else:
        starts = _not_negative(k, op, starts, needed, x.shape, value.name)
    region = [
        lesser(_visible_extent(v, start, size, bool(op.args["clamp"]) or not x.is_full), limit)
        for v, start, size, limit in zip(x.valid, starts, sizes, needed)
    ]
    region = [name_extent(k, v) for v in region]
    leaf = x.leaf
    place = total(
        [product(f"({o})" if isinstance(o, str) else o, s) for o, s in zip(starts, leaf.strides)]
    )
    pointer = k.variable("view", f"{leaf.pointer} + ({place})", f"{element(x.dtype).memory} *")
    pointer_leaf = Leaf(pointer, leaf.strides, leaf.slot, leaf.window)
    tile = EmittedTile(sizes, x.dtype, tuple(region), pointer_leaf)
    _finish_slice(k, op, tile, dropped_axes(op.args["drop_dims"], len(sizes)))


def _regions(
    k: KernelEmitter, op: Op, limits: Sequence[Dim], sizes: Sequence[int], name: str
) -> list[Dim]:
    """Return the checked extents of a valid region; a negative computed extent makes it empty."""
    checked: list[Dim] = []
    for axis, (limit, size) in enumerate(zip(limits, sizes)):
        if isinstance(limit, int) and 0 <= limit <= size:
            checked.append(limit)
            continue
        fail = f"tl_fail(c, TL_VALID, {k.site(op, name)}, {axis}, {limit}, {size}, 0)"
        k.out.add(f"if ({limit} > {size}) return {fail};")
        if op.args.get("sized") and not op.args["clamp"]:
            k.out.add(f"if ({limit} < 0) return {fail};")
        checked.append(name_extent(k, f"ts_max({limit}, 0)"))
    return checked


def _not_negative(
    k: KernelEmitter,
    op: Op,
    starts: list[Dim],
    sizes: Sequence[Dim],
    extents: Sequence[int],
    name: str,
) -> list[Dim]:
    """Return the checked offsets of a window that may extend past the end, clamped to the end."""
    checked: list[Dim] = []
    for axis, (start, size, extent) in enumerate(zip(starts, sizes, extents)):
        if isinstance(start, int) and start >= 0:
            checked.append(min(start, extent))
            continue
        fail = f"tl_fail_window(c, {k.site(op, name)}, {axis}, {start}, {size}, {extent}, NULL)"
        k.out.add(f"if ({start} < 0) return {fail};")
        checked.append(k.variable("start", f"ts_min({start}, {extent})"))
    return checked


def _visible_extent(valid: Dim, start: Dim, size: int, may_be_cut: bool) -> Dim:
    """Return how much of the window lies in the region."""
    if not may_be_cut:
        return size
    if isinstance(valid, int) and isinstance(start, int):
        return max(0, min(valid - start, size))
    return f"ts_max(0, ts_min({valid} - ({start}), {size}))"


def swap_axes(tile: EmittedTile, a: int, b: int) -> EmittedTile:
    def swap(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        new = list(dims)
        new[a], new[b] = new[b], new[a]
        return tuple(new)

    leaf = tile.leaf
    shape = tuple(d for d in swap(tile.shape) if isinstance(d, int))
    form = Leaf(leaf.pointer, swap(leaf.strides), leaf.slot, leaf.window, leaf.is_zeroed)
    return EmittedTile(shape, tile.dtype, swap(tile.valid), form)


@emits("transpose")
def emit_transpose(k: KernelEmitter, op: Op) -> None:
    a, b = op.args["axis1"], op.args["axis2"]
    assert isinstance(a, int)
    assert isinstance(b, int)
    if not is_tile(op.args["x"]):
        ref = k.tensor(op.args["x"])
        name, rank = _copied_window(k, op, ref), len(ref.extents)
        k.out.add(f"tl_swap_axes(&{name}, {a % rank}, {b % rank});")
        return
    x = k.stored(op.args["x"])
    rank = len(x.shape)
    k.result(op, swap_axes(x, a % rank, b % rank))


@emits("transpose_view")
def emit_transpose_view(k: KernelEmitter, op: Op) -> None:
    emit_transpose(k, replace(op, args={**op.args, "axis1": -2, "axis2": -1}))


@emits("reshape")
def emit_reshape(k: KernelEmitter, op: Op) -> None:
    if not is_tile(op.args["x"]):
        _view_tensor(k, op, "tl_reshape", op.args["shape"])
        return
    x = k.stored(op.args["x"])
    t = k.tile_type(op.result)
    valid: tuple[Dim, ...] = t.shape
    if not x.is_full:
        name = k.name("region")
        rank = len(t.shape)
        k.out.add(f"int64_t {name}[{rank}];")
        k.check(
            f"tl_reshape_valid(c, {k.site(op, 'reshape')}, {array_text(x.shape)}, "
            f"{array_text(x.valid)}, {len(x.shape)}, {array_text(t.shape)}, {name}, {rank})"
        )
        valid = tuple(k.variable("valid", f"{name}[{i}]") for i in range(rank))
    leaf = Leaf(x.leaf.pointer, row_major(t.shape), x.leaf.slot, is_zeroed=True)
    k.result(op, EmittedTile(t.shape, t.dtype, valid, leaf))


@emits("reinterpret_view")
def emit_reinterpret(k: KernelEmitter, op: Op) -> None:
    if not is_tile(op.args["x"]):
        _view_tensor(k, op, "tl_reinterpret", op.args["shape"])
        return
    x = k.stored(op.args["x"])
    t = k.tile_type(op.result)
    valid: tuple[Dim, ...] = t.shape
    if not x.is_full:
        region = array_text(x.valid)
        partial = (
            f"tl_fail_region(c, {k.site(op, 'reinterpret_view')}, {region}, "
            f"{array_text(x.shape)}, {len(x.shape)})"
        )
        is_full = " && ".join(f"{v} == {n}" for v, n in zip(x.valid, x.shape))
        if op.args["shape"] is not None:
            k.out.add(f"if (!({is_full})) return {partial};")
        else:
            wide = f"{x.valid[-1]} * {t.shape[-1]}"
            k.out.add(f"if (!({is_full}) && ({wide}) % {x.shape[-1]}) return {partial};")
            valid = (*x.valid[:-1], name_extent(k, f"({wide}) / {x.shape[-1]}"))
    pointer = f"(({element(t.dtype).memory} *){x.leaf.pointer})"
    leaf = Leaf(pointer, row_major(t.shape), x.leaf.slot, is_zeroed=True)
    k.result(op, EmittedTile(t.shape, t.dtype, valid, leaf))


def _view_tensor(k: KernelEmitter, op: Op, function: str, shape: Arg) -> None:
    """Emit a view of global memory inside a kernel."""
    value, t = op.args["x"], op.result.type
    assert isinstance(value, Value)
    assert isinstance(t, TensorType)
    name = _copied_window(k, op, k.tensor(value))
    size = f"{t.dtype.itemsize}, " if function == "tl_reinterpret" else ""
    dims = [] if shape is None else k.dims(shape)
    given = "NULL" if shape is None else array_text(dims)
    k.check(f"{function}(c, {k.site(op, value.name)}, &{name}, {size}{given}, {len(dims)})")


def _copied_window(k: KernelEmitter, op: Op, ref: TensorRef) -> str:
    """Declare the window of `op`'s result, initialized with a copy of `ref`."""
    t = op.result.type
    assert isinstance(t, TensorType)
    name = k.name(op.result.name)
    k.out.add(f"tl_win {name} = *{ref.pointer};", op.loc)
    extents = tuple(d if isinstance(d, int) else None for d in t.shape)
    k.define(op.result, TensorRef(f"(&{name})", extents, ref.is_full, ref.exists))
    return name


@emits("concat")
def emit_concat(k: KernelEmitter, op: Op) -> None:
    a, b = k.tile(op.args["src0"]), k.tile(op.args["src1"])
    t = k.tile_type(op.result)
    valid: tuple[Dim, ...] = t.shape
    if not (a.is_full and b.is_full):
        valid = _joined_region(k, op, a, b)
    slot = k.take_slot()
    k.clear_outside(t.shape, valid, slot, t.dtype)
    strides = row_major(t.shape)
    k.evaluate(a, slot.name, strides)
    k.evaluate(b, f"({slot.name} + {a.shape[1]})", strides)
    k.result(op, k.slot_tile(slot, t.shape, t.dtype, valid))


def _joined_region(k: KernelEmitter, op: Op, a: EmittedTile, b: EmittedTile) -> tuple[Dim, ...]:
    """Return the region of two concatenated tiles; their regions must be adjacent."""
    empty = f"({b.valid[0]} == 0 || {b.valid[1]} == 0)"
    torn = f"!({a.valid[0]} == {b.valid[0]} && {a.valid[1]} == {a.shape[1]})"
    site = k.site(op, "concat")
    k.out.add(
        f"if (!{empty} && {torn}) return tl_fail_region(c, {site}, {array_text(a.valid)}, "
        f"{array_text(a.shape)}, 2);"
    )
    columns = f"{empty} ? {a.valid[1]} : {a.shape[1]} + {b.valid[1]}"
    return (name_extent(k, a.valid[0]), k.variable("valid", columns))


# --- padding -------------------------------------------------------------------------------------


def pad_tile(k: KernelEmitter, tile: EmittedTile, pad: Arg, shape: tuple[int, ...]) -> EmittedTile:
    """Copy the valid part of a tile into a new one of `shape`, padded with the pad value."""
    if tile.is_full and tile.shape == shape:
        return tile
    slot = k.take_slot()
    item = np.asarray(pad_element(pad, tile.dtype), tile.dtype.numpy).tobytes()
    valid = tile.valid
    if tile.shape != shape:
        valid = tuple(str(v) for v in tile.valid)
    k.clear_outside(shape, valid, slot, tile.dtype, repeat_bytes(item))
    k.evaluate(tile, slot.name, row_major(shape))
    return k.slot_tile(slot, shape, tile.dtype, shape)


@emits("fillpad", "fillpad_expand")
def emit_fillpad(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    tile = pad_tile(k, k.tile(op.args["x"]), op.args["pad_value"], t.shape)
    k.result(op, tile)


@emits("set_validshape")
def emit_set_validshape(k: KernelEmitter, op: Op) -> None:
    value = op.args["x"]
    assert isinstance(value, Value)
    x = k.tile(value)
    if not x.is_full:
        x = k.stored(value)  # if the region grows, the new elements are zeros
    limits = _regions(k, op, [k.dim(op.args["rows"]), k.dim(op.args["cols"])], x.shape, value.name)
    node = Node(lambda texts, _: texts[0], (x,), op.loc)
    k.result(op, EmittedTile(x.shape, x.dtype, tuple(limits), node))


# --- single elements -----------------------------------------------------------------------------


@emits("read")
def emit_read(k: KernelEmitter, op: Op) -> None:
    value = op.args["x"]
    assert isinstance(value, Value)
    assert isinstance(value.type, (TensorType, TileType))
    e = element(value.type.dtype)
    at = k.dims(items(op.args["indices"]))
    if is_tile(value):
        x = k.stored(value)
        _check_index(k, op, at, x.shape, value.name)
        place = total(
            [product(f"({i})" if isinstance(i, str) else i, s) for i, s in zip(at, x.leaf.strides)]
        )
        source = f"{x.leaf.pointer}[{place}]"
    else:
        address = k.name("address")
        k.out.add(f"char *{address};")
        k.check(
            f"tl_element(c, {k.site(op, value.name)}, {k.tensor(value).pointer}, "
            f"{array_text(at)}, &{address})"
        )
        source = f"*(const {e.memory} *){address}"
    c_type = scalar_type(value.type.dtype)
    k.define(op.result, k.variable(op.result.name, f"({c_type})({e.load(source)})", c_type, op.loc))


def _check_index(
    k: KernelEmitter, op: Op, at: Sequence[Dim], shape: Sequence[int], name: str
) -> None:
    for axis, (index, extent) in enumerate(zip(at, shape)):
        if isinstance(index, int) and 0 <= index < extent:
            continue
        fail = f"tl_fail(c, TL_INDEX, {k.site(op, name)}, {axis}, {index}, {extent}, 0)"
        k.out.add(f"if ({index} < 0 || {index} >= {extent}) return {fail};")


@emits("write")
def emit_write(k: KernelEmitter, op: Op) -> None:
    value = op.args["x"]
    assert isinstance(value, Value)
    assert isinstance(value.type, (TensorType, TileType))
    e = element(value.type.dtype)
    at = k.dims(items(op.args["indices"]))
    number = e.store(e.from_scalar(k.scalar(op.args["value"])))
    if not is_tile(value):
        address = k.name("address")
        k.out.add(f"char *{address};")
        ref = k.tensor(value)
        k.check(
            f"tl_element(c, {k.site(op, value.name)}, {ref.pointer}, {array_text(at)}, &{address})"
        )
        k.out.add(f"*({e.memory} *){address} = {number};", op.loc)
        k.define(op.result, ref)
        return
    x = k.tile(value)
    _check_index(k, op, at, x.shape, value.name)
    valid: tuple[Dim, ...] = x.shape
    rank = len(x.shape)
    if not x.is_full:
        name = k.name("region")
        k.out.add(f"int64_t {name}[{rank}];")
        k.check(
            f"tl_insert_valid(c, {k.site(op, 'assemble')}, {array_text(x.shape)}, "
            f"{array_text(x.valid)}, {array_text([1] * rank)}, {array_text(at)}, {rank}, {name})"
        )
        valid = tuple(k.variable("valid", f"{name}[{i}]") for i in range(rank))
    slot = k.take_replaced(value)
    place = total(
        [product(f"({i})" if isinstance(i, str) else i, s) for i, s in zip(at, row_major(x.shape))]
    )
    k.out.add(f"{slot.name}[{place}] = {number};", op.loc)
    k.result(op, k.slot_tile(slot, x.shape, x.dtype, valid))


@emits("tensor.dim")
def emit_dim(k: KernelEmitter, op: Op) -> None:
    value, axis = op.args["tensor"], op.args["axis"]
    assert isinstance(value, Value)
    assert isinstance(axis, int)
    if is_tile(value):
        extent: Dim = k.tile_type(value).shape[axis]
    else:
        ref = k.tensor(value)
        extent = ref.extent(axis % len(ref.extents))
    k.define(op.result, k.variable(op.result.name, extent, loc=op.loc))
