"""Find the valid regions of a kernel's tiles that are constant, by a fixpoint over its loops and
branches.

An extent is a number if it is the same in every execution, else None: it becomes a C variable. A
tile that a loop carries, or a branch yields, has variables for all of its extents unless all are
constant and equal on every path. Facts only get weaker, so the iteration terminates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.emit.scalars import constant_of, constant_sizes
from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import FP16
from tilelet.ir.core import Arg, Block, Function, Op, Value, values_in
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView, yielded_values

Extent = int | None
Region = tuple[Extent, ...]
JoinPoint = tuple[Op, int]
"""The result of a loop or branch with that position: a value that several paths write."""


@dataclass(frozen=True)
class TileRegions:
    """Constant extents of every tile of a kernel.

    of            region by tile
    variable      carried or joined tiles whose extents are variables
    whole_slices  slices that need no padding
    """

    of: dict[Value, Region]
    variable: frozenset[JoinPoint]
    whole_slices: frozenset[Op] = frozenset()


def find_regions(kernel: Function, aliases: Aliases, *, windows_are_full: bool) -> TileRegions:
    """Return the constant regions. `windows_are_full`: every argument is fully valid."""
    variable: set[JoinPoint] = set()
    while True:
        walk = _Walk(aliases, windows_are_full, variable)
        for p in kernel.params:
            if isinstance(p.type, TensorType):
                walk.is_full[p] = windows_are_full
        walk.block(kernel.body)
        if not walk.found:
            return TileRegions(walk.of, frozenset(variable), frozenset(walk.whole_slices))
        variable |= walk.found


# --- arithmetic -----------------------------------------------------------------------------------


def lesser(a: Extent, b: Extent) -> Extent:
    return None if a is None or b is None else min(a, b)


def _spread(shape: Sequence[int], region: Region, wanted: Sequence[int]) -> list[Extent]:
    """Return the region of an operand whose axes of extent 1 are broadcast to `wanted`."""
    missing = len(wanted) - len(shape)
    return [
        *wanted[:missing],
        *(
            v if extent == to else (None if v is None else to if v else 0)
            for extent, v, to in zip(shape, region, wanted[missing:])
        ),
    ]


def _meet(shape: Sequence[int], operands: Sequence[tuple[Sequence[int], Region]]) -> Region:
    """Return the intersection of the operands' regions."""
    region: list[Extent] = list(shape)
    for operand_shape, operand in operands:
        spread = _spread(operand_shape, operand, shape)
        region = [
            v if so_far == extent else so_far if v == extent else lesser(so_far, v)
            for so_far, v, extent in zip(region, spread, shape)
        ]
    return tuple(region)


def _dims(arg: Arg) -> list[Extent]:
    """Return the constants of a list of integers, or of a single one."""
    numbers = [constant_of(a) for a in (arg if isinstance(arg, tuple) else (arg,))]
    return [n if isinstance(n, int) and abs(n) < 1 << 31 else None for n in numbers]


def _limits(limits: Sequence[Extent], sizes: Sequence[int]) -> list[Extent]:
    """Return the extents given in the text: constants that fit are kept, others are unknown."""
    return [v if v is not None and 0 <= v <= n else None for v, n in zip(limits, sizes)]


def _visible_extent(valid: Extent, start: Extent, size: int, *, may_be_cut: bool) -> Extent:
    """Return the extent of a window's part inside a region."""
    if not may_be_cut:
        return size
    return None if valid is None or start is None else max(0, min(valid - start, size))


