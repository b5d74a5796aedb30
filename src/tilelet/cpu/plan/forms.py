"""Decide which tiles of a kernel are computed inline, kept in scratch memory, or read as windows.

One walk over the kernel keeps a `Form` for every live tile. An elementwise op whose result is used
once is inline: its user's loop evaluates it, so a chain of ops is one loop. Every other result
takes a slot, or replaces an operand in its slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tilelet import dtypes
from tilelet.cpu.emit.elements import element
from tilelet.cpu.emit.scalars import constant_of
from tilelet.cpu.plan.model import (
    Copy,
    Form,
    Inline,
    Move,
    PlanStep,
    RowNest,
    Slot,
    Stored,
    dense_form,
    leaves,
    one_row,
)
from tilelet.cpu.plan.regions import ELEMENTWISE, TileRegions
from tilelet.cpu.plan.uses import Uses, first_use
from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import FP16, FP32, INT8, INT32, UINT8, DType
from tilelet.ir.core import Arg, Block, Function, Op, Value, values_in
from tilelet.ir.spec import Trait
from tilelet.ir.types import TileType
from tilelet.ir.views import ForView, yielded_values
from tilelet.ops.transfers import fit_rank

MAX_DEPTH = 100  # longest chain of ops in one expression
PIECE = 256  # elements of a long row that are processed at a time


def is_tile(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


def tile_type(arg: Arg) -> TileType:
    assert isinstance(arg, Value)
    assert isinstance(arg.type, TileType)
    return arg.type


def count(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def accumulator(dtype: DType) -> DType:
    """Return the accumulation type of products of a type."""
    return INT32 if dtype in (INT8, UINT8) else FP32


@dataclass(frozen=True)
class Forms:
    """Result of `find_forms`.

    destinations  slot of the carried tile that a value is yielded to
    """

    steps: dict[Op, PlanStep]
    slots: list[Slot]
    destinations: dict[Value, int]


def find_forms(
    kernel: Function, uses: Uses, regions: TileRegions, nests: Sequence[RowNest]
) -> Forms:
    """Plan the memory of every op."""
    walk = _Walk(uses, regions, nests)
    walk.block(kernel.body)
    return Forms(walk.steps, walk.slots, walk.destinations)


@dataclass
class _Draft:
    """A step under construction."""

    copies: list[Copy] = field(default_factory=list[Copy])
    stored: list[Copy] = field(default_factory=list[Copy])
    slots: list[int] = field(default_factory=list[int])
    touched: set[int] = field(default_factory=set[int])
    operands: tuple[Stored, ...] = ()
    result: Form | None = None
    moves: list[tuple[Move, ...]] = field(default_factory=list[tuple[Move, ...]])
    moved: list[frozenset[int]] = field(default_factory=list[frozenset[int]])

    def step(self) -> PlanStep:
        return PlanStep(
            tuple(self.copies),
            tuple(self.stored),
            tuple(self.slots),
            frozenset(self.touched),
            self.operands,
            self.result,
            tuple(self.moves),
            tuple(self.moved),
        )


class _Walk:
    """The walk; `values` maps every live tile to its form."""

    def __init__(self, uses: Uses, regions: TileRegions, nests: Sequence[RowNest]) -> None:
        self.uses = uses
        self.regions = regions
        self.one_row = {v for nest in nests for v in nest.one_row}
        self.crossing = {v for nest in nests for v in nest.crossing}
        self.remaining = Counter(uses.count)
        self.values: dict[Value, Form] = {}
        self.slots: list[Slot] = []
        self.shared: set[int] = set()  # slots with other views: must not be overwritten
        self.carried: set[Value] = set()
        self.destinations: dict[Value, int] = {}
        self.steps: dict[Op, PlanStep] = {}
        self.draft = _Draft()

    def block(self, block: Block) -> None:
        for op in block.ops[:-1]:
            self.op(op)

    def inner(self, block: Block) -> None:
        """Plan a block inside an op, then continue with the op's draft."""
        outer = self.draft
        self.block(block)
        self.draft = outer

    def op(self, op: Op) -> None:
        self.draft = _Draft()
        if op in self.uses.writes:
            self._copy_loads(op)
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
        elif op.name in ELEMENTWISE:
            _elementwise(self, op)
        elif op.spec.reference or op.name == "dump":
            _host(self, op)
        for v in op.operands:
            self.remaining[v] -= 1
        self.steps[op] = self.draft.step()

    def _copy_loads(self, op: Op) -> None:
        """Copy loads that are needed after this op overwrites memory: a load is a snapshot."""
        own = Counter(op.operands if not op.blocks else ())
        for value, form in list(self.values.items()):
            if self.remaining[value] > own[value] and any(
                f.window is not None for f in leaves(form)
            ):
                slot = self.slot_of(value)
                self.values[value] = self.write(value, form, slot)
                self.draft.copies.append((value, slot))

    # --- memory -----------------------------------------------------------------------------------

    def new_slot(self, hint: str, dtype: DType, shape: Sequence[int]) -> int:
        self.slots.append(Slot(hint, dtype, count(shape)))
        return len(self.slots) - 1

    def slot_of(self, value: Value) -> int:
        """Return a new slot for a tile, or for one row of it."""
        shape = tile_type(value).shape
        return self.new_slot(
            value.name, tile_type(value).dtype, shape[1:] if value in self.one_row else shape
        )

    def take_slot(self, hint: str, dtype: DType, shape: Sequence[int]) -> int:
        """Return a new slot for the op's own use."""
        slot = self.new_slot(hint, dtype, shape)
        self.draft.slots.append(slot)
        return slot

    def read(self, *forms: Form) -> None:
        self.draft.touched.update(
            f.slot for form in forms for f in leaves(form) if f.slot is not None
        )

    def write(self, value: Value, form: Form, slot: int) -> Stored:
        self.read(form)
        self.draft.touched.add(slot)
        place = one_row if value in self.one_row else dense_form
        return place(value, tile_type(value).shape, slot)

    def is_full(self, arg: Arg) -> bool:
        assert isinstance(arg, Value)
        return self.regions.of[arg] == tile_type(arg).shape

    def tile(self, arg: Arg) -> Form:
        assert isinstance(arg, Value)
        return self.values[arg]

    def store(self, arg: Arg) -> Stored:
        """Place the tile of a value in scratch memory: dense, with zeros outside its region."""
        assert isinstance(arg, Value)
        form = self.values[arg]
        is_padded = isinstance(form, Stored) and (form.is_zeroed or self.is_full(arg))
        if isinstance(form, Stored) and form.slot is not None and form.is_dense and is_padded:
            return form
        slot = self.slot_of(arg)
        self.draft.stored.append((arg, slot))
        stored = self.values[arg] = self.write(arg, form, slot)
        return stored

    def in_memory(self, arg: Arg) -> Stored:
        """Return the tile of a value in memory, strided or not; evaluate it if it is inline."""
        form = self.tile(arg)
        return form if isinstance(form, Stored) else self.store(arg)

    def share(self, form: Form) -> None:
        if isinstance(form, Stored) and form.slot is not None:
            self.shared.add(form.slot)

    def bind(self, value: Value, form: Form) -> None:
        """Bind an op's result. A computation is left to its single user in the same block, or to
        the first user if that can evaluate it for all.
        """
        if not self.uses.count[value]:
            return
        if isinstance(form, Inline):
            waits = self.uses.is_single(value) or self._is_reduced_first(value)
            if not waits or value in self.crossing or form.depth >= MAX_DEPTH:
                form = self.write(value, form, self.slot_of(value))
        self.values[value] = self.draft.result = form

    def _is_reduced_first(self, value: Value) -> bool:
        """Whether the first use is a row reduction, which is fastest while the row is being
        computed.
        """
        use = first_use(self.uses.home[value], value)
        return (
            use is not None
            and use.spec.reduces == -1
            and Trait.FOLD in use.spec.traits
            and use.args["x"] is value
            and tile_type(value).dtype is FP32
        )

    def reused_slot(self, arg: Arg, result: Value) -> int | None:
        """Return the slot of an operand that is dead after this op, for `result` to reuse. A
        loop-carried slot may be reused only by the value that the loop carries on in it.
        """
        if not isinstance(arg, Value) or not self.uses.is_single(arg):
            return None
        form = self.tile(arg)
        if not isinstance(form, Stored) or form.slot is None or form.slot in self.shared:
            return None
        if not form.is_dense or not form.is_zeroed:
            return None
        if arg in self.carried and self.destinations.get(result) != form.slot:
            return None
        return form.slot

    def replace(self, arg: Arg, result: Value, hint: str = "") -> int:
        """Take memory that holds the tile `arg` and may be overwritten with `result`."""
        assert isinstance(arg, Value)
        slot = self.reused_slot(arg, result)
        if slot is None:
            t = tile_type(arg)
            slot = self.take_slot(hint or result.name, t.dtype, t.shape)
            self.write(arg, self.tile(arg), slot)
        else:
            self.draft.slots.append(slot)
        return slot


