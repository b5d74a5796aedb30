"""`tilelet calibrate`: the parameters of a simulated board are recovered from its measurements."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelet.calibration.board import (
    BoardFit,
    Observation,
    _most_useful,
    fields_of,
    fit_board,
    machine_text,
    report,
)
from tilelet.calibration.kit import CASES, write_kit
from tilelet.calibration.results import Measured, read_results
from tilelet.cli.main import main
from tilelet.device import load_machine, simulate
from tilelet.device.machine.description import Machine, with_fields
from tilelet.device.report.sensitivity import GROUPS, field_value
from tilelet.device.report.trace import TimelineTrace
from tilelet.device.run import Recorded
from tilelet.diag.core import UserError
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target

A2A3 = load_machine("a2a3")
PERIOD = "2026-06"
FEW = ("start", "vector_ops", "element_reads", "blocks", "handover")
HIDDEN = {
    "vector instructions": 0.7,
    "access of a single element": 1.5,
    "scheduler time per block": 0.8,
}


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Recorded]:
    """Return the recorded kit; only part of it unless `--thorough` is given."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("kit")
    write_kit(folder)
    thorough = request.config.getoption("--thorough")
    cases = tuple(c.name for c in CASES) if thorough else FEW
    options = RecordingOptions(platform="a2a3", quiet=True, build_dir=folder)
    return {case: record(Target(str(folder / f"{case}.py")), options).runs[0] for case in cases}


def hidden_board(factors: dict[str, float]) -> Machine:
    changes = {
        name: field_value(A2A3, name) * factor
        for group, factor in factors.items()
        for name in fields_of(A2A3, group, PERIOD)
    }
    return with_fields(A2A3, changes)


def measured_on(board: Machine, runs: dict[str, Recorded], noise: float) -> dict[str, Measured]:
    rng = random.Random(3)
    found: dict[str, Measured] = {}
    for name, run in runs.items():
        line = simulate(run.tasks, run.program, board, period=PERIOD)
        spent = line.end - line.start
        kernels = {
            kernel: float(spent[line.kernel == i].mean()) * rng.gauss(1, noise)
            for i, kernel in enumerate(line.kernel_names)
        }
        found[name] = Measured(line.total_us * rng.gauss(1, noise), kernels)
    return found


@pytest.fixture(scope="module")
def fit(runs: dict[str, Recorded]) -> BoardFit:
    return fit_board(A2A3, PERIOD, runs, measured_on(hidden_board(HIDDEN), runs, 0.01))


def test_a_hidden_board_is_recovered(fit: BoardFit) -> None:
    assert fit.typical_error(fit.after) < 0.02 < fit.typical_error(fit.before)
    found = {p.group: p for p in fit.parameters}
    for group, factor in HIDDEN.items():
        parameter = found[group]
        assert parameter.error is not None, group
        assert abs(parameter.factor / factor - 1) < max(0.05, 4 * parameter.error), group
    # Parameters that these scripts do not show stay, and the report says so.
    unseen = [p for p in fit.parameters if p.error is None]
    assert unseen
    assert all(p.factor == 1.0 for p in unseen)
    assert "not determined" in report(fit)
    assert f"repeat `{fit.next_script}.py`" in report(fit)


def test_the_script_to_repeat_shows_the_least_certain_parameter() -> None:
    seen = [Observation(name, None, 1.0) for name in ("sharp", "blunt", "other")]
    slopes = np.array([[0.9, 0.0], [0.2, 0.1], [0.0, 1.0]])
    assert _most_useful(seen, np.array([0.2, 0.01]), slopes) == "sharp"
    assert _most_useful(seen, np.array([0.01, 0.2]), slopes) == "other"


