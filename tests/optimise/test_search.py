"""Combined search of rewritings and sizes, on a naive kernel of the gym."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilelet.advice.programs import Setting
from tilelet.cli.main import main
from tilelet.device.machine.description import load_machine
from tilelet.gym.score import score_text
from tilelet.gym.tasks import tasks
from tilelet.optimise.search import optimise
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

TASK = tasks(Path(__file__).parents[2] / "examples")["row_max"]


def test_a_naive_kernel_becomes_five_times_faster_and_stays_right(tmp_path: Path) -> None:
    path = tmp_path / "row_max.py"
    path.write_text(TASK.script)
    setting = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))
    found = optimise(Target(str(path)), setting, candidates=8, jobs=1)
    assert found.ratio >= 5
    assert all(rung.claim.value == "proved" for rung in found.rungs)
    costs = [found.start.us, *(rung.costs.us for rung in found.rungs)]
    assert costs == sorted(costs, reverse=True)
    assert path.read_text() == TASK.script
    scored = score_text(TASK, found.text, ("a2a3",))
    assert scored.status == "right", scored.why
    assert scored.us is not None
    assert scored.us["a2a3"][0] == pytest.approx(found.costs.us, rel=1e-6)
    assert found.floor.us < found.costs.us
    assert "row_max" in found.to_data()["program"]


def test_a_script_without_programs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("print('nothing')\n")
    assert main(["optimise", str(path), "--json"]) != 0
    out = capsys.readouterr()
    assert "no program" in out.err or "no program" in json.dumps(out.out)
