"""Every example runs as a script, passes its golden, stays short, prints to a fixed point, and is
written in the language of August 2026."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.dialects import DIALECTS, check
from tilelet.ir.core import Program
from tilelet.ir.printer import print_program
from tilelet.passes.pipeline import run_passes

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
by_name = pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)


def test_there_is_an_example_for_every_topic() -> None:
    topics = [p.stem.split("_", 1)[1] for p in EXAMPLES]
    assert topics == [
        "hello",
        "tiled_matmul",
        "softmax",
        "rmsnorm",
        "layernorm",
        "rope",
        "gemm_epilogue",
        "multi_projection",
        "topk",
        "int8_matmul",
        "flash_attention",
        "paged_decode_attention",
        "moe_layer",
        "chunked_scan",
    ]


@by_name
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


@by_name
def test_example_runs_and_passes(
    path: Path, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "-p", "a5sim"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    output = capsys.readouterr().out
    assert stopped.value.code in (0, False), output
    assert "PASS" in output


def program_of(path: Path) -> Program:
    """Return the program of an example, as the frontend builds it."""
    names = runpy.run_path(str(path))
    for value in names.values():
        if isinstance(value, Program):
            return value
    (jitted,) = (v for v in names.values() if hasattr(v, "specialize"))
    arguments = [np.empty(spec.shape, spec.dtype.numpy) for spec in names["SPECS"]]
    return jitted.specialize(*arguments)


@by_name
def test_printed_example_parses_to_the_same_text_after_every_pass(path: Path) -> None:
    stages = [program_of(path)]
    run_passes(stages[0], after=lambda _, after: stages.append(after))
    for stage in stages:
        text = print_program(stage)
        assert print_program(pl.parse(text)) == text


@by_name
def test_example_is_portable_whatever_the_passes_made_of_it(path: Path) -> None:
    program = program_of(path)
    for stage in (program, run_passes(program)):
        assert check(stage, DIALECTS["2026-08"]) == []
