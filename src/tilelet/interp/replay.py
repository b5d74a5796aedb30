"""Replay recorded tasks without changing the caller's arrays.

`find_control_traces` executes, in task order, only what is needed to learn the data-dependent
control flow of the kernels of a recorded run: of each such kernel only the part that decides it.
`Replay` executes all tasks, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.diag.catalogue.harness import TooBig
from tilelet.dtypes import Array, DType
from tilelet.interp.lowering import FunctionCode
from tilelet.interp.state import State
from tilelet.ir.core import Direction, Program
from tilelet.numerics.undefined import poison
from tilelet.tasks.control_points import ControlTrace, Decision, decision, sites
from tilelet.tasks.stream import TaskGroup, TaskStream, write_until
from tilelet.tasks.window import Buffer, TileValue, Window, window_of_array

Ints = NDArray[np.int64]


def find_control_traces(program: Program, tasks: TaskStream, inputs: Mapping[str, object]) -> None:
    """Add control traces to the groups of `tasks`; `inputs` are arrays by parameter name."""
    data_dependent = {f.name for f in program.kernels if sites(f)}
    wanted = [
        (index, group, row)
        for group in tasks.groups
        if group.kernel in data_dependent and group.ran is not False
        for row, index in enumerate(group.indices)
        if row not in group.outcomes
    ]
    if not wanted:
        return
    # One pass in task order: a task must not see what later tasks write.
    replay = _Replay(program, tasks, inputs)
    with np.errstate(all="ignore"):
        for index, group, row in sorted(wanted, key=lambda entry: entry[0]):
            try:
                found = replay.outcomes(index)
            except (UnknownContentsError, TooBig, MemoryError):
                continue
            if any(found):
                group.outcomes[row] = found


class UnknownContentsError(Exception):
    """Data that would have to be read was not given, or is not in the record."""


class _Replay:
    def __init__(
        self,
        program: Program,
        tasks: TaskStream,
        inputs: Mapping[str, object],
        state: State | None = None,
    ) -> None:
        self.program = program
        self.tasks = tasks
        self.inputs = inputs
        self.state = state or State(program.functions, execute=True, poison=True, seed_valid=False)
        self.running = -1
        self._executed: dict[int, tuple[ControlTrace, ...]] = {}
        self._failed: set[int] = set()
        self._memory: dict[int, Buffer] = {}
        self._control_writes: dict[int, int] = {}
        self._own: set[int] = set()
        self._deciding: dict[str, tuple[Decision, FunctionCode] | None] = {}
        self._uses = _Uses(tasks)

    def outcomes(self, index: int) -> tuple[ControlTrace, ...]:
        """Return the outcome at each site of a task, block by block."""
        group, row = self._place(index)
        known = self._decision(group.kernel)
        if known is None:
            self._execute_all({index, *self._uses.needed_by(index, self._executed)})
            return self._executed[index]
        part, code = known
        regions = {p: group.regions[self._at(group, row, p)] for p in part.reads}
        self._execute_all(self._uses.writers(index, regions.values(), self._executed))
        for region in regions.values():
            self._buffer(region, index)
        arguments = self._arguments(group, row)
        found: list[ControlTrace] = []
        for _ in self.state.each_block(group.blocks or 1):
            code.run(arguments)
            found.append(self.state.outcome())
        return tuple(found)

    def _place(self, index: int) -> tuple[TaskGroup, int]:
        owners, rows = self.tasks.places()
        return self.tasks.groups[int(owners[index])], int(rows[index])

    def _at(self, group: TaskGroup, row: int, position: int) -> int:
        return row * len(group.tensors) + group.tensors.index(position)

    def _decision(self, kernel: str) -> tuple[Decision, FunctionCode] | None:
        if kernel not in self._deciding:
            part = decision(self.program.functions[kernel])
            if part is not None:
                self.state.sites.update(part.sites)
                self._deciding[kernel] = part, FunctionCode(self.state, part.function)
            else:
                self._deciding[kernel] = None
        return self._deciding[kernel]

    # Tasks

    def _execute_all(self, indices: set[int]) -> None:
        for index in sorted(indices):
            if index not in self._executed:
                self._execute(index)

    def _execute(self, index: int) -> None:
        group, row = self._place(index)
        if index in self._failed or group.ran is None:
            raise UnknownContentsError
        # Unless the task completes, the contents of its outputs are unknown.
        self._failed.add(index)
        self.running = index
        if group.kernel and group.ran:
            for position in group.tensors:
                region = group.regions[self._at(group, row, position)]
                self._buffer(region, index, group.directions[position])
            arguments = self._arguments(group, row)
            params = len(self.program.functions[group.kernel].params)
            values, found = self.state.run_kernel(group.kernel, arguments[:params], group.blocks)
            _spill(values, arguments[params:])
            self._executed[index] = found
        else:
            self._executed[index] = ()
        self._failed.remove(index)

    def _arguments(self, group: TaskGroup, row: int) -> list[Any]:
        values: list[Any] = list(self.tasks[group.indices[row]].values)
        for position in group.tensors:
            window: Window = values[position]
            region = group.regions[self._at(group, row, position)]
            window.buffer = self._memory.get(self.tasks.regions.buffer[region], window.buffer)
        return values

    # Memory

    def _buffer(self, region: int, index: int, direction: Direction = Direction.In) -> None:
        """Provide the memory of a task's window, as a private copy if it will be written."""
        number = self.tasks.regions.buffer[region]
        if number not in self._memory:
            self._memory[number] = self._fetch_buffer(number, region, direction)
        self._apply_control_writes(number, index)
        if direction is not Direction.In and number not in self._own:
            buffer = self._memory[number]
            assert buffer.data is not None
            buffer.data = buffer.data.copy()
            self._own.add(number)

    def _apply_control_writes(self, number: int, index: int) -> None:
        """Write what the control program writes to a buffer before it submits task `index`."""
        writes = self.tasks.rewritten.get(self.tasks.regions.buffers[number].id)
        if not writes:
            return
        done = self._control_writes.get(number, 0)
        if done and writes[done - 1].tasks > index:
            # The control program waits for a task that uses what it writes.
            raise UnknownContentsError
        if done == len(writes) or writes[done].tasks > index:
            return
        buffer = self._memory[number]
        if number not in self._own:
            assert buffer.data is not None
            buffer.data = buffer.data.copy()
            self._own.add(number)
        self._control_writes[number] = write_until(writes, done, index, buffer)

    def _fetch_buffer(self, number: int, region: int, direction: Direction) -> Buffer:
        """Return the memory as it was before the first task."""
        recorded = self.tasks.regions.buffers[number]
        dtype = self.tasks.regions.window(region).dtype
        if self.tasks.rewritten.get(recorded.id, ()) is None:
            raise UnknownContentsError
        if recorded.origin == "param" and recorded.name in self.inputs:
            array = np.asarray(self.inputs[recorded.name])
            return window_of_array(recorded.name, array, dtype).buffer
        if recorded.origin == "param" and direction is not Direction.Out:
            raise UnknownContentsError
        initial = poison(dtype) if recorded.initial is None else recorded.initial
        made = Buffer(recorded.name, recorded.nbytes, initial=initial)
        made.data = self.state.memory(recorded.name, recorded.nbytes)
        made.fill()
        self._own.add(number)
        return made


