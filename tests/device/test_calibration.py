"""The modelled device against published measurements: required accuracy."""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import pytest
from tests.device import recording

from tilelet.calibration.fit import EVIDENCE, FREE
from tilelet.calibration.rows import lines, record_program
from tilelet.device import load_machine, simulate
from tilelet.device.report.sensitivity import field_value, fields_of
from tilelet.device.schedule.library import library
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
    assert record_program(build_scope3, "baseline")[0].total == 33411
    assert record_program(build_scope3, "refactored")[0].total == 1651


def test_free_parameters_are_fields_with_evidence() -> None:
    assert set(EVIDENCE) < set(FREE)
    for group in FREE:
        for name in fields_of(A2A3, group):
            assert field_value(A2A3, name) > 0
            assert A2A3.evidence[name].source


@pytest.mark.parametrize(("variant", "seconds"), [("baseline", 2.0), ("refactored", 1.0)])
def test_modelling_takes_little_time(variant: str, seconds: float) -> None:
    tasks, program = record_program(build_scope3, variant)
    if library() is None:
        pytest.skip("no C compiler")
    start = time.process_time()
    simulate(tasks, program, A2A3)
    assert time.process_time() - start < seconds


def test_tasks_are_handled_in_bulk() -> None:
    """Six thousand more tasks cause no additional calls of Python functions."""
    if library() is None:
        pytest.skip("no C compiler")

    def calls(tasks: int) -> int:
        stream, program = recording.recorded(recording.elementwise(tasks))
        count = 0

        def note(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call"

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            simulate(stream, program, A2A3)
        finally:
            sys.setprofile(before)
        return count

    calls(10)
    assert calls(8000) - calls(2000) < 60
