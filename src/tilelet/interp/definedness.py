"""Definedness tracking: a mode of the interpreter that works like Memcheck.

Every element of memory and of a tile is defined or undefined. Casts, reductions, products, masks
and padding propagate this exactly; undefined elements are reported only where they reach an output,
a branch or an index. Tracking needs no values: without `execute` none are computed, and fully
defined tensors and tiles cost nothing. Where values decide (`select`, gathers by index) among
partly undefined elements, `NeedsValuesError` requests a run with values.

The same mode reports which windows of memory every statement accesses (`Watcher.touch`). Its data
structures are in `interp.cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tilelet.dtypes import TASK_ID, Array
from tilelet.interp import (  # noqa: F401  (for their entries in `LOWERINGS`)
    control,
    debug,
    scalars,
    submit,
    system,
)
from tilelet.interp.cells import (
    DEFINED,
    Bits,
    Mask,
    NeedsValuesError,
    UndefinedOrigin,
    Watcher,
    cells_of,
    loaded_mask,
    store_mask,
)
from tilelet.interp.compute import lower_compute
from tilelet.interp.control import while_step
from tilelet.interp.lowering import COMPUTE, LOWERINGS, Frame, Lower, Lowering, Step
from tilelet.interp.movement import (
    as_tuple,
    check_index,
    int_tuple,
    is_tile,
    stored_window,
    whole_window,
)
from tilelet.interp.repeated import RepeatingState
from tilelet.interp.state import State
from tilelet.ir.core import Arg, Op, Value, values_in
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import ScalarType, TensorType, TileType, box
from tilelet.ops.apply import Application
from tilelet.ops.clearing import cleared_operand
from tilelet.syntax.enums import AtomicType
from tilelet.tasks.window import Shape, TileValue, Window


class Watching:
    """The observer of this mode: every op also propagates definedness."""

    def lower(self, low: Lowering, op: Op) -> Step:
        return WATCHED.get(op.name, WATCHED[COMPUTE])(low, op)


def watching_state(
    functions: Mapping[str, Any], watcher: Watcher, *, values: bool, seed_valid: bool = False
) -> State:
    """Return the state of a run in this mode; with `values` it computes them, too."""
    state = RepeatingState(
        functions, execute=values, poison=True, seed_valid=seed_valid, observer=Watching()
    )
    state.runs_kernels = True
    state.watcher = watcher
    return state


# --- tiles ---------------------------------------------------------------------------------------


def _dummy(shape: Shape, dtype: Any) -> Array:
    """Return a broadcast array that takes no memory, for tiles whose values are not computed."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _bits(tile: TileValue) -> Bits:
    """Return which elements of a tile are defined."""
    if tile.defined is not None:
        return tile.defined.bits
    bits = np.zeros(tile.data.shape, np.bool_)
    bits[box(tile.valid)] = True
    return bits


def _with_mask(tile: TileValue, bits: Bits | None, origin: UndefinedOrigin | None) -> TileValue:
    """Attach a mask to the tile; elements outside the valid region count as undefined."""
    if bits is None or origin is None or bits[box(tile.valid)].all():
        tile.defined = None
        return tile
    inside = np.zeros(bits.shape, np.bool_)
    inside[box(tile.valid)] = bits[box(tile.valid)]
    tile.defined = Mask(inside, origin)
    return tile


def _mark_undefined(bits: Bits, dtype: Any) -> Array:
    """Return an array of zeros in which all bytes of undefined elements are set."""
    marks = np.zeros(bits.shape, dtype)
    if not bits.all():
        # A byte view needs an axis to put the bytes on.
        marks.reshape(-1).view(np.uint8).reshape(-1, marks.itemsize)[~bits.reshape(-1)] = 0xFF
    return marks


def _read_marks(marks: Array, *, any_byte: bool) -> Bits:
    flat = np.ascontiguousarray(marks)
    of_bytes = flat.reshape(-1).view(np.uint8).reshape(*flat.shape, flat.itemsize) == 0xFF
    return ~(of_bytes.any(-1) if any_byte else of_bytes.all(-1))


