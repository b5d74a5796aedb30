"""Rules about tiles in kernels: lost valid regions, and halves of split tiles."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.portability import AxisNotSplit, RegionDropped
from tilelet.diag.core import UserError
from tilelet.dialects.data import Dialect
from tilelet.dialects.regions import ValueRegions
from tilelet.dialects.rules import without_callers
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, FunctionKind, Op, Program, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView, ScopeView, yielded_values

_Axes = frozenset[int]
_NONE: _Axes = frozenset()


def kernels(program: Program, regions: ValueRegions, dialect: Dialect) -> Iterator[UserError]:
    """Yield programs that the compiler silently changes."""
    if not dialect.limits_ops:
        return
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore:
            yield from _kernel(function.body, function.split, regions)
            continue
        for op in walk(function.body):
            if op.name == structure.SCOPE.name and ScopeView(op).in_core:
                yield from _kernel(op.blocks[0], ScopeView(op).split, regions)


def _kernel(block: Block, split: str | None, regions: ValueRegions) -> Iterator[UserError]:
    ops = list(walk(block))
    if split not in (None, "NONE") and {Engine.CUBE, Engine.VEC} <= {o.spec.engine for o in ops}:
        yield from _check_split(ops)
    yield from _Walk(regions).block(block, is_kernel=True)


def _check_split(ops: list[Op]) -> Iterator[UserError]:
    """Check tiles of more than two axes, whose halves are joined along the wrong axis."""
    makers = {result: op for op in ops for result in op.results}
    users: dict[Value, list[Op]] = {}
    for op in ops:
        for value in op.operands:
            users.setdefault(value, []).append(op)
    for op in ops:
        tensor = op.args.get("target" if op.spec.writes else "x")
        if not isinstance(tensor, Value) or not isinstance(tensor.type, TensorType):
            continue
        if len(tensor.type.shape) < 3:
            continue
        if op.name == "slice" and not _only_cube(op.results[0], users):
            yield AxisNotSplit(without_callers(op.loc), "loaded from", tensor.name)
        source = op.args.get("source")
        if op.spec.writes and isinstance(source, Value):
            maker = makers.get(source)
            if maker is not None and Trait.GEMM not in maker.spec.traits:
                yield AxisNotSplit(without_callers(op.loc), "stored into", tensor.name)


def _only_cube(value: Value, users: dict[Value, list[Op]]) -> bool:
    """Return whether only matrix products use the value."""
    return all(
        Trait.GEMM in op.spec.traits or (op.name == "reshape" and _only_cube(op.results[0], users))
        for op in users.get(value, ())
    )


@dataclass(frozen=True)
class _Known:
    """The axes along which a tile is partially valid: in the language, and in the compiler.

    lost   the op where the two began to differ
    rows   number of valid rows, if constant
    """

    ours: _Axes = _NONE
    theirs: _Axes = _NONE
    lost: Op | None = None
    rows: int | None = None


class _Walk:
    """Tracks the regions of tiles through one kernel."""

    def __init__(self, regions: ValueRegions) -> None:
        self._regions = regions
        self._known: dict[Value, _Known] = {}

    def block(self, block: Block, *, is_kernel: bool = False) -> Iterator[UserError]:
        for op in block.ops:
            if op.name == structure.FOR.name:
                loop = ForView(op)
                for inner, value in zip(loop.carried, loop.init, strict=True):
                    self._known[inner] = self._of(value)
            for inner_block in op.blocks:
                yield from self.block(inner_block)
                for result, value in zip(op.results, yielded_values(inner_block), strict=False):
                    self._known[result] = self._of(value)
            source = op.args.get("source")
            if op.spec.writes and isinstance(source, Value):
                yield from self._check_store(source)
            if not op.blocks and not op.spec.structural:
                known = self._result(op)
                self._known.update(dict.fromkeys(op.results, known))
        if is_kernel:
            for value in yielded_values(block):
                if isinstance(value, Value) and isinstance(value.type, TileType):
                    yield from self._check_store(value)

    def _check_store(self, value: Value) -> Iterator[UserError]:
        known = self._of(value)
        if known.lost is not None and not known.ours <= known.theirs:
            op = known.lost
            is_second = "concat" not in op.name and "transpose" not in op.name
            yield RegionDropped(without_callers(op.loc), f"pl.{op.name}", is_second)

    def _of(self, value: Arg) -> _Known:
        return self._known.get(value, _Known()) if isinstance(value, Value) else _Known()

    def _result(self, op: Op) -> _Known:
        spec = op.spec
        if not op.results or not isinstance(op.results[0].type, TileType):
            return _Known()
        shape = op.results[0].type.shape
        tiles = [v for v in op.operands if isinstance(v.type, TileType)]
        if spec.name == "slice" or "set_validshape" in spec.name:
            takes_over = tiles and spec.name == "slice"
            return self._window(op, shape, self._of(tiles[0]) if takes_over else _Known())
        if Trait.GEMM in spec.traits:
            left, right = (self._of(op.args.get(n)) for n in ("lhs", "rhs"))
            column = 0 if op.args.get("b_trans") else 1
            axes = frozenset({0} & left.ours) | ({1} if column in right.ours else _NONE)
            return _Known(axes, axes, rows=left.rows)
        if not tiles:
            return _Known()
        return self._result_knowledge(op, tiles, shape)

    def _window(self, op: Op, shape: tuple[object, ...], known: _Known) -> _Known:
        """Track a window of a tensor or tile, or an explicit region."""
        region, axes, rows = self._regions.of(op.results[0]), _NONE, known.rows
        if region is not None:
            rank = len(region)
            stated = zip(region, shape[-rank:], strict=True)
            axes = frozenset(i - rank + 2 for i, (v, s) in enumerate(stated) if v != s)
            extent = region[rank - 2]
            rows = extent if rank > 1 and isinstance(extent, int) else rows
        start = (op.args.get("offset") or (None,))[0]  # type: ignore[index]
        if rows is not None and start == 0 and isinstance(shape[0], int) and shape[0] <= rows:
            known = _Known(known.ours - {0}, known.theirs - {0}, known.lost)
        return _Known(axes | known.ours, axes | known.theirs, known.lost, rows)

    def _result_knowledge(self, op: Op, tiles: list[Value], shape: tuple[object, ...]) -> _Known:
        spec, first = op.spec, self._of(tiles[0])
        if spec.reduces is not None:
            kept = frozenset({2 + spec.reduces})
            return _Known(first.ours - kept, first.theirs - kept, first.lost)
        if spec.name == "reshape":
            before = tiles[0].type.shape if isinstance(tiles[0].type, TileType) else shape
            is_turned = len(before) == len(shape) == 2 and before[::-1] == shape != before
            if is_turned:
                return _Known(_swap_axes(first.ours), _swap_axes(first.theirs), first.lost)
            return first
        ours: _Axes = frozenset(i for v in tiles for i in self._of(v).ours)
        if spec.name == "concat":
            theirs, ours = _NONE, ours & {0}
        elif spec.name == "transpose":
            theirs, ours = _NONE, _swap_axes(ours)
        elif Trait.KEEPS_VALID in spec.traits:
            theirs = first.theirs
        else:
            return _Known()
        lost = next((k.lost for v in tiles if (k := self._of(v)).lost is not None), None)
        if not ours <= theirs and lost is None:
            lost = op
        rows = next((k.rows for v in tiles if (k := self._of(v)).rows is not None), None)
        return _Known(ours, theirs, lost if not ours <= theirs else None, rows)


def _swap_axes(axes: _Axes) -> _Axes:
    return frozenset(1 - axis for axis in axes)
