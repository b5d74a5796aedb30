"""Happens-before race detection on windows: accesses that no chain of signals or edges orders.

Every strand has a vector clock. A notify releases its strand's clock to the cell, a wait acquires
the clock of its cell, a task starts with the clocks of its predecessors. Components count releases
in Python integers, so they cannot overflow. Two accesses to a common byte of a slice race if
neither is ordered before the other and one of them is a plain write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilelet.analysis.overlap import Bytes, meet
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ranks import LineShared, RanksRace, SetBySeveral
from tilelet.diag.core import UserError
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.movement import as_tuple, taken_window, written_window
from tilelet.ir.core import Op, Value
from tilelet.ir.spec import Trait
from tilelet.ir.types import DistributedType
from tilelet.ranks.memory import SymmetricBuffer
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from tilelet.ranks.rank import RankState, RankTask, Strand

Clock = dict[int, int]

LINE = 64
"""Bytes of a cache line: a scalar store writes the whole line back."""

CELL = 4
"""Bytes of a signal."""

_SECTIONS = 256
"""Parts of a slice whose accesses are kept apart."""

_PLAIN_WRITES = ("write", "push", "store")
_DATA = (*_PLAIN_WRITES, "read", "add")
_VERBS = {
    "write": "writes", "push": "pushes", "store": "writes", "read": "reads", "add": "adds to",
    "notify": "notifies", "set": "sets", "wait": "waits for",
}  # fmt: skip


def join(into: Clock, other: Clock | None) -> None:
    for key, count in (other or {}).items():
        if count > into.get(key, 0):
            into[key] = count


class Touch(NamedTuple):
    """An access of a step to a slice, named as in every schedule.

    how    as in `Access`; "match" is a wait for exactly one value
    value  what a notify adds or sets, or what a wait expects
    """

    slice: tuple[str, int]
    bytes: Bytes
    how: str
    value: int = 0


def compact(footprint: Sequence[Touch]) -> list[Touch]:
    """Return the same bytes in fewer touches: adjoining ranges of one kind are one.

    Touches of single cells stay as they are: signals are compared cell by cell.
    """
    rest: dict[Touch, None] = {}
    ranges: dict[tuple[tuple[str, int], str], list[tuple[int, int]]] = {}
    for touch in footprint:
        low, high = touch.bytes.limits
        if touch.how in _DATA and touch.bytes.is_dense and high - low > CELL:
            ranges.setdefault((touch.slice, touch.how), []).append((low, high))
        else:
            rest[touch] = None
    merged = [
        Touch(slice_, Bytes(low, high - low), how)
        for (slice_, how), found in ranges.items()
        for low, high in union(found)
    ]
    return [*rest, *merged]


def union(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open ranges, in order."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


@dataclass(frozen=True, slots=True)
class Access:
    """One access to the slice of a rank.

    how    "read", "write" (a transfer), "push" (a remote store), "store" (own slice), "add",
           "notify", "set" or "wait"
    bytes  of the slice
    time   count of releases of its strand
    order  position among all accesses of the run
    """

    strand: Strand
    how: str
    window: Window
    bytes: Bytes
    op: Op
    time: int
    order: int

    def before(self, clock: Clock) -> bool:
        return clock.get(self.strand.number, 0) >= self.time

    def races(self, now: Access, clock: Clock) -> bool:
        """Whether it conflicts with a later access of this clock to a common byte."""
        if self.strand is now.strand or not _conflict(self.how, now.how):
            return False
        return not self.before(clock)

    def told(self) -> str:
        low, high = self.bytes.limits
        loops = "".join(f", {name} = {value}" for name, value in self.strand.loops)
        return f"{self.strand.title}{loops}: {_VERBS[self.how]} bytes {low} to {high - 1}"


def _conflict(a: str, b: str) -> bool:
    """Whether two unordered accesses of these kinds to common bytes are a race."""
    if a in _DATA and b in _DATA:
        return a in _PLAIN_WRITES or b in _PLAIN_WRITES
    signals = ("notify", "set")
    if a in _PLAIN_WRITES or b in _PLAIN_WRITES:  # a reset that may overtake a peer's signal
        return a in signals or b in signals
    return (a == "set" and b in signals) or (b == "set" and a in signals)


class SliceAccesses:
    """Accesses to one slice that a later one can race with, found by the bytes they touch."""

    def __init__(self, nbytes: int) -> None:
        self._width = max(LINE, nbytes // _SECTIONS)
        self._sections: dict[int, dict[Bytes, list[Access]]] = {}

    def _around(self, touched: Bytes) -> Iterator[dict[Bytes, list[Access]]]:
        low, high = touched.limits
        for section in range(low // self._width, (high - 1) // self._width + 1):
            yield self._sections.setdefault(section, {})

    def add(self, now: Access) -> list[Access]:
        """Add an access; return the earlier ones that it races with, in their order."""
        found: list[Access] = []
        clock, touched = now.strand.clock, now.bytes
        seen: set[Bytes] = {touched}
        same: list[Access] | None = None
        for section in self._around(touched):
            for other_bytes, others in section.items():
                if other_bytes in seen:
                    continue
                seen.add(other_bytes)
                racing = [o for o in others if o.races(now, clock)]
                if racing and meet(touched, other_bytes):
                    found += racing
            same = section.setdefault(touched, [] if same is None else same)
        assert same is not None
        found += [o for o in same if o.races(now, clock)]
        # Drop accesses ordered before a write that covers all their bytes.
        drops = now.how in _PLAIN_WRITES
        same[:] = [
            o
            for o in same
            if not (o.strand is now.strand or o.before(clock)) or not (drops or o.how == now.how)
        ]
        same.append(now)
        return sorted(found, key=lambda o: o.order)


class HappensBefore:
    """An observer that finds races; `findings` has each pair of statements once."""

    sees_loads = True

    def __init__(self) -> None:
        self.findings: dict[tuple[object, ...], UserError] = {}
        self.footprint: list[Touch] = []
        self._accesses: dict[int, SliceAccesses] = {}
        self._count = 0
        self._cells: dict[tuple[int, int], Clock] = {}
        self._addresses: dict[str, int] = {}
        self._sets: dict[tuple[int, int], list[tuple[Access, int]]] = {}
        self._strands: dict[RankTask, list[Strand]] = {}

    def place(self, names: Sequence[tuple[str, int]]) -> None:
        """Assign consecutive addresses to window buffers, as a runtime packs them."""
        at = 0
        for name, nbytes in names:
            self._addresses[name] = at
            at += nbytes

    # Order

    def begin(self, strand: Strand, earlier: Sequence[RankTask]) -> None:
        clock: Clock = {}
        join(clock, strand.task.clock)
        for task in earlier:
            join(clock, task.end_clock)
        clock[strand.number] = 1
        strand.clock = clock
        self._strands.setdefault(strand.task, []).append(strand)

    def end(self, task: RankTask, parent: RankTask | None) -> None:
        clock: Clock = dict(task.end_clock or {})
        for strand in self._strands.pop(task, ()):
            join(clock, strand.clock)
        for earlier in task.edges:
            join(clock, earlier.end_clock)
        task.end_clock = clock
        if parent is not None:
            parent.end_clock = dict(parent.end_clock or {})
            join(parent.end_clock, clock)

    def awaited(self, strand: Strand) -> None:
        """Order later submissions of a control program after the tasks that it has waited for."""
        join(strand.clock, strand.task.end_clock)

    def complete(self, task: RankTask, cell: Window) -> None:
        """Order the successors of a deferred task after the notifies that met its condition."""
        task.end_clock = dict(task.end_clock or {})
        join(task.end_clock, self._cells.get(_key(cell)))

    # Accesses

    def access(self, strand: Strand, how: str, window: Window, op: Op, value: int = 0) -> None:
        buffer = window.buffer
        if not isinstance(buffer, SymmetricBuffer):
            return
        touched = window.bytes
        self.footprint.append(Touch((buffer.name, buffer.index), touched, how, value))
        if 0 in window.reach:
            return
        clock = strand.clock
        self._count += 1
        now = Access(strand, how, window, touched, op, clock[strand.number], self._count)
        if how in ("wait", "match"):
            join(clock, self._cells.get(_key(window)))
            return
        if buffer.id not in self._accesses:
            self._accesses[buffer.id] = SliceAccesses(buffer.nbytes)
        for other in self._accesses[buffer.id].add(now):
            self._found(other, now, buffer)
        if how in ("notify", "set"):
            self._share_line(now, buffer)
            join(self._cells.setdefault(_key(window), {}), clock)
            clock[strand.number] += 1
        elif how in _PLAIN_WRITES:
            self._share_line(now, buffer)

    def _found(self, a: Access, b: Access, buffer: SymmetricBuffer) -> None:
        key = ("race", *sorted([_where(a), _where(b)]))
        if key in self.findings:
            return
        labels = [(a.op.loc, a.told()), (b.op.loc, b.told())]
        name, rank = buffer.name, buffer.rank
        if "set" in (a.how, b.how) and {a.how, b.how} <= {"set", "notify"}:
            if a.strand.rank != b.strand.rank or a.how != b.how:
                self.findings[key] = SetBySeveral(name, rank, labels, a.how == b.how)
            return
        notes, helps = _advice(a, b)
        message = f"unordered accesses to `{name}` of rank {rank}"
        self.findings[key] = RanksRace(message, labels, notes, helps)

    def _share_line(self, now: Access, buffer: SymmetricBuffer) -> None:
        """Report a scalar store that writes its whole cache line back and loses a peer's data in
        it.
        """
        start, stop = now.bytes.limits
        base = self._addresses.get(buffer.name, 0)
        scalar = now.how == "set"
        for line in {(base + start) // LINE, (base + stop - 1) // LINE}:
            known = self._sets.setdefault((buffer.rank, line), [])
            for other, _ in known:
                one_is_scalar = scalar or other.how == "set"
                if (
                    not one_is_scalar
                    or other.strand.rank == now.strand.rank
                    or other.before(now.strand.clock)
                    or (
                        other.window.buffer.id == now.window.buffer.id
                        and other.window.overlaps(now.window)
                    )
                ):
                    continue
                key = ("line", *sorted([_where(other), _where(now)]))
                if key not in self.findings:
                    labels = [(other.op.loc, other.told()), (now.op.loc, now.told())]
                    names = (other.window.name, now.window.name)
                    self.findings[key] = LineShared(names, buffer.rank, labels)
            if len(known) < LINE:
                known.append((now, line))

    # Loads and stores of kernels

    def watched(self, state: RankState, low: Lowering, op: Op, step: Step) -> Step:
        """Return the step of an op, which reports its accesses to window buffers."""
        touched = [
            (param, v)
            for param, v in op.args.items()
            if isinstance(v, Value) and isinstance(v.type, DistributedType)
        ]
        if not touched or op.spec.structural or op.name.startswith("pld."):
            return step
        if Trait.SHAPE_ONLY in op.spec.traits:
            return step
        is_view = bool(op.results) and isinstance(op.results[0].type, DistributedType)
        if is_view and not op.spec.writes:
            return step
        how = "store" if op.spec.writes else "read"
        window = _accessed_window(low, op, touched[0][1])

        def watched(frame: Frame) -> None:
            self.access(state.strand, how, window(frame), op)
            step(frame)

        return watched


def _accessed_window(low: Lowering, op: Op, tensor: Value) -> Callable[[Frame], Window]:
    """Return the window that an op reads or writes."""
    if op.spec.writes:
        return written_window(low, op)
    if op.name in ("load", "slice"):
        return taken_window(low, op)
    slot = low.slot(tensor)
    if op.name != "read":
        return lambda frame: frame[slot]
    at = low.get(as_tuple(op.args["indices"]))

    def element(frame: Frame) -> Window:
        indices = at(frame)
        return frame[slot].slice(indices, (1,) * len(indices))

    return element


def _key(cell: Window) -> tuple[int, int]:
    return cell.buffer.id, cell.bytes.start


def _where(a: Access) -> tuple[str, int, int, str]:
    return a.op.loc.file, a.op.loc.line, a.op.loc.col, a.how


def _advice(a: Access, b: Access) -> tuple[list[str], list[str]]:
    """Return what kind of mistake it is, and what to do."""
    hows = {a.how, b.how}
    if hows & {"notify", "set"}:
        return (
            ["a cell is reset while a peer may still signal it"],
            ["count epochs instead: let the expected value grow, and never reset the cell"],
        )
    if a.strand.rank == b.strand.rank:
        return (
            ["the two tasks of one rank have no edge"],
            ["add `deps=[tid]`, or let one take what the other writes"],
        )
    return (
        ["no chain of notify and wait leads from one to the other"],
        ["notify after the first access, and wait for it before the second"],
    )
