"""Running cases and making rows of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilelet.bench import goldens, runner, sections, torch_forms
from tilelet.bench.cases import vector_case
from tilelet.bench.report import Goal, Report
from tilelet.bench.runner import Bench
from tilelet.bench.timing import Form, Missing
from tilelet.diag.catalogue.command import NoCompiler
from tilelet.models import registry


@pytest.fixture
def bench() -> Bench:
    made = Bench(Report(), is_quick=True, say=lambda _: None)
    made.section = "test"
    return made


def test_ours_and_others_become_rows(bench: Bench) -> None:
    case = vector_case(bench.data, "add", 16, 64)
    others = [Form("slow", lambda: [case.run() for _ in range(8)]), Missing("JAX", "not here")]
    bench.measure([case], [Goal("read_share", 0.7)], others)
    ours, slow, missing = bench.report.rows
    assert (ours.name, slow.name, missing.note) == ("add [16,64]", "slow", "not here")
    assert ours.figures["tasks"] == 2
    assert ours.figures["runtime_seconds"] > 0
    assert ours.figures["gigabytes"] == pytest.approx(
        3 * 16 * 64 * 4 / ours.figures["seconds"] / 1e9
    )
    low, high = slow.figures["ours_is_faster_low"], slow.figures["ours_is_faster_high"]
    assert 0 < low <= slow.figures["ours_is_faster"] <= high
    assert not missing.figures
    # Small shapes do not show the achievable rate.
    assert ours.goals == []


def test_goals_about_two_threads_need_two(bench: Bench) -> None:
    bench.is_quick = False
    bench.threads = 2
    assert bench._goals(Goal("scaling", 1.8), Goal("seconds", 1.0))[0].figure == "scaling"
    bench.threads = 4
    assert [g.figure for g in bench._goals(Goal("scaling", 1.8), Goal("seconds", 1.0))] == [
        "seconds"
    ]


def raising(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "note", "failed"),
    [
        (MemoryError(), "left out: not enough memory", False),
        (NoCompiler("x"), "failed: `$CC` is `x`, which is not a working C compiler", True),
        (ValueError("odd\nsize"), "failed: ValueError: odd", True),
    ],
)
def test_what_cannot_be_measured_says_why(
    bench: Bench, error: Exception, note: str, failed: bool
) -> None:
    with bench.guard("case"):
        raising(error)()
    assert [(row.note, row.failed) for row in bench.report.rows] == [(note, failed)]
    assert bench.report.failed == failed


def test_data_of_a_section_is_given_back(bench: Bench) -> None:
    first: list[int] = []

    def section(running: Bench) -> None:
        first.append(running.data.normal("x", (4, 4), np.float32).size)
        assert running.section == "one"
        assert running.data._arrays

    bench.run("one", section)
    assert first == [16]
    assert not bench.data._arrays


def test_goldens_see_a_wrong_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    model = registry.models()["qwen3/scope3"]
    monkeypatch.setattr(
        goldens, "SMALL", {"hidden": 256, "intermediate": 512, "sum_chunk": 256, "norm_chunk": 256}
    )
    goldens._check_model(bench, model)
    found = {row.name: row for row in bench.report.rows}
    assert not bench.report.failed, bench.report.rows
    assert found["scope3 refactored, hidden 256"].note == "out 4096/4096"
    bench.report.rows.clear()

    def wrong(*args: object, **named: object) -> dict[str, object]:
        return {"out": np.full((16, 256), 9.0, np.float32)}

    monkeypatch.setattr(goldens, "compute_golden", wrong)
    goldens._check_model(bench, model)
    assert bench.report.failed
    assert bench.report.rows[0].figures["mismatched"] == 4096


def test_contexts_end_at_the_edges_of_all_tiles() -> None:
    lengths = np.full(16, 7, np.int32)
    goldens._end_at_edges(lengths, 512, [64, 512])
    assert list(lengths[:9]) == [512, 65, 64, 63, 512, 512, 511, 1, 511]
    assert set(lengths[9:]) == {7}


def test_without_torch_the_rows_say_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_forms, "is_installed", lambda: False)
    case = vector_case(bench.data, "add", 16, 64)
    assert sections._torch_vector(bench, "add", case) is sections.NO_TORCH
    assert sections._torch_products(bench, case) == [sections.NO_TORCH]
    assert sections._torch_attentions(bench, case) == [sections.NO_TORCH]
    assert list(sections._torch_layers(bench, case)) == [sections.NO_TORCH]
    assert "pip install" in sections.NO_TORCH.note


def test_the_machine_is_described_in_a_line(bench: Bench) -> None:
    facts = {**bench.report.machine, "load": 3.0, "fma_peak": 2e11}
    assert "FMA peak 200 GFLOP/s" in runner.machine_text(facts)
    assert "other work is running (load 3.0)" in runner.machine_text(facts)
    assert "other work" not in runner.machine_text({**facts, "load": 0.1})


def test_calls_are_measured(bench: Bench) -> None:
    sections.SECTIONS["call"].run(bench)
    rows = {row.name: row for row in bench.report.rows}
    assert not any(row.failed for row in rows.values())
    for name in ("a @pl.jit function", "compile_program of it", "tilelet run hello.py"):
        assert rows[name].figures["seconds"] > 0
    assert rows["the same text again"].figures["seconds"] >= 0
    assert "without checks" in rows["checks of hello.py, new text"].note


def test_searches_become_rows(bench: Bench) -> None:
    sections.SECTIONS["tune"].run(bench)
    ours, drawn = bench.report.rows
    assert ours.name.startswith("descent")
    assert ours.figures["gain"] >= 1.0
    assert ours.figures["candidates_per_minute"] > 0
    assert drawn.figures["ours_is_faster"] == ours.figures["gain"] / drawn.figures["gain"]
    assert not ours.failed
