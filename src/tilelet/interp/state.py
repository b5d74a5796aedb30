"""The state of a run: its options, memory, tasks, and the code of its functions."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilelet.analysis.aliases import infer_directions
from tilelet.diag.catalogue.harness import TooBig
from tilelet.diag.catalogue.oracle import WorkLimit
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.dtypes import Array, DType
from tilelet.interp.lowering import FunctionCode, Observer
from tilelet.ir.core import Direction, Function, FunctionKind, Op, Value
from tilelet.ir.types import TensorType, TileType
from tilelet.native.memory import available_memory
from tilelet.numerics.undefined import poison
from tilelet.tasks.control_points import ControlTrace, control_trace_of, sites
from tilelet.tasks.stream import ControlWrite, TaskGroup, TaskStream
from tilelet.tasks.window import Buffer, Shape, TileValue, Window, row_major

_CHECK_EVERY = 64 << 20
"""Bytes that may be allocated before free memory is looked at again."""


class State:
    """The mutable state of one run, shared by all its code.

    block, blocks  index of the running spmd block, and the number of blocks
    manual_depth   number of enclosing `pl.manual_scope()`s
    sites          data-dependent control points of kernels, numbered (`tasks.control_points`)
    runs_kernels   kernels are run, not only recorded; without `execute` by an observer that
                   computes no values
    observer       provides the step of every op; None for the language's own semantics
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        *,
        execute: bool,
        poison: bool,
        seed_valid: bool,
        observer: Observer | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self._most_bytes = most_bytes
        self.functions = functions
        self.observer = observer
        self.execute = execute
        self.allocates = execute
        self.runs_kernels = execute
        self.watcher: Any = None  # set by `interp.definedness`
        self.iterations: Any = None  # set by `interp.iterations`
        self.poison = poison
        self.seed_valid = seed_valid
        self.block_order: Sequence[int] | None = None  # None: ascending
        self.sites: dict[Op, int] = {}
        self._outcomes: dict[ControlTrace, ControlTrace] = {}
        self._codes: dict[str, FunctionCode] = {}
        self._directions: dict[str, tuple[Direction, ...]] = {}
        self._poison_tiles: dict[tuple[Shape, DType], TileValue] = {}
        self._undefined_elements: dict[DType, Array] = {}
        self._kernel_names = set(functions)
        self.restart()

    def restart(self) -> None:
        """Discard memory and tasks of a run, but keep the lowered code, for another run."""
        self.tasks = TaskStream()
        self.block = 0
        self.blocks = 1
        self.manual_depth = 0
        self._bytes_left = self._most_bytes
        self._seen: dict[int, list[int]] = {}
        self._unchecked_bytes = 0
        self._writers: dict[int, list[tuple[int, Window]]] = {}  # tasks, if they are executed

    def code(self, name: str) -> FunctionCode:
        """Return the code of a function, lowered on first use."""
        if name not in self._codes:
            function = self.functions[name]
            if function.kind is FunctionKind.InCore:
                self.sites.update(sites(function))
            self._codes[name] = FunctionCode(self, function)
        return self._codes[name]

    @contextmanager
    def replacing(self, function: Function) -> Generator[None]:
        """Run another version of a function for a while; the code of the others stays."""
        before, code = self.functions, self._codes.pop(function.name, None)
        self.functions = {**before, function.name: function}
        try:
            yield
        finally:
            self.functions = before
            self._codes.pop(function.name, None)
            if code is not None:
                self._codes[function.name] = code

    def note(self, site: int, value: int) -> None:
        """Record the outcome at a site of the running kernel."""
        self._seen.setdefault(site, []).append(value)

    def outcome(self) -> ControlTrace:
        """Return the outcomes at the sites of the kernel that has just run, and reset them."""
        if not self._seen:
            return ()
        found = control_trace_of(self._seen)
        self._seen = {}
        return self._outcomes.setdefault(found, found)

    def fresh(
        self,
        name: str,
        shape: Shape,
        dtype: DType,
        loc: Loc,
        *,
        initial: Array | None = None,
        manual_dep: bool = False,
    ) -> Window:
        """Allocate global memory, filled with `initial` or marked as never written.

        If the run does not allocate at once, that is delayed until the control program needs it.
        """
        window = self._window(name, shape, dtype, loc)
        window.buffer.initial = self._undefined(dtype) if initial is None else initial
        window.buffer.manual_dep = manual_dep
        window.buffer.known = True
        if initial is not None:
            window.buffer.defined = None
        if self.allocates:
            window.buffer.fill()
        return window

    def unwritten(self, result: Value, shape: Shape, dtype: DType) -> Window:
        """Allocate memory for a result of a task that did not run.

        The contents are undefined if the task's predicate was false, and unknown if tasks are only
        recorded.
        """
        if self.execute:
            return self.fresh(result.name, shape, dtype, result.loc)
        return self._window(result.name, shape, dtype, result.loc)

    def _window(self, name: str, shape: Shape, dtype: DType, loc: Loc) -> Window:
        nbytes = math.prod(shape) * dtype.itemsize
        data = self.memory(name, nbytes, loc) if self.allocates else None
        window = Window(Buffer(name, nbytes, data), dtype, 0, shape, row_major(shape))
        window.buffer.made = loc
        if self.watcher is not None:
            self.watcher.fresh(window)
        return window

    def memory(self, name: str, nbytes: int, loc: Loc = UNKNOWN) -> Array:
        """Allocate bytes; raise `TooBig` if this machine does not have enough."""
        self._check_memory(name, nbytes, loc)
        try:
            return np.empty(nbytes, np.uint8)
        except MemoryError:
            raise TooBig(name, nbytes, available_memory() or 0, loc) from None

    def check_tile(self, tile: Value) -> None:
        """Raise before the run if this machine cannot hold a tile."""
        assert isinstance(tile.type, TileType)
        nbytes = math.prod(tile.type.shape) * tile.type.dtype.itemsize
        if self.execute and (nbytes > _CHECK_EVERY or self._bytes_left is not None):
            self._check_memory(tile.name, nbytes, tile.loc)

    def _check_memory(self, name: str, nbytes: int, loc: Loc) -> None:
        if self._bytes_left is not None:
            if nbytes > self._bytes_left:
                raise WorkLimit(
                    f"`{name}` needs {nbytes:,} bytes", f"{self._most_bytes:,} bytes in all", loc
                )
            self._bytes_left -= nbytes
        self._unchecked_bytes += nbytes
        if self._unchecked_bytes > _CHECK_EVERY:
            self._unchecked_bytes = 0
            available = available_memory()
            if available is not None and nbytes > available:
                raise TooBig(name, nbytes, available, loc)

    def _undefined(self, dtype: DType) -> Array:
        if dtype not in self._undefined_elements:
            element = poison(dtype) if self.poison else np.zeros((), dtype.numpy)
            self._undefined_elements[dtype] = element
        return self._undefined_elements[dtype]

    def directions(self, kernel: Function) -> tuple[Direction, ...]:
        """Return the directions of a kernel's parameters: as declared, else inferred from its body.

        Before the passes have run, a parameter that is written may lack its declaration.
        """
        if kernel.name not in self._directions:
            found = infer_directions(kernel, self.functions)
            self._directions[kernel.name] = tuple(
                [f if said is Direction.In else said for said, f in zip(kernel.directions, found)]
            )
        return self._directions[kernel.name]

    def contents(self, window: Window, loc: Loc) -> Array:
        """Return the memory of a window for the control program to read or write."""
        if not window.buffer.known:
            raise DependsOnTaskData(loc, window.name)
        if window.buffer.data is None:
            window.buffer.fill()
        return window.array

    def await_writer(self, window: Window, indices: Shape) -> None:
        """Record that the control program waits for the task that last wrote an element."""
        offset = window.offset + sum(i * n for i, n in zip(indices, window.strides))
        at = offset * window.dtype.itemsize
        for task, written in reversed(self._writers.get(window.buffer.id, [])):
            if at in written.byte_range:
                self.tasks.read_result = self.tasks.read_result or window.name
                known = self.tasks.awaited.setdefault(len(self.tasks), ())
                if task not in known:
                    self.tasks.awaited[len(self.tasks)] = (*known, task)
                return

    def changed_by_control(self, window: Window) -> None:
        """Record that the control program changes a buffer."""
        if not self.execute:
            window.buffer.known = False
        self.tasks.rewritten[window.buffer.id] = None

    def written_by_control(self, window: Window, indices: Shape, value: Array) -> None:
        """Record an element that the control program writes."""
        written = self.tasks.rewritten.setdefault(window.buffer.id, [])
        if written is not None:
            offset = window.offset + sum(i * n for i, n in zip(indices, window.strides))
            written.append(ControlWrite(len(self.tasks), offset, value))

    def poison_tile(self, shape: Shape, dtype: DType) -> TileValue:
        """Return a tile with undefined contents; tiles are immutable, so one per type suffices."""
        key = (shape, dtype)
        if key not in self._poison_tiles:
            self._poison_tiles[key] = TileValue(np.full(shape, self._undefined(dtype)))
        return self._poison_tiles[key]

    def spill(self, result: Value, tile: TileValue) -> Window:
        """Store a tile that leaves its scope as `result` into new global memory.

        Only the valid region is stored, as in any store; the rest stays unwritten.
        """
        assert isinstance(result.type, TensorType)
        window = self.fresh(result.name, tile.data.shape, result.type.dtype, result.loc)
        valid = tuple(slice(0, v) for v in tile.valid)
        window.array[valid] = tile.data[valid]
        return window

    def each_block(self, blocks: int) -> Iterator[int]:
        """Yield the blocks of an spmd task; `block` and `blocks` are set to the running one."""
        self.blocks = blocks
        for block in range(blocks) if self.block_order is None else self.block_order:
            self.block = block
            yield block
        self.block, self.blocks = 0, 1

    def run_kernel(
        self, name: str, arguments: Sequence[object], blocks: int | None
    ) -> tuple[tuple[Any, ...], tuple[ControlTrace, ...]]:
        """Execute a kernel, block by block; return its values and the outcomes at its sites."""
        code = self.code(name)
        if blocks is None:
            return code.run(arguments), (self.outcome(),)
        values: tuple[object, ...] = ()
        outcomes: list[ControlTrace] = []
        for _ in self.each_block(blocks):
            values = code.run(arguments)
            outcomes.append(self.outcome())
        return values, tuple(outcomes)

    def unique_kernel_name(self, base: str) -> str:
        name, n = base, 0
        while name in self._kernel_names:
            n += 1
            name = f"{base}_{n}"
        self._kernel_names.add(name)
        return name

    def submit(self, group: TaskGroup, values: Sequence[Any], deps: tuple[int, ...] = ()) -> int:
        """Record a task and return its id."""
        for position in group.written:
            window = values[position]
            if self.execute:
                self._writers.setdefault(window.buffer.id, []).append((len(self.tasks), window))
            else:
                window.buffer.known = False
        return self.tasks.add(group, values, deps)
