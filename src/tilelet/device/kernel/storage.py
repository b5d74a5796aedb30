"""Which tile values share storage, and in which memory each lives.

Names that the device keeps in one place form a class: a loop-carried value, an accumulator, a
reshaped view. A class lives where its producer leaves it: products in Acc, vector results in Vec,
loads where they are used (Mat for the cube, Vec for everything else).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from tilelet.analysis.union_find import UnionFind
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Function, Op, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import Mem, TensorType, TileType
from tilelet.ir.views import yielded

CUBE_OPERANDS = {"lhs": Mem.Left, "rhs": Mem.Right, "bias": Mem.Bias}


def is_tile(arg: object) -> TypeGuard[Value]:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def is_gm(arg: object) -> TypeGuard[Value]:
    return isinstance(arg, Value) and isinstance(arg.type, TensorType)


class Storage:
    """Storage classes of the tile values of one kernel, with their memories."""

    def __init__(self, function: Function) -> None:
        self._classes: UnionFind[Value] = UnionFind()
        self._produced_by: dict[Value, set[str]] = {}
        self._wanted_in: dict[Value, set[Mem]] = {}
        self._stated: dict[Value, Mem] = {}
        ops = list(walk(function.body))
        for op in ops:
            self._unify(op)
        for op in ops:
            self._observe(op)

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

    def _observe(self, op: Op) -> None:
        for result in op.results:
            if is_tile(result):
                self._note_producer(op, result)
        if op.spec.structural or Trait.TILE_VIEW in op.spec.traits:
            return
        for param, arg in op.args.items():
            if is_tile(arg):
                space = self._want(op, param)
                if space is not None:
                    self._wanted_in.setdefault(self.find(arg), set()).add(space)

    def _note_producer(self, op: Op, result: Value) -> None:
        root = self.find(result)
        assert isinstance(result.type, TileType)
        if result.type.space is not None:
            self._stated[root] = result.type.space
        made_by = self._produced_by.setdefault(root, set())
        if op.spec.engine is Engine.CUBE:
            made_by.add("cube")
        elif self._is_load(op):
            made_by.add("load")
        elif not (op.spec.structural or op.spec.traits & (Trait.TILE_VIEW | Trait.CREATION)):
            made_by.add("vector")

    @staticmethod
    def _is_load(op: Op) -> bool:
        """Return whether an op loads a window of GM; transposing one is part of its load."""
        if op.name == "transpose":
            return is_gm(op.args["x"])
        return Trait.LOAD in op.spec.traits and any(is_gm(a) for a in op.args.values())

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
            init, params, yielded(op.blocks[-1]), op.results
        ):
            yield from ((param, first), (param, following), (param, result))
        if op.name == "while":
            yield from zip(params, op.blocks[0].params)
    elif op.name == "if":
        for result, *values in zip(op.results, *(yielded(b) for b in op.blocks)):
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
    columns, item = (shape[-1] if shape else 1), dtype.itemsize
    if space is Mem.Acc:
        item = 4  # products are kept in FP32 or INT32, whatever type they are stored as
    if space in (Mem.Mat, Mem.Left, Mem.Right, Mem.Acc):
        per_row = max(1, 32 // item) if space is not Mem.Acc else fractal
        return round_up(rows, fractal) * round_up(columns, per_row) * item
    if columns == 1:
        return round_up(rows * item, 32)
    return rows * round_up(columns * item, 32)


def round_up(n: int, step: int) -> int:
    return -(-n // step) * step
