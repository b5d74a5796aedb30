"""Follow executions of a kernel that differ only in the position of their windows once.

A kernel that reads only defined elements stores only defined elements, and which elements it
accesses depends on its arguments alone: the layouts of its tensors, and its scalars. The mode of
`interp.definedness` therefore records the accesses of an execution; the next execution of the same
kind only checks that the elements it reads are defined and marks those it writes. Scalars that are
used only in affine offsets move windows: they may differ as long as every window stays inside its
tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilelet.analysis.affine import affine_of
from tilelet.analysis.aliases import Aliases, is_tensor
from tilelet.dataclasses import dataclass, field
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
    """Static properties of a kernel.

    plain    whether its tensors are accessed only by loads and stores of windows
    moving   scalar parameters that only move windows; `deciding` are the others
    tensors  tensor parameters; `handed` are those that are returned
    """

    def __init__(self, function: Function) -> None:
        self._definition = {r: op for op in walk(function.body) for r in op.results}
        self._params = {p: i for i, p in enumerate(function.params)}
        self._taint: dict[Value, frozenset[Value]] = {}
        self._deciding: set[Value] = set()
        self._forms: dict[Op, list[dict[Value, int]]] = {}
        ops = list(walk(function.body))
        self.plain = all(map(_is_plain, ops)) and self._returns_parameters(function)
        for op in ops:
            self._look_at(op)
        numbers = [p for p in function.params if isinstance(p.type, ScalarType)]
        self._movers = [p for p in numbers if p not in self._deciding]
        self.moving = tuple(self._params[p] for p in self._movers)
        self.deciding = tuple(self._params[p] for p in numbers if p in self._deciding)
        self.tensors = tuple(i for p, i in self._params.items() if is_tensor(p))
        self.moved_in = self._moved_in(function)

    def _moved_in(self, function: Function) -> dict[int, frozenset[int]]:
        """For each moving scalar, return the tensors in which it moves windows."""
        aliases = Aliases(function.body, {})
        found: dict[int, set[int]] = {i: set() for i in self.moving}
        for op, axes in self._forms.items():
            terms = {self._params[t] for form in axes for t in form if t in self._movers}
            for tensor in filter(is_tensor, op.operands):
                roots = {self._params[r] for r in aliases.roots(tensor) if r in self._params}
                for number in terms:
                    found[number] |= roots
        return {number: frozenset(roots) for number, roots in found.items()}

    def _returns_parameters(self, function: Function) -> bool:
        """Return whether the kernel returns only parameters, recording them in `handed`."""
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
        """Return the parameters that a scalar depends on."""
        if value in self._params and _is_number(value):
            return frozenset((value,))
        return self._taint.get(value, frozenset())

    def factors(self, op: Op) -> list[Factors]:
        """Return the factor of each moving scalar per axis of a load's or store's offset."""
        forms = self._forms.get(op, [])
        return [tuple(form.get(p, 0) for p in self._movers) for form in forms]


def _is_number(value: Value) -> bool:
    return isinstance(value.type, ScalarType)


def _is_plain(op: Op) -> bool:
    """Return whether an op accesses memory only by whole windows."""
    tensors = [name for name, a in op.args.items() if any(map(is_tensor, values_in((a,))))]
    if not tensors or op.name in _STRUCTURE:
        return True
    if op.name in ("slice", "load"):
        return isinstance(op.result.type, TileType)
    if op.name in ("assemble", "store"):
        return tensors == ["target" if op.name == "assemble" else "tensor"]
    return op.name in _VIEWS


def _moves_freely(op: Op) -> bool:
    """Return whether the extent of a window does not depend on its position."""
    limits = (op.args.get("valid_shape"), op.args.get("valid_shapes"), op.args.get("clamp"))
    return not any(limits) and any(map(is_tensor, op.operands))


@dataclass(frozen=True)
class AccessPiece:
    """Elements of an argument: `count` windows of one shape at a constant distance.

    start, apart  in bytes from the first element of the argument
    strides       in elements
    factors       bytes that it moves per unit of each moving scalar
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
        """Return the window for these arguments, or None if it starts between two elements."""
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
class ExecutionAccesses:
    """The accesses of one execution, valid for all executions of its kind.

    base     the values of its moving scalars
    reads    elements that must be defined before
    writes   elements that are defined afterwards
    stores   the same, per store
    limits   range of each combination of the moving scalars: (lowest, highest)
    spoiled  something undefined was involved, so nothing is known about other executions
    """

    base: tuple[int, ...]
    shape: KernelShape
    arguments: Sequence[Any]
    spoiled: bool = False
    limits: dict[Factors, tuple[int, int]] = field(default_factory=dict[Factors, tuple[int, int]])
    reads: list[AccessPiece] = field(default_factory=list[AccessPiece])
    writes: list[AccessPiece] = field(default_factory=list[AccessPiece])
    stores: list[tuple[Loc, AccessPiece]] = field(default_factory=list[tuple[Loc, AccessPiece]])

    def access(
        self, op: Op, memory: Window, offset: Sequence[int], taken: Window, writes: bool
    ) -> None:
        """Record a load or store of `taken` at `offset` in `memory`."""
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
        piece = AccessPiece(number, taken.dtype, start, taken.shape, taken.strides, tuple(moves))
        (self.writes if writes else self.reads).append(piece)
        if writes:
            self.stores.append((op.loc, piece))

    def _argument(self, taken: Window) -> int:
        return next(i for i in self.shape.tensors if self.arguments[i].buffer is taken.buffer)

    def finish(self) -> ExecutionAccesses:
        """Make the record independent of its arguments, and merge the accesses."""
        self.reads, self.writes = _in_rows(self.reads), _in_rows(self.writes)
        self.arguments = ()
        return self