def inline(value: Value, operands: Sequence[Form], *, has_constants: bool = False) -> Inline:
    depths = [f.depth for f in operands if isinstance(f, Inline)]
    depth = 1 + max([*depths, int(has_constants)], default=0)
    return Inline(value, tuple(operands), depth)


# --- ops ------------------------------------------------------------------------------------------

Rule = Callable[[_Walk, Op], None]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


def _elementwise(walk: _Walk, op: Op) -> None:
    t = tile_type(op.result)
    params = ELEMENTWISE[op.name](op.name)
    tiles = [op.args[p] for p in params if is_tile(op.args[p])]
    work = t.dtype
    if op.name in ("cmp", "cmps"):
        kinds = [tile_type(a).dtype for a in tiles]
        work = kinds[0] if len(kinds) == 1 else dtypes.promote(*kinds)
    forms: list[Form] = []
    for p in params:
        if not is_tile(op.args[p]):
            continue
        # Compute a broadcast operand once, not once per position.
        is_stretched = tile_type(op.args[p]).shape != t.shape
        form = walk.in_memory(op.args[p]) if is_stretched else walk.tile(op.args[p])
        forms.append(form if p == "mask" else _convert(op.args[p], form, work))
    walk.bind(op.result, inline(op.result, forms, has_constants=len(tiles) < len(params)))


