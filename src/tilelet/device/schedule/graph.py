"""Which tasks wait for which, by the runtime's rules.

A task that looks up an argument waits for every earlier task that registered an overlapping window.
Reading looks up, writing registers, and a read-write argument does both. Nothing waits for a
reader. This module is the reference implementation; `c/graph.c` finds the same edges faster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelet.analysis.overlap import Bytes, meet
from tilelet.dataclasses import dataclass
from tilelet.device.schedule.arrays import LOOKS_UP, REGISTERS, Stream

Ints = NDArray[np.int64]

CROWD = 32
"""Number of writers of one window above which a join replaces them."""


@dataclass(frozen=True)
class Graph:
    """Predecessors of each node, flattened: `pred[ptr[n] : ptr[n + 1]]`.

    Nodes beyond the tasks are joins: each represents many writers of one window, so that many
    readers of it do not need a quadratic number of edges.
    """

    ptr: Ints
    pred: Ints
    tasks: int

    @property
    def nodes(self) -> int:
        return len(self.ptr) - 1

    def successors(self) -> tuple[Ints, Ints]:
        """Return the same edges by producer: (ptr, successor), successors ascending."""
        consumer = np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.ptr))
        order = np.argsort(self.pred, kind="stable")
        ptr = np.zeros(self.nodes + 1, np.int64)
        np.add.at(ptr, self.pred + 1, 1)
        return np.cumsum(ptr), consumer[order]

    def producers(self, task: int) -> list[int]:
        """Return the tasks that `task` waits for, with joins resolved, ascending."""
        found: set[int] = set()
        stack = list(self.pred[self.ptr[task] : self.ptr[task + 1]])
        while stack:
            node = int(stack.pop())
            if node < self.tasks:
                found.add(node)
            else:
                stack.extend(self.pred[self.ptr[node] : self.ptr[node + 1]])
        return sorted(found)


def build_graph(stream: Stream) -> Graph:
    """Find the edges, one task after the other."""
    regions = stream.regions.arrays()
    sides = [regions[name].tolist() for name in ("low", "high", "row", "pitch")]
    shown = [_bytes(*rectangle) for rectangle in zip(*sides)]
    written: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    ptr: list[int] = [0]
    pred: list[int] = []
    joins: list[list[int]] = []
    buffer_of = regions["buffer"]
    for task in range(stream.count):
        found: dict[int, None] = {}
        for dep in stream.deps[stream.dep_ptr[task] : stream.dep_ptr[task + 1]]:
            found.setdefault(int(dep))
        span = range(stream.arg_ptr[task], stream.arg_ptr[task + 1])
        for a in span:
            if not stream.arg_flags[a] & LOOKS_UP:
                continue
            region = int(stream.arg_region[a])
            for other in sorted(written.get(int(buffer_of[region]), ())):
                if other != region and not meet(shown[region], shown[other]):
                    continue
                if len(writers[other]) > CROWD:
                    joins.append(writers[other])
                    writers[other] = [stream.count + len(joins) - 1]
                for node in writers[other]:
                    found.setdefault(node)
        for a in span:
            if not stream.arg_flags[a] & REGISTERS:
                continue
            region = int(stream.arg_region[a])
            if region not in writers:
                written.setdefault(int(buffer_of[region]), []).append(region)
            # A task that waits for the earlier writers represents them.
            if region not in writers or stream.arg_flags[a] & LOOKS_UP:
                writers[region] = []
            if not writers[region] or writers[region][-1] != task:
                writers[region].append(task)
        found.pop(task, None)
        pred.extend(found)
        ptr.append(len(pred))
    for join in joins:
        pred.extend(join)
        ptr.append(len(pred))
    return Graph(np.array(ptr, np.int64), np.array(pred, np.int64), stream.count)


def _bytes(low: int, high: int, row: int, pitch: int) -> Bytes:
    """Return a rectangle: from `low` up to `high`, rows of `row` bytes at a distance of `pitch`."""
    rest = high - low - row
    return Bytes(low, row, ((rest // abs(pitch) + 1, abs(pitch)),) if rest else ())
