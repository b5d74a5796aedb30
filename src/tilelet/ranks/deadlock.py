"""Explain a deadlock: which strand waits for what, and why no other strand can satisfy it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilelet.analysis.aliases import Aliases
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ranks import RanksDeadlock
from tilelet.diag.core import Loc
from tilelet.diag.text import plural
from tilelet.ir.core import Block, FunctionKind, Op, Value, walk
from tilelet.ranks.collectives import BODIES
from tilelet.ranks.memory import Allocation, SymmetricBuffer, TemplateBuffer
from tilelet.ranks.rank import RankTask
from tilelet.ranks.requests import Condition, Request
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.host import Dispatch
    from tilelet.ranks.rank import Strand
    from tilelet.ranks.scheduler import World

_MAX_SHOWN = 8


def explain(world: World) -> RanksDeadlock:
    """Return the message for a run in which no strand can proceed."""
    return _Explanation(world).message()


class _Explanation:
    def __init__(self, world: World) -> None:
        self._world = world
        self._notes: list[str] = []  # causes
        self._others: list[str] = []  # what else has happened to the cells
        self._past: dict[tuple[int, str, str], list[int]] = {}  # blocks past a notify

    def message(self) -> RanksDeadlock:
        labels: list[tuple[Loc, str]] = []
        waiting: dict[tuple[Loc, int, str, str, str], list[int]] = {}
        for strand in self._world.strands:
            request = strand.request
            assert request is not None
            unmet = [c for c in request.conditions if not c.holds]
            if request.ready is not None:
                labels.append((request.loc, f"{strand.title} needs the results of its tasks"))
            for c in unmet[:1]:
                key = (request.loc, strand.rank, strand.name, _loops(strand), _wanted(c))
                waiting.setdefault(key, []).append(strand.block if strand.blocks > 1 else -1)
            for c in unmet:
                self._why(strand, request.op, c)
        for (loc, rank, name, loops, wanted), blocks in waiting.items():
            shown = _blocks(sorted(blocks)) if blocks != [-1] else ""
            labels.append((loc, f"rank {rank}, `{name}`{shown}{loops}: {wanted}"))
        for task in self._world.deferred:
            for c, op in task.deferred:
                if not c.holds:
                    who = f"rank {task.rank}, `{task.kernel}` stays open: "
                    labels.append((op.loc, f"{who}{_wanted(c)}"))
                    self._why(None, op.name, c)
        self._unstarted()
        for (rank, kernel, place), numbers in self._past.items():
            blocks = sorted(set(numbers))
            many = "are past their" if len(blocks) > 1 else "is past its"
            shown = _blocks(blocks) if blocks != [-1] else ""
            self._others.append(f"rank {rank}, `{kernel}`{shown} {many} notify at {place}")
        notes = list(dict.fromkeys([*self._notes, *self._others]))
        more = len(notes) - _MAX_SHOWN
        if more > 0:
            notes = [*notes[:_MAX_SHOWN], f"and {more} more"]
        return RanksDeadlock(_merged(labels), notes)

    # Possible notifiers

    def _why(self, strand: Strand | None, op: str, c: Condition) -> None:
        """Say what happened to the statements that could raise a cell."""
        buffer = c.cell.buffer
        assert isinstance(buffer, SymmetricBuffer)
        cell = _cell(c.cell)
        if op in BODIES:
            self._missing(buffer, c, op)
            return
        sources = list(self._sources(buffer.allocation))
        if not sources:
            self._notes.append(f"no statement of the program notifies {cell}")
        done: dict[int, int] = {}
        for owner, at, state in sources:
            if isinstance(owner, _Strand):
                has_run = (owner.strand.rank, at) in self._world.has_notified
                if owner.is_past and not has_run:
                    text = f"has not run its notify at {_place(at)}, and is past it"
                    self._notes.append(f"{owner.strand.title} {text}")
                elif owner.is_past:
                    key = (owner.strand.rank, owner.strand.name, _place(at))
                    block = owner.strand.block if owner.strand.blocks > 1 else -1
                    self._past.setdefault(key, []).append(block)
                elif owner.strand is strand:
                    text = "notifies only after this wait, or not at all"
                    self._notes.append(f"{owner.strand.title} {text}: {_place(at)}")
                else:
                    self._notes.append(
                        f"{owner.strand.title} would notify at {_place(at)}, {state}"
                    )
            elif isinstance(owner, RankTask):
                if (owner.rank, at) not in self._world.has_notified:
                    who = f"rank {owner.rank}, `{owner.kernel}`"
                    self._notes.append(f"{who} has ended without its notify at {_place(at)}")
            elif owner:
                self._notes.append(f"{owner} would notify at {_place(at)}, {state}")
        watcher = self._world.watcher
        notified = getattr(watcher, "notified", {}).get((buffer.id, c.cell.bytes.start), [])
        for access in notified:
            done[access.strand.rank] = done.get(access.strand.rank, 0) + 1
        for rank, count in done.items():
            self._others.append(f"rank {rank} has notified {cell} {plural(count, 'time')}")
        if sources and not done and all(isinstance(owner, RankTask) for owner, _, _ in sources):
            self._notes.append(f"every task that could notify {cell} has ended")

    def _missing(self, buffer: SymmetricBuffer, c: Condition, op: str) -> None:
        """Return the rank that has not reached a collective."""
        cell = c.cell
        source = cell.bytes.start // cell.dtype.itemsize
        ranks = buffer.allocation.domain.ranks
        rank = ranks[source] if source < len(ranks) else source
        where = [s for s in self._world.strands if s.rank == rank and s.request is not None]
        if where:
            request = where[0].request
            assert request is not None
            there = "in the same call" if request.op == op else f"at {_place(request.loc)}"
            self._notes.append(f"rank {rank} has not come to this `{op}`: it waits {there}")
        elif any(self._world.plan.dispatches[i].rank == rank for i in self._world.pending):
            self._notes.append(f"rank {rank} has not come to `{op}`: its dispatch has not started")
        else:
            self._notes.append(f"rank {rank} has ended without calling `{op}`")

    def _sources(
        self, allocation: Allocation
    ) -> Iterator[tuple[_Strand | RankTask | str, Loc, str]]:
        """Return every notify that could reach a window buffer: its strand, location, and what
        blocks it.
        """
        world = self._world
        seen: set[int] = set()
        for strand in world.strands:
            for op in self._notifies(strand.task, allocation):
                request = strand.request
                assert request is not None
                body = world.program.functions[strand.task.kernel].body
                owner = _Strand(strand, _is_past(body, op, request))
                yield owner, op.loc, f"and waits itself at {_place(request.loc)}"
                seen.add(id(strand.task))
        for state in world.ranks:
            for task in state.by_index.values():
                rest = _unstarted_blocks(task)
                if (id(task) in seen and not rest) or not task.kernel:
                    continue
                for op in self._notifies(task, allocation):
                    if task.started and not rest:
                        yield task, op.loc, "ended"
                    else:
                        who = f"rank {state.rank}, `{task.kernel}`{rest}"
                        yield who, op.loc, f"and has not started: {self._blocker(task)}"
        for i in world.pending:
            dispatch = world.plan.dispatches[i]
            for loc in self._notifies_of(dispatch, allocation):
                who = f"rank {dispatch.rank}, `{dispatch.function}`"
                running = world.active.get(dispatch.rank)
                why = (
                    "still runs an earlier dispatch" if running is not None else "waits for others"
                )
                yield who, loc, f"and is not dispatched: the rank {why}"

    def _notifies(self, task: RankTask, allocation: Allocation) -> Iterator[Op]:
        """Return the notifies of a task's kernel that reach an allocation."""
        function = self._world.program.functions.get(task.kernel)
        if function is None:
            return
        aliases = Aliases(function.body, self._world.program.functions)
        for op in walk(function.body):
            target = op.args.get("target") if op.name == "pld.system.notify" else None
            if not isinstance(target, Value):
                continue
            for root in aliases.roots(target):
                if root not in function.params:
                    continue
                value = task.values[function.params.index(root)]
                buffer = value.buffer if isinstance(value, Window) else None
                if isinstance(buffer, SymmetricBuffer) and buffer.allocation is allocation:
                    yield op

    def _notifies_of(self, dispatch: Dispatch, allocation: Allocation) -> Iterator[Loc]:
        """Return the notifies in the kernels of a dispatch with a view of an allocation."""
        mine = any(
            isinstance(v, Window)
            and isinstance(v.buffer, TemplateBuffer)
            and v.buffer.allocation is allocation
            for v in dispatch.operands
        )
        functions = self._world.program.functions
        if not mine or dispatch.function not in functions:
            return
        for op in walk(functions[dispatch.function].body):
            callee = functions.get(str(op.args.get("callee"))) if op.name == "call" else None
            if callee is not None and callee.kind is FunctionKind.InCore:
                for inner in walk(callee.body):
                    if inner.name == "pld.system.notify":
                        yield inner.loc

    def _blocker(self, task: RankTask) -> str:
        if task.waits_for:
            first = min(task.waits_for, key=lambda t: t.index)
            return f"it waits for task {first.index}, `{first.kernel or 'join'}`"
        holders = self._world.ranks[task.rank].cores.holders
        names = sorted({f"`{s.name}`" for s in holders})
        return f"every core is held by {', '.join(names)}, which waits"

    def _unstarted(self) -> None:
        for state in self._world.ranks:
            lacking = [t for t in state.waiting if t.kernel and not t.waits_for]
            if lacking:
                who = f"rank {state.rank}, `{lacking[0].kernel}`{_unstarted_blocks(lacking[0])}"
                self._notes.append(f"{who}: no core is free, {self._blocker(lacking[0])}")


