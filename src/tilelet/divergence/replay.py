"""Replay a recorded run with one op changed, executing only what the change affects.

Tasks are visited in order. A task whose kernel is not edited and whose loads see no changed element
is not executed: its recorded writes are repeated. The elements that differ from the recorded run
are tracked per buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass, field
from tilelet.divergence.edits import Edit, edited_function
from tilelet.divergence.record import (
    NOBODY,
    Event,
    Followed,
    Submitted,
    Trace,
    follow,
    steps_of,
)
from tilelet.divergence.reuse import ReusedCode
from tilelet.dtypes import Array
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.state import State
from tilelet.ir.core import FunctionKind, Program
from tilelet.numerics.casts import as_computable
from tilelet.tasks.arguments import Argument, bind_arguments
from tilelet.tasks.window import Buffer, Window

_STEPS_TO_LOWER_FUNCTION = 20.0
_MOST_TIMES, _LEAST_STEPS = 8, 1000
"""Work after which an edited run is stopped: a multiple of the recorded run's, and a constant."""
_MAX_STEPS_TO_FILL = 20_000
"""The longest run whose tiles are all kept for reuse."""


@dataclass
class _Segment:
    """One task, or the code between two: its loads, its writes with their data, and its work."""

    task: Submitted | None
    index: int
    steps: float = 0.0
    reads: list[Window] = field(default_factory=list[Window])
    writes: list[tuple[Window, Array]] = field(default_factory=list[tuple[Window, Array]])


class ControlChangedError(Exception):
    """The control program is edited, or reads a changed element: everything must run again."""


class Changed:
    """The elements of each buffer that differ from the recorded run."""

    def __init__(self) -> None:
        self._masks: dict[int, NDArray[np.bool_]] = {}

    def view(self, window: Window) -> NDArray[np.bool_]:
        item = window.dtype.itemsize
        mask = self._masks.get(window.buffer.id)
        if mask is None:
            mask = np.zeros(window.buffer.nbytes, np.bool_)
            self._masks[window.buffer.id] = mask
        strides = tuple([s * item for s in window.strides])
        return np.ndarray(window.reach, np.bool_, mask, window.offset * item, strides)

    def any(self, window: Window) -> bool:
        return window.buffer.id in self._masks and bool(self.view(window).any())


