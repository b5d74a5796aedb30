"""A page agrees with the timeline, the graph and the profile."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.recording import chain, elementwise, held, mixed, projection
from tests.report.runs import column, device_run

import tilelet.language as pl
from tilelet.device.report.critical import critical_path
from tilelet.device.report.trace import TimelineTrace
from tilelet.device.run import DeviceRun
from tilelet.report import run_data
from tilelet.report.columns import unpack
from tilelet.report.document import check_document, compare_document, profile_document


def chain_of_many():
    """Many writers of one tensor, then many readers: the graph has a join."""

    @pl.program
    class Many:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[640, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[640, 128], pl.FP32]],
        ):
            t = pl.create_tensor([640, 128], dtype=pl.FP32)
            for i in pl.parallel(40):
                with pl.incore():
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
            for j in pl.parallel(4):
                with pl.incore():
                    part = pl.add(
                        pl.slice(t, [16, 128], [0, 0]), pl.slice(t, [16, 128], [j * 16, 0])
                    )
                    y = pl.assemble(y, part, [j * 16, 0])
            return y

    return Many


PROGRAMS = {
    "elementwise": elementwise,
    "chain": chain,
    "projection": projection,
    "mixed": lambda: mixed(pl.SplitMode.UP_DOWN),
    "joins": chain_of_many,
}


@pytest.fixture(params=PROGRAMS)
def run(request: pytest.FixtureRequest) -> DeviceRun:
    return device_run(PROGRAMS[request.param]())


def test_stamps_are_the_timelines(run: DeviceRun) -> None:
    data, t = profile_document([run]), run.timeline
    dispatch = np.array(column(data, "record.dispatch"))
    start = dispatch + column(data, "record.head")
    end = start + column(data, "record.exec")
    finish = end + column(data, "record.tail")
    for got, want in ((dispatch, t.dispatch), (start, t.start), (end, t.end), (finish, t.finish)):
        assert got * 0.001 == pytest.approx(want, abs=0.0011)
    assert column(data, "record.task") == t.task.tolist()
    assert column(data, "record.core") == t.core.tolist()
    assert column(data, "path") == list(critical_path(t).records)
    submitted = np.array(column(data, "task.submitted"))
    assert submitted * 0.001 == pytest.approx(t.submitted, abs=0.0011)
    ready = submitted + column(data, "task.wait")
    assert ready * 0.001 == pytest.approx(np.maximum(t.ready, t.submitted), abs=0.0021)
    back = column(data, "task.released")
    released = [i - b if b else -1 for i, b in enumerate(back)]
    assert released == t.released_by.tolist()


def test_edges_are_the_graphs_and_the_traces(run: DeviceRun) -> None:
    data, graph = profile_document([run]), run.timeline.graph
    counts = column(data, "edge.count")
    back, kinds = column(data, "edge.back"), column(data, "edge.kind")
    consumers = [node for node, n in enumerate(counts) for _ in range(n)]
    assert [c - b for c, b in zip(consumers, back)] == graph.pred.tolist()
    names = {(e.producer, e.consumer): e.kind for e in TimelineTrace(run.timeline).edges}
    for consumer, b, kind in zip(consumers, back, kinds):
        if kind < run_data.JOIN:
            assert names[consumer - b, consumer] == run_data.KINDS[kind]


def test_lines_add_up_to_the_kernels(run: DeviceRun) -> None:
    (data,) = unpack(profile_document([run]))[0]["runs"]
    lines = data["lines"]
    profile = run.profile
    assert sum(line[2] for line in lines) == pytest.approx(
        sum(k.exec_us for k in profile.kernels), abs=0.01
    )
    assert sum(line[3] for line in lines) == pytest.approx(profile.path["exec"], abs=0.01)
    assert sum(line[6] for line in lines) == pytest.approx(sum(k.read for k in profile.kernels))
    assert sum(line[7] for line in lines) == pytest.approx(sum(k.written for k in profile.kernels))
    assert sum(line[8] for line in lines) == profile.tasks
    assert sum(line[9] for line in lines) == pytest.approx(
        sum(k.exec_us for k in profile.kernels), abs=0.01
    )


def test_moves_add_up_to_the_tensors(run: DeviceRun) -> None:
    (data,) = unpack(profile_document([run]))[0]["runs"]
    for tensor in run.profile.tensors:
        mine = [m for m in data["moves"] if (m[1], m[2]) == (tensor.name, tensor.origin)]
        assert sum(m[3] for m in mine) == tensor.read
        assert sum(m[4] for m in mine) == tensor.written


def test_arguments_are_the_tasks(run: DeviceRun) -> None:
    data = profile_document([run])
    (header,) = unpack(data)[0]["runs"]
    regions, scalars = column(data, "argument.region"), column(data, "argument.scalar")
    tensor, offset = column(data, "region.tensor"), column(data, "region.offset")
    layout = column(data, "region.layout")
    runtime = header["runtime"]
    at = number = 0
    for group, site in zip(run.run.tasks.groups, header["sites"]):
        for row, task in enumerate(group.indices):
            windows = [w for w, _ in run.run.tasks[task].windows]
            for j, window in enumerate(windows):
                region = regions[at + j * len(group) + row]
                assert runtime["tensors"][tensor[region]] == window.buffer.name
                assert offset[region] == window.offset
                assert runtime["layouts"][layout[region]]["shape"] == list(window.shape)
            for j in range(len(site["scalars"])):
                value = scalars[number + j * len(group) + row]
                assert value == group.scalars[row * len(group.others) + j]
        at += len(group.tensors) * len(group)
        number += len(site["scalars"]) * len(group)


def test_two_machines_are_two_runs() -> None:
    run = device_run(elementwise())
    header = unpack(profile_document([run, run]))[0]
    assert [r["name"] for r in header["runs"]] == ["Elementwise", "Elementwise"]


def test_a_comparison_has_its_causes_and_both_runs() -> None:
    a, b = device_run(chain(8)), device_run(chain(4))
    header = unpack(compare_document([a, b.profile]))[0]
    assert header["kind"] == "compare"
    assert header["comparison"]["verdict"].startswith("B is ")
    total = sum(cause["us"] for cause in header["comparison"]["causes"])
    assert total == pytest.approx(b.profile.total_us - a.profile.total_us, abs=0.05)
    assert "columns" not in header["runs"][1]


def test_large_runs_are_thinned_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "MAX_TASKS", 100)
    monkeypatch.setattr(run_data, "KEPT_TASKS", 40)
    run = device_run(elementwise(tasks=300))
    data = profile_document([run])
    (header,) = unpack(data)[0]["runs"]
    numbers = column(data, "task.number")
    assert header["thinned"].startswith(f"{len(numbers)} of 300 tasks are shown")
    assert 10 <= len(numbers) <= 60
    assert "edge.count" not in header["columns"]
    tasks = [numbers[i] for i in column(data, "record.task")]
    end = critical_path(run.timeline).records[-1]
    assert int(run.timeline.task[end]) in tasks
    assert header["profile"]["tasks"] == 300
    assert sum(s["shown"] for s in header["sites"]) == len(numbers)


def test_a_name_of_ten_thousand_characters_is_cut() -> None:
    run = device_run(elementwise(), name="n" * 10_000)
    header = unpack(profile_document([run]))[0]
    assert header["runs"][0]["name"].endswith("… (10,000 characters)")
    assert len(header["title"]) < 1000
    assert len(header["runs"][0]["profile"]["program"]) < 1000


VERDICT = {
    "parts": [
        {"check": "init", "status": "proved", "summary": "all", "findings": []},
        {
            "check": "race",
            "status": "found",
            "summary": "1 pair",
            "findings": [
                {
                    "check": "race",
                    "code": "E1102",
                    "status": "found",
                    "message": "two tasks write one region",
                    "places": [
                        {"file": __file__, "line": 9, "role": "writes", "kernel": "k", "task": 0},
                        {"file": __file__, "line": 12, "role": "writes", "kernel": "k", "task": 1},
                    ],
                    "remedy": "deps=[a]",
                    "witness": {"text": "3.0 or 4.0", "seed": 7},
                }
            ],
        },
    ]
}


def test_findings_of_checks_have_their_places() -> None:
    (header,) = unpack(check_document([(device_run(elementwise()), VERDICT)]))[0]["runs"]
    (finding,) = header["findings"]
    file, line = finding["places"][0]["place"]
    assert header["files"][file]["name"] == "test_run_data.py"
    assert (line, finding["places"][1]["task"]) == (9, 1)
    assert (finding["helps"], finding["notes"]) == (["deps=[a]"], ["3.0 or 4.0"])
    assert [c["status"] for c in header["checks"]] == ["proved", "found"]


def test_a_run_that_cannot_be_modelled_still_has_findings() -> None:
    from dataclasses import replace
    from types import MappingProxyType

    run = device_run(held(40))
    period = run.machine.default_period
    narrow = replace(run.machine.runtime[period], task_window=4)
    run.machine = replace(run.machine, runtime=MappingProxyType({period: narrow}))
    (header,) = unpack(check_document([(run, VERDICT)]))[0]["runs"]
    assert len(header["findings"]) == 2
    assert header["findings"][1]["code"].startswith("E09")
    assert header["memory"]
    assert "columns" not in header
