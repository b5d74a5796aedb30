"""One rank: its tasks, their dependencies, and the cores they run on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilelet.analysis.aliases import accesses
from tilelet.analysis.overlap import Bytes, meet
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.windows import BlockCount
from tilelet.diag.core import UNKNOWN
from tilelet.dtypes import Array
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.movement import as_tuple
from tilelet.interp.state import State
from tilelet.interp.submit import COMPARISONS, CalleeSketch, flat_deps
from tilelet.ir.core import Block, Direction, Function, FunctionKind, Op, walk
from tilelet.ir.spec import Engine
from tilelet.ir.types import DistributedType
from tilelet.ir.views import CallView
from tilelet.ops.tasks import CLUSTERS, LANES
from tilelet.ranks import collectives, comm
from tilelet.ranks.code import LowerRoutine, ResumableFunction, Routine, Suspension
from tilelet.ranks.memory import SymmetricBuffer, store, symmetric
from tilelet.ranks.requests import Condition, Request
from tilelet.syntax.ranks import WaitCmp
from tilelet.tasks.stream import TaskGroup, TaskKind
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.diag.core import Loc
    from tilelet.ranks.scheduler import World

ROUTINES = {**comm.ROUTINES, **collectives.ROUTINES}


@dataclass(eq=False)
class Strand:
    """An independently scheduled unit: the control program of a dispatch, or one block of a task.

    request  its pending request; None before its first step
    loops    variables of the enclosing loops, outermost first
    landing  remote stores that it has issued and no peer sees yet
    """

    rank: int
    name: str
    loc: Loc
    task: RankTask
    block: int = 0
    blocks: int = 1
    run: Suspension | None = None
    request: Request | None = None
    loops: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    landing: list[tuple[Window, Array, bool]] = field(
        default_factory=list[tuple[Window, Array, bool]]
    )
    number: int = -1
    clock: Any = None

    @property
    def is_ready(self) -> bool:
        return self.request is None or self.request.holds

    @property
    def polls(self) -> bool:
        return self.request is not None and self.request.polled is not None

    @property
    def title(self) -> str:
        block = f" block {self.block}" if self.blocks > 1 else ""
        return f"rank {self.rank}, `{self.name}`{block}"


@dataclass(eq=False)
class RankTask:
    """A task of one rank, or (`kernel` is "") the control program of a dispatch.

    waits_for  unfinished tasks that must finish first
    deferred   conditions of `defer_wait` that keep it open after its blocks are done
    begun      how many of its blocks have started
    open       unfinished strands; for a dispatch also its tasks
    dispatch   position of its dispatch
    """

    rank: int
    index: int
    kernel: str
    loc: Loc
    dispatch: int = -1
    kind: TaskKind | None = None
    values: Sequence[Any] = ()
    blocks: int | None = None
    predicate: Any = None
    waits_for: set[RankTask] = field(default_factory=set["RankTask"])
    followers: list[RankTask] = field(default_factory=list["RankTask"])
    edges: list[RankTask] = field(default_factory=list["RankTask"])
    deferred: list[tuple[Condition, Op]] = field(default_factory=list[tuple[Condition, Op]])
    begun: int = 0
    open: int = 0
    started: bool = False
    done: bool = False
    cores: tuple[int, int] = (0, 0)
    clock: Any = None
    end_clock: Any = None


@dataclass(eq=False)
class Use:
    """Bytes of a buffer that a task accesses, from `low` to `high`."""

    bytes: Bytes
    low: int
    high: int
    writes: bool
    task: RankTask

    @staticmethod
    def of(window: Window, writes: bool, task: Any = None) -> Use:
        touched = window.bytes
        low, high = (0, 0) if 0 in window.reach else touched.limits
        return Use(touched, low, high, writes, task)


class RankCores:
    """The cores of a rank: clusters with a cube core, and vector lanes."""

    def __init__(self, clusters: int = CLUSTERS, lanes: int = LANES) -> None:
        self.free = [clusters, lanes]
        self.holders: list[Strand] = []

    def take(self, need: tuple[int, int]) -> bool:
        if any(n > f for n, f in zip(need, self.free)):
            return False
        self.free = [f - n for n, f in zip(need, self.free)]
        return True

    def give(self, need: tuple[int, int]) -> None:
        self.free = [f + n for n, f in zip(need, self.free)]


class _RankObserver:
    """Turn kernel calls into submissions, and report accesses to windows."""

    def lower(self, low: Lowering, op: Op) -> Step:
        state = low.state
        assert isinstance(state, RankState)
        if op.name == "call" and low.function.kind is not FunctionKind.InCore:
            return state.submission(low, op)
        step = low.plain_op(op)
        if op.name == "breakpoint":
            return _named_breakpoint(state, step)
        if op.name == "read" and low.function.kind is not FunctionKind.InCore:
            return _note_read(state, low.slot(op.result), step)
        if state.world.watcher is not None and low.function.kind is FunctionKind.InCore:
            return state.world.watcher.watched(state, low, op, step)
        return step


def _named_breakpoint(state: RankState, step: Step) -> Step:
    """Return the step of a `breakpoint()`, which first prints its rank."""

    def stop(frame: Frame) -> None:
        print(f"{state.strand.title}:", file=sys.stderr, flush=True)
        step(frame)

    return stop


def _note_read(state: RankState, result: int, step: Step) -> Step:
    """Wrap a read of the control program to keep its value for `record_streams`."""

    def read(frame: Frame) -> None:
        step(frame)
        state.world.control_reads[state.strand.task.dispatch].append(frame[result])

    return read


class RankState(State):
    """State of one rank: its control programs submit tasks, the scheduler runs them."""

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(
            world.program.functions,
            execute=True,
            poison=True,
            seed_valid=False,
            observer=_RankObserver(),
        )
        # A control program runs ahead: memory is taken when a task needs it.
        self.allocates = False
        self.world = world
        self.rank = rank
        self.strand: Strand = None  # type: ignore[assignment]
        self.cores = RankCores(*world.cores)
        self.unfinished: dict[int, list[Use]] = {}  # by buffer
        self.by_index: dict[int, RankTask] = {}
        # Tasks waiting for a core, in the order in which they became ready.
        self.waiting: list[RankTask] = []
        # Whether one of them may start: a task or a core was added since they were last tried.
        self.may_start = False
        self._resumable: dict[str, ResumableFunction] = {}
        self._suspending: dict[str, bool] = {}
        self._needs: dict[str, tuple[int, int]] = {}

    # Code

    def resumable(self, name: str) -> ResumableFunction:
        if name not in self._resumable:
            function = self.functions[name]
            in_core = function.kind is FunctionKind.InCore
            suspension = _KernelSuspension if in_core else _ControlSuspension
            find = suspension(self, function).find
            self._resumable[name] = ResumableFunction(self, function, find)
        return self._resumable[name]

    def communicates(self, kernel: str) -> bool:
        """Whether a kernel communicates: its blocks are then separate strands."""
        if kernel not in self._suspending:
            body = self.functions[kernel].body
            talks = any(op.name in ROUTINES for op in walk(body))
            self._suspending[kernel] = talks or bool(_polled_reads(body))
        return self._suspending[kernel]

    def sees_windows(self, task: RankTask) -> bool:
        """Whether a task receives views of window buffers, whose accesses are observed."""
        return any(map(_is_slice, task.values))

    def allocate(self, values: Iterable[object]) -> None:
        """Allocate the memory of windows that tasks have not used yet."""
        for value in values:
            if isinstance(value, Window) and value.buffer.data is None:
                buffer = value.buffer
                buffer.data = self.memory(buffer.name, buffer.nbytes, buffer.made or UNKNOWN)
                buffer.fill()

    def needs(self, kernel: str) -> tuple[int, int]:
        """Return the clusters and vector lanes that one block of a kernel occupies."""
        if kernel not in self._needs:
            engines = {op.spec.engine for op in walk(self.functions[kernel].body)}
            cube, vector = Engine.CUBE in engines, Engine.VEC in engines
            self._needs[kernel] = (1, 2 if vector else 0) if cube else (0, 1)
        return self._needs[kernel]

    # Submitting

    def submission(self, low: Lowering, op: Op) -> Step:
        """Return the step of a kernel call in a control program, which submits the task without
        running it.
        """
        view = CallView(op)
        callee = self.functions[view.callee]
        operands = low.get(view.operands)
        positions = op.args["no_dep"] or ()
        assert isinstance(positions, tuple)
        no_dep = tuple([p for p in positions if isinstance(p, int)])
        kind = TaskKind(callee.name, self.directions(callee), no_dep, loc=op.loc)
        count = None if op.args["count"] is None else low.slot(op.args["count"])
        sketch = CalleeSketch(self, callee, view.data_results)
        deps, predicate = low.get(op.args["deps"]), _predicate(low, op)
        results, has_id = low.define(op.results), bool(op.args["task_id"])

        def step(frame: Frame) -> None:
            arguments = operands(frame)
            blocks = None if count is None else frame[count]
            if blocks is not None and blocks < 1:
                raise BlockCount(op.loc, blocks)
            manual = self.manual_depth > 0
            task = RankTask(
                self.rank,
                len(self.by_index),
                callee.name,
                op.loc,
                self.strand.task.dispatch,
                kind,
                arguments,
                blocks,
                None if predicate is None else predicate(frame),
            )
            self._submit(task, flat_deps(deps(frame)), manual)
            values = sketch.run(arguments)
            frame[results] = (*values, task.index) if has_id else values

        return step

    def submit(self, group: TaskGroup, values: Sequence[object], deps: tuple[int, ...] = ()) -> int:
        """Submit a join (`task_dummy`), which is done when the tasks it names are."""
        assert not values, "kernels are submitted by `submission`"
        task = RankTask(
            self.rank, len(self.by_index), "", group.loc, self.strand.task.dispatch, group.kind
        )
        self._submit(task, deps, True)
        return task.index

    def _submit(self, task: RankTask, deps: tuple[int, ...], manual: bool) -> None:
        self.by_index[task.index] = task
        self.world.count(task.kernel)
        edges = [self.by_index[d] for d in deps]
        assert task.kind is not None
        accessed = [
            (value, direction is not Direction.In)
            for position, (value, direction) in enumerate(zip(task.values, task.kind.directions))
            if isinstance(value, Window) and position not in task.kind.no_dep
        ]
        if task.predicate is not None:
            accessed.append((task.predicate[0], False))
        if not manual or self.world.orders_all:
            edges += self._conflicts(accessed)
        for window, writes in accessed:
            self.unfinished.setdefault(window.buffer.id, []).append(Use.of(window, writes, task))
        task.edges = list(dict.fromkeys(edges))
        task.waits_for = {e for e in task.edges if not e.done}
        for earlier in task.waits_for:
            earlier.followers.append(task)
        self.strand.task.open += 1
        self.world.submitted(self, task)
        if not task.waits_for:
            self._add_waiting(task)

    def _conflicts(self, accessed: Sequence[tuple[Window, bool]]) -> list[RankTask]:
        """Return unfinished tasks that touch the same memory, if either of the two writes."""
        return [use.task for access in accessed for use in self._conflicting(*access)]

    def free_of(self, window: Window, writes: bool) -> bool:
        """Whether no unfinished task conflicts with the control program's access."""
        return not any(True for _ in self._conflicting(window, writes))

    def _conflicting(self, window: Window, writes: bool) -> Iterator[Use]:
        known = self.unfinished.get(window.buffer.id)
        if not known:
            return
        now = Use.of(window, writes)
        for use in known:
            if (
                (writes or use.writes)
                and now.low < use.high
                and use.low < now.high
                and meet(now.bytes, use.bytes)
            ):
                yield use

    def retire(self, task: RankTask) -> None:
        """Finish a task, and release its memory; tasks that waited only for it become ready."""
        task.done = True
        for value in task.values:
            if isinstance(value, Window):
                rest = self.unfinished.get(value.buffer.id)
                if rest:
                    self.unfinished[value.buffer.id] = [u for u in rest if u.task is not task]
        if task.predicate is not None:
            rest = self.unfinished.get(task.predicate[0].buffer.id, [])
            self.unfinished[task.predicate[0].buffer.id] = [u for u in rest if u.task is not task]
            task.predicate = None
        # The explanation of a deadlock reads scalars, and views of window buffers.
        task.values = [
            v if _is_slice(v) or not isinstance(v, Window) else None for v in task.values
        ]
        for follower in task.followers:
            follower.waits_for.discard(task)
            if not follower.waits_for and not follower.started:
                self._add_waiting(follower)

    def _add_waiting(self, task: RankTask) -> None:
        self.waiting.append(task)
        self.may_start = True

    def push(self, window: Window, data: Array, atomic: bool) -> None:
        """Store to a peer, immediately or at the strand's next fence."""
        if self.world.lands_late and symmetric(window).rank != self.rank:
            self.strand.landing.append((window, data.copy(), atomic))
        else:
            store(window, data, atomic)

    def waited(self, condition: Condition, op: Op) -> None:
        """Report the end of a wait."""
        how = "wait" if condition.cmp is WaitCmp.Ge else "match"
        self.observe(how, condition.cell, op, condition.expected)

    def observe(self, how: str, window: Window, op: Op, value: int = 0) -> None:
        """Report an access to the run's observer, if there is one."""
        if self.world.watcher is not None:
            self.world.watcher.access(self.strand, how, window, op, value)