class _TileOp:
    """Maps the masks of the operands of a tile op to those of its results."""

    def __init__(self, low: Lowering, op: Op) -> None:
        self.op = op
        self.state = low.state
        self.application = Application(op, low.function.name)
        self.shaped = [
            (name, low.slot(arg))
            for name, arg in op.args.items()
            if isinstance(arg, Value) and isinstance(arg.type, TileType | TensorType)
        ]
        self.scalars = [(n, low.get(a)) for n, a in op.args.items() if not _is_shaped(a)]
        self.moved = [name for name, _ in self.shaped if name in op.spec.moves]
        self.chooses = len(self.moved) < len(self.shaped)
        self.cleared = cleared_operand(op)
        self.types = [r.type for r in op.results if isinstance(r.type, TileType)]

    def read(self, frame: Frame) -> tuple[dict[str, object], dict[str, tuple[Shape, Shape]]]:
        """Return the arguments of `Application`: operands by name, tiles as arrays, and their
        regions.
        """
        args: dict[str, object] = {name: get(frame) for name, get in self.scalars}
        regions: dict[str, tuple[Shape, Shape]] = {}
        for name, slot in self.shaped:
            value = frame[slot]
            if type(value) is TileValue:
                data, valid = value.data, value.valid
            else:
                valid = value.held
                data = value.array if self.state.execute else _dummy(value.shape, np.uint8)
            regions[name] = (data.shape, valid)
            args[name] = data
        return args, regions

    def masks(self, frame: Frame) -> dict[str, Mask | None]:
        """Return the mask of each shaped operand, loading tensors that are read as a whole."""
        found: dict[str, Mask | None] = {}
        for name, slot in self.shaped:
            value = frame[slot]
            if type(value) is TileValue:
                found[name] = value.defined
            elif name not in self.op.spec.writes:
                found[name] = loaded_mask(self.state, self.op, value, value.held)
        return found

    def results(self, frame: Frame, valids: list[Shape]) -> list[Bits | None]:
        """Return the bits of each result, or None if the whole valid region is defined."""
        masks = self.masks(frame)
        bad = {name: mask for name, mask in masks.items() if mask is not None}
        if self.cleared is not None:
            bad.pop(self.cleared, None)
        spec = self.op.spec
        if not bad and not self._uncovers(frame, valids):
            return [None] * len(valids)
        if spec.moves and len(valids) == 1:
            return [self._moved_bits(frame, bad, masks)]
        if Trait.ELEMENTWISE in spec.traits:
            return [self._elementwise_bits(frame, shape.shape) for shape in self.types]
        if spec.reduces is not None:
            return [self._reduced_bits(frame, spec.reduces)]
        if spec.engine is Engine.CUBE:
            return [self._product_bits(frame, bad)]
        return [self._row_bits(frame, shape.shape) for shape in self.types]

    def origin(self, frame: Frame) -> UndefinedOrigin:
        for _, slot in self.shaped:
            value = frame[slot]
            if type(value) is TileValue and value.defined is not None:
                return value.defined.origin
            if type(value) is Window and value.buffer.defined is not None:
                made = value.buffer.defined.origin
                return made or UndefinedOrigin(self.op.loc, value.name, len(self.state.tasks))
        name = next((v.name for v in self.op.operands if is_tile(v)), "")
        return UndefinedOrigin(self.op.loc, f"the padding of {name}", len(self.state.tasks))

    def _uncovers(self, frame: Frame, valids: list[Shape]) -> bool:
        """Return whether the result's region includes elements outside an operand's region."""
        spec = self.op.spec
        if Trait.TILE_VIEW not in spec.traits or Trait.ELEMENTWISE not in spec.traits:
            return False
        before = frame[self.shaped[0][1]].valid
        return any(a > b for a, b in zip(valids[0], before))

    def tile_bits(self, name: str, frame: Frame) -> Bits:
        value = frame[dict(self.shaped)[name]]
        if type(value) is TileValue:
            return _bits(value)
        cells = cells_of(value)
        region = value.held
        bits = np.zeros(value.shape, np.bool_)
        bits[box(region)] = True if cells is None else cells.get(value)[box(region)] == DEFINED
        return bits

    def _moved_bits(
        self, frame: Frame, bad: Mapping[str, Mask], masks: Mapping[str, Mask | None]
    ) -> Bits:
        """Run the reference on marks instead of elements."""
        (type_,) = self.types
        if any(name not in self.op.spec.moves for name in bad):
            return np.zeros(type_.shape, np.bool_)  # selection unknown
        if self.chooses and not self.state.execute:
            raise NeedsValuesError
        args, regions = self.read(frame)
        for name in self.moved:
            arg = self.op.args[name]
            assert isinstance(arg, Value)
            assert isinstance(arg.type, TileType | TensorType)
            args[name] = self.application.operand(
                _mark_undefined(self.tile_bits(name, frame), arg.type.dtype.numpy), regions[name][1]
            )
        for name, (shape, _) in regions.items():
            if name not in self.moved and masks.get(name) is None and not self.state.execute:
                args[name] = np.zeros(shape, np.int64)
        ((marks, _, _),) = self.application.results(args, regions)
        sizes = {v.type.dtype.itemsize for v in self.op.operands if _is_shaped(v)}
        return _read_marks(marks, any_byte=sizes != {type_.dtype.itemsize})

    def _elementwise_bits(self, frame: Frame, shape: Shape) -> Bits:
        spec = self.op.spec
        pads = spec.takes_valid and Trait.KEEPS_VALID not in spec.traits
        bits = np.ones(shape, np.bool_)
        for name, slot in self.shaped:
            if name == self.cleared:
                continue
            value: TileValue = frame[slot]
            own = _bits(value)
            if pads:  # elements outside get the pad value
                inside = box(value.valid)
                bits[inside] = own[inside]
            else:
                bits &= _align_bits(own, shape)
        return bits

    def _reduced_bits(self, frame: Frame, axis: int) -> Bits:
        (name, slot) = self.shaped[0]
        value: TileValue = frame[slot]
        inside = self.tile_bits(name, frame)[box(value.valid)]
        bits = np.zeros(self.types[0].shape, np.bool_)
        found = inside.all(axis, keepdims=True)
        bits[box(found.shape)] = found
        return bits

    def _product_bits(self, frame: Frame, bad: Mapping[str, Mask]) -> Bits:
        """Count the undefined elements that each result uses, by a product of ones and zeros."""
        bits = np.ones(self.types[0].shape, np.bool_)
        for name in bad:
            args, regions = self.read(frame)
            for other, (shape, valid) in regions.items():
                arg = self.op.args[other]
                assert isinstance(arg, Value)
                assert isinstance(arg.type, TileType)
                count = (
                    ~self.tile_bits(name, frame)
                    if other == name
                    else np.full(shape, {name, other} == {"lhs", "rhs"})
                )
                numbers = count.astype(arg.type.dtype.numpy)
                args[other] = self.application.operand(numbers, valid)
            ((counts, _, _),) = self.application.results(args, regions)
            part = np.asarray(counts).astype(np.float64) == 0
            bits[box(part.shape)] &= part
        return bits

    def _row_bits(self, frame: Frame, shape: Shape) -> Bits:
        """Propagate through ops that mix the elements of a row: one undefined element spoils the
        row.
        """
        bits = np.ones(shape, np.bool_)
        for name, slot in self.shaped:
            value: TileValue = frame[slot]
            own = self.tile_bits(name, frame)[box(value.valid)]
            if own.ndim == len(shape) and value.data.shape[:-1] == shape[:-1]:
                rows = np.ones((*shape[:-1], 1), np.bool_)
                rows[box((*value.valid[:-1], 1))] = own.all(-1, keepdims=True)
                bits &= rows
            else:
                bits &= bool(own.all())
        return bits