# --- the walk -------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """One pass over a kernel, given the regions known to vary so far.

    is_full  whether a tensor is fully valid
    found    join points whose regions turned out to vary
    """

    aliases: Aliases
    windows_are_full: bool
    variable: set[JoinPoint]
    of: dict[Value, Region] = field(default_factory=dict[Value, Region])
    is_full: dict[Value, bool] = field(default_factory=dict[Value, bool])
    found: set[JoinPoint] = field(default_factory=set[JoinPoint])
    whole_slices: set[Op] = field(default_factory=set[Op])

    def block(self, block: Block) -> None:
        for op in block.ops[:-1]:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.name in _FLOW:
            _FLOW[op.name](self, op)
            return
        for result in op.results:
            if isinstance(result.type, TensorType):
                self.is_full[result] = self._tensor_is_full(op)
        tiles = [r for r in op.results if isinstance(r.type, TileType)]
        rule = _RULES.get(op.name)
        for result in tiles:
            # Without a rule the host applies the op's reference, which determines the valid region.
            region = rule(self, op) if rule is not None else None
            self.of[result] = region if region is not None else (None,) * len(_shape(result))

    def _tensor_is_full(self, op: Op) -> bool:
        """Return whether a view or written tensor is fully valid, as its operand; undefined ones
        are not.
        """
        sources = [v for v in values_in(op.args.values()) if isinstance(v.type, TensorType)]
        written = [v for p in op.spec.writes for v in values_in([op.args[p]])]
        source = next(iter([*written, *sources]), None)
        return source is not None and self.is_full[source]

    def tile(self, arg: Arg) -> Region:
        assert isinstance(arg, Value)
        return self.of[arg]

    def join(self, op: Op, at: int, value: Value, first: Region) -> None:
        """Bind a carried or joined tile to the region of its first path."""
        is_variable = (op, at) in self.variable or None in first
        self.of[value] = (None,) * len(first) if is_variable else first

    def check(self, op: Op, at: int, value: Value, region: Region) -> None:
        """Compare the region of another path with the one assumed."""
        if None not in self.of[value] and region != self.of[value]:
            self.found.add((op, at))

    def bind_tensor(self, value: Value) -> None:
        end = self.aliases.end(value)
        known = self.is_full.get(end) if end is not None else None
        self.is_full[value] = self.windows_are_full if known is None else known


def _shape(value: Arg) -> tuple[int, ...]:
    assert isinstance(value, Value)
    assert isinstance(value.type, TileType)
    return value.type.shape


def _for(walk: _Walk, op: Op) -> None:
    view = ForView(op)
    _loop(walk, op, view.init, [view.carried], [view.body])


def _while(walk: _Walk, op: Op) -> None:
    cond, body = op.blocks
    init = op.args["init"]
    assert isinstance(init, tuple)
    _loop(walk, op, init, [body.params, cond.params], [cond, body])


def _loop(
    walk: _Walk,
    op: Op,
    init: Sequence[Arg],
    names: Sequence[Sequence[Value]],
    blocks: Sequence[Block],
) -> None:
    """Walk a loop; `names`: the block parameters of its carried values, the assigned ones first."""
    for at, first in enumerate(init):
        for params in (*names, op.results):
            value = params[at]
            if isinstance(value.type, TileType):
                walk.join(op, at, value, walk.tile(first))
            elif isinstance(value.type, TensorType):
                walk.bind_tensor(value)
    for block in blocks:
        walk.block(block)
    for at, (value, last) in enumerate(zip(names[0], yielded_values(blocks[-1]))):
        if isinstance(value.type, TileType):
            walk.check(op, at, value, walk.tile(last))


def _if(walk: _Walk, op: Op) -> None:
    for block in op.blocks:
        walk.block(block)
        for at, (value, last) in enumerate(zip(op.results, yielded_values(block))):
            if not isinstance(value.type, TileType):
                if isinstance(value.type, TensorType):
                    walk.bind_tensor(value)
            elif block is op.blocks[0]:
                walk.join(op, at, value, walk.tile(last))
            else:
                walk.check(op, at, value, walk.tile(last))


_FLOW: dict[str, Callable[[_Walk, Op], None]] = {"for": _for, "while": _while, "if": _if}

# --- ops ------------------------------------------------------------------------------------------

Rule = Callable[[_Walk, Op], Region | None]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return add


ELEMENTWISE: dict[str, Callable[[str], Sequence[str]]] = {}
"""Elementwise ops: the names of their operands, from the name of the op."""


def define_elementwise(names: Sequence[str], params: Callable[[str], Sequence[str]]) -> None:
    """Declare ops whose result has the intersection of the regions of the tiles among `params`."""
    for name in names:
        ELEMENTWISE[name] = params
        _RULES[name] = lambda walk, op: _meet_of(walk, op, params(op.name))


def _meet_of(walk: _Walk, op: Op, params: Sequence[str]) -> Region:
    tiles = [a for a in (op.args[p] for p in params) if _is_tile(a)]
    return _meet(_shape(op.result), [(_shape(a), walk.tile(a)) for a in tiles])


def _is_tile(arg: object) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


@_rule("full", "arange", "create_tile", "create_tensor", "undef", "fillpad", "fillpad_expand")
def _whole_region(_: _Walk, op: Op) -> Region:
    return _shape(op.result)


@_rule("cast")
def _cast(walk: _Walk, op: Op) -> Region:
    return walk.tile(op.args["x"])


@_rule("move")
def _move(walk: _Walk, op: Op) -> Region:
    return walk.tile(op.args["tile"])


@_rule("expands")
def _expands(walk: _Walk, op: Op) -> Region:
    return walk.tile(op.args["target"])


@_rule("col_expand")
def _col_expand(walk: _Walk, op: Op) -> Region:
    return _meet_of(walk, op, ("target", "col_vec"))


@_rule("row_expand")
def _row_expand(walk: _Walk, op: Op) -> Region:
    if op.args["row_vec"] is not None:
        return _meet_of(walk, op, ("target", "row_vec"))
    shape, region = _shape(op.args["target"]), walk.tile(op.args["target"])
    column = (*region[:-1], lesser(region[-1], 1))
    return _meet(_shape(op.result), [((*shape[:-1], 1), column)])


@_rule("expand_clone")
def _expand_clone(walk: _Walk, op: Op) -> Region:
    return _meet_of(walk, op, ("src",))


@_rule("slice")
def _slice(walk: _Walk, op: Op) -> Region:
    sizes = constant_sizes(op.args["shape"])
    region = _slice_of_tile(walk, op, sizes) if _is_tile(op.args["x"]) else None
    if region is None:
        region = _loaded_region(walk, op, op.args["x"], op.args["valid_shape"], sizes)
    dropped = {a % len(sizes) for a in _dims(op.args["drop_dims"]) if a is not None}
    region = tuple(v for i, v in enumerate(region) if i not in dropped)
    if region == _shape(op.result):
        walk.whole_slices.add(op)
    # Padding makes the whole tile valid.
    return region if op.args["pad_value"] is None else _shape(op.result)


def _loaded_region(walk: _Walk, op: Op, tensor: Arg, limits: Arg, sizes: Sequence[int]) -> Region:
    assert isinstance(tensor, Value)
    is_whole = walk.is_full[tensor] and limits is None and not op.args["clamp"]
    return tuple(sizes) if is_whole else (None,) * len(sizes)


def _slice_of_tile(walk: _Walk, op: Op, sizes: Sequence[int]) -> Region:
    shape, region = _shape(op.args["x"]), walk.tile(op.args["x"])
    limits, clamp = op.args["valid_shape"], bool(op.args["clamp"])
    needed = list(sizes) if limits is None else _limits(_dims(limits), sizes)
    starts = _dims(op.args["offset"])
    if clamp:
        starts = [min(s, n) if s is not None and s >= 0 else None for s, n in zip(starts, shape)]
    may_be_cut = clamp or region != shape
    return tuple(
        lesser(_visible_extent(v, start, size, may_be_cut=may_be_cut), limit)
        for v, start, size, limit in zip(region, starts, sizes, needed)
    )


@_rule("load")
def _load(walk: _Walk, op: Op) -> Region:
    limits = op.args["valid_shapes"] if op.args["valid_shape"] is None else op.args["valid_shape"]
    sizes = constant_sizes(op.args["shapes"])
    region = _loaded_region(walk, op, op.args["tensor"], limits, sizes)
    return _swap_axes(region, -2, -1) if op.args["transpose"] else region


def _swap_axes(region: Region, a: int, b: int) -> Region:
    new = list(region)
    new[a], new[b] = new[b], new[a]
    return tuple(new)


@_rule("transpose")
def _transpose(walk: _Walk, op: Op) -> Region:
    a, b = op.args["axis1"], op.args["axis2"]
    assert isinstance(a, int)
    assert isinstance(b, int)
    return _swap_axes(walk.tile(op.args["x"]), a, b)


@_rule("transpose_view")
def _transpose_view(walk: _Walk, op: Op) -> Region:
    return _swap_axes(walk.tile(op.args["x"]), -2, -1)


@_rule("reshape")
def _reshape(walk: _Walk, op: Op) -> Region | None:
    is_full = walk.tile(op.args["x"]) == _shape(op.args["x"])
    return _shape(op.result) if is_full else None


@_rule("reinterpret_view")
def _reinterpret(walk: _Walk, op: Op) -> Region:
    region = walk.tile(op.args["x"])
    if region == _shape(op.args["x"]) or op.args["shape"] is not None:
        return _shape(op.result)
    return (*region[:-1], None)


@_rule("concat")
def _concat(walk: _Walk, op: Op) -> Region:
    parts = [op.args["src0"], op.args["src1"]]
    if all(walk.tile(p) == _shape(p) for p in parts):
        return _shape(op.result)
    return (walk.tile(parts[0])[0], None)


@_rule("assemble", "write")
def _changed_region(walk: _Walk, op: Op) -> Region | None:
    target = op.args["target" if op.name == "assemble" else "x"]
    return _shape(target) if walk.tile(target) == _shape(target) else None


@_rule("set_validshape")
def _set_validshape(_: _Walk, op: Op) -> Region:
    wanted = [*_dims(op.args["rows"]), *_dims(op.args["cols"])]
    return tuple(_limits(wanted, _shape(op.args["x"])))


def define_reductions(names: Sequence[str], axis: int) -> None:
    """Declare ops whose result has the region of `x`, with `axis` (negative) reduced to 1."""
    for name in names:
        _RULES[name] = lambda walk, op: _reduced_region(walk, op, axis)


def _reduced_region(walk: _Walk, op: Op, axis: int) -> Region | None:
    x = op.args["x"]
    assert isinstance(x, Value)
    assert isinstance(x.type, TileType)
    if op.name == "col_sum" and op.args["tmp_tile"] and x.type.dtype is FP16:
        return None  # pairwise, by the host
    region = list(walk.tile(x))
    if len(_shape(op.result)) == len(region):
        region[axis] = 1
    else:
        del region[axis]
    return tuple(region)


def _product(walk: _Walk, op: Op) -> Region:
    """Return the region of a product: all of the batch, rows of `lhs`, columns of `rhs`."""
    a, b = op.args["lhs"], op.args["rhs"]
    rows = walk.tile(a)[-1 if op.args.get("a_trans") else -2]
    columns = walk.tile(b)[-2 if op.args.get("b_trans") else -1]
    return (*_shape(op.result)[:-2], rows, columns)


def define_products(names: Sequence[str], accumulating: Sequence[str]) -> None:
    """Declare matrix products, and those that accumulate onto `acc`."""
    _RULES.update(dict.fromkeys(names, _product))
    _RULES.update(dict.fromkeys(accumulating, _accumulated_region))


def _accumulated_region(walk: _Walk, op: Op) -> Region:
    product, acc = _product(walk, op), walk.tile(op.args["acc"])
    starts_anew = op.args.get("init_cond") is not None
    return tuple(
        _continued_extent(p, v, n, starts_anew=starts_anew)
        for p, v, n in zip(product, acc, _shape(op.result))
    )


def _continued_extent(product: Extent, acc: Extent, extent: int, *, starts_anew: bool) -> Extent:
    if acc is not None and acc in (extent, product):
        return product
    both = acc if product == extent else lesser(product, acc)
    return None if starts_anew else both