def _is_slice(value: object) -> bool:
    """Whether a value is a window of a slice of a window buffer."""
    return isinstance(value, Window) and isinstance(value.buffer, SymmetricBuffer)


def _polled_reads(body: Block) -> set[Op]:
    """Return the reads of windows in `while` loops, which may poll a cell."""
    loops = [op for op in walk(body) if op.name == "while"]
    return {
        op
        for loop in loops
        for block in loop.blocks
        for op in walk(block)
        if op.name == "read" and any(isinstance(v.type, DistributedType) for v in op.operands)
    }


class _KernelSuspension:
    """Communication ops of a kernel, and reads that may poll a window."""

    def __init__(self, state: RankState, function: Function) -> None:
        del state
        self._polled = _polled_reads(function.body)

    def find(self, op: Op) -> LowerRoutine | None:
        return self._lower if op in self._polled else ROUTINES.get(op.name)

    def _lower(self, low: Lowering, op: Op) -> Routine:
        step, window = low.op(op), low.slot(op.args["x"])
        at = low.get(as_tuple(op.args["indices"]))

        def run(frame: Frame) -> Suspension:
            indices = at(frame)
            cell = frame[window].slice(indices, (1,) * len(indices))
            yield Request(op.name, op.loc, polled=cell)
            step(frame)

        return run


