"""Ops without C code: rare ones that move elements by index, and new ones.

Generated code passes the operands to a callback, which applies the op's NumPy reference.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.emit.emitter import Emitter
from tilelet.cpu.emit.kernel import BY_REFERENCE, KernelEmitter, emits
from tilelet.cpu.emit.text import Dim
from tilelet.cpu.emit.tiles import EmittedTile
from tilelet.ir.core import Op, Value, values_in
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.tasks.window import row_major


def shaped_operands(op: Op) -> list[Value]:
    """Return the tensors and tiles that the callback receives, then the results' tiles."""
    return [v for v in values_in(op.args.values()) if isinstance(v.type, (TensorType, TileType))]


def scalar_operands(op: Op) -> list[Value]:
    return [v for v in values_in(op.args.values()) if isinstance(v.type, ScalarType)]


def call_host(e: Emitter, op: Op, windows: Sequence[str]) -> str:
    """Emit the callback with these windows and scalars; return the C name of the windows."""
    tiles, words = e.name("tiles"), e.name("words")
    e.out.add(f"tl_win {tiles}[] = {{{', '.join(windows)}}};", op.loc)
    numbers = [
        f"{{.{word_field(v.type.dtype)} = {e.scalar(v)}}}"
        for v in scalar_operands(op)
        if isinstance(v.type, ScalarType)
    ]
    e.out.add(f"const tl_word {words}[] = {{{', '.join(numbers) or '{0}'}}};")
    e.check(f"tl_call_host(c, {e.site(op)}, {e.host.number(op)}, {tiles}, {words})")
    return tiles


@emits(BY_REFERENCE, "dump")
def emit_host(k: KernelEmitter, op: Op) -> None:
    entries: list[str] = []
    for v in shaped_operands(op):
        if isinstance(v.type, TensorType):
            entries.append(f"*{k.tensor(v).pointer}")
        else:
            entries.append(_window(k.stored(v)))
    made: list[tuple[Value, EmittedTile]] = []
    for v in op.results:
        if isinstance(v.type, TileType):
            tile = k.slot_tile(k.take_slot(), v.type.shape, v.type.dtype, v.type.shape)
            made.append((v, tile))
            entries.append(_window(tile))
    tiles = call_host(k, op, entries)
    first = len(entries) - len(made)
    for i, (v, tile) in enumerate(made):
        valid: list[Dim] = [
            k.variable("valid", f"{tiles}[{first + i}].valid[{axis}]")
            for axis in range(len(tile.shape))
        ]
        if k.uses.count[v]:
            k.define(v, EmittedTile(tile.shape, tile.dtype, tuple(valid), tile.form))
    tensors = [v for v in op.results if isinstance(v.type, TensorType)]
    for v, written in zip(tensors, op.spec.writes):
        k.define(v, k.tensor(op.args[written]))


def _window(tile: EmittedTile) -> str:
    """Declare a `tl_win` for a dense tile."""
    shape = ", ".join(map(str, tile.shape))
    strides = ", ".join(map(str, row_major(tile.shape)))
    valid = ", ".join(map(str, tile.valid))
    return (
        f"{{(char *){tile.leaf.pointer}, NULL, {len(tile.shape)}, {tile.dtype.itemsize}, 0, "
        f"{{{shape}}}, {{{strides}}}, {{{valid}}}, {{{shape}}}}}"
    )
