"""Trial runs on other inputs, with comparison of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.internal import InternalError
from tilelet.dtypes import Array
from tilelet.equivalence.data_control import for_arguments, integer_trials
from tilelet.interp.control import while_step
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Lowering, Step
from tilelet.ir.core import Direction, Op, Program, walk
from tilelet.runtime.data.arrays import to_double
from tilelet.runtime.data.inputs import has_room
from tilelet.runtime.programs import engines

Inputs: TypeAlias = Mapping[str, Any]
"""Arguments of a program by name."""

TrialOutputs: TypeAlias = dict[str, Array] | None
"""Outputs of a program; None if it rejects its arguments."""

Outputs: TypeAlias = list[list[TrialOutputs]]
"""Outputs by program and trial."""

_TRIALS = 3
"""The script's inputs; the same numbers in other places; and larger ones with zeros among them.
Trials with other integers come after these."""

MAX_WHILE_ITERATIONS = 1 << 16
"""Maximum work of a run with other integers; beyond it, a loop counts as infinite."""

_PLENTY = 4
"""Free memory required to keep the inputs of all trials, as a multiple of their size."""

_ROUNDING = {4: 64.0, 2: 2.0, 1: 1.0}
"""Units in the last place by which sums in another order may differ, relative to the largest
element, by bytes of an element; all together (as relative L2 error) by half a unit at most."""


class Trials:
    """Inputs of a program for every trial, kept if memory permits.

    The first trials keep the script's integers; the others vary data-dependent control.
    """

    def __init__(self, program: Program, given: Inputs) -> None:
        self.given = given
        needed = _PLENTY * sum(int(getattr(value, "nbytes", 0)) for value in given.values())
        self._keeps = has_room(needed)
        self._kept: dict[tuple[str, int], Array] = {}
        self._integers = list(integer_trials(program, given))

    def __len__(self) -> int:
        return _TRIALS + len(self._integers)

    def arguments(self, program: Program, trial: int) -> dict[str, Any]:
        """Return the arguments of a trial.

        Except in the first, written memory starts as garbage: programs must not rely on zeros.
        """
        main, other = program.main, trial >= _TRIALS
        given = self._integers[trial - _TRIALS] if other else self.given
        made: dict[str, object] = dict(given)
        for parameter, direction in zip(main.params, main.directions):
            value = given.get(parameter.name)
            if not isinstance(value, np.ndarray):
                continue
            array = cast("Array", value)
            if direction is not Direction.In:
                made[parameter.name] = _garbage(array, trial) if trial else array.copy()
            else:
                made[parameter.name] = (
                    array if other else self._varied(parameter.name, array, trial)
                )
        return made

    def _varied(self, name: str, array: Array, trial: int) -> Array:
        found = self._kept.get((name, trial))
        if found is None:
            found = _vary(array, trial)
            if self._keeps and found is not array:
                found.flags.writeable = False  # shared by all versions
                self._kept[name, trial] = found
        return found


def outputs_of(programs: Sequence[Program], inputs: Sequence[Trials]) -> Outputs | None:
    """Return outputs of all programs and trials; None if the programs differ."""
    if len(programs) != len(inputs):
        return None
    return [
        [run_outputs(program, trials.arguments(program, n)) for n in range(len(trials))]
        for program, trials in zip(programs, inputs)
    ]


def run_outputs(program: Program, given: Inputs) -> TrialOutputs:
    """Run a program on copies of arguments; return its outputs, or None if it rejects them."""
    try:
        resized = for_arguments(program, given)
        # Sizes that are run once are not worth a C compiler.
        engine = _engine(program) if resized is program else Interpreter()
        main = resized.main
        arguments = {
            parameter.name: _own_copy(given[parameter.name], direction)
            for parameter, direction in zip(main.params, main.directions)
        }
        engine.run(resized, arguments, execute=True)
    except (UserError, UserErrors):
        return None
    except InternalError as error:
        if isinstance(error.__cause__, UnboundedLoopError):
            return None
        raise
    return {
        parameter.name: arguments[parameter.name]
        for parameter, direction in zip(main.params, main.directions)
        if direction is not Direction.In
    }


def _own_copy(value: Any, direction: Direction) -> Any:
    return value if direction is Direction.In else value.copy()


def _engine(program: Program) -> engines.ProgramEngine:
    """Return the native engine, unless a `while` loop may not terminate in a trial."""
    if any(op.name == "while" for f in program.functions.values() for op in walk(f.body)):
        return Interpreter(observer=_BoundedLoops())
    return engines.get(None, engines.RunRequest(lambda: None, False))


class _BoundedLoops:
    """Stops a run whose `while` loops iterate too often."""

    def __init__(self) -> None:
        self._left = MAX_WHILE_ITERATIONS

    def lower(self, low: Lowering, op: Op) -> Step:
        return while_step(low, op, self._holds) if op.name == "while" else low.plain_op(op)

    def _holds(self, condition: object) -> bool:
        self._left -= 1
        if self._left < 0:
            raise UnboundedLoopError
        return bool(condition)


class UnboundedLoopError(Exception):
    """A `while` loop exceeded its iteration limit."""


def _vary(array: Array, trial: int) -> Array:
    """Return other floating-point inputs; integers, which may be indices, are varied separately."""
    if trial == 0 or array.dtype.kind in "iub":
        return array
    turned = np.ascontiguousarray(array.reshape(-1)[::-1].reshape(array.shape))
    if trial > 1:
        flat = turned.reshape(-1)
        flat[::7] = 0
        flat[3::5] = (flat[3::5] * np.array(4, array.dtype)).astype(array.dtype)
    return turned


def _garbage(array: Array, trial: int) -> Array:
    """Return garbage for memory that a program writes: finite numbers that differ per trial."""
    if array.dtype.kind in "iub":
        return array.copy()
    draw = np.random.default_rng(trial)
    few = draw.standard_normal(4099).astype(array.dtype)
    return np.resize(few, array.shape)


def difference(before: Outputs, after: Outputs, *, rounding: bool) -> str:
    """Return the significant differences between outputs of two texts, or ""."""
    if [len(b) for b in before] != [len(a) for a in after]:
        return "it has other outputs"
    for run_before, run_after in zip(before, after):
        for trial, (old, new) in enumerate(zip(run_before, run_after)):
            if old is None:
                continue  # the original script rejects these inputs
            if new is None:
                return f"it fails in trial {trial}, for inputs that the script as it stands takes"
            found = _difference(old, new, rounding=rounding)
            if found:
                return f"{found} in trial {trial}"
    return ""


def differs_from(
    expected: dict[str, Array],
    found: dict[str, Array],
    judge: Callable[[Inputs, Inputs], bool] | None,
) -> bool:
    """Whether outputs differ by more than the script's comparison, or else rounding, allows."""
    if judge is not None:
        return not judge(found, expected)
    return bool(_difference(expected, found, rounding=True))


def _difference(before: dict[str, Array], after: dict[str, Array], *, rounding: bool) -> str:
    if list(before) != list(after):
        return "it has other outputs"
    for name, old in before.items():
        new = after[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"`{name}` has another shape or type"
        if old.tobytes() == new.tobytes():
            continue
        if not rounding:
            return f"`{name}` differs"
        if not _is_rounding(old, new):
            return f"`{name}` differs by more than rounding"
    return ""


def _is_rounding(old: Array, new: Array) -> bool:
    if old.dtype.kind in "iub":
        return False
    a, b = to_double(old), to_double(new)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return False
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    a, error = a[finite], np.abs(a[finite] - b[finite])
    unit = _eps(old.dtype)
    most = _ROUNDING.get(old.dtype.itemsize, 64.0)
    if (error > most * unit * float(np.abs(a).max(initial=0.0))).any():
        return False
    together = max(0.5, most / 4) * unit
    return float(np.linalg.norm(error)) <= together * float(np.linalg.norm(a))


def _eps(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon."""
    bits = np.ones((), dtype).view(f"u{dtype.itemsize}")
    following = np.array(bits + 1, bits.dtype).view(dtype)
    return float(following) - 1.0