def _convert(arg: Arg, form: Form, to: DType) -> Form:
    assert isinstance(arg, Value)
    dtype = tile_type(arg).dtype
    if dtype is to or element(dtype).memory == element(to).memory:
        return form
    return inline(arg, [form])


@_rule("cast")
def _cast(walk: _Walk, op: Op) -> None:
    walk.bind(op.result, inline(op.result, [walk.tile(op.args["x"])]))


@_rule("full", "arange", "expands")
def _constant(walk: _Walk, op: Op) -> None:
    walk.bind(op.result, inline(op.result, []))


def _elementwise_of(walk: _Walk, op: Op, params: Sequence[str]) -> None:
    walk.bind(op.result, inline(op.result, [walk.in_memory(op.args[p]) for p in params]))


@_rule("col_expand")
def _col_expand(walk: _Walk, op: Op) -> None:
    _elementwise_of(walk, op, ("col_vec",))


@_rule("row_expand")
def _row_expand(walk: _Walk, op: Op) -> None:
    _elementwise_of(walk, op, ("target" if op.args["row_vec"] is None else "row_vec",))


@_rule("expand_clone")
def _expand_clone(walk: _Walk, op: Op) -> None:
    _elementwise_of(walk, op, ("src",))


@_rule("set_validshape")
def _set_validshape(walk: _Walk, op: Op) -> None:
    x = op.args["x"]
    form = walk.tile(x) if walk.is_full(x) else walk.store(x)
    walk.bind(op.result, inline(op.result, [form]))


