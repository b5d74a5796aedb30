"""Which loop iterations each task belongs to: a mode that records tasks and runs no kernel."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from tilelet.interp import interpreter  # noqa: F401 - fills `LOWERINGS`
from tilelet.interp.lowering import Frame, Lower, Lowering, Step
from tilelet.interp.state import State
from tilelet.ir.core import FunctionKind, Op, Program
from tilelet.ir.views import CallView, ForView
from tilelet.tasks.arguments import Argument, bind_arguments
from tilelet.tasks.stream import EnoughTasksError, TaskGroup, TaskStream

Around = tuple[tuple[Op, int], ...]
"""Loops, outermost first, each with the value of its index."""


class Iterations:
    """The loops around every task, outermost first, flattened.

    ptr      for task `t`, `number[ptr[t] : ptr[t + 1]]` are positions in `loops`, and the same
             slice of `index` holds the values of the loop indices
    """

    def __init__(self) -> None:
        self.loops: list[Op] = []
        self.ptr = array("q", [0])
        self.number = array("q")
        self.index = array("q")
        self.prefix: Around = ()
        self.static: list[tuple[Op, int]] = []
        self._numbers: dict[Op, int] = {}

    def around(self, task: int) -> tuple[tuple[str, int], ...]:
        """Return name and index value of each loop around a task."""
        span = range(self.ptr[task], self.ptr[task + 1])
        return tuple((ForView(self.loops[self.number[i]]).index.name, self.index[i]) for i in span)

    def add(self, loops: Around) -> None:
        for op, value in loops:
            if op not in self._numbers:
                self._numbers[op] = len(self.loops)
                self.loops.append(op)
            self.number.append(self._numbers[op])
            self.index.append(value)
        self.ptr.append(len(self.index))


def find_iterations(
    program: Program, arguments: Mapping[str, Argument], most: int | None = None
) -> Iterations:
    """Record at most `most` tasks again, with the loops around each.

    May raise `DependsOnTaskData`.
    """
    found = Iterations()
    state = State(
        program.functions, execute=False, poison=True, seed_valid=False, observer=_Tracking()
    )
    state.iterations = found
    state.tasks = _Counted()
    state.tasks.most = most
    try:
        state.code(program.entry).run(bind_arguments(program, arguments, execute=False))
    except EnoughTasksError:
        count = len(state.tasks)
        del found.ptr[count + 1 :]
    return found


class _Counted(TaskStream):
    """A task list that only counts: the tasks have been recorded before."""

    def add(self, group: TaskGroup, values: Sequence[object], deps: tuple[int, ...] = ()) -> int:
        del group, values, deps
        return self.count()


def _for(low: Lowering, op: Op) -> Step:
    found: Iterations = low.state.iterations
    # The body is lowered inside, because its calls need the slot of the index.
    index = ForView(op).index
    found.static.append((op, -1))
    place = len(found.static) - 1
    low.on_define(index, lambda slot: found.static.__setitem__(place, (op, slot)))
    step = low.plain_op(op)
    found.static.pop()
    return step


def _call(low: Lowering, op: Op) -> Step:
    found: Iterations = low.state.iterations
    around = tuple(found.static)
    step = low.plain_op(op)
    kernel = low.state.functions[CallView(op).callee].kind is FunctionKind.InCore

    def tracked(frame: Frame) -> None:
        here = tuple([(loop, frame[slot]) for loop, slot in around])
        if kernel:
            found.add((*found.prefix, *here))
            step(frame)
            return
        outer, found.prefix = found.prefix, (*found.prefix, *here)
        static, found.static = found.static, []
        step(frame)
        found.prefix, found.static = outer, static

    return tracked


def _join(low: Lowering, op: Op) -> Step:
    found: Iterations = low.state.iterations
    step = low.plain_op(op)

    def tracked(frame: Frame) -> None:
        found.add(found.prefix)
        step(frame)

    return tracked


_TRACKED: dict[str, Lower] = {"for": _for, "call": _call, "system.task_dummy": _join}


class _Tracking:
    """The observer of this mode."""

    def lower(self, low: Lowering, op: Op) -> Step:
        return _TRACKED[op.name](low, op) if op.name in _TRACKED else low.plain_op(op)
