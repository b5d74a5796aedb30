"""Contents that stores write, identified without computing them.

Two stores write the same bytes if the same ops made their tiles from the same numbers and from the
same loads. A load is identified by its window, by what the block has stored there before, and by
how many earlier tasks write its buffer. A store of what the block has loaded from the same window
leaves the memory as it was.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping
from typing import cast

from tilelet.interp.cells import Watcher
from tilelet.interp.definedness import Watching
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.state import State
from tilelet.ir.core import Function, Op
from tilelet.ir.types import TileType
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import TileValue, Window

UNCHANGED = "unchanged"
"""Contents of a store that leaves the memory as it was."""


class Contents(Watching):
    """The observer of a traced kernel that identifies what every store writes.

    task  the index of the traced task
    """

    def __init__(self, functions: Mapping[str, Function], tasks: TaskStream) -> None:
        self.task = 0
        self._writers = _writers(tasks)
        self._tiles: dict[int, tuple[TileValue, str]] = {}
        self._stored: dict[int, str] = {}
        self._block = -1
        self._loaded: Window | None = None
        self._source: str | None = None
        self.state = State(functions, execute=False, poison=True, seed_valid=False, observer=self)
        self.state.runs_kernels = True

    def watch(self, watcher: Watcher) -> State:
        """Return the state of a trace whose accesses `watcher` sees."""
        self.state.watcher = watcher
        return self.state

    def start(self, task: int) -> None:
        """Begin another task."""
        self.task, self._block = task, -1

    def lower(self, low: Lowering, op: Op) -> Step:
        step = super().lower(low, op)
        tiles = [low.slot(r) for r in op.results if isinstance(r.type, TileType)]
        if op.spec.structural or not (tiles or op.spec.writes):
            return step
        getters = {name: low.get(arg) for name, arg in op.args.items()}
        is_load = op.spec.is_window_load and not any(
            op.args.get(name) for name in ("transpose", "pad_value", "drop_dims")
        )

        def identified(frame: Frame) -> None:
            if self.state.block != self._block:
                self._block = self.state.block
                self._tiles.clear()
                self._stored.clear()
            args = {name: self._identity(get(frame)) for name, get in getters.items()}
            whole = _digest(op.name, *args.items())
            self._loaded = None
            self._source = args.get("source") or args.get("tile") or args.get("value") or whole
            step(frame)
            loaded = self._loaded
            for number, slot in enumerate(tiles):
                tile: TileValue = frame[slot]
                made = _digest(whole, number)
                if is_load and loaded is not None and loaded.reach == tile.data.shape:
                    made = self._identity(loaded)
                self._tiles[id(tile)] = tile, made

        return identified

    def note(self, window: Window, *, writes: bool) -> str | None:
        """Return what the running statement stores to a window; None if it loads it."""
        if not writes:
            self._loaded = window
            return None
        assert self._source is not None
        if self._source == self._identity(window):
            return UNCHANGED
        number = window.buffer.id
        self._stored[number] = _digest(self._stored.get(number), _place(window), self._source)
        return self._source

    def _identity(self, value: object) -> str:
        if isinstance(value, TileValue):
            known = self._tiles.get(id(value))
            return known[1] if known is not None else _digest("tile", id(value))
        if isinstance(value, Window):
            number = value.buffer.id
            earlier = bisect_left(self._writers.get(number, ()), self.task)
            return _digest(number, _place(value), self._stored.get(number), earlier)
        if isinstance(value, tuple):
            return _digest(*map(self._identity, cast("tuple[object, ...]", value)))
        return repr(value)


def _place(window: Window) -> tuple[object, ...]:
    return window.offset, window.reach, window.strides, window.dtype.name


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _writers(tasks: TaskStream) -> dict[int, list[int]]:
    """Return the tasks that write each buffer, in order.

    What the control program writes counts as a store of the task before.
    """
    found: dict[int, set[int]] = {}
    for group in tasks.groups:
        places, width = [group.tensors.index(p) for p in group.written], len(group.tensors)
        for row, index in enumerate(group.indices):
            for place in places:
                number = tasks.regions.buffer[group.regions[row * width + place]]
                found.setdefault(tasks.regions.buffers[number].id, set()).add(int(index))
    for number, writes in tasks.rewritten.items():
        every = range(len(tasks)) if writes is None else (w.tasks - 1 for w in writes)
        found.setdefault(number, set()).update(every)
    return {number: sorted(indices) for number, indices in found.items()}
