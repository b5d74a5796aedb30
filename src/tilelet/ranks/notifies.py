"""Which signals a task would send, as far as its scalars are known, and which a run has sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilelet.analysis.aliases import Aliases
from tilelet.analysis.scalars import ScalarValues
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import Loc
from tilelet.diag.text import plural
from tilelet.ir.core import Arg, Block, Function, Op, Value, walk
from tilelet.ir.types import DistributedType
from tilelet.ir.views import CallView, ForView, yielded_values
from tilelet.ranks.memory import Allocation, Membership, SymmetricBuffer
from tilelet.syntax.ranks import NotifyOp
from tilelet.tasks.window import Window

MAX_ITERATIONS = 4_000
"""Loop iterations that one walk follows; the index of the loops after them is unknown."""


@dataclass(frozen=True, slots=True)
class Notify:
    """One execution of a `notify`, or one that an `if` skips.

    allocation  the window buffer that it signals
    owner       whose slice it signals, as an index in the domain; None if that depends on data
    start       first byte of the cell in the slice; None if that depends on data
    condition   the innermost `if` around it that is false or depends on data
    is_skipped  whether an `if` around it is known to be false
    """

    op: Op
    allocation: Allocation | None
    owner: int | None
    start: int | None
    condition: Loc | None
    is_skipped: bool

    def may_reach(self, cell: Window) -> bool:
        """Whether it may signal this cell."""
        buffer = cell.buffer
        assert isinstance(buffer, SymmetricBuffer)
        return (
            self.allocation in (None, buffer.allocation)
            and self.owner in (None, buffer.index)
            and self.start in (None, cell.bytes.start)
        )


class Notifies:
    """Walks the functions of a program with the operands of one task."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._has: dict[str, bool] = {}
        self._aliases: dict[str, Aliases] = {}

    def has(self, name: str) -> bool:
        """Whether a function, or one that it calls, notifies."""
        if name not in self._has:
            self._has[name] = any(
                op.name == "pld.system.notify"
                or (op.name == "call" and self.has(CallView(op).callee))
                for op in walk(self._functions[name].body)
            )
        return self._has[name]

    def aliases(self, function: Function) -> Aliases:
        if function.name not in self._aliases:
            self._aliases[function.name] = Aliases(function.body, self._functions)
        return self._aliases[function.name]

    def of(
        self,
        name: str,
        operands: Sequence[object],
        rank: int,
        block: int | None = 0,
        blocks: int | None = 1,
    ) -> list[Notify]:
        """Return the notifies of a function on a rank; `block` is None if it has several."""
        if name not in self._functions or not self.has(name):
            return []
        return list(_Walk(self, self._functions, rank).function(name, operands, block, blocks))


_Around = tuple["Loc | None", bool]  # see `condition` and `is_skipped` of `Notify`


