"""`tilelet bench`: selection of sections, and its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from tilelet.bench import sections
from tilelet.bench.cases import vector_case
from tilelet.bench.runner import Bench
from tilelet.bench.sections import SECTIONS, Section


@pytest.fixture
def tilelet(command_line: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `tilelet bench` in an empty folder, with two small sections: `add` and `stop`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TILELET_BUILD_DIR", raising=False)
    monkeypatch.setitem(SECTIONS, "add", Section("a small sum", add))
    monkeypatch.setitem(SECTIONS, "stop", Section("Ctrl-C after one row", stop))
    monkeypatch.setitem(SECTIONS, "wrong", Section("a case that fails", wrong))
    return command_line


def add(bench: Bench) -> None:
    bench.measure([vector_case(bench.data, "add", 16, 64)])


def stop(bench: Bench) -> None:
    bench.add("measured before", "a row")
    raise KeyboardInterrupt


def wrong(bench: Bench) -> None:
    with bench.guard("a case"):
        raise ValueError("odd")


def test_help_has_examples(tilelet: Run) -> None:
    code, out, _ = tilelet("bench", "--help")
    assert code == 0
    assert "tilelet bench matmul decode" in out.split("Examples:")[1]


def test_sections_are_listed(tilelet: Run) -> None:
    code, out, _ = tilelet("bench", "--list")
    assert code == 0
    assert "decode     a whole decode layer, here and in torch\n" in out
    wanted = {"matmul", "scope1", "scope3", "attention", "decode", "prefill", "vector", "goldens"}
    assert wanted <= set(sections.SECTIONS)


def test_an_unknown_section_gets_a_suggestion(tilelet: Run, tmp_path: Path) -> None:
    code, _, err = tilelet("bench", "matmull")
    assert code == 2
    assert "error[E0715]: the bench has no section `matmull`" in err
    assert "did you mean `matmul`?" in err
    assert not list(tmp_path.iterdir())


def test_a_section_is_measured_shown_and_saved(tilelet: Run, tmp_path: Path) -> None:
    code, out, err = tilelet("bench", "--quick", "add", "--json", "out.json")
    assert code == 0
    assert "FMA peak" in out.split("\n")[0]
    assert "add [16,64]" in out
    assert "saved as out.json" in out
    assert "add: add [16,64] ..." in err
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["machine"]["fma_peak"] > 0
    assert document["options"] == {"sections": ["add"], "quick": True}
    assert [row["name"] for row in document["rows"]] == ["add [16,64]"]
    assert document["rows"][0]["figures"]["tasks"] == 2


def test_without_a_path_figures_are_saved_with_the_runs(tilelet: Run, tmp_path: Path) -> None:
    code, out, _ = tilelet("bench", "--quick", "wrong")
    assert code == 1
    assert "failed: ValueError: odd" in out
    (saved,) = (tmp_path / "build_output").glob("bench_*.json")
    assert f"saved as build_output/{saved.name}" in out


def test_ctrl_c_leaves_what_was_measured(tilelet: Run, tmp_path: Path) -> None:
    code, out, _ = tilelet("bench", "--quick", "add", "stop", "wrong", "--json", "out.json")
    assert code == 130
    assert "interrupted" in out
    assert out.count("measured before") == 1
    assert out.count("\nadd\n") == 1
    assert "a case" not in out
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["interrupted"] is True
    assert [row["name"] for row in document["rows"]] == ["add [16,64]", "measured before"]


def test_a_path_that_cannot_be_written_is_found_at_once(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = tilelet("bench", "--quick", "add", "--json", "file/out.json")
    assert code == 2
    assert "error[E0705]: `--json`: `file` is not a folder" in err
    assert not out


def test_no_compiler_is_said_with_the_ways_to_get_one(
    tilelet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    code, _, err = tilelet("bench", "--quick", "add")
    assert code == 3
    assert "error[E0713]" in err
    assert "pip install 'tilelet[cc]'" in err
