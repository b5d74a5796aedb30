"""Runs that record what every statement did: its task, iteration and writes.

`Writes` tracks only addresses: kernels compute nothing, so real sizes take seconds. `Trace`
executes everything and also keeps every tile, and the events that each was computed from.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.analysis.aliases import accesses, infer_directions, is_tensor
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc
from tilelet.dtypes import Argument, Arguments, Array
from tilelet.interp.compute import Operands
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.movement import taken_window, written_window
from tilelet.interp.state import State
from tilelet.ir.core import (
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    values_in,
)
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import CallView, ForView, carried_values, yielded_values
from tilelet.ops.apply import Application
from tilelet.tasks.window import Shape, TileValue, Window

NOBODY = -1
"""The event that stands for the contents before the run."""

MAX_BYTES = 2 << 30
"""Limit on the bytes of tiles that a trace keeps."""

STEPS_PER_SECOND = 24_000
"""Steps of work in one second of a budget, about what one core does (20,000 to 60,000).

Budgets are given in seconds and counted in steps, so that the answer does not depend on the load.
"""

_ELEMENTS_PER_STEP = 1 << 14


class UnknownAddressError(Exception):
    """Addresses depend on data that was not computed."""


class TraceTooBigError(Exception):
    """A trace would keep more tiles than `MAX_BYTES`, or take more steps than its limit."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A task: its kernel, the call that submitted it, and the loops around that call."""

    kernel: str
    loc: Loc
    iteration: tuple[tuple[str, int], ...]
    arguments: tuple[Any, ...] = ()
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of a statement.

    task       index of the task, NOBODY in the control program
    at         values of the loops around the statement, outermost first
    inputs     numbers of the events whose results it used
    tile       its result, if that is a tile
    window     the global memory that it wrote or loaded, if any
    writes     whether it wrote the window
    data       the contents of the window afterwards
    reads      other windows that it read
    undefined  the box of `window` that it loaded although it was never written: start and stop
    """

    op: Op
    task: int
    block: int
    at: tuple[int, ...]
    inputs: tuple[int, ...]
    tile: TileValue | None
    window: Window | None
    writes: bool
    data: Array | None = None
    reads: tuple[Window, ...] = ()
    undefined: tuple[Shape, Shape] | None = None

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.reads if self.window is None else (self.window, *self.reads)

    @property
    def steps(self) -> float:
        """The work of the statement: one step to dispatch it, and its elements."""
        made = self.tile.data.size if self.tile is not None else 0
        return steps_of(max([made, *(math.prod(w.shape) for w in self.windows)]))


def steps_of(elements: int) -> float:
    """Return the work of one op on this many elements."""
    return 1 + elements / _ELEMENTS_PER_STEP


class Origins:
    """For every element of a buffer the event that wrote it last."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, NDArray[np.int32]]] = {}

    def view(self, window: Window) -> NDArray[np.int32]:
        """Return the entries of a window's elements as a writable view."""
        item = window.dtype.itemsize
        known = self._of.get(window.buffer.id)
        if known is None:
            count = max(window.buffer.nbytes // item, 1)
            known = self._of[window.buffer.id] = item, np.full(count, NOBODY, np.int32)
        size, entries = known
        if size != item:
            # The memory is viewed as another type: use the entry of the element around each byte.
            return entries
        strides = tuple([4 * s for s in window.strides])
        return np.ndarray(window.reach, np.int32, entries, 4 * window.offset, strides)

    def writers(self, window: Window) -> list[int]:
        found = np.unique(self.view(window))
        return [int(n) for n in found if n != NOBODY]


class Recorder(abc.ABC):
    """Observes a run: numbers the tasks, and tracks the iteration of every statement."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.events: list[Event] = []
        self.submitted: dict[int, Submitted] = {}
        self.origins = Origins()
        self.shapes: dict[int, Shape] = {}
        self.created_undefined: set[int] = set()
        self.loops: dict[Op, tuple[Value, ...]] = {}
        self.function: dict[Op, Function] = {}
        self._task = NOBODY
        for function in program.functions.values():
            for op, loops in _with_loops(function.body, ()):
                self.loops[op] = loops
                self.function[op] = function

    # The observer

    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name == "call":
            return self._call(low, op)
        if op.spec.structural:
            return low.plain_op(op)
        if op.name == "create_tensor" and is_tensor(op.result):
            return self._creation(low, op)
        return self.observe(low, op)

    @abc.abstractmethod
    def observe(self, low: Lowering, op: Op) -> Step:
        """Return the step of an op that is neither structural nor creates a tensor."""

    def _call(self, low: Lowering, op: Op) -> Step:
        step, callee = low.plain_op(op), low.state.functions[CallView(op).callee]
        if callee.kind is not FunctionKind.InCore:
            return step
        iteration, names = self.iteration_getter(low, op), self.loop_names(op)
        operands, count = low.get(CallView(op).operands), op.args["count"]
        blocks = None if count is None else low.slot(count)

        def submit(frame: Frame) -> None:
            self._task = len(low.state.tasks)
            at = tuple(zip(names, iteration(frame)))
            self.submitted[self._task] = Submitted(
                callee.name,
                op.loc,
                at,
                tuple(operands(frame)),
                None if blocks is None else frame[blocks],
            )
            step(frame)
            self._task = NOBODY

        return submit

    def _creation(self, low: Lowering, op: Op) -> Step:
        step = low.plain_op(op)
        result = low.slot(op.result)

        def create(frame: Frame) -> None:
            step(frame)
            window: Window = frame[result]
            self.shapes[window.buffer.id] = window.shape
            if op.args.get("init_value") is None:
                self.created_undefined.add(window.buffer.id)

        return create

    def iteration_getter(self, low: Lowering, op: Op) -> Callable[[Frame], tuple[int, ...]]:
        slots = [low.slot(v) for v in self.loops.get(op, ()) if low.has(v)]
        if not slots:
            return _no_loops
        return lambda frame: tuple([frame[s] for s in slots])

    def loop_names(self, op: Op) -> tuple[str, ...]:
        return tuple([v.name for v in self.loops.get(op, ())])

    def add(self, event: Event) -> int:
        self.events.append(event)
        if event.writes and event.window is not None:
            self.origins.view(event.window)[...] = len(self.events) - 1
        return len(self.events) - 1

    @property
    def task(self) -> int:
        return self._task

    # What was recorded

    def iteration(self, event: Event) -> tuple[tuple[str, int], ...]:
        """Return the loops around a statement, those of the call first."""
        outer = self.submitted[event.task].iteration if event.task in self.submitted else ()
        return (*outer, *zip(self.loop_names(event.op), event.at))

    def kernel(self, event: Event) -> str:
        return self.submitted[event.task].kernel if event.task in self.submitted else ""

    def box_of(self, window: Window) -> tuple[Shape, Shape]:
        """Return the first index and one past the last, in the axes of the buffer's tensor."""
        shape = self.shapes.get(window.buffer.id, (max(window.buffer.nbytes, 1),))
        last = window.offset + sum((n - 1) * s for n, s in zip(window.reach, window.strides))
        first = np.unravel_index(min(window.offset, max(last, 0)), shape)
        end = np.unravel_index(max(min(last, int(np.prod(shape)) - 1), 0), shape)
        return tuple(map(int, first)), tuple(int(e) + 1 for e in end)


def _no_loops(_: Frame) -> tuple[int, ...]:
    return ()


def _with_loops(block: Block, loops: tuple[Value, ...]) -> Iterator[tuple[Op, tuple[Value, ...]]]:
    for op in block.ops:
        yield op, loops
        inner = (*loops, ForView(op).index) if op.name == "for" else loops
        for part in op.blocks:
            yield from _with_loops(part, inner)


def writes_tensor(op: Op) -> bool:
    """Return whether an op writes global memory itself."""
    return any(is_tensor(op.args.get(param)) for param in op.spec.writes)


def is_tensor_load(op: Op) -> bool:
    return op.spec.is_window_load and is_tensor(op.operands[0]) and _gives_tile(op)


def _gives_tile(op: Op) -> bool:
    return bool(op.results) and isinstance(op.results[0].type, TileType)


class Writes(Recorder):
    """Tracks who writes where without computing: tiles have shapes and valid regions only."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._blank: dict[tuple[Shape, object], Array] = {}

    def observe(self, low: Lowering, op: Op) -> Step:
        if writes_tensor(op):
            return self._store(low, op)
        if is_tensor_load(op):
            return self._load(low, op)
        if _gives_tile(op) and op.spec.reference is not None:
            return self._compute(low, op)
        if op.name == "read":
            return self._read(low, op)
        return low.plain_op(op)

    def blank(self, type_: TileType) -> Array:
        key = type_.shape, type_.dtype
        if key not in self._blank:
            zero = np.zeros((), type_.dtype.numpy)
            self._blank[key] = np.broadcast_to(zero, type_.shape)
        return self._blank[key]

    def _store(self, low: Lowering, op: Op) -> Step:
        window, iteration = written_window(low, op), self.iteration_getter(low, op)
        target = low.slot(op.args[op.spec.writes[0]])
        result, state = low.result(op), low.state

        def store(frame: Frame) -> None:
            frame[result] = frame[target]
            event = Event(
                op, self.task, state.block, iteration(frame), (), None, window(frame), True
            )
            self.add(event)

        return store

    def _load(self, low: Lowering, op: Op) -> Step:
        window, result = taken_window(low, op), low.result(op)
        type_, swap = op.result.type, bool(op.args.get("transpose"))
        padded = op.args.get("pad_value") is not None
        assert isinstance(type_, TileType)
        blank = self.blank(type_)

        def load(frame: Frame) -> None:
            taken = window(frame)
            valid = taken.valid or taken.shape
            if swap:
                valid = (*valid[:-2], valid[-1], valid[-2])
            frame[result] = TileValue(blank, blank.shape if padded else valid)

        return load

    def _compute(self, low: Lowering, op: Op) -> Step:
        application = Application(op, low.function.name)
        operands = Operands(low, op, application)
        results = low.define(op.results)
        blanks = [self.blank(r.type) for r in op.results if isinstance(r.type, TileType)]

        def compute(frame: Frame) -> None:
            valids = application.valids(*operands.read(frame))
            frame[results] = [TileValue(b, v) for b, v in zip(blanks, valids)]

        return compute

    def _read(self, low: Lowering, op: Op) -> Step:
        step, x = low.plain_op(op), low.slot(op.args["x"])

        def read(frame: Frame) -> None:
            value = frame[x]
            if type(value) is not Window or self.origins.writers(value):
                raise UnknownAddressError
            step(frame)

        return read


class ScalarSources:
    """The `read`s from which scalars come, through arithmetic, loops, branches and calls."""

    def __init__(self, program: Program) -> None:
        self._sources: dict[Value, list[Value]] = {}
        self._reads: dict[Value, Op] = {}
        for function in program.functions.values():
            self._enter(function.body, program)

    def _enter(self, block: Block, program: Program) -> None:
        for op in block.ops:
            if op.name == "read":
                self._reads[op.result] = op
            elif op.name == "call":
                call = CallView(op)
                for param, value in zip(program.functions[call.callee].params, call.operands):
                    self._add(param, values_in((value,)))
            elif op.name in ("for", "while"):
                for first, following, same in carried_values(op):
                    for value in same:
                        self._add(value, values_in((first, following)))
            elif op.name == "if":
                for result, *given in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                    self._add(result, values_in((op.args["cond"], *given)))
            else:
                for result in op.results:
                    self._add(result, op.operands)
            for inner in op.blocks:
                self._enter(inner, program)

    def _add(self, value: Value, sources: Iterable[Value]) -> None:
        if isinstance(value.type, ScalarType):
            scalars = [v for v in sources if isinstance(v.type, ScalarType)]
            self._sources.setdefault(value, []).extend(scalars)

    def reads_behind(self, values: Iterable[Value]) -> list[Op]:
        """Return the `read`s that the scalars among `values` come from."""
        waiting = [v for v in values if isinstance(v.type, ScalarType)]
        seen, found = set(waiting), list[Op]()
        while waiting:
            value = waiting.pop()
            if value in self._reads:
                found.append(self._reads[value])
            for source in self._sources.get(value, ()):
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return found


class Trace(Recorder):
    """Everything a run did, with all tiles and the events that each came from."""

    def __init__(self, program: Program, limit: float = math.inf) -> None:
        """`limit` is in steps of work."""
        super().__init__(program)
        self._limit = limit
        self._steps = 0.0
        self._made_by: dict[int, int] = {}
        self._scalars = ScalarSources(program)
        self._last_read: dict[Op, int] = {}
        self._bytes = 0

    def observe(self, low: Lowering, op: Op) -> Step:
        gives_tile = _gives_tile(op)
        stores, loads = writes_tensor(op), is_tensor_load(op)
        if not gives_tile and not stores and op.name != "read":
            return low.plain_op(op)
        window = self._window_getter(low, op, stores, loads)
        # A load reads only its window; another op with a tensor operand reads all of it.
        whole = [
            low.slot(v)
            for v, how in accesses(op, low.state.functions)
            if how is not Direction.Out and isinstance(v.type, TensorType) and not loads
        ]
        inputs = self._inputs_getter(low, op, whole)
        iteration = self.iteration_getter(low, op)
        step = low.plain_op(op)
        results = [low.slot(r) for r in op.results]
        state = low.state

        def traced(frame: Frame) -> None:
            at = window(frame) if window else None
            used = inputs(frame, at)
            step(frame)
            tile = frame[results[0]] if gives_tile else None
            event = Event(
                op,
                self.task,
                state.block,
                iteration(frame),
                used,
                tile,
                at,
                stores,
                at.array.copy() if stores and at is not None else None,
                tuple([frame[s] for s in whole]),
                self._undefined(at) if loads and at is not None else None,
            )
            number = self.add(event)
            if op.name == "read":
                self._last_read[op] = number
            if tile is not None:
                for slot in results:
                    self._made_by[id(frame[slot])] = number
                self._bytes += tile.data.nbytes
            self._steps += event.steps
            if self._bytes > MAX_BYTES or self._steps > self._limit:
                raise TraceTooBigError

        return traced

    def _undefined(self, window: Window) -> tuple[Shape, Shape] | None:
        """Return the never-written part of a window, in the axes of its tensor."""
        if window.buffer.origin == "param" or window.buffer.id not in self.created_undefined:
            return None
        origins = self.origins.view(window)
        if origins.shape != window.reach:
            return None
        valid = tuple([slice(0, n) for n in window.held])
        gone = np.nonzero(origins[valid] == NOBODY)
        if not gone[0].size:
            return None
        first = window.slice([int(g.min()) for g in gone], tuple([1] * len(gone)))
        extents = tuple([int(g.max()) - int(g.min()) + 1 for g in gone])
        part = Window(window.buffer, window.dtype, first.offset, extents, window.strides)
        return self.box_of(part)

    def _window_getter(
        self, low: Lowering, op: Op, stores: bool, loads: bool
    ) -> Callable[[Frame], Window] | None:
        if stores:
            return written_window(low, op)
        return taken_window(low, op) if loads else None

    def _inputs_getter(
        self, low: Lowering, op: Op, whole: Sequence[int]
    ) -> Callable[[Frame, Window | None], tuple[int, ...]]:
        tiles = [low.slot(v) for v in op.operands if isinstance(v.type, TileType)]
        made_by, origins, is_load = self._made_by, self.origins, is_tensor_load(op)
        reads, last_read = self._scalars.reads_behind(op.operands), self._last_read

        def inputs(frame: Frame, window: Window | None) -> tuple[int, ...]:
            used = [made_by.get(id(frame[s]), NOBODY) for s in tiles]
            if is_load and window is not None:
                used += origins.writers(window)
            for s in whole:
                used += origins.writers(frame[s])
            used += [last_read.get(read, NOBODY) for read in reads]
            return tuple(dict.fromkeys([n for n in used if n != NOBODY]))

        return inputs


@dataclass(frozen=True, slots=True)
class Followed:
    """A finished run: its parameters' windows and arrays by name, and its final state."""

    parameters: Mapping[str, Window]
    arrays: Mapping[str, Array]
    state: State


def follow(recorder: Recorder, arguments: Arguments) -> Followed:
    """Run the recorder's program on copies of the memory that it writes."""
    program = recorder.program
    directions = infer_directions(program.main, program.functions)
    written = {p.name for p, how in zip(program.main.params, directions) if how is not Direction.In}
    given: dict[str, Argument] = {
        name: value.copy() if name in written and isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    state, bound = Interpreter(observer=recorder).begin(program, given)
    names = [p.name for p in program.main.params]
    windows = {n: w for n, w in zip(names, bound) if isinstance(w, Window)}
    recorder.shapes.update({w.buffer.id: w.shape for w in windows.values()})
    with np.errstate(all="ignore"):
        state.code(program.entry).run(bound)
    return Followed(windows, {n: np.asarray(given[n]) for n in windows}, state)
