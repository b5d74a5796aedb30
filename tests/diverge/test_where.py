"""The map that a failed comparison shows: regions, their writers, and the kind of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diverge import kernels
from tests.diverge.kernels import line_of, twice, x_and_out

import tilelet.language as pl
from tilelet.cli.main import main
from tilelet.divergence import answer
from tilelet.runtime import run_jit


def test_a_wrong_offset_is_a_shift_and_names_who_wrote_and_who_is_right() -> None:
    result = run_jit(kernels.wrong_offset, x_and_out(), golden_fn=twice)
    (where,) = result.where
    assert [region.about for region in where.regions] == ["rows 0:48, all columns"]
    assert (where.shape.kind, where.shape.value) == ("shift", 16)
    assert [w.iteration for w in where.writers] == [(("r", 0),), (("r", 16),), (("r", 32),)]
    assert {w.loc.line for w in where.writers if w.loc} == {line_of(kernels.wrong_offset) + 1}
    assert where.right == {"double": 1}
    assert "shifted by 16 rows" in (result.error or "")


def test_what_nobody_wrote_is_said_with_the_statement_that_writes_the_rest() -> None:
    result = run_jit(kernels.partly_unwritten, x_and_out(), golden_fn=twice)
    (where,) = result.where
    assert where.shape.kind == "missing write"
    assert f"kernels.py:{line_of(kernels.partly_unwritten) + 3}" in where.shape.text
    assert where.writers[0].loc is None
    assert where.writers[0].wrong == 16 * 32


def test_a_run_that_passes_has_no_map() -> None:
    def shifted(tensors: dict[str, Any]) -> None:
        rows = np.arange(64)
        tensors["out"][:] = 2.0 * tensors["x"][np.minimum(rows // 16 * 16 + 16, 48) + rows % 16]

    result = run_jit(kernels.wrong_offset, x_and_out(), golden_fn=shifted)
    assert result.passed, result.error
    assert result.where == []


def test_json_has_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "from tests.diverge.kernels import *\nfrom tilelet.runtime import run_jit\n"
        "run_jit(wrong_offset, x_and_out(), golden_fn=twice)\n"
    )
    assert main(["run", "--format", "json", str(script)]) == 1
    (where,) = json.loads(capsys.readouterr().out)["results"][0]["where"]
    assert where["shape"]["kind"] == "shift"
    assert where["regions"][0]["wrong"] == 48 * 32
    assert where["writers"][0]["line"] == line_of(kernels.wrong_offset) + 1


def test_a_mismatch_says_the_grade_and_the_place_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "from tests.diverge.kernels import *\nfrom tilelet.runtime import run_jit\n"
        "def golden(tensors):\n    print('golden called')\n    twice(tensors)\n"
        "run_jit(wrong_offset, x_and_out(), golden_fn=golden)\n"
    )
    assert main(["run", "--no-golden-cache", str(script)]) == 1
    text = "".join(capsys.readouterr())
    (line,) = [line for line in text.splitlines() if line.startswith("Short search: ")]
    assert "bounded to 2 statements" in line
    assert line.endswith(f"in full: tilelet diverge {script}")
    assert text.count("golden called") == 1


def test_a_long_program_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts statements, not seconds."""
    monkeypatch.setattr(answer, "SHORT", answer.Options(budget=1.0, limit=3))
    result = run_jit(kernels.wrong_offset, x_and_out(), golden_fn=twice)
    assert result.answer is not None
    assert result.answer.brief() == ""
    assert "too long to be followed" in str(result.answer)
    assert "Search: tilelet diverge " in (result.error or "")


def test_blocks_of_a_task_are_one_line() -> None:
    @pl.jit
    def thrice(x: pl.Tensor[[64, 32], pl.FP32], out: pl.Out[pl.Tensor[[64, 32], pl.FP32]]):
        with pl.spmd(4):
            r = pl.tile.get_block_idx() * 16
            out[r : r + 16, :] = pl.mul(x[r : r + 16, :], 3.0)
        return out

    result = run_jit(thrice, x_and_out(), golden_fn=twice)
    (where,) = result.where
    assert len(where.writers) == 4
    assert [text.rpartition(": ")[2] for text in where.lines() if "test_where" in text] == [
        "all wrong"
    ]
