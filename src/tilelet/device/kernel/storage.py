"""Which tile values share storage, and in which memory each lives.

Names that the device keeps in one place form a class: a loop-carried value, an accumulator, a
reshaped view. A class lives where its producer leaves it: products in Acc, vector results in Vec,
loads where they are used (Mat for the cube, Vec for everything else).

A slice of a product that is only stored leaves from Acc, and a window that is loaded only to fill a
part of a cube operand goes directly there: such parts share the storage of their whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from tilelet.analysis.union_find import UnionFind
from tilelet.device.kernel.parts import Parts, is_load, is_tile
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Function, Op, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import Mem, TileType
from tilelet.ir.views import yielded_values

CUBE_OPERANDS = {"lhs": Mem.Left, "rhs": Mem.Right, "bias": Mem.Bias}


class Storage:
    """Storage classes of the tile values of one kernel, with their memories."""

    def __init__(self, function: Function) -> None:
        self._classes: UnionFind[Value] = UnionFind()
        self._produced_by: dict[Value, set[str]] = {}
        self._wanted_in: dict[Value, set[Mem]] = {}
        self._stated: dict[Value, Mem] = {}
        self._wholes: dict[Value, Value] = {}
        self.moved: set[Op] = set()
        """Ops that only take or fill a part of a tile where it is."""
        ops = list(walk(function.body))
        for op in ops:
            self._unify(op)
        parts = Parts(ops)
        filled = dict(parts.filled)
        while True:
            self._observe(ops, filled)
            elsewhere = [op for op in filled if self.home(op.results[0]) is not Mem.Mat]
            if not elsewhere:
                break
            for op in elsewhere:
                del filled[op]
        for op, values in filled.items():
            self.moved |= {op, *parts.makers(values[:-1])}
            for value in values:
                self._join_part(value, op.results[0])
        for op in reversed(parts.stored):
            source = op.args["x"]
            if is_tile(source) and self.home(source) is Mem.Acc:
                self.moved.add(op)
                self._join_part(op.results[0], source)

    def whole(self, value: Value) -> Value:
        """Return the value whose storage a part shares, or the value itself."""
        return self._wholes.get(self.find(value), value)

    def _join_part(self, part: Value, whole: Value) -> None:
        largest = self.whole(whole)
        self._classes.join(whole, part)
        self._wholes[self.find(whole)] = largest

    def find(self, value: Value) -> Value:
        """Return the representative of the value's class."""
        return self._classes.find(value)

    def home(self, value: Value) -> Mem:
        """Return the memory in which the value's class lives."""
        root = self.find(value)
        if root in self._stated:
            return self._stated[root]
        producers = self._produced_by.get(root, set())
        if "cube" in producers:
            return Mem.Acc
        if "vector" in producers:
            return Mem.Vec
        wanted = self._wanted_in.get(root, set())
        return Mem.Mat if wanted and Mem.Vec not in wanted else Mem.Vec

    def wanted(self, value: Value) -> frozenset[Mem]:
        """Return the memories that consumers need; Mat stands for all cube operands."""
        return frozenset(self._wanted_in.get(self.find(value), set()))

    def _unify(self, op: Op) -> None:
        for a, b in _same_storage(op):
            if is_tile(a) and is_tile(b):
                self._classes.join(a, b)

    def _observe(self, ops: Iterable[Op], filled: Container[Op]) -> None:
        """Note producers and consumers; a filled part counts as a load."""
        self._produced_by, self._wanted_in, self._stated = {}, {}, {}
        for op in ops:
            for result in op.results:
                if is_tile(result):
                    self._note_producer(op, result, op in filled)
            self._note_consumer(op)

    def _note_consumer(self, op: Op) -> None:
        if op.spec.structural or Trait.TILE_VIEW in op.spec.traits:
            return
        for param, arg in op.args.items():
            if is_tile(arg):
                space = self._want(op, param)
                if space is not None:
                    self._wanted_in.setdefault(self.find(arg), set()).add(space)

    def _note_producer(self, op: Op, result: Value, loads: bool) -> None:
        root = self.find(result)
        assert isinstance(result.type, TileType)
        if result.type.space is not None:
            self._stated[root] = result.type.space
        made_by = self._produced_by.setdefault(root, set())
        if op.spec.engine is Engine.CUBE:
            made_by.add("cube")
        elif loads or is_load(op):
            made_by.add("load")
        elif not (op.spec.structural or op.spec.traits & (Trait.TILE_VIEW | Trait.CREATION)):
            made_by.add("vector")

    @staticmethod
    def _want(op: Op, param: str) -> Mem | None:
        if op.spec.engine is Engine.CUBE:
            return Mem.Mat if param in CUBE_OPERANDS else None
        return None if Trait.ANY_MEMORY in op.spec.traits else Mem.Vec


def _same_storage(op: Op) -> Iterator[tuple[Arg, Arg]]:
    if op.name in ("for", "while"):
        init = op.args["init"]
        assert isinstance(init, tuple)
        params = op.blocks[-1].params[1 if op.name == "for" else 0 :]
        for first, param, following, result in zip(
            init, params, yielded_values(op.blocks[-1]), op.results
        ):
            yield from ((param, first), (param, following), (param, result))
        if op.name == "while":
            yield from zip(params, op.blocks[0].params)
    elif op.name == "if":
        for result, *values in zip(op.results, *(yielded_values(b) for b in op.blocks)):
            for value in values:
                yield result, value
    elif Trait.TILE_VIEW in op.spec.traits and op.results:
        yield op.results[0], op.args["x"]
    elif op.spec.replaces is not None and op.results:
        yield op.results[0], op.args[op.spec.replaces]


def padded_bytes(shape: tuple[int, ...], dtype: DType, space: Mem, fractal: int) -> int:
    """Return the storage size of a tile: whole fractals for the cube, else 32-byte rows."""
    rows = 1
    for n in shape[:-1]:
        rows *= n
    columns = shape[-1] if shape else 1
    if space is Mem.Acc:  # products are kept in FP32 or INT32, whatever type they are stored as
        return round_up(rows, fractal) * round_up(columns, fractal) * 4
    if space in (Mem.Mat, Mem.Left, Mem.Right):
        return round_up(rows, fractal) * round_up(dtype.packed(columns), 32)
    if columns == 1:
        return round_up(dtype.packed(rows), 32)
    return rows * round_up(dtype.packed(columns), 32)


def round_up(n: int, step: int) -> int:
    return -(-n // step) * step