@_rule("move")
def _move(walk: _Walk, op: Op) -> None:
    form = walk.tile(op.args["tile"])
    walk.share(form)
    walk.bind(op.result, form)


# --- reductions -----------------------------------------------------------------------------------

_ROW = ("row_sum", "row_prod", "row_max", "row_min", "row_argmax", "row_argmin")
_COL = ("col_sum", "col_prod", "col_max", "col_min")


@_rule(*_ROW)
def _along_rows(walk: _Walk, op: Op) -> None:
    x, t = op.args["x"], tile_type(op.result)
    assert isinstance(x, Value)
    form, of = walk.tile(x), tile_type(x)
    slot = walk.take_slot(op.result.name, t.dtype, t.shape)
    e = element(of.dtype)
    is_plain = (
        isinstance(form, Stored)
        and not e.is_narrow_float
        and (of.shape[-1] == 1 or form.strides[-1] == 1)
    )
    walk.read(form)
    if isinstance(form, Inline) and walk.remaining[x] != 1 and of.dtype is FP32:
        # It is used again: keep the whole tile.
        kept = walk.slot_of(x)
        walk.draft.stored.append((x, kept))
        walk.values[x] = walk.write(x, form, kept)
    elif not is_plain:
        is_folded = e.is_float and op.name in ("row_sum", "row_prod") and of.shape[-1] > PIECE
        row = (PIECE if is_folded else of.shape[-1],)
        walk.take_slot("row", FP32 if e.is_float else of.dtype, row)
    walk.bind(op.result, dense_form(op.result, t.shape, slot))


@_rule(*_COL)
def _along_columns(walk: _Walk, op: Op) -> None:
    x, t = op.args["x"], tile_type(op.result)
    of = tile_type(x)
    if op.name == "col_sum" and op.args["tmp_tile"] and of.dtype is FP16:
        _host(walk, op)
        return
    slot = walk.take_slot(op.result.name, t.dtype, t.shape)
    if element(of.dtype).is_narrow_float:
        walk.take_slot("sums", FP32, (of.shape[-1],))
    walk.read(walk.tile(x))
    walk.bind(op.result, dense_form(op.result, t.shape, slot))


# --- loads, stores, views -------------------------------------------------------------------------


def _sizes(arg: Arg) -> tuple[int, ...]:
    numbers = [constant_of(a) for a in (arg if isinstance(arg, tuple) else (arg,))]
    return tuple(n for n in numbers if isinstance(n, int))


def _load_window(walk: _Walk, op: Op, tensor: Arg, sizes: tuple[int, ...]) -> Stored:
    """Return a window of global memory; copy it first if its last axis has no unit stride."""
    assert isinstance(tensor, Value)
    if sizes[-1] == 1:
        return Stored(op.result, sizes, (None,) * len(sizes), None, tensor)
    dtype = tensor.type.dtype  # type: ignore[union-attr]
    slot = walk.take_slot(f"{op.result.name}_copy", dtype, sizes)
    strides = (*(None,) * (len(sizes) - 1), 1)
    return Stored(op.result, sizes, strides, slot, tensor)


@_rule("slice")
def _slice(walk: _Walk, op: Op) -> None:
    x, sizes = op.args["x"], _sizes(op.args["shape"])
    if is_tile(x):
        source = walk.in_memory(x)
        walk.share(source)
        form = Stored(source.value, sizes, source.strides, source.slot, source.window)
    else:
        form = _load_window(walk, op, x, sizes)
    dropped = {a % len(sizes) for a in _sizes(op.args["drop_dims"])}
    kept = [i for i in range(len(sizes)) if i not in dropped]
    form = Stored(
        form.value,
        tuple(sizes[i] for i in kept),
        tuple(form.strides[i] for i in kept),
        form.slot,
        form.window,
    )
    if op.args["pad_value"] is not None and op not in walk.regions.whole_slices:
        form = _pad(walk, op, form)
    walk.bind(op.result, form)


