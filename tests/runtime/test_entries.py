"""A class with several control programs: the caller says which one is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.compat import surface
from tilelet.diag.catalogue.names import SeveralEntries
from tilelet.runtime import TensorSpec, run

X = np.ones((16, 32), np.float32)


@pl.program
class Two:
    @pl.function(type=pl.FunctionType.InCore)
    def twice(
        self, x: pl.Tensor[[16, 32], pl.FP32], out: pl.Out[pl.Tensor[[16, 32], pl.FP32]]
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        tile = pl.load(x, [0, 0], [16, 32])
        return pl.store(pl.add(tile, tile), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def double(
        self, x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        y = self.twice(x, y)
        return y

    @pl.function(type=pl.FunctionType.Orchestration)
    def quadruple(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        middle: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
        y: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        middle = self.twice(x, middle)
        y = self.twice(middle, y)
        return y


def test_a_compiled_class_is_called_by_entry() -> None:
    compiled: Any = surface.compile(Two)
    assert compiled.orchestration_names == ["double", "quadruple"]
    y, middle = np.zeros_like(X), np.zeros_like(X)
    compiled.double(X, y)
    np.testing.assert_array_equal(y, 2 * X)
    compiled["quadruple"](X, middle, y)
    np.testing.assert_array_equal(y, 4 * X)
    assert compiled["quadruple"].param_names == ["x", "middle", "y"]
    assert compiled["double"] is compiled.double
    with pytest.raises(SeveralEntries, match=r'select one explicitly: `Two\["double"\]`'):
        compiled(X, y)
    with pytest.raises(KeyError, match="triple"):
        compiled["triple"]
    with pytest.raises(AttributeError, match="triple"):
        compiled.triple  # noqa: B018


def test_a_compiled_program_stands_for_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled = surface.compile(Two["double"], output_dir=tmp_path / "made")
    assert os.fspath(compiled) == str(compiled.output_dir) == str(tmp_path / "made")
    assert list(os.walk(compiled)) == [(str(tmp_path / "made"), [], [])]
    assert compiled.has_return
    assert compiled.orchestration_names == ["double"]


def test_run_without_tensors_compiles() -> None:
    y = np.zeros_like(X)
    compiled = run(Two["double"])
    compiled(X, y)
    np.testing.assert_array_equal(y, 2 * X)


def specs(*names: str) -> list[TensorSpec]:
    return [TensorSpec(n, [16, 32], pl.FP32, None if n != "x" else 1.0, n == "y") for n in names]


def test_specs_say_which_entry_is_run() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["y"][:] = tensors["x"] * (4 if "middle" in tensors else 2)

    assert run(Two, specs("x", "y"), golden).passed
    assert run(Two, specs("x", "middle", "y"), golden).passed
    assert run(Two["double"], specs("x", "y"), golden).passed
    assert "E0218" in str(run(Two, specs("x", "z"), golden).error)
