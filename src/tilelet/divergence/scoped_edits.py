"""Edits that use other values of the program: operands, indices, bounds and carried variables.

`ScopedEdits.of(op)` yields every edit of one op, with those of edits.py. An index is an offset, an
extent, a bound of a loop or an operand of scalar arithmetic; it is replaced by the scalars that are
visible at the op, and by sums and multiples of these.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property

from tilelet.analysis.aliases import is_tensor
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import Loc, UserError
from tilelet.divergence import edits
from tilelet.divergence.edits import Edit, is_float_tile, is_number_tile, rebuild_op, replace_op
from tilelet.divergence.source_text import assignment_of, statement_line
from tilelet.ir.core import Arg, Block, Function, Op, Program, Value, walk
from tilelet.ir.rebuild import make_op, substitute
from tilelet.ir.spec import REGISTRY, Cost, Trait, bind
from tilelet.ir.types import BOOL, ScalarType, TensorType, TileType, Type
from tilelet.ir.views import ForView

_MAX_SCALARS = 12
_MAX_TILES = 24
_MAX_FLOAT_SCALARS = 4
_MAX_EXTENTS = 6
_MAX_INTEGERS = 16
_MAX_LINEAR = 6
_MAX_DISTANCE = 10
"""How many ops before and after a factor it may belong to."""
_MAX_TERMS = 6
_LIKELY_NUMBERS = 3
"""How many of the golden's numbers are tried as factors everywhere."""

_INDEX_PARAMS = frozenset(
    (
        *("offset", "offsets", "indices", "rows", "cols", "valid_shape", "valid_shapes"),
        *("start", "stop", "diagonal"),
    )
)
_EXTENT_PARAMS = frozenset({"valid_shape", "valid_shapes", "rows", "cols"})

