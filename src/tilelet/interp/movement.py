"""Ops that access memory: windows, loads and stores, views, single elements, allocation.

Every window is checked where it is created. The forms on tiles have a reference and are lowered in
`compute`; this module checks their offsets first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import ReshapeCount
from tilelet.diag.catalogue.windows import (
    ExtentNotPositive,
    IndexOutOfRange,
    ReshapeNeedsCopy,
    ValidShapeTooLarge,
    WindowOutOfRange,
)
from tilelet.diag.core import Loc
from tilelet.dtypes import Array, DType
from tilelet.interp.compute import lower_compute
from tilelet.interp.lowering import Frame, Getter, Lowering, Step, lowers, plain_constant
from tilelet.interp.state import State
from tilelet.ir.core import Arg, FunctionKind, Op, Value
from tilelet.ir.faults import Fault
from tilelet.ir.types import TensorType, TileType, box
from tilelet.ops import valid as valid_rules
from tilelet.ops.apply import Args
from tilelet.ops.padding import pad_region
from tilelet.ops.reference import to_element
from tilelet.ops.transfers import fit_rank
from tilelet.syntax.enums import AtomicType
from tilelet.tasks.window import Shape, TileValue, Window

# Windows


def is_tile(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def window_at(
    whole: Window,
    offset: Sequence[int],
    shape: Shape,
    valid_shape: Sequence[int] | None,
    clamp: bool,
    loc: Loc,
) -> Window:
    """Return the window of `shape` at `offset`, checked.

    Only the valid part has to lie inside; with `clamp` it is cut at the edge. A window of an
    overhanging window has access to no more memory than that one.
    """
    if valid_shape is None and not clamp and whole.valid is None:
        for axis, (start, size, extent) in enumerate(zip(offset, shape, whole.reach)):
            if start < 0 or size < 1 or start + size > extent:
                raise _outside(whole, axis, start, size, extent, loc)
        return whole.slice(offset, shape)
    needed = shape if valid_shape is None else checked_region(valid_shape, shape, loc)
    valid = whole.valid or whole.shape
    for axis, (start, size) in enumerate(zip(offset, needed)):
        # If all of an axis is valid, all of it must exist.
        extents = whole.reach if valid[axis] == whole.shape[axis] else whole.shape
        if start < 0 or shape[axis] < 1 or (start + size > extents[axis] and not clamp):
            raise _outside(whole, axis, start, size, extents[axis], loc)
    seen = valid_rules.window(valid, tuple(offset), shape)
    window = _limit_to_existing(whole, offset, shape)
    region = tuple(map(min, needed, window.reach, seen))
    window.valid = None if region == shape else region
    return window


def view_at(whole: Window, offset: Sequence[int], shape: Shape, loc: Loc) -> Window:
    """Return the view of `shape` at `offset` that the control program takes.

    It may extend past its tensor: a load of the missing part is an error, whereas `clamp` would
    make that part invalid.
    """
    for axis, (start, size, extent) in enumerate(zip(offset, shape, whole.reach)):
        if start < 0 or size < 1:
            raise _outside(whole, axis, start, size, extent, loc)
    window = _limit_to_existing(whole, offset, shape)
    if whole.valid is not None:
        seen = valid_rules.window(whole.valid, tuple(offset), shape)
        all_valid = [v == n for v, n in zip(whole.valid, whole.shape)]
        region = tuple([n if full else v for n, v, full in zip(shape, seen, all_valid)])
        window.valid = None if region == shape else region
    return window


def _limit_to_existing(whole: Window, offset: Sequence[int], shape: Shape) -> Window:
    """Return a window that has access to no more memory than `whole`."""
    there = valid_rules.window(whole.reach, tuple(offset), shape)
    if there == shape:
        return whole.slice(offset, shape)
    window = whole.slice([o if n else 0 for o, n in zip(offset, there)], shape)
    window.extent = there
    return window


def _outside(
    whole: Window, axis: int, start: int, size: int, extent: int, loc: Loc, clamps: bool = True
) -> WindowOutOfRange:
    made, shown = whole.buffer.made, whole.shape[axis]
    seen = shown if extent == whole.reach[axis] else extent
    return WindowOutOfRange(loc, axis, start, size, extent, whole.name, True, clamps, made, seen)


def checked_region(valid_shape: Sequence[int], shape: Shape, loc: Loc) -> Shape:
    """Check a computed valid region; a negative extent makes an axis empty."""
    for axis, (limit, size) in enumerate(zip(valid_shape, shape)):
        if limit > size:
            raise ValidShapeTooLarge(loc, axis, limit, size, runtime=True)
    return tuple([max(0, limit) for limit in valid_shape])


def _check_sizes(sizes: Sequence[int], shape: Shape, loc: Loc) -> None:
    """Check that no window size is negative; 0 is allowed."""
    for axis, (size, largest) in enumerate(zip(sizes, shape)):
        if size < 0:
            raise ValidShapeTooLarge(loc, axis, size, largest, runtime=True)


def without_axes(window: Window, axes: Sequence[int]) -> Window:
    """Return the window without some axes of extent 1."""
    rank = len(window.shape)
    dropped = {axis % rank for axis in axes}
    kept = [i for i in range(rank) if i not in dropped]

    def pick(dims: Shape) -> Shape:
        return tuple([dims[i] for i in kept])

    result = Window(
        window.buffer, window.dtype, window.offset, pick(window.shape), pick(window.strides)
    )
    result.valid = None if window.valid is None else pick(window.valid)
    result.extent = None if window.extent is None else pick(window.extent)
    return result


def load_window(window: Window) -> TileValue:
    """Return a snapshot of a window: its valid part, zeros elsewhere."""
    shape, region = window.shape, window.valid or window.shape
    if region == shape:
        return TileValue(window.array.copy(), shape)
    data = np.zeros(shape, window.dtype.numpy)
    inside = box(region)
    data[inside] = window.array[inside]
    return TileValue(data, region)


@lowers("slice")
def lower_slice(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["x"]):
        return _checked_tile_op(low, op, "x", _slice_size)
    take = taken_window(low, op)
    pad = op.args["pad_value"]
    result = low.result(op)
    to_tile = isinstance(op.result.type, TileType)

    def view(frame: Frame) -> None:
        frame[result] = take(frame)

    def load(frame: Frame) -> None:
        tile = load_window(take(frame))
        if pad is not None:
            tile = TileValue(pad_region(tile.data, tile.valid, pad))
        frame[result] = tile

    return load if to_tile else view


@lowers("load")
def lower_load(low: Lowering, op: Op) -> Step:
    take = taken_window(low, op)
    result = low.result(op)
    swap = bool(op.args["transpose"])

    def step(frame: Frame) -> None:
        tile = load_window(take(frame))
        if swap:
            region = (*tile.valid[:-2], tile.valid[-1], tile.valid[-2])
            tile = TileValue(np.ascontiguousarray(np.swapaxes(tile.data, -1, -2)), region)
        frame[result] = tile

    return step


def taken_window(low: Lowering, op: Op) -> Callable[[Frame], Window]:
    """Return a function to the checked window that a `slice` or `load` takes."""
    take = whole_window(low, op)
    drop = int_tuple(op.args["drop_dims"]) if op.name == "slice" else ()
    if not drop:
        return take
    return lambda frame: without_axes(take(frame), drop)


def whole_window(low: Lowering, op: Op) -> Callable[[Frame], Window]:
    """Like `taken_window`, but keep the axes that the op drops."""
    args = op.args
    if op.name == "load":
        limit = args["valid_shapes"] if args["valid_shape"] is None else args["valid_shape"]
        return _window_getter(low, op, "tensor", "offsets", "shapes", limit)
    return _window_getter(low, op, "x", "offset", "shape", args["valid_shape"])


def _window_getter(
    low: Lowering, op: Op, source: str, offset: str, shape: str, limit: Arg
) -> Callable[[Frame], Window]:
    """Return a function from the frame to the checked window that an op takes."""
    whole, loc = low.slot(op.args[source]), op.loc
    offsets = low.get(as_tuple(op.args[offset]))
    shapes = low.get(as_tuple(op.args[shape]))
    limits = low.get(as_tuple(limit)) if limit is not None else None
    clamp = bool(op.args["clamp"])
    if isinstance(op.result.type, TensorType) and limits is None and not clamp:
        return lambda frame: view_at(frame[whole], offsets(frame), shapes(frame), loc)

    sized = bool(op.args["sized"]) and not clamp

    def take(frame: Frame) -> Window:
        valid_shape = limits(frame) if limits else None
        if sized and valid_shape is not None:
            _check_sizes(valid_shape, shapes(frame), loc)
        return window_at(frame[whole], offsets(frame), shapes(frame), valid_shape, clamp, loc)

    return take


def as_tuple(arg: Arg) -> tuple[Arg, ...]:
    """Return a list argument as a tuple; a bare number is a list of one."""
    return arg if isinstance(arg, tuple) else (arg,)


def int_tuple(arg: Arg) -> tuple[int, ...]:
    return () if arg is None else plain_constant(as_tuple(arg))


# Windows of tiles: the reference does the work but does not check offsets


def _slice_size(args: Args) -> tuple[Sequence[int], bool]:
    limit = args["valid_shape"]
    return (args["shape"] if limit is None else limit), bool(args["clamp"])


def _checked_tile_op(
    low: Lowering, op: Op, target: str, size: Callable[[Args], tuple[Sequence[int], bool]]
) -> Step:
    """Lower a tile op with a window; `size` gives its extent and whether it clamps."""
    getters = {name: low.get(arg) for name, arg in op.args.items()}
    name, loc = _name(op.args[target]), op.loc
    compute = lower_compute(low, op)

    def step(frame: Frame) -> None:
        args = {key: get(frame) for key, get in getters.items()}
        sizes, clamp = size(args)
        extents = args[target].data.shape
        if args.get("sized") and not clamp:
            _check_sizes(sizes, args["shape"], loc)
        for axis, (start, n, extent) in enumerate(zip(args["offset"], sizes, extents)):
            if start < 0 or (start + n > extent and not clamp):
                clamps = "clamp" in op.args
                raise WindowOutOfRange(loc, axis, start, n, extent, name, True, clamps)
        compute(frame)

    return step


# Stores


def store_at(
    target: Window,
    data: Array,
    region: Shape,
    offset: Sequence[int],
    atomic: bool,
    loc: Loc,
) -> None:
    """Write the box `region` of `data` into `target` at `offset`; leading axes of 1 may differ."""
    window = stored_window(target, region, offset, loc)
    if 0 in window.shape:
        return
    source = data if region == data.shape else data[box(region)]
    if source.dtype != target.dtype.numpy:
        source = numerics.cast(source, target.dtype, "rint")
    source = source.reshape(window.shape)
    memory = window.array
    memory[...] = numerics.add(memory, source) if atomic else source


def stored_window(target: Window, region: Shape, offset: Sequence[int], loc: Loc) -> Window:
    """Return the checked window of `target` that a store of the box `region` at `offset` writes."""
    sizes = fit_rank(region, len(target.shape))
    assert sizes is not None
    for axis, (start, size, extent) in enumerate(zip(offset, sizes, target.reach)):
        if start < 0 or start + size > extent:
            raise _outside(target, axis, start, size, extent, loc, clamps=False)
    return target.slice(offset, sizes)


@lowers("assemble")
def lower_assemble(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["target"]):
        return _checked_tile_op(low, op, "target", _assemble_size)
    return _store(low, op)


def _assemble_size(args: Args) -> tuple[Sequence[int], bool]:
    source: TileValue = args["source"]
    region = fit_rank(source.valid, args["target"].data.ndim)
    assert region is not None
    return region, False


@lowers("store")
def lower_store(low: Lowering, op: Op) -> Step:
    return _store(low, op)


def written_window(low: Lowering, op: Op) -> Callable[[Frame], Window]:
    """Return a function to the window that a store, or another op with an output tensor, writes."""
    loc, args = op.loc, op.args
    if op.name == "write":
        x, at = low.slot(args["x"]), low.get(as_tuple(args["indices"]))

        def element(frame: Frame) -> Window:
            window, indices = frame[x], at(frame)
            return window.slice(indices, (1,) * len(indices))

        return element
    if op.name not in ("assemble", "store"):
        whole = low.slot(args[op.spec.writes[0]])
        return lambda frame: frame[whole]
    target, source, offset = _STORES[op.name]
    into, stored = low.slot(args[target]), low.slot(args[source])
    offsets = low.get(as_tuple(args[offset]))

    def window(frame: Frame) -> Window:
        value = frame[stored]
        region = value.held if type(value) is Window else value.valid
        return stored_window(frame[into], region, offsets(frame), loc)

    return window


_STORES = {"assemble": ("target", "source", "offset"), "store": ("tensor", "tile", "offsets")}
"""Where the target, the source and the offset of a store stand."""


def _store(low: Lowering, op: Op) -> Step:
    target, source, offset = _STORES[op.name]
    state, loc = low.state, op.loc
    into, stored = low.slot(op.args[target]), low.slot(op.args[source])
    offsets = low.get(as_tuple(op.args[offset]))
    atomic = op.args["atomic"] is AtomicType.Add
    is_control = low.function.kind is not FunctionKind.InCore
    result = low.result(op)

    def from_tile(frame: Frame) -> None:
        tile: TileValue = frame[stored]
        store_at(frame[into], tile.data, tile.valid, offsets(frame), atomic, loc)
        frame[result] = frame[into]

    def from_tensor(frame: Frame) -> None:
        window: Window = frame[stored]
        frame[result] = frame[into]
        if is_control or not state.execute:
            state.changed_by_control(frame[into])
        if not state.execute:
            return
        window = window_at(window, (0,) * len(window.shape), window.shape, window.valid, False, loc)
        store_at(frame[into], window.array, window.held, offsets(frame), atomic, loc)

    return from_tile if is_tile(op.args[source]) else from_tensor


# Views


@lowers("reshape")
def lower_reshape(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["x"]):
        return lower_compute(low, op)
    shapes, loc = low.get(as_tuple(op.args["shape"])), op.loc

    def reshape(window: Window, frame: Frame) -> Window:
        shape = _checked_shape("reshape", shapes(frame), loc)
        if math.prod(shape) != math.prod(window.shape):
            counts = math.prod(window.shape), math.prod(shape)
            raise ReshapeCount(loc, window.shape, counts[0], shape, counts[1])
        view = window.reshape(shape)
        if view is None:
            raise ReshapeNeedsCopy(loc, window.name, window.shape, shape)
        return view

    return _view(low, op, reshape)


@lowers("transpose")
def lower_transpose(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["x"]):
        return lower_compute(low, op)
    x, result = low.slot(op.args["x"]), low.result(op)
    axes = int_tuple((op.args["axis1"], op.args["axis2"]))

    def step(frame: Frame) -> None:
        frame[result] = frame[x].transpose(*axes)

    return step


@lowers("set_validshape")
def lower_set_validshape(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["x"]):
        return lower_compute(low, op)
    x, result, loc = low.slot(op.args["x"]), low.result(op), op.loc
    limits = low.get((op.args["rows"], op.args["cols"]))

    def step(frame: Frame) -> None:
        window = frame[x]
        limit = checked_region(limits(frame), window.reach, loc)
        marked = window.slice((0,) * len(window.shape), window.shape)
        marked.extent = window.extent
        marked.valid = None if limit == window.shape else limit
        frame[result] = marked

    return step


@lowers("reinterpret_view")
def lower_reinterpret_view(low: Lowering, op: Op) -> Step:
    if is_tile(op.args["x"]):
        return lower_compute(low, op)
    dtype, loc = op.args["dtype"], op.loc
    assert isinstance(dtype, DType)
    given = op.args["shape"]
    shapes = low.get(as_tuple(given)) if given is not None else None

    def reinterpret(window: Window, frame: Frame) -> Window:
        view = _reinterpret(window, dtype)
        shape = _checked_shape("reinterpret_view", shapes(frame), loc) if shapes else None
        if view is not None and shape is not None:
            view = view.reshape(shape)
        if view is None:
            is_recast = _reinterpret(window, dtype) is None
            wanted = shape or window.shape
            raise ReshapeNeedsCopy(loc, window.name, window.shape, wanted, is_recast)
        return view

    return _view(low, op, reinterpret)


def _reinterpret(window: Window, dtype: DType) -> Window | None:
    """Return the same bytes as another type along the last axis, or None if sizes do not match."""
    old, new = window.dtype.itemsize, dtype.itemsize
    counts = [window.offset, *window.strides[:-1]]
    dense = window.strides[-1] == 1 or window.shape[-1] == 1
    if old == new:
        counts.append(window.strides[-1])
    elif not dense or window.shape[-1] * old % new:
        return None
    if window.extent is not None or any(n * old % new for n in counts):
        return None
    offset, *strides = [n * old // new for n in counts]
    if old == new:
        return Window(window.buffer, dtype, offset, window.shape, tuple(strides))
    shape = (*window.shape[:-1], window.shape[-1] * old // new)
    return Window(window.buffer, dtype, offset, shape, (*strides, 1))


def _view(low: Lowering, op: Op, make: Callable[[Window, Frame], Window]) -> Step:
    """Lower a view built by `make`; its valid region follows from the op's rule."""
    x, result, loc, rule = low.slot(op.args["x"]), low.result(op), op.loc, op.spec.valid
    assert rule is not None
    args = dict(op.args)

    def step(frame: Frame) -> None:
        window: Window = frame[x]
        view = make(window, frame)
        if window.valid is not None:
            try:
                view.valid = rule({"x": (window.shape, window.valid)}, view.shape, args)
            except Fault as fault:
                raise fault.error(loc) from None
        frame[result] = view

    return step


