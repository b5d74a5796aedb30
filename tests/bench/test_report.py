"""Rows, targets and tables of the bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilelet.bench.page import bench_markdown
from tilelet.bench.report import FIGURES, Goal, Report, Row, time_text
from tilelet.diag.catalogue.command import CannotWrite


def sample() -> Report:
    report = Report()
    ours = Row("decode", "ours", {"seconds": 0.2, "fma_share": 0.5, "tasks": 33411, "flops": 1e9})
    ours.goals = [
        Goal("fma_share", 0.6),
        Goal("seconds", 1.0, is_upper=True),
        Goal("scaling", 1.8),
    ]
    other = Row("decode", "torch", {"seconds": 0.7, "ours_is_faster": 3.5}, note="by blocks")
    other.goals = [Goal("ours_is_faster", 3.0)]
    report.rows += [ours, other, Row("matmul", "JAX", note="not installed")]
    return report


def test_goals_are_met_from_the_right_side() -> None:
    assert Goal("seconds", 1.0, is_upper=True).is_met(1.0)
    assert not Goal("seconds", 1.0, is_upper=True).is_met(1.1)
    assert Goal("scaling", 1.8).is_met(1.8)
    assert not Goal("scaling", 1.8).is_met(1.7)


def test_a_section_shows_its_own_rows_and_the_columns_they_have() -> None:
    table = sample().section_table("decode")
    assert table is not None
    assert table.heads == ["", "time", "of FMA peak", "ours is faster", "reach", "note"]
    assert table.rows[0] == ["ours", "200.0 ms", "50 %", "", ">= 60 % NOT met, <= 1.00 s met", ""]
    assert table.rows[1][-2:] == [">= 3.00x met", "by blocks"]
    assert sample().section_table("vector") is None


def test_other_work_on_the_machine_is_said() -> None:
    report = sample()
    report.other_work = {"decode": 0.25, "matmul": 0.01}
    tables = [report.section_table("decode"), report.section_table("matmul")]
    notes = [table.notes for table in tables if table]
    took = "other work took 25 % of this machine meanwhile: these times are too long"
    assert notes == [[took], []]
    assert report.document()["other_work"]["decode"] == 0.25


def test_the_engine_has_a_table_of_its_own() -> None:
    table = sample().engine_table()
    assert table is not None
    assert table.heads == ["", "tasks"]
    assert table.rows == [["ours", "33,411"]]


def test_reach_counts_goals_and_names_those_that_are_not_met() -> None:
    report = sample()
    table = report.reach_table()
    assert table is not None
    assert table.title == "reach: 2 of 3 met; not met:"
    assert table.rows == [["ours", "of FMA peak", "50 %", ">= 60 %"]]
    report.rows[0].figures["fma_share"] = 0.7
    table = report.reach_table()
    assert table is not None
    assert (table.title, table.rows) == ("reach: 3 of 3 met", [])
    assert Report().reach_table() is None


def test_the_document_has_all_figures_and_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    report = sample()
    report.interrupted = True
    report.save(path)
    document = json.loads(path.read_text())
    assert document["interrupted"] is True
    assert document["rows"][0]["figures"]["flops"] == 1e9
    assert [g["met"] for g in document["rows"][0]["goals"]] == [False, True]
    assert document["rows"][2]["note"] == "not installed"


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot write"):
        sample().save(tmp_path / "file" / "bench.json")


@pytest.mark.parametrize(
    ("seconds", "text"), [(3e-6, "3 us"), (0.0123, "12.3 ms"), (2.5, "2.50 s")]
)
def test_times_have_fitting_units(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_every_figure_can_be_written() -> None:
    assert all(figure.head and figure.text(0.5) for figure in FIGURES.values())


def test_the_page_shows_what_the_document_says(tmp_path: Path) -> None:
    report = sample()
    report.machine = {
        "cpu": "Some CPU", "isa": "AVX2", "threads": 2, "load": 0.0, "compiler": "cc: 1",
        "packages": {"torch": "2.0", "jax": None}, "fma_peak": 5e10, "read_bandwidth": 4e10,
        "read_streams_bandwidth": 4e10, "copy_bandwidth": 2e10,
    }  # fmt: skip
    report.save(tmp_path / "some.json")
    page = bench_markdown(tmp_path)
    assert "## Some CPU, AVX2" in page
    assert f"{report.measured}, Tilelet {report.version}. Some CPU, 2 threads: FMA peak 50" in page
    assert "Packages: torch 2.0." in page
    assert "| torch | 700.0 ms |  | 3.50x | >= 3.00x met | by blocks |" in page
    assert "reach: 2 of 3 met" in page
