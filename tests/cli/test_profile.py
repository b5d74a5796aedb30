"""`tilelet profile`, `check` and `compare`, and profiling flags of scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run

SOURCES = str(Path(__file__).parent.parent.parent / "src")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES}


SCRIPT = """
import argparse
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

parser = argparse.ArgumentParser()
parser.add_argument("-p", "--platform", default="a2a3sim")
parser.add_argument("--tile", type=int, default=16)
parser.add_argument("--enable-profiling", action="store_true")
args = parser.parse_args()
TILE = args.tile

@pl.jit
def scale(x: pl.Tensor[[64, 2048], pl.FP32], y: pl.Out[pl.Tensor[[64, 2048], pl.FP32]]):
    for r in pl.parallel(0, 64, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            a = x[r : r + TILE, :]
            y[r : r + TILE, :] = pl.mul(a, pl.exp(a))
    return y

def golden(t):
    t["y"][:] = t["x"] * np.exp(t["x"].astype(np.float64))

SPECS = [
    TensorSpec("x", [64, 2048], pl.FP32, 0.5),
    TensorSpec("y", [64, 2048], pl.FP32, is_output=True),
]
result = run_jit(
    scale,
    SPECS,
    golden_fn=golden,
    rtol=1e-5,
    atol=1e-5,
    runtime_cfg={"platform": args.platform, "enable_profiling": args.enable_profiling},
)
print(result)
"""


STEERED = """
import numpy as np
import tilelet.language as pl

@pl.jit
def decided(n: pl.InOut[pl.Tensor[[1, 8], pl.INT32]], y: pl.InOut[pl.Tensor[[8, 8], pl.INT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        n[:, :] = pl.add(n[:, :], 1)
    for i in pl.range(pl.read(n, [0, 0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[i : i + 1, :] = pl.add(y[i : i + 1, :], 1)
    return n, y

decided(np.full((1, 8), 2, np.int32), np.zeros((8, 8), np.int32))
"""


INSIDE = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def inside(
    votes: pl.Tensor[[1, 8], pl.FP32],
    x: pl.Tensor[[64, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
):
    count = pl.create_tensor([1, 8], dtype=pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="decide"):
        count[:, :] = pl.cast(pl.add(votes[:, :], 2.0), pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):
        n = pl.read(count, [0, 3])
        for i in pl.range(n):
            y[i * 8 : i * 8 + 8, :] = pl.exp(x[i * 8 : i * 8 + 8, :])
    return y

print(run_jit(inside, [
    TensorSpec("votes", [1, 8], pl.FP32, 3.0),
    TensorSpec("x", [64, 64], pl.FP32, 0.5),
    TensorSpec("y", [64, 64], pl.FP32, is_output=True),
]))
"""


@pytest.fixture(autouse=True)
def script(tilelet: Run) -> None:
    Path("k.py").write_text(SCRIPT)


def test_a_full_disk_is_named(tilelet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system does not name the file when a write does not fit."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tilelet.report.run_directory.write_data", full)
    code, _, err = tilelet("profile", "k.py", "-p", "a2a3", "--tile", "8")
    assert code == 0
    assert "note: no files: cannot write `a file of the run`: No space left on device" in err
    code, _, err = tilelet("profile", "--build-dir", ".", "k.py", "-p", "a2a3", "--tile", "8")
    assert code == 3
    assert "error[E0709]: cannot write `a file of the run`: No space left" in err


def test_profile_prints_the_report_and_writes_its_files(tilelet: Run) -> None:
    code, out, err = tilelet("profile", "k.py", "-p", "a2a3", "--tile", "8")
    assert code == 0, err
    assert re.search(r"^TOTAL +8 +[0-9.]+ +[0-9.]+", out, re.MULTILINE)
    assert "Total Test Time: " in out
    assert "On-chip memory (modelled)" in out
    (folder,) = Path("build_output").iterdir()
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "command.json",
        "profile.json",
        "report/page.data",
        "report/profile.txt",
        "report/memory_after_AllocateMemoryAddr.txt",
        "report/memory_map.txt",
        "report/memory_map.json",
        "report/budget.txt",
        "report/perf_hints.log",
        "dfx_outputs/merged_swimlane.json",
        "dfx_outputs/chip_swimlane_records.json",
        "dfx_outputs/deps.json",
        "dfx_outputs/name_map.json",
    }
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())


def test_nothing_is_executed(tilelet: Run) -> None:
    _, out, err = tilelet("profile", "k.py", "--no-files", "--tile", "8")
    assert "not executed: 8 tasks counted" in err
    assert "PASS" not in out + err
    assert not Path("build_output").exists()


def test_results_can_decide_tasks(tilelet: Run) -> None:
    Path("decided.py").write_text(STEERED)
    code, out, err = tilelet("tasks", "decided.py")
    assert code == 0, err
    assert "which its tasks compute, decides which tasks follow" in err
    assert re.search(r"total +4$", out, re.MULTILINE)
    for options in ((), ("--execute",)):
        code, out, err = tilelet("profile", "--no-files", *options, "decided.py")
        assert code == 0, err
        assert re.search(r"^TOTAL +4 ", out, re.MULTILINE)


def test_loops_that_results_decide_are_counted(tilelet: Run) -> None:
    """The deciding task is executed on the spec's inputs, although the command only records."""
    Path("inside.py").write_text(INSIDE)
    code, out, err = tilelet("profile", "--format", "json", "--no-files", "inside.py")
    assert code == 0, err
    (profile,) = json.loads(out)["profiles"]
    assert profile["guesses"] == []
    work = next(k for k in profile["kernels"] if k["name"] == "work")
    assert work["written"] == 5 * 8 * 64 * 4
    code, out, err = tilelet("profile", "--no-files", "--execute", "inside.py")
    assert code == 0, err
    assert "Guessed" not in out


def test_a_task_that_fails_when_it_has_to_be_executed(tilelet: Run) -> None:
    text = INSIDE.replace("[0, 3]", "[0, pl.read(count, [0, 3]) + 9]")
    Path("inside.py").write_text(text)
    code, _, err = tilelet("profile", "--no-files", "inside.py")
    assert code == 3
    assert "error[E0" in err
    assert "14" in err


def test_a_machine_without_the_period_takes_its_nearest_beside_one_that_has_it(
    tilelet: Run,
) -> None:
    both = ("profile", "--no-files", "--period", "2026-04", "--platforms", "a2a3,a5", "k.py")
    code, out, err = tilelet(*both, "--tile", "8")
    assert code == 0, err
    assert "note: a5 has no runtime of 2026-04: that of 2026-06 is modelled" in err
    assert "runtime of 2026-06" in out
    alone = tilelet("profile", "--no-files", "--period", "2026-04", "-p", "a5", "k.py")
    assert alone[0] == 2
    assert "error[E0907]" in alone[2]


def test_twice_the_same_bytes(tilelet: Run) -> None:
    first, second = (tilelet("profile", "k.py", "--tile", "8") for _ in range(2))
    assert first[1] == second[1]
    one, two = sorted(Path("build_output").iterdir())
    for path in one.rglob("*.*"):
        assert path.read_bytes() == (two / path.relative_to(one)).read_bytes()


def test_options_may_stand_on_either_side(tilelet: Run) -> None:
    before = tilelet("profile", "--period", "2026-06", "-p", "a2a3", "k.py", "--tile", "8")
    after = tilelet("profile", "k.py", "--tile", "8", "-p", "a2a3", "--period=2026-06")
    assert before[:2] == after[:2]
    assert "runtime of 2026-06" in after[1]


def test_a_machine_of_ones_own(tilelet: Run) -> None:
    Path("mine.toml").write_text('extends = "a2a3"\nname = "mine"\n[cores]\nclusters = 3\n')
    code, out, err = tilelet("profile", "k.py", "--tile", "8", "-p", "mine.toml")
    assert code == 0, err
    assert "scale on mine" in out
    assert "AIV busy (6 cores)" in out


def test_two_machines_side_by_side(tilelet: Run) -> None:
    code, out, err = tilelet("profile", "--platforms", "a2a3,a5", "k.py", "--tile", "8")
    assert code == 0, err
    assert out.count("Task Statistics by Function [modelled]") == 2
    assert "Side by side [modelled]\n" in out
    (folder,) = Path("build_output").iterdir()
    assert sorted(p.name for p in folder.iterdir()) == ["a2a3", "a5", "command.json", "report"]


def test_as_json(tilelet: Run) -> None:
    code, out, _ = tilelet("profile", "--format", "json", "k.py", "--tile", "32")
    assert code == 1
    document = json.loads(out)
    (profile,) = document["profiles"]
    assert profile["modelled"] is True
    assert profile["tasks"] == 2
    assert [d["code"] for d in document["diagnostics"]] == ["E0911"]


def test_profile_of_what_does_not_fit(tilelet: Run) -> None:
    code, out, err = tilelet("profile", "k.py", "--tile", "32")
    assert code == 1
    assert "a2a3 would refuse this program (1 error)" in out
    assert "error[E0911]: kernel `rows` needs 512 KiB of Vec" in err
    assert "k.py:" in err


def test_check(tilelet: Run) -> None:
    code, out, err = tilelet("check", "k.py", "-p", "a2a3", "--tile", "8")
    assert (code, out.splitlines()[0]) == (0, "scale on a2a3: no findings")
    assert "  capacity   proved    1 kernel planned on a2a3" in out
    assert "error" not in err
    code, out, err = tilelet("check", "k.py", "-p", "a2a3")
    assert code == 1
    assert out.splitlines()[0] == "scale on a2a3: 1 finding (would not run: 1)"
    assert "help: sizes that fit, fastest first (modelled):" in err
    assert not Path("build_output").exists()


def test_check_for_machines(tilelet: Run) -> None:
    code, out, _ = tilelet("check", "--format", "json", "k.py")
    assert code == 1
    document = json.loads(out)
    assert [d["code"] for d in document["diagnostics"]] == ["E0911"]
    (verdict,) = document["verdicts"]
    (capacity,) = [p for p in verdict["parts"] if p["check"] == "capacity"]
    assert capacity["status"] == "found"
    assert [f["code"] for f in capacity["findings"]] == ["E0911"]
    code, out, _ = tilelet("check", "--format", "sarif", "k.py")
    assert code == 1
    assert json.loads(out)["runs"][0]["results"][0]["ruleId"] == "E0911"


def test_check_shows_the_memory_plan(tilelet: Run) -> None:
    code, out, _ = tilelet("check", "--memory", "k.py", "--tile", "8")
    assert code == 0
    assert "Vec: 128 KiB of 184 KiB" in out
    assert "32 TILELETs" in out


def test_compare_two_programs(tilelet: Run) -> None:
    code, out, err = tilelet("compare", "k.py --tile 1", "k.py --tile 8")
    assert code == 0, err
    assert re.search(r"tasks +64 +8 +0.12x", out)
    assert "Largest causes, by the critical paths:" in out
    assert re.search(r"^  1\. -[0-9.,]+ us  ", out, re.MULTILINE)


def test_compare_two_machines(tilelet: Run) -> None:
    both = tilelet("compare", "k.py", "--platforms", "a2a3,a5")
    named = tilelet("compare", "k.py@a2a3", "k.py@a5")
    assert both[0] == named[0] == 0
    assert both[1] == named[1]
    assert "B: scale on a5" in both[1]


def test_compare_saved_profiles(tilelet: Run) -> None:
    for tile in ("1", "8"):
        tilelet("profile", "--build-dir", tile, "k.py", "--tile", tile)
    a, b = (str(next(Path(tile).glob("*/profile.json"))) for tile in ("1", "8"))
    code, out, err = tilelet("compare", "--format", "json", a, b)
    assert code == 0, err
    saved = json.loads(out)
    live = json.loads(tilelet("compare", "--format", "json", "k.py --tile 1", "k.py --tile 8")[1])
    assert (saved["a"], saved["b"]) == (live["a"], live["b"])
    assert 1 <= len(saved["causes"]) <= 3


def test_programs_that_ship_with_tilelet(tilelet: Run) -> None:
    code, out, err = tilelet("profile", "--no-files", "qwen3/scope1:chunked")
    assert code == 0, err
    assert re.search(r"^TOTAL +37 ", out, re.MULTILINE)
    assert "qwen3/scope1:chunked on a2a3" in out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["profile"], 2, "required: SCRIPT"),
        (["profile", "nope.py"], 3, "no file `nope.py`"),
        (["profile", "qwen3/scope9"], 3, "no file `qwen3/scope9`"),
        (["profile", "k.py", "-p", "a7"], 2, "no machine `a7`"),
        (["profile", "k.py", "-p", "bad.toml"], 2, "machine file bad.toml is not valid TOML"),
        (["profile", "k.py", "--period", "2020-01"], 2, "no runtime period `2020-01`"),
        (["profile", "empty.py"], 3, "program `Empty` submits no task"),
        (["profile", "broken.py"], 3, "error[E0604]"),
        (["check", "broken.py"], 3, "error[E0604]"),
        (["compare", "k.py"], 2, "nothing to compare `k.py` with"),
        (["compare", "nope.json", "k.py"], 3, "no file `nope.json`"),
        (["compare", "bad.json", "k.py"], 3, "bad.json is not a saved profile"),
        (["compare", "k.py", "nope.py"], 3, "no file `nope.py`"),
    ],
)
def test_what_can_be_wrong(tilelet: Run, argv: list[str], code: int, message: str) -> None:
    Path("bad.toml").write_text("= 3\n")
    Path("bad.json").write_text('{"version": 1}')
    Path("broken.py").write_text(
        SCRIPT.replace('TensorSpec("x", [64, 2048]', 'TensorSpec("x", [64]')
    )
    Path("empty.py").write_text(
        "import tilelet.language as pl\n"
        "@pl.program\nclass Empty:\n"
        "    @pl.function(type=pl.FunctionType.Opaque)\n"
        "    def main(self, x: pl.Tensor[[16, 128], pl.FP32]) -> pl.Tensor[[16, 128], pl.FP32]:\n"
        "        return x\n"
    )
    got, out, err = tilelet(*argv)
    assert message in err, err
    assert (got, out) == (code, "")


def test_a_profiling_run_prints_the_model_and_still_compares(tilelet: Run) -> None:
    code, out, err = tilelet("run", "k.py", "--tile", "8", "-p", "a2a3", "--enable-profiling")
    assert code == 0, err
    assert "Total Test Time: " in out
    assert "PASS" in out
    assert "note: modelled profile in build_output" in err
    assert list(Path("build_output").glob("*/profile.json"))


@pytest.mark.parametrize(("platform", "said"), [("a2a3", True), ("a2a3sim", False)])
def test_limits_are_said_only_for_a_board(tilelet: Run, platform: str, said: bool) -> None:
    code, _, err = tilelet("run", "k.py", "-p", platform, "--enable-profiling")
    assert code == 0
    assert err.count("error[E0911]") == 1 + said
    # Without a profile it is a finding of the checks, also on the simulator.
    code, out, err = tilelet("run", "k.py", "-p", platform)
    assert (code, err.count("error[E0911]")) == (0, 1)
    assert "1 finding for a2a3" in out + err


def test_a_run_in_json_has_its_profile(tilelet: Run) -> None:
    code, out, _ = tilelet("run", "--format", "json", "k.py", "--tile", "8", "--enable-profiling")
    assert code == 0
    (profile,) = json.loads(out)["profiles"]
    assert profile["tasks"] == 8


@pytest.mark.usefixtures("tilelet")
def test_other_commands_do_not_import_the_model() -> None:
    text = (
        "import sys; from tilelet.cli.main import main; main(['tasks', 'k.py']); "
        "print([n for n in sys.modules if n.startswith('tilelet.device')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_stages_that_share_buffers_are_priced_and_reported(tilelet: Run) -> None:
    text = SCRIPT.replace("pl.parallel(0, 64, TILE)", "pl.range(1)").replace(
        """        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            a = x[r : r + TILE, :]
            y[r : r + TILE, :] = pl.mul(a, pl.exp(a))
""",
        """        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            for i in pl.pipeline(0, 64, TILE, stage=2):
                y[i : i + TILE, :] = pl.exp(x[i : i + TILE, :])
""",
    )
    Path("staged.py").write_text(text)
    _, compiled, _ = tilelet("profile", "--no-files", "staged.py")
    _, ideal, _ = tilelet("profile", "--no-files", "--as", "ideal", "staged.py")
    assert "compare with --as ideal" in compiled
    assert "ideal memory plan" in ideal
    times = [re.search(r"Total Test Time: ([0-9.]+) us", text) for text in (ideal, compiled)]
    assert all(times)
    assert float(times[0][1]) < float(times[1][1])  # type: ignore[index]
    code, out, err = tilelet("check", "--portable", "2026-08", "staged.py")
    assert "W0920" in out + err
    assert "nothing to change" in out
    assert code == 0


def test_portability_does_not_record_all_tasks(tilelet: Run) -> None:
    text = SCRIPT.replace("pl.parallel(0, 64, TILE)", "pl.range(2000000)").replace(
        "r : r + TILE", "0 : TILE"
    )
    Path("many.py").write_text(text)
    code, out, err = tilelet("check", "--portable", "2026-08", "many.py")
    assert "the first 1,024 tasks counted" in out + err
    assert "nothing to change" in out
    assert code == 0
