"""`tilelet verdict`: one answer, in the layout that `advise` and `tune` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.advice import scripts
from tests.advice.scripts import line_of, script
from tests.tuning.kernels import SCRIPT as TUNABLE

import tilelet
from tilelet.cli.main import main
from tilelet.scripts.answers import SCHEMA

GOLDEN = """

def golden(tensors):
    exp = np.exp(tensors["x"].astype(np.float32)).astype(ml_dtypes.bfloat16)
    tensors["out"][:] = exp.astype(np.float32) + tensors["x"].astype(np.float32)


if __name__"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def judged(text: str) -> str:
    """A script that compares its output with a golden."""
    return (
        script(text)
        .replace("\n\nif __name__", GOLDEN, 1)
        .replace("run(Program, specs)", "run(Program, specs, golden, rtol=1e-3, atol=1e-3)")
    )


RIGHT = """
for kb in pl.range(HIDDEN // CHUNK):
    k0 = kb * CHUNK
    with pl.at(level=pl.Level.CORE_GROUP):
        rows = pl.cast(x[:, k0 : k0 + CHUNK], target_type=pl.FP32)
        power = pl.cast(pl.exp(rows), target_type=pl.BF16)
        summed = pl.add(pl.cast(power, target_type=pl.FP32), rows)
        out = pl.assemble(out, summed, [0, k0])
return out
"""


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(arguments)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))  # pyright: ignore[reportUnknownMemberType]
    return code, document


def write(text: str) -> str:
    Path("kernel.py").write_text(text, encoding="utf-8")
    return "kernel.py"


def test_a_right_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = answer(capsys, "verdict", write(judged(RIGHT)), "--json")
    assert code == 0
    found = document["verdict"]
    assert (found["status"], found["correct"], found["fits"]) == ("right", True, True)
    low, high = found["costs"]["a2a3"]["interval_us"]
    assert low < found["costs"]["a2a3"]["us"] < high
    assert found["costs"]["a2a3"]["tasks"] == 8
    # x is read once and out is written once.
    assert found["costs"]["a2a3"]["gm_bytes"] == 16 * 512 * (2 + 4)
    assert found["first_wrong"] is None
    assert found["golden"] is None


def test_a_wrong_program_has_its_first_wrong_statement(capsys: pytest.CaptureFixture[str]) -> None:
    text = judged(RIGHT.replace("pl.add(pl.cast", "pl.sub(pl.cast"))
    code, document = answer(capsys, "verdict", write(text), "--json")
    assert code == 1
    found = document["verdict"]
    assert (found["status"], found["correct"]) == ("wrong", False)
    assert found["first_wrong"]["line"] == line_of(text, "pl.sub(")
    assert "add" in found["first_wrong"]["repair"]
    codes = [d["code"] for d in document["diagnostics"]]
    assert found["first_wrong"]["code"] in codes


def test_findings_of_checks_and_tiles_that_do_not_fit() -> None:
    text = (
        judged(RIGHT).replace("HIDDEN = 512", "HIDDEN = 8192").replace("CHUNK = 64", "CHUNK=8192")
    )
    verdict = tilelet.verdict(write(text))
    assert verdict.correct
    assert verdict.fits is False
    assert verdict.findings
    assert not verdict.ok


def test_a_program_that_nobody_compares(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = answer(capsys, "verdict", write(script(RIGHT)), "--json")
    assert code == 0
    assert document["verdict"]["correct"] is None
    assert document["verdict"]["status"] == "not compared"


def test_a_script_that_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = answer(capsys, "verdict", write(judged("return oot")), "--json")
    assert code == 3
    found = document["verdict"]
    assert (found["status"], found["correct"], found["fits"]) == ("could not run", False, None)
    assert "oot" in found["why"]
    assert document["errors"] > 0
    code, document = answer(capsys, "verdict", "missing.py", "--json")
    assert code == 3
    assert document["verdict"]["status"] == "could not run"


def test_the_strength_of_the_golden_on_request() -> None:
    verdict = tilelet.verdict(write(judged(RIGHT)), strength=2.0, platform=("a2a3", "a5"))
    assert verdict.golden is not None
    assert "noticed" in verdict.golden.summary
    assert set(verdict.costs) == {"a2a3", "a5"}
    assert "mutations" in str(verdict)


def test_advise_and_tune_have_the_same_layout(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = answer(
        capsys, "advise", write(script(scripts.ROUND_TRIP)), "--fix", "--format", "json"
    )
    advice = document["advice"]
    assert advice["after"]["us"] < advice["before"]["us"]
    assert advice["steps"][0]["costs"]["interval_us"] is not None
    path = write(TUNABLE)
    _, document = answer(
        capsys, "tune", path, "--vary", "TILE=16,64", "--jobs", "1", "--format", "json"
    )
    tuning = document["tuning"]
    assert tuning["best"]["figures"]["a2a3"]["interval_us"] is not None


def test_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        judged(RIGHT).replace("HIDDEN = 512", "HIDDEN = 8192").replace("CHUNK = 64", "CHUNK=8192")
    )
    main(["verdict", write(text), "--format", "sarif"])
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == "2.1.0"
    assert document["runs"][0]["results"]