def _align_bits(own: Bits, shape: Shape) -> Bits:
    """Align the bits of an operand with a result of `shape`, from the last axis."""
    own = own.reshape((1,) * (len(shape) - own.ndim) + own.shape) if own.ndim < len(shape) else own
    cut = tuple(slice(0, n) if m > n else slice(None) for m, n in zip(own.shape, shape))
    return np.broadcast_to(own[cut], shape) if own.shape != shape else own


def _is_shaped(arg: object) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType | TensorType)


# --- lowerings -----------------------------------------------------------------------------------

WATCHED: dict[str, Lower] = {}


def _watches(*names: str) -> Callable[[Lower], Lower]:
    def add(function: Lower) -> Lower:
        WATCHED.update(dict.fromkeys(names, function))
        return function

    return add


def _compute(low: Lowering, op: Op) -> Step:
    """Lower an op that has no special lowering."""
    if op.results and isinstance(op.results[0].type, TensorType):
        return _memory_op(low, op)
    if op.results and all(isinstance(r.type, ScalarType) for r in op.results):
        return _scalar(low, op, LOWERINGS[COMPUTE])
    return _tile_op(low, op, lower_compute)


def _tile_op(low: Lowering, op: Op, lower: Lower) -> Step:
    rule = _TileOp(low, op)
    execute = low.state.execute
    compute = lower(low, op) if execute else None
    if compute is None:
        low.define(op.results)
    slots = [low.slot(r) for r in op.results]
    types = [r.type for r in op.results if isinstance(r.type, TileType)]
    dummies = [_dummy(t.shape, t.dtype.numpy) for t in types]
    application = rule.application
    numbers = _numbers(low, op.operands)
    watcher: Watcher = low.state.watcher

    def step(frame: Frame) -> None:
        if compute is not None:
            compute(frame)
            tiles = [frame[slot] for slot in slots]
        else:
            valids = application.valids(*rule.read(frame))
            tiles = [TileValue(d, v) for d, v in zip(dummies, valids)]
        masks = rule.results(frame, [tile.valid for tile in tiles])
        origin = None if all(m is None for m in masks) else rule.origin(frame)
        spoiled = watcher.origin_of(frame[slot] for slot in numbers)
        if spoiled is not None:
            origin = spoiled
            masks = [np.zeros(tile.data.shape, np.bool_) for tile in tiles]
        for slot, tile, bits in zip(slots, tiles, masks):
            # A new object, because the tile may be used elsewhere.
            frame[slot] = _with_mask(TileValue(tile.data, tile.valid), bits, origin)

    return step


