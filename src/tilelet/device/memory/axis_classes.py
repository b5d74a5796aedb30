"""Which dimensions of a kernel's tiles must change together when one tile shrinks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilelet.analysis.union_find import UnionFind
from tilelet.device.kernel.parts import is_tile
from tilelet.ir.core import Arg, Block, Function, Op, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import TileType
from tilelet.ir.views import yielded_values

Axis = tuple[Value, int]


class AxisClasses:
    """Equivalence classes of axes that have one extent and shrink together.

    A class is frozen if an op constrains its extent in a way that is not understood here.
    """

    def __init__(self, function: Function) -> None:
        self._classes: UnionFind[Axis] = UnionFind()
        self._axes: dict[Axis, None] = {}  # in program order
        self._frozen: set[Axis] = set()
        self.granule: dict[Axis, int] = {}
        self.reduced: set[Axis] = set()
        for op in walk(function.body):
            self._op(op)

    def find(self, axis: Axis) -> Axis:
        """Return the representative of the axis's class."""
        self._axes.setdefault(axis)
        return self._classes.find(axis)

    def classes(self) -> dict[Axis, list[Axis]]:
        """Return the classes that may shrink, with their members, in program order."""
        found: dict[Axis, list[Axis]] = {}
        for axis in self._axes:
            found.setdefault(self.find(axis), []).append(axis)
        frozen = {self.find(axis) for axis in self._frozen}
        return {root: members for root, members in found.items() if root not in frozen}

    def needs_sum(self, members: list[Axis]) -> bool:
        """Return whether some op sums (or takes the maximum) along the class."""
        return any(axis in self.reduced for axis in members)

    def step(self, members: list[Axis]) -> int:
        """Return what the extent must stay a multiple of."""
        return max(self.granule.get(axis, 1) for axis in members)

    def _op(self, op: Op) -> None:
        tiles = [v for v in (*op.operands, *op.results) if is_tile(v)]
        for inner in op.blocks:
            tiles += [p for p in inner.params if is_tile(p)]
        for value in tiles:
            self._enter(value)
        if op.name in ("for", "while", "if"):
            self._structure(op)
        elif op.spec.engine is Engine.CUBE:
            self._product(op)
        elif Trait.ELEMENTWISE in op.spec.traits:
            for v in op.operands:
                self._tie_equal(v, op.results[0], freeze=False)
        elif op.spec.reduces is not None:
            self._reduction(op, op.spec.reduces)
        elif op.name in ("reshape", "transpose", "move"):
            self._view(op)
        elif op.name in ("slice", "assemble") and is_tile(_whole_tile(op)):
            whole, part = (
                _whole_tile(op),
                op.results[0] if op.name == "slice" else op.args["source"],
            )
            self._tie_equal(part, whole, freeze=True)
            if op.name == "assemble" and op.results:
                self._tie_equal(op.results[0], whole, freeze=True)
        elif not (op.spec.structural or _is_free(op) or op.spec.writes or not op.results):
            self._freeze(*tiles)

    def _enter(self, value: Value) -> None:
        t = value.type
        assert isinstance(t, TileType)
        for axis in range(len(t.shape)):
            self.find((value, axis))
        if math.prod(t.shape) > 1:
            # Rows are whole 32-byte blocks; a column is stored along its rows.
            along = (value, len(t.shape) - (1 if t.shape[-1] > 1 else 2))
            self.granule[along] = max(self.granule.get(along, 1), 32 // t.dtype.itemsize)

    def _tie(self, a: Value, i: int, b: Value, j: int) -> None:
        self._classes.join(self.find((a, i)), self.find((b, j)))

    def _tie_equal(self, a: Arg, b: Arg, *, freeze: bool) -> None:
        """Tie axes of equal extent, from the last; freeze those that differ, if `freeze`."""
        if not (is_tile(a) and is_tile(b)):
            return
        assert isinstance(a, Value)
        assert isinstance(b, Value)
        first, second = _shape(a), _shape(b)
        for back in range(1, min(len(first), len(second)) + 1):
            i, j = len(first) - back, len(second) - back
            if first[i] == second[j]:
                self._tie(a, i, b, j)
            elif freeze:
                self._frozen.update(((a, i), (b, j)))

    def _freeze(self, *values: Value) -> None:
        for v in values:
            self._frozen.update((v, axis) for axis in range(len(_shape(v))))

    def _structure(self, op: Op) -> None:
        if op.name == "if":
            for result, *values in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                for value in values:
                    self._tie_equal(result, value, freeze=True)
            return
        init = op.args["init"]
        assert isinstance(init, tuple)
        for block in op.blocks:
            params = block.params[1 if op.name == "for" else 0 :]
            for param, first, result in zip(params, init, op.results):
                self._tie_equal(param, first, freeze=True)
                self._tie_equal(param, result, freeze=True)
        for following, result in zip(yielded_values(op.blocks[-1]), op.results):
            self._tie_equal(following, result, freeze=True)

    def _product(self, op: Op) -> None:
        lhs, rhs, result = op.args["lhs"], op.args["rhs"], op.results[0]
        assert isinstance(lhs, Value)
        assert isinstance(rhs, Value)
        ranks = {len(_shape(v)) for v in (lhs, rhs, result)}
        if ranks != {2}:
            self._freeze(*(v for v in (lhs, rhs, result) if is_tile(v)))
            return
        m, k = (1, 0) if op.args.get("a_trans") else (0, 1)
        k2, n = (1, 0) if op.args.get("b_trans") else (0, 1)
        self._tie(lhs, k, rhs, k2)
        self._tie(lhs, m, result, 0)
        self._tie(rhs, n, result, 1)
        for axis in ((lhs, m), (lhs, k), (rhs, k2), (rhs, n)):
            self.granule[axis] = max(self.granule.get(axis, 1), 16)
        self.reduced.update(((lhs, k), (rhs, k2)))
        self._tie_equal(op.args.get("acc"), result, freeze=True)

    def _reduction(self, op: Op, along: int) -> None:
        x = op.args["x"]
        assert isinstance(x, Value)
        for other in (*op.results, op.args.get("tmp_tile")):
            self._tie_equal(x, other, freeze=False)
        self.reduced.add((x, len(_shape(x)) + along))

    def _view(self, op: Op) -> None:
        x, result = op.args.get("x", op.args.get("tile")), op.results[0]
        if not (is_tile(x) and is_tile(result)):
            return
        assert isinstance(x, Value)
        before, after = (list(enumerate(_shape(v))) for v in (x, result))
        if op.name == "transpose":
            axes = list(range(len(before)))
            i, j = (int(op.args[a]) % len(axes) for a in ("axis1", "axis2"))  # type: ignore[arg-type]
            axes[i], axes[j] = axes[j], axes[i]
            for there, here in enumerate(axes):
                self._tie(x, here, result, there)
            return
        kept = [[(i, n) for i, n in axes if n != 1] for axes in (before, after)]
        if [n for _, n in kept[0]] != [n for _, n in kept[1]]:
            self._freeze(x, result)
            return
        for (i, _), (j, _) in zip(*kept):
            self._tie(x, i, result, j)


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TileType)
    return value.type.shape