def _in_rows(pieces: Sequence[AccessPiece]) -> list[AccessPiece]:
    """Merge pieces at a constant distance into one."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for p in pieces:
        key = (p.argument, p.dtype, p.shape, p.strides, p.factors)
        groups.setdefault(key, []).append(p.start)
    found: list[AccessPiece] = []
    for (argument, dtype, shape, strides, factors), all_starts in groups.items():
        starts = sorted(set(all_starts))
        at = 0
        while at < len(starts):
            apart = starts[at + 1] - starts[at] if at + 1 < len(starts) else 0
            end = at + 1
            while end < len(starts) and starts[end] - starts[end - 1] == apart:
                end += 1
            piece = (argument, dtype, starts[at], shape, strides, factors)
            found.append(AccessPiece(*piece, end - at, apart if end - at > 1 else 0))
            at = end
    return found


class RepeatingState(State):
    """A run that skips executions of a known kind."""

    def __init__(self, functions: Mapping[str, Function], **options: Any) -> None:
        super().__init__(functions, **options)
        self._shapes: dict[str, KernelShape] = {}
        self._known: dict[tuple[Any, ...], ExecutionAccesses] = {}

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
        return self._follow(key, ExecutionAccesses(base, shape, arguments), name, arguments, blocks)

    def _follow(
        self,
        key: tuple[object, ...],
        execution: ExecutionAccesses,
        name: str,
        arguments: Sequence[object],
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
        self,
        known: ExecutionAccesses,
        arguments: Sequence[Any],
        base: tuple[int, ...],
        watcher: Watcher,
    ) -> bool:
        """Apply a known execution; return False if it does not fit."""
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
    """Return what two executions must share to access the same elements up to position."""
    found: list[Any] = [arguments[i] for i in shape.deciding]
    first: dict[int, tuple[int, int]] = {}
    bounded: set[int] = set()
    for i in shape.tensors:
        window: Window = arguments[i]
        start = window.offset * window.dtype.itemsize
        # Arguments in one buffer are located relative to the first of them.
        where, base = first.setdefault(window.buffer.id, (i, start))
        layout = (window.dtype, window.shape, window.strides, window.valid, window.extent)
        found.append((*layout, where, start - base))
        if window.valid is not None or window.extent is not None:
            bounded.add(i)
    if bounded:  # the size of a window depends on its position
        found += [n for i in shape.moving if shape.moved_in[i] & bounded for n in (i, arguments[i])]
    return tuple(found)
