"""Search for the edits that make a program's outputs correct, within a budget of work.

Edits are tried in order of their cost, on the statements nearest to the difference first. The tasks
behind one wrong region are executed first; an edit that corrects it is accepted if the whole
program then passes, for the inputs of the case and for others. The search does not stop at the
first repair: another statement that can be changed as well makes both of them candidates.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.internal import InternalError
from tilelet.divergence.case import GoldenCase, Trial
from tilelet.divergence.edits import Edit, apply_edit, scale_result
from tilelet.divergence.error_map import Bools
from tilelet.divergence.replay import Replay
from tilelet.divergence.reuse import RejectedError
from tilelet.divergence.scoped_edits import ScopedEdits
from tilelet.divergence.source_edits import SourceEdits
from tilelet.dtypes import Array
from tilelet.ir.core import Op, Program, Value
from tilelet.numerics.casts import as_computable
from tilelet.tasks.window import Window

_LAST_RESORT, _MAX_COST = 4, 5
"""Edits from the first cost on are only tried if no other edit corrects the outputs."""
_MAX_LEFT_WRONG = 0.02
"""Share of a wrong region that an edit may leave wrong before the whole program is tried."""

_FAILURES = (
    RejectedError,
    UserError,
    InternalError,
    ValueError,
    FloatingPointError,
    IndexError,
    KeyError,
)


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
    """An edit that corrects all outputs.

    after   their largest remaining relative error
    trials  the number of other inputs for which they are correct, too
    failed  the number of other inputs for which they are not
    """

    edit: Edit
    after: float
    trials: int
    failed: int = 0

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
        self._source: SourceEdits | None = None
        if case.source is not None:
            integers = self.edits.likely_integers
            self._source = SourceEdits(case.source, replay.program, integers, self.edits.likely)
        self.tried = 0
        self.left: set[Op | None] = set()
        self.for_these_inputs: dict[tuple[str, int], Repair] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every edit was tried; if not, `left` are the ops of the others.

        `for_these_inputs` are the edits that correct the outputs for the inputs of the case, but
        not for all others.
        """
        return not self.left

    @property
    def is_spent(self) -> bool:
        return self._replay.steps > self._limit

    def run(
        self, ranked: Sequence[Op], predicted: Sequence[Edit], region: WrongElements
    ) -> list[Repair]:
        """Return the repairs found, cheapest first, at most one per statement."""
        found: dict[tuple[str, int], Repair] = {}
        early = [*predicted, *(self._source.edits() if self._source else ())]
        left: dict[Op | None, deque[Edit]] = {None: deque(sorted(early, key=_cost))}
        left |= {op: deque(sorted(self.edits.of(op), key=_cost)) for op in ranked}
        for edit in _in_turn(left, found):
            if self.is_spent:
                self.left = {op for op, some in left.items() if some}
                break
            if (edit.loc.file, edit.loc.line) not in found:
                repair = self._repair(edit, region)
                if repair is not None:
                    found[repair.place] = repair
        for repair in list(found.values()):
            # The factor may belong to another statement, of whose likely factors it is none.
            if repair.edit.kind == "scale" and not self.is_spent:
                numbers = _new_numbers(repair.edit)
                others = [op for op in ranked if not op.spec.structural]
                edits = [e for op in others for e in scale_result(op, numbers)]
                for other in self.run_inferred(edits, region):
                    found.setdefault(other.place, other)
        return sorted(found.values(), key=lambda repair: repair.edit.cost)

    def run_inferred(self, edits: Sequence[Edit], region: WrongElements) -> list[Repair]:
        """Return the repairs among a few edits, whatever the budget."""
        found: dict[tuple[str, int], Repair] = {}
        for edit in edits:
            repair = self._repair(edit, region)
            if repair is not None:
                found.setdefault(repair.place, repair)
        return list(found.values())

    def _repair(self, edit: Edit, region: WrongElements) -> Repair | None:
        """Return a repair if the edit corrects all outputs; edits of one effect run once."""
        self.tried += 1
        if self.tried % 50 == 0:
            self._say(f"{self.tried} repairs tried")
        if edit.effect is None or edit.effect not in self._by_effect:
            mends = edit.lowered is not None or self._mends(edit, region)
            repair = self._accepted(edit, region.output) if mends else None
            if edit.effect is None:
                return repair
            self._by_effect[edit.effect] = repair
        known = self._by_effect[edit.effect]
        return None if known is None else replace(known, edit=edit)

    def _mends(self, edit: Edit, region: WrongElements) -> bool:
        """Return whether the edit corrects the region."""
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
        e = as_computable(expected).astype(np.float64)
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
                close = np.abs(as_computable(at.array).astype(np.float64) - e) <= near
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
        except _FAILURES:
            return None

    def _accepted(self, edit: Edit, output: str) -> Repair | None:
        """Return the repair if all outputs pass with it, for these and for other inputs."""
        if edit.lowered is None:
            made, program = self._made(edit, None), None
        else:
            program = self._lowered(edit)
            made = None if program is None else self._run(program, self._case.arguments)
        if made is None or not self._case.passes(made):
            return None
        if self._trials is None:
            self._trials = self._case.trials()
        passed = 0
        for trial in self._trials:
            program = program or apply_edit(self._replay.program, edit)
            given = self._run(program, trial.arguments)
            passed += given is not None and trial.passes(given)
        failed = len(self._trials) - passed
        error = relative_error(made[output], self._case.expected[output])
        repair = Repair(edit, error, passed, failed)
        numbers = _new_numbers(edit)
        # A number can be fitted to any inputs; one of the golden that holds for others is not.
        if failed and (not numbers or (passed and numbers <= set(self.edits.likely))):
            self.for_these_inputs.setdefault(repair.place, repair)
        return None if failed else repair

    def _lowered(self, edit: Edit) -> Program | None:
        try:
            return apply_edit(self._replay.program, edit)
        except (UserError, UserErrors):
            return None

    def _run(self, program: Program, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            return self._replay.run_program(program, arguments)
        except _FAILURES:
            return None


def _new_numbers(edit: Edit) -> set[float]:
    numbers = {a for op in edit.ops for a in op.args.values() if isinstance(a, float)}
    return numbers.difference(a for a in edit.op.args.values() if isinstance(a, float))


def _cost(edit: Edit) -> int:
    return edit.cost


def _in_turn(left: Mapping[Op | None, deque[Edit]], found: Collection[object]) -> Iterator[Edit]:
    """Yield edits in order of cost; once a repair is found, op by op."""
    for cost in range(1, _MAX_COST + 1):
        if found and cost >= _LAST_RESORT:
            return
        for some in left.values():
            while some and some[0].cost <= (max(cost, _LAST_RESORT - 1) if found else cost):
                yield some.popleft()


def relative_error(actual: Array, expected: Array) -> float:
    """Return the relative L2 error of the finite elements."""
    a, e = as_computable(actual).astype(np.float64), as_computable(expected).astype(np.float64)
    keep = np.isfinite(a) & np.isfinite(e)
    norm = float(np.linalg.norm(e[keep]))
    return float(np.linalg.norm((a - e)[keep])) / norm if norm else math.inf