def _memory_op(low: Lowering, op: Op) -> Step:
    """Lower an op that updates a tensor at a position given by its operands.

    An op that moves nothing, such as an external kernel, defines all that it writes.
    """
    rule, state = _TileOp(low, op), low.state
    compute = lower_compute(low, op) if state.execute else None
    if not op.spec.moves:
        return _external(low, op, rule, compute)
    (target,) = op.spec.writes
    window = low.slot(op.args[target])
    result = low.slot(op.result) if compute is not None else low.result(op)

    def step(frame: Frame) -> None:
        memory: Window = frame[window]
        masks = rule.masks(frame)
        origin = rule.origin(frame)
        cells = cells_of(memory)
        plain = cells is None and not any(masks.values())
        bits = None
        if not plain:
            if not state.execute:
                raise NeedsValuesError
            bits = _updated_bits(rule, frame, target)
        if compute is not None:
            compute(frame)
        frame[result] = memory
        mask = None if bits is None else Mask(bits, origin)
        store_mask(state, op, memory, mask, memory.shape, atomic=False)

    return step


def _external(low: Lowering, op: Op, rule: _TileOp, compute: Step | None) -> Step:
    state = low.state
    windows = [low.slot(op.args[target]) for target in op.spec.writes]
    results = low.define(op.results) if compute is None else None

    def step(frame: Frame) -> None:
        rule.masks(frame)
        memories: list[Window] = [frame[window] for window in windows]
        if compute is not None:
            compute(frame)
        elif results is not None:
            frame[results] = memories
        for memory in memories:
            store_mask(state, op, memory, None, memory.shape, atomic=False)

    return step


def _updated_bits(rule: _TileOp, frame: Frame, target: str) -> Bits:
    """Return the defined bits of a tensor after an update, which is applied to marks."""
    args, regions = rule.read(frame)
    for name in [*rule.moved, target]:
        arg = rule.op.args[name]
        assert isinstance(arg, Value)
        assert isinstance(arg.type, TileType | TensorType)
        args[name] = _mark_undefined(rule.tile_bits(name, frame), arg.type.dtype.numpy)
    (contents,) = rule.application.contents(args, regions)
    return _read_marks(contents, any_byte=False)