# Single elements


def read_element(state: State, window: Window, indices: Sequence[int], loc: Loc) -> Any:
    """Return one element as a Python number."""
    check_index(indices, window.reach, window.name, loc)
    return state.contents(window, loc)[tuple(indices)].item()


def check_index(indices: Sequence[int], shape: Shape, name: str, loc: Loc) -> None:
    for axis, (index, extent) in enumerate(zip(indices, shape)):
        if not 0 <= index < extent:
            raise IndexOutOfRange(loc, axis, index, extent, name, runtime=True)


@lowers("read")
def lower_read(low: Lowering, op: Op) -> Step:
    arg, loc, state = op.args["x"], op.loc, low.state
    x, at = low.slot(arg), low.get(as_tuple(op.args["indices"]))
    result = low.result(op)

    def from_tensor(frame: Frame) -> None:
        frame[result] = read_element(state, frame[x], at(frame), loc)

    def by_control(frame: Frame) -> None:
        from_tensor(frame)
        state.await_writer(frame[x], at(frame))

    def from_tile(frame: Frame) -> None:
        data, indices = frame[x].data, at(frame)
        check_index(indices, data.shape, _name(arg), loc)
        frame[result] = data[indices].item()

    if is_tile(arg):
        return from_tile
    waits = state.execute and low.function.kind is not FunctionKind.InCore
    return by_control if waits else from_tensor


