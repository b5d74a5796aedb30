"""The case that `tilelet diverge` examines: program, inputs, and golden with intermediates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilelet.diag.core import UserError
from tilelet.diag.render import render_line
from tilelet.divergence.golden_trace import GoldenTrace
from tilelet.divergence.locate import GoldenCase, Masks
from tilelet.runtime.data.arrays import Array
from tilelet.runtime.data.specs import Spec
from tilelet.runtime.programs.compiler import CompiledProgram
from tilelet.runtime.validation.differences import mismatches
from tilelet.runtime.validation.judge import Judge

Expecting = Callable[[Callable[..., Any] | None], "dict[str, Array] | None"]
"""Returns expected arrays by spec name, computed by another golden."""


def examined(
    compiled: CompiledProgram,
    specs: Mapping[str, Spec],
    pristine: Mapping[str, Any],
    golden: Callable[..., Any] | None,
    expecting: Expecting,
    judge: Judge,
    inputs: Mapping[str, Any],
) -> GoldenCase:
    """Return the case with the intermediates of its golden; note what cannot be compared."""
    trace: GoldenTrace | None = None
    note = "there is no golden: results are compared with double only"
    by_name: dict[str, Array] = {}
    if golden is not None:
        trace = GoldenTrace(golden)
        note = trace.note
    try:
        found = expecting(trace.golden if trace else None)
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

    return GoldenCase(
        compiled.program,
        pristine,
        expected,
        passes,
        differ,
        trace.found if trace else (),
        note,
        judge.rtol,
        judge.atol,
        tuple(trace.numbers) if trace else (),
    )


def _like(made: Array, expected: Array) -> Array:
    """View an array in the other's element type; signed arrays may represent unsigned ones."""
    same = made.dtype == expected.dtype or made.dtype.itemsize != expected.dtype.itemsize
    return made if same else made.view(expected.dtype)