def _numbers(low: Lowering, values: Iterable[Value]) -> list[int]:
    """Return the frame slots of the scalars among `values`."""
    return [low.slot(v) for v in values if isinstance(v.type, ScalarType)]


def _scalar(low: Lowering, op: Op, lower: Lower) -> Step:
    """Lower a scalar op; its result is undefined if any operand is."""
    step = lower(low, op)
    watcher: Watcher = low.state.watcher
    operands = _numbers(low, op.operands)
    result = low.slot(op.results[0])

    def watched(frame: Frame) -> None:
        step(frame)
        if watcher.any_numbers:
            origin = watcher.origin_of(frame[slot] for slot in operands)
            if origin is not None:
                frame[result] = watcher.number(frame[result], origin)

    return watched


def _decides(low: Lowering, op: Op, args: tuple[Arg, ...], use: str, step: Step) -> Step:
    """Wrap `step`, reporting an undefined scalar that decides it."""
    watcher: Watcher = low.state.watcher
    deciding = _numbers(low, values_in(args))

    def watched(frame: Frame) -> None:
        if watcher.any_numbers:
            origin = watcher.origin_of(frame[slot] for slot in deciding)
            if origin is not None:
                watcher.use(op.loc, use, origin)
        step(frame)

    return watched if deciding else step


def _load(low: Lowering, op: Op, lower: Lower, offset: str) -> Step:
    """Lower a load of a window."""
    state = low.state
    take = whole_window(low, op)
    compute = lower(low, op) if state.execute else None
    result = low.slot(op.result) if compute is not None else low.result(op)
    type_ = op.result.type
    assert isinstance(type_, TileType)
    dummy = _dummy(type_.shape, type_.dtype.numpy)
    swaps = bool(op.args.get("transpose"))
    pads = op.args.get("pad_value") is not None
    dropped = int_tuple(op.args.get("drop_dims"))

    whole, offsets = low.slot(_tensor_of(op)), low.get(as_tuple(op.args[offset]))
    watcher: Watcher = state.watcher

    def step(frame: Frame) -> None:
        window = take(frame)
        region = window.valid or window.shape
        inside = tuple(map(min, region, window.reach))
        mask = loaded_mask(state, op, window, inside)
        if watcher.execution is not None and 0 not in inside:
            taken = window.slice((0,) * len(inside), inside)
            watcher.execution.access(op, frame[whole], offsets(frame), taken, writes=False)
        bits = None if mask is None else mask.bits
        if bits is not None and pads:
            outside = np.ones(bits.shape, np.bool_)
            outside[box(region)] = False
            bits = bits | outside
        if swaps:
            region = (*region[:-2], region[-1], region[-2])
            bits = None if bits is None else np.swapaxes(bits, -1, -2)
        if dropped:
            gone = {axis % len(window.shape) for axis in dropped}
            region = tuple(n for i, n in enumerate(region) if i not in gone)
            bits = None if bits is None else bits.reshape(type_.shape)
        if compute is not None:
            compute(frame)
            tile = frame[result]
        else:
            tile = TileValue(dummy, type_.shape if pads else region)
        frame[result] = _with_mask(
            TileValue(tile.data, tile.valid), bits, None if mask is None else mask.origin
        )

    where = (op.args[offset], *[op.args.get(name) for name in ("valid_shape", "valid_shapes")])
    return _decides(low, op, where, "an index", step)


def _tensor_of(op: Op) -> Value:
    tensor = op.args["x" if op.name == "slice" else "tensor"]
    assert isinstance(tensor, Value)
    return tensor


@_watches("slice")
def _slice(low: Lowering, op: Op) -> Step:
    lower = LOWERINGS["slice"]
    if is_tile(op.args["x"]):
        step = _tile_op(low, op, lower)
    elif isinstance(op.result.type, TileType):
        return _load(low, op, lower, "offset")
    else:
        step = lower(low, op)
    return _decides(low, op, (op.args["offset"], op.args["valid_shape"]), "an index", step)


@_watches("load")
def _load_op(low: Lowering, op: Op) -> Step:
    return _load(low, op, LOWERINGS["load"], "offsets")


