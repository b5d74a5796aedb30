"""Explain a deadlock: which strand waits for what, and why no other strand can satisfy it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ranks import RanksDeadlock
from tilelet.diag.core import Loc
from tilelet.ir.core import Block, Op, walk
from tilelet.ranks.collectives import BODIES
from tilelet.ranks.memory import SymmetricBuffer, on_rank
from tilelet.ranks.notifies import Notifies, Notify
from tilelet.ranks.rank import RankTask
from tilelet.ranks.requests import Condition, Request
from tilelet.syntax.ranks import WaitCmp
from tilelet.tasks.window import Window

if TYPE_CHECKING:
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
        self._needs: dict[int, set[int]] = {}  # ranks that a waiting rank needs a signal of
        self._told: set[RankTask] = set()  # tasks without a core that a note names
        self._notifies = Notifies(world.program.functions)
        self._walked: dict[tuple[RankTask, int | None], list[Notify]] = {}

    def message(self) -> RanksDeadlock:
        labels: list[tuple[Loc, str]] = []
        waiting: dict[tuple[Loc, int, str, str, str], list[int]] = {}
        for strand in self._world.strands:
            request = strand.request
            assert request is not None
            unmet = [c for c in request.conditions if not c.holds]
            if request.ready is not None:
                labels.append((request.loc, f"{strand.title} needs the results of its tasks"))
            if request.polled is not None:
                value = int(request.polled.array.item())
                c = Condition(request.polled, value + 1, WaitCmp.Ge)
                labels.append(
                    (request.loc, f"{strand.title} reads {_cell(c)}, which stays {value}")
                )
                self._why(strand, request.op, c)
            for c in unmet[:1]:
                key = (request.loc, strand.rank, strand.name, _loops(strand), _wanted_text(c))
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
                    labels.append((op.loc, f"{who}{_wanted_text(c)}"))
                    self._why(None, op.name, c)
        self._unstarted()
        cycle = _cycle(self._needs)
        notes = list(dict.fromkeys([*cycle, *self._notes, *self._others]))
        more = len(notes) - _MAX_SHOWN
        if more > 0:
            notes = [*notes[:_MAX_SHOWN], f"and {more} more"]
        return RanksDeadlock(_merge_labels(labels), notes)

    # Possible notifiers

    def _why(self, strand: Strand | None, op: str, c: Condition) -> None:
        """Say what happened to the statements that could raise a cell."""
        buffer = c.cell.buffer
        assert isinstance(buffer, SymmetricBuffer)
        if op in BODIES:
            self._missing(buffer, c, op)
            return
        if c.cmp is WaitCmp.Eq and c.value > c.expected:
            self._notes.append(
                f"{_cell(c)} has gone past {c.expected}, and `Eq` takes no other value"
            )
        sent = self._world.sent.to(c.cell)
        sources = list(self._sources(strand, c))
        to_come = [s for s in sources if s.is_to_come]
        for source in to_come:
            self._notes.append(source.text)
            self._needs.setdefault(buffer.rank, set()).add(source.rank)
            if source.task is not None:
                self._told.add(source.task)
        if not to_come and c.value < c.expected:
            silent = [s for s in sources if s.rank not in {rank for rank, _, _ in sent}]
            others = [s for s in silent if s.rank != buffer.rank]
            self._notes += [s.text for s in others or (silent if not sent else ())]
        by_text: dict[str, list[int]] = {}
        for (rank, at, kind), done in sent.items():
            text = f"{done.told(kind, _cell(c))}, at {_place(at)}"
            by_text.setdefault(text, []).append(rank)
        for text, ranks in by_text.items():
            several = (
                f"ranks {_some(ranks)} have each" if len(ranks) > 1 else f"rank {ranks[0]} has"
            )
            self._others.append(f"{several} {text}")
        if not sources and not sent:
            self._notes.append(self._elsewhere(c))

    def _elsewhere(self, c: Condition) -> str:
        """Say which cells the notifies of this buffer signal instead of the one waited for."""
        buffer = c.cell.buffer
        assert isinstance(buffer, SymmetricBuffer)
        found: dict[Loc, list[str]] = {}
        for peer in buffer.allocation.slices:
            for start, at in self._world.sent.of(peer):
                name = "this cell" if start == c.cell.bytes.start else _indices(c, start)
                found.setdefault(at, []).append(f"{name} on rank {peer.rank}")
        if not found:
            return f"no statement that runs notifies {_cell(c)}"
        told = [f"the notify at {_place(at)} signals {_some(cells)}" for at, cells in found.items()]
        return f"no rank notifies {_cell(c)}: {'; '.join(told)}"

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

    def _sources(self, waiting: Strand | None, c: Condition) -> Iterator[_Source]:
        """Yield the statements that could signal a cell and have not, or are still to come."""
        world = self._world
        seen: set[int] = set()
        for strand in world.strands:
            if strand.rank < 0:
                continue
            block = strand.block
            for n in self._of(strand.task, block, strand.blocks, c):
                yield from self._of_strand(strand, strand is waiting, n, c)
            seen.add(id(strand.task))
        for state in world.ranks:
            for task in state.by_index.values():
                rest = _unstarted_blocks(task)
                if (id(task) in seen and not rest) or not task.kernel:
                    continue
                is_single = (task.blocks or 1) == 1
                block, blocks = (0, 1) if is_single else (None, task.blocks)
                who = f"rank {state.rank}, `{task.kernel}`"
                for n in self._of(task, block, blocks, c):
                    if not task.started or rest:
                        why = f"and has not started: {self._blocker(task)}"
                        text = f"{who}{rest} would notify at {_place(n.op.loc)}, {why}"
                        yield _Source(state.rank, text, not n.is_skipped, task)
                    elif not world.sent.has_sent(state.rank, n.op.loc, c.cell):
                        text = f"{who} has ended without its notify at {_place(n.op.loc)}"
                        yield _Source(state.rank, f"{text}{_because(n)}")
        for i in world.pending:
            dispatch = world.plan.dispatches[i]
            running = world.active.get(dispatch.rank)
            operands = [
                on_rank(v, dispatch.rank) if isinstance(v, Window) else v for v in dispatch.operands
            ]
            why = "waits for others"
            if running is not None:
                earlier = world.plan.dispatches[running.dispatch]
                name = earlier.function or earlier.op.name
                why = f"still runs an earlier dispatch, `{name}` of {_place(earlier.loc)}"
            for n in self._notifies.of(dispatch.function, operands, dispatch.rank):
                if n.may_reach(c.cell):
                    who = f"rank {dispatch.rank}, `{dispatch.function}` of {_place(dispatch.loc)}"
                    text = f"{who} would notify at {_place(n.op.loc)}"
                    text = f"{text}, and is not dispatched: the rank {why}"
                    yield _Source(dispatch.rank, text, not n.is_skipped)

    def _of_strand(
        self, strand: Strand, is_own: bool, n: Notify, c: Condition
    ) -> Iterator[_Source]:
        """Yield what a running strand does about one of its notifies."""
        request, place = strand.request, _place(n.op.loc)
        assert request is not None
        body = self._world.program.functions[strand.task.kernel].body
        if n.is_skipped:
            yield _Source(strand.rank, f"{strand.title} skips its notify at {place}{_because(n)}")
        elif _is_past(body, n.op, request):
            if not self._world.sent.has_sent(strand.rank, n.op.loc, c.cell):
                text = f"{strand.title} has not run its notify at {place}, and is past it"
                yield _Source(strand.rank, f"{text}{_because(n)}")
        elif is_own:
            text = f"{strand.title} notifies only after this wait, or not at all: {place}"
            yield _Source(strand.rank, text, True)
        else:
            why = f"and waits itself at {_place(request.loc)}"
            text = f"{strand.title} would notify at {place}, {why}"
            yield _Source(strand.rank, text, True)

    def _of(
        self, task: RankTask, block: int | None, blocks: int | None, c: Condition
    ) -> Iterator[Notify]:
        """Yield the notifies of a task that may signal a cell, each statement once."""
        if (task, block) not in self._walked:
            self._walked[task, block] = self._notifies.of(
                task.kernel, task.values, task.rank, block, blocks
            )
        found: dict[Op, Notify] = {}
        for n in self._walked[task, block]:
            if n.may_reach(c.cell) and (n.op not in found or found[n.op].is_skipped):
                found[n.op] = n
        yield from found.values()

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
            if lacking and lacking[0] not in self._told:
                who = f"rank {state.rank}, `{lacking[0].kernel}`{_unstarted_blocks(lacking[0])}"
                self._notes.append(f"{who}: no core is free, {self._blocker(lacking[0])}")


@dataclass(frozen=True)
class _Source:
    """A statement that could signal a cell.

    is_to_come  it has not been reached, and would signal
    task        that has no core yet
    """

    rank: int
    text: str
    is_to_come: bool = False
    task: RankTask | None = None


def _because(n: Notify) -> str:
    return "" if n.condition is None else f": the condition at {_place(n.condition)} is false"


def _some(names: Sequence[object]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(map(str, names[:4]))}{more}"


def _cycle(needs: Mapping[int, set[int]]) -> list[str]:
    """Return a note with the shortest cycle of ranks that wait for each other."""
    best: list[int] = []
    for start in needs:
        paths = [[start]]
        seen = {start}
        while paths:
            path = paths.pop(0)
            following = needs.get(path[-1], set())
            if len(path) > 1 and start in following:
                best = path if not best or len(path) < len(best) else best
                break
            for rank in sorted(following - seen):
                seen.add(rank)
                paths.append([*path, rank])
    if not best:
        return []
    pairs = zip(best, [*best[1:], best[0]])
    return ["cycle: " + ", ".join(f"rank {a} waits for rank {b}" for a, b in pairs)]


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
    loops = [set(map(id, _ops_inside(op))) for op in ops if op.name in ("for", "while")]
    return not any(id(notify) in inside and id(wait) in inside for inside in loops)


def _ops_inside(op: Op) -> Iterator[Op]:
    """Yield the ops in the blocks of an op."""
    for block in op.blocks:
        yield from walk(block)


def _loops(strand: Strand) -> str:
    return "".join(f", {name} = {value}" for name, value in strand.loops)


def _wanted_text(c: Condition) -> str:
    least = "at least " if c.cmp.name == "Ge" else ""
    return f"{_cell(c)} is {c.value}, waits for {least}{c.expected}"


def _cell(c: Condition) -> str:
    buffer = c.cell.buffer
    assert isinstance(buffer, SymmetricBuffer)
    return f"{_indices(c, c.cell.bytes.start)} of `{buffer.name}` on rank {buffer.rank}"


def _indices(c: Condition, start: int) -> str:
    """Return the name of the cell at a byte of the slice, by the axes of the waiting view."""
    element = start // c.cell.dtype.itemsize
    signal = c.signal
    if signal is None or len(signal.shape) == 1 or element < signal.offset:
        return f"cell {element}"
    rest, at = element - signal.offset, list[int]()
    for stride in signal.strides:
        at.append(rest // stride)
        rest %= stride
    return f"cell {at}"


def _place(loc: Loc) -> str:
    return f"line {loc.line}"


def _merge_labels(labels: list[tuple[Loc, str]]) -> list[tuple[Loc, str]]:
    """Return at most a few labels; the same statement on several ranks is one label."""
    by_place: dict[tuple[str, int, int], tuple[Loc, list[str]]] = {}
    for loc, text in labels:
        by_place.setdefault((loc.file, loc.line, loc.col), (loc, []))[1].append(text)
    return [
        (loc, "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else ""))
        for loc, texts in by_place.values()
    ]
