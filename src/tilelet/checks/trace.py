"""The windows that each statement of a task accesses.

The kernel is followed without computing, unless its control flow depends on data of other tasks;
then these tasks are executed, if the run is small enough.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tilelet.checks.contents import Contents
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import plural
from tilelet.interp.cells import NeedsValuesError, Watcher
from tilelet.interp.definedness import watching_state
from tilelet.interp.replay import Replay, UnknownContentsError
from tilelet.ir.core import Op, Program
from tilelet.tasks.stream import TaskStream, write_until
from tilelet.tasks.window import Buffer, Window, window_of_array


@dataclass(frozen=True)
class Touch:
    """One access of a statement to memory.

    contents  identifies what it writes, if that was asked for
    """

    loc: Loc
    op: str
    window: Window
    writes: bool
    atomic: bool
    block: int
    contents: str | None = None

    def disturbs(self, other: Touch) -> bool:
        """Return whether the order of the two accesses matters."""
        if not (self.writes or other.writes) or (self.atomic and other.atomic):
            return False
        return self.window.overlaps(other.window)


MAX_TASKS = 4096
MAX_BYTES = 1 << 28
"""Limits above which the interpreter would take minutes, so that nothing is executed."""


def is_small(tasks: TaskStream) -> bool:
    """Return whether the interpreter can execute the tasks in reasonable time."""
    return len(tasks) <= MAX_TASKS and _memory(tasks) <= MAX_BYTES


def size_text(tasks: TaskStream) -> str:
    """Return the figures that decide whether a run is small."""
    return f"{plural(len(tasks), 'task')} with {_memory(tasks) >> 20} MiB"


def _memory(tasks: TaskStream) -> int:
    return sum(buffer.nbytes for buffer in tasks.regions.buffers)


class Tracer:
    """Traces single tasks of a recorded run.

    execute   execute tasks whose accesses depend on results of others
    contents  identify what stores write
    """

    def __init__(
        self,
        program: Program,
        tasks: TaskStream,
        arguments: Mapping[str, object],
        *,
        execute: bool = False,
        contents: bool = False,
    ) -> None:
        self._program = program
        self._execute = execute and is_small(tasks)
        self._tasks = tasks
        self._arguments = arguments
        self._found: list[Touch] = []
        watcher = Watcher(touch=self._note)
        self._contents = Contents(program.functions, tasks) if contents else None
        self._state = (
            self._contents.watch(watcher)
            if self._contents is not None
            else watching_state(program.functions, watcher, values=False)
        )
        self._params = {f.name: len(f.params) for f in program.kernels}
        written = {r for g in tasks.groups for r in _written_positions(g)}
        self._written = {tasks.regions.buffers[tasks.regions.buffer[r]].id for r in written}
        self._buffers: dict[int, Buffer] = {}
        self._applied: dict[int, int] = {}
        self._known: dict[int, list[Touch] | None] = {}

    def touches(self, task: int) -> list[Touch] | None:
        """Return the accesses of a task in order, or None if they depend on unknown values."""
        if task not in self._known:
            found = self._follow(task)
            if found is None and self._execute:
                found = self._executed.touches(task)
            self._known[task] = found
        return self._known[task]

    @cached_property
    def _executed(self) -> _Executed:
        return _Executed(self._program, self._tasks, self._arguments)

    def _follow(self, index: int) -> list[Touch] | None:
        task = self._tasks[index]
        if not task.kernel or task.ran is False:
            return []
        values = [self._with_data(v, index) if isinstance(v, Window) else v for v in task.values]
        self._found = []
        if self._contents is not None:
            self._contents.start(index)
        try:
            with np.errstate(all="ignore"):
                arguments = values[: self._params[task.kernel]]
                self._state.run_kernel(task.kernel, arguments, task.blocks)
        except (NeedsValuesError, UserError):
            return None
        return self._found

    def _note(self, op: Op, window: Window, writes: bool, atomic: bool) -> None:
        if 0 not in window.reach:
            made = None if self._contents is None else self._contents.note(window, writes=writes)
            touch = Touch(op.loc, op.name, window, writes, atomic, self._state.block, made)
            self._found.append(touch)

    def _with_data(self, window: Window, index: int) -> Window:
        """Return the window as task `index` finds it, with contents if no task changes them."""
        number = window.buffer.id
        writes = self._tasks.rewritten.get(number) or ()
        done = self._applied.get(number, 0)
        if number not in self._buffers or (done and writes[done - 1].tasks > index):
            self._buffers[number], done = self._initial(window), 0
        made = self._buffers[number]
        if made.known and writes:
            self._applied[number] = write_until(writes, done, index, made)
        window.buffer = made
        return window

    def _initial(self, window: Window) -> Buffer:
        """Return a buffer as it was before the run, with contents if no task changes them."""
        buffer, rewritten = window.buffer, self._tasks.rewritten.get(window.buffer.id, ())
        made = copy.copy(buffer)
        made.defined = None
        if buffer.id in self._written or rewritten is None:
            return made
        if buffer.origin == "param":
            given = self._arguments.get(buffer.name)
            if given is not None:
                array = np.array(given) if rewritten else np.asarray(given)
                made.data = window_of_array(buffer.name, array, window.dtype).buffer.data
                made.known = True
        elif rewritten and made.initial is not None:
            made.fill()
            made.known = True
        return made


def _written_positions(group: Any) -> list[int]:
    places = [group.tensors.index(p) for p in group.written]
    width = len(group.tensors)
    return [group.regions[row * width + p] for row in range(len(group)) for p in places]


class _Executed:
    """Accesses of executed tasks."""

    def __init__(
        self, program: Program, tasks: TaskStream, arguments: Mapping[str, object]
    ) -> None:
        watcher = Watcher(touch=self._note)
        state = watching_state(program.functions, watcher, values=True)
        self._replay = Replay(program, tasks, arguments, state)
        self._found: dict[int, list[Touch]] = {}

    def touches(self, task: int) -> list[Touch] | None:
        """Return the accesses of a task; tasks must be requested in order."""
        if task not in self._found:
            try:
                self._replay.execute_with_needed(task)
            except (UnknownContentsError, NeedsValuesError, UserError, MemoryError):
                return None
        return self._found.get(task, [])

    def _note(self, op: Op, window: Window, writes: bool, atomic: bool) -> None:
        buffer = self._replay.recorded(window.buffer)
        if buffer is None or 0 in window.reach:
            return
        mine = copy.copy(window)
        mine.buffer = buffer
        touch = Touch(op.loc, op.name, mine, writes, atomic, self._replay.state.block)
        self._found.setdefault(self._replay.running, []).append(touch)
