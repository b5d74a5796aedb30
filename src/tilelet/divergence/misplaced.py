"""Infer the window that a load should have taken, from what the golden computes of it.

A load of the wrong window agrees with the golden, because its values occur there; what is computed
of it does not. Other windows of the same tensor are tried in its place. Those with which the next
value agrees are fitted by an index expression in the variables that the source can name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.divergence.edits import Edit, rebuild_op, window_parts
from tilelet.divergence.evidence import Agreement, only_moves
from tilelet.divergence.matching import Matcher
from tilelet.divergence.record import Event, Trace, is_tensor_load
from tilelet.divergence.scoped_edits import ScopedEdits, Visible, scalar_op, show
from tilelet.divergence.slices import Slice
from tilelet.dtypes import Array
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.types import ScalarType, TileType
from tilelet.ops.apply import Application, with_zeros
from tilelet.tasks.window import Shape, TileValue, Window

_MAX_LOADS = 12
_MAX_EVENTS = 8
_MAX_WINDOWS = 160
_MAX_RIGHT = 32
"""More windows than this that would be right say nothing."""
_MAX_FACTORS = 12
_MAX_EDITS = 8


@dataclass(frozen=True)
class Load:
    """An executed load: the first index of its window, and of the windows that agree."""

    event: int
    taken: Shape
    right: tuple[Shape, ...]

    @property
    def is_misplaced(self) -> bool:
        return self.taken not in self.right

    def shifts(self, axis: int) -> set[int]:
        """Return by how much the window may move on an axis to agree."""
        others = [r for r in self.right if _drop_axis(r, axis) == _drop_axis(self.taken, axis)]
        return {r[axis] - self.taken[axis] for r in others}


def _drop_axis(index: Shape, axis: int) -> Shape:
    return index[:axis] + index[axis + 1 :]


@dataclass(frozen=True)
class _Term:
    """A value that an index may depend on: its text, its ops, and its value for each load."""

    text: str
    make: Callable[[], tuple[Arg, tuple[Op, ...]] | None]
    values: tuple[int, ...]


class WindowSearch:
    """Finds misplaced loads and edits of their offsets."""

    def __init__(
        self,
        trace: Trace,
        matcher: Matcher,
        agreement: Agreement,
        edits: ScopedEdits,
        spend: Callable[[float], None],
    ) -> None:
        """`spend` counts steps of work."""
        self._trace = trace
        self._agreement = agreement
        self._matcher = matcher
        self._edits = edits
        self._spend = spend

    def misplaced(self, near: Slice) -> dict[Op, list[Load]]:
        """Return loads of the ops before a wrong write, in all tasks, if some are misplaced."""
        users: dict[int, list[int]] = {}
        by_op: dict[Op, list[int]] = {}
        for n, event in enumerate(self._trace.events):
            for used in event.inputs:
                users.setdefault(used, []).append(n)
            if is_tensor_load(event.op):
                by_op.setdefault(event.op, []).append(n)
        loads = dict.fromkeys(self._trace.events[n].op for n in sorted(near.everything))
        found: dict[Op, list[Load]] = {}
        for op in [op for op in loads if op in by_op][:_MAX_LOADS]:
            numbers = by_op[op]
            for i in np.unique(np.linspace(0, len(numbers) - 1, _MAX_EVENTS).astype(int)):
                n = numbers[int(i)]
                window, path = self._trace.events[n].window, self._path(n, users)
                assert window is not None
                taken = self._trace.box_of(window)[0]
                if path is not None and self._agreement.of(path[-1]) is not None:
                    found.setdefault(op, []).append(Load(n, taken, (taken,)))
                elif path is not None and 0 < len(right := self._right(n, path)) <= _MAX_RIGHT:
                    found.setdefault(op, []).append(Load(n, taken, tuple(right)))
        return {op: some for op, some in found.items() if any(x.is_misplaced for x in some)}

    def _path(self, number: int, users: Mapping[int, Sequence[int]]) -> list[int] | None:
        """Return the events from a load to the first one that computes."""
        path: list[int] = []
        while len(path) < 4:
            following = users.get(number, ())
            if not following:
                return None
            number = following[0]
            path.append(number)
            event = self._trace.events[number]
            if event.tile is None:
                return None
            if not only_moves(event.op):
                return path
        return None

    def _right(self, number: int, path: Sequence[int]) -> list[Shape]:
        event = self._trace.events[number]
        window, tile = event.window, event.tile
        assert window is not None
        assert tile is not None
        shape = self._trace.shapes.get(window.buffer.id, ())
        if window.extent is not None or len(shape) != len(window.shape) or not tile.full:
            return []
        if tile.data.shape != window.shape:
            return []
        taken = self._trace.box_of(window)[0]
        right: list[Shape] = []
        for offset in itertools.islice(_offsets(shape, window.shape, taken), _MAX_WINDOWS):
            flat = sum(o * s for o, s in zip(offset, window.strides))
            other = Window(window.buffer, window.dtype, flat, window.shape, window.strides)
            self._spend(sum(self._trace.events[n].steps for n in path))
            made = self._computed(number, path, TileValue(other.array.copy()))
            if made is not None and self._matcher.find(made) is not None:
                right.append(offset)
                if len(right) > _MAX_RIGHT:
                    break
        return right

    def _computed(self, number: int, path: Sequence[int], tile: TileValue) -> Array | None:
        """Return the last tile of a path, recomputed from another loaded tile."""
        before = number
        for n in path:
            event = self._trace.events[n]
            operands = [v for v in event.op.operands if isinstance(v.type, TileType)]
            if any(isinstance(v.type, ScalarType) for v in event.op.operands):
                return None
            if len(event.inputs) != len(operands):
                return None
            given = {
                v: tile if used == before else self._trace.events[used].tile
                for v, used in zip(operands, event.inputs)
            }
            try:
                found = _apply(event, given)
            except (UserError, InternalError, ValueError):
                return None
            if found is None:
                return None
            before, tile = n, found
        return tile.cut

    # Index expressions

    def edits(self, misplaced: Mapping[Op, Sequence[Load]]) -> Iterator[Edit]:
        """Yield edits that move windows to where they agree."""
        for op, loads in misplaced.items():
            parts = window_parts(op)
            if parts is None:
                continue
            param, offset, _ = parts
            # Of terms that are equal for all loads, the first is the simplest.
            terms = list({t.values: t for t in reversed([*self._terms(op, loads)])}.values())
            for axis, old in enumerate(offset):
                shifts = [load.shifts(axis) for load in loads]
                if not all(shifts) or all(0 in some for some in shifts):
                    continue
                for chosen in _fits(terms, shifts):
                    made = _expression(op, old, chosen)
                    if made is None:
                        continue
                    text, value, ops = made
                    moved = rebuild_op(op, **{param: (*offset[:axis], value, *offset[axis + 1 :])})
                    if moved is not None:
                        what = f"`{text}` instead of `{show(old)}` on axis {axis} of `{param}`"
                        yield Edit(op, "offset", what, (*ops, moved))

    def _terms(self, op: Op, found: Sequence[Load]) -> Iterator[_Term]:
        """Yield 1, and the indices of loops that have names, their quotients and remainders."""
        yield _Term("", lambda: (1, ()), (1,) * len(found))
        visible: Visible = self._edits.visible_in(self._trace.function[op])
        iterations = [dict(self._trace.iteration(self._trace.events[m.event])) for m in found]
        for value in visible.scalars(op):
            if not all(value.name in at for at in iterations):
                continue
            known = tuple(at[value.name] for at in iterations)
            yield _Term(value.name, lambda v=value: (v, ()), known)
            for by in self._edits.small_constants(op):
                for name, sign in (("floordiv", "//"), ("mod", "%")):
                    values = tuple(n // by if name == "floordiv" else n % by for n in known)
                    if len(set(values)) > 1:
                        text = f"({value.name} {sign} {by})"
                        yield _Term(
                            text, lambda v=value, f=name, b=by: _make_scalar(f, v, b, op), values
                        )


def _offsets(shape: Shape, extents: Shape, taken: Shape) -> Iterator[Shape]:
    """Yield the first indices of adjacent windows, except that of the window taken."""
    axes = [range(t % n, whole - n + 1, n) for whole, n, t in zip(shape, extents, taken)]
    yield from (offset for offset in itertools.product(*axes) if offset != taken)


def _apply(event: Event, given: Mapping[Value, TileValue | None]) -> TileValue | None:
    """Apply the op of an event to tiles."""
    op = event.op
    application = Application(op)
    args: dict[str, object] = {}
    regions: dict[str, tuple[Shape, Shape]] = {}
    for name, arg in op.args.items():
        if not isinstance(arg, Value):
            args[name] = arg
            continue
        tile = given.get(arg)
        if tile is None:
            return None
        regions[name] = tile.data.shape, tile.valid
        args[name] = application.operand(tile.data, tile.valid)
    made = application.results(args, regions)[0]
    return TileValue(with_zeros(*made), made[2])


def _fits(
    terms: Sequence[_Term], shifts: Sequence[set[int]]
) -> list[tuple[tuple[_Term, int], ...]]:
    """Return combinations of terms and factors whose sum is a shift of every load.

    They consist of one term each, or of two if no single term fits.
    """
    scaled = [(term, f) for term in terms for f in _factors(term, shifts)]
    for count in (1, 2):
        fits = [
            chosen
            for chosen in itertools.combinations(scaled, count)
            if all(
                sum(term.values[i] * f for term, f in chosen) in some
                for i, some in enumerate(shifts)
            )
        ]
        if fits:
            return fits[:_MAX_EDITS]
    return []


def _factors(term: _Term, shifts: Sequence[set[int]]) -> list[int]:
    """Return the factors of a term that explain a shift, or the difference of two, small first."""
    known = [*zip(term.values, shifts), (0, {0})]
    found = {
        (n - m) // (v - w)
        for (v, some), (w, others) in itertools.combinations(known, 2)
        if v != w
        for n in some
        for m in others
        if (n - m) % (v - w) == 0
    }
    found |= {-f for f in found}
    return sorted(found - {0}, key=lambda f: (abs(f), f))[:_MAX_FACTORS]


def _make_scalar(name: str, lhs: Arg, rhs: Arg, op: Op) -> tuple[Arg, tuple[Op, ...]] | None:
    made = scalar_op(name, lhs, rhs, op.loc)
    return None if made is None else (made.result, (made,))


def _expression(
    op: Op, old: Arg, terms: Sequence[tuple[_Term, int]]
) -> tuple[str, Arg, tuple[Op, ...]] | None:
    """Build the sum of an index and multiples of terms."""
    total, text = old, show(old)
    ops: list[Op] = []
    for term, factor in terms:
        start = term.make()
        scaled = start and _make_scalar("mul", start[0], abs(factor), op)
        added = scaled and _make_scalar("add" if factor > 0 else "sub", total, scaled[0], op)
        if not start or not scaled or not added:
            return None
        ops += (*start[1], *scaled[1], *added[1])
        total = added[0]
        shown = f"{term.text} * {abs(factor)}" if term.text else str(abs(factor))
        text += f" {'+' if factor > 0 else '-'} {shown}"
    return text, total, tuple(ops)