Notifier: TypeAlias = "_Strand | RankTask | str"
"""What could notify: a running strand, a task that has ended, or the name of one to come."""


@dataclass(frozen=True)
class _Strand:
    """A strand with a notify, which it may have left behind."""

    strand: Strand
    is_past: bool


def _unstarted_blocks(task: RankTask) -> str:
    """Return which blocks of a task that has begun have no core yet."""
    if not 0 < task.begun < (task.blocks or 1):
        return ""
    return _blocks(range(task.begun, task.blocks or 1))


def _blocks(numbers: Sequence[int]) -> str:
    """Return the name of a range of blocks, after the name of their task."""
    first, last = numbers[0], numbers[-1]
    if last - first + 1 != len(numbers):
        return f" ({len(numbers)} blocks)"
    return f" block {first}" if first == last else f" blocks {first} to {last}"


def _is_past(body: Block, notify: Op, request: Request) -> bool:
    """Whether a notify precedes the statement that waits, and no loop comes back to it."""
    ops = list(walk(body))
    wait = next((op for op in ops if op.name == request.op and op.loc == request.loc), None)
    if wait is None or ops.index(notify) > ops.index(wait):
        return False
    loops = [set(map(id, _inside(op))) for op in ops if op.name in ("for", "while")]
    return not any(id(notify) in inside and id(wait) in inside for inside in loops)


def _inside(op: Op) -> Iterator[Op]:
    """Yield the ops in the blocks of an op."""
    for block in op.blocks:
        yield from walk(block)


def _loops(strand: Strand) -> str:
    return "".join(f", {name} = {value}" for name, value in strand.loops)


def _wanted(c: Condition) -> str:
    least = "at least " if c.cmp.name == "Ge" else ""
    return f"{_cell(c.cell)} is {c.value}, waits for {least}{c.expected}"


def _cell(cell: Window) -> str:
    element = cell.bytes.start // cell.dtype.itemsize
    buffer = cell.buffer
    assert isinstance(buffer, SymmetricBuffer)
    return f"cell {element} of `{buffer.name}` on rank {buffer.rank}"


def _place(loc: Loc) -> str:
    return f"line {loc.line}"


def _merged(labels: list[tuple[Loc, str]]) -> list[tuple[Loc, str]]:
    """Return at most a few labels; the same statement on several ranks is one label."""
    by_place: dict[tuple[str, int, int], tuple[Loc, list[str]]] = {}
    for loc, text in labels:
        by_place.setdefault((loc.file, loc.line, loc.col), (loc, []))[1].append(text)
    return [
        (loc, "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else ""))
        for loc, texts in by_place.values()
    ]
