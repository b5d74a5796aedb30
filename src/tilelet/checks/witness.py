"""Find an execution order that the rules allow and that gives different results.

Unordered tasks may run in either order or concurrently; in the latter case the second reads what
was there before the first wrote, and overwrites it. The seed selects one of these; larger seeds
also permute everything else that is unordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.checks.findings import Witness
from tilelet.checks.trace import is_small, size_text
from tilelet.dataclasses import dataclass
from tilelet.device.schedule.graph import Graph
from tilelet.diag.core import UserError
from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array
from tilelet.interp.replay import Replay, UnknownContentsError
from tilelet.ir.core import Program
from tilelet.numerics.casts import as_computable
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Window

SEEDS = 6
_HOW = ("concurrently", "in reverse order")
_SPOILT = 0xFF
"""The byte of a NaN, in every floating-point type."""


@dataclass(frozen=True)
class Pair:
    """Two unordered executions: tasks, or blocks of one task."""

    first: int
    second: int
    blocks: tuple[int, int] = (0, 0)


class Witnesses:
    """Searches one recorded run for witnesses."""

    def __init__(
        self, program: Program, tasks: TaskStream, arguments: Mapping[str, object], graph: Graph
    ) -> None:
        self._given = (program, tasks, arguments)
        self._tasks = tasks
        self._graph = graph
        self._params = [p.name for p in program.main.params]
        self._usual: dict[str, Array] | None = None

    def find(self, pair: Pair) -> tuple[Witness | None, str]:
        """Return a witness, or the reason why there is none."""
        if not is_small(self._tasks):
            return None, f"not executed in other orders: {size_text(self._tasks)} are too much"
        try:
            usual = self.usual()
            for seed in range(1, SEEDS + 1):
                found = self._difference(usual, self.run(pair, seed))
                if found is not None:
                    return self._witness(found, pair, seed), ""
        except (UnknownContentsError, UserError, MemoryError):
            return None, "not executed in other orders: some of its data is unknown"
        return None, f"{SEEDS} other orders gave the same results on these inputs"

    def discards(self, reads: Mapping[int, Sequence[tuple[Window, Window]]]) -> bool:
        """Return whether tasks ignore what they read from windows that others write.

        reads  by task: a window that it reads, and one that an unordered task writes
        """
        if not is_small(self._tasks):
            return False
        replay = Replay(*self._given)
        try:
            for task in range(len(self._tasks)):
                shared = [
                    (read, np.intersect1d(_offsets(read), _offsets(write)))
                    for read, write in reads.get(task, ())
                ]
                if not shared:
                    replay.execute(task)
                elif not replay.ignores(task, shared, _SPOILT):
                    return False
        except (UnknownContentsError, UserError, MemoryError):
            return False
        return True

    def usual(self) -> dict[str, Array]:
        """Return the results in program order."""
        if self._usual is None:
            replay = Replay(*self._given)
            for task in range(len(self._tasks)):
                replay.execute(task)
            self._usual = replay.contents()
        return self._usual

    def run(self, pair: Pair, seed: int) -> JsonObject:
        """Return the results in the order selected by a seed."""
        replay = Replay(*self._given)
        if pair.first == pair.second:
            blocks = self._tasks[pair.first].blocks or 1
            order = list(range(blocks))[::-1] if seed == 2 else _shuffle(range(blocks), seed)
            if seed == 1:
                replay.overlap_blocks(pair.first)
            else:
                replay.block_order[pair.first] = order
            for task in range(len(self._tasks)):
                replay.execute(task)
            return replay.contents()
        order = self.order(pair, seed)
        at = order.index(pair.second)
        for i, task in enumerate(order):
            if seed > 1 or i not in (at, at + 1):
                replay.execute(task)
            elif i == at:
                replay.execute_overlapped(pair.first, pair.second)
        return replay.contents()

    def order(self, pair: Pair, seed: int) -> list[int]:
        """Return a topological order of all tasks in which the pair is reversed."""
        # Iterations of the loop may depend on each other after all, although the program denies it.
        needed = self._before(pair.second, without=pair.first)
        early = [t for t in range(pair.first) if t not in needed]
        if seed > 2:
            early = []
        done = sorted({*early, *needed})
        rest = [t for t in range(len(self._tasks)) if t not in {*done, pair.first, pair.second}]
        if seed > 2:
            rest = self._any_order([*rest, pair.first], {*done, pair.second}, seed)
            return [*done, pair.second, *rest]
        return [*done, pair.second, pair.first, *rest]

    def _any_order(self, tasks: Sequence[int], done: set[int], seed: int) -> list[int]:
        """Return a random topological order of the tasks that are left when `done` has run."""
        random = np.random.default_rng(seed)
        waiting = {t: {p for p in self._graph.producers(t) if p not in done} for t in tasks}
        ready = sorted(t for t, preds in waiting.items() if not preds)
        consumers: dict[int, list[int]] = {}
        for t, preds in waiting.items():
            for p in preds:
                consumers.setdefault(p, []).append(t)
        order: list[int] = []
        while ready:
            task = ready.pop(int(random.integers(len(ready))))
            order.append(task)
            for t in consumers.get(task, ()):
                waiting[t].discard(task)
                if not waiting[t]:
                    ready.append(t)
        return order

    def _before(self, task: int, without: int) -> set[int]:
        """Return the tasks that must run before a task, except `without` and its dependents."""
        found: set[int] = set()
        stack = [task]
        while stack:
            for producer in self._graph.producers(stack.pop()):
                if producer not in found and producer != without:
                    found.add(producer)
                    stack.append(producer)
        late = {without}
        for node in sorted(found):
            if late.intersection(self._graph.producers(node)):
                late.add(node)
        return found - late

    def _difference(self, usual: Mapping[str, Any], other: Mapping[str, Any]) -> object:
        """Return the first differing element of a parameter: (name, place, values, count)."""
        for name in self._params:
            if name not in usual or name not in other:
                continue
            with np.errstate(invalid="ignore"):  # unwritten memory is a signaling NaN
                a, b = (as_computable(x[name]).astype(np.float64) for x in (usual, other))
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if not same.all():
                place = tuple(int(i) for i in np.argwhere(~same)[0])
                return name, place, float(a[place]), float(b[place]), int((~same).sum())
        return None

    def _witness(self, found: Any, pair: Pair, seed: int) -> Witness:
        name, place, usual, other, count = found
        who = f"tasks {pair.first} and {pair.second}"
        if pair.first == pair.second:
            who = f"the blocks of task {pair.first}"
            how = "in another order" if seed > 1 else "at once"
        elif seed <= len(_HOW):
            how = _HOW[seed - 1]
        else:
            how = "in an order that the rules allow"
        at = ", ".join(map(str, place))
        differ = "1 element differs" if count == 1 else f"{count} elements differ"
        text = (
            f"seed {seed} runs {who} {how}: `{name}[{at}]` is {other:.9g}, "
            f"in program order {usual:.9g}; {differ}"
        )
        data = (
            ("tensor", name),
            ("index", list(place)),
            ("program_order", usual),
            ("other_order", other),
            ("differing", count),
        )
        return Witness(text, seed, data)


def _offsets(window: Window) -> Any:
    """Return the elements of a window, as offsets into its buffer."""
    found = np.full((), window.offset)
    for extent, stride in zip(window.reach, window.strides):
        found = found[..., None] + np.arange(extent) * stride
    return found.reshape(-1)


def _shuffle(items: Sequence[int], seed: int) -> list[int]:
    order = list(items)
    np.random.default_rng(seed).shuffle(order)
    return order
