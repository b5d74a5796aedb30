"""Programs whose tasks decide which tasks follow: every command accepts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

from tilelet.checks import init
from tilelet.device.machine.description import load_machine
from tilelet.device.report.critical import critical_path
from tilelet.device.run import DeviceRun
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target

HEAD = """\
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

rng = np.random.default_rng(0)
"""

MOE = (
    HEAD
    + '''
TOKENS, WIDTH, EXPERTS, BLOCK = 64, 128, 4, 16

@pl.jit
def moe(
    x: pl.Tensor[[TOKENS, WIDTH], pl.FP32],
    expert: pl.Tensor[[1, TOKENS], pl.INT32],
    w: pl.Tensor[[EXPERTS * WIDTH, WIDTH], pl.FP32],
    counts: pl.Out[pl.Tensor[[1, EXPERTS], pl.INT32]],
    out: pl.InOut[pl.Tensor[[EXPERTS * TOKENS, WIDTH], pl.FP32]],
):
    """Count the tokens of each expert in a task; multiply as many blocks as that takes."""
    with pl.at(level=pl.Level.CORE_GROUP):
        for e in pl.range(EXPERTS):
            n = 0
            for t in pl.range(TOKENS):
                if pl.read(expert, [0, t]) == e:
                    n = n + 1
            pl.write(counts, [0, e], pl.cast(n, pl.INT32))
    for e in pl.range(EXPERTS):
        for b in pl.range(0, pl.read(counts, [0, e]), BLOCK):
            with pl.at(level=pl.Level.CORE_GROUP):
                rows = pl.slice(x, [BLOCK, WIDTH], [b, 0])
                part = pl.matmul(rows, w[e * WIDTH : e * WIDTH + WIDTH, :])
                out[e * TOKENS + b : e * TOKENS + b + BLOCK, :] = part
    return counts, out

def golden(t):
    t["counts"][0] = np.bincount(t["expert"][0], minlength=EXPERTS)
    for e in range(EXPERTS):
        for b in range(0, int(t["counts"][0, e]), BLOCK):
            rows = t["x"][b : b + BLOCK]
            t["out"][e * TOKENS + b : e * TOKENS + b + BLOCK] = (
                rows @ t["w"][e * WIDTH : e * WIDTH + WIDTH]
            )

result = run(
    moe,
    [
        TensorSpec("x", [TOKENS, WIDTH], pl.FP32, rng.normal(size=(TOKENS, WIDTH))),
        TensorSpec("expert", [1, TOKENS], pl.INT32, rng.integers(0, EXPERTS, (1, TOKENS))),
        TensorSpec(
            "w", [EXPERTS * WIDTH, WIDTH], pl.FP32, rng.normal(size=(EXPERTS * WIDTH, WIDTH))
        ),
        TensorSpec("counts", [1, EXPERTS], pl.INT32, is_output=True),
        TensorSpec("out", [EXPERTS * TOKENS, WIDTH], pl.FP32, np.zeros, is_output=True),
    ],
    golden,
    rtol=1e-3,
    atol=1e-3,
)
raise SystemExit(not result.passed)
'''
)

PAGED = (
    HEAD
    + '''
PAGES, ROWS, WIDTH, BATCH = 8, 16, 64, 2

@pl.jit
def paged(
    pool: pl.Tensor[[PAGES * ROWS, WIDTH], pl.FP32],
    table: pl.Tensor[[BATCH, 4], pl.INT32],
    lengths: pl.Tensor[[1, BATCH], pl.INT32],
    used: pl.Out[pl.Tensor[[1, BATCH], pl.INT32]],
    out: pl.Out[pl.Tensor[[BATCH * ROWS, WIDTH], pl.FP32]],
):
    """A task computes how many pages each sequence has; their sum is added up page by page."""
    with pl.at(level=pl.Level.CORE_GROUP):
        for b in pl.range(BATCH):
            pl.write(used, [0, b], pl.cast((pl.read(lengths, [0, b]) + 15) // 16, pl.INT32))
    for b in pl.range(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP):
            zero = pl.full([ROWS, WIDTH], dtype=pl.FP32, value=0.0)
            out[b * ROWS : b * ROWS + ROWS, :] = zero
        for p in pl.range(pl.read(used, [0, b])):
            page = pl.read(table, [b, p])
            with pl.at(level=pl.Level.CORE_GROUP):
                so_far = out[b * ROWS : b * ROWS + ROWS, :]
                more = pl.add(so_far, pl.slice(pool, [ROWS, WIDTH], [page * ROWS, 0]))
                out[b * ROWS : b * ROWS + ROWS, :] = more
    return used, out

def golden(t):
    t["used"][0] = (t["lengths"][0] + 15) // 16
    t["out"][:] = 0
    for b in range(BATCH):
        for p in range(int(t["used"][0, b])):
            page = int(t["table"][b, p]) * ROWS
            t["out"][b * ROWS : b * ROWS + ROWS] += t["pool"][page : page + ROWS]

result = run(
    paged,
    [
        TensorSpec("pool", [PAGES * ROWS, WIDTH], pl.FP32, rng.normal(size=(PAGES * ROWS, WIDTH))),
        TensorSpec("table", [BATCH, 4], pl.INT32, rng.permutation(8).reshape(2, 4)),
        TensorSpec("lengths", [1, BATCH], pl.INT32, np.array([[40, 17]])),
        TensorSpec("used", [1, BATCH], pl.INT32, is_output=True),
        TensorSpec("out", [BATCH * ROWS, WIDTH], pl.FP32, is_output=True),
    ],
    golden,
    rtol=1e-4,
    atol=1e-4,
)
raise SystemExit(not result.passed)
'''
)

SCAN = (
    HEAD
    + '''
CHUNKS, ROWS, WIDTH = 6, 16, 64

@pl.jit
def scan(
    x: pl.Tensor[[CHUNKS * ROWS, WIDTH], pl.FP32],
    stop: pl.Tensor[[1, 8], pl.INT32],
    last: pl.Out[pl.Tensor[[1, 8], pl.INT32]],
    state: pl.InOut[pl.Tensor[[ROWS, WIDTH], pl.FP32]],
    out: pl.InOut[pl.Tensor[[CHUNKS * ROWS, WIDTH], pl.FP32]],
):
    """A running sum over chunks, up to the chunk that a task has chosen."""
    with pl.at(level=pl.Level.CORE_GROUP):
        last[:] = pl.add(stop, 1)
    for c in pl.range(pl.read(last, [0, 0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            total = pl.add(state, x[c * ROWS : c * ROWS + ROWS, :])
            out[c * ROWS : c * ROWS + ROWS, :] = total
            state[:] = total
    return last, state, out

def golden(t):
    t["last"][:] = t["stop"] + 1
    for c in range(int(t["last"][0, 0])):
        t["state"][:] += t["x"][c * ROWS : c * ROWS + ROWS]
        t["out"][c * ROWS : c * ROWS + ROWS] = t["state"]

result = run(
    scan,
    [
        TensorSpec("x", [CHUNKS * ROWS, WIDTH], pl.FP32, rng.normal(size=(CHUNKS * ROWS, WIDTH))),
        TensorSpec("stop", [1, 8], pl.INT32, np.full((1, 8), 3)),
        TensorSpec("last", [1, 8], pl.INT32, is_output=True),
        TensorSpec("state", [ROWS, WIDTH], pl.FP32, np.zeros, is_output=True),
        TensorSpec("out", [CHUNKS * ROWS, WIDTH], pl.FP32, np.zeros, is_output=True),
    ],
    golden,
    rtol=1e-4,
    atol=1e-4,
)
raise SystemExit(not result.passed)
'''
)

CALL = """\
import numpy as np
import tilelet.language as pl

