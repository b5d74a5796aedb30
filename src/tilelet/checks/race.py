"""Races: accesses to the same bytes, at least one a write, that the runtime's rules do not order.

The rules are those of `device/schedule/graph.py` for the given runtime period, or for the newest; a
remark says if an older period leaves more accesses unordered. Accesses of tasks are exact strided
rectangles, computed column by column; a pair is reported with the statements that `trace.py` finds
in the two tasks.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tilelet.checks.contents import UNCHANGED
from tilelet.checks.findings import Box, Finding, Place, Status, make_finding
from tilelet.checks.parallel_loops import dependent_iterations
from tilelet.checks.prove import prove_order
from tilelet.checks.trace import Touch, Tracer
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.checks.witness import Pair, Witnesses
from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Runtime
from tilelet.device.schedule import native
from tilelet.device.schedule.accesses import accesses_of, key_width, split_box, with_exact
from tilelet.device.schedule.arrays import LOOKS_UP, Stream, build_stream
from tilelet.device.schedule.conflicts import (
    ACROSS,
    ATOMIC,
    MAX_FINDINGS,
    NO_LOOPS,
    READ,
    WRITE,
    Accesses,
    Loops,
    find_conflicts,
    needed_edges,
)
from tilelet.device.schedule.graph import Graph, build_graph
from tilelet.device.schedule.library import library
from tilelet.device.schedule.region_arrays import Ints
from tilelet.device.schedule.simulate import simulate
from tilelet.device.schedule.windows import with_windows
from tilelet.diag.catalogue.checks import ParallelDependence, Race
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import plural
from tilelet.interp.iterations import Iterations, find_iterations
from tilelet.ir.core import Op, walk
from tilelet.tasks.window import Window

MAX_FOLLOWED = 1 << 14
"""Limit on tasks to trace because their accesses cannot be computed from columns."""

MAX_STEPS = 1 << 28
"""Limit on pairs of accesses plus edges followed to decide whether their tasks are ordered: a few
seconds. For larger programs only the first tasks are checked.
"""

MAX_MODELLED = 1 << 14
"""Limit on tasks of a run whose superfluous edges are priced, each by another simulation."""


MAX_COMPARED_TASKS = 1024
MAX_COMPARED_STORES = 1 << 18
"""Limits on tasks and pairs of stores of one conflict whose contents are compared."""

MAX_COMPARED_PAIRS = 1 << 12
"""Limit on pairs of tasks of one conflict whose statements are compared, if the first do not
conflict."""

MAX_SPOILT_PAIRS = 64
"""Limit on pairs of tasks of one conflict whose reads are looked at for use."""


def check(subject: Subject, *, proves: bool | None = None) -> CheckResult:
    """Check all pairs of accesses under the rules of one period.

    proves  look for a proof for all sizes; by default unless the subject is brief
    """
    if not len(subject.tasks):
        return CheckResult("race", Status.NOT_CHECKED, "no task was submitted")
    proves = not subject.brief if proves is None else proves
    machine = subject.machine
    period = machine.period_name(subject.period) if subject.period else machine.newest_period
    races = Races(subject, period)
    findings = [*races.findings(), *dependent_iterations(subject.program)]
    remarks = list(races.unseen)
    if not subject.brief and subject.tasks.complete and races.looked_at == len(subject.tasks):
        remarks += _older(races) if subject.period is None else []
        remarks += races.superfluous()
    otherwise = Status.THIS_RUN
    if not findings and proves:
        proof = prove_order(subject.program, races.stream)
        otherwise = Status.PROVED if proof.holds else otherwise
        remarks += [proof.why] if proof.why else []
    unknown = int((races.accesses.known == 0).sum())
    looked_at = subject.tasks_text
    if races.looked_at < len(subject.tasks):
        looked_at = f"the first {plural(races.looked_at, 'task')} of more"
    summary = f"{looked_at} under the rules of {period}"
    if unknown:
        summary += f"; {unknown} accesses by element or index counted as whole arguments"
    return part("race", findings, otherwise, summary, remarks)


def _older(races: Races) -> list[str]:
    """Return the accesses that only older runtimes leave unordered, once per rule."""
    subject, remarks = races.subject, list[str]()
    seen, known = {races.runtime.rule}, races.kinds()
    for period, runtime in sorted(subject.machine.runtime.items(), reverse=True):
        if runtime.rule in seen:
            continue
        seen.add(runtime.rule)
        older = Races(subject, period, races).kinds()
        more = [older[pair] for pair in older if pair not in known]
        if more:
            remarks.append(
                f"the runtime of {period} leaves {plural(len(more), 'more pair')} of calls "
                f"unordered ({', '.join(sorted(set(more)))}): `--period {period}` shows them"
            )
    return remarks


@dataclass(frozen=True)
class Conflict:
    """Two accesses (rows of `Accesses`) that represent all `pairs` of the same two arguments."""

    first: int
    second: int
    what: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return len(self.pairs)


class Races:
    """Conflicts of one recorded run under one rule.

    `same` is the same run under another rule, from which loops are reused.
    """

    def __init__(self, subject: Subject, period: str, same: Races | None = None) -> None:
        self.subject = subject
        self.period = period
        self.runtime: Runtime = subject.machine.runtime[period]
        self.unseen: list[str] = []
        self.looked_at = 0
        if same is not None:
            self.iterations, self.loops = same.iterations, same.loops

    @cached_property
    def stream(self) -> Stream:
        s = self.subject
        stream = build_stream(s.tasks, s.program, self.runtime, s.device_run.cost_cache)
        return with_windows(stream, self.runtime.windows)

    @cached_property
    def graph(self) -> Graph:
        lib = library()
        return native.build_graph_native(lib, self.stream) if lib else build_graph(self.stream)

    @property
    def accesses(self) -> Accesses:
        shared = self.subject.shared
        if shared.accesses is None:
            shared.accesses = self._accesses()
        return shared.accesses

    def _accesses(self) -> Accesses:
        """Return the accesses of all tasks; tasks are traced where columns do not suffice."""
        coarse = accesses_of(self.stream, self.subject.program.functions)
        vague = np.unique(coarse.task[coarse.known == 0])
        if not len(vague) or len(vague) > MAX_FOLLOWED:
            return coarse
        followed: list[int] = []
        rows: list[list[int]] = []
        for task in vague.tolist():
            touches = self.tracer.touches(task)
            if touches is None:
                continue
            followed.append(task)
            rows += self._exact_rows(coarse, task, touches)
        exact = np.array(rows, np.int64).reshape(-1, 9)
        return with_exact(self.stream, coarse, np.array(followed, np.int64), exact)

    def _exact_rows(self, coarse: Accesses, task: int, touches: list[Touch]) -> list[list[int]]:
        first, last = np.searchsorted(coarse.task, [task, task + 1])
        mine = [i for i in range(first, last) if not coarse.known[i]]
        rows: list[list[int]] = []
        # All blocks have the same arguments.
        for key, writes in dict.fromkeys(
            (int(coarse.key[i]), coarse.kind[i] != READ) for i in mine
        ):
            access = next(i for i in mine if coarse.key[i] == key)
            number = coarse.buffer(access)
            buffer = self.stream.regions.buffers[number].id
            for touch in touches:
                if touch.window.buffer.id == buffer and touch.writes == writes:
                    kind = READ if not writes else ATOMIC if touch.atomic else WRITE
                    rows += _rectangles(touch, [task, touch.block, key, kind, number])
        return rows

    @cached_property
    def iterations(self) -> Iterations | None:
        """The loops around each task, or None if they depend on data that was not computed."""
        try:
            s = self.subject
            return find_iterations(s.program, s.small_arguments, len(s.tasks))
        except (DependsOnTaskData, UserError):
            return None

    @cached_property
    def loops(self) -> Loops:
        program = self.subject.program
        control = [f for f in program.functions.values() if f not in program.kernels]
        loops = [op for f in control for op in walk(f.body) if op.name == "for"]
        around = self.iterations if any(map(_is_parallel, loops)) else None
        if around is None or len(around.ptr) != self.graph.tasks + 1:
            return NO_LOOPS
        ptr, loop, index = (
            np.array(x, np.int64) for x in (around.ptr, around.number, around.index)
        )
        parallel = np.array([_is_parallel(op) for op in around.loops], np.int64)
        return Loops(ptr, loop, index, parallel)

    @cached_property
    def conflicts(self) -> list[Conflict]:
        """The first conflicts for each pair of arguments and kind of conflict."""
        return self._conflicts(MAX_FINDINGS)

    def _conflicts(self, most: int) -> list[Conflict]:
        found, self.looked_at = self._find(self.graph, most)
        key = self.accesses.key
        groups: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for first, second, what in found.tolist():
            groups.setdefault((int(key[first]), int(key[second]), what), []).append((first, second))
        return [Conflict(*pairs[0], what, tuple(pairs)) for (_, _, what), pairs in groups.items()]

    def _find(self, graph: Graph, most: int = MAX_FINDINGS) -> tuple[Ints, int]:
        """Return the conflicts, and the number of tasks checked."""
        lib = library()
        if lib is None:
            return find_conflicts(self.accesses, graph, self.loops, most), graph.tasks
        return native.find_conflicts_native(lib, self.accesses, graph, self.loops, most, MAX_STEPS)

    def kinds(self) -> dict[tuple[int, int], str]:
        """Return the two arguments of every unordered pair, and their tensor."""
        key = self.accesses.key
        return {
            (int(key[c.first]), int(key[c.second])): self.tensor(c.first)
            for c in self.conflicts
            if c.what != ACROSS
        }

    # Findings

    def findings(self) -> list[Finding]:
        conflicts = self.conflicts
        # Whole windows overlap more often than their valid parts.
        if any(c.count >= MAX_FINDINGS and self._example(c) is None for c in conflicts):
            conflicts = self._conflicts(MAX_COMPARED_PAIRS)
        made = [self._finding(conflict) for conflict in conflicts]
        return [finding for finding in made if finding is not None]

    @cached_property
    def tracer(self) -> Tracer:
        s = self.subject
        if s.shared.tracer is None:
            s.shared.tracer = Tracer(s.program, s.tasks, s.arguments, execute=not s.brief)
        return s.shared.tracer

    @cached_property
    def contents(self) -> Tracer:
        s = self.subject
        return Tracer(s.program, s.tasks, s.arguments, contents=True)

    @cached_property
    def witnesses(self) -> Witnesses:
        s = self.subject
        return Witnesses(s.program, s.tasks, s.arguments, self.graph)

    def tensor(self, access: int) -> str:
        return self.stream.regions.buffers[self.accesses.buffer(access)].name

    def _finding(self, conflict: Conflict) -> Finding | None:
        a = self.accesses
        example = self._example(conflict)
        if example is None:
            return None  # the arguments as a whole overlap, but their actual accesses do not
        (y, x), touches = example
        first, second = int(a.task[y]), int(a.task[x])
        blocks = (int(a.block[y]), int(a.block[x]))
        if touches and first == second and self._is_external(first, touches):
            self.unseen.append(
                f"`{self.tensor(y)}`: which parts of it the blocks of external kernel "
                f"`{self.subject.tasks[first].kernel}` access is not known"
            )
            return None
        if touches and self._is_harmless(conflict):
            kernels = {self.subject.tasks[task].kernel for task in (first, second)}
            names = " and ".join(f"`{name}`" for name in sorted(kernels))
            self.unseen.append(
                f"`{self.tensor(y)}`: accesses of {names} are unordered, but all that write an "
                f"element write the same"
            )
            return None
        if touches is None and self.subject.brief:
            return None  # the accesses depend on data: only a witness could tell
        places = [
            self._place(access, touch, is_block)
            for access, touch, is_block in zip(
                (y, x), touches or (None, None), [first == second] * 2
            )
        ]
        box, region = self._region(touches, y)
        if self.subject.brief:
            witness, why = None, "`tilelet check` looks for an order with other results"
        else:
            witness, why = self.witnesses.find(Pair(first, second, blocks))
            if witness is None and self._is_discarded(conflict):
                self.unseen.append(
                    f"`{self.tensor(y)}`: {plural(conflict.count, 'pair')} of tasks are unordered, "
                    f"but the reader does not use what it reads where the other writes"
                )
                return None
        if touches is None and witness is None:
            kernels = {self.subject.tasks[task].kernel for task in (first, second)}
            names = " and ".join(f"`{name}`" for name in sorted(kernels))
            self.unseen.append(
                f"unknown data decides which bytes of `{self.tensor(y)}` {names} access: "
                f"{plural(conflict.count, 'pair')} of tasks not checked"
            )
            return None
        text = witness.text if witness else why
        labels = [(p.loc, f"{p.role} it: {p.where}") for p in places]
        if conflict.what == ACROSS:
            problem: UserError = ParallelDependence(
                self.tensor(y), labels[0], labels[1], self._loop(first, second), region, text
            )
        else:
            rule, remedy = self._why(y, x)
            problem = Race(
                self.tensor(y), labels[0], labels[1], region, rule, remedy, conflict.count, text
            )
            problem.causes = (tuple(sorted(p.kernel for p in places)),)
            if f"`{self.tensor(y)}`" in rule:
                problem.causes += (rule,)
        return make_finding("race", problem, places=tuple(places), region=box, witness=witness)

    def _is_external(self, task: int, touches: tuple[Touch, Touch]) -> bool:
        """Return whether one of these accesses is that of an external kernel."""
        kernel = self.subject.program.functions[self.subject.tasks[task].kernel]
        names = {op.name for op in walk(kernel.body) if op.spec.external is not None}
        return not names.isdisjoint(touch.op for touch in touches)

    def _is_harmless(self, conflict: Conflict) -> bool:
        """Return whether the order of two calls' accesses to a tensor cannot matter.

        Stores that overlap must write the same to the same window. A store that leaves the memory
        as it was may overlap loads, and other stores of this kind.
        """
        owners, _ = self.subject.tasks.places()
        groups = {int(self.accesses.key[i]) // key_width(self.stream) for i in conflict.pairs[0]}
        tasks = np.flatnonzero(np.isin(owners, list(groups)))
        buffer = self.stream.regions.buffers[self.accesses.buffer(conflict.first)].id
        if len(tasks) > MAX_COMPARED_TASKS:
            return False
        mine: dict[tuple[object, ...], tuple[Touch, set[tuple[int, int]]]] = {}
        for task in tasks.tolist():
            touches = self.contents.touches(task)
            if touches is None:
                return False
            for touch in touches:
                if touch.window.buffer.id == buffer:
                    w = touch.window
                    key = w.offset, w.reach, w.strides, w.dtype, touch.writes, touch.contents
                    known = mine.setdefault((*key, touch.atomic), (touch, set()))
                    known[1].add((task, touch.block))
        kept = [k for k in mine.values() if k[0].contents != UNCHANGED]
        unchanged = [k for k in mine.values() if k[0].contents == UNCHANGED]
        stores = [k for k in kept if k[0].writes]
        if len(stores) * (len(stores) + len(unchanged)) > MAX_COMPARED_STORES:
            return False
        return not any(
            len(p[1] | q[1]) > 1 and p[0].disturbs(q[0])
            for p in stores
            for q in (*kept, *unchanged)
            if p is not q
        ) and not any(len(p[1]) > 1 and p[0].atomic for p in stores)

    def _is_discarded(self, conflict: Conflict) -> bool:
        """Return whether tasks ignore what they read from windows that unordered tasks write."""
        a = self.accesses
        if conflict.what == ACROSS or conflict.count > MAX_SPOILT_PAIRS:
            return False
        reads: dict[int, list[tuple[Window, Window]]] = {}
        for pair in conflict.pairs:
            tasks = [int(a.task[i]) for i in pair]
            touches = [self.tracer.touches(task) for task in tasks]
            buffer = self.stream.regions.buffers[a.buffer(pair[0])].id
            if tasks[0] == tasks[1] or touches[0] is None or touches[1] is None:
                return False
            for p in touches[0]:
                for q in touches[1]:
                    if p.window.buffer.id != buffer or not p.disturbs(q):
                        continue
                    if p.writes == q.writes or p.window.dtype is not q.window.dtype:
                        return False
                    reader, other, task = (q, p, tasks[1]) if p.writes else (p, q, tasks[0])
                    reads.setdefault(task, []).append((reader.window, other.window))
        return bool(reads) and self.witnesses.discards(reads)

    def _example(
        self, conflict: Conflict
    ) -> tuple[tuple[int, int], tuple[Touch, Touch] | None] | None:
        """Return the first pair whose accesses conflict, with its statements, or else one whose
        accesses are unknown.
        """
        unknown: tuple[int, int] | None = None
        for pair in conflict.pairs:
            touches = self._statements(*pair)
            if touches:
                return pair, touches
            if touches is None and unknown is None:
                unknown = pair
        if unknown is not None:
            return unknown, None
        if conflict.count >= MAX_COMPARED_PAIRS:
            self.unseen.append(
                f"`{self.tensor(conflict.first)}`: all but the first {MAX_COMPARED_PAIRS:,} pairs "
                f"of unordered tasks not checked"
            )
        return None

    def _statements(self, y: int, x: int) -> tuple[Touch, Touch] | tuple[()] | None:
        """Return the conflicting statements: () if none conflict, None if unknown."""
        a = self.accesses
        mine, other = (self.tracer.touches(int(a.task[i])) for i in (y, x))
        if mine is None or other is None:
            return None
        buffer = self.stream.regions.buffers[a.buffer(y)].id
        same = a.task[y] == a.task[x]
        for p in mine:
            for q in other:
                if p.window.buffer.id != buffer or q.window.buffer.id != buffer:
                    continue
                if p.disturbs(q) and (not same or p.block != q.block):
                    return p, q
        return ()

    def _place(self, access: int, touch: Touch | None, with_block: bool) -> Place:
        a = self.accesses
        task = int(a.task[access])
        recorded = self.subject.tasks[task]
        role = "reads" if a.kind[access] == READ else "writes"
        return Place(
            touch.loc if touch is not None else recorded.loc,
            ("writes" if touch.writes else "reads") if touch is not None else role,
            recorded.kernel,
            task,
            (touch.block if touch is not None else int(a.block[access])) if with_block else None,
            self.around(task),
        )

    def around(self, task: int) -> tuple[tuple[str, int], ...]:
        """Return the indices of the loops around a task."""
        found = self.iterations
        if found is None or len(found.ptr) <= task + 1:
            return ()
        return found.around(task)

    def _loop(self, first: int, second: int) -> Loc:
        """Return the loop whose iterations separate the two tasks."""
        found: Any = self.iterations
        spans = [range(found.ptr[t], found.ptr[t + 1]) for t in (first, second)]
        for i, j in zip(*spans):
            if found.index[i] != found.index[j]:
                return found.loops[found.number[i]].loc
        return self.subject.tasks[first].loc

    def _region(
        self, touches: tuple[Touch, Touch] | tuple[()] | None, access: int
    ) -> tuple[Box | None, str]:
        """Return the bytes that both access, in the axes of the tensor."""
        number = self.accesses.buffer(access)
        name = self.tensor(access)
        if not touches:
            return None, f"`{name}`"
        whole = self._whole(number)
        boxes = [box_in(whole, touch.window) for touch in touches]
        if boxes[0] is None or boxes[1] is None:
            return None, f"`{name}`"
        start = tuple(map(max, boxes[0][0], boxes[1][0]))
        stop = tuple(map(min, boxes[0][1], boxes[1][1]))
        if any(a >= b for a, b in zip(start, stop)):
            return None, f"`{name}`"
        box = Box(name, start, stop)
        return box, f"`{box}`"

    def _whole(self, buffer: int) -> Window:
        """Return the widest window of a buffer that any task gets."""
        table = self.subject.tasks.regions
        mine = [n for n in range(len(table)) if table.buffer[n] == buffer]
        best = max(mine, key=lambda n: int(np.prod(table.layouts[table.layout[n]].shape)))
        return table.window(best)

    def _why(self, y: int, x: int) -> tuple[str, str]:
        """Return which rule leaves the pair unordered, and what to do."""
        a, width = self.accesses, key_width(self.stream)
        (group, position), (later, at) = (divmod(int(a.key[i]), width) for i in (y, x))
        first, second = (self.stream.groups[g].tasks for g in (group, later))
        name, buffer = self.tensor(y), self.stream.regions.buffers[a.buffer(y)]
        edge = f"name the first task in `deps=[...]` of `{second.kernel}`"
        if a.task[y] == a.task[x]:
            return (
                "the blocks of one task run concurrently",
                f"give each block its own part of `{name}`, or add with `atomic=pl.AtomicType.Add`",
            )
        if first.manual or second.manual:
            return "tasks in `pl.manual_scope()` are ordered by `deps=` only", edge
        if buffer.manual_dep:
            return f"`{name}` was created with `manual_dep=True`: it orders no tasks", edge
        for tasks, position_ in ((first, position), (second, at)):
            if position_ in tasks.no_dep:
                return (
                    f"`no_dep_args` of `{tasks.kernel}` excludes `{name}` from the dependencies",
                    f"remove `{name}` from `no_dep_args`, or {edge}",
                )
        if a.kind[y] == READ:
            return "no task waits for an earlier reader (write after read is not tracked)", edge
        if not self._looks_up(x):
            rule = f"an argument that is only written waits for no writer ({self.period})"
            return rule, f"declare `{name}` as `pl.InOut` in `{second.kernel}`, or {edge}"
        return "the arguments of the two tasks do not overlap", edge

    def _looks_up(self, access: int) -> bool:
        s, task = self.stream, int(self.accesses.task[access])
        position = int(self.accesses.key[access]) % key_width(s)
        group = s.groups[int(self.accesses.key[access]) // key_width(s)]
        place = int(s.arg_ptr[task]) + group.tensors.index(position)
        return bool(s.arg_flags[place] & LOOKS_UP)

    # Superfluous edges

    def superfluous(self) -> list[str]:
        """Return edges between tasks without conflict, if removing them causes no race."""
        if len(self.subject.tasks) > MAX_MODELLED or self.conflicts:
            return []
        lib = library()
        args = (self.accesses, self.graph)
        needed = native.needed_edges_native(lib, *args) if lib else needed_edges(*args)
        owners, _ = self.subject.tasks.places()
        consumer = np.repeat(np.arange(self.graph.nodes), np.diff(self.graph.ptr))
        spare = np.flatnonzero((needed == 0) & ~self._explicit(consumer))
        if not len(spare):
            return []
        pairs = owners[self.graph.pred[spare]] * len(self.stream.groups) + owners[consumer[spare]]
        remarks: list[str] = []
        for pair in np.unique(pairs).tolist()[:3]:
            edges = spare[pairs == pair]
            remark = self._priced(edges, *divmod(pair, len(self.stream.groups)))
            remarks += [remark] if remark else []
        return remarks

    def _explicit(self, consumer: Ints) -> np.ndarray:
        """Return the edges that `deps=` requests, which are intentional."""
        asked = {(d, t) for t, deps in self.subject.tasks.deps.items() for d in deps}
        if not asked:
            return np.zeros(len(consumer), np.bool_)
        pred = self.graph.pred.tolist()
        return np.array([(p, c) in asked for p, c in zip(pred, consumer.tolist())], np.bool_)

    def _priced(self, edges: Ints, first: int, second: int) -> str | None:
        """Return the modelled cost of a kind of edge, or None if the program needs it."""
        reduced = _without_edges(self.graph, edges)
        found, looked_at = self._find(reduced)
        if len(found) or looked_at < reduced.tasks:
            return None
        s = self.subject
        cache = s.device_run.cost_cache
        times = [
            simulate(
                s.tasks, s.program, s.machine, period=self.period, cache=cache, graph=g
            ).total_us
            for g in (self.graph, reduced)
        ]
        names = [self.stream.groups[g].kernel for g in (first, second)]
        return (
            f"{plural(len(edges), 'dependency', 'dependencies')} `{names[0]}` -> `{names[1]}` "
            f"between tasks that access different bytes: {times[0] - times[1]:.2f} of "
            f"{times[0]:.2f} us (modelled, runtime of {self.period})"
        )


def _rectangles(touch: Touch, head: list[int]) -> list[list[int]]:
    window, item = touch.window, touch.window.dtype.itemsize
    shifts, low, high, row, pitch = split_box(window.reach, window.strides, item)
    starts = [(window.offset + int(shift)) * item for shift in shifts]
    return [[*head, start + low, start + high, row, pitch] for start in starts]


def _without_edges(graph: Graph, edges: Ints) -> Graph:
    keep = np.ones(len(graph.pred), np.bool_)
    keep[edges] = False
    counts = np.add.reduceat(
        np.append(keep, False).astype(np.int64), np.minimum(graph.ptr[:-1], len(keep))
    )
    counts[np.diff(graph.ptr) == 0] = 0
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Graph(ptr, np.ascontiguousarray(graph.pred[keep]), graph.tasks)


def box_in(whole: Window, window: Window) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the position of a window in the axes of its tensor, or None if it is not a box."""
    rank = len(whole.shape)
    shape, strides = window.reach, window.strides
    shape = (1,) * (rank - len(shape)) + shape
    strides = whole.strides[: rank - len(strides)] + strides
    if len(shape) != rank or window.dtype.itemsize != whole.dtype.itemsize:
        return None
    if any(n > 1 and s != w for n, s, w in zip(shape, strides, whole.strides)):
        return None
    rest = window.offset - whole.offset
    start: list[int] = []
    for stride in whole.strides:
        start.append(rest // stride if stride > 0 else 0)
        rest -= start[-1] * stride
    return tuple(start), tuple(a + n for a, n in zip(start, shape))


def _is_parallel(op: Op) -> bool:
    return op.args["kind"] == "parallel"
