"""Search for the edits that make a program's outputs correct, within a budget of work.

Edits are tried in order of their cost, on the statements nearest to the difference first. The tasks
behind one wrong region are executed first; an edit that corrects it is accepted if the whole
program then passes, for the inputs of the case and for others. The search does not stop at the
first repair: another statement that can be changed as well makes both of them candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.divergence.case import GoldenCase, Trial
from tilelet.divergence.edits import Edit, apply_edit
from tilelet.divergence.error_map import Bools
from tilelet.divergence.replay import Replay
from tilelet.divergence.reuse import RejectedError
from tilelet.divergence.scoped_edits import ScopedEdits
from tilelet.dtypes import Array
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Op, Value
from tilelet.tasks.window import Window

_LAST_COST = 3
_MAX_LEFT_WRONG = 0.02
"""Share of a wrong region that an edit may leave wrong before the whole program is tried."""

_FAILURES = (UserError, InternalError, ValueError, FloatingPointError, IndexError, KeyError)


@dataclass(frozen=True)
class WrongElements:
    """The wrong elements of an output that are looked at, and the tasks that they depend on.

    window  the memory of these elements, if one statement writes it once
    """

    output: str
    mask: Bools
    tasks: Collection[int] | None
    window: Window | None = None


@dataclass(frozen=True)
class Repair:
    """An edit with which all outputs are correct, and their largest relative error then."""

    edit: Edit
    after: float
    trials: int

    @property
    def place(self) -> tuple[str, int]:
        return self.edit.loc.file, self.edit.loc.line


class RepairSearch:
    """Tries edits of a case."""

    def __init__(
        self, case: GoldenCase, replay: Replay, limit: float, say: Callable[[str], None]
    ) -> None:
        """`limit` is in steps of work."""
        self._case = case
        self._replay = replay
        self._limit = limit
        self._say = say
        self._trials: Sequence[Trial] | None = None
        self._by_effect: dict[tuple[Value, str], Repair | None] = {}
        self.edits = ScopedEdits(replay.program, case.numbers)
        self.tried = 0
        self.is_complete = False

    @property
    def is_spent(self) -> bool:
        return self._replay.steps > self._limit

    def run(
        self, ranked: Sequence[Op], predicted: Sequence[Edit], region: WrongElements
    ) -> list[Repair]:
        """Return the repairs found, cheapest first; of one statement only the first."""
        found: dict[tuple[str, int], Repair] = {}
        by_op = {op: list(self.edits.of(op)) for op in ranked}
        for cost in range(1, _LAST_COST + 1):
            for edit in self._edits(by_op, predicted, cost):
                if self.is_spent:
                    return list(found.values())
                if (edit.loc.file, edit.loc.line) not in found:
                    repair = self._repair(edit, region)
                    if repair is not None:
                        found[repair.place] = repair
        self.is_complete = True
        return list(found.values())

    def run_inferred(self, edits: Sequence[Edit], region: WrongElements) -> list[Repair]:
        """Return the repairs among a few edits, whatever the budget."""
        found: dict[tuple[str, int], Repair] = {}
        for edit in edits:
            repair = self._repair(edit, region)
            if repair is not None:
                found.setdefault(repair.place, repair)
        return list(found.values())

    def _edits(
        self, by_op: Mapping[Op, Sequence[Edit]], predicted: Sequence[Edit], cost: int
    ) -> Iterator[Edit]:
        yield from (edit for edit in predicted if edit.cost == cost)
        for some in by_op.values():
            yield from (edit for edit in some if edit.cost == cost)

    def _repair(self, edit: Edit, region: WrongElements) -> Repair | None:
        """Return the repair if the edit is one; edits of one effect are tried once."""
        if edit.effect is None or edit.effect not in self._by_effect:
            mends = self._mends(edit, region)
            repair = self._accepted(edit, region.output) if mends else None
            if edit.effect is None:
                return repair
            self._by_effect[edit.effect] = repair
        known = self._by_effect[edit.effect]
        return None if known is None else replace(known, edit=edit)

    def _mends(self, edit: Edit, region: WrongElements) -> bool:
        """Return whether the edit corrects the region."""
        self.tried += 1
        if self.tried % 50 == 0:
            self._say(f"{self.tried} repairs tried")
        made = self._made(edit, region.tasks, self._rejects(region))
        if made is None:
            return False
        bad = self._case.mismatches(made)[region.output][region.mask]
        return int(bad.sum()) <= _MAX_LEFT_WRONG * bad.size

    def _rejects(self, region: WrongElements) -> Callable[[Window], bool] | None:
        """Return a test of whether a region that was just written is still wrong."""
        window, case = region.window, self._case
        if window is None:
            return None
        flat = np.ascontiguousarray(case.expected[region.output]).reshape(-1)
        strides = tuple([s * flat.itemsize for s in window.strides])
        expected = np.ndarray(
            window.reach, flat.dtype, flat, window.offset * flat.itemsize, strides
        )
        e = expected.astype(np.float64)
        near = case.atol + case.rtol * np.abs(e)
        allowed = _MAX_LEFT_WRONG * int(region.mask.sum())

        def rejects(at: Window) -> bool:
            # A run of the control program has other buffers for the same parameters.
            if at.buffer.origin != "param" or at.buffer.name != window.buffer.name:
                return False
            if at.offset != window.offset:
                return False
            if at.reach != window.reach or at.array.dtype != expected.dtype:
                return False
            with np.errstate(all="ignore"):
                close = np.abs(at.array.astype(np.float64) - e) <= near
            return int(close.size - close.sum()) > allowed

        return rejects

    def _made(
        self,
        edit: Edit,
        tasks: Collection[int] | None,
        rejects: Callable[[Window], bool] | None = None,
    ) -> dict[str, Array] | None:
        try:
            return self._replay.outputs(edit, tasks, rejects)
        except (RejectedError, *_FAILURES):
            return None

    def _accepted(self, edit: Edit, output: str) -> Repair | None:
        """Return the repair if all outputs pass with it, for these and for other inputs."""
        made = self._made(edit, None)
        if made is None or not self._case.passes(made):
            return None
        if self._trials is None:
            self._trials = self._case.trials()
        program = apply_edit(self._replay.program, edit) if self._trials else None
        for trial in self._trials:
            assert program is not None
            given: dict[str, Any] = {
                n: cast("Array", a).copy() if isinstance(a, np.ndarray) else a
                for n, a in trial.arguments.items()
            }
            self._replay.add_run()
            try:
                with np.errstate(all="ignore"):
                    Interpreter().run(program, given)
            except _FAILURES:
                return None
            if not trial.passes(given):
                return None
        expected = self._case.expected[output]
        return Repair(edit, relative_error(made[output], expected), len(self._trials))


def relative_error(actual: Array, expected: Array) -> float:
    """Return the relative L2 error of the finite elements."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    keep = np.isfinite(a) & np.isfinite(e)
    norm = float(np.linalg.norm(e[keep]))
    return float(np.linalg.norm((a - e)[keep])) / norm if norm else math.inf
