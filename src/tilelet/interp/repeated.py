"""Executions of a kernel that differ only in where their windows lie are followed once.

A kernel that reads defined elements only stores defined elements, and which elements those are
depends on its arguments alone: on the layouts of its tensors, and on its numbers. So the mode of
`interp.definedness` keeps what an execution touched. The next execution of the same kind is then a
look at the elements that it reads, and a note of those that it writes. Numbers that are used for
offsets alone, and in affine form, move windows: they may differ, as long as every window stays
inside its tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelet.analysis.affine import affine_of
from tilelet.analysis.aliases import Aliases, is_tensor
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.interp.cells import DEFINED, Watcher
from tilelet.interp.movement import as_tuple
from tilelet.interp.state import State
from tilelet.ir.core import Function, Op, Value, values_in, walk
from tilelet.ir.types import ScalarType, TileType
from tilelet.tasks.control_points import ControlTrace
from tilelet.tasks.window import Shape, Window

Factors = tuple[int, ...]
"""By how much each number that moves windows moves one."""

_OFFSETS = {"slice": "offset", "load": "offsets", "assemble": "offset", "store": "offsets"}
_VIEWS = {"reshape", "transpose", "reinterpret_view"}
_STRUCTURE = {"for", "while", "if", "yield", "return"}


class KernelShape:
    """What can be said of a kernel without running it.

    plain    whether its tensors are touched by loads and stores of windows alone
    moving   parameters that are numbers and do nothing but move windows; `deciding` the others
    tensors  parameters that are tensors; `handed` those that are handed on
    """

    def __init__(self, function: Function) -> None:
        self._definition = {r: op for op in walk(function.body) for r in op.results}
        self._params = {p: i for i, p in enumerate(function.params)}
        self._taint: dict[Value, frozenset[Value]] = {}
        self._deciding: set[Value] = set()
        self._forms: dict[Op, list[dict[Value, int]]] = {}
        ops = list(walk(function.body))
        self.plain = all(map(_is_plain, ops)) and self._returned(function)
        for op in ops:
            self._look_at(op)
        numbers = [p for p in function.params if isinstance(p.type, ScalarType)]
        self._movers = [p for p in numbers if p not in self._deciding]
        self.moving = tuple(self._params[p] for p in self._movers)
        self.deciding = tuple(self._params[p] for p in numbers if p in self._deciding)
        self.tensors = tuple(i for p, i in self._params.items() if is_tensor(p))
        self.moved_in = self._moved_in(function)

    def _moved_in(self, function: Function) -> dict[int, frozenset[int]]:
        """For each moving number, the tensors in which it moves windows."""
        aliases = Aliases(function.body, {})
        found: dict[int, set[int]] = {i: set() for i in self.moving}
        for op, axes in self._forms.items():
            terms = {self._params[t] for form in axes for t in form if t in self._movers}
            for tensor in filter(is_tensor, op.operands):
                roots = {self._params[r] for r in aliases.roots(tensor) if r in self._params}
                for number in terms:
                    found[number] |= roots
        return {number: frozenset(roots) for number, roots in found.items()}

    def _returned(self, function: Function) -> bool:
        """Whether all that the kernel hands on are its parameters; `handed` says which."""
        aliases = Aliases(function.body, {})
        found = [aliases.whole(r) if is_tensor(r) else None for r in function.returned]
        self.handed = tuple(self._params[r] for r in found if r in self._params)
        return len(self.handed) == len(found)

    def _look_at(self, op: Op) -> None:
        offset = op.args.get(_OFFSETS.get(op.name, ""))
        if op.results and not op.blocks and all(_is_number(r) for r in op.results):
            made_of = [self._of(v) for v in op.operands]
            for result in op.results:
                self._taint[result] = frozenset[Value]().union(*made_of)
            return
        moves = offset is not None and _moves_freely(op)
        axes = as_tuple(offset) if moves and offset is not None else ()
        forms = [affine_of(axis, self._definition) for axis in axes]
        rest = [a for name, a in op.args.items() if not moves or name != _OFFSETS[op.name]]
        for value in values_in(rest):
            self._deciding |= self._of(value)
        kept: list[dict[Value, int]] = []
        for axis, form in zip(axes, forms):
            terms = dict(form.terms) if form is not None else {}
            if form is None:
                self._deciding |= self._of(axis) if isinstance(axis, Value) else set()
            for term in terms:
                if term not in self._params:
                    self._deciding |= self._of(term)
            kept.append(terms)
        self._forms[op] = kept

    def _of(self, value: Value) -> frozenset[Value]:
        """The parameters that a number is made of."""
        if value in self._params and _is_number(value):
            return frozenset((value,))
        return self._taint.get(value, frozenset())

    def factors(self, op: Op) -> list[Factors]:
        """Per axis of the offset of a load or store, the factor of each moving number."""
        forms = self._forms.get(op, [])
        return [tuple(form.get(p, 0) for p in self._movers) for form in forms]


def _is_number(value: Value) -> bool:
    return isinstance(value.type, ScalarType)


def _is_plain(op: Op) -> bool:
    """Whether an op touches memory in no other way than by whole windows."""
    tensors = [name for name, a in op.args.items() if any(map(is_tensor, values_in((a,))))]
    if not tensors or op.name in _STRUCTURE:
        return True
    if op.name in ("slice", "load"):
        return isinstance(op.result.type, TileType)
    if op.name in ("assemble", "store"):
        return tensors == ["target" if op.name == "assemble" else "tensor"]
    return op.name in _VIEWS


def _moves_freely(op: Op) -> bool:
    """Whether the extent of a window does not depend on where it lies."""
    limits = (op.args.get("valid_shape"), op.args.get("valid_shapes"), op.args.get("clamp"))
    return not any(limits) and any(map(is_tensor, op.operands))


@dataclass(frozen=True)
class Piece:
    """Elements of an argument: `count` windows of one shape, evenly apart.

    start, apart  in bytes from the first element of the argument
    strides       in elements
    factors       bytes that it moves with each of the moving numbers
    """

    argument: int
    dtype: DType
    start: int
    shape: Shape
    strides: Shape
    factors: Factors
    count: int = 1
    apart: int = 0

    def in_(self, arguments: Sequence[Any], moved: Sequence[int]) -> Window | None:
        """The window for these arguments; None if it starts between two elements."""
        given: Window = arguments[self.argument]
        start = given.offset * given.dtype.itemsize + self.start
        start += sum(f * m for f, m in zip(self.factors, moved))
        item = self.dtype.itemsize
        if start % item or self.apart % item:
            return None
        shape, strides = self.shape, self.strides
        if self.count > 1:
            shape, strides = (self.count, *shape), (self.apart // item, *strides)
        return Window(given.buffer, self.dtype, start // item, shape, strides)


@dataclass
class Execution:
    """What one execution touched, for others of its kind.

    base     the values of its moving numbers
    reads    what has to be defined before
    writes   what is defined afterwards
    stores   the same, store by store
    limits   how far each combination of the moving numbers may go: (lowest, highest)
    spoiled  something undefined was involved: this says nothing of others
    """

    base: tuple[int, ...]
    shape: KernelShape
    arguments: Sequence[Any]
    spoiled: bool = False
    limits: dict[Factors, tuple[int, int]] = field(default_factory=dict[Factors, tuple[int, int]])
    reads: list[Piece] = field(default_factory=list[Piece])
    writes: list[Piece] = field(default_factory=list[Piece])
    stores: list[tuple[Loc, Piece]] = field(default_factory=list[tuple[Loc, Piece]])

    def access(
        self, op: Op, memory: Window, offset: Sequence[int], taken: Window, writes: bool
    ) -> None:
        """A load or store of `taken`, which lies at `offset` in `memory`."""
        factors = self.shape.factors(op)
        item = memory.dtype.itemsize
        moves = [0] * len(self.base)
        for axis, of_axis in enumerate(factors):
            if any(of_axis):
                room = memory.shape[axis] - taken.shape[axis] - offset[axis]
                low, high = self.limits.get(of_axis, (-offset[axis], room))
                self.limits[of_axis] = (max(low, -offset[axis]), min(high, room))
                for i, factor in enumerate(of_axis):
                    moves[i] += factor * memory.strides[axis] * item
        number = self._argument(taken)
        given: Window = self.arguments[number]
        start = taken.offset * item - given.offset * given.dtype.itemsize
        piece = Piece(number, taken.dtype, start, taken.shape, taken.strides, tuple(moves))
        (self.writes if writes else self.reads).append(piece)
        if writes:
            self.stores.append((op.loc, piece))

    def _argument(self, taken: Window) -> int:
        return next(i for i in self.shape.tensors if self.arguments[i].buffer is taken.buffer)

    def finish(self) -> Execution:
        """From now on this is about any execution of its kind."""
        self.reads, self.writes = _in_rows(self.reads), _in_rows(self.writes)
        self.arguments = ()
        return self


def _in_rows(pieces: Sequence[Piece]) -> list[Piece]:
    """The same elements as fewer pieces: those that are evenly apart are one."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for p in pieces:
        key = (p.argument, p.dtype, p.shape, p.strides, p.factors)
        groups.setdefault(key, []).append(p.start)
    found: list[Piece] = []
    for (argument, dtype, shape, strides, factors), all_starts in groups.items():
        starts = sorted(set(all_starts))
        at = 0
        while at < len(starts):
            apart = starts[at + 1] - starts[at] if at + 1 < len(starts) else 0
            end = at + 1
            while end < len(starts) and starts[end] - starts[end - 1] == apart:
                end += 1
            piece = (argument, dtype, starts[at], shape, strides, factors)
            found.append(Piece(*piece, end - at, apart if end - at > 1 else 0))
            at = end
    return found