@pl.jit
def grow(n: pl.InOut[pl.Tensor[[1, 8], pl.INT32]], out: pl.InOut[pl.Tensor[[64, 8], pl.INT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        n[:] = pl.add(n, 1)
    for i in pl.range(pl.read(n, [0, 0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i : i + 1, :] = pl.add(n, 0)
    return n, out

n, out = np.ones((1, 8), np.int32), np.zeros((64, 8), np.int32)
for _ in range(2):
    grow(n, out)
"""

SCRIPTS = {"moe": MOE, "paged": PAGED, "scan": SCAN}
# Tasks for these inputs: the deciding one and those that follow.
TASKS = {"moe": 1 + 6, "paged": 1 + 2 + 3 + 2, "scan": 1 + 4}


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / f"{request.param}.py"
    file.write_text(SCRIPTS[request.param], encoding="utf-8")
    return file.name


def codes(document: str) -> list[str]:
    return [d["code"] for d in json.loads(document)["diagnostics"]]


def test_run_names_the_checks_that_it_cannot_make(tilelet: Run, script: str) -> None:
    for strict in ((), ("--strict",)):
        code, out, err = tilelet("run", *strict, script)
        assert code == 0, out + err
        (line,) = [line for line in err.splitlines() if "not checked" in line]
        assert "race, limits (its tasks decide which tasks follow)" in line
        assert "memory, init, tolerance (left to `tilelet check`)" in line


def test_tasks_profile_and_check_hold_for_the_inputs_of_the_script(
    tilelet: Run, script: str
) -> None:
    name = script.removesuffix(".py")
    for command in (("tasks",), ("tasks", "--as-runtime")):
        code, out, err = tilelet(*command, "--format", "json", script)
        assert code == 0, err
        assert json.loads(out)["tasks"][0]["total"] == TASKS[name]
        assert codes(out) == ["W0604"]
    code, out, err = tilelet("profile", "--format", "json", script)
    assert code == 0, err
    assert json.loads(out)["profiles"][0]["tasks"] == TASKS[name]
    assert codes(out) == ["W0604"]
    code, out, err = tilelet("check", "--format", "json", script)
    assert code == 0, out
    parts = {p["check"]: p["status"] for p in json.loads(out)["verdicts"][0]["parts"]}
    assert "not checked" not in parts.values()
    assert "W0604" in codes(out)


def test_the_note_names_the_inputs(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "moe.py").write_text(MOE, encoding="utf-8")
    _, _, err = tilelet("tasks", "moe.py")
    assert "`counts`, which its tasks compute, decides which tasks follow" in err
    assert "these inputs: `x`, `expert`, `w` and `out` (digest " in err


@pytest.mark.parametrize("command", ["advise", "compare", "verdict"])
def test_programs_are_advised_compared_and_judged(tilelet: Run, script: str, command: str) -> None:
    others = (script,) if command == "compare" else ()
    code, out, err = tilelet(command, script, *others)
    assert code in (0, 1), out + err
    assert "E0514" not in out + err
    assert "could not run" not in out + err


def test_programs_are_tuned(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "moe.py").write_text(MOE, encoding="utf-8")
    code, out, err = tilelet("tune", "--budget", "2", "--jobs", "1", "moe.py")
    assert code == 0, out + err
    assert "PASS against the golden" in out


def test_an_element_out_of_bounds_is_found_in_the_tasks_of_the_run(
    tilelet: Run, tmp_path: Path
) -> None:
    """A planted bug: the last block of an expert exceeds the rows of `x`."""
    text = MOE.replace("[b, 0])", "[b + 64 - BLOCK, 0])")
    (tmp_path / "moe.py").write_text(text, encoding="utf-8")
    code, out, err = tilelet("check", "moe.py")
    assert code != 0
    assert "error[E05" in out + err


def test_calls_are_recorded_on_the_data_that_they_were_given(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "grow.py").write_text(CALL, encoding="utf-8")
    code, out, err = tilelet("profile", "--format", "json", "grow.py")
    assert code == 0, err
    assert [p["tasks"] for p in json.loads(out)["profiles"]] == [1 + 2, 1 + 3]


def test_verdict_names_the_checks_that_were_not_made(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "grow.py").write_text(CALL, encoding="utf-8")
    _, out, _ = tilelet("verdict", "grow.py")
    (line,) = [line for line in out.splitlines() if "not checked" in line]
    assert line.startswith("not checked: tolerance (")


def test_the_model_waits_for_what_the_control_program_reads(
    tmp_path: Path, own_cache: Path
) -> None:
    """Tasks whose number a task computes are submitted after that task is done."""
    script = tmp_path / "k.py"
    script.write_text(MOE)
    (run,) = record(Target(str(script)), RecordingOptions(build_dir=tmp_path, quiet=True)).runs
    assert set(run.tasks.awaited.values()) == {(0,)}  # all experts read the first task's counts
    device_run = DeviceRun(run, load_machine("a2a3"))
    timeline, path = device_run.timeline, device_run.profile.path
    assert timeline.submitted[1] > timeline.finished[0]
    assert device_run.profile.read_stall_us > 0
    # The critical path includes the task that counts.
    assert sum(path.values()) == pytest.approx(timeline.total_us)
    assert critical_path(timeline).records[0] == 0


def test_verdict_says_for_which_inputs_it_holds(tilelet: Run) -> None:
    Path("k.py").write_text(MOE)
    _, out, _ = tilelet("verdict", "--json", "k.py")
    assert [d["code"] for d in json.loads(out)["diagnostics"]].count("W0604") == 1


def test_machines_share_the_executed_run(tilelet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that does not depend on the machine is done once; each machine keeps its answer."""
    Path("moe.py").write_text(MOE)
    runs: list[bool] = []
    watch = init.watch

    def counted(*args: Any, values: bool) -> Any:
        runs.append(values)
        return watch(*args, values=values)

    monkeypatch.setattr(init, "watch", counted)

    def parts(*platform: str) -> list[Any]:
        runs.clear()
        _, out, _ = tilelet("check", "--json", *platform, "moe.py")
        return [{k: v[k] for k in ("machine", "parts")} for v in json.loads(out)["verdicts"]]

    both = parts("--platforms", "a2a3,a5")
    assert runs == [False, True]
    assert both == [*parts("-p", "a2a3"), *parts("-p", "a5")]