def _pad(walk: _Walk, op: Op, form: Form) -> Stored:
    t = tile_type(op.result)
    slot = walk.take_slot(op.result.name, t.dtype, t.shape)
    walk.read(form)
    return dense_form(op.result, t.shape, slot)


def _swap(form: Stored, a: int, b: int) -> Stored:
    shape, strides = list(form.shape), list(form.strides)
    shape[a], shape[b] = shape[b], shape[a]
    strides[a], strides[b] = strides[b], strides[a]
    return Stored(form.value, tuple(shape), tuple(strides), form.slot, form.window, form.is_zeroed)


@_rule("load")
def _load(walk: _Walk, op: Op) -> None:
    form = _load_window(walk, op, op.args["tensor"], _sizes(op.args["shapes"]))
    walk.bind(op.result, _swap(form, -2, -1) if op.args["transpose"] else form)


@_rule("transpose", "transpose_view")
def _transpose(walk: _Walk, op: Op) -> None:
    if not is_tile(op.args["x"]):
        return
    x = walk.in_memory(op.args["x"])
    walk.share(x)
    a, b = op.args.get("axis1", -2), op.args.get("axis2", -1)
    assert isinstance(a, int)
    assert isinstance(b, int)
    walk.bind(op.result, _swap(x, a, b))


@_rule("reshape", "reinterpret_view")
def _reshape(walk: _Walk, op: Op) -> None:
    if not is_tile(op.args["x"]):
        return
    x = walk.store(op.args["x"])
    walk.share(x)
    assert x.slot is not None
    walk.bind(op.result, dense_form(x.value, tile_type(op.result).shape, x.slot))


@_rule("fillpad", "fillpad_expand")
def _fillpad(walk: _Walk, op: Op) -> None:
    x = op.args["x"]
    form = walk.tile(x)
    if walk.is_full(x) and tile_type(x).shape == tile_type(op.result).shape:
        walk.share(form)
    else:
        form = _pad(walk, op, form)
    walk.bind(op.result, form)


@_rule("assemble", "store")
def _assemble(walk: _Walk, op: Op) -> None:
    into, source = ("tensor", "tile") if op.name == "store" else ("target", "source")
    target, part = op.args[into], op.args[source]
    assert isinstance(target, Value)
    rank = len(target.type.shape)  # type: ignore[union-attr]
    shape = tile_type(part).shape
    if len(shape) != rank:
        walk.in_memory(part)
    if not is_tile(target):
        fit = fit_rank(shape, rank)
        assert fit is not None
        walk.take_slot(f"{target.name}_out", target.type.dtype, fit)  # type: ignore[union-attr]
        walk.read(walk.tile(part))
        return
    form = walk.tile(part)
    reused = walk.reused_slot(target, op.result)
    if reused is not None and any(leaf.slot == reused for leaf in leaves(form)):
        # The source lies in the memory that it is inserted into.
        walk.read(form)
        aside = walk.take_slot("tile", tile_type(part).dtype, shape)
        form = dense_form(form.value, shape, aside)
    slot = walk.replace(target, op.result)
    walk.read(form)
    walk.bind(op.result, dense_form(op.result, tile_type(target).shape, slot))


@_rule("concat")
def _concat(walk: _Walk, op: Op) -> None:
    t = tile_type(op.result)
    slot = walk.take_slot(op.result.name, t.dtype, t.shape)
    walk.read(walk.tile(op.args["src0"]), walk.tile(op.args["src1"]))
    walk.bind(op.result, dense_form(op.result, t.shape, slot))


@_rule("read")
def _read(walk: _Walk, op: Op) -> None:
    if is_tile(op.args["x"]):
        walk.read(walk.store(op.args["x"]))