class _ControlSuspension:
    """Ops of a control program that touch memory, which need the results of tasks."""

    def __init__(self, state: RankState, function: Function) -> None:
        self._state = state
        self._touches = {
            op: [(v, how is not Direction.In) for v, how in accesses(op, state.functions)]
            for op in walk(function.body)
            if op.name != "call" and not op.spec.structural
        }

    def find(self, op: Op) -> LowerRoutine | None:
        return self._lower if self._touches.get(op) else None

    def _lower(self, low: Lowering, op: Op) -> Routine:
        touched = [(low.slot(v), writes) for v, writes in self._touches[op]]
        step, state = low.op(op), self._state

        def run(frame: Frame) -> Suspension:
            def ready() -> bool:
                return all(state.free_of(frame[at], writes) for at, writes in touched)

            if not ready():
                yield Request(op.name, op.loc, ready=ready)
                if state.world.watcher is not None:
                    state.world.watcher.awaited(state.strand)
            state.allocate([frame[at] for at, _ in touched])
            step(frame)

        return run


def _predicate(low: Lowering, op: Op) -> Any:
    """Return what a task's predicate compares: (window, indices, comparison, limit)."""
    predicate = op.args.get("predicate")
    if predicate is None:
        return None
    assert isinstance(predicate, tuple)
    tensor, indices, comparison, literal = predicate
    assert isinstance(comparison, str)
    window, at, limit = low.slot(tensor), low.get(indices), low.slot(literal)
    compare = COMPARISONS[comparison]

    def compared(frame: Frame) -> tuple[object, ...]:
        return frame[window], at(frame), compare, frame[limit]

    return compared