@_watches("assemble")
def _assemble(low: Lowering, op: Op) -> Step:
    lower = LOWERINGS["assemble"]
    if is_tile(op.args["target"]):
        return _tile_op(low, op, lower)
    return _store(low, op, lower, "target", "source", "offset")


@_watches("store")
def _store_op(low: Lowering, op: Op) -> Step:
    return _store(low, op, LOWERINGS["store"], "tensor", "tile", "offsets")


def _store(low: Lowering, op: Op, lower: Lower, target: str, source: str, offset: str) -> Step:
    state = low.state
    into, stored = low.slot(op.args[target]), low.slot(op.args[source])
    offsets = low.get(as_tuple(op.args[offset]))
    atomic = op.args["atomic"] is AtomicType.Add
    from_tile = is_tile(op.args[source])
    watcher: Watcher = state.watcher
    # Without values the lowering would store garbage: only its checks are wanted.
    compute = lower(low, op) if state.execute or not from_tile else None
    result = low.slot(op.result) if compute is not None else low.result(op)

    def step(frame: Frame) -> None:
        memory: Window = frame[into]
        value = frame[stored]
        if from_tile:
            region, mask = value.valid, value.defined
        else:
            region = value.held
            mask = loaded_mask(state, op, value, region)
        if compute is not None:
            compute(frame)
        frame[result] = memory
        target_window = stored_window(memory, region, offsets(frame), op.loc)
        if 0 not in target_window.shape:
            store_mask(state, op, target_window, mask, region, atomic)
            if watcher.execution is not None:
                where = (op, memory, offsets(frame), target_window)
                watcher.execution.access(*where, writes=True)
                if atomic:
                    watcher.execution.access(*where, writes=False)

    return _decides(low, op, (op.args[offset],), "an index", step)


@_watches("read")
def _read(low: Lowering, op: Op) -> Step:
    arg, loc, state = op.args["x"], op.loc, low.state
    watcher: Watcher = state.watcher
    x, at = low.slot(arg), low.get(as_tuple(op.args["indices"]))
    step = LOWERINGS["read"](low, op)
    number = low.slot(op.result)

    def from_tensor(frame: Frame) -> None:
        window: Window = frame[x]
        indices = at(frame)
        check_index(indices, window.reach, window.name, loc)
        one = window.slice(indices, (1,) * len(indices))
        mask = loaded_mask(state, op, one, one.shape)
        if not state.execute and not window.buffer.known:
            raise NeedsValuesError
        step(frame)
        if mask is not None:
            frame[number] = watcher.number(frame[number], mask.origin)

    def from_tile(frame: Frame) -> None:
        if not state.execute:
            raise NeedsValuesError
        step(frame)
        tile: TileValue = frame[x]
        mask: Mask | None = tile.defined
        if mask is not None and not mask.bits[tuple(at(frame))]:
            frame[number] = watcher.number(frame[number], mask.origin)

    chosen = from_tile if is_tile(arg) else from_tensor
    return _decides(low, op, (op.args["indices"],), "an index", chosen)


@_watches("write")
def _write(low: Lowering, op: Op) -> Step:
    arg, state = op.args["x"], low.state
    watcher: Watcher = state.watcher
    x, at = low.slot(arg), low.get(as_tuple(op.args["indices"]))
    values = _numbers(low, values_in((op.args["value"],)))
    lower = LOWERINGS["write"]
    tile_form = is_tile(arg)
    compute = lower(low, op) if state.execute or not tile_form else None
    result = low.slot(op.result) if compute is not None else low.result(op)

    def origin_of(frame: Frame) -> UndefinedOrigin | None:
        return watcher.origin_of(frame[slot] for slot in values)

    def to_tensor(frame: Frame) -> None:
        assert compute is not None
        compute(frame)
        origin = origin_of(frame)
        indices = at(frame)
        window: Window = frame[x]
        one = window.slice(indices, (1,) * len(indices))
        mask = None if origin is None else Mask(np.zeros(one.shape, np.bool_), origin)
        store_mask(state, op, one, mask, one.shape, atomic=False)

    def to_tile(frame: Frame) -> None:
        before: TileValue = frame[x]
        if compute is not None:
            compute(frame)
            made: TileValue = frame[result]
            tile = TileValue(made.data, made.valid)
        else:
            tile = TileValue(before.data, before.valid)
        bits, origin = _bits(before).copy(), origin_of(frame)
        bits[tuple(at(frame))] = origin is None
        known = origin or (before.defined.origin if before.defined is not None else None)
        frame[result] = _with_mask(tile, bits, known)

    step = to_tile if tile_form else to_tensor
    return _decides(low, op, (op.args["indices"],), "an index", step)


