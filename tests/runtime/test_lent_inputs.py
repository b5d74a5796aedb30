"""Large inputs exist once, whatever the script does with their memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ranks.programs import ring, rows, world

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run, session
from tilelet.runtime.data import inputs, lent
from tilelet.runtime.handlers.base import RanksRun
from tilelet.runtime.handlers.record import ExecuteAndRecord, Record
from tilelet.runtime.harness import case_run
from tilelet.runtime.session import Session

SHAPE = [16, 16]


@pl.jit
def total(
    x: pl.Tensor[[16, 16], pl.FP32],
    w: pl.Tensor[[16, 16], pl.FP32],
    y: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:] = pl.add(x[:], w[:])
    return y


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (lent, inputs, case_run):
        monkeypatch.setattr(module, "MIN_LENT_BYTES", 1)
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path))  # every golden runs


def result_of(x: Any, w: Any, golden: Callable[[dict[str, Any]], None]) -> Any:
    return run(
        total,
        [
            TensorSpec("x", SHAPE, "float32", x),
            TensorSpec("w", SHAPE, "float32", w),
            TensorSpec("y", SHAPE, "float32", is_output=True),
        ],
        golden_fn=golden,
    )


def add(tensors: dict[str, Any]) -> None:
    tensors["y"][:] = tensors["x"] + tensors["w"]


def filled(value: float) -> Any:
    return np.full(SHAPE, value, np.float32)


def test_the_golden_gets_the_array_of_the_script() -> None:
    x, seen = filled(2), []

    def golden(tensors: dict[str, Any]) -> None:
        seen.append(tensors["x"])
        add(tensors)

    assert result_of(lambda: x, lambda: filled(3), golden).passed
    assert all(np.shares_memory(a, x) for a in seen)


def test_a_golden_that_changes_its_inputs_does_not_change_the_run() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        add(tensors)
        tensors["x"] *= 2

    assert result_of(lambda: filled(2), lambda: filled(3), golden).passed


def test_a_changed_input_may_be_the_expected_output() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["x"] += tensors["w"]
        tensors["y"] = tensors["x"]

    assert result_of(lambda: filled(2), lambda: filled(3), golden).passed


def test_a_script_may_fill_one_array_again() -> None:
    memory = filled(0)

    def fill(value: float) -> Any:
        memory[:] = value
        return memory

    assert result_of(lambda: fill(2), lambda: fill(3), add).passed


def test_a_later_initializer_may_change_an_array() -> None:
    memory = filled(0)

    def fill(value: float) -> Any:
        memory[:] = value
        return memory

    assert result_of(lambda: fill(2), lambda: fill(3).copy(), add).passed


def test_an_array_that_cannot_be_made_again_is_an_error() -> None:
    x = filled(2)

    def golden(tensors: dict[str, Any]) -> None:
        add(tensors)
        tensors["x"] *= 2

    result = result_of(lambda: x, lambda: filled(3), golden)
    assert not result.passed
    assert "let it return a copy" in str(result.error)


@pytest.mark.parametrize("handler", [Record, ExecuteAndRecord])
def test_schedules_of_ranks_are_explored_on_the_arrays_of_the_script(
    handler: type[Record | ExecuteAndRecord],
) -> None:
    x, seen = rows(2), []

    def explore(given: RanksRun) -> bool:
        seen.append(given.arguments["x"])
        return False

    specs = [
        TensorSpec("x", x.shape, "float32", lambda: x),
        TensorSpec("y", x.shape, "float32", is_output=True),
    ]
    with session.active(Session(handler(explore=explore), quiet_diagnostics=True)):
        assert run(ring, specs, config=world(2)).passed
    assert [np.shares_memory(a, x) for a in seen] == [True]
