"""Tasks that access the same bytes, at least one writing: which of them are unordered.

The runtime orders tasks by whole arguments and directions (`graph.py`); their actual accesses are
smaller. This module compares the two. It is the reference implementation; `c/conflicts.c` finds the
same faster.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tilelet.analysis.overlap import Bytes, meet
from tilelet.dataclasses import dataclass
from tilelet.device.schedule.graph import Graph
from tilelet.device.schedule.region_arrays import Ints

READ, WRITE, ATOMIC = 0, 1, 2
"""Kinds of access; two atomic additions do not conflict."""

UNORDERED, ACROSS = 0, 1
"""Kinds of conflict: the two are unordered; or they are ordered, but in different iterations of a
loop that the program declares parallel.
"""

MAX_FINDINGS = 16
"""Limit on findings per pair of access kinds."""


@dataclass(frozen=True, eq=False)
class Accesses:
    """The accesses of all tasks, ordered by task.

    task, block  who; `key`: which argument of which call; `kind`: see `READ`
    region       a row of `rectangles` (columns as in `region_arrays.Regions.arrays`)
    known        False if the whole argument stands for an unknown part of it
    sizes        bytes of each buffer
    """

    task: Ints
    block: Ints
    key: Ints
    kind: Ints
    region: Ints
    known: Ints
    rectangles: dict[str, Ints]
    sizes: Ints

    def bytes(self, access: int) -> Bytes:
        low, high, row, pitch = (
            int(self.rectangles[name][self.region[access]])
            for name in ("low", "high", "row", "pitch")
        )
        rest = high - low - row
        return Bytes(low, row, ((rest // abs(pitch) + 1, abs(pitch)),) if rest else ())

    def buffer(self, access: int) -> int:
        return int(self.rectangles["buffer"][self.region[access]])


@dataclass(frozen=True, eq=False)
class Loops:
    """The loops around each task, outermost first, flattened: number of the loop, and iteration.
    `parallel` says for each loop whether its iterations are independent.
    """

    ptr: Ints
    loop: Ints
    iteration: Ints
    parallel: Ints


def _empty_rows() -> Ints:
    return np.zeros(0, np.int64)


NO_LOOPS = Loops(_empty_rows(), _empty_rows(), _empty_rows(), _empty_rows())


def find_conflicts(
    accesses: Accesses, graph: Graph, loops: Loops, most: int = MAX_FINDINGS
) -> Ints:
    """Return rows of (first access, second access, kind of conflict), ordered by the second.

    If a later write covers an access and is ordered after it, only that write is compared with
    later accesses: an access unordered with the first is also unordered with the write.
    """
    search = _Search(accesses, graph, loops, most)
    for access in range(len(accesses.task)):
        search.sweep(access)
    return np.array(search.found, np.int64).reshape(-1, 3)


class _Search:
    def __init__(self, accesses: Accesses, graph: Graph, loops: Loops, most: int) -> None:
        self.accesses = accesses
        self.graph = graph
        self.loops = loops
        self.most = most
        self.found: list[tuple[int, int, int]] = []
        self.counts: Counter[tuple[int, int, int]] = Counter()
        self.shown = {int(r): accesses.bytes(i) for i, r in enumerate(accesses.region)}
        self.buffers = accesses.rectangles["buffer"].tolist()
        self.touched: dict[int, list[int]] = {}
        self.writers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        self.ancestors: dict[int, set[int]] = {}

    def sweep(self, x: int) -> None:
        a = self.accesses
        region, kind = int(a.region[x]), int(a.kind[x])
        own = self.touched.setdefault(self.buffers[region], [])
        for other in sorted(own):
            if other != region and not meet(self.shown[region], self.shown[other]):
                continue
            drop = kind == WRITE and other == region
            self.meet(self.writers.setdefault(other, []), x, drop)
            if kind != READ:
                self.meet(self.readers.setdefault(other, []), x, drop)
        if region not in own:
            own.append(region)
        (self.readers if kind == READ else self.writers).setdefault(region, []).append(x)

    def meet(self, earlier: list[int], x: int, drop: bool) -> None:
        a = self.accesses
        kept: list[int] = []
        for y in earlier:
            same = a.task[y] == a.task[x] and a.block[y] == a.block[x]
            harmless = a.kind[x] == ATOMIC and a.kind[y] == ATOMIC
            gone = not same and not harmless and self.settled(y, x) and drop
            if not gone:
                kept.append(y)
        earlier[:] = kept

    def settled(self, y: int, x: int) -> bool:
        first, second = int(self.accesses.task[y]), int(self.accesses.task[x])
        if first == second:
            self.report(y, x, UNORDERED)
            return False
        if self.counts[self.key(y, x, UNORDERED)] >= self.most:
            return True
        if first not in self.before(second):
            self.report(y, x, UNORDERED)
            return False
        if self.across(first, second):
            self.report(y, x, ACROSS)
        return True

    def key(self, y: int, x: int, what: int) -> tuple[int, int, int]:
        return int(self.accesses.key[y]), int(self.accesses.key[x]), what

    def report(self, y: int, x: int, what: int) -> None:
        key = self.key(y, x, what)
        self.counts[key] += 1
        if self.counts[key] <= self.most:
            self.found.append((y, x, what))

    def before(self, node: int) -> set[int]:
        """Return every node from which `node` is reachable."""
        if node not in self.ancestors:
            found: set[int] = set()
            stack = [node]
            while stack:
                n = stack.pop()
                for pred in self.graph.pred[self.graph.ptr[n] : self.graph.ptr[n + 1]].tolist():
                    if pred not in found:
                        found.add(pred)
                        stack.append(pred)
            self.ancestors = {node: found}
        return self.ancestors[node]

    def across(self, a: int, b: int) -> bool:
        loops = self.loops
        if not len(loops.ptr):
            return False
        ways = [range(loops.ptr[t], loops.ptr[t + 1]) for t in (a, b)]
        for i, j in zip(*ways):
            if loops.loop[i] != loops.loop[j]:
                return False
            if loops.iteration[i] != loops.iteration[j]:
                return bool(loops.parallel[loops.loop[i]])
        return False


def needed_edges(accesses: Accesses, graph: Graph) -> Ints:
    """Return for every edge of the graph whether it is needed.

    1 if its tasks access the same bytes, one writing; 0 if not; -1 if it leads to or from a join.
    """
    by_task: dict[int, list[int]] = {}
    for access, task in enumerate(accesses.task.tolist()):
        by_task.setdefault(task, []).append(access)
    needed = np.full(len(graph.pred), -1, np.int64)
    for b in range(graph.tasks):
        for edge in range(int(graph.ptr[b]), int(graph.ptr[b + 1])):
            a = int(graph.pred[edge])
            if a < graph.tasks:
                pairs = [(y, x) for y in by_task.get(a, ()) for x in by_task.get(b, ())]
                needed[edge] = any(_disturb(accesses, y, x) for y, x in pairs)
    return needed


def _disturb(accesses: Accesses, y: int, x: int) -> bool:
    if accesses.kind[y] == READ and accesses.kind[x] == READ:
        return False
    same = accesses.buffer(y) == accesses.buffer(x)
    return same and meet(accesses.bytes(y), accesses.bytes(x))
