"""The context of a task's call in the control program: enclosing loops and runtime scopes.

The runtime's rule for an argument that a kernel only writes changed over time (`Runtime.rule`):

kernel    the kernel's own direction: writers of one tensor are not ordered
written   every written tensor created by the program is read-write: writers are ordered
loops     a tensor created by the program is read-write inside a sequential loop, or after an
          earlier writer in the same or an enclosing block; otherwise as `kernel`
params    also a caller's tensor, and one that the entry declares `pl.InOut`
disjoint  as `params`, but a sequential loop alone does not order tasks that store at offsets
          that depend on its index, whether or not these overlap
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelet.analysis.aliases import Aliases, accesses
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc
from tilelet.ir.core import Block, Direction, Function, Op, Program, Value, values_in, walk
from tilelet.ir.views import CallView, ScopeView
from tilelet.tasks.stream import Task, TaskGroup, TaskStream
from tilelet.tasks.window import Buffer


@dataclass(frozen=True, eq=False)
class Site:
    """One call in the control program.

    order       its position among all calls
    sequential  it is inside a `pl.range` or `while`
    moving      positions of operands written at offsets that depend on a sequential loop's index
    after       positions of operands that an earlier statement of the same or an enclosing block
                has written
    scope       the innermost enclosing `pl.scope()`, and the loops between it and the call
    graph       the outermost enclosing `pl.graph()`, and the loops between it and the call
    """

    order: int
    sequential: bool
    moving: frozenset[int]
    after: frozenset[int]
    scope: Around
    graph: Around


@dataclass(frozen=True, eq=False)
class Around:
    """A scope around a call, or None, and the loops between them."""

    op: Op | None = None
    loops: tuple[Op, ...] = ()

    def inside(self, loop: Op) -> Around:
        return Around(self.op, (*self.loops, loop))


class CallSites:
    def __init__(self, program: Program, rule: str) -> None:
        self.rule = rule
        self._sites: dict[tuple[str, int], Site] = {}
        self._program = program
        self._read_write = {
            p.name
            for p, said in zip(program.main.params, program.main.declarations)
            if said is Direction.InOut
        }
        for function in program.functions.values():
            if function not in program.kernels:
                self._aliases = Aliases(function.body, program.functions)
                self._visit(function.body, False, Around(), Around(), set())

    def site(self, task: Task | TaskGroup) -> Site | None:
        return self._sites.get((task.kernel, id(task.loc)))

    def direction(
        self, task: TaskGroup, position: int, direction: Direction, buffer: Buffer
    ) -> Direction:
        """Return the direction that the runtime uses for an argument."""
        if direction is not Direction.Out or self.rule == "kernel":
            return direction
        of_caller = buffer.origin != "temp"
        if self.rule in ("written", "loops") and of_caller:
            return Direction.Out
        site = self.site(task)
        ordered = self.rule == "written" or (of_caller and buffer.name in self._read_write)
        if site is not None and not ordered:
            apart = self.rule == "disjoint" and position in site.moving
            ordered = (site.sequential and not apart) or position in site.after
        return Direction.InOut if ordered else Direction.Out

    def held_until(self, tasks: TaskStream) -> NDArray[np.int64]:
        """Return for each task the last one of its `pl.scope()`, itself if it is in none."""
        until = np.arange(len(tasks), dtype=np.int64)
        follows = self._follows(tasks, lambda site: site.scope)
        ends = np.flatnonzero(~np.append(follows[1:], False))
        # A task in no scope neither follows a task nor is followed by one.
        return ends[np.searchsorted(ends, until)]

    def in_graph(self, tasks: TaskStream) -> NDArray[np.int64]:
        """Return 1 for each task of a `pl.graph()` but its first, which represents them; else 0."""
        return self._follows(tasks, lambda site: site.graph).astype(np.int64)

    def _follows(self, tasks: TaskStream, around: Callable[[Site], Around]) -> NDArray[np.bool_]:
        """Return whether each task is in the same execution of a scope as the one before it."""
        if not any(around(site).op for site in self._sites.values()):
            return np.zeros(len(tasks), np.bool_)
        sites = [self.site(group) for group in tasks.groups]
        owners, _ = tasks.places()
        # The answer depends only on the groups of the two tasks.
        pairs, which = np.unique(owners[:-1] * len(sites) + owners[1:], return_inverse=True)
        kinds: list[int] = pairs.tolist()
        same = [_same_run(sites[p // len(sites)], sites[p % len(sites)], around) for p in kinds]
        return np.append(False, np.array(same, np.bool_)[which])[: len(tasks)]

    def scope_loc(self, task: Task | TaskGroup) -> Loc | None:
        site = self.site(task)
        return site.scope.op.loc if site is not None and site.scope.op is not None else None

    def _visit(
        self,
        block: Block,
        sequential: bool,
        scope: Around,
        graph: Around,
        written: set[Value],
    ) -> None:
        """Visit a block; `written` are the buffers written so far, and is updated."""
        for op in block.ops:
            if op.name == "call":
                self._add(op, sequential, scope, graph, written)
            inner = sequential or op.name == "while"
            held, whole = scope, graph
            if op.name in ("for", "while"):
                inner = inner or (op.name == "for" and _orders(op))
                held, whole = scope.inside(op), graph.inside(op)
            elif op.name == "scope" and ScopeView(op).kind in ("runtime", "graph"):
                held = Around(op)
                if ScopeView(op).kind == "graph" and graph.op is None:
                    whole = held
            # Branches and loops start with what was written before them, each separately.
            copies = [written if op.name == "scope" else set(written) for _ in op.blocks]
            for nested, seen in zip(op.blocks, copies):
                self._visit(nested, inner, held, whole, seen)
            written.update(*copies)

    def _add(
        self,
        op: Op,
        sequential: bool,
        scope: Around,
        graph: Around,
        written: set[Value],
    ) -> None:
        view = CallView(op)
        callee = self._program.functions[view.callee]
        after: set[int] = set()
        moving: set[int] = set()
        for i, (operand, d) in enumerate(zip(view.operands, callee.directions)):
            if isinstance(operand, Value) and d is not Direction.In:
                roots = self._aliases.roots(operand)
                if roots & written:
                    after.add(i)
                written |= roots
                if sequential and self._moves(view, callee, i, scope.loops):
                    moving.add(i)
        fields = frozenset(moving), frozenset(after), scope, graph
        site = Site(len(self._sites), sequential, *fields)
        self._sites[view.callee, id(op.loc)] = site

    def _moves(self, call: CallView, callee: Function, position: int, loops: Sequence[Op]) -> bool:
        """Return whether all stores of a callee to an argument depend on loop indices."""
        variables = {
            loop.blocks[0].params[0] for loop in loops if loop.name == "for" and _orders(loop)
        }
        inside = Aliases(callee.body, self._program.functions)
        target = callee.params[position]
        stores = [
            op
            for op in walk(callee.body)
            for v, how in accesses(op, self._program.functions)
            if how is not Direction.In and target in inside.roots(v)
        ]
        for op in stores:
            offset = op.args.get("offset", op.args.get("offsets", ()))
            sources = _sources(values_in((offset,)), inside.definition)
            given = [o for p, o in zip(callee.params, call.operands) if p in sources]
            held = _sources([o for o in given if isinstance(o, Value)], self._aliases.definition)
            if variables.isdisjoint(held):
                return False
        return bool(stores)


def _orders(loop: Op) -> bool:
    """Return whether a loop is sequential; the compiler unrolls a single iteration first."""
    start, stop, step = (loop.args[name] for name in ("start", "stop", "step"))
    fixed = isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)
    single = fixed and loop.args["kind"] == "range" and 0 < stop - start <= step  # type: ignore[operator]
    return loop.args["kind"] != "parallel" and not single


def _sources(values: Iterable[Value], definition: Mapping[Value, Op]) -> set[Value]:
    """Return the values and everything that they are computed from."""
    found: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            if value in definition:
                stack.extend(definition[value].operands)
    return found


def _same_run(before: Site | None, now: Site | None, around: Callable[[Site], Around]) -> bool:
    """Return whether two consecutive tasks are in one execution of one scope."""
    if before is None or now is None:
        return False
    first, second = around(before), around(now)
    if second.op is None or first.op is not second.op:
        return False
    return now.order > before.order or any(loop in first.loops for loop in second.loops)
