"""Find row nests: ops of a block that can run row by row, so that a row stays in the L1 cache.

    softmax of a tile [8, 2048]            as a nest
    maximum of all rows                    for every row: maximum, powers and their sum, quotients
    powers and sums of all rows
    quotients of all rows

A nest starts with a large tile and ends with the store of one, or before an op that mixes rows.
Loads and scalars between its ops are moved before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.cpu.plan.forms import is_tile, tile_type
from tilelet.cpu.plan.model import PlanStep, RowNest
from tilelet.cpu.plan.products import RECOMPUTABLE
from tilelet.cpu.plan.regions import ELEMENTWISE, TileRegions
from tilelet.cpu.plan.uses import Uses
from tilelet.dataclasses import replace
from tilelet.ir.core import Block, Function, Op, Value, values_in
from tilelet.ir.spec import Cost
from tilelet.ir.types import TensorType, TileType
from tilelet.syntax.enums import AtomicType

_MIN_BYTES = 32 << 10  # smaller tiles stay in the L1 cache anyway
_COSTLY = (Cost.EXP, Cost.LOG, Cost.TRIGONOMETRIC)
"""Functions that take longer than reading their operand from memory."""


def pays(nbytes: int, *, is_costly: bool) -> bool:
    """Whether a nest on a tile of this size gains time. Without a costly function the tile is read
    from memory as fast as its ops take one after the other.
    """
    return nbytes >= _MIN_BYTES and is_costly


def find_nests(
    kernel: Function, uses: Uses, regions: TileRegions
) -> tuple[Function, tuple[RowNest, ...]]:
    """Return the nests of the outermost block, and the kernel with the ops of each together."""
    ops: list[Op] = []
    nests: list[RowNest] = []
    rest: list[Op] = list(kernel.body.ops)
    if all(op.spec.reduces != -1 for op in rest):
        return kernel, ()
    while rest:
        growth = _Growth(uses, regions, kernel)
        grown: tuple[Op, ...] = growth.grow(rest) if _is_start(rest[0], regions) else ()
        if not grown:
            ops.append(rest.pop(0))
            continue
        nests.append(growth.nest(grown))
        before = [op for op in growth.moved if rest.index(op) < rest.index(grown[-1])]
        ops += [*before, *grown]
        rest = [op for op in rest if op not in (*before, *grown)]
    if not nests:
        return kernel, ()
    return replace(kernel, body=Block(kernel.body.params, tuple(ops))), tuple(nests)


def is_possible(nest: RowNest, steps: Mapping[Op, PlanStep]) -> bool:
    """Whether the plan of its ops neither copies windows nor writes tiles from outside it."""
    made = {v for op in nest.ops for v in op.results}
    return all(
        not steps[op].copies and all(v in made for v, _ in steps[op].stored) for op in nest.ops
    )


def _is_start(op: Op, regions: TileRegions) -> bool:
    """Whether the op computes or reduces a tile of several rows."""
    shapes = [tile_type(v).shape for v in (*op.results, *op.operands) if is_tile(v)]
    return any(shape[0] > 1 for shape in shapes) and _is_of_whole_tiles(op, regions)


def _is_of_whole_tiles(op: Op, regions: TileRegions) -> bool:
    tiles = [v for v in (*op.results, *op.operands) if is_tile(v)]
    return all(len(tile_type(v).shape) == 2 for v in tiles) and all(
        regions.of[v] == tile_type(v).shape for v in tiles
    )


class _Growth:
    """The ops that follow one op in a nest."""

    def __init__(self, uses: Uses, regions: TileRegions, kernel: Function) -> None:
        self.uses, self.regions, self.kernel = uses, regions, kernel
        self.rows = 0
        self.made: set[Value] = set()
        self.moved: list[Op] = []  # ops between those of the nest that move before it

    def grow(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Return the nest that starts with the first op, or nothing if running by rows gains
        nothing.
        """
        shapes = [tile_type(v).shape for v in (*ops[0].operands, *ops[0].results) if is_tile(v)]
        self.rows = max(shape[0] for shape in shapes if len(shape) == 2)
        found: list[Op] = []
        for op in ops[:-1]:
            if self._is_last(op):
                found.append(op)
                break
            if self._is_by_rows(op):
                found.append(op)
                self.made.update(op.results)
            elif self._may_move(op):
                self.moved.append(op)
            else:
                break
        return tuple(found) if self._is_worthwhile(found) else ()

    def nest(self, ops: tuple[Op, ...]) -> RowNest:
        inside = {v: sum(op.operands.count(v) for op in ops) for v in self.made}
        one_row = frozenset(
            v for v, n in inside.items() if self._is_wide(v) and self.uses.count[v] == n
        )
        given = {v for op in ops for v in op.operands if is_tile(v) and v not in self.made}
        left = {v for v, n in inside.items() if self.uses.count[v] > n}
        return RowNest(ops, self.rows, one_row, frozenset(given | left), self._ahead(ops))

    def _ahead(self, ops: Sequence[Op]) -> Op | None:
        """Return the reduction during which the next row is prefetched: one after a function that
        takes longer than reading.
        """
        costly = [i for i, op in enumerate(ops) if op.spec.cost in _COSTLY]
        later = ops[costly[0] :] if costly else ()
        return next((op for op in later if op.spec.reduces == -1), None)

    def _is_wide(self, v: Value) -> bool:
        """Whether it has several elements in a row."""
        shape = tile_type(v).shape
        return shape[0] == self.rows and shape[1] > 1

    def _is_column(self, v: Value) -> bool:
        """Whether it has one element for each row."""
        return tile_type(v).shape in ((self.rows, 1), (1, self.rows))

    def _is_worthwhile(self, ops: Sequence[Op]) -> bool:
        """Whether a tile is used again after a reduction, and running by rows saves time."""
        reduced = [i for i, op in enumerate(ops) if op.spec.reduces == -1]
        if self.rows < 2 or not reduced:
            return False
        later = [v for op in ops[reduced[0] + 1 :] for v in op.operands if is_tile(v)]
        sizes = [tile_type(v) for v in later if self._is_wide(v)]
        nbytes = max((t.shape[0] * t.shape[1] * t.dtype.itemsize for t in sizes), default=0)
        return nbytes > 0 and pays(nbytes, is_costly=self._ahead(ops) is not None)

    def _is_last(self, op: Op) -> bool:
        """Whether the op stores a tile of the nest."""
        if op.name not in ("assemble", "store") or op.args["atomic"] is AtomicType.Add:
            return False
        target, source = (
            op.args[name]
            for name in (op.spec.writes[0], "tile" if op.name == "store" else "source")
        )
        assert isinstance(target, Value)
        is_stored = isinstance(source, Value) and source in self.made and self._is_wide(source)
        return is_stored and isinstance(target.type, TensorType) and len(target.type.shape) == 2

    def _is_by_rows(self, op: Op) -> bool:
        """Whether row i of the op's result follows from row i of its operands."""
        if op.blocks or len(op.results) != 1 or not is_tile(op.result):
            return False
        if not _is_of_whole_tiles(op, self.regions):
            return False
        if op.spec.reduces == -1:
            x = op.args["x"]
            others = [v for v in op.operands if v is not x and v in self.made]
            assert isinstance(x, Value)
            return self._is_wide(x) and not others
        is_shaped = self._is_wide(op.result) or self._is_column(op.result)
        if op.name == "reshape":
            x = op.args["x"]
            is_column = is_tile(x) and x in self.made and self._is_column(x)  # type: ignore[operator]
            return is_column and self._is_column(op.result)
        if op.name not in ELEMENTWISE and op.name not in ("cast", "full"):
            return False
        own = [v for v in values_in(op.args.values()) if v in self.made]
        if not is_shaped or not (own or self._is_wide(op.result)):
            return False
        axis = row_axis(tile_type(op.result).shape, self.rows)
        return all(tile_type(v).shape[axis] == self.rows for v in own)

    def _may_move(self, op: Op) -> bool:
        """Whether the op can run before the nest: it writes no memory and reads no result of the
        nest.
        """
        if op.blocks or any(v in self.made for v in op.operands):
            return False
        if op.spec.traits & RECOMPUTABLE or op.spec.is_window_load:
            return True
        is_small = op.name in ELEMENTWISE or op.name in ("cast", "full", "reshape")
        return is_small and isinstance(op.result.type, TileType)


def row_axis(shape: Sequence[int], rows: int) -> int:
    """Return the axis of a nest's tile along which its rows lie: the second of [1, rows]."""
    return 0 if shape[0] == rows else 1