class Replay:
    """A recorded run that can be replayed with edits."""

    def __init__(self, program: Program, arguments: Mapping[str, Argument]) -> None:
        self.program = program
        self.arguments = _copy_arrays(arguments)  # an edit may write into any of them
        self.trace = Trace(program)
        self.run: Followed = follow(self.trace, self.arguments)
        self._code = ReusedCode()
        self._state = State(
            program.functions, execute=True, poison=True, seed_valid=False, observer=self._code
        )
        for kernel in dict.fromkeys(task.kernel for task in self.trace.submitted.values()):
            self._state.code(kernel)
        self._filled: set[int] = set()  # tasks whose tiles are kept for reuse
        self._buffers = self._all_buffers()
        self._initial = [
            (buffer, self._initial_data(buffer, arguments)) for buffer in self._buffers
        ]
        self.parts = self._parts()
        self._all_steps = sum(part.steps for part in self.parts)
        self._most_steps = _MOST_TIMES * self._all_steps + _LEAST_STEPS
        self._output_elements = sum(a.size for a in self.run.arrays.values())

    def _all_buffers(self) -> list[Buffer]:
        found = {w.buffer.id: w.buffer for w in self.run.parameters.values()}
        for event in self.trace.events:
            for window in event.windows:
                found.setdefault(window.buffer.id, window.buffer)
        for task in self.trace.submitted.values():
            for value in task.arguments:
                if type(value) is Window:
                    found.setdefault(value.buffer.id, value.buffer)
        return list(found.values())

    def _initial_data(self, buffer: Buffer, arguments: Mapping[str, Argument]) -> Array:
        for name, window in self.run.parameters.items():
            if window.buffer is buffer:
                return np.ascontiguousarray(arguments[name]).reshape(-1).view(np.uint8).copy()
        assert buffer.data is not None
        data = np.empty_like(buffer.data)
        assert buffer.initial is not None
        data.view(buffer.initial.dtype).fill(buffer.initial[()])
        return data

    def _parts(self) -> list[_Segment]:
        parts: list[_Segment] = []
        by_task: dict[int, _Segment] = {}
        for event in self.trace.events:
            if event.task == NOBODY:
                part = _Segment(None, NOBODY)
                parts.append(part)
            elif event.task not in by_task:
                part = _Segment(self.trace.submitted[event.task], event.task)
                by_task[event.task] = part
                parts.append(part)
            else:
                part = by_task[event.task]
            _enter(part, event)
        return parts

    # Running again

    def outputs(
        self,
        edit: Edit | None,
        tasks: Collection[int] | None = None,
        rejects: Callable[[Window], bool] | None = None,
    ) -> dict[str, Array]:
        """Return the arrays of all parameters after a run with the edit.

        With `tasks`, only these are executed again, and their tiles are reused if an edit does not
        change them. `rejects` is asked about every window that a
        task has written, and stops the run with a `RejectedError`. A `UserError` is a mistake of
        the edited program.
        """
        if tasks is not None:
            self._fill(tasks)
        self._code.rejects = rejects
        self.add_steps(steps_of(self._output_elements))
        self._code.most = self._code.steps + self._most_steps
        try:
            if edit is not None and self._is_control(edit):
                raise ControlChangedError
            with self._edited(edit):
                self._again(edit, tasks)
        except ControlChangedError:
            assert edit is not None
            self._everything(edit, rejects)
        return {name: array.copy() for name, array in self.run.arrays.items()}

    def run_program(self, program: Program, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run another program on copies of the arguments; return the copies."""
        code = ReusedCode()
        code.most = self._most_steps
        given = _copy_arrays(arguments)
        try:
            with np.errstate(all="ignore"):
                Interpreter(observer=code).run(program, given)
        finally:
            self.add_steps(_STEPS_TO_LOWER_FUNCTION + code.steps)
        return given

    def _is_control(self, edit: Edit) -> bool:
        return self.trace.function[edit.op].kind is not FunctionKind.InCore

    @property
    def steps(self) -> float:
        """The work done so far."""
        return self._code.steps

    def add_steps(self, steps: float) -> None:
        self._code.steps += steps

    @contextmanager
    def _edited(self, edit: Edit | None) -> Generator[None]:
        """Apply an edit to the code within the block."""
        if edit is None:
            yield
            return
        function = self.trace.function[edit.op]
        is_exchangeable = function.kind is FunctionKind.InCore and not edit.op.spec.terminator
        if is_exchangeable:
            with self._code.exchanged(edit):
                yield
            return
        self._code.steps += _STEPS_TO_LOWER_FUNCTION
        with self._code.unexchangeable(), self._state.replacing(edited_function(function, edit)):
            yield

    def _everything(self, edit: Edit, rejects: Callable[[Window], bool] | None) -> None:
        """Run the control program, too, on the memory of the recorded run."""
        if self._all_steps <= _MAX_STEPS_TO_FILL:
            self._fill(self.trace.submitted)
        self._state.restart()
        self._reset()
        self._code.rejects = rejects
        with self._edited(edit), np.errstate(all="ignore"):
            given = {**self.arguments, **self.run.arrays}
            bound = bind_arguments(self.program, given, execute=True)
            self._state.code(self.program.entry).run(bound)

    def _fill(self, tasks: Collection[int]) -> None:
        """Execute tasks as recorded, keeping their tiles for reuse."""
        if self._filled.issuperset(tasks):
            return
        self._filled.update(tasks)
        self._code.rejects, self._code.most = None, math.inf
        self._reset()
        self._code.is_filled = True
        with np.errstate(all="ignore"):
            for part in self.parts:
                if part.task is not None and part.index in tasks:
                    self._run(part.task)
                for window, data in part.writes:
                    window.array[...] = data
        self._code.is_filled = False

    def _reset(self) -> None:
        for buffer, data in self._initial:
            assert buffer.data is not None
            buffer.data[...] = data

    def _again(self, edit: Edit | None, tasks: Collection[int] | None) -> None:
        edited = self.trace.function[edit.op].name if edit is not None else None
        changed = Changed()
        self._reset()
        with np.errstate(all="ignore"):
            for part in self.parts:
                task = part.task
                wanted = tasks is None or part.index in tasks
                touched = any(changed.any(w) for w in part.reads)
                if task is None:
                    if touched:
                        raise ControlChangedError
                elif wanted and (touched or task.kernel == edited):
                    self._execute(part, task, changed)
                    continue
                for window, data in part.writes:
                    window.array[...] = data
                    if changed.any(window):
                        changed.view(window)[...] = False

    def _execute(self, part: _Segment, task: Submitted, changed: Changed) -> None:
        self._run(task)
        for window in self._code.windows:
            changed.view(window)[...] = True
        for window, data in part.writes:
            changed.view(window)[...] = _differs(window.array, data)

    def _run(self, task: Submitted) -> None:
        self._code.windows.clear()
        self._state.block, self._state.blocks = 0, 1  # a rejected run leaves others
        self._state.run_kernel(task.kernel, task.arguments, task.blocks)


def _copy_arrays(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}


def _differs(a: Array, b: Array) -> Array:
    """Return the elements whose bits differ, treating all NaNs as equal."""
    if a.dtype.kind in "iub":
        return a != b
    x, y = as_computable(a).astype(np.float64), as_computable(b).astype(np.float64)
    return ~((x == y) | (np.isnan(x) & np.isnan(y)))


def _enter(part: _Segment, event: Event) -> None:
    part.steps += event.steps
    if event.writes:
        assert event.window is not None
        assert event.data is not None
        part.writes.append((event.window, event.data))
    elif event.window is not None:
        part.reads.append(event.window)
    part.reads += event.reads
