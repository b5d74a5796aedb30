"""The case that `tilelet diverge` examines: program, inputs, and golden with intermediates."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.diag.core import UserError
from tilelet.diag.render import render_line
from tilelet.divergence.case import GoldenCase, Masks, Source, Trial
from tilelet.divergence.golden_trace import GoldenTrace, Intermediate
from tilelet.dtypes import Arguments, Array
from tilelet.frontend.decorators import can_lower_again, definition_of, with_definition
from tilelet.ir.core import Program
from tilelet.numerics.casts import as_computable
from tilelet.passes.pipeline import AS_WRITTEN, run_passes
from tilelet.runtime.data.specs import Spec
from tilelet.runtime.programs.compiler import CompiledProgram
from tilelet.runtime.validation.differences import mismatches
from tilelet.runtime.validation.judge import Judge

Expecting = Callable[[Callable[..., Any] | None, Arguments], "dict[str, Array] | None"]
"""Computes the expected outputs, by spec name, from a golden and the arguments of the program."""

_NEAR, _LARGE = (0.7, 1.3), (2.0, 4.0)
"""Ranges of the factors that turn the inputs of a case into those of trials.

With large inputs, a change that is correct only while nothing overflows is not.
"""
_MAX_CODES = 8
"""Whole numbers of no more values than this stand for something."""
_MAX_LARGE_ERROR = 0.05
"""Relative L2 error allowed for large inputs, for which no tolerance was chosen."""


def examine_case(
    compiled: CompiledProgram,
    specs: Mapping[str, Spec],
    pristine: Arguments,
    golden: Callable[..., object] | None,
    expecting: Expecting,
    judge: Judge,
    inputs: Mapping[str, object],
) -> GoldenCase:
    """Return the case with the intermediates of its golden; note what cannot be compared."""
    trace: GoldenTrace | None = None
    note = "there is no golden: results are compared with double only"
    by_name: dict[str, Array] = {}
    if golden is not None:
        trace = GoldenTrace(golden)
        note = trace.note
    try:
        found = expecting(trace.golden if trace else None, pristine)
        by_name = found or {}
        if found is not None and trace is None:
            note = "the golden is stored: only what it gives is compared"
    except UserError as error:
        note = f"nothing is compared with the golden: {render_line(error.diagnostic)}"
        trace = None
    params = {spec.name: param for param, spec in specs.items()}
    expected = {params[name]: array for name, array in by_name.items() if name in params}

    def passes(made: Mapping[str, Array]) -> bool:
        actual = {specs[p].name: _like(made[p], e) for p, e in expected.items()}
        return all(j.ok for j in judge.judge_all(actual, by_name, inputs))

    def differ(made: Mapping[str, Array], wanted: Mapping[str, Array]) -> Masks:
        return {
            name: mismatches(_like(made[name], array), array, judge.rtol, judge.atol)
            for name, array in wanted.items()
        }

    def partial(blocks: Iterable[int]) -> Sequence[Intermediate]:
        if trace is None:
            return ()
        return trace.partial_arrays(lambda other: expecting(other, pristine), blocks)

    def trials() -> list[Trial]:
        found = [_trial(factors) for factors in (_NEAR, _LARGE)] if golden and expected else []
        return [trial for trial in found if trial is not None]

    def _trial(factors: tuple[float, float]) -> Trial | None:
        try:
            given = _redrawn(pristine, lambda other: expecting(golden, other), factors)
            made = expecting(golden, given)
        except Exception:
            return None
        if not made or all(np.array_equal(made[n], by_name[n]) for n in by_name):
            return None
        other = made
        wanted = {params[name]: array for name, array in other.items() if name in params}

        def passes_too(outputs: Mapping[str, Array]) -> bool:
            actual = {specs[p].name: _like(outputs[p], e) for p, e in wanted.items()}
            if factors is _LARGE:
                return all(_is_near(actual[n], other[n]) for n in actual)
            return all(j.ok for j in judge.judge_all(actual, other, inputs))

        return Trial(given, passes_too)

    return GoldenCase(
        compiled.program,
        pristine,
        expected,
        passes,
        differ,
        tuple(trace.found) if trace else (),
        note,
        judge.rtol,
        judge.atol,
        tuple(trace.numbers) if trace else (),
        trials,
        lambda: run_passes(compiled.source, passes=AS_WRITTEN),
        _source_of(compiled.source),
        partial,
    )


def _source_of(program: Program) -> Source | None:
    """Return the definition of a program's entry, which can be changed and lowered again."""
    if not can_lower_again(program):
        return None
    file, definition = definition_of(program)

    def lower(changed: ast.FunctionDef) -> Program:
        return run_passes(with_definition(program, changed), passes=AS_WRITTEN)

    return Source(file, definition, lower)


def _redrawn(
    pristine: Arguments,
    expecting: Callable[[Arguments], Mapping[str, Array] | None],
    factors: tuple[float, float],
) -> Arguments:
    """Multiply every float input that the golden depends on by random factors.

    Zeros, signs and infinities stay. An input that the golden does not read may be derived from
    others, so it stays as it is; and so do integers, which may be indices. Floats that are a few
    whole numbers are masks or counts and stay, too; many different ones are exchanged.
    """
    rng = np.random.default_rng(0)
    reference = expecting(pristine)
    given = dict(pristine)
    for name, value in pristine.items():
        if not isinstance(value, np.ndarray):
            continue
        array: Array = value
        if array.dtype.kind in "iubO":
            continue
        drawn = rng.random(array.size).reshape(array.shape)
        wide = as_computable(array).astype(np.float64)
        scaled = wide * (factors[0] + (factors[1] - factors[0]) * drawn)
        other = scaled.astype(array.dtype)
        if np.array_equal(wide, np.rint(wide)):
            if len(np.unique(wide)) <= _MAX_CODES:
                continue
            other = rng.permutation(array.reshape(-1)).reshape(array.shape)
        made = expecting({**pristine, name: other})
        pairs = [(made[n], reference[n]) for n in reference] if made and reference else []
        if not all(np.array_equal(a, b) for a, b in pairs):
            given[name] = other
    return given


def _is_near(actual: Array, expected: Array) -> bool:
    a, e = as_computable(actual).astype(np.float64), as_computable(expected).astype(np.float64)
    if not np.isfinite(e).all():
        return True  # the golden rejects these inputs
    with np.errstate(all="ignore"):
        return bool(np.linalg.norm(a - e) <= _MAX_LARGE_ERROR * np.linalg.norm(e))


def _like(made: Array, expected: Array) -> Array:
    """View the memory with the other array's element type: signed integers may represent unsigned
    ones.
    """
    same = made.dtype == expected.dtype or made.dtype.itemsize != expected.dtype.itemsize
    return made if same else made.view(expected.dtype)
