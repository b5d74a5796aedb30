"""Emit the control flow and scalars of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelet.cpu.emit import scalars
from tilelet.cpu.emit.elements import poison_pattern
from tilelet.cpu.emit.emitter import (
    declare_array,
    emit_array_create,
    emit_array_get,
    emit_array_set,
    emit_division,
    emit_scalar,
    loop_head,
)
from tilelet.cpu.emit.kernel import KernelEmitter, TensorRef, emits
from tilelet.cpu.emit.loop_carried import LoopCarried, emit_while_body, set_at_once
from tilelet.cpu.emit.text import Dim
from tilelet.cpu.emit.tiles import EmittedTile, TileSlot, count
from tilelet.cpu.plan.model import Move
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.types import ArrayType, ScalarType, TensorType, TileType
from tilelet.ir.views import ForView, yielded_values
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
    """Emit nothing: ops of a kernel run in order."""


# --- values that control flow hands on -----------------------------------------------------------


class _Carried(LoopCarried[KernelEmitter]):
    """A carried value of a kernel, which may be a tile.

    A carried tile has its own scratch memory, and variables for the extents of its valid region
    unless they are known to be constant.
    """

    def __init__(self, k: KernelEmitter, at: int, value: Value, first: Arg | None) -> None:
        self.at = at
        self.slot: TileSlot | None = None
        self.valid_names: list[str] = []
        super().__init__(k, value, first)

    def declare(self, first: Arg | None) -> Any:
        if isinstance(self.value.type, TileType):
            return self._declare_tile(first)
        return super().declare(first)

    def _declare_tile(self, first: Arg | None) -> EmittedTile:
        k, t = self.emitter, self.emitter.tile_type(self.value)
        region = k.plan.regions.of[self.value]
        valid: tuple[Dim, ...] = t.shape if None in region else region  # type: ignore[assignment]
        if first is None:
            self.slot = k.take_slot()
        else:
            assert isinstance(first, Value)
            valid = k.tile(first).valid
            self.slot = k.take_replaced(first)
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


def assign(
    k: KernelEmitter, targets: Sequence[_Carried], args: Sequence[Arg], moves: Sequence[Move]
) -> None:
    """Assign the new values of all targets simultaneously."""
    _assign_tiles(k, {t.at: (t, k.tile(a)) for t, a in zip(targets, args) if t.slot}, moves)
    others = [(t, a) for t, a in zip(targets, args) if t.slot is None]
    if len(others) == 1:
        target, arg = others[0]
        target.set(arg)
    else:
        set_at_once(k, [t for t, _ in others], [a for _, a in others])


def _assign_tiles(
    k: KernelEmitter, pairs: dict[int, tuple[_Carried, EmittedTile]], moves: Sequence[Move]
) -> None:
    for target, tile in pairs.values():
        if not target.valid_names:
            k.check_region(target.value, tile)
    regions = [
        (name, k.variable("region", extent))
        for target, tile in pairs.values()
        for name, extent in zip(target.valid_names, tile.valid)
        if name != extent
    ]
    tiles = {at: tile for at, (_, tile) in pairs.items()}
    for at, number in moves:
        tiles[at] = k.materialize_tile(tiles[at], k.slot(number))
    for name, text in regions:
        k.out.add(f"{name} = {text};")


# --- loops and branches --------------------------------------------------------------------------


@emits("for")
def emit_for(k: KernelEmitter, op: Op) -> None:
    view, step = ForView(op), k.step
    carried = [
        _Carried(k, i, v, first) for i, (v, first) in enumerate(zip(view.carried, view.init))
    ]
    index = k.name(view.index.name)
    head = loop_head(k, op, view.bounds, index, view.trip_count)
    with k.out.block(head), k.inside():
        k.out.add("if (TL_CANCELLED(c)) return TL_STOPPED;")
        k.define(view.index, index)
        for c, param in zip(carried, view.carried):
            c.bind(param)
        k.block(view.body)
        assign(k, carried, yielded_values(view.body), step.moves[0])
    for c, result in zip(carried, op.results):
        c.bind(result)


@emits("while")
def emit_while(k: KernelEmitter, op: Op) -> None:
    (_, body), step = op.blocks, k.step
    init = op.args["init"]
    assert isinstance(init, tuple)
    carried = [_Carried(k, i, v, first) for i, (v, first) in enumerate(zip(body.params, init))]
    with k.out.block("for (;;)", op.loc), k.inside():
        emit_while_body(k, carried, op, k.block)
        assign(k, carried, yielded_values(body), step.moves[0])
    for c, result in zip(carried, op.results):
        c.bind(result)


@emits("if")
def emit_if(k: KernelEmitter, op: Op) -> None:
    joined, step = [_Carried(k, i, v, None) for i, v in enumerate(op.results)], k.step
    heads = (f"if ({k.scalar(op.args['cond'])})", "else")
    for block, head, moves in zip(op.blocks, heads, step.moves):
        with k.out.block(head, op.loc), k.inside():
            k.block(block)
            assign(k, joined, yielded_values(block), moves)
    for j, result in zip(joined, op.results):
        j.bind(result)


@emits("undef")
def emit_undef(k: KernelEmitter, op: Op) -> None:
    """Bind a value that no path has defined to poison."""
    value = op.result
    if isinstance(value.type, ScalarType):
        k.define(value, k.variable(value.name, "0", scalars.declared_type(value)))
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
    if k.uses.count[op.result]:
        k.define(op.result, poison_tile(k, op.result))


def poison_tile(k: KernelEmitter, value: Value) -> EmittedTile:
    t = k.tile_type(value)
    slot = k.take_slot()
    nbytes = count(t.shape) * t.dtype.itemsize
    k.out.add(f"tl_fill({slot.name}, {nbytes}, UINT64_C({poison_pattern(t.dtype)}));", value.loc)
    return k.slot_tile(slot, t.shape, t.dtype, t.shape)
