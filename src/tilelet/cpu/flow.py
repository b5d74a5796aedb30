"""Control flow and scalars of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelet.cpu import scalars
from tilelet.cpu.elements import poison_pattern
from tilelet.cpu.emitter import (
    declare_array,
    emit_array_create,
    emit_array_get,
    emit_array_set,
    emit_division,
    emit_scalar,
    loop_head,
)
from tilelet.cpu.kernel import KernelEmitter, TensorRef, emits
from tilelet.cpu.loop_carried import LoopCarried, emit_while_body, set_at_once
from tilelet.cpu.text import Dim
from tilelet.cpu.tiles import Leaf, Slot, Tile, count, leaves
from tilelet.ir.core import Arg, Block, Op, Value
from tilelet.ir.types import ArrayType, ScalarType, TensorType, TileType
from tilelet.ir.views import ForView, yielded
from tilelet.ops.tasks import WITHOUT_EFFECT

# --- scalars -------------------------------------------------------------------------------------


emits(*scalars.BINARY, *scalars.UNARY, "scalar.cast")(emit_scalar)
emits(*scalars.DIVISIONS)(emit_division)
emits("array.create")(emit_array_create)
emits("array.get")(emit_array_get)
emits("array.set")(emit_array_set)


@emits("get_block_idx", "get_block_num", "get_subblock_idx")
def emit_block_position(k: KernelEmitter, op: Op) -> None:
    text = {"get_block_idx": "c->block", "get_block_num": "c->blocks", "get_subblock_idx": "0"}
    k.define(op.result, k.variable(op.result.name, text[op.name], loc=op.loc))


@emits(*WITHOUT_EFFECT)
def emit_barrier(k: KernelEmitter, op: Op) -> None:
    """Ops run one after the other: there is nothing to wait for."""


# --- values that control flow hands on -----------------------------------------------------------


class _Carried(LoopCarried[KernelEmitter]):
    """In a kernel also a tile.

    It has its own scratch memory, and variables for the extents of its valid region unless these
    are known to stay the same.
    """

    def __init__(self, k: KernelEmitter, op: Op, at: int, value: Value, first: Arg | None) -> None:
        self.op, self.at = op, at
        self.slot: Slot | None = None
        self.valid_names: list[str] = []
        super().__init__(k, value, first)

    def declare(self, first: Arg | None) -> Any:
        if isinstance(self.value.type, TileType):
            return self._declare_tile(first)
        return super().declare(first)

    def _declare_tile(self, first: Arg | None) -> Tile:
        k, t = self.emitter, self.emitter.tile_type(self.value)
        region = k.regions.of[self.value]
        valid: tuple[Dim, ...] = t.shape if None in region else region  # type: ignore[assignment]
        if first is None:
            self.slot = k.new_slot(self.value.name, t.dtype, count(t.shape))
        else:
            tile = k.tile(first)
            valid = tile.valid
            self.slot = k.reuse_buffer(first, self.op.results[self.at])
            if self.slot is None:
                k.flush_pending(tile.form.slot if isinstance(tile.form, Leaf) else None)
                self.slot = k.new_slot(self.value.name, t.dtype, count(t.shape))
                k.materialize_tile(tile, slot=self.slot)
        if None in region:
            self.valid_names = [k.name("valid") for _ in t.shape]
            for name, extent in zip(self.valid_names, valid):
                k.out.add(f"int64_t {name} = {extent};")
            valid = tuple(self.valid_names)
        return k.slot_tile(self.slot, t.shape, t.dtype, valid)

    def window_form(self) -> TensorRef:
        assert isinstance(self.value.type, TensorType)
        extents = tuple(d if isinstance(d, int) else None for d in self.value.type.shape)
        return self.emitter.windows.ref(f"(&{self.variable})", extents)

    def set_window(self, arg: Arg) -> None:
        k = self.emitter
        k.out.add(f"{self.variable} = *{k.tensor(arg).pointer};")

    def read_window(self, arg: Arg) -> list[str]:
        k = self.emitter
        copy = k.variable("next", f"*{k.tensor(arg).pointer}", "tl_win")
        return [f"{self.variable} = {copy};"]

    def bind(self, value: Value) -> None:
        super().bind(value)
        if self.slot is not None:
            self.emitter.hold(self.slot)


def assign(k: KernelEmitter, targets: Sequence[_Carried], args: Sequence[Arg]) -> None:
    """All targets get their new values at once."""
    _assign_tiles(k, [(t, k.tile(a)) for t, a in zip(targets, args) if t.slot is not None])
    others = [(t, a) for t, a in zip(targets, args) if t.slot is None]
    if len(others) == 1:
        target, arg = others[0]
        target.set(arg)
    else:
        set_at_once(k, [t for t, _ in others], [a for _, a in others])


def _assign_tiles(k: KernelEmitter, pending: list[tuple[_Carried, Tile]]) -> None:
    for target, tile in pending:
        if not target.valid_names:
            k.check_region(target.value, tile)
    regions = [
        (name, k.variable("region", extent))
        for target, tile in pending
        for name, extent in zip(target.valid_names, tile.valid)
        if name != extent
    ]
    pending = [(t, tile) for t, tile in pending if not _is_in_place(t, tile)]
    while pending:
        chosen = next((p for p in pending if _is_free(p, pending)), None)
        if chosen is None:
            # They exchange places: one waits in a copy.
            target, tile = pending[0]
            slot = k.new_slot("copy", tile.dtype, count(tile.shape))
            pending[0] = (target, k.materialize_tile(tile, slot=slot))
            continue
        target, tile = chosen
        if _mixes_positions(target, tile):
            tile = k.materialize_tile(tile)
        k.materialize_tile(tile, slot=target.slot)
        pending.remove(chosen)
    for name, text in regions:
        k.out.add(f"{name} = {text};")


def _is_in_place(target: _Carried, tile: Tile) -> bool:
    return isinstance(tile.form, Leaf) and tile.form.slot is target.slot and tile.is_dense


def _is_free(pair: tuple[_Carried, Tile], pending: Sequence[tuple[_Carried, Tile]]) -> bool:
    """Whether no other pending value still reads the memory that this one is to replace."""
    return not any(
        leaf.slot is pair[0].slot
        for other in pending
        if other is not pair
        for _, leaf in leaves(other[1])
    )


def _mixes_positions(target: _Carried, tile: Tile) -> bool:
    """Whether an element needs others of the memory it is to replace, so that order matters."""
    return any(
        leaf.slot is target.slot and not (part.is_dense and part.shape == tile.shape)
        for part, leaf in leaves(tile)
    )


# --- loops and branches --------------------------------------------------------------------------


def _plan_destinations(
    k: KernelEmitter, body: Block, carried: Sequence[_Carried], params: Sequence[Value]
) -> None:
    for target, param, arg in zip(carried, params, yielded(body)):
        if target.slot is None:
            continue
        k.carried[param] = target.slot
        if isinstance(arg, Value) and k.uses[arg] == 1 and k.home[arg] is body:
            k.destinations[arg] = target.slot


@emits("for")
def emit_for(k: KernelEmitter, op: Op) -> None:
    view = ForView(op)
    carried = [
        _Carried(k, op, i, v, first) for i, (v, first) in enumerate(zip(view.carried, view.init))
    ]
    index = k.name(view.index.name)
    head = loop_head(k, op, view.bounds, index, view.trip_count)
    _plan_destinations(k, view.body, carried, view.carried)
    before = k.out.reserve()
    with k.loop(op, view.body) as loop, k.out.block(head), k.inside():
        for c in carried:
            if c.slot is not None and c.slot in k.pending:
                loop.started[c.slot] = k.pending.pop(c.slot)
        k.out.add("if (TL_CANCELLED(c)) return TL_STOPPED;")
        k.define(view.index, index)
        for c, param in zip(carried, view.carried):
            c.bind(param)
        k.block(view.body)
        assign(k, carried, yielded(view.body))
        for c in carried:
            c.bind(c.value)
    for left in loop.started.values():
        # The loop did not continue this product after all: it had to be run before. (A loop inside
        # it must not either: that one may never be reached.)
        before.add(f"tl_run_product(&{left.name}, c);")
    for c, result in zip(carried, op.results):
        c.bind(result)


@emits("while")
def emit_while(k: KernelEmitter, op: Op) -> None:
    cond, body = op.blocks
    init = op.args["init"]
    assert isinstance(init, tuple)
    carried = [_Carried(k, op, i, v, first) for i, (v, first) in enumerate(zip(body.params, init))]
    _plan_destinations(k, body, carried, body.params)
    is_seen = any(k.uses[p] for p in cond.params if isinstance(p.type, TileType))
    with k.loop(op, None if is_seen else body), k.out.block("for (;;)", op.loc), k.inside():
        emit_while_body(k, carried, op, k.block)
        assign(k, carried, yielded(body))
        for c in carried:
            c.bind(c.value)
    for c, result in zip(carried, op.results):
        c.bind(result)


@emits("if")
def emit_if(k: KernelEmitter, op: Op) -> None:
    joined = [_Carried(k, op, i, v, None) for i, v in enumerate(op.results)]
    for block, head in zip(op.blocks, (f"if ({k.scalar(op.args['cond'])})", "else")):
        with k.out.block(head, op.loc), k.inside():
            k.block(block)
            assign(k, joined, yielded(block))
    for j, result in zip(joined, op.results):
        j.bind(result)


@emits("undef")
def emit_undef(k: KernelEmitter, op: Op) -> None:
    """A value that no path has defined: poison."""
    value = op.result
    if isinstance(value.type, ScalarType):
        k.define(value, k.variable(value.name, "0", scalars.declared(value)))
    elif isinstance(value.type, TileType):
        k.define(value, poison_tile(k, value))
    elif isinstance(value.type, ArrayType):
        name = k.name(value.name)
        declare_array(k, name, value.type, None)
        k.define(value, name)
    else:
        assert isinstance(value.type, TensorType)
        name = k.name(value.name)
        k.out.add(f"const tl_win {name} = {{0}};")
        extents = tuple(d if isinstance(d, int) else None for d in value.type.shape)
        k.define(value, TensorRef(f"(&{name})", extents, False, False))


@emits("create_tile", "create_tensor")
def emit_create(k: KernelEmitter, op: Op) -> None:
    if k.uses[op.result]:
        k.define(op.result, poison_tile(k, op.result))


def poison_tile(k: KernelEmitter, value: Value) -> Tile:
    t = k.tile_type(value)
    slot = k.new_slot(value.name, t.dtype, count(t.shape))
    k.touch(slot)
    nbytes = count(t.shape) * t.dtype.itemsize
    k.out.add(f"tl_fill({slot.name}, {nbytes}, UINT64_C({poison_pattern(t.dtype)}));", value.loc)
    return k.slot_tile(slot, t.shape, t.dtype, t.shape)
