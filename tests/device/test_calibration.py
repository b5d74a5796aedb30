"""The modelled device against published measurements: what the model must reach."""

from __future__ import annotations

import functools
import time

import pytest
from bench.calibration.fit import FREE, field_value
from bench.calibration.rows import lines, recorded

from tilelet.device import load_machine, native, simulate
from tilelet.models.qwen3.scope3 import build_scope3

A2A3 = load_machine("a2a3")
LINES = {line.name: line for line in lines()}
PROGRAMS = ("scope3-before", "scope3-after", "scope1-before", "scope1-after", "matmul-add", "bgemm")


@functools.cache
def predicted(name: str) -> float:
    return LINES[name].predict(A2A3, LINES[name].period)


@pytest.mark.parametrize("name", LINES)
def test_every_row_is_near_what_was_published(name: str) -> None:
    limit = 0.15 if name in PROGRAMS else 0.25
    assert predicted(name) == pytest.approx(LINES[name].published, rel=limit)


def test_mean_error() -> None:
    errors = [abs(predicted(n) / line.published - 1) for n, line in LINES.items()]
    assert sum(errors) / len(errors) < 0.10


def test_the_refactoring_of_scope_3_gains_what_it_did() -> None:
    ratio = predicted("scope3-before") / predicted("scope3-after")
    assert ratio == pytest.approx(63044.26 / 3284.44, rel=0.10)


def test_task_counts_are_exact() -> None:
    assert recorded(build_scope3, "baseline")[0].total == 33411
    assert recorded(build_scope3, "refactored")[0].total == 1651


def test_free_parameters_are_fields_with_evidence() -> None:
    for names in FREE.values():
        for name in names:
            assert field_value(A2A3, name) > 0
            assert A2A3.evidence[name].source


@pytest.mark.parametrize(("variant", "seconds"), [("baseline", 2.0), ("refactored", 1.0)])
def test_modelling_takes_little_time(variant: str, seconds: float) -> None:
    tasks, program = recorded(build_scope3, variant)
    if native.library() is None:
        pytest.skip("no C compiler")
    start = time.process_time()
    simulate(tasks, program, A2A3)
    assert time.process_time() - start < seconds
