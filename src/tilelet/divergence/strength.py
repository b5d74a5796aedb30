"""Measure how strong a golden is: mutate ops one at a time and compare again.

A mutation that passes is a mistake that nobody would notice. Only what depends on the mutated op is
executed again; if time does not suffice for all mutations, a seeded sample is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tilelet.analysis.aliases import is_tensor
from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc, UserError
from tilelet.diag.internal import InternalError
from tilelet.divergence import edits
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.edits import Edit
from tilelet.divergence.record import STEPS_PER_SECOND
from tilelet.divergence.replay import Replay
from tilelet.dtypes import Array
from tilelet.ir.core import FunctionKind, Op, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType
from tilelet.numerics.casts import as_computable, unit_roundoff

_FEW_ROUNDINGS = 32

STRONG = ("zeroed", "dropped", "pad value")
"""Mutations that any comparison should notice; the others may be within its tolerance."""


@dataclass(frozen=True)
class Unnoticed:
    """A mutation with which the comparison still passes.

    share        the largest change of a compared output, relative to the tolerance
    other        outputs that it changes and that are not compared
    is_rounding  it changes compared outputs by at most a few ulps
    """

    edit: Edit
    kind: str
    share: float
    other: tuple[str, ...] = ()
    is_rounding: bool = False

    @property
    def remedies(self) -> list[str]:
        """Return remedies that would catch the mutation."""
        found: list[str] = []
        if self.other:
            found.append(f"compare {', '.join(f'`{name}`' for name in self.other)}, too")
        if self.share > 0 and self.is_rounding:
            found.append("other inputs: with these, it changes the result no more than rounding")
        elif self.share > 0:
            found.append(f"a tolerance {1 / self.share:.3g} times tighter")
            found.append("smaller sizes: a shorter context or sum, of which it is a larger share")
        else:
            found.append("other inputs: with these, no compared element depends on it")
        return found


@dataclass
class Strength:
    """The mutations tried, and those not noticed."""

    total: int
    tried: int = 0
    noticed: int = 0
    unnoticed: list[Unnoticed] = field(default_factory=list[Unnoticed])

    def by_place(self) -> dict[Loc, list[Unnoticed]]:
        """Unnoticed strong mutations, grouped by statement."""
        found: dict[Loc, list[Unnoticed]] = {}
        for one in self.unnoticed:
            if one.kind in STRONG:
                found.setdefault(one.edit.loc, []).append(one)
        return found


def corruptions(op: Op) -> Iterator[tuple[str, Edit]]:
    """Yield mutations of an op: zeroed, dropped, scaled by 1 %, another pad value or cast mode."""
    if op.spec.structural or not op.results:
        return
    if op.spec.writes and is_tensor(op.results[0]):
        yield from (("dropped", e) for e in edits.drop_op(op))
        return
    if op.spec.is_window_load or Trait.CREATION in op.spec.traits:
        return
    yield from (("zeroed", e) for e in edits.scale_result(op, [0.0]))
    if Trait.ARITHMETIC in op.spec.traits or Trait.GEMM in op.spec.traits:
        yield from (("dropped", e) for e in edits.drop_op(op))
        yield from (("off by 1 %", e) for e in edits.scale_result(op, [1.01]))
    yield from (("pad value", e) for e in edits.pads(op))
    yield from (("cast mode", e) for e in edits.cast_modes(op, ("floor", "trunc")))


def strength(
    case: GoldenCase, budget: float, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> Strength:
    """Try mutations of every kernel until all are tried or the budget is spent.

    `budget` is in seconds of `STEPS_PER_SECOND`.
    """
    replay = Replay(case.program, case.arguments)
    clean = {name: array.copy() for name, array in replay.run.arrays.items()}
    executed = {event.op for event in replay.trace.events}
    wanted = [
        found
        for function in case.program.functions.values()
        if function.kind is FunctionKind.InCore
        for op in walk(function.body)
        if op in executed
        for found in corruptions(op)
    ]
    random.Random(seed).shuffle(wanted)  # noqa: S311 - a sample, not a secret
    result = Strength(len(wanted))
    for kind, edit in wanted:
        if replay.steps > budget * STEPS_PER_SECOND:
            break
        result.tried += 1
        if result.tried % 20 == 0:
            say(f"{result.tried} of {result.total} mutations tried")
        try:
            made = replay.outputs(edit)
            passes = case.passes(made)
        except (UserError, InternalError, ValueError):
            passes, made = False, {}
        if passes:
            result.unnoticed.append(_describe_unnoticed(case, edit, kind, clean, made))
        else:
            result.noticed += 1
    return result


def _describe_unnoticed(
    case: GoldenCase, edit: Edit, kind: str, clean: Mapping[str, Array], made: Mapping[str, Array]
) -> Unnoticed:
    share, is_rounding = 0.0, True
    for name in case.expected:
        before, after = (as_computable(x[name]).astype(np.float64) for x in (clean, made))
        moved = np.abs(after - before)
        few = _FEW_ROUNDINGS * _roundoff(case, name)
        is_rounding &= bool((moved <= few * np.abs(before)).all())
        allowed = case.atol + case.rtol * np.abs(
            as_computable(case.expected[name]).astype(np.float64)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            share = max(share, float(np.nan_to_num(moved / allowed).max(initial=0.0)))
    other = [
        name
        for name in clean
        if name not in case.expected and not np.array_equal(clean[name], made[name])
    ]
    return Unnoticed(edit, kind, share, tuple(other), is_rounding)


def _roundoff(case: GoldenCase, name: str) -> float:
    """Return the unit roundoff of a parameter's type; 0 for integers."""
    type_ = next(p.type for p in case.program.main.params if p.name == name)
    is_float = isinstance(type_, TensorType) and type_.dtype.is_float
    return unit_roundoff(type_.dtype) if is_float else 0.0