@_watches("create_tile", "create_tensor", "undef")
def _create(low: Lowering, op: Op) -> Step:
    step = LOWERINGS[op.name](low, op)
    type_ = op.result.type
    result, loc, state = low.slot(op.result), op.loc, low.state
    if isinstance(type_, ScalarType) and type_.dtype is not TASK_ID:
        watcher: Watcher = state.watcher

        def undefined_number(frame: Frame) -> None:
            step(frame)
            origin = UndefinedOrigin(loc, op.result.name, len(state.tasks))
            frame[result] = watcher.number(frame[result], origin)

        return undefined_number
    if not isinstance(type_, TileType):
        return step
    nothing = np.zeros(type_.shape, np.bool_)

    def undefined(frame: Frame) -> None:
        step(frame)
        tile: TileValue = frame[result]
        origin = UndefinedOrigin(loc, op.result.name, len(state.tasks))
        frame[result] = _with_mask(TileValue(tile.data, tile.valid), nothing, origin)

    return undefined


@_watches("if")
def _if(low: Lowering, op: Op) -> Step:
    return _decides(low, op, (op.args["cond"],), "a branch", LOWERINGS["if"](low, op))


@_watches("for")
def _for(low: Lowering, op: Op) -> Step:
    bounds = (op.args["start"], op.args["stop"], op.args["step"])
    return _decides(low, op, bounds, "a branch", LOWERINGS["for"](low, op))


@_watches("while")
def _while(low: Lowering, op: Op) -> Step:
    watcher: Watcher = low.state.watcher

    def holds(condition: object) -> bool:
        origin = watcher.origin_of((condition,))
        if origin is not None:
            watcher.use(op.loc, "a branch", origin)
        return bool(condition)

    return while_step(low, op, holds)


@_watches("call", "scope")
def _task(low: Lowering, op: Op) -> Step:
    """Check a task's block count and predicate."""
    step = _decides(low, op, (op.args.get("count"),), "a branch", LOWERINGS[op.name](low, op))
    predicate = op.args.get("predicate")
    if predicate is None:
        return step
    assert isinstance(predicate, tuple)
    tensor, at = low.slot(predicate[0]), low.get(as_tuple(predicate[1]))
    state = low.state
    watcher: Watcher = state.watcher

    def asked(frame: Frame) -> None:
        window: Window = frame[tensor]
        if not state.execute and not window.buffer.known:
            raise NeedsValuesError
        indices = at(frame)
        check_index(indices, window.reach, window.name, op.loc)
        one = window.slice(indices, (1,) * len(indices))
        mask = loaded_mask(state, op, one, one.shape)
        if mask is not None:
            watcher.use(op.loc, "a branch", mask.origin)
        step(frame)

    return asked


@_watches("array.get", "array.set")
def _array(low: Lowering, op: Op) -> Step:
    return _decides(low, op, (op.args["index"],), "an index", LOWERINGS[op.name](low, op))


def _complete() -> None:
    """Register the default lowering for all ops that this mode does not treat specially."""
    for name, lower in LOWERINGS.items():
        if name.startswith("scalar."):
            WATCHED[name] = lambda low, op, lower=lower: _scalar(low, op, lower)
        elif name in ("reshape", "transpose", "set_validshape", "reinterpret_view"):
            WATCHED[name] = lambda low, op, lower=lower: _view(low, op, lower)
        else:
            WATCHED.setdefault(name, lower)
    WATCHED[COMPUTE] = _compute


def _view(low: Lowering, op: Op, lower: Lower) -> Step:
    """Lower an op with a tensor form, which accesses no memory, and a tile form."""
    if is_tile(op.args["x"]):
        return _tile_op(low, op, lower)
    return _decides(low, op, tuple(op.args.values()), "an index", lower(low, op))


_complete()
