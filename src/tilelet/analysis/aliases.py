"""Alias analysis: the memory that each tensor names, and who reads and writes it.

A tensor Value names a window of GM. Its *roots* are the buffers that the window may belong to:
parameters, `create_tensor` results, and spilled results of scopes and calls. In-place ops, views,
loops, joins, scopes and calls only pass a window on under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeGuard

from tilelet.ir.core import Arg, Block, Direction, Function, Op, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType
from tilelet.ir.views import CallView, carried_values, yielded_values

Access = tuple[Value, Direction]


def is_tensor(arg: object) -> TypeGuard[Value]:
    """Whether `arg` is a Value in GM."""
    return isinstance(arg, Value) and isinstance(arg.type, TensorType)


class Aliases:
    """Alias analysis of one function, or of a block, whose free values then count as roots."""

    def __init__(self, body: Block, functions: Mapping[str, Function]) -> None:
        self.definition: dict[Value, Op] = {}
        self._functions = functions
        self._same: dict[Value, list[Value]] = {}
        self._view_of: dict[Value, Value] = {}
        self._undefined: set[Value] = set()
        self._roots: dict[Value, frozenset[Value]] = {}
        for op in walk(body):
            for result in op.results:
                self.definition[result] = op
            self._collect(op)

    def roots(self, value: Value) -> frozenset[Value]:
        """Return every buffer that `value` may refer to; none if no path defines it."""
        found = self._roots.get(value)
        if found is None:
            found = self._roots[value] = frozenset(self._reach(value, through_views=True))
        return found

    def end(self, value: Value) -> Value | None:
        """Return the single buffer or view that `value` is another name of, if unique."""
        reached = self._reach(value, through_views=False)
        return reached[0] if len(reached) == 1 else None

    def whole(self, value: Value) -> Value | None:
        """Return the single buffer that `value` names as a whole, if unique."""
        end = self.end(value)
        return None if end in self._view_of else end

    def names(self, value: Value) -> Iterator[Value]:
        """Yield `value` and all names from which its window is passed on unchanged."""
        return self._back(value, through_views=False)

    def _reach(self, value: Value, *, through_views: bool) -> list[Value]:
        """Return the ends of all name chains that lead back from `value`."""
        return [
            v
            for v in self._back(value, through_views=through_views)
            if v not in self._undefined and not self._sources(v, through_views=through_views)
        ]

    def _sources(self, value: Value, *, through_views: bool) -> Sequence[Value]:
        sources = self._same.get(value, ())
        if not sources and through_views and value in self._view_of:
            return (self._view_of[value],)
        return sources

    def _back(self, value: Value, *, through_views: bool) -> Iterator[Value]:
        seen = {value}
        stack = [value]
        while stack:
            v = stack.pop()
            yield v
            for source in self._sources(v, through_views=through_views):
                if source not in seen:
                    seen.add(source)
                    stack.append(source)

    def _link(self, name: Value, *sources: Arg) -> None:
        if is_tensor(name):
            into = self._same.setdefault(name, [])
            into.extend(s for s in sources if is_tensor(s))

    def _collect(self, op: Op) -> None:
        if op.spec.structural:
            self._collect_structural(op)
        elif op.spec.writes:
            for result, param in zip(op.results, op.spec.writes):
                self._link(result, op.args[param])
        elif op.spec.view and op.results and is_tensor(op.results[0]):
            source = op.args[op.spec.view]
            if is_tensor(source):
                self._view_of[op.results[0]] = source

    def _collect_structural(self, op: Op) -> None:
        if op.name in ("for", "while"):
            self._collect_loop(op)
        elif op.name in ("if", "scope"):
            for result, *values in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                self._link(result, *values)
        elif op.name == "call":
            self._collect_call(CallView(op))
        elif op.name == "undef":
            self._undefined.update(op.results)

    def _collect_loop(self, op: Op) -> None:
        """A carried value is the initial value or the result of the previous iteration."""
        for first, following, same in carried_values(op):
            for name in same:
                self._link(name, first, following)

    def _collect_call(self, call: CallView) -> None:
        for result, handed_on in zip(call.data_results, self._handed_on(call.callee)):
            for position, is_view in handed_on:
                operand = call.operands[position]
                if is_view and isinstance(operand, Value):
                    self._view_of[result] = operand
                else:
                    self._link(result, operand)

    def _handed_on(self, callee: str) -> list[list[tuple[int, bool]]]:
        """For each returned value of the callee, list the parameters it may be or be a view of."""
        fn = self._functions[callee]
        position = {p: i for i, p in enumerate(fn.params)}
        if all(v in position for v in fn.returned if isinstance(v, Value)):
            return [[(position[v], False)] if isinstance(v, Value) else [] for v in fn.returned]
        inside = Aliases(fn.body, self._functions)
        handed_on: list[list[tuple[int, bool]]] = []
        for v in fn.returned:
            if not is_tensor(v):
                handed_on.append([])
                continue
            whole = inside.whole(v)
            handed_on.append(
                [(position[r], r is not whole) for r in inside.roots(v) if r in position]
            )
        return handed_on


def accesses(op: Op, functions: Mapping[str, Function]) -> Iterator[Access]:
    """Yield the tensors that `op` itself (not the ops in its blocks) reads or writes.

    Passing a tensor on, viewing it and querying its shape access no memory.
    """
    spec = op.spec
    if op.name == "call":
        yield from _call_accesses(CallView(op), functions)
    elif spec.structural or Trait.SHAPE_ONLY in spec.traits:
        return
    elif any(map(is_tensor, op.operands)):  # most ops of a kernel have only tiles
        views = bool(spec.view) and bool(op.results) and is_tensor(op.results[0])
        for param, arg in op.args.items():
            if param in spec.writes:
                how = Direction.InOut if _accumulates(op) else Direction.Out
            elif views and param == spec.view:
                continue
            else:
                how = Direction.In
            for v in values_in((arg,)):
                if is_tensor(v):
                    yield v, how


def has_effect(op: Op) -> bool:
    """Return whether a non-structural op has effects other than its results."""
    if not op.results or Trait.SUBMITS in op.spec.traits:
        return True
    return any(is_tensor(op.args.get(param)) for param in op.spec.writes)


def is_repeatable(op: Op, written: AbstractSet[Value], aliases: Aliases) -> bool:
    """Return whether an op may be moved within the control program or repeated.

    It must compute a scalar or a view from its operands alone, reading nothing in `written`.
    """
    if op.spec.structural or not op.results or has_effect(op):
        return False
    if op.spec.view is not None and is_tensor(op.results[0]):
        return True
    if op.name == "read":
        tensor = op.args["x"]
        return is_tensor(tensor) and aliases.roots(tensor).isdisjoint(written)
    return bool(op.spec.traits & (Trait.SCALAR | Trait.SHAPE_ONLY))


def _accumulates(op: Op) -> bool:
    """Return whether a store accumulates (`atomic=pl.AtomicType.Add`)."""
    atomic = op.args.get("atomic")
    return atomic is not None and getattr(atomic, "name", "") == "Add"


def _call_accesses(call: CallView, functions: Mapping[str, Function]) -> Iterator[Access]:
    directions = functions[call.callee].directions
    for operand, direction in zip(call.operands, directions):
        if is_tensor(operand):
            yield operand, direction
    for v in values_in((call.op.args["predicate"],)):
        if is_tensor(v):
            yield v, Direction.In


def infer_directions(
    fn: Function, functions: Mapping[str, Function], aliases: Aliases | None = None
) -> tuple[Direction, ...]:
    """Return the direction of each parameter: as declared, else inferred from the body's accesses.

    `aliases` is the analysis of the body, if the caller already has it.
    """
    aliases = aliases or Aliases(fn.body, functions)
    read: set[Value] = set()
    written: set[Value] = set()
    for op in walk(fn.body):
        for value, how in accesses(op, functions):
            if how is not Direction.Out:
                read |= aliases.roots(value)
            if how is not Direction.In:
                written |= aliases.roots(value)
    return tuple(
        said or _direction(p in read, p in written) for p, said in zip(fn.params, fn.declarations)
    )


def _direction(read: bool, written: bool) -> Direction:
    if not written:
        return Direction.In
    return Direction.InOut if read else Direction.Out