class _Walk:
    """One walk: `function` yields notifies in program order."""

    def __init__(self, notifies: Notifies, functions: Mapping[str, Function], rank: int) -> None:
        self._notifies = notifies
        self._functions = functions
        self._rank = rank
        self._iterations = MAX_ITERATIONS

    def function(
        self, name: str, operands: Sequence[object], block: int | None, blocks: int | None
    ) -> Iterator[Notify]:
        function = self._functions[name]
        known = ScalarValues(dict(zip(function.params, operands)), block, blocks)
        yield from self._scan(function.body, known, self._notifies.aliases(function), (None, False))

    def _scan(
        self, block: Block, known: ScalarValues, aliases: Aliases, around: _Around
    ) -> Iterator[Notify]:
        for op in block.ops[:-1]:
            if op.name == "pld.system.notify":
                yield self._notify(op, known, aliases, around)
            elif op.name == "call":
                yield from self._call(op, known, aliases, around)
            elif op.name == "for":
                yield from self._for(op, known, aliases, around)
            elif op.name == "if":
                yield from self._if(op, known, aliases, around)
            else:
                for inner in op.blocks:
                    yield from self._scan(inner, known, aliases, around)
            self._bind(op, known, aliases)

    def _notify(self, op: Op, known: ScalarValues, aliases: Aliases, around: _Around) -> Notify:
        view = _view(op.args["target"], known, aliases)
        offsets = op.args["offsets"]
        at = [known.get(o) for o in (offsets if isinstance(offsets, tuple) else (offsets,))]
        start = None
        if isinstance(view, Window) and all(isinstance(o, int) for o in at):
            start = view.slice(at, (1,) * len(at)).bytes.start
        peer = known.get(op.args["peer"])
        owner = peer if isinstance(peer, int) else None
        return Notify(op, _allocation(view), owner, start, *around)

    def _call(
        self, op: Op, known: ScalarValues, aliases: Aliases, around: _Around
    ) -> Iterator[Notify]:
        view = CallView(op)
        if not self._notifies.has(view.callee):
            return
        operands = [_view(a, known, aliases) for a in view.operands]
        is_single = op.args["count"] is None
        block, blocks = (0, 1) if is_single else (None, None)
        for found in self.function(view.callee, operands, block, blocks):
            condition, is_skipped = around
            yield replace(
                found,
                condition=found.condition or condition,
                is_skipped=found.is_skipped or is_skipped,
            )

    def _for(
        self, op: Op, known: ScalarValues, aliases: Aliases, around: _Around
    ) -> Iterator[Notify]:
        view = ForView(op)
        bounds = [known.get(b) for b in view.bounds]
        indices: Iterable[int | None] = (None,)
        if all(isinstance(b, int) for b in bounds) and bounds[2]:
            taken = range(*bounds)
            if len(taken) <= self._iterations:
                self._iterations -= len(taken)
                indices = taken
        for index in indices:
            known.values[view.index] = index
            known.values.update(dict.fromkeys(view.carried))
            yield from self._scan(view.body, known, aliases, around)

    def _if(
        self, op: Op, known: ScalarValues, aliases: Aliases, around: _Around
    ) -> Iterator[Notify]:
        taken = known.get(op.args["cond"])
        condition, is_skipped = around
        for arm, inner in zip((True, False), op.blocks):
            skips = taken is not None and bool(taken) is not arm
            innermost = op.loc if skips or taken is None else condition
            yield from self._scan(inner, known, aliases, (innermost, is_skipped or skips))

    def _bind(self, op: Op, known: ScalarValues, aliases: Aliases) -> None:
        """Record the results of an op."""
        if op.name in ("pld.rank", "pld.nranks"):
            member = known.get(op.args["ctx"])
            if isinstance(member, Membership):
                is_rank = op.name == "pld.rank"
                known.values[op.result] = member.index if is_rank else len(member.domain.ranks)
        elif op.name == "pld.get_comm_ctx":
            allocation = _allocation(_view(op.args["tensor"], known, aliases))
            if allocation is not None:
                domain = allocation.domain
                known.values[op.result] = Membership(domain, domain.ranks.index(self._rank))
        elif op.name == "if" and (taken := known.get(op.args["cond"])) is not None:
            values = [known.get(v) for v in yielded_values(op.blocks[0 if taken else 1])]
            known.values.update(zip(op.results, values))
        elif not op.blocks and not any(isinstance(v.type, DistributedType) for v in op.results):
            known.bind(op)


def _view(arg: Arg, known: ScalarValues, aliases: Aliases) -> object:
    """Return the value of an argument; the allocation of a view that is not known exactly."""
    found = known.get(arg)
    if found is None and isinstance(arg, Value) and isinstance(arg.type, DistributedType):
        whole = aliases.whole(arg)
        if whole is not None and isinstance(window := known.get(whole), Window):
            return window
        for root in aliases.roots(arg):
            allocation = _allocation(known.get(root))
            if allocation is not None:
                return allocation
    return found


def _allocation(view: object) -> Allocation | None:
    if isinstance(view, Allocation):
        return view
    if isinstance(view, Window) and isinstance(view.buffer, SymmetricBuffer):
        return view.buffer.allocation
    return None


# --- what a run has sent -------------------------------------------------------------------------

Cell = tuple[int, int]  # the slice's buffer, and the first byte of the cell


@dataclass
class Sent:
    """Signals of one statement of a rank to one cell.

    last, total  the last value, and the sum of all
    """

    count: int = 0
    last: int = 0
    total: int = 0

    def told(self, kind: NotifyOp, cell: str) -> str:
        """Return what was done to a cell, after "has"."""
        times = f", {plural(self.count, 'time')}" if self.count > 1 else ""
        if kind is NotifyOp.Set:
            return f"set {cell} to {self.last}" + (f" last{times}" if times else "")
        if self.total == self.count * self.last:
            return f"added {self.last} to {cell}{times}"
        return f"added {self.total} in all to {cell}{times}"


class SentSignals:
    """All signals of a run, by cell and statement."""

    def __init__(self) -> None:
        self._cells: dict[Cell, dict[tuple[int, Loc, NotifyOp], Sent]] = {}

    def note(self, rank: int, op: Op, cell: Window, value: int, kind: NotifyOp) -> None:
        by_statement = self._cells.setdefault(_key(cell), {})
        sent = by_statement.setdefault((rank, op.loc, kind), Sent())
        sent.count += 1
        sent.last = value
        sent.total += value

    def to(self, cell: Window) -> dict[tuple[int, Loc, NotifyOp], Sent]:
        return self._cells.get(_key(cell), {})

    def has_sent(self, rank: int, loc: Loc, cell: Window) -> bool:
        return any((r, at) == (rank, loc) for r, at, _ in self.to(cell))

    def of(self, buffer: SymmetricBuffer) -> Iterator[tuple[int, Loc]]:
        """Yield the first byte of each signalled cell of a slice, and the statements."""
        for (identity, start), by_statement in self._cells.items():
            if identity == buffer.id:
                yield from ((start, at) for at in {at: None for _, at, _ in by_statement})


def _key(cell: Window) -> Cell:
    return cell.buffer.id, cell.bytes.start
