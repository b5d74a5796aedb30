"""docs/qwen3.md: generated, up to date, and with correct plots."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tilelet.cli.main import main
from tilelet.models import registry
from tilelet.models.qwen3.walkthrough import page
from tilelet.models.qwen3.walkthrough.plot import Plot, PlotGroup, PlotLine

DOCS = Path(__file__).parent.parent.parent / "docs"
CHEAP = "scope1,scope2"  # the others take seconds each
Output = pytest.CaptureFixture[str]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for name in ("qwen3.md", "qwen3.svg"):
        shutil.copy(DOCS / name, tmp_path / name)
    return tmp_path


def changed(path: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, by, path.read_text(encoding="utf-8"), count=1)
    assert count == 1
    path.write_text(text, encoding="utf-8")


def test_figures_of_the_cheap_programs_are_current() -> None:
    assert main(["walkthrough", "--check", "--only", CHEAP, "--dir", str(DOCS)]) == 0


def test_a_figure_that_is_not_current_is_noticed(copied: Path, capsys: Output) -> None:
    changed(copied / "qwen3.md", r"\| 161 \| 211\.2 MB", "| 160 | 211.2 MB")
    arguments = ["walkthrough", "--check", "--only", "scope1", "--dir", str(copied)]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "qwen3.md is not up to date: run `make walkthrough`" in err
    assert "| 160 |" in err
    assert main(["walkthrough", "--check", "--only", "scope2", "--dir", str(copied)]) == 0


def test_cpu_times_may_differ(copied: Path) -> None:
    changed(copied / "qwen3.md", r"\| [\d.,]+ ms \|\n", "| 99,999 ms |\n")
    changed(copied / "qwen3.md", r"CPU times: .*", "CPU times: another CPU, 96 threads.")
    assert main(["walkthrough", "--check", "--only", "scope1", "--dir", str(copied)]) == 0


def test_a_missing_page_is_not_up_to_date(tmp_path: Path, capsys: Output) -> None:
    assert main(["walkthrough", "--check", "--only", "scope1", "--dir", str(tmp_path)]) == 1
    assert "run `make walkthrough`" in capsys.readouterr().err
    assert main(["walkthrough", "--write", "--keep-cpu", "--dir", str(tmp_path)]) == 3
    assert "has no CPU times" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--check", "--only", "scope9"], "`scope9` is none of scope1, scope2"),
        (["--write", "--only", "scope1"], "`--only` goes with `--check` and `--ladders`"),
        ([], "one of the arguments --write --check --ladders is required"),
    ],
)
def test_wrong_usage(argv: list[str], text: str, capsys: Output) -> None:
    try:
        code = main(["walkthrough", *argv])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert text in capsys.readouterr().err


def test_every_variant_is_told_of_and_drawn() -> None:
    text = (DOCS / "qwen3.md").read_text(encoding="utf-8")
    drawn = ET.parse(DOCS / "qwen3.svg").getroot()
    labels = [e.text for e in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for name, model in registry.models().items():
        section = next(s for s in page.SECTIONS if f"qwen3/{s.model}" == name)
        assert {step.variant for step in section.steps} == set(model.variants)
        for variant in model.variants:
            assert f"`{variant}`:" in page.section_of(text, section.title)
            assert variant in labels


def test_published_figures_stand_beside_ours() -> None:
    text = (DOCS / "qwen3.md").read_text(encoding="utf-8")
    for row in ("| 33,411 | 33,411 | 63,044 |", "| 1,651 | 1,651 | 3,284 |"):
        assert row in text


def test_cpu_times_of_an_older_page_are_kept() -> None:
    text = (DOCS / "qwen3.md").read_text(encoding="utf-8")
    (chapter,) = page.chapters_of(["scope1"])
    assert chapter.keep_cpu(text)
    assert chapter.markdown() in text
    assert not page.chapters_of(["scope1"])[0].keep_cpu("## Another page\n")


def marks(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'<circle class="s0" cx="([\d.]+)"', svg)][1:]


def test_the_axis_of_the_plot_is_logarithmic() -> None:
    lines = [PlotLine(str(v), {"a": v, "b": 2 * v}) for v in (10.0, 100.0, 1000.0, 3000.0)]
    svg = Plot("a < b", "us", ["a", "b"], [PlotGroup("all", lines)]).svg()
    ET.fromstring(svg)
    assert "a &lt; b" in svg
    x = marks(svg)
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert x[3] - x[2] == pytest.approx(0.477 * (x[1] - x[0]), abs=0.2)
    assert "prefers-color-scheme: dark" in svg
