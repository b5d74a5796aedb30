"""Suspendable functions: generators over the interpreter's closures.

A function that contains suspending ops becomes nested generators along the blocks that lead to
those ops; everything else stays plain interpreter steps or, in kernels of a run with native code,
regions that are compiled. A strand is thus a Python generator: while it waits it holds only its
frame, and a run needs one thread, whatever the schedule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from tilelet.diag.catalogue.scopes import ZeroStep
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.ir.core import Block, Function, FunctionKind, Op, Value
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView, ScopeView, yielded_values
from tilelet.ranks.regions import with_inner
from tilelet.ranks.requests import Request

if TYPE_CHECKING:
    from tilelet.ranks.rank import RankState

Suspension = Generator[Request, None, None]
Routine = Callable[[Frame], Suspension]
LowerRoutine = Callable[[Lowering, Op], Routine]
Suspends = Callable[[Op], "LowerRoutine | None"]


class ResumableBlock:
    """A block that runs as a generator.

    parts  whether each suspends, its code, and the slots that no later part reads
    """

    __slots__ = ("_parts", "result")

    def __init__(
        self,
        parts: Sequence[tuple[bool, Any, Sequence[int]]],
        result: Callable[[Frame], tuple[Any, ...]],
    ) -> None:
        self._parts = tuple(parts)
        self.result = result

    def run(self, frame: Frame) -> Suspension:
        for suspends, part, dead in self._parts:
            if suspends:
                yield from part(frame)
            else:
                part(frame)
            for slot in dead:
                frame[slot] = None


def _last_uses(block: Block) -> dict[Op, list[Value]]:
    """Return the tensors and tiles defined in a block that an op of it is the last to use.

    They need not stay in memory until the function ends.
    """
    last: dict[Value, Op] = {}
    for op in block.ops:
        last.update(dict.fromkeys([v for v in op.results if isinstance(v.type, _MEMORY)], op))
        for inner in with_inner(op):
            for v in inner.operands:
                if v in last:
                    last[v] = op
    found: dict[Op, list[Value]] = {}
    for value, op in last.items():
        if op is not block.terminator:
            found.setdefault(op, []).append(value)
    return found


_MEMORY = (TensorType, TileType)


class ResumableFunction:
    """A function that can be started any number of times."""

    def __init__(self, state: RankState, function: Function, suspends: Suspends) -> None:
        self._low = Lowering(state, function)
        self._state = state
        self._suspends = suspends
        is_kernel = function.kind is FunctionKind.InCore
        self._regions = state.world.regions(function.name) if is_kernel else None
        self._params = self._low.define(function.params)
        self._body = self._block(function.body)

    def start(self, arguments: Sequence[object]) -> Suspension:
        frame = self._low.template.copy()
        frame[self._params] = arguments
        return self._body.run(frame)

    def _block(self, block: Block) -> ResumableBlock:
        low, dying = self._low, _last_uses(block)
        parts: list[tuple[bool, Routine | Step, Sequence[int]]] = []
        for stays, group in itertools.groupby(block.ops[:-1], self._is_whole):
            ops = list(group)
            if stays and self._regions is not None and self._regions.compute(ops):
                parts.append((False, self._regions.code(low, ops), ()))
            else:
                for op in ops:
                    suspends, code = self._part(op, stays)
                    parts.append((suspends, code, [low.slot(v) for v in dying.get(op, ())]))
        return ResumableBlock(parts, low.get(yielded_values(block)))

    def _is_whole(self, op: Op) -> bool:
        """Whether an op runs in one piece, natively if there are regions."""
        regions = self._regions
        return not any(
            self._suspends(inner) or (regions is not None and regions.excludes(inner))
            for inner in with_inner(op)
        )

    def _part(self, op: Op, is_whole: bool) -> tuple[bool, Routine | Step]:
        own = self._suspends(op)
        if own is not None:
            return True, own(self._low, op)
        if is_whole or not op.blocks:
            return False, self._low.op(op)
        nested = {"for": self._for, "while": self._while, "if": self._if, "scope": self._scope}
        return True, nested[op.name](op)

    def _for(self, op: Op) -> Routine:
        low, view, state = self._low, ForView(op), self._state
        start, stop, stride = (low.slot(b) for b in view.bounds)
        init = low.get(view.init)
        index = low.define((view.index,)).start
        carried = low.define(view.carried)
        body = self._block(view.body)
        results = low.define(op.results)
        name, loc = view.index.name, op.loc

        def routine(frame: Frame) -> Suspension:
            if not frame[stride]:
                raise ZeroStep(loc)
            loops = state.strand.loops
            values = init(frame)
            loops.append((name, 0))
            for i in range(frame[start], frame[stop], frame[stride]):
                frame[index] = i
                frame[carried] = values
                loops[-1] = (name, i)
                yield from body.run(frame)
                values = body.result(frame)
            loops.pop()
            frame[results] = values

        return routine

    def _while(self, op: Op) -> Routine:
        low = self._low
        cond_block, body_block = op.blocks
        init = low.get(op.args["init"])
        cond_params = low.define(cond_block.params)
        cond = self._block(cond_block)
        params = low.define(body_block.params)
        body = self._block(body_block)
        results = low.define(op.results)

        def routine(frame: Frame) -> Suspension:
            values = init(frame)
            while True:
                frame[cond_params] = values
                yield from cond.run(frame)
                if not cond.result(frame)[0]:
                    break
                frame[params] = values
                yield from body.run(frame)
                values = body.result(frame)
            frame[results] = values

        return routine

    def _if(self, op: Op) -> Routine:
        low = self._low
        cond = low.slot(op.args["cond"])
        then, orelse = (self._block(b) for b in op.blocks)
        results = low.define(op.results)

        def routine(frame: Frame) -> Suspension:
            taken = then if frame[cond] else orelse
            yield from taken.run(frame)
            frame[results] = taken.result(frame)

        return routine

    def _scope(self, op: Op) -> Routine:
        body = self._block(op.blocks[0])
        results = self._low.define(op.results)
        manual = 1 if ScopeView(op).kind == "manual" else 0
        state = self._state

        def routine(frame: Frame) -> Suspension:
            state.manual_depth += manual
            yield from body.run(frame)
            frame[results] = body.result(frame)
            state.manual_depth -= manual

        return routine