@_rule("write")
def _write(walk: _Walk, op: Op) -> None:
    x = op.args["x"]
    if is_tile(x):
        slot = walk.replace(x, op.result)
        walk.bind(op.result, dense_form(op.result, tile_type(x).shape, slot))


@_rule("create_tile", "create_tensor", "undef")
def _create(walk: _Walk, op: Op) -> None:
    if is_tile(op.result) and (op.name == "undef" or walk.uses.count[op.result]):
        t = tile_type(op.result)
        slot = walk.take_slot(op.result.name, t.dtype, t.shape)
        walk.bind(op.result, dense_form(op.result, t.shape, slot))


def _host(walk: _Walk, op: Op) -> None:
    """Plan an op left to its reference, which takes dense tiles and fills others."""
    for v in values_in(op.args.values()):
        if is_tile(v):
            walk.read(walk.store(v))
    results = [v for v in op.results if is_tile(v)]
    for v in results:
        t = tile_type(v)
        slot = walk.take_slot(v.name, t.dtype, t.shape)
        if walk.uses.count[v]:
            walk.values[v] = dense_form(v, t.shape, slot)
            walk.draft.result = walk.values[v] if len(results) == 1 else None


# --- matrix products ------------------------------------------------------------------------------


def _operand(walk: _Walk, arg: Arg) -> Stored:
    """Return an operand as `tl_matmul` takes it: one of its two axes has stride 1."""
    form = walk.in_memory(arg)
    row, column = form.strides[-2:]
    is_last_single = form.shape[-1] == 1
    if (row == 1 and column != 1 and not is_last_single) or column == 1 or is_last_single:
        return form
    return walk.store(arg)


@_rule("matmul", "gemv", "batch_matmul")
def _matmul(walk: _Walk, op: Op) -> None:
    t = tile_type(op.result)
    walk.draft.operands = (_operand(walk, op.args["lhs"]), _operand(walk, op.args["rhs"]))
    walk.read(*walk.draft.operands)
    total = accumulator(tile_type(op.args["lhs"]).dtype)
    sums = dense_form(op.result, t.shape, walk.take_slot(op.result.name, total, t.shape))
    walk.bind(op.result, sums if total is t.dtype else inline(op.result, [sums]))


@_rule("matmul_acc", "gemv_acc")
def _matmul_acc(walk: _Walk, op: Op) -> None:
    walk.draft.operands = (_operand(walk, op.args["lhs"]), _operand(walk, op.args["rhs"]))
    walk.read(*walk.draft.operands)
    slot = walk.replace(op.args["acc"], op.result)
    walk.bind(op.result, dense_form(op.result, tile_type(op.result).shape, slot))


@_rule("matmul_bias", "gemv_bias")
def _matmul_bias(walk: _Walk, op: Op) -> None:
    t = tile_type(op.result)
    bias = walk.in_memory(op.args["bias"])
    walk.draft.operands = (_operand(walk, op.args["lhs"]), _operand(walk, op.args["rhs"]))
    walk.read(bias, *walk.draft.operands)
    slot = walk.take_slot(op.result.name, t.dtype, t.shape)
    walk.bind(op.result, dense_form(op.result, t.shape, slot))


# --- control flow ---------------------------------------------------------------------------------


@dataclass
class _Join:
    """A tile that a loop carries or a branch joins."""

    at: int
    value: Value
    slot: int


def _joins(
    walk: _Walk, op: Op, values: Sequence[Value], first: Sequence[Arg] | None
) -> list[_Join]:
    joins: list[_Join] = []
    for at, value in enumerate(values):
        if is_tile(value):
            t = tile_type(value)
            if first is None:
                slot = walk.take_slot(value.name, t.dtype, t.shape)
            else:
                slot = walk.replace(first[at], op.results[at], value.name)
            joins.append(_Join(at, value, slot))
    return joins


def _bind_joins(walk: _Walk, joins: Sequence[_Join], values: Sequence[Value]) -> None:
    for j in joins:
        walk.values[values[j.at]] = dense_form(values[j.at], tile_type(values[j.at]).shape, j.slot)