@lowers("write")
def lower_write(low: Lowering, op: Op) -> Step:
    arg, loc, state = op.args["x"], op.loc, low.state
    assert isinstance(arg, Value)
    assert isinstance(arg.type, (TensorType, TileType))
    dtype = arg.type.dtype
    x, at, value = low.slot(arg), low.get(as_tuple(op.args["indices"])), low.slot(op.args["value"])
    is_control = low.function.kind is not FunctionKind.InCore
    result = low.result(op)

    def to_tensor(frame: Frame) -> None:
        window, indices = frame[x], at(frame)
        check_index(indices, window.reach, window.name, loc)
        frame[result] = window
        element = to_element(frame[value], dtype)
        if state.execute:
            window.array[indices] = element
        elif window.buffer.known:
            state.contents(window, loc)[indices] = element
        if is_control or not state.execute:
            state.written_by_control(window, indices, element)

    def to_tile(frame: Frame) -> None:
        tile, indices = frame[x], at(frame)
        check_index(indices, tile.data.shape, _name(arg), loc)
        data = tile.data.copy()
        data[indices] = to_element(frame[value], dtype)
        try:
            one = (1,) * data.ndim
            region = valid_rules.insert_region(data.shape, tile.valid, one, indices)
        except Fault as fault:
            raise fault.error(loc) from None
        frame[result] = TileValue(data, region)

    return to_tile if isinstance(arg.type, TileType) else to_tensor