def _is_free(op: Op) -> bool:
    """Return whether the op can produce a tile of any shape."""
    return op.spec.is_window_load or Trait.CREATION in op.spec.traits


def _whole_tile(op: Op) -> Arg:
    return op.args["x"] if op.name == "slice" else op.args["target"]


def resize_tiles(function: Function, extents: Mapping[Axis, int]) -> Function:
    """Return the kernel with some axes of its tiles resized, as far as the device view needs it.

    Types change, but the constants in the arguments of loads stay, so it cannot be run.
    """
    values: dict[Value, Value] = {}

    def value(old: Value) -> Value:
        if old not in values:
            t = old.type
            if isinstance(t, TileType):
                shape = tuple(extents.get((old, i), n) for i, n in enumerate(t.shape))
                t = replace(t, shape=shape)
            values[old] = Value(old.name, t, old.loc)
        return values[old]

    def arg(old: Arg) -> Arg:
        if isinstance(old, Value):
            return value(old)
        return tuple(arg(a) for a in old) if isinstance(old, tuple) else old

    def block(old: Block) -> Block:
        params = tuple(value(p) for p in old.params)
        return Block(params, tuple(op(o) for o in old.ops))

    def op(old: Op) -> Op:
        return Op(
            old.spec,
            {name: arg(a) for name, a in old.args.items()},
            tuple(value(r) for r in old.results),
            tuple(block(b) for b in old.blocks),
            old.loc,
        )

    params = tuple(value(p) for p in function.params)
    return replace(function, params=params, body=block(function.body))


def without_pipelining(function: Function) -> Function:
    """Return the kernel with every `pl.pipeline` loop as a plain one, with single buffers."""

    def block(old: Block) -> Block:
        return Block(old.params, tuple(op(o) for o in old.ops))

    def op(old: Op) -> Op:
        if not old.blocks:
            return old
        args = old.args
        if old.name == "for" and args["kind"] == "pipeline":
            args = {**args, "kind": "range", "stage": None}
        return replace(old, args=args, blocks=tuple(block(b) for b in old.blocks))

    return replace(function, body=block(function.body))
