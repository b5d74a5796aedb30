"""Notebook output: plain markup, everything escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
from tests.device.recording import elementwise, projection
from tests.report.runs import device_run

import tilelet
import tilelet.language as pl
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import Table
from tilelet.report.notebook import BINS, _busy, timeline_svg


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def test_tables_and_texts_are_escaped() -> None:
    table = Table("<b>t</b>", ("<i>h</i>",), [("<script>x</script>",)], notes=["<u>n</u>"])
    page = Tags()
    page.feed(parts_html([table, "<em>text</em>"]))
    assert not page.seen & {"b", "i", "script", "u", "em"}
    assert {"table", "pre"} <= page.seen


def test_long_tables_and_cells_are_cut() -> None:
    table = Table("t", ("h",), [("x" * 500,)] * 100)
    text = parts_html([table])
    assert "and 76 more rows" in text
    assert "x" * 100 not in text


def test_the_timeline_has_an_area_for_each_kernel_and_kind_of_core() -> None:
    text = timeline_svg(device_run(projection()).timeline)
    assert text.count("<polygon") == 1
    assert "AIC" in text
    assert "<script" not in text


def test_busy_time_is_counted_exactly() -> None:
    rng = np.random.default_rng(3)
    start = rng.uniform(0, 90, 50)
    end = start + rng.uniform(0, 10, 50)
    busy = _busy(start, end, 100.0)
    edges = np.linspace(0, 100, BINS + 1)
    for i in range(BINS):
        inside = np.minimum(end, edges[i + 1]) - np.maximum(start, edges[i])
        assert (
            busy[i] == np.float64(inside.clip(0).sum() / (100 / BINS)).round(9)
            or abs(busy[i] - inside.clip(0).sum() / (100 / BINS)) < 1e-9
        )


def test_profiles_show_themselves(tmp_path) -> None:
    @pl.jit
    def double(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.add(x[:, :], x[:, :])
        return out

    x, out = np.ones((16, 128), np.float32), np.zeros((16, 128), np.float32)
    found = tilelet.profile(double, x, out)
    assert "<svg" in found._repr_html_()
    assert "<table" in found.runs[0]._repr_html_()
    written = found.save_html(tmp_path / "double.html")
    assert written.read_text().startswith("<!doctype html>")
    assert tilelet.profile()._repr_html_() == "no program ran"


def test_comparisons_and_verdicts_show_themselves() -> None:
    from tilelet.checks.findings import Status
    from tilelet.checks.verdict import CheckResult, Verdict
    from tilelet.device.report.compare import ProfileComparison

    a, b = device_run(projection(tasks=2)).profile, device_run(projection(tasks=8)).profile
    text = ProfileComparison(a, b)._repr_html_()
    assert "Total Test Time us" in text
    assert "is 1." in text or "faster" in text
    part = CheckResult("race", Status.PROVED, "<i>all pairs</i>")
    shown = Verdict("program", "a2a3", (part,))._repr_html_()
    assert "program on a2a3: no findings" in shown
    assert "&lt;i&gt;all pairs" in shown


def test_nothing_to_draw_is_nothing() -> None:
    run = device_run(elementwise())
    timeline = run.timeline
    assert timeline_svg(type(timeline)(**{**vars(timeline), "finish": timeline.finish[:0]})) == ""