def _spill(values: Sequence[object], windows: Sequence[Window]) -> None:
    """Store the tiles that a kernel returns into their windows; see `Submission`."""
    tiles = list({id(v): v for v in values if type(v) is TileValue}.values())
    for tile, window in zip(tiles, windows):
        valid = tuple(slice(0, n) for n in tile.valid)
        window.array[valid] = tile.data[valid]


class Replay(_Replay):
    """Executes the tasks of a record in an order chosen by the caller, with `state` if given.

    block_order  order of the blocks, for some spmd tasks
    running      the task being executed
    """

    def __init__(
        self,
        program: Program,
        tasks: TaskStream,
        inputs: Mapping[str, object],
        state: State | None = None,
    ) -> None:
        super().__init__(program, tasks, inputs, state)
        self.block_order: dict[int, Sequence[int]] = {}
        self._overlapped: set[int] = set()

    def execute(self, index: int) -> None:
        """Execute a task."""
        self.state.block_order = self.block_order.get(index)
        with np.errstate(all="ignore"):
            if index in self._overlapped:
                self._execute_blocks_at_once(index)
            else:
                self._execute(index)
        self.state.block_order = None

    def execute_with_needed(self, index: int) -> None:
        """Execute a task after the tasks it needs, all in program order."""
        if self._executed and index < max(self._executed):
            raise UnknownContentsError
        with np.errstate(all="ignore"):
            self._execute_all({index, *self._uses.needed_by(index, self._executed)})

    def recorded(self, buffer: Buffer) -> Buffer | None:
        """Return the buffer of the record whose contents are in a buffer of this run."""
        numbers = [n for n, mine in self._memory.items() if mine is buffer]
        return self.tasks.regions.buffers[numbers[0]] if numbers else None

    def overlap_blocks(self, index: int) -> None:
        """Let all blocks of a task read the memory as it was before any of them wrote."""
        self._overlapped.add(index)

    def execute_overlapped(self, first: int, second: int) -> None:
        """Run two tasks as if concurrently.

        The second reads the memory as it was before the first wrote, and writes last.
        """
        self._prepare(first)
        self._prepare(second)
        before = self._snapshot()
        self.execute(second)
        after = self._snapshot()
        self._restore(before)
        self.execute(first)
        self._write_over(before, after)

    def ignores(self, index: int, spoilt: Sequence[tuple[Window, Ints]], byte: int) -> bool:
        """Execute a task; return whether it writes the same if it finds `byte` in some elements.

        spoilt  windows of the record, with offsets of elements in their buffers
        """
        self._prepare(index)
        numbers = {b.id: n for n, b in enumerate(self.tasks.regions.buffers)}
        for number in {numbers[window.buffer.id] for window, _ in spoilt} - self._own:
            buffer = self._memory[number]
            assert buffer.data is not None
            buffer.data = buffer.data.copy()
            self._own.add(number)
        before = self._snapshot()
        self.execute(index)
        usual = self._snapshot()
        self._restore(before)
        kept: list[tuple[Array, Ints, Array, np.generic]] = []
        for window, offsets in spoilt:
            data = self._memory[numbers[window.buffer.id]].data
            assert data is not None
            elements = data.view(f"u{window.dtype.itemsize}")
            filler = np.full(window.dtype.itemsize, byte, np.uint8).view(elements.dtype)[0]
            kept.append((elements, offsets, elements[offsets].copy(), filler))
            elements[offsets] = filler
        self.execute(index)
        for elements, offsets, contents, filler in reversed(kept):
            still = elements[offsets] == filler
            elements[offsets[still]] = contents[still]
        found = self._snapshot()
        self._restore(usual)
        return all(np.array_equal(data, found[number]) for number, data in usual.items())

    def contents(self) -> dict[str, Array]:
        """Return the parameters changed by tasks, as arrays of their first window's elements."""
        found: dict[str, Array] = {}
        for number in sorted(self._own):
            recorded = self.tasks.regions.buffers[number]
            buffer = self._memory[number]
            if recorded.origin != "param" or buffer.data is None:
                continue
            given = self.inputs.get(recorded.name)
            if given is not None:
                array = np.asarray(given)
                whole = window_of_array(recorded.name, array, self._dtype(number))
                whole.buffer = buffer
                found[recorded.name] = whole.array.copy()
        return found

    def _dtype(self, number: int) -> DType:
        table = self.tasks.regions
        return table.window(table.buffer.index(number)).dtype

    def _prepare(self, index: int) -> None:
        """Provide the memory of a task's arguments."""
        group, row = self._place(index)
        for position in group.tensors:
            region = group.regions[self._at(group, row, position)]
            self._buffer(region, index, group.directions[position])

    def _snapshot(self) -> dict[int, Array]:
        kept = {n: self._memory[n].data for n in self._own}
        return {n: data.copy() for n, data in kept.items() if data is not None}

    def _restore(self, snapshot: Mapping[int, Array]) -> None:
        for number, data in snapshot.items():
            buffer = self._memory[number]
            assert buffer.data is not None
            buffer.data[...] = data

    def _write_over(self, before: Mapping[int, Array], after: Mapping[int, Array]) -> None:
        """Write the elements that differ between `before` and `after`."""
        for number, data in after.items():
            changed = data != before[number]
            buffer = self._memory[number]
            assert buffer.data is not None
            buffer.data[changed] = data[changed]

    def _execute_blocks_at_once(self, index: int) -> None:
        self._prepare(index)
        before = self._snapshot()
        group, _ = self._place(index)
        results: list[dict[int, Array]] = []
        for block in range(group.blocks or 1):
            self._restore(before)
            self.state.block_order = (block,)
            self._execute(index)
            results.append(self._snapshot())
        self._restore(before)
        for after in results:
            self._write_over(before, after)