_OTHER_SCALAR_OPS = {
    "add": ("sub", "mul"),
    "sub": ("add",),
    "mul": ("add", "floordiv"),
    "floordiv": ("mod", "mul"),
    "mod": ("floordiv",),
    "min": ("max", "add", "sub"),
    "max": ("min", "add", "sub"),
    "eq": ("le", "ge", "ne"),
    "ne": ("eq",),
    "lt": ("le", "gt", "ge"),
    "le": ("lt", "gt", "ge"),
    "gt": ("ge", "lt", "le"),
    "ge": ("gt", "lt", "le"),
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ASYMMETRIC = frozenset({"sub", "floordiv", "mod", "lt", "le", "gt", "ge"})

_COMBINE = ("mul", "add", "sub", "div", "maximum", "minimum")
_COMBINE_ROW = ("row_expand_mul", "row_expand_div", "row_expand_sub", "row_expand_add")
_COMBINE_COLUMN = ("col_expand_mul", "col_expand_div", "col_expand_sub", "col_expand_add")

Path = tuple[str, int | None]
"""A place among an op's arguments: the parameter, and the position in a tuple."""


@dataclass(frozen=True)
class _New:
    """A replacement for an operand: its text, the ops that compute it, its value and its cost."""

    text: str
    arg: Arg
    ops: tuple[Op, ...] = ()
    cost: int = 1


class ScopedEdits:
    """Yields the edits of a program's ops."""

    def __init__(self, program: Program, numbers: Sequence[float]) -> None:
        """`numbers` are those that the golden uses."""
        self._visible: dict[str, Visible] = {}
        self._function = {op: f for f in program.functions.values() for op in walk(f.body)}
        self._numbers = numbers
        self._near: dict[Op, Sequence[Op]] = {}
        self._statement: dict[Op, list[Op]] = {}
        for function in program.functions.values():
            by_line: dict[tuple[str, int], list[Op]] = {}
            for op in walk(function.body):
                if not op.spec.terminator:
                    place = op.loc.file, statement_line(op.loc)
                    self._statement[op] = by_line.setdefault(place, [])
                    self._statement[op].append(op)
            ops = [op for op in walk(function.body) if len(op.results) == 1]
            for i, op in enumerate(ops):
                self._near[op] = [
                    *ops[max(0, i - _MAX_DISTANCE) : i],
                    *ops[i + 1 : i + 1 + _MAX_DISTANCE],
                ]
        self.loops = {op.blocks[0].terminator: op for op in self._function if op.name == "for"}
        tensors = [p for p in program.main.params if isinstance(p.type, TensorType)]
        used = {v.name for op in self._function if op.name != "call" for v in op.operands}
        self._unused = {p.name for p in tensors} - used
        shapes = [p.type.shape for p in tensors if isinstance(p.type, TensorType)]
        self._extents = {n for shape in shapes for n in shape if isinstance(n, int) and n > 1}

    @cached_property
    def carrying_lines(self) -> set[tuple[str, int]]:
        """The lines of assignments to carried variables: edits of terminators change them."""
        found = (
            assignment_of(loop, i)
            for loop in self.loops.values()
            for i in range(len(ForView(loop).carried))
        )
        return {(loc.file, loc.line) for loc in found if loc is not None}

    def visible_in(self, function: Function) -> Visible:
        if function.name not in self._visible:
            self._visible[function.name] = Visible(function.body, function.params)
        return self._visible[function.name]

    def of(self, op: Op) -> Iterator[Edit]:
        """Yield all edits of an op, in no particular order; `Edit.cost` ranks them."""
        visible = self.visible_in(self._function[op])
        yield from self._indices(op, visible)
        yield from self._operands(op, visible)
        yield from self._renamed(op, visible)
        if op.spec.structural:
            return
        yield from self._scalar_ops(op, visible)
        if Trait.SCALAR in op.spec.traits:
            return
        carried = visible.carried.get(op, ())
        yield from edits.swap_operands(op)
        yield from edits.cast_modes(op)
        yield from edits.pads(op)
        yield from _comparisons(op)
        yield from edits.other_ops(op)
        yield from edits.other_limits(op, self.likely)
        yield from edits.flags(op)
        yield from edits.offsets(op)
        yield from (replace(e, cost=2) for e in edits.drop_op(op))
        yield from edits.add_accumulation(op, carried)
        yield from edits.remove_accumulation(op)
        yield from edits.constants(op, self.factors(op), self.factors(op))
        yield from _float_scalars(op, visible)
        yield from self._results(op, visible)
        yield from self._other_combinations(op, visible)
        yield from self._exchanged(op, visible)
        yield from self._moved_factor(op)

    # Numbers

    @cached_property
    def _reciprocals(self) -> list[float]:
        return list(dict.fromkeys(f for n in self._numbers for f in (n, 1 / n)))

    @property
    def likely(self) -> list[float]:
        """The golden's first numbers and their reciprocals."""
        return self._reciprocals[: 2 * _LIKELY_NUMBERS]

    def factors(self, op: Op) -> list[float]:
        """Return likely factors: from the golden's numbers, and extents of tiles and parameters."""
        extents = {2, *self._extents}
        for value in (*op.operands, *op.results):
            if isinstance(value.type, TileType):
                extents.update(n for n in value.type.shape if n > 1)
        found = [f for n in sorted(extents) for f in (n**-0.5, 1.0 / n)]
        return list(dict.fromkeys([-1.0, *self._reciprocals, *found]))

    @cached_property
    def likely_integers(self) -> list[int]:
        """The extents of parameters and tiles, and the integers of scalar arithmetic."""
        return sorted({n for n in self._extents.union(*self._integers.values()) if n > 1})

    # Indices

    def _indices(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Change one offset, extent, bound, or operand of scalar arithmetic."""
        scalars = visible.scalars(op)
        for path, old in _scalar_slots(op):
            others = self._other_indices(op, path, old, scalars, visible.made_by)
            for new in {n.text: n for n in others if n.text != show(old)}.values():
                made = _with(op, path, new.arg)
                if made is not None:
                    where = "" if path[1] is None else f" on axis {path[1]} of `{path[0]}`"
                    text = f"`{new.text}` instead of `{show(old)}`{where}"
                    kind = _kind_of_slot(op, path)
                    ops = (*new.ops, made)
                    yield Edit(op, kind, text, ops, None, new.cost, show(old), new.text)
        yield from _swapped_axes(op)

    def _other_indices(
        self, op: Op, path: Path, old: Arg, scalars: Sequence[Value], made: Container[Value]
    ) -> Iterator[_New]:
        extents = _extents_of(op, path) or self.small_constants(op)
        if isinstance(old, int):
            if Trait.SCALAR in op.spec.traits:
                for n in dict.fromkeys([*self._constants(op), *self.likely_integers]):
                    if n != old:
                        yield _New(str(n), n, cost=2)
        else:
            yield _New("0", 0, cost=2)
        yield from (_New(v.name, v) for v in scalars if v is not old)
        yield from self._reversed(scalars, op.loc)
        yield from _shifts(old, [*extents, 1], op.loc)
        if Trait.SCALAR in op.spec.traits:
            # Sums with multiples are sums with the result: `_scalar_sums`.
            own = [old] if isinstance(old, Value) else []
            yield from (new for new in _more(0, own, extents, op.loc) if new.ops)
            yield from _more(old, scalars, (), op.loc)
            if op.name == "scalar.mul" and isinstance(old, Value):
                sums = _more(old, [v for v in scalars if v is not old], extents, op.loc)
                yield from (new for new in sums if len(new.ops) == 2)
        else:
            yield from _more(old, scalars, extents, op.loc)
        if path[0] in _EXTENT_PARAMS:
            yield from _remainders(op, path, scalars, made)

    def _reversed(self, scalars: Sequence[Value], loc: Loc) -> Iterator[_New]:
        """Yield the indices of loops with constant bounds from the end."""
        for value in scalars:
            last = self._last.get(value.name)
            made = scalar_op("sub", last, value, loc) if last is not None else None
            if made is not None:
                yield _New(f"{last} - {value.name}", made.result, (made,), cost=2)

    @cached_property
    def _last(self) -> dict[str, int]:
        """First plus last index, by the name of the loop's variable."""
        found: dict[str, int] = {}
        for op in self.loops.values():
            start, stop, step = ForView(op).bounds
            if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
                for last in range(start, stop, step)[-1:]:
                    found[ForView(op).index.name] = start + last
        return found

    def _constants(self, op: Op) -> list[int]:
        """Return the integers that the function of an op uses, as extents or in arithmetic."""
        own = self._integers[self._function[op].name]
        return sorted(n for n in {*self._extents, *own} if n >= 0)[:_MAX_INTEGERS]

    @cached_property
    def _integers(self) -> dict[str, set[int]]:
        """The extents of tiles and the integers of scalar arithmetic, by function."""
        found: dict[str, set[int]] = {}
        for op, function in self._function.items():
            mine = found.setdefault(function.name, set())
            if Trait.SCALAR in op.spec.traits:
                mine.update(a for a in op.args.values() if type(a) is int)
            for value in op.results:
                if isinstance(value.type, TileType):
                    mine.update(value.type.shape)
        return found

    def small_constants(self, op: Op) -> list[int]:
        """Return the factors and divisors to try for an index."""
        return [n for n in self._constants(op) if n > 1][:_MAX_EXTENTS]

    def _scalar_ops(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Change the op of scalar arithmetic, swap its operands, or leave it out."""
        if op.name == "read" and is_index(op.result):
            yield from self._scalar_sums(op, visible)
        if Trait.SCALAR not in op.spec.traits or not op.name.startswith("scalar."):
            return
        name = op.name.removeprefix("scalar.")
        lhs, rhs = op.args.get("lhs"), op.args.get("rhs")
        if lhs is None or rhs is None:
            return
        for other in _OTHER_SCALAR_OPS.get(name, ()):
            made = replace_op(op, REGISTRY[f"scalar.{other}"], {"lhs": lhs, "rhs": rhs})
            if made is not None:
                yield Edit(op, "index", f"`{other}` instead of `{name}`", (made,))
        if name in _ASYMMETRIC:
            made = replace_op(op, op.spec, {"lhs": rhs, "rhs": lhs})
            if made is not None:
                yield Edit(op, "index", f"swap the operands of `{name}`", (made,))
        for kept in (lhs, rhs):
            if isinstance(kept, Value) and kept.type == op.result.type:
                yield Edit(op, "index", f"only `{kept.name}`", alias=kept, cost=2)
        if name == "floordiv":
            yield from _rounded_up(op, lhs, rhs)
        if name in ("floordiv", "mod"):
            yield from self._other_parts(op, name, lhs)
        yield from self._scalar_sums(op, visible)
        if self._statement[op][-1] is op:
            yield from self._linear(op, visible)

    def _linear(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Compute an index as a sum of multiples of two variables."""
        factors = [1, *self.small_constants(op)]
        terms = {
            (v, n): _multiple(v, n, op.loc)
            for v in visible.scalars(op)[:_MAX_LINEAR]
            for n in factors
        }
        for ((v, n), (first, before)), ((w, m), (second, after)) in itertools.combinations(
            terms.items(), 2
        ):
            args: dict[str, Arg] = {"lhs": first, "rhs": second}
            made = replace_op(op, REGISTRY["scalar.add"], args) if v is not w and n != m else None
            if made is not None:
                text = " + ".join(
                    f"{x.name} * {by}" if by > 1 else x.name for x, by in ((v, n), (w, m))
                )
                yield Edit(op, "index", f"`{text}`", (*before, *after, made), cost=4)

    def _other_parts(self, op: Op, name: str, lhs: Arg) -> Iterator[Edit]:
        """Take the remainder for the quotient, or the quotient for the remainder, by a constant."""
        other, sign = {"floordiv": ("mod", "%"), "mod": ("floordiv", "//")}[name]
        for by in self.small_constants(op):
            made = replace_op(op, REGISTRY[f"scalar.{other}"], {"lhs": lhs, "rhs": by})
            if made is not None:
                yield Edit(op, "index", f"`{show(lhs)} {sign} {by}`", (made,), cost=2)

    def _scalar_sums(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Add a visible scalar, a multiple of one, or a constant to the result."""
        middle = _like(op.result)
        first = replace(op, results=(middle,))
        news = [
            *_shifts(middle, [1], op.loc),
            *_more(middle, visible.scalars(op), self.small_constants(op), op.loc),
        ]
        for new in news:
            if new.ops and new.text.startswith(f"{middle.name} ") and new.arg == new.ops[-1].result:
                last = new.ops[-1]
                if is_index(last.result):
                    ops = (first, *new.ops[:-1], replace(last, results=op.results))
                    shown = "({})" + new.text.removeprefix(middle.name)
                    yield Edit(op, "index", f"`{new.text}`", ops, None, 2, "", shown)

    # Variables of a statement

    def _renamed(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Replace a variable wherever its statement uses it, or swap it with another one.

        `op` is the first op of the statement that uses one of them.
        """
        ops = self._statement.get(op, [])
        before = set(visible.before.get(op, ()))
        uses = Counter(v for one in ops for v in one.operands if v in before)
        earlier = {
            v for one in itertools.takewhile(lambda x: x is not op, ops) for v in one.operands
        }
        mine = [v for v in dict.fromkeys(op.operands) if v in before and v not in earlier]
        for old in mine:
            if uses[old] > 1:
                for new in self._alternatives(op, old, visible):
                    text = f"`{new.name}` instead of `{old.name}` everywhere in it"
                    yield from _substituted(ops, {old: new}, "wrong operand", text)
            for other in uses:
                is_pair = other not in mine or mine.index(other) > mine.index(old)
                if other not in earlier and is_pair and _is_alike(old, other):
                    text = f"swap `{old.name}` and `{other.name}`"
                    swapped = {old: other, other: old}
                    yield from _substituted(ops, swapped, "swapped operands", text)

    def _alternatives(self, op: Op, old: Value, visible: Visible) -> list[Value]:
        """Return the values that may stand for a variable."""
        if is_index(old):
            return [v for v in visible.scalars(op) if v is not old]
        return [v for v in visible.like(op, old) if visible.is_nameable(op, v)]

    # Operands

    def _operands(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Replace a tile or tensor by another one, or apply an op to it first."""
        for path, old in _value_slots(op):
            for new in visible.like(op, old):
                made = _with(op, path, new)
                if made is None:
                    continue
                same = new.type == old.type
                cost = 1 if same and visible.is_nameable(op, new) else 2
                text = f"`{new.name}` instead of `{old.name}`"
                kind = "carried value" if op.spec.terminator else "wrong operand"
                place = self._assigned(op, path, old) if op.spec.terminator else None
                yield Edit(op, kind, text, (made,), None, cost, old.name, new.name, place=place)
            if op.spec.terminator and is_number_tile(old):
                yield from self._accumulated(op, path, old, visible)
            elif is_number_tile(old):
                # What a loop or branch leaves has no op after which to scale it.
                maker = visible.made_by.get(old)
                is_left = maker is None or bool(maker.blocks)
                numbers = self.factors(op) if is_left else self.likely
                for text, before, value in self._transformed(op, old, visible, numbers):
                    made = _with(op, path, value)
                    if made is not None:
                        what = f"`{text}` in place of `{old.name}`"
                        kind, ops, effect = _kind_of_change(before), (*before, made), (old, text)
                        edit = Edit(op, kind, what, ops, None, 3, old.name, text, effect=effect)
                        yield edit if visible.uses[old] == 1 else replace(edit, effect=None)
                others = [*_expressions(op, old, visible)]
                if is_left:
                    others += [*self._limited(op, old), *self._shifted_by_numbers(op, old)]
                for text, before, value in others:
                    made = _with(op, path, value)
                    if made is not None:
                        what = f"`{text}` in place of `{old.name}`"
                        ops = (*before, made)
                        yield Edit(op, "wrong operand", what, ops, None, 4, old.name, text)

    def _accumulated(self, op: Op, path: Path, old: Value, visible: Visible) -> Iterator[Edit]:
        """Add a tile that nothing uses to a value that a loop or branch passes on."""
        for other in visible.before[op]:
            if other is old or other not in visible.unused_in_the_end or other.type != old.type:
                continue
            for text, before, value in _applications("add", (old, other), op.loc):
                made = _with(op, path, value)
                if made is not None:
                    what = f"carry `{text}`: `{other.name}` is not used"
                    ops, place = (*before, made), (other if other in visible.made_by else old).loc
                    yield Edit(op, "accumulation", what, ops, None, 2, place=place)

    def _assigned(self, op: Op, path: Path, old: Value) -> Loc:
        """Return where a value is given to the carried variable that a terminator passes on."""
        loop, number = self.loops.get(op), path[1]
        found = assignment_of(loop, number) if loop is not None and number is not None else None
        return found or old.loc

    def _transformed(
        self, op: Op, old: Value, visible: Visible, numbers: Sequence[float], is_moved: bool = False
    ) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
        """Yield functions of a tile: of one operand, by a number, or with another visible tile.

        A tile that is only moved gets no functions of one operand.
        """
        if not is_moved:
            for spec in edits.unary_specs():
                yield from _applications(spec.name, (old,), op.loc)
            yield from _applications("mul", (old, old), op.loc)
        yield from _normalizations(old, op.loc)
        yield from _corrected(op, old, visible)
        yield from _maskings(op, old, visible)
        is_float = is_float_tile(old)
        for number in numbers if is_float else ():
            yield from _applications("mul", (old, number), op.loc)
        for scalar in visible.float_scalars(op) if is_float else ():
            for name in ("mul", "sub", "add", "div"):
                yield from _applications(name, (old, scalar), op.loc)
        for other in visible.tiles(op):
            if other is not old:
                for name in _combining_ops(old, other):
                    yield from _applications(name, (old, other), op.loc)

    def _limited(self, op: Op, old: Value) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
        """Add 1 to a tile, subtract it, or limit the tile by a number of the golden."""
        is_float = is_float_tile(old)
        for number in (1, -1):
            yield from _applications("add", (old, float(number) if is_float else number), op.loc)
        for number in self._signed if is_float else ():
            for name in ("maximum", "minimum"):
                yield from _applications(name, (old, number), op.loc)

    def _shifted_by_numbers(
        self, op: Op, old: Value
    ) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
        """Add a number of the golden to a tile."""
        for number in self._signed if is_float_tile(old) else ():
            yield from _applications("add", (old, number), op.loc)

    @property
    def _signed(self) -> list[float]:
        return [f for n in self._numbers[:_LIKELY_NUMBERS] for f in (n, -n)]

    # Results

    def _results(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Apply an op to the result."""
        moves = op.spec.is_window_load or Trait.TILE_VIEW in op.spec.traits
        if len(op.results) != 1 or not is_number_tile(op.results[0]):
            return
        numbers = self.likely if moves else self.factors(op)
        middle = _like(op.result)
        first = replace(op, results=(middle,))
        changes = self._transformed(op, middle, visible, numbers, moves)
        ranked = [(text, ops, 3) for text, ops, _ in (*changes, *self._limited(op, middle))]
        ranked += [(text, ops, 4) for text, ops, _ in self._shifted_by_numbers(op, middle)]
        for text, ops, cost in (*ranked, *self._by_window(op, middle, visible)):
            parts = first, *ops[:-1], replace(ops[-1], results=op.results)
            is_once = len(re.findall(rf"\b{re.escape(middle.name)}\b", text)) == 1
            shown = text.replace(f"({middle.name}", "({}", 1) if is_once else ""
            kind, effect = _kind_of_change(ops), (op.result, text)
            yield Edit(op, kind, f"`{text}`", parts, None, cost, "", shown, effect=effect)

    def _other_combinations(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Combine an operand with another value in place of the op."""
        if len(op.results) != 1 or Trait.ELEMENTWISE not in op.spec.traits:
            return
        for _, kept in _value_slots(op):
            if kept.type != op.result.type or not is_number_tile(kept):
                continue
            for text, ops, _ in self._transformed(op, kept, visible, self.likely, is_moved=True):
                made = (*ops[:-1], replace(ops[-1], results=op.results))
                yield Edit(op, "wrong operand", f"`{text}`", made, cost=4)

    def _by_window(
        self, op: Op, old: Value, visible: Visible
    ) -> Iterator[tuple[str, tuple[Op, ...], int]]:
        """Combine a tile with a window of a tensor; yield the text, the ops and the cost."""
        spec = REGISTRY["slice"]
        for tensor, shape, extents, offset in self._windows(op, old, visible):
            try:
                whole = bind(spec, tensor, extents, offset)
                load = make_op(spec, whole, in_scope=True, loc=op.loc)
            except UserError:
                continue
            cost = 3 if tensor.name in self._unused else 5
            window = ", ".join(map(_range, extents, offset, shape))
            for name in _combining_ops(old, load.result):
                for _, ops, _ in _applications(name, (old, load.result), op.loc):
                    text = f"pl.{name}({old.name}, {tensor.name}[{window}])"
                    yield text, (load, *ops), cost

    def _windows(
        self, op: Op, old: Value, visible: Visible
    ) -> Iterator[tuple[Value, Sequence[int], tuple[int, ...], tuple[Arg, ...]]]:
        """Yield windows of visible tensors as large as a tile, one of its rows or its columns.

        They begin where another load or store of the function does, or at 0.
        """
        if not isinstance(old.type, TileType) or len(old.type.shape) != 2:
            return
        rows, columns = old.type.shape
        known: dict[tuple[Arg, ...], None] = {(0, 0): None}
        scalars = visible.scalars(op)
        for other in walk(self._function[op].body):
            found = edits.window_parts(other)
            if found is not None and all(type(v) is int or v in scalars for v in found[1]):
                known[found[1]] = None
        starts = [start for start in known if len(start) == 2]
        for tensor in visible.before[op]:
            dims = tensor.type.shape if isinstance(tensor.type, TensorType) else ()
            shape = [n for n in dims if isinstance(n, int)]
            if len(dims) != 2 or len(shape) != 2:
                continue
            for extents in dict.fromkeys(((rows, columns), (rows, 1), (1, columns))):
                if all(n <= whole for n, whole in zip(extents, shape)):
                    for start in dict.fromkeys(_inside(s, extents, shape) for s in starts):
                        yield tensor, shape, extents, start

    def _exchanged(self, op: Op, visible: Visible) -> Iterator[Edit]:
        """Apply two consecutive ops of a tile in the other order; move a factor behind an op."""
        for path, middle in _value_slots(op):
            before = visible.made_by.get(middle)
            if before is None or middle.type != op.results[0].type or path[1] is not None:
                continue
            for inner, source in _value_slots(before):
                if source.type != middle.type or inner[1] is not None:
                    continue
                early = _with(replace(op, results=(_like(op.result),)), path, source)
                late = None
                if early is not None:
                    late = _with(replace(before, results=op.results), inner, early.result)
                if early is not None and late is not None and op.spec is not before.spec:
                    text = f"`pl.{op.name}` before `pl.{before.name}`"
                    yield Edit(op, "order", text, (early, replace(late, loc=op.loc)), cost=3)

    def _moved_factor(self, op: Op) -> Iterator[Edit]:
        """Multiply the result of another op by the factor of this one."""
        factors = [a for a in op.args.values() if isinstance(a, float) and a not in (0.0, 1.0)]
        if not factors or op.spec.cost not in (Cost.MUL, Cost.MULS):
            return
        near = self._near[op]
        for dropped in edits.drop_op(op):
            for other in near:
                for added in edits.scale_result(other, factors):
                    text = f"multiply `{other.result.name}` by {factors[0]:.6g} instead"
                    yield replace(dropped, kind="order", text=text, cost=3, also=added)


def _inside(
    start: tuple[Arg, ...], extents: Sequence[int], shape: Sequence[int]
) -> tuple[Arg, ...]:
    """Return the start of a window, 0 on axes that it covers."""
    return tuple([0 if n == whole else s for s, n, whole in zip(start, extents, shape)])


def _range(extent: int, start: Arg, whole: int) -> str:
    if extent == whole:
        return ":"
    if isinstance(start, int):
        return f"{start}:{start + extent}"
    return f"{show(start)} : {show(start)} + {extent}"


# Slots


def _substituted(
    ops: Sequence[Op], mapping: Mapping[Value, Value], kind: str, text: str
) -> Iterator[Edit]:
    """Yield the edit that maps values in all ops of a statement."""
    edit: Edit | None = None
    for op in reversed(ops):
        if not mapping.keys().isdisjoint(op.operands):
            args = {name: substitute(arg, mapping) for name, arg in op.args.items()}
            made = replace(op, args=args) if op.spec.structural else rebuild_op(op, **args)
            if made is None:
                return
            edit = Edit(op, kind, text, (made,), cost=2, also=edit)
    if edit is not None:
        yield edit


def _is_alike(old: Value, other: Value) -> bool:
    """Return whether two values of a statement may be swapped."""
    if old is other:
        return False
    return old.type == other.type or (is_index(old) and is_index(other))


def _scalar_slots(op: Op) -> Iterator[tuple[Path, Arg]]:
    """Yield the scalar arguments of an op that are indices, extents or bounds."""
    is_scalar = Trait.SCALAR in op.spec.traits and op.name.startswith("scalar.")
    for name, arg in op.args.items():
        if isinstance(arg, tuple) and (name in _INDEX_PARAMS or op.name == "call"):
            for axis, one in enumerate(arg):
                if is_index(one):
                    yield (name, axis), one
        elif (name in _INDEX_PARAMS or is_scalar) and is_index(arg):
            yield (name, None), arg


def is_index(arg: Arg) -> bool:
    """Return whether an argument is an integer scalar."""
    if isinstance(arg, Value):
        return isinstance(arg.type, ScalarType) and not arg.type.dtype.is_float
    return type(arg) is int


def _kind_of_change(ops: Sequence[Op]) -> str:
    is_scale = ops[-1].name == "mul" and isinstance(ops[-1].args["rhs"], float)
    return "scale" if is_scale else "missing op"


def _kind_of_slot(op: Op, path: Path) -> str:
    if op.name == "for":
        return "loop bounds"
    if path[0] in _EXTENT_PARAMS:
        return "valid region"
    return "offset" if path[0] in ("offset", "offsets") else "index"


def _value_slots(op: Op) -> Iterator[tuple[Path, Value]]:
    """Yield the tiles and tensors among the arguments that the op reads or passes on."""
    for name, arg in op.args.items():
        if name in op.spec.writes:
            continue
        if isinstance(arg, Value) and isinstance(arg.type, TileType | TensorType):
            yield (name, None), arg
        elif isinstance(arg, tuple) and name in ("values", "init", "operands"):
            for i, one in enumerate(arg):
                if isinstance(one, Value) and isinstance(one.type, TileType | TensorType):
                    yield (name, i), one


def _with(op: Op, path: Path, arg: Arg) -> Op | None:
    """Return the op with one argument replaced, or None if its results would differ."""
    name, i = path
    new = arg
    if i is not None:
        old = op.args[name]
        assert isinstance(old, tuple)
        if op.spec.structural and not _has_same_type(old[i], arg):
            return None
        new = (*old[:i], arg, *old[i + 1 :])
    if op.spec.structural:
        return replace(op, args={**op.args, name: new})
    return rebuild_op(op, **{name: new})


def _has_same_type(old: Arg, new: Arg) -> bool:
    """Return whether a carried tile or an argument of a call may be replaced."""
    if not isinstance(old, Value) or not isinstance(new, Value):
        return True
    return isinstance(new.type, ScalarType) or old.type == new.type


def show(arg: Arg) -> str:
    """Return the name of a value, or a constant as text."""
    return arg.name if isinstance(arg, Value) else str(arg)


def _like(value: Value) -> Value:
    return Value(value.name, value.type, value.loc)


def _swapped_axes(op: Op) -> Iterator[Edit]:
    for name, arg in op.args.items():
        if name not in ("offset", "offsets", "indices") or not isinstance(arg, tuple):
            continue
        for i in range(len(arg) - 1):
            a, b = arg[i], arg[i + 1]
            made = rebuild_op(op, **{name: (*arg[:i], b, a, *arg[i + 2 :])}) if a != b else None
            if made is not None:
                text = f"swap `{show(a)}` and `{show(b)}`"
                old, new = f"{show(a)}, {show(b)}", f"{show(b)}, {show(a)}"
                yield Edit(op, "swapped indices", text, (made,), None, 1, old, new)


# Indices


def _extents_of(op: Op, path: Path) -> list[int]:
    """Return the extent of the window on the axis of an offset, or the step of a loop."""
    if op.name == "for":
        step = ForView(op).bounds[2]
        return [step] if isinstance(step, int) and step > 0 else []
    found = edits.window_parts(op)
    if found is None or path[1] is None or path[0] != found[0]:
        return []
    return [found[2][path[1]]]


def scalar_op(name: str, lhs: Arg, rhs: Arg, loc: Loc) -> Op | None:
    """Build scalar arithmetic, or return None if the types do not fit."""
    spec = REGISTRY[f"scalar.{name}"]
    try:
        return make_op(spec, bind(spec, lhs, rhs), loc=loc)
    except UserError:
        return None


def _multiple(value: Value, by: int, loc: Loc) -> tuple[Value, tuple[Op, ...]]:
    """Return a multiple of a scalar and its ops; the scalar itself if it cannot be scaled."""
    made = scalar_op("mul", value, by, loc) if by != 1 else None
    return (value, ()) if made is None else (made.result, (made,))


def _shifts(old: Arg, deltas: Sequence[int], loc: Loc) -> Iterator[_New]:
    if not isinstance(old, Value):
        for n in dict.fromkeys(deltas):
            for new in (old + n, old - n):  # type: ignore[operator]
                if isinstance(new, int) and new >= 0:
                    yield _New(str(new), new, cost=2)
        return
    for n in dict.fromkeys(deltas):
        for name, sign in (("add", "+"), ("sub", "-")):
            made = scalar_op(name, old, n, loc)
            if made is not None:
                yield _New(f"{old.name} {sign} {n}", made.result, (made,), cost=2)


def _more(old: Arg, scalars: Sequence[Value], extents: Sequence[int], loc: Loc) -> Iterator[_New]:
    """Yield multiples of visible scalars, and sums of these with the old index."""
    for factor in dict.fromkeys([1, *extents]):
        for v in scalars:
            scaled = scalar_op("mul", v, factor, loc) if factor != 1 else None
            if factor != 1 and scaled is None:
                continue
            term = scaled.result if scaled else v
            before = (scaled,) if scaled else ()
            text = f"{v.name} * {factor}" if scaled else v.name
            if scaled:
                yield _New(text, term, before, cost=2)
            if v is not old and isinstance(old, Value):
                added = scalar_op("add", old, term, loc)
                if added is not None:
                    yield _New(f"{show(old)} + {text}", added.result, (*before, added), cost=2)


def _remainders(
    op: Op, path: Path, scalars: Sequence[Value], made: Container[Value]
) -> Iterator[_New]:
    """Yield the rest of a length after an index: `min(extent, length - index)`.

    The index of a loop, which no op has `made`, may count blocks.
    """
    type_ = op.results[0].type if op.results else None
    axis = path[1] if path[1] is not None else {"rows": 0, "cols": 1}.get(path[0], 0)
    if not isinstance(type_, TileType) or axis >= len(type_.shape):
        return
    extent = type_.shape[axis]
    taken = [(v, (), v.name) for v in scalars]
    for index in (v for v in scalars if v not in made):
        scaled = scalar_op("mul", index, extent, op.loc)
        taken += [(scaled.result, (scaled,), f"{index.name} * {extent}")] if scaled else []
    for length in scalars:
        for index, before, text in taken:
            if index is length:
                continue
            left = scalar_op("sub", length, index, op.loc)
            used = scalar_op("min", extent, left.result, op.loc) if left else None
            if left and used:
                shown = f"pl.min({extent}, {length.name} - {text})"
                yield _New(shown, used.result, (*before, left, used), cost=3)


def _rounded_up(op: Op, lhs: Arg, rhs: Arg) -> Iterator[Edit]:
    """Round a quotient up instead of down."""
    if type(rhs) is not int or rhs < 2:
        return
    added = scalar_op("add", lhs, rhs - 1, op.loc)
    made = replace_op(op, op.spec, {"lhs": added.result, "rhs": rhs}) if added else None
    if added and made:
        new = f"({show(lhs)} + {rhs - 1}) // {rhs}"
        yield Edit(op, "index", f"`{new}`: round up", (added, made), cost=1)


# Tiles


def _applications(
    name: str, args: Sequence[Arg], loc: Loc, wanted: Type | None = None
) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
    """Apply an op that keeps the type of its first operand, or has the `wanted` type."""
    spec, first = REGISTRY[name], args[0]
    assert isinstance(first, Value)
    try:
        made = make_op(spec, bind(spec, *args), in_scope=True, loc=loc)
    except (UserError, TypeError):
        return
    if len(made.results) == 1 and made.result.type == (wanted or first.type):
        shown = ", ".join(f"{a:.6g}" if isinstance(a, float) else show(a) for a in args)
        yield f"pl.{name}({shown})", (made,), made.result


def _normalizations(old: Value, loc: Loc) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
    """Divide rows by their sums."""
    spec = REGISTRY["row_sum"]
    try:
        total = make_op(spec, bind(spec, old), in_scope=True, loc=loc)
    except UserError:
        return
    for _, ops, value in _applications("row_expand_div", (old, total.result), loc):
        text = f"pl.row_expand_div({old.name}, pl.row_sum({old.name}))"
        yield text, (total, *ops), value


def _corrected(op: Op, old: Value, visible: Visible) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
    """Multiply a carried tile by the exponential of the change of a carried column."""
    carried = visible.carried.get(op, ())
    if old not in carried or not isinstance(old.type, TileType):
        return
    type_ = replace(old.type, shape=(*old.type.shape[:-1], 1))
    columns = [v for v in visible.tiles(op) if v.type == type_ and v is not old]
    by = "mul" if type_ == old.type else "row_expand_mul"
    for before, after in itertools.permutations(columns, 2):
        for change, first, less in _applications("sub", (before, after), op.loc):
            for _, second, factor in _applications("exp", (less,), op.loc):
                for _, ops, value in _applications(by, (old, factor), op.loc):
                    if before in carried:
                        text = f"pl.{by}({old.name}, pl.exp({change}))"
                        yield text, (*first, *second, *ops), value


def _maskings(op: Op, old: Value, visible: Visible) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
    """Pad a tile beyond a visible extent, with zeros or minus infinity."""
    assert isinstance(old.type, TileType)
    if len(old.type.shape) != 2 or math.prod(old.type.shape) == max(old.type.shape):
        return
    spec, fill = REGISTRY["set_validshape"], REGISTRY["fillpad"]
    for scalar in visible.scalars(op)[:4]:
        for axis in (1, 0):
            valid = (old.type.shape[0], scalar) if axis else (scalar, old.type.shape[1])
            for number, name in ((-math.inf, "min"), (0.0, "zero")):
                try:
                    cut = make_op(spec, bind(spec, old, *valid), in_scope=True, loc=op.loc)
                    bound = bind(fill, cut.result, pad_value=number)
                    full = make_op(fill, bound, in_scope=True, loc=op.loc)
                except UserError:
                    continue
                shape = ", ".join(map(show, valid))
                text = (
                    f"pl.fillpad(pl.set_validshape({old.name}, {shape}), "
                    f"pad_value=pl.PadValue.{name})"
                )
                if full.result.type == old.type:
                    yield text, (cut, full), full.result


def _expressions(
    op: Op, old: Value, visible: Visible
) -> Iterator[tuple[str, tuple[Op, ...], Value]]:
    """Yield functions of one or two other visible tiles that have the type of a tile."""
    others = [v for v in visible.tiles(op) if v is not old][:_MAX_TERMS]
    alike = [v for v in others if v.type == old.type]
    for value in alike:
        for spec in edits.unary_specs():
            yield from _applications(spec.name, (value,), op.loc)
    for name in ("add", "mul", "sub", "div", "maximum", "minimum"):
        pairs = itertools.permutations if name in ("sub", "div") else itertools.combinations
        for pair in pairs(alike, 2):
            yield from _applications(name, pair, op.loc)
    for value in others:
        for name in ("row_sum", "row_max", "col_sum", "col_max"):
            yield from _applications(name, (value,), op.loc, old.type)


def _combining_ops(old: Value, value: Value) -> Sequence[str]:
    assert isinstance(old.type, TileType)
    if not isinstance(value.type, TileType) or value.type.dtype != old.type.dtype:
        return ()
    if value.type.shape == old.type.shape:
        return _COMBINE
    if value.type.shape == (*old.type.shape[:-1], 1):
        return _COMBINE_ROW
    return _COMBINE_COLUMN if value.type.shape == (1, *old.type.shape[1:]) else ()


def _float_scalars(op: Op, visible: Visible) -> Iterator[Edit]:
    """Use a visible float scalar in place of a number or of another scalar."""
    for name, old in op.args.items():
        if not isinstance(old, float) and not _is_float_scalar(old):
            continue
        for new in visible.float_scalars(op):
            made = _with(op, (name, None), new) if new is not old else None
            if made is not None:
                text = f"`{new.name}` instead of `{show(old)}`"
                yield Edit(op, "wrong operand", text, (made,), None, 1, show(old), new.name)


def _is_float_scalar(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, ScalarType) and arg.type.dtype.is_float


def _comparisons(op: Op) -> Iterator[Edit]:
    """Use another comparison."""
    old = op.args.get("cmp_type")
    if old is None:
        return
    for number, name in enumerate(_COMPARISONS):
        made = rebuild_op(op, cmp_type=name)
        if made is not None and old not in (name, number):
            yield Edit(op, "other op", f'`cmp_type="{name}"`', (made,))


# Visible values


class Visible:
    """The values that each op of a function may use, nearest first, and those its loops carry."""

    def __init__(self, block: Block, params: Sequence[Value]) -> None:
        self.before: dict[Op, tuple[Value, ...]] = {}
        self.carried: dict[Op, tuple[Value, ...]] = {}
        self._walk(block, tuple(reversed(params)), ())
        self.made_by = {r: op for op in walk(block) for r in op.results}
        used = self.uses = Counter(v for op in walk(block) for v in op.operands)
        self._with_blocks = [op for op in walk(block) if op.blocks]
        inner = {v for op in self._with_blocks for b in op.blocks for v in b.params}
        defined = [*inner, *self.made_by]
        self._unused_tiles = {v for v in defined if v not in used and isinstance(v.type, TileType)}

    def scalars(self, op: Op) -> list[Value]:
        """Return the nearest integer scalars: variables that still hold them, and parameters."""
        found = [
            v
            for v in self.before.get(op, ())
            if is_index(v) and v.type != BOOL and self._is_variable(v) and self.is_nameable(op, v)
        ]
        return found[:_MAX_SCALARS]

    def float_scalars(self, op: Op) -> list[Value]:
        """Return the nearest float scalars that the source can name."""
        found = (v for v in self.before.get(op, ()) if _is_float_scalar(v))
        return [v for v in found if self.is_nameable(op, v)][:_MAX_FLOAT_SCALARS]

    def _is_variable(self, value: Value) -> bool:
        """Return whether the source assigns the value to a variable of its name.

        The intermediate results of an expression are named after their operands.
        """
        maker = self.made_by.get(value)
        if maker is None or maker.blocks:
            return True  # a parameter, the index of a loop, or what a loop or branch leaves
        line = linecache.getline(value.loc.file, value.loc.line)
        return not line or re.search(rf"\b{re.escape(value.name)}\b[\w\s,]*=[^=]", line) is not None

    def tiles(self, op: Op) -> list[Value]:
        """Return the nearest float tiles that the source can name."""
        found = [
            v for v in self.before.get(op, ()) if is_number_tile(v) and self.is_nameable(op, v)
        ]
        return found[:_MAX_TILES]

    def like(self, op: Op, old: Value) -> list[Value]:
        """Return the nearest values that may stand for `old`."""
        if isinstance(old.type, TensorType):
            found = [v for v in self.before[op] if is_tensor(v) and _is_like_tensor(v, old)]
        else:
            shape = old.type.shape if isinstance(old.type, TileType) else ()
            found = [
                v for v in self.before[op] if isinstance(v.type, TileType) and v.type.shape == shape
            ]
        return [v for v in found if v is not old][:_MAX_TILES]

    def is_nameable(self, op: Op, value: Value) -> bool:
        """Return whether the variable of a value still holds it at the op."""
        names = (v for v in self.before.get(op, ()) if v.name == value.name)
        return next((v for v in names if self._is_variable(v)), None) is value

    @cached_property
    def unused_in_the_end(self) -> set[Value]:
        """Return tiles that nothing uses, including those only passed on by loops and branches."""
        found = set(self._unused_tiles)
        used = {v for op in self.before if not op.spec.terminator for v in op.operands}
        for op in self._with_blocks:  # outer ones first
            for block in op.blocks:
                handed = block.terminator.args.get("values")
                pairs = zip(op.results, handed if isinstance(handed, tuple) else ())
                passed_on = (v for r, v in pairs if r in found and isinstance(v, Value))
                found.update(v for v in passed_on if v not in used)
        return found

    def _walk(self, block: Block, outer: tuple[Value, ...], carried: tuple[Value, ...]) -> None:
        seen = (*reversed(block.params), *outer)
        for op in block.ops:
            self.before[op], self.carried[op] = seen, carried
            inner = (*ForView(op).carried, *carried) if op.name == "for" else carried
            for part in op.blocks:
                self._walk(part, seen, inner)
            seen = (*reversed(op.results), *seen)


def _is_like_tensor(value: Value, old: Value) -> bool:
    a, b = value.type, old.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return False
    return a.dtype == b.dtype and len(a.shape) == len(b.shape)
