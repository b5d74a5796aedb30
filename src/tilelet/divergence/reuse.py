"""Run kernels again and again with single ops exchanged, computing every tile once.

`ReusedCode` observes the lowering of a program. A tile op whose operands are those of an earlier
run gives the tiles of that run: a replay computes only what an edit changes. The step of every op
of a kernel can be exchanged, so that a kernel is lowered once and not for each edit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tilelet.dataclasses import dataclass
from tilelet.divergence.edits import Edit
from tilelet.divergence.record import is_tensor_load, steps_of, writes_tensor
from tilelet.interp.control import while_step
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.movement import written_window
from tilelet.ir.core import Op
from tilelet.ir.types import ScalarType, TileType
from tilelet.tasks.window import Shape, TileValue, Window

_STEPS_TO_REUSE = 0.04
_STEPS_TO_MOVE = 0.25
_STEPS_TO_LOWER = 2.0
"""Work of reusing a tile, of a load or store, and of lowering an edit, in computed ops."""

_TileKey = tuple[bytes, str, Shape, Shape]
_Computed = dict[tuple[object, ...], tuple[list[TileValue], list[TileValue]]]
"""By the identity of operand tiles and the text of scalars: result tiles, and operand tiles."""


class RejectedError(Exception):
    """A replay was stopped because it had already gone wrong."""


@dataclass
class _Cell:
    """The exchangeable step of a lowered op."""

    low: Lowering
    step: Step


class ReusedCode:
    """Lowers ops such that their tiles are reused and their steps can be exchanged.

    steps      the work done; at `most`, the run stops
    windows    the global memory written since `windows` was cleared
    rejects    asked about every window that was written; if it returns True, the run stops
    is_filled  whether tiles are kept for reuse
    """

    def __init__(self) -> None:
        self.steps = 0.0
        self.most = math.inf
        self.windows: list[Window] = []
        self.rejects: Callable[[Window], bool] | None = None
        self.is_filled = False
        self._cells: dict[Op, _Cell] = {}
        self._loaded: dict[_TileKey, TileValue] = {}
        self._computed: dict[Op, _Computed] = {}
        self._is_exchanging = False

    def lower(self, low: Lowering, op: Op) -> Step:
        step = self._step(low, op)
        if self._is_exchanging:
            return step
        cell = self._cells[op] = _Cell(low, step)

        def run(frame: Frame) -> None:
            cell.step(frame)

        return run

    @contextmanager
    def exchanged(self, edit: Edit) -> Generator[None]:
        """Apply an edit to the lowered code within the block."""
        cells = [self._cells[part.op] for part in edit.parts]
        before = [cell.step for cell in cells]
        try:
            with self.unexchangeable(), cells[0].low.extended():
                for cell, part in zip(cells, edit.parts):
                    cell.step = self._edited(cell.low, part)
                yield
        finally:
            for cell, step in zip(cells, before):
                cell.step = step

    @contextmanager
    def unexchangeable(self) -> Generator[None]:
        """Lower functions without exchangeable ops within the block."""
        self._is_exchanging = True
        try:
            yield
        finally:
            self._is_exchanging = False

    def _edited(self, low: Lowering, edit: Edit) -> Step:
        """Return the step of an edit, which stores its results in place of the op's."""
        old = [low.slot(r) for r in edit.op.results]
        if edit.alias is not None:
            steps, new = (), [low.slot(edit.alias)]
        else:
            steps = tuple([low.op(op) for op in edit.ops])
            new = [low.slot(r) for r in edit.op.results]
        self.steps += _STEPS_TO_LOWER
        moves = list(zip(old, new))

        def run(frame: Frame) -> None:
            for step in steps:
                step(frame)
            for to, slot in moves:
                frame[to] = frame[slot]

        return run

    # Steps of ops

    def _step(self, low: Lowering, op: Op) -> Step:
        if op.name == "while":
            return while_step(low, op, self._holds)
        if writes_tensor(op):
            return self._store(low, op)
        if is_tensor_load(op):
            return self._load(low, op)
        has_tiles = bool(op.results) and all(isinstance(r.type, TileType) for r in op.results)
        is_pure = all(isinstance(v.type, TileType | ScalarType) for v in op.operands)
        if has_tiles and is_pure and not op.spec.structural:
            return self._compute(low, op)
        return low.plain_op(op)

    def _spend(self, steps: float) -> None:
        """Count work; an edit of a bound or condition may make a loop endless."""
        self.steps += steps
        if self.steps > self.most:
            raise RejectedError

    def _holds(self, condition: object) -> bool:
        self._spend(_STEPS_TO_MOVE)
        return bool(condition)

    def _store(self, low: Lowering, op: Op) -> Step:
        window, step = written_window(low, op), low.plain_op(op)

        def store(frame: Frame) -> None:
            at = window(frame)
            self.windows.append(at)
            self._spend(_STEPS_TO_MOVE * steps_of(at.array.size))
            step(frame)
            if self.rejects is not None and self.rejects(at):
                raise RejectedError

        return store

    def _load(self, low: Lowering, op: Op) -> Step:
        step = low.plain_op(op)
        result = low.slot(op.result)

        def load(frame: Frame) -> None:
            step(frame)
            tile: TileValue = frame[result]
            self._spend(_STEPS_TO_MOVE * steps_of(tile.data.size))
            key = tile.data.tobytes(), tile.data.dtype.str, tile.data.shape, tile.valid
            known = self._loaded.get(key)
            if known is not None:
                frame[result] = known
            elif self.is_filled:
                self._loaded[key] = tile

        return load

    def _compute(self, low: Lowering, op: Op) -> Step:
        tiles = [low.slot(v) for v in op.operands if isinstance(v.type, TileType)]
        scalars = [low.slot(v) for v in op.operands if not isinstance(v.type, TileType)]
        step = low.plain_op(op)
        results = [low.slot(r) for r in op.results]
        known = self._computed.get(op, {})
        if not self._is_exchanging:
            self._computed[op] = known
        shapes = [r.type.shape for r in op.results if isinstance(r.type, TileType)]
        work = steps_of(max(map(math.prod, shapes)))

        def compute(frame: Frame) -> None:
            # Tiles in keys are kept alive, so that no other tile has their id.
            key = (*[id(frame[s]) for s in tiles], *[repr(frame[s]) for s in scalars])
            found = known.get(key)
            if found is not None:
                self.steps += _STEPS_TO_REUSE
                for slot, tile in zip(results, found[0]):
                    frame[slot] = tile
                return
            self._spend(work)
            step(frame)
            if self.is_filled:
                known[key] = [frame[s] for s in results], [frame[s] for s in tiles]

        return compute