class _Uses:
    """The accesses to each buffer, in task order."""

    def __init__(self, tasks: TaskStream) -> None:
        self._regions = tasks.regions
        self._windows: dict[int, Window] = {}
        task, region, writes = ([np.zeros(0, np.int64)] for _ in range(3))
        for group in tasks.groups:
            count = len(group)
            for position, column in zip(group.tensors, group.region_columns()):
                task.append(np.array(group.indices, np.int64))
                region.append(column)
                writes.append(np.full(count, position in group.written, np.int64))
        buffer_of = np.array(tasks.regions.buffer, np.int64)
        task, region, writes = (np.concatenate(parts) for parts in (task, region, writes))
        order = np.lexsort((task, buffer_of[region]))
        self._task, self._region, self._writes = task[order], region[order], writes[order]
        self._start = np.searchsorted(
            buffer_of[self._region], np.arange(len(tasks.regions.buffers) + 1)
        )
        self._by_task = np.argsort(self._task, kind="stable")
        self._task_start = np.searchsorted(self._task[self._by_task], np.arange(len(tasks) + 1))

    def writers(self, index: int, regions: Iterable[int], done: Mapping[int, object]) -> set[int]:
        """Return all tasks that must run before task `index` can read these windows."""
        needs = [(region, index, False) for region in regions]
        return self._closure(needs, done)

    def needed_by(self, index: int, done: Mapping[int, object]) -> set[int]:
        """Return all tasks that must run before task `index`."""
        return self._closure(self._needs(index), done)

    def _needs(self, index: int) -> list[tuple[int, int, bool]]:
        mine = self._by_task[self._task_start[index] : self._task_start[index + 1]]
        return [(int(self._region[u]), index, bool(self._writes[u])) for u in mine]

    def _closure(self, needs: list[tuple[int, int, bool]], done: Mapping[int, object]) -> set[int]:
        found: set[int] = set()
        while needs:
            region, before, writes = needs.pop()
            for task in self._conflicts(region, before, writes):
                if task not in done and task not in found:
                    found.add(task)
                    needs += self._needs(task)
        return found

    def _conflicts(self, region: int, before: int, writes: bool) -> list[int]:
        """Return the tasks before `before` that conflict with an access to the window."""
        buffer = self._regions.buffer[region]
        first, end = int(self._start[buffer]), int(self._start[buffer + 1])
        end = first + int(np.searchsorted(self._task[first:end], before))
        uses = np.arange(first, end)
        if not writes:
            uses = uses[self._writes[first:end] > 0]
        others = self._region[uses]
        meeting = [r for r in np.unique(others).tolist() if self._meet(region, r)]
        return self._task[uses[np.isin(others, meeting)]].tolist()

    def _meet(self, a: int, b: int) -> bool:
        return a == b or self._window(a).overlaps(self._window(b))

    def _window(self, region: int) -> Window:
        if region not in self._windows:
            self._windows[region] = self._regions.window(region)
        return self._windows[region]