def _name(arg: Arg) -> str:
    return arg.name if isinstance(arg, Value) else ""


@lowers("tensor.dim")
def lower_dim(low: Lowering, op: Op) -> Step:
    arg, result = op.args["tensor"], low.result(op)
    x, axis = low.slot(arg), low.slot(op.args["axis"])

    def of_tensor(frame: Frame) -> None:
        frame[result] = frame[x].shape[frame[axis]]

    def of_tile(frame: Frame) -> None:
        frame[result] = frame[x].data.shape[frame[axis]]

    return of_tile if is_tile(arg) else of_tensor


# Allocation


def _checked_shape(op: str, shape: Shape, loc: Loc) -> Shape:
    for axis, extent in enumerate(shape):
        if extent < 1:
            raise ExtentNotPositive(loc, op, shape, axis)
    return shape


@lowers("create_tensor", "create_tile")
def lower_create(low: Lowering, op: Op) -> Step:
    state, loc, result = low.state, op.loc, low.result(op)
    type_, name = op.result.type, op.result.name
    if isinstance(type_, TileType):
        tile = state.poison_tile(type_.shape, type_.dtype)

        def constant(frame: Frame) -> None:
            frame[result] = tile

        return constant
    assert isinstance(type_, TensorType)
    dtype, init_value = type_.dtype, low.slot(op.args["init_value"])
    manual_dep = bool(op.args["manual_dep"])
    shapes: Getter = low.get(as_tuple(op.args["shape"]))

    def step(frame: Frame) -> None:
        value = frame[init_value]
        frame[result] = state.fresh(
            name,
            _checked_shape("create_tensor", shapes(frame), loc),
            dtype,
            loc,
            initial=None if value is None else to_element(value, dtype),
            manual_dep=manual_dep,
        )

    return step
