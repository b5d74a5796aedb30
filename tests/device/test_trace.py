"""Files for trace viewers: valid, complete, bounded and deterministic."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.device.recorded import A2A3, chain, device_run, many_rows

import tilelet.language as pl
from tilelet.device.report import trace
from tilelet.device.report.critical import critical_path
from tilelet.device.report.trace import TimelineTrace


def test_one_lane_per_core_and_all_executions() -> None:
    timeline = device_run(chain).timeline
    document = json.loads(TimelineTrace(timeline).chrome())
    events = document["traceEvents"]
    lanes = [e for e in events if e["name"] == "thread_name" and e["pid"] == trace.WORKER_VIEW]
    assert len(lanes) == A2A3.cores.clusters + A2A3.cores.vectors
    assert {lanes[0]["args"]["name"], lanes[-1]["args"]["name"]} == {"AIC 0", "AIV 47"}
    slices = Counter((e["pid"], e["name"]) for e in events if e["ph"] == "X")
    assert slices[trace.WORKER_VIEW, "product"] == slices[trace.WORKER_VIEW, "activate"] == 4
    assert slices[trace.ORCHESTRATOR, "submit"] == 8
    assert slices[trace.SCHEDULERS, "dispatch"] == slices[trace.SCHEDULERS, "complete"] == 8
    assert document["otherData"]["thinned"] == ""
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")


def test_arrows_join_producers_and_consumers() -> None:
    timeline = device_run(chain).timeline
    events = json.loads(TimelineTrace(timeline).chrome())["traceEvents"]
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(begins) == 4
    assert begins.keys() == ends.keys()
    assert all(begins[i]["ts"] < ends[i]["ts"] for i in begins)
    # An arrow starts where a slice ends, on the same lane.
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == trace.WORKER_VIEW]
    for e in begins.values():
        assert any(
            s["tid"] == e["tid"] and abs(s["ts"] + s["dur"] - e["ts"]) < 0.01 for s in slices
        )


def test_records_can_be_joined() -> None:
    timeline = device_run(chain).timeline
    document = json.loads(TimelineTrace(timeline).swimlane())
    meta = document["metadata"]
    assert meta["num_cores"] == len(meta["core_types"]) == len(meta["core_to_thread"]) == 72
    cores = {(r["core_id"], r["reg_task_id"]): r for r in document["aicore_tasks"]}
    runtime = {(r["core_id"], r["reg_task_id"]): r for r in document["aicpu_tasks"]}
    assert len(cores) == len(runtime) == 8
    for key, r in cores.items():
        stamps = [runtime[key]["dispatch_cycles"], r["start_cycles"], r["end_cycles"]]
        stamps.append(runtime[key]["finish_cycles"])
        assert stamps == sorted(stamps)
    finish = max(r["finish_cycles"] for r in runtime.values())
    dispatch = min(r["dispatch_cycles"] for r in runtime.values())
    us = (finish - dispatch) / meta["clock_freq_hz"] * 1e6
    assert us == pytest.approx(timeline.total_us, abs=0.002)
    assert len(document["aicpu_scheduler_phases"]) == timeline.runtime.threads
    assert [p["submit_idx"] for p in document["aicpu_orchestrator_phases"]] == list(range(8))


def test_the_graph_tells_kinds_of_edges() -> None:
    @pl.jit
    def explicit(
        x: pl.Tensor[[16, 64], pl.FP32],
        own: pl.InOut[pl.Tensor[[16, 64], pl.FP32]],
        y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP) as first:
            made = pl.exp(x[:, :])
        with pl.at(level=pl.Level.CORE_GROUP):
            own[:, :] = pl.neg(made)
        with pl.at(level=pl.Level.CORE_GROUP, deps=[first]):
            y[:, :] = pl.neg(own[:, :])
        return own, y

    run = device_run(explicit)
    graph = json.loads(TimelineTrace(run.timeline).deps())
    kinds = {(e["from"], e["to"]): e["kind"] for e in graph["edges"]}
    assert kinds == {(0, 1): "creator", (0, 2): "explicit", (1, 2): "tensormap"}
    names = json.loads(TimelineTrace(run.timeline).name_map())
    for task in graph["tasks"]:
        aic, *vectors = task["kernel_ids"]
        assert aic == -1
        assert names[str(vectors[0])] == f"explicit_incore_{task['task_id']}"


def test_a_mixed_kernel_has_two_functions() -> None:
    @pl.jit
    def mixed(
        x: pl.Tensor[[16, 64], pl.FP32],
        w: pl.Tensor[[64, 64], pl.FP32],
        y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="both"):
            y[:, :] = pl.exp(pl.matmul(x[:, :], w[:, :], out_dtype=pl.FP32))
        return y

    run = device_run(mixed)
    assert json.loads(TimelineTrace(run.timeline).name_map()) == {"0": "both_aic", "1": "both_aiv"}
    assert [f.name for f in run.profile.functions] == ["both_aic", "both_aiv"]
    assert run.profile.exchanged == 16 * 64 * 4


def test_large_runs_are_thinned_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_TASKS", 100)
    monkeypatch.setattr(trace, "KEPT_TASKS", 40)
    timeline = device_run(many_rows(400)).timeline
    thin = TimelineTrace(timeline)
    assert 20 <= len(thin.tasks) <= 60
    last = int(timeline.task[critical_path(timeline).records[-1]])
    assert last in thin.tasks
    for text in (thin.chrome(), thin.swimlane(), thin.deps()):
        assert f"sampled {len(thin.tasks)} of 400 tasks" in text
    slices = [e for e in json.loads(thin.chrome())["traceEvents"] if e["ph"] == "X"]
    assert {e["args"]["task"] for e in slices} == set(thin.tasks)


def test_the_same_run_gives_the_same_bytes() -> None:
    assert (
        TimelineTrace(device_run(chain).timeline).files()
        == TimelineTrace(device_run(chain).timeline).files()
    )


def test_slices_tell_source_bytes_and_what_limits_them() -> None:
    run = device_run(chain)
    bounds = {k.name: k.bound for k in run.profile.kernels}
    events = json.loads(TimelineTrace(run.timeline, bounds).chrome())["traceEvents"]
    (cost,) = {id(c): c for c in map(run.timeline.cost_of, range(0, 8, 2))}.values()
    for view in (trace.WORKER_VIEW, trace.SCHEDULER_VIEW):
        for e in events:
            if e["ph"] != "X" or e["pid"] != view:
                continue
            args = e["args"]
            assert args["source"].startswith("recorded.py:")
            assert args["bound"] == bounds[e["name"]]
            if e["name"] == "product":
                assert (args["read"], args["written"]) == (cost.read_bytes, cost.written_bytes)
                assert args["pipes_us"].keys() >= {"AIC.CUBE", "AIC.MTE2", "AIC.FIXPIPE"}


def test_pipes_lie_inside_their_tasks() -> None:
    timeline = device_run(chain).timeline
    events = json.loads(TimelineTrace(timeline).chrome())["traceEvents"]
    names = {
        e["tid"]: e["args"]["name"]
        for e in events
        if e["pid"] == trace.PIPES_VIEW and e["name"] == "thread_name"
    }
    tasks = {
        e["args"]["task"]: e for e in events if e["ph"] == "X" and e["pid"] == trace.WORKER_VIEW
    }
    pipes = [e for e in events if e["ph"] == "X" and e["pid"] == trace.PIPES_VIEW]
    assert {e["args"]["task"] for e in pipes} == set(tasks)
    seen = Counter(names[e["tid"]].split()[-1] for e in pipes)
    assert seen["CUBE"] == seen["FIXPIPE"] == seen["VEC"] == 4
    for e in pipes:
        task = tasks[e["args"]["task"]]
        assert names[e["tid"]].startswith(timeline.core_name(task["tid"]))
        assert task["ts"] - 0.002 <= e["ts"]
        assert e["ts"] + e["dur"] <= task["ts"] + task["dur"] + 0.002
        assert e["args"]["busy_us"] > 0
        stretch = task["dur"] / timeline.cost_of(e["args"]["task"]).exec_us
        assert e["args"]["busy_us"] * stretch <= e["dur"] + 0.01


def test_pipes_of_many_tasks_are_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_PIPED", 100)
    events = json.loads(TimelineTrace(device_run(many_rows(400)).timeline).chrome())["traceEvents"]
    shown = {e["args"]["task"] for e in events if e["ph"] == "X" and e["pid"] == trace.PIPES_VIEW}
    assert 80 <= len(shown) <= 100