class RepeatingState(State):
    """A run in which an execution that is known need not be followed."""

    def __init__(self, functions: Mapping[str, Function], **options: Any) -> None:
        super().__init__(functions, **options)
        self._shapes: dict[str, KernelShape] = {}
        self._known: dict[tuple[Any, ...], Execution] = {}

    def run_kernel(
        self, name: str, arguments: Sequence[Any], blocks: int | None
    ) -> tuple[tuple[Any, ...], tuple[ControlTrace, ...]]:
        if name not in self._shapes:
            self._shapes[name] = KernelShape(self.functions[name])
        shape, watcher = self._shapes[name], self.watcher
        if self.execute or not shape.plain or watcher.touch is not None:
            return super().run_kernel(name, arguments, blocks)
        if watcher.origin_of(arguments) is not None:
            return super().run_kernel(name, arguments, blocks)
        key = (name, blocks, *_kind(shape, arguments))
        base = tuple([arguments[i] for i in shape.moving])
        known = self._known.get(key)
        if known is not None and self._repeats(known, arguments, base, watcher):
            values = tuple([arguments[i] for i in shape.handed])
            return values, ((),) * (blocks or 1)
        return self._follow(key, Execution(base, shape, arguments), name, arguments, blocks)

    def _follow(
        self,
        key: tuple[Any, ...],
        execution: Execution,
        name: str,
        arguments: Sequence[Any],
        blocks: int | None,
    ) -> tuple[tuple[Any, ...], tuple[ControlTrace, ...]]:
        watcher: Watcher = self.watcher
        watcher.execution = execution
        try:
            result = super().run_kernel(name, arguments, blocks)
        finally:
            watcher.execution = None
        if not execution.spoiled:
            self._known[key] = execution.finish()
        return result

    def _repeats(
        self, known: Execution, arguments: Sequence[Any], base: tuple[int, ...], watcher: Watcher
    ) -> bool:
        """Do as the known execution did; False if that does not fit."""
        moved = [a - b for a, b in zip(base, known.base)]
        for factors, (low, high) in known.limits.items():
            if not low <= sum(f * m for f, m in zip(factors, moved)) <= high:
                return False
        for piece in known.reads:
            cells = arguments[piece.argument].buffer.defined
            if cells is not None:
                window = piece.in_(arguments, moved)
                if window is None or not cells.all_defined(window):
                    return False
        stored: list[Window] = []
        for piece in known.writes:
            if arguments[piece.argument].buffer.defined is not None:
                window = piece.in_(arguments, moved)
                if window is None:
                    return False
                stored.append(window)
        for window in stored:
            window.buffer.defined.set(window, DEFINED)
        for loc, piece in known.stores:
            buffer = arguments[piece.argument].buffer
            if buffer.id in watcher.watched:
                window = piece.in_(arguments, moved)
                assert window is not None
                watcher.stores.append((loc, len(self.tasks), window))
        return True


def _kind(shape: KernelShape, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What two executions must have in common so that they touch the same, but for its place."""
    found: list[Any] = [arguments[i] for i in shape.deciding]
    first: dict[int, tuple[int, int]] = {}
    bounded: set[int] = set()
    for i in shape.tensors:
        window: Window = arguments[i]
        start = window.offset * window.dtype.itemsize
        # Arguments in one buffer are placed from the first of them.
        where, base = first.setdefault(window.buffer.id, (i, start))
        layout = (window.dtype, window.shape, window.strides, window.valid, window.extent)
        found.append((*layout, where, start - base))
        if window.valid is not None or window.extent is not None:
            bounded.add(i)
    if bounded:  # how much of a window there is depends on its place
        found += [n for i in shape.moving if shape.moved_in[i] & bounded for n in (i, arguments[i])]
    return tuple(found)