def test_the_fitted_file_is_the_fitted_machine(
    fit: BoardFit, runs: dict[str, Recorded], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(machine_text(fit, "a2a3", "mine"))
    loaded = load_machine(file)
    assert loaded.default_period == PERIOD
    for group in GROUPS:
        for name in fields_of(A2A3, group, PERIOD):
            assert field_value(loaded, name) == pytest.approx(
                field_value(fit.machine, name), rel=1e-5
            )
    run = runs["vector_ops"]
    times = [
        simulate(run.tasks, run.program, m, period=PERIOD).total_us for m in (fit.machine, loaded)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-4)


def test_records_of_lanes_give_the_times(runs: dict[str, Recorded], tmp_path: Path) -> None:
    run = runs["vector_ops"]
    line = simulate(run.tasks, run.program, A2A3, period=PERIOD)
    folder = tmp_path / "results" / "vector_ops" / "dfx_outputs"
    folder.mkdir(parents=True)
    for name, text in TimelineTrace(line, {}).files().items():
        (folder / name).write_text(text)
    found = read_results(tmp_path / "results", ("vector_ops", "rows"))
    assert list(found) == ["vector_ops"]
    result = found["vector_ops"]
    # The board's counter has a resolution of 20 ns.
    assert result.total_us == pytest.approx(line.total_us, abs=0.05)
    for i, kernel in enumerate(line.kernel_names):
        spent = (line.end - line.start)[line.kernel == i].mean()
        assert result.kernels[kernel] == pytest.approx(spent, abs=0.05)


def as_arrays(data: dict[str, Any]) -> None:
    """Convert records to the arrays of newer runtimes, with their additional field."""
    data["aicore_tasks"] = [
        [row[f] for f in ("core_id", "task_token_raw", "reg_task_id", "start_cycles", "end_cycles")]
        + [12]
        for row in data["aicore_tasks"]
    ]
    data["aicpu_tasks"] = [
        [row[f] for f in ("core_id", "reg_task_id", "dispatch_cycles", "finish_cycles")]
        for row in data["aicpu_tasks"]
    ]


def as_tasks(data: dict[str, Any], deps: dict[str, Any]) -> dict[str, Any]:
    """Return records as runtimes until May 2026 wrote them: in microseconds, by function."""
    us = 1e6 / data["metadata"]["clock_freq_hz"]
    kinds = data["metadata"]["core_types"]
    ids = {row["task_id"]: row["kernel_ids"] for row in deps["tasks"]}
    stamps = {(r["core_id"], r["reg_task_id"]): r for r in data["aicpu_tasks"]}
    tasks: list[dict[str, float]] = []
    for row in data["aicore_tasks"]:
        stamp = stamps[row["core_id"], row["reg_task_id"]]
        aic, aiv, _ = ids[row["task_token_raw"]]
        tasks.append(
            {
                "func_id": aic if kinds[row["core_id"]] == "aic" else aiv,
                "start_time_us": row["start_cycles"] * us,
                "end_time_us": row["end_cycles"] * us,
                "dispatch_time_us": stamp["dispatch_cycles"] * us,
                "finish_time_us": stamp["finish_cycles"] * us,
            }
        )
    return {"version": 2, "tasks": tasks}


@pytest.mark.parametrize("layout", ["arrays", "tasks"])
@pytest.mark.parametrize("case", ["vector_ops", "handover"])
def test_records_of_other_versions_give_the_same_times(
    layout: str, case: str, runs: dict[str, Recorded], tmp_path: Path
) -> None:
    run = runs[case]
    files = TimelineTrace(simulate(run.tasks, run.program, A2A3, period=PERIOD), {}).files()
    for folder in ("ours", "theirs"):
        (tmp_path / folder / case).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / folder / case / name).write_text(text)
    theirs = tmp_path / "theirs" / case
    data = json.loads(files["chip_swimlane_records.json"])
    if layout == "arrays":
        as_arrays(data)
        (theirs / "chip_swimlane_records.json").write_text(json.dumps(data))
    else:
        (theirs / "chip_swimlane_records.json").unlink()
        old = as_tasks(data, json.loads(files["deps.json"]))
        (theirs / "l2_perf_records_20260520_101500.json").write_text(json.dumps(old))
    names = {"level": 2, "callable_id_to_name": json.loads(files["name_map.json"])}
    (theirs / "name_map.json").write_text(json.dumps(names))
    expected = read_results(tmp_path / "ours", (case,))[case]
    found = read_results(tmp_path / "theirs", (case,))[case]
    assert expected.kernels
    assert found.kernels == pytest.approx(dict(expected.kernels))
    assert found.total_us == pytest.approx(expected.total_us)


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"kernels": 3}',
        '{"kernels": {"a": -1}}',
        '{"kernels": {"a": true}}',
        '{"total_us": "1"}',
        '{"kernels": {"a": NaN}}',
    ],
)
def test_unreadable_measurements_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(UserError) as caught:
        read_results(tmp_path, ("rows",))
    assert caught.value.code == "E0918"