def _plan_destinations(
    walk: _Walk, body: Block, joins: Sequence[_Join], params: Sequence[Value]
) -> None:
    last = yielded_values(body)
    for j in joins:
        walk.carried.add(params[j.at])
        arg = last[j.at]
        if isinstance(arg, Value) and walk.uses.count[arg] == 1 and walk.uses.home[arg] is body:
            walk.destinations[arg] = j.slot


def _finish_block(walk: _Walk, joins: Sequence[_Join], block: Block) -> None:
    """Order the moves into all carried or joined tiles so that none is overwritten before it is
    read.
    """
    last = yielded_values(block)
    walk.draft, outer = _Draft(), walk.draft
    moves: list[Move] = []
    pending = [(j, walk.tile(last[j.at])) for j in joins]
    pending = [(j, form) for j, form in pending if not _is_in_place(j, form)]

    def move(j: _Join, form: Form, slot: int) -> Stored:
        moves.append((j.at, slot))
        return walk.write(j.value, form, slot)

    while pending:
        chosen = next((p for p in pending if _is_free(p, pending)), None)
        if chosen is None:
            # They are exchanged: copy one of them first.
            j, form = pending[0]
            copy = walk.new_slot("copy", tile_type(j.value).dtype, tile_type(j.value).shape)
            pending[0] = (j, move(j, form, copy))
            continue
        j, form = chosen
        if _mixes_positions(j, form):
            aside = walk.new_slot("tile", tile_type(j.value).dtype, tile_type(j.value).shape)
            form = move(j, form, aside)
        move(j, form, j.slot)
        pending.remove(chosen)
    outer.moves.append(tuple(moves))
    outer.moved.append(frozenset(walk.draft.touched))
    walk.draft = outer


def _is_in_place(j: _Join, form: Form) -> bool:
    return isinstance(form, Stored) and form.slot == j.slot and form.is_dense


def _is_free(pair: tuple[_Join, Form], pending: Sequence[tuple[_Join, Form]]) -> bool:
    """Whether no other pending value still reads the memory that this one replaces."""
    return not any(
        leaf.slot == pair[0].slot
        for other in pending
        if other is not pair
        for leaf in leaves(other[1])
    )


def _mixes_positions(j: _Join, form: Form) -> bool:
    """Whether an element depends on other positions of the memory it replaces, so that order
    matters.
    """
    shape = tile_type(j.value).shape
    return any(
        leaf.slot == j.slot and not (leaf.is_dense and leaf.shape == shape) for leaf in leaves(form)
    )


def _loop(
    walk: _Walk, op: Op, init: Sequence[Arg], names: Sequence[Sequence[Value]], body: Block
) -> None:
    """Plan a loop; `names`: the block parameters of its carried values."""
    joins = _joins(walk, op, names[-1], init)
    _plan_destinations(walk, body, joins, names[-1])
    before = dict(walk.values)
    for params, block in zip(names, op.blocks):
        _bind_joins(walk, joins, params)
        walk.inner(block)
    _finish_block(walk, joins, body)
    walk.values = before
    _bind_joins(walk, joins, op.results)


@_rule("for")
def _for(walk: _Walk, op: Op) -> None:
    view = ForView(op)
    _loop(walk, op, view.init, [view.carried], view.body)


@_rule("while")
def _while(walk: _Walk, op: Op) -> None:
    cond, body = op.blocks
    init = op.args["init"]
    assert isinstance(init, tuple)
    _loop(walk, op, init, [cond.params, body.params], body)


@_rule("if")
def _if(walk: _Walk, op: Op) -> None:
    joins = _joins(walk, op, op.results, None)
    before = dict(walk.values)
    for block in op.blocks:
        walk.inner(block)
        _finish_block(walk, joins, block)
        walk.values = dict(before)
    _bind_joins(walk, joins, op.results)
