"""`tilelet tune` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.tuning.kernels import SCRIPT, InThisProcess

import tilelet as package


def test_the_report_has_the_change_and_its_causes(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SCRIPT)
    code, out, err = tilelet("tune", "k.py", "--vary", "TILE=16,64", "--jobs", "1", "-p", "a2a3")
    assert code == 0, err
    assert "modelled with TILE=64. On this CPU: PASS against the golden" in out
    assert "-TILE = 16\n+TILE = 64\n" in out
    assert "on the critical path" in out
    assert (tmp_path / "k.py").read_text() == SCRIPT


def test_json_and_sarif(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SCRIPT)
    common = ("k.py", "--vary", "TILE=16,64", "--jobs", "1", "--verify", "0")
    document = json.loads(tilelet("tune", "--format", "json", *common)[1])
    assert document["tuning"]["best"]["settings"] == {"TILE": 64}
    assert document["tuning"]["start"]["figures"]["a2a3"]["tasks"] == 32
    sarif = json.loads(tilelet("tune", "--format", "sarif", *common)[1])
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "W1401"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("k.py", "--vary", "TYLE=1"), 2, "did you mean `TILE`"),
        (("k.py", "--vary", "=1"), 2, "write NAME=VALUE"),
        (("k.py", "--vary", "TILE=1;2"), 2, "neither a number nor a name"),
        (("k.py", "--budget", "soon"), 2, "candidates"),
        (("k.py", "--budget", "0"), 2, "candidates"),
        (("k.py", "--objective", "speed"), 2, "none of"),
        (("k.py", "--jobs", "0"), 2, "at least 1"),
        (("k.py", "--executor", "nowhere"), 2, "not an executor address"),
        (("k.py", "--executor", "dask://127.0.0.1:1"), 3, "no scheduler responds"),
        (("k.py", "-p", "a9"), 2, "a9"),
        (("missing.py",), 3, "no file"),
        (("broken.py",), 3, "E0"),
    ],
)
def test_bad_input(
    tilelet: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "k.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text(SCRIPT.replace("pl.slice", "pl.slyce"))
    given, out, err = tilelet("tune", *arguments)
    assert given == code
    assert text in err
    assert out == ""


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(SCRIPT)
    outcome = package.tune("k.py", vary={"TILE": [16, 64]}, executor=InThisProcess())
    assert outcome.winner.settings == {"TILE": 64}
