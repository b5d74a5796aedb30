"""Examples and models: interpreter and engine agree in every bit, and so do all schedules."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cpu.both import Both, both
from tests.cpu.test_schedules import SEEDS, THREADS, check_schedules
from tests.models.programs import SMALL, every_program, sizes_of
from tests.models.real.test_programs import BUILD, arguments, small

from tilelet.models import registry
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.data.inputs import initial_array

__all__ = ["both"]  # a fixture

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_agree(
    path: Path,
    both: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELET_ENGINE", both)
    monkeypatch.setattr(sys, "argv", [str(path)])
    before = Both.runs
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    assert stopped.value.code in (0, False), capsys.readouterr().out
    assert Both.runs > before


@every_program
def test_models_agree(
    name: str, both: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, variant = registry.resolve(name)
    result = model.run(variant, runtime_cfg={"engine": both}, **sizes_of(name, SMALL))
    assert result.passed, result.error


@pytest.mark.parametrize("which", BUILD)
def test_real_layers_agree(which: str, both: str) -> None:
    shape = small()
    program = run_passes(BUILD[which](shape))
    lengths = [9, 14] if which == "decode" else [7, 16]
    Both().run(program, arguments(shape, which, lengths))


@every_program
def test_models_have_one_result(name: str, thorough: bool) -> None:
    """Threads and the order of tasks do not matter; `--thorough` tries more of them."""
    model, variant = registry.resolve(name)
    sizes = sizes_of(name, SMALL)
    program = run_passes(model.build(variant, **sizes))
    specs = model.specs(model.shape_for(variant, **sizes))
    given: dict[str, Any] = {spec.name: initial_array(spec) for spec in specs}
    seeds = SEEDS if thorough else SEEDS[:3]
    check_schedules(program, given, [(t, s) for t in THREADS for s in seeds])