def test_broken_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "l2_swimlane_records.json").write_text('{"metadata": {}}')
    with pytest.raises(UserError) as caught:
        read_results(tmp_path, ("rows",))
    assert caught.value.code == "E0918"
    with pytest.raises(UserError) as caught:
        read_results(tmp_path / "nowhere", ("rows",))
    assert caught.value.code == "E0919"


@pytest.mark.parametrize(
    ("records", "names"),
    [
        ('{"tasks": ["x"]}', "{}"),
        ('{"tasks": [{"func_id": 1e400, "start_time_us": 0, "end_time_us": 1}]}', "{}"),
        ('{"tasks": [{"func_id": 0}]}', '{"callable_id_to_name": ["a"]}'),
        ('{"tasks": [{"func_id": 0, "start_time_us": 2, "end_time_us": 1}]}', '{"0": "a"}'),
        ('{"tasks": [{"func_id": 0, "start_time_us": NaN, "end_time_us": 1}]}', '{"0": "a"}'),
    ],
)
def test_records_without_times_are_refused(records: str, names: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "l2_perf_records.json").write_text(records)
    (tmp_path / "rows" / "name_map.json").write_text(names)
    with pytest.raises(UserError) as caught:
        read_results(tmp_path, ("rows",))
    assert caught.value.code == "E0918"


def test_times_of_other_kernels_are_refused(runs: dict[str, Recorded]) -> None:
    with pytest.raises(UserError) as caught:
        fit_board(A2A3, PERIOD, {"start": runs["start"]}, {"start": Measured(None, {"other": 1.0})})
    assert "times of `other`; the kernels of `start.py` are `start`" in str(caught.value)


def test_kernels_of_the_kit_have_the_names_of_their_scopes(runs: dict[str, Recorded]) -> None:
    for case in CASES:
        hints = set(re.findall(r'name_hint="(\w+)"', case.body))
        if case.name in runs and case.timed == "kernels":
            assert {k.name for k in runs[case.name].program.kernels} == hints, case.name


def test_the_commands(
    runs: dict[str, Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "kit", str(tmp_path / "kit")]) == 0
    assert len(list((tmp_path / "kit").glob("*.py"))) == len(CASES) >= 20
    results = tmp_path / "results"
    results.mkdir()
    board = measured_on(hidden_board(HIDDEN), {n: runs[n] for n in ("start", "vector_ops")}, 0.0)
    for name, result in board.items():
        text = json.dumps({"total_us": result.total_us, "kernels": dict(result.kernels)})
        (results / f"{name}.json").write_text(text)
    output = tmp_path / "mine.toml"
    capsys.readouterr()
    asked = ["calibrate", "fit", str(results), "--period", PERIOD, "-o", str(output)]
    assert main([*asked, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {o["script"] for o in document["observations"]} == {"start", "vector_ops"}
    assert load_machine(output).name == "mine"
    assert main(["calibrate", "fit"]) == 2
